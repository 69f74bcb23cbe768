//! How and why a run ended, and what is proven about it.

use serde::{Deserialize, Serialize};

use crate::Signal;

/// Why a run ended, and what brought that about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// The reason.
    pub cause: Cause,
    /// What brought it about.
    pub actor: Actor,
}

/// Why a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The root came to its own end.
    OwnExit,
    /// The program could not be started.
    StartFailed,
    /// A person or program asked for it.
    User,
    /// Its time was up.
    Timeout,
    /// The kernel ended it at a limit that was asked for.
    Limit,
    /// Somebody outside quell sent the root a deadly signal.
    ExternalSignal,
    /// The process that the user called was killed.
    FrontLost,
    /// The keeper was killed.
    KeeperLost,
    /// The process or session it lived for is gone.
    OwnerGone,
    /// The machine was restarted.
    HostReboot,
}

/// Who brought the end about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Actor {
    /// The program itself.
    Program,
    /// quell, following what it was told to do.
    Quell,
    /// A process that sent quell a signal.
    Sender {
        /// The signal that quell got.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        signal: Signal,
        /// The sender's pid.
        pid: u32,
        /// The sender's user.
        uid: u32,
        /// The sender's command line, if it could be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
    /// A process that asked over the job's control socket. If it did so by calling `quell stop`, the process that called it.
    Client {
        /// Its pid.
        pid: u32,
        /// Its user.
        uid: u32,
        /// Its command line, if it could be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
        /// Why, in its own words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The kernel: a terminal that hung up, or a limit.
    Kernel,
    /// Not known: the signal came from outside quell.
    Unknown,
}

/// How the root ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RootOutcome {
    /// With an exit code.
    Exited {
        /// The code.
        code: i32,
    },
    /// By a signal.
    Signaled {
        /// The signal.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        signal: Signal,
        /// Whether a core was dumped.
        core: bool,
    },
    /// It never ran.
    NotStarted {
        /// Why.
        reason: String,
    },
    /// It is gone, and nobody could learn how.
    Unknown,
}

/// What was proven about the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Verdict {
    /// Counted: nobody is left.
    Gone,
    /// Counted: some are left.
    Survivors {
        /// How many.
        count: usize,
    },
    /// It could not be counted.
    Unproven {
        /// Why.
        why: String,
    },
}

/// The verdict on a tree that has ended: one with survivors has not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FinalVerdict {
    /// Counted: no process is left.
    Gone,
    /// It could not be counted.
    Unproven {
        /// Why not.
        why: String,
    },
}

/// Why a tree was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KillReason {
    /// It was asked, and something was still running after the grace.
    GraceOver,
    /// The kill was asked for: at once, with a grace of 0, with KILL as the signal that asks, or by a second request.
    Wanted,
    /// The keeper was killed, so the rest of the tree was killed without a grace.
    KeeperLost,
}
