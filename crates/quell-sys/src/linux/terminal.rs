//! The controlling terminal of this process's session.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// The modes that a terminal had at one time: echo, line editing, and so on.
#[derive(Clone, Debug)]
pub struct TerminalModes(Option<Termios>);

impl TerminalModes {
    /// The modes of the terminal now. None if the session has no terminal.
    pub fn now() -> Option<Self> {
        open().ok().map(|terminal| Self(tcgetattr(terminal).ok()))
    }

    /// Gives the terminal these modes again. Does nothing if this process is not in the foreground of the terminal: then the modes
    /// are those of another program.
    pub fn restore(&self) {
        let (Some(modes), Ok(terminal)) = (&self.0, open()) else { return };
        if tcgetpgrp(&terminal) == Ok(rustix::process::getpgrp()) {
            // Not after the output has been read: a terminal that the user has paused would hold this process up.
            let _ = tcsetattr(&terminal, OptionalActions::Now, modes);
        }
    }
}

fn open() -> rustix::io::Result<OwnedFd> {
    rustix::fs::open("/dev/tty", OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}
