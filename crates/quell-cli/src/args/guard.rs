//! The arguments of `guard`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use quell::units::parse_duration;

use super::LeakArg;
use super::common::timeout;
use super::kill::KillHow;
use super::service::ServiceWhat;

#[derive(Args)]
#[command(after_help = "\
Exit codes:
  0    it would be allowed
  2    wrong usage
  3    no such process or service
  4    it would be refused
  125  quell failed

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
    /// Show whether something would be allowed, and by which rule
    #[command(subcommand)]
    Check(CheckVerb),
}

/// What is to be checked.
#[derive(Subcommand)]
pub enum CheckVerb {
    /// Check whether a process may be signalled
    Kill(CheckKillArgs),
    /// Check whether a service may be controlled
    Service(CheckServiceArgs),
    /// Check whether tests may be run
    Test(CheckTestArgs),
    /// Check whether a command of quell may be used
    Verb(CheckVerbArgs),
}

#[derive(Args)]
pub struct CheckKillArgs {
    /// Process id
    #[arg(value_name = "PID", allow_negative_numbers = true)]
    pub pid: String,
    #[command(flatten)]
    pub how: KillHow,
    /// As for `kill`; has no effect on the decision
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// As for `kill`; has no effect on the decision
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
    /// As for `service`; has no effect on the decision
    #[arg(long, value_name = "DUR", value_parser = timeout)]
    pub timeout: Option<Duration>,
    /// As for `service`; has no effect on the decision
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct CheckTestArgs {
    /// Directory that targets must be in (repeatable)
    #[arg(long, value_name = "DIR")]
    pub scope: Vec<PathBuf>,
    /// State that this run is approved
    #[arg(long)]
    pub approve: bool,
    /// Refuse a command without a target
    #[arg(long)]
    pub require_target: bool,
    /// As for `test`; has no effect on the decision
    #[arg(long, value_name = "DUR", value_parser = timeout)]
    pub timeout: Option<Duration>,
    /// As for `test`; has no effect on the decision
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// As for `test`; has no effect on the decision
    #[arg(long, value_enum)]
    pub leak: Option<LeakArg>,
    /// As for `test`; has no effect on the decision
    #[arg(long, value_name = "FILE")]
    pub evidence: Option<PathBuf>,
    /// Report that the command would write
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// As for `test`; has no effect on the decision
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
