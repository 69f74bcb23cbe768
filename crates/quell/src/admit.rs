//! Asking the guard about quell's own jobs, and recording the results in the audit log.

use std::collections::BTreeSet;
use std::io;

use quell_core::{AskedThrough, BUILT_IN, Decision, DecisionCode, JobId, JobRequest, Mask};
use quell_guard::{Effect, Guard, Permit, Verb, decide_verb};
use quell_keeper::StartError;
use quell_store::Home;
use serde_json::json;

use crate::config::Loaded;
use crate::recover::mask_of;
use crate::{Config, Error, Job, Result, Stopped, resolve};

/// The verbs that work without a readable policy, in addition to those that only read: what runs can be stopped, unless a file that
/// can be read refuses it. For all others the policy has to be known.
const WITHOUT_POLICY: [Verb; 2] = [Verb::Stop, Verb::Sweep];

/// A verb, and what it is about.
#[derive(Clone, Debug)]
pub struct AccessRequest {
    /// The verb.
    pub verb: Verb,
    /// The job or program, as the caller named it.
    pub target: String,
    /// The caller's reason.
    pub reason: Option<String>,
    /// The job that will be made, if its id is known before.
    pub job: Option<JobId>,
    /// The interface through which another program asks.
    pub through: Option<AskedThrough>,
}

/// Permits a verb about quell's own jobs, or refuses it. `settings` are those that apply here, or why they can't be read, and are
/// returned with the permit. Without a home nothing is logged.
pub fn permit(
    settings: Result<Loaded>,
    home: Option<&Home>,
    request: AccessRequest,
) -> Result<(Permit, Result<Loaded>)> {
    let AccessRequest { verb, target, reason, job, through } = request;
    let (policy, mask) = match &settings {
        Ok(loaded) => (loaded.config.guard.clone(), loaded.config.mask()),
        Err(_) => (Config::refusals_here(), Config::readable_mask_here()),
    };
    let guard = home.map(|home| {
        let reason = reason.map(|reason| masked(home, &target, &reason));
        Guard::new(home, policy.clone()).because(reason).masking(mask).asked_through(through)
    });
    let is_free = verb.effect() == Effect::Read || WITHOUT_POLICY.contains(&verb);
    let settings = match settings {
        Err(error) if !is_free => {
            guard.map(|guard| guard.refuse(verb, &target, unreadable(&error)));
            return Err(error);
        }
        settings => settings,
    };
    let permit = match (guard, &settings) {
        (None, _) => Guard::permit_without_log(&policy, verb)?,
        (Some(guard), settings) => {
            let guard = match settings {
                Err(error) => guard.without_policy(error.to_string()),
                Ok(_) => guard,
            };
            guard.permit(verb, &target, job).map_err(|error| unwritten(guard.home(), verb, error))?
        }
    };
    Ok((permit, settings))
}

/// The refusal of a verb that needs the policy, which can't be read.
pub(crate) fn unreadable(error: &Error) -> Decision {
    let hint = error.suggestion().unwrap_or_default();
    Decision::refuse(DecisionCode::Error(error.code().into()), BUILT_IN, error.to_string(), hint)
}

/// Refuses a request that the present policy does not allow. The keeper asks again, and writes the audit line of a permit.
pub(crate) fn check_start(home: &Home, request: &JobRequest, through: Option<AskedThrough>) -> Result<()> {
    let config = Config::from_files_here()?;
    let (verb, decision) = decide_start(&config, request);
    if decision.allowed {
        return Ok(());
    }
    let mask = request_mask(&config, request);
    let guard = Guard::new(home, config.guard).masking(mask).asked_through(through);
    Err(guard.refuse(verb, &program(request), decision).into())
}

/// Decides about the start of a background job. A probe's command is run by `quell run`, which asks the policy again each time: a job
/// with such a probe needs both verbs.
pub(crate) fn decide_start(config: &Config, request: &JobRequest) -> (Verb, Decision) {
    let start = decide_verb(&config.guard, Verb::Start);
    let has_probe = request.as_background().is_some_and(|background| background.ready.rules.cmd.is_some());
    let run = decide_verb(&config.guard, Verb::Run);
    if start.allowed && has_probe && !run.allowed { (Verb::Run, run) } else { (Verb::Start, start) }
}

/// The program of a request, as the audit log shows it.
pub(crate) fn program(request: &JobRequest) -> String {
    let program = request.command.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    request.masked_values().apply(&program)
}

/// The values that the audit log does not show: those that the settings mask, and those that the request does.
pub(crate) fn request_mask(config: &Config, request: &JobRequest) -> Mask {
    config.mask_with(&request.mask, &request.env.set)
}

/// Records whether a job was started. A log that can't be written does not undo the start.
pub fn record_start(permit: &Permit, target: &str, started: &Result<Job>) {
    let _ = match started {
        Ok(job) => permit.record(target, &json!({ "started": true }), Some(job.id().to_string())),
        Err(error) => permit.record(target, &json!({ "started": false, "error": error.code() }), None),
    };
}

/// Records whether a job was stopped. Nothing is recorded for a job that had ended before.
pub fn record_stop(permit: &Permit, job: JobId, stopped: &Result<Stopped>) {
    let result = match stopped {
        Ok(stopped) if stopped.already_ended() => return,
        Ok(stopped) => {
            let receipt = stopped.receipt();
            json!({ "verdict": receipt.verdict, "cause": receipt.cause })
        }
        Err(error) => json!({ "error": error.code(), "message": error.to_string() }),
    };
    let job = job.to_string();
    let _ = permit.record(&job, &result, Some(job.clone()));
}

/// `reason` without the values that are masked in the jobs that `target` names, and in those that have not ended.
fn masked(home: &Home, target: &str, reason: &str) -> String {
    let named = target.split(' ').filter_map(|word| resolve::resolve_recorded(home, word).ok());
    let jobs: io::Result<BTreeSet<JobId>> =
        home.unended().map(|live| live.into_iter().chain(named).collect());
    let mask = |text: String, id: JobId| {
        let job = home.job(id);
        match job.spec() {
            // The job is being made or removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound && job.record().is_err() => Ok(text),
            spec => Ok(mask_of(&job, &spec?)?.apply(&text)),
        }
    };
    let shown: io::Result<String> = jobs.and_then(|jobs| jobs.into_iter().try_fold(reason.to_owned(), mask));
    // The values are not known, so nothing is shown.
    shown.unwrap_or_else(|_| "***".into())
}

/// An audit log that can't be written is an error about the whole home for a verb that makes a record there.
fn unwritten(home: &Home, verb: Verb, error: quell_guard::Error) -> Error {
    let makes_record = matches!(verb, Verb::Run | Verb::Wrap | Verb::Restart);
    match error {
        error @ quell_guard::Error::Io { .. } if makes_record && !error.is_out_of_descriptors() => {
            StartError::Record { path: home.dir().to_owned(), error: error.to_string() }.into()
        }
        error => error.into(),
    }
}
