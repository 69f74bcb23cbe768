//! The arguments of `kill` and `guard`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use quell_core::{Signal, parse_duration};

use super::LeakArg;
use super::common::timeout;
use super::service::ServiceWhat;

const KILL_HELP: &str = "\
For a process that quell didn't start; `quell stop` ends jobs. It must be allowed by [guard.kill] in your config.toml
(docs/guard.md); nothing is by default. TERM, INT, QUIT and ABRT ask it to end, and KILL follows when the grace is over;
any other signal is sent once and kills nobody. PID must be one process: no group, no list, no name. Whoever has the
number at the beginning is meant to the end, even if the number is another's meanwhile.

Exit codes: 0 it is gone (or has the signal); 2 usage; 3 no such process; 4 refused by the guard, or by the kernel;
5 it is not proven dead; 125 quell failed.

Examples:
  quell kill 4711
  quell kill 4711 --tree --grace 1s
  quell kill 4711 --signal HUP
  quell guard check kill 4711";

#[derive(Args)]
#[command(after_help = KILL_HELP)]
pub struct KillArgs {
    /// The number of the process
    #[arg(value_name = "PID", allow_negative_numbers = true)]
    pub pid: String,
    #[command(flatten)]
    pub how: KillHow,
    /// How long it may take to end before it is killed; 0 for no time at all [default: stop.grace of the settings, 5s]
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct KillHow {
    /// What it gets first, such as TERM, SIGTERM or 15
    #[arg(long, short = 's', value_name = "SIG", default_value = "TERM", value_parser = super::common::signal)]
    pub signal: Signal,
    /// Those below it, too; each of them must be allowed
    #[arg(long)]
    pub tree: bool,
}

#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 it would be allowed; 2 usage; 3 no such process or service; 4 it would be refused.

Examples:
  quell guard check kill 4711 --tree
  quell guard check service restart web --user
  quell guard check test --scope tests -- pytest tests/test_api.py
  quell guard check verb rm
  quell guard check kill 4711 --json")]
pub struct GuardArgs {
    #[command(subcommand)]
    pub verb: GuardVerb,
}

/// What can be asked of the guard.
#[derive(Subcommand)]
pub enum GuardVerb {
    /// Say whether something would be allowed, and by which rule; do nothing
    #[command(subcommand)]
    Check(CheckVerb),
}

/// What is to be checked.
#[derive(Subcommand)]
pub enum CheckVerb {
    /// Whether a process may be signalled
    Kill(CheckKillArgs),
    /// Whether a service may be touched
    Service(CheckServiceArgs),
    /// Whether tests may be run
    Test(CheckTestArgs),
    /// Whether one of quell's verbs may be used at all
    Verb(CheckVerbArgs),
}

#[derive(Args)]
pub struct CheckKillArgs {
    /// The number of the process
    #[arg(value_name = "PID", allow_negative_numbers = true)]
    pub pid: String,
    #[command(flatten)]
    pub how: KillHow,
    /// As for `kill`; decides nothing
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// As for `kill`; decides nothing
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct CheckServiceArgs {
    #[command(flatten)]
    pub what: ServiceWhat,
    /// As for `service`; decides nothing
    #[arg(long, value_name = "DUR", value_parser = timeout)]
    pub timeout: Option<Duration>,
    /// As for `service`; decides nothing
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct CheckTestArgs {
    /// A directory that targets must be in; may be given many times
    #[arg(long, value_name = "DIR")]
    pub scope: Vec<PathBuf>,
    /// Say that somebody has approved this run
    #[arg(long)]
    pub approve: bool,
    /// Refuse a command that names no target
    #[arg(long)]
    pub require_target: bool,
    /// As for `test`; decides nothing
    #[arg(long, value_name = "DUR", value_parser = timeout)]
    pub timeout: Option<Duration>,
    /// As for `test`; decides nothing
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// As for `test`; decides nothing
    #[arg(long, value_enum)]
    pub leak: Option<LeakArg>,
    /// As for `test`; decides nothing
    #[arg(long, value_name = "FILE")]
    pub evidence: Option<PathBuf>,
    /// The report that the command would write
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// As for `test`; decides nothing
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Args)]
pub struct CheckVerbArgs {
    /// Such as `rm`, or "service stop"
    #[arg(value_name = "VERB")]
    pub verb: String,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
