//! A call to a keeper over its control socket.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use quell_keeper::control::{Answer, Call};
use quell_store::{JobDir, KNOCK};
use quell_sys::{Polled, fault};

use crate::{Error, Result};

/// How long a keeper may take to answer. It answers at once, unless the machine is very busy or somebody stopped it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);
/// The longest answer that is taken: a tree of a hundred thousand processes is told in less.
const LONGEST: usize = 64 * 1024 * 1024;

/// How long a socket may be missing before its keeper is asked about it.
const KNOCK_AFTER: Duration = Duration::from_millis(100);

/// A connection to a keeper.
#[derive(Debug)]
pub(crate) struct Caller {
    stream: UnixStream,
    /// What has come of an answer.
    begun: Vec<u8>,
}

/// What a keeper says.
#[derive(Debug)]
pub(crate) enum Heard {
    Answer(Answer),
    /// The keeper is gone.
    Gone,
    /// Nothing in that time.
    Silence,
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// When to knock: not at once, as a job that has just begun has no socket yet, and not at every turn.
#[derive(Debug)]
pub(crate) struct Knocking(Instant);

impl Knocking {
    pub fn new() -> Self {
        Self(Instant::now() + KNOCK_AFTER)
    }

    /// Nobody was found at the socket of `job`.
    pub fn missed(&mut self, job: &JobDir) {
        if Instant::now() >= self.0 {
            self.0 = Instant::now() + KNOCK_AFTER;
            // The socket may have been deleted: a keeper that hears this opens another one, and others ignore it.
            for keeper in job.keepers() {
                keeper.signal(KNOCK);
            }
        }
    }
}

impl Caller {
    /// Connects. None where nobody listens: the job has no socket yet or any more, or is in the foreground. One whose queue
    /// stays full for so long is [`Error::TimedOut`].
    pub fn connect_within(job: &JobDir, patience: Duration) -> Result<Option<Self>> {
        let failed = |error| Error::Keeper(format!("can't talk to the keeper of {}: {error}", job.id()));
        fault::work_for(&job.id());
        match job.connect(patience) {
            Ok(stream) => {
                stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
                Ok(Some(Self { stream, begun: Vec::new() }))
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

    /// Waits until one of these lines is closed, as a keeper does when the job's end is on record or when it dies; false if
    /// `until` comes first.
    pub fn wait_closed<'l>(
        lines: impl IntoIterator<Item = &'l Self>,
        until: Option<Instant>,
    ) -> Result<bool> {
        let polled: Vec<Polled<'_>> =
            lines.into_iter().map(|line| Polled::Read(line.stream.as_fd())).collect();
        let failed = |error| Error::Keeper(format!("the keeper can't be waited for: {error}"));
        Ok(quell_sys::poll_until(&polled, until).map_err(failed)?.contains(&true))
    }

    /// Says one thing and hears the answer. None if the keeper is gone meanwhile.
    pub fn ask(&mut self, call: &Call) -> Result<Option<Answer>> {
        self.ask_within(call, Duration::ZERO)
    }

    /// The same for what may take the keeper as long as `longer` to do.
    pub fn ask_within(&mut self, call: &Call, longer: Duration) -> Result<Option<Answer>> {
        self.ask_for(call, PATIENCE.saturating_add(longer))
    }

    /// The same, with `patience` for the answer.
    pub fn ask_for(&mut self, call: &Call, patience: Duration) -> Result<Option<Answer>> {
        match self.say(call).and_then(|()| self.hear(patience))? {
            Heard::Answer(answer) => Ok(Some(answer)),
            Heard::Gone => Ok(None),
            Heard::Silence => Err(Error::Keeper("the keeper does not answer".into())),
        }
    }

    /// Says one thing; the answer has to be heard.
    pub fn say(&mut self, call: &Call) -> Result<()> {
        tracing::debug!("asks the keeper: {}", call.name());
        let mut bytes = serde_json::to_vec(call).unwrap_or_default();
        bytes.push(b'\n');
        match self.stream.write_all(&bytes) {
            Err(error) if !is_gone(&error) => {
                Err(Error::Keeper(format!("the keeper does not listen: {error}")))
            }
            // One that is gone is not heard either.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Waits for the answer for so long, however slowly it comes; if there was none, it can be waited for again.
    pub fn hear(&mut self, patience: Duration) -> Result<Heard> {
        let failed = |error| Error::Keeper(format!("the keeper can't be heard: {error}"));
        let deadline = Instant::now().checked_add(patience);
        let mut chunk = [0; 16 * 1024];
        // An answer is one line, and nothing comes behind it.
        while self.begun.last() != Some(&b'\n') {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(Heard::Silence);
            }
            self.stream.set_read_timeout(left).map_err(failed)?;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(Heard::Gone),
                Ok(length) => self.begun.extend_from_slice(&chunk[..length]),
                Err(error) if is_gone(&error) => return Ok(Heard::Gone),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Ok(Heard::Silence);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
            if self.begun.len() > LONGEST {
                return Err(Error::Keeper(format!("the keeper's answer is longer than {LONGEST} bytes")));
            }
        }
        serde_json::from_slice(&std::mem::take(&mut self.begun))
            .map(Heard::Answer)
            .map_err(|error| Error::Keeper(format!("the keeper's answer can't be understood: {error}")))
    }
}
