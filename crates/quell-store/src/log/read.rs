//! Both streams in the order in which they were written.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::segment::Opened;
use super::stream::StreamReader;
use super::{Cursor, Stream};

/// Which streams to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Streams {
    /// Both, merged.
    #[default]
    Both,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Streams {
    /// Whether `stream` is among them.
    pub fn has(self, stream: Stream) -> bool {
        match self {
            Self::Both => true,
            Self::Stdout => stream == Stream::Stdout,
            Self::Stderr => stream == Stream::Stderr,
        }
    }
}

/// A part that was removed, or could never be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    pub stream: Stream,
    /// When the bytes after it arrived, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The offset in the stream of the first missing byte.
    pub from: u64,
    /// The offset of the first byte after the gap.
    pub to: u64,
    /// How many bytes are missing.
    pub bytes: u64,
    /// How many line ends are missing. None if reading began inside the gap.
    pub lines: Option<u64>,
}

/// A piece of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Bytes; at most 64 KiB.
    Data {
        stream: Stream,
        /// When they arrived, in nanoseconds since 1970.
        time_ns: u64,
        /// The offset in the stream of the first byte.
        offset: u64,
        /// Never empty.
        bytes: &'a [u8],
    },
    /// A gap.
    Cut(Cut),
}

/// Reads the captured output of a job. It changes nothing, needs little memory, and works while the job writes: it returns the
/// bytes of both streams in the order in which they arrived.
#[derive(Debug)]
pub struct LogReader {
    streams: [StreamReader; 2],
    which: Streams,
    /// Nothing that arrived later than this is read.
    horizon: u64,
    /// For each stream, how far the other one had looked when this one was found to be at its end.
    quiet: [Option<u64>; 2],
}

impl LogReader {
    /// A reader of the job in `dir`, at the beginning. Streams without files are empty.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let streams = Stream::ALL.map(|stream| StreamReader::new(dir.to_owned(), stream));
        Ok(Self { streams, which: Streams::Both, horizon: u64::MAX, quiet: [None; 2] })
    }

    /// Reads only these.
    pub fn only(mut self, which: Streams) -> Self {
        self.which = which;
        self
    }

    /// Reads on from `cursor`.
    pub fn seek(&mut self, cursor: Cursor) {
        for (reader, stream) in self.streams.iter_mut().zip(Stream::ALL) {
            reader.seek(cursor.of(stream));
        }
        self.quiet = [None; 2];
    }

    /// Reads nothing after `cursor`.
    pub fn stop_at(&mut self, cursor: Cursor) {
        for (reader, stream) in self.streams.iter_mut().zip(Stream::ALL) {
            reader.stop = cursor.of(stream);
        }
    }

    /// Reads nothing that arrived after `time_ns`.
    pub fn stop_after(&mut self, time_ns: u64) {
        self.horizon = time_ns;
    }

    /// Reads these segments even if they are removed.
    pub(super) fn hold(&mut self, held: [Vec<Arc<Opened>>; 2]) {
        for (reader, held) in self.streams.iter_mut().zip(held) {
            reader.held = held;
        }
    }

    /// The present position.
    pub fn cursor(&self) -> Cursor {
        let [out, err] = &self.streams;
        Cursor { out: out.offset, err: err.offset }
    }

    /// The next piece. None if there is nothing more yet: call it again when something has changed.
    pub fn next_piece(&mut self) -> io::Result<Option<Piece<'_>>> {
        match self.choose()? {
            Some(index) => self.streams[index].take(),
            None => Ok(None),
        }
    }

    /// The stream that comes next.
    fn choose(&mut self) -> io::Result<Option<usize>> {
        let mut out = self.time(0)?;
        let err = self.time(1)?;
        if out.is_none() && err.is_some() {
            // It may have got something earlier than `err` after the first look, but not after this one.
            out = self.time(0)?;
        }
        let soon = |time: Option<u64>| time.filter(|time| *time <= self.horizon);
        Ok(match (soon(out), soon(err)) {
            (None, None) => None,
            (Some(_), None) => Some(0),
            (None, Some(_)) => Some(1),
            (Some(out), Some(err)) => Some(usize::from(err < out)),
        })
    }

    /// The time of the next bytes of a stream.
    fn time(&mut self, index: usize) -> io::Result<Option<u64>> {
        if !self.which.has(Stream::ALL[index]) {
            return Ok(None);
        }
        let other = &self.streams[1 - index];
        let looks = other.looks;
        // Everything that the other stream has buffered existed when this one was found to be at its end, so nothing of this
        // stream can come before it. Listing the directory for each piece would be slow.
        if other.is_ready() && self.quiet[index] == Some(looks) {
            return Ok(None);
        }
        let time = self.streams[index].time()?;
        self.quiet[index] = time.is_none().then_some(looks);
        Ok(time)
    }
}
