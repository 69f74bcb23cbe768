//! What a supervisor writes down: the state as it changes, and at the end the proof, the receipt and the record.

use std::time::Duration;

use quell_core::{
    EventKind, JobEvent, JobState, Moment, Phase, ProcId, Receipt, RecordedState, RecordedTree, RootOutcome,
    SCHEMA, SentSignal, StateRecord, Step, StepKind, Verdict,
};
use quell_store::{DiskFull, EndStep, JobEnd, SyncWhen, now};
use quell_sys::fault::{FaultPoint, fault_point};

use super::desk::Next;
use super::supervise::{AUDIT_PATIENCE, Kit, Supervisor};
use super::wire::Note;

/// How long the end of a job waits for a full disk to have room for it. Nobody of it is left by then.
pub(super) const DISK_PATIENCE: Duration = Duration::from_secs(3);
/// How many members a record names.
const RECORDED_MEMBERS: usize = 256;
/// How many members a front is told of in one message, which its line takes as a whole or not at all.
const TOLD_AT_ONCE: usize = 16;

impl Supervisor {
    /// Writes the new state to disk, and tells the front of a stop.
    pub(super) fn publish(&mut self) {
        if matches!(self.engine.life.state(), Phase::Asking | Phase::Killing) {
            self.say(&Note::Stopping {
                killing: self.engine.life.state() == Phase::Killing,
                grace: self.engine.life.grace(),
                ending: self.engine.life.ending().cloned(),
                leaked: self.engine.life.leaked(),
                ask: self.engine.life.ask_scope(),
            });
        }
        self.write_state();
    }

    fn write_state(&mut self) {
        // The end is written as a whole, with its receipt.
        let Some(state) = self.engine.life.recorded(self.tree(), self.ready.clone()) else { return };
        let word = state.job_state();
        let since = match &self.since {
            Some((known, since)) if *known == word => since.clone(),
            Some(_) | None => {
                tracing::debug!("state {word}");
                self.evidence.now()
            }
        };
        self.since = Some((word, since.clone()));
        let Some(store) = &self.job.store else { return };
        let record = self.record(state, since);
        let published = store.append_state(&record);
        self.kit.published = Some(record);
        if let Err(error) = published {
            self.warn(format!("the record could not be written: {error}"));
        }
    }

    fn tree(&self) -> Option<RecordedTree> {
        let recorded = self.hold.recorded();
        Some(RecordedTree {
            containment: recorded.held?,
            session: self.job.session,
            root: recorded.root?,
            cgroup: recorded.cgroup,
            members: self.members.clone(),
        })
    }

    fn record(&self, state: RecordedState, since: Moment) -> StateRecord {
        StateRecord {
            schema: SCHEMA.into(),
            id: self.job.spec.id,
            run: self.run,
            since,
            keeper: self.kit.crew.keeper,
            standby: self.kit.crew.standby,
            marker: self.job.spec.marker.clone(),
            home_cgroups: self.hold.homes().to_vec(),
            state,
        }
    }

    /// Puts members on record that live now, if there are new ones: without a keeper they could be found by nothing else.
    /// With `asked`, the request to end that they have just got.
    pub(super) fn note_members(&mut self, living: Vec<ProcId>, asked: Option<&Step>) {
        let new = self.take_down_members(living.iter().copied());
        if new || asked.is_some() {
            self.tell_members(&living, asked);
        }
        if new {
            self.write_state();
        }
    }

    /// Tells the front who lives: if this keeper is lost, its receipt names them all the same.
    fn tell_members(&mut self, living: &[ProcId], asked: Option<&Step>) {
        if self.kit.front.is_none() {
            return;
        }
        let members = self.hold.members_of(&living[..living.len().min(RECORDED_MEMBERS)]);
        for members in members.chunks(TOLD_AT_ONCE) {
            let of_these = |sent: &&SentSignal| members.iter().any(|member| member.id == sent.to);
            let asked = asked.map(|step| Step {
                signals: step.signals.iter().filter(of_these).cloned().collect(),
                ..step.clone()
            });
            self.say(&Note::Members { members: members.to_vec(), asked });
        }
    }

    /// Takes down who is alive for the next record. Whether there are new ones.
    pub(super) fn take_down_members(&mut self, living: impl IntoIterator<Item = ProcId>) -> bool {
        let root = self.hold.recorded().root;
        let living: Vec<ProcId> =
            living.into_iter().filter(|id| Some(*id) != root).take(RECORDED_MEMBERS).collect();
        let new = living.iter().any(|id| !self.members.contains(id));
        self.members = living;
        new
    }

    /// The end: audit, proof, the root collected, the receipt written wherever it was wanted.
    pub(super) fn finish_up(&mut self) {
        self.look_no_more();
        fault_point(FaultPoint::FinishBegun);
        let mut verdict = self.engine.life.verdict().cloned().unwrap_or(Verdict::Gone);
        let mut survivors = if verdict == Verdict::Gone { vec![] } else { self.hold.look() };
        survivors.extend(self.hold.ambiguous_children());
        let mut unlisted = None;
        if self.evidence.acted() {
            let (round, left) = self.hold.audit(AUDIT_PATIENCE);
            let found = round.signals.len();
            self.evidence.step(
                StepKind::Audit,
                format!("{found} marked processes outside the tree"),
                round.signals,
            );
            fault_point(FaultPoint::Audited);
            match left {
                Ok(left) => survivors
                    .extend(left.into_iter().filter(|id| !survivors.contains(id)).collect::<Vec<_>>()),
                Err(error) => unlisted = Some(format!("the processes of this host can't be listed: {error}")),
            }
        }
        match (&verdict, self.hold.collect_root()) {
            (Verdict::Gone, Err(why)) => verdict = Verdict::Unproven { why },
            (Verdict::Gone, Ok(())) if !survivors.is_empty() => {
                verdict = Verdict::Survivors { count: survivors.len() }
            }
            (Verdict::Gone, Ok(())) => {
                let why = unlisted.or_else(|| self.hold.doubt());
                verdict = why.map_or(Verdict::Gone, |why| Verdict::Unproven { why })
            }
            (Verdict::Survivors { .. }, _) => verdict = Verdict::Survivors { count: survivors.len().max(1) },
            (Verdict::Unproven { .. }, _) => {}
        }
        fault_point(FaultPoint::RootCollected);
        self.evidence.step(StepKind::Verify, describe_verdict(&verdict), vec![]);
        let mut receipt = self.evidence.receipt(
            &self.job.spec,
            &self.engine.life,
            &self.hold,
            verdict.clone(),
            survivors.clone(),
        );
        self.finish_output(&mut receipt);
        if self.kit.desk.is_some() {
            fault_point(FaultPoint::OutputFinished);
        }
        if verdict == Verdict::Gone
            && let Err(error) = self.hold.release()
        {
            receipt.warnings.push(format!("the cgroup could not be removed: {error}"));
        }
        fault_point(FaultPoint::PlaceReleased);
        let lasted = Duration::from_secs_f64(receipt.ended.at.max(0.0));
        // What could not be started the first time is an error for the caller, and nothing to be tried again.
        let tried = self.run > 1 || self.failed.is_none();
        match self.kit.desk.as_mut().filter(|_| tried).map(|desk| desk.plan_restart(&receipt, lasted)) {
            Some(Next::Restart(delay)) => self.again = Some(delay),
            Some(Next::LimitReached { restarts }) => {
                receipt.restart_limit_reached = true;
                self.happen(EventKind::RestartLimitReached { restarts });
            }
            Some(Next::Nothing) | None => {}
        }
        let state = if self.again.is_some() { JobState::Waiting } else { JobState::Ended };
        tracing::debug!("state {state}: {:?}, {}", receipt.cause, describe_verdict(&receipt.verdict));
        self.write_record(&mut receipt, survivors);
        for outlet in &mut self.job.outlets {
            if let Err(error) = outlet.write(&receipt) {
                self.unwritten = true;
                receipt
                    .warnings
                    .push(format!("the receipt could not be written to {}: {error}", outlet.name));
            }
        }
        self.end = Some(receipt);
    }

    /// The record of the end. A job that never ran leaves none; and none is better than one that says "running".
    fn write_record(&mut self, receipt: &mut Receipt, survivors: Vec<ProcId>) {
        let Some(store) = self.job.store.clone() else { return self.happen(EventKind::ended(receipt)) };
        let first = self.run == 1;
        if matches!(receipt.root.outcome, RootOutcome::NotStarted { .. }) && survivors.is_empty() && first {
            if let Err(error) = JobEnd::discard(&store, self.job.spec.request.name.as_deref()) {
                receipt.warnings.push(format!("the record could not be removed: {error}"));
            }
            return;
        }
        let mut state = RecordedState::after(receipt, self.tree(), self.ready.clone());
        if self.again.is_some() {
            state = state.before_next_run();
        }
        let record = self.record(state, receipt.ended.clone());
        let survived = matches!(receipt.verdict, Verdict::Survivors { .. });
        let last = self.kit.desk.is_some() && self.again.is_none();
        let event = |what| JobEvent::new(&self.job.spec, now(), self.run, what);
        let mut events = Vec::new();
        if self.kit.desk.is_some() && !survived {
            events.push(event(EventKind::ended(receipt)));
            events.extend(self.again.map(|delay| event(EventKind::Restarting { delay })));
        }
        let Kit { front, desk, lock, .. } = &mut self.kit;
        let end = JobEnd {
            job: &store,
            lock: lock.as_ref(),
            receipt,
            record: &record,
            events: &events,
            sync: match (last, front) {
                (false, _) => SyncWhen::Never,
                (true, None) => SyncWhen::BeforeMark,
                (true, Some(_)) => SyncWhen::AfterMark,
            },
            // Of a background job a user is told the end later, and from the record.
            disk_full: if last { DiskFull::UseReserve(DISK_PATIENCE) } else { DiskFull::Fail },
        };
        let kept = end.write(|step| match (step, desk.as_mut()) {
            (EndStep::Logged(event), Some(desk)) => desk.tell(event),
            (EndStep::Told, Some(desk)) => desk.dismiss(),
            (EndStep::Logged(_) | EndStep::Told, None) => {}
        });
        self.kit.published = Some(record);
        if let Err(error) = kept {
            // Better no record of a run than one that says "running". A background job's output and history are worth
            // more: its record stays, and is mended by whoever finds it without a keeper.
            let why = format!("the record could not be written: {error}");
            if self.kit.desk.is_none() {
                let _ = store.remove();
            }
            receipt.warnings.push(why);
        }
        // A job in the foreground has hooks, and no history.
        if self.kit.desk.is_none() {
            self.happen(EventKind::ended(receipt));
        }
    }
}

fn describe_verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Gone => "0 left".into(),
        Verdict::Survivors { count } => format!("{count} left"),
        Verdict::Unproven { why } => why.clone(),
    }
}
