//! A fifo that a program reads before anything writes to it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{Polled, poll_until};

/// Keeps the end of a fifo from being read before a writer has come and gone: holds it open for writing until then. Ready to
/// be read when that has happened, and then to be dropped.
#[derive(Debug)]
pub struct FifoHold {
    closed: OwnedFd,
    _writer: OwnedFd,
}

impl FifoHold {
    /// Holds what `reader` reads; none if that is no fifo, a writer has been there already, or this user may not write to it.
    pub fn open(reader: impl AsFd) -> io::Result<Option<Self>> {
        let reader = reader.as_fd();
        if FileType::from_raw_mode(rustix::fs::fstat(reader)?.st_mode) != FileType::Fifo {
            return Ok(None);
        }
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        let closed = inotify::init(CreateFlags::CLOEXEC)?;
        inotify::add_watch(&closed, path.as_str(), WatchFlags::CLOSE_WRITE)?;
        // A writer that has gone before the watch began has left something to read, or the end.
        if poll_until(&[Polled::Read(reader)], Some(Instant::now()))?.contains(&true) {
            return Ok(None);
        }
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::open(path.as_str(), flags, Mode::empty()) {
            Ok(writer) => Ok(Some(Self { closed, _writer: writer })),
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for FifoHold {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.closed.as_fd()
    }
}
