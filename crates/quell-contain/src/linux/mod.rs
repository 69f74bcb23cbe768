//! Linux: four containments, the stop of a tree, and the recovery of jobs that lost their keeper.
//!
//! ```text
//! containment.rs         Containment: one tree and what is known of it; spawn, take over, signal
//!   backend/             what holds it: reaper, cgroup, scope, pidns; `ladder` chooses
//!   stop.rs              ask, brake, kill, sweep, count
//!   proof.rs             Proof: marker search, collect the root, possible members, verdict
//!   marker_search.rs     members outside the tree, found by the job's marker
//!   possible_members.rs  processes that may be members although nothing proves it: then the verdict is `unproven`
//! stop_engine.rs         StopEngine, Tree: carries out what the lifecycle decides, on any set of processes
//! walk.rs                Pinned, ProcessRef: a process that was proven, and how it is found again
//!   member_set.rs        MemberSet: the members that one stop has found, each pinned
//!   member_log.rs        MemberLog: every member that was seen, and its fate
//! recover.rs             the stop of a job that has no keeper, from its record
//!   discovery.rs         Discovery: the search for its members
//!   recorded_cgroup.rs   the cgroups that are named for it
//! job_id.rs              a new job's id, and when a job began according to its id
//! cgroup_fs.rs           Cgroup: the cgroup v2 file system
//! systemd/               a small D-Bus client that asks for a scope
//! keeper_cgroup.rs       KeeperCgroup: the cgroup of all keepers
//! stale_cgroup.rs        cgroups of jobs that are over
//! orphaned_cgroup.rs     cgroups with processes whose job has no keeper and no record
//! usage.rs               what a live tree uses now
//! doctor.rs              `quell doctor`
//! ```
//!
//! One stop, as `StopEngine` drives it: ask → (grace) → kill round: brake, kill, sweep → count → again, until the count is zero
//! or the time is over → marker search → collect the root → verdict.

mod backend;
mod cgroup_fs;
mod containment;
mod discovery;
mod doctor;
mod job_id;
mod keeper_cgroup;
mod marker_search;
mod member_log;
mod member_set;
mod orphaned_cgroup;
mod possible_members;
mod proof;
mod recorded_cgroup;
mod recover;
mod stale_cgroup;
mod stop;
mod stop_engine;
mod systemd;
mod usage;
mod walk;

use quell_core::ProcId;

pub use backend::defeated_by;
pub use containment::{Birth, Containment, KeeperReport, SpawnError};
pub use discovery::{JOB_VARIABLE, OrphanedJob};
pub use doctor::doctor;
pub use job_id::{earliest_start, new_job_id};
pub use keeper_cgroup::{KeeperCgroup, remove_empty_keeper_cgroups};
pub use marker_search::MARK_VARIABLE;
pub use orphaned_cgroup::{OrphanedCgroup, living_keeper, note_home, orphaned_cgroups};
pub use possible_members::ForeignTree;
pub use proof::{MARKER_SEARCH_PATIENCE, Proof, describe_verdict};
pub use recover::{Recovered, living_members, recover, why_maybe_alive};
pub use stale_cgroup::{StaleCgroup, stale_cgroups};
pub use stop::{KEEPER_NAME, SignalRound};
pub use stop_engine::{Pace, StopEngine, Tree};
pub use usage::{TreeUsage, cgroup_usage, walked_usage};

/// This host can't provide what was requested.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    #[error("the containment `{containment}` is not available here: {why}")]
    Containment { containment: &'static str, why: String },
    #[error("this limit can't be enforced here: {why}")]
    Limit { why: String },
}

impl Unavailable {
    fn new(containment: &'static str, why: String) -> Self {
        Self::Containment { containment, why }
    }

    fn limit(why: &str) -> Self {
        Self::Limit { why: why.to_owned() }
    }
}

/// The children that this process has now. A program that executes quell can have started some: they are not part of the job.
pub fn preexisting_children() -> Vec<ProcId> {
    let children = quell_sys::own_children().unwrap_or_default();
    children.iter().filter_map(|&pid| quell_sys::stat(pid).ok()).map(|stat| stat.id()).collect()
}

/// The identity of the process `pid`. Only reliable for this process itself and for an unreaped child.
pub fn identify(pid: u32) -> Option<ProcId> {
    quell_sys::stat(pid).ok().map(|stat| stat.id())
}

/// Whether the process with this identity is alive. Another process with the same PID does not count.
pub fn is_alive(id: ProcId) -> bool {
    quell_sys::PidFd::of(id).is_some()
}

/// What the fuzzer calls; not part of the interface.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    pub use super::cgroup_fs::{cgroup2_mount, dir_of, v2_path};
    pub use super::systemd::{take_message, unescape};
}
