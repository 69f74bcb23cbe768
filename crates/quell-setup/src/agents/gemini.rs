//! Gemini CLI. Its server names must not contain `_`.

use super::{AgentFacts, CommandStyle};
use crate::edit::SyntaxKind;

pub(super) const FACTS: AgentFacts = AgentFacts {
    title: "Gemini CLI",
    syntax: SyntaxKind::Json,
    tables: &[&["mcpServers"]],
    style: CommandStyle::CommandAndArgs,
    stdio_type: "stdio",
    writes_type: false,
    // It gives a call up after 10 minutes.
    max_wait: Some("9m"),
    more: &[],
    user_file: |places| places.variable_or_home("GEMINI_CLI_HOME").join(".gemini/settings.json"),
    project_files: &[".gemini/settings.json"],
    user_note: "Gemini CLI starts servers in trusted folders only; `gemini mcp list` shows it",
    project_note: "Gemini CLI reads a project's file only if the folder is trusted",
};
