//! Captures made and read back, against what was written.

mod query;
mod read;

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::testing::scratch;

/// Both streams of a job, and all that was ever written to them.
pub struct Capture {
    pub dir: tempfile::TempDir,
    writers: Vec<CaptureWriter>,
    pub all: [Vec<u8>; 2],
    /// The writes in their order.
    pub writes: Vec<(Stream, Vec<u8>)>,
    time: u64,
}

impl Capture {
    pub fn new(cap: u64) -> Self {
        let dir = scratch();
        let make = |stream| CaptureWriter::create(dir.path(), stream, cap).unwrap();
        let writers = Stream::ALL.map(make).into();
        Self { dir, writers, all: [Vec::new(), Vec::new()], writes: Vec::new(), time: 1000 }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn write(&mut self, stream: Stream, bytes: &[u8]) {
        self.time += 1;
        self.writers[stream as usize].write(bytes, self.time).unwrap();
        self.all[stream as usize].extend_from_slice(bytes);
        self.writes.push((stream, bytes.to_vec()));
    }

    pub fn out(&mut self, bytes: &[u8]) {
        self.write(Stream::Stdout, bytes);
    }

    pub fn err(&mut self, bytes: &[u8]) {
        self.write(Stream::Stderr, bytes);
    }

    pub fn totals(&self, stream: Stream) -> quell_core::StreamTotals {
        self.writers[stream as usize].totals()
    }

    pub fn filled(cap: u64, writes: &[(Stream, Vec<u8>)]) -> Self {
        let mut capture = Self::new(cap);
        for (stream, bytes) in writes {
            capture.write(*stream, bytes);
        }
        capture
    }
}

/// What all files of a stream take.
pub fn disk_use(dir: &Path, stream: Stream) -> u64 {
    let of = |entry: fs::DirEntry| {
        let ours = entry.file_name().to_string_lossy().starts_with(stream.as_str());
        if ours { entry.metadata().unwrap().len() } else { 0 }
    };
    fs::read_dir(dir).unwrap().map(|entry| of(entry.unwrap())).sum()
}

/// Reads a stream from `from` on and checks every piece against what was written. Gives the bytes that are there and the
/// cuts.
pub fn check_stream(dir: &Path, stream: Stream, from: u64, all: &[u8]) -> (Vec<(u64, Vec<u8>)>, Vec<Cut>) {
    let only = match stream {
        Stream::Stdout => Streams::Stdout,
        Stream::Stderr => Streams::Stderr,
    };
    let mut reader = LogReader::open(dir).unwrap().only(only);
    let mut cursor = Cursor::default();
    *cursor.of_mut(stream) = from;
    reader.seek(cursor);
    let (mut kept, mut cuts, mut end) = (Vec::new(), Vec::new(), from);
    while let Some(piece) = reader.next_piece().unwrap() {
        match piece {
            Piece::Data { offset, bytes, .. } => {
                assert_eq!(offset, end);
                end = offset + bytes.len() as u64;
                assert!(bytes == &all[offset as usize..end as usize], "bytes from {offset} on differ");
                kept.push((offset, bytes.to_vec()));
            }
            Piece::Cut(cut) => {
                assert_eq!((cut.from, cut.bytes), (end, cut.to - cut.from));
                if let Some(lines) = cut.lines {
                    assert_eq!(lines, line_ends(&all[cut.from as usize..cut.to as usize]));
                }
                end = cut.to;
                cuts.push(cut);
            }
        }
        assert_eq!(reader.cursor().of(stream), end);
    }
    assert_eq!(end, all.len() as u64, "the end of the stream");
    (kept, cuts)
}

/// Text of lines of all lengths, some of them without an end. It is made from a seed: a strategy for each byte is slow.
pub fn text(max: usize) -> impl Strategy<Value = Vec<u8>> {
    (0..max, any::<u32>(), 1..64u8).prop_map(|(length, seed, ends)| noise(length, seed, ends))
}

/// Bytes of all kinds, of which some 4 times `ends` in a thousand end a line.
pub fn noise(length: usize, mut state: u32, ends: u8) -> Vec<u8> {
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| if next() < ends { b'\n' } else { next() }).collect()
}

pub fn writes(count: usize, max: usize) -> impl Strategy<Value = Vec<(Stream, Vec<u8>)>> {
    let stream = prop_oneof![2 => Just(Stream::Stdout), 1 => Just(Stream::Stderr)];
    proptest::collection::vec((stream, text(max)), 0..count)
}

#[test]
fn line_ends_are_counted_in_blocks_of_any_length() {
    for length in [0, 1, 254, 255, 256, 1000, 70000] {
        assert_eq!(line_ends(&vec![b'\n'; length]), length as u64);
        assert_eq!(line_ends(&vec![b'x'; length]), 0);
    }
}

#[test]
fn only_files_of_the_stream_are_segments() {
    let parse = |name| SegmentId::parse(name, Stream::Stdout, "idx");
    assert_eq!(parse("stdout.idx"), Some(SegmentId::Head));
    assert_eq!(parse("stdout.00000000000000ff.idx"), Some(SegmentId::Tail(255)));
    for name in
        ["stderr.idx", "stdout.log", "stdout", "stdoutidx", "stdout.ff.idx", "stdout.+0000000000000ff.idx"]
    {
        assert_eq!(parse(name), None, "{name}");
    }
}

#[test]
fn the_first_line_end_is_found_wherever_it_is() {
    for length in 0..130 {
        let mut bytes = vec![b'x'; length];
        assert_eq!(first_line_end(&bytes), None);
        for at in (0..length).rev() {
            bytes[at] = b'\n';
            assert_eq!(first_line_end(&bytes), Some(at));
        }
    }
}
