//! The processes of a job, as a receipt has them.

use serde::{Deserialize, Serialize};

use crate::ProcId;

/// One process that was seen in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Member {
    /// Its identity.
    #[serde(flatten)]
    pub id: ProcId,
    /// Its parent when first seen.
    pub ppid: u32,
    /// Its process group when first seen.
    pub pgid: u32,
    /// Its session when first seen.
    pub sid: u32,
    /// Its user.
    pub uid: u32,
    /// The user's name, where the host knows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its command line, or its short name in brackets where it has none; cut at 200 characters.
    pub command: String,
    /// How it ended.
    pub fate: Fate,
}

/// How one member ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It ended without being asked.
    Exited,
    /// It was asked, and then exited or died of that signal: within the grace, or before the kill reached it.
    ExitedOnAsk,
    /// It was asked, was still running after its grace, and died of the kill.
    #[serde(alias = "ignored_ask")]
    KilledAfterGrace,
    /// It died of KILL without its whole grace: it was not asked, the kill was wanted, or another process sent the KILL.
    Killed,
    /// It was asked, and died of another signal than the request or KILL; or the kernel does not say what it died of.
    Ended,
    /// It is not proven dead.
    Alive,
}

impl Fate {
    /// Whether a kill has, or may have, ended it.
    pub fn is_of_a_kill(self) -> bool {
        self.is_killed() || self == Self::Ended
    }

    /// Whether it is known to have died of a kill.
    pub fn is_killed(self) -> bool {
        matches!(self, Self::KilledAfterGrace | Self::Killed)
    }
}

/// How many processes a job had, and how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counts {
    /// Processes that were seen; short-lived ones may not have been.
    pub processes: u64,
    /// Of those, how many outlived the command and were stopped.
    pub outlived: u64,
    /// Of those, how many are listed as killed; 0 where quell killed none.
    pub killed: u64,
    /// Of those, how many are not proven dead.
    pub survivors: u64,
}
