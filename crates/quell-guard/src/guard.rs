//! The gate that everybody passes who acts through quell, whoever calls it: the policy decides, and what was decided and
//! done is written down.

use std::sync::OnceLock;

use quell_core::{BUILT_IN, Decision, JobId, Mask};
use quell_store::Home;
use serde::Serialize;

use crate::audit_log::{self as audit, Asker, AuditLine, Kind};
use crate::{Effect, Error, Policy, Result, Verb, decide_verb};

/// The policy that holds here, and the log of what it has decided.
#[derive(Clone, Debug)]
pub struct Guard {
    home: Home,
    policy: Policy,
    asker: OnceLock<Asker>,
    reason: Option<String>,
    mask: Mask,
}

impl Guard {
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
    pub fn asked_by(mut self, asker: Asker) -> Self {
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

    /// Lets a verb pass that is about quell's own jobs, or refuses it; `job` is the one that is made by it, if that is known before.
    /// What changes nothing leaves no line unless it is refused. Without its line nothing is run or restarted; but a log that can't be
    /// written is no reason not to stop a job.
    pub fn permit(&self, verb: Verb, target: &str, job: Option<JobId>) -> Result<Permit> {
        let decision = decide_verb(&self.policy, verb);
        // The process that starts the job writes the line of a start, see `roles.rs`.
        let left_to_keeper = decision.allowed && verb == Verb::Start;
        if !decision.allowed || (verb.effect() != Effect::Read && !left_to_keeper) {
            let receipt = job.filter(|_| decision.allowed).map(|job| job.to_string());
            let noted = self.note(Kind::Decision, verb, target, &decision, None, receipt);
            // A restart that was not let start the job again would only stop it.
            if let (true, Verb::Run | Verb::Restart, Err(error)) = (decision.allowed, verb, noted) {
                return Err(error);
            }
        }
        self.grant(verb, decision)
    }

    /// Lets a verb pass where there is no place for a log, or refuses it.
    pub fn permit_without_log(policy: &Policy, verb: Verb) -> Result<Permit> {
        let decision = decide_verb(policy, verb).ok().map_err(Error::Refused)?;
        Ok(Permit { verb, decision, guard: None })
    }

    /// Lets a lost job be finished if `by` is allowed. What comes of it is written down as a sweep.
    pub fn permit_recovery(&self, by: Verb) -> std::result::Result<Permit, Box<Decision>> {
        let decision = decide_verb(&self.policy, by).ok()?;
        Ok(Permit { verb: Verb::Sweep, decision, guard: Some(self.clone()) })
    }

    /// Writes down a decision that was made with more than the verb, and lets it pass if it is an allowance. Without a line in the log
    /// nothing is allowed.
    pub fn decided(&self, verb: Verb, target: &str, decision: Decision) -> Result<Permit> {
        // A verb that is refused as such is refused for everything.
        let verdict = decide_verb(&self.policy, verb);
        self.noted(verb, target, if verdict.allowed { decision } else { verdict })
    }

    /// The same with the last word about it.
    pub fn noted(&self, verb: Verb, target: &str, decision: Decision) -> Result<Permit> {
        let decision = decision.masked_about(&self.mask, &[target.to_owned()]);
        match self.note(Kind::Decision, verb, target, &decision, None, None) {
            Err(error) if decision.allowed => Err(error),
            Ok(()) | Err(_) => self.grant(verb, decision),
        }
    }

    fn grant(&self, verb: Verb, decision: Decision) -> Result<Permit> {
        let decision = decision.ok().map_err(Error::Refused)?;
        Ok(Permit { verb, decision, guard: Some(self.clone()) })
    }

    /// Writes a refusal down, and gives it as the error that it is.
    pub fn refuse(&self, verb: Verb, target: &str, decision: Decision) -> Error {
        let decision = decision.masked_about(&self.mask, &[target.to_owned()]);
        let _ = self.note(Kind::Decision, verb, target, &decision, None, None);
        Error::Refused(Box::new(decision))
    }

    /// Writes down that it came to nothing before anything could be decided or done, and gives the error back.
    pub fn failed(&self, verb: Verb, target: &str, error: Error) -> Error {
        let decision = Decision::refuse(error.code(), BUILT_IN, error.to_string(), "");
        let _ = self.note(Kind::Decision, verb, target, &decision, None, None);
        error
    }

    fn note(
        &self,
        kind: Kind,
        verb: Verb,
        target: &str,
        decision: &Decision,
        result: Option<serde_json::Value>,
        receipt: Option<String>,
    ) -> Result<()> {
        let mask = |text: &str| self.mask.apply(text);
        let mut actor = self.asker.get_or_init(Asker::here).clone();
        actor.session = actor.session.as_deref().map(mask);
        // The kernel cuts the name of a process.
        let name = actor.name.map(|name| self.mask.apply_to_cut(&format!("{name}…")));
        actor.name = name.map(|name| name.trim_end_matches('…').to_owned());
        let decision = decision.clone().masked_about(&self.mask, &[target.to_owned()]);
        let line = AuditLine {
            schema: quell_core::SCHEMA.into(),
            at: quell_store::now(),
            kind,
            verb: verb.word().into(),
            effect: Some(verb.effect()),
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

/// That something may be done. Only the [`Guard`] gives one, and each function that starts, stops, signals, kills or removes needs one
/// or asks for its own.
#[must_use]
#[derive(Clone, Debug)]
pub struct Permit {
    verb: Verb,
    decision: Decision,
    /// Who has given it, and writes down what comes of it; none where there is no place for a log.
    guard: Option<Guard>,
}

impl Permit {
    /// What may be done.
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// What the guard said.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The same with a decision that knows more, and is an allowance as well.
    pub(crate) fn with(self, decision: Decision) -> Self {
        debug_assert!(decision.allowed, "{decision:?}");
        Self { decision, ..self }
    }

    /// Writes down what was done: `receipt` is the job that it was done in, if there was one.
    pub fn record(&self, target: &str, result: &impl Serialize, receipt: Option<String>) -> Result<()> {
        let Some(guard) = &self.guard else { return Ok(()) };
        let mut result = serde_json::to_value(result).unwrap_or_default();
        // It stands beside it.
        if let Some(fields) = result.as_object_mut() {
            fields.remove("decision");
        }
        guard.note(Kind::Act, self.verb, target, &self.decision, Some(result), receipt)
    }
}

/// Every line of the log that can be read, oldest first.
pub fn audit_log(home: &Home) -> Result<Vec<AuditLine>> {
    audit::read(home).map_err(Error::io(audit::path(home)))
}
