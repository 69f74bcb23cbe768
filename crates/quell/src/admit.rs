//! The door that every verb about quell's own jobs passes: the policy that holds here, the masks of the jobs in question, and what
//! came of it.

use std::collections::BTreeSet;
use std::io;

use quell_core::{Decision, JobId, Mask};
use quell_guard::{Effect, Gate, Policy, decide_verb, effect_of};
use quell_keeper::RunError;
use quell_store::Home;
use serde_json::{Value, json};

use crate::recover::mask_of;
use crate::{Config, Error, Job, Result, Stopped, find};

/// What is still done if the settings can't be read: to look, and to stop what runs, unless a file that can be read refuses
/// it. What a policy would have said about the rest is not known.
const WITHOUT_POLICY: [&str; 2] = ["stop", "sweep"];

/// What somebody wants to do with quell's own jobs.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// The verb, as it is in the table of effects.
    pub verb: &'static str,
    /// What it is about.
    pub target: String,
    /// Why, in the words of who wants it.
    pub reason: Option<String>,
    /// The job that is made by it, if that is known before.
    pub job: Option<JobId>,
    /// Values that the log does not show.
    pub mask: Mask,
}

/// Whoever was let pass: writes down what came of it.
#[derive(Clone, Debug, Default)]
pub struct Passed(Option<(Gate, &'static str, Decision)>);

impl Passed {
    /// A job was started, or not.
    pub fn started(&self, target: &str, started: &Result<Job>) {
        match started {
            Ok(job) => self.acted(target, &json!({ "started": true }), Some(job.id())),
            Err(error) => self.acted(target, &json!({ "started": false, "error": error.code() }), None),
        }
    }

    /// A job was stopped, or not. Of one that was over already nothing is written: nothing was done.
    pub fn stopped(&self, job: JobId, stopped: &Result<Stopped>) {
        let result = match stopped {
            Ok(Stopped { was_over: true, .. }) => return,
            Ok(Stopped { receipt, .. }) => json!({ "verdict": receipt.verdict, "cause": receipt.cause }),
            Err(error) => json!({ "error": error.code(), "message": error.to_string() }),
        };
        self.acted(&job.to_string(), &result, Some(job));
    }

    /// What is done is done, so that a log that can't be written changes nothing of it.
    fn acted(&self, target: &str, result: &Value, job: Option<JobId>) {
        if let Some((gate, verb, decision)) = &self.0 {
            let _ = gate.acted(verb, target, decision, result, job.map(|job| job.to_string()));
        }
    }
}

/// Lets a verb pass that is about quell's own jobs, or refuses it. `policy` is the one that holds here, or why it can't be
/// read. What calls a verb by its name calls this first: the command line does, and so does each method of a
/// [`crate::Quell`] that is guarded.
pub fn admit(policy: Result<Policy>, home: Option<&Home>, wish: Wish) -> Result<Passed> {
    let verb = wish.verb;
    let policy = match policy {
        Ok(policy) => policy,
        Err(_) if effect_of(verb) == Some(Effect::Read) || WITHOUT_POLICY.contains(&verb) => {
            Config::refusals_here()
        }
        Err(error) => return Err(error),
    };
    match home {
        Some(home) => {
            let reason = wish.reason.map(|reason| masked(home, &wish.target, &reason));
            let gate = Gate::new(home, policy).because(reason).masking(wish.mask);
            let decision =
                gate.admit_for(verb, &wish.target, wish.job).map_err(|error| unwritten(home, error))?;
            Ok(Passed(Some((gate, verb, decision))))
        }
        // There is no place for a log.
        None => decide_verb(&policy, verb).ok().map(|_| Passed::default()).map_err(Error::Refused),
    }
}

/// `reason` without the values that the jobs mask which `target` names, and those that have not ended.
fn masked(home: &Home, target: &str, reason: &str) -> String {
    let named = target.split(' ').filter_map(|word| find::resolve_recorded(home, word).ok());
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
            RunError::Record { path: home.dir().to_owned(), error: error.to_string() }.into()
        }
        error => error.into(),
    }
}
