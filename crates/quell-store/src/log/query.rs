//! Parts of a log: the first lines, the last, those that match, or as much as fits into a budget.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use quell_core::Output;
use regex_lite::Regex;
use serde::{Deserialize, Serialize};

use super::map::StreamMap;
use super::{Cursor, Cut, Line, LineOrCut, Lines, LogReader, Stream, Streams};

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
    /// Only lines that match. Lines longer than [`super::MAX_LINE`] are matched by parts.
    pub grep: Option<Regex>,
    /// Of which streams.
    pub streams: Streams,
    /// Lines that have no end yet are left to the next query, which begins before them.
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

/// What is known when the answer was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// What was left out in the midst or before the tail.
    pub omitted: Option<Omitted>,
    /// The next query goes on from here. It is before the end of the log if `head` was reached.
    pub cursor: Cursor,
    /// What the streams had come to when the query began.
    pub totals: Output,
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
        reader.seek(self.since.unwrap_or_default());
        if let Some(until) = self.until {
            reader.stop_at(until);
        }
        // A job that writes faster than we read would keep us for ever.
        reader.stop_after(maps.iter().map(|map| map.end().time).max().unwrap_or(0));
        let totals = Output { stdout: maps[0].totals(), stderr: maps[1].totals() };
        let mut run = Run { query: self, maps, lines: Lines::new(reader), sink };
        let (cursor, omitted) = run.run()?;
        Ok(LogEnd { omitted, cursor, totals })
    }

    /// Whether `grep` lets the line through.
    pub fn matches(&self, line: &Line) -> bool {
        self.grep.as_ref().is_none_or(|grep| grep.is_match(&String::from_utf8_lossy(&line.bytes)))
    }
}

/// How much may still be kept.
#[derive(Clone, Copy)]
struct Room {
    lines: usize,
    bytes: u64,
}

/// A query being answered.
struct Run<'a, S> {
    query: &'a LogQuery,
    maps: [StreamMap; 2],
    lines: Lines,
    sink: S,
}

/// How the head came out.
enum Head {
    /// There is no more, or no more is wanted; this is what comes next.
    Over(Cursor),
    /// It is full; this line did not fit any more.
    Full { used: u64, rest: Option<Line> },
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
        let (used, rest) = match self.head(room)? {
            Head::Over(cursor) => return Ok((cursor, None)),
            Head::Full { used, rest } => (used, rest),
        };
        let cursor = self.before(rest.as_ref());
        if head.is_some() && tail.is_none() {
            return Ok((cursor, None));
        }
        self.tail(cursor, rest, Room { lines: tail.unwrap_or(usize::MAX), bytes: all.saturating_sub(used) })
    }

    /// The next line or gap of what there is, beginnings of lines at the end included.
    fn next(&mut self) -> io::Result<Option<LineOrCut>> {
        loop {
            let next = match self.lines.next_line()? {
                Some(next) => next,
                None if self.query.whole_lines => return Ok(None),
                None => match self.lines.next_begun() {
                    Some(line) => LineOrCut::Line(line),
                    None => return Ok(None),
                },
            };
            match &next {
                LineOrCut::Line(line) if !self.query.matches(line) => {}
                LineOrCut::Line(_) | LineOrCut::Cut(_) => return Ok(Some(next)),
            }
        }
    }

    /// Where what was handed over ends, if `rest` was read and not handed over.
    fn before(&self, rest: Option<&Line>) -> Cursor {
        let mut cursor = self.lines.cursor();
        if let Some(rest) = rest {
            *cursor.of_mut(rest.stream) = rest.offset;
        }
        cursor
    }

    /// Hands over lines from the beginning, as many as fit.
    fn head(&mut self, mut room: Room) -> io::Result<Head> {
        let mut used = 0;
        while room.lines > 0 {
            let line = match self.next()? {
                None => return Ok(Head::Over(self.lines.cursor())),
                Some(LineOrCut::Cut(cut)) => {
                    if (self.sink)(Entry::Cut(cut))?.is_break() {
                        return Ok(Head::Over(self.lines.cursor()));
                    }
                    continue;
                }
                Some(LineOrCut::Line(line)) => line,
            };
            let left = room.bytes - used;
            let (line, rest) = if line.size() <= left {
                (line, None)
            } else if used == 0 && left > 0 {
                let (line, rest) = divide(line, left);
                (line, Some(rest))
            } else {
                return Ok(Head::Full { used, rest: Some(line) });
            };
            used += line.size();
            room.lines -= usize::from(!line.split);
            if (self.sink)(Entry::Line(line))?.is_break() {
                return Ok(Head::Over(self.before(rest.as_ref())));
            }
            if rest.is_some() {
                return Ok(Head::Full { used, rest });
            }
        }
        Ok(Head::Full { used, rest: None })
    }

    /// Hands over the last lines from `from` on, as many as fit, after what it says of those that don't.
    fn tail(
        &mut self,
        from: Cursor,
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
                LineOrCut::Cut(cut) => tail.kept.push_back(LineOrCut::Cut(cut)),
            }
        }
        let omitted = (tail.omitted.bytes > 0).then_some(tail.omitted);
        let gone = tail.cuts.into_iter().map(Entry::Cut).chain(omitted.map(Entry::Omitted));
        let kept = tail.kept.into_iter().map(|kept| match kept {
            LineOrCut::Line(line) => Entry::Line(line),
            LineOrCut::Cut(cut) => Entry::Cut(cut),
        });
        let mut cursor = tail.omitted.to;
        for entry in gone.chain(kept) {
            match &entry {
                Entry::Line(line) => *cursor.of_mut(line.stream) = line.end(),
                Entry::Cut(cut) => *cursor.of_mut(cut.stream) = cut.to.max(cursor.of(cut.stream)),
                Entry::Omitted(_) => {}
            }
            if (self.sink)(entry)?.is_break() {
                return Ok((cursor, omitted));
            }
        }
        Ok((self.lines.cursor(), omitted))
    }

    /// Leaves out, by the index alone, what can't belong to the tail.
    fn jump(&mut self, tail: &mut Tail) -> io::Result<()> {
        for (map, stream) in self.maps.iter().zip(Stream::ALL).filter(|(_, s)| self.query.streams.has(*s)) {
            // The last of them may have no end, and then not be wanted.
            let wanted = tail.room.lines.saturating_add(usize::from(self.query.whole_lines));
            let lines = if wanted == usize::MAX { 0 } else { map.back_lines(wanted)? };
            let bytes = if tail.room.bytes == u64::MAX { 0 } else { map.back_bytes(tail.room.bytes)? };
            let from = tail.omitted.from.of(stream);
            let to = lines.max(bytes).max(from);
            let (bytes, lines) = map.kept(from, to)?;
            tail.omitted.bytes += bytes;
            tail.omitted.lines += lines;
            *tail.omitted.to.of_mut(stream) = to;
            tail.cuts.extend(map.cuts(from, to));
        }
        self.lines.seek(tail.omitted.to);
        Ok(())
    }
}

/// The last lines so far.
struct Tail {
    room: Room,
    kept: VecDeque<LineOrCut>,
    lines: usize,
    bytes: u64,
    omitted: Omitted,
    /// The gaps within what is left out.
    cuts: Vec<Cut>,
}

impl Tail {
    fn new(from: Cursor, room: Room) -> Self {
        let omitted = Omitted { lines: 0, bytes: 0, from, to: from };
        Self { room, kept: VecDeque::new(), lines: 0, bytes: 0, omitted, cuts: Vec::new() }
    }

    fn push(&mut self, line: Line) {
        self.lines += usize::from(!line.split);
        self.bytes += line.size();
        self.kept.push_back(LineOrCut::Line(line));
        while self.lines > self.room.lines || self.bytes > self.room.bytes {
            let over = self.bytes.saturating_sub(self.room.bytes);
            let alone = self.kept.len() == 1;
            match self.kept.pop_front() {
                None => return,
                Some(LineOrCut::Cut(cut)) => {
                    *self.omitted.to.of_mut(cut.stream) = cut.to;
                    self.cuts.push(cut);
                }
                Some(LineOrCut::Line(line)) => {
                    let whole = self.lines > self.room.lines || over >= line.size();
                    if whole || (!alone && !line.split) {
                        self.leave_out(&line);
                        self.lines -= usize::from(!line.split);
                    } else {
                        let (gone, line) = divide(line, over);
                        self.leave_out(&gone);
                        self.kept.push_front(LineOrCut::Line(line));
                    }
                }
            }
        }
    }

    fn leave_out(&mut self, line: &Line) {
        self.bytes -= line.size();
        self.omitted.bytes += line.size();
        self.omitted.lines += u64::from(line.ended);
        *self.omitted.to.of_mut(line.stream) = line.end();
    }
}

/// A line in two parts, the first of `length` bytes, which is fewer than it stands for.
fn divide(mut line: Line, length: u64) -> (Line, Line) {
    let at = usize::try_from(length).map_or(line.bytes.len(), |length| length.min(line.bytes.len()));
    let rest = Line { offset: line.offset + at as u64, bytes: line.bytes.split_off(at), ..line };
    (Line { bytes: line.bytes, ended: false, split: true, ..rest }, rest)
}
