//! The arguments of `events`.

use clap::Args;

const EVENTS_HELP: &str = "\
Without JOB it shows live jobs and the ten that ended last; with --follow live jobs and new ones, until it \
is interrupted. With JOB --follow ends when the job ends. A `quell run` has no history; what its record \
knows is shown.

Exit codes:
  0    success
  2    wrong usage
  3    no such job
  4    refused by the guard
  5    a lost job is not proven dead
  125  quell failed

Examples:
  quell events web
  quell events --since 10m
  quell events -f --json
  quell events web worker -f";

#[derive(Args)]
#[command(after_help = EVENTS_HELP)]
pub struct EventsArgs {
    /// Name, id, or start of an id (at least 4 characters)
    #[arg(value_name = "JOB")]
    pub jobs: Vec<String>,
    /// Follow new events
    #[arg(short, long)]
    pub follow: bool,
    /// Only events since: 10m, or 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Print one JSON object per event
    #[arg(long)]
    pub json: bool,
}
