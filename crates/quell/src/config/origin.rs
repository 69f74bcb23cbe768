//! The origin of a setting.

use std::fmt;
use std::path::{Path, PathBuf};

use quell_core::parse_duration;
use serde::{Serialize, Serializer};

use super::keys::KEYS;

/// The origin of a setting. Shown as `/home/u/.config/quell/config.toml:3`, `QUELL_STOP_GRACE`, `default` or `flag`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SettingOrigin {
    /// Not set.
    Default,
    /// The machine's `guard.toml`.
    Machine(FileLine),
    /// The user's file.
    User(FileLine),
    /// The project's `quell.toml`.
    Project(FileLine),
    /// A variable.
    Env {
        /// The name of the variable.
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
    /// The line, starting at 1.
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
    /// The value as written, a duration always with its unit; the words of a list are separated by commas.
    pub value: String,
    /// The origin. For a list that several layers add to: the strongest of them.
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
    /// The origin. For a list that several layers add to: the strongest of them.
    source: SettingOrigin,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
enum Value {
    /// A duration, in seconds.
    Seconds(f64),
    /// Any other value as written; the words of a list are separated by commas.
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

/// The layer of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The machine's file, which has only `[guard]`.
    Machine,
    /// The user's file.
    User,
    /// The project's file.
    Project,
}

impl Layer {
    /// The origin of a line of a file of this layer.
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
    /// Its layer.
    pub layer: Layer,
    /// Its path.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// Whether its hooks and its `[gc]` are used: always for the user's file, for a project only if the user trusts it.
    pub trusted: bool,
}

/// JSON has no bytes, so a path that is not UTF-8 is shown with replacement characters.
fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}
