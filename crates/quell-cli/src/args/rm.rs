//! The arguments of `rm`.

use clap::Args;

const RM_HELP: &str = "\
Removes the records of jobs that have ended: what is known of them, their logs and their receipts. A job that is alive is
refused; one whose keeper was killed is finished first. One that has survivors stays, as its record is what they are
stopped by; one that is not proven dead as nobody can know any more goes. If one of the words means no job, none is
removed.

Exit codes: 0 all are removed; 1 one is alive: stop it first; 2 usage; 3 no such job; 5 one has survivors, and stays
unless --force is given; 125 quell failed. Of several jobs the highest one counts.

Examples:
  quell rm web
  quell rm 01KA3W6Z 01KA3W70
  quell rm $(quell list --all --ids --state ended --tag ci)";

#[derive(Args)]
#[command(after_help = RM_HELP)]
pub struct RmArgs {
    /// Ids, beginnings of ids, or names
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// Also those with survivors; quell can't stop them after that
    #[arg(long, short)]
    pub force: bool,
    /// Print one JSON object a job
    #[arg(long)]
    pub json: bool,
}
