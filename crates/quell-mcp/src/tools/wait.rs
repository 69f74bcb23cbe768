//! `wait_for`.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use quell::binary::LogQuery;
use quell::{Condition, Job, WaitFor, WaitMode, Waited};
use rmcp::model::CallToolResult;
use serde::Deserialize;

use super::{ToolCall, cursor, has_ended};
use crate::answer::{headline, leftovers, text};
use crate::budget::{self, Shape, show};
use crate::clean::{clean, shorten};
use crate::failure::ToolFailure;

/// How much of a matching line is repeated above the output.
const LONGEST_MATCH: usize = 500;

#[derive(Deserialize)]
struct WaitArguments {
    jobs: Vec<String>,
    until: Option<String>,
    pattern: Option<String>,
    stall_s: Option<u64>,
    #[serde(default)]
    any: bool,
    since: Option<String>,
    wait_s: Option<u64>,
    max_bytes: Option<u64>,
}

pub fn wait_for(call: &ToolCall) -> Result<CallToolResult, ToolFailure> {
    let args: WaitArguments = call.read()?;
    let access = call.access(&args.jobs.join(" "), None)?;
    let (wait, note) = call.wait(args.wait_s, 50);
    let since = cursor(args.since.as_deref())?;
    if args.jobs.is_empty() {
        return Err(ToolFailure::argument("`jobs` is empty: name at least one job"));
    }
    if since.is_some() && args.jobs.len() > 1 {
        return Err(ToolFailure::argument("`since` is a position in one job's output: name only that job"));
    }
    let until = args.until.as_deref().unwrap_or("exit");
    let wanted = match (until, &args.pattern) {
        ("log", Some(pattern)) => WaitFor::end().log(pattern)?.since(since.unwrap_or_default()),
        ("log", None) => return Err(ToolFailure::argument("until=log needs a `pattern`")),
        ("ready", _) => WaitFor::end().ready(),
        ("stall", _) => WaitFor::end().stall(Duration::from_secs(args.stall_s.unwrap_or(10).max(1))),
        _ => WaitFor::end(),
    };
    let jobs = args.jobs.iter().map(|text| call.find(&access.quell, text)).collect::<Result<Vec<_>, _>>()?;
    call.watch(&jobs[0]);
    let mode = if args.any { WaitMode::Any } else { WaitMode::All };
    let wanted = wanted.or_interrupted(&call.interrupt);
    let waited = quell::wait(&jobs, &wanted, mode, Instant::now().checked_add(wait))?;
    let mut answer = note.unwrap_or_default();
    let bytes = (budget::size(args.max_bytes) / jobs.len()).max(budget::size(Some(0)));
    for (job, waited) in jobs.iter().zip(&waited) {
        answer += &describe(call, job, waited, until, wait)?;
        answer += &output(job, since, bytes)?;
    }
    Ok(text(answer))
}

/// The first line about a job, and what ended the wait.
fn describe(
    call: &ToolCall,
    job: &Job,
    waited: &Waited,
    until: &str,
    wait: Duration,
) -> Result<String, ToolFailure> {
    let mut line = headline(job)?;
    match (waited.met, until) {
        (Condition::Log, _) => {
            let matched = waited.line.clone().unwrap_or_default();
            let (matched, _) = clean(matched.as_bytes());
            let _ = write!(line, "\nmatched: {}", shorten(matched, LONGEST_MATCH));
        }
        (Condition::Stall, _) => line += "; it has fallen silent",
        (Condition::Exit, "ready") => line += "; it ended and is NOT READY",
        (Condition::Exit, "log") => line += "; it ended and NO LINE MATCHED",
        (Condition::Nothing, _) => {
            let _ = write!(line, "; still waiting for {until} after {}s", wait.as_secs());
        }
        (Condition::Exit | Condition::Ready, _) => {}
    }
    line.push('\n');
    line += &call.tested(job.id());
    if has_ended(&waited.job) {
        line.extend(job.receipt().ok().map(|receipt| leftovers(&receipt)));
    }
    Ok(line)
}

fn output(job: &Job, since: Option<quell::Cursor>, bytes: usize) -> Result<String, ToolFailure> {
    let ended = has_ended(&job.view()?);
    let shown = show(job, LogQuery { since, ..LogQuery::default() }, bytes, Shape::MostlyEnd)?;
    let mut output = match (shown.text.is_empty(), since) {
        (false, _) => shown.text,
        (true, None) => "[no output]\n".into(),
        (true, Some(_)) => "[no new output]\n".into(),
    };
    if !ended {
        let _ = writeln!(output, "next: wait_for jobs=[{}] since={}", job.id(), shown.next);
    }
    Ok(output)
}
