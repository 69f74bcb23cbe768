//! What other processes say to a keeper and what it answers, one JSON object per line: the request that starts a job, and the
//! calls of clients over its control socket.

use std::path::PathBuf;
use std::time::Duration;

use quell_core::{AskScope, AskedThrough, Decision, JobId, JobRequest, ProcId, Signal};
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
    /// The interface through which the job was asked for, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<AskedThrough>,
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
    /// Stop the job. Answered with [`Answer::Accepted`] at once; the connection is closed when the job has ended.
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
        /// The interface through which another program asked the client.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        through: Option<AskedThrough>,
    },
    /// Send a signal to the root or to all members. Answered with [`Answer::Signaled`].
    Signal {
        /// The signal.
        signal: Signal,
        /// To all members.
        tree: bool,
    },
    /// Write to the program's standard input. Answered with [`Answer::Written`] when all of it is written, or when the program
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
    /// List the members. Answered with [`Answer::Members`].
    ListMembers,
    /// Report how much the job has done so far. Answered with [`Answer::Vitals`].
    Vitals,
}

/// How a job in the foreground is to be stopped. It has no control socket: its front is asked by [`Signal::ASK_FRONT`], and
/// this is the value that the signal carries. A value of 0, as `kill` sends it, asks politely and leaves the rest to the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopValue {
    /// Without asking it first.
    pub kill: bool,
    /// The grace, if it is not to be the job's own. Longer ones than six days are cut to that.
    pub grace: Option<Duration>,
    /// Which processes are asked first, if that is not to be as the job has it.
    pub ask: Option<AskScope>,
}

impl StopValue {
    /// The lower bits: 0 for the job's own grace, [`Self::KILL`], or one more than the grace in milliseconds.
    const GRACE: u32 = (1 << 29) - 1;
    const KILL: u32 = Self::GRACE;
    const ASK_TREE: u32 = 1 << 29;
    const ASK_ROOT: u32 = 1 << 30;

    /// As it is sent.
    pub fn encode(self) -> i32 {
        let millis = |grace: Duration| grace.as_millis().min(u128::from(Self::KILL) - 2) as u32 + 1;
        let grace = if self.kill { Self::KILL } else { self.grace.map_or(0, millis) };
        let ask = match self.ask {
            None => 0,
            Some(AskScope::Tree) => Self::ASK_TREE,
            Some(AskScope::Root) => Self::ASK_ROOT,
        };
        (grace | ask) as i32
    }

    /// As it was sent.
    pub fn decode(value: i32) -> Self {
        let (bits, grace) = (value as u32, value as u32 & Self::GRACE);
        let kill = grace == Self::KILL;
        let ask = match (bits & Self::ASK_TREE != 0, bits & Self::ASK_ROOT != 0) {
            (true, _) => Some(AskScope::Tree),
            (false, true) => Some(AskScope::Root),
            (false, false) => None,
        };
        let millis = grace.checked_sub(1).filter(|_| !kill);
        Self { kill, grace: millis.map(|millis| Duration::from_millis(millis.into())), ask }
    }
}

impl Call {
    /// A word for it, without its data.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stop { kill: true, .. } => "kill",
            Self::Stop { kill: false, .. } => "stop",
            Self::Signal { .. } => "signal",
            Self::Send { .. } => "send",
            Self::ListMembers => "members",
            Self::Vitals => "vitals",
        }
    }
}

/// From the keeper to a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The stop is under way.
    Accepted,
    /// A signal was sent.
    Signaled {
        /// To so many processes.
        sent: usize,
    },
    /// Input was written.
    Written {
        /// So many bytes of it.
        bytes: usize,
        /// Whether that is all, and the input was closed if that was asked for. If not, there was no room in time.
        whole: bool,
    },
    /// The members.
    Members(Vec<LiveMember>),
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
    /// Whether it ignores TERM, so that a polite request does not end it. Absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignores_term: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_signal_carries_is_read_as_it_was_sent() {
        let graces = [None, Some(0), Some(1), Some(5_000), Some(500_000_000)];
        let scopes = [None, Some(AskScope::Tree), Some(AskScope::Root)];
        for (grace, ask) in graces.into_iter().flat_map(|grace| scopes.map(|ask| (grace, ask))) {
            let grace = grace.map(Duration::from_millis);
            let sent = StopValue { kill: false, grace, ask };
            assert_eq!(StopValue::decode(sent.encode()), sent);
            let sent = StopValue { kill: true, grace: None, ask };
            assert_eq!(StopValue::decode(sent.encode()), sent);
        }
        assert_eq!(StopValue::decode(0), StopValue::default(), "of a plain `kill`");
        let endless = StopValue { grace: Some(Duration::MAX), ..StopValue::default() };
        let cut = StopValue::decode(endless.encode());
        assert!(!cut.kill && cut.grace > Some(Duration::from_secs(6 * 24 * 3600)), "{cut:?}");
    }
}
