//! Cgroups of quell's that were left lying about: by a keeper that was killed before there was a record, or by one that
//! could not remove its own.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quell_core::JobId;
use quell_sys::Polled;

use super::cgroup_fs::{Cgroup, own_dir, remove_tree};
use super::keeper_cgroup::nests;

/// A keeper that makes a cgroup has opened it long before it is this old.
const NEW: Duration = Duration::from_secs(60);
/// How long a kill waits for the news that the cgroup is empty before it is repeated.
const KILL_AGAIN: Duration = Duration::from_millis(50);

/// A cgroup that is named for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleCgroup {
    /// The job.
    pub id: JobId,
    /// The directory.
    pub path: PathBuf,
}

/// The cgroups that are named for a job, below our own cgroup, below those above it and the keepers' there, and below
/// `places`. Jobs that live have some too.
pub fn stale_cgroups(places: &[PathBuf]) -> Vec<StaleCgroup> {
    let own = own_dir().unwrap_or_default();
    let above = own.ancestors().take_while(|dir| dir.join("cgroup.procs").exists()).map(Path::to_owned);
    let all: BTreeSet<PathBuf> = above.chain(nests()).chain(places.iter().cloned()).collect();
    let entries = all.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
    let mut found: Vec<StaleCgroup> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let name = name.to_str()?.strip_prefix("quell-")?;
            let id = name.parse().ok()?;
            Some(StaleCgroup { id, path: entry.path() })
        })
        .filter(|stale| stale.path.join("cgroup.procs").exists())
        .collect();
    found.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    found
}

impl StaleCgroup {
    /// Whether a living process is in it. What can't be asked has some.
    pub fn is_populated(&self) -> bool {
        let events = fs::read_to_string(self.path.join("cgroup.events")).unwrap_or_default();
        !events.lines().any(|line| line == "populated 0")
    }

    /// Whether it is empty for good, as far as can be seen without a record: it is not new, nobody is in it, and no quell
    /// holds it open for a birth that is still to come. The record may be in another home than ours.
    pub fn is_abandoned(&self) -> bool {
        let age = fs::metadata(&self.path).and_then(|metadata| metadata.modified());
        let old = age.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > NEW));
        old && !self.is_populated() && !self.is_open()
    }

    fn is_open(&self) -> bool {
        let quells = quell_sys::pids().unwrap_or_default().into_iter().filter(|&pid| {
            pid != quell_sys::pid() && quell_sys::stat(pid).is_ok_and(|stat| stat.comm.starts_with("quell"))
        });
        quells.into_iter().any(|pid| match fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(entries) => entries
                .flatten()
                .any(|entry| fs::read_link(entry.path()).is_ok_and(|path| path.starts_with(&self.path))),
            // Gone meanwhile, or somebody else's, who may well hold it.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        })
    }

    /// Removes it; whoever is in it is killed first, for which `patience` is given. Only for a job that is known to be over.
    pub fn clear(&self, patience: Duration) -> Result<(), String> {
        if own_dir().is_ok_and(|own| own.starts_with(&self.path)) {
            return Err("this quell is itself in it".into());
        }
        if self.is_populated() {
            self.kill(patience)?;
        }
        remove_tree(&self.path).map_err(|error| error.to_string())
    }

    fn kill(&self, patience: Duration) -> Result<(), String> {
        let deadline = Instant::now() + patience;
        let cgroup = Cgroup::open(&self.path).map_err(|error| error.to_string())?;
        cgroup.brake();
        while cgroup.populated().map_err(|error| error.to_string())? {
            if Instant::now() >= deadline {
                return Err("somebody in it does not die".into());
            }
            cgroup.kill().map_err(|error| error.to_string())?;
            let news: Vec<BorrowedFd<'_>> = cgroup.events().into_iter().collect();
            let polled: Vec<Polled<'_>> = news.iter().map(|news| Polled::Priority(*news)).collect();
            let _ = quell_sys::poll_until(&polled, Some(deadline.min(Instant::now() + KILL_AGAIN)));
        }
        Ok(())
    }
}
