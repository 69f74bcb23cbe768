//! Lines made from pieces, so that the lines of the two streams don't mix.

use std::io;

use super::read::{Cut, LogReader, Piece};
use super::segment::CHUNK;
use super::{Cursor, Stream, first_line_end};

/// The longest line that is returned in one part, in bytes.
pub const MAX_LINE: usize = CHUNK;

/// A line, or a part of a long one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub stream: Stream,
    /// When its first byte arrived, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The offset of its first byte in the stream.
    pub offset: u64,
    /// Its bytes, without the line end; at most [`MAX_LINE`].
    pub bytes: Vec<u8>,
    /// Whether a line end follows them. If not, the line continues, or was never ended, or its end was cut.
    pub ended: bool,
    /// Whether the line is longer than [`MAX_LINE`] and continues with the next part of this stream.
    pub split: bool,
}

impl Line {
    /// How many bytes of the stream it covers.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64 + u64::from(self.ended)
    }

    /// The offset in the stream of what follows.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.size())
    }
}

/// A line or a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineOrCut {
    /// A line.
    Line(Line),
    /// A gap. The line before it may lack its end, the one after it its beginning.
    Cut(Cut),
}

/// Puts lines together, in the order of their ends. Memory does not grow with the length of a line.
#[derive(Debug)]
pub struct Lines {
    reader: LogReader,
    /// The current piece. The part that is not used yet begins at `at`.
    piece: Vec<u8>,
    at: usize,
    stream: Stream,
    time: u64,
    offset: u64,
    /// The beginnings of lines without an end so far.
    begun: [Option<Line>; 2],
    cut: Option<Cut>,
    given: Cursor,
}

impl Lines {
    /// The lines from the position of `reader` on.
    pub fn new(reader: LogReader) -> Self {
        let given = reader.cursor();
        let (piece, begun) = (Vec::with_capacity(CHUNK), [None, None]);
        Self { reader, piece, at: 0, stream: Stream::Stdout, time: 0, offset: 0, begun, cut: None, given }
    }

    /// The end of what was returned. Reading on from here loses no byte and repeats none.
    pub fn cursor(&self) -> Cursor {
        self.given
    }

    /// Continues at `cursor`.
    pub fn seek(&mut self, cursor: Cursor) {
        self.reader.seek(cursor);
        self.piece.clear();
        (self.at, self.begun, self.cut, self.given) = (0, [None, None], None, cursor);
    }

    /// The next gap or complete line (also one that is longer than [`MAX_LINE`] or ended by a gap). None if there is none yet.
    pub fn next_line(&mut self) -> io::Result<Option<LineOrCut>> {
        if let Some(cut) = self.cut.take() {
            return Ok(Some(self.give_cut(cut)));
        }
        loop {
            if let Some(line) = self.take_apart() {
                return Ok(Some(LineOrCut::Line(self.give(line))));
            }
            match self.reader.next_piece()? {
                None => return Ok(None),
                Some(Piece::Data { stream, time_ns, offset, bytes }) => {
                    self.piece.clear();
                    self.piece.extend_from_slice(bytes);
                    (self.at, self.stream, self.time, self.offset) = (0, stream, time_ns, offset);
                }
                Some(Piece::Cut(cut)) => match self.begun[cut.stream as usize].take() {
                    Some(line) => {
                        self.cut = Some(cut);
                        return Ok(Some(LineOrCut::Line(self.give(line))));
                    }
                    None => return Ok(Some(self.give_cut(cut))),
                },
            }
        }
    }

    /// The beginning of a line without an end so far, oldest first. None if there is none. The rest of that line will be
    /// returned as a line of its own.
    pub fn next_begun(&mut self) -> Option<Line> {
        let time = |line: &Option<Line>| line.as_ref().map_or(u64::MAX, |line| line.time_ns);
        let oldest = usize::from(time(&self.begun[1]) < time(&self.begun[0]));
        let line = self.begun[oldest].take()?;
        Some(self.give(line))
    }

    fn give(&mut self, line: Line) -> Line {
        *self.given.of_mut(line.stream) = line.end();
        line
    }

    fn give_cut(&mut self, cut: Cut) -> LineOrCut {
        *self.given.of_mut(cut.stream) = cut.to;
        LineOrCut::Cut(cut)
    }

    /// The next line that ends in the current piece. Without one, the rest of the piece is kept as a beginning.
    fn take_apart(&mut self) -> Option<Line> {
        let rest = &self.piece[self.at..];
        if rest.is_empty() {
            return None;
        }
        let begun = &mut self.begun[self.stream as usize];
        let line = begun.get_or_insert_with(|| Line {
            stream: self.stream,
            time_ns: self.time,
            offset: self.offset.saturating_add(self.at as u64),
            bytes: Vec::new(),
            ended: false,
            split: false,
        });
        let room = MAX_LINE - line.bytes.len();
        let end = first_line_end(&rest[..rest.len().min(room + 1)]);
        let length = end.unwrap_or(rest.len().min(room));
        line.bytes.extend_from_slice(&rest[..length]);
        line.ended = end.is_some();
        line.split = end.is_none() && length < rest.len();
        self.at += length + usize::from(line.ended);
        if line.ended || line.split { begun.take() } else { None }
    }
}
