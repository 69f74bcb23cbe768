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

/// What of a log is wanted. By default all that there is at the time of asking.
#[derive(Clone, Debug, Default)]
pub struct LogQuery {
    /// Only what comes after this.
    pub since: Option<Cursor>,
    /// Only what comes before this.
    pub until: Option<Cursor>,
    /// The first so many lines; with `tail` these and the last ones.
    pub head: Option<usize>,
    /// The last so many lines.
    pub tail: Option<usize>,
    /// At most so many bytes of text: from the beginning if there is only `head`, from the end if there is only `tail`,
    /// else half from each. Lines are kept whole unless one alone is too long.
    pub budget: Option<u64>,
    /// Only lines that match. Lines longer than [`super::MATCHED`] are matched by their beginning.
    pub grep: Option<Regex>,
    /// Of which streams.
    pub streams: Streams,
    /// Lines that have no end yet are left to the next query, which begins before them. They count among the last ones.
    pub whole_lines: bool,
}

/// What was left out between the head and the tail. A query from `from` until `to` gives it.
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
    /// Something that is not there.
    Cut(Cut),
    /// Something that is there and was not wanted. At most one of an answer is this.
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

/// What is known when the answer was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// What was left out in the midst or before the tail.
    pub omitted: Option<Omitted>,
    /// The next query goes on from here. It is before the end of the log if `head` was reached.
    pub cursor: Cursor,
    /// What the streams had come to when the query began.
    pub totals: Output,
    /// How many lines were longer than [`super::MATCHED`], so that `grep` has matched only their beginning.
    pub long_lines: u64,
}

/// An answer as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage {
    /// The lines, with the gaps where they are.
    pub entries: Vec<Entry>,
    /// The rest.
    pub end: LogEnd,
}

impl LogPage {
    /// The lines alone.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Line(line) => Some(line),
            Entry::Cut(_) | Entry::Omitted(_) => None,
        })
    }

    /// The gaps alone.
    pub fn cuts(&self) -> impl Iterator<Item = &Cut> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Cut(cut) => Some(cut),
            Entry::Line(_) | Entry::Omitted(_) => None,
        })
    }
}

impl LogQuery {
    /// Asks the log in `dir`. The answer is held in memory: see [`Self::stream`] for large ones.
    pub fn page(&self, dir: &Path) -> io::Result<LogPage> {
        let mut entries = Vec::new();
        let end = self.stream(dir, |entry| {
            entries.push(entry);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(LogPage { entries, end })
    }

    /// Asks the log in `dir` and hands over the answer bit by bit. Only what may belong to the tail is held in memory.
    /// When `sink` breaks off, the cursor is right behind what it got.
    pub fn stream(
        &self,
        dir: &Path,
        sink: impl FnMut(Entry) -> io::Result<ControlFlow<()>>,
    ) -> io::Result<LogEnd> {
        let [out, err] = Stream::ALL.map(|stream| StreamMap::take(dir, stream));
        let maps = [out?, err?];
        let mut reader = LogReader::open(dir)?.only(self.streams);
        // The answer is about the log as it is now, even if parts of it are removed meanwhile.
        reader.hold([maps[0].segments(), maps[1].segments()]);
        reader.seek(self.since.unwrap_or_default());
        if let Some(until) = self.until {
            reader.stop_at(until);
        }
        // A job that writes faster than we read would keep us for ever.
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

/// How the head came out.
enum Head {
    /// There is no more, or no more is wanted; this is what comes next.
    Complete(Cursor),
    /// It is full. `rest` did not fit any more; `front`, if there is one, did, and belongs before it.
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

    /// The next line or gap of what there is, beginnings of lines at the end included.
    fn next(&mut self) -> io::Result<Option<LineOrCut>> {
        Ok(match self.lines.next_line()? {
            Some(next) => Some(next),
            None if self.query.whole_lines => None,
            None => self.lines.next_begun().map(LineOrCut::Line),
        })
    }

    /// Hands over lines from the beginning, as many as fit.
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

    /// Hands over the last lines from `from` on, as many as fit, after what it says of those that don't.
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

    /// Hands one over, and keeps track of how far that is.
    fn give(&mut self, entry: Entry, cursor: &mut Cursor) -> io::Result<ControlFlow<()>> {
        match &entry {
            Entry::Line(line) => *cursor.of_mut(line.stream) = line.end(),
            Entry::Cut(cut) => *cursor.of_mut(cut.stream) = cut.to.max(cursor.of(cut.stream)),
            Entry::Omitted(omitted) => *cursor = omitted.to,
        }
        (self.sink)(entry)
    }

    /// Leaves out, by the index alone, what can't belong to the tail.
    fn jump(&mut self, tail: &mut Tail) -> io::Result<()> {
        for (map, stream) in self.maps.iter().zip(Stream::ALL).filter(|(_, s)| self.query.streams.has(*s)) {
            // The last of them may have no end, and then not be wanted.
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
