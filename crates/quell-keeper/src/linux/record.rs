//! What a supervisor records while a job runs: its state, its members, its history. It reports the same to the front or
//! standby, which can then finish the job if this process is killed.

use quell_core::{
    EventKind, JobEvent, Moment, Phase, ProcId, RecordedState, RecordedTree, SCHEMA, SentSignal, StateRecord,
    Step,
};
use quell_store::now;

use super::channel::KeeperEvent;
use super::engine::Supervisor;

/// How many members a record names.
const RECORDED_MEMBERS: usize = 256;
/// How many members one message to the front has: the channel takes a message completely or not at all.
const MEMBERS_AT_ONCE: usize = 16;

impl Supervisor {
    /// Writes the new state to disk, and reports a stop to the front.
    pub(super) fn record_state(&mut self) {
        let (phase, life) = (self.phase(), &self.run.engine.life);
        if matches!(phase, Phase::Asking | Phase::Killing) {
            self.report(&KeeperEvent::Stopping {
                killing: phase == Phase::Killing,
                grace: life.grace(),
                ending: life.ending().cloned(),
                leaked: life.leaked(),
                ask: life.ask_scope(),
            });
        }
        self.write_state();
    }

    fn write_state(&mut self) {
        let run = &self.run;
        // The end is written with the receipt (conclude.rs).
        let Some(state) = run.engine.life.recorded(self.recorded_tree(), run.ready.clone()) else { return };
        let word = state.job_state();
        let since = match &run.since {
            Some((known, since)) if *known == word => since.clone(),
            Some(_) | None => {
                tracing::debug!("state {word}");
                run.evidence.now()
            }
        };
        self.run.since = Some((word, since.clone()));
        let Some(store) = &self.job.store else { return };
        let record = self.state_record(state, since);
        let written = store.append_state(&record);
        self.recorded = Some(record);
        if let Err(error) = written {
            self.warn(format!("the record could not be written: {error}"));
        }
    }

    pub(super) fn recorded_tree(&self) -> Option<RecordedTree> {
        let report = self.run.containment.recorded();
        Some(RecordedTree {
            containment: report.held?,
            session: self.job.session,
            root: report.root?,
            inner: report.inner,
            cgroup: report.cgroup,
            members: self.run.members.clone(),
        })
    }

    pub(super) fn state_record(&self, state: RecordedState, since: Moment) -> StateRecord {
        StateRecord {
            schema: SCHEMA.into(),
            id: self.job.spec.id,
            run: self.run.number,
            since,
            keeper: self.keeper,
            standby: self.job.standby,
            marker: self.job.spec.marker.clone(),
            home_cgroups: self.run.containment.starter_cgroups().to_vec(),
            state,
        }
    }

    /// Records living members if there are new ones: if both supervisors are killed, nothing else may find them. `asked` is the
    /// request to exit that they have just got.
    pub(super) fn note_members(&mut self, living: Vec<ProcId>, asked: Option<&Step>) {
        let new = self.set_recorded_members(living.iter().copied());
        if new || asked.is_some() {
            self.report_members(&living, asked);
        }
        if new {
            self.write_state();
        }
    }

    /// Reports members to the front: if this keeper is killed, the front's receipt names them too.
    fn report_members(&mut self, living: &[ProcId], asked: Option<&Step>) {
        if self.front.is_none() {
            return;
        }
        let members = self.run.containment.members_of(&living[..living.len().min(RECORDED_MEMBERS)]);
        for members in members.chunks(MEMBERS_AT_ONCE) {
            let of_these = |sent: &&SentSignal| members.iter().any(|member| member.id == sent.to);
            let asked = asked.map(|step| Step {
                signals: step.signals.iter().filter(of_these).cloned().collect(),
                ..step.clone()
            });
            self.report(&KeeperEvent::Members { members: members.to_vec(), asked });
        }
    }

    /// Sets the members that the next record names. Returns whether there are new ones. During a stop those that have exited stay
    /// on record: if both supervisors are killed, the receipt names them from there.
    pub(super) fn set_recorded_members(&mut self, living: impl IntoIterator<Item = ProcId>) -> bool {
        let root = self.run.containment.recorded().root;
        let mut members: Vec<ProcId> =
            living.into_iter().filter(|id| Some(*id) != root).take(RECORDED_MEMBERS).collect();
        let new = members.iter().any(|id| !self.run.members.contains(id));
        if matches!(self.phase(), Phase::Asking | Phase::Killing) {
            let room = RECORDED_MEMBERS - members.len();
            let gone: Vec<ProcId> =
                self.run.members.iter().filter(|id| !members.contains(id)).take(room).copied().collect();
            members.extend(gone);
        }
        self.run.members = members;
        new
    }

    pub(super) fn event(&self, what: EventKind) -> JobEvent {
        JobEvent::new(&self.job.spec, now(), self.run.number, what)
    }

    /// Whether events are written or reported at all: only background jobs have a history.
    pub(super) fn has_events(&self) -> bool {
        self.job.is_background() || self.helper.is_open()
    }

    /// Adds to the history of a background job, and notifies the hooks.
    pub(super) fn record_event(&mut self, what: EventKind) {
        if !self.has_events() {
            return;
        }
        let event = self.event(what);
        // If the record was removed on purpose, it needs no history.
        let store = self.job.store.as_ref().filter(|store| self.job.is_background() && store.exists());
        let written = store.map_or(Ok(()), |store| store.log_event(&event));
        self.helper.notify(&event);
        if let Err(error) = written {
            self.warn(format!("an event could not be written: {error}"));
        }
    }

    /// Reports to the front or standby. If it is gone, the loop notices that. If it is stopped and its channel is full, the
    /// report is dropped: the tree can't wait for it.
    pub(super) fn report(&mut self, event: &KeeperEvent) {
        if let Some(front) = &mut self.front {
            let _ = front.try_send(event);
        }
    }

    /// Adds a warning to the receipt of this run.
    pub(super) fn warn(&mut self, text: String) {
        self.run.evidence.warnings.push(text);
    }
}
