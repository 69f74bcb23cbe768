//! The gate that everybody passes who acts through quell, whoever calls it: the policy decides, and what was decided and
//! done is written down.

mod audit;

use std::collections::BTreeSet;
use std::io;
use std::sync::OnceLock;

use quell_core::JobId;
use quell_core::guard::{BUILT_IN, Decision, Effect, Policy, decide_verb, effect_of};
use quell_keeper::{Mask, RunError};
use quell_store::Home;
use serde::Serialize;
use serde_json::{Value, json};

pub use audit::{Asker, AuditLine, Kind};

use crate::recover::mask_of;
use crate::{Config, Error, Job, Result, Stopped, find};

/// The policy that holds here, and the log of what it has decided.
#[derive(Clone, Debug)]
pub struct Gate {
    home: Home,
    policy: Policy,
    asker: OnceLock<Asker>,
    reason: Option<String>,
    mask: Mask,
}

impl Gate {
    /// With the policy that holds in the directory that this process is in.
    pub fn here(home: &Home) -> Result<Self> {
        let config = Config::load_here()?.config;
        let mask = config.mask();
        Ok(Self::new(home, config.guard).masking(mask))
    }

    /// With this policy.
    pub fn new(home: &Home, policy: Policy) -> Self {
        Self { home: home.clone(), policy, asker: OnceLock::new(), reason: None, mask: Mask::default() }
    }

    /// With the reason that whoever asks has given.
    pub fn because(mut self, reason: Option<String>) -> Self {
        self.reason = reason;
        self
    }

    /// With values that its log does not show.
    pub fn masking(mut self, mask: Mask) -> Self {
        self.mask = mask;
        self
    }

    /// With the process that its log names as the one who asks.
    pub(crate) fn asked_by(mut self, asker: Asker) -> Self {
        self.asker = OnceLock::from(asker);
        self
    }

    /// Where its log is.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// What it goes by.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Lets a verb pass that is about quell's own jobs, or refuses it. What changes nothing leaves no line unless it is
    /// refused. Without its line nothing is run or restarted; but a log that can't be written is no reason not to stop a job.
    pub fn admit(&self, verb: &str, target: &str) -> Result<Decision> {
        self.admit_for(verb, target, None)
    }

    /// The same with the job that is made by it, if that is known before.
    fn admit_for(&self, verb: &str, target: &str, job: Option<JobId>) -> Result<Decision> {
        let decision = decide_verb(&self.policy, verb);
        // The process that starts the job writes the line of a start, see `roles.rs`.
        let left_to_keeper = decision.allowed && verb == "start";
        if !decision.allowed || (effect_of(verb) != Some(Effect::Read) && !left_to_keeper) {
            let receipt = job.filter(|_| decision.allowed).map(|job| job.to_string());
            let noted = self.note(Kind::Decision, verb, target, &decision, None, receipt);
            // A restart that was not let start the job again would only stop it.
            if let (true, "run" | "restart", Err(error)) = (decision.allowed, verb, noted) {
                if error.is_out_of_descriptors() {
                    return Err(error);
                }
                let path = self.home.dir().to_owned();
                return Err(RunError::Record { path, error: error.to_string() }.into());
            }
        }
        refused(decision)
    }

    /// Writes a decision about the host down, and gives it back if it is an allowance. Without a line in the log nothing
    /// is allowed.
    pub fn decided(&self, verb: &str, target: &str, decision: Decision) -> Result<Decision> {
        // A verb that is refused as such is refused for everything.
        let verdict = decide_verb(&self.policy, verb);
        self.noted(verb, target, if verdict.allowed { decision } else { verdict })
    }

    /// The same with the last word about it.
    pub(crate) fn noted(&self, verb: &str, target: &str, decision: Decision) -> Result<Decision> {
        match self.note(Kind::Decision, verb, target, &decision, None, None) {
            Err(error) if decision.allowed => Err(error),
            Ok(()) | Err(_) => refused(decision),
        }
    }

    /// Writes a refusal down, and gives it as the error that it is.
    pub fn refuse(&self, verb: &str, target: &str, decision: Decision) -> Error {
        let _ = self.note(Kind::Decision, verb, target, &decision, None, None);
        Error::Refused(Box::new(decision))
    }

    /// Writes down that it came to nothing before anything could be decided or done, and gives the error back.
    pub fn failed(&self, verb: &str, target: &str, error: Error) -> Error {
        let decision = Decision::refuse(error.code(), BUILT_IN, error.to_string(), error.hint());
        let _ = self.note(Kind::Decision, verb, target, &decision, None, None);
        error
    }

    /// Writes down what was done: `receipt` is the job that it was done in, if there was one.
    pub fn acted(
        &self,
        verb: &str,
        target: &str,
        decision: &Decision,
        result: &impl Serialize,
        receipt: Option<String>,
    ) -> Result<()> {
        let mut result = serde_json::to_value(result).unwrap_or_default();
        // It stands beside it.
        if let Some(fields) = result.as_object_mut() {
            fields.remove("decision");
        }
        self.note(Kind::Act, verb, target, decision, Some(result), receipt)
    }

    fn note(
        &self,
        kind: Kind,
        verb: &str,
        target: &str,
        decision: &Decision,
        result: Option<serde_json::Value>,
        receipt: Option<String>,
    ) -> Result<()> {
        let mask = |text: &str| self.mask.apply(text);
        let mut actor = self.asker.get_or_init(Asker::here).clone();
        actor.session = actor.session.as_deref().map(mask);
        let decision =
            Decision { reason: mask(&decision.reason), hint: mask(&decision.hint), ..decision.clone() };
        let line = AuditLine {
            schema: quell_core::SCHEMA.into(),
            at: quell_store::now(),
            kind,
            verb: verb.to_owned(),
            effect: effect_of(verb),
            target: mask(target),
            actor,
            cause: self.reason.as_deref().map(mask),
            decision,
            receipt,
            result,
        };
        audit::append(&self.home, &line).map_err(Error::io(audit::path(&self.home)))
    }
}

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
            let decision = gate.admit_for(verb, &wish.target, wish.job)?;
            Ok(Passed(Some((gate, verb, decision))))
        }
        // There is no place for a log.
        None => refused(decide_verb(&policy, verb)).map(|_| Passed::default()),
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

/// The decision, or the error that it is.
pub(crate) fn refused(decision: Decision) -> Result<Decision> {
    decision.ok().map_err(Error::Refused)
}

/// Every line of the log that can be read, oldest first.
pub fn audit_log(home: &Home) -> Result<Vec<AuditLine>> {
    audit::read(home).map_err(Error::io(audit::path(home)))
}
