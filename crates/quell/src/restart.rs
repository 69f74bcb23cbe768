//! Restarting a job: the same command as another job, once the old one is stopped.

use std::fs::{File, TryLockError};
use std::os::fd::OwnedFd;

use quell_core::{JobId, Mode, Stdin};
use quell_sys::fault::{FaultPoint, fault_point};

use quell_guard::Verb;

use crate::start::{is_inside_a_job, open_input, owner_lives};
use crate::view::about;
use crate::{Error, Job, Result, StopOptions};

/// How many restarts of restarts are followed back.
const FOLLOWED: usize = 1000;

impl Job {
    /// Stops it if it is not over, and starts the same command anew, as a job with another id and the same name. Refused
    /// as long as anything of the old tree is known to be alive. Whatever can be known to prevent the start is found out
    /// before anything is stopped: the guard does not let the command be started, it is in the foreground, what it reads
    /// can't be had again, its directory or its program is gone, somebody else restarts it or has done so.
    pub fn restart(&self, stop: &StopOptions) -> Result<Job> {
        self.quell.permit(Verb::Restart, &self.id().to_string())?;
        let unreadable = |name: &str| about(&self.dir().dir().join(name));
        if self.dir().spec().map_err(unreadable("spec.json"))?.request.is_foreground() {
            return Err(Error::State(format!("{} was in the foreground: run it again", self.id())));
        }
        // What the specification has of it may be masked.
        let mut request = self.dir().launch().map_err(unreadable("launch.private.json"))?.request;
        let Mode::Background(background) = &mut request.mode else {
            return Err(Error::State(format!("{} was in the foreground: run it again", self.id())));
        };
        if background.test.is_some() {
            // The guard judges tests by more than the record holds: what was approved then is not approved now.
            return Err(Error::State(format!("{} is a test run: run it again with `quell test`", self.id())));
        }
        let _restarting = self.lock_restart()?;
        if let Some(by) = self.successor()? {
            let id = self.id();
            return Err(Error::State(format!("{id} was restarted before, as {by}, which is alive")));
        }
        let stdin = self.input_again(&background.stdin)?;
        background.restarted_from = Some(self.id());
        background.nested = is_inside_a_job();
        // A job whose owner is gone is restarted without one.
        background.owner = background.owner.filter(|owner| owner_lives(self.quell.home(), owner));
        crate::admit::check_start(self.quell.home(), &request)?;
        quell_keeper::check(&request)?;
        let _ = self.stop_permitted(stop)?;
        fault_point(FaultPoint::RestartStopped);
        self.quell.start_request(&request, stdin)
    }

    /// Holds others off who would restart it too: each would start a job. The kernel lets go of it if this process dies.
    fn lock_restart(&self) -> Result<File> {
        // Its keeper has the directory itself locked.
        let path = self.dir().dir().join("launch.private.json");
        let launch = File::open(&path).map_err(Error::io(path))?;
        match launch.try_lock() {
            Ok(()) => Ok(launch),
            Err(TryLockError::WouldBlock) => {
                Err(Error::State(format!("{} is being restarted by another quell", self.id())))
            }
            Err(TryLockError::Error(error)) => Err(Error::io(self.dir().dir())(error)),
        }
    }

    /// The live job that came of restarting this one, or of restarting that one, and so on.
    fn successor(&self) -> Result<Option<JobId>> {
        let from = |job: &Job| job.dir().spec().ok()?.request.as_background()?.restarted_from;
        for job in self.quell.live()? {
            let before = |id: &JobId| from(&self.quell.job_with(*id));
            let mut line = std::iter::successors(from(&job), before).take(FOLLOWED);
            if line.any(|id| id == self.id()) && !job.is_over_now()? {
                return Ok(Some(job.id()));
            }
        }
        Ok(None)
    }

    /// Whether it is over; one whose keeper was lost is finished first.
    fn is_over_now(&self) -> Result<bool> {
        crate::settle_lost(self.dir())?;
        self.has_ended()
    }

    /// What it reads, opened again.
    fn input_again(&self, stdin: &Stdin) -> Result<OwnedFd> {
        match stdin {
            Stdin::File(path) => open_input(path),
            // Whatever that was, it is not this process's.
            Stdin::Inherited => Err(Error::State(format!(
                "{} reads the standard input of the process that started it, which can't be opened again: start it as a new job",
                self.id()
            ))),
            Stdin::Null | Stdin::Pipe => open_input("/dev/null".as_ref()),
        }
    }
}
