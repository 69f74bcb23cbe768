//! Linux: reaper, cgroup, systemd scope, PID namespace.

mod audit;
mod cgroup;
mod discovery;
mod doctor;
mod doubt;
mod hold;
mod keeper_cgroup;
mod member_log;
mod member_set;
mod place;
mod recover;
mod remains;
mod scope;
mod stale_cgroup;
mod stop;
mod stop_engine;
mod walk;

use quell_core::{ContainmentKind, Limits, ProcId};

pub use audit::MARK_VARIABLE;
pub use discovery::{JOB_VARIABLE, OrphanedJob};
pub use doctor::doctor;
pub use doubt::earliest_start;
pub use hold::{Birth, Hold, KeeperReport, SpawnError};
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
    walk::pin(id.pid, |stat| member_log::identity(stat) == id).is_some()
}

/// What no containment but a PID namespace keeps a job from.
const ENTERED: &str = "a descendant that entered the PID namespace of another program: its orphans there are not killed, and the \
     verdict is `unproven` while one may be alive; one that also joined that program's cgroup and mounts can't be told \
     from its own processes";

/// What could defeat a containment, in words for receipts, `quell status` and `quell doctor`.
pub fn defeated_by(kind: ContainmentKind) -> Vec<String> {
    let common = [
        "a process that another program starts on the job's behalf (a service manager, a container engine, at, cron)",
        "a process in uninterruptible sleep, until the kernel lets go of it",
    ];
    let own: &[&str] = match kind {
        ContainmentKind::Reaper => &[
            "a descendant that became another user, where quell is not root",
            "processes that are forked faster than they can be killed, where they resume each other from SIGSTOP",
            ENTERED,
        ],
        ContainmentKind::Cgroup | ContainmentKind::Scope => &[
            "a descendant that moved to another cgroup and became another user, where quell is not root",
            ENTERED,
        ],
        ContainmentKind::Pidns => &[],
    };
    own.iter().chain(&common).map(|&text| text.to_owned()).collect()
}

/// What a PID namespace can hold: in a user namespace of its own RLIMIT_NPROC counts just the tree. Root is exempt
/// from it, and needs no user namespace.
fn pidns_limits(limits: &Limits) -> Result<Option<u64>, Unavailable> {
    if limits.memory.is_some() || limits.cpu.is_some() {
        return Err(Unavailable::limit("a PID namespace holds no memory or CPU limit; use --contain cgroup"));
    }
    match limits.procs {
        Some(_) if quell_sys::uid() == 0 => Err(Unavailable::limit(
            "root's processes are not counted in a PID namespace; use --contain cgroup",
        )),
        // Init counts too.
        procs => Ok(procs.map(|procs| procs + 1)),
    }
}

/// What the fuzzer calls; no part of the interface.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    pub use super::cgroup::{cgroup2_mount, dir_of, v2_path};
    pub use super::scope::{take_message, unescape};
}
