//! A call to a keeper over its control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use quell_keeper::control::{Answer, Call};
use quell_store::JobDir;

use crate::{Error, Result};

/// How long a keeper may take to answer. It answers at once, unless the machine is very busy or somebody stopped it.
const PATIENCE: Duration = Duration::from_secs(15);

/// A connection to a keeper.
#[derive(Debug)]
pub(crate) struct Caller {
    stream: BufReader<UnixStream>,
    /// What has come of an answer.
    begun: String,
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

impl Caller {
    /// Connects. None where nobody listens: the job has no socket yet or any more, or is in the foreground.
    pub fn connect(job: &JobDir) -> Result<Option<Self>> {
        let failed = |error| Error::Keeper(format!("can't talk to the keeper of {}: {error}", job.id()));
        match job.connect() {
            Ok(stream) => {
                stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
                Ok(Some(Self { stream: BufReader::new(stream), begun: String::new() }))
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                Ok(None)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Says one thing and hears the answer. None if the keeper is gone meanwhile.
    pub fn ask(&mut self, call: &Call) -> Result<Option<Answer>> {
        self.ask_within(call, Duration::ZERO)
    }

    /// The same for what may take the keeper as long as `longer` to do.
    pub fn ask_within(&mut self, call: &Call, longer: Duration) -> Result<Option<Answer>> {
        match self.say(call).and_then(|()| self.hear(PATIENCE.saturating_add(longer)))? {
            Heard::Answer(answer) => Ok(Some(answer)),
            Heard::Gone => Ok(None),
            Heard::Silence => Err(Error::Keeper("the keeper does not answer".into())),
        }
    }

    /// Says one thing; the answer has to be heard.
    pub fn say(&mut self, call: &Call) -> Result<()> {
        let mut bytes = serde_json::to_vec(call).unwrap_or_default();
        bytes.push(b'\n');
        match self.stream.get_mut().write_all(&bytes) {
            Err(error) if !is_gone(&error) => {
                Err(Error::Keeper(format!("the keeper does not listen: {error}")))
            }
            // One that is gone is not heard either.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Waits for the answer for so long; if there was none, it can be waited for again.
    pub fn hear(&mut self, patience: Duration) -> Result<Heard> {
        let failed = |error| Error::Keeper(format!("the keeper can't be heard: {error}"));
        self.stream.get_mut().set_read_timeout(Some(patience)).map_err(failed)?;
        match self.stream.read_line(&mut self.begun) {
            Ok(0) => Ok(Heard::Gone),
            Ok(_) => serde_json::from_str(&std::mem::take(&mut self.begun))
                .map(Heard::Answer)
                .map_err(|error| Error::Keeper(format!("the keeper's answer can't be understood: {error}"))),
            Err(error) if is_gone(&error) => Ok(Heard::Gone),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Ok(Heard::Silence)
            }
            Err(error) => Err(failed(error)),
        }
    }
}
