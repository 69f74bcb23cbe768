//! Whether and when the program of a background job is started again, and the wait until then.

use std::time::{Duration, Instant};

use quell_contain::Containment;
use quell_core::{
    Actor, Cause, EventKind, Receipt, RecordedState, RestartPolicy, RestartRules, RootOutcome, StateRecord,
    Step, StepKind, Verdict,
};
use quell_sys::fault::{FaultPoint, fault_point};

use super::channel::RunResult;
use super::engine::{KeeperTimer, Supervisor, describe_request};

/// What follows a run of the program.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Restart(Duration),
    LimitReached { restarts: u32 },
    Nothing,
}

#[derive(Default)]
pub struct Backoff {
    rules: RestartRules,
    restarts: u32,
    delay: Duration,
    /// Why there is no other run, once the end of the job was asked for.
    pub ending: Option<(Cause, Actor)>,
}

impl Backoff {
    pub fn new(rules: RestartRules) -> Self {
        Self { rules, restarts: 0, delay: rules.delay, ending: None }
    }

    /// What follows a run that has ended like this and has lasted for so long.
    pub fn next(&mut self, receipt: &Receipt, lasted: Duration) -> Next {
        let rules = self.rules;
        let by_itself = match receipt.cause {
            Cause::OwnExit | Cause::ExternalSignal | Cause::Limit | Cause::Timeout | Cause::StartFailed => {
                true
            }
            // A user has stopped the job, which `ending` says; or has sent a signal that ended this run only.
            Cause::User => true,
            Cause::FrontLost | Cause::KeeperLost | Cause::OwnerGone | Cause::HostReboot => false,
        };
        let wanted = match rules.policy {
            RestartPolicy::No => false,
            RestartPolicy::OnFailure => receipt.root.outcome != RootOutcome::Exited { code: 0 },
            RestartPolicy::Always => true,
        };
        if lasted > rules.max_delay {
            (self.delay, self.restarts) = (rules.delay, 0);
        }
        // The run may have ended by itself just when the end of the job was asked for.
        if !wanted || !by_itself || self.ending.is_some() || receipt.verdict != Verdict::Gone {
            return Next::Nothing;
        }
        if rules.limit.is_some_and(|limit| self.restarts >= limit) {
            return Next::LimitReached { restarts: self.restarts };
        }
        self.restarts += 1;
        let delay = self.delay;
        self.delay = (delay * 2).min(rules.max_delay);
        Next::Restart(delay)
    }
}

impl Supervisor {
    /// Waits before the program is started again. The loop and the requests are the same as while it runs. Returns false if
    /// there is no next run: then the end of the job is on record.
    pub(super) fn wait_to_restart(&mut self) -> bool {
        let (Some(delay), Some(last)) = (self.run.restart_after, self.run.result.take()) else {
            return false;
        };
        // The pins and the cgroup of the ended run are not needed any more.
        self.run.containment = Containment::nothing(self.job.spec.id, &self.job.spec.marker);
        self.timers.arm(KeeperTimer::NextRun, delay);
        loop {
            // It can have been asked for when the run had just ended.
            if let Some((cause, actor)) = self.host.backoff.ending.clone() {
                self.end_between_runs(last.receipt, cause, actor);
                return false;
            }
            if self.timers.take_due(KeeperTimer::NextRun, Instant::now()) {
                fault_point(FaultPoint::WaitOver);
                return true;
            }
            self.wait_and_handle();
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.timers.due(KeeperTimer::NextRun).is_some()
    }

    /// Ends a job that has no process. The outcome of its last run stays; why and when the job ended is new.
    fn end_between_runs(&mut self, mut receipt: Receipt, cause: Cause, actor: Actor) {
        let Some(recorded) = self.recorded.clone() else { return };
        fault_point(FaultPoint::WaitEnding);
        self.record_event(EventKind::StopAsked { cause, actor: actor.clone() });
        let (moment, note) = (self.run.evidence.now(), describe_request(cause, &actor));
        receipt.steps.push(Step { moment: moment.clone(), step: StepKind::StopAsked, note, signals: vec![] });
        (receipt.cause, receipt.actor, receipt.ended) = (cause, actor, moment.clone());
        let state = RecordedState::after(&receipt, recorded.state.tree().cloned(), None);
        let record = StateRecord { since: moment, state, ..recorded };
        self.run.restart_after = None;
        let ended = self.event(EventKind::ended(&receipt));
        self.write_end(&mut receipt, record, &[ended]);
        self.report_end(&RunResult { receipt, leaked: false, failed: None, unwritten: false });
    }
}
