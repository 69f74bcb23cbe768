//! The arguments of `run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::common::{JobArgs, OwnerArg, name, owner};

const RUN_HELP: &str = "\
TERM, INT, HUP or QUIT sent to quell asks the whole tree to exit, waits for --grace, then kills it. A second \
signal kills it at once. Keys of the terminal (Ctrl-C, Ctrl-Z) reach the command as they would without \
quell.

With --leak keep the run returns when the command exits, and what it leaves behind goes on as a live job: \
`quell list` shows it, `quell stop` stops it. It ends with --owner, by default the process that has called quell \
(the process above it if that is a shell with a command or a script, npm, npx, uv, uvx or pnpm), and at --timeout.

Exit codes:
  CMD's own  the exit code of the command; 128+n if signal n killed it
  122        not proven dead; the receipt and stderr name the survivors
  123        processes outlived the command, and --leak fail was given
  124        timed out
  125        quell failed, or was called wrongly
  126        the command can't be executed
  127        the command was not found

Examples:
  quell run --timeout 10m -- cargo test
  quell run --timeout 2s --grace 500ms --receipt r.json -- ./flaky-server
  quell run --leak fail -- make check
  quell run --leak keep -- sh -c 'npm run dev & sleep 2'
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
    /// Standard input of the command: a file, or null
    #[arg(long, value_name = "FILE|null")]
    pub stdin: Option<PathBuf>,
    /// Stop the job when this process exits; session:NAME is the same as --session NAME
    #[arg(long, value_name = "PID|self|parent|session:NAME", value_parser = owner)]
    pub owner: Option<OwnerArg>,
    /// Session of the job: jobs that are stopped together [default: QUELL_SESSION]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub session: Option<String>,
    /// Do not report on stderr what was stopped
    #[arg(long, short)]
    pub quiet: bool,
    /// Print the receipt as JSON, as the last line of stdout
    #[arg(long)]
    pub json: bool,
    /// Keep no record of the run
    #[arg(long)]
    pub no_record: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}
