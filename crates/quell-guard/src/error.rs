//! Why something that touches the host, or its line in the log, could not be done.

use std::io;
use std::path::PathBuf;

use quell_core::Decision;

/// What most calls give.
pub type Result<T> = std::result::Result<T, Error>;

/// What to do where this process or the host has too many files open.
pub const MORE_DESCRIPTORS: &str = "raise the limit of open files (`ulimit -n`), or close some";

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The guard does not let it pass.
    #[error("{}", .0.reason)]
    Refused(Box<Decision>),
    /// No process has this number.
    #[error("there is no process {0}")]
    NoSuchProcess(u32),
    /// The kernel does not let this user do it.
    #[error("{0}")]
    NotPermitted(String),
    /// systemd has no unit of this name.
    #[error("there is no service {0}")]
    NoSuchService(String),
    /// There is no systemd to speak to.
    #[error("there is no systemd here that could be asked: {message}")]
    NoSystemd {
        /// How that is known.
        message: String,
        /// Whether it was the user's own manager.
        user: bool,
    },
    /// systemctl did something that it never should.
    #[error("{0}")]
    Systemctl(String),
    /// The time was over before what was waited for happened.
    #[error("{0}")]
    TimedOut(String),
    /// A file could not be read or written: of `/proc`, or the audit log.
    #[error("{}: {error}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl Error {
    /// An error about a file.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { path, error }
    }

    /// Whether it says nothing but that this process or the host has too many files open.
    pub fn is_out_of_descriptors(&self) -> bool {
        matches!(self, Self::Io { error, .. } if quell_sys::is_out_of_descriptors(error))
    }

    /// The stable word for programs.
    pub fn code(&self) -> &str {
        match self {
            Self::Refused(decision) => &decision.code,
            Self::NoSuchProcess(_) => "no_such_process",
            Self::NotPermitted(_) => "not_permitted",
            Self::NoSuchService(_) => "no_such_service",
            Self::NoSystemd { .. } => "no_systemd",
            Self::Systemctl(_) => "systemctl",
            Self::TimedOut(_) => "timed_out",
            Self::Io { .. } => "io",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Refused(decision) => decision.hint.clone(),
            Self::NoSuchProcess(_) => "it may have ended; its number may soon be another's".into(),
            Self::NotPermitted(_) => "it is another user's; ask as that user, or as root".into(),
            Self::NoSuchService(_) => {
                "`systemctl list-units --all --type=service` shows them; those of a user need --user".into()
            }
            Self::NoSystemd { user: true, .. } => {
                "log in as that user, or keep its manager running: `loginctl enable-linger`".into()
            }
            Self::NoSystemd { user: false, .. } => {
                "in a container or without systemd, run the program itself: `quell start`".into()
            }
            Self::Systemctl(_) => "try the same with systemctl itself".into(),
            Self::TimedOut(_) => "wait again, or longer".into(),
            Self::Io { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                "check that it is there".into()
            }
            Self::Io { .. } if self.is_out_of_descriptors() => MORE_DESCRIPTORS.into(),
            Self::Io { .. } => "check that it is yours and that there is space".into(),
        }
    }
}
