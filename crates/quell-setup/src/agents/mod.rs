//! The agents. Each has a file with its facts: where its configuration is and what an entry looks like there.

mod claude;
mod codex;
mod cursor;
mod gemini;
mod opencode;
mod vscode;
mod windsurf;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::edit::{EntryValue, SyntaxKind};
use crate::places::Places;

/// The name of quell's entry among an agent's servers.
pub(crate) const SERVER: &str = "quell";

/// An AI agent that `quell setup` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Agent {
    /// Claude Code.
    Claude,
    /// Codex CLI, and its app and editor extension, which read the same file.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// opencode.
    Opencode,
    /// Cursor.
    Cursor,
    /// Visual Studio Code.
    Vscode,
    /// Windsurf.
    Windsurf,
}

impl Agent {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Claude, Self::Codex, Self::Gemini, Self::Opencode, Self::Cursor, Self::Vscode, Self::Windsurf];

    /// The word for it on the command line and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Cursor => "cursor",
            Self::Vscode => "vscode",
            Self::Windsurf => "windsurf",
        }
    }

    /// Its name, for people.
    pub fn title(self) -> &'static str {
        self.facts().title
    }

    /// What the user still has to do or to know after a change.
    pub fn note(self, scope: ConfigScope) -> &'static str {
        match scope {
            ConfigScope::User => self.facts().user_note,
            ConfigScope::Project => self.facts().project_note,
        }
    }

    pub(crate) fn facts(self) -> &'static AgentFacts {
        match self {
            Self::Claude => &claude::FACTS,
            Self::Codex => &codex::FACTS,
            Self::Gemini => &gemini::FACTS,
            Self::Opencode => &opencode::FACTS,
            Self::Cursor => &cursor::FACTS,
            Self::Vscode => &vscode::FACTS,
            Self::Windsurf => &windsurf::FACTS,
        }
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which of an agent's configuration files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ConfigScope {
    /// The user's own, for all projects.
    User,
    /// The one in the current directory.
    Project,
}

impl ConfigScope {
    /// The word for it in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
        }
    }
}

/// How a server's command is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandStyle {
    /// `command` is the program, `args` are its arguments.
    CommandAndArgs,
    /// `command` is a list of the program and its arguments.
    OneList,
}

/// What has to be known of an agent to configure it.
pub(crate) struct AgentFacts {
    pub title: &'static str,
    pub syntax: SyntaxKind,
    /// Where servers are, as paths of keys; `*` is any key. quell's own entry goes into the first one.
    pub tables: &'static [&'static [&'static str]],
    pub style: CommandStyle,
    /// The value of `type` for a server that is started as a process. An entry may leave it out.
    pub stdio_type: &'static str,
    /// Whether quell's entry says so.
    pub writes_type: bool,
    /// How long one call may wait: below the time after which this agent gives a call up. None for quell's default.
    pub max_wait: Option<&'static str>,
    /// Further keys of quell's entry.
    pub more: &'static [(&'static str, ConstValue)],
    pub user_file: fn(&Places) -> PathBuf,
    /// Names below the project's directory. The first file that exists is used, or the first name if none exists. Empty if the
    /// agent has no file for a project.
    pub project_files: &'static [&'static str],
    pub user_note: &'static str,
    pub project_note: &'static str,
}

/// A value in a table of facts.
pub(crate) enum ConstValue {
    Flag(bool),
    Number(i64),
    Words(&'static [&'static str]),
}

impl AgentFacts {
    /// The file of a scope. None if the agent has no such file.
    pub fn file(&self, places: &Places, scope: ConfigScope) -> Option<PathBuf> {
        match scope {
            ConfigScope::User => Some((self.user_file)(places)),
            ConfigScope::Project => first_existing(&places.project, self.project_files),
        }
    }

    /// quell's own entry.
    pub fn entry(&self, quell: &str) -> Vec<(&'static str, EntryValue)> {
        let text = |text: &str| EntryValue::Text(text.to_owned());
        let mut args = vec!["mcp".to_owned()];
        if let Some(wait) = self.max_wait {
            args.extend(["--max-wait".to_owned(), wait.to_owned()]);
        }
        let mut entry = Vec::new();
        if self.writes_type {
            entry.push(("type", text(self.stdio_type)));
        }
        match self.style {
            CommandStyle::CommandAndArgs => {
                entry.extend([("command", text(quell)), ("args", EntryValue::Words(args))]);
            }
            CommandStyle::OneList => {
                args.insert(0, quell.to_owned());
                entry.push(("command", EntryValue::Words(args)));
            }
        }
        entry.extend(self.more.iter().map(|(key, value)| (*key, value.into())));
        entry
    }
}

impl From<&ConstValue> for EntryValue {
    fn from(value: &ConstValue) -> Self {
        match value {
            ConstValue::Flag(flag) => Self::Flag(*flag),
            ConstValue::Number(number) => Self::Number(*number),
            ConstValue::Words(words) => Self::Words(words.iter().map(|word| (*word).to_owned()).collect()),
        }
    }
}

/// The first of these names that exists in `dir`, else the first name. None without names.
fn first_existing(dir: &Path, names: &[&str]) -> Option<PathBuf> {
    let existing = names.iter().map(|name| dir.join(name)).find(|path| path.symlink_metadata().is_ok());
    existing.or_else(|| names.first().map(|name| dir.join(name)))
}
