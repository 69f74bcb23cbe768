//! The owner: the process that a job lives for.

use std::path::Path;

use quell_core::{Background, ContainmentKind, OnOwnerExit, Owner, ProcId};
use quell_store::{Home, Liveness};
use quell_sys::PidFd;

use crate::RunError;

/// Pins the owner. It must be alive, and the process that is meant: PIDs are reused.
pub fn pin_owner(owner: ProcId) -> Result<PidFd, RunError> {
    let pidfd = PidFd::open(owner.pid).ok();
    let same = |pidfd: &PidFd| {
        quell_sys::stat(owner.pid).is_ok_and(|stat| stat.start == owner.start) && pidfd.is_alive()
    };
    pidfd.filter(same).ok_or_else(|| RunError::OwnerGone(format!("process {}", owner.pid)))
}

/// Pins the owner of a background job: a process, or the keeper of another job.
pub fn open_owner(home: &Path, background: &Background) -> Result<Option<PidFd>, RunError> {
    let (owner, what) = match background.owner {
        None => return Ok(None),
        Some(Owner::Process { id }) => (Some(id), format!("process {}", id.pid)),
        Some(Owner::Job { job }) => {
            let outer = Home::at(home).job(job);
            let record = outer.record().ok();
            let held = record.as_ref().and_then(|record| record.held);
            let keeper = record.and_then(|record| record.keeper);
            let unseen = keeper.is_some_and(|keeper| !quell_contain::is_alive(keeper));
            if held == Some(ContainmentKind::Pidns)
                && unseen
                && matches!(outer.liveness(), Ok(Liveness::Supervised))
            {
                // This process is in its PID namespace, where its keeper has no PID. Nothing in there outlives it.
                return Ok(None);
            }
            (keeper, format!("job {job}"))
        }
    };
    let pinned = owner.and_then(|owner| pin_owner(owner).ok());
    match (pinned, background.on_owner_exit) {
        (None, OnOwnerExit::Stop) => Err(RunError::OwnerGone(what)),
        (pinned, OnOwnerExit::Stop | OnOwnerExit::Keep) => Ok(pinned),
    }
}
