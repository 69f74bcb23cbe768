//! What a job may use.

use serde::{Deserialize, Serialize};

/// Limits on the whole tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limits {
    /// Bytes of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Number of processes (tasks).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub procs: Option<u64>,
    /// Cores' worth of CPU time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
}

impl Limits {
    /// Whether no limit is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
