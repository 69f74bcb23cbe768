//! The roles in which quell executes itself: the keeper of a background job, and the process that runs the hooks of a lost job.
//!
//! Any process can execute quell in these roles, with a request of its own on standard input. So each role asks the guard itself and
//! writes the audit line before it runs anything, whatever its caller has done.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use quell_core::{AskedThrough, JobRequest, Mask};
use quell_guard::{Asker, Decision, Guard, Permit, Policy, Verb, decide_verb};
use quell_keeper::{HookNotice, StartError, StartMessage, StartReply};
use quell_store::Home;

use crate::admit::{decide_start, program, request_mask, unreadable};
use crate::start::{Around, resolve_request};
use crate::{Config, Error, Result};

/// The exit code of what the guard refuses.
const REFUSED: u8 = 4;

/// The size limit of the events of a lost job. There are only a few.
const MAX_EVENTS: u64 = 1 << 20;

/// A request that the guard permits as a test run.
#[derive(Clone, Debug)]
pub struct AdmittedTests {
    /// The guard's decision.
    pub decision: Decision,
    /// The request, rebuilt from what was checked; other options are kept only if they can't run or write anything.
    pub request: JobRequest,
}

/// Decides about a request as a test run; none if it is not one. The crate `quell-test` has the rules.
pub type AdmitTests =
    fn(&Config, &Home, &JobRequest) -> Option<std::result::Result<AdmittedTests, Box<Decision>>>;

/// The main function of `quell __keep`: keeps the job that is requested on standard input, if the guard permits it, as a start or, by
/// `admit_tests`, as a test run. An error means that no request could be read.
///
/// Before: this process was executed for nothing else, and has one thread.
pub fn keeper_main(admit_tests: AdmitTests) -> io::Result<ExitCode> {
    quell_keeper::keeper_main(|message, stdin| {
        let path = message.home.clone();
        admit_request(message, stdin, admit_tests).map_err(|error| match error {
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

/// The main function of `quell __hooks`: runs the hooks of a lost job, if the guard permits that. Hooks run commands, and the record
/// that they come from can be forged, so they need what a start needs. An error means that no request could be read.
///
/// Before: this process was executed for nothing else, and has one thread.
pub fn notify_hooks_main() -> io::Result<ExitCode> {
    let mut text = String::new();
    io::stdin().take(MAX_EVENTS).read_to_string(&mut text)?;
    let notice: HookNotice = serde_json::from_str(&text)?;
    let target = format!("hooks of {}", notice.job);
    let config = Config::from_files_here();
    let mask = config.as_ref().map(Config::mask).unwrap_or_default();
    let decision = config.map(|config| decide_verb(&config.guard, Verb::Start));
    Ok(match log_decision(&Home::at(&notice.home), mask, Verb::Start, &target, decision, None) {
        Ok(_) => quell_keeper::notify_hooks(notice),
        Err(_) => ExitCode::from(REFUSED),
    })
}

/// Permits or refuses a request for a background job. The request of a test run is rebuilt from what was checked. After: the audit log has
/// a line about it.
fn admit_request(
    message: StartMessage,
    stdin: OwnedFd,
    admit_tests: AdmitTests,
) -> Result<(StartMessage, OwnedFd)> {
    let home = Home::at(&message.home);
    let request = &message.request;
    let program = program(request);
    let (mask, verb, decision, tests) = match Config::from_files_here() {
        Ok(config) => {
            let (verb, decision, tests) = decide_request(&config, &home, request, admit_tests);
            (request_mask(&config, request), verb, Ok(decision), tests)
        }
        Err(error) => (request_mask(&Config::default(), request), Verb::Start, Err(error), None),
    };
    // The caller records whether the job was started.
    let _permit = log_decision(&home, mask, verb, &program, decision, message.through.clone())?;
    match tests {
        Some(tests) => {
            let (request, stdin) = resolve_request(&home, &tests.request, Around::Caller)?;
            Ok((StartMessage { home: message.home, request, through: message.through }, stdin))
        }
        None => Ok((message, stdin)),
    }
}

/// Decides about a background job, as a start or else as a test run if it is one. A test run is only permitted with the request that
/// is returned.
fn decide_request(
    config: &Config,
    home: &Home,
    request: &JobRequest,
    admit_tests: AdmitTests,
) -> (Verb, Decision, Option<AdmittedTests>) {
    let (verb, start) = decide_start(config, request);
    let masked = |decision: Decision| decision.masked_about(&request.masked_values(), &request.words());
    if start.allowed || verb != Verb::Start {
        return (verb, start, None);
    }
    match admit_tests(config, home, request) {
        Some(Ok(tests)) => (Verb::Test, tests.decision.clone(), Some(tests)),
        Some(Err(refusal)) => (Verb::Test, masked(*refusal), None),
        None => (Verb::Start, start, None),
    }
}

/// Writes the decision into the audit log, for the caller of the process that executed this one. If that fails, nothing is permitted.
fn log_decision(
    home: &Home,
    mask: Mask,
    verb: Verb,
    target: &str,
    decision: Result<Decision>,
    through: Option<AskedThrough>,
) -> Result<Permit> {
    let guard = Guard::new(home, Policy::default()).masking(mask).asked_by(Asker::of_role(through));
    Ok(guard.noted(verb, target, decision.unwrap_or_else(|error| unreadable(&error)))?)
}
