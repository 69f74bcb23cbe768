//! Visual Studio Code.

use super::{AgentFacts, CommandStyle};
use crate::edit::SyntaxKind;

pub(super) const FACTS: AgentFacts = AgentFacts {
    title: "VS Code",
    syntax: SyntaxKind::Json,
    tables: &[&["servers"]],
    style: CommandStyle::CommandAndArgs,
    stdio_type: "stdio",
    writes_type: true,
    max_wait: None,
    more: &[],
    user_file: |places| places.config.join("Code/User/mcp.json"),
    project_files: &[".vscode/mcp.json"],
    user_note: "VS Code asks once whether to trust the server; `MCP: List Servers` shows it",
    project_note: "VS Code asks once whether to trust the server; `MCP: List Servers` shows it",
};
