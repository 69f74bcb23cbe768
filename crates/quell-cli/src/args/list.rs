//! The arguments of `list`.

use std::time::Duration;

use clap::Args;
use quell::units::parse_duration;

use super::common::{name, number};

const LIST_HELP: &str = "\
Live jobs come first, newest first, then the jobs that ended last. AGE is the time since the start of a live \
job, or since the end. On a terminal lines are cut to its width (COLUMNS overrides it); in a pipe they are \
whole. A job whose keeper was killed is finished first, and stderr says so.

Exit codes:
  0    success
  2    wrong usage
  4    refused by the guard
  5    a job that is listed is not proven dead
  125  quell failed

Examples:
  quell list
  quell list --all --state ended --since 1h
  quell list --tag team=a --tag web --session agent-7
  quell list --name web --json
  quell stop $(quell list --ids --limit 0 --tag ci)";

#[derive(Args)]
#[command(after_help = LIST_HELP)]
pub struct ListArgs {
    /// Show all ended jobs, not only the last ten
    #[arg(long, short)]
    pub all: bool,
    /// In this state: created, starting, running, ready, stopping, waiting, ended, lost (repeatable)
    #[arg(long, value_name = "STATE")]
    pub state: Vec<String>,
    /// With this label (repeatable)
    #[arg(long, value_name = "K[=V]")]
    pub tag: Vec<String>,
    /// In this session
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub session: Option<String>,
    /// With this name
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: Option<String>,
    /// Number of ended jobs at most [default: 10]
    #[arg(long, value_name = "N", value_parser = number, conflicts_with = "all")]
    pub limit: Option<usize>,
    /// Ended jobs of the last 10m, 2h, 7d only
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub since: Option<Duration>,
    /// Print full ids only
    #[arg(long, conflicts_with = "json")]
    pub ids: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
