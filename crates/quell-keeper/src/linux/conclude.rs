//! The end of a run: the proof, the receipt, and what is put on record.

use std::time::Duration;

use quell_contain::{Proof, describe_verdict};
use quell_core::{EventKind, JobEvent, Receipt, RecordedState, RootOutcome, StateRecord, StepKind, Verdict};
use quell_store::{DiskFull, EndStep, JobEnd, SyncWhen};
use quell_sys::fault::{FaultPoint, fault_point};

use super::backoff::Next;
use super::channel::{KeeperEvent, RunResult};
use super::engine::{Run, Supervisor};

/// Why a job is not proven dead whose readiness check may go on.
const CHECK_NOT_GONE: &str = "the command that checks its readiness may still be running";
/// The warning if a process other than quell has killed the init of a PID namespace.
const INIT_KILLED: &str =
    "the init of its PID namespace (a process of quell's) was killed, and all processes in it died with it";
/// How long the end of a job waits for room on a full disk. No process of the job is left by then.
const DISK_PATIENCE: Duration = Duration::from_secs(3);

impl Supervisor {
    /// Proves the end of the run, and writes the receipt and the record.
    pub(super) fn conclude(&mut self) {
        self.end_readiness();
        fault_point(FaultPoint::FinishBegun);
        let Run { engine, containment, evidence, .. } = &mut self.run;
        let reached = engine.life.verdict().cloned().unwrap_or(Verdict::Gone);
        let Proof { mut verdict, survivors } = containment.prove(reached, evidence.acted(), |round| {
            let note = format!("{} marked processes outside the tree", round.signals.len());
            evidence.step(StepKind::Audit, note, round.signals);
        });
        if containment.init_was_killed() {
            evidence.warnings.push(INIT_KILLED.into());
        }
        let gone = verdict == Verdict::Gone;
        if gone && !self.helper.wait_at_rest() {
            verdict = Verdict::Unproven { why: CHECK_NOT_GONE.into() };
        }
        let run = &mut self.run;
        run.evidence.step(StepKind::Verify, describe_verdict(&verdict), vec![]);
        let mut receipt =
            run.evidence.receipt(&self.job.spec, &run.engine.life, &run.containment, verdict, survivors);
        (receipt.run, receipt.ended_waiting) = (run.number, run.waited);
        if let Some(last) = self.last_run(&receipt) {
            receipt = last;
        }
        receipt.show_processes(|text| self.job.mask.apply_to_cut(text));
        if let Some(output) = &mut self.host.output {
            output.read_last(|_, _| {});
            receipt.warnings.extend(output.take_warning());
            receipt.output = Some(output.totals());
            fault_point(FaultPoint::OutputFinished);
        }
        if gone && let Err(error) = self.run.containment.release() {
            receipt.warnings.push(format!("the cgroup could not be removed: {error}"));
        }
        fault_point(FaultPoint::PlaceReleased);
        self.plan_restart(&mut receipt);
        self.write_run_end(&mut receipt);
        let mut unwritten = false;
        for sink in &mut self.job.receipts {
            if let Err(error) = sink.write(&receipt) {
                unwritten = true;
                receipt.warnings.push(format!("the receipt could not be written to {}: {error}", sink.name));
            }
        }
        // A job whose later run could not begin has run: its record stays.
        let failed = self.run.failed.clone().filter(|_| self.run.number == 1);
        let leaked = self.run.engine.life.leaked();
        self.run.result = Some(RunResult { receipt, leaked, failed, unwritten });
    }

    /// The receipt of the last run as the account of a job that waited for its next run, when its keeper was killed: the run
    /// had ended, and its members are known only from there. None with survivors, which must be named.
    fn last_run(&self, found: &Receipt) -> Option<Receipt> {
        let store = self.job.store.as_ref().filter(|_| found.ended_waiting && found.survivors.is_empty())?;
        let last = store.receipt().ok().filter(|last| last.run == found.run)?;
        let lost = found.steps.iter().find(|step| step.step == StepKind::StopAsked);
        let note = lost.map(|step| step.note.clone()).unwrap_or_default();
        let (actor, ended) = (found.actor.clone(), found.ended.clone());
        let mut receipt = last.ended_between_runs(found.cause, actor, ended, note);
        receipt.verdict = found.verdict.clone();
        receipt.warnings.extend(found.warnings.iter().cloned());
        Some(receipt)
    }

    fn plan_restart(&mut self, receipt: &mut Receipt) {
        // A first run that could not be started is an error for the caller, and is not tried again.
        if self.run.number == 1 && self.run.failed.is_some() {
            return;
        }
        let lasted = Duration::from_secs_f64(receipt.ended.at.max(0.0));
        match self.host.backoff.next(receipt, lasted) {
            Next::Restart(delay) => self.run.restart_after = Some(delay),
            Next::LimitReached { restarts } => {
                receipt.restart_limit_reached = true;
                self.record_event(EventKind::RestartLimitReached { restarts });
            }
            Next::Nothing => {}
        }
    }

    /// Puts the end of the run on record. A job that never ran leaves no record.
    fn write_run_end(&mut self, receipt: &mut Receipt) {
        let mut state = RecordedState::after(receipt, self.recorded_tree(), self.run.ready.clone());
        if self.run.restart_after.is_some() {
            state = state.before_next_run();
        }
        let verdict = describe_verdict(&receipt.verdict);
        tracing::debug!("state {}: {:?}, {verdict}", state.job_state(), receipt.cause);
        let never_ran =
            matches!(receipt.root.outcome, RootOutcome::NotStarted { .. }) && receipt.survivors.is_empty();
        if let Some(store) = self.job.store.as_ref().filter(|_| never_ran && self.run.number == 1) {
            if let Err(error) = JobEnd::discard(store, self.job.spec.request.name.as_deref()) {
                receipt.warnings.push(format!("the record could not be removed: {error}"));
            }
            return;
        }
        let background = self.job.is_background();
        let mut events = Vec::new();
        if background && !matches!(receipt.verdict, Verdict::Survivors { .. }) {
            events.push(self.event(EventKind::ended(receipt)));
            events.extend(self.run.restart_after.map(|delay| self.event(EventKind::Restarting { delay })));
        }
        let record = self.state_record(state, receipt.ended.clone());
        self.write_end(receipt, record, &events);
        // A foreground job has no history, but it can have hooks.
        if !background {
            self.record_event(EventKind::ended(receipt));
        }
    }

    /// Writes receipt, state and history, and closes the connections of the clients that wait for the end.
    pub(super) fn write_end(&mut self, receipt: &mut Receipt, record: StateRecord, events: &[JobEvent]) {
        let Some(store) = &self.job.store else { return };
        // No caller waits for it, so its end is known only from its record.
        let alone = self.job.is_background() || self.left;
        let last = alone && self.run.restart_after.is_none();
        let end = JobEnd {
            job: store,
            lock: self.lock.as_ref(),
            receipt,
            record: &record,
            events,
            sync: match (last, &self.front) {
                (false, _) => SyncWhen::Never,
                (true, None) => SyncWhen::BeforeMark,
                (true, Some(_)) => SyncWhen::AfterMark,
            },
            disk_full: if last { DiskFull::UseReserve(DISK_PATIENCE) } else { DiskFull::Fail },
        };
        let (helper, control) = (&mut self.helper, &mut self.host.control);
        let written = end.write(|step| match step {
            EndStep::Logged(event) => helper.notify(event),
            EndStep::ClientsReleased => control.close(),
        });
        if let Err(error) = written {
            // A job whose caller waits leaves no record rather than one that says "running". That of another job stays, with its
            // output and history, and the next command that finds it without a keeper completes it.
            if !alone {
                let _ = store.remove();
            }
            receipt.warnings.push(format!("the record could not be written: {error}"));
        }
        self.recorded = Some(record);
    }

    /// Tells the front or standby that the job is over.
    pub(super) fn report_end(&mut self, result: &RunResult) {
        if let Some(front) = &mut self.front {
            // An error means that the front is gone.
            let _ = front.send(&KeeperEvent::Done(Box::new(result.clone())));
            fault_point(FaultPoint::EndTold);
        }
    }
}
