//! The arguments of `guard`.

use clap::{Args, Subcommand};

use super::{KillArgs, ServiceArgs, TestArgs};

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

// The verbs of `quell guard`. A doc comment here would replace the help of `quell guard` itself.
#[derive(Subcommand)]
pub enum GuardVerb {
    /// Show whether something would be allowed, and by which rule
    #[command(subcommand)]
    Check(CheckVerb),
}

// The arguments are those of the verb itself, so that a command line can be checked as it is.
#[derive(Subcommand)]
pub enum CheckVerb {
    /// Check whether a process may be signalled
    #[command(after_help = "")]
    Kill(KillArgs),
    /// Check whether a service may be controlled
    #[command(after_help = "")]
    Service(ServiceArgs),
    /// Check whether tests may be run
    #[command(after_help = "", override_usage = "quell guard check test [OPTIONS] -- CMD…")]
    Test(TestArgs),
    /// Check whether a command of quell may be used
    Verb(CheckVerbArgs),
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
