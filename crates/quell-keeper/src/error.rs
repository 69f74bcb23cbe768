//! What can go wrong before a program has run.

use std::path::PathBuf;

use quell_core::JobId;
use serde::{Deserialize, Serialize};

/// The name of a receipt's descriptor in messages, before its number.
pub(crate) const DESCRIPTOR: &str = "descriptor ";

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

impl ExecRemedy {
    fn hint(self) -> &'static str {
        match self {
            Self::Right => "make it executable (chmod +x), or name its interpreter first",
            Self::ShorterArguments => {
                "pass long data in a file or standard input, or use fewer variables: arguments and environment share one limit"
            }
            Self::ClosedFile => "a process has the file open for writing: close it there, and try again",
            Self::FewerLinks => {
                "look where its symbolic links lead, or the interpreters of its `#!` line: they never end, or are too many"
            }
        }
    }
}

/// Why a job was not started. Nothing is left behind.
#[derive(Clone, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum RunError {
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
    /// See [`RunError::Containment`].
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

impl RunError {
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

    /// What the user can do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "check the name and PATH, or give the path of the file",
            Self::NotExecutable { remedy, .. } => remedy.hint(),
            Self::MaskedName => "`start.mask` says which variables are masked",
            Self::Directory(_) => "name a program in it; `--cwd` is for the working directory",
            Self::NoInterpreter { .. } => "install that interpreter, or name another one first",
            Self::Cwd { .. } => "give --cwd a directory that exists and that you may enter",
            Self::Nul(_) => "leave the NUL byte out",
            Self::Proc(_) => "mount a /proc of this PID namespace (unshare has --mount-proc)",
            Self::Containment(_) => {
                "`quell doctor` says what this host can do; `--contain auto` takes the best of it"
            }
            Self::Limit(_) => "`quell doctor` says which limits this host can hold",
            Self::NameTaken { .. } => "choose another name, or stop that job first",
            Self::OwnerGone(_) => "give --owner a process that lives",
            Self::Stdin { .. } => "give --stdin a file that exists and that you may read",
            Self::Record { .. } => {
                "set QUELL_HOME to a directory that you may write and that has free space, or pass --no-record"
            }
            Self::Receipt { target, .. } if target.starts_with(DESCRIPTOR) => {
                "open that descriptor for quell, such as `99>FILE`, or use --receipt FILE"
            }
            Self::Receipt { .. } => "give a path whose directory exists and that you may write",
            Self::Start(_) | Self::System { .. } => {
                "look at the system's limits (processes, open files, memory) and try again"
            }
            Self::Stopped(_) => "start it again if it should run; if its time was up, give it more",
            Self::Unsupported(_) => "run it on Linux",
        }
    }

    /// Whether the same call may succeed later without any change.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Stopped(_) | Self::System { .. })
    }

    /// quell's exit code for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable { .. } | Self::Directory(_) | Self::NoInterpreter { .. } => 126,
            Self::NameTaken { .. } => 1,
            Self::Cwd { .. }
            | Self::Nul(_)
            | Self::MaskedName
            | Self::Proc(_)
            | Self::Containment(_)
            | Self::Limit(_)
            | Self::OwnerGone(_)
            | Self::Stdin { .. }
            | Self::Record { .. }
            | Self::Receipt { .. }
            | Self::Start(_)
            | Self::Stopped(_)
            | Self::System { .. }
            | Self::Unsupported(_) => 125,
        }
    }
}
