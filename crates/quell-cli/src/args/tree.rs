//! The arguments of `tree`.

use clap::Args;

const TREE_HELP: &str = "\
A job that is alive shows its processes with their state, CPU time and memory; one that has ended shows who was seen, and
what became of each.

Exit codes: 0; 2 usage; 3 no such job; 5 its keeper was lost and it is not proven dead; 125 quell failed. Of several jobs
the highest one counts.

Examples:
  quell tree web
  quell tree 01KA3W6Z --json | jq '.data.processes[].pid'";

#[derive(Args)]
#[command(after_help = TREE_HELP)]
pub struct TreeArgs {
    /// Ids, beginnings of ids, or names
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// Print one JSON object a job
    #[arg(long)]
    pub json: bool,
}
