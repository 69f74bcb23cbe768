//! Why a signal, a request to a service or a line in the audit log failed.

use std::io;
use std::path::PathBuf;

use quell_core::Decision;

pub type Result<T> = std::result::Result<T, Error>;

/// Why it failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The guard refused it.
    #[error("{}", .0.reason)]
    Refused(Box<Decision>),
    /// No process has this PID.
    #[error("there is no process {0}")]
    NoSuchProcess(u32),
    /// The kernel does not allow it for this user.
    #[error("{0}")]
    NotPermitted(String),
    /// systemd has no unit with this name.
    #[error("there is no service {0}")]
    NoSuchService(String),
    /// No systemd manager answers.
    #[error("no systemd answers here: {message}")]
    NoSystemd {
        /// What systemctl said.
        message: String,
        /// Whether the user's own manager was asked.
        user: bool,
    },
    /// systemctl failed.
    #[error("{0}")]
    Systemctl(String),
    /// It took too long.
    #[error("{0}")]
    TimedOut(String),
    /// A file could not be read or written: of `/proc`, or the audit log.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        #[source]
        error: io::Error,
    },
}

impl Error {
    /// An error about a file.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { path, error }
    }

    /// Whether this process or the host has too many files open.
    pub fn is_out_of_descriptors(&self) -> bool {
        matches!(self, Self::Io { error, .. } if quell_sys::is_out_of_descriptors(error))
    }

    /// The stable code for programs.
    pub fn code(&self) -> &str {
        match self {
            Self::Refused(decision) => decision.code.as_str(),
            Self::NoSuchProcess(_) => "no_such_process",
            Self::NotPermitted(_) => "not_permitted",
            Self::NoSuchService(_) => "no_such_service",
            Self::NoSystemd { .. } => "no_systemd",
            Self::Systemctl(_) => "systemctl",
            Self::TimedOut(_) => "timed_out",
            Self::Io { .. } => "io",
        }
    }
}
