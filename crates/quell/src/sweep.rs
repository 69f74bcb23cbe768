//! The sweep: finishes every lost job, and removes what quell has left behind.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use quell_contain::StaleCgroup;
use quell_core::{Cause, JobId, ProcId, Verdict};
use quell_store::{Home, JobDir, Liveness};
use serde::Serialize;

use crate::recover::{
    Keepers, LostJob, RecoveredBy, Recovery, RecoveryCase, Survivors, recover, recover_locked,
};
use crate::stop::continue_stopped_keeper;
use crate::view::JobView;
use crate::{DryRun, Error, Result, index, resolve};

/// How long processes in the cgroup of an ended job may take to die.
const CLEAR_PATIENCE: Duration = Duration::from_secs(10);
/// How many times the live jobs are looked at. Stopping one may kill the keepers of jobs that were started in it.
const ROUNDS: usize = 16;

/// What a sweep found, and what it did or would do.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepReport {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// How many jobs are alive and have a keeper.
    pub kept: usize,
    /// The lost jobs, and those whose end is not proven.
    pub jobs: Vec<SweptJob>,
    /// What else quell had left behind.
    pub leftovers: Vec<Leftover>,
}

/// What is done about a lost job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SweepAction {
    /// Its processes are killed, and its end is put on record.
    Stop,
    /// It has ended. Only its record is closed.
    Settle,
    /// It never ran. Its record is removed.
    Remove,
    /// Another quell is finishing it. The sweep waits for that.
    Wait,
    /// It ended earlier, and its end is not proven. Nothing is done.
    Report,
}

/// A job that a sweep has found.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweptJob {
    /// Its id.
    pub id: JobId,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its command.
    pub command: Vec<String>,
    /// What was done, or would be.
    pub action: SweepAction,
    /// How many of its processes were found alive.
    pub processes: usize,
    /// The cause of its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// What was proven about its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The processes that are still alive.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub survivors: Vec<ProcId>,
    /// Why it could not be finished, if it could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What is done about a cgroup that belongs to no live job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LeftoverAction {
    /// It is empty and is removed.
    Remove,
    /// Its job has ended. The processes in it are killed, and it is removed.
    Kill,
}

/// A cgroup that belongs to no live job of this home.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Leftover {
    /// Its path.
    pub path: PathBuf,
    /// The job that it was made for.
    pub id: JobId,
    /// What was done, or would be.
    pub action: LeftoverAction,
    /// Why that failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl SweepReport {
    /// Whether everything that was found is proven gone. In a dry run: whether it could be tried.
    pub fn all_gone(&self) -> bool {
        let gone = |job: &SweptJob| {
            job.error.is_none()
                && matches!(job.verdict, None | Some(Verdict::Gone))
                && job.survivors.is_empty()
        };
        let cleared = |leftover: &Leftover| match leftover.action {
            LeftoverAction::Kill => leftover.error.is_none(),
            // An empty cgroup has no processes.
            LeftoverAction::Remove => true,
        };
        self.jobs.iter().all(gone) && self.leftovers.iter().all(cleared)
    }
}

impl SweptJob {
    fn new(job: &JobDir, action: SweepAction) -> Self {
        let spec = job.spec().ok();
        Self {
            id: job.id(),
            name: spec.as_ref().and_then(|spec| spec.request.name.clone()),
            command: spec.map(|spec| spec.request.words()).unwrap_or_default(),
            action,
            processes: 0,
            cause: None,
            verdict: None,
            survivors: Vec::new(),
            error: None,
        }
    }

    /// With what the record says now.
    fn with_record(mut self, job: &JobDir) -> Self {
        if let Ok(record) = job.record() {
            self.cause = record.state.ending().map(|ending| ending.cause);
            self.verdict = record.state.verdict();
            self.survivors = record.state.survivors().map(<[_]>::to_vec).unwrap_or_default();
        }
        self
    }
}

/// Finishes every lost job in `home`, and removes what quell has left behind.
///
/// An error is about the home itself. What goes wrong with one job is in the report, and the others are swept all the same.
pub(crate) fn sweep(home: &Home, dry_run: DryRun) -> Result<SweepReport> {
    let dry_run = dry_run.is_dry();
    let failed = |error| Error::Io { path: home.dir().to_owned(), error };
    // The records determine what is killed, so no other user may write them.
    home.check().map_err(failed)?;
    // Without a free descriptor, a file that can't be opened would look like one that does not exist.
    quell_store::check_room().map_err(failed)?;
    // Keepers make the files again of jobs that have none left on disk.
    home.kept().into_iter().for_each(|id| drop(home.job(id).liveness()));
    // Jobs that have no keeper either are known by their cgroups.
    let remains = if dry_run { resolve::remains(home, None) } else { Vec::new() };
    if !dry_run {
        resolve::record_remains(home, None);
    }
    // Read before the first job is finished, because finished jobs may be removed.
    let places = recorded_places(home)?;
    let mut report = SweepReport { dry_run, kept: 0, jobs: Vec::new(), leftovers: Vec::new() };
    report.jobs.extend(remains.into_iter().map(|id| {
        let job = home.job(id);
        would_stop(&job, &LostJob::new(&job, None, None))
    }));
    let mut met = BTreeSet::new();
    for _ in 0..ROUNDS {
        report.kept = 0;
        let before = met.len();
        for id in home.unended().map_err(failed)? {
            if met.contains(&id) {
                continue;
            }
            match sweep_job(&home.job(id), dry_run) {
                Look::Swept(swept) => {
                    met.insert(id);
                    report.jobs.push(*swept);
                }
                Look::Kept => report.kept += 1,
                Look::Over => {}
            }
        }
        if dry_run || met.len() == before {
            break;
        }
    }
    if !dry_run {
        home.remove_stale_locks().map_err(failed)?;
        match home.remove_stale_name_links() {
            // Another process is paused while claiming a name; a half-made link may be its own. The next sweep looks again.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => drop(other.map_err(failed)?),
        }
    }
    for id in unproven(home)?.into_iter().filter(|id| !met.contains(id)) {
        let job = home.job(id);
        report.jobs.push(SweptJob::new(&job, SweepAction::Report).with_record(&job));
    }
    for stale in quell_contain::stale_cgroups(&places) {
        report.leftovers.extend(clear(home, &stale, dry_run));
    }
    if !dry_run {
        quell_contain::remove_empty_keeper_cgroups();
    }
    Ok(report)
}

/// The jobs that have ended and are not proven dead.
pub(crate) fn unproven(home: &Home) -> Result<Vec<JobId>> {
    let mut found = index::with(home, |index| index.unproven())?;
    found.retain(|id| JobView::read(&home.job(*id)).is_ok_and(|view| view.is_not_proven_dead()));
    Ok(found)
}

/// The parent cgroups of the live jobs, by their records.
fn recorded_places(home: &Home) -> Result<Vec<PathBuf>> {
    let live = home.live().map_err(|error| Error::Io { path: home.dir().to_owned(), error })?;
    let cgroups = live.into_iter().filter_map(|id| home.job(id).record().ok()?.state.tree()?.cgroup.clone());
    Ok(cgroups.filter_map(|path| Some(path.parent()?.to_owned())).collect())
}

/// The result of the look at one job.
enum Look {
    Kept,
    /// It had ended before.
    Over,
    Swept(Box<SweptJob>),
}

fn sweep_job(job: &JobDir, dry_run: bool) -> Look {
    let swept = |swept| Look::Swept(Box::new(swept));
    let failed = |error: String| SweptJob { error: Some(error), ..SweptJob::new(job, SweepAction::Stop) };
    let lock = match job.liveness() {
        Ok(Liveness::Ended) => return Look::Over,
        Ok(Liveness::Supervised) => {
            if !dry_run {
                continue_stopped_keeper(job);
            }
            return Look::Kept;
        }
        Ok(Liveness::Finishing) if dry_run => return swept(SweptJob::new(job, SweepAction::Wait)),
        Ok(Liveness::Finishing) => {
            let mut waited = SweptJob::new(job, SweepAction::Wait);
            waited.error = recover(job, RecoveredBy::Sweep).err().map(|error| error.to_string());
            return swept(waited.with_record(job));
        }
        Ok(Liveness::Orphaned(lock)) => lock,
        Err(error) => return swept(failed(error.to_string())),
    };
    let found = match RecoveryCase::of(job, &lock, Keepers::Unknown) {
        Ok(RecoveryCase::Kept) => return Look::Kept,
        Ok(RecoveryCase::NeverRan(_)) => SweptJob::new(job, SweepAction::Remove),
        Ok(RecoveryCase::Ended(_)) => SweptJob::new(job, SweepAction::Settle).with_record(job),
        Ok(RecoveryCase::Lost(lost)) if dry_run => would_stop(job, &lost),
        Ok(RecoveryCase::Rebooted(_) | RecoveryCase::Lost(_)) => SweptJob::new(job, SweepAction::Stop),
        Err(error) => return swept(failed(error.to_string())),
    };
    if dry_run {
        return swept(found);
    }
    swept(match recover_locked(job, lock, RecoveredBy::Sweep, Survivors::KillAgain, Keepers::Unknown) {
        Ok(Recovery::Kept) => return Look::Kept,
        // It may have changed since it was looked at.
        Ok(Recovery::Removed) => SweptJob { action: SweepAction::Remove, ..found },
        Ok(Recovery::Completed) => SweptJob::new(job, SweepAction::Settle).with_record(job),
        Ok(Recovery::Stopped(receipt)) => SweptJob {
            action: SweepAction::Stop,
            processes: receipt.members.len() + receipt.members_omitted as usize,
            cause: Some(receipt.cause),
            verdict: Some(receipt.verdict),
            survivors: receipt.survivors,
            ..found
        },
        Err(error) => SweptJob { error: Some(error.to_string()), ..found },
    })
}

fn would_stop(job: &JobDir, lost: &LostJob) -> SweptJob {
    let mut found = SweptJob::new(job, SweepAction::Stop);
    // What an earlier command could not kill is alive until the next one has looked.
    if lost.has_survivors() {
        found = found.with_record(job);
    }
    match quell_contain::living_members(&lost.orphaned(job)) {
        Ok(members) => SweptJob { processes: members.len(), ..found },
        Err(error) => SweptJob { error: Some(format!("its processes can't be listed: {error}")), ..found },
    }
}

/// Clears a cgroup that is named after a job; none if that job is alive, or may be alive in another home.
fn clear(home: &Home, stale: &StaleCgroup, dry_run: bool) -> Option<Leftover> {
    let job = home.job(stale.id);
    let action = match job.liveness() {
        // A job that could not be finished is in the report already.
        Ok(Liveness::Supervised | Liveness::Finishing | Liveness::Orphaned(_)) | Err(_) => return None,
        Ok(Liveness::Ended) if job.exists() && stale.is_populated() => LeftoverAction::Kill,
        Ok(Liveness::Ended) if job.exists() || stale.is_abandoned() => LeftoverAction::Remove,
        Ok(Liveness::Ended) => return None,
    };
    let error = if dry_run { None } else { stale.clear(CLEAR_PATIENCE).err() };
    Some(Leftover { path: stale.path.clone(), id: stale.id, action, error })
}
