//! `quell logs --follow`, line by line.

use quell::binary::{Entry, JobInternals, Line, LineOrCut, Lines, LogQuery, LogReader, Matches};
use quell::{Cursor, Error, Job};

use super::Flow;
use super::print::Printer;

/// Prints the log and follows it until the job ends or the reader of our output is gone. Returns the position after the last
/// line, and the number of lines that were too long to be matched as a whole.
pub fn follow(job: &Job, query: &LogQuery, printer: &mut Printer) -> Result<(Cursor, u64), Error> {
    let failed = || Error::io(job.dir().dir());
    // Before the first reading, so that no output between the two is missed.
    let mut watch = job.watch_logs()?;
    let (mut from, mut long) = (query.since.unwrap_or_default(), 0);
    if query.tail.is_some() {
        let query = LogQuery { whole_lines: true, ..query.clone() };
        let mut cursor = from;
        let end = query.stream(job.dir().dir(), |entry| {
            Ok(match &entry {
                _ if !printer.is_json() => printer.tail(&entry, &mut cursor),
                Entry::Line(line) => {
                    *stream_of(&mut cursor, line) = line.end();
                    printer.json_line(line, cursor)
                }
                Entry::Omitted(omitted) => {
                    cursor = omitted.to;
                    Flow::Continue(())
                }
                Entry::Cut(_) => Flow::Continue(()),
            })
        });
        let end = end.map_err(failed())?;
        (from, long) = (end.cursor, end.long_lines);
    }
    let mut reader = LogReader::open(job.dir().dir()).map_err(failed())?.only(query.streams);
    reader.seek(from);
    let mut lines = Matches::new(Lines::new(reader), query.grep.clone());
    let came = |lines: &Matches| Ok((lines.cursor(), long + lines.long_lines()));
    loop {
        while let Some(next) = lines.next_line().map_err(failed())? {
            if print(&next, lines.cursor(), printer).is_break() {
                return came(&lines);
            }
        }
        // A person wants to see a prompt, which has no end. Programs get whole lines.
        if printer.is_watched() && query.grep.is_none() && rest(&mut lines, printer).is_break() {
            return came(&lines);
        }
        if printer.flush().is_break() {
            return came(&lines);
        }
        if !watch.more()? {
            break;
        }
    }
    let _ = rest(&mut lines, printer);
    came(&lines)
}

/// Lines that have no end yet.
fn rest(lines: &mut Matches, printer: &mut Printer) -> Flow {
    while let Some(line) = lines.next_begun() {
        print(&LineOrCut::Line(line), lines.cursor(), printer)?;
    }
    Flow::Continue(())
}

fn print(next: &LineOrCut, cursor: Cursor, printer: &mut Printer) -> Flow {
    match next {
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
