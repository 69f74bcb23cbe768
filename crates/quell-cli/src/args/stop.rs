//! The arguments of `stop`.

use std::time::Duration;

use clap::{ArgGroup, Args};
use quell_core::parse_duration;

use super::common::AskArg;

const STOP_HELP: &str = "\
A job that is being stopped is joined (and hurried, if --grace is shorter); one that has ended is no error. All are
stopped at the same time; if a word means no job, that is said, and the others are stopped. A `quell run` is asked by a
signal: it goes by its own grace and --ask, whatever is given here, and its receipt has no --reason.

Exit codes: 0 all are proven gone; 2 usage; 3 no such job; 5 something is not proven dead; 125 quell failed. Of several
jobs the highest one counts.

Examples:
  quell stop web
  quell stop 01KA3W6Z web worker --grace 1s
  quell stop --tag team=a --reason \"deploy\"
  quell stop --session agent-7 --json
  quell stop --all --now";

#[derive(Args)]
#[command(after_help = STOP_HELP)]
#[command(group = ArgGroup::new("which").required(true).multiple(true).args(["jobs", "tag", "session", "all"]))]
pub struct StopArgs {
    /// Ids, beginnings of ids, or names
    #[arg(value_name = "JOB")]
    pub jobs: Vec<String>,
    /// All live jobs with this label
    #[arg(long, value_name = "K[=V]")]
    pub tag: Vec<String>,
    /// All live jobs of this session
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// All live jobs
    #[arg(long)]
    pub all: bool,
    /// Kill at once, without asking
    #[arg(long, visible_alias = "kill")]
    pub now: bool,
    /// How long the tree may take to end when asked [default: the job's own]
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// Which processes are asked first [default: the job's own]
    #[arg(long, value_enum)]
    pub ask: Option<AskArg>,
    /// Why, for the receipt and the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print one JSON object for all jobs
    #[arg(long)]
    pub json: bool,
}
