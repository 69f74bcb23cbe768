//! The arguments of `stats`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use quell_core::parse_duration;

const STATS_HELP: &str = "\
Counts the jobs that have ended and are still on record. Of a job that was started again and again, the last run counts.
What the guard refused is counted too, but not with --tag: a refusal bears no label. Times are in UTC. On a terminal a
chart shows the same over time, and with --by no more than the last 60 hours, days or weeks; a column of it holds several
of them if the terminal is too narrow. Labels are told of by the number of their jobs, the 20 with most of them.

Exit codes: 0; 2 usage; 125 quell failed.

Examples:
  quell stats
  quell stats --since 7d --tag ci
  quell stats --since 30d --by day --by-tag team
  quell stats --json | jq .data.kill_rate
  quell stats --json | jq '.data.over_time[] | [.start, .killed, .refusals]'";

/// How wide a piece of time is.
#[derive(Clone, Copy, ValueEnum)]
pub enum ByArg {
    /// The narrowest that is enough for everything
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
    /// Those that ended within this time: 10m, 2h, 7d
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub since: Option<Duration>,
    /// Those with this label; may be given many times
    #[arg(long, value_name = "K[=V]")]
    pub tag: Vec<String>,
    /// How wide the pieces of time are that jobs are told apart by
    #[arg(long, value_enum, default_value = "auto")]
    pub by: ByArg,
    /// Of the labels, those with this key
    #[arg(long, value_name = "KEY")]
    pub by_tag: Option<String>,
    /// Draw the chart even if stdout is no terminal
    #[arg(long, conflicts_with = "json")]
    pub chart: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
