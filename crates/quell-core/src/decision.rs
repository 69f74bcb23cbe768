//! What the guard says: part of answers, of the audit log and of what a keeper replies.

use serde::{Deserialize, Serialize};

use crate::Mask;

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

    /// The same without the values that are to be masked.
    #[must_use]
    pub fn masked(self, mask: &Mask) -> Self {
        Self { reason: mask.apply(&self.reason), hint: mask.apply(&self.hint), ..self }
    }

    /// The same for a decision about `words`, of which it may show parts that are cut, escaped or written in another way, so that
    /// no value is found in them. If there is one in the words, only quotes from words without one are shown.
    #[must_use]
    pub fn masked_about(self, mask: &Mask, words: &[String]) -> Self {
        let (hidden, plain): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| mask.hides(word));
        if hidden.is_empty() {
            return self.masked(mask);
        }
        let is_plain = |quote: &str| plain.iter().any(|word| word.contains(quote));
        let unquoted = |text: &str, mark: char| {
            let parts = text.split(mark).enumerate();
            let parts = parts.map(|(at, part)| if at % 2 == 0 || is_plain(part) { part } else { "***" });
            parts.collect::<Vec<_>>().join(&mark.to_string())
        };
        // A word with such a mark in it hides where a quote ends.
        let is_marked = hidden.iter().any(|word| word.contains(['`', '"']));
        let text = |text: &str| if is_marked { "***".into() } else { unquoted(&unquoted(text, '`'), '"') };
        let (reason, hint) = (text(&self.reason), text(&self.hint));
        Self { reason, hint, ..self }.masked(mask)
    }

    /// This decision if it is an allowance, else itself as an error.
    pub fn ok(self) -> Result<Self, Box<Self>> {
        if self.allowed { Ok(self) } else { Err(Box::new(self)) }
    }
}
