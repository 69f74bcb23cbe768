//! The arguments of `stats`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use quell::units::parse_duration;

const STATS_HELP: &str = "\
Counts the jobs that have ended and are still on record. Of a job that was restarted, the last run counts. \
Refusals of the guard are counted too, but not with --tag, as a refusal has no label. Times are in UTC.

On a terminal a chart shows the same over time, with --by the last 60 hours, days or weeks at most. One \
column holds several of them if the terminal is too narrow. The 20 labels with the most jobs are shown.

Exit codes:
  0    success
  2    wrong usage
  4    refused by the guard
  125  quell failed

Examples:
  quell stats
  quell stats --since 7d --tag ci
  quell stats --since 30d --by day --by-tag team
  quell stats --json | jq .data.kill_rate
  quell stats --json | jq '.data.over_time[] | [.start, .killed]'";

/// A step of time.
#[derive(Clone, Copy, ValueEnum)]
pub enum ByArg {
    /// The smallest step that fits
    Auto,
    /// An hour
    Hour,
    /// A day
    Day,
    /// A week, from Monday
    Week,
}

#[derive(Args)]
#[command(after_help = STATS_HELP)]
pub struct StatsArgs {
    /// Jobs that ended in the last 10m, 2h, 7d only
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub since: Option<Duration>,
    /// Jobs with this label only (repeatable)
    #[arg(long, value_name = "K[=V]")]
    pub tag: Vec<String>,
    /// Step of time
    #[arg(long, value_enum, default_value = "auto")]
    pub by: ByArg,
    /// Show labels with this key only
    #[arg(long, value_name = "KEY")]
    pub by_tag: Option<String>,
    /// Draw the chart even if stdout is not a terminal
    #[arg(long, conflicts_with = "json")]
    pub chart: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
