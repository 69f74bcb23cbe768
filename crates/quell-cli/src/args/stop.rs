//! The arguments of `stop`.

use std::time::Duration;

use clap::{ArgGroup, Args};
use quell::units::parse_duration;

use super::common::AskArg;

const STOP_HELP: &str = "\
Jobs are stopped in parallel. A stop that is under way is joined; if the grace of the new one (--grace, or \
that of the job) ends earlier, it counts, and --now kills at once. A job \
that has ended already is not an error. An argument that matches no job is reported, and the other jobs are \
stopped.

The receipt of a `quell run` has no --reason: it is asked by a signal, which carries no text.

Exit codes, the highest one of several jobs:
  0    all are proven gone
  2    wrong usage
  3    no such job
  4    refused by the guard
  5    not proven dead
  125  quell failed

Examples:
  quell stop web
  quell stop 01KA3W6Z web worker --grace 1s
  quell stop --tag team=a --reason \"deploy\"
  quell stop --session agent-7 --json
  quell stop --all --now --quiet";

#[derive(Args)]
#[command(after_help = STOP_HELP)]
#[command(group = ArgGroup::new("which").required(true).multiple(true).args(["jobs", "tag", "session", "all"]))]
pub struct StopArgs {
    /// Name, id, or start of an id (at least 4 characters)
    #[arg(value_name = "JOB")]
    pub jobs: Vec<String>,
    /// Stop all live jobs with this label (repeatable)
    #[arg(long, value_name = "K[=V]")]
    pub tag: Vec<String>,
    /// Stop all live jobs of this session
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Stop all live jobs
    #[arg(long)]
    pub all: bool,
    /// Kill at once, without a request to exit
    #[arg(long, visible_alias = "kill")]
    pub now: bool,
    /// Time between the request to exit and the kill [default: the job's]
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// Processes that are asked first [default: the job's]
    #[arg(long, value_enum)]
    pub ask: Option<AskArg>,
    /// Reason, for the receipt and the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Print one JSON object for all jobs
    #[arg(long)]
    pub json: bool,
}
