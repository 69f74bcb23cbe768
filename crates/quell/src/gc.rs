//! Removing finished jobs. Never a live one.
//!
//! A job's directory is renamed in one step, so a process that is killed here leaves the whole job or none, and of several processes
//! that remove it one succeeds. Its row in the index, its name and its files are removed after that. The next gc removes what a crash
//! leaves of them.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use quell_core::{JobId, Verdict};
use quell_store::{Home, JobDir, Liveness};
use quell_sys::fault::{FaultPoint, fault_point};
use serde::{Deserialize, Serialize};

use crate::index::{self, Candidate};
use crate::view::JobView;
use crate::{DryRun, Error, Removal, Result};

/// The prefix of a directory that is being removed.
const OUTGOING: &str = ".gone-";

/// An incomplete job that is younger than this may still be being made.
const IN_THE_MAKING: Duration = Duration::from_secs(3600);

/// Which finished jobs are kept. A rule that is not set keeps all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcRules {
    /// Keep those that ended no longer ago than this.
    pub max_age: Option<Duration>,
    /// Keep this many, the newest ones.
    pub max_count: Option<usize>,
    /// Keep as many as fit into these bytes on disk, the newest ones.
    pub max_size: Option<u64>,
    /// Remove also those with survivors. They can't be stopped by quell after that.
    pub force: bool,
}

/// A job that the rules don't keep, and that was not removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Skipped {
    /// The id of the job.
    pub id: JobId,
    /// The reason.
    pub why: String,
}

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GcReport {
    /// Whether nothing was changed. Then this is what would be done.
    pub dry_run: bool,
    /// The removed jobs, oldest first.
    pub removed: Vec<JobId>,
    /// How many bytes they took on disk.
    pub bytes: u64,
    /// How many finished jobs are kept.
    pub kept: u64,
    /// The jobs that are kept although the rules don't keep them.
    pub skipped: Vec<Skipped>,
    /// How many incomplete jobs were removed: jobs that never ran, and jobs whose removal was interrupted.
    pub remains: u64,
}

/// Removes the finished jobs that `rules` don't keep, oldest first, and incomplete jobs. With a limit, at most that many jobs are
/// removed, and the index is trusted without a look at all directories.
pub(crate) fn collect(
    home: &Home,
    rules: &GcRules,
    dry_run: DryRun,
    at_most: Option<usize>,
) -> Result<GcReport> {
    let dry_run = dry_run.is_dry();
    let mut report = GcReport { dry_run, ..GcReport::default() };
    if !home.dir().is_dir() {
        return Ok(report);
    }
    let (mut candidates, broken) = index::with(home, |index| {
        if at_most.is_none() {
            index.reconcile(home)?;
        }
        Ok((index.candidates()?, index.broken()?))
    })?;
    let broken: Vec<JobId> = broken.into_iter().map(|broken| broken.id).collect();
    report.remains = clean(home, &broken, dry_run)?;
    candidates.retain(|candidate| !candidate.broken || home.job(candidate.id).exists());
    let boot = quell_sys::boot_id();
    let doomed = doomed(&candidates, rules, index::ms_of(SystemTime::now()), &boot);
    let doomed = at_most.map_or(doomed, |most| doomed.min(most));
    for candidate in &candidates[..doomed] {
        let removed = match reason_to_stay(home, candidate, &boot).filter(|_| !rules.force) {
            Some(why) => Err(why),
            None if dry_run => Ok(true),
            None => {
                take_away(home, candidate.id, candidate.name.as_deref()).map_err(|error| error.to_string())
            }
        };
        match removed {
            Ok(true) => {
                report.removed.push(candidate.id);
                report.bytes += candidate.size;
            }
            // Another process removed it.
            Ok(false) => {}
            Err(why) => report.skipped.push(Skipped { id: candidate.id, why }),
        }
    }
    report.kept = (candidates.len() - doomed + report.skipped.len()) as u64;
    index::forget(home, &report.removed);
    Ok(report)
}

/// Removes one finished job. A live or lost job is [`Error::State`]. A job with survivors is [`Error::NotProvenDead`], unless it is
/// forced. A job whose end is not proven is removed: there is nothing left to try with its record.
pub(crate) fn remove(home: &Home, id: JobId, how: Removal) -> Result<()> {
    let job = home.job(id);
    if !job.exists() {
        return Err(Error::NoSuchJob(id.to_string()));
    }
    not_live(&job)?;
    // A record that can't be read can be removed.
    let view = JobView::read(&job).ok();
    if let Some(Verdict::Survivors { count }) = view.as_ref().and_then(|view| view.verdict.clone())
        && how != Removal::Force
        && of_this_boot(&job)
    {
        return Err(Error::NotProvenDead(format!("job {id} is kept: {count} of its processes are not dead")));
    }
    take_away(home, id, view.and_then(|view| view.name).as_deref())?;
    index::forget(home, &[id]);
    Ok(())
}

fn of_this_boot(job: &JobDir) -> bool {
    job.spec().map_or(true, |spec| spec.boot_id == quell_sys::boot_id())
}

/// How long a keeper may take to release its lock after the end is on record. A sync lies between the two.
const RELEASE_PATIENCE: Duration = Duration::from_secs(5);

fn not_live(job: &JobDir) -> Result<()> {
    let deadline = Instant::now() + RELEASE_PATIENCE;
    loop {
        let liveness = job.liveness().map_err(Error::io(job.dir()))?;
        let ended = || job.record().is_ok_and(|record| record.state.is_ended());
        match liveness {
            Liveness::Ended => return Ok(()),
            // A caller that has read the end on record may remove the job.
            Liveness::Supervised | Liveness::Finishing if Instant::now() < deadline && ended() => {
                // No event reports that a lock is free.
                std::thread::sleep(Duration::from_millis(2));
            }
            Liveness::Supervised | Liveness::Finishing => {
                return Err(Error::State(format!("job {} is live: stop it first", job.id())));
            }
            Liveness::Orphaned(_) => {
                let why = format!("job {} was lost by its keeper and is not finished yet", job.id());
                return Err(Error::State(why));
            }
        }
    }
}

/// How many of the candidates, from the first one on, the rules don't keep.
fn doomed(candidates: &[Candidate], rules: &GcRules, now: i64, boot: &str) -> usize {
    let old = rules.max_age.map_or(0, |age| {
        let limit = now.saturating_sub_unsigned(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        // The clock may have been set: a job that ended since the boot is not older than the boot.
        let all_young = quell_sys::seconds_since(0) < age.as_secs_f64();
        let is_old = |candidate: &&Candidate| {
            candidate.ended < limit && !(all_young && candidate.boot.as_deref() == Some(boot))
        };
        candidates.iter().take_while(is_old).count()
    });
    let many = rules.max_count.map_or(0, |count| candidates.len().saturating_sub(count));
    let large = rules.max_size.map_or(0, |size| {
        let mut left = size;
        let fits = |candidate: &&Candidate| match left.checked_sub(candidate.size) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        };
        candidates.len() - candidates.iter().rev().take_while(fits).count()
    });
    old.max(many).max(large)
}

/// Why a job that the rules don't keep is kept: its processes are found and stopped by its record. No process outlives a reboot.
fn reason_to_stay(home: &Home, candidate: &Candidate, boot: &str) -> Option<String> {
    if let Err(error) = not_live(&home.job(candidate.id)) {
        return Some(error.to_string());
    }
    let may_live = candidate.is_lost && !candidate.broken && candidate.boot.as_deref() == Some(boot);
    may_live.then(|| "it was lost by its keeper; its processes are not proven dead".into())
}

/// Removes the directory, the name and the lock of a job that is not live. Returns false if another process removed the directory.
fn take_away(home: &Home, id: JobId, name: Option<&str>) -> Result<bool> {
    let job = home.job(id);
    // Checked again: it may have changed since.
    not_live(&job)?;
    let out = outgoing(home, id);
    let ours = match fs::rename(job.dir(), &out) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(Error::Io { path: job.dir().to_owned(), error }),
    };
    fault_point(FaultPoint::TakenOut);
    if let Some(name) = name {
        home.release_name(name, id);
    }
    if ours {
        remove_all(&out)?;
    }
    fault_point(FaultPoint::TakenAway);
    job.remove().map_err(Error::io(job.dir()))?;
    Ok(ours)
}

fn outgoing(home: &Home, id: JobId) -> PathBuf {
    home.dir().join("jobs").join(format!("{OUTGOING}{id}"))
}

/// Removes a renamed directory, which another process may be removing too.
fn remove_all(dir: &PathBuf) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound && dir.exists() => {
            Err(Error::Io { path: dir.clone(), error })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes what crashes have left: renamed directories, locks without a job, jobs without a specification, names without a job.
/// Returns how many there were.
fn clean(home: &Home, broken: &[JobId], dry_run: bool) -> Result<u64> {
    let mut found = 0;
    let now = quell_sys::unix_ms();
    let old = |id: &JobId| now.saturating_sub(id.unix_ms()) > IN_THE_MAKING.as_millis() as u64;
    for out in entries(&home.dir().join("jobs"))?.iter().filter(|name| name.starts_with(OUTGOING)) {
        found += 1;
        if !dry_run {
            remove_all(&home.dir().join("jobs").join(out))?;
        }
    }
    let live = home.live().map_err(Error::io(home.dir().join("live")))?;
    for id in live.iter().chain(broken).filter(|id| old(id)) {
        let job = home.job(*id);
        if job.dir().join("spec.json").exists() {
            continue;
        }
        // If the lock was free, it is held until the removal, so that no process can begin to keep the job.
        let liveness = job.liveness().map_err(Error::io(job.dir()))?;
        let may_live = match &liveness {
            Liveness::Supervised | Liveness::Finishing => true,
            // A job that has run is finished by a sweep, and then has a receipt.
            Liveness::Orphaned(lock) => lock.says_begun(),
            Liveness::Ended => false,
        };
        if may_live {
            continue;
        }
        found += 1;
        if !dry_run {
            job.remove().map_err(Error::io(job.dir()))?;
            index::forget(home, &[*id]);
        }
    }
    if !dry_run {
        found += home.remove_stale_name_links().map_err(Error::io(home.dir().join("names")))? as u64;
    }
    for name in entries(&home.dir().join("names"))? {
        if let Some(id) = home.named(&name).filter(|id| old(id) && !home.job(*id).exists()) {
            found += 1;
            if !dry_run {
                home.release_name(&name, id);
            }
        }
    }
    Ok(found)
}

/// The names in a directory, which may be missing.
fn entries(dir: &PathBuf) -> Result<Vec<String>> {
    let read = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    };
    match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(Error::io(dir)),
    }
}
