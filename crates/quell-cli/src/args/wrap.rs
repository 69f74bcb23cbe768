//! The arguments of `wrap`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use quell::units::parse_duration;

use super::common::{ContainArg, job_name};

const WRAP_HELP: &str = "\
Put `quell wrap --` in front of the server's command in the configuration of the client. The server gets the \
client's own stdin, stdout and stderr; quell copies nothing and prints nothing.

When the client closes stdin, the server has --eof-grace to exit by itself; when the client has exited, it has \
half a second. Then the whole tree is asked to exit, has --grace, and is killed. INT, TERM, HUP or QUIT sent to \
quell is passed on to the whole tree and begins --grace; further signals are passed on and do not shorten it. If \
quell itself is killed, its keeper goes on with the time that runs, or gives one second. Keys of the terminal are for the client.

Each server is on record with the labels kind=mcp and client=NAME. Several live servers may have the same \
--name; it stands for the first one.

Exit codes:
  SERVER's own  the exit code of the server; 128+n if signal n killed it
  122           not proven dead; the receipt and stderr name the survivors
  125           quell failed, or was called wrongly
  126           the server can't be executed
  127           the server was not found

Examples:
  quell wrap -- npx -y @modelcontextprotocol/server-everything
  quell wrap --name browser --grace 5s -- npx -y @playwright/mcp
  claude mcp add -s user files -- quell wrap -- npx -y SERVER
  quell list --tag kind=mcp";

#[derive(Args)]
#[command(after_help = WRAP_HELP, override_usage = "quell wrap [OPTIONS] -- SERVER…")]
pub struct WrapArgs {
    /// Name of the job: letters, digits, `.`, `-` and `_`
    #[arg(long, value_parser = job_name)]
    pub name: Option<String>,
    /// Time to exit without being asked, after stdin was closed
    #[arg(long, value_name = "DUR", value_parser = parse_duration, default_value = "1.5s")]
    pub eof_grace: Duration,
    /// Time between the request to exit and the kill
    #[arg(long, value_name = "DUR", value_parser = parse_duration, default_value = "2s")]
    pub grace: Duration,
    /// How the process tree is contained [default: auto]
    #[arg(long, value_enum)]
    pub contain: Option<ContainArg>,
    /// Keep no record of the run
    #[arg(long)]
    pub no_record: bool,
    /// The server and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "SERVER")]
    pub command: Vec<OsString>,
}
