//! The arguments of `send`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::common::patience;

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
