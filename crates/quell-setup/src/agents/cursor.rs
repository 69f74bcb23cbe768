//! Cursor.

use super::{AgentFacts, CommandStyle};
use crate::edit::SyntaxKind;

pub(super) const FACTS: AgentFacts = AgentFacts {
    title: "Cursor",
    syntax: SyntaxKind::Json,
    tables: &[&["mcpServers"]],
    style: CommandStyle::CommandAndArgs,
    stdio_type: "stdio",
    writes_type: true,
    max_wait: None,
    more: &[],
    user_file: |places| places.home.join(".cursor/mcp.json"),
    project_files: &[".cursor/mcp.json"],
    user_note: "Cursor lists it in its settings, under MCP, where it can be switched on",
    project_note: "Cursor lists it in its settings, under MCP, where it can be switched on",
};
