//! The identity of a process.

use serde::{Deserialize, Serialize};

/// The identity of a process until the next boot: its PID and the time at which it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcId {
    /// The PID. The kernel reuses it after the process is reaped.
    pub pid: u32,
    /// The start time in clock ticks since boot: field 22 of /proc/PID/stat.
    pub start: u64,
}
