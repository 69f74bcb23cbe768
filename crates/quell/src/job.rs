//! The handle of one job.

use std::io;
use std::time::Instant;

use quell_core::{JobId, Receipt, Signal, Verdict};
use quell_guard::Verb;
use quell_keeper::control_protocol::{Answer, Call, LiveMember};
use quell_store::{JobDir, Liveness, Watch};

use crate::keeper_client::PATIENCE;
use crate::recover::{RecoveredBy, recover};
use crate::{Error, JobView, Quell, Result, recover_if_orphaned};

/// The handle of one job. It is only a name: dropping it changes nothing, and it is cheap to clone.
#[derive(Clone, Debug)]
pub struct Job {
    pub(crate) quell: Quell,
    dir: JobDir,
}

/// Which processes of a job get a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignalTo {
    /// The command itself.
    #[default]
    Root,
    /// All processes of the job.
    Tree,
}

/// Whether a job with survivors is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Removal {
    /// A job that is not proven dead stays, so that it can be stopped again.
    #[default]
    IfProvenDead,
    /// It is removed too. quell can't stop its processes after that.
    Force,
}

impl Job {
    pub(crate) fn new(quell: Quell, id: JobId) -> Self {
        let dir = quell.home().job(id);
        Self { quell, dir }
    }

    /// The id, which no other job has.
    pub fn id(&self) -> JobId {
        self.dir.id()
    }

    pub(crate) fn dir(&self) -> &JobDir {
        &self.dir
    }

    /// The present state of the job. A lost job is finished first.
    pub fn view(&self) -> Result<JobView> {
        recover_if_orphaned(&self.dir)?;
        JobView::look(&self.dir)
    }

    /// What happened, once the job has ended.
    pub fn receipt(&self) -> Result<Receipt> {
        self.dir.receipt().map_err(|error| match error.kind() {
            // It was removed meanwhile.
            std::io::ErrorKind::NotFound if !self.dir.exists() => Error::NoSuchJob(self.id().to_string()),
            _ => Error::io(self.dir.dir().join("receipt.json"))(error),
        })
    }

    /// Whether it has ended, or never existed.
    pub(crate) fn has_ended(&self) -> Result<bool> {
        match self.dir.liveness().map_err(Error::io(self.dir.live_path()))? {
            Liveness::Ended => Ok(true),
            Liveness::Supervised | Liveness::Finishing | Liveness::Orphaned(_) => Ok(false),
        }
    }

    /// Whether it has ended. A lost job is finished first: the policy must allow that, unless the job is a test run that was started
    /// through this handle.
    pub(crate) fn has_ended_now(&self) -> Result<bool> {
        let is_own = self.quell.started == Some(self.id());
        recover(&self.dir, if is_own { RecoveredBy::Stop } else { RecoveredBy::Reader })?;
        self.has_ended()
    }

    /// Watches for changes of the job's record, and for the exit of its keepers.
    pub(crate) fn watch(&self) -> Result<Watch> {
        let failed = || Error::io(self.dir.dir());
        let mut watch = Watch::new().map_err(failed())?;
        for path in [self.dir.dir().to_owned(), self.dir.live_path()] {
            match watch.add_quietly(&path) {
                Err(error)
                    if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    return Err(failed()(error));
                }
                // It is gone already, which the caller finds out before it waits.
                Ok(()) | Err(_) => {}
            }
        }
        Ok(watch)
    }

    /// Sends a signal. Returns how many processes got it.
    pub fn signal(&self, signal: Signal, to: SignalTo) -> Result<usize> {
        self.quell.permit(Verb::Signal, &self.id().to_string())?;
        match self.call(&Call::Signal { signal, tree: to == SignalTo::Tree }, PATIENCE)? {
            Answer::Signaled { sent } => Ok(sent),
            other => Err(self.unexpected(&other)),
        }
    }

    /// The processes of a live job, parents first. [`Job::tree`] also knows those of a job that has ended.
    pub fn members(&self) -> Result<Vec<LiveMember>> {
        match self.call(&Call::ListMembers, PATIENCE)? {
            Answer::Members(members) => Ok(members),
            other => Err(self.unexpected(&other)),
        }
    }

    /// How much the tree has done so far: CPU time in clock ticks, and bytes of output.
    pub(crate) fn vitals_by(&self, deadline: Option<Instant>) -> Result<(u64, u64)> {
        match self.call_by(&Call::Vitals, PATIENCE, deadline)? {
            Answer::Vitals { cpu, output } => Ok((cpu, output)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Removes the record of a job that has ended. A lost job is finished first.
    pub fn remove(&self, how: Removal) -> Result<()> {
        self.quell.permit(Verb::Rm, &self.id().to_string())?;
        match (recover_if_orphaned(&self.dir), how) {
            (Err(Error::NotProvenDead(_)), Removal::Force) => {}
            // An end that is not proven is reported once before the record is removed.
            (Ok(true), Removal::IfProvenDead) => {
                if let Verdict::Unproven { why } = self.receipt()?.verdict {
                    return Err(Error::NotProvenDead(format!("{} is not proven dead: {why}", self.id())));
                }
            }
            (other, _) => drop(other?),
        }
        crate::gc::remove(self.quell.home(), self.id(), how)
    }
}
