//! The arguments of `send`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::common::patience;

const SEND_HELP: &str = "\
TEXT is sent as one line, its words separated by spaces. Without TEXT and --file, quell's own standard input \
is sent as it comes (nothing, if that is a terminal and --eof is given). The job must have been started with \
--stdin pipe or --pty.

Exit codes:
  0    the program has all of it
  1    the job has ended, or its input is closed
  2    wrong usage
  3    no such job
  4    refused by the guard
  6    the program did not read in time; the message says how much it has
  125  quell failed

Examples:
  quell send repl 'print(6 * 7)'
  quell send repl --eof
  quell send filter --file input.txt --eof
  make-input | quell send filter --eof
  quell send game --no-newline q";

#[derive(Args)]
#[command(after_help = SEND_HELP)]
pub struct SendArgs {
    /// Name, id, or start of an id (at least 4 characters)
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Text to send
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    pub text: Vec<String>,
    /// Send the content of a file; - is quell's own standard input
    #[arg(long, value_name = "FILE|-")]
    pub file: Option<PathBuf>,
    /// Close the standard input of the program afterwards
    #[arg(long)]
    pub eof: bool,
    /// Send no line end after TEXT
    #[arg(long)]
    pub no_newline: bool,
    /// Time that the program may take to read
    #[arg(long, value_name = "DUR", value_parser = patience, default_value = "30s")]
    pub timeout: Duration,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
