//! How and why a run ended, and what is proven about it.

use serde::{Deserialize, Serialize};

use crate::Signal;

/// Why a run ended, and what caused it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// The reason.
    pub cause: Cause,
    /// What caused it.
    pub actor: Actor,
}

/// Why a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The root ended by itself.
    OwnExit,
    /// The program could not be started.
    StartFailed,
    /// It was requested.
    User,
    /// Its time was up.
    Timeout,
    /// The kernel ended it at a limit of the job.
    Limit,
    /// A process other than quell sent the root a deadly signal.
    ExternalSignal,
    /// The process that the user called was killed.
    FrontLost,
    /// The keeper was killed.
    KeeperLost,
    /// Its owner is gone.
    OwnerGone,
    /// The machine was restarted.
    HostReboot,
}

/// What caused the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Actor {
    /// The program itself.
    Program,
    /// quell, by the rules of the job.
    Quell,
    /// A process that sent quell a signal.
    Sender {
        /// The signal that quell got.
        signal: Signal,
        /// The sender's pid.
        pid: u32,
        /// The sender's user.
        uid: u32,
        /// The sender's command line, if it could be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
    /// A process that asked quell to stop the job; for `quell stop`, the process that called it.
    Client {
        /// Its pid.
        pid: u32,
        /// Its user.
        uid: u32,
        /// Its command line, if it could be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
        /// The reason that it gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The kernel: a terminal that hung up, or a limit.
    Kernel,
    /// Not known: a signal from a process other than quell.
    Unknown,
}

/// How the root ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RootOutcome {
    /// It exited.
    Exited {
        /// The exit code.
        code: i32,
    },
    /// A signal ended it.
    Signaled {
        /// The signal.
        signal: Signal,
        /// Whether a core was dumped.
        core: bool,
    },
    /// It never ran.
    NotStarted {
        /// The reason.
        reason: String,
    },
    /// It is gone; how it ended is not known.
    Unknown,
}

/// What was proven about the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Verdict {
    /// Counted: no process is left.
    Gone,
    /// Counted: some processes are left.
    Survivors {
        /// Their number.
        count: usize,
    },
    /// It could not be counted.
    Unproven {
        /// The reason.
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
        /// The reason.
        why: String,
    },
}

/// Why a tree was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KillReason {
    /// It was asked to end, and processes were still running after the grace.
    GraceOver,
    /// The kill was asked for: at once, with a grace of 0, with KILL as the signal that asks, or by a second request.
    Wanted,
    /// The keeper was killed, so the rest of the tree was killed without a grace.
    KeeperLost,
}
