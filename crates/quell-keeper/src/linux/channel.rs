//! The channels between quell's own processes: one JSON object per line over a socket. Here is what front (or standby) and
//! keeper say to each other; clients use the same channel (`control_protocol.rs`), and so does the helper (`helper.rs`).

use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use quell_core::{
    Actor, AskScope, Cause, ContainmentKind, Member, ProcId, Receipt, RootOutcome, Signal, Step, StopMode,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::StartError;

/// From the front or the standby to the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub enum FrontCommand {
    Stop {
        actor: Actor,
        mode: StopMode,
        /// The processes that are asked first, if not those that the job's plan names.
        ask: Option<AskScope>,
        /// The signal that asks, if not that of the job's plan.
        signal: Option<Signal>,
    },
    /// Stop the job, as its owner is gone.
    OwnerGone,
    /// Stop the job, as the job that it is in is being stopped.
    OuterJobStops,
    /// Send a signal to the root.
    Forward(Signal),
}

impl FrontCommand {
    /// The stop that a signal asks for: politely, and the second time at once.
    pub fn stop(actor: Actor) -> Self {
        Self::Stop { actor, mode: StopMode::Ask, ask: None, signal: None }
    }
}

impl fmt::Display for FrontCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stop { mode, .. } => write!(f, "stop ({mode:?})"),
            Self::OwnerGone => f.write_str("stop: the owner is gone"),
            Self::OuterJobStops => f.write_str("stop: the outer job is being stopped"),
            Self::Forward(signal) => write!(f, "forward {signal} to the root"),
        }
    }
}

/// From the keeper to the front or the standby.
#[derive(Debug, Serialize, Deserialize)]
pub enum KeeperEvent {
    /// The stub exists and waits.
    Born {
        held: ContainmentKind,
        /// In a PID namespace this is its init.
        root: ProcId,
        /// In a PID namespace: the root below that init.
        inner: Option<ProcId>,
        cgroup: Option<PathBuf>,
        /// The root as a member of the job.
        member: Option<Member>,
    },
    /// The job could not be started, and nothing of it is left.
    Failed(StartError),
    /// The program was executed.
    Running,
    /// A command has arrived.
    Acknowledged,
    /// The tree is being stopped.
    Stopping {
        /// Whether the time for asking is over.
        killing: bool,
        /// The time to exit that this stop gives; it can differ from the job's own grace.
        grace: Duration,
        /// Why the job ends and what caused it, if that is settled.
        ending: Option<(Cause, Actor)>,
        /// Whether descendants had outlived the root.
        leaked: bool,
        ask: AskScope,
    },
    /// Living members, a few at a time.
    Members {
        members: Vec<Member>,
        /// The request to exit that they have just got, if they have.
        asked: Option<Step>,
    },
    /// The root was stopped by job control.
    RootStopped,
    RootExited(RootOutcome),
    /// The root has exited. The others go on, and the keeper needs no front from now on.
    Left {
        /// How many were seen.
        count: usize,
        /// The first few of them.
        members: Vec<Member>,
    },
    /// This run is over, with this outcome of its root. Another run begins after a delay.
    Waiting(RootOutcome),
    /// The job is over; the keeper exits now.
    Done(Box<RunResult>),
}

/// What a run came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    pub receipt: Receipt,
    /// Whether descendants had outlived the root.
    pub leaked: bool,
    /// Why the program could not be started, if it could not.
    pub failed: Option<StartError>,
    /// Whether a receipt that was asked for could not be written.
    pub unwritten: bool,
}

/// A channel with more queued bytes than this is not read any more, until the other end has read some of them.
const BACKLOG: usize = 1024 * 1024;

/// How much is read at once.
const CHUNK: usize = 4096;

/// One end of a channel. Reading never blocks.
#[derive(Debug)]
pub struct JsonChannel {
    stream: UnixStream,
    /// Bytes of a message that has not arrived as a whole.
    partial: Vec<u8>,
    /// Bytes to send when the socket has room.
    queued: Vec<u8>,
}

/// What was read.
#[derive(Debug)]
pub struct Received<T> {
    pub messages: Vec<T>,
    /// Whether the other end is gone.
    pub closed: bool,
}

impl JsonChannel {
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, two) = UnixStream::pair()?;
        Ok((Self::new(one), Self::new(two)))
    }

    pub fn new(stream: UnixStream) -> Self {
        Self { stream, partial: Vec::new(), queued: Vec::new() }
    }

    /// Queues a message; [`JsonChannel::flush`] sends it.
    pub fn queue(&mut self, message: &impl Serialize) {
        // The messages are quell's own types, and none of them can fail to be serialized.
        self.queued.extend(line(message).unwrap_or_default());
    }

    /// Sends as much of the queue as there is room for. An error shows as a closed channel at the next read.
    pub fn flush(&mut self) {
        while !self.queued.is_empty() {
            match quell_sys::send_at_once(&self.stream, &self.queued) {
                Ok(length) => drop(self.queued.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.queued.clear(),
            }
        }
    }

    pub fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// How many bytes this end keeps, read and to be sent.
    pub fn buffered(&self) -> usize {
        self.partial.len() + self.queued.len()
    }

    /// Whether so much is queued that no more requests should be read.
    pub fn is_backlogged(&self) -> bool {
        self.queued.len() > BACKLOG
    }

    /// Sends a message, and waits for room if necessary. An error means that the other end is gone, which the next read shows
    /// as well.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.stream.write_all(&line(message)?)
    }

    /// Sends a small message if there is room for it now.
    pub fn try_send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let bytes = line(message)?;
        let sent = quell_sys::send_at_once(&self.stream, &bytes)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// Everything that has arrived. Call it when the descriptor is ready.
    pub fn recv<T: DeserializeOwned>(&mut self) -> Received<T> {
        self.recv_at_most(usize::MAX)
    }

    /// Everything that has arrived. More than `most` unread bytes count as a closed channel: clients may be other programs than
    /// quell, and may send one endless message, or send faster than the keeper reads.
    pub fn recv_at_most<T: DeserializeOwned>(&mut self, most: usize) -> Received<T> {
        let mut closed = false;
        loop {
            if self.partial.len() > most {
                return Received { messages: Vec::new(), closed: true };
            }
            self.partial.reserve(CHUNK);
            let room = self.partial.capacity() - self.partial.len();
            match quell_sys::receive_at_once(&self.stream, &mut self.partial) {
                Ok(0) => closed = true,
                // There is more only if all the room was used.
                Ok(length) if length == room => continue,
                Ok(_) => {}
                Err(error) => closed = error.kind() != io::ErrorKind::WouldBlock,
            }
            break;
        }
        let mut messages = Vec::new();
        while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            // Both ends are the same program; a line that can't be parsed was cut off by the sender's death.
            messages.extend(serde_json::from_slice(&line).ok());
        }
        if self.partial.is_empty() {
            // The room that a long message took is freed.
            self.partial = Vec::new();
        }
        Received { messages, closed }
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
