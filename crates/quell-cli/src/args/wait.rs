//! The arguments of `wait`.

use std::time::Duration;

use clap::Args;

use super::common::patience;

const WAIT_HELP: &str = "\
Without a condition the end of the jobs is waited for. With some, the first that
holds settles a job, and so does its end: a job that ends first has failed to
meet them. A stall is no output and no CPU time in the whole tree.

Exit codes: 0 what was waited for happened (for the end: every root exited with
0; with --any: one of them did); 1 a job ended otherwise, or before; 2 usage;
3 no such job; 5 a job ended and is not proven dead; 6 the time ran out;
125 quell failed.

Examples:
  quell wait build
  quell wait web --ready --timeout 30s
  quell wait a b c --any
  quell wait web --log 'listening on' --timeout 1m
  quell wait agent --stall 2m --timeout 1h --json";

#[derive(Args)]
#[command(after_help = WAIT_HELP)]
pub struct WaitArgs {
    /// Ids, beginnings of ids, or names
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// Until one of them is settled
    #[arg(long, conflicts_with = "all")]
    pub any: bool,
    /// Until all of them are settled; the default
    #[arg(long)]
    pub all: bool,
    /// Until it is ready
    #[arg(long)]
    pub ready: bool,
    /// Until a whole line of its output matches, by its first 1 MiB; what it has written before counts
    #[arg(long, value_name = "REGEX")]
    pub log: Option<String>,
    /// Until nothing happened in it for so long
    #[arg(long, value_name = "DUR", value_parser = patience)]
    pub stall: Option<Duration>,
    /// How long to wait at most
    #[arg(long, value_name = "DUR", value_parser = patience, default_value = "5m")]
    pub timeout: Duration,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
