//! The arguments of `signal`.

use clap::Args;
use quell::Signal;

use super::common::signal;

const SIGNAL_HELP: &str = "\
SIG is a name such as HUP, SIGHUP or hup, or a number. To end a job use `quell stop`: it proves that nothing \
is left.

Exit codes:
  0    the signal was sent
  1    the job has ended, is a `quell run`, or no process got the signal
  2    wrong usage, such as an unknown signal
  3    no such job
  4    refused by the guard
  125  quell failed

Examples:
  quell signal web HUP
  quell signal worker USR1 --tree
  quell signal worker STOP --tree";

#[derive(Args)]
#[command(after_help = SIGNAL_HELP)]
pub struct SignalArgs {
    /// Name, id, or start of an id (at least 4 characters)
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Signal to send
    #[arg(value_name = "SIG", value_parser = signal)]
    pub signal: Signal,
    /// Send it to every process of the job, not only to its root
    #[arg(long)]
    pub tree: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
