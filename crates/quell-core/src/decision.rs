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

    /// This decision if it is an allowance, else itself as an error.
    pub fn ok(self) -> Result<Self, Box<Self>> {
        if self.allowed { Ok(self) } else { Err(Box::new(self)) }
    }
}
