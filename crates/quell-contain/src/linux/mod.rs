//! Linux: reaper, cgroup, systemd scope, PID namespace.

mod audit;
mod backend;
mod birth;
mod cgroup_fs;
mod containment;
mod discovery;
mod doctor;
mod doubt;
mod keeper_cgroup;
mod member_log;
mod member_set;
mod place;
mod recover;
mod remains;
mod stale_cgroup;
mod stop;
mod stop_engine;
mod systemd;
mod walk;

use quell_core::ProcId;

pub use audit::MARK_VARIABLE;
pub use backend::defeated_by;
pub use birth::new_job_id;
pub use containment::{Birth, Containment, KeeperReport, SpawnError};
pub use discovery::{JOB_VARIABLE, OrphanedJob};
pub use doctor::doctor;
pub use doubt::{ForeignTree, earliest_start};
pub use keeper_cgroup::{KeeperCgroup, remove_empty_keeper_cgroups};
pub use recover::{Recovered, look_for, may_live, recover};
pub use remains::{Remains, living_keeper, note_home, remains};
pub use stale_cgroup::{StaleCgroup, stale_cgroups};
pub use stop::{KEEPER_NAME, Round};
pub use stop_engine::{Pace, StopEngine, Tree};

/// Something was asked for that this host can't give.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// A containment.
    #[error("the containment `{containment}` can't be had here: {why}")]
    Containment {
        /// Which.
        containment: &'static str,
        /// Why.
        why: String,
    },
    /// A limit.
    #[error("this limit can't be held here: {why}")]
    Limit {
        /// Why.
        why: String,
    },
}

impl Unavailable {
    fn new(containment: &'static str, why: String) -> Self {
        Self::Containment { containment, why }
    }

    fn limit(why: &str) -> Self {
        Self::Limit { why: why.to_owned() }
    }
}

/// The children that this process has now: if any, it was executed by a program that had started them, and they are
/// nobody's business here.
pub fn preexisting_children() -> Vec<ProcId> {
    let children = quell_sys::own_children().unwrap_or_default();
    children
        .iter()
        .filter_map(|&pid| quell_sys::stat(pid).ok())
        .map(|stat| member_log::identity(&stat))
        .collect()
}

/// Who has the number `pid` now. Only good for oneself, or for somebody who can't have been reaped.
pub fn identify(pid: u32) -> Option<ProcId> {
    quell_sys::stat(pid).ok().map(|stat| member_log::identity(&stat))
}

/// Whether this very process is alive.
pub fn is_alive(id: ProcId) -> bool {
    quell_sys::PidFd::of(id).is_some()
}

/// What the fuzzer calls; no part of the interface.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    pub use super::cgroup_fs::{cgroup2_mount, dir_of, v2_path};
    pub use super::systemd::{take_message, unescape};
}
