//! What several verbs have in common: groups of arguments, and how single words are read.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use quell::binary::parse_assignment;
use quell::units::{parse_cores, parse_duration, parse_size};
use quell::{AskScope, Contain, JobId, Leak, Signal};

#[derive(Clone, Copy, ValueEnum)]
pub enum ContainArg {
    /// The strongest one that does not change what the program sees
    Auto,
    /// A cgroup v2 of its own, or a systemd scope
    Cgroup,
    /// A PID namespace with its own /proc; the program sees other PIDs
    Pidns,
    /// Subreaper, session and process group; works everywhere
    Reaper,
}

impl From<ContainArg> for Contain {
    fn from(arg: ContainArg) -> Self {
        match arg {
            ContainArg::Auto => Self::Auto,
            ContainArg::Cgroup => Self::Cgroup,
            ContainArg::Pidns => Self::Pidns,
            ContainArg::Reaper => Self::Reaper,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub enum LeakArg {
    /// Stop them; `run` says how many there were
    Stop,
    /// Stop them; `run` names them
    Report,
    /// Stop them and fail: `run` exits with 123, `test` with 1 (not for `start`)
    Fail,
    /// Keep them as a live job, and exit when the command does (only for `run`)
    Keep,
}

impl From<LeakArg> for Leak {
    fn from(arg: LeakArg) -> Self {
        match arg {
            LeakArg::Stop => Self::Stop,
            LeakArg::Report => Self::Report,
            LeakArg::Fail => Self::Fail,
            LeakArg::Keep => Self::Keep,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub enum AskArg {
    /// All processes at once
    Tree,
    /// The command first; the rest when it has exited
    Root,
}

impl From<AskArg> for AskScope {
    fn from(arg: AskArg) -> Self {
        match arg {
            AskArg::Tree => Self::Tree,
            AskArg::Root => Self::Root,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub enum UntilArg {
    /// The exit of the command
    Root,
    /// The exit of its last process
    Tree,
}

// What `run` and `start` have in common. Not for the help, which would begin with it.
#[derive(Args)]
pub struct JobArgs {
    /// Stop the job after this time: 300ms, 1.5s, 2m, 1h
    #[arg(long, value_name = "DUR", value_parser = timeout)]
    pub timeout: Option<Duration>,
    /// Time between the request to exit and the kill [default: 5s]
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// Signal that asks the job to exit: TERM, SIGINT, 15 [default: TERM]
    #[arg(long, value_name = "SIG", value_parser = signal)]
    pub signal: Option<Signal>,
    /// Processes that are asked first [default: tree]
    #[arg(long, value_enum)]
    pub ask: Option<AskArg>,
    /// How the process tree is contained [default: auto]
    #[arg(long, value_enum)]
    pub contain: Option<ContainArg>,
    /// What to do with processes that outlive the command
    #[arg(long, value_enum, default_value = "stop")]
    pub leak: LeakArg,
    /// What ends the job [default: root]
    #[arg(long, value_enum)]
    pub until: Option<UntilArg>,
    /// Working directory
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Set a variable (repeatable)
    #[arg(long, value_name = "K=V", value_parser = parse_assignment)]
    pub env: Vec<(String, String)>,
    /// Set variables from a file: lines K=V, quotes kept; --env overrides it
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Start with an empty environment
    #[arg(long)]
    pub clear_env: bool,
    /// Memory limit of the whole tree: 512M, 2G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub limit_memory: Option<u64>,
    /// Limit of processes in the whole tree
    #[arg(long, value_name = "N", value_parser = count)]
    pub limit_procs: Option<u64>,
    /// CPU limit of the whole tree in cores: 0.5, 2
    #[arg(long, value_name = "CORES", value_parser = parse_cores)]
    pub limit_cpu: Option<f64>,
    /// Name of the job: letters, digits, `.`, `-` and `_`
    #[arg(long, value_parser = job_name)]
    pub name: Option<String>,
    /// Label (repeatable)
    #[arg(long, value_name = "K=V", value_parser = parse_assignment)]
    pub tag: Vec<(String, String)>,
}

/// How long to wait for readiness; none for as long as is configured.
#[derive(Clone, Copy)]
pub struct WaitReady(pub Option<Duration>);

pub fn wait_ready(text: &str) -> Result<WaitReady, String> {
    if text.is_empty() {
        Ok(WaitReady(None))
    } else {
        patience(text).map(|duration| WaitReady(Some(duration)))
    }
}

/// The owner of a job.
#[derive(Clone)]
pub enum OwnerArg {
    Pid(u32),
    Caller,
    CallersParent,
    Session(String),
}

impl OwnerArg {
    pub fn session(&self) -> Option<String> {
        match self {
            Self::Session(name) => Some(name.clone()),
            Self::Pid(_) | Self::Caller | Self::CallersParent => None,
        }
    }
}

pub fn owner(text: &str) -> Result<OwnerArg, String> {
    match text {
        "self" => Ok(OwnerArg::Caller),
        "parent" => Ok(OwnerArg::CallersParent),
        text => match (text.strip_prefix("session:"), text.parse()) {
            (Some(session), _) => name(session).map(OwnerArg::Session),
            (None, Ok(pid)) if pid > 0 => Ok(OwnerArg::Pid(pid)),
            (None, _) => Err("expected a PID, self, parent or session:NAME".into()),
        },
    }
}

/// How long something may take; none for no limit.
#[derive(Clone, Copy)]
pub struct Bound(pub Option<Duration>);

pub fn bound(text: &str) -> Result<Bound, String> {
    match parse_duration(text) {
        _ if text == "none" => Ok(Bound(None)),
        Ok(Duration::ZERO) => Err("must be greater than 0; `none` means no limit".into()),
        Ok(duration) => Ok(Bound(Some(duration))),
        Err(error) => Err(error.to_string()),
    }
}

pub fn timeout(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be greater than 0; leave it out for no timeout".into()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

/// How many there may be at most.
fn count(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| "expected a whole number greater than 0".into())
}

/// How many are shown.
pub fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "expected a whole number".into())
}

/// How long something is waited for.
pub fn patience(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be greater than 0".into()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

pub fn signal(text: &str) -> Result<Signal, String> {
    text.parse::<Signal>().map_err(|error| match Signal::nearest(text) {
        Some(near) => format!("`{text}` is not a signal: did you mean {near}?"),
        None => error.to_string(),
    })
}

/// The name of a job, which must not hide the id of another one.
pub fn job_name(text: &str) -> Result<String, String> {
    match JobId::may_begin_with(text) {
        true => Err(format!("`{text}` looks like the beginning of a job id: choose another name")),
        false => name(text),
    }
}

pub fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if (1..=64).contains(&text.len()) && text.chars().all(plain) && !text.starts_with(['.', '-']) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "`{text}` is not a name: use 1 to 64 letters, digits, `.`, `-` or `_`, not starting with `.` or `-`"
        ))
    }
}
