//! The stop of a set of processes: carries out on a [`Tree`] what [`Lifecycle`] decides, in one order and at one pace.

use std::time::{Duration, Instant};

use quell_core::{Action, AskScope, Count, Lifecycle, LifecycleEvent, Phase, Signal};
use quell_sys::Timers;

/// How soon a failed count is repeated: the exit that caused it may have been the last event.
const COUNT_AGAIN: Duration = Duration::from_millis(500);

/// How often a kill is repeated.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How soon a round is repeated if no event asks for it.
    pub again: Duration,
    /// How soon the processes are counted again before that, if no event reports new ones.
    pub look: Option<Duration>,
    /// For how many times the duration of a round an exit does not start another one: dying processes need the CPUs too. A
    /// count of zero ends this rest at once.
    pub rest_factor: u32,
    /// The longest rest.
    pub longest_rest: Duration,
}

/// A set of processes that is stopped.
///
/// [`StopEngine`] calls these functions in the order that the lifecycle decides: the new state is recorded
/// ([`Tree::state_changed`]) before its signal is sent.
pub trait Tree {
    fn pace(&self) -> Pace;

    /// The engine that drives the stop.
    fn engine(&mut self) -> &mut StopEngine;

    /// Counts the living processes. Zero only if that is proven.
    fn count(&mut self) -> Count;

    /// Asks the processes to exit: `signal`, then CONT. Does nothing if the stop begins with the kill.
    fn ask(&mut self, _: Signal, _: AskScope) {}

    /// One round of brake, kill and sweep, without waiting. Returns whether its last pass found no new process: then only exits
    /// have to be waited for.
    fn kill_round(&mut self) -> bool;

    /// The stop is over: prove and report the result.
    fn finish(&mut self) {}

    /// Waits for an event until `until`. Not called for a tree that has its own loop.
    fn wait(&mut self, _until: Option<Instant>) {}

    /// Reports the root's exit to the engine, if it has exited.
    fn look_at_root(&mut self) {}

    fn state_changed(&mut self) {}

    /// The deadline was shortened to this time from now.
    fn hurried(&mut self, _: Duration) {}

    /// Processes have outlived the root.
    fn outlived(&mut self) {}

    /// A kill round begins.
    fn killing(&mut self) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopTimer {
    Deadline,
}

/// The state of one stop.
#[derive(Debug)]
pub struct StopEngine {
    /// What decides.
    pub life: Lifecycle,
    timers: Timers<StopTimer>,
    /// Whether the last count failed.
    uncounted: bool,
    /// The earliest time of the next kill round, and whether an event has asked for one since the last.
    rest_until: Option<Instant>,
    round_owed: bool,
}

impl StopEngine {
    pub fn new(life: Lifecycle) -> Self {
        Self { life, timers: Timers::default(), uncounted: false, rest_until: None, round_owed: false }
    }

    pub fn is_over(&self) -> bool {
        self.life.state() == Phase::Ended
    }

    /// Whether a count can end the present phase.
    pub fn is_counting(&self) -> bool {
        matches!(self.life.state(), Phase::Draining | Phase::Asking | Phase::Killing)
    }

    /// The lifecycle's deadline.
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.due(StopTimer::Deadline)
    }

    /// When to act without an event, for a tree with this pace.
    pub fn next_wake(&self, pace: Pace) -> Option<Instant> {
        let look = pace.look.filter(|_| self.is_counting()).map(|look| Instant::now() + look);
        let wake = self.timers.next().into_iter().chain(look).min();
        let killing = self.life.state() == Phase::Killing;
        let repeats = killing || (self.is_counting() && self.uncounted);
        if !repeats {
            return wake;
        }
        let again = Instant::now() + if killing { pace.again } else { COUNT_AGAIN };
        wake.into_iter().chain(Some(again)).chain(self.rest_until.filter(|_| self.round_owed)).min()
    }

    /// Whether the deadline has passed. If so it is disarmed, and the caller has to handle [`LifecycleEvent::Deadline`].
    pub fn take_deadline(&mut self) -> bool {
        self.timers.take_due(StopTimer::Deadline, Instant::now())
    }

    /// Gives the event to the lifecycle and carries out its decisions.
    pub fn handle<T: Tree>(tree: &mut T, event: LifecycleEvent) {
        let actions = tree.engine().life.step(event);
        Self::carry_out(tree, actions);
    }

    /// Carries out the decisions of a lifecycle.
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

    /// Carries out the `first` actions of a lifecycle, and continues until it has ended.
    pub fn run_to_end<T: Tree>(tree: &mut T, first: Vec<Action>) {
        Self::carry_out(tree, first);
        while !tree.engine().is_over() {
            let pace = tree.pace();
            let wake = tree.engine().next_wake(pace);
            tree.wait(wake);
            // The order settles ties: an exit goes before a deadline that has passed meanwhile.
            Self::count(tree);
            if tree.engine().take_deadline() {
                Self::handle(tree, LifecycleEvent::Deadline);
            }
        }
    }

    /// Counts and reports the count. The root can have exited since it was last checked: its exit is reported first.
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
        // There is no rest while the tree still grows.
        let pace = tree.pace();
        let rest = (pace.rest_factor * since.elapsed()).min(pace.longest_rest);
        tree.engine().rest_until = settled.then(|| Instant::now() + rest);
        // Processes that are still alive are waited for, not killed again at once.
        if tree.count() == Count::Alive(0) {
            Self::count(tree);
        }
    }
}
