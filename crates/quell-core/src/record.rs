//! A job as it was asked for, and what holds it.

use serde::{Deserialize, Serialize};

use crate::{JobId, JobRequest, Timestamp};

/// One job as it was asked for, written once. `spec.json` has the request as it may be shown ([`JobRequest::masked`]);
/// `launch.private.json`, which only a background job has and which is shown to no process but `restart`, has the true one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// The schema of this file.
    pub schema: String,
    /// The job's id.
    pub id: JobId,
    /// The secret that marks the job's processes in their environment. Unguessable, so that no other process carries it by
    /// chance; it gives no power.
    pub marker: String,
    /// The boot this belongs to: no pid means anything in another one.
    pub boot_id: String,
    /// The PID namespace of the keeper, by its inode: no PID of the record means anything in another one. 0 if it is not
    /// known.
    #[serde(default)]
    pub pid_namespace: u64,
    /// When it was made.
    pub created: Timestamp,
    /// What was asked for.
    pub request: JobRequest,
}

impl JobSpec {
    /// What takes the place of a specification that was deleted or damaged, so that the job can be listed: what was asked
    /// for is not known.
    pub fn unknown(id: JobId, marker: String, boot_id: String, created: Timestamp) -> Self {
        let request = JobRequest::background(Vec::<String>::new());
        Self { schema: crate::SCHEMA.into(), id, marker, boot_id, pid_namespace: 0, created, request }
    }
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

    /// Whether the process on record as the root is the init of a PID namespace. Then the root is its first child, and has no
    /// PID of its own outside.
    pub const fn has_init(self) -> bool {
        matches!(self, Self::Pidns)
    }

    /// Whether the cgroup is removed by systemd when it is empty.
    pub const fn is_removed_by_systemd(self) -> bool {
        matches!(self, Self::Scope)
    }
}

/// Whose session and group the root is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// A session and group of its own: there is no terminal to share.
    Own,
    /// The caller's, so that the terminal's keys and the shell's job control reach it as without quell.
    Shared,
}
