//! Decisions of the guard: part of answers, of the audit log and of a keeper's replies.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Mask;
use crate::text::json_as_text;

/// A decision of the guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Decision {
    /// Whether it may be done.
    pub allowed: bool,
    /// The stable code for programs: `ALLOWED`, or why it is refused, such as `PID_INIT`.
    pub code: DecisionCode,
    /// What decided: a key of the policy such as `guard.kill.allow`, or `built-in` for what no policy can change.
    pub rule: String,
    /// Why, for people.
    pub reason: String,
    /// What to do about it; empty if it is allowed.
    pub hint: String,
}

macro_rules! codes {
    ($($code:ident $word:literal,)*) => {
        /// The code of a decision.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum DecisionCode {
            $(#[doc = concat!("`", $word, "`")] $code,)*
            /// The code of an error that came before a decision.
            Error(String),
        }

        impl DecisionCode {
            /// The word in JSON.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$code => $word,)*
                    Self::Error(code) => code,
                }
            }
        }

        impl FromStr for DecisionCode {
            type Err = Infallible;

            fn from_str(word: &str) -> Result<Self, Infallible> {
                Ok(match word {
                    $($word => Self::$code,)*
                    _ => Self::Error(word.to_owned()),
                })
            }
        }
    };
}

codes! {
    Allowed "ALLOWED",
    // Verbs.
    VerbUnlisted "VERB_UNLISTED",
    VerbDenied "VERB_DENIED",
    EffectDenied "EFFECT_DENIED",
    Undecided "UNDECIDED",
    // Jobs that another program has started.
    OtherSession "OTHER_SESSION",
    // Processes that quell did not start.
    PidInvalid "PID_INVALID",
    PidZero "PID_ZERO",
    PidNegative "PID_NEGATIVE",
    PidInit "PID_INIT",
    PidOutOfRange "PID_OUT_OF_RANGE",
    PidBelowFloor "PID_BELOW_FLOOR",
    PidKernelThread "PID_KERNEL_THREAD",
    PidIsCaller "PID_IS_CALLER",
    PidIsAncestor "PID_IS_ANCESTOR",
    PidIsQuell "PID_IS_QUELL",
    PidInJob "PID_IN_JOB",
    TreeNotSeen "TREE_NOT_SEEN",
    NameProtected "NAME_PROTECTED",
    NameUnknown "NAME_UNKNOWN",
    UserProtected "USER_PROTECTED",
    UserNotAllowed "USER_NOT_ALLOWED",
    SignalNotAllowed "SIGNAL_NOT_ALLOWED",
    NotAllowed "NOT_ALLOWED",
    // Services.
    ServiceEmpty "SERVICE_EMPTY",
    ServiceWhitespace "SERVICE_WHITESPACE",
    ServiceControl "SERVICE_CONTROL",
    ServiceNotAscii "SERVICE_NOT_ASCII",
    ServicePath "SERVICE_PATH",
    ServiceTraversal "SERVICE_TRAVERSAL",
    ServiceOption "SERVICE_OPTION",
    ServiceGlob "SERVICE_GLOB",
    ServiceCharacter "SERVICE_CHARACTER",
    ServiceTooLong "SERVICE_TOO_LONG",
    ServiceSuffix "SERVICE_SUFFIX",
    ServiceTemplate "SERVICE_TEMPLATE",
    ServiceProtected "SERVICE_PROTECTED",
    ServiceProtectedByPolicy "SERVICE_PROTECTED_BY_POLICY",
    ServiceTakesProtected "SERVICE_TAKES_PROTECTED",
    ServiceAliasProtected "SERVICE_ALIAS_PROTECTED",
    ServiceAliasNotAllowed "SERVICE_ALIAS_NOT_ALLOWED",
    ServiceNotAllowed "SERVICE_NOT_ALLOWED",
    ServiceVerbNotAllowed "SERVICE_VERB_NOT_ALLOWED",
    // Test runs.
    ApprovalRequired "APPROVAL_REQUIRED",
    CommandNotAllowed "COMMAND_NOT_ALLOWED",
    OptionNotAllowed "OPTION_NOT_ALLOWED",
    TargetRequired "TARGET_REQUIRED",
    PathAbsolute "PATH_ABSOLUTE",
    PathControl "PATH_CONTROL",
    PathEmpty "PATH_EMPTY",
    PathHome "PATH_HOME",
    PathMissing "PATH_MISSING",
    PathOption "PATH_OPTION",
    PathOutsideScope "PATH_OUTSIDE_SCOPE",
    PathProtected "PATH_PROTECTED",
    PathSymlinkEscape "PATH_SYMLINK_ESCAPE",
    PathTooLong "PATH_TOO_LONG",
    PathTooMany "PATH_TOO_MANY",
    PathTraversal "PATH_TRAVERSAL",
    PathVariable "PATH_VARIABLE",
}

json_as_text!(DecisionCode);

impl fmt::Display for DecisionCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The rule of a decision that no policy can change.
pub const BUILT_IN: &str = "built-in";

impl Decision {
    /// It may be done, by this rule.
    pub fn allow(rule: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            allowed: true,
            code: DecisionCode::Allowed,
            rule: rule.into(),
            reason: reason.into(),
            hint: String::new(),
        }
    }

    /// It may not be done.
    pub fn refuse(
        code: DecisionCode,
        rule: impl Into<String>,
        reason: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { allowed: false, code, rule: rule.into(), reason: reason.into(), hint: hint.into() }
    }

    /// The same without the values that are to be masked.
    #[must_use]
    pub fn masked(self, mask: &Mask) -> Self {
        Self { reason: mask.apply(&self.reason), hint: mask.apply(&self.hint), ..self }
    }

    /// The same for a decision about `words`. It may quote parts of them that are cut or escaped, in which a value is not found. So
    /// if one of the words has a value, only quotes from words without one are shown.
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

    /// This decision as `Ok` if it allows, else as an error.
    pub fn ok(self) -> Result<Self, Box<Self>> {
        if self.allowed { Ok(self) } else { Err(Box::new(self)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask() -> Mask {
        Mask::new(&["TOKEN".into()], &[("TOKEN".into(), "s3cret".into())])
    }

    fn about(words: &[&str], text: &str) -> (String, String) {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let decision = Decision::refuse(DecisionCode::NotAllowed, BUILT_IN, text, text);
        let shown = decision.masked_about(&mask(), &words);
        (shown.reason, shown.hint)
    }

    #[test]
    fn a_decision_shows_no_masked_value() {
        let both = |text: &str| (text.to_owned(), text.to_owned());
        assert_eq!(about(&["--all"], "`--all` has s3cret"), both("`--all` has ***"));
        // A quote that may be a part of a word with a value is not shown, and one from another word is.
        let text = "`s3c…` and \"s3cre\" come after `--all`, not s3cret";
        let shown = "`***` and \"***\" come after `--all`, not ***";
        assert_eq!(about(&["--all", "--token=s3cret"], text), both(shown));
        assert_eq!(about(&["--all", "`s3cret"], text), both("***"));
    }
}
