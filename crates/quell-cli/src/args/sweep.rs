//! The arguments of `sweep`.

use clap::Args;

#[derive(Args)]
#[command(after_help = "\
A job is lost when its keeper and its standby were killed. Every lost job is killed, counted and put on \
record as ended. Other commands do the same with the jobs that they touch. Jobs with a living keeper are \
left alone.

Exit codes:
  0    everything that was found is gone
  2    wrong usage
  4    refused by the guard
  5    something is not proven dead
  125  quell failed

Examples:
  quell sweep --dry-run
  quell sweep
  quell sweep --json")]
pub struct SweepArgs {
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
