//! The arguments of `config`.

use clap::{Args, Subcommand};

#[derive(Args)]
#[command(after_help = "\
Exit codes:
  0    success
  2    a file or a variable can't be used

Examples:
  quell config show
  quell config show --json")]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub verb: ConfigVerb,
}

// The verbs of `quell config`. A doc comment here would replace the help of `quell config` itself.
#[derive(Subcommand)]
pub enum ConfigVerb {
    /// Show every setting with its value and its origin
    Show(ConfigShowArgs),
}

#[derive(Args)]
#[command(after_help = "\
A flag overrides a QUELL_* variable, which overrides the nearest quell.toml (this directory or above), which \
overrides your own file ($QUELL_CONFIG, else $XDG_CONFIG_HOME/quell/config.toml, else \
~/.config/quell/config.toml), which overrides the default. docs/config.md lists all settings.

Exit codes:
  0    success
  2    a file or a variable can't be used

Examples:
  quell config show
  QUELL_STOP_GRACE=1s quell config show
  quell config show --json")]
pub struct ConfigShowArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
