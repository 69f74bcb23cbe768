//! Following a job's output, and the output as programs read it.

use std::io;

use quell_core::{Output, Timestamp};
use quell_store::{
    Cursor, Cut, Entry, Line, LogEnd, LogPage, LogQuery, Omitted, Stream, Watch, WriteFailure,
};
use serde::{Deserialize, Serialize};

use quell_guard::Verb;

use crate::{Error, Job, Result, settle_lost};

/// Tells when there may be more output to read, and when there can't be any more. For use with [`quell_store::Lines`] or
/// [`quell_store::LogReader`]:
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use quell::{LineOrCut, Lines, LogReader, Quell};
///
/// let job = Quell::new()?.job("web")?;
/// let mut watch = job.watch_logs()?;
/// let mut lines = Lines::new(LogReader::open(job.dir().dir())?);
/// loop {
///     while let Some(next) = lines.next_line()? {
///         if let LineOrCut::Line(line) = next {
///             println!("{}", String::from_utf8_lossy(&line.bytes));
///         }
///     }
///     if !watch.more()? {
///         break;
///     }
/// }
/// // The last line of a job need not have an end.
/// while let Some(line) = lines.next_begun() {
///     println!("{}", String::from_utf8_lossy(&line.bytes));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LogWatch {
    job: Job,
    watch: Watch,
    over: bool,
}

impl LogWatch {
    /// Called when all that there was has been read: waits until there may be more. False if the job had ended before the
    /// last reading began, so that it has found everything. If the job's keeper was lost, its stop is finished first.
    pub fn more(&mut self) -> Result<bool> {
        if self.over {
            return Ok(false);
        }
        settle_lost(self.job.dir())?;
        self.over = self.job.is_over()?;
        if !self.over {
            self.watch.wait(None).map_err(Error::io(self.job.dir().dir()))?;
        }
        Ok(true)
    }
}

impl Job {
    /// Watches its output. From now on nothing that is written is missed.
    pub fn watch_logs(&self) -> Result<LogWatch> {
        self.quell().permit(Verb::Logs, "")?;
        let dir = self.dir();
        let mut watch = Watch::new().map_err(Error::io(dir.dir()))?;
        let added = watch.add(dir.dir()).and_then(|()| watch.add_quietly(&dir.live_path()));
        match added {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io(dir.dir())(error)),
            // What is gone is over, and that is found at the first look.
            Ok(()) | Err(_) => Ok(LogWatch { job: self.clone(), watch, over: false }),
        }
    }

    /// What it has written.
    pub fn logs(&self, query: &LogQuery) -> Result<LogPage> {
        self.quell().permit(Verb::Logs, "")?;
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

    /// That there is output to look for: an error for a job in the foreground, whose output is its caller's.
    pub fn check_has_logs(&self) -> Result<()> {
        match self.dir().spec() {
            Ok(spec) if spec.request.is_foreground() => {
                Err(Error::State(format!("{} is a `quell run`: its output went to its caller", self.id())))
            }
            // A record that can't be read keeps nobody from the output.
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// A line as programs read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogLine {
    /// When its first byte came, by the wall clock.
    pub time: Timestamp,
    /// Of which stream.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub stream: Stream,
    /// It, without its end. What is no UTF-8 is replaced.
    pub text: String,
    /// The offset of its first byte in the stream.
    pub offset: u64,
    /// Whether it has an end. If not, it goes on, or was never ended, or its end was cut.
    pub ended: bool,
    /// Whether something in it had to be replaced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lossy: bool,
}

impl From<&Line> for LogLine {
    fn from(line: &Line) -> Self {
        let (text, lossy) = match str::from_utf8(&line.bytes) {
            Ok(text) => (text.to_owned(), false),
            Err(_) => (String::from_utf8_lossy(&line.bytes).into_owned(), true),
        };
        let (stream, offset, ended) = (line.stream, line.offset, line.ended);
        Self { time: Timestamp::from_unix_ns(line.time_ns), stream, text, offset, ended, lossy }
    }
}

/// A gap as programs read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogCut {
    /// When what follows it came, by the wall clock.
    pub time: Timestamp,
    /// Of which stream.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub stream: Stream,
    /// The offset in the stream of the first byte that is missing.
    pub from: u64,
    /// The offset of the first byte that is there again.
    pub to: u64,
    /// How many bytes are missing.
    pub bytes: u64,
    /// How many line ends are missing, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
}

impl From<&Cut> for LogCut {
    fn from(cut: &Cut) -> Self {
        let Cut { stream, time_ns, from, to, bytes, lines } = *cut;
        Self { time: Timestamp::from_unix_ns(time_ns), stream, from, to, bytes, lines }
    }
}

/// A stream that could not be written to disk, in whole or in part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unwritten {
    /// Which stream.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub stream: Stream,
    /// The offset in the stream of the first byte that could not be written. How many are missing from there on is counted
    /// among the cuts as soon as the disk has room again, and in the receipt.
    pub from: u64,
    /// The first error.
    pub why: String,
}

/// An answer to a [`LogQuery`] as programs read it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogsView {
    /// The lines, in the order in which they were ended.
    pub lines: Vec<LogLine>,
    /// What was not kept, between and within them.
    pub cuts: Vec<LogCut>,
    /// What is there and was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub omitted: Option<Omitted>,
    /// The next query goes on from here.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub cursor: Cursor,
    /// What the streams had come to.
    pub totals: Output,
    /// How many lines were longer than 1 MiB, so that only their first 1 MiB was matched.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub long_lines: u64,
    /// What could not be written to disk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unwritten: Vec<Unwritten>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl LogsView {
    /// An answer of `job`.
    pub fn new(job: &Job, page: &LogPage) -> Self {
        let (mut lines, mut cuts) = (Vec::new(), Vec::new());
        for entry in &page.entries {
            match entry {
                Entry::Line(line) => lines.push(line.into()),
                Entry::Cut(cut) => cuts.push(cut.into()),
                // It is in the end as well.
                Entry::Omitted(_) => {}
            }
        }
        let LogEnd { omitted, cursor, totals, long_lines } = page.end;
        Self { lines, cuts, omitted, cursor, totals, long_lines, unwritten: job.unwritten() }
    }
}
