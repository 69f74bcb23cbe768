//! The arguments of `status`.

use clap::Args;

const STATUS_HELP: &str = "\
Exit codes: 0 it is alive, or its command exited with 0; 1 it ended otherwise; 2 usage; 3 no such job; 5 it was stopped, or
its keeper was lost, and it is not proven dead, however its command exited; 125 quell failed. Of several jobs the highest
one counts.

Examples:
  quell status web
  quell status 01KA3W6Z 01KA3W70
  quell status web --json | jq .data.job.state";

#[derive(Args)]
#[command(after_help = STATUS_HELP)]
pub struct StatusArgs {
    /// Ids, beginnings of ids, or names
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// Print one JSON object a job
    #[arg(long)]
    pub json: bool,
}
