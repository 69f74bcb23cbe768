//! One segment, open for reading. It stays readable when the writer removes it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{POINT, Point, SegmentId, Stream, at, believable, first_line_end, line_ends};

/// How many bytes are read at once.
pub(super) const CHUNK: usize = 64 * 1024;

/// How many points are read at once.
const BLOCK: usize = 1024;

#[derive(Debug)]
pub(super) struct Opened {
    pub id: SegmentId,
    /// Its first point.
    pub start: Point,
    log: File,
    idx: File,
    path: PathBuf,
}

impl Opened {
    /// None if it is gone or not made yet: then it has no content.
    pub fn open(dir: &Path, stream: Stream, id: SegmentId) -> io::Result<Option<Self>> {
        let open = |path: PathBuf| match quell_sys::open_private(&path, quell_sys::OpenMode::Read) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&path)(error)),
        };
        let (Some(idx), Some(log)) = (open(id.idx(dir, stream))?, open(id.log(dir, stream))?) else {
            return Ok(None);
        };
        let mut opened = Self { id, start: Point::default(), log, idx, path: id.log(dir, stream) };
        if opened.points()? == 0 {
            return Ok(None);
        }
        // The file name has the start that the writer uses. If a damaged index were believed instead, the same bytes would be
        // read again and again.
        opened.start = Point { offset: id.start(), ..opened.point(0)? };
        Ok(Some(opened))
    }

    /// The present number of complete points.
    pub fn points(&self) -> io::Result<u64> {
        let length = |file: &File| file.metadata().map(|found| found.len()).map_err(at(&self.path));
        Ok(believable(length(&self.idx)? / POINT, length(&self.log)?))
    }

    fn point(&self, number: u64) -> io::Result<Point> {
        let mut bytes = [0; POINT as usize];
        self.idx.read_exact_at(&mut bytes, number * POINT).map_err(at(&self.path))?;
        Ok(Point::from_bytes(&bytes))
    }

    /// The present last point. Zeros, which a power cut can leave at the end of a file, don't count.
    pub fn end(&self) -> io::Result<Point> {
        for number in (1..self.points()?).rev() {
            let point = self.point(number)?;
            if point != Point::default() {
                return Ok(point);
            }
        }
        Ok(self.start)
    }

    /// Some of the points from `number` on. Empty if there are none yet.
    pub fn block(&self, number: u64) -> io::Result<Vec<Point>> {
        let mut bytes = vec![0; BLOCK * POINT as usize];
        let read = read_at(&self.idx, &mut bytes, number * POINT).map_err(at(&self.path))?;
        let (points, _torn) = bytes[..read].as_chunks();
        let left = usize::try_from(self.points()?.saturating_sub(number)).unwrap_or(usize::MAX);
        Ok(points.iter().take(left).map(Point::from_bytes).collect())
    }

    /// The number of the first point for which `beyond` holds. It must hold for all later points too.
    pub fn find(&self, beyond: impl Fn(&Point) -> bool) -> io::Result<u64> {
        let (mut low, mut high) = (0, self.points()?);
        while low < high {
            let middle = low + (high - low) / 2;
            if beyond(&self.point(middle)?) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }

    /// Reads the bytes from `offset` of the stream on. Returns fewer than requested at the end of the file.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        // A damaged index can send a reader to a position before this segment.
        match offset.checked_sub(self.start.offset) {
            Some(position) => read_at(&self.log, buffer, position).map_err(at(&self.path)),
            None => Ok(0),
        }
    }

    /// How many line ends of the stream are before `offset`, which is in this segment.
    pub fn lines_at(&self, offset: u64) -> io::Result<u64> {
        let number = self.find(|point| point.offset > offset)?;
        let known = self.point(number.saturating_sub(1))?;
        let mut lines = known.lines;
        self.scan(known.offset, offset, |_, bytes| {
            lines = lines.saturating_add(line_ends(bytes));
            None::<()>
        })?;
        Ok(lines)
    }

    /// The offset right after line end number `count` of the stream, which is in this segment.
    pub fn behind_line(&self, count: u64) -> io::Result<u64> {
        let number = self.find(|point| point.lines >= count)?;
        let (known, end) = (self.point(number.saturating_sub(1))?, self.point(number)?);
        let mut missing = count.saturating_sub(known.lines);
        let found = self.scan(known.offset, end.offset, |offset, bytes| {
            for index in memchr::memchr_iter(b'\n', bytes) {
                missing = missing.saturating_sub(1);
                if missing == 0 {
                    return Some(offset.saturating_add(index as u64 + 1));
                }
            }
            None
        })?;
        Ok(found.unwrap_or(end.offset))
    }

    /// The offset of the first line end from `from` on and before `to`.
    pub fn line_end(&self, from: u64, to: u64) -> io::Result<Option<u64>> {
        self.scan(from, to, |offset, bytes| {
            first_line_end(bytes).map(|index| offset.saturating_add(index as u64))
        })
    }

    /// Passes the bytes between two offsets to `look`, piece by piece, until it returns a result.
    fn scan<T>(
        &self,
        mut from: u64,
        to: u64,
        mut look: impl FnMut(u64, &[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let mut buffer = vec![0; CHUNK];
        while from < to {
            let wanted = usize::try_from(to - from).map_or(CHUNK, |left| left.min(CHUNK));
            let read = self.read(from, &mut buffer[..wanted])?;
            if read == 0 {
                break;
            }
            if let Some(found) = look(from, &buffer[..read]) {
                return Ok(Some(found));
            }
            from = from.saturating_add(read as u64);
        }
        Ok(None)
    }
}

/// Fills `buffer` up to the end of the file.
fn read_at(file: &File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], position.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
