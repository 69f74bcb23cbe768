//! The arguments of `list`.

use std::time::Duration;

use clap::Args;
use quell_core::parse_duration;

const LIST_HELP: &str = "\
Live jobs come first, newest first; then those that ended last. AGE is the time since the start of a live job and since the
end of another. On a terminal a line is cut to its width (COLUMNS goes over that); a program gets all of it. A job whose
keeper was killed is finished first, which is told on stderr.

Exit codes: 0; 2 usage; 125 quell failed.

Examples:
  quell list
  quell list --all --state ended --since 1h
  quell list --tag team=a --tag web --session agent-7
  quell list --name web --json
  quell stop $(quell list --ids --limit 0 --tag ci)";

#[derive(Args)]
#[command(after_help = LIST_HELP)]
pub struct ListArgs {
    /// All that have ended, not only the last ten
    #[arg(long, short)]
    pub all: bool,
    /// In this state: created, starting, running, ready, stopping, waiting, ended, lost; may be given many times
    #[arg(long, value_name = "STATE")]
    pub state: Vec<String>,
    /// With this label; may be given many times
    #[arg(long, value_name = "K[=V]")]
    pub tag: Vec<String>,
    /// Of this session
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Of this name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// How many that have ended at most [default: 10]
    #[arg(long, value_name = "N", conflicts_with = "all")]
    pub limit: Option<usize>,
    /// Of those that have ended, the ones that did so within this time: 10m, 2h, 7d
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub since: Option<Duration>,
    /// Print whole ids and nothing else
    #[arg(long, conflicts_with = "json")]
    pub ids: bool,
    /// Print ids and names and nothing else, for completions
    #[arg(long, hide = true, conflicts_with_all = ["json", "ids"])]
    pub words: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
