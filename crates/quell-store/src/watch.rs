//! Waiting for changes in jobs' directories.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use quell_sys::{Polled, poll_until};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// How often to look without inotify, of which a user has 128 instances. No other event reports that a file grows.
const RELOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// When to look once more after a change if a lock is watched: the kernel reports that a file was closed before it releases the
/// lock.
const ECHO: Duration = Duration::from_millis(10);

/// Waits for changes in directories: files made, written, closed, moved in or removed. Add first, then look, then wait: so no
/// change is missed.
#[derive(Debug)]
pub struct Watch {
    fd: OwnedFd,
    /// Whether `fd` reports changes. Otherwise it is a timer, and something may have changed at each tick.
    uses_inotify: bool,
    /// Whether a lock is watched.
    locks: bool,
    /// When to look once more after a change.
    echo: Option<Instant>,
}

impl Watch {
    /// Watches nothing yet.
    pub fn new() -> io::Result<Self> {
        match inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC) {
            Ok(fd) => Ok(Self { fd, uses_inotify: true, locks: false, echo: None }),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOSYS) => Self::timed(),
            Err(error) => Err(error.into()),
        }
    }

    fn timed() -> io::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let tick = Itimerspec { it_interval: RELOOK, it_value: RELOOK };
        timerfd_settime(&fd, TimerfdTimerFlags::empty(), &tick)?;
        Ok(Self { fd, uses_inotify: false, locks: false, echo: None })
    }

    /// Watches `dir` as well. From now on no change there is missed. Its removal is the last change.
    pub fn add(&mut self, dir: &Path) -> io::Result<()> {
        self.add_for(dir, WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::DELETE)
    }

    /// The same, but only for changes of records and released locks, not of output. `path` may be a file.
    pub fn add_quietly(&mut self, path: &Path) -> io::Result<()> {
        self.locks = true;
        self.add_for(path, WatchFlags::empty())
    }

    fn add_for(&mut self, dir: &Path, more: WatchFlags) -> io::Result<()> {
        let flags = more
            | WatchFlags::MOVED_TO
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        let added =
            if self.uses_inotify { inotify::add_watch(&self.fd, dir, flags).map(|_| ()) } else { Ok(()) };
        match added {
            Ok(()) => Ok(()),
            // The user has no watches left. Changes until now are reported at the first tick.
            Err(Errno::NOSPC | Errno::NOMEM) => {
                *self = Self { locks: self.locks, ..Self::timed()? };
                Ok(())
            }
            Err(error) => {
                let error = io::Error::from(error);
                Err(io::Error::new(error.kind(), format!("{}: {error}", dir.display())))
            }
        }
    }

    /// Waits until something has changed since the last call, or until `deadline`. Returns whether it has, or without inotify,
    /// may have. Many changes count as one.
    pub fn wait(&mut self, deadline: Option<Instant>) -> io::Result<bool> {
        self.wait_or(deadline, None)
    }

    /// The same, but also returns when `other` becomes readable.
    pub fn wait_or(&mut self, deadline: Option<Instant>, other: Option<BorrowedFd<'_>>) -> io::Result<bool> {
        loop {
            if self.drain()? {
                self.echo = self.locks.then(|| Instant::now() + ECHO);
                return Ok(true);
            }
            if self.echo.is_some_and(|echo| Instant::now() >= echo) {
                self.echo = None;
                return Ok(true);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
            let polled: Vec<_> = other.into_iter().chain([self.fd.as_fd()]).map(Polled::Read).collect();
            let ready = poll_until(&polled, deadline.into_iter().chain(self.echo).min())?;
            if other.is_some() && ready.first() == Some(&true) {
                return self.drain();
            }
        }
    }

    /// Whether something has changed since the last call. Does not wait. For callers that poll the descriptor with others.
    pub fn drain(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let mut changed = false;
        loop {
            match rustix::io::read(&self.fd, &mut buffer) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(changed),
                Ok(_) => changed = true,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Watch {
    /// Readable when something has changed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, OpenOptions};
    use std::io::Write;
    use std::time::Duration;

    use super::*;
    use crate::testing::scratch;

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_secs(30))
    }

    fn changed(watch: &mut Watch) -> bool {
        watch.wait(Some(Instant::now())).unwrap()
    }

    fn watched(dir: &Path) -> Watch {
        let mut watch = Watch::new().unwrap();
        assert!(watch.uses_inotify, "this machine has inotify");
        watch.add(dir).unwrap();
        watch
    }

    #[test]
    fn every_kind_of_change_is_one_and_looking_is_none() {
        let dir = scratch();
        let path = dir.path().join("file");
        let outside = scratch();
        let mut watch = watched(dir.path());
        assert!(!changed(&mut watch));
        let mut file = File::create(&path).unwrap();
        assert!(changed(&mut watch), "made");
        file.write_all(b"x").unwrap();
        file.write_all(b"y").unwrap();
        assert!(changed(&mut watch), "appended");
        assert!(!changed(&mut watch), "many changes are one");
        drop(file);
        assert!(changed(&mut watch), "closed");
        fs::read(&path).unwrap();
        fs::read_dir(dir.path()).unwrap().count();
        fs::write(outside.path().join("file"), b"elsewhere").unwrap();
        assert!(!changed(&mut watch), "nothing was changed here");
        fs::rename(outside.path().join("file"), &path).unwrap();
        assert!(changed(&mut watch), "moved in");
        fs::remove_file(&path).unwrap();
        assert!(changed(&mut watch), "removed");
        assert!(!changed(&mut watch));
    }

    #[test]
    fn a_wait_ends_when_something_is_written() {
        let dir = scratch();
        fs::write(dir.path().join("file"), b"").unwrap();
        let mut watch = watched(dir.path());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut file = OpenOptions::new().append(true).open(dir.path().join("file")).unwrap();
                file.write_all(b"x").unwrap();
            });
            assert!(watch.wait(soon()).unwrap());
        });
    }

    #[test]
    fn a_directory_that_vanishes_is_a_change() {
        let outside = scratch();
        for how in ["removed", "moved"] {
            let dir = scratch();
            let mut watch = watched(dir.path());
            match how {
                "removed" => fs::remove_dir(dir.path()).unwrap(),
                _ => fs::rename(dir.path(), outside.path().join("elsewhere")).unwrap(),
            }
            assert!(watch.wait(soon()).unwrap(), "{how}");
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let dir = scratch();
        let error = Watch::new().unwrap().add(&dir.path().join("nowhere")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("nowhere"), "{error}");
    }

    #[test]
    fn without_inotify_there_may_always_be_a_change() {
        let dir = scratch();
        let mut watch = Watch::timed().unwrap();
        watch.add(dir.path()).unwrap();
        assert!(watch.wait(soon()).unwrap());
        assert!(watch.wait(soon()).unwrap());
    }
}
