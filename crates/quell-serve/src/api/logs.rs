//! A part of a job's output.

use quell::binary::{JobInternals, LogQuery, Streams, logs_view, regex};

use crate::answer::HttpFailure;
use crate::call::{HttpCall, Reply};

/// How much text an answer has by default, and at most.
const BUDGET: u64 = 256 * 1024;
pub const MOST: u64 = 4 << 20;
/// How many lines can be asked for.
pub const MOST_LINES: u64 = 20_000;

pub async fn logs(call: HttpCall) -> Reply {
    call.with_access(|call, access| {
        let query = &call.query;
        let job = call.job(access)?;
        job.check_has_logs()?;
        let lines = |name| query.count(name).map(|lines| lines as usize);
        let (mut head, tail) = (lines("head"), lines("tail"));
        if head.is_none() && tail.is_none() && query.cursor("since").is_some() {
            // What follows a cursor is read in order, page by page.
            head = Some(MOST_LINES as usize);
        }
        let query = LogQuery {
            since: query.cursor("since"),
            until: query.cursor("until"),
            head,
            tail,
            budget: Some(query.count("budget").unwrap_or(BUDGET)),
            grep: query.text("grep").map(regex).transpose()?,
            streams: match query.text("stream") {
                Some("stdout") => Streams::Stdout,
                Some("stderr") => Streams::Stderr,
                _ => Streams::default(),
            },
            whole_lines: false,
        };
        let page = job.log_page(&query)?;
        Ok::<_, HttpFailure>(logs_view(&job, &page))
    })
    .await
}
