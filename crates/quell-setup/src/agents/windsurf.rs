//! Windsurf. It has no configuration file of a project.

use super::{AgentFacts, CommandStyle};
use crate::edit::SyntaxKind;

pub(super) const FACTS: AgentFacts = AgentFacts {
    title: "Windsurf",
    syntax: SyntaxKind::Json,
    tables: &[&["mcpServers"]],
    style: CommandStyle::CommandAndArgs,
    stdio_type: "stdio",
    writes_type: false,
    max_wait: None,
    more: &[],
    user_file: |places| places.home.join(".codeium/windsurf/mcp_config.json"),
    project_files: &[],
    user_note: "refresh the list of servers in Windsurf's settings",
    project_note: "",
};
