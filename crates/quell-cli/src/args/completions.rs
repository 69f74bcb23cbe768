//! The arguments of `completions`.

use clap::{Args, ValueEnum};

const COMPLETIONS_HELP: &str = "\
The script also completes jobs by name and id, signals, states, labels and sessions.

Exit codes:
  0    success
  2    wrong usage
  125  quell failed

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
