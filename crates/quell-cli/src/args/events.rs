//! The arguments of `events`.

use clap::Args;

const EVENTS_HELP: &str = "\
Without a JOB: the live jobs and the last ten that ended; with --follow the live
ones and those that will be, until it is interrupted. With a JOB --follow ends
when the job has. A `quell run` has no history; what its record tells is shown.

Exit codes: 0; 2 usage; 3 no such job; 125 quell failed.

Examples:
  quell events web
  quell events --since 10m
  quell events -f --json
  quell events web worker -f";

#[derive(Args)]
#[command(after_help = EVENTS_HELP)]
pub struct EventsArgs {
    /// Ids, beginnings of ids, or names
    #[arg(value_name = "JOB")]
    pub jobs: Vec<String>,
    /// Go on with what happens
    #[arg(short, long)]
    pub follow: bool,
    /// Only what happened since: a duration such as 10m, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Print one JSON object an event
    #[arg(long)]
    pub json: bool,
}
