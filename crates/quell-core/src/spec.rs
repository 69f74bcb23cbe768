//! What was asked for: the job's specification, written once before anything runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Actor, Cause};
use crate::{JobId, Moment, ProcId, RootOutcome, StopPlan, Verdict};

/// The containment that was asked for.
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
pub enum HeldBy {
    /// Subreaper sweep, session and group.
    Reaper,
    /// A cgroup v2 that quell made below its own.
    Cgroup,
    /// A cgroup v2 that the systemd user manager delegated as a scope.
    Scope,
    /// A PID namespace whose init is quell's.
    Pidns,
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

/// What ends a job by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// The exit of the root; what it left is stopped.
    #[default]
    Root,
    /// The exit of the last process.
    Tree,
}

/// What to do about descendants that live on when the root has exited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leak {
    /// Stop them.
    #[default]
    Stop,
    /// Stop them and say so.
    Report,
    /// Stop them and fail.
    Fail,
}

/// Limits on the whole tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Number of processes (tasks).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub procs: Option<u64>,
    /// Cores' worth of CPU time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
}

impl Limits {
    /// Whether no limit was asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One job as it was asked for: `spec.json`, written once. The environment's values are not in it: they may be
/// secrets, and nothing that is done with a record needs them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobSpec {
    /// The schema of this file.
    pub schema: String,
    /// The job's id.
    pub id: JobId,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels for queries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The command and its arguments, as given.
    pub command: Vec<String>,
    /// Where it starts.
    pub cwd: PathBuf,
    /// The containment asked for.
    pub contain: Contain,
    /// What ends it.
    pub until: Until,
    /// What to do about leftovers.
    pub leak: Leak,
    /// How it is stopped.
    pub plan: StopPlan,
    /// When it is stopped at the latest, counted from its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// What it may use.
    #[serde(default)]
    pub limits: Limits,
    /// The secret that marks the job's processes in their environment. Unguessable, so that nobody else's process
    /// can carry it by chance; it gives no power.
    pub marker: String,
    /// The boot this belongs to: no pid means anything in another one.
    pub boot_id: String,
    /// When it was made.
    pub created: String,
}

/// The job as it is now: `state.json`, replaced as a whole on each transition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The schema of this file.
    pub schema: String,
    /// The job's id.
    pub id: JobId,
    /// `created`, `starting`, `running`, `stopping` or `ended`.
    pub state: String,
    /// When it came into this state.
    pub since: Moment,
    /// How it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldBy>,
    /// The cgroup that holds it, as a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// The root's identity (in a PID namespace: that of its init).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<ProcId>,
    /// Whether the root leads a session and group of its own, so that its pid may be used as a group's number.
    pub session: SessionKind,
    /// The root's outcome, once it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RootOutcome>,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Who asked for the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// What was proven about the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Who is not proven dead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub survivors: Vec<ProcId>,
}

/// A `K=V` without its `=` or its key.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no assignment: write KEY=VALUE")]
pub struct BadAssignment(String);

/// Reads `KEY=VALUE`; the value may be empty and may hold more `=`.
pub fn parse_assignment(text: &str) -> Result<(String, String), BadAssignment> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !text.contains('\0') => {
            Ok((key.to_owned(), value.to_owned()))
        }
        Some(_) | None => Err(BadAssignment(text.to_owned())),
    }
}
