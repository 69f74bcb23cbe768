//! The note that a part of a stream could not be written.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::Stream;

/// The first failure to write a stream to disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// The offset in the stream of the first byte that could not be written. Later ones may have been.
    pub from: u64,
    /// The error.
    pub why: String,
}

impl WriteFailure {
    /// Notes the first failure as the target of a link, which a file system without free blocks still has room for.
    pub(super) fn note(dir: &Path, stream: Stream, from: u64, error: &io::Error) {
        let why = match error.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number).to_string(),
            // The text has the path as well, which would be too long.
            None => error.kind().to_string(),
        };
        // Fails if there is a note already. Without one the receipt still has the error.
        let _ = symlink(format!("{from} {why}"), path(dir, stream));
    }

    /// The note in `dir`, if there is one.
    pub fn read(dir: &Path, stream: Stream) -> Option<Self> {
        let target = fs::read_link(path(dir, stream)).ok()?;
        let (from, why) = target.to_str()?.split_once(' ')?;
        Some(Self { from: from.parse().ok()?, why: why.to_owned() })
    }
}

fn path(dir: &Path, stream: Stream) -> PathBuf {
    dir.join(format!("{stream}.failed"))
}
