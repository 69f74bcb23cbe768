//! `read_output`.

use quell::binary::{LogQuery, Streams, regex};
use rmcp::model::CallToolResult;
use serde::Deserialize;

use super::{ToolCall, cursor, has_ended};
use crate::answer::{headline, text};
use crate::budget::{self, Shape, show};
use crate::failure::ToolFailure;

#[derive(Deserialize)]
struct ReadArguments {
    job: String,
    since: Option<String>,
    tail: Option<usize>,
    head: Option<usize>,
    grep: Option<String>,
    stream: Option<String>,
    max_bytes: Option<u64>,
}

pub fn read_output(call: &ToolCall) -> Result<CallToolResult, ToolFailure> {
    let args: ReadArguments = call.read()?;
    let access = call.access("", None)?;
    let job = call.find(&access.quell, &args.job)?;
    let ended = has_ended(&job.view()?);
    let since = cursor(args.since.as_deref())?;
    let shape = match (args.head, args.tail, since) {
        (None, Some(_), _) => Shape::End,
        (Some(_), None, _) | (None, None, Some(_)) => Shape::Page,
        (None, None, None) | (Some(_), Some(_), _) => Shape::BothEnds,
    };
    let query = LogQuery {
        since,
        head: args.head,
        tail: args.tail,
        grep: args.grep.as_deref().map(regex).transpose()?,
        streams: match args.stream.as_deref() {
            Some("stdout") => Streams::Stdout,
            Some("stderr") => Streams::Stderr,
            _ => Streams::Both,
        },
        ..LogQuery::default()
    };
    let is_filtered = query.grep.is_some() || args.stream.is_some();
    let shown = show(&job, query, budget::size(args.max_bytes), shape)?;
    let mut answer = headline(&job)? + "\n";
    answer += match (shown.text.as_str(), is_filtered, since) {
        ("", true, _) => "[no such output]\n",
        ("", false, None) => "[no output]\n",
        ("", false, Some(_)) => "[no new output]\n",
        (text, _, _) => text,
    };
    for failed in job.unwritten() {
        answer +=
            &format!("[output was lost from byte {} of {} on: {}]\n", failed.from, failed.stream, failed.why);
    }
    if !ended && !shown.more {
        answer += &format!("next: read_output job={} since={}\n", job.id(), shown.next);
    }
    Ok(text(answer))
}
