//! The arguments of `start`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use quell_core::parse_size;

use super::common::{JobArgs, OwnerArg, WaitReady, owner, timeout, wait_ready};

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
