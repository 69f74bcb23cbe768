//! Requests to the keeper of a job over its control socket.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use quell_keeper::control_protocol::{Answer, Call};
use quell_store::{JobDir, RESTORE_FILES_SIGNAL};
use quell_sys::{Polled, fault};

use crate::recover::{RecoveredBy, Standing, recover};
use crate::{Error, Job, Result};

/// How long a keeper may take to answer. It answers at once, unless the machine is very busy or the keeper was stopped by a signal.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);
/// How long a job may take to get its control socket, or to lose it.
const SOCKET_PATIENCE: Duration = Duration::from_secs(10);
/// How long a socket may be missing before the keeper is told to open another one.
const REVIVE_AFTER: Duration = Duration::from_millis(100);
/// The size limit of an answer. The list of a hundred thousand processes is smaller.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// A connection to a keeper.
#[derive(Debug)]
pub(crate) struct KeeperClient {
    stream: UnixStream,
    /// The part of an answer that has arrived.
    received: Vec<u8>,
}

/// What came back from a keeper.
#[derive(Debug)]
pub(crate) enum Reply {
    Answer(Answer),
    /// The keeper has closed the connection or has exited.
    Closed,
    /// Nothing arrived in time.
    Silence,
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Tells keepers to open their control socket again, in case it was deleted. It waits a moment first, as a job that has just
/// begun has no socket yet, and then signals at intervals.
#[derive(Debug)]
pub(crate) struct SocketRevival(Instant);

impl SocketRevival {
    pub fn new() -> Self {
        Self(Instant::now() + REVIVE_AFTER)
    }

    /// Called each time that no process listens at the socket of `job`.
    pub fn missed(&mut self, job: &JobDir) {
        if Instant::now() >= self.0 {
            self.0 = Instant::now() + REVIVE_AFTER;
            // A keeper that gets this opens another socket. Other processes ignore the signal.
            for keeper in job.keepers() {
                keeper.signal(RESTORE_FILES_SIGNAL);
            }
        }
    }
}

impl KeeperClient {
    /// Connects. None if no process listens: the job has no socket yet or any more, or is in the foreground. A keeper whose queue
    /// stays full for `patience` is [`Error::TimedOut`].
    pub fn connect_within(job: &JobDir, patience: Duration) -> Result<Option<Self>> {
        let failed = |error| Error::Keeper(format!("can't talk to the keeper of {}: {error}", job.id()));
        fault::work_for(&job.id());
        match job.connect(patience) {
            Ok(stream) => {
                stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
                Ok(Some(Self { stream, received: Vec::new() }))
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                Ok(None)
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(Error::TimedOut(format!("the keeper of {} takes no calls", job.id())))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Waits until one of the connections is closed: a keeper closes it when the job's end is on record, or when it dies. False if
    /// `until` comes first.
    pub fn wait_closed<'c>(
        connections: impl IntoIterator<Item = &'c Self>,
        until: Option<Instant>,
    ) -> Result<bool> {
        Self::wait_closed_or(connections, until, None)
    }

    /// The same, but also returns when `other` becomes readable.
    pub fn wait_closed_or<'c>(
        connections: impl IntoIterator<Item = &'c Self>,
        until: Option<Instant>,
        other: Option<BorrowedFd<'_>>,
    ) -> Result<bool> {
        let connections = connections.into_iter().map(|connection| connection.stream.as_fd());
        let polled: Vec<Polled<'_>> = connections.chain(other).map(Polled::Read).collect();
        let failed = |error| Error::Keeper(format!("can't wait for the keeper: {error}"));
        let mut ready = quell_sys::poll_until(&polled, until).map_err(failed)?;
        ready.truncate(polled.len() - usize::from(other.is_some()));
        Ok(ready.contains(&true))
    }

    /// Sends a request and waits for the answer, for `patience` at most. None if the keeper is gone.
    pub fn request(&mut self, call: &Call, patience: Duration) -> Result<Option<Answer>> {
        match self.send(call).and_then(|()| self.receive(patience))? {
            Reply::Answer(answer) => Ok(Some(answer)),
            Reply::Closed => Ok(None),
            Reply::Silence => Err(Error::Keeper("the keeper does not answer".into())),
        }
    }

    /// Sends a request. [`Self::receive`] gets the answer.
    pub fn send(&mut self, call: &Call) -> Result<()> {
        tracing::debug!("asks the keeper: {}", call.name());
        let mut bytes = serde_json::to_vec(call).unwrap_or_default();
        bytes.push(b'\n');
        match self.stream.write_all(&bytes) {
            Err(error) if !is_closed(&error) => {
                Err(Error::Keeper(format!("the keeper does not listen: {error}")))
            }
            // `receive` finds out that the keeper is gone.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Waits for the answer for `patience` at most. After [`Reply::Silence`] it can be called again.
    pub fn receive(&mut self, patience: Duration) -> Result<Reply> {
        let failed = |error| Error::Keeper(format!("can't read the keeper's answer: {error}"));
        let deadline = Instant::now().checked_add(patience);
        let mut chunk = [0; 16 * 1024];
        // An answer is one line, and nothing follows it.
        while self.received.last() != Some(&b'\n') {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(Reply::Silence);
            }
            self.stream.set_read_timeout(left).map_err(failed)?;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(Reply::Closed),
                Ok(length) => self.received.extend_from_slice(&chunk[..length]),
                Err(error) if is_closed(&error) => return Ok(Reply::Closed),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Ok(Reply::Silence);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
            if self.received.len() > MAX_ANSWER {
                return Err(Error::Keeper(format!("the keeper's answer is longer than {MAX_ANSWER} bytes")));
            }
        }
        serde_json::from_slice(&std::mem::take(&mut self.received))
            .map(Reply::Answer)
            .map_err(|error| Error::Keeper(format!("can't parse the keeper's answer: {error}")))
    }
}

impl Job {
    /// Sends a request to the keeper and returns its answer, which may take as long as `patience`.
    pub(crate) fn call(&self, call: &Call, patience: Duration) -> Result<Answer> {
        self.call_by(call, patience, None)
    }

    /// The same, by `deadline` at the latest: also if the keeper was stopped and does not answer.
    pub(crate) fn call_by(
        &self,
        call: &Call,
        patience: Duration,
        deadline: Option<Instant>,
    ) -> Result<Answer> {
        let left = |most: Duration| match deadline {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()).min(most),
            None => most,
        };
        let connect_by = Instant::now() + left(SOCKET_PATIENCE);
        let (mut watch, mut revival) = (self.watch()?, SocketRevival::new());
        // Checked each time: the keeper may be killed while this waits for it.
        while recover(self.dir(), RecoveredBy::Reader)? == Standing::Kept {
            if self.dir().spec().is_ok_and(|spec| !spec.request.has_control()) {
                return Err(Error::State(format!(
                    "{} is in the foreground of another `quell run`, which has its input and passes signals on",
                    self.id()
                )));
            }
            // The kernel refuses a timeout of 0.
            let within = connect_by.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            if let Some(mut keeper) = KeeperClient::connect_within(self.dir(), within)?
                && let Some(answer) = keeper.request(call, left(patience))?
            {
                return match answer {
                    Answer::Refused { why, .. } => Err(Error::State(format!("{}: {why}", self.id()))),
                    answer => Ok(answer),
                };
            }
            if Instant::now() >= connect_by {
                return Err(Error::Keeper(format!("the keeper of {} does not listen", self.id())));
            }
            revival.missed(self.dir());
            // A job that has just begun has no socket yet.
            let soon = Instant::now() + Duration::from_millis(20);
            watch.wait(Some(soon)).map_err(Error::io(self.dir().dir()))?;
        }
        if !self.dir().exists() {
            return Err(Error::NoSuchJob(self.id().to_string()));
        }
        Err(Error::State(format!("{} has ended", self.id())))
    }

    pub(crate) fn unexpected(&self, answer: &Answer) -> Error {
        Error::Keeper(format!("the keeper of {} gave an unexpected answer: {answer:?}", self.id()))
    }
}
