//! A job's output: a part of it, or line by line as it is written.

use std::io;
use std::iter::FusedIterator;

use quell_core::{Output, Timestamp};
use quell_guard::Verb;
use quell_store::{
    Cursor, Cut, Entry, Line, LineOrCut, Lines, LogEnd, LogPage, LogQuery, LogReader, Omitted, Stream,
    Streams, Watch, WriteFailure,
};
use regex_lite::Regex;
use serde::{Deserialize, Serialize};

use crate::{Error, Job, Result};

/// Reports when there may be more output to read, and when there is no more.
#[derive(Debug)]
pub struct LogWatch {
    job: Job,
    watch: Watch,
    ended: bool,
}

impl LogWatch {
    /// Called when all output so far has been read: waits until there may be more. False if the job had ended before the last
    /// reading began, so that everything has been read. A lost job is finished first.
    pub fn more(&mut self) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        self.ended = self.job.has_ended_now()?;
        if !self.ended {
            self.watch.wait(None).map_err(Error::io(self.job.dir().dir()))?;
        }
        Ok(true)
    }
}

/// The lines of a job's output, from the first one on, as they are written. It ends when the job has ended and all of its output was
/// read. [`Job::follow`] makes one.
#[derive(Debug)]
#[must_use = "an iterator does nothing until it is read"]
pub struct Follow {
    lines: Lines,
    watch: LogWatch,
    dropped: u64,
    done: bool,
}

impl Follow {
    /// How many bytes between the lines so far were not kept, because the output was larger than the job's limit.
    pub fn dropped_bytes(&self) -> u64 {
        self.dropped
    }

    fn read(&mut self) -> Result<Option<LogLine>> {
        loop {
            match self.lines.next_line().map_err(Error::io(self.watch.job.dir().dir()))? {
                Some(LineOrCut::Line(line)) => return Ok(Some(LogLine::of(&line))),
                Some(LineOrCut::Cut(cut)) => self.dropped += cut.bytes,
                // The last line of a job may have no line end.
                None if !self.watch.more()? => {
                    return Ok(self.lines.next_begun().map(|line| LogLine::of(&line)));
                }
                None => {}
            }
        }
    }
}

impl Iterator for Follow {
    type Item = Result<LogLine>;

    /// Waits for the next line.
    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.read().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

impl FusedIterator for Follow {}

/// A request for output of a job: all of it, unless it is narrowed. [`Job::logs`] begins one.
///
/// ```no_run
/// # fn main() -> quell::Result<()> {
/// let job = quell::Quell::open()?.job("web")?;
/// for line in job.logs().last(100).matching("error")?.read()?.lines {
///     println!("{}", line.text);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is read until `read` is called"]
pub struct LogRequest<'j> {
    job: &'j Job,
    query: LogQuery,
}

impl LogRequest<'_> {
    /// The first lines. With [`Self::last`], these and the last ones.
    pub fn first(mut self, lines: usize) -> Self {
        self.query.head = Some(lines);
        self
    }

    /// The last lines.
    pub fn last(mut self, lines: usize) -> Self {
        self.query.tail = Some(lines);
        self
    }

    /// At most this many bytes of text, half from the beginning and half from the end unless [`Self::first`] or [`Self::last`] is set.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.query.budget = Some(bytes);
        self
    }

    /// What follows an earlier answer: its [`LogsView::cursor`].
    pub fn since(mut self, cursor: Cursor) -> Self {
        self.query.since = Some(cursor);
        self
    }

    /// One stream only.
    pub fn stream(mut self, stream: Stream) -> Self {
        self.query.streams = match stream {
            Stream::Stdout => Streams::Stdout,
            Stream::Stderr => Streams::Stderr,
        };
        self
    }

    /// Lines that match this regular expression.
    pub fn matching(mut self, pattern: &str) -> Result<Self> {
        self.query.grep = Some(regex(pattern)?);
        Ok(self)
    }

    /// Reads it.
    pub fn read(&self) -> Result<LogsView> {
        self.job.log_page(&self.query).map(|page| LogsView::new(self.job, &page))
    }
}

/// Reads a regular expression. The error names it and says what is wrong.
pub fn regex(pattern: &str) -> Result<Regex> {
    let invalid = |error| Error::BadValue(format!("invalid regular expression `{pattern}`: {error}"));
    Regex::new(pattern).map_err(invalid)
}

impl Job {
    /// Follows the output line by line. The iterator waits for each next line, until the job has ended.
    ///
    /// ```no_run
    /// # fn main() -> quell::Result<()> {
    /// for line in quell::Quell::open()?.job("web")?.follow()? {
    ///     println!("{}", line?.text);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn follow(&self) -> Result<Follow> {
        self.check_has_logs()?;
        // Before the first reading, so that no change between the two is missed.
        let watch = self.watch_logs()?;
        let reader = LogReader::open(self.dir().dir()).map_err(Error::io(self.dir().dir()))?;
        Ok(Follow { lines: Lines::new(reader), watch, dropped: 0, done: false })
    }

    /// Reads a part of the output.
    pub fn logs(&self) -> LogRequest<'_> {
        LogRequest { job: self, query: LogQuery::default() }
    }

    /// Watches the output. No write from now on is missed.
    pub(crate) fn watch_logs(&self) -> Result<LogWatch> {
        self.quell.permit(Verb::Logs, "")?;
        let dir = self.dir();
        let mut watch = Watch::new().map_err(Error::io(dir.dir()))?;
        let added = watch.add(dir.dir()).and_then(|()| watch.add_quietly(&dir.live_path()));
        match added {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io(dir.dir())(error)),
            // The job has ended, which the first look finds out.
            Ok(()) | Err(_) => Ok(LogWatch { job: self.clone(), watch, ended: false }),
        }
    }

    pub(crate) fn log_page(&self, query: &LogQuery) -> Result<LogPage> {
        self.quell.permit(Verb::Logs, "")?;
        query.page(self.dir().dir()).map_err(Error::io(self.dir().dir()))
    }

    /// The streams that could not be written to disk, in whole or in part.
    pub fn unwritten(&self) -> Vec<Unwritten> {
        let of = |stream| {
            let WriteFailure { from, why } = WriteFailure::read(self.dir().dir(), stream)?;
            Some(Unwritten { stream, from, why })
        };
        Stream::ALL.into_iter().filter_map(of).collect()
    }

    /// Fails for a job in the foreground, whose output went to its caller, and if the policy does not allow to read output.
    pub(crate) fn check_has_logs(&self) -> Result<()> {
        self.quell.permit(Verb::Logs, "")?;
        match self.dir().spec() {
            Ok(spec) if spec.request.is_foreground() => {
                Err(Error::State(format!("{} is a `quell run`: its output went to its caller", self.id())))
            }
            // The output can be read without the specification.
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// A line of output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogLine {
    /// When its first byte was read, by the wall clock.
    pub time: Timestamp,
    /// The stream that it was written to.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub stream: Stream,
    /// The text, without the line end. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// The offset of its first byte in the stream.
    pub offset: u64,
    /// Whether it has a line end. If not, the line goes on, or was never ended, or its end was not kept.
    pub ended: bool,
    /// Whether bytes were replaced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lossy: bool,
}

impl LogLine {
    pub(crate) fn of(line: &Line) -> Self {
        let (text, lossy) = match str::from_utf8(&line.bytes) {
            Ok(text) => (text.to_owned(), false),
            Err(_) => (String::from_utf8_lossy(&line.bytes).into_owned(), true),
        };
        let (stream, offset, ended) = (line.stream, line.offset, line.ended);
        Self { time: Timestamp::from_unix_ns(line.time_ns), stream, text, offset, ended, lossy }
    }
}

/// Output that was not kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogCut {
    /// When the output after the gap was read, by the wall clock.
    pub time: Timestamp,
    /// The stream that has the gap.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub stream: Stream,
    /// The offset in the stream of the first missing byte.
    pub from: u64,
    /// The offset of the first byte after the gap.
    pub to: u64,
    /// How many bytes are missing.
    pub bytes: u64,
    /// How many line ends are missing, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
}

impl LogCut {
    pub(crate) fn of(cut: &Cut) -> Self {
        let Cut { stream, time_ns, from, to, bytes, lines } = *cut;
        Self { time: Timestamp::from_unix_ns(time_ns), stream, from, to, bytes, lines }
    }
}

/// A stream that could not be written to disk, in whole or in part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unwritten {
    /// The stream that could not be written.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub stream: Stream,
    /// The offset in the stream of the first byte that could not be written. The missing bytes are counted as a cut once the
    /// disk has room again, and in the receipt.
    pub from: u64,
    /// The first error.
    pub why: String,
}

/// A part of a job's output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogsView {
    /// The lines, in the order of their line ends.
    pub lines: Vec<LogLine>,
    /// The output that was not kept, between and within the lines.
    pub cuts: Vec<LogCut>,
    /// The output that was kept and is left out of this answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub omitted: Option<Omitted>,
    /// Where the next request goes on.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub cursor: Cursor,
    /// The size of the streams so far.
    pub totals: Output,
    /// How many lines were longer than 1 MiB, and were matched by their first 1 MiB.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub long_lines: u64,
    /// The streams that could not be written to disk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unwritten: Vec<Unwritten>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl LogsView {
    pub(crate) fn new(job: &Job, page: &LogPage) -> Self {
        let (mut lines, mut cuts) = (Vec::new(), Vec::new());
        for entry in &page.entries {
            match entry {
                Entry::Line(line) => lines.push(LogLine::of(line)),
                Entry::Cut(cut) => cuts.push(LogCut::of(cut)),
                // `page.end` has it too.
                Entry::Omitted(_) => {}
            }
        }
        let LogEnd { omitted, cursor, totals, long_lines } = page.end;
        Self { lines, cuts, omitted, cursor, totals, long_lines, unwritten: job.unwritten() }
    }
}
