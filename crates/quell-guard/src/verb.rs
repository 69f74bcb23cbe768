//! What each verb does, in one table. What is not in it is refused.

use serde::{Deserialize, Serialize};

/// How far a verb goes. The order counts: each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Looks, and changes nothing that a user would miss.
    Read,
    /// Starts something, or speaks to it.
    Write,
    /// Ends or removes something.
    Destructive,
}

impl Effect {
    /// The word for it in a policy and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Destructive => "destructive",
        }
    }
}

/// A verb in the table.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Its name; `service stop` for a verb below a verb.
    pub verb: &'static str,
    /// What it does.
    pub effect: Effect,
}

const fn listed(verb: &'static str, effect: Effect) -> Listed {
    Listed { verb, effect }
}

/// All verbs of all interfaces: the command line, the library, and whatever else calls them by these names.
pub const EFFECTS: &[Listed] = &[
    listed("completions", Effect::Read),
    listed("config", Effect::Read),
    listed("doctor", Effect::Read),
    listed("events", Effect::Read),
    listed("gc", Effect::Destructive),
    listed("guard", Effect::Read),
    listed("kill", Effect::Destructive),
    listed("list", Effect::Read),
    listed("logs", Effect::Read),
    listed("man", Effect::Write),
    listed("restart", Effect::Destructive),
    listed("rm", Effect::Destructive),
    listed("run", Effect::Write),
    listed("send", Effect::Write),
    listed("service restart", Effect::Destructive),
    listed("service start", Effect::Write),
    listed("service status", Effect::Read),
    listed("service stop", Effect::Destructive),
    listed("signal", Effect::Destructive),
    listed("start", Effect::Write),
    listed("stats", Effect::Read),
    listed("status", Effect::Read),
    listed("stop", Effect::Destructive),
    listed("sweep", Effect::Destructive),
    listed("test", Effect::Write),
    listed("tree", Effect::Read),
    listed("wait", Effect::Read),
];

/// What `verb` does; none if it is not listed.
pub fn effect_of(verb: &str) -> Option<Effect> {
    EFFECTS.iter().find(|listed| listed.verb == verb).map(|listed| listed.effect)
}
