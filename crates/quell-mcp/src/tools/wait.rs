//! `wait_for`.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use quell::binary::{LogQuery, regex};
use quell::{Condition, Error, Job, WaitFor, WaitMode, Waited};
use rmcp::model::CallToolResult;
use serde::Deserialize;

use super::{ToolCall, cursor, has_ended};
use crate::answer::{headline, leftovers, text};
use crate::arguments::limit;
use crate::budget::{self, Shape, show};
use crate::clean::{clean, cut};
use crate::failure::ToolFailure;

/// How much of a matching line is repeated above the output.
const LONGEST_MATCH: usize = 500;
/// How long a job prints nothing until it has fallen silent.
const SILENCE: Duration = Duration::from_secs(10);

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
    let until = until(&args)?;
    let wanted = match (until, &args.pattern) {
        ("log", Some(pattern)) => WaitFor::end().log(pattern)?.since(since.unwrap_or_default()),
        ("ready", _) => WaitFor::end().ready(),
        ("stall", _) => WaitFor::end().stall(limit("stall_s", args.stall_s)?.unwrap_or(SILENCE)),
        _ => WaitFor::end(),
    };
    let jobs = args.jobs.iter().map(|text| call.find(&access.quell, text)).collect::<Result<Vec<_>, _>>()?;
    call.watch(&jobs[0]);
    let mode = if args.any { WaitMode::Any } else { WaitMode::All };
    let wanted = wanted.or_interrupted(&call.interrupt);
    let waited = quell::wait(&jobs, &wanted, mode, Instant::now().checked_add(wait))?;
    let mut answer = note.unwrap_or_default();
    let in_time = waited.iter().any(|waited| waited.met != Condition::Nothing);
    let bytes = (budget::size(args.max_bytes) / jobs.len()).max(budget::size(Some(0)));
    for (job, waited) in jobs.iter().zip(&waited) {
        answer += &describe(call, job, waited, until, in_time, args.pattern.as_deref(), wait)?;
        answer += &output(job, since, bytes)?;
    }
    Ok(text(answer))
}

/// What is waited for. A pattern or a time of silence says it too.
fn until(args: &WaitArguments) -> Result<&str, ToolFailure> {
    let until = match (args.until.as_deref(), &args.pattern, args.stall_s) {
        (Some(until), _, _) => until,
        (None, Some(_), Some(_)) => {
            return Err(ToolFailure::argument(
                "`pattern` and `stall_s` are two waits: say which with `until`",
            ));
        }
        (None, Some(_), None) => "log",
        (None, None, Some(_)) => "stall",
        (None, None, None) => "exit",
    };
    match until {
        "log" if args.pattern.is_none() => Err(ToolFailure::argument("until=log needs a `pattern`")),
        "exit" | "ready" if args.pattern.is_some() => {
            Err(ToolFailure::argument(format!("`pattern` is for until=log, not until={until}")))
        }
        "exit" | "ready" if args.stall_s.is_some() => {
            Err(ToolFailure::argument(format!("`stall_s` is for until=stall, not until={until}")))
        }
        _ => Ok(until),
    }
}

/// The first line about a job, and what ended the wait.
fn describe(
    call: &ToolCall,
    job: &Job,
    waited: &Waited,
    until: &str,
    in_time: bool,
    pattern: Option<&str>,
    wait: Duration,
) -> Result<String, ToolFailure> {
    let mut line = headline(job)?;
    match (waited.met, until) {
        (Condition::Log, _) => {
            let matched = waited.line.clone().unwrap_or_default();
            let (matched, _) = clean(matched.as_bytes());
            let found = pattern.and_then(|pattern| Some(regex(pattern).ok()?.find(&matched)?.range()));
            let _ = write!(line, "\nmatched: {}", cut(matched, LONGEST_MATCH, found, |_| String::new()));
        }
        (Condition::Stall, _) => line += "; it has fallen silent",
        (Condition::Exit, "ready") => line += "; it ended and is NOT READY",
        (Condition::Exit, "log") => line += "; it ended and NO LINE MATCHED",
        // Another job has ended the wait.
        (Condition::Nothing, "exit") if in_time => line += "; still running",
        (Condition::Nothing, _) if in_time => {
            let _ = write!(line, "; still waiting for {until}");
        }
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
    let shown = match show(job, LogQuery { since, ..LogQuery::default() }, bytes, Shape::MostlyEnd) {
        Err(Error::Refused(_)) => {
            return Ok("[output is not shown: the policy does not allow `logs`]\n".into());
        }
        shown => shown?,
    };
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
