//! The arguments of `run` and `start`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use quell_core::{AskScope, Signal, parse_assignment, parse_cores, parse_duration, parse_size};

#[derive(Clone, Copy, ValueEnum)]
pub enum ContainArg {
    /// The strongest that doesn't change what the program sees
    Auto,
    /// A cgroup v2 of its own (own tree, or a scope of the systemd user manager)
    Cgroup,
    /// A PID namespace with its own /proc: the program sees other pids
    Pidns,
    /// Subreaper, session and group: works everywhere
    Reaper,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum LeakArg {
    /// Stop them
    Stop,
    /// Stop them and say so
    Report,
    /// Stop them and exit with 123; not for `quell start`
    Fail,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum AskArg {
    /// All processes at once
    Tree,
    /// The command itself, which shuts its workers down; what is left then is asked when it has exited
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
    /// The exit of the command itself
    Root,
    /// The exit of the last process that it started
    Tree,
}

// What `run` and `start` have in common. Not for the help, which would begin with it.
#[derive(Args)]
pub struct JobArgs {
    /// Stop it after this long: 300ms, 1.5s, 2m, 1h
    #[arg(long, value_name = "DUR", value_parser = timeout)]
    pub timeout: Option<Duration>,
    /// How long the tree may take to end when asked, before it is killed [default: 5s]
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// The signal that asks: TERM, SIGINT, 15, … [default: TERM]
    #[arg(long, value_name = "SIG", value_parser = signal)]
    pub signal: Option<Signal>,
    /// Which processes are asked first [default: tree]
    #[arg(long, value_enum)]
    pub ask: Option<AskArg>,
    /// What holds the tree [default: auto]
    #[arg(long, value_enum)]
    pub contain: Option<ContainArg>,
    /// What to do about processes that outlive the command
    #[arg(long, value_enum, default_value = "stop")]
    pub leak: LeakArg,
    /// What ends the job [default: root]
    #[arg(long, value_enum)]
    pub until: Option<UntilArg>,
    /// Start in this directory
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Set a variable; may be given many times
    #[arg(long, value_name = "K=V", value_parser = parse_assignment)]
    pub env: Vec<(String, String)>,
    /// Set the variables of a file, one K=V a line, # for comments; --env goes over it
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Begin with an empty environment
    #[arg(long)]
    pub clear_env: bool,
    /// Memory for the whole tree: 512M, 2G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub limit_memory: Option<u64>,
    /// Processes in the whole tree
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit_procs: Option<u64>,
    /// Cores for the whole tree: 0.5, 2
    #[arg(long, value_name = "CORES", value_parser = parse_cores)]
    pub limit_cpu: Option<f64>,
    /// A name for people: letters, digits, dots, dashes and underscores
    #[arg(long, value_parser = name)]
    pub name: Option<String>,
    /// A label; may be given many times
    #[arg(long, value_name = "K=V", value_parser = parse_assignment)]
    pub tag: Vec<(String, String)>,
}

const RUN_HELP: &str = "\
Exit codes:
  CMD's own   as it exited; 128+n if it died of signal n
  122         not proven dead: the receipt and stderr name the survivors
  123         something outlived the command, and --leak fail was given
  124         timed out
  125         quell itself failed or was called wrongly; or its keeper was killed when the command had exited already,
              and the rest of the tree with it
  126, 127    the command can't be executed, can't be found

A TERM, INT, HUP or QUIT to quell asks the whole tree to end, gives it --grace, then kills it; a second one kills it at
once. Keys of the terminal (Ctrl-C, Ctrl-Z) reach the command as they would without quell.

Examples:
  quell run --timeout 10m -- cargo test
  quell run --timeout 2s --grace 500ms --receipt r.json -- ./flaky-server
  quell run --leak fail -- make check
  quell run --contain pidns --json -- npm test";

#[derive(Args)]
#[command(after_help = RUN_HELP, override_usage = "quell run [OPTIONS] -- CMD…")]
pub struct RunArgs {
    #[command(flatten)]
    pub job: JobArgs,
    /// Write the receipt (JSON) to this file
    #[arg(long, value_name = "FILE")]
    pub receipt: Option<PathBuf>,
    /// Write the receipt (JSON) to this open descriptor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub receipt_fd: Option<i32>,
    /// What it reads, instead of what quell reads: a file, or null
    #[arg(long, value_name = "FILE|null")]
    pub stdin: Option<PathBuf>,
    /// Stop it when this process is gone, too: a pid, self (who calls quell) or parent (the one above that)
    #[arg(long, value_name = "PID|self|parent", value_parser = owner)]
    pub owner: Option<OwnerArg>,
    /// Say nothing on stderr about what was stopped
    #[arg(long, short)]
    pub quiet: bool,
    /// Print the receipt in an envelope as the last line of stdout; errors too
    #[arg(long)]
    pub json: bool,
    /// Keep no record of the run in QUELL_HOME
    #[arg(long)]
    pub no_record: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

const START_HELP: &str = "\
Prints the id once the program runs. With --wait-ready it also waits until the job is ready, and exits with 6 if it is
not in that time (the job goes on), with 1 if it ended before. A job that was ready and ended right after was ready.

Exit codes: 0 it runs; 1 the name is taken, or it ended before it was ready; 2 usage; 6 not ready in time;
125 quell failed; 126, 127 the command can't be executed, can't be found. With an error nothing runs and nothing is left;
unless it is about what comes after the start, such as a stdout that can't be written: then stderr has the id.

Owners: --owner self is the process that calls quell (a shell, an agent), parent the one above it, session:NAME puts the
job into a session (`quell stop --session NAME`). When an owner is gone, however it went, the job is stopped. A job that
is started inside a job belongs to that one.

Examples:
  quell start --name web --ready-port 3000 --wait-ready 30s -- npm run dev
  quell start --owner parent --timeout 10m -- cargo test
  quell start --restart on-failure --restart-limit 5 -- ./worker
  quell start --stdin pipe --name repl -- python3 -i
  quell start --mask TOKEN --env-file .env -- ./deploy";

#[derive(Args)]
#[command(after_help = START_HELP, override_usage = "quell start [OPTIONS] -- CMD…")]
pub struct StartArgs {
    #[command(flatten)]
    pub job: JobArgs,
    /// What it reads: a file, - for what quell reads, pipe for `quell send`, null for nothing
    #[arg(long, value_name = "FILE|-|pipe|null", default_value = "null")]
    pub stdin: OsString,
    /// Give it a terminal
    #[arg(long)]
    pub pty: bool,
    /// How much of each output stream is kept, head and tail [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_log: Option<u64>,
    /// Ready when a process of the job listens on this TCP port
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub ready_port: Option<u16>,
    /// Ready when a whole line of its output matches, by its first 1 MiB
    #[arg(long, value_name = "REGEX")]
    pub ready_log: Option<String>,
    /// Ready when a server of the job answers here with a status from 200 to 399: http://127.0.0.1:3000/health
    #[arg(long, value_name = "URL")]
    pub ready_http: Option<String>,
    /// Ready when this shell command exits with 0
    #[arg(long, value_name = "CMD")]
    pub ready_cmd: Option<String>,
    /// Wait until it is ready, for this long at most
    #[arg(long, value_name = "DUR", num_args = 0..=1, default_missing_value = "", value_parser = wait_ready)]
    pub wait_ready: Option<WaitReady>,
    /// Start it again when it has ended [default: no]
    #[arg(long, value_enum)]
    pub restart: Option<RestartArg>,
    /// How often at most, or none for no limit [default: 10]
    #[arg(long, value_name = "N", value_parser = restart_limit)]
    pub restart_limit: Option<RestartLimit>,
    /// Whom it lives for
    #[arg(long, value_name = "PID|self|parent|session:NAME", value_parser = owner)]
    pub owner: Option<OwnerArg>,
    /// What becomes of it when its owner is gone [default: stop]
    #[arg(long, value_enum)]
    pub on_owner_exit: Option<OwnerExitArg>,
    /// Stop it after this long, restarts included
    #[arg(long, value_name = "DUR", value_parser = timeout)]
    pub ttl: Option<Duration>,
    /// A variable whose value is masked wherever quell shows it; may be given many times
    #[arg(long, value_name = "NAME")]
    pub mask: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
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

/// How often a program is started again; none for no limit.
#[derive(Clone, Copy)]
pub struct RestartLimit(pub Option<u32>);

fn restart_limit(text: &str) -> Result<RestartLimit, String> {
    match text {
        "none" => Ok(RestartLimit(None)),
        text => {
            text.parse().map(|limit| RestartLimit(Some(limit))).map_err(|_| "give a number, or none".into())
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub enum RestartArg {
    /// Never
    No,
    /// When it did not exit with 0, also after its timeout, unless the job was stopped
    OnFailure,
    /// Whenever it has ended, also by its timeout, unless the job was stopped
    Always,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum OwnerExitArg {
    /// It is stopped
    Stop,
    /// It goes on
    Keep,
}

/// Whom a job lives for.
#[derive(Clone)]
pub enum OwnerArg {
    Pid(u32),
    Caller,
    CallersParent,
    Session(String),
}

fn owner(text: &str) -> Result<OwnerArg, String> {
    match text {
        "self" => Ok(OwnerArg::Caller),
        "parent" => Ok(OwnerArg::CallersParent),
        text => match (text.strip_prefix("session:"), text.parse()) {
            (Some(session), _) => name(session).map(OwnerArg::Session),
            (None, Ok(pid)) if pid > 0 => Ok(OwnerArg::Pid(pid)),
            (None, _) => Err("give a pid, self, parent or session:NAME".into()),
        },
    }
}

/// How long something may take; none for no limit.
#[derive(Clone, Copy)]
pub struct Bound(pub Option<Duration>);

pub fn bound(text: &str) -> Result<Bound, String> {
    if text == "none" { Ok(Bound(None)) } else { timeout(text).map(|duration| Bound(Some(duration))) }
}

pub fn timeout(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(Duration::ZERO) => {
            Err("a timeout of 0 would end the command before it begins; leave it out for none".into())
        }
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

/// How long something is waited for.
pub fn patience(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(Duration::ZERO) => Err("in no time nothing happens; give more than 0".into()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

pub fn signal(text: &str) -> Result<Signal, String> {
    text.parse::<Signal>().map_err(|error| match Signal::nearest(text) {
        Some(near) => format!("`{text}` is no signal: did you mean {near}?"),
        None => error.to_string(),
    })
}

pub fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if (1..=64).contains(&text.len()) && text.chars().all(plain) && !text.starts_with(['.', '-']) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "`{text}` is no name: use 1 to 64 letters, digits, `.`, `-` or `_`, and begin with none of `.` and `-`"
        ))
    }
}
