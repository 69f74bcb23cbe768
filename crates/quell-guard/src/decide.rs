//! Whether a verb may be used at all.

use quell_core::{BUILT_IN, Decision, DecisionCode};

use crate::{GUIDE, Policy, Verb};

/// The verb that a word names, or a refusal.
pub fn read_verb(word: &str) -> Result<Verb, Box<Decision>> {
    Verb::of(word).ok_or_else(|| {
        let reason = format!("`{word}` is not a verb of quell");
        let hint = "use one of quell's verbs";
        Box::new(Decision::refuse(DecisionCode::VerbUnlisted, BUILT_IN, reason, hint))
    })
}

/// Whether the policy allows a verb, whatever its target.
pub fn decide_verb(policy: &Policy, verb: Verb) -> Decision {
    let effect = verb.effect();
    if policy.deny.contains(&verb) {
        let reason = format!("the policy refuses `{verb}`");
        let hint = format!("to allow it, remove it from guard.deny; {GUIDE}");
        return Decision::refuse(DecisionCode::VerbDenied, "guard.deny", reason, hint);
    }
    if effect > policy.max_effect {
        let reason = format!(
            "`{verb}` is {}, and the policy allows {} at most",
            effect.as_str(),
            policy.max_effect.as_str()
        );
        let hint = format!("to allow it, raise guard.max_effect; {GUIDE}");
        return Decision::refuse(DecisionCode::EffectDenied, "guard.max_effect", reason, hint);
    }
    for part in verb.parts() {
        let decision = decide_verb(policy, *part);
        if !decision.allowed {
            return Decision {
                reason: format!("`{verb}` is also a `{part}`: {}", decision.reason),
                ..decision
            };
        }
    }
    Decision::allow("guard.max_effect", format!("`{verb}` is {}", effect.as_str()))
}
