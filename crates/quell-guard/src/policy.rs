//! The policy, merged from all files that have a part of it.

use serde::Serialize;

use crate::{Effect, Verb};

/// The whole policy. By default everything is allowed for jobs, and nothing for the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Policy {
    /// The strongest effect that is allowed.
    pub max_effect: Effect,
    /// Verbs that are refused.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub deny: Vec<Verb>,
    /// Processes that quell didn't start.
    pub kill: KillPolicy,
    /// Services.
    pub service: ServicePolicy,
    /// Test runs.
    pub test: TestPolicy,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_effect: Effect::Destructive,
            deny: Vec::new(),
            kill: KillPolicy::default(),
            service: ServicePolicy::default(),
            test: TestPolicy::default(),
        }
    }
}

/// Which processes that quell did not start may be signalled: `[guard.kill]`. Names are patterns, see [`matches`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KillPolicy {
    /// The names of processes that may be signalled; none by default.
    pub allow: Vec<String>,
    /// The users whose processes may be signalled in addition to the caller's own; `*` for all users.
    pub users: Vec<String>,
    /// The names of processes that may not be signalled, even if `allow` names them.
    pub protect: Vec<String>,
    /// The users whose processes may not be signalled.
    pub protect_users: Vec<String>,
    /// Lower PIDs are refused.
    pub min_pid: u32,
    /// The signals that may be sent, without `SIG`; empty for all.
    pub signals: Vec<String>,
}

impl Default for KillPolicy {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            users: Vec::new(),
            protect: Vec::new(),
            protect_users: Vec::new(),
            // The kernel starts again here after the highest PID. Processes with lower PIDs have run since boot.
            min_pid: 300,
            signals: Vec::new(),
        }
    }
}

/// Which services may be asked about or changed: `[guard.service]`. Names are patterns over the unit's name without `.service`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServicePolicy {
    /// The services that are allowed; none by default.
    pub allow: Vec<String>,
    /// The services that are refused, even if `allow` names them.
    pub protect: Vec<String>,
    /// What may be done with them: `start`, `stop`, `restart`, `status`; empty for all.
    pub verbs: Vec<String>,
}

/// The rules for test runs: `[guard.test]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestPolicy {
    /// The directories that targets must be in, relative to the working directory; empty for all below it.
    pub scope: Vec<String>,
    /// The programs that may run tests, by file name, or by path if there is a slash; empty for all.
    pub commands: Vec<String>,
    /// Whether `commands` come from a project's file: these don't lift a scope that the caller gives.
    #[serde(skip)]
    pub commands_of_project: bool,
    /// Whether a program in `commands` may get any arguments, even with a scope. False if the file that lists it is weaker than
    /// the file of the scope: then the list only narrows.
    pub commands_lift_scope: bool,
    /// Options and variables of runners that are allowed with a scope, though they can load code.
    pub allow: Vec<String>,
    /// Whether a run must be approved.
    pub approval: bool,
    /// The variable that approves, if it is `true`, `1` or `yes`.
    pub approval_variable: String,
}

/// Whether a pattern matches a name: `*` matches any number of characters, everything else itself.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(first) = parts.next() else { return false };
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_what_it_says_and_nothing_else() {
        for (pattern, name, fits) in [
            ("node", "node", true),
            ("node", "nodejs", false),
            ("node*", "nodejs", true),
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("*-server", "mcp-server", true),
            ("Node", "node", false),
            ("a.c", "abc", false),
            ("**", "a", true),
            ("*a*", "b", false),
            ("ab*ba", "aba", false),
            ("*é*", "café!", true),
            ("a*", "á", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_of_stars_takes_no_more_time_than_it_is_long() {
        let name = "a".repeat(100_000);
        let begun = std::time::Instant::now();
        for (pattern, fits) in [
            ("*".repeat(1000), true),
            ("a*".repeat(1000), true),
            (format!("{}b", "a*".repeat(1000)), false),
            (format!("{}b*", "*a".repeat(1000)), false),
        ] {
            assert_eq!(matches(&pattern, &name), fits);
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
    }
}
