//! The arguments of `mcp`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::common::{name, patience};

const MCP_HELP: &str = "\
An agent starts this as a stdio server and gets tools to run, start, watch and stop jobs. It is not for a \
terminal: it reads JSON-RPC from standard input and writes nothing else to standard output.

Jobs live as long as the client, the process that started this server: when it exits, however that happens, \
they are stopped. A job that is started with keep=true outlives it. A restart of the server loses nothing: \
jobs, output and exit codes are on disk.

Tools change jobs of the server's own session only. The session is --session, or QUELL_SESSION, or that of \
the agent, or one for this client. The guard's policy applies to each call, and the audit log names the \
client. docs/agents/mcp.md has the tools and a transcript.

Exit codes:
  0    the client has closed the connection, or INT, TERM or HUP was sent
  2    wrong usage
  4    refused by the guard
  125  quell failed

Examples:
  claude mcp add quell -- quell mcp
  codex mcp add quell -- quell mcp --max-wait 4m
  quell mcp --session ci --scope all";

#[derive(Args)]
#[command(after_help = MCP_HELP)]
pub struct McpArgs {
    /// Session of the jobs that tools start
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub session: Option<String>,
    /// Jobs that tools may stop, restart and write to
    #[arg(long, value_enum, default_value = "session")]
    pub scope: ScopeArg,
    /// Longest time that one call waits; clients give up after a minute
    #[arg(long, value_name = "DUR", value_parser = patience, default_value = "50s")]
    pub max_wait: Duration,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum ScopeArg {
    /// Those of the session
    Session,
    /// All jobs of this user
    All,
}
