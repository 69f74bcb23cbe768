//! The cgroups of a job that has no keeper: those that exist under its name.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use quell_core::JobId;

use super::cgroup_fs::{Cgroup, dir_and_mount_of};
use super::discovery::OrphanedJob;
use super::walk::Below;

/// How many cgroups one search looks at.
const LOOKED_AT: usize = 100_000;

/// The job's cgroups. Usually there is one, but a record can be rewritten to name another with the same name.
pub(super) struct RecordedCgroups {
    pub found: Vec<Cgroup>,
    /// Why a cgroup that is on record or has the job's name can't be used.
    pub unusable: Option<String>,
}

impl RecordedCgroups {
    pub(super) fn of(job: &OrphanedJob<'_>) -> Self {
        let mut recorded = Self { found: Vec::new(), unusable: None };
        let mut paths: BTreeSet<PathBuf> = named_for(job.id).into_iter().collect();
        match job.cgroup {
            Some(path) if is_named_for(path, job.id) => drop(paths.insert(path.to_owned())),
            Some(path) => {
                recorded.unusable = Some(format!("{} is not named as a cgroup of this job", path.display()));
            }
            None => {}
        }
        for path in paths {
            match Cgroup::open(&path) {
                Ok(cgroup) => recorded.found.push(cgroup),
                Err(_) if is_removed(&path) => {}
                Err(error) => recorded.unusable = Some(error.to_string()),
            }
        }
        recorded
    }
}

/// Whether a cgroup of job `id` would have this path's name.
pub(super) fn is_named_for(path: &Path, id: JobId) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name == Cgroup::name(id) || name == format!("{}.scope", Cgroup::name(id)))
}

/// The cgroups that are named for job `id`, anywhere in the hierarchy.
fn named_for(id: JobId) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(|path| {
        let named = is_named_for(path, id);
        if named {
            found.push(path.to_owned());
        }
        if named { Below::Skip } else { Below::Visit }
    });
    found
}

/// The cgroups that are named for any job, anywhere in the hierarchy.
pub(super) fn named_for_jobs() -> Vec<(JobId, PathBuf)> {
    let mut found = Vec::new();
    walk(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        let id = name.and_then(|name| name.strip_prefix("quell-")?.trim_end_matches(".scope").parse().ok());
        found.extend(id.map(|id| (id, path.to_owned())));
        Below::Visit
    });
    found
}

/// Calls `show` for every cgroup.
fn walk(mut show: impl FnMut(&Path) -> Below) {
    let Ok((_, mount)) = dir_and_mount_of("self") else { return };
    let (mut unread, mut looked_at) = (vec![mount], 0);
    while let Some(dir) = unread.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) || looked_at >= LOOKED_AT {
                continue;
            }
            looked_at += 1;
            if show(&entry.path()) == Below::Visit {
                unread.push(entry.path());
            }
        }
    }
}

/// Whether a recorded cgroup was removed. If it is only not mounted here, it was not.
fn is_removed(path: &Path) -> bool {
    let gone = || path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let seen = path.ancestors().skip(1).find(|dir| dir.is_dir());
    // Only a cgroup has this file, so the path is in a hierarchy that is mounted here.
    gone() && seen.is_some_and(|dir| dir.join("cgroup.procs").exists())
}
