//! Through which program a request came, where that is not the process that made it.

use serde::{Deserialize, Serialize};

/// The interface through which another program asked, and what that program calls itself. It is that program's word: a claim for
/// the audit log, and never a reason to allow anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AskedThrough {
    /// The interface: `mcp`.
    pub surface: String,
    /// The program's own name and version, if it gave them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}
