//! The receipt of a lost job, and its end on record.

use std::io;
use std::path::Path;

use quell_contain::Recovered;
use quell_core::{
    Actor, AskScope, Cause, ContainmentInfo, EventKind, Grace, JobBrief, JobRequest, JobSpec, KillReason,
    Mask, Moment, Receipt, RecordedState, RootOutcome, RootReport, SCHEMA, StateRecord, Step, StepKind,
    Usage, Verdict,
};
use quell_store::{DiskFull, EndStep, JobDir, JobEnd, Lock, SyncWhen, now};
use quell_sys::fault::{FaultPoint, fault_point};

use super::case::LostJob;
use super::history;
use super::hooks_of_lost_jobs::notify_hooks;

/// The warning in a receipt that was made without the keeper of the job.
const NO_RECEIPT: &str = "the keeper could not write the receipt: this one was made later, from the state and the history; what \
                          is not in them is missing";

/// How a lost job ended.
pub(super) struct LostEnd {
    pub ended: Moment,
    pub cause: Cause,
    pub recovered: Recovered,
}

impl LostEnd {
    /// The end of a job that was lost before its host was restarted.
    pub fn with_host(lost: &LostJob, job: &JobDir) -> Self {
        let ended = Moment { at: lost.last_known(), wall: now() };
        let note = "its host was restarted: none of its processes can be alive";
        Self::without_tree(lost, job, ended, Cause::HostReboot, note)
    }

    /// The end of a job whose keeper has put its state on record, but could not write the receipt.
    pub fn on_record(lost: &LostJob, job: &JobDir) -> Self {
        let ended = lost.record.as_ref().map(|record| record.since.clone());
        let ended = ended.unwrap_or_else(|| Moment { at: lost.last_known(), wall: now() });
        let mut end = Self::without_tree(lost, job, ended, Cause::KeeperLost, "verified by its keeper");
        end.recovered.verdict = lost.state().and_then(RecordedState::verdict).unwrap_or(Verdict::Gone);
        end.recovered.warnings.push(NO_RECEIPT.into());
        end
    }

    /// An end without a look at processes. `cause` counts if no other one is on record.
    fn without_tree(lost: &LostJob, job: &JobDir, ended: Moment, cause: Cause, note: &str) -> Self {
        let left = lost.orphaned(job);
        let note = note.into();
        let step = Step { moment: ended.clone(), step: StepKind::Verify, note, signals: Vec::new() };
        let containment = left.kind(None);
        let cgroup = left.cgroup.map(Path::display).map(|path| path.to_string());
        let recovered = Recovered {
            held: ContainmentInfo { containment, session: left.session, cgroup, defeated_by: Vec::new() },
            root: left.root.filter(|_| !containment.has_init()),
            outcome: None,
            steps: vec![step],
            members: Vec::new(),
            members_omitted: 0,
            survivors: Vec::new(),
            verdict: Verdict::Gone,
            peak_memory: None,
            warnings: Vec::new(),
        };
        Self { ended, cause, recovered }
    }

    pub fn receipt(self, lost: &LostJob, job: &JobDir) -> Receipt {
        let (spec, state) = (lost.spec.as_deref(), lost.state());
        let unknown = JobRequest::background(Vec::<String>::new());
        let recovered = self.recovered;
        // A stop that was under way keeps its reason. Between two runs, the reason on record is why the last run has ended,
        // and not why there is no other one.
        let of_job = state.filter(|state| !matches!(state, RecordedState::Waiting { .. }));
        let ending = of_job.and_then(RecordedState::ending);
        let outcome = state.and_then(RecordedState::outcome).cloned().or(recovered.outcome);
        let outcome = outcome.or_else(|| history::outcome(lost, job));
        let waited = match state {
            Some(RecordedState::Waiting { .. }) => true,
            // Its keeper was killed just after it had written the end.
            Some(RecordedState::Ended { .. }) => job.receipt().is_ok_and(|receipt| receipt.ended_waiting),
            _ => false,
        };
        let mut warnings = recovered.warnings;
        if spec.is_none() {
            warnings.push("spec.json can't be read: what was run is not known".into());
        }
        if state.is_none() {
            warnings.push("state.jsonl can't be read: how it was held is not known".into());
        }
        let mut receipt = Receipt {
            schema: SCHEMA.into(),
            job: JobBrief::new(job.id(), spec.map_or(&unknown, |spec| &spec.request)),
            boot_id: match spec {
                Some(spec) if self.cause == Cause::HostReboot => spec.boot_id.clone(),
                // Whatever the record says, it ran in this boot.
                _ => quell_sys::boot_id(),
            },
            started: Moment { at: 0.0, wall: spec.map_or(self.ended.wall, |spec| spec.created) },
            ended: self.ended,
            held: recovered.held,
            cause: ending.map_or(self.cause, |ending| ending.cause),
            actor: ending.map_or(Actor::Unknown, |ending| ending.actor.clone()),
            root: RootReport { id: recovered.root, outcome: outcome.unwrap_or(RootOutcome::Unknown) },
            restart_limit_reached: false,
            ended_waiting: waited && recovered.members.is_empty(),
            left_at_root_exit: Vec::new(),
            members: recovered.members,
            members_omitted: recovered.members_omitted,
            steps: recovered.steps,
            survivors: recovered.survivors,
            verdict: recovered.verdict,
            grace: Grace { asked: 0.0, used: None },
            ask: AskScope::default(),
            kill: Some(KillReason::KeeperLost).filter(|_| self.cause == Cause::KeeperLost),
            usage: Usage { peak_tree_memory: recovered.peak_memory, ..Usage::default() },
            output: None,
            run: lost.record.as_ref().map_or(1, |record| record.run),
            warnings,
        };
        if let Some(spec) = spec {
            let mask = mask_of(job, spec);
            receipt.show_processes(|text| masked_text(&mask, text));
        }
        match state {
            _ if receipt.cause == Cause::HostReboot => {}
            Some(RecordedState::Stopping { .. } | RecordedState::Ended { .. }) if !waited => {
                history::add_request(&mut receipt, lost, job);
                history::add_gone(&mut receipt, lost, job);
            }
            Some(RecordedState::Running { .. } | RecordedState::Ready { .. }) => {
                history::add_gone(&mut receipt, lost, job);
            }
            _ => {}
        }
        // There may have been no process to kill.
        if !receipt.killed() && receipt.members_omitted == 0 {
            receipt.kill = None;
        }
        history::last_run(&receipt, job).unwrap_or(receipt)
    }
}

/// A text that names processes and may be cut, as it may be shown. If the values to mask are not known, nothing of it is shown.
pub(crate) fn masked_text(mask: &io::Result<Mask>, text: &str) -> String {
    mask.as_ref().map_or_else(|_| "***".into(), |mask| mask.apply_to_cut(text))
}

/// What is masked of a job; an error if the values are not known.
pub(crate) fn mask_of(job: &JobDir, spec: &JobSpec) -> io::Result<Mask> {
    if spec.request.mask.is_empty() {
        return Ok(Mask::default());
    }
    Ok(job.launch()?.request.masked_values())
}

/// Puts the end of a lost job on record, or its survivors: then it has not ended. `loss` is added to the history first.
pub(super) fn put_on_record(
    job: &JobDir,
    lock: &Lock,
    lost: &LostJob,
    receipt: &Receipt,
    loss: Option<EventKind>,
) -> io::Result<()> {
    let ready = lost.state().and_then(RecordedState::ready).cloned();
    let record = StateRecord {
        schema: SCHEMA.into(),
        id: job.id(),
        run: receipt.run,
        since: receipt.ended.clone(),
        keeper: None,
        standby: None,
        marker: lost.marker.clone(),
        home_cgroups: lost.record.as_ref().map(|old| old.home_cgroups.clone()).unwrap_or_default(),
        state: RecordedState::after(receipt, lost.tree().cloned(), ready),
    };
    job.make_dir()?;
    job.release_reserve()?;
    // The job may have changed the id or the boot, by which commands find it.
    let (id, boot_id) = (job.id(), receipt.boot_id.clone());
    job.correct_spec(&match lost.spec.as_deref() {
        Some(spec) => JobSpec { id, boot_id, ..spec.clone() },
        None => JobSpec::unknown(id, lost.marker.clone(), boot_id, receipt.started.wall),
    })?;
    let mut logged = Vec::new();
    if let Some(loss) = loss {
        logged.extend(job.log_once(receipt, loss)?);
    }
    fault_point(FaultPoint::LossLogged);
    if receipt.counts().killed > 0 && !receipt.ended_waiting {
        let killed = EventKind::Killed { reason: receipt.kill, cause: Some(receipt.cause) };
        logged.extend(job.log_once(receipt, killed)?);
    }
    let outcome = &receipt.root.outcome;
    if lost.state().is_some_and(|state| state.outcome().is_none()) && *outcome != RootOutcome::Unknown {
        logged.extend(job.log_once(receipt, EventKind::RootExited { outcome: outcome.clone() })?);
    }
    let ended = match record.state.is_ended() {
        true => job.once(receipt, EventKind::ended(receipt))?,
        false => None,
    };
    let end = JobEnd {
        job,
        lock: Some(lock),
        receipt,
        record: &record,
        events: ended.as_slice(),
        sync: SyncWhen::BeforeMark,
        disk_full: DiskFull::Fail,
    };
    let written = end.write(|step| match step {
        EndStep::Logged(event) => logged.push(event.clone()),
        EndStep::ClientsReleased => {}
    });
    notify_hooks(job, lost.spec.as_deref(), logged);
    written
}
