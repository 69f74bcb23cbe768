//! How and why a run ended, and what is proven about it.

use serde::{Deserialize, Serialize};

use crate::{AskedThrough, Signal};

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
    /// A stop was requested.
    User,
    /// The root died of a signal that was sent by `quell signal`.
    UserSignal,
    /// Its time was up.
    Timeout,
    /// The kernel ended it at a limit of the job.
    Limit,
    /// A process other than quell sent the root a deadly signal.
    ExternalSignal,
    /// The process that the user called was killed.
    FrontLost,
    /// The keeper was lost: it was killed, or could not put the end on record.
    KeeperLost,
    /// Its owner is gone.
    OwnerGone,
    /// The client of a server has closed the server's standard input.
    InputClosed,
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
        /// The interface through which another program asked that process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        through: Option<Box<AskedThrough>>,
    },
    /// The client of a server that is gone.
    Owner {
        /// Its pid.
        pid: u32,
        /// Its name.
        command: String,
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
    /// The kill was asked for: at once, with a grace of 0, with KILL as the signal that asks, or by a second
    /// signal to the front.
    Wanted,
    /// The keeper was lost, so the rest of the tree was killed without a grace.
    KeeperLost,
}

/// A request to stop in words, for a step of the receipt.
pub fn describe_request(cause: Cause, actor: &Actor) -> String {
    match actor {
        Actor::Sender { signal, pid, .. } => format!("{signal} from pid {pid}"),
        Actor::Client { pid, .. } => format!("asked by pid {pid}"),
        Actor::Owner { pid, command } => format!("its owner {command} (pid {pid}) is gone"),
        Actor::Kernel => "the terminal hung up".into(),
        Actor::Program | Actor::Quell | Actor::Unknown => match cause {
            Cause::OwnerGone => "its owner is gone".into(),
            Cause::FrontLost => "its front was killed".into(),
            Cause::InputClosed => "the client closed its input".into(),
            Cause::Timeout => "its time was up".into(),
            other => format!("{other:?}"),
        },
    }
}
