//! `quell logs --json`: one object, as large as it may become.

use std::ops::ControlFlow;
use std::process::ExitCode;

use quell::binary::{Entry, JobInternals, Line, LogPage, LogQuery, log_line, logs_view};
use quell::{Error, Job};
use serde_json::json;

use super::super::envelope;
use super::{Flow, Printed, SLACK, Shown, within_budget, without_lines};
use crate::output;

/// How much of the object is held in memory. A smaller one is printed when it is whole: what goes wrong before that is told
/// by an object of its own.
const HELD: usize = 4 * 1024 * 1024;

/// Prints the requested part.
pub fn answer(job: &Job, query: &LogQuery) -> Shown {
    let dir = job.dir().dir();
    let fitting = within_budget(query, |query| measure(job, query))?;
    let query = fitting.unwrap_or_else(|| without_lines(query));
    let (mut object, mut others) = (Object::new(), Vec::new());
    let end = query.stream(dir, |entry| match entry {
        Entry::Line(line) => Ok(object.line(&line)),
        entry => {
            others.push(entry);
            Ok(ControlFlow::Continue(()))
        }
    });
    let end = end.map_err(Error::io(dir))?;
    Ok((end.cursor, object.close(job, &LogPage { entries: others, end })))
}

fn measure(job: &Job, query: &LogQuery) -> Result<Printed, Error> {
    let (mut lines, mut others) = (0, Vec::new());
    let end = query.stream(job.dir().dir(), |entry| {
        match entry {
            Entry::Line(line) => lines += quell::binary::json(&log_line(&line)).len() as u64 + 1,
            entry => others.push(entry),
        }
        Ok(Flow::Continue(()))
    });
    let page = LogPage { entries: others, end: end.map_err(Error::io(job.dir().dir()))? };
    let own = envelope("logs", &logs_view(job, &page)).len() as u64 + 4 * SLACK;
    Ok(Printed { lines, own })
}

struct Object {
    text: String,
    /// The text before the first line.
    head: String,
    /// Whether there is a line.
    begun: bool,
    /// The exit code, once no more can be written.
    stopped: Option<ExitCode>,
}

impl Object {
    fn new() -> Self {
        let empty = quell::binary::success("logs", &json!({ "lines": [] }));
        let head = empty.strip_suffix("]}}").unwrap_or_default().to_owned();
        Self { text: head.clone(), head, begun: false, stopped: None }
    }

    fn line(&mut self, line: &Line) -> Flow {
        if std::mem::replace(&mut self.begun, true) {
            self.text.push(',');
        }
        self.text += &quell::binary::json(&log_line(line));
        if self.text.len() >= HELD {
            self.stopped = output::to_reader(&std::mem::take(&mut self.text));
        }
        if self.stopped.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The rest: `page` has all but the lines.
    fn close(self, job: &Job, page: &LogPage) -> Option<ExitCode> {
        let whole = envelope("logs", &logs_view(job, page));
        let rest = whole.strip_prefix(&self.head).unwrap_or_default();
        self.stopped.or_else(|| output::to_stdout(&(self.text + rest)))
    }
}
