//! What can go wrong before a program has run.

use std::path::PathBuf;

use quell_core::JobId;
use serde::{Deserialize, Serialize};

/// The name of a receipt's descriptor in messages, before its number.
pub const DESCRIPTOR: &str = "descriptor ";

/// What helps against a failed exec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecRemedy {
    /// Make it executable, or give it an interpreter.
    #[default]
    Right,
    /// Fewer or shorter arguments and variables.
    ShorterArguments,
    /// Close the file where it is open for writing.
    ClosedFile,
    /// Fewer links or interpreters in a row.
    FewerLinks,
}

/// Why a job was not started. Nothing is left behind.
#[derive(Clone, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum StartError {
    /// The program was not found.
    #[error("can't find `{0}`")]
    NotFound(String),
    /// The file can't be executed.
    #[error("can't execute `{program}`: {why}")]
    NotExecutable {
        /// As it was given.
        program: String,
        /// Why.
        why: String,
        /// What helps.
        #[serde(default)]
        remedy: ExecRemedy,
    },
    /// The name contains a masked value: names are shown, and files are named after them.
    #[error("the name holds a value that is to be masked: choose another name")]
    MaskedName,
    /// The program is a directory.
    #[error("can't execute `{0}`: it is a directory")]
    Directory(String),
    /// The file's interpreter does not exist.
    #[error(
        "can't execute `{program}`: its interpreter (of the `#!` line) or loader can't be executed: {why}"
    )]
    NoInterpreter {
        /// As it was given.
        program: String,
        /// Why.
        why: String,
    },
    /// The working directory can't be used.
    #[error("can't use the working directory `{path}`: {error}", path = .path.display())]
    Cwd {
        /// Which.
        #[serde(with = "quell_core::paths::whole")]
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// A text can't be passed to a program.
    #[error("{0} holds a NUL byte, which no program can be given")]
    Nul(String),
    /// /proc can't be used.
    #[error("{0}")]
    Proc(String),
    /// This host does not have that containment or limit.
    #[error("{0}")]
    Containment(String),
    /// See [`StartError::Containment`].
    #[error("{0}")]
    Limit(String),
    /// A live job has this name.
    #[error("the name `{name}` is that of the live job {by}")]
    NameTaken {
        /// The name that is taken.
        name: String,
        /// The job that has it.
        by: JobId,
    },
    /// The file that the program should read can't be opened.
    #[error("can't read {path}: {error}", path = .path.display())]
    Stdin {
        /// Which.
        #[serde(with = "quell_core::paths::whole")]
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// The owner has already exited.
    #[error("the owner is gone: {0}")]
    OwnerGone(String),
    /// The record can't be written.
    #[error("can't write the job's record in {path}: {error}", path = .path.display())]
    Record {
        /// Where.
        #[serde(with = "quell_core::paths::whole")]
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// The receipt can't be written.
    #[error("can't write the receipt to {target}: {error}")]
    Receipt {
        /// Where.
        target: String,
        /// Why.
        error: String,
    },
    /// The program could not be started for another reason.
    #[error("can't start the program: {0}")]
    Start(String),
    /// The job was stopped before the program ran.
    #[error("can't start the program: {0}")]
    Stopped(String),
    /// The system refused something that quell itself needs.
    #[error("can't {what}: {error}")]
    System {
        /// The operation.
        what: String,
        /// The system's error.
        error: String,
    },
    /// quell can't run jobs on this platform yet.
    #[error("{0}")]
    Unsupported(String),
}

impl StartError {
    #[cfg(target_os = "linux")]
    /// Something that has no variant of its own.
    pub(crate) fn other(error: std::io::Error) -> Self {
        Self::Start(error.to_string())
    }

    /// A stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "program_not_found",
            Self::NotExecutable { .. } | Self::Directory(_) | Self::NoInterpreter { .. } => {
                "program_not_executable"
            }
            Self::Cwd { .. } => "bad_cwd",
            Self::Nul(_) => "bad_argument",
            Self::MaskedName => "bad_value",
            Self::Proc(_) => "proc_unusable",
            Self::Containment(_) => "containment_unavailable",
            Self::Limit(_) => "limit_unavailable",
            Self::NameTaken { .. } => "name_taken",
            Self::OwnerGone(_) => "owner_gone",
            Self::Stdin { .. } => "bad_stdin",
            Self::Record { .. } => "record_unwritable",
            Self::Receipt { .. } => "receipt_unwritable",
            Self::Start(_) | Self::Stopped(_) => "start_failed",
            Self::System { .. } => "system",
            Self::Unsupported(_) => "unsupported_platform",
        }
    }

    /// Whether the same call may succeed later without any change.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Stopped(_) | Self::System { .. })
    }
}
