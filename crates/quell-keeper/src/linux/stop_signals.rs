//! The meaning of the signals that a front or a standby gets.

use std::time::{Duration, Instant};

use quell_core::{Actor, JobState, Owner, ProcId, SessionKind, Signal, StopMode};
use quell_sys::SignalInfo;

use super::caller::caller_of;
use super::channel::FrontCommand;
use super::keeper_watch::{KeeperWatch, STOP_SIGNALS};
use crate::control_protocol::StopValue;

/// The signals that a front forwards to the root.
pub const FORWARDED: [&str; 3] = ["USR1", "USR2", "CONT"];

/// Stop signals that come this close together are one request: a hang-up comes from the kernel and from the shell, `timeout`
/// signals its child and then its group, a service manager sends TERM and HUP.
const TOGETHER: Duration = Duration::from_millis(100);

impl KeeperWatch {
    pub(super) fn on_signal(&mut self, info: SignalInfo) {
        let name = info.signal.to_string();
        tracing::debug!("received {name} from pid {}", info.pid);
        if FORWARDED.contains(&name.as_str()) {
            let _ = self.channel.try_send(&FrontCommand::Forward(info.signal));
            return;
        }
        if info.signal == Signal::ASK_FRONT {
            // A plain TERM right after it is the same request. A later one is the second request.
            self.first_stop.get_or_insert_with(Instant::now);
            let StopValue { kill, grace, ask } = StopValue::decode(info.value);
            let grace = grace.unwrap_or(self.job.request.stop.grace);
            let mode = if kill { StopMode::Kill } else { StopMode::Within(grace) };
            let (pid, command) = caller_of(info.pid, &self.job.mask);
            let actor = Actor::Client { pid, uid: info.uid, command, reason: None, through: None };
            return self.command(&FrontCommand::Stop { actor, mode, ask, signal: None });
        }
        if !STOP_SIGNALS.contains(&name.as_str()) {
            return;
        }
        if self.job.server().is_some() {
            return self.on_client_signal(info);
        }
        if info.from_kernel && info.signal != Signal::HUP && self.root_gets_terminal_keys() {
            self.interrupted |= info.signal == Signal::INT;
            return;
        }
        let together = self.first_stop.is_some_and(|first| first.elapsed() < TOGETHER);
        // A hang-up does not ask for a faster stop.
        if together || (self.first_stop.is_some() && info.signal == Signal::HUP) {
            return;
        }
        self.first_stop.get_or_insert_with(Instant::now);
        if info.from_kernel {
            return self.command(&FrontCommand::stop(Actor::Kernel));
        }
        if self.outer_job_stops(info.pid) {
            return self.command(&FrontCommand::OuterJobStops);
        }
        let (pid, command) = caller_of(info.pid, &self.job.mask);
        self.command(&FrontCommand::stop(Actor::Sender { signal: info.signal, pid, uid: info.uid, command }));
    }

    /// A client shuts its server down by signals of its own choice, one after another. Each of them is passed on, and none
    /// shortens the grace that the first one has begun. Keys of the terminal are meant for the client.
    fn on_client_signal(&mut self, info: SignalInfo) {
        let is_key = info.from_kernel && info.signal != Signal::HUP;
        if is_key || self.passed_on.contains(&info.signal) {
            return;
        }
        self.passed_on.push(info.signal);
        let actor = if info.from_kernel {
            Actor::Kernel
        } else {
            let (pid, command) = caller_of(info.pid, &self.job.mask);
            Actor::Sender { signal: info.signal, pid, uid: info.uid, command }
        };
        let mode = StopMode::Within(self.job.request.stop.grace);
        self.command(&FrontCommand::Stop { actor, mode, ask: None, signal: Some(info.signal) });
    }

    /// Whether `sender` is the keeper of the job that owns this one, and is stopping that job: it asks its whole tree, which
    /// includes this process.
    fn outer_job_stops(&self, sender: u32) -> bool {
        let owner = self.job.request.as_background().and_then(|background| background.owner);
        let (Some(Owner::Job { job }), Some(store)) = (owner, &self.job.store) else {
            return false;
        };
        let is_keeper = |keeper: ProcId| keeper.pid == sender;
        store.home().job(job).record().is_ok_and(|outer| {
            // A process outside our PID namespace has the PID 0 here.
            let sent_by_it = sender == 0 || outer.keeper.is_some_and(is_keeper);
            sent_by_it && outer.state.job_state() == JobState::Stopping
        })
    }

    /// Whether a key of the terminal has reached the program too, which then decides what it means. If the root has exited, has
    /// left our group or is being stopped, only quell can react.
    fn root_gets_terminal_keys(&self) -> bool {
        let in_our_group = match (self.report.held, self.report.root) {
            // The root of a PID namespace can't be found by its PID here. It can't leave our group without a new session.
            (Some(held), _) if held.has_init() => true,
            // If the root is gone and its exit is not reported yet, this key may have killed it.
            (_, Some(root)) => quell_sys::stat(root.pid).map_or(true, |stat| stat.pgid == quell_sys::pgid()),
            (_, None) => true,
        };
        self.job.session == SessionKind::Shared && self.known.root.is_none() && !self.stopping && in_our_group
    }
}
