//! Output for streams: read from disk once for all streams that are at the same place.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use quell::binary::responses::Followed;
use quell::binary::{JobInternals, LineOrCut, Lines, LogReader, json, log_cut, log_line, look};
use quell::{Cursor, Error, Job, JobId, JobState};
use serde::Serialize;

/// How much output is sent at once.
const BATCH: usize = 64 * 1024;
/// How many readings are kept for other streams.
const KEPT: usize = 32;

/// The last readings.
#[derive(Debug, Default)]
pub struct Readings(Mutex<VecDeque<Reading>>);

#[derive(Clone, Debug)]
struct Reading {
    job: JobId,
    from: Cursor,
    begun: Instant,
    read: ReadOn,
}

/// Output that was read.
#[derive(Clone, Debug)]
pub struct ReadOn {
    pub text: Arc<str>,
    pub cursor: Cursor,
    /// Whether there may be more.
    pub is_more: bool,
}

impl Readings {
    /// What follows `from`, as of `since` or later. Blocks.
    pub fn read(&self, job: &Job, from: Cursor, since: Instant) -> quell::Result<ReadOn> {
        // Another stream may have read it while this one waited for its turn.
        if let Some(read) = self.known(job.id(), from, since) {
            return Ok(read);
        }
        let begun = Instant::now();
        let read = read_on(job, from)?;
        // Nothing is no reading: there may be something the next time.
        if read.cursor != from {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_front(Reading { job: job.id(), from, begun, read: read.clone() });
            kept.truncate(KEPT);
        }
        Ok(read)
    }

    /// The same if another stream has read it already. Does not block.
    pub fn known(&self, job: JobId, from: Cursor, since: Instant) -> Option<ReadOn> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.iter().find(|reading| reading.job == job && reading.from == from)?;
        // What was written after that reading is read the next time.
        Some(ReadOn { is_more: kept.read.is_more || kept.begun < since, ..kept.read.clone() })
    }
}

#[derive(Serialize)]
struct OfJob<'a> {
    job: JobId,
    #[serde(flatten)]
    followed: &'a Followed,
}

/// Reads what follows `cursor`, up to [`BATCH`]. The last line of a job may have no line end.
fn read_on(job: &Job, cursor: Cursor) -> quell::Result<ReadOn> {
    let failed = || Error::io(job.dir().dir());
    // Before reading: a job that had ended then writes no more.
    let has_ended = look(job.dir())?.state == JobState::Ended;
    let mut reader = LogReader::open(job.dir().dir()).map_err(failed())?;
    reader.seek(cursor);
    let mut lines = Lines::new(reader);
    let (mut text, mut is_more) = (String::new(), false);
    loop {
        let next = match lines.next_line().map_err(failed())? {
            None if has_ended => lines.next_begun().map(LineOrCut::Line),
            next => next,
        };
        let Some(next) = next else { break };
        let cursor = lines.cursor();
        let (kind, followed) = match next {
            LineOrCut::Line(line) => ("log", Followed::Line { line: log_line(&line), cursor }),
            LineOrCut::Cut(cut) => ("cut", Followed::Cut { cut: log_cut(&cut), cursor }),
        };
        let _ =
            write!(text, "event: {kind}\ndata: {}\n\n", json(&OfJob { job: job.id(), followed: &followed }));
        if text.len() >= BATCH {
            is_more = true;
            break;
        }
    }
    Ok(ReadOn { text: text.into(), cursor: lines.cursor(), is_more })
}
