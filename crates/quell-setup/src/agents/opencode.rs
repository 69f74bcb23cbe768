//! opencode: the command is one list, and the environment is called `environment`.

use super::{AgentFacts, CommandStyle, ConstValue, first_existing};
use crate::edit::SyntaxKind;

pub(super) const FACTS: AgentFacts = AgentFacts {
    title: "opencode",
    syntax: SyntaxKind::Json,
    tables: &[&["mcp"]],
    style: CommandStyle::OneList,
    stdio_type: "local",
    writes_type: true,
    // Its limit of 60 s begins again with each report of progress, which `quell mcp` sends.
    max_wait: Some("25m"),
    more: &[("enabled", ConstValue::Flag(true))],
    user_file: |places| {
        let dir = places.config.join("opencode");
        first_existing(&dir, &["opencode.json", "opencode.jsonc"]).unwrap_or(dir)
    },
    project_files: &[
        "opencode.json",
        "opencode.jsonc",
        ".opencode/opencode.json",
        ".opencode/opencode.jsonc",
    ],
    user_note: "new sessions of opencode have it; `opencode mcp list` shows it",
    project_note: "new sessions of opencode in this directory have it",
};
