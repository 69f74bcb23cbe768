//! The door that every verb about quell's own jobs passes: the policy that holds here, the masks of the jobs in question, and what
//! came of it.

use std::collections::BTreeSet;
use std::io;

use quell_core::{JobId, Mask};
use quell_guard::{Effect, Guard, Permit, Policy, Verb};
use quell_keeper::StartError;
use quell_store::Home;
use serde_json::json;

use crate::recover::mask_of;
use crate::{Config, Error, Job, Result, Stopped, resolve};

/// What is still done if the settings can't be read: to look, and to stop what runs, unless a file that can be read refuses
/// it. What a policy would have said about the rest is not known.
const WITHOUT_POLICY: [Verb; 2] = [Verb::Stop, Verb::Sweep];

/// What somebody wants to do with quell's own jobs.
#[derive(Clone, Debug)]
pub struct AccessRequest {
    /// The verb.
    pub verb: Verb,
    /// What it is about.
    pub target: String,
    /// Why, in the words of who wants it.
    pub reason: Option<String>,
    /// The job that is made by it, if that is known before.
    pub job: Option<JobId>,
    /// Values that the log does not show.
    pub mask: Mask,
}

impl AccessRequest {
    /// A verb, about nothing in particular.
    pub fn new(verb: Verb) -> Self {
        Self { verb, target: String::new(), reason: None, job: None, mask: Mask::default() }
    }
}

/// Lets a verb pass that is about quell's own jobs, or refuses it. `policy` is the one that holds here, or why it can't be
/// read.
pub fn permit(policy: Result<Policy>, home: Option<&Home>, wish: AccessRequest) -> Result<Permit> {
    let verb = wish.verb;
    let policy = match policy {
        Ok(policy) => policy,
        Err(_) if verb.effect() == Effect::Read || WITHOUT_POLICY.contains(&verb) => Config::refusals_here(),
        Err(error) => return Err(error),
    };
    match home {
        Some(home) => {
            let reason = wish.reason.map(|reason| masked(home, &wish.target, &reason));
            let guard = Guard::new(home, policy).because(reason).masking(wish.mask);
            guard.permit(verb, &wish.target, wish.job).map_err(|error| unwritten(home, error))
        }
        None => Ok(Guard::permit_without_log(&policy, verb)?),
    }
}

/// Writes down that a job was started, or was not. A log that can't be written changes nothing of what is done.
pub fn record_start(permit: &Permit, target: &str, started: &Result<Job>) {
    let _ = match started {
        Ok(job) => permit.record(target, &json!({ "started": true }), Some(job.id().to_string())),
        Err(error) => permit.record(target, &json!({ "started": false, "error": error.code() }), None),
    };
}

/// Writes down that a job was stopped, or was not. Of one that was over already nothing is written: nothing was done.
pub fn record_stop(permit: &Permit, job: JobId, stopped: &Result<Stopped>) {
    let result = match stopped {
        Ok(Stopped { was_over: true, .. }) => return,
        Ok(Stopped { receipt, .. }) => json!({ "verdict": receipt.verdict, "cause": receipt.cause }),
        Err(error) => json!({ "error": error.code(), "message": error.to_string() }),
    };
    let job = job.to_string();
    let _ = permit.record(&job, &result, Some(job.clone()));
}

/// `reason` without the values that the jobs mask which `target` names, and those that have not ended.
fn masked(home: &Home, target: &str, reason: &str) -> String {
    let named = target.split(' ').filter_map(|word| resolve::resolve_recorded(home, word).ok());
    let jobs: io::Result<BTreeSet<JobId>> =
        home.unended().map(|live| live.into_iter().chain(named).collect());
    let mask = |text: String, id: JobId| {
        let job = home.job(id);
        match job.spec() {
            // It is just being made or removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(text),
            spec => Ok(mask_of(&job, &spec?)?.apply(&text)),
        }
    };
    let shown: io::Result<String> = jobs.and_then(|jobs| jobs.into_iter().try_fold(reason.to_owned(), mask));
    // What the values are is not known: then nothing of it is shown.
    shown.unwrap_or_else(|_| "***".into())
}

/// A log that can't be written is said of the whole home, as that of a record is.
fn unwritten(home: &Home, error: quell_guard::Error) -> Error {
    match error {
        error @ quell_guard::Error::Io { .. } if !error.is_out_of_descriptors() => {
            StartError::Record { path: home.dir().to_owned(), error: error.to_string() }.into()
        }
        error => error.into(),
    }
}
