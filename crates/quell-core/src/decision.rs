//! The guard: may this be done? Pure decisions over facts that somebody else has gathered; nothing here asks a kernel.
//!
//! A [`Policy`] says what is allowed. What touches the host (a process that quell didn't start, a service) is refused unless
//! the policy allows it; what touches quell's own jobs is allowed unless the policy refuses it. Every answer is a
//! [`Decision`]: a code for programs, the rule that decided, a reason and a hint for people.

mod command;
mod effect;
mod kill;
mod options;
mod path;
mod policy;
mod report;
mod runner;
mod scan;
mod service;
mod test;
mod variables;
mod wrapper;

use serde::{Deserialize, Serialize};

pub use command::{Runner, TestCommand, read_command};
pub use effect::{EFFECTS, Effect, Listed, effect_of};
pub use kill::{Kin, Owner, ProcessFacts, decide_kill, read_pid};
pub use path::{Root, check_target};
pub use policy::{KillPolicy, Policy, ServicePolicy, TestPolicy, matches};
pub use report::{decide_evidence_name, is_report_name};
pub use runner::{PathWord, Place, Rules, Words, added_words, path_words};
pub use scan::split_words;
pub use service::{ServiceName, ServiceVerb, UnitFacts, decide_service, decide_unit, read_service};
pub use test::{
    Resolved, Scope, decide_approval, decide_command, decide_link, decide_place, decide_presence,
};
pub use variables::is_runner_variable;

/// Where people are led to.
pub const GUIDE: &str = "docs/guard.md says how a policy is written";

/// Which file what allows is written into.
const WHERE: &str = "in /etc/quell/guard.toml if there is one, else in your config.toml";

/// What the guard says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Decision {
    /// Whether it may be done.
    pub allowed: bool,
    /// The stable word for programs: `ALLOWED`, or what stands against it, such as `PID_INIT`.
    pub code: String,
    /// What decided: a key of the policy such as `guard.kill.allow`, or `built-in` for what no policy can change.
    pub rule: String,
    /// Why, for people.
    pub reason: String,
    /// What to do about it; empty if it is allowed.
    pub hint: String,
}

/// What decides where no policy is asked.
pub const BUILT_IN: &str = "built-in";

impl Decision {
    /// It may be done, by this rule.
    pub fn allow(rule: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            allowed: true,
            code: "ALLOWED".into(),
            rule: rule.into(),
            reason: reason.into(),
            hint: String::new(),
        }
    }

    /// It may not be done.
    pub fn refuse(
        code: &str,
        rule: impl Into<String>,
        reason: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            allowed: false,
            code: code.into(),
            rule: rule.into(),
            reason: reason.into(),
            hint: hint.into(),
        }
    }

    /// This decision if it is an allowance, else itself as an error.
    pub fn ok(self) -> Result<Self, Box<Self>> {
        if self.allowed { Ok(self) } else { Err(Box::new(self)) }
    }
}

/// What a verb does besides by other verbs' names. That a restart is also a start is decided with the command that is started.
fn parts(verb: &str) -> &'static [&'static str] {
    match verb {
        "restart" => &["stop"],
        "service restart" => &["service stop", "service start"],
        _ => &[],
    }
}

/// Whether a verb may be used at all: it is listed, and the policy refuses neither it nor what it does.
pub fn decide_verb(policy: &Policy, verb: &str) -> Decision {
    let Some(effect) = effect_of(verb) else {
        let reason = format!("`{verb}` is not in the table of effects");
        return Decision::refuse(
            "VERB_UNLISTED",
            BUILT_IN,
            reason,
            "it has to be listed before it can be used",
        );
    };
    if policy.deny.iter().any(|denied| denied == verb) {
        let reason = format!("the policy refuses `{verb}`");
        let hint = format!("take it out of guard.deny if it is to be allowed; {GUIDE}");
        return Decision::refuse("VERB_DENIED", "guard.deny", reason, hint);
    }
    if effect > policy.most {
        let reason = format!(
            "`{verb}` is {}, and the policy lets nothing pass that does more than {}",
            effect.word(),
            policy.most.word()
        );
        let hint = format!("raise guard.most if it is to be allowed; {GUIDE}");
        return Decision::refuse("EFFECT_DENIED", "guard.most", reason, hint);
    }
    for part in parts(verb) {
        let decision = decide_verb(policy, part);
        if !decision.allowed {
            return Decision {
                reason: format!("`{verb}` is also a `{part}`: {}", decision.reason),
                ..decision
            };
        }
    }
    Decision::allow("guard.most", format!("`{verb}` is {}", effect.word()))
}
