//! The arguments of `gc`.

use std::time::Duration;

use clap::Args;
use quell::units::{parse_duration, parse_size};

const GC_HELP: &str = "\
Removes ended jobs, oldest first, until all limits are met. A limit that is not given is the configured one \
([gc] in the settings); `none` is no limit. Live jobs and jobs with survivors stay. `quell start` does a \
part of this once an hour, unless gc.auto is false.

Exit codes:
  0    success
  2    wrong usage
  4    refused by the guard
  125  quell failed

Examples:
  quell gc --dry-run
  quell gc --max-age 7d
  quell gc --max-count 100 --max-age none --max-size none
  quell gc --max-size 1G --json";

#[derive(Args)]
#[command(after_help = GC_HELP)]
pub struct GcArgs {
    /// Remove jobs that ended longer ago: 12h, 30d, none
    #[arg(long, value_name = "DUR", value_parser = age)]
    pub max_age: Option<RuleArg<Duration>>,
    /// Number of jobs to keep, or none for no limit
    #[arg(long, value_name = "N", value_parser = number)]
    pub max_count: Option<RuleArg<usize>>,
    /// Size of all jobs to keep: 500M, 8G, none
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_size: Option<RuleArg<u64>>,
    /// Show what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Also remove jobs with survivors, which quell then can't stop any more
    #[arg(long, short)]
    pub force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A rule that was given; none for no limit.
#[derive(Clone, Copy)]
pub struct RuleArg<T>(pub Option<T>);

fn rule<T>(text: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Result<RuleArg<T>, String> {
    if text == "none" { Ok(RuleArg(None)) } else { read(text).map(|value| RuleArg(Some(value))) }
}

fn age(text: &str) -> Result<RuleArg<Duration>, String> {
    rule(text, |text| parse_duration(text).map_err(|error| error.to_string()))
}

fn number(text: &str) -> Result<RuleArg<usize>, String> {
    rule(text, |text| text.parse().map_err(|_| "expected a number, or none".into()))
}

fn size(text: &str) -> Result<RuleArg<u64>, String> {
    rule(text, |text| parse_size(text).map_err(|error| error.to_string()))
}
