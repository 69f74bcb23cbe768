//! The arguments of `start`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use quell::units::parse_size;

use super::common::{JobArgs, OwnerArg, WaitReady, owner, timeout, wait_ready};

const START_HELP: &str = "\
Prints the id of the job as soon as the program runs. --wait-ready waits until the job is ready; if that \
takes too long, quell exits with 6 and the job goes on. With several --ready options, all must hold. \
--ready-log reads complete lines, the first MiB of each: a prompt without a line end does not match.

If quell fails, nothing runs and nothing is left behind. The exception is a failure after the start, such as \
a closed stdout: then stderr has the id.

Owners: --owner self is the process that calls quell (a shell, an agent), parent is the process above it, \
session:NAME puts the job into a session (`quell stop --session NAME`). When the owner exits, the job is \
stopped. A job that is started inside a job belongs to that job.

Exit codes:
  0    the job runs
  1    the name is taken, or the job ended before it was ready
  2    wrong usage
  4    refused by the guard
  5    a lost job has the name, and the policy does not let quell stop it
  6    not ready in time; the job goes on
  125  quell failed
  126  the command can't be executed
  127  the command was not found

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
    /// Standard input: a file, - for quell's own, pipe for `quell send`, null [default: null]
    #[arg(long, value_name = "FILE|-|pipe|null")]
    pub stdin: Option<OsString>,
    /// Run the command in a terminal of its own
    #[arg(long)]
    pub pty: bool,
    /// Output to keep per stream, head and tail [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_log: Option<u64>,
    /// Ready when the job listens on this TCP port
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub ready_port: Option<u16>,
    /// Ready when a line of its output matches
    #[arg(long, value_name = "REGEX")]
    pub ready_log: Option<String>,
    /// Ready when the job answers here with a status from 200 to 399
    #[arg(long, value_name = "URL")]
    pub ready_http: Option<String>,
    /// Ready when this shell command exits with 0
    #[arg(long, value_name = "CMD")]
    pub ready_cmd: Option<String>,
    /// Wait until the job is ready, for this time at most
    #[arg(long, value_name = "DUR", num_args = 0..=1, default_missing_value = "", value_parser = wait_ready)]
    pub wait_ready: Option<WaitReady>,
    /// Start the command again when it has ended [default: no]
    #[arg(long, value_enum)]
    pub restart: Option<RestartArg>,
    /// Number of restarts, or none for no limit [default: 10]
    #[arg(long, value_name = "N", value_parser = restart_limit)]
    pub restart_limit: Option<RestartLimit>,
    /// Process or session that the job lives for
    #[arg(long, value_name = "PID|self|parent|session:NAME", value_parser = owner)]
    pub owner: Option<OwnerArg>,
    /// What happens when the owner exits [default: stop]
    #[arg(long, value_enum)]
    pub on_owner_exit: Option<OwnerExitArg>,
    /// Stop the job after this time, restarts included
    #[arg(long, value_name = "DUR", value_parser = timeout)]
    pub ttl: Option<Duration>,
    /// Variable whose value is masked in all that quell shows (repeatable)
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
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
        text => text
            .parse()
            .map(|limit| RestartLimit(Some(limit)))
            .map_err(|_| "expected a number, or none".into()),
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub enum RestartArg {
    /// Never
    No,
    /// When it did not exit with 0, unless the job was stopped
    OnFailure,
    /// Whenever it has ended, unless the job was stopped
    Always,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum OwnerExitArg {
    /// Stop the job
    Stop,
    /// Keep the job
    Keep,
}
