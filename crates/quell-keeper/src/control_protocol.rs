//! What other processes say to a keeper and what it answers, one JSON object per line: the request that starts a job, and the
//! calls of clients over its control socket.

use std::path::PathBuf;
use std::time::Duration;

use quell_core::{AskScope, Decision, JobId, JobRequest, ProcId, Signal};
use serde::{Deserialize, Serialize};

use crate::StartError;

/// From the process that starts a background job to the process that will keep it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartMessage {
    /// quell's home, which has the record.
    #[serde(with = "quell_core::paths::whole")]
    pub home: PathBuf,
    /// The request, with everything filled in that depends on the caller: directory, environment, owner, session.
    pub request: JobRequest,
}

/// The answer to a [`StartMessage`].
#[derive(Debug, Serialize, Deserialize)]
pub enum StartReply {
    /// The program runs, and is on record.
    Started {
        /// The job's id.
        id: JobId,
    },
    /// Nothing runs, and nothing is left behind.
    Failed(StartError),
    /// The guard refused the request. Nothing runs.
    Refused(Box<Decision>),
}

/// The most bytes that one [`Call::Send`] carries.
pub const SEND_AT_ONCE: usize = 16 * 1024;

/// From a client to the keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Stop the job. Answered with [`Answer::Heard`] at once; the connection is closed when the job has ended.
    Stop {
        /// Kill without asking first.
        kill: bool,
        /// The grace, if not the job's own.
        #[serde(default, with = "quell_core::seconds::optional")]
        grace: Option<Duration>,
        /// Which processes are asked first, if not as the job has it.
        #[serde(default)]
        ask: Option<AskScope>,
        /// The client's reason, for the receipt.
        reason: Option<String>,
        /// Stop only what has outlived the root: the cause of the end is then the root's own.
        #[serde(default)]
        leftovers: bool,
    },
    /// Send a signal to the root or to all members. Answered with [`Answer::Signaled`].
    Signal {
        /// The signal.
        signal: Signal,
        /// To all members.
        tree: bool,
    },
    /// Write to the program's standard input. Answered with [`Answer::Taken`] when all of it is written, or when the program
    /// has not read for so long that the rest is dropped. The rest is also dropped if the client disconnects.
    Send {
        /// At most [`SEND_AT_ONCE`] bytes.
        data: Vec<u8>,
        /// Close the input afterwards.
        eof: bool,
        /// How long to wait for the program to make room.
        #[serde(with = "quell_core::seconds")]
        within: Duration,
    },
    /// List the members. Answered with [`Answer::Seen`].
    Look,
    /// Report how much the job has done so far. Answered with [`Answer::Vitals`].
    Vitals,
}

impl Call {
    /// A word for it, without its data.
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
        /// So many bytes of it.
        bytes: usize,
        /// Whether that is all, and the input was closed if that was asked for. If not, there was no room in time.
        whole: bool,
    },
    /// The members.
    Seen(Vec<LiveMember>),
    /// What was done so far. Both only grow, except that processes that die may take some of their time with them.
    Vitals {
        /// CPU time of the tree in clock ticks.
        cpu: u64,
        /// Bytes of output.
        output: u64,
    },
    /// The call can't be carried out.
    Refused {
        /// A stable code.
        code: String,
        /// The reason, for people.
        why: String,
    },
}

#[cfg(target_os = "linux")]
impl Answer {
    pub(crate) fn refused(code: &str, why: &str) -> Self {
        Self::Refused { code: code.into(), why: why.into() }
    }
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
    /// Its resident memory, in bytes.
    pub memory: u64,
    /// Its command line, or its short name in brackets.
    pub command: String,
}
