//! The stop plan: the ladder from a polite request to the count, as data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Signal;

/// Which processes the polite signal goes to first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AskScope {
    /// All processes of the job.
    #[default]
    Tree,
    /// The root alone, which shuts its own workers down. What is left when it has exited is asked then.
    Root,
}

/// How a job is stopped: ask with `signal`, give the whole set `grace` to end, then brake, kill and sweep until the
/// count is zero, for `verify` at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopPlan {
    /// The first, polite signal.
    pub signal: Signal,
    /// Which processes it goes to first.
    #[serde(default)]
    pub ask: AskScope,
    /// How long the set may take to end on it.
    #[serde(with = "crate::seconds")]
    pub grace: Duration,
    /// The most of the grace that is given when the process that the user called was killed: nobody is left to wait,
    /// and the tree is to be gone within a second. Also the least that the rest of a tree gets when the root, which was
    /// asked alone, has exited at the end of the grace.
    #[serde(with = "crate::seconds")]
    pub brief: Duration,
    /// How long the kill may take to be proven before survivors are reported.
    #[serde(with = "crate::seconds")]
    pub verify: Duration,
}

impl StopPlan {
    /// The grace when nobody is left to wait, and the least for what a root that was asked alone has left.
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
            ask: AskScope::Tree,
            grace: Duration::from_secs(5),
            brief: Duration::from_millis(500),
            verify: Duration::from_secs(10),
        }
    }
}
