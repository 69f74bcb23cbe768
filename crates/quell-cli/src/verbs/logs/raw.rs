//! The bytes of the output as they were written: nothing added, nothing changed. On a terminal that is so with `--raw` alone.

use std::io::{self, IsTerminal, Write};

use quell::binary::{JobInternals, LogQuery, LogReader, Piece};
use quell::{Cursor, Error, Job};

use super::Shown;
use super::print::{LogLimits, complain};
use crate::args::LogsArgs;
use crate::output;
use crate::render::ControlFilter;

/// Copies the requested part to standard output. Gaps are reported on standard error.
pub fn copy(job: &Job, args: &LogsArgs, query: &LogQuery) -> Shown {
    let failed = || Error::io(job.dir().dir());
    let mut watch = if args.follow { Some(job.watch_logs()?) } else { None };
    let mut reader = LogReader::open(job.dir().dir()).map_err(failed())?.only(query.streams);
    reader.seek(query.since.unwrap_or_default());
    if !args.follow {
        // Only the present output: a job may write faster than this reads.
        let nothing = LogQuery { tail: Some(0), ..LogQuery::default() };
        let totals = job.log_page(&nothing)?.end.totals;
        let now = Cursor { out: totals.stdout.bytes, err: totals.stderr.bytes };
        let until = query.until.unwrap_or(now);
        reader.stop_at(Cursor { out: until.out.min(now.out), err: until.err.min(now.err) });
    }
    let limits = LogLimits::of(job);
    let mut out = io::stdout().lock();
    let mut filter = (!args.raw && out.is_terminal()).then(ControlFilter::default);
    loop {
        while let Some(piece) = reader.next_piece().map_err(failed())? {
            let written = match piece {
                Piece::Data { bytes, .. } => match &mut filter {
                    Some(filter) => out.write_all(&filter.pass(bytes)),
                    None => out.write_all(bytes),
                },
                Piece::Cut(cut) => {
                    out.flush().map(|()| output::to_stderr(&format!("{}\n", limits.cut_marker(&cut))))
                }
            };
            if let Err(error) = written {
                return Ok((reader.cursor(), complain(Some(error))));
            }
        }
        if let Err(error) = out.flush() {
            return Ok((reader.cursor(), complain(Some(error))));
        }
        let more = match &mut watch {
            Some(watch) => watch.more()?,
            None => false,
        };
        if !more {
            let end = filter.map_or(&[][..], |mut filter| filter.close());
            return Ok((reader.cursor(), complain(out.write_all(end).and_then(|()| out.flush()).err())));
        }
    }
}
