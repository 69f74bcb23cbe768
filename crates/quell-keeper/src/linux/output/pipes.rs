//! Both ends of a job's output: two pipes, or a terminal.
//!
//! They are made before the keeper is forked, so that its standby has them too. If the keeper is killed, bytes that it has not
//! read are still there. Bytes that it was just reading have moved to the disk in one step, or to a relay that the standby has
//! as well (`burst.rs`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::burst;

#[derive(Debug)]
pub struct OutputPipes {
    /// Reading end and writing end.
    pub stdout: (OwnedFd, OwnedFd),
    /// A terminal has one stream only.
    pub stderr: Option<(OwnedFd, OwnedFd)>,
    /// Where a burst of standard output goes first; a terminal has none. Its bytes are older than those in the pipe.
    pub relay: Option<(OwnedFd, OwnedFd)>,
}

impl OutputPipes {
    pub fn open(pty: bool) -> io::Result<Self> {
        let pipes = if pty {
            Self { stdout: quell_sys::terminal()?, stderr: None, relay: None }
        } else {
            let relay = burst::relay()?;
            Self { stdout: quell_sys::pipe()?, stderr: Some(quell_sys::pipe()?), relay: Some(relay) }
        };
        for (read, _) in
            [Some(&pipes.stdout), pipes.stderr.as_ref(), pipes.relay.as_ref()].into_iter().flatten()
        {
            quell_sys::set_nonblocking(read)?;
        }
        Ok(pipes)
    }

    /// The descriptors that the program gets as standard output and standard error.
    pub fn for_program(&self) -> [i32; 2] {
        let stderr = self.stderr.as_ref().unwrap_or(&self.stdout);
        [self.stdout.1.as_raw_fd(), stderr.1.as_raw_fd()]
    }

    /// The terminal's own end, if this is a terminal: the program reads what is written there.
    pub fn terminal(&self) -> Option<&OwnedFd> {
        self.stderr.is_none().then_some(&self.stdout.0)
    }
}
