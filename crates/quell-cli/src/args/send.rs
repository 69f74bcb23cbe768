//! The arguments of `send`, `signal` and `restart`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use quell_core::{Signal, parse_duration};

use super::common::{WaitReady, patience, signal, wait_ready};

const SEND_HELP: &str = "\
TEXT goes as one line, its words with a space between them. Without TEXT and
--file all that quell reads on its own standard input is sent as it comes
(nothing, if that is a terminal and --eof is given). The job must have been
started with --stdin pipe or --pty.

Exit codes: 0 all of it is with the program; 1 the job has ended, or its input
is closed; 2 usage; 3 no such job; 6 the program made no room in time (the
message says how many bytes went; the rest is not sent later); 125 quell failed.

Examples:
  quell send repl 'print(6 * 7)'
  quell send repl --eof
  quell send filter --file input.txt --eof
  make-input | quell send filter --eof
  quell send game --no-newline q";

#[derive(Args)]
#[command(after_help = SEND_HELP)]
pub struct SendArgs {
    /// An id, the beginning of one, or a name
    #[arg(value_name = "JOB")]
    pub job: String,
    /// What to send
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    pub text: Vec<String>,
    /// Send the content of this file; - is quell's own standard input
    #[arg(long, value_name = "FILE|-")]
    pub file: Option<PathBuf>,
    /// Close the program's input afterwards
    #[arg(long)]
    pub eof: bool,
    /// No line end after TEXT
    #[arg(long)]
    pub no_newline: bool,
    /// How long the program may make no room for more
    #[arg(long, value_name = "DUR", value_parser = patience, default_value = "30s")]
    pub timeout: Duration,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

const SIGNAL_HELP: &str = "\
SIG is a name such as HUP, SIGHUP or hup, or a number. `quell stop` is better
for ending a job: it proves that nothing is left.

Exit codes: 0; 1 the job has ended, is a `quell run`, or no process got the signal
(its root may have exited: use --tree); 2 usage, such as an
unknown signal; 3 no such job; 125 quell failed.

Examples:
  quell signal web HUP
  quell signal worker USR1 --tree
  quell signal worker STOP --tree";

#[derive(Args)]
#[command(after_help = SIGNAL_HELP)]
pub struct SignalArgs {
    /// An id, the beginning of one, or a name
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Which signal
    #[arg(value_name = "SIG", value_parser = signal)]
    pub signal: Signal,
    /// To every process of the job, not only to its root
    #[arg(long)]
    pub tree: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

const RESTART_HELP: &str = "\
The old job is stopped first, as by `quell stop`; if anything of it is known to
be alive after that, nothing is started; where that can't be known (its keepers
were killed, and only the reaper held it), it is, with a warning. The new one has another id and the same
command, directory, environment, name and rules. An ended job is started again as
well. Where its directory, its program or what it reads is gone, nothing is
stopped; nor is a job with --stdin -, as nobody can give it the same input again,
nor one that another quell restarts or has restarted.

Exit codes: 0; 1 it can't be restarted (a `quell run`, --stdin -, already done),
or ended before it was ready; 2 usage; 3 no such job; 5 something of the old one
is alive; 6 it runs and is not ready yet; 125 to 127 it could not be started.

Examples:
  quell restart web
  quell restart web worker --grace 1s
  quell restart web --wait-ready 30s --json";

#[derive(Args)]
#[command(after_help = RESTART_HELP)]
pub struct RestartArgs {
    /// Ids, beginnings of ids, or names
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
    /// Kill the old one at once, without asking
    #[arg(long, visible_alias = "kill")]
    pub now: bool,
    /// How long the old tree may take to end when asked [default: the job's own]
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// Why, for the receipt
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Wait until the new one is ready, for this long at most
    #[arg(long, value_name = "DUR", num_args = 0..=1, default_missing_value = "",
          require_equals = false, value_parser = wait_ready)]
    pub wait_ready: Option<WaitReady>,
    /// Print one JSON object a job
    #[arg(long)]
    pub json: bool,
}
