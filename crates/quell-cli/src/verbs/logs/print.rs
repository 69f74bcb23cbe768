//! Lines of output on standard output.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;

use quell::binary::responses::Followed;
use quell::binary::{Cut, Entry, JobInternals, Line, log_cut, log_line};
use quell::{Cursor, Job, Omitted, Stream, Timestamp, Unwritten};

use super::super::envelope;
use super::Flow;
use crate::args::LogsArgs;
use crate::errors::exit;
use crate::output;
use crate::render::format;
use crate::render::{ControlFilter, printable};

/// How many bytes are written at once.
const BUFFER: usize = 64 * 1024;

const RED: &str = "\x1b[31m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// How lines look.
pub struct LineStyle {
    /// With their time.
    pub timestamps: bool,
    /// As JSON.
    pub json: bool,
}

/// Prints lines, until the reader closes the pipe or the disk is full: every call returns whether to go on.
pub struct Printer {
    out: BufWriter<Stdout>,
    id: String,
    limits: LogLimits,
    style: LineStyle,
    /// Whether the output is a terminal, and whether it has colours.
    terminal: bool,
    colour: bool,
    /// Removes what a terminal would obey from the job's output.
    filter: Option<ControlFilter>,
    /// The stream and offset where a line that has no end yet goes on.
    open: Option<(Stream, u64)>,
    /// Whether quell's own lines go to stderr.
    apart: bool,
    trouble: Option<io::Error>,
}

impl Printer {
    pub fn new(job: &Job, style: LineStyle) -> Self {
        let terminal = io::stdout().is_terminal();
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let colour = terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb");
        Self {
            out: BufWriter::with_capacity(BUFFER, io::stdout()),
            id: job.id().to_string(),
            limits: LogLimits::of(job),
            filter: (terminal && !style.json).then(ControlFilter::default),
            style,
            terminal,
            colour,
            open: None,
            apart: false,
            trouble: None,
        }
    }

    /// Whether the output is a terminal.
    pub fn is_watched(&self) -> bool {
        self.terminal && !self.style.json
    }

    fn put(&mut self, bytes: &[u8]) -> Flow {
        match self.out.write_all(bytes) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.trouble.get_or_insert(error);
                ControlFlow::Break(())
            }
        }
    }

    /// Prints what the job has written.
    fn put_output(&mut self, bytes: &[u8]) -> Flow {
        match &mut self.filter {
            Some(filter) => {
                let passed = filter.pass(bytes);
                self.put(&passed)
            }
            None => self.put(bytes),
        }
    }

    /// Ends the colours of the job's output: what follows is quell's own.
    fn end_output(&mut self) -> Flow {
        let end = self.filter.as_mut().map_or(&[][..], ControlFilter::close);
        self.put(end)
    }

    /// Flushes what was printed.
    pub fn flush(&mut self) -> Flow {
        match self.out.flush() {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.trouble.get_or_insert(error);
                ControlFlow::Break(())
            }
        }
    }

    /// Ends the output. Returns the exit code if something could not be written.
    pub fn close(mut self) -> Option<ExitCode> {
        // The next prompt must begin a line. A file is left as it is.
        if self.terminal && self.open.is_some() && self.trouble.is_none() {
            let _ = self.put_output(b"\n");
        }
        if self.trouble.is_none() {
            let _ = self.end_output();
        }
        let _ = self.flush();
        complain(self.trouble.take())
    }

    /// A line, which goes on where a part of it was printed before.
    pub fn line(&mut self, line: &Line) -> Flow {
        let goes_on = self.open == Some((line.stream, line.offset));
        if !goes_on {
            self.end_line()?;
            self.put(self.stamp(line).as_bytes())?;
        }
        let marked = self.colour && line.stream == Stream::Stderr;
        if marked {
            self.put(RED.as_bytes())?;
        }
        self.put_output(&line.bytes)?;
        if marked {
            self.put(PLAIN.as_bytes())?;
        }
        self.open = (!line.ended).then_some((line.stream, line.end()));
        if line.ended { self.put_output(b"\n") } else { ControlFlow::Continue(()) }
    }

    /// The text before a line.
    pub fn stamp(&self, line: &Line) -> String {
        let stamp = || format!("{} ", Timestamp::from_unix_ns(line.time_ns));
        if self.style.timestamps { stamp() } else { String::new() }
    }

    /// Ends a line that has no end of its own, because something else follows.
    fn end_line(&mut self) -> Flow {
        if self.open.take().is_some() { self.put_output(b"\n") } else { ControlFlow::Continue(()) }
    }

    /// Where quell's own lines go at this place of standard output, if anywhere.
    pub fn notice(&self, entry: &Entry, args: &LogsArgs) -> Option<String> {
        match entry {
            _ if self.apart => None,
            Entry::Line(_) => None,
            Entry::Cut(cut) => Some(self.limits.cut_marker(cut)),
            Entry::Omitted(omitted) => Some(self.omitted_marker(omitted, args)),
        }
    }

    /// From here on they go to stderr.
    pub fn notices_apart(&mut self) {
        self.apart = true;
    }

    /// A gap, in a line of its own.
    pub fn cut(&mut self, cut: &Cut) -> Flow {
        let text = self.limits.cut_marker(cut);
        self.marker(&text)
    }

    fn marker(&mut self, text: &str) -> Flow {
        if self.apart {
            output::to_stderr(&format!("{text}\n"));
            return ControlFlow::Continue(());
        }
        self.end_line()?;
        self.end_output()?;
        let text = if self.colour { format!("{DIM}{text}{PLAIN}\n") } else { format!("{text}\n") };
        self.put(text.as_bytes())
    }

    /// What was left out, and how to get it.
    pub fn omitted(&mut self, omitted: &Omitted, args: &LogsArgs) -> Flow {
        let text = self.omitted_marker(omitted, args);
        self.marker(&text)
    }

    fn omitted_marker(&self, omitted: &Omitted, args: &LogsArgs) -> String {
        let mut again = format!("quell logs {} --since {} --until {}", self.id, omitted.from, omitted.to);
        for (given, option) in [(args.stdout, " --stdout"), (args.stderr, " --stderr")] {
            again += if given { option } else { "" };
        }
        if let Some(grep) = &args.grep {
            again += &format!(" --grep {}", format::shell(grep));
        }
        let (lines, bytes) = (format::counted(omitted.lines, "line"), format::bytes(omitted.bytes));
        format!("[quell: {lines} ({bytes}) left out: {again}]")
    }

    /// One of the last lines, without a note about those before `before`.
    pub fn tail(&mut self, entry: &Entry, before: &mut Cursor) -> Flow {
        match entry {
            Entry::Line(line) => self.line(line),
            Entry::Cut(cut) if cut.to > before.of(cut.stream) => self.cut(cut),
            Entry::Cut(_) => ControlFlow::Continue(()),
            Entry::Omitted(omitted) => {
                *before = omitted.to;
                ControlFlow::Continue(())
            }
        }
    }

    /// A line as one JSON object.
    pub fn json_line(&mut self, line: &Line, cursor: Cursor) -> Flow {
        self.put(envelope("logs", &Followed::Line { line: log_line(line), cursor }).as_bytes())
    }

    /// A gap as one JSON object.
    pub fn json_cut(&mut self, cut: &Cut, cursor: Cursor) -> Flow {
        self.put(envelope("logs", &Followed::Cut { cut: log_cut(cut), cursor }).as_bytes())
    }

    /// Whether JSON is wanted.
    pub fn is_json(&self) -> bool {
        self.style.json
    }
}

/// Why some of a job's output may be missing.
pub struct LogLimits {
    job: Job,
    max_log: Option<u64>,
}

impl LogLimits {
    pub fn of(job: &Job) -> Self {
        let max_log = job.dir().spec().ok().and_then(|spec| Some(spec.request.as_background()?.max_log));
        Self { job: job.clone(), max_log }
    }

    /// `[quell: 1,234 lines (5.2 MiB, 5,452,595 bytes) of stdout were not kept: the job's --max-log is 64M]`
    pub fn cut_marker(&self, cut: &Cut) -> String {
        let bytes = format::bytes(cut.bytes);
        let what = match cut.lines {
            Some(lines) => format!("{} ({bytes})", format::counted(lines, "line")),
            None => bytes,
        };
        // A gap before the first failure, or one of more than the limit, is due to the limit.
        let is_failed = |lost: &Unwritten| lost.stream == cut.stream && lost.from < cut.to;
        let failed = self.job.unwritten().into_iter().find(is_failed);
        let max = self.max_log.filter(|max| failed.is_none() || cut.bytes >= *max);
        let max = max.map(|max| format!(": the job's --max-log is {}", format::size(max)));
        let failed = failed.map(|lost| format!(": {}", printable(&lost.why)));
        let [max, failed] = [max, failed].map(Option::unwrap_or_default);
        format!("[quell: {what} of {} were not kept{failed}{max}]", cut.stream)
    }
}

/// Reports an error of writing. A closed pipe is not an error.
pub fn complain(trouble: Option<io::Error>) -> Option<ExitCode> {
    let error = trouble.filter(|error| error.kind() != io::ErrorKind::BrokenPipe)?;
    output::to_stderr(&format!("quell: can't write to stdout: {error} (free some space there)\n"));
    Some(ExitCode::from(exit::FAILED))
}
