//! The owner: the process that a job lives for.

use std::path::Path;

use quell_core::{Background, ClientProcess, ContainmentKind, OnOwnerExit, Owner, ProcId};
use quell_store::{Home, Liveness};
use quell_sys::PidFd;

use crate::StartError;

/// Pins the owner. It must be alive.
pub fn pin_owner(owner: ProcId) -> Result<PidFd, StartError> {
    PidFd::of(owner).ok_or_else(|| StartError::OwnerGone(format!("process {}", owner.pid)))
}

/// The owner with the name that the kernel has for it now. Before: it is pinned, so its PID is its own.
pub fn named(owner: ProcId) -> ClientProcess {
    let name = quell_sys::stat(owner.pid).map(|stat| stat.comm).unwrap_or_default();
    ClientProcess { id: owner, name }
}

/// Pins the owner of a background job: a process, or the keeper of another job.
pub fn open_owner(home: &Path, background: &Background) -> Result<Option<PidFd>, StartError> {
    let (owner, what) = match background.owner {
        None => return Ok(None),
        Some(Owner::Process { id }) => (Some(id), format!("process {}", id.pid)),
        Some(Owner::Job { job }) => {
            let outer = Home::at(home).job(job);
            let record = outer.record().ok();
            let tree = record.as_ref().and_then(|record| record.state.tree());
            let held = tree.map(|tree| tree.containment);
            let keeper = record.and_then(|record| record.keeper);
            let unseen = keeper.is_some_and(|keeper| !quell_contain::is_alive(keeper));
            if held.is_some_and(ContainmentKind::has_init)
                && unseen
                && matches!(outer.liveness(), Ok(Liveness::Supervised))
            {
                // This process is in the owner's PID namespace, where the owner's keeper has no PID. No process in there
                // outlives the owner.
                return Ok(None);
            }
            (keeper, format!("job {job}"))
        }
    };
    let pinned = owner.and_then(|owner| pin_owner(owner).ok());
    match (pinned, background.on_owner_exit) {
        (None, OnOwnerExit::Stop) => Err(StartError::OwnerGone(what)),
        (pinned, OnOwnerExit::Stop | OnOwnerExit::Keep) => Ok(pinned),
    }
}
