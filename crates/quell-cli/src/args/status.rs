//! The arguments of `status`.

use clap::Args;

const STATUS_HELP: &str = "\
Exit codes, the highest one of several jobs:
  0    it is alive, or its command exited with 0
  1    it ended in another way
  2    wrong usage
  3    no such job
  4    refused by the guard
  5    it is not proven dead
  125  quell failed

Examples:
  quell status web
  quell status 01KA3W6Z 01KA3W70
  quell status web --json | jq .data.job.state";

#[derive(Args)]
#[command(after_help = STATUS_HELP)]
pub struct StatusArgs {
    /// Name, id, or start of an id (at least 4 characters)
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// Print one JSON object per job
    #[arg(long)]
    pub json: bool,
}
