//! The arguments of `restart`.

use std::time::Duration;

use clap::Args;
use quell::units::parse_duration;

use super::common::{WaitReady, wait_ready};

const RESTART_HELP: &str = "\
Stops the old job first, as `quell stop` does, then starts a new one with another id and the same command, \
directory, environment, name and rules. A job that has ended is started again as well. If a process of the \
old job is alive, nothing is started. If that can't be known (its keepers were killed), the new one is \
started and its id printed, with a warning and exit code 5.

Nothing is stopped if the new job could not be started: its directory, its program or its input file is \
gone, it was started with --stdin -, or another quell restarts it.

Exit codes:
  0    the new job runs
  1    it can't be restarted, or ended before it was ready
  2    wrong usage
  3    no such job
  4    refused by the guard
  5    a process of the old job is alive, and nothing was started; or the old
       job is not proven dead, and the new one runs (its id is printed)
  6    not ready in time; the new job goes on
  125  quell failed
  126  the command can't be executed
  127  the command was not found

Examples:
  quell restart web
  quell restart web worker --grace 1s
  quell restart web --wait-ready 30s --json";

#[derive(Args)]
#[command(after_help = RESTART_HELP)]
pub struct RestartArgs {
    /// Name, id, or start of an id (at least 4 characters)
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// Kill the old job at once, without a request to exit
    #[arg(long, visible_alias = "kill")]
    pub now: bool,
    /// Time between the request to exit and the kill [default: the job's]
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// Reason, for the receipt
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Wait until the new job is ready, for this time at most
    #[arg(long, value_name = "DUR", num_args = 0..=1, default_missing_value = "",
          require_equals = false, value_parser = wait_ready)]
    pub wait_ready: Option<WaitReady>,
    /// Print one JSON object per job
    #[arg(long)]
    pub json: bool,
}
