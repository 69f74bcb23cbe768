//! The status of a test run, from its receipt and what was counted.

use quell_core::{Actor, Cause, Receipt, RootOutcome};

use super::answer::TestStatus;
use super::counts::FoundTests;
use crate::runners::Runner;

/// The meaning of an exit code that the runner documents as something other than failed tests.
fn runner_error(runner: Runner, code: i32) -> Option<&'static str> {
    Some(match (runner, code) {
        (Runner::Pytest, 2) => "pytest was interrupted, or could not collect the tests",
        (Runner::Pytest, 3) => "pytest had an internal error",
        (Runner::Pytest, 4) => "pytest was called with invalid options",
        (Runner::Pytest, 5) => "pytest found no tests",
        (Runner::Nextest, 100) => return None,
        (Runner::Nextest, 4) => "nextest found no tests",
        (Runner::Nextest, 101) => "the tests could not be built",
        (Runner::Nextest, _) => "nextest could not run the tests",
        _ => return None,
    })
}

/// Whether a test has passed or failed: then an exit code that means "nothing was run" is not the runner's own.
fn has_run(code: i32, found: &FoundTests) -> bool {
    code == 5 && found.counts.passed.unwrap_or(0) + found.counts.failed.unwrap_or(0) > 0
}

/// A run that has ended.
pub(super) struct FinishedRun<'a> {
    pub runner: Runner,
    pub receipt: &'a Receipt,
    /// The command exited before a stop was requested.
    pub exited_by_itself: bool,
    /// How many processes outlived the command and were stopped.
    pub leaked: usize,
    pub is_leak_failure: bool,
    /// The report that was named with `--junit` can't be used.
    pub lacks_report: bool,
    pub found: &'a FoundTests,
}

/// The status, and its reason in a sentence.
pub(super) fn status(run: &FinishedRun<'_>) -> (TestStatus, String) {
    let FinishedRun { runner, receipt, found, .. } = *run;
    if let Some((status, reason)) = interruption(receipt).filter(|_| !run.exited_by_itself) {
        return (status, reason);
    }
    let error = |reason: String| (TestStatus::Error, reason);
    let code = match &receipt.root.outcome {
        RootOutcome::Exited { code } => *code,
        RootOutcome::Signaled { signal, .. } => return error(format!("the command was killed by {signal}")),
        RootOutcome::NotStarted { reason } => return error(reason.clone()),
        RootOutcome::Unknown => return error("it is not known how the command ended".into()),
    };
    let (failed, errors) = (found.counts.failed.unwrap_or(0), found.counts.errors.unwrap_or(0));
    if code != 0 {
        let why = match (&found.missing, &found.broken) {
            (Some(line), _) => format!("the runner is not installed: {line}"),
            _ if matches!(code, 126 | 127) && failed + errors == 0 => {
                "a program was not found, or could not be executed".into()
            }
            (_, broken) => match (runner_error(runner, code).filter(|_| !has_run(code, found)), broken) {
                (Some(why), _) => why.into(),
                (None, Some(broken)) if failed == 0 => broken.clone(),
                _ if run.lacks_report => "its report can't be used".into(),
                _ if !found.reported => "the runner exited before it had reported its results".into(),
                _ => return (TestStatus::Fail, format!("the command exited with {code}")),
            },
        };
        return error(format!("{why} (exit code {code})"));
    }
    if run.lacks_report {
        return error("the command exited with 0, but its report can't be used".into());
    }
    if failed + errors > 0 {
        let tests = if failed + errors == 1 { "test" } else { "tests" };
        let reason =
            format!("the command exited with 0, but its report has {} failed {tests}", failed + errors);
        return (TestStatus::Fail, reason);
    }
    if !found.reported {
        return error("the runner exited with 0 before it had reported its results".into());
    }
    if found.ran_none(runner) {
        return error("the runner exited with 0, but no test ran".into());
    }
    if run.leaked > 0 && run.is_leak_failure {
        let left = if run.leaked == 1 { "a process".into() } else { format!("{} processes", run.leaked) };
        return (TestStatus::Leak, format!("the tests passed, but left {left} behind"));
    }
    (TestStatus::Pass, "the command exited with 0".into())
}

/// The status of a run that did not end by the exit of its command.
fn interruption(receipt: &Receipt) -> Option<(TestStatus, String)> {
    let what = match receipt.cause {
        Cause::OwnExit | Cause::UserSignal | Cause::ExternalSignal => return None,
        Cause::Timeout => return Some((TestStatus::Timeout, "its time was up".into())),
        Cause::User => "it was stopped",
        Cause::Limit => "it was ended at a limit",
        Cause::StartFailed => "it could not be started",
        Cause::KeeperLost => "it was cut short: its keeper was lost",
        Cause::FrontLost | Cause::OwnerGone | Cause::InputClosed => {
            "it was cut short: the process that owned it is gone"
        }
        Cause::HostReboot => "it was cut short: the machine was restarted",
    };
    let actor = match &receipt.actor {
        Actor::Client { reason: Some(reason), .. } => format!(" ({reason})"),
        Actor::Sender { signal, pid, .. } => format!(" ({signal} from PID {pid})"),
        _ => String::new(),
    };
    Some((TestStatus::Error, format!("{what}{actor}")))
}
