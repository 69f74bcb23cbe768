//! The identity of a process.

use serde::{Deserialize, Serialize};

/// Who a process is, for the length of a boot: a pid and the time at which it started, in clock ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcId {
    /// The number; reused by the kernel after the process is reaped.
    pub pid: u32,
    /// Field 22 of /proc/PID/stat.
    pub start: u64,
}
