//! The start of a run: the stub is made, recorded and released, and executes the program.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use quell_contain::SpawnError;
use quell_core::{EventKind, LifecycleEvent, Phase, StepKind};
use quell_sys::fault::{FaultPoint, fault_point};
use quell_sys::{ChildRules, Polled};

use super::background;
use super::channel::KeeperEvent;
use super::engine::{KeeperTimer, Supervisor, TRIM_AFTER};
use crate::StartError;
use crate::StartReply;

/// How long a stop waits for an exec that is under way, so that the program can be asked to exit. An exec can hang on a file
/// system that does not answer.
const EXEC_PATIENCE: Duration = Duration::from_millis(100);

impl Supervisor {
    /// Starts the stub, records it and releases it. On failure nothing has run.
    pub(super) fn start(&mut self, rules: &ChildRules) {
        self.expect_readiness();
        if let Err(failure) = self.try_start(rules) {
            self.fail_start(failure);
        }
    }

    /// Ends a run that can't begin.
    pub(super) fn fail_start(&mut self, failure: StartError) {
        let reason = self.job.mask.apply(&failure.to_string());
        self.run.failed = Some(failure);
        self.run.birth = None;
        self.step(LifecycleEvent::StartFailed(reason));
    }

    fn try_start(&mut self, rules: &ChildRules) -> Result<(), StartError> {
        let birth = self.run.containment.spawn(&self.job.program, rules).map_err(|error| match error {
            SpawnError::Containment(why) => StartError::Containment(why),
            SpawnError::Process(error) => StartError::other(error),
        })?;
        fault_point(FaultPoint::StubBorn);
        self.run.birth = Some(birth);
        let containment = &mut self.run.containment;
        self.run.evidence.warnings.extend(containment.take_fallback_note());
        if let Some(root) = containment.root() {
            let cgroup = containment.cgroup_path().map(|path| path.to_owned());
            let (held, inner) = (containment.kind(), containment.recorded().inner);
            let member = containment.root_member();
            self.report(&KeeperEvent::Born { held, root, inner, cgroup, member });
        }
        fault_point(FaultPoint::BirthTold);
        let warnings = self.run.evidence.warnings.len();
        self.step(LifecycleEvent::Spawned);
        // Without a record the program is not started: if this process died, no other process would know about it.
        if self.run.evidence.warnings.len() > warnings
            && let Some(warning) = self.run.evidence.warnings.pop()
        {
            return Err(self.job.unrecorded(io::Error::other(warning)));
        }
        self.note_begun();
        fault_point(FaultPoint::IdentityRecorded);
        self.run.evidence.step(StepKind::Born, String::new(), vec![]);
        // The keeper leaves the caller's group before the program can signal that group. In later runs it has left already.
        if self.run.number == 1 {
            quell_sys::leave_session().map_err(StartError::other)?;
        }
        fault_point(FaultPoint::SessionLeft);
        if let Some(birth) = &self.run.birth {
            quell_sys::write(&birth.go, b"g").map_err(StartError::other)?;
            fault_point(FaultPoint::GoGiven);
        }
        Ok(())
    }

    /// Notes in the lock that the program runs, and on the cgroup which home it belongs to, because the job's directory can be
    /// deleted. If this fails, the job is still found by its record.
    fn note_begun(&self) {
        if let Some(lock) = self.lock.as_ref().filter(|_| self.run.number == 1) {
            let _ = lock.begun();
        }
        if let (Some(store), Some(cgroup)) = (&self.job.store, self.run.containment.cgroup_path()) {
            let _ = quell_contain::note_home(cgroup, store.home().dir());
        }
    }

    /// Reads whether the stub has executed the program.
    pub(super) fn read_exec_status(&mut self) {
        let Some(birth) = self.run.birth.take() else { return };
        match quell_sys::read_status(&birth.status) {
            // The pipe is also closed if the stub dies. A stub that was killed before the exec has not run the program.
            Ok(()) if self.phase() != Phase::Starting && !self.run.containment.has_executed() => {}
            Ok(()) => self.executed(),
            Err(error) => {
                let failure = self.job.not_executed(&error);
                self.run.evidence.step(StepKind::StartFailed, error.to_string(), vec![]);
                self.fail_start(failure);
            }
        }
    }

    fn executed(&mut self) {
        self.run.containment.executed();
        fault_point(FaultPoint::ExecSeen);
        self.run.evidence.step(StepKind::Running, String::new(), vec![]);
        self.step(LifecycleEvent::Executed);
        fault_point(FaultPoint::RunningPublished);
        self.report(&KeeperEvent::Running);
        fault_point(FaultPoint::RunningTold);
        // Before the starter gets its answer: if this process is killed right after that, the history is complete.
        self.record_event(EventKind::Started { root: self.run.containment.shown_root() });
        if let Some(mut starter) = self.host.starter.take() {
            background::reply(&mut starter, &StartReply::Started { id: self.job.spec.id });
            fault_point(FaultPoint::StarterTold);
        }
        self.begin_readiness();
        if self.job.is_long_lived() {
            self.timers.arm(KeeperTimer::TrimMemory, TRIM_AFTER);
        }
    }

    pub(super) fn read_exec_status_within(&mut self, patience: Duration) {
        let until = Some(Instant::now() + patience);
        let status = self.run.birth.as_ref().map(|birth| Polled::Read(birth.status.as_fd()));
        if status.is_some_and(|status| quell_sys::poll_until(&[status], until).is_ok_and(|ready| ready[0])) {
            self.read_exec_status();
        }
    }

    /// Waits a little for an exec that is under way.
    pub(super) fn await_exec(&mut self) {
        if self.phase() == Phase::Starting {
            self.read_exec_status_within(EXEC_PATIENCE);
        }
    }
}
