//! The arguments of `sweep`.

use clap::Args;

#[derive(Args)]
#[command(after_help = "\
Every job that is on record as alive and that nobody keeps any more is killed, counted and ended; every other command does
so with the jobs that it meets. What is kept is not touched.

Exit codes: 0 if all that was found is gone, 5 if something is not proven dead.

Examples:
  quell sweep --dry-run
  quell sweep
  quell sweep --json")]
pub struct SweepArgs {
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
