//! What to do at events of a job.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An event that a hook can be called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// The program runs.
    Started,
    /// It is ready.
    Ready,
    /// It has ended.
    Ended,
    /// Its time was up.
    TimedOut,
    /// It is being killed: it did not end when asked, or the kill was requested.
    Killed,
    /// Processes had outlived the root.
    Leaked,
    /// Its keeper was lost.
    Lost,
}

/// What a hook does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HookAction {
    /// Runs a command, with the event as JSON on its standard input.
    Run(Vec<String>),
    /// Appends the event as a line of JSON to a file.
    Append(
        #[serde(with = "crate::paths::whole")]
        #[cfg_attr(feature = "schema", schemars(with = "PathBuf"))]
        PathBuf,
    ),
}

/// An action at events of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hook {
    /// The events.
    pub on: Vec<HookEvent>,
    /// What to do.
    pub action: HookAction,
    /// How long it may take, in seconds.
    #[serde(with = "crate::seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub timeout: Duration,
}
