//! Writing to a job's standard input.

use std::io::{self, Read};
use std::time::Duration;

use quell_keeper::control_protocol::{Answer, Call, SEND_AT_ONCE};

use quell_guard::Verb;

use crate::{Error, Job, Result};

impl Job {
    /// Writes to the program's standard input; comes back when all of it is in the pipe or the terminal. `eof` says that
    /// there will be no more: the pipe is closed, a terminal gets its end-of-file key.
    ///
    /// A program that does not read is waited for, but no longer than `patience` without room for another byte: then it
    /// is [`Error::NotRead`], which says how much went. The rest is not written later.
    ///
    /// ```no_run
    /// # fn main() -> quell::Result<()> {
    /// # use std::time::Duration;
    /// let repl = quell::Quell::new()?.job("repl")?;
    /// repl.send(b"print(6 * 7)\n", false, Duration::from_secs(5))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn send(&self, data: &[u8], eof: bool, patience: Duration) -> Result<()> {
        self.send_from(&mut &*data, eof, patience).map(drop)
    }

    /// The same for all that `source` gives, as it comes: how many bytes that was. Not more than a few kilobytes of it
    /// are held in memory. An error of `source` is [`Error::Io`] about `-`; what came before it has been written.
    pub fn send_from(&self, source: &mut dyn Read, eof: bool, patience: Duration) -> Result<u64> {
        self.quell.permit(Verb::Send, &self.id().to_string())?;
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
                // The program has read enough to end: its input has an end without our saying so.
                Err(Error::State(_)) if last && sent > 0 => 0,
                done => done?,
            };
            if last {
                return Ok(sent);
            }
        }
    }

    /// One call. Also with nothing to write it tells whether there is an input at all.
    fn send_one(&self, data: &[u8], eof: bool, before: u64, within: Duration) -> Result<u64> {
        let call = Call::Send { data: data.to_vec(), eof, within };
        match self.reach(|keeper| keeper.ask_within(&call, within))? {
            Answer::Taken { bytes, whole: true } => Ok(bytes as u64),
            Answer::Taken { bytes, whole: false } => {
                Err(Error::NotRead { job: self.id().to_string(), sent: before + bytes as u64 })
            }
            other => Err(self.strange(&other)),
        }
    }
}
