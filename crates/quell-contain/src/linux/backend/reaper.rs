//! Held by the reaper alone: subreaper, session and process group. These also work in the other containments.

use quell_core::Limits;
use quell_sys::{ChildRules, Program};

use super::super::Unavailable;
use super::{ENTERED, SpawnError, Spawned, launch};

pub(super) const DEFEATED_BY: &[&str] = &[
    "a descendant that became another user, where quell is not root",
    "processes that are forked faster than they can be killed, where they resume each other from SIGSTOP",
    ENTERED,
];

/// Makes nothing: the keeper itself is the subreaper.
#[derive(Debug)]
pub struct Reaper;

impl Reaper {
    pub fn acquire(limits: &Limits) -> Result<Self, Unavailable> {
        if limits.is_empty() {
            return Ok(Self);
        }
        Err(Unavailable::limit("reaper holds no limit: rlimits count a process or a user, not a tree"))
    }

    pub fn spawn(&self, program: &Program, rules: &ChildRules) -> Result<Spawned, SpawnError> {
        launch(program, rules, None).map(|(spawned, _)| spawned)
    }
}
