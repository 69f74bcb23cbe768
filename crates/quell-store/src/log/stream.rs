//! The reader of one stream. It works while the writer writes, begins segments and removes them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::read::{Cut, Piece};
use super::segment::{CHUNK, Opened};
use super::{Point, SegmentId, Stream, line_ends};

#[derive(Debug)]
pub(super) struct StreamReader {
    dir: PathBuf,
    stream: Stream,
    /// The end of what was read.
    pub offset: u64,
    /// How many line ends are before that. None if it was set to a position whose bytes are gone.
    lines: Option<u64>,
    /// Nothing is read from here on.
    pub stop: u64,
    segment: Option<Arc<Opened>>,
    /// Segments that can be read even if they are removed.
    pub held: Vec<Arc<Opened>>,
    /// Some points of the segment. Those before `at` are used.
    points: Vec<Point>,
    at: usize,
    /// The number of the first point that is not in `points`.
    next: u64,
    /// Bytes of the segment, from this offset on.
    buffer: Vec<u8>,
    buffered: u64,
    ahead: Option<Ahead>,
    /// Changes each time when it has looked further ahead.
    pub looks: u64,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Ahead {
    Data { time: u64 },
    Cut { time: u64, to: Point },
}

impl StreamReader {
    pub fn new(dir: PathBuf, stream: Stream) -> Self {
        Self {
            dir,
            stream,
            offset: 0,
            lines: Some(0),
            stop: u64::MAX,
            segment: None,
            held: Vec::new(),
            points: Vec::new(),
            at: 0,
            next: 0,
            buffer: Vec::new(),
            buffered: 0,
            ahead: None,
            looks: 0,
        }
    }

    /// Continues at `offset`.
    pub fn seek(&mut self, offset: u64) {
        if offset != self.offset {
            let (dir, held) = (std::mem::take(&mut self.dir), std::mem::take(&mut self.held));
            let (stop, looks) = (self.stop, self.looks + 1);
            *self = Self { offset, lines: None, stop, held, looks, ..Self::new(dir, self.stream) };
        }
    }

    /// Whether it knows what comes next without another look.
    pub fn is_ready(&self) -> bool {
        self.ahead.is_some() || self.points.get(self.at..).is_some_and(|points| !points.is_empty())
    }

    /// The time of the next bytes. None if there are none yet.
    pub fn time(&mut self) -> io::Result<Option<u64>> {
        if self.ahead.is_none() && self.offset < self.stop {
            self.ahead = self.look()?;
        }
        Ok(self.ahead.map(|ahead| match ahead {
            Ahead::Data { time } | Ahead::Cut { time, .. } => time,
        }))
    }

    fn look(&mut self) -> io::Result<Option<Ahead>> {
        if let Some(time) = self.look_here()? {
            return Ok(Some(Ahead::Data { time }));
        }
        let mut ids = self.list()?;
        loop {
            // The segments were listed first: if there is a later one, this one does not grow any more.
            if self.enter(&ids)?
                && let Some(time) = self.look_here()?
            {
                return Ok(Some(Ahead::Data { time }));
            }
            for id in ids.iter().filter(|id| id.start() > self.offset) {
                if let Some(next) = self.open(*id)? {
                    let to = next.start;
                    self.use_segment(next, 1);
                    return Ok(Some(Ahead::Cut { time: to.time, to }));
                }
            }
            // The listed segments may have been removed meanwhile, and later ones made.
            let again = self.list()?;
            if again == ids {
                return Ok(None);
            }
            ids = again;
        }
    }

    fn list(&self) -> io::Result<Vec<SegmentId>> {
        let mut ids = SegmentId::list(&self.dir, self.stream, "idx")?;
        if !self.held.is_empty() {
            ids.extend(self.held.iter().map(|held| held.id));
            ids.sort_unstable();
            ids.dedup();
        }
        Ok(ids)
    }

    fn open(&self, id: SegmentId) -> io::Result<Option<Arc<Opened>>> {
        match self.held.iter().find(|held| held.id == id) {
            Some(held) => Ok(Some(Arc::clone(held))),
            None => Ok(Opened::open(&self.dir, self.stream, id)?.map(Arc::new)),
        }
    }

    /// The time of the next bytes of this segment.
    fn look_here(&mut self) -> io::Result<Option<u64>> {
        let Some(segment) = &self.segment else { return Ok(None) };
        loop {
            while let Some(point) = self.points.get(self.at) {
                if point.offset > self.offset {
                    return Ok(Some(point.time));
                }
                self.at += 1;
            }
            self.points = segment.block(self.next)?;
            if self.points.is_empty() {
                self.at = 0;
                return Ok(None);
            }
            (self.at, self.looks) = (0, self.looks + 1);
            self.next += self.points.len() as u64;
        }
    }

    /// Opens the last segment that begins at or before the offset. Returns whether there is one.
    fn enter(&mut self, ids: &[SegmentId]) -> io::Result<bool> {
        for id in ids.iter().rev().filter(|id| id.start() <= self.offset) {
            if self.segment.as_ref().is_some_and(|segment| segment.id == *id) {
                return Ok(true);
            }
            if let Some(segment) = self.open(*id)? {
                if self.lines.is_none() && self.offset <= segment.end()?.offset {
                    self.lines = Some(segment.lines_at(self.offset)?);
                }
                let next = segment.find(|point| point.offset > self.offset)?;
                self.use_segment(segment, next);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn use_segment(&mut self, segment: Arc<Opened>, next: u64) {
        self.segment = Some(segment);
        self.points.clear();
        self.buffer.clear();
        (self.at, self.next, self.looks) = (0, next, self.looks + 1);
    }

    /// Returns what [`Self::time`] has found.
    pub fn take(&mut self) -> io::Result<Option<Piece<'_>>> {
        self.time()?;
        match self.ahead.take() {
            None => Ok(None),
            Some(Ahead::Cut { time, to }) => Ok(Some(Piece::Cut(self.cut(time, to)))),
            Some(Ahead::Data { time }) => self.data(time).map(Some),
        }
    }

    fn cut(&mut self, time: u64, to: Point) -> Cut {
        let cut = Cut {
            stream: self.stream,
            time_ns: time,
            from: self.offset,
            to: to.offset,
            bytes: to.offset.saturating_sub(self.offset),
            lines: self.lines.map(|lines| to.lines.saturating_sub(lines)),
        };
        (self.offset, self.lines) = (to.offset, Some(to.lines));
        cut
    }

    fn data(&mut self, time: u64) -> io::Result<Piece<'_>> {
        let (Some(point), Some(last), Some(segment)) =
            (self.points.get(self.at), self.points.last(), &self.segment)
        else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let point = *point;
        let buffered_to = self.buffered + self.buffer.len() as u64;
        if !(self.buffered..buffered_to).contains(&self.offset) {
            let trusted = last.offset.max(point.offset) - self.offset;
            self.buffer.resize(usize::try_from(trusted).map_or(CHUNK, |trusted| trusted.min(CHUNK)), 0);
            let read = segment.read(self.offset, &mut self.buffer)?;
            self.buffer.truncate(read);
            self.buffered = self.offset;
            if read == 0 {
                // A power cut kept the index and lost the bytes.
                let end = Some(segment.end()?).filter(|end| end.offset > self.offset).unwrap_or(point);
                return Ok(Piece::Cut(self.cut(time, end)));
            }
        }
        let from = (self.offset - self.buffered) as usize;
        let left = point.offset.min(self.stop) - self.offset;
        let length = usize::try_from(left).map_or(CHUNK, |left| left.min(self.buffer.len() - from));
        let bytes = &self.buffer[from..from + length];
        let offset = self.offset;
        self.offset = self.offset.saturating_add(length as u64);
        self.lines = self.lines.map(|lines| lines.saturating_add(line_ends(bytes)));
        Ok(Piece::Data { stream: self.stream, time_ns: time, offset, bytes })
    }
}
