//! Answers: a text that begins with one stable line per job, or facts as JSON.

use std::fmt::Write as _;

use quell::binary::grouped;
use quell::{Actor, Cause, Job, JobState, JobView, Receipt, RootOutcome, Verdict};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use crate::failure::ToolFailure;

/// How many processes are named.
const NAMED: usize = 5;

/// A number with its unit: `1 line`, `1,204 lines`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// A time: `0.25s`, `12.3s`, `2m05s`, `3h10m`.
pub fn seconds(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..1 => format!("{seconds:.2}s"),
        1..60 => format!("{seconds:.1}s"),
        60..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        _ => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
    }
}

/// A successful result that is only text.
pub fn text(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// A successful result of facts: the same as JSON and as text, as clients show the model only one of them.
pub fn facts(facts: Value) -> CallToolResult {
    let mut result = text(facts.to_string());
    result.structured_content = Some(facts);
    result
}

/// The line that every answer about a job begins with, without a line end.
pub fn headline(job: &Job) -> Result<String, ToolFailure> {
    let view = job.view()?;
    let receipt = if view.state == JobState::Ended { job.receipt().ok() } else { None };
    Ok(format!("job {}{}: {}", view.id, named(&view), state(&view, receipt.as_ref())))
}

fn named(view: &JobView) -> String {
    view.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default()
}

/// The state in words.
fn state(view: &JobView, receipt: Option<&Receipt>) -> String {
    if let Some(receipt) = receipt {
        return ended(receipt);
    }
    let age = seconds(age(view));
    match view.state {
        JobState::Running => format!("running for {age}"),
        JobState::Ready => format!("ready, running for {age}"),
        JobState::Waiting => format!("waits to be started again, run {}", view.run),
        JobState::Lost => "lost: its keeper was killed; stop_jobs finishes it".into(),
        state => state.to_string(),
    }
}

/// How long the present run has lasted, in seconds.
pub fn age(view: &JobView) -> f64 {
    let begun = view.started.unwrap_or(view.created);
    (quell::binary::now().unix_ms() - begun.unix_ms()).max(0) as f64 / 1000.0
}

fn ended(receipt: &Receipt) -> String {
    let how = match &receipt.root.outcome {
        RootOutcome::Exited { code } => format!("exited {code}"),
        RootOutcome::Signaled { signal, .. } => format!("killed by {signal}"),
        RootOutcome::NotStarted { reason } => format!("not started: {reason}"),
        RootOutcome::Unknown => "ended, its exit code is not known".into(),
    };
    let why = match receipt.cause {
        Cause::OwnExit | Cause::StartFailed => String::new(),
        Cause::Timeout => " (stopped: its time was up)".into(),
        Cause::User => format!(" (stopped{})", reason(&receipt.actor)),
        Cause::UserSignal | Cause::ExternalSignal => " (a signal from outside)".into(),
        Cause::Limit => " (killed: over its limit)".into(),
        Cause::OwnerGone => " (stopped: its owner was gone)".into(),
        Cause::FrontLost | Cause::KeeperLost => " (stopped: quell's own process was killed)".into(),
        Cause::HostReboot => " (the host was restarted)".into(),
        Cause::InputClosed => " (its input was closed)".into(),
    };
    let seen = receipt.members.len() as u64 + receipt.members_omitted;
    let left = match &receipt.verdict {
        Verdict::Gone => "0 left".to_owned(),
        Verdict::Survivors { count } => format!("{count} STILL ALIVE"),
        Verdict::Unproven { why } => format!("not proven gone: {why}"),
    };
    format!(
        "{how}{why} after {}; {}, {left}",
        seconds(receipt.ended.at),
        count(seen, "process seen", "processes seen")
    )
}

fn reason(actor: &Actor) -> String {
    match actor {
        Actor::Client { reason: Some(reason), .. } => format!(": {reason}"),
        _ => String::new(),
    }
}

/// The processes that outlived the command, a line for each.
pub fn leftovers(receipt: &Receipt) -> String {
    let mut text = String::new();
    let left = &receipt.left_at_root_exit;
    let named = receipt.members.iter().filter(|member| left.contains(&member.id));
    for member in named.take(NAMED) {
        let _ = writeln!(text, "left behind and stopped: {} {}", member.id.pid, member.command);
    }
    if left.len() > NAMED {
        let _ = writeln!(text, "and {} more", left.len() - NAMED);
    }
    text
}

/// A job in lists.
pub fn brief(view: &JobView, session: &str) -> Value {
    let mut fields = json!({ "id": view.id, "state": view.state, "command": shown_command(view) });
    let mut add = |key: &str, value: Value| {
        if !value.is_null() {
            fields[key] = value;
        }
    };
    add("name", json!(view.name));
    add("ended", json!(view.ended));
    add("started", json!(view.started));
    match &view.outcome {
        Some(RootOutcome::Exited { code }) => add("exit_code", json!(code)),
        Some(RootOutcome::Signaled { signal, .. }) => add("signal", json!(signal)),
        Some(RootOutcome::NotStarted { reason }) => add("not_started", json!(reason)),
        Some(RootOutcome::Unknown) | None => {}
    }
    add("cause", json!(view.cause));
    if view.is_not_proven_dead() {
        add("verdict", json!(view.verdict));
    }
    if view.session.as_deref() != Some(session) {
        add("session", json!(view.session));
    }
    fields
}

/// The command as the model gave it: without the shell that runs it.
pub fn shown_command(view: &JobView) -> String {
    match view.command.as_slice() {
        [shell, option, command] if option == "-c" && (shell == "bash" || shell == "sh") => command.clone(),
        words => words.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_easy_to_read() {
        assert_eq!(count(1, "line", "lines"), "1 line");
        assert_eq!(count(0, "line", "lines"), "0 lines");
        assert_eq!(count(1_234_567, "line", "lines"), "1,234,567 lines");
        for (time, text) in [(0.254, "0.25s"), (12.34, "12.3s"), (125.0, "2m05s"), (11_400.0, "3h10m")] {
            assert_eq!(seconds(time), text);
        }
    }
}
