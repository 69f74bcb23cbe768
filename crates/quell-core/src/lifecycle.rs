//! The lifecycle of a job as one total table: state × event → state and actions.
//!
//! ```text
//! created ─spawned─▶ starting ─executed─▶ running ─root exited─▶ draining ─count 0─▶ ended
//!                       │                   │ stop, timeout          │ leak, stop, timeout
//!                       │ stop, failed      ▼                        ▼
//!                       │                asking ◀────────────────────┘   (root asked alone and gone: the rest is asked)
//!                       │                   │ grace over, second request        (count 0 ─▶ ended)
//!                       └──────────────▶ killing ─count 0 | proof time over─▶ ended
//! ```
//!
//! The keeper feeds events and carries out the actions; nothing here depends on a kernel. There is one deadline, whose
//! meaning follows from the state (starting, running, draining: the timeout; asking: the grace; killing: the proof).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Actor, AskScope, Cause, Ending, KillReason, Moment, RecordedState, RecordedTree, RootOutcome, Signal,
    StopPlan, Until, Verdict,
};

/// The phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// On record; no process exists.
    Created,
    /// The root exists and is contained; it has not executed the program yet.
    Starting,
    /// The program runs.
    Running,
    /// The root has exited; its descendants are being counted, or waited for.
    Draining,
    /// The tree was asked to end and has its grace.
    Asking,
    /// The tree is being killed.
    Killing,
    /// It has ended; the verdict says what was proven.
    Ended,
}

/// How to stop a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopMode {
    /// Ask; a second request kills at once.
    Ask,
    /// Ask, with this grace. A stop that is under way is joined, and shortened to this grace if it is longer.
    Within(Duration),
    /// Kill at once.
    Kill,
}

/// A request to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopRequest {
    /// The reason.
    pub cause: Cause,
    /// What asks for it.
    pub actor: Actor,
    /// How to stop.
    pub mode: StopMode,
    /// Which processes are asked first; by default as planned.
    pub ask: Option<AskScope>,
    /// The signal that asks; by default as planned. If the processes were asked before, with other signals only, they are sent
    /// this one too.
    pub signal: Option<Signal>,
}

/// The result of counting the living members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Count {
    /// This many are alive; a zombie root does not count.
    Alive(usize),
    /// This many are alive, and this process may signal none of them: another round would change nothing.
    Refused(usize),
    /// They could not be counted. Never taken for zero.
    Unknown(String),
}

/// What can happen to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifecycleEvent {
    /// The root exists, contained, with its identity on record.
    Spawned,
    /// The program was executed. Comes before its exit, also where a kill came first.
    Executed,
    /// The program could not be started.
    StartFailed(String),
    /// The root has ended. Comes before any count of zero.
    RootExited(RootOutcome),
    /// The members were counted.
    Counted(Count),
    /// A stop was requested.
    StopAsked(StopRequest),
    /// The deadline has passed.
    Deadline,
}

/// What the keeper must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write the new state to disk.
    Publish,
    /// Set the deadline this far from now; it replaces any other.
    Arm(Duration),
    /// Bring the deadline forward to this far from now, if it is later.
    Shorten(Duration),
    /// Postpone the deadline to this far from now, if it is sooner.
    Extend(Duration),
    /// Remove the deadline.
    Disarm,
    /// Count the members and report [`LifecycleEvent::Counted`].
    Count,
    /// Send the signal that asks processes to end, then CONT.
    Ask {
        /// The signal.
        signal: Signal,
        /// To which processes.
        to: AskScope,
    },
    /// Run one round of brake, kill and sweep, then count.
    Kill,
    /// Collect the root, write the receipt, end.
    Finish,
}

/// What the keeper had reported before it was lost.
#[derive(Clone, Debug, Default)]
pub struct LastKnown {
    /// How the root ended.
    pub root: Option<RootOutcome>,
    /// Why the job was being stopped, and what caused that.
    pub ending: Option<(Cause, Actor)>,
    /// Whether descendants had outlived the root.
    pub leaked: bool,
    /// The grace of the stop that was under way, and which processes were asked first.
    pub stop: Option<(Duration, AskScope)>,
}

/// The rules of one run.
#[derive(Clone, Copy, Debug)]
pub struct LifecycleRules {
    /// How it is stopped.
    pub plan: StopPlan,
    /// What ends it.
    pub until: Until,
    /// When it is stopped at the latest.
    pub timeout: Option<Duration>,
}

/// The lifecycle of one run so far.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    rules: LifecycleRules,
    state: Phase,
    grace: Duration,
    ask: AskScope,
    /// The signal that asks, or would ask.
    signal: Signal,
    /// The signals that processes were asked with.
    asked: Vec<Signal>,
    /// Only the root was asked, and the other processes were not asked yet.
    rest_waits: bool,
    root: Option<RootOutcome>,
    ending: Option<(Cause, Actor)>,
    leaked: bool,
    kill_reason: Option<KillReason>,
    /// The signals that were sent to the root on request, each with its last requester.
    sent: Vec<(Signal, Actor)>,
    verdict: Option<Verdict>,
    last_count: Count,
}

impl Lifecycle {
    /// A job that is on record and does not run yet.
    pub fn new(rules: LifecycleRules) -> Self {
        Self {
            rules,
            state: Phase::Created,
            grace: rules.plan.grace,
            ask: rules.plan.ask,
            signal: rules.plan.signal,
            asked: Vec::new(),
            rest_waits: false,
            root: None,
            ending: None,
            leaked: false,
            kill_reason: None,
            sent: Vec::new(),
            verdict: None,
            last_count: Count::Alive(0),
        }
    }

    /// A job whose keeper is gone: what is left of it must be killed. Returns the first actions too. A stop that was under way
    /// keeps its cause.
    pub fn orphaned(rules: LifecycleRules, known: LastKnown) -> (Self, Vec<Action>) {
        let LastKnown { root, ending, leaked, stop } = known;
        let (grace, ask) = stop.unwrap_or((rules.plan.grace, rules.plan.ask));
        let mut life = Self { root, ending, leaked, grace, ask, ..Self::new(rules) };
        life.set_ending(Cause::KeeperLost, Actor::Unknown);
        let actions = life.kill(Some(KillReason::KeeperLost));
        (life, actions)
    }

    /// Processes that run already, and whose stop begins now. Returns the first actions too.
    pub fn adopted(plan: StopPlan) -> (Self, Vec<Action>) {
        let rules = LifecycleRules { plan, until: Until::Tree, timeout: None };
        let mut life = Self::new(rules);
        let actions = life.ask_to_end(plan.grace);
        (life, actions)
    }

    /// The present phase.
    pub fn state(&self) -> Phase {
        self.state
    }

    /// How the root ended, once it has.
    pub fn root(&self) -> Option<&RootOutcome> {
        self.root.as_ref()
    }

    /// Why it ends, once that is known. The first reason stays.
    pub fn ending(&self) -> Option<&(Cause, Actor)> {
        self.ending.as_ref()
    }

    /// The grace that is given, or would be.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// Which processes are asked first, or would be.
    pub fn ask_scope(&self) -> AskScope {
        self.ask
    }

    /// Notes that the processes that outlived the root are not waited for any more.
    pub fn leftovers_unwanted(&mut self) {
        self.leaked = true;
    }

    /// Whether descendants were alive when the root had exited by itself, and only its exit was waited for.
    pub fn leaked(&self) -> bool {
        self.leaked
    }

    /// Why it is being killed, or was. The first reason stays; none if the program never ran.
    pub fn kill_reason(&self) -> Option<KillReason> {
        self.kill_reason
    }

    /// The state that goes on record while the job lives; none before its root exists, and after its end.
    pub fn recorded(&self, tree: Option<RecordedTree>, ready: Option<Moment>) -> Option<RecordedState> {
        let outcome = self.root.clone();
        Some(match self.state {
            Phase::Created | Phase::Ended => return None,
            Phase::Starting => RecordedState::Starting { tree: tree? },
            Phase::Running | Phase::Draining => match ready {
                Some(ready) => RecordedState::Ready { tree: tree?, outcome, ready },
                None => RecordedState::Running { tree: tree?, outcome },
            },
            Phase::Asking | Phase::Killing => {
                let (cause, actor) = self.ending.clone()?;
                let ending = Ending { cause, actor };
                RecordedState::Stopping { tree, outcome, ready, ending, survivors: None }
            }
        })
    }

    /// What was proven; only an ended job has it.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// Notes that `actor` had `signal` sent to the root. If the root dies of it, the cause is not an external signal.
    pub fn signal_sent(&mut self, signal: Signal, actor: Actor) {
        self.signal_survived(signal);
        self.sent.push((signal, actor));
    }

    /// Notes that the root has lived on after `signal`, so that it does not die of it any more.
    pub fn signal_survived(&mut self, signal: Signal) {
        self.sent.retain(|(other, _)| *other != signal);
    }

    /// The whole table. Each event is handled in each state; events that don't matter in a state are listed and ignored.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub fn step(&mut self, event: LifecycleEvent) -> Vec<Action> {
        match (self.state, event) {
            // The timeout starts here: an exec can hang too, on a file system that does not answer.
            (Phase::Created, LifecycleEvent::Spawned) => {
                let deadline = self.rules.timeout.map(Action::Arm);
                self.enter(Phase::Starting, deadline.into_iter().collect())
            }
            (Phase::Created, LifecycleEvent::StartFailed(reason)) => {
                self.not_started(reason, Cause::StartFailed, Actor::Quell);
                self.end(Verdict::Gone)
            }
            (Phase::Created, LifecycleEvent::StopAsked(request)) => {
                self.not_started("it was stopped before it started".into(), request.cause, request.actor);
                self.end(Verdict::Gone)
            }
            (
                Phase::Created,
                LifecycleEvent::Executed
                | LifecycleEvent::RootExited(_)
                | LifecycleEvent::Counted(_)
                | LifecycleEvent::Deadline,
            ) => vec![],

            (Phase::Starting, LifecycleEvent::Executed) => self.enter(Phase::Running, vec![]),
            (Phase::Starting, LifecycleEvent::StartFailed(reason)) => {
                self.not_started(reason, Cause::StartFailed, Actor::Quell);
                self.kill(None)
            }
            // The program never ran, so no process needs a grace.
            (Phase::Starting, LifecycleEvent::StopAsked(request)) => {
                self.not_started("it was stopped before it started".into(), request.cause, request.actor);
                self.kill(None)
            }
            (Phase::Starting, LifecycleEvent::RootExited(outcome)) => {
                self.not_started(
                    format!("it was killed before it started ({outcome:?})"),
                    Cause::ExternalSignal,
                    Actor::Unknown,
                );
                self.kill(None)
            }
            (Phase::Starting, LifecycleEvent::Deadline) => {
                self.not_started("its time was up before it started".into(), Cause::Timeout, Actor::Quell);
                self.kill(None)
            }
            (Phase::Starting, LifecycleEvent::Spawned | LifecycleEvent::Counted(_)) => vec![],

            (Phase::Running, LifecycleEvent::RootExited(outcome)) => {
                self.root = Some(outcome);
                self.state = Phase::Draining;
                vec![Action::Count]
            }
            (Phase::Running | Phase::Draining, LifecycleEvent::StopAsked(request)) => {
                self.set_ending(request.cause, request.actor);
                self.ask = request.ask.unwrap_or(self.ask);
                self.signal = request.signal.unwrap_or(self.signal);
                match request.mode {
                    StopMode::Ask => self.ask_to_end(self.rules.plan.grace),
                    StopMode::Within(grace) => self.ask_to_end(grace),
                    StopMode::Kill => self.kill(Some(KillReason::Wanted)),
                }
            }
            (Phase::Running | Phase::Draining, LifecycleEvent::Deadline) => {
                self.set_ending(Cause::Timeout, Actor::Quell);
                self.ask_to_end(self.rules.plan.grace)
            }
            (
                Phase::Running,
                LifecycleEvent::Spawned
                | LifecycleEvent::Executed
                | LifecycleEvent::StartFailed(_)
                | LifecycleEvent::Counted(_),
            ) => vec![],

            (Phase::Draining, LifecycleEvent::Counted(Count::Alive(0))) => {
                self.set_own_ending();
                self.end(Verdict::Gone)
            }
            (Phase::Draining, LifecycleEvent::Counted(count)) => {
                self.last_count = count;
                match self.rules.until {
                    Until::Root => {
                        self.leaked = true;
                        self.set_own_ending();
                        self.ask_to_end(self.rules.plan.grace)
                    }
                    Until::Tree => vec![],
                }
            }
            (
                Phase::Draining,
                LifecycleEvent::Spawned
                | LifecycleEvent::Executed
                | LifecycleEvent::StartFailed(_)
                | LifecycleEvent::RootExited(_),
            ) => vec![],

            (Phase::Asking | Phase::Killing, LifecycleEvent::Counted(Count::Alive(0))) => {
                self.end(Verdict::Gone)
            }
            (Phase::Asking | Phase::Killing, LifecycleEvent::Counted(Count::Refused(count))) => {
                self.end(Verdict::Survivors { count })
            }
            (Phase::Asking, LifecycleEvent::Counted(count)) => {
                self.last_count = count;
                if self.rest_waits && self.root.is_some() { self.ask_the_rest() } else { vec![] }
            }
            (Phase::Asking, LifecycleEvent::StopAsked(request)) => match request.mode {
                StopMode::Ask | StopMode::Kill | StopMode::Within(Duration::ZERO) => {
                    self.kill(Some(KillReason::Wanted))
                }
                StopMode::Within(grace) => {
                    let further = request.signal.map(|signal| self.ask_with(signal));
                    [vec![Action::Shorten(grace)], further.unwrap_or_default()].concat()
                }
            },
            (Phase::Asking, LifecycleEvent::Deadline) if self.grace.is_zero() => {
                self.kill(Some(KillReason::Wanted))
            }
            (Phase::Asking, LifecycleEvent::Deadline) => self.kill(Some(KillReason::GraceOver)),
            (Phase::Asking | Phase::Killing, LifecycleEvent::RootExited(outcome)) => {
                self.root.get_or_insert(outcome);
                vec![Action::Count]
            }
            (
                Phase::Asking,
                LifecycleEvent::Spawned | LifecycleEvent::Executed | LifecycleEvent::StartFailed(_),
            ) => vec![],

            (Phase::Killing, LifecycleEvent::Counted(count)) => {
                self.last_count = count;
                vec![Action::Kill]
            }
            (Phase::Killing, LifecycleEvent::Deadline) => {
                let verdict = match &self.last_count {
                    Count::Alive(count) | Count::Refused(count) => Verdict::Survivors { count: *count },
                    Count::Unknown(why) => Verdict::Unproven { why: why.clone() },
                };
                self.end(verdict)
            }
            // It was killed while it started, and executed the program before the kill reached it. Its exit is next.
            (Phase::Killing, LifecycleEvent::Executed) => {
                self.root.take_if(|root| matches!(root, RootOutcome::NotStarted { .. }));
                vec![]
            }
            (
                Phase::Killing,
                LifecycleEvent::Spawned | LifecycleEvent::StartFailed(_) | LifecycleEvent::StopAsked(_),
            ) => vec![],

            (
                Phase::Ended,
                LifecycleEvent::Spawned
                | LifecycleEvent::Executed
                | LifecycleEvent::StartFailed(_)
                | LifecycleEvent::RootExited(_)
                | LifecycleEvent::Counted(_)
                | LifecycleEvent::StopAsked(_)
                | LifecycleEvent::Deadline,
            ) => vec![],
        }
    }

    fn enter(&mut self, state: Phase, then: Vec<Action>) -> Vec<Action> {
        self.state = state;
        let mut actions = vec![Action::Publish];
        actions.extend(then);
        actions
    }

    fn ask_to_end(&mut self, grace: Duration) -> Vec<Action> {
        // KILL does not ask: no process can handle it.
        if self.signal == Signal::KILL {
            return self.kill(Some(KillReason::Wanted));
        }
        self.grace = grace;
        self.asked.push(self.signal);
        // The deadline is set before the request: a process that is asked may stop the keeper. The count after it ends the
        // wait if the tree is empty already.
        let to = if self.root.is_some() { AskScope::Tree } else { self.ask };
        self.rest_waits = to == AskScope::Root;
        let ask = Action::Ask { signal: self.signal, to };
        self.enter(Phase::Asking, vec![Action::Arm(grace), ask, Action::Count])
    }

    /// Sends a further signal to the processes that were asked, unless they had it. The deadline stays.
    fn ask_with(&mut self, signal: Signal) -> Vec<Action> {
        if self.asked.contains(&signal) {
            return vec![];
        }
        self.asked.push(signal);
        let to = if self.rest_waits { AskScope::Root } else { AskScope::Tree };
        vec![Action::Ask { signal, to }, Action::Count]
    }

    /// The root, which alone was asked, has exited. The other processes have the rest of the grace, and a short time at least.
    fn ask_the_rest(&mut self) -> Vec<Action> {
        self.rest_waits = false;
        let least = self.grace.min(self.rules.plan.brief);
        let ask = Action::Ask { signal: self.signal, to: AskScope::Tree };
        vec![Action::Extend(least), ask, Action::Count]
    }

    fn kill(&mut self, reason: Option<KillReason>) -> Vec<Action> {
        self.kill_reason = self.kill_reason.or(reason);
        // Until the first round has counted, nothing is proven.
        self.last_count = Count::Unknown("it was never counted".into());
        self.enter(Phase::Killing, vec![Action::Arm(self.rules.plan.verify), Action::Kill])
    }

    fn end(&mut self, verdict: Verdict) -> Vec<Action> {
        self.verdict = Some(verdict);
        self.state = Phase::Ended;
        vec![Action::Disarm, Action::Finish]
    }

    fn set_ending(&mut self, cause: Cause, actor: Actor) {
        self.ending.get_or_insert((cause, actor));
    }

    /// Why it ends if the only reason is the end of the root; none while the root lives.
    pub fn own_end(&self) -> Option<(Cause, Actor)> {
        let RootOutcome::Signaled { signal, .. } = self.root.as_ref()? else {
            return Some((Cause::OwnExit, Actor::Program));
        };
        let sender = self.sent.iter().find(|(sent, _)| sent == signal);
        Some(match sender {
            Some((_, actor)) => (Cause::UserSignal, actor.clone()),
            None if signal.is_crash() => (Cause::OwnExit, Actor::Program),
            None => (Cause::ExternalSignal, Actor::Unknown),
        })
    }

    fn set_own_ending(&mut self) {
        let (cause, actor) = self.own_end().unwrap_or((Cause::OwnExit, Actor::Program));
        self.set_ending(cause, actor);
    }

    fn not_started(&mut self, reason: String, cause: Cause, actor: Actor) {
        self.root.get_or_insert(RootOutcome::NotStarted { reason });
        self.set_ending(cause, actor);
    }
}
