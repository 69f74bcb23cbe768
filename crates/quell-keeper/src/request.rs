//! What a caller asks for, what comes back, and what can go wrong before anything has run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use quell_core::{
    Background, Contain, Decision, Hook, JobId, Leak, Limits, Mask, ProcId, Receipt, StopPlan, Until,
};
use serde::{Deserialize, Serialize};

/// The program's environment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Environment {
    /// Whether it begins empty instead of with the caller's.
    pub clear: bool,
    /// What is set in it, later ones over earlier ones.
    pub set: Vec<(OsString, OsString)>,
}

impl Environment {
    /// All variables of it, those of this process included unless it begins empty.
    pub fn variables(&self) -> BTreeMap<OsString, OsString> {
        let outer = (!self.clear).then(std::env::vars_os).into_iter().flatten();
        outer.chain(self.set.iter().cloned()).collect()
    }

    /// The values that `names` have in it, which are to be masked.
    pub fn mask(&self, names: &[String]) -> Mask {
        // Without names nothing is copied.
        let variables: Vec<_> =
            if names.is_empty() { Vec::new() } else { self.variables().into_iter().collect() };
        Mask::new(names, &variables)
    }
}

/// Where the receipt goes besides the record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ReceiptTarget {
    /// A file, made or emptied at the start and written at the end.
    File(#[serde(with = "quell_core::paths::whole")] PathBuf),
    /// A descriptor that the caller has opened.
    Fd(i32),
}

/// One job to be run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRequest {
    /// The id of a job in the foreground, if the caller has made it already.
    pub id: Option<JobId>,
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// Where it starts; the caller's directory if not given.
    #[serde(default, with = "quell_core::paths::optional")]
    pub cwd: Option<PathBuf>,
    /// Its environment.
    pub environment: Environment,
    /// How it is held.
    pub contain: Contain,
    /// What it may use.
    pub limits: Limits,
    /// How it is stopped.
    pub plan: StopPlan,
    /// When it is stopped at the latest.
    pub timeout: Option<Duration>,
    /// What ends it.
    pub until: Until,
    /// What to do about leftovers; only noted here, as stopping them is part of each.
    pub leak: Leak,
    /// A name for people.
    pub name: Option<String>,
    /// Labels for queries.
    pub tags: BTreeMap<String, String>,
    /// Where the receipt goes.
    pub receipts: Vec<ReceiptTarget>,
    /// Whether the caller will still write to stdout afterwards; if not, quell lets go of it as the program starts.
    pub uses_stdout: bool,
    /// quell's home, below which the record is kept; none for no record.
    #[serde(default, with = "quell_core::paths::optional")]
    pub home: Option<PathBuf>,
    /// What the program reads in the foreground, if not what the caller does; opened before anything else.
    #[serde(default, with = "quell_core::paths::optional")]
    pub stdin: Option<PathBuf>,
    /// The process that a job in the foreground lives for, besides the caller.
    pub owner: Option<ProcId>,
    /// What is done at the events of a job in the foreground.
    #[serde(default)]
    pub hooks: Vec<Hook>,
    /// The variables whose values are masked of a job in the foreground.
    #[serde(default)]
    pub mask: Vec<String>,
    /// What only a job in the background has; none for one in the foreground.
    pub background: Option<BackgroundRequest>,
}

impl RunRequest {
    /// What is masked in all that is shown of the job.
    pub fn masked_values(&self) -> Mask {
        let names = self.background.as_ref().map_or(&self.mask, |background| &background.rules.mask);
        self.environment.mask(names)
    }
}

/// What only a job in the background has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackgroundRequest {
    /// What goes into its record.
    pub rules: Background,
    /// The session that it is part of.
    pub session: Option<String>,
    /// The file that it reads, so that a restart can open it again. The first time, the caller has opened it.
    #[serde(default, with = "quell_core::paths::optional")]
    pub stdin_file: Option<PathBuf>,
    /// Whether the caller is part of a job itself: then this one must not leave that one's hold.
    pub nested: bool,
    /// How often readiness is looked for where nothing tells of it.
    pub ready_interval: Duration,
    /// How long one such look may take.
    pub ready_timeout: Duration,
    /// What the guard has to know to judge it as a test run; none for a start.
    #[serde(default)]
    pub test: Option<TestTerms>,
}

/// What the caller of a test run has said about its targets. The guard judges the command by it, as `quell test` does.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TestTerms {
    /// The directories that targets have to be in.
    #[serde(default)]
    pub scope: Vec<PathBuf>,
    /// The report that the command writes.
    #[serde(default)]
    pub junit: Option<PathBuf>,
    /// Whether the run is approved.
    #[serde(default)]
    pub approved: bool,
    /// Whether it has to name a target.
    #[serde(default)]
    pub require_target: bool,
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
pub(crate) const DESCRIPTOR: &str = "descriptor ";

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

    /// What to do about it.
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

    /// Whether the same call may succeed later without anything being mended.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Stopped(_) | Self::System { .. })
    }

    /// quell's exit code for it.
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
