//! A place of its own for a background job: its keeper leaves the cgroup of whoever called, so that nothing which happens
//! to that one (a session that ends, a service that is stopped, another job's kill) reaches it.

use std::fs;
use std::path::{Path, PathBuf};

use quell_core::JobId;

use super::cgroup::{Cgroup, mount_dir, own_dir};

/// The cgroup of a keeper, beside that of its job.
#[derive(Clone, Debug)]
pub struct Nest {
    base: PathBuf,
    origin: PathBuf,
    dir: PathBuf,
}

impl Nest {
    /// What the cgroup of a job's keeper is called.
    pub fn name(id: JobId) -> String {
        format!("{}-keeper", Cgroup::name(id))
    }

    /// Moves this process into a cgroup of its own, as high up as this user may make one. None where the caller's own
    /// cgroup is as far as one gets.
    pub fn enter(id: JobId) -> Option<Self> {
        let (origin, top) = (own_dir().ok()?, mount_dir().ok()?);
        let mut above: Vec<&Path> = origin.ancestors().take_while(|dir| dir.starts_with(&top)).collect();
        above.reverse();
        // The last one is where we are already.
        above.pop();
        above.into_iter().find_map(|base| Self::enter_below(base, &origin, id))
    }

    fn enter_below(base: &Path, origin: &Path, id: JobId) -> Option<Self> {
        let dir = base.join(Self::name(id));
        fs::create_dir(&dir).ok()?;
        if fs::write(dir.join("cgroup.procs"), "0").is_err() {
            let _ = fs::remove_dir(&dir);
            return None;
        }
        Some(Self { base: base.to_owned(), origin: origin.to_owned(), dir })
    }

    /// Below which the job's own cgroup is made.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// The keeper's cgroup.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Goes back, so that the cgroup can be removed, and removes it if nobody else is in it. The last thing that a process
    /// does.
    pub fn leave(&self) {
        for dir in [&self.origin, &self.base] {
            if fs::write(dir.join("cgroup.procs"), "0").is_ok() {
                break;
            }
        }
        let _ = fs::remove_dir(&self.dir);
    }
}
