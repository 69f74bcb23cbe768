//! Lines of output on standard output.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;

use quell::answers::Followed;
use quell::{Cursor, Cut, Entry, Job, Line, LogPage, Omitted, Stream, wall_at};

use super::super::{envelope, phrases};
use super::Flow;
use crate::args::LogsArgs;
use crate::output;

/// How many bytes are written at once.
const BUFFER: usize = 64 * 1024;

const RED: &str = "\x1b[31m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// How lines look.
pub struct Style {
    /// With their time.
    pub timestamps: bool,
    /// As JSON.
    pub json: bool,
}

/// Prints lines. A reader that has left, or a full disk, ends it: every call says whether to go on.
pub struct Printer {
    out: BufWriter<Stdout>,
    id: String,
    max_log: Option<u64>,
    style: Style,
    /// Whether a person looks at it, and whether in colour.
    terminal: bool,
    colour: bool,
    /// The stream and offset where a line that has no end yet goes on.
    open: Option<(Stream, u64)>,
    trouble: Option<io::Error>,
}

impl Printer {
    pub fn new(job: &Job, style: Style) -> Self {
        let terminal = io::stdout().is_terminal();
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let colour = terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb");
        Self {
            out: BufWriter::with_capacity(BUFFER, io::stdout()),
            id: job.id().to_string(),
            max_log: max_log(job),
            style,
            terminal,
            colour,
            open: None,
            trouble: None,
        }
    }

    /// Whether a person looks on.
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

    /// Hands over what was printed.
    pub fn flush(&mut self) -> Flow {
        match self.out.flush() {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.trouble.get_or_insert(error);
                ControlFlow::Break(())
            }
        }
    }

    /// The last of it. The exit code, if something could not be written to a reader who wants it.
    pub fn close(mut self) -> Option<ExitCode> {
        // The prompt that comes next is to begin a line; a file is left as it is.
        if self.terminal && self.open.is_some() && self.trouble.is_none() {
            let _ = self.put(b"\n");
        }
        let _ = self.flush();
        complain(self.trouble.take())
    }

    /// A line, which goes on where a part of it was printed before.
    pub fn line(&mut self, line: &Line) -> Flow {
        let goes_on = self.open == Some((line.stream, line.offset));
        if !goes_on {
            self.end_line()?;
            if self.style.timestamps {
                self.put(format!("{} ", wall_at(line.time_ns)).as_bytes())?;
            }
        }
        let marked = self.colour && line.stream == Stream::Stderr;
        if marked {
            self.put(RED.as_bytes())?;
        }
        self.put(&line.bytes)?;
        if marked {
            self.put(PLAIN.as_bytes())?;
        }
        self.open = (!line.ended).then_some((line.stream, line.end()));
        if line.ended { self.put(b"\n") } else { ControlFlow::Continue(()) }
    }

    /// Ends a line that has no end of its own, because something else follows.
    fn end_line(&mut self) -> Flow {
        if self.open.take().is_some() { self.put(b"\n") } else { ControlFlow::Continue(()) }
    }

    /// A gap, in a line of its own.
    pub fn cut(&mut self, cut: &Cut) -> Flow {
        let text = cut_marker(cut, self.max_log);
        self.marker(&text)
    }

    fn marker(&mut self, text: &str) -> Flow {
        self.end_line()?;
        let text = if self.colour { format!("{DIM}{text}{PLAIN}\n") } else { format!("{text}\n") };
        self.put(text.as_bytes())
    }

    /// What was left out, and how to get it.
    pub fn omitted(&mut self, omitted: &Omitted, args: &LogsArgs) -> Flow {
        let mut again = format!("quell logs {} --since {} --until {}", self.id, omitted.from, omitted.to);
        for (given, option) in [(args.stdout, " --stdout"), (args.stderr, " --stderr")] {
            again += if given { option } else { "" };
        }
        if let Some(grep) = &args.grep {
            again += &format!(" --grep {}", phrases::shell(grep));
        }
        let (lines, bytes) = (phrases::counted(omitted.lines, "line"), phrases::bytes(omitted.bytes));
        self.marker(&format!("[quell: {lines} ({bytes}) left out: {again}]"))
    }

    /// The last lines, without what is said of those before them.
    pub fn tail(&mut self, page: &LogPage) {
        let before = page.end.omitted.map_or_else(Cursor::default, |omitted| omitted.to);
        for entry in &page.entries {
            let flow = match entry {
                Entry::Line(line) => self.line(line),
                Entry::Cut(cut) if cut.to > before.of(cut.stream) => self.cut(cut),
                Entry::Cut(_) | Entry::Omitted(_) => ControlFlow::Continue(()),
            };
            if flow.is_break() {
                return;
            }
        }
    }

    /// A line as one JSON object.
    pub fn json_line(&mut self, line: &Line, cursor: Cursor) -> Flow {
        self.put(envelope("logs", &Followed::Line { line: line.into(), cursor }).as_bytes())
    }

    /// A gap as one JSON object.
    pub fn json_cut(&mut self, cut: &Cut, cursor: Cursor) -> Flow {
        self.put(envelope("logs", &Followed::Cut { cut: cut.into(), cursor }).as_bytes())
    }

    /// Whether JSON is wanted.
    pub fn is_json(&self) -> bool {
        self.style.json
    }
}

/// How much of a job's output is kept.
pub fn max_log(job: &Job) -> Option<u64> {
    job.dir().spec().ok()?.background.map(|background| background.max_log)
}

/// `[quell: 1,234 lines (5.2 MiB, 5,452,595 bytes) of stdout were not kept: the job's --max-log is 64M]`
pub fn cut_marker(cut: &Cut, max_log: Option<u64>) -> String {
    let bytes = phrases::bytes(cut.bytes);
    let what = match cut.lines {
        Some(lines) => format!("{} ({bytes})", phrases::counted(lines, "line")),
        None => bytes,
    };
    let why = max_log.map(|max| format!(": the job's --max-log is {}", phrases::size(max)));
    format!("[quell: {what} of {} were not kept{}]", cut.stream, why.unwrap_or_default())
}

/// Says what went wrong with writing. A reader that left is no error.
pub fn complain(trouble: Option<io::Error>) -> Option<ExitCode> {
    let error = trouble.filter(|error| error.kind() != io::ErrorKind::BrokenPipe)?;
    output::to_stderr(&format!("quell: can't write to stdout: {error} (free some space there)\n"));
    Some(ExitCode::from(output::FAILED))
}
