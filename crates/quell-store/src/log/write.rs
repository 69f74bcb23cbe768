//! The writer of one stream.

mod pipe;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use quell_core::StreamTotals;
use quell_sys::OpenMode;
use quell_sys::fault::{FaultPoint as Step, fault_point};

pub use pipe::Taken;

use super::{MIN_CAP, POINT, Point, SegmentId, Stream, WriteFailure, at, believable, line_ends};
use crate::files::gone_is_fine;

/// The largest number of tail segments. Eight are full ones. Failing writes can make more and smaller ones, and memory must not
/// grow with them.
const MAX_TAIL: usize = 64;

/// Captures one stream into the job's directory. All its files together, data and index, never exceed the cap. Memory does not
/// grow with what is written.
#[derive(Debug)]
pub struct CaptureWriter {
    dir: PathBuf,
    stream: Stream,
    cap: u64,
    head: Segment,
    tail: VecDeque<Segment>,
    /// The files of the last segment, unless a write to it has failed.
    open: Option<Files>,
    /// The end of the stream, including what was cut.
    end: Point,
    /// Whether the end was cut and that is not on disk yet.
    gap: bool,
}

/// What is known of a segment on disk.
#[derive(Debug)]
struct Segment {
    id: SegmentId,
    /// The bytes of the stream in it.
    bytes: u64,
    /// The line ends among them.
    lines: u64,
    /// Its size on disk.
    disk: u64,
}

#[derive(Debug)]
struct Files {
    log: File,
    idx: File,
}

impl CaptureWriter {
    /// Begins the capture of `stream` in `dir`, where there must be none yet. The cap is at least [`MIN_CAP`].
    pub fn create(dir: &Path, stream: Stream, cap: u64) -> io::Result<Self> {
        let mut writer = Self::empty(dir, stream, cap);
        let start = Point { time: now(), ..Point::default() };
        writer.open = Some(writer.make(SegmentId::Head, start)?);
        Ok(writer)
    }

    /// Continues a capture whose writer was killed at any point, or begins it if there is none. Bytes that were written and not
    /// indexed are kept, as if they had arrived now.
    pub fn resume(dir: &Path, stream: Stream, cap: u64) -> io::Result<Self> {
        let mut writer = Self::empty(dir, stream, cap);
        let mut found = SegmentId::list(dir, stream, "idx")?;
        for id in SegmentId::list(dir, stream, "log")? {
            if !found.contains(&id) {
                found.push(id);
            }
        }
        found.sort_unstable();
        let mut last = None;
        for id in found {
            // Half made or half removed: its content must not be read.
            let Some((segment, end)) = writer.look(id)? else {
                writer.remove(id)?;
                continue;
            };
            match id {
                SegmentId::Head => writer.head = segment,
                SegmentId::Tail(_) => writer.tail.push_back(segment),
            }
            writer.end = end;
            last = Some(id);
        }
        match last {
            Some(id) => writer.reopen(id)?,
            None => return Self::create(dir, stream, cap),
        }
        Ok(writer)
    }

    fn empty(dir: &Path, stream: Stream, cap: u64) -> Self {
        Self {
            dir: dir.to_owned(),
            stream,
            cap: cap.max(MIN_CAP),
            head: Segment { id: SegmentId::Head, bytes: 0, lines: 0, disk: POINT },
            tail: VecDeque::new(),
            open: None,
            end: Point::default(),
            gap: false,
        }
    }

    /// Adds `bytes`, which arrived at `time_ns` (nanoseconds since 1970, increasing from write to write over both streams).
    /// Bytes that can't be written are cut and counted, and the error says why. Later writes may succeed again, so the caller
    /// goes on.
    pub fn write(&mut self, mut bytes: &[u8], time_ns: u64) -> io::Result<()> {
        // Readers rely on increasing times, even if the clock was set back.
        self.end.time = self.end.time.max(time_ns);
        while !bytes.is_empty() {
            match self.put(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) => {
                    self.cut(bytes.len() as u64, line_ends(bytes), &error);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Leaves the current segment: what comes next begins another one, so that the gap is visible.
    fn cut(&mut self, bytes: u64, lines: u64, why: &io::Error) {
        self.close();
        if !std::mem::replace(&mut self.gap, true) {
            WriteFailure::note(&self.dir, self.stream, self.end.offset, why);
        }
        self.end = self.end.after(self.end.time, bytes, lines);
    }

    /// The totals of the stream, and how much of it is not on disk.
    pub fn totals(&self) -> StreamTotals {
        let kept = || std::iter::once(&self.head).chain(&self.tail);
        StreamTotals {
            bytes: self.end.offset,
            lines: self.end.lines,
            cut_bytes: self
                .end
                .offset
                .saturating_sub(kept().map(|segment| segment.bytes).fold(0, u64::saturating_add)),
            cut_lines: self
                .end
                .lines
                .saturating_sub(kept().map(|segment| segment.lines).fold(0, u64::saturating_add)),
        }
    }

    /// The time of the last write, or 0. After [`Self::resume`] the next write must be later.
    pub fn last_time(&self) -> u64 {
        self.end.time
    }

    /// Writes what fits into one segment, and its point. Returns how much that was, at least one byte.
    fn put(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.open.is_none() || self.room() <= POINT {
            self.rotate()?;
        }
        let room = usize::try_from(self.room() - POINT).unwrap_or(usize::MAX);
        let Some(files) = &mut self.open else { return Err(io::ErrorKind::NotConnected.into()) };
        let written = loop {
            match files.log.write(&bytes[..bytes.len().min(room)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => break written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        self.index(written as u64, line_ends(&bytes[..written]))?;
        Ok(written)
    }

    /// Adds a point after this many bytes and line ends, which are in the current segment already.
    fn index(&mut self, length: u64, lines: u64) -> io::Result<()> {
        let end = self.end.after(self.end.time, length, lines);
        let Some(files) = &mut self.open else { return Err(io::ErrorKind::NotConnected.into()) };
        files.idx.write_all(&end.to_bytes())?;
        self.end = end;
        let segment = self.last();
        segment.bytes = segment.bytes.saturating_add(length);
        segment.lines = segment.lines.saturating_add(lines);
        segment.disk += length + POINT;
        Ok(())
    }

    fn last(&mut self) -> &mut Segment {
        self.tail.back_mut().unwrap_or(&mut self.head)
    }

    /// How much the last segment may still grow on disk.
    fn room(&mut self) -> u64 {
        let (head, tail) = (self.cap / 2, self.cap / 16);
        let last = self.last();
        let budget = match last.id {
            SegmentId::Head => head,
            SegmentId::Tail(_) => tail,
        };
        budget.saturating_sub(last.disk)
    }

    /// Begins a new tail segment at the end of the stream, after making room for its largest size.
    fn rotate(&mut self) -> io::Result<()> {
        self.open = None;
        let room = self.cap / 2 - self.cap / 16;
        while let Some(oldest) = self.tail.front() {
            let used: u64 = self.tail.iter().map(|segment| segment.disk).sum();
            if used <= room && self.tail.len() < MAX_TAIL {
                break;
            }
            self.remove(oldest.id)?;
            self.tail.pop_front();
        }
        let id = SegmentId::Tail(self.end.offset);
        self.open = Some(self.make(id, self.end)?);
        self.tail.push_back(Segment { id, bytes: 0, lines: 0, disk: POINT });
        self.gap = false;
        Ok(())
    }

    /// Makes the files of a segment, with its first point. On an error, nothing of it is left.
    fn make(&self, id: SegmentId, start: Point) -> io::Result<Files> {
        let open = |path: PathBuf| quell_sys::create_private(&path).map_err(at(&path));
        let log = open(id.log(&self.dir, self.stream))?;
        fault_point(Step::SegmentMade);
        let made = open(id.idx(&self.dir, self.stream)).and_then(|mut idx| {
            idx.write_all(&start.to_bytes())?;
            Ok(Files { log, idx })
        });
        if made.is_err() {
            let _ = self.remove(id);
        }
        made
    }

    /// Removes a segment, the index first: readers ignore bytes without an index.
    fn remove(&self, id: SegmentId) -> io::Result<()> {
        for path in [id.idx(&self.dir, self.stream), id.log(&self.dir, self.stream)] {
            gone_is_fine(fs::remove_file(&path)).map_err(at(&path))?;
        }
        Ok(())
    }

    /// Leaves the last segment after a failed write, and removes what follows its last point.
    fn close(&mut self) {
        let Some(files) = self.open.take() else { return };
        let last = self.last();
        let (id, bytes, points) = (last.id, last.bytes, last.disk - last.bytes);
        // An empty segment would only take the place of another one.
        if bytes == 0 && id != SegmentId::Head && self.remove(id).is_ok() {
            self.tail.pop_back();
            return;
        }
        let cut = files.log.set_len(bytes).and_then(|()| files.idx.set_len(points));
        if cut.is_err()
            && let (Ok(log), Ok(idx)) = (files.log.metadata(), files.idx.metadata())
        {
            self.last().disk = log.len() + idx.len();
        }
    }

    /// A segment of an earlier writer, and the point at its end. None if it has no first point or no file with bytes.
    fn look(&self, id: SegmentId) -> io::Result<Option<(Segment, Point)>> {
        let open = |path: PathBuf| match quell_sys::open_private(&path, OpenMode::Read) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&path)(error)),
        };
        let (Some(mut log), Some(idx)) =
            (open(id.log(&self.dir, self.stream))?, open(id.idx(&self.dir, self.stream))?)
        else {
            return Ok(None);
        };
        let (length, mut points) = (log.metadata()?.len(), idx.metadata()?.len() / POINT);
        points = believable(points, length);
        if points == 0 {
            return Ok(None);
        }
        let point = |number: u64| {
            let mut bytes = [0; POINT as usize];
            idx.read_exact_at(&mut bytes, number * POINT).map(|()| Point::from_bytes(&bytes))
        };
        // A power cut can leave zeros at the end of a file.
        while points > 1 && point(points - 1)? == Point::default() {
            points -= 1;
        }
        let (start, end) = (point(0)?, point(points - 1)?);
        let mut segment = Segment {
            id,
            bytes: end.offset.saturating_sub(start.offset),
            lines: end.lines.saturating_sub(start.lines),
            disk: length + points * POINT,
        };
        if length < segment.bytes {
            // A power cut kept the index and lost bytes. These are cut.
            segment.bytes = length;
            segment.lines = lines_to_end(&mut log)?;
        }
        Ok(Some((segment, end)))
    }

    /// Opens the last segment of an earlier writer, and extends its index to the end of its bytes.
    fn reopen(&mut self, id: SegmentId) -> io::Result<()> {
        let open = |path: PathBuf| quell_sys::open_private(&path, OpenMode::Change).map_err(at(&path));
        let mut log = open(id.log(&self.dir, self.stream))?;
        let mut idx = open(id.idx(&self.dir, self.stream))?;
        let (bytes, length) = (self.last().bytes, log.metadata()?.len());
        idx.set_len(self.last().disk - length)?;
        idx.seek(SeekFrom::End(0))?;
        if id.start().saturating_add(bytes) < self.end.offset {
            return Ok(());
        }
        log.seek(SeekFrom::Start(bytes))?;
        if length > bytes {
            let lines = lines_to_end(&mut log)?;
            let time = now().max(self.end.time.saturating_add(1));
            self.end = self.end.after(time, length.saturating_sub(bytes), lines);
            idx.write_all(&self.end.to_bytes())?;
            let last = self.last();
            last.bytes = length;
            last.lines = last.lines.saturating_add(lines);
            last.disk += POINT;
        }
        self.open = Some(Files { log, idx });
        Ok(())
    }
}

impl Drop for CaptureWriter {
    /// If the stream ends with a cut, makes an empty segment that records how much was cut.
    fn drop(&mut self) {
        if self.gap {
            let _ = self.rotate();
        }
    }
}

/// Counts the line ends from the position of `file` to its end, and leaves it there.
fn lines_to_end(file: &mut File) -> io::Result<u64> {
    let mut buffer = vec![0; 64 * 1024];
    let mut lines = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(lines),
            Ok(read) => lines += line_ends(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
