//! The roles in which quell executes itself: the keeper of a background job, and the teller of a lost job's hooks.
//!
//! Any process can execute quell in these roles, with a request of its own on standard input. So each role asks the guard
//! itself and writes the audit line before it runs anything, whatever its caller has done already.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use quell_core::{JobRequest, Mask};
use quell_guard::{Asker, BUILT_IN, Decision, Guard, Permit, Policy, Verb, decide_verb};
use quell_keeper::{HookNotice, StartError, StartMessage, StartReply};
use quell_store::Home;

use crate::start::resolve_request;
use crate::{Config, Error, Result};

/// The exit code of what the guard refuses.
const REFUSED: u8 = 4;

/// How large the notice about a lost job can be: a few events.
const MOST_NOTICE: u64 = 1 << 20;

/// A request that the guard admits as a test run.
#[derive(Clone, Debug)]
pub struct AdmittedTests {
    /// What it said.
    pub decision: Decision,
    /// The request made again: what was checked, and of the rest only what can't run or write anything.
    pub request: JobRequest,
}

/// What the guard says about a request as a test run; none if it is not one. The crate `quell-test` knows.
pub type TestJudge =
    fn(&Config, &Home, &JobRequest) -> Option<std::result::Result<AdmittedTests, Box<Decision>>>;

/// The whole life of `quell __keep`: keeps the job that is asked for on standard input, if the guard admits it, as a start or,
/// by `judge`, as a test run.
///
/// Before: this process was executed for nothing else, and has one thread.
pub fn keep(judge: TestJudge) -> ExitCode {
    quell_keeper::keeper_main(|message, stdin| {
        let path = message.home.clone();
        admit_request(message, stdin, judge).map_err(|error| match error {
            Error::Refused(decision) => StartReply::Refused(decision),
            Error::Start(error) => StartReply::Failed(error),
            Error::BadValue(why) => StartReply::Failed(StartError::Start(why)),
            error if error.is_out_of_descriptors() => StartReply::Failed(StartError::System {
                what: "write the audit log".into(),
                error: error.to_string(),
            }),
            error => StartReply::Failed(StartError::Record { path, error: error.to_string() }),
        })
    })
}

/// The whole life of `quell __tell`: tells the hooks of a lost job, if the guard admits that. Hooks run commands, and the
/// record that they come from can be forged: they need what a start needs.
///
/// Before: this process was executed for nothing else, and has one thread.
pub fn tell() -> ExitCode {
    let mut text = String::new();
    let read = std::io::stdin().take(MOST_NOTICE).read_to_string(&mut text);
    let Some(notice) = serde_json::from_str::<HookNotice>(&text).ok().filter(|_| read.is_ok()) else {
        return ExitCode::FAILURE;
    };
    let target = format!("hooks of {}", notice.job);
    let config = Config::from_files_here();
    let mask = config.as_ref().map(Config::mask).unwrap_or_default();
    let decision = config.map(|config| decide_verb(&config.guard, Verb::Start));
    match note(&Home::at(&notice.home), mask, Verb::Start, &target, decision) {
        Ok(_) => quell_keeper::notify_hooks(notice),
        Err(_) => ExitCode::from(REFUSED),
    }
}

fn program(request: &JobRequest) -> String {
    let program = request.command.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    request.masked_values().apply(&program)
}

/// What the log does not show of a request: what the settings mask, and what is masked of the job.
fn mask_of(config: &Config, request: &JobRequest) -> Mask {
    config.mask_with(&request.mask, &request.env.set)
}

/// Refuses a request that today's policy does not admit. The process that starts the job asks again, and writes the line of
/// an allowance.
pub(crate) fn check_request(home: &Home, request: &JobRequest) -> Result<()> {
    let config = Config::from_files_here()?;
    // Test runs are not restarted.
    let (verb, decision, _) = decide_request(&config, home, request, |_, _, _| None);
    if decision.allowed {
        return Ok(());
    }
    let mask = mask_of(&config, request);
    Err(Guard::new(home, config.guard).masking(mask).refuse(verb, &program(request), decision).into())
}

/// Lets a request for a background job pass, or refuses it. A test run is made again from what was checked of it. After: the
/// log has a line about it.
fn admit_request(message: StartMessage, stdin: OwnedFd, judge: TestJudge) -> Result<(StartMessage, OwnedFd)> {
    let home = Home::at(&message.home);
    let request = &message.request;
    let program = program(request);
    let (mask, verb, decision, tests) = match Config::from_files_here() {
        Ok(config) => {
            let (verb, decision, tests) = decide_request(&config, &home, request, judge);
            (mask_of(&config, request), verb, Ok(decision), tests)
        }
        Err(error) => (mask_of(&Config::default(), request), Verb::Start, Err(error), None),
    };
    // What comes of it is written down by the caller.
    let _permit = note(&home, mask, verb, &program, decision)?;
    match tests {
        Some(tests) => {
            let (request, stdin) = resolve_request(&home, &tests.request)?;
            Ok((StartMessage { home: message.home, request }, stdin))
        }
        None => Ok((message, stdin)),
    }
}

/// Whether today's policy lets a background job be started, and the verb that it is admitted as: a start, or else a test run
/// if it is one. The request of a test run holds only as it is given back.
fn decide_request(
    config: &Config,
    home: &Home,
    request: &JobRequest,
    judge: TestJudge,
) -> (Verb, Decision, Option<AdmittedTests>) {
    let start = decide_verb(&config.guard, Verb::Start);
    let masked = |decision: Decision| decision.masked_about(&request.masked_values(), &request.words());
    // The command of a probe is run by `quell run`, which asks the policy again each time.
    let run = decide_verb(&config.guard, Verb::Run);
    let has_probe = request.as_background().is_some_and(|background| background.ready.rules.cmd.is_some());
    if start.allowed && has_probe && !run.allowed {
        return (Verb::Run, run, None);
    }
    if start.allowed {
        return (Verb::Start, start, None);
    }
    match judge(config, home, request) {
        Some(Ok(tests)) => (Verb::Test, tests.decision.clone(), Some(tests)),
        Some(Err(refusal)) => (Verb::Test, masked(*refusal), None),
        None => (Verb::Start, start, None),
    }
}

/// Writes the decision down for whoever called the process that executed this one. Without a line nothing is allowed.
fn note(home: &Home, mask: Mask, verb: Verb, target: &str, decision: Result<Decision>) -> Result<Permit> {
    let gate = Guard::new(home, Policy::default()).masking(mask).asked_by(Asker::of_caller());
    let unreadable = |error: Error| {
        let hint = error.suggestion().unwrap_or_default();
        Decision::refuse(error.code(), BUILT_IN, error.to_string(), hint)
    };
    Ok(gate.noted(verb, target, decision.unwrap_or_else(unreadable))?)
}
