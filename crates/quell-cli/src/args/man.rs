//! The arguments of `man`.

use std::path::PathBuf;

use clap::Args;

const MAN_HELP: &str = "\
Writes quell.1 and a quell-VERB.1 for each command.

Exit codes:
  0    success
  2    wrong usage
  125  quell failed

Examples:
  quell man --dir /usr/local/share/man/man1";

#[derive(Args)]
#[command(after_help = MAN_HELP)]
pub struct ManArgs {
    /// Directory for the pages; created if it is missing
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}
