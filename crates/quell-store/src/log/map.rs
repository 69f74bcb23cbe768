//! What is kept of one stream, according to its index. Finds any position without reading up to it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use quell_core::StreamTotals;

use super::read::Cut;
use super::segment::Opened;
use super::{Point, SegmentId, Stream};

/// How often the segments are listed again because the last one was gone when it was opened.
const TRIES: usize = 10;

/// A stream at one instant. Its files are open, so it does not change.
#[derive(Debug)]
pub(super) struct StreamMap {
    stream: Stream,
    segments: Vec<Mapped>,
}

#[derive(Debug)]
struct Mapped {
    files: Arc<Opened>,
    end: Point,
}

impl StreamMap {
    pub fn take(dir: &Path, stream: Stream) -> io::Result<Self> {
        let mut segments = Vec::new();
        for _ in 0..TRIES {
            segments.clear();
            let ids = SegmentId::list(dir, stream, "idx")?;
            for id in &ids {
                if let Some(files) = Opened::open(dir, stream, *id)? {
                    segments.push(Mapped { end: files.end()?, files: Arc::new(files) });
                }
            }
            if segments.last().map(|segment| segment.files.id) == ids.last().copied() {
                break;
            }
        }
        Ok(Self { stream, segments })
    }

    pub fn segments(&self) -> Vec<Arc<Opened>> {
        self.segments.iter().map(|segment| Arc::clone(&segment.files)).collect()
    }

    /// The end of the stream.
    pub fn end(&self) -> Point {
        self.segments.last().map(|segment| segment.end).unwrap_or_default()
    }

    pub fn totals(&self) -> StreamTotals {
        let kept = |of: fn(&Point) -> u64| {
            self.segments
                .iter()
                .map(|segment| of(&segment.end).saturating_sub(of(&segment.files.start)))
                .fold(0, u64::saturating_add)
        };
        let (bytes, lines) = (kept(|point| point.offset), kept(|point| point.lines));
        let end = self.end();
        StreamTotals {
            bytes: end.offset,
            lines: end.lines,
            cut_bytes: end.offset.saturating_sub(bytes),
            cut_lines: end.lines.saturating_sub(lines),
        }
    }

    /// How many bytes and line ends are between two offsets.
    pub fn kept(&self, from: u64, to: u64) -> io::Result<(u64, u64)> {
        let (mut bytes, mut lines) = (0, 0);
        for Mapped { files, end } in &self.segments {
            let (first, last) = (from.max(files.start.offset), to.min(end.offset));
            if first < last {
                bytes = last.saturating_sub(first).saturating_add(bytes);
                let before =
                    if first == files.start.offset { files.start.lines } else { files.lines_at(first)? };
                let behind = if last == end.offset { end.lines } else { files.lines_at(last)? };
                lines = behind.saturating_sub(before).saturating_add(lines);
            }
        }
        Ok((bytes, lines))
    }

    /// What is missing between two offsets.
    pub fn cuts(&self, from: u64, to: u64) -> Vec<Cut> {
        let mut cuts = Vec::new();
        let mut behind = Point::default();
        for Mapped { files, end } in &self.segments {
            let (first, last) = (behind.offset.max(from), files.start.offset);
            if first < last && last <= to {
                cuts.push(Cut {
                    stream: self.stream,
                    time_ns: files.start.time,
                    from: first,
                    to: last,
                    bytes: last - first,
                    lines: (first == behind.offset).then(|| files.start.lines.saturating_sub(behind.lines)),
                });
            }
            behind = *end;
        }
        cuts
    }

    /// Where the last `count` lines that are kept begin.
    pub fn back_lines(&self, count: usize) -> io::Result<u64> {
        let mut left = count as u64;
        for run in self.runs().rev() {
            let (start, end) = ends(run);
            let open = !self.ends_line(run)?;
            let lines = end.lines.saturating_sub(start.lines).saturating_add(u64::from(open));
            if left < lines {
                let behind = end.lines.saturating_add(u64::from(open)).saturating_sub(left);
                let inside = run.iter().find(|segment| segment.end.lines >= behind);
                return inside.map_or(Ok(end.offset), |segment| segment.files.behind_line(behind));
            }
            left -= lines;
        }
        Ok(self.first())
    }

    /// Where the last lines begin that have at most `count` bytes together, or a position inside a longer line. If that is
    /// before `from`, the result is any position before `from`.
    pub fn back_bytes(&self, count: u64, from: u64) -> io::Result<u64> {
        let mut left = count;
        for run in self.runs().rev() {
            let (start, end) = ends(run);
            let bytes = end.offset.saturating_sub(start.offset);
            if left < bytes {
                let raw = end.offset - left;
                if raw <= from {
                    return Ok(raw);
                }
                for segment in run {
                    // A line end right before it is good as well.
                    let from = (raw - 1).max(segment.files.start.offset);
                    if let Some(found) = segment.files.line_end(from, segment.end.offset)? {
                        return Ok(if found + 1 < end.offset { found + 1 } else { raw });
                    }
                }
                return Ok(raw);
            }
            left -= bytes;
        }
        Ok(self.first())
    }

    fn first(&self) -> u64 {
        self.segments.first().map_or(0, |segment| segment.files.start.offset)
    }

    /// The segments in runs without gaps.
    fn runs(&self) -> impl DoubleEndedIterator<Item = &[Mapped]> {
        self.segments.chunk_by(|one, next| one.end.offset == next.files.start.offset)
    }

    /// Whether nothing follows the last line end of a run.
    fn ends_line(&self, run: &[Mapped]) -> io::Result<bool> {
        let Some(last) = run.iter().rfind(|segment| segment.end.offset > segment.files.start.offset) else {
            return Ok(true);
        };
        let mut byte = [0];
        Ok(last.files.read(last.end.offset - 1, &mut byte)? == 1 && byte == *b"\n")
    }
}

fn ends(run: &[Mapped]) -> (Point, Point) {
    let start = run.first().map(|segment| segment.files.start).unwrap_or_default();
    (start, run.last().map(|segment| segment.end).unwrap_or_default())
}
