//! `quell logs`: what a job has written.

mod answer;
mod follow;
mod print;
mod raw;

use std::ops::ControlFlow;
use std::process::ExitCode;

use quell::{Cursor, Entry, Error, Job, LogQuery, Regex, Stream, Streams};

use super::{fail, quell};
use crate::args::LogsArgs;
use crate::errors::exit;
use crate::output;
use crate::render::format;
use print::{LineStyle, Printer};

/// Shows what was asked for, and follows it if that was.
pub fn logs(args: &LogsArgs) -> ExitCode {
    if quell_sys::closed_at_start()[1] {
        return output::to_stdout("").unwrap_or(ExitCode::from(exit::FAILED));
    }
    match show(args) {
        Ok((cursor, written)) => {
            if args.cursor {
                output::to_stderr(&format!("{cursor}\n"));
            }
            written.unwrap_or(ExitCode::SUCCESS)
        }
        Err(error) => fail("logs", args.json, &error),
    }
}

/// How far it came, and the exit code if the output could not be written.
type Shown = Result<(Cursor, Option<ExitCode>), Error>;

fn show(args: &LogsArgs) -> Shown {
    let query = query(args)?;
    let job = quell()?.job(&args.job)?;
    job.check_has_logs()?;
    if args.json && !args.follow {
        return answer::answer(&job, &query);
    }
    let shown =
        if is_raw(args, &query) { raw::copy(&job, args, &query) } else { by_line(&job, args, &query) };
    tell_unwritten(&job, query.streams);
    shown
}

/// Says what could not be written at the end of the log, where nothing follows that would show the gap.
fn tell_unwritten(job: &Job, streams: Streams) {
    let nothing = LogQuery { tail: Some(0), ..LogQuery::default() };
    for lost in job.unwritten().iter().filter(|lost| streams.has(lost.stream)) {
        let Ok(totals) = job.logs(&nothing).map(|page| page.end.totals) else { continue };
        let end = match lost.stream {
            Stream::Stdout => totals.stdout.bytes,
            Stream::Stderr => totals.stderr.bytes,
        };
        if end <= lost.from {
            output::to_stderr(&format!("quell: not kept: {}\n", format::unwritten(lost)));
        }
    }
}

fn by_line(job: &Job, args: &LogsArgs, query: &LogQuery) -> Shown {
    let mut printer = Printer::new(job, LineStyle { timestamps: args.timestamps, json: args.json });
    let (cursor, long) = if args.follow {
        follow::follow(job, query, &mut printer)?
    } else {
        print_all(job, args, query, &mut printer)?
    };
    let written = printer.close();
    if long > 0 {
        let lines = format::counted(long, "line");
        output::to_stderr(&format!("quell: {lines} longer than 1 MiB: only the first 1 MiB was matched\n"));
    }
    Ok((cursor, written))
}

fn query(args: &LogsArgs) -> Result<LogQuery, Error> {
    let cursor = |text: &Option<String>| text.as_deref().map(str::parse::<Cursor>).transpose();
    let bad = |error: &dyn std::error::Error| Error::BadValue(error.to_string());
    let grep = args.grep.as_deref().map(Regex::new).transpose();
    Ok(LogQuery {
        since: cursor(&args.since).map_err(|error| bad(&error))?,
        until: cursor(&args.until).map_err(|error| bad(&error))?,
        head: args.head,
        tail: args.tail,
        budget: args.budget,
        grep: grep.map_err(|error| Error::BadValue(format!("--grep is no regular expression: {error}")))?,
        streams: match (args.stdout, args.stderr) {
            (true, false) => Streams::Stdout,
            (false, true) => Streams::Stderr,
            (true, true) | (false, false) => Streams::Both,
        },
        whole_lines: false,
    })
}

/// Whether bytes are wanted rather than lines.
fn is_raw(args: &LogsArgs, query: &LogQuery) -> bool {
    let by_line =
        query.head.is_some() || query.tail.is_some() || query.budget.is_some() || query.grep.is_some();
    args.raw || (query.streams != Streams::Both && !by_line && !args.timestamps && !args.json)
}

fn print_all(
    job: &Job,
    args: &LogsArgs,
    query: &LogQuery,
    printer: &mut Printer,
) -> Result<(Cursor, u64), Error> {
    let failed = Error::io(job.dir().dir());
    // With only the last lines requested, it is known that there are others.
    let tail_alone = args.head.is_none() && args.budget.is_none() && args.tail.is_some();
    let mut before = Cursor::default();
    let query = &within_budget(job, args, query, printer)?;
    let end = query.stream(job.dir().dir(), |entry| {
        Ok(match entry {
            entry if tail_alone => printer.tail(&entry, &mut before),
            Entry::Line(line) => printer.line(&line),
            Entry::Cut(cut) => printer.cut(&cut),
            Entry::Omitted(omitted) => printer.omitted(&omitted, args),
        })
    });
    let end = end.map_err(failed)?;
    Ok((end.cursor, end.long_lines))
}

/// The query with so much less text that what quell itself says fits into the budget too. If that alone is too long, it is
/// said on stderr.
fn within_budget(
    job: &Job,
    args: &LogsArgs,
    query: &LogQuery,
    printer: &mut Printer,
) -> Result<LogQuery, Error> {
    // What a log that goes on may add to the numbers meanwhile.
    const SLACK: u64 = 16;
    let mut fitting = query.clone();
    let Some(budget) = query.budget else { return Ok(fitting) };
    loop {
        let mut own = 0;
        let measured = fitting.stream(job.dir().dir(), |entry| {
            own += printer.notice(&entry, args).map_or(0, |text| text.len() as u64 + SLACK);
            Ok(Flow::Continue(()))
        });
        measured.map_err(Error::io(job.dir().dir()))?;
        let left = budget.saturating_sub(own);
        if own == 0 || fitting.budget <= Some(left) {
            return Ok(fitting);
        }
        if left == 0 {
            printer.notices_apart();
            return Ok(query.clone());
        }
        // The less text, the more is to be said of what is left out: a digit or two.
        fitting.budget = Some(left);
    }
}

/// What goes on as long as the reader is there.
type Flow = ControlFlow<()>;
