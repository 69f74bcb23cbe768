//! The captured output of a job: the bytes as they were written, an index of their times, and a cap on the size of both.
//!
//! Each stream is kept in segments. The head segment, `stdout.log`, has the beginning. When it is full, tail segments
//! `stdout.<start>.log` follow (`<start>`: 16 hex digits, the offset in the stream of the first byte). The oldest tail segment
//! is removed when there is no room for a new one. Bytes in a segment are only added, never changed.
//!
//! Each `.log` has an `.idx` with [`Point`]s of 24 bytes. The first one is the segment's start. The bytes between two points
//! arrived at the time of the second. Bytes are written before their point, so the bytes before a point exist even if the
//! writer was killed. Offsets and line counts are those of the whole stream, so the difference between one segment's last point
//! and the next one's first is exactly what was cut. `stdout.failed` is a link whose target says where and why writing failed
//! first ([`WriteFailure`]).

mod cursor;
mod failure;
mod lines;
mod map;
mod matches;
mod query;
mod read;
mod segment;
mod stream;
mod tail;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use cursor::{Cursor, InvalidCursor};
pub use failure::WriteFailure;
pub use lines::{Line, LineOrCut, Lines, MAX_LINE};
pub use matches::{MATCHED, Matches, line_matches};
pub use query::{Entry, LogEnd, LogPage, LogQuery, Omitted};
pub use read::{Cut, LogReader, Piece, Streams};
pub use write::{CaptureWriter, Taken};

/// The smallest cap on a stream, in bytes.
pub const MIN_CAP: u64 = 4096;

/// One of the two streams that are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output, or all output of a terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// Both, in the order that settles ties.
    pub const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];

    /// Its name, which its file names begin with.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The size of a point on disk.
const POINT: u64 = 24;

/// How many of the `points` of a segment with this many bytes its writer can have written: each but the first follows at least
/// one byte. A margin allows for bytes that were lost in a power cut. Without this limit, a file of zeros would be read without
/// end.
fn believable(points: u64, bytes: u64) -> u64 {
    points.min(bytes.max(1 << 16).saturating_add(2))
}

/// A position in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Point {
    /// When the bytes before it arrived, in nanoseconds since 1970.
    time: u64,
    /// How many bytes of the stream are before it.
    offset: u64,
    /// How many line ends are before it.
    lines: u64,
}

impl Point {
    /// The position after this many more bytes and line ends. Saturates, because a damaged index can have any numbers.
    fn after(self, time: u64, bytes: u64, lines: u64) -> Self {
        Self { time, offset: self.offset.saturating_add(bytes), lines: self.lines.saturating_add(lines) }
    }

    fn to_bytes(self) -> [u8; POINT as usize] {
        let mut bytes = [0; POINT as usize];
        for (to, value) in bytes.chunks_exact_mut(8).zip([self.time, self.offset, self.lines]) {
            to.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; POINT as usize]) -> Self {
        let value = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        Self { time: value(0), offset: value(8), lines: value(16) }
    }
}

/// Identifies a segment of a stream. The order is that of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SegmentId {
    /// The beginning of the stream.
    Head,
    /// The segment that begins at this offset.
    Tail(u64),
}

impl SegmentId {
    /// The offset in the stream of its first byte.
    fn start(self) -> u64 {
        match self {
            Self::Head => 0,
            Self::Tail(start) => start,
        }
    }

    fn path(self, dir: &Path, stream: Stream, extension: &str) -> PathBuf {
        match self {
            Self::Head => dir.join(format!("{stream}.{extension}")),
            Self::Tail(start) => dir.join(format!("{stream}.{start:016x}.{extension}")),
        }
    }

    fn log(self, dir: &Path, stream: Stream) -> PathBuf {
        self.path(dir, stream, "log")
    }

    fn idx(self, dir: &Path, stream: Stream) -> PathBuf {
        self.path(dir, stream, "idx")
    }

    /// The segment of a file name, if it is a file of `stream`.
    fn parse(name: &str, stream: Stream, extension: &str) -> Option<Self> {
        let middle = name.strip_prefix(stream.as_str())?.strip_suffix(extension)?.strip_suffix('.')?;
        let Some(start) = middle.strip_prefix('.') else {
            return middle.is_empty().then_some(Self::Head);
        };
        let hex =
            start.len() == 16 && start.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        hex.then(|| u64::from_str_radix(start, 16).ok().map(Self::Tail)).flatten()
    }

    /// The segments of `stream` that have a file with this extension, in order. None if there is no directory.
    fn list(dir: &Path, stream: Stream, extension: &str) -> io::Result<Vec<Self>> {
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(at(dir))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(at(dir))?.file_name();
            found.extend(name.to_str().and_then(|name| Self::parse(name, stream, extension)));
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// The file at the end of `stream`, to which the next output goes. None if there is none yet.
pub fn last_segment(dir: &Path, stream: Stream) -> io::Result<Option<PathBuf>> {
    Ok(SegmentId::list(dir, stream, "log")?.last().map(|id| id.log(dir, stream)))
}

/// Adds the path to an error, which keeps its kind. A lack of descriptors is not related to the path.
fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| match quell_sys::is_out_of_descriptors(&error) {
        true => error,
        false => io::Error::new(error.kind(), format!("{}: {error}", path.display())),
    }
}

/// The number of line ends in `bytes`.
fn line_ends(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// The position of the first line end in `bytes`.
fn first_line_end(bytes: &[u8]) -> Option<usize> {
    memchr::memchr(b'\n', bytes)
}
