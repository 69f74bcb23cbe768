//! Where a job is in its life, as people and programs read it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It is on record; nothing has been started.
    Created,
    /// Its program is being started.
    Starting,
    /// Its program runs.
    Running,
    /// It runs and has shown that it is ready.
    Ready,
    /// It is being stopped.
    Stopping,
    /// It waits to be started again.
    Waiting,
    /// It has ended.
    Ended,
    /// It has not ended, and nobody keeps it.
    Lost,
}

/// A text that is not a state of a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no state of a job: there are {all}", all = JobState::ALL.map(JobState::as_str).join(", "))]
pub struct InvalidState(String);

impl JobState {
    /// All of them, in the order of a life.
    pub const ALL: [Self; 8] = [
        Self::Created,
        Self::Starting,
        Self::Running,
        Self::Ready,
        Self::Stopping,
        Self::Waiting,
        Self::Ended,
        Self::Lost,
    ];

    /// The word that people and programs read.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Ready => "ready",
            Self::Stopping => "stopping",
            Self::Waiting => "waiting",
            Self::Ended => "ended",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for JobState {
    type Err = InvalidState;

    fn from_str(text: &str) -> Result<Self, InvalidState> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| InvalidState(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_json_is_the_word_that_is_parsed() {
        for state in JobState::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("{:?}", state.as_str()));
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        assert!("draining".parse::<JobState>().is_err());
    }
}
