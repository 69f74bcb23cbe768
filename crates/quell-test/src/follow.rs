//! Follows a run to its end: the command exits, its other processes get a moment to exit as well, and then they are stopped.

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

/// What was seen of a run.
#[derive(Debug, Default)]
pub(super) struct ObservedRun {
    /// The command exited before a stop was asked for.
    pub exited_by_itself: bool,
    /// Its other processes had to be stopped.
    pub had_leftovers: bool,
    /// The processes right before the time limit.
    pub before_timeout: Vec<LiveMember>,
    /// The processes right before that stop.
    pub before_stop: Vec<LiveMember>,
    is_stopping: bool,
}

/// Follows the job until it has ended.
pub(super) fn follow(job: &Job, begun: Instant, timeout: Option<Duration>) -> Result<ObservedRun> {
    let mut seen = ObservedRun::default();
    let mut feed = EventFeed::new(job);
    let soon = timeout.map(|timeout| begun + timeout.saturating_sub(lead(timeout)));
    if !seen.wait_for_root(job, &mut feed, soon)? {
        // A job that ends right now has no tree; the receipt has its processes.
        seen.before_timeout = job.members().unwrap_or_default();
        seen.wait_for_root(job, &mut feed, None)?;
    }
    let waited = job.wait(&WaitFor::end(), seen.exited_by_itself.then_some(LINGER))?;
    if waited.met != Condition::Nothing {
        return Ok(seen);
    }
    // A job that ends right now has no tree; the receipt has its processes.
    seen.before_stop = job.members().unwrap_or_default();
    let options = StopOptions::default().reason("the tests left it behind").only_leftovers();
    match job.stop_with(&options) {
        Ok(stopped) => seen.had_leftovers = !stopped.already_ended(),
        // The receipt names the survivors.
        Err(Error::NotProvenDead(_)) if job.receipt().is_ok() => seen.had_leftovers = true,
        Err(error) => return Err(error),
    }
    Ok(seen)
}

impl ObservedRun {
    /// Waits until the command itself has exited, or a stop of the job is under way. False if `until` comes first.
    fn wait_for_root(&mut self, job: &Job, feed: &mut EventFeed, until: Option<Instant>) -> Result<bool> {
        let mut watch = job.watch()?;
        loop {
            // If the job has ended, its history is complete: so this is read before the history.
            let over = job.has_ended_now()?;
            for event in feed.read()? {
                match event.what {
                    EventKind::RootExited { .. } if !self.is_stopping => self.exited_by_itself = true,
                    EventKind::TimedOut
                    | EventKind::StopAsked { .. }
                    | EventKind::Asked { .. }
                    | EventKind::Lost { .. } => self.is_stopping = true,
                    _ => {}
                }
            }
            if over || self.exited_by_itself || self.is_stopping {
                return Ok(true);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(false);
            }
            watch.wait(until).map_err(Error::io(job.dir().dir()))?;
        }
    }
}
