//! The arguments of `restart`.

use std::time::Duration;

use clap::Args;
use quell_core::parse_duration;

use super::common::{WaitReady, wait_ready};

const RESTART_HELP: &str = "\
The old job is stopped first, as by `quell stop`; if anything of it is known to
be alive after that, nothing is started; where that can't be known (its keepers
were killed, and only the reaper held it), it is, with a warning. The new one has another id and the same
command, directory, environment, name and rules. An ended job is started again as
well. Where its directory, its program or what it reads is gone, nothing is
stopped; nor is a job with --stdin -, as nobody can give it the same input again,
nor one that another quell restarts or has restarted.

Exit codes: 0; 1 it can't be restarted (a `quell run`, --stdin -, already done),
or ended before it was ready; 2 usage; 3 no such job; 5 something of the old one
is alive; 6 it runs and is not ready yet; 125 to 127 it could not be started.

Examples:
  quell restart web
  quell restart web worker --grace 1s
  quell restart web --wait-ready 30s --json";

#[derive(Args)]
#[command(after_help = RESTART_HELP)]
pub struct RestartArgs {
    /// Ids, beginnings of ids, or names
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// Kill the old one at once, without asking
    #[arg(long, visible_alias = "kill")]
    pub now: bool,
    /// How long the old tree may take to end when asked [default: the job's own]
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// Why, for the receipt
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Wait until the new one is ready, for this long at most
    #[arg(long, value_name = "DUR", num_args = 0..=1, default_missing_value = "",
          require_equals = false, value_parser = wait_ready)]
    pub wait_ready: Option<WaitReady>,
    /// Print one JSON object a job
    #[arg(long)]
    pub json: bool,
}
