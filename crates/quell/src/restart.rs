//! Restarting a job: the same command as a new job, once the old one is stopped.

use std::fs::{File, TryLockError};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use quell_core::{Cause, EventKind, JobId, Mode, Owner, Stdin};
use quell_sys::fault::{FaultPoint, fault_point};

use quell_guard::Verb;

use crate::start::{Around, is_inside_a_job, open_input, owner_lives};
use crate::view::about;
use crate::{Error, Job, Result, StopOptions};

/// How many restarts in a row are followed back.
const FOLLOWED: usize = 1000;
/// How long a stop waits for a restart of the same job: what a start takes on a busy machine.
const RESTART_TAKES: Duration = Duration::from_secs(10);
/// How long a restart waits for stops that look whether there is one.
const STOP_LOOKS: Duration = Duration::from_millis(200);
/// How often a lock is tried: no event reports that it is free.
const LOCK_LOOK: Duration = Duration::from_millis(5);

impl Job {
    /// Stops the job if it has not ended, and starts the same command as a new job with the same name. It is refused while a process
    /// of the old tree is known to be alive, and if another request has stopped the job meanwhile.
    ///
    /// Everything that can prevent the start is checked before anything is stopped: the policy, a job in the foreground, an input
    /// that can't be opened again, a missing directory or program, and another restart of the same job.
    pub fn restart(&self, stop: &StopOptions) -> Result<Job> {
        self.restart_with(stop, None)
    }

    /// The same for a new owner. A job that had no owner gets none.
    pub fn restart_owned_by(&self, owner: Owner, stop: &StopOptions) -> Result<Job> {
        self.restart_with(stop, Some(owner))
    }

    fn restart_with(&self, stop: &StopOptions, new_owner: Option<Owner>) -> Result<Job> {
        self.quell.permit(Verb::Restart, &self.id().to_string())?;
        let unreadable = |name: &str| about(&self.dir().dir().join(name));
        if self.dir().spec().map_err(unreadable("spec.json"))?.request.is_foreground() {
            return Err(Error::State(format!("{} was in the foreground: run it again", self.id())));
        }
        // Values in spec.json may be masked.
        let mut request = self.dir().launch().map_err(unreadable("launch.private.json"))?.request;
        let Mode::Background(background) = &mut request.mode else {
            return Err(Error::State(format!("{} was in the foreground: run it again", self.id())));
        };
        if background.test.is_some() {
            // The record does not have everything that the guard needs to decide about a test run.
            return Err(Error::State(format!("{} is a test run: run it again with `quell test`", self.id())));
        }
        let _restarting = self.lock_restart()?;
        if let Some(by) = self.successor()? {
            let id = self.id();
            return Err(Error::State(format!("{id} was restarted as {by}, which is alive")));
        }
        let stdin = self.input_again(&background.stdin)?;
        background.restarted_from = Some(self.id());
        background.nested = self.quell.around == Around::Caller && is_inside_a_job();
        // A job whose owner is gone is restarted without an owner.
        background.owner = match (background.owner, new_owner) {
            (Some(_), Some(owner)) => Some(owner),
            (owner, _) => owner.filter(|owner| owner_lives(self.quell.home(), owner)),
        };
        crate::admit::check_start(self.quell.home(), &request, self.quell.through.clone())?;
        quell_keeper::check(&request)?;
        let before = self.stops_asked();
        let _ = self.stop_permitted(stop)?;
        // One more is that of this restart.
        if self.stops_asked() > before + 1 {
            let id = self.id();
            return Err(Error::State(format!(
                "{id} was stopped by another request during the restart: it is not started again"
            )));
        }
        fault_point(FaultPoint::RestartStopped);
        self.quell.start_request(&request, stdin)
    }

    /// Prevents another restart at the same time, which would start a second job. The kernel releases the lock if this process dies.
    fn lock_restart(&self) -> Result<File> {
        // The keeper holds a lock on the directory itself.
        let path = self.dir().dir().join("launch.private.json");
        let launch = File::open(&path).map_err(Error::io(path))?;
        if try_until(STOP_LOOKS, || launch.try_lock()).map_err(Error::io(self.dir().dir()))? {
            return Ok(launch);
        }
        Err(Error::State(format!("{} is being restarted by another quell", self.id())))
    }

    /// How many requests to stop it are in its history. A history that can't be read says nothing.
    fn stops_asked(&self) -> usize {
        let events = self.dir().events().unwrap_or_default();
        let is_request = |what: &EventKind| matches!(what, EventKind::StopAsked { cause: Cause::User, .. });
        events.iter().filter(|event| is_request(&event.what)).count()
    }

    /// The job that a restart has started meanwhile, for a stop of this job, which has ended: a stop that comes during a restart is
    /// meant for both. Waits for the end of a restart that is under way.
    pub(crate) fn restarted_meanwhile(&self) -> Result<Option<Job>> {
        // A job in the foreground is not restarted, and one that is being removed neither.
        let Ok(launch) = File::open(self.dir().dir().join("launch.private.json")) else { return Ok(None) };
        match launch.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {}
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(None),
        }
        if !try_until(RESTART_TAKES, || launch.try_lock_shared()).map_err(Error::io(self.dir().dir()))? {
            return Err(Error::State(format!("{} has ended, but another quell is restarting it", self.id())));
        }
        drop(launch);
        Ok(self.successor()?.map(|id| self.quell.job_with(id)))
    }

    /// The live job that this one was restarted as, directly or through other restarts.
    fn successor(&self) -> Result<Option<JobId>> {
        let from = |job: &Job| job.dir().spec().ok()?.request.as_background()?.restarted_from;
        for job in self.quell.live()? {
            let before = |id: &JobId| from(&self.quell.job_with(*id));
            let mut line = std::iter::successors(from(&job), before).take(FOLLOWED);
            if line.any(|id| id == self.id()) && !job.has_ended_now()? {
                return Ok(Some(job.id()));
            }
        }
        Ok(None)
    }

    /// Opens the job's input again.
    fn input_again(&self, stdin: &Stdin) -> Result<OwnedFd> {
        match stdin {
            Stdin::File(path) => open_input(path),
            // This process has another standard input than the one that started the job.
            Stdin::Inherited => Err(Error::State(format!(
                "{} reads the standard input of the process that started it, which can't be opened again: start it as a new job",
                self.id()
            ))),
            Stdin::Null | Stdin::Pipe => open_input("/dev/null".as_ref()),
        }
    }
}

/// Tries to take a lock for so long. Returns whether it was taken.
fn try_until(
    time: Duration,
    mut try_lock: impl FnMut() -> std::result::Result<(), TryLockError>,
) -> std::io::Result<bool> {
    let until = Instant::now() + time;
    loop {
        match try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => return Ok(false),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_LOOK),
        }
    }
}
