//! What `quell setup --json` prints.

use std::path::PathBuf;

use serde::Serialize;

use crate::{Agent, ConfigScope};

/// The result of `quell setup`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SetupAnswer {
    /// The agent.
    pub agent: Agent,
    /// Which of its files.
    pub scope: ConfigScope,
    /// The file, with all links followed.
    pub file: PathBuf,
    /// What was asked for.
    pub action: SetupAction,
    /// Whether the file was changed. With `dry_run`: whether it would be.
    pub changed: bool,
    /// Whether nothing was written.
    pub dry_run: bool,
    /// Where the file is kept as it was before quell's entries. None if there was no file, or if nothing was written.
    pub backup: Option<PathBuf>,
    /// The text to paste, for `--print`.
    pub entry: Option<String>,
    /// What the file has then.
    pub state: SetupState,
}

impl SetupAnswer {
    /// The answer to a question that changes nothing.
    pub(crate) fn without_change(
        agent: Agent,
        scope: ConfigScope,
        file: PathBuf,
        action: SetupAction,
        state: SetupState,
    ) -> Self {
        Self { agent, scope, file, action, changed: false, dry_run: true, backup: None, entry: None, state }
    }
}

/// What `quell setup` was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SetupAction {
    /// To add quell.
    Add,
    /// To remove it: `--remove`.
    Remove,
    /// To look: `--check`.
    Check,
    /// To print what to paste: `--print`.
    Print,
}

/// What a configuration has of quell.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SetupState {
    /// Whether it has an entry that calls `quell mcp`.
    pub installed: bool,
    /// Whether it has, and everything in it that calls quell calls this quell.
    pub works: bool,
    /// The command of that entry.
    pub command: Option<Vec<String>>,
    /// The other servers.
    pub servers: Vec<SetupServer>,
    /// What is wrong, one sentence each.
    pub problems: Vec<String>,
}

/// A server in a configuration.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SetupServer {
    /// Its name.
    pub name: String,
    /// The keys that lead to it.
    pub keys: Vec<String>,
    /// How it is started.
    pub wrap: WrapState,
}

/// How a server is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum WrapState {
    /// By this quell.
    Wrapped,
    /// By a quell that is not there any more, or that is another one.
    Stale,
    /// By the agent itself.
    Plain,
    /// Not as a process: it has a URL.
    Remote,
}
