//! The arguments of the verbs that look: `list`, `status`, `tree`, `stats`.

use std::time::Duration;

use clap::{Args, ValueEnum};
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

const STATUS_HELP: &str = "\
Exit codes: 0 it is alive, or its command exited with 0; 1 it ended otherwise; 2 usage; 3 no such job; 5 it was stopped, or
its keeper was lost, and it is not proven dead, however its command exited; 125 quell failed. Of several jobs the highest
one counts.

Examples:
  quell status web
  quell status 01KA3W6Z 01KA3W70
  quell status web --json | jq .data.job.state";

#[derive(Args)]
#[command(after_help = STATUS_HELP)]
pub struct StatusArgs {
    /// Ids, beginnings of ids, or names
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// Print one JSON object a job
    #[arg(long)]
    pub json: bool,
}

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
