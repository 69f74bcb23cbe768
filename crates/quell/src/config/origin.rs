//! Where a setting comes from.

use std::fmt;
use std::path::{Path, PathBuf};

use quell_core::parse_duration;
use serde::{Serialize, Serializer};

use super::keys::KEYS;

/// Where a setting comes from. Shown as `/home/u/.config/quell/config.toml:3`, `QUELL_STOP_GRACE`, `default` or `flag`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SettingOrigin {
    /// Nobody set it.
    Default,
    /// The machine's `guard.toml`.
    Machine(FileLine),
    /// The user's file.
    User(FileLine),
    /// The project's `quell.toml`.
    Project(FileLine),
    /// A variable.
    Env {
        /// Which.
        name: String,
    },
    /// The command line.
    Flag,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileLine {
    /// The file.
    #[serde(serialize_with = "lossy")]
    pub file: PathBuf,
    /// The line, from 1 on.
    pub line: usize,
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Machine(at) | Self::User(at) | Self::Project(at) => {
                write!(f, "{}:{}", at.file.display(), at.line)
            }
            Self::Env { name } => f.write_str(name),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// One setting with its origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(into = "Setting")]
pub struct Sourced {
    /// Its name, such as `stop.grace`.
    pub key: String,
    /// Its value as it was written; the words of a list with commas between them.
    pub value: String,
    /// Where that is from. For a list that several gave to: the strongest of them.
    pub source: SettingOrigin,
}

/// A setting in JSON.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Setting {
    /// Its name, such as `stop.grace`.
    key: String,
    /// Its value.
    value: Value,
    /// Where that is from. For a list that several gave to: the strongest of them.
    source: SettingOrigin,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
enum Value {
    /// A duration, in seconds.
    Seconds(f64),
    /// Everything else, as it was written; the words of a list with commas between them.
    Text(String),
}

impl From<Sourced> for Setting {
    fn from(Sourced { key, value, source }: Sourced) -> Self {
        let is_duration = KEYS.iter().any(|known| known.is_duration() && known.full == key);
        let value = match parse_duration(&value) {
            Ok(duration) if is_duration => Value::Seconds(duration.as_secs_f64()),
            Ok(_) | Err(_) => Value::Text(value),
        };
        Self { key, value, source }
    }
}

/// Which of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The machine's, which is about the guard alone.
    Machine,
    /// The user's.
    User,
    /// The project's.
    Project,
}

impl Layer {
    /// The origin that a line of this file is.
    pub(crate) fn origin(self, file: &Path, line: usize) -> SettingOrigin {
        let at = FileLine { file: file.to_owned(), line };
        match self {
            Self::Machine => SettingOrigin::Machine(at),
            Self::User => SettingOrigin::User(at),
            Self::Project => SettingOrigin::Project(at),
        }
    }
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigFile {
    /// Which of them.
    pub layer: Layer,
    /// Where it is.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// Whether its hooks and its `[gc]` count: always for the user's, for a project's only if the user's file trusts it.
    pub trusted: bool,
}

/// JSON has no bytes: a path that is no UTF-8 is shown as well as it can be.
fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}
