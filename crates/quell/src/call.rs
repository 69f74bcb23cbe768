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
}

impl Caller {
    /// Connects. None where nobody listens: the job has no socket yet or any more, or is in the foreground.
    pub fn connect(job: &JobDir) -> Result<Option<Self>> {
        let failed = |error| Error::Keeper(format!("can't talk to the keeper of {}: {error}", job.id()));
        match job.connect() {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
                stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
                Ok(Some(Self { stream: BufReader::new(stream) }))
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
        let patience = PATIENCE.saturating_add(longer);
        let stream = self.stream.get_ref();
        stream
            .set_read_timeout(Some(patience))
            .map_err(|error| Error::Keeper(format!("can't talk to the keeper: {error}")))?;
        let mut bytes = serde_json::to_vec(call).unwrap_or_default();
        bytes.push(b'\n');
        let mut line = String::new();
        let asked = self.stream.get_mut().write_all(&bytes).and_then(|()| self.stream.read_line(&mut line));
        match asked {
            Ok(0) => Ok(None),
            Ok(_) => serde_json::from_str(&line)
                .map(Some)
                .map_err(|error| Error::Keeper(format!("the keeper's answer can't be understood: {error}"))),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
            {
                Ok(None)
            }
            Err(error) => Err(Error::Keeper(format!("the keeper does not answer: {error}"))),
        }
    }
}
