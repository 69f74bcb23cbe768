//! The one stop: what [`Lifecycle`] decides is carried out on a [`Tree`], in one order and at one pace.

use std::time::{Duration, Instant};

use quell_core::{Action, AskScope, Count, Lifecycle, LifecycleEvent, Phase, Signal};
use quell_sys::Timers;

/// How soon it is counted again when a count has failed: the exit that asked for it may have been the last event.
const COUNT_AGAIN: Duration = Duration::from_millis(500);

/// How often a kill goes over a tree.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How soon a round is repeated when no event asks for it.
    pub again: Duration,
    /// How many times as long as a round took there is no other one for another death: those that are dying need the
    /// processors too. A count of zero ends the rest at once.
    pub rest_factor: u32,
    /// How long that rest may be.
    pub longest_rest: Duration,
}

/// A set of processes that is stopped, and what is to be told of its stop.
///
/// [`StopEngine`] calls these, one after another and in the order that the lifecycle has given: the new state is on
/// record ([`Tree::state_changed`]) before the signal is sent that goes with it.
pub trait Tree {
    /// How often a kill goes over it.
    const PACE: Pace;

    /// The engine of its stop.
    fn engine(&mut self) -> &mut StopEngine;

    /// Counts the living. Zero only if that is proven.
    fn count(&mut self) -> Count;

    /// Asks it to end: `signal`, then CONT.
    fn ask(&mut self, signal: Signal, to: AskScope);

    /// One round of brake, kill and sweep, without waiting. Whether its last look found no new process: all that is to be
    /// done is to wait for those that die.
    fn kill_round(&mut self) -> bool;

    /// The end: what is proven is told.
    fn finish(&mut self);

    /// Reports the root's exit to the engine, if it has come.
    fn look_at_root(&mut self) {}

    /// The lifecycle is in another state.
    fn state_changed(&mut self) {}

    /// The deadline was brought forward to this far from now.
    fn hurried(&mut self, _: Duration) {}

    /// Some outlive the root.
    fn outlived(&mut self) {}

    /// A round of the kill is about to begin.
    fn killing(&mut self) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopTimer {
    /// The lifecycle's one deadline.
    Deadline,
}

/// Where one stop is.
#[derive(Debug)]
pub struct StopEngine {
    /// What decides.
    pub life: Lifecycle,
    timers: Timers<StopTimer>,
    /// Whether the last count failed.
    uncounted: bool,
    /// Until when there is no other round of the kill, and whether an event has asked for one.
    rest_until: Option<Instant>,
    round_owed: bool,
}

impl StopEngine {
    /// The engine of this life.
    pub fn new(life: Lifecycle) -> Self {
        Self { life, timers: Timers::default(), uncounted: false, rest_until: None, round_owed: false }
    }

    /// Whether the lifecycle has come to its end.
    pub fn is_over(&self) -> bool {
        self.life.state() == Phase::Ended
    }

    /// Whether a count may end the present phase.
    pub fn is_counting(&self) -> bool {
        matches!(self.life.state(), Phase::Draining | Phase::Asking | Phase::Killing)
    }

    /// When the lifecycle's deadline is.
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.due(StopTimer::Deadline)
    }

    /// When something is due that no event tells of, for a tree of this pace.
    pub fn next_wake(&self, pace: Pace) -> Option<Instant> {
        let wake = self.timers.next();
        let killing = self.life.state() == Phase::Killing;
        if !killing && !(self.is_counting() && self.uncounted) {
            return wake;
        }
        let again = Instant::now() + if killing { pace.again } else { COUNT_AGAIN };
        wake.into_iter().chain(Some(again)).chain(self.rest_until.filter(|_| self.round_owed)).min()
    }

    /// Whether the deadline has passed. Then it is not armed any more, and [`LifecycleEvent::Deadline`] is to be handled.
    pub fn take_deadline(&mut self) -> bool {
        self.timers.take_due(StopTimer::Deadline, Instant::now())
    }

    /// Tells the lifecycle what has happened, and carries out what it decides.
    pub fn handle<T: Tree>(tree: &mut T, event: LifecycleEvent) {
        let actions = tree.engine().life.step(event);
        Self::carry_out(tree, actions);
    }

    /// Carries out what a lifecycle has decided.
    pub fn carry_out<T: Tree>(tree: &mut T, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Publish => tree.state_changed(),
                Action::Arm(duration) => tree.engine().timers.arm(StopTimer::Deadline, duration),
                Action::Shorten(duration) => {
                    let sooner = Instant::now() + duration;
                    let engine = tree.engine();
                    if engine.deadline().is_some_and(|deadline| sooner < deadline) {
                        engine.timers.bring_forward(StopTimer::Deadline, duration);
                        tree.hurried(duration);
                    }
                }
                Action::Extend(duration) => {
                    let later = Instant::now() + duration;
                    let engine = tree.engine();
                    if engine.deadline().is_some_and(|deadline| deadline < later) {
                        engine.timers.arm(StopTimer::Deadline, duration);
                    }
                }
                Action::Disarm => tree.engine().timers.disarm(StopTimer::Deadline),
                Action::Count => Self::count(tree),
                Action::Ask { signal, to } => tree.ask(signal, to),
                Action::Kill => Self::kill(tree),
                Action::Finish => tree.finish(),
            }
        }
    }

    /// Counts, and reports what was counted. The root may have died since it was last looked at; its end goes first.
    pub fn count<T: Tree>(tree: &mut T) {
        let count = tree.count();
        tree.engine().uncounted = matches!(count, Count::Unknown(_));
        tree.look_at_root();
        if tree.engine().is_over() {
            return;
        }
        if tree.engine().life.state() == Phase::Draining && count != Count::Alive(0) {
            tree.outlived();
        }
        let engine = tree.engine();
        let rests = engine.rest_until.is_some_and(|until| Instant::now() < until);
        engine.round_owed = rests && count != Count::Alive(0);
        if !engine.round_owed {
            Self::handle(tree, LifecycleEvent::Counted(count));
        }
    }

    fn kill<T: Tree>(tree: &mut T) {
        tree.killing();
        let since = Instant::now();
        let settled = tree.kill_round();
        // A tree that still grows is not given any time.
        let rest = (T::PACE.rest_factor * since.elapsed()).min(T::PACE.longest_rest);
        tree.engine().rest_until = settled.then(|| Instant::now() + rest);
        // Who is not gone yet is waited for, not killed again at once.
        if tree.count() == Count::Alive(0) {
            Self::count(tree);
        }
    }
}
