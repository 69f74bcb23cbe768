//! Held by the reaper alone: subreaper, session and group. It also works under each of the others.

use quell_core::Limits;
use quell_sys::{ChildRules, Program};

use super::super::Unavailable;
use super::{ENTERED, SpawnError, Spawned, launch};

pub(super) const DEFEATED_BY: &[&str] = &[
    "a descendant that became another user, where quell is not root",
    "processes that are forked faster than they can be killed, where they resume each other from SIGSTOP",
    ENTERED,
];

/// Nothing but the keeper itself, which is a subreaper.
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
