//! May a verb be used at all?

use quell_core::{BUILT_IN, Decision};

use crate::{GUIDE, Policy, effect_of};

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
