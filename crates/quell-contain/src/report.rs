//! What `quell doctor` reports, on every platform.

use quell_core::ContainmentKind;
use serde::Serialize;

/// One ability of the host.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ability {
    /// A stable name.
    pub name: String,
    /// Whether the host has it.
    pub ok: bool,
    /// What was found, or why not.
    pub detail: String,
}

/// What this host can do for quell.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Doctor {
    /// The operating system and its version.
    pub system: String,
    /// What was tried, the most important first.
    pub abilities: Vec<Ability>,
    /// The containments that `--contain` would accept here.
    pub containments: Vec<ContainmentKind>,
    /// What `--contain auto` takes here. None if jobs can't be run at all.
    pub auto: Option<ContainmentKind>,
    /// What can defeat `auto`.
    pub defeated_by: Vec<String>,
}
