//! What goes between a caller and the process that keeps its job, and what can go wrong before anything has run.

use std::path::PathBuf;

use quell_core::{Decision, JobId, JobRequest, Receipt};
use serde::{Deserialize, Serialize};

/// What the process that starts a job in the background sends to the process that is to keep it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartMessage {
    /// quell's home, below which the record is kept.
    #[serde(with = "quell_core::paths::whole")]
    pub home: PathBuf,
    /// What is asked for, with everything that depends on the caller filled in: directory, environment, owner, session.
    pub request: JobRequest,
}

/// What a caller is told of the start of a job in the background.
#[derive(Debug, Serialize, Deserialize)]
pub enum StartReply {
    /// The program runs, and is on record.
    Started {
        /// Its id.
        id: JobId,
    },
    /// Nothing runs, and nothing is left behind.
    Failed(RunError),
    /// The guard refused the request. Nothing runs.
    Refused(Box<Decision>),
}

/// A run that came to its end.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What happened.
    pub receipt: Receipt,
    /// Whether descendants were alive when the root had exited by itself.
    pub leaked: bool,
    /// Whether a receipt that was asked for could not be written; the receipt's warnings say why.
    pub unwritten: bool,
    /// Whether the terminal sent its interrupt to us and to the program alike.
    pub interrupted: bool,
}

/// How the place of a receipt is called that is a descriptor, before its number.
pub const DESCRIPTOR: &str = "descriptor ";

/// What helps against a failed exec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecRemedy {
    /// The right to execute it, or an interpreter.
    #[default]
    Right,
    /// Fewer or shorter arguments and variables.
    ShorterArguments,
    /// That no process writes to the file.
    ClosedFile,
    /// Links, or interpreters, that come to an end.
    FewerLinks,
}

/// A run that did not come to be. Nothing is left behind.
#[derive(Clone, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum RunError {
    /// No such program.
    #[error("can't find `{0}`")]
    NotFound(String),
    /// A file that can't be executed.
    #[error("can't execute `{program}`: {why}")]
    NotExecutable {
        /// Which.
        program: String,
        /// Why.
        why: String,
        /// What helps.
        #[serde(default)]
        remedy: ExecRemedy,
    },
    /// A name that holds a masked value: others find the job by it, and files are called so.
    #[error("the name holds a value that is to be masked: choose another name")]
    MaskedName,
    /// A directory instead of a program.
    #[error("can't execute `{0}`: it is a directory")]
    Directory(String),
    /// A file whose interpreter is not there.
    #[error(
        "can't execute `{program}`: its interpreter (of the `#!` line) or loader can't be executed: {why}"
    )]
    NoInterpreter {
        /// Which file.
        program: String,
        /// Why.
        why: String,
    },
    /// A working directory that can't be used.
    #[error("can't use the working directory `{path}`: {error}", path = .path.display())]
    Cwd {
        /// Which.
        #[serde(with = "quell_core::paths::whole")]
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// Text that can't be passed to a program.
    #[error("{0} holds a NUL byte, which no program can be given")]
    Nul(String),
    /// /proc can't be used.
    #[error("{0}")]
    Proc(String),
    /// A containment or limit that this host can't give.
    #[error("{0}")]
    Containment(String),
    /// See [`RunError::Containment`].
    #[error("{0}")]
    Limit(String),
    /// A live job has this name.
    #[error("the name `{name}` is that of the live job {by}")]
    NameTaken {
        /// The name.
        name: String,
        /// Who has it.
        by: JobId,
    },
    /// What the program is to read can't be opened.
    #[error("can't read {path}: {error}", path = .path.display())]
    Stdin {
        /// Which.
        #[serde(with = "quell_core::paths::whole")]
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// The owner is gone already.
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
    /// The receipt's place can't be written.
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
    /// It was stopped before the program ran.
    #[error("can't start the program: {0}")]
    Stopped(String),
    /// The system refused something that quell itself needs.
    #[error("can't {what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// Why it failed.
        error: String,
    },
    /// Not built for this platform yet.
    #[error("{0}")]
    Unsupported(String),
}

impl RunError {
    /// The stable word for programs.
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

    /// Whether the same call may succeed later without anything being mended.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Stopped(_) | Self::System { .. })
    }
}
