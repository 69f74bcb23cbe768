//! The arguments of `wait`.

use std::time::Duration;

use clap::Args;

use super::common::patience;

const WAIT_HELP: &str = "\
Without a condition it waits for the end of the jobs. With several conditions, the first one that holds \
counts. A job that ends before has failed them. A stall is a time without output and without CPU use in the \
whole tree. --log reads complete lines, the first MiB of each: a prompt without a line end does not match \
before the job ends.

Exit codes:
  0    it happened; for an end: all exited with 0 (with --any: one did)
  1    a job ended in another way, or too early
  2    wrong usage
  3    no such job
  4    refused by the guard
  5    a job ended and is not proven dead
  6    the wait timed out; the jobs go on
  125  quell failed

Examples:
  quell wait build
  quell wait web --ready --timeout 30s
  quell wait a b c --any
  quell wait web --log 'listening on' --timeout 1m
  quell wait agent --stall 2m --timeout 1h --json";

#[derive(Args)]
#[command(after_help = WAIT_HELP)]
pub struct WaitArgs {
    /// Name, id, or start of an id (at least 4 characters)
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// Until one of the jobs is done
    #[arg(long, conflicts_with = "all")]
    pub any: bool,
    /// Until all of the jobs are done (the default)
    #[arg(long)]
    pub all: bool,
    /// Until the job is ready
    #[arg(long)]
    pub ready: bool,
    /// Until a line of its output matches, earlier output included
    #[arg(long, value_name = "REGEX")]
    pub log: Option<String>,
    /// Until nothing has happened in it for this time
    #[arg(long, value_name = "DUR", value_parser = patience)]
    pub stall: Option<Duration>,
    /// Time to wait at most
    #[arg(long, value_name = "DUR", value_parser = patience, default_value = "5m")]
    pub timeout: Duration,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
