//! Claude Code. Its `mcp add` writes servers of the scope `local` below `projects`, and this is its default.

use super::{AgentFacts, CommandStyle};
use crate::edit::SyntaxKind;

pub(super) const FACTS: AgentFacts = AgentFacts {
    title: "Claude Code",
    syntax: SyntaxKind::Json,
    tables: &[&["mcpServers"], &["projects", "*", "mcpServers"]],
    style: CommandStyle::CommandAndArgs,
    stdio_type: "stdio",
    writes_type: true,
    // It gives a call up after 30 minutes without progress, and puts it into the background after 2.
    max_wait: Some("25m"),
    more: &[],
    user_file: |places| places.variable_or_home("CLAUDE_CONFIG_DIR").join(".claude.json"),
    project_files: &[".mcp.json"],
    user_note: "new sessions of Claude Code have it; `claude mcp list` shows it",
    project_note: "Claude Code asks once whether to use a project's servers",
};
