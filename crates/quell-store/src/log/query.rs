//! Parts of a log: the first lines, the last, those that match, or as much as fits into a budget.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use quell_core::Output;
use regex_lite::Regex;
use serde::{Deserialize, Serialize};

use super::map::StreamMap;
use super::tail::{Room, Tail, divide};
use super::{Cursor, Cut, Line, LineOrCut, Lines, LogReader, Matches, Stream, Streams};

/// Which part of a log to read. By default everything that exists when the query starts.
#[derive(Clone, Debug, Default)]
pub struct LogQuery {
    /// Only what comes after this.
    pub since: Option<Cursor>,
    /// Only what comes before this.
    pub until: Option<Cursor>,
    /// The first lines, this many. With `tail`: these and the last ones.
    pub head: Option<usize>,
    /// The last lines, this many.
    pub tail: Option<usize>,
    /// The largest number of bytes of text: from the beginning if there is only `head`, from the end if there is only `tail`,
    /// else half from each. Lines are kept whole unless one alone is too long.
    pub budget: Option<u64>,
    /// Only lines that match. Lines longer than [`super::MATCHED`] are matched by their beginning.
    pub grep: Option<Regex>,
    pub streams: Streams,
    /// Leave lines without an end to the next query, which begins before them. They count among the last lines.
    pub whole_lines: bool,
}

/// What was left out between the head and the tail. A query from `from` until `to` returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Omitted {
    /// How many line ends; with `grep`, of matching lines.
    pub lines: u64,
    /// How many bytes; with `grep`, of matching lines.
    pub bytes: u64,
    /// Where it begins.
    pub from: Cursor,
    /// Where it ends.
    pub to: Cursor,
}

/// A part of the answer, in the order of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A line.
    Line(Line),
    /// Something that is missing.
    Cut(Cut),
    /// Something that exists and was not requested. An answer has at most one.
    Omitted(Omitted),
}

impl From<LineOrCut> for Entry {
    fn from(from: LineOrCut) -> Self {
        match from {
            LineOrCut::Line(line) => Self::Line(line),
            LineOrCut::Cut(cut) => Self::Cut(cut),
        }
    }
}

/// What is known when the query is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// What was left out in the middle or before the tail.
    pub omitted: Option<Omitted>,
    /// Where the next query continues. It is before the end of the log if `head` was reached.
    pub cursor: Cursor,
    /// The totals of the streams when the query began.
    pub totals: Output,
    /// How many lines were longer than [`super::MATCHED`], so that `grep` matched only their beginning.
    pub long_lines: u64,
}

/// A complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage {
    /// The lines, with the gaps where they are.
    pub entries: Vec<Entry>,
    /// The rest.
    pub end: LogEnd,
}

impl LogPage {
    /// The lines, without gaps.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Line(line) => Some(line),
            Entry::Cut(_) | Entry::Omitted(_) => None,
        })
    }

    /// The gaps, without lines.
    pub fn cuts(&self) -> impl Iterator<Item = &Cut> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Cut(cut) => Some(cut),
            Entry::Line(_) | Entry::Omitted(_) => None,
        })
    }
}

impl LogQuery {
    /// Queries the log in `dir`. The answer is in memory: see [`Self::stream`] for large ones.
    pub fn page(&self, dir: &Path) -> io::Result<LogPage> {
        let mut entries = Vec::new();
        let end = self.stream(dir, |entry| {
            entries.push(entry);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(LogPage { entries, end })
    }

    /// Queries the log in `dir` and passes the answer to `sink` part by part. Only what may belong to the tail is in memory. If
    /// `sink` stops, the cursor is right after the last part that it got.
    pub fn stream(
        &self,
        dir: &Path,
        sink: impl FnMut(Entry) -> io::Result<ControlFlow<()>>,
    ) -> io::Result<LogEnd> {
        let [out, err] = Stream::ALL.map(|stream| StreamMap::take(dir, stream));
        let maps = [out?, err?];
        let mut reader = LogReader::open(dir)?.only(self.streams);
        // The answer is about the log as it is now, even if segments are removed meanwhile.
        reader.hold([maps[0].segments(), maps[1].segments()]);
        reader.seek(self.since.unwrap_or_default());
        if let Some(until) = self.until {
            reader.stop_at(until);
        }
        // A job that writes faster than this reads would keep it busy for ever.
        reader.stop_after(maps.iter().map(|map| map.end().time).max().unwrap_or(0));
        let totals = Output { stdout: maps[0].totals(), stderr: maps[1].totals() };
        let lines = Matches::new(Lines::new(reader), self.grep.clone());
        let mut run = Run { query: self, maps, lines, sink };
        let (cursor, omitted) = run.run()?;
        Ok(LogEnd { omitted, cursor, totals, long_lines: run.lines.long_lines() })
    }
}

/// A query being answered.
struct Run<'a, S> {
    query: &'a LogQuery,
    maps: [StreamMap; 2],
    lines: Matches,
    sink: S,
}

/// The result of the head.
enum Head {
    /// There is nothing more, or nothing more was requested. The cursor is where the next query continues.
    Complete(Cursor),
    /// It is full. `rest` did not fit. `front`, if any, did, and belongs before `rest`.
    Full { used: u64, front: Option<Line>, rest: Option<Line> },
}

impl<S: FnMut(Entry) -> io::Result<ControlFlow<()>>> Run<'_, S> {
    fn run(&mut self) -> io::Result<(Cursor, Option<Omitted>)> {
        let LogQuery { head, tail, budget, .. } = *self.query;
        let all = budget.unwrap_or(u64::MAX);
        let room = match (head, tail) {
            (None, None) => Room { lines: usize::MAX, bytes: budget.map_or(u64::MAX, |budget| budget / 2) },
            (Some(lines), None) => Room { lines, bytes: all },
            (None, Some(_)) => Room { lines: 0, bytes: 0 },
            (Some(lines), Some(_)) => Room { lines, bytes: budget.map_or(u64::MAX, |budget| budget / 2) },
        };
        let (used, front, rest) = match self.head(room)? {
            Head::Complete(cursor) => return Ok((cursor, None)),
            Head::Full { used, front, rest } => (used, front, rest),
        };
        let mut cursor = self.lines.cursor();
        if let Some(rest) = &rest {
            *cursor.of_mut(rest.stream) = rest.offset;
        }
        if head.is_some() && tail.is_none() {
            if let Some(front) = front {
                let _ = (self.sink)(Entry::Line(front))?;
            }
            return Ok((cursor, None));
        }
        self.tail(
            cursor,
            front,
            rest,
            Room { lines: tail.unwrap_or(usize::MAX), bytes: all.saturating_sub(used) },
        )
    }

    /// The next line or gap. At the end also the beginnings of lines without an end.
    fn next(&mut self) -> io::Result<Option<LineOrCut>> {
        Ok(match self.lines.next_line()? {
            Some(next) => Some(next),
            None if self.query.whole_lines => None,
            None => self.lines.next_begun().map(LineOrCut::Line),
        })
    }

    /// Passes on lines from the beginning, as many as fit.
    fn head(&mut self, mut room: Room) -> io::Result<Head> {
        let mut used = 0;
        while room.lines > 0 {
            let line = match self.next()? {
                None => return Ok(Head::Complete(self.lines.cursor())),
                Some(LineOrCut::Cut(cut)) => {
                    if (self.sink)(Entry::Cut(cut))?.is_break() {
                        return Ok(Head::Complete(self.lines.cursor()));
                    }
                    continue;
                }
                Some(LineOrCut::Line(line)) => line,
            };
            let left = room.bytes - used;
            if line.size() > left {
                if used > 0 || left == 0 {
                    return Ok(Head::Full { used, front: None, rest: Some(line) });
                }
                let (front, rest) = divide(line, left);
                return Ok(Head::Full { used: front.size(), front: Some(front), rest: Some(rest) });
            }
            used += line.size();
            room.lines -= usize::from(!line.split);
            if (self.sink)(Entry::Line(line))?.is_break() {
                return Ok(Head::Complete(self.lines.cursor()));
            }
        }
        Ok(Head::Full { used, front: None, rest: None })
    }

    /// Passes on the last lines from `from` on, as many as fit, after a note about those that don't.
    fn tail(
        &mut self,
        from: Cursor,
        mut front: Option<Line>,
        rest: Option<Line>,
        room: Room,
    ) -> io::Result<(Cursor, Option<Omitted>)> {
        let mut tail = Tail::new(from, room);
        if self.query.grep.is_none() && self.query.until.is_none() {
            self.jump(&mut tail)?;
        } else if let Some(rest) = rest {
            tail.push(rest);
        }
        while let Some(next) = self.next()? {
            match next {
                LineOrCut::Line(line) => tail.push(line),
                LineOrCut::Cut(cut) => tail.push_cut(cut),
            }
        }
        let end = self.lines.cursor();
        if self.query.whole_lines {
            tail.leave_room(std::iter::from_fn(|| self.lines.next_begun()).count());
        }
        let omitted = (tail.omitted.bytes > 0).then_some(tail.omitted);
        if omitted.is_none() {
            front = front.and_then(|front| tail.join(front));
        }
        let cuts = std::mem::take(&mut tail.cuts).into_iter().map(Entry::Cut);
        let gone = front.map(Entry::Line).into_iter().chain(omitted.map(Entry::Omitted)).chain(cuts);
        let (mut cursor, begin) = (from, tail.omitted.to);
        let within = tail.within;
        for entry in gone {
            if self.give(entry, &mut cursor)?.is_break() {
                return Ok((cursor, omitted));
            }
        }
        if let Some(kept) = tail.into_kept() {
            for kept in kept {
                if self.give(kept.into(), &mut cursor)?.is_break() {
                    return Ok((cursor, omitted));
                }
            }
            return Ok((end, omitted));
        }
        self.lines.seek(begin, within);
        while let Some(next) = self.next()? {
            if self.give(next.into(), &mut cursor)?.is_break() {
                return Ok((cursor, omitted));
            }
        }
        Ok((end, omitted))
    }

    /// Passes one on, and notes the position.
    fn give(&mut self, entry: Entry, cursor: &mut Cursor) -> io::Result<ControlFlow<()>> {
        match &entry {
            Entry::Line(line) => *cursor.of_mut(line.stream) = line.end(),
            Entry::Cut(cut) => *cursor.of_mut(cut.stream) = cut.to.max(cursor.of(cut.stream)),
            Entry::Omitted(omitted) => *cursor = omitted.to,
        }
        (self.sink)(entry)
    }

    /// Skips, by the index alone, what can't belong to the tail.
    fn jump(&mut self, tail: &mut Tail) -> io::Result<()> {
        for (map, stream) in self.maps.iter().zip(Stream::ALL).filter(|(_, s)| self.query.streams.has(*s)) {
            // The last of them may have no end, and then it may not be part of the answer.
            let wanted = tail.room.lines.saturating_add(usize::from(self.query.whole_lines));
            let lines = if wanted == usize::MAX { 0 } else { map.back_lines(wanted)? };
            let from = tail.omitted.from.of(stream);
            let bytes = if tail.room.bytes == u64::MAX { 0 } else { map.back_bytes(tail.room.bytes, from)? };
            let to = lines.max(bytes).max(from);
            let (bytes, lines) = map.kept(from, to)?;
            tail.omitted.bytes = tail.omitted.bytes.saturating_add(bytes);
            tail.omitted.lines = tail.omitted.lines.saturating_add(lines);
            *tail.omitted.to.of_mut(stream) = to;
            tail.cuts.extend(map.cuts(from, to));
        }
        self.lines.seek(tail.omitted.to, [false; 2]);
        Ok(())
    }
}
