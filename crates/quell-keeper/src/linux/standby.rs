//! The standby of a background job: it watches the keeper as a front does, and finishes the stop if the keeper is killed. It
//! shares the keeper's lock, and the pipes with output that the keeper has not read.

use std::os::unix::net::UnixStream;

use quell_contain::KeeperCgroup;
use quell_core::{Cause, RootOutcome, Verdict};

use super::background::BackgroundSetup;
use super::keeper_watch::{KeeperOutcome, KeeperWatch};
use super::takeover::TakeoverResources;
use crate::StartError;

/// Waits until the job has ended. Afterwards `starter` is set if it still waits for an answer.
pub fn watch_keeper(
    mut watch: KeeperWatch,
    setup: BackgroundSetup,
    starter: &mut Option<UnixStream>,
) -> Result<(), StartError> {
    watch.report.base = setup.keeper_cgroup.as_ref().and_then(KeeperCgroup::base).map(ToOwned::to_owned);
    watch.starter = starter.take();
    let outcome = watch.run();
    *starter = watch.starter.take();
    match outcome {
        KeeperOutcome::Failed(error) => Err(error),
        // Only a front is let go.
        KeeperOutcome::Left(_) => Ok(()),
        KeeperOutcome::Done(finished) => match (starter, finished.receipt.root.outcome) {
            (Some(_), RootOutcome::NotStarted { .. }) if finished.receipt.cause == Cause::OwnerGone => {
                Err(StartError::OwnerGone("it exited while the job was being started".into()))
            }
            (Some(_), RootOutcome::NotStarted { reason }) => Err(StartError::Stopped(reason)),
            (Some(_) | None, _) => Ok(()),
        },
        KeeperOutcome::Lost => {
            let resources = TakeoverResources {
                helper: setup.helper,
                lock: Some(setup.lock),
                preexisting_children: Vec::new(),
                output: Some(setup.pipes),
            };
            match (starter, watch.take_over(resources).receipt.verdict) {
                (Some(_), Verdict::Gone) => {
                    Err(StartError::Start("its keeper was killed while it was being started".into()))
                }
                (Some(_) | None, _) => Ok(()),
            }
        }
    }
}
