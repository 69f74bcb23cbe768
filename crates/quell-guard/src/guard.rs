//! Every interface of quell asks here before it acts: the policy decides, and the decision and the result go to the audit log.

use std::sync::OnceLock;

use quell_core::{AskedThrough, BUILT_IN, Decision, DecisionCode, JobId, Mask};
use quell_store::Home;
use serde::Serialize;

use crate::audit_log::{self as audit, Asker, AuditLine, Kind};
use crate::{Effect, Error, Policy, Result, Verb, decide_verb};

/// The policy, and the log of its decisions.
#[derive(Clone, Debug)]
pub struct Guard {
    home: Home,
    policy: Policy,
    /// Why the policy could not be read.
    unread: Option<String>,
    asker: OnceLock<Asker>,
    reason: Option<String>,
    mask: Mask,
}

impl Guard {
    pub fn new(home: &Home, policy: Policy) -> Self {
        let (home, mask) = (home.clone(), Mask::default());
        Self { home, policy, unread: None, asker: OnceLock::new(), reason: None, mask }
    }

    /// Says why the policy could not be read. The policy of this guard then has only the refusals of the files that could.
    pub fn without_policy(mut self, why: String) -> Self {
        self.unread = Some(why);
        self
    }

    /// Adds the reason that the caller has given.
    pub fn because(mut self, reason: Option<String>) -> Self {
        self.reason = reason;
        self
    }

    /// Adds values that the log does not show.
    pub fn masking(mut self, mask: Mask) -> Self {
        self.mask = mask;
        self
    }

    /// Sets the process that the log names as the caller.
    pub fn asked_by(mut self, asker: Asker) -> Self {
        self.asker = OnceLock::from(asker);
        self
    }

    /// Sets the interface through which the caller asks.
    pub fn asked_through(self, through: Option<AskedThrough>) -> Self {
        // Without one, the caller is looked up only if there is something to log.
        match &through {
            None => self,
            // This process is a server, and was called by a peer.
            Some(AskedThrough { peer: Some(_), .. }) => self.asked_by(Asker::server().through(through)),
            Some(_) => self.asked_by(Asker::here().through(through)),
        }
    }

    /// The home, which has the log.
    pub fn home(&self) -> &Home {
        &self.home
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Allows or refuses a verb for quell's own jobs. `job` is the job that it makes, if its id is known already. A verb that only
    /// reads is logged only if it is refused. If the log can't be written, jobs can only be looked at and stopped.
    pub fn permit(&self, verb: Verb, target: &str, job: Option<JobId>) -> Result<Permit> {
        let decision = self.decide(verb);
        let changes = verb.effect() != Effect::Read;
        let unread = self.unread.as_ref().filter(|_| changes).map(|_| decision.reason.clone());
        let mut warnings = Vec::from_iter(unread);
        // The process that starts the job writes the line of a start, see `roles.rs`.
        let left_to_keeper = decision.allowed && verb == Verb::Start;
        if !decision.allowed || (changes && !left_to_keeper) {
            let receipt = job.filter(|_| decision.allowed).map(|job| job.to_string());
            let noted = self.note(Kind::Decision, verb, target, &decision, None, receipt);
            match noted.err().filter(|_| decision.allowed) {
                Some(error) if matches!(verb, Verb::Stop | Verb::Sweep) => {
                    warnings.push(format!("the audit log gets no line about this: {error}"));
                }
                Some(error) => return Err(error),
                None => {}
            }
        }
        let permit = self.grant(verb, decision)?;
        Ok(Permit { warnings, ..permit })
    }

    /// Decides about a verb. The reason says so where the policy could not be read.
    fn decide(&self, verb: Verb) -> Decision {
        let decision = decide_verb(&self.policy, verb);
        match &self.unread {
            Some(why) if decision.allowed => {
                let reason =
                    format!("the policy could not be read, so only looking and stopping is allowed: {why}");
                Decision::allow(BUILT_IN, reason)
            }
            _ => decision,
        }
    }

    /// Allows or refuses a verb without a home: nothing is logged.
    pub fn permit_without_log(policy: &Policy, verb: Verb) -> Result<Permit> {
        let decision = decide_verb(policy, verb).ok().map_err(Error::Refused)?;
        let shows_output = shows_output(policy, verb);
        Ok(Permit { verb, decision, guard: None, warnings: Vec::new(), shows_output })
    }

    /// Allows the stop of a lost job to be finished if `by` is allowed. The result is logged as a sweep.
    pub fn permit_recovery(&self, by: Verb) -> Result<Permit> {
        Ok(Permit { verb: Verb::Sweep, ..self.permit_act(by)? })
    }

    /// Allows or refuses a verb of which only the result is logged.
    pub fn permit_act(&self, verb: Verb) -> Result<Permit> {
        self.grant(verb, self.decide(verb))
    }

    /// Logs a decision about more than the verb, and turns it into a permit. If the log can't be written, nothing is allowed.
    pub fn decided(&self, verb: Verb, target: &str, decision: Decision) -> Result<Permit> {
        // A verb that the policy refuses is refused for each target.
        let verdict = decide_verb(&self.policy, verb);
        self.noted(verb, target, if verdict.allowed { decision } else { verdict })
    }

    /// The same for a decision that includes the one about the verb.
    pub fn noted(&self, verb: Verb, target: &str, decision: Decision) -> Result<Permit> {
        let decision = decision.masked_about(&self.mask, &[target.to_owned()]);
        match self.note(Kind::Decision, verb, target, &decision, None, None) {
            Err(error) if decision.allowed => Err(error),
            Ok(()) | Err(_) => self.grant(verb, decision),
        }
    }

    fn grant(&self, verb: Verb, decision: Decision) -> Result<Permit> {
        let decision = decision.ok().map_err(Error::Refused)?;
        let shows_output = shows_output(&self.policy, verb);
        Ok(Permit { verb, decision, guard: Some(self.clone()), warnings: Vec::new(), shows_output })
    }

    /// Logs a refusal and returns it as an error.
    pub fn refuse(&self, verb: Verb, target: &str, decision: Decision) -> Error {
        let decision = decision.masked_about(&self.mask, &[target.to_owned()]);
        let _ = self.note(Kind::Decision, verb, target, &decision, None, None);
        Error::Refused(Box::new(decision))
    }

    /// Logs an error that came before a decision, and returns it.
    pub fn failed(&self, verb: Verb, target: &str, error: Error) -> Error {
        let decision =
            Decision::refuse(DecisionCode::Error(error.code().into()), BUILT_IN, error.to_string(), "");
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
            verb: verb.as_str().into(),
            effect: Some(verb.effect()),
            target: mask(target),
            actor,
            cause: self.reason.as_deref().map(mask),
            decision,
            receipt,
            result,
        };
        audit::append(&self.home, &line)
    }
}

/// Proof that the guard allows something. Only the [`Guard`] makes one. Each function that starts, stops, signals, kills or removes
/// takes one or gets its own.
#[must_use]
#[derive(Clone, Debug)]
pub struct Permit {
    verb: Verb,
    decision: Decision,
    /// Logs the result; none if there is no log.
    guard: Option<Guard>,
    warnings: Vec<String>,
    shows_output: bool,
}

/// Whether an answer to the verb may have output of jobs in it. What a job has written is more than facts about it: a verb that looks
/// shows it only if the policy allows `logs` too.
fn shows_output(policy: &Policy, verb: Verb) -> bool {
    verb.effect() != Effect::Read || decide_verb(policy, Verb::Logs).allowed
}

impl Permit {
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// Whether `verb` needs no permit of its own beside this one.
    pub fn covers(&self, verb: Verb) -> bool {
        self.verb == verb || (verb.effect() == Effect::Read && (verb != Verb::Logs || self.shows_output))
    }

    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// What the user should know, though it is allowed: the policy can't be read, or the log not be written.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The same with a later decision, which allows it too.
    pub(crate) fn with(self, decision: Decision) -> Self {
        debug_assert!(decision.allowed, "{decision:?}");
        Self { decision, ..self }
    }

    /// Logs what was done. `receipt` is the job that did it, if one did.
    pub fn record(&self, target: &str, result: &impl Serialize, receipt: Option<String>) -> Result<()> {
        let Some(guard) = &self.guard else { return Ok(()) };
        let mut result = serde_json::to_value(result).unwrap_or_default();
        // It has its own field in the line.
        if let Some(fields) = result.as_object_mut() {
            fields.remove("decision");
        }
        guard.mask.apply_to_json(&mut result);
        guard.note(Kind::Act, self.verb, target, &self.decision, Some(result), receipt)
    }
}

/// The readable lines of the log, oldest first.
pub fn audit_log(home: &Home) -> Result<Vec<AuditLine>> {
    audit::read(home).map_err(Error::io(audit::path(home)))
}
