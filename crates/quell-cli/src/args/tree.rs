//! The arguments of `tree`.

use clap::Args;

const TREE_HELP: &str = "\
A live job shows its processes with their state, CPU time and memory. An ended job shows the processes that \
were seen, and how each of them ended.

Exit codes, the highest one of several jobs:
  0    success
  2    wrong usage
  3    no such job
  4    refused by the guard
  5    its keeper was killed, and it is not proven dead
  125  quell failed

Examples:
  quell tree web
  quell tree 01KA3W6Z --json | jq '.data.processes[].pid'";

#[derive(Args)]
#[command(after_help = TREE_HELP)]
pub struct TreeArgs {
    /// Name, id, or start of an id (at least 4 characters)
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// Print one JSON object per job
    #[arg(long)]
    pub json: bool,
}
