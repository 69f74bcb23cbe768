//! A place of its own for a background job: its keeper leaves the cgroup of whoever called, so that nothing which happens
//! to that one (a session that ends, a service that is stopped, another job's kill) reaches it.

use std::fs;
use std::path::{Path, PathBuf};

use quell_core::JobId;
use quell_sys::fault::{Point, point};

use super::cgroup::{Cgroup, mount_dir, own_dir};
use super::hold::BUS_PATIENCE;
use super::scope::{self, ScopeRequest};

/// The cgroup of a keeper.
#[derive(Clone, Debug)]
pub enum Nest {
    /// One that quell made, beside that of its job.
    Own {
        /// Below which it was made, and that of the job is.
        base: PathBuf,
        /// Where the keeper came from.
        origin: PathBuf,
        /// The cgroup.
        dir: PathBuf,
    },
    /// A scope of the systemd user manager, which puts it away.
    Scope,
}

impl Nest {
    /// What the cgroup of a job's keeper is called.
    pub fn name(id: JobId) -> String {
        format!("{}-keeper", Cgroup::name(id))
    }

    /// Moves this process into a cgroup of its own: as high up as this user may make one, else into a scope of the systemd
    /// user manager. None where the caller's own cgroup is as far as one gets.
    pub fn enter(id: JobId) -> Option<Self> {
        let (origin, top) = (own_dir().ok()?, mount_dir().ok()?);
        // There is nothing above it to be reached by.
        if origin == top {
            return None;
        }
        let mut above: Vec<&Path> = origin.ancestors().take_while(|dir| dir.starts_with(&top)).collect();
        above.reverse();
        // The last one is where we are already.
        above.pop();
        above
            .into_iter()
            .find_map(|base| Self::enter_below(base, &origin, id))
            .or_else(|| Self::enter_scope(id))
    }

    fn enter_scope(id: JobId) -> Option<Self> {
        let unit = format!("{}.scope", Self::name(id));
        let request = ScopeRequest {
            unit: &unit,
            description: "the keeper of a job of quell",
            pid: quell_sys::pid(),
            memory_max: None,
            tasks_max: None,
            cpu_cores: None,
        };
        scope::start(&request, BUS_PATIENCE).ok().map(|_| Self::Scope)
    }

    fn enter_below(base: &Path, origin: &Path, id: JobId) -> Option<Self> {
        let dir = base.join(Self::name(id));
        fs::create_dir(&dir).ok()?;
        point(Point::NestMade);
        if fs::write(dir.join("cgroup.procs"), "0").is_err() {
            let _ = fs::remove_dir(&dir);
            return None;
        }
        point(Point::NestEntered);
        Some(Self::Own { base: base.to_owned(), origin: origin.to_owned(), dir })
    }

    /// Below which the job's own cgroup is made, if that is not left to chance.
    pub fn base(&self) -> Option<&Path> {
        match self {
            Self::Own { base, .. } => Some(base),
            Self::Scope => None,
        }
    }

    /// The keeper's cgroup, if it is for quell to put away.
    pub fn dir(&self) -> Option<&Path> {
        match self {
            Self::Own { dir, .. } => Some(dir),
            Self::Scope => None,
        }
    }

    /// Goes back, so that the cgroup can be removed, and removes it if nobody else is in it. The last thing that a process
    /// does.
    pub fn leave(&self) {
        let Self::Own { base, origin, dir } = self else { return };
        for back in [origin, base] {
            if fs::write(back.join("cgroup.procs"), "0").is_ok() {
                break;
            }
        }
        let _ = fs::remove_dir(dir);
    }
}
