//! The lifecycle against a fake kernel: every interleaving of what can happen, to a stated depth, and long random ones.
//!
//! The fake kernel has processes that obey or ignore a request, kills and counts that fail a number of times, and one
//! deadline. It is driven as the keeper drives the real one: events in, actions out.

use std::time::Duration;

use proptest::prelude::*;
use quell_core::{
    Action, Actor, AskScope, Cause, ContainmentKind, Count, JobState, KillReason, LastKnown, Lifecycle,
    LifecycleEvent, LifecycleRules, Moment, Phase, ProcId, RecordedTree, RootOutcome, SessionKind, Signal,
    StopMode, StopPlan, StopRequest, Timestamp, Until, Verdict,
};

/// How deep every interleaving is explored.
const DEPTH: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stimulus {
    Spawn,
    Exec,
    ExecFails,
    /// The root ends by itself.
    RootExits,
    /// One more descendant ends by itself.
    ChildExits,
    Stop,
    KillNow,
    FrontDies,
    /// The deadline passes, if one is armed.
    Timer,
}

const ALL: [Stimulus; 9] = [
    Stimulus::Spawn,
    Stimulus::Exec,
    Stimulus::ExecFails,
    Stimulus::RootExits,
    Stimulus::ChildExits,
    Stimulus::Stop,
    Stimulus::KillNow,
    Stimulus::FrontDies,
    Stimulus::Timer,
];

/// What the kernel is like in one run.
#[derive(Clone, Copy, Debug)]
struct Nature {
    children: usize,
    root_obeys: bool,
    children_obey: bool,
    /// How many kills have no effect before one does.
    failing_kills: usize,
    /// How many counts can't be taken before one can.
    failing_counts: usize,
    until: Until,
    timeout: bool,
    ask: AskScope,
}

#[derive(Clone, Debug)]
struct World {
    nature: Nature,
    life: Lifecycle,
    exists: bool,
    root_alive: bool,
    children: usize,
    armed: bool,
    kills_to_fail: usize,
    counts_to_fail: usize,
    asks: usize,
    root_asks: usize,
    kills: usize,
    finished: usize,
    /// Whether a kill is allowed by now: the grace has passed, or a second request has come.
    kill_allowed: bool,
    first_cause: Option<Cause>,
}

impl World {
    fn new(nature: Nature) -> Self {
        let rules = LifecycleRules {
            plan: StopPlan { ask: nature.ask, ..StopPlan::default() },
            until: nature.until,
            timeout: nature.timeout.then_some(Duration::from_secs(1)),
        };
        Self {
            nature,
            life: Lifecycle::new(rules),
            exists: false,
            root_alive: false,
            children: 0,
            armed: false,
            kills_to_fail: nature.failing_kills,
            counts_to_fail: nature.failing_counts,
            asks: 0,
            root_asks: 0,
            kills: 0,
            finished: 0,
            kill_allowed: false,
            first_cause: None,
        }
    }

    fn alive(&self) -> usize {
        self.children + usize::from(self.root_alive)
    }

    fn feed(&mut self, event: LifecycleEvent) {
        let before = self.life.state();
        if before == Phase::Asking && event == LifecycleEvent::Deadline {
            self.kill_allowed = true;
        }
        let actions = self.life.step(event);
        if before == Phase::Ended {
            assert!(actions.is_empty(), "an ended job acts");
        }
        for action in actions {
            self.carry_out(action);
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Publish => {}
            Action::Arm(_) => self.armed = true,
            Action::Shorten(_) => {}
            Action::Extend(_) => assert!(self.armed, "there is nothing to extend: {self:?}"),
            Action::Disarm => self.armed = false,
            Action::Count => self.count(),
            Action::Ask { to: AskScope::Root, .. } => {
                assert_eq!(self.asks, 0, "the others were asked before the root: {self:?}");
                self.root_asks += 1;
                if self.nature.root_obeys && self.root_alive {
                    self.root_ends();
                }
            }
            Action::Ask { to: AskScope::Tree, .. } => {
                let alone = self.nature.ask == AskScope::Root;
                assert!(!alone || !self.root_alive, "the rest was asked while the root lived: {self:?}");
                self.asks += 1;
                if self.nature.children_obey {
                    self.children = 0;
                }
                if self.nature.root_obeys && self.root_alive {
                    self.root_ends();
                }
            }
            Action::Kill => {
                assert!(self.kill_allowed, "a kill without its reason: {self:?}");
                self.kills += 1;
                if self.kills_to_fail > 0 {
                    self.kills_to_fail -= 1;
                    return;
                }
                self.children = 0;
                if self.root_alive {
                    self.root_ends();
                }
                if self.life.state() == Phase::Killing {
                    self.feed(LifecycleEvent::Counted(Count::Alive(0)));
                }
            }
            Action::Finish => self.finished += 1,
        }
    }

    fn root_ends(&mut self) {
        self.root_alive = false;
        self.feed(LifecycleEvent::RootExited(RootOutcome::Exited { code: 0 }));
    }

    fn count(&mut self) {
        if self.counts_to_fail > 0 {
            self.counts_to_fail -= 1;
            self.feed(LifecycleEvent::Counted(Count::Unknown("the fake kernel refuses".into())));
        } else {
            self.feed(LifecycleEvent::Counted(Count::Alive(self.alive())));
        }
    }

    /// What the keeper does after each event once processes may be exiting.
    fn count_if_wanted(&mut self) {
        if matches!(self.life.state(), Phase::Draining | Phase::Asking | Phase::Killing) {
            self.count();
        }
    }

    fn stop(&mut self, cause: Cause, mode: StopMode) {
        let state = self.life.state();
        let insisted = mode == StopMode::Kill || (state == Phase::Asking && mode == StopMode::Ask);
        self.kill_allowed |= insisted || state == Phase::Starting;
        if !matches!(state, Phase::Ended) {
            self.first_cause.get_or_insert(cause);
        }
        self.feed(LifecycleEvent::StopAsked(StopRequest {
            cause,
            actor: Actor::Unknown,
            mode,
            ask: None,
            signal: None,
        }));
    }

    fn stimulate(&mut self, stimulus: Stimulus) {
        if self.life.state() == Phase::Ended {
            // An ended job does nothing more. Survivors are not modelled after that.
            for event in [
                LifecycleEvent::Deadline,
                LifecycleEvent::Counted(Count::Alive(3)),
                LifecycleEvent::Executed,
                LifecycleEvent::Spawned,
            ] {
                self.feed(event);
            }
            return;
        }
        match stimulus {
            Stimulus::Spawn => {
                if self.life.state() == Phase::Created && !self.exists {
                    self.exists = true;
                    self.root_alive = true;
                    self.feed(LifecycleEvent::Spawned);
                }
            }
            Stimulus::Exec => {
                if self.life.state() == Phase::Starting && self.root_alive {
                    self.children = self.nature.children;
                    self.feed(LifecycleEvent::Executed);
                }
            }
            Stimulus::ExecFails => {
                if self.life.state() == Phase::Starting && self.root_alive {
                    self.first_cause.get_or_insert(Cause::StartFailed);
                    self.kill_allowed = true;
                    self.root_alive = false;
                    self.feed(LifecycleEvent::StartFailed("the fake kernel refuses".into()));
                }
            }
            Stimulus::RootExits => {
                if self.root_alive && self.life.state() != Phase::Starting {
                    if self.life.state() == Phase::Running {
                        self.first_cause.get_or_insert(Cause::OwnExit);
                    }
                    self.root_ends();
                }
            }
            Stimulus::ChildExits => self.children = self.children.saturating_sub(1),
            Stimulus::Stop => self.stop(Cause::User, StopMode::Ask),
            Stimulus::KillNow => self.stop(Cause::User, StopMode::Kill),
            Stimulus::FrontDies => self.stop(Cause::FrontLost, StopMode::Within(Duration::from_millis(500))),
            Stimulus::Timer => {
                if self.armed {
                    self.armed = false;
                    if matches!(self.life.state(), Phase::Starting | Phase::Running | Phase::Draining) {
                        self.first_cause.get_or_insert(Cause::Timeout);
                    }
                    self.kill_allowed |= self.life.state() == Phase::Starting;
                    self.feed(LifecycleEvent::Deadline);
                }
            }
        }
        self.count_if_wanted();
        self.check();
    }

    fn check(&self) {
        assert!(self.asks <= 1 && self.root_asks <= 1, "asked twice: {self:?}");
        let may_ask_root = self.nature.ask == AskScope::Root;
        assert!(self.root_asks == 0 || may_ask_root, "the root was asked alone: {self:?}");
        // Where only the root was asked and has exited, every process that is left was asked or killed too.
        let rest = may_ask_root && self.root_asks == 1 && !self.root_alive && self.children > 0;
        assert!(!rest || self.asks == 1 || self.kills > 0, "the rest was forgotten: {self:?}");
        assert!(self.finished <= 1, "finished twice: {self:?}");
        assert_eq!(self.life.state() == Phase::Ended, self.finished == 1, "{self:?}");
        assert_eq!(self.life.state() == Phase::Ended, self.life.verdict().is_some(), "{self:?}");
        if self.life.verdict() == Some(&Verdict::Gone) {
            assert_eq!(self.alive(), 0, "said gone, and it is not: {self:?}");
        }
        if let Some(Verdict::Survivors { count }) = self.life.verdict() {
            assert_eq!(*count, self.alive(), "{self:?}");
        }
        if matches!(self.life.state(), Phase::Asking | Phase::Killing) {
            assert!(self.armed, "a stop without a deadline never ends: {self:?}");
        }
        if self.life.state() == Phase::Ended {
            let (cause, _) = self.life.ending().expect("an ended job has a cause");
            // A root that ends by itself while others live decides nothing before the count does.
            let drained_first = self.first_cause == Some(Cause::OwnExit) && self.nature.until == Until::Tree;
            assert!(drained_first || Some(*cause) == self.first_cause, "{cause:?}: {self:?}");
        }
    }

    /// Once a stop is asked and time passes, the job ends in a bounded number of steps, whatever came before.
    fn must_end(mut self) {
        let worst = 4 + self.kills_to_fail + self.counts_to_fail;
        self.stimulate(Stimulus::Stop);
        for _ in 0..worst {
            self.stimulate(Stimulus::Timer);
        }
        assert_eq!(self.life.state(), Phase::Ended, "it never ends: {self:?}");
    }
}

fn natures() -> Vec<Nature> {
    let mut all = Vec::new();
    for children in [0, 2] {
        for (root_obeys, children_obey) in [(true, true), (true, false), (false, false)] {
            for (failing_kills, failing_counts) in [(0, 0), (2, 0), (0, 2), (100, 0), (0, 100)] {
                for until in [Until::Root, Until::Tree] {
                    for timeout in [false, true] {
                        // The order of the requests has nothing to do with these two.
                        let plain = until == Until::Root && !timeout;
                        let scopes = [Some(AskScope::Tree), plain.then_some(AskScope::Root)];
                        for ask in scopes.into_iter().flatten() {
                            all.push(Nature {
                                children,
                                root_obeys,
                                children_obey,
                                failing_kills,
                                failing_counts,
                                until,
                                timeout,
                                ask,
                            });
                        }
                    }
                }
            }
        }
    }
    all
}

fn explore(world: &World, depth: usize, visited: &mut u64) {
    *visited += 1;
    world.clone().must_end();
    if depth == 0 || world.life.state() == Phase::Ended {
        return;
    }
    for stimulus in ALL {
        let mut next = world.clone();
        next.stimulate(stimulus);
        explore(&next, depth - 1, visited);
    }
}

#[test]
fn every_interleaving_to_a_depth_keeps_the_promises_and_ends() {
    let mut visited = 0;
    for nature in natures() {
        // Without a root nothing interesting happens; the other walks include that case.
        let mut world = World::new(nature);
        explore(&world, 2, &mut visited);
        world.stimulate(Stimulus::Spawn);
        explore(&world, 2, &mut visited);
        world.stimulate(Stimulus::Exec);
        explore(&world, DEPTH - 2, &mut visited);
    }
    assert!(visited > 50_000, "only {visited} interleavings were explored");
}

/// A kill may miss a process that is forked during it. It is repeated until the count is zero, so that no process survives
/// that another round would have ended.
#[test]
fn a_kill_is_repeated_until_the_count_is_zero() {
    for nature in natures().into_iter().filter(|nature| (1..10).contains(&nature.failing_kills)) {
        let mut world = World::new(nature);
        for stimulus in [Stimulus::Spawn, Stimulus::Exec, Stimulus::KillNow] {
            world.stimulate(stimulus);
        }
        for _ in 0..nature.failing_kills {
            world.count_if_wanted();
        }
        assert_eq!(world.life.verdict(), Some(&Verdict::Gone), "{world:?}");
    }
}

#[test]
fn a_root_that_is_asked_alone_has_the_grace_and_what_it_leaves_a_short_time_at_least() {
    let plan = StopPlan { ask: AskScope::Root, ..StopPlan::default() };
    let mut life = Lifecycle::new(LifecycleRules { plan, until: Until::Root, timeout: None });
    life.step(LifecycleEvent::Spawned);
    life.step(LifecycleEvent::Executed);
    let (cause, actor, mode) = (Cause::User, Actor::Unknown, StopMode::Ask);
    let asked =
        life.step(LifecycleEvent::StopAsked(StopRequest { cause, actor, mode, ask: None, signal: None }));
    let ask = |to| Action::Ask { signal: plan.signal, to };
    assert_eq!(asked, [Action::Publish, Action::Arm(plan.grace), ask(AskScope::Root), Action::Count]);
    assert_eq!(life.step(LifecycleEvent::Counted(Count::Alive(3))), []);
    assert_eq!(life.step(LifecycleEvent::RootExited(RootOutcome::Exited { code: 0 })), [Action::Count]);
    let rest = life.step(LifecycleEvent::Counted(Count::Alive(2)));
    assert_eq!(rest, [Action::Extend(plan.brief), ask(AskScope::Tree), Action::Count]);
    assert_eq!(life.step(LifecycleEvent::Counted(Count::Alive(1))), []);
    assert!(life.step(LifecycleEvent::Deadline).contains(&Action::Kill));
}

#[test]
fn an_orphaned_job_is_killed_at_once_and_says_why() {
    let (mut life, actions) = Lifecycle::orphaned(rules(), LastKnown::default());
    assert!(actions.contains(&Action::Kill));
    life.step(LifecycleEvent::Counted(Count::Alive(0)));
    assert_eq!(life.ending().map(|(cause, _)| *cause), Some(Cause::KeeperLost));
    assert_eq!(life.verdict(), Some(&Verdict::Gone));
}

#[test]
fn running_processes_are_asked_first_and_spared_ones_are_not_waited_for() {
    let plan = StopPlan::default();
    let (mut life, asked) = Lifecycle::adopted(plan);
    let ask = Action::Ask { signal: plan.signal, to: plan.ask };
    assert_eq!(asked, [Action::Publish, Action::Arm(plan.grace), ask, Action::Count]);
    assert!(life.step(LifecycleEvent::Deadline).contains(&Action::Kill));
    life.step(LifecycleEvent::Counted(Count::Refused(2)));
    assert_eq!(life.verdict(), Some(&Verdict::Survivors { count: 2 }));
    let kill = StopPlan { signal: Signal::KILL, ..plan };
    assert!(Lifecycle::adopted(kill).1.contains(&Action::Kill));
}

#[test]
fn a_program_that_was_executed_before_the_kill_reached_it_has_run() {
    let (mut life, end) = (Lifecycle::new(rules()), RootOutcome::Exited { code: 7 });
    let request =
        StopRequest { cause: Cause::User, actor: Actor::Quell, mode: StopMode::Ask, ask: None, signal: None };
    life.step(LifecycleEvent::Spawned);
    life.step(LifecycleEvent::StopAsked(request));
    assert!(matches!(life.root(), Some(RootOutcome::NotStarted { .. })));
    life.step(LifecycleEvent::Executed);
    life.step(LifecycleEvent::RootExited(end.clone()));
    assert_eq!(life.root(), Some(&end));
}

fn rules() -> LifecycleRules {
    LifecycleRules { plan: StopPlan::default(), until: Until::Root, timeout: None }
}

fn running(rules: LifecycleRules) -> Lifecycle {
    let mut life = Lifecycle::new(rules);
    life.step(LifecycleEvent::Spawned);
    life.step(LifecycleEvent::Executed);
    life
}

fn stop(mode: StopMode) -> LifecycleEvent {
    LifecycleEvent::StopAsked(StopRequest {
        cause: Cause::User,
        actor: Actor::Unknown,
        mode,
        ask: None,
        signal: None,
    })
}

#[test]
fn an_orphaned_job_keeps_what_its_keeper_had_reported() {
    let (root, ending) = (RootOutcome::Exited { code: 3 }, (Cause::Timeout, Actor::Quell));
    let stop = (Duration::from_secs(77), AskScope::Root);
    let known =
        LastKnown { root: Some(root.clone()), ending: Some(ending.clone()), leaked: true, stop: Some(stop) };
    let (life, _) = Lifecycle::orphaned(rules(), known);
    assert_eq!((life.root(), life.ending(), life.leaked()), (Some(&root), Some(&ending), true));
    assert_eq!((life.grace(), life.ask_scope()), stop);
    assert_eq!(life.kill_reason(), Some(KillReason::KeeperLost));
}

#[test]
fn a_kill_is_wanted_unless_a_grace_has_passed() {
    assert_eq!(running(rules()).kill_reason(), None);
    let second = Duration::from_secs(1);
    for (mode, reason) in [
        (StopMode::Ask, KillReason::GraceOver),
        (StopMode::Within(second), KillReason::GraceOver),
        (StopMode::Within(Duration::ZERO), KillReason::Wanted),
        (StopMode::Kill, KillReason::Wanted),
    ] {
        let mut life = running(rules());
        life.step(stop(mode));
        life.step(LifecycleEvent::Deadline);
        assert_eq!(life.kill_reason(), Some(reason), "{mode:?}");
    }
    let mut asked_twice = running(rules());
    asked_twice.step(stop(StopMode::Within(second)));
    assert_eq!(asked_twice.grace(), second);
    asked_twice.step(stop(StopMode::Ask));
    assert_eq!(asked_twice.kill_reason(), Some(KillReason::Wanted));
}

#[test]
fn a_signal_that_ends_the_root_is_the_users_only_if_the_user_sent_it_and_the_root_had_not_survived_it() {
    let ended_by = |mut life: Lifecycle, signal| {
        life.step(LifecycleEvent::RootExited(RootOutcome::Signaled { signal, core: false }));
        life.step(LifecycleEvent::Counted(Count::Alive(0)));
        assert_eq!(life.own_end().as_ref(), life.ending());
        life.own_end().unwrap()
    };
    assert_eq!(running(rules()).own_end(), None);
    let segv: Signal = "SEGV".parse().unwrap();
    assert_eq!(ended_by(running(rules()), segv), (Cause::OwnExit, Actor::Program));
    let mut signaled = running(rules());
    signaled.signal_sent(Signal::HUP, Actor::Unknown);
    signaled.signal_sent(Signal::HUP, Actor::Quell);
    assert_eq!(ended_by(signaled.clone(), Signal::HUP), (Cause::UserSignal, Actor::Quell));
    assert_eq!(ended_by(signaled.clone(), Signal::TERM), (Cause::ExternalSignal, Actor::Unknown));
    signaled.signal_survived(Signal::HUP);
    assert_eq!(ended_by(signaled, Signal::HUP), (Cause::ExternalSignal, Actor::Unknown));
}

#[test]
fn processes_that_outlive_the_root_have_leaked_only_if_they_are_not_waited_for() {
    let after_root = |until, alive| {
        let mut life = running(LifecycleRules { until, ..rules() });
        life.step(LifecycleEvent::RootExited(RootOutcome::Exited { code: 0 }));
        life.step(LifecycleEvent::Counted(Count::Alive(alive)));
        life
    };
    assert!(after_root(Until::Root, 2).leaked());
    assert!(!after_root(Until::Root, 0).leaked());
    let mut waited_for = after_root(Until::Tree, 2);
    assert!(!waited_for.leaked());
    waited_for.leftovers_unwanted();
    assert!(waited_for.leaked());
}

#[test]
fn a_job_is_on_record_from_the_birth_of_its_root_to_its_end() {
    let tree = RecordedTree {
        containment: ContainmentKind::Reaper,
        session: SessionKind::Own,
        root: ProcId { pid: 7, start: 1 },
        inner: None,
        cgroup: None,
        members: Vec::new(),
    };
    let state =
        |life: &Lifecycle, ready| life.recorded(Some(tree.clone()), ready).map(|record| record.job_state());
    let mut life = Lifecycle::new(rules());
    assert_eq!(state(&life, None), None);
    for (event, recorded) in [
        (LifecycleEvent::Spawned, Some(JobState::Starting)),
        (LifecycleEvent::Executed, Some(JobState::Running)),
        (stop(StopMode::Ask), Some(JobState::Stopping)),
        (LifecycleEvent::Deadline, Some(JobState::Stopping)),
        (LifecycleEvent::Counted(Count::Alive(0)), None),
    ] {
        life.step(event);
        assert_eq!(state(&life, None), recorded);
    }
    let ready = Moment { at: 1.0, wall: Timestamp::default() };
    assert_eq!(state(&running(rules()), Some(ready)), Some(JobState::Ready));
}

proptest! {
    #[test]
    fn long_random_lives_keep_the_promises_and_end(
        choices in prop::collection::vec(0..ALL.len(), 0..60),
        nature in 0..natures().len(),
    ) {
        let mut world = World::new(natures()[nature]);
        for choice in choices {
            world.stimulate(ALL[choice]);
        }
        world.must_end();
    }
}

#[test]
fn a_further_signal_is_passed_on_once_and_does_not_shorten_the_grace() {
    let mut life = running(rules());
    let grace = Duration::from_secs(2);
    let mut stop = |signal| {
        let (cause, actor, mode) = (Cause::User, Actor::Unknown, StopMode::Within(grace));
        life.step(LifecycleEvent::StopAsked(StopRequest { cause, actor, mode, ask: None, signal }))
    };
    let ask = |signal| Action::Ask { signal, to: AskScope::Tree };
    // The signal of the request, and not that of the plan.
    let first = stop(Some(Signal::INT));
    assert_eq!(first, [Action::Publish, Action::Arm(grace), ask(Signal::INT), Action::Count]);
    // A grace of the same length that begins later does not end sooner, so the deadline stays.
    assert_eq!(stop(Some(Signal::TERM)), [Action::Shorten(grace), ask(Signal::TERM), Action::Count]);
    for had in [Some(Signal::INT), Some(Signal::TERM), None] {
        assert_eq!(stop(had), vec![Action::Shorten(grace)], "{had:?}");
    }
    assert!(life.step(LifecycleEvent::Deadline).contains(&Action::Kill));
}
