//! Why a call of the library failed: a stable code for programs, a sentence for people, and the facts. Hints and exit codes
//! belong to the interface that shows the error.

use std::io;
use std::path::{Path, PathBuf};

use quell_core::{Decision, JobId};
use quell_guard::Error as Host;
use quell_keeper::StartError;
use serde_json::{Value, json};

/// Why a call failed. Nothing is left half done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The guard refused it.
    #[error("{}", .0.reason)]
    Refused(Box<Decision>),
    /// A process or a service that quell did not start could not be signalled or asked.
    #[error(transparent)]
    Host(quell_guard::Error),
    /// No job has this id or name.
    #[error("there is no job `{0}`")]
    NoSuchJob(String),
    /// Several jobs begin with this, or have this name.
    #[error("`{prefix}` matches {}{} jobs", if *.more { "more than " } else { "" }, .ids.len())]
    Ambiguous {
        /// The beginning of an id, or a name.
        prefix: String,
        /// Some of the jobs that it matches.
        ids: Vec<String>,
        /// Whether there are more.
        more: bool,
    },
    /// The text is neither an id, nor the beginning of one, nor a name.
    #[error("`{0}` can't be a job: it is neither an id nor a name")]
    InvalidJob(String),
    /// It can't be done in the state that the job is in.
    #[error("{0}")]
    State(String),
    /// The job was started without a readiness check, so it is never ready.
    #[error("{0} was started without a readiness check")]
    NoReadyCheck(JobId),
    /// This home is a copy: the keeper of the job is alive and writes to another home.
    #[error("{id} is kept by process {keeper}, which has its record in {}, not in this home", .home.display())]
    KeptElsewhere {
        /// The job.
        id: JobId,
        /// Its keeper.
        keeper: u32,
        /// The home that the keeper writes to.
        home: PathBuf,
    },
    /// The job's processes are not proven dead.
    #[error("{0}")]
    NotProvenDead(String),
    /// The job has ended, but its end could not be written.
    #[error("{id} has ended{}, but its end can't be put on record: {}: {error}",
        if *.proven { " and is gone" } else { " (not proven gone)" }, .path.display())]
    EndNotRecorded {
        /// The job.
        id: JobId,
        /// Whether its processes are proven to be gone.
        proven: bool,
        /// The record.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// It took too long.
    #[error("{0}")]
    TimedOut(String),
    /// The program did not read what was sent to it.
    #[error("{job} did not read its standard input in time: {sent} bytes were written, the rest was not")]
    NotRead {
        /// The job.
        job: String,
        /// How many bytes were written.
        sent: u64,
    },
    /// A value is not valid.
    #[error("{0}")]
    BadValue(String),
    /// An environment variable is not valid.
    #[error("{name}: {message}")]
    Variable {
        /// The variable.
        name: String,
        /// What is wrong.
        message: String,
        /// What would correct it.
        hint: String,
    },
    /// An environment variable begins with `QUELL_` and is not a setting.
    #[error("{name}: there is no such setting")]
    UnknownVariable {
        /// The variable.
        name: String,
        /// What would correct it.
        hint: String,
    },
    /// A configuration file can't be used.
    #[error("{}: {message}", place(file, *line))]
    Config {
        /// The file.
        file: PathBuf,
        /// The line, from 1 on; 0 for the whole file.
        line: usize,
        /// What is wrong.
        message: String,
        /// What would correct it.
        hint: String,
    },
    /// The program could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A file of quell's could not be read or written.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// The index of finished jobs could not be used.
    #[error("the index of finished jobs: {0}")]
    Index(String),
    /// The keeper did not answer, or not as it should.
    #[error("{0}")]
    Keeper(String),
    /// There is no home for jobs.
    #[error("no directory for quell's jobs is known")]
    NoHome,
    /// The `quell` program, which keeps the jobs, was not found.
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

    /// Whether this process or the host has too many files open.
    pub(crate) fn is_out_of_descriptors(&self) -> bool {
        matches!(self, Self::Io { error, .. } if quell_sys::is_out_of_descriptors(error))
    }

    /// The stable code for programs.
    pub fn code(&self) -> &str {
        match self {
            Self::Refused(decision) => decision.code.as_str(),
            Self::Host(error) => error.code(),
            Self::NoSuchJob(_) => "job_not_found",
            Self::Ambiguous { .. } => "job_ambiguous",
            Self::InvalidJob(_) => "bad_job",
            Self::State(_) | Self::NoReadyCheck(_) | Self::KeptElsewhere { .. } => "wrong_state",
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

    /// What would correct a setting, if the error is about one.
    pub fn suggestion(&self) -> Option<&str> {
        match self {
            Self::Variable { hint, .. } | Self::UnknownVariable { hint, .. } | Self::Config { hint, .. } => {
                Some(hint)
            }
            _ => None,
        }
    }

    /// Whether the same call may succeed later, without any change.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::TimedOut(_) | Self::NotProvenDead(_) | Self::Keeper(_) | Self::Index(_) => true,
            Self::Start(error) => error.is_retryable(),
            // Not for `NotRead`: a second call would write the same bytes twice.
            _ => false,
        }
    }

    /// The facts of the error, for programs.
    pub fn details(&self) -> Value {
        match self {
            Self::Refused(decision) => json!({ "decision": decision }),
            Self::Host(Host::NoSuchProcess(pid)) => json!({ "pid": pid }),
            Self::Host(Host::NoSuchService(unit)) => json!({ "service": unit }),
            Self::Ambiguous { ids, more, .. } => json!({ "ids": ids, "more": more }),
            Self::KeptElsewhere { keeper, home, .. } => {
                json!({ "keeper": keeper, "home": home.display().to_string() })
            }
            Self::NotRead { job, sent } => json!({ "job": job, "sent": sent }),
            Self::Variable { name, .. } | Self::UnknownVariable { name, .. } => json!({ "variable": name }),
            // As text: `json!` panics for a path that is not UTF-8.
            Self::Config { file, line, .. } => json!({ "file": file.display().to_string(), "line": line }),
            Self::Io { path, .. } | Self::EndNotRecorded { path, .. } => {
                json!({ "path": path.display().to_string() })
            }
            Self::NoSuchJob(job) | Self::InvalidJob(job) => json!({ "job": job }),
            _ => json!({}),
        }
    }
}
