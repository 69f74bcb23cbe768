//! A part of a job's output that fits into an answer. Nothing is left out silently: what is missing is counted, with the cursor that
//! fetches it.

use std::ops::Range;

use quell::binary::{Cut, Entry, JobInternals, Line, LogPage, LogQuery};
use quell::{Cursor, Job, Omitted, Result, Stream};

use crate::answer::count;
use crate::clean::{clean, cut};

/// The default size of an answer's output, in bytes.
pub const DEFAULT: usize = 8000;
const SMALLEST: usize = 200;
/// Below the limits of the clients that are known.
const LARGEST: usize = 30_000;
/// A longer line is cut in its middle.
const LONGEST_LINE: usize = 2000;

/// Which part is shown if not all of it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Half from the beginning, half from the end.
    BothEnds,
    /// A quarter from the beginning, the rest from the end: that is where errors are.
    MostlyEnd,
    /// From the beginning on: the next page continues there.
    Page,
    /// The end.
    End,
}

/// Output that fits.
#[derive(Debug)]
pub struct Shown {
    /// The text, with notes in brackets where something is missing.
    pub text: String,
    /// Where the next reading continues.
    pub next: Cursor,
    /// Whether the page ends before the output does.
    pub more: bool,
}

/// The size that a caller may have.
pub fn size(asked: Option<u64>) -> usize {
    asked.map_or(DEFAULT, |bytes| usize::try_from(bytes).unwrap_or(LARGEST).clamp(SMALLEST, LARGEST))
}

/// Reads the part of `job`'s output that `query` selects, and cuts it to `bytes`.
pub fn show(job: &Job, query: LogQuery, bytes: usize, shape: Shape) -> Result<Shown> {
    // Escape sequences and repeated lines take room on disk only.
    let raw = (bytes as u64 * 8).max(64 << 10);
    let since = query.since.unwrap_or_default();
    let mut query = LogQuery { budget: Some(raw), ..query };
    match shape {
        Shape::Page if query.head.is_none() => query.head = Some(usize::MAX),
        Shape::End if query.tail.is_none() => query.tail = Some(usize::MAX),
        _ => {}
    }
    let page = job.log_page(&query)?;
    let is_read_on = shape == Shape::Page && query.since.is_some();
    let longest = if is_read_on { bytes / 2 } else { LONGEST_LINE.min(bytes / 3) };
    let fetch = |from: Cursor| format!(": read_output job={} since={from}", job.id());
    let find = |text: &str| Some(query.grep.as_ref()?.find(text)?.range());
    let mut parts = Parts::of(&page, since, longest, find, fetch);
    if shape == Shape::Page {
        let rest = LogQuery {
            since: Some(page.end.cursor),
            head: None,
            tail: Some(0),
            budget: None,
            ..query.clone()
        };
        parts.units.extend(job.log_page(&rest)?.end.omitted.map(Unit::omitted));
    }
    let (front, back) = match shape {
        Shape::BothEnds => (bytes / 2, bytes / 2),
        Shape::MostlyEnd => (bytes / 4, bytes - bytes / 4),
        Shape::Page => (bytes, 0),
        Shape::End => (0, bytes),
    };
    let asks_again = |from: Cursor| {
        let grep = query.grep.as_ref().map(|regex| format!(" grep={:?}", regex.as_str())).unwrap_or_default();
        format!("read_output job={} since={from}{grep}", job.id())
    };
    Ok(parts.fit(front, back, page.end.cursor, shape, asks_again))
}

/// How the part of a line that is left out is read: `since` in the middle of it.
fn in_line(line: &Line, text: &str, before: &str, from: Cursor) -> Cursor {
    // Where something was removed or replaced, each character stands for one byte at least: nothing is skipped.
    let is_exact = text.as_bytes() == line.bytes;
    let at = line.offset + if is_exact { before.len() } else { before.chars().count() } as u64;
    match line.stream {
        Stream::Stdout => Cursor { out: from.out.max(at), ..from },
        Stream::Stderr => Cursor { err: from.err.max(at), ..from },
    }
}

/// A line, several equal lines, or something that is not shown.
#[derive(Clone, Debug)]
struct Unit {
    text: String,
    lines: u64,
    bytes: u64,
    /// The end of it in its stream.
    end: Option<(Stream, u64)>,
    /// Left out by the query itself: nothing across it can be shown.
    is_omitted: bool,
}

impl Unit {
    fn omitted(omitted: Omitted) -> Self {
        let Omitted { lines, bytes, .. } = omitted;
        Self { text: String::new(), lines, bytes, end: None, is_omitted: true }
    }

    fn gap(cut: &Cut) -> Self {
        let text = format!("[{} were not kept: the job's log is full]", count(cut.bytes, "byte", "bytes"));
        Self { text, lines: 0, bytes: 0, end: Some((cut.stream, cut.to)), is_omitted: false }
    }

    fn size(&self) -> usize {
        self.text.len() + 1
    }
}

struct Parts {
    units: Vec<Unit>,
    since: Cursor,
    lossy: bool,
}

impl Parts {
    /// The lines of a page, each in at most about `longest` bytes with what `find` finds in it. `fetch` says how to get the rest.
    fn of(
        page: &LogPage,
        since: Cursor,
        longest: usize,
        find: impl Fn(&str) -> Option<Range<usize>>,
        fetch: impl Fn(Cursor) -> String,
    ) -> Self {
        let mut parts = Self { units: Vec::new(), since, lossy: false };
        let mut from = since;
        let mut repeats: u64 = 1;
        let mut last: Option<(Stream, String)> = None;
        for entry in &page.entries {
            let line = match entry {
                Entry::Line(line) => line,
                Entry::Cut(cut) => {
                    parts.units.push(Unit::gap(cut));
                    last = None;
                    continue;
                }
                Entry::Omitted(omitted) => {
                    parts.units.push(Unit::omitted(*omitted));
                    last = None;
                    continue;
                }
            };
            let (text, lossy) = clean(&line.bytes);
            parts.lossy |= lossy;
            let found = find(&text);
            let short = cut(text.clone(), longest, found, |before| fetch(in_line(line, &text, before, from)));
            match line.stream {
                Stream::Stdout => from.out = from.out.max(line.end()),
                Stream::Stderr => from.err = from.err.max(line.end()),
            }
            match (&last, parts.units.last_mut()) {
                (Some((stream, same)), Some(unit)) if *stream == line.stream && *same == text => {
                    repeats += 1;
                    unit.text = format!("{short} (× {repeats})");
                    unit.lines += u64::from(line.ended);
                    unit.bytes += line.size();
                    unit.end = Some((line.stream, line.end()));
                }
                _ => {
                    repeats = 1;
                    last = Some((line.stream, text));
                    parts.units.push(Self::unit(short, line));
                }
            }
        }
        parts
    }

    fn unit(text: String, line: &Line) -> Unit {
        let end = Some((line.stream, line.end()));
        Unit { text, lines: u64::from(line.ended), bytes: line.size(), end, is_omitted: false }
    }

    /// As much from both ends as has room, with a note on what is between them.
    fn fit(
        self,
        front: usize,
        back: usize,
        end: Cursor,
        shape: Shape,
        asks_again: impl Fn(Cursor) -> String,
    ) -> Shown {
        let units = &self.units;
        let all: usize = units.iter().map(Unit::size).sum();
        let is_whole = !units.iter().any(|unit| unit.is_omitted);
        let take = |room: usize, units: &mut dyn Iterator<Item = &Unit>| {
            let mut used = 0;
            let fits = |unit: &&Unit| {
                used += unit.size();
                !unit.is_omitted && used <= room
            };
            units.take_while(fits).count()
        };
        let (first, last) = if is_whole && all <= front + back {
            (units.len(), units.len())
        } else {
            let first = take(front, &mut units.iter());
            let last = take(back, &mut units[first..].iter().rev());
            (first, units.len() - last)
        };
        let mut text: String = units[..first].iter().map(|unit| format!("{}\n", unit.text)).collect();
        let mut from = self.since;
        for (stream, to) in units[..first].iter().filter_map(|unit| unit.end) {
            match stream {
                Stream::Stdout => from.out = from.out.max(to),
                Stream::Stderr => from.err = from.err.max(to),
            }
        }
        let missing = &units[first..last];
        if !missing.is_empty() {
            let (lines, bytes) =
                missing.iter().fold((0, 0), |(lines, bytes), unit| (lines + unit.lines, bytes + unit.bytes));
            let (lines, bytes) = (count(lines, "line", "lines"), count(bytes, "byte", "bytes"));
            let what = if shape == Shape::Page { "more" } else { "left out here" };
            text += &format!("[{lines} ({bytes}) {what}: {}]\n", asks_again(from));
        }
        text.extend(units[last..].iter().map(|unit| format!("{}\n", unit.text)));
        if self.lossy {
            text += "[bytes that are not UTF-8 were replaced]\n";
        }
        let more = shape == Shape::Page && !missing.is_empty();
        Shown { text, next: if more { from } else { end }, more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, offset: u64) -> Entry {
        let bytes = text.as_bytes().to_vec();
        Entry::Line(Line { stream: Stream::Stdout, time_ns: 0, offset, bytes, ended: true, split: false })
    }

    /// A page with these lines, the way a query returns it.
    fn page(texts: &[&str]) -> LogPage {
        let mut offset = 0;
        let mut entries = Vec::new();
        for text in texts {
            entries.push(line(text, offset));
            offset += text.len() as u64 + 1;
        }
        let cursor = Cursor { out: offset, err: 0 };
        let end =
            quell::binary::LogEnd { omitted: None, cursor, totals: quell::Output::default(), long_lines: 0 };
        LogPage { entries, end }
    }

    fn shown(page: &LogPage, bytes: usize, front: usize, back: usize, shape: Shape) -> Shown {
        let longest = LONGEST_LINE.min(bytes / 3);
        Parts::of(page, Cursor::default(), longest, |_| None, |_| String::new()).fit(
            front,
            back,
            page.end.cursor,
            shape,
            |from| format!("since={from}"),
        )
    }

    #[test]
    fn what_fits_is_shown_whole_and_equal_lines_are_folded() {
        let page = page(&["a", "a", "a", "b"]);
        let shown = shown(&page, 600, 300, 300, Shape::BothEnds);
        assert_eq!(shown.text, "a (× 3)\nb\n");
        assert_eq!((shown.next, shown.more), (Cursor { out: 8, err: 0 }, false));
    }

    #[test]
    fn what_is_left_out_is_counted_and_its_cursor_is_right_after_what_is_shown() {
        let texts: Vec<String> = (0..100).map(|number| format!("line {number:03}")).collect();
        let page = page(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let shown = shown(&page, 180, 45, 135, Shape::MostlyEnd);
        let front = shown.text.lines().take_while(|line| !line.starts_with('[')).count();
        let total = shown.text.lines().count();
        let missing = 100 - (total - 1);
        let note = format!("[{missing} lines ({} bytes) left out here: since=o{}e0]", missing * 9, front * 9);
        assert!(shown.text.contains(&note), "{note}\n{}", shown.text);
        assert!(shown.text.ends_with("line 099\n"));
        assert_eq!(front, 5);
    }

    #[test]
    fn a_page_continues_where_it_ends() {
        let texts: Vec<String> = (0..10).map(|number| format!("line {number:03}")).collect();
        let page = page(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let shown = shown(&page, 27, 27, 0, Shape::Page);
        assert!(shown.more);
        assert_eq!(shown.next, Cursor { out: 27, err: 0 });
        assert!(shown.text.ends_with("[7 lines (63 bytes) more: since=o27e0]\n"), "{}", shown.text);
    }
}
