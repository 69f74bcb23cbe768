//! The arguments of `kill`.

use std::time::Duration;

use clap::Args;
use quell::Signal;
use quell::units::parse_duration;

const KILL_HELP: &str = "\
For a process that quell did not start; use `quell stop` for jobs. [guard.kill] in your config.toml must \
allow it (docs/guard.md); by default nothing is allowed. TERM, INT, QUIT and ABRT ask the process to exit, \
and KILL follows after the grace. Any other signal is sent once. PID must be a single process, not a group \
and not a name. It is pinned at the start, so a process that gets the same PID later is not signalled.

Exit codes:
  0    it is gone, or got the signal
  2    wrong usage
  3    no such process
  4    refused by the guard or the kernel
  5    not proven dead
  125  quell failed

Examples:
  quell kill 4711
  quell kill 4711 --tree --grace 1s
  quell kill 4711 --signal HUP
  quell guard check kill 4711";

#[derive(Args)]
#[command(after_help = KILL_HELP)]
pub struct KillArgs {
    /// Process id
    #[arg(value_name = "PID", allow_negative_numbers = true)]
    pub pid: String,
    /// Signal to send first: TERM, SIGTERM, 15
    #[arg(long, short = 's', value_name = "SIG", default_value = "TERM", value_parser = super::common::signal)]
    pub signal: Signal,
    /// Include all descendants; each of them must be allowed
    #[arg(long)]
    pub tree: bool,
    /// Time between the request to exit and the kill [default: stop.grace, 5s]
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// Reason, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
