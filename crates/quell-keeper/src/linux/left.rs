//! What a root leaves behind, if it is to be kept (`quell run --leak keep`): the front returns at the exit of the root, and the keeper
//! goes on alone until the last process has exited.
//!
//! The keeper writes into the record that the job has no front. Then it sends the front a message, and the front exits. A front that is killed
//! before the first step has the tree stopped, as always; after it the processes go on, because they live for their owner and not for
//! the front.

use quell_sys::fault::{FaultPoint, fault_point};

use super::channel::KeeperEvent;
use super::control_server::ControlServer;
use super::engine::{KeeperTimer, Supervisor, TRIM_AFTER};
use super::job::SupervisedJob;
use crate::StartError;

/// How many of the processes that are left are named to the caller.
const NAMED: usize = 16;

/// Opens the control socket of a job that may outlive its front. It is there from the start: a stop that comes at the exit of the
/// root reaches the keeper, whether the front is still there or not.
pub fn open_control(job: &SupervisedJob) -> Result<ControlServer, StartError> {
    let Some(store) = job.store.as_ref().filter(|_| job.keeps_left()) else {
        return Ok(ControlServer::default());
    };
    let control = ControlServer::open(store).map_err(|error| job.unrecorded(error))?;
    fault_point(FaultPoint::Listening);
    Ok(control)
}

impl Supervisor {
    /// Lets the front go. Before: the root has exited, and the processes that it left are on record.
    pub(super) fn release_front(&mut self) {
        if self.left {
            return;
        }
        // No front is left that could report an end which can't be written.
        if let Some(Err(error)) = self.job.store.as_ref().map(|store| store.reserve_space()) {
            self.warn(format!("no space could be reserved for the end of the record: {error}"));
        }
        (self.left, self.job.standby) = (true, None);
        self.record_state();
        fault_point(FaultPoint::LeftNoted);
        let left = self.run.evidence.left.clone();
        let mut members = self.run.containment.members_of(&left[..left.len().min(NAMED)]);
        for member in &mut members {
            member.command = self.job.mask.apply_to_cut(&member.command);
        }
        if let Some(mut front) = self.front.take() {
            // An error means that the front is gone.
            let _ = front.send(&KeeperEvent::Left { count: left.len(), members });
        }
        fault_point(FaultPoint::LeftTold);
        self.timers.arm(KeeperTimer::TrimMemory, TRIM_AFTER);
    }
}
