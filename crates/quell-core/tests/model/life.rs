//! The lifecycle in its environment: all states, and the promises that hold in each.

use quell_core::{Actor, Cause, LastKnown, Phase, RootOutcome, Verdict};

use crate::explore::{Model, Move, explore};
use crate::life_world::{
    Do, Ev, LifeId, ModelOutcome, ModelRoot, ModelStop, Nature, Status, Until2, World, bit,
};

/// A defect of the keeper. The checker must find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacks {
    Nothing,
    /// A count that failed is taken for zero.
    Doubt,
    /// Deadlines are not kept.
    Deadlines,
    /// The exit of a process does not wake the keeper.
    Wakeups,
    /// A count that failed is not repeated.
    AnotherLook,
    /// The stub's message is not read before its exit is handled.
    StatusFirst,
    /// A request to stop is taken for one to kill.
    Politeness,
    /// The lifecycle's request is carried out as a kill.
    Patience,
    /// The set is asked twice.
    Restraint,
    /// A second request changes nothing.
    Escalation,
    /// The cause is always the user.
    Honesty,
    /// The end is reported twice.
    OneEnd,
    /// All are asked at once, though the root was to be asked alone.
    Order,
}

struct Lives {
    lacks: Lacks,
    /// How many requests to stop and how many forks there may be.
    stops: u8,
    forks: u8,
    root_first: bool,
}

/// The move by which the keeper does the next thing it has to do.
const WORKS: &str = "the keeper works";

type Next = Vec<Move<World>>;

fn push(next: &mut Next, fair: bool, name: &'static str, to: World) {
    next.push(Move { name, fair, to });
}

impl Lives {
    /// What the processes do by themselves, at any instant.
    fn processes(&self, world: &World, next: &mut Next) {
        let mut change = |fair, name, what: &dyn Fn(&mut World)| {
            let mut to = world.clone();
            what(&mut to);
            if self.lacks == Lacks::Wakeups {
                to.news = world.news;
            }
            if world.life.cause().is_some() {
                to.happened = world.happened;
            }
            push(next, fair, name, to);
        };
        if world.root == ModelRoot::Stub {
            if world.go {
                change(true, "exec", &|to| {
                    (to.root, to.status, to.news) = (ModelRoot::Runs, Status::Closed, true)
                });
                change(false, "exec fails", &|to| {
                    to.status = Status::Failed;
                    to.happened |= bit(Cause::StartFailed);
                    to.root_ends(ModelOutcome::Exits);
                });
            }
            change(false, "the stub is killed", &|to| {
                to.happened |= bit(Cause::ExternalSignal);
                to.root_ends(ModelOutcome::IsKilled);
            });
        }
        if world.root == ModelRoot::Runs {
            let obeys = (world.asked || world.root_asked) && world.nature.root_obeys;
            change(obeys, "the root exits", &|to| {
                to.happened |= bit(Cause::OwnExit);
                to.root_ends(ModelOutcome::Exits);
            });
            change(false, "another process signals the root", &|to| {
                to.happened |= bit(Cause::ExternalSignal);
                to.root_ends(ModelOutcome::DiesOfTerm);
            });
        }
        if world.children > 0 {
            let obeys = world.asked && world.nature.children_obey;
            change(obeys, "a child exits", &|to| (to.children, to.news) = (to.children - 1, true));
        }
        let parent = world.root == ModelRoot::Runs || world.children > 0;
        if parent && world.children < 2 && world.forks > 0 {
            change(false, "a fork", &|to| (to.children, to.forks) = (to.children + 1, to.forks - 1));
        }
        if world.armed && !world.due && self.lacks != Lacks::Deadlines {
            change(true, "its time comes", &|to| to.due = true);
        }
    }

    /// What makes the keeper begin another round of its loop (`wait_and_handle`).
    fn wakes(&self, world: &World, next: &mut Next) {
        let state = world.life.state();
        let again = world.uncounted && world.counting() && self.lacks != Lacks::AnotherLook;
        if world.news || world.due || state == Phase::Killing || again {
            let mut to = world.clone();
            to.news = false;
            to.todo = vec![Do::LookAtDeadline];
            if world.counting() {
                to.todo.push(Do::Count);
            }
            to.todo.extend([Do::Notice, Do::ReadStatus]);
            self.at_once(&mut to);
            push(next, true, "the keeper wakes", to);
        }
        if world.stops > 0 {
            for stop in [ModelStop::Ask, ModelStop::Kill, ModelStop::FrontLost, ModelStop::OwnerGone] {
                let mut to = world.clone();
                to.stops -= 1;
                to.todo = vec![Do::Tell(Ev::Stop(stop)), Do::ReadStatus];
                self.at_once(&mut to);
                push(next, false, "a stop is requested", to);
            }
        }
        if state == Phase::Created {
            let mut to = world.clone();
            to.root = ModelRoot::Stub;
            to.todo = vec![Do::Go, Do::Tell(Ev::Spawned)];
            self.at_once(&mut to);
            push(next, true, "the stub is born", to);
            let mut to = world.clone();
            to.happened |= bit(Cause::StartFailed);
            to.todo = vec![Do::Tell(Ev::StartFailed)];
            self.at_once(&mut to);
            push(next, false, "no stub can be born", to);
        }
    }

    /// The next thing that the keeper does.
    fn work(&self, world: &World, next: &mut Next) {
        let mut to = world.clone();
        let Some(what) = to.todo.pop() else { return };
        match what {
            Do::Kill => {
                if world.begun && !world.may_kill {
                    to.wrong = Some("it is killed without being asked first");
                }
                if world.failing_kills != Some(0) && world.alive() > 0 {
                    let mut failed = to.clone();
                    failed.failing_kills = world.failing_kills.map(|left| left - 1);
                    failed.todo.push(Do::CountIfNone);
                    push(next, world.failing_kills.is_none(), "a kill fails", failed);
                }
                if world.failing_kills.is_none() && world.alive() > 0 {
                    return;
                }
                if matches!(world.root, ModelRoot::Stub | ModelRoot::Runs) {
                    to.root_ends(ModelOutcome::IsKilled);
                }
                to.children = 0;
                to.todo.push(Do::CountIfNone);
            }
            // This is a count too, and can fail; then the loop looks again.
            Do::CountIfNone if world.alive() == 0 && world.failing_counts.is_some() => {
                if world.failing_counts != Some(0) {
                    let mut failed = to.clone();
                    failed.failing_counts = world.failing_counts.map(|left| left - 1);
                    self.at_once(&mut failed);
                    push(next, false, "a count fails", failed);
                }
                to.todo.push(Do::Count);
            }
            Do::CountIfNone => {}
            Do::Count => {
                if world.failing_counts != Some(0) {
                    let mut failed = to.clone();
                    failed.failing_counts = world.failing_counts.map(|left| left - 1);
                    failed.uncounted = true;
                    let said = if self.lacks == Lacks::Doubt { Some(0) } else { None };
                    failed.todo.extend([Do::Report(said), Do::Notice]);
                    push(next, world.failing_counts.is_none(), "a count fails", failed);
                }
                if world.failing_counts.is_none() {
                    return;
                }
                to.uncounted = false;
                to.todo.extend([Do::Report(Some(world.alive())), Do::Notice]);
            }
            Do::Notice => {
                if let (ModelRoot::Zombie(out), false) = (world.root, world.noticed) {
                    if self.lacks != Lacks::StatusFirst
                        && !matches!(world.status, Status::Open | Status::Read)
                    {
                        to.todo.extend([Do::Notice, Do::ReadStatus]);
                    } else {
                        to.noticed = true;
                        self.tell(&mut to, Ev::RootExited(out));
                    }
                }
            }
            Do::ReadStatus => match world.status {
                Status::Open | Status::Read => {}
                Status::Closed => {
                    to.status = Status::Read;
                    if world.life.state() == Phase::Starting {
                        to.begun = true;
                        self.tell(&mut to, Ev::Executed);
                    }
                }
                Status::Failed => {
                    to.status = Status::Read;
                    self.tell(&mut to, Ev::StartFailed);
                }
            },
            Do::Go => {
                to.go = true;
                let mut failed = world.clone();
                failed.todo.pop();
                failed.happened |= bit(Cause::StartFailed);
                failed.todo.push(Do::Tell(Ev::StartFailed));
                self.at_once(&mut failed);
                push(next, false, "no record can be written", failed);
            }
            // Steps that do not look at the processes were done at once.
            Do::Arm
            | Do::Disarm
            | Do::Finish
            | Do::Ask
            | Do::AskRoot
            | Do::Report(_)
            | Do::LookAtDeadline
            | Do::Tell(_) => {}
        }
        self.at_once(&mut to);
        push(next, true, WORKS, to);
    }

    /// Does what neither looks at the processes nor touches them: whether they move before or after it makes no difference,
    /// so no states are spent on it.
    fn at_once(&self, to: &mut World) {
        while let Some(what) = to.todo.pop() {
            match what {
                Do::Arm => (to.armed, to.due) = (true, false),
                Do::Disarm => (to.armed, to.due) = (false, false),
                Do::Finish => to.finishes += if self.lacks == Lacks::OneEnd { 2 } else { 1 },
                Do::AskRoot if self.lacks == Lacks::Order => to.todo.push(Do::Ask),
                Do::AskRoot => {
                    if to.root_asked || to.asked {
                        to.wrong = Some("the root was asked behind the others, or twice");
                    }
                    to.root_asked = true;
                }
                Do::Ask if self.lacks == Lacks::Patience => {
                    to.todo.push(Do::Kill);
                    break;
                }
                Do::Ask => {
                    if to.nature.root_first && to.root == ModelRoot::Runs {
                        to.wrong = Some("the rest was asked before the root had ended");
                    }
                    to.asked = true;
                    to.asks += if self.lacks == Lacks::Restraint { 2 } else { 1 };
                }
                Do::Report(count) if to.life.state() != Phase::Ended => self.tell(to, Ev::Counted(count)),
                Do::Report(_) => {}
                Do::LookAtDeadline if to.due => {
                    (to.armed, to.due) = (false, false);
                    self.tell(to, Ev::Deadline);
                }
                Do::LookAtDeadline => {}
                Do::Tell(event) => self.tell(to, event),
                Do::Kill | Do::Count | Do::CountIfNone | Do::Notice | Do::ReadStatus | Do::Go => {
                    to.todo.push(what);
                    break;
                }
            }
        }
        // Once the cause is known, only it matters; and without a count, no count can be missing.
        if let Some(cause) = to.life.cause() {
            to.happened &= bit(cause);
        }
        to.uncounted &= to.counting();
        to.may_kill |= to.life.state() == Phase::Killing;
    }

    fn tell(&self, world: &mut World, mut event: Ev) {
        let (state, told) = (world.life.state(), event);
        match event {
            Ev::Stop(stop) => {
                let again = stop == ModelStop::Ask && (world.asks > 0 || world.root_asked);
                world.may_kill |= stop == ModelStop::Kill || again;
                world.happened |= bit(match stop {
                    ModelStop::Ask | ModelStop::Kill => Cause::User,
                    ModelStop::FrontLost => Cause::FrontLost,
                    ModelStop::OwnerGone => Cause::OwnerGone,
                });
                match self.lacks {
                    Lacks::Politeness if stop == ModelStop::Ask => event = Ev::Stop(ModelStop::Kill),
                    Lacks::Escalation if again => event = Ev::Stop(ModelStop::OwnerGone),
                    Lacks::Honesty => event = Ev::Stop(ModelStop::Ask),
                    _ => {}
                }
            }
            Ev::Deadline => {
                let asked = world.asks > 0 || world.root_asked;
                world.may_kill |= asked;
                if !asked && state != Phase::Killing && world.nature.timeout {
                    world.happened |= bit(Cause::Timeout);
                }
            }
            Ev::Spawned | Ev::Executed | Ev::StartFailed | Ev::RootExited(_) | Ev::Counted(_) => {}
        }
        let (life, todo) = world.life.step(event);
        world.wrong = world.wrong.or(wrong_step(world, life, told));
        world.life = life;
        world.todo.extend(todo.into_iter().rev());
    }
}

/// What the lifecycle must not do on `event`, and did.
fn wrong_step(world: &World, after: LifeId, event: Ev) -> Option<&'static str> {
    let (old, new) = (world.life.get(), after.get());
    if old.ending().is_some() && old.ending() != new.ending() {
        return Some("the reason of an end was changed");
    }
    let Ev::Stop(stop) = event else { return None };
    match (old.state(), stop, new.state()) {
        (Phase::Asking, ModelStop::Ask | ModelStop::Kill, Phase::Killing) => None,
        (Phase::Asking, ModelStop::Ask | ModelStop::Kill, _) => Some("a second request did not kill"),
        (Phase::Asking, ModelStop::FrontLost | ModelStop::OwnerGone, Phase::Asking) => None,
        (Phase::Asking, ModelStop::FrontLost | ModelStop::OwnerGone, _) => {
            Some("a stop that was to join another killed")
        }
        (Phase::Running | Phase::Draining, ModelStop::Kill, Phase::Killing) => None,
        (
            Phase::Running | Phase::Draining,
            ModelStop::Ask | ModelStop::FrontLost | ModelStop::OwnerGone,
            Phase::Asking,
        ) => None,
        (Phase::Running | Phase::Draining, ..) => Some("a request was not answered as it was meant"),
        (Phase::Created | Phase::Starting | Phase::Killing | Phase::Ended, ..) => None,
    }
}

impl Model for Lives {
    type State = World;

    fn starts(&self) -> Vec<World> {
        let mut starts = vec![];
        for (root_obeys, children_obey) in [(true, false), (false, true)] {
            for (failing_kills, failing_counts) in [(Some(1), Some(1)), (None, Some(0)), (Some(0), None)] {
                // Which processes are asked first makes no difference to what fails for ever.
                if self.root_first && (failing_kills.is_none() || failing_counts.is_none()) {
                    continue;
                }
                let nature = |until, timeout| Nature {
                    root_obeys,
                    children_obey,
                    until,
                    timeout,
                    root_first: self.root_first,
                    failing_kills,
                    failing_counts,
                };
                for until in [Until2::Root, Until2::Tree] {
                    for timeout in [false, true] {
                        // A tree that can never be counted and is never stopped can't be known to have ended.
                        if until == Until2::Tree && failing_counts.is_none() && !timeout && self.stops == 0 {
                            continue;
                        }
                        starts.push(World::new(nature(until, timeout), self.forks, self.stops));
                    }
                }
                for root in [None, Some(RootOutcome::Exited { code: 0 })] {
                    for ending in [None, Some((Cause::User, Actor::Unknown))] {
                        let known = LastKnown { root: root.clone(), ending, ..LastKnown::default() };
                        let mut orphan =
                            World::orphaned(nature(Until2::Root, false), known, self.forks, self.stops);
                        self.at_once(&mut orphan);
                        starts.push(orphan);
                    }
                }
            }
        }
        starts
    }

    fn moves(&self, world: &World) -> Next {
        let mut next = vec![];
        if self.is_end(world) {
            return next;
        }
        self.processes(world, &mut next);
        if world.idle() {
            self.wakes(world, &mut next);
        } else {
            self.work(world, &mut next);
        }
        next
    }

    fn broken(&self, world: &World) -> Option<String> {
        let (life, state) = (world.life.get(), world.life.state());
        let said = |text: &str| Some(text.to_owned());
        if (state == Phase::Ended) != life.verdict().is_some() {
            return said("an end without a verdict, or a verdict without an end");
        }
        if life.verdict() == Some(&Verdict::Gone) && world.alive() > 0 {
            return said("it said gone, and a member is alive");
        }
        if matches!(life.verdict(), Some(Verdict::Survivors { count: 0 })) {
            return said("survivors that are none");
        }
        if world.asks > 1 {
            return said("it was asked twice");
        }
        if world.finishes > 1 {
            return said("it ended twice");
        }
        if let Some(wrong) = world.wrong {
            return said(wrong);
        }
        if matches!(state, Phase::Asking | Phase::Killing)
            && world.todo.is_empty()
            && !world.armed
            && self.lacks != Lacks::Deadlines
        {
            return said("a stop without a deadline");
        }
        if let (Phase::Ended, Some((cause, _))) = (state, life.ending())
            && world.happened & bit(*cause) == 0
        {
            return Some(format!("it ended for a reason that did not happen ({cause:?})"));
        }
        if state == Phase::Ended && life.ending().is_none() {
            return said("an end without a cause");
        }
        None
    }

    fn is_end(&self, world: &World) -> bool {
        world.life.state() == Phase::Ended && world.todo.is_empty()
    }

    fn may_rest(&self, world: &World) -> bool {
        let runs = world.life.state() == Phase::Running && world.root == ModelRoot::Runs;
        let drains = world.life.state() == Phase::Draining
            && world.nature.until == Until2::Tree
            // A tree that can never be counted can never be known to have ended.
            && (world.alive() > 0 || world.nature.failing_counts.is_none());
        (runs || drains) && !world.armed
    }
}

fn holds(stops: u8, forks: u8, least: usize) {
    holds_for(Lives { lacks: Lacks::Nothing, stops, forks, root_first: false }, least);
}

fn holds_for(lives: Lives, least: usize) {
    let Lives { stops, forks, .. } = lives;
    let explored = explore(&lives).unwrap_or_else(|why| panic!("{why}"));
    println!("the lifecycle, {stops} requests, {forks} forks: {explored:?}");
    assert!(explored.states >= least && explored.moves > explored.states, "{explored:?}");
    assert!(explored.ends > 1_000, "{explored:?}");
}

// Three processes together with several requests are too many states for a test of seconds, so each has its own test.

#[test]
fn three_processes_keep_the_promises_in_every_state_and_every_fair_path_ends() {
    holds(0, 2, 150_000);
}

#[test]
fn a_request_at_any_instant_keeps_the_promises_and_every_fair_path_ends() {
    holds(1, 1, 400_000);
}

#[test]
fn a_second_request_at_any_instant_keeps_the_promises_and_every_fair_path_ends() {
    holds(2, 0, 200_000);
}

#[test]
fn a_root_that_is_asked_alone_keeps_the_promises_and_every_fair_path_ends() {
    holds_for(Lives { lacks: Lacks::Nothing, stops: 1, forks: 1, root_first: true }, 100_000);
}

#[test]
fn if_all_are_asked_at_once_the_checker_finds_who_was_asked_before_the_root() {
    let lives = Lives { lacks: Lacks::Order, stops: 1, forks: 1, root_first: true };
    let found = explore(&lives).map(|explored| explored.states).expect_err("the checker found nothing");
    assert!(found.starts_with("the rest was asked before the root had ended"), "{found}");
}

fn finds(lacks: Lacks, stops: u8, what: &str) {
    let found = explore(&Lives { lacks, stops, forks: 1, root_first: false }).map(|explored| explored.states);
    let found = found.expect_err("the checker found nothing");
    assert!(found.starts_with(what), "{found}");
}

#[test]
fn if_a_failed_count_were_zero_the_checker_finds_the_member_alive() {
    finds(Lacks::Doubt, 0, "it said gone, and a member is alive");
}

#[test]
fn without_deadlines_the_checker_finds_a_path_without_an_end() {
    finds(Lacks::Deadlines, 0, "no end can be reached");
}

#[test]
fn without_wakeups_the_checker_finds_a_dead_end() {
    finds(Lacks::Wakeups, 0, "a dead end");
}

#[test]
fn without_another_look_after_a_failed_count_the_checker_finds_a_job_that_never_ends() {
    finds(Lacks::AnotherLook, 0, "a dead end");
}

#[test]
fn if_the_stubs_word_is_not_read_first_the_checker_finds_a_wrong_cause() {
    finds(Lacks::StatusFirst, 0, "it ended for a reason that did not happen (ExternalSignal)");
}

#[test]
fn without_politeness_the_checker_finds_the_kill() {
    finds(Lacks::Politeness, 1, "a request was not answered as it was meant");
}

#[test]
fn without_patience_the_checker_finds_a_kill_without_a_request() {
    finds(Lacks::Patience, 1, "it is killed without being asked first");
}

#[test]
fn without_restraint_the_checker_finds_the_second_asking() {
    finds(Lacks::Restraint, 1, "it was asked twice");
}

#[test]
fn without_escalation_the_checker_finds_the_request_that_did_nothing() {
    finds(Lacks::Escalation, 2, "a second request did not kill");
}

#[test]
fn with_a_forged_cause_the_checker_finds_it() {
    finds(Lacks::Honesty, 1, "it ended for a reason that did not happen (User)");
}

#[test]
fn an_end_that_is_told_twice_is_found() {
    finds(Lacks::OneEnd, 1, "it ended twice");
}
