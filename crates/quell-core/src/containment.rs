//! What holds the processes of a job.

use serde::{Deserialize, Serialize};

/// The requested containment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contain {
    /// The strongest that doesn't change what the program sees.
    #[default]
    Auto,
    /// A cgroup v2 of its own.
    Cgroup,
    /// A PID namespace of its own.
    Pidns,
    /// Session, group and subreaper only.
    Reaper,
}

/// The containment that holds the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ContainmentKind {
    /// Subreaper sweep, session and group.
    Reaper,
    /// A cgroup v2 that quell made below its own.
    Cgroup,
    /// A cgroup v2 that the systemd user manager delegated as a scope.
    Scope,
    /// A PID namespace whose init is quell's.
    Pidns,
}

impl ContainmentKind {
    /// The word for it in JSON, on the command line and in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reaper => "reaper",
            Self::Cgroup => "cgroup",
            Self::Scope => "scope",
            Self::Pidns => "pidns",
        }
    }

    /// Whether the process on record as the root is the init of a PID namespace. Then the root is the first child of that
    /// init, and its PID outside of the namespace is not recorded.
    pub const fn has_init(self) -> bool {
        matches!(self, Self::Pidns)
    }

    /// Whether the cgroup is removed by systemd when it is empty.
    pub const fn is_removed_by_systemd(self) -> bool {
        matches!(self, Self::Scope)
    }
}

/// The session and group of the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// A session and group of its own. Used if the caller has no terminal.
    Own,
    /// The caller's, so that the terminal's keys and the shell's job control reach it as without quell.
    Shared,
}

/// What held a tree, and what could defeat it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContainmentInfo {
    /// The containment.
    pub containment: ContainmentKind,
    /// The session of the root.
    pub session: SessionKind,
    /// The path of the cgroup, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// What could defeat it, for people.
    pub defeated_by: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_containment_has_the_word_of_its_json_and_one_owner_of_its_end() {
        for (kind, word, has_init, by_systemd) in [
            (ContainmentKind::Reaper, "reaper", false, false),
            (ContainmentKind::Cgroup, "cgroup", false, false),
            (ContainmentKind::Scope, "scope", false, true),
            (ContainmentKind::Pidns, "pidns", true, false),
        ] {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("{word:?}"));
            assert_eq!(kind.as_str(), word);
            assert_eq!((kind.has_init(), kind.is_removed_by_systemd()), (has_init, by_systemd), "{word}");
        }
    }
}
