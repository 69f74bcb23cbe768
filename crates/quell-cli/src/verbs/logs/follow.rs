//! `quell logs --follow`, line by line.

use quell::{Cursor, Error, Job, Line, LineOrCut, Lines, LogQuery, LogReader};

use super::Flow;
use super::print::Printer;

/// Prints what there is and what comes, until the job has ended or nobody reads; how far it came.
pub fn follow(job: &Job, query: &LogQuery, printer: &mut Printer) -> Result<Cursor, Error> {
    let failed = || Error::io(job.dir().dir());
    // Before the first look, so that nothing falls between the two.
    let mut watch = job.watch_logs()?;
    let mut from = query.since.unwrap_or_default();
    if query.tail.is_some() {
        let page = job.logs(&LogQuery { whole_lines: true, ..query.clone() })?;
        if printer.is_json() {
            let mut cursor = page.end.omitted.map_or(from, |omitted| omitted.to);
            for line in page.lines() {
                *stream_of(&mut cursor, line) = line.end();
                if printer.json_line(line, cursor).is_break() {
                    return Ok(cursor);
                }
            }
        } else {
            printer.tail(&page);
        }
        from = page.end.cursor;
    }
    let mut reader = LogReader::open(job.dir().dir()).map_err(failed())?.only(query.streams);
    reader.seek(from);
    let mut lines = Lines::new(reader);
    loop {
        while let Some(next) = lines.next_line().map_err(failed())? {
            if print(&next, lines.cursor(), query, printer).is_break() {
                return Ok(lines.cursor());
            }
        }
        // A person wants to see a prompt, which has no end. Programs get whole lines.
        if printer.is_watched() && query.grep.is_none() && rest(&mut lines, query, printer).is_break() {
            return Ok(lines.cursor());
        }
        if printer.flush().is_break() {
            return Ok(lines.cursor());
        }
        if !watch.more()? {
            break;
        }
    }
    let _ = rest(&mut lines, query, printer);
    Ok(lines.cursor())
}

/// Lines that have no end yet.
fn rest(lines: &mut Lines, query: &LogQuery, printer: &mut Printer) -> Flow {
    while let Some(line) = lines.next_begun() {
        print(&LineOrCut::Line(line), lines.cursor(), query, printer)?;
    }
    Flow::Continue(())
}

fn print(next: &LineOrCut, cursor: Cursor, query: &LogQuery, printer: &mut Printer) -> Flow {
    match next {
        LineOrCut::Line(line) if !query.matches(line) => Flow::Continue(()),
        LineOrCut::Line(line) if printer.is_json() => printer.json_line(line, cursor),
        LineOrCut::Line(line) => printer.line(line),
        LineOrCut::Cut(cut) if printer.is_json() => printer.json_cut(cut, cursor),
        LineOrCut::Cut(cut) => printer.cut(cut),
    }
}

fn stream_of<'c>(cursor: &'c mut Cursor, line: &Line) -> &'c mut u64 {
    match line.stream {
        quell::Stream::Stdout => &mut cursor.out,
        quell::Stream::Stderr => &mut cursor.err,
    }
}
