//! Editing a configuration file as text: comments, order, indentation and line ends stay. json.rs and toml.rs have one
//! editor each, with the same functions; cut.rs removes parts of JSON.

mod cut;
mod json;
mod toml;

use std::path::Path;

use crate::Error;
use crate::agents::{AgentFacts, CommandStyle};
use json::JsonText;
use toml::TomlText;

/// The syntax of a file. Every JSON file may have comments and trailing commas: whether the agent allows them is its own affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyntaxKind {
    Json,
    Toml,
}

/// A value in an entry that quell writes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EntryValue {
    Text(String),
    Words(Vec<String>),
    Flag(bool),
    Number(i64),
}

/// The keys that lead to a server.
pub(crate) type KeyPath = Vec<String>;

/// A server in a configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServerEntry {
    pub path: KeyPath,
    /// Program and arguments. None if the agent does not start it as a process.
    pub words: Option<Vec<String>>,
}

/// What is wrong with a text. The keys are those that lead to the mistake.
#[derive(Debug, PartialEq)]
pub(crate) enum EditError {
    Unparsable(String),
    WrongType { path: KeyPath, expected: &'static str },
    Duplicate(KeyPath),
}

type Result<T> = std::result::Result<T, EditError>;

impl EditError {
    /// The same about the file at `path`.
    pub fn at(self, path: &Path) -> Error {
        let path = path.to_owned();
        match self {
            Self::Unparsable(why) => Error::Unparsable { path, why },
            Self::WrongType { path: keys, expected } => {
                Error::WrongType { path, key: shown(&keys), expected }
            }
            Self::Duplicate(keys) => Error::DuplicateKey { path, key: shown(&keys) },
        }
    }
}

/// The keys as people read them.
pub(crate) fn shown(keys: &[String]) -> String {
    if keys.is_empty() { "the whole of it".into() } else { format!("`{}`", keys.join(".")) }
}

/// A parsed configuration file.
pub(crate) enum ConfigText {
    Json(JsonText),
    Toml(TomlText),
}

impl ConfigText {
    /// Parses a text. An empty one has no servers.
    pub fn parse(syntax: SyntaxKind, text: &str) -> Result<Self> {
        Ok(match syntax {
            SyntaxKind::Json => Self::Json(JsonText::parse(text)?),
            SyntaxKind::Toml => Self::Toml(TomlText::parse(text)?),
        })
    }

    /// All servers, in the order of the tables and of the file.
    pub fn servers(&self, facts: &AgentFacts) -> Result<Vec<ServerEntry>> {
        match self {
            Self::Json(text) => text.servers(facts),
            Self::Toml(text) => text.servers(facts),
        }
    }

    /// The server at `path`.
    pub fn server(&self, facts: &AgentFacts, path: &[String]) -> Result<Option<ServerEntry>> {
        match self {
            Self::Json(text) => text.server(facts, path),
            Self::Toml(text) => text.server(facts, path),
        }
    }

    /// Whether there is a table at `path`.
    pub fn has_table(&self, path: &[String]) -> Result<bool> {
        match self {
            Self::Json(text) => text.has_table(path),
            Self::Toml(text) => text.has_table(path),
        }
    }

    /// Adds a server at the end of its table. Before: the table has no server of that name.
    pub fn add(&mut self, path: &[String], entry: Vec<(&'static str, EntryValue)>) -> Result<()> {
        match self {
            Self::Json(text) => text.add(path, entry),
            Self::Toml(text) => text.add(path, entry),
        }
    }

    /// Replaces the program of a server.
    pub fn set_program(&mut self, style: CommandStyle, path: &[String], program: &str) -> Result<()> {
        match self {
            Self::Json(text) => text.set_program(style, path, program),
            Self::Toml(text) => text.set_program(style, path, program),
        }
    }

    /// Removes the first `count` words of a server's list of words, and puts `front` before the rest. The list is `args`, or for
    /// [`CommandStyle::OneList`] the command.
    pub fn splice(
        &mut self,
        style: CommandStyle,
        path: &[String],
        count: usize,
        front: &[String],
    ) -> Result<()> {
        match self {
            Self::Json(text) => text.splice(style, path, count, front),
            Self::Toml(text) => text.splice(style, path, count, front),
        }
    }

    /// Removes what is at `path`, if there is something.
    pub fn remove(&mut self, path: &[String]) -> Result<()> {
        match self {
            Self::Json(text) => text.remove(path),
            Self::Toml(text) => text.remove(path),
        }
    }

    /// Removes the table at `path` if it is empty.
    pub fn remove_if_empty(&mut self, path: &[String]) -> Result<()> {
        match self {
            Self::Json(text) => text.remove_if_empty(path),
            Self::Toml(text) => text.remove_if_empty(path),
        }
    }

    pub fn text(&self) -> String {
        match self {
            Self::Json(text) => text.text(),
            Self::Toml(text) => text.text(),
        }
    }
}

/// The program and the arguments of an entry, by what its keys say. None if the agent does not start it as a process.
fn words_of(
    facts: &AgentFacts,
    path: &[String],
    text: impl Fn(&str) -> Result<Option<String>>,
    list: impl Fn(&str) -> Result<Option<Vec<String>>>,
    has: impl Fn(&str) -> Result<bool>,
) -> Result<Option<Vec<String>>> {
    if !has("command")? || text("type")?.is_some_and(|kind| kind != facts.stdio_type) {
        return Ok(None);
    }
    let words = match facts.style {
        CommandStyle::CommandAndArgs => {
            let program = text("command")?.unwrap_or_default();
            std::iter::once(program).chain(list("args")?.unwrap_or_default()).collect()
        }
        CommandStyle::OneList => list("command")?.unwrap_or_default(),
    };
    match words.first() {
        Some(program) if !program.is_empty() => Ok(Some(words)),
        _ => Err(EditError::WrongType { path: below(path, "command"), expected: "the name of a program" }),
    }
}

/// The key of the list of words.
fn list_key(style: CommandStyle) -> &'static str {
    match style {
        CommandStyle::CommandAndArgs => "args",
        CommandStyle::OneList => "command",
    }
}

fn below(path: &[String], key: &str) -> KeyPath {
    path.iter().cloned().chain([key.to_owned()]).collect()
}

/// The part to edit is missing. Callers check that it exists, so this is a defect of quell, which must not become a panic.
fn no_path() -> EditError {
    EditError::Unparsable("the part to edit is not there".into())
}
