//! The stop plan: the ladder from a polite request to the count, as data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Signal;

/// How a job is stopped: ask with `signal`, give the whole set `grace` to end, then brake, kill and sweep until the
/// count is zero, for `verify` at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopPlan {
    /// The first, polite signal.
    pub signal: Signal,
    /// How long the set may take to end on it.
    #[serde(deserialize_with = "crate::read_duration")]
    pub grace: Duration,
    /// The most of the grace that is given when the process that the user called was killed: nobody is left to wait,
    /// and the tree is to be gone within a second.
    #[serde(deserialize_with = "crate::read_duration")]
    pub brief: Duration,
    /// How long the kill may take to be proven before survivors are reported.
    #[serde(deserialize_with = "crate::read_duration")]
    pub verify: Duration,
}

impl StopPlan {
    /// The grace when nobody is left to wait.
    pub fn brief_grace(&self) -> Duration {
        self.grace.min(self.brief)
    }
}

impl Default for StopPlan {
    /// TERM, five seconds (half a second if the front was killed), and ten for the proof: the teardown of thousands of
    /// processes takes seconds.
    fn default() -> Self {
        Self {
            signal: Signal::TERM,
            grace: Duration::from_secs(5),
            brief: Duration::from_millis(500),
            verify: Duration::from_secs(10),
        }
    }
}
