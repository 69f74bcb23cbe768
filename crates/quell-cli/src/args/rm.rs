//! The arguments of `rm`.

use clap::Args;

const RM_HELP: &str = "\
Removes everything that is kept of ended jobs: record, logs and receipt. A live job is refused. A job whose \
keeper was killed is finished first. A job with survivors stays, because they are stopped by its record. If \
an argument matches no job, nothing is removed.

Exit codes, the highest one of several jobs:
  0    all are removed
  1    a job is alive; stop it first
  2    wrong usage
  3    no such job
  4    refused by the guard
  5    a job has survivors, and stays unless --force is given
  125  quell failed

Examples:
  quell rm web
  quell rm 01KA3W6Z 01KA3W70
  quell rm $(quell list --all --ids --state ended --tag ci)";

#[derive(Args)]
#[command(after_help = RM_HELP)]
pub struct RmArgs {
    /// Name, id, or start of an id (at least 4 characters)
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// Also remove jobs with survivors, which quell then can't stop any more
    #[arg(long, short)]
    pub force: bool,
    /// Print one JSON object per job
    #[arg(long)]
    pub json: bool,
}
