//! Through which program a request came, where that is not the process that made it.

use serde::{Deserialize, Serialize};

/// The interface through which another program asked, and what is known of that program. Its own name is its word: a claim for
/// receipts and the audit log, and never a reason to allow anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AskedThrough {
    /// The interface: `mcp`, `http` or `socket`.
    pub surface: String,
    /// The program's own name and version, if it gave them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The name of the token with which it asked. A token's text is never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Where it called from: an address, or the PID and user at the other end of a socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
}

impl AskedThrough {
    /// The interface alone.
    pub fn new(surface: impl Into<String>) -> Self {
        Self { surface: surface.into(), client: None, token: None, peer: None }
    }
}
