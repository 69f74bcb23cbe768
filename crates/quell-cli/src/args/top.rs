//! The arguments of `top`.

use clap::Args;

const TOP_HELP: &str = "\
Jobs that need attention come first. STATE is about the command itself, PROCS counts all of its processes. \
`?` shows the keys. `x` stops a job, and asks first; a second `x` asks whether to kill it. Leaving does not \
touch any job. The limits of what needs attention are in the settings, [attention].

Without a terminal, or with TERM=dumb, it prints one table and exits.

Exit codes:
  0    success
  2    wrong usage
  4    refused by the guard
  125  quell failed

Examples:
  quell top
  quell top | cat
  quell top --json | jq -r '.data.jobs[].name'";

#[derive(Args)]
#[command(after_help = TOP_HELP)]
pub struct TopArgs {
    /// Print one JSON object, as `quell list --json` does
    #[arg(long)]
    pub json: bool,
}
