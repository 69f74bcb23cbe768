//! What clients say to a keeper over its control socket, and what it answers: one JSON object a line.

use std::time::Duration;

use quell_core::{AskScope, ProcId, Signal};
use serde::{Deserialize, Serialize};

/// The most that one [`Call::Send`] carries.
pub const SEND_AT_ONCE: usize = 16 * 1024;

/// From a client to the keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Stop the job. Answered with [`Answer::Heard`] at once; when the job has ended the line is closed.
    Stop {
        /// Without asking it first.
        kill: bool,
        /// The grace, if it is not to be the job's own.
        #[serde(default, with = "quell_core::seconds::optional")]
        grace: Option<Duration>,
        /// Which processes are asked first, if that is not to be as the job has it.
        #[serde(default)]
        ask: Option<AskScope>,
        /// Why, in the client's words.
        reason: Option<String>,
        /// Whether only what has outlived the root is meant: then the reason of the end is the root's own.
        #[serde(default)]
        leftovers: bool,
    },
    /// Send a signal to the root, or to everyone. Answered with [`Answer::Signaled`].
    Signal {
        /// Which.
        signal: Signal,
        /// To everyone in the tree.
        tree: bool,
    },
    /// Write to the program's standard input. Answered with [`Answer::Taken`] when all of it is written, or when the
    /// program has read nothing for so long that the rest is given up. What a client that hangs up has not got rid of is
    /// given up as well.
    Send {
        /// What; at most [`SEND_AT_ONCE`] bytes.
        data: Vec<u8>,
        /// Whether that was the last of it.
        eof: bool,
        /// For how long at most the program may make no room.
        #[serde(with = "quell_core::seconds")]
        within: Duration,
    },
    /// Say who is in the tree. Answered with [`Answer::Pinned`].
    Look,
    /// Say how much was done so far. Answered with [`Answer::Vitals`].
    Vitals,
}

impl Call {
    /// What it is about, without what it carries.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stop { kill: true, .. } => "kill",
            Self::Stop { kill: false, .. } => "stop",
            Self::Signal { .. } => "signal",
            Self::Send { .. } => "send",
            Self::Look => "look",
            Self::Vitals => "vitals",
        }
    }
}

/// From the keeper to a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The stop is under way.
    Heard,
    /// A signal was sent.
    Signaled {
        /// To so many processes.
        sent: usize,
    },
    /// Input was written.
    Taken {
        /// How many bytes of it.
        bytes: usize,
        /// Whether that is all, and the input was closed if it was to be; if not, there was no room in time.
        whole: bool,
    },
    /// Who is in the tree.
    Seen(Vec<LiveMember>),
    /// What was done so far. Both only ever grow, except that those who die take some of their time with them.
    Vitals {
        /// CPU time of the tree in clock ticks.
        cpu: u64,
        /// Bytes of output.
        output: u64,
    },
    /// It can't be done.
    Refused {
        /// A stable word.
        code: String,
        /// Why.
        why: String,
    },
}

/// One living process of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveMember {
    /// Its identity.
    #[serde(flatten)]
    pub id: ProcId,
    /// Its parent.
    pub ppid: u32,
    /// Its process group.
    pub pgid: u32,
    /// Its session.
    pub sid: u32,
    /// Its user.
    pub uid: u32,
    /// Its state, as /proc has it: R, S, D, T, Z.
    pub state: char,
    /// Seconds of CPU, its collected children's included.
    pub cpu: f64,
    /// Its resident set, in bytes.
    pub memory: u64,
    /// Its command line, or its short name in brackets.
    pub command: String,
}
