//! Writing to a job's standard input.

use std::io::{self, Read};
use std::time::Duration;

use quell_guard::Verb;
use quell_keeper::control_protocol::{Answer, Call, SEND_AT_ONCE};

use crate::keeper_client::PATIENCE;
use crate::{Error, Job, Result};

/// Whether a job's standard input ends after what is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendEof {
    /// More may be sent later.
    #[default]
    No,
    /// The pipe is closed; a terminal gets its end-of-file key.
    Yes,
}

impl From<bool> for SendEof {
    fn from(eof: bool) -> Self {
        if eof { Self::Yes } else { Self::No }
    }
}

impl Job {
    /// Writes to the program's standard input, and returns when all of it is in the pipe or the terminal.
    ///
    /// If the program makes no room for another byte for as long as `patience`, the rest is dropped and that is
    /// [`Error::NotRead`], which says how much was written.
    ///
    /// ```no_run
    /// # fn main() -> quell::Result<()> {
    /// # use std::time::Duration;
    /// let repl = quell::Quell::open()?.job("repl")?;
    /// repl.send(b"print(6 * 7)\n", quell::SendEof::No, Duration::from_secs(5))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn send(&self, data: &[u8], eof: SendEof, patience: Duration) -> Result<()> {
        self.send_from(&mut &*data, eof, patience).map(drop)
    }

    /// Writes all that `source` gives, and returns how many bytes that was. It holds a few kilobytes in memory at most. An error of
    /// `source` is [`Error::Io`] about `-`; what came before it has been written.
    pub fn send_from(&self, source: &mut dyn Read, eof: SendEof, patience: Duration) -> Result<u64> {
        self.quell.permit(Verb::Send, &self.id().to_string())?;
        let eof = eof == SendEof::Yes;
        let mut buffer = vec![0; SEND_AT_ONCE];
        let mut sent = 0;
        loop {
            let length = match source.read(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Error::io("-")(error)),
            };
            let last = length == 0;
            if last && !eof && sent > 0 {
                return Ok(sent);
            }
            sent += match self.send_one(&buffer[..length], eof && last, sent, patience) {
                // The program has read enough and has ended, so its input needs no end.
                Err(Error::State(_)) if last && sent > 0 => 0,
                done => done?,
            };
            if last {
                return Ok(sent);
            }
        }
    }

    /// Sends one request. With no data it finds out whether the job has an input at all.
    fn send_one(&self, data: &[u8], eof: bool, before: u64, within: Duration) -> Result<u64> {
        let call = Call::Send { data: data.to_vec(), eof, within };
        match self.call(&call, PATIENCE.saturating_add(within))? {
            Answer::Written { bytes, whole: true } => Ok(bytes as u64),
            Answer::Written { bytes, whole: false } => {
                Err(Error::NotRead { job: self.id().to_string(), sent: before + bytes as u64 })
            }
            other => Err(self.unexpected(&other)),
        }
    }
}
