//! The arguments of the verbs that print quell's own papers: `completions` and `man`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

const COMPLETIONS_HELP: &str = "\
Jobs are completed too, by their names and ids.

Exit codes: 0; 2 usage; 125 quell failed.

Examples:
  source <(quell completions bash)
  quell completions bash > ~/.local/share/bash-completion/completions/quell
  quell completions zsh > ~/.zfunc/_quell
  quell completions fish > ~/.config/fish/completions/quell.fish";

#[derive(Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: ShellArg,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum ShellArg {
    /// GNU bash, 4.4 or later
    Bash,
    /// The Z shell
    Zsh,
    /// The friendly interactive shell
    Fish,
}

const MAN_HELP: &str = "\
Writes quell.1 and quell-VERB.1 for every verb.

Exit codes: 0; 2 usage; 125 quell failed.

Examples:
  quell man --dir /usr/local/share/man/man1";

#[derive(Args)]
#[command(after_help = MAN_HELP)]
pub struct ManArgs {
    /// Where to; made if it is missing
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}
