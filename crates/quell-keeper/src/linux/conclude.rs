//! The end of a run: the proof, the receipt, and what is put on record.

use std::time::Duration;

use quell_contain::describe_verdict;
use quell_core::{
    EventKind, JobEvent, ProcId, Receipt, RecordedState, RootOutcome, StateRecord, StepKind, Verdict,
};
use quell_store::{DiskFull, EndStep, JobEnd, SyncWhen};
use quell_sys::fault::{FaultPoint, fault_point};

use super::backoff::Next;
use super::channel::{KeeperEvent, RunResult};
use super::engine::Supervisor;

/// How long the search for marked processes waits for those that it has killed.
pub const MARKER_SEARCH_PATIENCE: Duration = Duration::from_secs(2);
/// Why a job is not proven dead whose readiness check may go on.
const CHECK_NOT_GONE: &str = "the command that checks its readiness may still be running";
/// How long the end of a job waits for room on a full disk. No process of the job is left by then.
const DISK_PATIENCE: Duration = Duration::from_secs(3);

impl Supervisor {
    /// Proves the end of the run, and writes the receipt and the record.
    pub(super) fn conclude(&mut self) {
        self.end_readiness();
        fault_point(FaultPoint::FinishBegun);
        let (mut verdict, survivors) = self.prove();
        let gone = verdict == Verdict::Gone;
        if gone && !self.helper.wait_at_rest() {
            verdict = Verdict::Unproven { why: CHECK_NOT_GONE.into() };
        }
        let run = &mut self.run;
        run.evidence.step(StepKind::Verify, describe_verdict(&verdict), vec![]);
        let mut receipt =
            run.evidence.receipt(&self.job.spec, &run.engine.life, &run.containment, verdict, survivors);
        receipt.run = run.number;
        for member in &mut receipt.members {
            member.command = self.job.mask.apply_to_cut(&member.command);
        }
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
        let (leaked, failed) = (self.run.engine.life.leaked(), self.run.failed.clone());
        self.run.result = Some(RunResult { receipt, leaked, failed, unwritten });
    }

    /// Searches for members outside the tree, and reaps the root. The lifecycle's verdict can only become weaker here.
    fn prove(&mut self) -> (Verdict, Vec<ProcId>) {
        let run = &mut self.run;
        let verdict = run.engine.life.verdict().cloned().unwrap_or(Verdict::Gone);
        let mut survivors = if verdict == Verdict::Gone { vec![] } else { run.containment.note_living() };
        survivors.extend(run.containment.ambiguous_children());
        let mut unlisted = None;
        if run.evidence.acted() {
            let (round, left) = run.containment.kill_marked_outside(MARKER_SEARCH_PATIENCE);
            let note = format!("{} marked processes outside the tree", round.signals.len());
            run.evidence.step(StepKind::Audit, note, round.signals);
            fault_point(FaultPoint::MarkedKilled);
            match left {
                Ok(left) => {
                    let new: Vec<_> = left.into_iter().filter(|id| !survivors.contains(id)).collect();
                    survivors.extend(new);
                }
                Err(error) => unlisted = Some(format!("the processes of this host can't be listed: {error}")),
            }
        }
        let verdict = match (verdict, run.containment.collect_root()) {
            (Verdict::Gone, Err(why)) => Verdict::Unproven { why },
            (Verdict::Gone, Ok(())) if !survivors.is_empty() => Verdict::Survivors { count: survivors.len() },
            (Verdict::Gone, Ok(())) => {
                let why = unlisted.or_else(|| run.containment.why_unproven());
                why.map_or(Verdict::Gone, |why| Verdict::Unproven { why })
            }
            (Verdict::Survivors { .. }, _) => Verdict::Survivors { count: survivors.len().max(1) },
            (unproven @ Verdict::Unproven { .. }, _) => unproven,
        };
        fault_point(FaultPoint::RootCollected);
        (verdict, survivors)
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
        let background = self.job.is_background();
        let last = background && self.run.restart_after.is_none();
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
            // The end of a background job is known only from its record.
            disk_full: if last { DiskFull::UseReserve(DISK_PATIENCE) } else { DiskFull::Fail },
        };
        let (helper, control) = (&mut self.helper, &mut self.host.control);
        let written = end.write(|step| match step {
            EndStep::Logged(event) => helper.notify(event),
            EndStep::ClientsReleased => control.close(),
        });
        if let Err(error) = written {
            // A foreground job leaves no record rather than one that says "running". The output and history of a background job
            // are worth keeping: its record stays, and the next command that finds it without a keeper completes it.
            if !background {
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
