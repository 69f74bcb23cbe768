//! The world around one [`Lifecycle`]: processes that fork, obey or don't, a kernel whose kills and counts fail, users, a
//! deadline; and the keeper's loop (`engine.rs`), step by step, so that the processes move between any two of its steps.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use quell_core::{
    Action, Actor, AskScope, Cause, Count, LastKnown, Lifecycle, LifecycleEvent, LifecycleRules, Phase,
    RootOutcome, Signal, StopMode, StopPlan, StopRequest, Until,
};

/// A [`Lifecycle`] by number: equal lives have one number, so that states can be compared and hashed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LifeId(usize);

#[derive(Default)]
struct Lives {
    all: Vec<Lifecycle>,
    numbers: HashMap<String, usize>,
    steps: HashMap<(usize, Ev), (usize, Vec<Do>)>,
}

thread_local! { static LIVES: RefCell<Lives> = RefCell::default(); }

impl LifeId {
    pub fn of(life: Lifecycle) -> Self {
        LIVES.with_borrow_mut(|lives| {
            // The debug output of a lifecycle shows all of its state.
            let number = *lives.numbers.entry(format!("{life:?}")).or_insert(lives.all.len());
            if number == lives.all.len() {
                lives.all.push(life);
            }
            Self(number)
        })
    }

    pub fn get(self) -> Lifecycle {
        LIVES.with_borrow(|lives| lives.all[self.0].clone())
    }

    pub fn state(self) -> Phase {
        LIVES.with_borrow(|lives| lives.all[self.0].state())
    }

    pub fn cause(self) -> Option<Cause> {
        LIVES.with_borrow(|lives| lives.all[self.0].ending().map(|(cause, _)| *cause))
    }

    /// The real table, asked once for each pair.
    pub fn step(self, event: Ev) -> (Self, Vec<Do>) {
        let known = LIVES.with_borrow(|lives| lives.steps.get(&(self.0, event)).cloned());
        let (life, todo) = known.unwrap_or_else(|| {
            let mut life = self.get();
            let actions = life.step(event.event());
            let step = (Self::of(life).0, actions.iter().filter_map(Do::of).collect::<Vec<_>>());
            LIVES.with_borrow_mut(|lives| lives.steps.insert((self.0, event), step.clone()));
            step
        });
        (Self(life), todo)
    }
}

impl fmt::Debug for LifeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let life = self.get();
        write!(f, "{:?} {:?} {:?}", life.state(), life.ending().map(|(cause, _)| *cause), life.verdict())
    }
}

/// How a root ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelOutcome {
    Exits,
    DiesOfTerm,
    IsKilled,
}

/// What requests the stop, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelStop {
    Ask,
    Kill,
    FrontLost,
    OwnerGone,
}

/// An event that the lifecycle can get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ev {
    Spawned,
    Executed,
    StartFailed,
    RootExited(ModelOutcome),
    Counted(Option<u8>),
    Stop(ModelStop),
    Deadline,
}

impl Ev {
    fn event(self) -> LifecycleEvent {
        let stop = |cause, mode| {
            LifecycleEvent::StopAsked(StopRequest {
                cause,
                actor: Actor::Unknown,
                mode,
                ask: None,
                signal: None,
            })
        };
        match self {
            Ev::Spawned => LifecycleEvent::Spawned,
            Ev::Executed => LifecycleEvent::Executed,
            Ev::StartFailed => LifecycleEvent::StartFailed("refused".into()),
            Ev::RootExited(out) => LifecycleEvent::RootExited(match out {
                ModelOutcome::Exits => RootOutcome::Exited { code: 0 },
                ModelOutcome::DiesOfTerm => RootOutcome::Signaled { signal: Signal::TERM, core: false },
                ModelOutcome::IsKilled => RootOutcome::Signaled { signal: Signal::KILL, core: false },
            }),
            Ev::Counted(Some(alive)) => LifecycleEvent::Counted(Count::Alive(alive.into())),
            Ev::Counted(None) => LifecycleEvent::Counted(Count::Unknown("refused".into())),
            Ev::Stop(ModelStop::Ask) => stop(Cause::User, StopMode::Ask),
            Ev::Stop(ModelStop::Kill) => stop(Cause::User, StopMode::Kill),
            Ev::Stop(ModelStop::FrontLost) => {
                stop(Cause::FrontLost, StopMode::Within(Duration::from_millis(500)))
            }
            Ev::Stop(ModelStop::OwnerGone) => {
                stop(Cause::OwnerGone, StopMode::Within(Duration::from_secs(9)))
            }
            Ev::Deadline => LifecycleEvent::Deadline,
        }
    }
}

/// What the keeper does next. The first ones are the actions of the lifecycle, the others the parts of its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Do {
    Arm,
    Disarm,
    Count,
    Ask,
    AskRoot,
    Kill,
    Finish,
    /// `Supervisor::count` after a kill round that left no process.
    CountIfNone,
    /// `notice_root_exit`.
    Notice,
    /// The second half of `Supervisor::count`.
    Report(Option<u8>),
    /// Reads the pipe of the stub.
    ReadStatus,
    /// The end of `wait_and_handle`.
    LookAtDeadline,
    /// `step` with an event.
    Tell(Ev),
    /// The end of `try_start`.
    Go,
}

impl Do {
    /// Actions without an effect here are left out: the other model has the record, and time has no length here.
    fn of(action: &Action) -> Option<Self> {
        match action {
            Action::Publish | Action::Shorten(_) | Action::Extend(_) => None,
            Action::Arm(_) => Some(Do::Arm),
            Action::Disarm => Some(Do::Disarm),
            Action::Count => Some(Do::Count),
            Action::Ask { to: AskScope::Tree, .. } => Some(Do::Ask),
            Action::Ask { to: AskScope::Root, .. } => Some(Do::AskRoot),
            Action::Kill => Some(Do::Kill),
            Action::Finish => Some(Do::Finish),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelRoot {
    NotStarted,
    Stub,
    Runs,
    Zombie(ModelOutcome),
}

/// What the pipe of the stub has for the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    Open,
    /// By an exec, or by the death of the stub: these look alike.
    Closed,
    Failed,
    Read,
}

/// What does not change in one world. `None` is for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nature {
    pub root_obeys: bool,
    pub children_obey: bool,
    pub until: Until2,
    pub timeout: bool,
    /// The root is asked alone, and first.
    pub root_first: bool,
    pub failing_kills: Option<u8>,
    pub failing_counts: Option<u8>,
}

/// [`Until`], which can't be hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Until2 {
    Root,
    Tree,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub nature: Nature,
    pub life: LifeId,
    /// What the keeper is about to do; the last is the next.
    pub todo: Vec<Do>,
    pub root: ModelRoot,
    pub noticed: bool,
    pub go: bool,
    pub status: Status,
    pub children: u8,
    pub asked: bool,
    pub root_asked: bool,
    /// The deadline is set; its time has come.
    pub armed: bool,
    pub due: bool,
    /// Something has woken the keeper's poll.
    pub news: bool,
    /// The last count failed.
    pub uncounted: bool,
    pub forks: u8,
    pub stops: u8,
    pub failing_kills: Option<u8>,
    pub failing_counts: Option<u8>,
    /// What the promises are checked against: none of it comes from the lifecycle itself.
    pub asks: u8,
    pub finishes: u8,
    pub begun: bool,
    pub may_kill: bool,
    pub happened: u16,
    pub wrong: Option<&'static str>,
}

pub fn bit(cause: Cause) -> u16 {
    1 << cause as u16
}

impl World {
    pub fn new(nature: Nature, forks: u8, stops: u8) -> Self {
        Self {
            nature,
            life: LifeId::of(Lifecycle::new(nature.rules())),
            todo: vec![],
            root: ModelRoot::NotStarted,
            noticed: false,
            go: false,
            status: Status::Open,
            children: 0,
            asked: false,
            root_asked: false,
            armed: false,
            due: false,
            news: false,
            uncounted: false,
            forks,
            stops,
            failing_kills: nature.failing_kills,
            failing_counts: nature.failing_counts,
            asks: 0,
            finishes: 0,
            begun: false,
            may_kill: false,
            happened: 0,
            wrong: None,
        }
    }

    /// One whose keeper was lost while the program ran (`Supervisor::finish`).
    pub fn orphaned(nature: Nature, known: LastKnown, forks: u8, stops: u8) -> Self {
        let known_cause = known.ending.as_ref().map_or(Cause::KeeperLost, |(cause, _)| *cause);
        let root =
            if known.root.is_some() { ModelRoot::Zombie(ModelOutcome::Exits) } else { ModelRoot::Runs };
        let noticed = known.root.is_some();
        let (life, actions) = Lifecycle::orphaned(nature.rules(), known);
        Self {
            life: LifeId::of(life),
            todo: actions.iter().filter_map(Do::of).rev().collect(),
            root,
            noticed,
            status: Status::Read,
            children: 1,
            begun: true,
            may_kill: true,
            happened: bit(known_cause) | bit(Cause::KeeperLost),
            ..Self::new(nature, forks, stops)
        }
    }

    pub fn alive(&self) -> u8 {
        self.children + u8::from(matches!(self.root, ModelRoot::Stub | ModelRoot::Runs))
    }

    pub fn idle(&self) -> bool {
        self.todo.is_empty() && self.life.state() != Phase::Ended
    }

    pub fn counting(&self) -> bool {
        matches!(self.life.state(), Phase::Draining | Phase::Asking | Phase::Killing)
    }

    /// The root ends, by itself or not; its keeper gets a SIGCHLD.
    pub fn root_ends(&mut self, out: ModelOutcome) {
        if self.status == Status::Open {
            self.status = Status::Closed;
        }
        (self.root, self.news) = (ModelRoot::Zombie(out), true);
    }
}

impl Nature {
    pub fn rules(self) -> LifecycleRules {
        LifecycleRules {
            plan: StopPlan {
                ask: if self.root_first { AskScope::Root } else { AskScope::Tree },
                ..StopPlan::default()
            },
            until: if self.until == Until2::Root { Until::Root } else { Until::Tree },
            timeout: self.timeout.then_some(Duration::from_secs(1)),
        }
    }
}
