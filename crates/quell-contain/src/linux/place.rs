//! Where the cgroup of a lost job is, and whether it still is.

use std::io;
use std::path::{Path, PathBuf};

use quell_core::{HeldBy, JobId};

use super::cgroup::{Cgroup, own_dir};
use super::search::Left;

/// The job's cgroup, as it is found.
pub(super) enum Place {
    /// None holds it.
    Nowhere,
    /// It is there.
    Here(Cgroup),
    /// It was removed, which nobody can do to a cgroup with a living process in it.
    Removed,
    /// It can't be used.
    Closed(String),
}

impl Place {
    pub(super) fn of(left: &Left<'_>) -> Self {
        let path = match (left.cgroup, left.held) {
            (Some(path), _) if is_named_for(path, left.id) => path.to_owned(),
            (Some(path), _) => {
                return Self::Closed(format!("{} is not named as a cgroup of this job", path.display()));
            }
            // What was born in a cgroup before that was written down is found by its name.
            (None, None | Some(HeldBy::Cgroup)) => match known_place(left.id) {
                Some(path) => path,
                None => return Self::Nowhere,
            },
            (None, Some(HeldBy::Reaper | HeldBy::Pidns | HeldBy::Scope)) => return Self::Nowhere,
        };
        match Cgroup::open(&path) {
            Ok(cgroup) => Self::Here(cgroup),
            Err(_) if is_removed(&path) => Self::Removed,
            Err(error) => Self::Closed(error.to_string()),
        }
    }

    pub(super) fn cgroup(&self) -> Option<&Cgroup> {
        match self {
            Self::Here(cgroup) => Some(cgroup),
            Self::Nowhere | Self::Removed | Self::Closed(_) => None,
        }
    }
}

fn is_named_for(path: &Path, id: JobId) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name == Cgroup::name(id) || name == format!("{}.scope", Cgroup::name(id)))
}

/// Job `id`'s cgroup below our own or one above it, where a keeper of ours would have made it.
fn known_place(id: JobId) -> Option<PathBuf> {
    let own = own_dir().ok()?;
    let path = own.ancestors().map(|dir| dir.join(Cgroup::name(id))).find(|path| path.is_dir());
    path.filter(|path| path.join("cgroup.procs").exists())
}

/// Whether a cgroup that was there once is gone: it is nowhere to be seen, in a hierarchy that we do see.
fn is_removed(path: &Path) -> bool {
    let gone = || path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    // Our own cgroup is in the same hierarchy, so the two have more in common than the mount's own path.
    let seen = path.ancestors().skip(1).find(|dir| dir.is_dir());
    gone() && seen.is_some_and(|dir| dir.join("cgroup.procs").exists())
}
