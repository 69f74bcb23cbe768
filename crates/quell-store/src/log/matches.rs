//! The lines that match a regular expression. A line that is returned in parts is matched as a whole.

use std::collections::VecDeque;
use std::io;

use regex_lite::Regex;

use super::{Cursor, Line, LineOrCut, Lines, Stream};

/// How many bytes of a line are matched. Of a longer line, only the beginning is.
pub const MATCHED: usize = 1 << 20;

/// Whether a line matches, given without its line end. Only its first [`MATCHED`] bytes count, without the carriage return that
/// a terminal puts before a line end.
pub fn line_matches(regex: &Regex, line: &[u8]) -> bool {
    let text = line.get(..MATCHED).unwrap_or_else(|| line.strip_suffix(b"\r").unwrap_or(line));
    regex.is_match(&String::from_utf8_lossy(text))
}

/// What is known of the line of a stream that is being read.
#[derive(Debug)]
enum Course {
    /// These parts of it, which are too few to decide.
    Held(Vec<Line>),
    /// It matches: the rest of it is returned.
    Matches,
    /// It does not match. It began here.
    Fails(u64),
}

/// Reads [`Lines`] and returns those that match. Memory does not grow with the length of a line.
#[derive(Debug)]
pub struct Matches {
    lines: Lines,
    regex: Option<Regex>,
    course: [Course; 2],
    ready: VecDeque<LineOrCut>,
    long: u64,
    /// Whether the line of a stream that is being read is counted as a long one.
    counted: [bool; 2],
}

impl Matches {
    /// The lines of `lines` that match, or all if there is no regular expression.
    pub fn new(lines: Lines, regex: Option<Regex>) -> Self {
        let course = [Course::Held(Vec::new()), Course::Held(Vec::new())];
        Self { lines, regex, course, ready: VecDeque::new(), long: 0, counted: [false; 2] }
    }

    /// The end of what was returned or does not match. Reading on from here returns what follows.
    pub fn cursor(&self) -> Cursor {
        let mut cursor = self.lines.cursor();
        for stream in Stream::ALL {
            let undecided = match &self.course[stream as usize] {
                Course::Held(parts) => parts.first().map(|part| part.offset),
                Course::Matches => None,
                Course::Fails(from) => Some(*from),
            };
            let unread = self.ready.iter().filter_map(|next| match next {
                LineOrCut::Line(line) => (line.stream == stream).then_some(line.offset),
                LineOrCut::Cut(cut) => (cut.stream == stream).then_some(cut.from),
            });
            if let Some(first) = unread.chain(undecided).min() {
                *cursor.of_mut(stream) = first.min(cursor.of(stream));
            }
        }
        cursor
    }

    /// Continues at `cursor`. The streams in `within` are inside a matching line there.
    pub(super) fn seek(&mut self, cursor: Cursor, within: [bool; 2]) {
        self.lines.seek(cursor);
        self.ready.clear();
        self.course = within.map(|yes| if yes { Course::Matches } else { Course::Held(Vec::new()) });
    }

    /// How many lines so far were longer than [`MATCHED`], so that only their beginning was matched.
    pub fn long_lines(&self) -> u64 {
        self.long
    }

    /// The next line that matches, or part of one, or gap; see [`Lines::next_line`].
    pub fn next_line(&mut self) -> io::Result<Option<LineOrCut>> {
        loop {
            if let Some(next) = self.ready.pop_front() {
                return Ok(Some(next));
            }
            match self.lines.next_line()? {
                Some(next) => self.take(next),
                None => return Ok(None),
            }
        }
    }

    /// The beginning of a line that has no end yet and matches so far; see [`Lines::next_begun`].
    pub fn next_begun(&mut self) -> Option<Line> {
        loop {
            if let Some(LineOrCut::Line(line)) = self.ready.pop_front() {
                return Some(line);
            }
            let line = self.lines.next_begun()?;
            self.take(LineOrCut::Line(line));
        }
    }

    fn take(&mut self, next: LineOrCut) {
        let (LineOrCut::Line(line), Some(regex)) = (&next, &self.regex) else {
            // If a line end is missing, what follows is another line.
            if let LineOrCut::Cut(cut) = &next
                && cut.lines != Some(0)
            {
                self.counted[cut.stream as usize] = false;
            }
            return self.ready.push_back(next);
        };
        let counted = &mut self.counted[line.stream as usize];
        let course = &mut self.course[line.stream as usize];
        let goes_on = line.split;
        let matches = match course {
            Course::Matches => true,
            Course::Fails(_) => false,
            Course::Held(parts) if parts.is_empty() && !goes_on => line_matches(regex, &line.bytes),
            Course::Held(parts) => {
                let length = parts.iter().map(|part| part.bytes.len()).sum::<usize>() + line.bytes.len();
                if goes_on && length <= MATCHED {
                    return parts.push(line.clone());
                }
                let is_long = length > MATCHED;
                self.long += u64::from(is_long && !*counted);
                *counted |= is_long;
                let bytes = parts.iter().chain([line]).map(|part| part.bytes.as_slice()).collect::<Vec<_>>();
                line_matches(regex, &bytes.concat())
            }
        };
        *counted &= !line.ended;
        let start = match course {
            Course::Held(parts) => parts.first().map_or(line.offset, |part| part.offset),
            Course::Fails(from) => *from,
            Course::Matches => line.offset,
        };
        let then = match (goes_on, matches) {
            (false, _) => Course::Held(Vec::new()),
            (true, true) => Course::Matches,
            (true, false) => Course::Fails(start),
        };
        if let Course::Held(parts) = std::mem::replace(course, then)
            && matches
        {
            self.ready.extend(parts.into_iter().map(LineOrCut::Line));
        }
        if matches {
            self.ready.push_back(next);
        }
    }
}
