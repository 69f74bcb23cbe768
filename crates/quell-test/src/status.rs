//! The status of a test run, from what is known of it.

use crate::runners::Runner;
use quell_core::{Actor, Cause, Receipt, RootOutcome};

use super::answer::TestStatus;
use super::counts::FoundTests;

/// What pytest means by an exit code that is neither 0 nor 1.
fn pytest_error(code: i32) -> Option<&'static str> {
    match code {
        2 => Some("pytest was interrupted, or could not collect the tests"),
        3 => Some("pytest had an internal error"),
        4 => Some("pytest was called wrongly"),
        5 => Some("pytest found no tests"),
        _ => None,
    }
}

/// What nextest means by an exit code.
fn nextest_error(code: i32) -> Option<&'static str> {
    match code {
        0 | 100 => None,
        4 => Some("nextest found no tests"),
        101 => Some("the tests could not be built"),
        _ => Some("nextest could not run the tests"),
    }
}

/// What is known of a run.
pub(super) struct Facts<'a> {
    pub runner: Runner,
    pub receipt: &'a Receipt,
    /// The command exited before a stop was asked for.
    pub own_end: bool,
    /// How many processes had to be stopped after that.
    pub leaked: usize,
    pub is_leak_failure: bool,
    pub found: Option<&'a FoundTests>,
}

/// The status, and the reason.
pub(super) fn judge(facts: &Facts<'_>) -> (TestStatus, String) {
    let Facts { runner, receipt, found, .. } = *facts;
    let say = |status: TestStatus, reason: &str| (status, reason.to_owned());
    match receipt.cause {
        _ if facts.own_end => {}
        Cause::Timeout => return say(TestStatus::Timeout, "its time was up"),
        Cause::User => {
            let why = match &receipt.actor {
                Actor::Client { reason: Some(reason), .. } => format!(" ({reason})"),
                _ => String::new(),
            };
            return (TestStatus::Error, format!("it was stopped{why}"));
        }
        Cause::Limit => return say(TestStatus::Error, "it was ended at a limit"),
        Cause::KeeperLost | Cause::FrontLost | Cause::OwnerGone | Cause::HostReboot => {
            return say(TestStatus::Error, "it was cut short: its keeper or owner was lost");
        }
        Cause::StartFailed => return say(TestStatus::Error, "it could not be started"),
        Cause::OwnExit | Cause::UserSignal | Cause::ExternalSignal => {}
    }
    let code = match &receipt.root.outcome {
        RootOutcome::Exited { code } => *code,
        RootOutcome::Signaled { signal, .. } => {
            return (TestStatus::Error, format!("the command died of {signal}"));
        }
        RootOutcome::NotStarted { reason } => return (TestStatus::Error, reason.clone()),
        RootOutcome::Unknown => return say(TestStatus::Error, "it is not known how the command ended"),
    };
    let bad = found.map_or(0, |found| found.counts.failed.unwrap_or(0) + found.counts.errors.unwrap_or(0));
    if code != 0 {
        if let Some(why) = found.filter(|found| found.missing).and_then(|found| found.broken.as_ref()) {
            return (TestStatus::Error, format!("the runner is not installed: {why} (exit code {code})"));
        }
        if matches!(code, 126 | 127) && bad == 0 {
            return (
                TestStatus::Error,
                format!("a program was not found, or could not be executed (exit code {code})"),
            );
        }
        let said = match runner {
            Runner::Pytest => pytest_error(code),
            Runner::Nextest => nextest_error(code),
            _ => None,
        };
        if let Some(why) = said {
            return (TestStatus::Error, format!("{why} (exit code {code})"));
        }
        let failed = found.and_then(|found| found.counts.failed).unwrap_or(0);
        if failed == 0
            && let Some(why) = found.and_then(|found| found.broken.as_ref())
        {
            return (TestStatus::Error, format!("{why} (exit code {code})"));
        }
        return (TestStatus::Fail, format!("the command exited with {code}"));
    }
    if bad > 0 {
        return (
            TestStatus::Fail,
            format!("the command exited with 0, but its report has {bad} failed tests"),
        );
    }
    let left = facts.leaked;
    if left > 0 && facts.is_leak_failure {
        let left = if left == 1 { "a process".into() } else { format!("{left} processes") };
        return (TestStatus::Leak, format!("the tests passed, but left {left} behind"));
    }
    say(TestStatus::Pass, "the command exited with 0")
}
