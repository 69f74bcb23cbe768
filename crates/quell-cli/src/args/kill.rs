//! The arguments of `kill`.

use std::time::Duration;

use clap::Args;
use quell_core::{Signal, parse_duration};

const KILL_HELP: &str = "\
For a process that quell didn't start; `quell stop` ends jobs. It must be allowed by [guard.kill] in your config.toml
(docs/guard.md); nothing is by default. TERM, INT, QUIT and ABRT ask it to end, and KILL follows when the grace is over;
any other signal is sent once and kills nobody. PID must be one process: no group, no list, no name. Whoever has the
number at the beginning is meant to the end, even if the number is another's meanwhile.

Exit codes: 0 it is gone (or has the signal); 2 usage; 3 no such process; 4 refused by the guard, or by the kernel;
5 it is not proven dead; 125 quell failed.

Examples:
  quell kill 4711
  quell kill 4711 --tree --grace 1s
  quell kill 4711 --signal HUP
  quell guard check kill 4711";

#[derive(Args)]
#[command(after_help = KILL_HELP)]
pub struct KillArgs {
    /// The number of the process
    #[arg(value_name = "PID", allow_negative_numbers = true)]
    pub pid: String,
    #[command(flatten)]
    pub how: KillHow,
    /// How long it may take to end before it is killed; 0 for no time at all [default: stop.grace of the settings, 5s]
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct KillHow {
    /// What it gets first, such as TERM, SIGTERM or 15
    #[arg(long, short = 's', value_name = "SIG", default_value = "TERM", value_parser = super::common::signal)]
    pub signal: Signal,
    /// Those below it, too; each of them must be allowed
    #[arg(long)]
    pub tree: bool,
}
