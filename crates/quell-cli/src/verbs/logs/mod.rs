//! `quell logs`: what a job has written.

mod answer;
mod follow;
mod print;
mod raw;

use std::ops::ControlFlow;
use std::process::ExitCode;

use quell::binary::{Entry, JobInternals, LogQuery, Streams};
use quell::{Cursor, Error, Job, Stream};

use super::{Admitted, fail};
use crate::args::LogsArgs;
use crate::errors::exit;
use crate::output;
use crate::render::format;
use print::{LineStyle, Printer};

/// Shows the requested part, and with `--follow` what is written next.
pub fn logs(admitted: Admitted, args: &LogsArgs) -> ExitCode {
    if quell::binary::closed_at_start()[1] {
        return output::to_stdout("").unwrap_or(ExitCode::from(exit::FAILED));
    }
    match show(admitted, args) {
        Ok((cursor, written)) => {
            if args.cursor {
                output::to_stderr(&format!("{cursor}\n"));
            }
            written.unwrap_or(ExitCode::SUCCESS)
        }
        Err(error) => fail("logs", args.json, &error),
    }
}

/// The position after the last line, and the exit code if the output could not be written.
type Shown = Result<(Cursor, Option<ExitCode>), Error>;

fn show(admitted: Admitted, args: &LogsArgs) -> Shown {
    let query = query(args)?;
    let job = admitted.quell?.job(&args.job)?;
    job.check_has_logs()?;
    if args.json && !args.follow {
        return answer::answer(&job, &query);
    }
    let shown =
        if is_raw(args, &query) { raw::copy(&job, args, &query) } else { by_line(&job, args, &query) };
    report_unwritten(&job, query.streams);
    shown
}

/// Reports output that could not be written at the end of the log, where no later output shows the gap.
fn report_unwritten(job: &Job, streams: Streams) {
    let nothing = LogQuery { tail: Some(0), ..LogQuery::default() };
    for lost in job.unwritten().iter().filter(|lost| streams.has(lost.stream)) {
        let Ok(totals) = job.log_page(&nothing).map(|page| page.end.totals) else { continue };
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
    Ok(LogQuery {
        since: cursor(&args.since).map_err(|error| bad(&error))?,
        until: cursor(&args.until).map_err(|error| bad(&error))?,
        head: args.head,
        tail: args.tail,
        budget: args.budget,
        grep: args.grep.as_deref().map(quell::binary::regex).transpose()?,
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
    let mut fitting = within_budget(query, |query| printed(job, args, query, printer))?;
    if fitting.is_none() {
        printer.notices_apart();
        fitting = within_budget(query, |query| printed(job, args, query, printer))?;
    }
    let query = fitting.unwrap_or_else(|| without_lines(query));
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

/// How many bytes an answer prints.
#[derive(Default)]
struct Printed {
    /// The lines, with the text around each.
    lines: u64,
    /// Everything else.
    own: u64,
}

/// The query with the least output: no lines.
fn without_lines(query: &LogQuery) -> LogQuery {
    LogQuery { budget: Some(0), ..query.clone() }
}

/// How many digits a growing log may add to the numbers meanwhile.
const SLACK: u64 = 16;

/// The query with so much less text that everything printed fits into the budget, as `measure` counts it; none if nothing
/// fits, not even without lines.
fn within_budget(
    query: &LogQuery,
    mut measure: impl FnMut(&LogQuery) -> Result<Printed, Error>,
) -> Result<Option<LogQuery>, Error> {
    let mut fitting = query.clone();
    let Some(budget) = query.budget else { return Ok(Some(fitting)) };
    let mut text = budget;
    loop {
        let Printed { lines, own } = measure(&fitting)?;
        if own + lines <= budget {
            return Ok(Some(fitting));
        }
        if own > budget || text == 0 {
            return Ok(None);
        }
        // With less text, the numbers of what is left out may have a digit or two more.
        let share = u128::from(text) * u128::from(budget - own) / u128::from(lines.max(1));
        text = u64::try_from(share).unwrap_or(u64::MAX).min(text - 1);
        fitting.budget = Some(text);
    }
}

/// How many bytes the lines of `query` and quell's own lines between them take.
fn printed(job: &Job, args: &LogsArgs, query: &LogQuery, printer: &Printer) -> Result<Printed, Error> {
    let (mut printed, mut open) = (Printed::default(), false);
    let measured = query.stream(job.dir().dir(), |entry| {
        // A line without an end gets one if something follows.
        printed.lines += u64::from(std::mem::take(&mut open));
        match &entry {
            Entry::Line(line) => {
                printed.lines += line.size() + printer.stamp(line).len() as u64;
                open = !line.ended;
            }
            entry => printed.own += printer.notice(entry, args).map_or(0, |text| text.len() as u64 + SLACK),
        }
        Ok(Flow::Continue(()))
    });
    measured.map_err(Error::io(job.dir().dir()))?;
    Ok(printed)
}

/// What ends when the reader closes the pipe.
type Flow = ControlFlow<()>;
