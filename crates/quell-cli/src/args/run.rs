//! The arguments of `run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::common::{JobArgs, OwnerArg, owner};

const RUN_HELP: &str = "\
Exit codes:
  CMD's own   as it exited; 128+n if it died of signal n
  122         not proven dead: the receipt and stderr name the survivors
  123         something outlived the command, and --leak fail was given
  124         timed out
  125         quell itself failed or was called wrongly; or its keeper was killed when the command had exited already,
              and the rest of the tree with it
  126, 127    the command can't be executed, can't be found

A TERM, INT, HUP or QUIT to quell asks the whole tree to end, gives it --grace, then kills it; a second one kills it at
once. Keys of the terminal (Ctrl-C, Ctrl-Z) reach the command as they would without quell.

Examples:
  quell run --timeout 10m -- cargo test
  quell run --timeout 2s --grace 500ms --receipt r.json -- ./flaky-server
  quell run --leak fail -- make check
  quell run --contain pidns --json -- npm test";

#[derive(Args)]
#[command(after_help = RUN_HELP, override_usage = "quell run [OPTIONS] -- CMD…")]
pub struct RunArgs {
    #[command(flatten)]
    pub job: JobArgs,
    /// Write the receipt (JSON) to this file
    #[arg(long, value_name = "FILE")]
    pub receipt: Option<PathBuf>,
    /// Write the receipt (JSON) to this open descriptor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub receipt_fd: Option<i32>,
    /// What it reads, instead of what quell reads: a file, or null
    #[arg(long, value_name = "FILE|null")]
    pub stdin: Option<PathBuf>,
    /// Stop it when this process is gone, too: a pid, self (who calls quell) or parent (the one above that)
    #[arg(long, value_name = "PID|self|parent", value_parser = owner)]
    pub owner: Option<OwnerArg>,
    /// Say nothing on stderr about what was stopped
    #[arg(long, short)]
    pub quiet: bool,
    /// Print the receipt in an envelope as the last line of stdout; errors too
    #[arg(long)]
    pub json: bool,
    /// Keep no record of the run in QUELL_HOME
    #[arg(long)]
    pub no_record: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}
