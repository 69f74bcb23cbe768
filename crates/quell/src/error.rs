//! What can go wrong, with a stable word for programs, a sentence for people and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use quell_core::{Decision, ErrorBody, JobId};
use quell_guard::Error as Host;
use quell_keeper::RunError;
use serde_json::{Value, json};

use crate::find;

/// Why something could not be done. Nothing is half-done with it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The guard does not let it pass.
    #[error("{}", .0.reason)]
    Refused(Box<Decision>),
    /// Something on the host could not be done.
    #[error(transparent)]
    Host(quell_guard::Error),
    /// No job answers to this.
    #[error("there is no job `{0}`")]
    NoSuchJob(String),
    /// Several jobs begin with this.
    #[error("`{prefix}` is the beginning of {}{} jobs", if *.more { "more than " } else { "" }, .ids.len())]
    Ambiguous {
        /// What was given.
        prefix: String,
        /// Some of those it may mean.
        ids: Vec<String>,
        /// Whether there are others.
        more: bool,
    },
    /// What was given is neither an id, nor the beginning of one, nor a name.
    #[error("`{0}` can't be a job: it is neither an id nor a name")]
    InvalidJob(String),
    /// A live job has this name.
    #[error("the name `{name}` is that of the live job {by}")]
    NameTaken {
        /// The name.
        name: String,
        /// Who has it.
        by: String,
    },
    /// It can't be done in the state that the job is in.
    #[error("{0}")]
    State(String),
    /// This home is a copy: the keeper of the job lives, and has its record in another one.
    #[error("{id} is kept by process {keeper}, which has its record in {}, not in this home", .home.display())]
    KeptElsewhere {
        /// Which job.
        id: JobId,
        /// Its keeper.
        keeper: u32,
        /// The home that the keeper writes to.
        home: PathBuf,
    },
    /// The job's processes are not proven dead.
    #[error("{0}")]
    NotProvenDead(String),
    /// A job is over, and its record can't say so.
    #[error("{id} was stopped{}, but its end can't be put on record: {}: {error}",
        if *.proven { " and is gone" } else { " (not proven gone)" }, .path.display())]
    EndNotRecorded {
        /// Which job.
        id: JobId,
        /// Whether its processes are proven to be gone.
        proven: bool,
        /// Where its record is.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The time was over before what was waited for happened.
    #[error("{0}")]
    TimedOut(String),
    /// The program did not read what was sent to it.
    #[error("{job} has made no room on its standard input in time: {sent} bytes went, the rest did not")]
    NotRead {
        /// Which job.
        job: String,
        /// How many bytes are with the program.
        sent: u64,
    },
    /// A value makes no sense.
    #[error("{0}")]
    BadValue(String),
    /// A variable of the environment makes no sense.
    #[error("{name}: {message}")]
    Variable {
        /// Which.
        name: String,
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: String,
    },
    /// A variable of the environment looks like one of quell's and is not.
    #[error("{name}: there is no such setting")]
    UnknownVariable {
        /// Its name.
        name: String,
        /// What to do about it.
        hint: String,
    },
    /// A configuration file can't be used.
    #[error("{}: {message}", place(file, *line))]
    Config {
        /// Which.
        file: PathBuf,
        /// Where in it, from 1 on; 0 for the whole file.
        line: usize,
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: String,
    },
    /// The program could not be started.
    #[error(transparent)]
    Start(#[from] RunError),
    /// A file of quell's could not be read or written.
    #[error("{}: {error}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The index of finished jobs could not be used.
    #[error("the index of finished jobs: {0}")]
    Index(String),
    /// The keeper did not do its part.
    #[error("{0}")]
    Keeper(String),
    /// There is no place for jobs.
    #[error("there is no place for quell's jobs")]
    NoHome,
    /// The program that keeps jobs can't be found.
    #[error("can't find the `quell` program, which keeps the jobs: {0}")]
    NoProgram(String),
}

impl From<Host> for Error {
    fn from(error: Host) -> Self {
        match error {
            Host::Refused(decision) => Self::Refused(decision),
            Host::TimedOut(what) => Self::TimedOut(what),
            Host::Io { path, error } => Self::Io { path, error },
            error => Self::Host(error),
        }
    }
}

/// A line of a file, or the file.
fn place(file: &Path, line: usize) -> String {
    let file = file.display();
    if line == 0 { file.to_string() } else { format!("{file}:{line}") }
}

impl Error {
    /// An error about a file.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { path, error }
    }

    /// Whether it says nothing but that this process or the host has too many files open.
    pub(crate) fn is_out_of_descriptors(&self) -> bool {
        matches!(self, Self::Io { error, .. } if quell_sys::is_out_of_descriptors(error))
    }

    /// The stable word for programs.
    pub fn code(&self) -> &str {
        match self {
            Self::Refused(decision) => &decision.code,
            Self::Host(error) => error.code(),
            Self::NoSuchJob(_) => "job_not_found",
            Self::Ambiguous { .. } => "job_ambiguous",
            Self::InvalidJob(_) => "bad_job",
            Self::NameTaken { .. } => "name_taken",
            Self::State(_) | Self::KeptElsewhere { .. } => "wrong_state",
            Self::NotProvenDead(_) => "not_proven_dead",
            Self::TimedOut(_) | Self::NotRead { .. } => "timed_out",
            Self::BadValue(_) | Self::Variable { .. } | Self::UnknownVariable { .. } => "bad_value",
            Self::Config { .. } => "bad_config",
            Self::Start(error) => error.code(),
            Self::Io { .. } | Self::EndNotRecorded { .. } => "io",
            Self::Index(_) => "index",
            Self::Keeper(_) => "keeper",
            Self::NoHome => "no_home",
            Self::NoProgram(_) => "no_program",
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Refused(decision) => decision.hint.clone(),
            Self::Host(error) => error.hint(),
            Self::NoSuchJob(job) if find::is_too_short(job) => {
                "`quell list --all` shows them; give at least 4 characters of an id".into()
            }
            Self::NoSuchJob(_) => "`quell list --all` shows them".into(),
            Self::Ambiguous { ids, .. } => format!("give more of it: {}", ids.join(", ")),
            Self::InvalidJob(_) => {
                "an id is 26 letters and digits, or the first of them; a name has letters, digits, `.`, `-`, `_`"
                    .into()
            }
            Self::NameTaken { by, .. } => format!("choose another name, or `quell stop {by}` first"),
            Self::State(_) => "`quell status` says how it is".into(),
            Self::KeptElsewhere { id, home, .. } => {
                format!("it is stopped by `QUELL_HOME={} quell stop {id}`", home.display())
            }
            Self::NotProvenDead(_) => "`quell stop` tries again".into(),
            Self::TimedOut(_) => "wait again, or longer".into(),
            Self::NotRead { .. } => "send the rest when the program reads again, or wait longer".into(),
            Self::BadValue(_) => "see --help".into(),
            Self::Variable { hint, .. } | Self::UnknownVariable { hint, .. } | Self::Config { hint, .. } => {
                hint.clone()
            }
            // `--no-record` is an option of `quell run`.
            Self::Start(RunError::Record { .. }) => {
                "set QUELL_HOME to a directory that you may write and that has free space".into()
            }
            Self::Start(error) => error.hint().into(),
            Self::Io { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                "check that it is there".into()
            }
            Self::Io { path, error }
                if error.kind() == io::ErrorKind::InvalidData && path.ends_with("spec.json") =>
            {
                "it is damaged, or another version of quell wrote it; `quell stop` and `quell rm` work".into()
            }
            Self::Io { .. } if self.is_out_of_descriptors() => quell_guard::MORE_DESCRIPTORS.into(),
            Self::EndNotRecorded { .. } => {
                "make it writable and see that there is space; `quell sweep` puts the end on record then".into()
            }
            Self::Io { error, .. } if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                "mount its file system for writing, or set QUELL_HOME to a directory that you may write".into()
            }
            Self::Io { .. } => "check that it is yours and that there is space".into(),
            Self::Index(_) => "remove index.db in quell's home; it is made again from the records".into(),
            Self::Keeper(_) => "`quell sweep` finishes jobs whose keeper is lost".into(),
            Self::NoHome => "set QUELL_HOME to a directory of yours".into(),
            Self::NoProgram(_) => "put `quell` on the PATH, or set QUELL_BIN to its path".into(),
        }
    }

    /// Whether the same call may succeed later without anything being mended.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::TimedOut(_) | Self::NotProvenDead(_) | Self::Keeper(_) | Self::Index(_) => true,
            Self::Start(error) => error.is_retryable(),
            // The same bytes again would be there twice.
            Self::NotRead { .. }
            | Self::Refused(_)
            | Self::Host(_)
            | Self::NoSuchJob(_)
            | Self::Ambiguous { .. }
            | Self::InvalidJob(_)
            | Self::NameTaken { .. }
            | Self::State(_)
            | Self::KeptElsewhere { .. }
            | Self::BadValue(_)
            | Self::Variable { .. }
            | Self::UnknownVariable { .. }
            | Self::Config { .. }
            | Self::Io { .. }
            | Self::EndNotRecorded { .. }
            | Self::NoHome
            | Self::NoProgram(_) => false,
        }
    }

    /// The exit code of a verb that fails with it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoSuchJob(_) | Self::Host(Host::NoSuchProcess(_) | Host::NoSuchService(_)) => 3,
            Self::Refused(_) | Self::Host(Host::Refused(_) | Host::NotPermitted(_)) => 4,
            Self::Ambiguous { .. }
            | Self::InvalidJob(_)
            | Self::BadValue(_)
            | Self::Variable { .. }
            | Self::UnknownVariable { .. }
            | Self::Config { .. } => 2,
            Self::NameTaken { .. } | Self::State(_) | Self::KeptElsewhere { .. } => 1,
            Self::NotProvenDead(_) => 5,
            Self::TimedOut(_) | Self::NotRead { .. } => 6,
            Self::Start(error) => error.exit_code(),
            Self::Host(Host::NoSystemd { .. } | Host::Systemctl(_) | Host::TimedOut(_) | Host::Io { .. })
            | Self::Io { .. }
            | Self::EndNotRecorded { .. }
            | Self::Index(_)
            | Self::Keeper(_)
            | Self::NoHome
            | Self::NoProgram(_) => 125,
        }
    }

    /// As programs read it.
    pub fn body(&self) -> ErrorBody {
        let details: Value = match self {
            Self::Refused(decision) => json!({ "decision": decision }),
            Self::Host(Host::NoSuchProcess(pid)) => json!({ "pid": pid }),
            Self::Host(Host::NoSuchService(unit)) => json!({ "service": unit }),
            Self::Ambiguous { ids, more, .. } => json!({ "ids": ids, "more": more }),
            Self::NameTaken { by, .. } => json!({ "by": by }),
            Self::KeptElsewhere { keeper, home, .. } => {
                json!({ "keeper": keeper, "home": home.display().to_string() })
            }
            Self::NotRead { job, sent } => json!({ "job": job, "sent": sent }),
            Self::Variable { name, .. } | Self::UnknownVariable { name, .. } => json!({ "variable": name }),
            // As text: a path that is no UTF-8 is no JSON, and `json!` would panic.
            Self::Config { file, line, .. } => json!({ "file": file.display().to_string(), "line": line }),
            Self::Io { path, .. } | Self::EndNotRecorded { path, .. } => {
                json!({ "path": path.display().to_string() })
            }
            Self::NoSuchJob(job) | Self::InvalidJob(job) => json!({ "job": job }),
            Self::Host(_)
            | Self::State(_)
            | Self::NotProvenDead(_)
            | Self::TimedOut(_)
            | Self::BadValue(_)
            | Self::Start(_)
            | Self::Index(_)
            | Self::Keeper(_)
            | Self::NoHome
            | Self::NoProgram(_) => json!({}),
        };
        ErrorBody {
            code: self.code().into(),
            message: self.to_string(),
            hint: self.hint(),
            retryable: self.is_retryable(),
            details,
        }
    }
}
