//! The course of a run: the command exits, its other processes get a moment to exit as well, and then they are stopped.

use std::time::{Duration, Instant};

use quell::binary::JobInternals;
use quell::{Condition, Error, EventFeed, Job, Result, StopOptions, WaitFor};
use quell_core::EventKind;
use quell_keeper::control_protocol::LiveMember;

/// How long other processes may outlive the command: helpers such as Python's resource tracker exit by themselves right after it,
/// and are not a leak.
const LINGER: Duration = Duration::from_secs(1);

/// How long before the time limit the processes are listed: at the limit the keeper stops them at once.
fn lead(timeout: Duration) -> Duration {
    (timeout / 10).clamp(Duration::from_millis(20), Duration::from_millis(200))
}

/// What is known of the course.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// The command exited before a stop was asked for.
    pub own_end: bool,
    /// Its other processes had to be stopped.
    pub left: bool,
    /// The processes right before the time limit.
    pub before_timeout: Vec<LiveMember>,
    /// The processes right before that stop.
    pub before_stop: Vec<LiveMember>,
    asked: bool,
}

impl Course {
    /// Follows the job until it has ended.
    pub fn follow(job: &Job, begun: Instant, timeout: Option<Duration>) -> Result<Self> {
        let mut course = Self::default();
        let mut feed = EventFeed::new(job);
        let soon = timeout.map(|timeout| begun + timeout.saturating_sub(lead(timeout)));
        if !course.wait_for_root(job, &mut feed, soon)? {
            // A job that ends right now has no tree; the receipt has its processes.
            course.before_timeout = job.members().unwrap_or_default();
            course.wait_for_root(job, &mut feed, None)?;
        }
        let waited = job.wait(&WaitFor::end(), course.own_end.then_some(LINGER))?;
        if waited.met != Condition::Nothing {
            return Ok(course);
        }
        // A job that ends right now has no tree; the receipt has its processes.
        course.before_stop = job.members().unwrap_or_default();
        let options = StopOptions::default().reason("the tests left it behind").only_leftovers();
        match job.stop_with(&options) {
            Ok(stopped) => course.left = !stopped.already_ended(),
            // The receipt names the survivors.
            Err(Error::NotProvenDead(_)) if job.receipt().is_ok() => course.left = true,
            Err(error) => return Err(error),
        }
        Ok(course)
    }

    /// Waits until the command itself has exited, or a stop of the job is under way. False if `until` comes first.
    fn wait_for_root(&mut self, job: &Job, feed: &mut EventFeed, until: Option<Instant>) -> Result<bool> {
        let mut watch = job.watch()?;
        loop {
            // If the job has ended, its history is complete: so this is read before the history.
            let over = job.has_ended_now()?;
            for event in feed.read()? {
                match event.what {
                    EventKind::RootExited { .. } if !self.asked => self.own_end = true,
                    EventKind::TimedOut | EventKind::StopAsked { .. } | EventKind::Asked { .. } => {
                        self.asked = true;
                    }
                    _ => {}
                }
            }
            if over || self.own_end || self.asked {
                return Ok(true);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(false);
            }
            watch.wait(until).map_err(Error::io(job.dir().dir()))?;
        }
    }
}
