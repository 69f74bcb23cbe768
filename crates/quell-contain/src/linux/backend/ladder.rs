//! Chooses what holds a tree: exactly the containment that was requested, or for `auto` the strongest one that does not change
//! what the program sees.

use std::path::Path;

use quell_core::{Contain, JobId, Limits};

use super::super::Unavailable;
use super::super::cgroup_fs::CgroupError;
use super::{Backend, JobCgroup, Pidns, Reaper, SystemdScope};

/// Finds a backend for job `id`. A cgroup is made here, below `base` or below this process's own cgroup. The other backends
/// make nothing yet.
pub fn acquire(
    id: JobId,
    base: Option<&Path>,
    contain: Contain,
    limits: &Limits,
) -> Result<Backend, Unavailable> {
    match contain {
        Contain::Cgroup => acquire_cgroup(id, base, limits),
        Contain::Pidns => Pidns::acquire(limits).map(Backend::Pidns),
        Contain::Reaper => Reaper::acquire(limits).map(Backend::Reaper),
        Contain::Auto => match acquire_cgroup(id, base, limits) {
            Ok(backend) => Ok(backend),
            Err(_) if limits.is_empty() => Reaper::acquire(limits).map(Backend::Reaper),
            // A limit was requested and no containment: the error has to name the limit, which only a cgroup enforces.
            Err(Unavailable::Containment { why, .. }) => Err(Unavailable::limit(&why)),
            Err(error @ Unavailable::Limit { .. }) => Err(error),
        },
    }
}

/// A cgroup that quell makes, or a scope if quell can't make one.
fn acquire_cgroup(id: JobId, base: Option<&Path>, limits: &Limits) -> Result<Backend, Unavailable> {
    let own = match JobCgroup::acquire(id, base, limits) {
        Ok(cgroup) => return Ok(Backend::Cgroup(cgroup)),
        Err(error) => error,
    };
    let bus = match SystemdScope::acquire(limits) {
        Ok(scope) => return Ok(Backend::Scope(scope)),
        Err(error) => error,
    };
    let why = format!("{own}; and no systemd user manager replies: {bus}");
    Err(match own {
        CgroupError::NoController { .. } => Unavailable::limit(&why),
        CgroupError::NotMounted
        | CgroupError::Outside(_)
        | CgroupError::Path { .. }
        | CgroupError::NoKill => Unavailable::new("cgroup", why),
    })
}
