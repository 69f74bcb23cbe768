//! May a verb be used at all?

use quell_core::{BUILT_IN, Decision};

use crate::{GUIDE, Policy, Verb};

/// The verb that a word names, or the refusal of what is none.
pub fn read_verb(word: &str) -> Result<Verb, Box<Decision>> {
    Verb::of(word).ok_or_else(|| {
        let reason = format!("`{word}` is not in the table of effects");
        let hint = "it has to be listed before it can be used";
        Box::new(Decision::refuse("VERB_UNLISTED", BUILT_IN, reason, hint))
    })
}

/// Whether a verb may be used at all: the policy refuses neither it nor what it does.
pub fn decide_verb(policy: &Policy, verb: Verb) -> Decision {
    let effect = verb.effect();
    if policy.deny.contains(&verb) {
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
    for part in verb.parts() {
        let decision = decide_verb(policy, *part);
        if !decision.allowed {
            return Decision {
                reason: format!("`{verb}` is also a `{part}`: {}", decision.reason),
                ..decision
            };
        }
    }
    Decision::allow("guard.most", format!("`{verb}` is {}", effect.word()))
}
