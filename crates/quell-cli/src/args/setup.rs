//! The arguments of `setup`.

use clap::{Args, ValueEnum};

const SETUP_HELP: &str = "\
Adds `quell mcp` to the servers of an agent. With --wrap, every server that the agent starts as a process runs \
under `quell wrap`, so that nothing of it is left when the agent exits; servers with a URL stay as they are. \
Comments, order and all other keys of the file stay. The file as it was is kept beside it, and --remove \
restores it; if you have edited it since, only what setup wrote is removed.

Setup shows what it would change, and asks on a terminal before it writes. A second run changes nothing. \
Servers that were wrapped once stay wrapped until --remove.

Exit codes:
  0    success; with --check: quell is set up, and every path in the file leads to this quell
  1    with --check: it is not
  2    wrong usage, or the file can't be used
  4    refused by the guard, or not confirmed
  125  quell failed

Examples:
  quell setup claude
  quell setup codex --wrap --dry-run
  quell setup cursor --project --yes
  quell setup opencode --check --json
  quell setup vscode --print
  quell setup claude --remove";

#[derive(Args)]
#[command(after_help = SETUP_HELP)]
pub struct SetupArgs {
    /// Agent to configure
    #[arg(value_enum)]
    pub agent: AgentArg,
    /// Also run the agent's other servers under `quell wrap`
    #[arg(long, conflicts_with_all = ["print", "remove"])]
    pub wrap: bool,
    /// Use the file of the project in the current directory
    #[arg(long)]
    pub project: bool,
    /// Print the entry to paste, and change nothing
    #[arg(long, conflicts_with_all = ["dry_run", "check", "remove", "yes"])]
    pub print: bool,
    /// Show what would change, and change nothing
    #[arg(long, conflicts_with_all = ["check", "yes"])]
    pub dry_run: bool,
    /// Say what is set up and whether it still works
    #[arg(long, conflicts_with_all = ["remove", "yes"])]
    pub check: bool,
    /// Undo what setup did to the file
    #[arg(long)]
    pub remove: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum AgentArg {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// opencode
    Opencode,
    /// Cursor
    Cursor,
    /// Visual Studio Code
    Vscode,
    /// Windsurf
    Windsurf,
}
