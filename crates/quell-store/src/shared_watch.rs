//! One inotify instance for the directories of many jobs. A user has 128 instances, so a server cannot have one per client.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

/// Names a watched path. The same path has the same one.
pub type WatchId = i32;

/// Which changes of a directory are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Files that were closed after writing or moved in, and the removal of the path itself: changes of records and locks.
    Records,
    /// The same, and each write: changes of output.
    Output,
}

/// A change of a watched path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path.
    pub watch: WatchId,
    /// The name of the entry that was made or moved in.
    pub made: Option<String>,
    /// Whether it was only a write, as of output.
    pub is_write: bool,
}

/// Changes since the last reading.
#[derive(Debug, Default)]
pub struct Changes {
    /// The changes, in their order. A path may occur more than once.
    pub of: Vec<Change>,
    /// Whether changes were lost: anything may have changed.
    pub lost: bool,
}

/// Watches many paths. Add first, then look, then wait: so no change is missed. Any thread may add and remove.
#[derive(Debug)]
pub struct SharedWatch(OwnedFd);

impl SharedWatch {
    /// Watches nothing yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?))
    }

    /// Watches `path`. If it is watched already, the interest is replaced.
    pub fn add(&self, path: &Path, interest: Interest) -> io::Result<WatchId> {
        let more = match interest {
            Interest::Records => WatchFlags::empty(),
            Interest::Output => WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::DELETE,
        };
        self.add_for(path, more)
    }

    /// Watches for entries that are made in the directory `path`.
    pub fn add_for_new(&self, path: &Path) -> io::Result<WatchId> {
        self.add_for(path, WatchFlags::CREATE)
    }

    fn add_for(&self, path: &Path, more: WatchFlags) -> io::Result<WatchId> {
        let flags = more
            | WatchFlags::MOVED_TO
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        inotify::add_watch(&self.0, path, flags).map_err(|errno| {
            let error = io::Error::from(errno);
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })
    }

    /// Ends the watch. A watch whose path was removed has ended already.
    pub fn remove(&self, id: WatchId) {
        let _ = inotify::remove_watch(&self.0, id);
    }

    /// The changes since the last call. Does not wait: poll the descriptor for that.
    pub fn read(&self) -> io::Result<Changes> {
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        let mut changes = Changes::default();
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => changes.lost = true,
                Ok(event) if event.events().contains(ReadFlags::IGNORED) => {}
                Ok(event) => {
                    let flags = event.events();
                    let is_new = flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
                    let name = event.file_name().filter(|_| is_new);
                    let made = name.map(|name| name.to_string_lossy().into_owned());
                    let is_write = flags.contains(ReadFlags::MODIFY);
                    changes.of.push(Change { watch: event.wd(), made, is_write });
                }
                Err(Errno::AGAIN) => return Ok(changes),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for SharedWatch {
    /// Readable when something has changed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::scratch;

    fn ids(watch: &SharedWatch) -> Vec<(WatchId, Option<String>)> {
        watch.read().unwrap().of.into_iter().map(|change| (change.watch, change.made)).collect()
    }

    #[test]
    fn a_change_names_its_directory_and_what_was_made_there() {
        let (one, other) = (scratch(), scratch());
        let watch = SharedWatch::new().unwrap();
        let (first, second) =
            (watch.add_for_new(one.path()).unwrap(), watch.add(other.path(), Interest::Records).unwrap());
        assert_ne!(first, second);
        assert!(ids(&watch).is_empty());
        fs::create_dir(one.path().join("made")).unwrap();
        assert_eq!(ids(&watch), [(first, Some("made".into()))]);
        fs::write(other.path().join("file"), b"x").unwrap();
        assert_eq!(ids(&watch), [(second, None)], "closed after writing; made is not reported");
        watch.remove(first);
        fs::create_dir(one.path().join("more")).unwrap();
        assert!(ids(&watch).is_empty());
    }

    #[test]
    fn writes_are_reported_only_to_those_that_read_output() {
        use std::io::Write;
        let dir = scratch();
        let mut file = fs::File::create(dir.path().join("file")).unwrap();
        let watch = SharedWatch::new().unwrap();
        let id = watch.add(dir.path(), Interest::Records).unwrap();
        file.write_all(b"x").unwrap();
        assert!(ids(&watch).is_empty());
        assert_eq!(watch.add(dir.path(), Interest::Output).unwrap(), id, "the same path");
        file.write_all(b"y").unwrap();
        assert_eq!(ids(&watch), [(id, None)]);
    }
}
