//! Codex: command line, app and editor extension read one file.

use super::{AgentFacts, CommandStyle, ConstValue};
use crate::edit::SyntaxKind;

/// Codex gives its servers few variables. Without these, `quell mcp` would use another home or miss systemd.
const VARIABLES: &[&str] = &[
    "QUELL_HOME",
    "QUELL_CONFIG",
    "QUELL_SESSION",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
];

pub(super) const FACTS: AgentFacts = AgentFacts {
    title: "Codex",
    syntax: SyntaxKind::Toml,
    tables: &[&["mcp_servers"]],
    style: CommandStyle::CommandAndArgs,
    stdio_type: "stdio",
    writes_type: false,
    max_wait: Some("4m"),
    // The default of older versions is 60 s.
    more: &[("env_vars", ConstValue::Words(VARIABLES)), ("tool_timeout_sec", ConstValue::Number(300))],
    user_file: |places| match places.variable("CODEX_HOME") {
        Some(dir) => dir.join("config.toml"),
        None => places.home.join(".codex/config.toml"),
    },
    project_files: &[".codex/config.toml"],
    user_note: "new sessions of Codex have it; `codex mcp list` shows it",
    project_note: "Codex reads a project's file only if the project is trusted",
};
