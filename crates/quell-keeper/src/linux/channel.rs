//! What front and keeper say to each other: one JSON object a line over a socket pair.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use quell_core::{
    Actor, AskScope, Cause, ContainmentKind, Member, ProcId, Receipt, RootOutcome, Signal, Step,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ExecRemedy;

/// From the front to the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Stop the job; a second one kills it at once.
    Stop(Actor),
    /// Stop the job, as its owner is gone.
    OwnerGone,
    /// Pass a signal to the root.
    Pass(Signal),
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stop(_) => f.write_str("stop"),
            Self::OwnerGone => f.write_str("stop: the owner is gone"),
            Self::Pass(signal) => write!(f, "pass {signal} to the root"),
        }
    }
}

/// From the keeper to the front.
#[derive(Debug, Serialize, Deserialize)]
pub enum Note {
    /// The program was executed.
    Running,
    /// The stub exists and waits.
    Born {
        /// What holds it.
        held: ContainmentKind,
        /// Who it is; in a PID namespace its init.
        root: ProcId,
        /// The root below that.
        inner: Option<ProcId>,
        /// The cgroup that holds it.
        cgroup: Option<PathBuf>,
    },
    /// It did not come to be, and nothing of it is left.
    Failed(StartFailure),
    /// An order has arrived.
    Heard,
    /// The tree is being stopped.
    Stopping {
        /// Whether the time for asking is over.
        killing: bool,
        /// How long it may take to end by itself: whoever stops it can give it more than its own grace.
        grace: Duration,
        /// Why it ends, and who brought that about, if that is settled.
        ending: Option<(Cause, Actor)>,
        /// Whether descendants had outlived the root.
        leaked: bool,
        /// Which processes are asked first.
        ask: AskScope,
    },
    /// Members that live, a few at a time.
    Members {
        /// They.
        members: Vec<Member>,
        /// The request to end that they have just got, if they have.
        asked: Option<Step>,
    },
    /// This run is over, with this outcome of its root, and another one will begin after a while.
    Resting(RootOutcome),
    /// The root was stopped by job control.
    RootStopped,
    /// The root has ended.
    RootExited(RootOutcome),
    /// It is over; the keeper exits now.
    Done {
        /// What happened.
        receipt: Box<Receipt>,
        /// Whether descendants had outlived the root.
        leaked: bool,
        /// Whether the start failed in the new process, and where.
        failed: Option<StartFailure>,
        /// Whether a receipt that was asked for could not be written.
        unwritten: bool,
    },
}

/// Why a program could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartFailure {
    /// It could not be executed.
    Exec(String, ExecRemedy),
    /// The interpreter that it names is not there.
    Interpreter(String),
    /// Its directory could not be entered.
    Cwd(String),
    /// The containment could not be made.
    Containment(String),
    /// A limit could not be had.
    Limit(String),
    /// The record could not be written.
    Record(String),
    /// Something else.
    Other(String),
}

impl StartFailure {
    /// That the record could not be written; a lack of descriptors is not the record's fault.
    pub fn record(error: std::io::Error) -> Self {
        let text = error.to_string();
        if quell_sys::is_out_of_descriptors(&error) { Self::Other(text) } else { Self::Record(text) }
    }

    /// In words.
    pub fn text(&self) -> &str {
        match self {
            Self::Exec(text, _)
            | Self::Interpreter(text)
            | Self::Cwd(text)
            | Self::Containment(text)
            | Self::Limit(text)
            | Self::Record(text)
            | Self::Other(text) => text,
        }
    }
}

/// One end of the line. Reading never blocks.
#[derive(Debug)]
pub struct JsonChannel {
    stream: UnixStream,
    pending: Vec<u8>,
    /// What is to be said when there is room for it.
    unsaid: Vec<u8>,
}

/// The most that is kept for a client that doesn't listen, before it has to take some of it.
const UNHEARD: usize = 1024 * 1024;

/// How much is read at once.
const CHUNK: usize = 4096;

/// What was read.
#[derive(Debug)]
pub struct Arrived<T> {
    /// The messages.
    pub messages: Vec<T>,
    /// Whether the other end is gone.
    pub closed: bool,
}

impl JsonChannel {
    /// Both ends.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, two) = UnixStream::pair()?;
        Ok((Self::over(one), Self::over(two)))
    }

    /// One end, over a stream that is connected.
    pub fn over(stream: UnixStream) -> Self {
        Self { stream, pending: Vec::new(), unsaid: Vec::new() }
    }

    /// Puts a message down to be said as soon as there is room for it; see [`JsonChannel::say_more`].
    pub fn queue(&mut self, message: &impl Serialize) {
        // What quell says are its own types, none of which can fail to be written.
        self.unsaid.extend(line(message).unwrap_or_default());
    }

    /// Says what there is room for. An error shows as a closed line when it is next heard.
    pub fn say_more(&mut self) {
        while !self.unsaid.is_empty() {
            match quell_sys::send_at_once(&self.stream, &self.unsaid) {
                Ok(length) => drop(self.unsaid.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.unsaid.clear(),
            }
        }
    }

    /// Whether something is still to be said.
    pub fn has_more_to_say(&self) -> bool {
        !self.unsaid.is_empty()
    }

    /// How many bytes are kept for the other end and of what it says.
    pub fn held(&self) -> usize {
        self.pending.len() + self.unsaid.len()
    }

    /// Whether so much is still to be said that nothing more should be asked.
    pub fn is_unheard(&self) -> bool {
        self.unsaid.len() > UNHEARD
    }

    /// Says one thing, for as long as it takes. An error means that the other end is gone, which its silence will show
    /// as well.
    pub fn say(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.stream.write_all(&line(message)?)
    }

    /// Says one small thing if there is room for it now.
    pub fn mention(&mut self, message: &impl Serialize) -> io::Result<()> {
        let bytes = line(message)?;
        let sent = quell_sys::send_at_once(&self.stream, &bytes)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// Everything that has arrived. Call it when the descriptor is ready.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Arrived<T> {
        self.hear_at_most(usize::MAX)
    }

    /// What has arrived, until `most` bytes wait to be understood: one who says more than that in one message, or faster
    /// than it can be heard, has closed the line. For those who are not quell.
    pub fn hear_at_most<T: DeserializeOwned>(&mut self, most: usize) -> Arrived<T> {
        let mut closed = false;
        loop {
            if self.pending.len() > most {
                return Arrived { messages: Vec::new(), closed: true };
            }
            self.pending.reserve(CHUNK);
            let room = self.pending.capacity() - self.pending.len();
            match quell_sys::receive_at_once(&self.stream, &mut self.pending) {
                Ok(0) => closed = true,
                // There is more only if all the room was used.
                Ok(length) if length == room => continue,
                Ok(_) => {}
                Err(error) => closed = error.kind() != io::ErrorKind::WouldBlock,
            }
            break;
        }
        let mut messages = Vec::new();
        while let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            // Both ends are the same program; a line that can't be read was cut off by the sender's death.
            messages.extend(serde_json::from_slice(&line).ok());
        }
        if self.pending.is_empty() {
            // What a long message took is not kept for the next one.
            self.pending = Vec::new();
        }
        Arrived { messages, closed }
    }
}

fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(message)?;
    bytes.push(b'\n');
    Ok(bytes)
}

impl AsFd for JsonChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
