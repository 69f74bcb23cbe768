//! `quell test`: runs tests that the guard allows, with a time limit, and prints the result.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::thread::JoinHandle;

use quell::binary::{JobInternals, LogReader, Piece, grouped, printable};
use quell::{Background, Cause, Error, Job, JobRequest, Leak, Signal, StopPlan, Stream, Verdict};
use quell_test::{TestAnswer, TestPlan, TestStatus, run_tests};

use super::interrupts::Interrupts;
use super::{Admitted, envelope, fail, guard_of};
use crate::args::TestArgs;
use crate::errors::{self, exit};
use crate::output;
use crate::render::ControlFilter;
use crate::render::format;

/// How many names of failed tests are printed for people.
const NAMES: usize = 20;

pub fn test(admitted: Admitted, args: TestArgs) -> ExitCode {
    let json = args.json;
    let (answer, stopped) = match carry_out(admitted, args) {
        Ok(done) => done,
        Err(error) => return fail("test", json, &error),
    };
    let text = if json { envelope("test", &answer) } else { summary(&answer) };
    output::to_stdout(&text).unwrap_or(ExitCode::from(code(&answer, stopped)))
}

/// Also returns the signal that this process got during the run, if any.
fn carry_out(admitted: Admitted, args: TestArgs) -> Result<(TestAnswer, Option<Signal>), Error> {
    let mut interrupts = Interrupts::hold();
    let (quell, loaded) = (admitted.quell?, admitted.settings?);
    for warning in &loaded.warnings {
        output::to_stderr(&format!("quell: {warning}\n"));
    }
    let config = loaded.config;
    let guard = guard_of(&quell, &config, args.reason);
    let background = Background { max_log: config.start.max_log, ..Background::default() };
    let mut request = JobRequest::new(args.command, background);
    request.contain = config.start.contain;
    let ask = args.ask.map_or(config.stop.ask, Into::into);
    request.stop = StopPlan { grace: args.grace.unwrap_or(config.stop.grace), ask, ..config.stop };
    request.timeout = args.timeout.map_or(config.test.timeout, |bound| bound.0);
    request.leak = args.leak.into();
    if request.leak == Leak::Keep {
        let why = "--leak keep is for `quell run`: tests leave nothing behind";
        return Err(Error::BadValue(why.into()));
    }
    (request.name, request.tags) = (args.name, args.tag.into_iter().collect());
    request.hooks = config.hooks;
    request.mask = config.start.mask;
    output::hide(request.masked_values());
    let plan = TestPlan {
        scope: args.scope,
        junit: args.junit,
        evidence: args.evidence,
        max_output: args.max_output,
        approved: args.approve,
        require_target: args.require_target,
        hint: errors::hint,
        ..TestPlan::new(request)
    };
    let mut shown = None;
    let answer = run_tests(&quell, &guard, &plan, |job| {
        interrupts.stop(job, "test");
        shown = (!args.json).then(|| follow(job));
    });
    // Everything is on record: from here on a signal may end this process.
    let signal = interrupts.let_go();
    // Print all output before the summary.
    if let Some(thread) = shown.flatten() {
        let _ = thread.join();
    }
    Ok((answer?, signal))
}

/// Prints what the tests write, while they run. If that fails, the record still has the output.
fn follow(job: &Job) -> Option<JoinHandle<()>> {
    let job = job.clone();
    let pass_on = move || -> Option<()> {
        let mut watch = job.watch_logs().ok()?;
        let mut reader = LogReader::open(job.dir().dir()).ok()?;
        let filter = |is_terminal: bool| is_terminal.then(ControlFilter::default);
        let mut out = filter(std::io::stdout().is_terminal());
        let mut err = filter(std::io::stderr().is_terminal());
        loop {
            while let Some(piece) = reader.next_piece().ok()? {
                let Piece::Data { stream, bytes, .. } = piece else { continue };
                let filter = if stream == Stream::Stdout { &mut out } else { &mut err };
                let bytes = filter.as_mut().map_or(bytes.into(), |filter| Cow::from(filter.pass(bytes)));
                write(stream, &bytes)?;
            }
            if !watch.more().ok()? {
                break;
            }
        }
        // The colours of the tests must not hide the summary.
        write(Stream::Stdout, out.map_or(b"", |mut filter| filter.close()))?;
        write(Stream::Stderr, err.map_or(b"", |mut filter| filter.close()))
    };
    let show = move || {
        let _ = pass_on();
    };
    std::thread::Builder::new().spawn(show).ok()
}

fn write(stream: Stream, bytes: &[u8]) -> Option<()> {
    match stream {
        Stream::Stdout => {
            let mut out = std::io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush()).ok()
        }
        Stream::Stderr => std::io::stderr().write_all(bytes).ok(),
    }
}

fn code(answer: &TestAnswer, signal: Option<Signal>) -> u8 {
    let unproven = answer.receipt.as_ref().is_some_and(|receipt| receipt.verdict != Verdict::Gone)
        || answer.error.as_ref().is_some_and(|error| error.code == "not_proven_dead");
    if unproven {
        return exit::NOT_PROVEN_DEAD;
    }
    // A result that the tests reached by themselves counts, even if a signal came right after it.
    let stopped = answer.receipt.as_ref().is_some_and(|receipt| receipt.cause == Cause::User);
    match answer.status {
        TestStatus::Error if stopped && signal.is_some() => {
            signal.map_or(exit::FAILED, |signal| 128 + signal.number() as u8)
        }
        TestStatus::Pass => 0,
        TestStatus::Fail | TestStatus::Leak => exit::NO,
        TestStatus::Timeout => exit::RUN_TIMED_OUT,
        TestStatus::Error | TestStatus::Refused => exit::FAILED,
    }
}

/// The text below the output.
fn summary(answer: &TestAnswer) -> String {
    // The output before it may have ended in the middle of a line.
    let open = [&answer.stdout, &answer.stderr]
        .iter()
        .any(|stream| !stream.text.is_empty() && !stream.text.ends_with('\n'));
    let mut text = format!(
        "{}quell: {}: {} ({})\n",
        if open { "\n" } else { "" },
        answer.status.as_str(),
        answer.reason,
        format::seconds(answer.duration)
    );
    let counts = &answer.counts;
    let named = [
        (counts.passed, "passed"),
        (counts.failed, "failed"),
        (counts.skipped, "skipped"),
        (counts.errors, if counts.errors == Some(1) { "error" } else { "errors" }),
    ];
    let known: Vec<String> = named
        .iter()
        .filter_map(|(count, word)| count.map(|count| format!("{} {word}", grouped(count))))
        .collect();
    if !known.is_empty() {
        let so_far = if counts.complete { "" } else { ", up to the end of the output" };
        text += &format!("  {} (by {}{so_far})\n", known.join(", "), counts.source);
    }
    for name in answer.failed_tests.iter().take(NAMES) {
        text += &format!("  failed: {}\n", printable(name));
    }
    let more = answer.failed_tests.len().saturating_sub(NAMES) as u64 + answer.failed_tests_omitted;
    if more > 0 {
        text += &format!("  … and {} more\n", grouped(more));
    }
    if let Some(name) = &answer.running_test {
        text += &format!("  was running: {}\n", printable(name));
    }
    if let Some(error) = &answer.error {
        text += &format!("  {}\n", error.hint);
    }
    let alive = answer.tree_at_timeout.iter().flat_map(|tree| &tree.processes);
    for process in alive {
        text += &format!("  was alive: {} {}\n", process.id.pid, printable(&process.command));
    }
    for process in &answer.leaked {
        text += &format!(
            "  outlived the tests and was stopped: {} {}\n",
            process.id.pid,
            printable(&process.command)
        );
    }
    for problem in &answer.problems {
        text += &format!("  {}\n", printable(problem));
    }
    if let Some(receipt) = &answer.receipt
        && receipt.verdict != Verdict::Gone
    {
        text += &format!("  {}\n", format::verdict(&receipt.verdict));
    }
    if let Some(job) = answer.job {
        let output = answer.receipt.as_ref().and_then(|receipt| receipt.output);
        let cut = output.map_or(0, |output| output.stdout.cut_bytes + output.stderr.cut_bytes);
        text += &match cut {
            0 => format!("  `quell logs {job}` shows the whole output\n"),
            cut => {
                let cut = crate::render::bytes(cut);
                format!("  `quell logs {job}` shows the output that was kept; {cut} of it was not\n")
            }
        };
    }
    text
}
