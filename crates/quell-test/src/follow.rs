//! Follows a run to its end: the command exits, its other processes get a second to exit as well, and are stopped then.

use std::time::{Duration, Instant};

use quell::binary::JobInternals;
use quell::{Condition, Error, EventFeed, Job, Result, StopOptions, WaitFor};
use quell_core::EventKind;
use quell_keeper::control_protocol::LiveMember;

/// How long other processes may outlive the command. Helpers such as Python's resource tracker exit right after it and are not a
/// leak.
const LINGER: Duration = Duration::from_secs(1);

/// How long before the time limit the processes are listed. At the limit the keeper stops them at once.
fn listing_lead(timeout: Duration) -> Duration {
    (timeout / 10).clamp(Duration::from_millis(20), Duration::from_millis(200))
}

/// What `follow` has seen of a run.
#[derive(Debug, Default)]
pub(super) struct ObservedRun {
    /// The command exited before a stop was requested.
    pub exited_by_itself: bool,
    /// Other processes outlived the command and were stopped.
    pub had_leftovers: bool,
    /// The processes right before the time limit.
    pub before_timeout: Vec<LiveMember>,
    /// The processes that outlived the command, right before they were stopped.
    pub before_stop: Vec<LiveMember>,
    is_stopping: bool,
}

/// Follows the job until it has ended.
pub(super) fn follow(job: &Job, begun: Instant, timeout: Option<Duration>) -> Result<ObservedRun> {
    let mut seen = ObservedRun::default();
    let mut feed = EventFeed::new(job);
    let soon = timeout.map(|timeout| begun + timeout.saturating_sub(listing_lead(timeout)));
    if !seen.wait_for_root(job, &mut feed, soon)? {
        // This fails if the job ends right now. The receipt has the processes then.
        seen.before_timeout = job.members().unwrap_or_default();
        seen.wait_for_root(job, &mut feed, None)?;
    }
    let waited = job.wait(&WaitFor::end(), seen.exited_by_itself.then_some(LINGER))?;
    if waited.met != Condition::Nothing {
        return Ok(seen);
    }
    // As above.
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
    /// Waits until the command has exited or a stop of the job has begun. Returns false if `until` is reached first.
    fn wait_for_root(&mut self, job: &Job, feed: &mut EventFeed, until: Option<Instant>) -> Result<bool> {
        let mut watch = job.watch()?;
        loop {
            // Checked before the events are read: once the job has ended, its events are complete.
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
