//! `run_tests`: what `quell test` does, by the same rules.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use quell::binary::{LogQuery, printable};
use quell::{Condition, Cursor, Job, JobRequest, Leak, WaitFor};
use quell_guard::{Decision, DecisionCode, Verb};
use quell_test::{TestAnswer, TestPlan, TestStatus, check_tests};
use serde::Deserialize;

use super::start::{background, belongs_here};
use super::{Outcome, ToolCall};
use crate::answer::{headline, seconds, text};
use crate::approval::Approval;
use crate::arguments::limit;
use crate::budget::{DEFAULT, Shape, show};
use crate::clean::quoted;
use crate::failure::ToolFailure;

/// How long the counting of the results may take once the tests have ended.
const COUNTING: Duration = Duration::from_secs(10);
/// How long the tests may take unless the call says otherwise.
const TIMEOUT: Duration = Duration::from_secs(600);
/// How many failed tests are named.
const NAMED: usize = 20;
/// How much of a command line a question shows.
const LONGEST_COMMAND: usize = 2000;

#[derive(Deserialize)]
struct TestArguments {
    command: String,
    #[serde(default)]
    scope: Vec<PathBuf>,
    timeout_s: Option<u64>,
    wait_s: Option<u64>,
    junit: Option<PathBuf>,
}

/// What happens to a run on its own thread.
enum Event {
    Started(Box<Job>),
    Done(Box<quell::Result<TestAnswer>>),
}

pub fn run_tests(call: &ToolCall) -> Result<Outcome, ToolFailure> {
    let args: TestArguments = call.read()?;
    let words = split(&args.command)?;
    let (wait, note) = call.wait(args.wait_s, 50);
    // The guard decides below, with all that is known about the run.
    let config = quell::binary::Config::load_here()?.config;
    let home = call.shared.options.home.clone();
    let quell = quell::binary::open_through(home, super::PROGRAM, None, call.through.clone())?;
    let access = super::Access { quell, config };
    let guard = call.guard(&access.config, None);
    let mut request = JobRequest::new(words, background(call, &access)?);
    access.config.configure(&mut request);
    request.timeout = limit("timeout_s", args.timeout_s)?.or(Some(TIMEOUT));
    request.leak = Leak::Fail;
    belongs_here(call, &mut request);
    let mut plan = TestPlan {
        scope: args.scope,
        junit: args.junit,
        hint: call.shared.options.hint,
        ..TestPlan::new(request)
    };
    let decision = check_tests(&guard, &plan)?;
    if decision.code == DecisionCode::ApprovalRequired {
        let question = about_tests(&args.command, &decision.reason);
        match call.decided(&question) {
            Some(Approval::Given) => plan.approved = true,
            None => return Ok(Outcome::Ask(question)),
            Some(approval) => {
                let typed = format!("quell test --approve -- {}", args.command);
                return Err(guard
                    .refuse(Verb::Test, &args.command, refused(decision, approval, &typed))
                    .into());
            }
        }
    }
    let starting = call.begin_start()?;
    let (send, events) = mpsc::channel();
    let (shared, slot, quell) = (call.shared.clone(), call.slot.clone(), access.quell.clone());
    let run = move || {
        let _slot = slot;
        let started = send.clone();
        let result = quell_test::run_tests(&quell, &guard, &plan, |job| {
            drop(started.send(Event::Started(Box::new(job.clone()))))
        });
        if let Ok(answer) = &result
            && let Some(id) = answer.job
        {
            shared.tested().insert(id, summary(answer));
        }
        let _ = send.send(Event::Done(Box::new(result)));
    };
    let spawned = std::thread::Builder::new().name("mcp-tests".into()).stack_size(2 << 20).spawn(run);
    spawned.map_err(|error| ToolFailure::new("busy", format!("can't start a thread: {error}"), ""))?;
    let gone = |_| ToolFailure::new("internal", "the test run ended without a result", "");
    let job = match events.recv().map_err(gone)? {
        Event::Started(job) => *job,
        Event::Done(result) => return finish((*result)?, None, note),
    };
    call.is_to_report(&job);
    drop(starting);
    call.watch(&job);
    let result = wait_for_result(call, &job, &events, wait, note);
    call.about(&job, result)
}

fn wait_for_result(
    call: &ToolCall,
    job: &Job,
    events: &mpsc::Receiver<Event>,
    wait: Duration,
    note: Option<String>,
) -> Result<Outcome, ToolFailure> {
    let wanted = WaitFor::end().or_interrupted(&call.interrupt);
    let left = wait.saturating_sub(call.began.elapsed());
    let waited = job.wait(&wanted, Some(left))?;
    call.stop_if_unreported(job, waited.met);
    if waited.met == Condition::Exit
        && let Ok(Event::Done(result)) = events.recv_timeout(COUNTING)
    {
        return finish((*result)?, Some(job), note);
    }
    still_running(job, wait, note)
}

fn still_running(job: &Job, wait: Duration, note: Option<String>) -> Result<Outcome, ToolFailure> {
    let mut answer = format!("{}; the tests go on after {}s\n", headline(job)?, wait.as_secs());
    answer.extend(note);
    let shown = show(job, LogQuery::default(), DEFAULT, Shape::MostlyEnd)?;
    answer += &shown.text;
    let _ = writeln!(answer, "next: wait_for jobs=[{}] since={}", job.id(), shown.next);
    Ok(Outcome::Answer(text(answer)))
}

fn finish(answer: TestAnswer, job: Option<&Job>, note: Option<String>) -> Result<Outcome, ToolFailure> {
    let mut lines = match (job, answer.job) {
        (Some(job), _) => format!("{}\n", headline(job)?),
        (None, Some(id)) => format!("job {id}: not run\n"),
        (None, None) => "no job: not run\n".to_owned(),
    };
    lines += &summary(&answer);
    lines.extend(note);
    if let Some(job) = job {
        let shape = if answer.status == TestStatus::Pass { Shape::End } else { Shape::MostlyEnd };
        let query = LogQuery { since: Some(Cursor::default()), ..LogQuery::default() };
        lines += &show(job, query, DEFAULT, shape)?.text;
    }
    Ok(Outcome::Answer(text(lines)))
}

/// The result in a few lines.
fn summary(answer: &TestAnswer) -> String {
    let mut lines =
        format!("tests {}: {} ({})\n", answer.status.as_str(), answer.reason, seconds(answer.duration));
    let counts = &answer.counts;
    let named = [
        (counts.passed, "passed"),
        (counts.failed, "failed"),
        (counts.skipped, "skipped"),
        (counts.errors, "errors"),
    ];
    let known: Vec<String> =
        named.iter().filter_map(|(count, word)| count.map(|count| format!("{count} {word}"))).collect();
    if !known.is_empty() {
        let _ = writeln!(lines, "{} (by {})", known.join(", "), counts.source);
    }
    for name in answer.failed_tests.iter().take(NAMED) {
        let _ = writeln!(lines, "failed: {name}");
    }
    let more = answer.failed_tests.len().saturating_sub(NAMED) as u64 + answer.failed_tests_omitted;
    if more > 0 {
        let _ = writeln!(lines, "and {more} more");
    }
    if let Some(name) = &answer.running_test {
        let _ = writeln!(lines, "was running: {name}");
    }
    for process in &answer.leaked {
        let _ = writeln!(lines, "outlived the tests and was stopped: {} {}", process.id.pid, process.command);
    }
    if let Some(error) = &answer.error {
        let _ = writeln!(lines, "error {}: {} ({})", error.code, error.message, error.hint);
    }
    for problem in &answer.problems {
        let _ = writeln!(lines, "{problem}");
    }
    lines
}

/// The question about a run that needs approval.
fn about_tests(command: &str, why: &str) -> String {
    format!("Run these tests? {}\n{}", quoted(command, LONGEST_COMMAND), printable(why))
}

/// The refusal after the user was asked, or could not be.
pub fn refused(decision: Decision, approval: Approval, typed: &str) -> Decision {
    let reason = match approval {
        Approval::Unavailable => format!("{}; this client can't ask the user", decision.reason),
        Approval::Given | Approval::Denied => "the user did not approve it".to_owned(),
    };
    let hint = format!("ask the user to type `{typed}`");
    Decision { allowed: false, code: DecisionCode::ApprovalRequired, reason, hint, ..decision }
}

/// The words of a plain command line. Shell syntax is refused: the guard decides about what is run, word by word.
fn split(command: &str) -> Result<Vec<String>, ToolFailure> {
    let refuse = |what: &str| {
        Err(ToolFailure::argument(format!(
            "run_tests takes one plain command, and this has {what}: quote it, or use run_command"
        )))
    };
    let (mut words, mut word): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut letters = command.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' => words.extend(word.take()),
            '\'' | '"' => {
                let text = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some(end) if end == letter => break,
                        Some('\\') if letter == '"' => text.extend(letters.next()),
                        Some('$' | '`') if letter == '"' => {
                            return refuse("a variable or a command in quotes");
                        }
                        Some(other) => text.push(other),
                        None => return refuse("a quote that is not closed"),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(letters.next()),
            ';' | '&' | '|' | '<' | '>' | '(' | ')' | '$' | '`' | '\n' => {
                return refuse(&format!("`{}`", letter.escape_debug()));
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    match words.first() {
        None => Err(ToolFailure::argument("`command` is empty")),
        Some(first) if first.contains('=') => refuse("a variable before the command"),
        Some(_) => Ok(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_as_a_shell_would_and_shell_syntax_is_refused() {
        let words = |command: &str| split(command).ok().map(|words| words.join("|"));
        for (command, expected) in [
            ("pytest -q", "pytest|-q"),
            ("pytest 'a b' \"c d\" e\\ f", "pytest|a b|c d|e f"),
            ("pytest t.py::test[x-1]  ''", "pytest|t.py::test[x-1]|"),
            ("go test ./pkg/... -run '^(A|B)$'", "go|test|./pkg/...|-run|^(A|B)$"),
        ] {
            assert_eq!(words(command).as_deref(), Some(expected), "{command}");
        }
        for command in [
            "pytest; rm x",
            "pytest && x",
            "pytest | tee",
            "pytest > f",
            "pytest $HOME",
            "pytest \"$(id)\"",
            "a=b pytest",
            "pytest 'x",
            "",
            "  ",
            "pytest `id`",
            "pytest\nrm",
        ] {
            assert_eq!(words(command), None, "{command:?}");
        }
    }
}
