//! The course of a run: its tests end, what they started gets a moment to end as well, and then it is stopped.

use std::time::{Duration, Instant};

use quell::binary::JobInternals;
use quell::{Condition, Error, EventFeed, Job, Result, StopOptions, WaitFor};
use quell_core::EventKind;
use quell_keeper::control::LiveMember;

/// How long what the tests have started may take to end when they have: helpers such as Python's resource tracker end by
/// themselves right behind them, and are no leak.
const LINGER: Duration = Duration::from_secs(1);

/// How long before the time is up the tree is looked at: when it is up, the keeper stops it at once.
fn lead(timeout: Duration) -> Duration {
    (timeout / 10).clamp(Duration::from_millis(20), Duration::from_millis(200))
}

/// What is learnt on the way.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// The command itself came to its end before anybody asked for that.
    pub own_end: bool,
    /// What it had started was still there afterwards, and had to be stopped.
    pub left: bool,
    /// Who was alive right before the time was up.
    pub before_timeout: Vec<LiveMember>,
    /// Who was alive right before what was left was stopped, if it was.
    pub before_stop: Vec<LiveMember>,
    asked: bool,
}

impl Course {
    /// Follows the job to its end. When this returns without an error it is over.
    pub fn follow(job: &Job, begun: Instant, timeout: Option<Duration>) -> Result<Self> {
        let mut course = Self::default();
        let mut feed = EventFeed::new(job);
        let soon = timeout.map(|timeout| begun + timeout.saturating_sub(lead(timeout)));
        if !course.wait_for_root(job, &mut feed, soon)? {
            // One that ends right now has no tree; its receipt tells of it.
            course.before_timeout = job.members().unwrap_or_default();
            course.wait_for_root(job, &mut feed, None)?;
        }
        let waited = job.wait(&WaitFor::end(), course.own_end.then_some(LINGER))?;
        if waited.met != Condition::Nothing {
            return Ok(course);
        }
        // One that ends right now has no tree; its receipt tells of it.
        course.before_stop = job.members().unwrap_or_default();
        let options = StopOptions::default().reason("the tests had left it behind").only_leftovers();
        match job.stop_with(&options) {
            Ok(stopped) => course.left = !stopped.already_ended(),
            // The receipt says so.
            Err(Error::NotProvenDead(_)) if job.receipt().is_ok() => course.left = true,
            Err(error) => return Err(error),
        }
        Ok(course)
    }

    /// Waits until the command itself has exited, or a stop of the job is under way. False if `until` comes first.
    fn wait_for_root(&mut self, job: &Job, feed: &mut EventFeed, until: Option<Instant>) -> Result<bool> {
        let mut watch = job.watch()?;
        loop {
            // Looked at before the history is read, which is whole then.
            let over = job.settle()?;
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
