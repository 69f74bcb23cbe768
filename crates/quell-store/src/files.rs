//! quell's own files and directories: private to this user, and never reached through a link.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quell_sys::OpenMode;
use quell_sys::fault::{FaultPoint, fault_point};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::Serialize;

use crate::home::Home;

/// A name in an open directory, so that no link that replaces the directory is followed.
pub(crate) struct InDir {
    dir: File,
    name: &'static str,
}

impl InDir {
    /// `name` in `dir`, which must belong to this user.
    pub fn new(dir: &Path, name: &'static str) -> io::Result<Self> {
        let open = quell_sys::open_dir(dir)?;
        let found = open.metadata()?;
        if !quell_sys::is_trusted(&found) {
            return Err(at(dir)(foreign(found.uid())));
        }
        Ok(Self { dir: open, name })
    }

    /// Valid while this value exists. Short enough for a socket (108 bytes), however long the path of quell's home is.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{}", self.dir.as_fd().as_raw_fd(), self.name))
    }
}

/// Makes `path` and the directories that are missing above it. Fails if it belongs to another user.
pub(crate) fn private_dirs(path: &Path) -> io::Result<()> {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(_) => {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            fs::metadata(path)?
        }
    };
    if !found.is_dir() {
        let why = format!("{} is not a directory", path.display());
        return Err(io::Error::new(io::ErrorKind::NotADirectory, why));
    }
    if found.uid() == quell_sys::uid() { Ok(()) } else { Err(foreign(found.uid())) }
}

/// Whether `found` can be one of quell's own files: a regular file of this user or root, which the user may open. A job can have put
/// anything else in its place.
pub(crate) fn is_own_file(found: &fs::Metadata) -> bool {
    found.is_file() && quell_sys::is_trusted(found) && found.mode() & 0o600 == 0o600
}

/// The error for a file that belongs to the user `uid`.
pub(crate) fn foreign(uid: u32) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("it belongs to another user (uid {uid})"))
}

/// Writes a file that replaces `old` atomically: a reader sees the old one or the new one.
pub(crate) fn replace(home: &Home, old: &Path, bytes: &[u8], written: FaultPoint) -> io::Result<()> {
    let new = old.with_extension("new");
    let replaced = write_new(home, &new, bytes).and_then(|()| {
        fault_point(written);
        let rename = |flags| renameat_with(CWD, &new, CWD, old, flags);
        // A rename over a file makes ext4 write the new one to the disk at once, and the caller would wait for that.
        if rename(RenameFlags::NOREPLACE).is_ok() {
            Ok(())
        } else if rename(RenameFlags::EXCHANGE).is_ok() {
            let _ = home.remove_file(&new);
            Ok(())
        } else {
            // The file system supports neither. A directory is not replaced by a rename.
            fs::rename(&new, old).or_else(|_| home.clear_place(old).and_then(|()| fs::rename(&new, old)))
        }
    });
    if replaced.is_err() {
        let _ = fs::remove_file(&new);
    }
    replaced
}

pub(crate) fn write_new(home: &Home, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let create = || quell_sys::create_private(path);
    let mut file = match create() {
        // A crash has left it, or an attacker made it. There is only one writer.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            home.remove_file(path)?;
            create()?
        }
        other => other?,
    };
    file.write_all(bytes)
}

pub(crate) fn line_of(value: &impl Serialize) -> io::Result<Vec<u8>> {
    Ok(quell_core::json_line(value)?)
}

/// An exclusive lock on `path`, which other processes hold for microseconds.
pub(crate) fn lock_within(path: &Path, patience: Duration) -> io::Result<File> {
    let file = quell_sys::open_private(path, OpenMode::Append)?;
    let deadline = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < deadline => {
                // flock has no deadline and no event.
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(fs::TryLockError::WouldBlock) => {
                let why = format!("another quell has locked {} and does not release it", path.display());
                return Err(io::Error::new(io::ErrorKind::WouldBlock, why));
            }
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
    }
}

pub(crate) fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if is_absent(&error) => Ok(()),
        other => other,
    }
}

/// Whether the file does not exist, also because its directory is not a directory.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The same error, with the path that it is about.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |error| match error.kind() {
        // The caller recognizes these by their kind or number, and knows the path.
        io::ErrorKind::NotFound => error,
        _ if quell_sys::is_out_of_descriptors(&error) => error,
        kind => io::Error::new(kind, format!("{path}: {error}")),
    }
}
