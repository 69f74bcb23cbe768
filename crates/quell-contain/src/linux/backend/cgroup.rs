//! Held by a cgroup v2 that quell made. The stub starts inside it, one write kills all members, and the kernel counts them.

use std::io;
use std::path::Path;

use quell_core::{JobId, Limits};
use quell_sys::{ChildRules, Program};

use super::super::cgroup_fs::{Cgroup, CgroupError};
use super::{ENTERED, SpawnError, Spawned, launch};

pub(super) const DEFEATED_BY: &[&str] =
    &["a descendant that moved to another cgroup and became another user, where quell is not root", ENTERED];

#[derive(Debug)]
pub struct JobCgroup(Cgroup);

impl JobCgroup {
    /// Makes the cgroup below `base`, or below this process's own cgroup.
    pub fn acquire(id: JobId, base: Option<&Path>, limits: &Limits) -> Result<Self, CgroupError> {
        Cgroup::create(id, base, limits).map(Self)
    }

    pub fn reopen(cgroup: Cgroup) -> Self {
        Self(cgroup)
    }

    pub fn cgroup(&self) -> &Cgroup {
        &self.0
    }

    pub fn spawn(&self, program: &Program, rules: &ChildRules) -> Result<Spawned, SpawnError> {
        let (mut spawned, is_inside) = launch(program, rules, Some(&self.0))?;
        if !is_inside {
            spawned.held = self.0.adopt(spawned.pid).map_err(|error| error.to_string());
        }
        Ok(spawned)
    }

    pub fn release(&self) -> io::Result<()> {
        self.0.remove()
    }
}
