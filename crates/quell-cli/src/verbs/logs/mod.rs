//! `quell logs`: what a job has written.

mod follow;
mod print;
mod raw;

use std::ops::ControlFlow;
use std::process::ExitCode;

use quell::{Cursor, Entry, Error, Job, LogQuery, LogsView, Regex, Streams};

use super::{envelope, fail, quell};
use crate::args::LogsArgs;
use crate::output;
use print::{Printer, Style};

/// Shows what was asked for, and follows it if that was.
pub fn logs(args: &LogsArgs) -> ExitCode {
    if quell_sys::closed_at_start()[1] {
        return output::to_stdout("").unwrap_or(ExitCode::from(output::FAILED));
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
    if is_raw(args, &query) {
        return raw::copy(&job, args.follow, &query);
    }
    if args.json && !args.follow {
        let page = job.logs(&query)?;
        let text = envelope("logs", &LogsView::from(&page));
        return Ok((page.end.cursor, output::to_stdout(&text)));
    }
    let mut printer = Printer::new(&job, Style { timestamps: args.timestamps, json: args.json });
    let cursor = if args.follow {
        follow::follow(&job, &query, &mut printer)?
    } else {
        print_all(&job, args, &query, &mut printer)?
    };
    Ok((cursor, printer.close()))
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

fn print_all(job: &Job, args: &LogsArgs, query: &LogQuery, printer: &mut Printer) -> Result<Cursor, Error> {
    let failed = Error::io(job.dir().dir());
    // Who wants the last lines alone knows that there are others.
    if args.head.is_none() && args.budget.is_none() && args.tail.is_some() {
        let page = job.logs(query)?;
        printer.tail(&page);
        return Ok(page.end.cursor);
    }
    let end = query.stream(job.dir().dir(), |entry| {
        Ok(match entry {
            Entry::Line(line) => printer.line(&line),
            Entry::Cut(cut) => printer.cut(&cut),
            Entry::Omitted(omitted) => printer.omitted(&omitted, args),
        })
    });
    Ok(end.map_err(failed)?.cursor)
}

/// What goes on as long as the reader is there.
type Flow = ControlFlow<()>;
