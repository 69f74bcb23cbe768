//! How a job is stopped: from the first signal to the count.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Signal;

/// Which processes are asked to end first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AskScope {
    /// All processes of the job.
    #[default]
    Tree,
    /// Only the root, which shuts its own workers down. What is left after its exit is asked then.
    Root,
}

/// How a job is stopped: ask with `signal`, give the tree `grace` to end, then brake, kill and sweep until the count is
/// zero, for `verify` at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopPlan {
    /// The signal that asks processes to end.
    pub signal: Signal,
    /// Which processes it goes to first.
    #[serde(default)]
    pub ask: AskScope,
    /// How long the tree may take to end.
    #[serde(with = "crate::seconds")]
    pub grace: Duration,
    /// The longest grace if the front was killed: no caller waits, and the tree should be gone within a second.
    /// Also the shortest time that the rest of a tree gets when the root, which alone was asked, has exited late.
    #[serde(with = "crate::seconds")]
    pub brief: Duration,
    /// How long the kill may take before survivors are reported.
    #[serde(with = "crate::seconds")]
    pub verify: Duration,
}

impl StopPlan {
    /// The grace if no caller waits.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brief_grace_is_never_longer_than_the_grace() {
        let plan = StopPlan::default();
        assert_eq!(plan.brief_grace(), plan.brief);
        let grace = plan.brief / 2;
        assert_eq!(StopPlan { grace, ..plan }.brief_grace(), grace);
    }
}
