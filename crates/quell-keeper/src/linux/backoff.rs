//! Whether and when the program of a background job is started again, and the wait until then.

use std::time::{Duration, Instant};

use quell_contain::Containment;
use quell_core::{
    Actor, Cause, EventKind, Receipt, RecordedState, RestartPolicy, RestartRules, RootOutcome, StateRecord,
    Verdict, describe_request,
};
use quell_sys::fault::{FaultPoint, fault_point};

use super::channel::RunResult;
use super::engine::{KeeperTimer, Supervisor};

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
    /// The cause and the actor of a stop request. If set, the program is not started again.
    pub ending: Option<(Cause, Actor)>,
}

impl Backoff {
    pub fn new(rules: RestartRules) -> Self {
        Self { rules, restarts: 0, delay: rules.delay, ending: None }
    }

    /// What follows a run that has ended with this receipt after this time.
    pub fn next(&mut self, receipt: &Receipt, lasted: Duration) -> Next {
        let rules = self.rules;
        let by_itself = match receipt.cause {
            Cause::OwnExit
            | Cause::UserSignal
            | Cause::ExternalSignal
            | Cause::Limit
            | Cause::Timeout
            | Cause::StartFailed => true,
            Cause::User
            | Cause::FrontLost
            | Cause::KeeperLost
            | Cause::OwnerGone
            | Cause::InputClosed
            | Cause::HostReboot => false,
        };
        let wanted = match rules.policy {
            RestartPolicy::No => false,
            RestartPolicy::OnFailure => receipt.root.outcome != RootOutcome::Exited { code: 0 },
            RestartPolicy::Always => true,
        };
        if lasted > rules.max_delay {
            (self.delay, self.restarts) = (rules.delay, 0);
        }
        // The run may have ended by itself just when a stop of the job was requested.
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
        self.run.containment = Containment::empty(self.job.spec.id, &self.job.spec.marker);
        self.timers.arm(KeeperTimer::NextRun, delay);
        loop {
            // The stop may have been requested when the run had just ended.
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
    fn end_between_runs(&mut self, last: Receipt, cause: Cause, actor: Actor) {
        let Some(recorded) = self.recorded.clone() else { return };
        fault_point(FaultPoint::WaitEnding);
        if cause != Cause::Timeout {
            self.record_event(EventKind::StopAsked { cause, actor: actor.clone() });
        }
        let (moment, note) = (self.run.evidence.now(), describe_request(cause, &actor));
        let mut receipt = last.ended_between_runs(cause, actor, moment.clone(), note);
        let state = RecordedState::after(&receipt, recorded.state.tree().cloned(), None);
        let record = StateRecord { since: moment, state, ..recorded };
        self.run.restart_after = None;
        let ended = self.event(EventKind::ended(&receipt));
        self.write_end(&mut receipt, record, &[ended]);
        self.report_end(&RunResult { receipt, leaked: false, failed: None, unwritten: false });
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use quell_core::{Lifecycle, LifecycleEvent, Signal};
    use quell_store::{JobDir, Liveness};
    use quell_sys::SignalFd;

    use super::*;
    use crate::platform::channel::{JsonChannel, KeeperEvent};
    use crate::platform::control_server::ControlServer;
    use crate::platform::engine::Run;
    use crate::platform::evidence::Evidence;
    use crate::platform::job::sample;

    const SECOND: Duration = Duration::from_secs(1);

    fn rules(policy: RestartPolicy, limit: Option<u32>) -> RestartRules {
        RestartRules { policy, limit, delay: SECOND, max_delay: 10 * SECOND }
    }

    fn receipt(outcome: RootOutcome) -> Receipt {
        let home = tempfile::tempdir().unwrap();
        let job = sample::job(home.path());
        let mut receipt = sample::receipt(&job, &Lifecycle::new(job.rules));
        receipt.root.outcome = outcome;
        receipt
    }

    #[test]
    fn the_delay_doubles_up_to_its_limit_and_a_long_run_resets_it() {
        let mut backoff = Backoff::new(rules(RestartPolicy::Always, None));
        let failed = receipt(RootOutcome::Exited { code: 1 });
        for seconds in [1, 2, 4, 8, 10, 10] {
            assert_eq!(backoff.next(&failed, SECOND), Next::Restart(seconds * SECOND));
        }
        assert_eq!(backoff.next(&failed, 11 * SECOND), Next::Restart(SECOND));
        assert_eq!(backoff.next(&failed, SECOND), Next::Restart(2 * SECOND));
    }

    #[test]
    fn the_limit_counts_restarts_since_the_last_long_run() {
        let mut backoff = Backoff::new(rules(RestartPolicy::OnFailure, Some(2)));
        let failed = receipt(RootOutcome::Exited { code: 1 });
        assert_eq!(backoff.next(&failed, SECOND), Next::Restart(SECOND));
        assert_eq!(backoff.next(&failed, 11 * SECOND), Next::Restart(SECOND));
        assert_eq!(backoff.next(&failed, SECOND), Next::Restart(2 * SECOND));
        assert_eq!(backoff.next(&failed, SECOND), Next::LimitReached { restarts: 2 });
    }

    #[test]
    fn a_run_is_followed_by_another_one_only_where_the_rules_say_so() {
        let next = |policy, change: &dyn Fn(&mut Receipt, &mut Backoff)| {
            let mut backoff = Backoff::new(rules(policy, None));
            let mut receipt = receipt(RootOutcome::Exited { code: 0 });
            change(&mut receipt, &mut backoff);
            backoff.next(&receipt, SECOND) != Next::Nothing
        };
        assert!(next(RestartPolicy::Always, &|_, _| {}));
        assert!(!next(RestartPolicy::No, &|_, _| {}));
        assert!(!next(RestartPolicy::OnFailure, &|_, _| {}), "it has succeeded");
        assert!(next(RestartPolicy::OnFailure, &|receipt, _| receipt.root.outcome = RootOutcome::Unknown));
        assert!(!next(RestartPolicy::Always, &|receipt, _| receipt.cause = Cause::OwnerGone));
        let unproven = Verdict::Unproven { why: String::new() };
        assert!(!next(RestartPolicy::Always, &|receipt, _| receipt.verdict = unproven.clone()));
        let user = (Cause::User, Actor::Unknown);
        assert!(!next(RestartPolicy::Always, &|_, backoff| backoff.ending = Some(user.clone())), "stopped");
    }

    /// A keeper whose first run has ended and whose next run is due after `delay`.
    fn waiting(home: &std::path::Path, delay: Duration) -> (Supervisor, JobDir, JsonChannel) {
        let job = sample::job(home);
        let store = job.store.clone().unwrap();
        let lock = store.create(&job.spec, None).unwrap();
        let mut life = Lifecycle::new(job.rules);
        life.step(LifecycleEvent::StartFailed("it is a test".into()));
        let receipt = sample::receipt(&job, &life);
        let signals = SignalFd::new(&[Signal::CHLD]).unwrap();
        let containment = Containment::empty(job.spec.id, &job.spec.marker);
        let mut run = Run::new(1, life, containment, Evidence::new());
        run.restart_after = Some(delay);
        let state = RecordedState::after(&receipt, None, None).before_next_run();
        run.result = Some(RunResult { receipt, leaked: false, failed: None, unwritten: false });
        let (front, standby) = JsonChannel::pair().unwrap();
        let mut supervisor =
            Supervisor { front: Some(front), lock: Some(lock), ..Supervisor::new(job, signals, run) };
        let record = supervisor.state_record(state, supervisor.run.evidence.now());
        store.append_state(&record).unwrap();
        supervisor.recorded = Some(record);
        supervisor.host.control = ControlServer::open(&store).unwrap();
        (supervisor, store, standby)
    }

    #[test]
    fn the_next_run_begins_when_its_time_has_come() {
        let home = tempfile::tempdir().unwrap();
        let (mut supervisor, store, _standby) = waiting(home.path(), Duration::ZERO);
        assert!(supervisor.wait_to_restart() && !supervisor.is_waiting());
        assert!(!store.record().unwrap().state.is_ended());
    }

    #[test]
    fn a_job_that_waits_answers_its_clients_and_ends_when_one_of_them_stops_it() {
        let home = tempfile::tempdir().unwrap();
        let (mut supervisor, store, mut standby) = waiting(home.path(), 3600 * SECOND);
        let mut client = UnixStream::connect(store.dir().join("control.sock")).unwrap();
        client.write_all(b"{\"signal\":{\"signal\":\"USR1\",\"tree\":false}}\n").unwrap();
        client.write_all(b"{\"stop\":{\"kill\":false,\"reason\":\"enough\"}}\n").unwrap();
        assert!(!supervisor.wait_to_restart());

        let mut answers = String::new();
        client.read_to_string(&mut answers).unwrap();
        let answers: Vec<&str> = answers.lines().collect();
        assert!(answers[0].contains("wrong_state") && answers[1..] == ["\"accepted\""], "{answers:?}");
        let events: Vec<_> = store.events().unwrap().into_iter().map(|event| event.what).collect();
        assert!(
            matches!(
                &events[..],
                [EventKind::StopAsked { cause: Cause::User, .. }, EventKind::NotRestarted { .. }]
            ),
            "{events:?}"
        );
        assert!(store.record().unwrap().state.is_ended());
        assert_eq!(store.receipt().unwrap().cause, Cause::User);
        assert!(matches!(store.liveness(), Ok(Liveness::Ended)), "its lock is released and in done/");
        let reports = standby.recv::<KeeperEvent>().messages;
        assert!(matches!(&reports[..], [KeeperEvent::Done(_)]), "{reports:?}");
    }

    #[test]
    fn the_end_of_a_job_without_a_standby_is_on_record_too() {
        let home = tempfile::tempdir().unwrap();
        let (mut supervisor, store, standby) = waiting(home.path(), 3600 * SECOND);
        drop(standby);
        supervisor.host.backoff.ending = Some((Cause::OwnerGone, Actor::Quell));
        assert!(!supervisor.wait_to_restart());
        assert!(store.record().unwrap().state.is_ended());
    }
}
