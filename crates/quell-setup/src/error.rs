//! What can go wrong with an agent's configuration. The command line adds hints and exit codes.

use std::io;
use std::path::{Path, PathBuf};

use crate::Agent;

/// Why an agent's configuration was not read or changed. Whatever it is, the file is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{} has no configuration file for a project", .0.title())]
    NoProjectFile(Agent),
    #[error("the user's home directory is not known: HOME is not set")]
    NoUserHome,
    #[error("can't tell the path of this quell: {0}")]
    NoOwnPath(String),
    #[error("can't parse {}: {why}", path.display())]
    Unparsable { path: PathBuf, why: String },
    #[error("{}: {key} is not {expected}", path.display())]
    WrongType { path: PathBuf, key: String, expected: &'static str },
    #[error("{}: {key} is there twice", path.display())]
    DuplicateKey { path: PathBuf, key: String },
    #[error("{}: {key} is a server that is not quell's", path.display())]
    ServerNameTaken { path: PathBuf, key: String },
    #[error("won't change {}: {why}", path.display())]
    UnsuitableFile { path: PathBuf, why: String },
    #[error("{} was changed by another program meanwhile", .0.display())]
    ChangedMeanwhile(PathBuf),
    #[error("can't read quell's list of what it has set up, {}: {why}", path.display())]
    Manifest { path: PathBuf, why: String },
    #[error("can't {doing} {}: {error}", path.display())]
    Io { doing: &'static str, path: PathBuf, error: io::Error },
    #[error(transparent)]
    Guard(#[from] quell_guard::Error),
}

impl Error {
    /// A stable word for programs.
    pub fn code(&self) -> &str {
        match self {
            Self::NoProjectFile(_) => "no_project_file",
            Self::NoUserHome => "no_user_home",
            Self::NoOwnPath(_) => "no_own_path",
            Self::Unparsable { .. } => "unparsable",
            Self::WrongType { .. } => "wrong_type",
            Self::DuplicateKey { .. } => "duplicate_key",
            Self::ServerNameTaken { .. } => "server_name_taken",
            Self::UnsuitableFile { .. } => "unsuitable_file",
            Self::ChangedMeanwhile(_) => "changed_meanwhile",
            Self::Manifest { .. } => "manifest",
            Self::Io { .. } => "io",
            Self::Guard(error) => error.code(),
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::ChangedMeanwhile(_))
    }

    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Io { doing, path, error }
    }
}
