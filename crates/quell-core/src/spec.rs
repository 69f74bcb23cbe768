//! What was asked for: the job's specification, written once before anything runs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Actor, Cause};
use crate::{JobId, JobState, Moment, ProcId, RootOutcome, StopPlan, Timestamp, Verdict};

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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// How a job was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// `quell run`: somebody waits beside it.
    #[default]
    Run,
    /// `quell start`: it lives on its own.
    Start,
}

/// What a background job reads on its standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Nothing.
    #[default]
    Null,
    /// What the caller gave: a file, or its own standard input.
    Given,
    /// What `quell send` sends.
    Pipe,
}

/// When an ended program is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RestartPolicy {
    /// Never.
    #[default]
    No,
    /// When it did not exit with 0, also after its timeout, unless the job was stopped.
    OnFailure,
    /// Whenever it has ended, also by its timeout, unless the job was stopped.
    Always,
}

/// How an ended program is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RestartRules {
    /// When.
    pub policy: RestartPolicy,
    /// How often at most; none for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The first wait in seconds; each further one is twice as long.
    #[serde(with = "crate::seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub delay: Duration,
    /// The longest wait in seconds. A run that lasted longer than this begins the series anew.
    #[serde(with = "crate::seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub max_delay: Duration,
}

impl Default for RestartRules {
    fn default() -> Self {
        Self {
            policy: RestartPolicy::No,
            limit: Some(10),
            delay: Duration::from_millis(500),
            max_delay: Duration::from_secs(60),
        }
    }
}

/// What shows that a job is ready; all that are given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReadyRules {
    /// A process of the job listens on this TCP port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// A line of its output matches this regular expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// This URL answers with a status from 200 to 399.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// This shell command exits with 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd: Option<String>,
}

impl ReadyRules {
    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Whom a job lives for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Owner {
    /// A process.
    Process {
        /// Its identity.
        #[serde(flatten)]
        id: ProcId,
    },
    /// Another job.
    Job {
        /// Its id.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        job: JobId,
    },
}

/// What becomes of a job whose owner is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnOwnerExit {
    /// It is stopped.
    #[default]
    Stop,
    /// It goes on.
    Keep,
}

/// An event that a hook can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// The program runs.
    Started,
    /// It is ready.
    Ready,
    /// It has ended.
    Ended,
    /// Its time was up.
    TimedOut,
    /// It is being killed: it did not end when asked, or the kill was wanted.
    Killed,
    /// Something had outlived the root.
    Leaked,
    /// Its keeper was lost.
    Lost,
}

/// What a hook does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HookAction {
    /// Runs a command, with the event as JSON on its standard input.
    Run(Vec<String>),
    /// Appends the event as a line of JSON to a file.
    Append(
        #[serde(with = "crate::paths::whole")]
        #[cfg_attr(feature = "schema", schemars(with = "PathBuf"))]
        PathBuf,
    ),
}

/// Something to be done at events of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hook {
    /// At which.
    pub on: Vec<HookEvent>,
    /// What.
    pub action: HookAction,
    /// How long it may take, in seconds.
    #[serde(with = "crate::seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub timeout: Duration,
}

/// What only a background job has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Background {
    /// What it reads.
    pub stdin: Stdin,
    /// Whether its standard streams are a terminal.
    pub pty: bool,
    /// How many bytes of each stream are kept, with their index.
    pub max_log: u64,
    /// What shows that it is ready.
    #[serde(default, skip_serializing_if = "ReadyRules::is_empty")]
    pub ready: ReadyRules,
    /// When it is started again.
    #[serde(default)]
    pub restart: RestartRules,
    /// Whom it lives for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// What becomes of it when that one is gone.
    #[serde(default)]
    pub on_owner_exit: OnOwnerExit,
    /// How long it may live in all, restarts included.
    #[serde(default, with = "crate::seconds::optional", skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Duration>,
    /// What is done at its events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// The variables whose values are shown nowhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mask: Vec<String>,
    /// The job that this one takes the place of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarted_from: Option<JobId>,
}

/// One job as it was asked for: `spec.json`, written once. The environment's values are not in it, and those that are to
/// be masked are masked in the command, the directory, the labels and the signs of readiness: everything here may be shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobSpec {
    /// The schema of this file.
    pub schema: String,
    /// The job's id.
    pub id: JobId,
    /// How it was called.
    #[serde(default)]
    pub mode: Mode,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels for queries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The session that it is part of: jobs that are stopped together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
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
    #[serde(default, with = "crate::seconds::optional", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// What it may use.
    #[serde(default)]
    pub limits: Limits,
    /// The secret that marks the job's processes in their environment. Unguessable, so that nobody else's process
    /// can carry it by chance; it gives no power.
    pub marker: String,
    /// The boot this belongs to: no pid means anything in another one.
    pub boot_id: String,
    /// The PID namespace of the keeper, by its inode: no PID of the record means anything in another one. 0 if it is not
    /// known.
    #[serde(default)]
    pub pid_namespace: u64,
    /// When it was made.
    pub created: Timestamp,
    /// What is done at the events of a job in the foreground; see [`JobSpec::hooks`].
    #[serde(default, rename = "hooks", skip_serializing_if = "Vec::is_empty")]
    pub foreground_hooks: Vec<Hook>,
    /// The variables whose values are masked of a job in the foreground; see [`JobSpec::mask`].
    #[serde(default, rename = "mask", skip_serializing_if = "Vec::is_empty")]
    pub foreground_mask: Vec<String>,
    /// What only a background job has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Background>,
}

impl JobSpec {
    /// What takes the place of a specification that was deleted or damaged, so that the job can be listed: all that was
    /// asked for is not known.
    pub fn unknown(id: JobId, marker: String, boot_id: String, created: Timestamp) -> Self {
        Self {
            schema: crate::SCHEMA.into(),
            id,
            mode: Mode::Start,
            name: None,
            tags: BTreeMap::new(),
            session: None,
            command: Vec::new(),
            cwd: PathBuf::new(),
            contain: Contain::default(),
            until: Until::default(),
            leak: Leak::default(),
            plan: StopPlan::default(),
            timeout: None,
            limits: Limits::default(),
            marker,
            boot_id,
            pid_namespace: 0,
            created,
            foreground_hooks: Vec::new(),
            foreground_mask: Vec::new(),
            background: None,
        }
    }

    /// What is done at its events.
    pub fn hooks(&self) -> &[Hook] {
        self.background.as_ref().map_or(&self.foreground_hooks, |background| &background.hooks)
    }

    /// The variables whose values are masked in all that is shown of the job.
    pub fn mask(&self) -> &[String] {
        self.background.as_ref().map_or(&self.foreground_mask, |background| &background.mask)
    }
}

/// The job as it is now: the last line of `state.jsonl`, to which each transition adds one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The schema of this file.
    pub schema: String,
    /// The job's id.
    pub id: JobId,
    /// Where it is in its life; never `lost`, which only a look at its lock can tell.
    pub state: JobState,
    /// When it came into this state.
    pub since: Moment,
    /// How it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<ContainmentKind>,
    /// The cgroup that holds it, as a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// The root's identity (in a PID namespace: that of its init).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<ProcId>,
    /// Who keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<ProcId>,
    /// Who would finish the stop if the keeper were lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<ProcId>,
    /// Which run of the program this is, from 1 on.
    #[serde(default = "first_run")]
    pub run: u32,
    /// When it was found ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Moment>,
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
    /// The marker of `spec.json` again, for the case that that file is damaged.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub marker: String,
    /// The cgroups of the job's starter and of its keeper, as /proc shows them. A process outside the tree that carries
    /// the marker is the job's only in one of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub home_cgroups: Vec<String>,
    /// Members besides the root that lived when the keeper last looked at the tree, up to a limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<ProcId>,
}

fn first_run() -> u32 {
    1
}

/// What is needed to start the job again, and nobody is shown: `launch.private.json`. The words and values are bytes, as programs
/// get them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaunchFile {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// Where it starts.
    #[serde(with = "crate::paths::whole")]
    pub cwd: PathBuf,
    /// Its whole environment, without quell's own variables.
    pub environment: Vec<(OsString, OsString)>,
    /// The file that it reads, if it was given one by name.
    #[serde(default, with = "crate::paths::optional")]
    pub stdin_file: Option<PathBuf>,
    /// Its labels, which may be masked in the specification. Older records don't have them here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// What shows that it is ready; likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadyRules>,
    /// How often readiness is looked for where nothing tells of it. Older records have none.
    #[serde(default, with = "crate::seconds::optional")]
    pub ready_interval: Option<Duration>,
    /// How long one such look may take.
    #[serde(default, with = "crate::seconds::optional")]
    pub ready_timeout: Option<Duration>,
    /// Whether `quell test` started it. The guard judges such a command by other rules than a start.
    #[serde(default)]
    pub test: bool,
    /// The marker of `spec.json` once more: whoever finishes the job finds it in whatever file is whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub marker: String,
}

/// A `K=V` without its `=` or its key.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no assignment: write KEY=VALUE")]
pub struct InvalidAssignment(String);

/// A line of an environment file that is no assignment.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct InvalidEnvironment {
    /// Which, from 1 on.
    line: usize,
    /// Why.
    error: InvalidAssignment,
}

/// Reads the text of an environment file: one `KEY=VALUE` a line, empty lines, and comments that begin with `#`.
pub fn parse_environment(text: &str) -> Result<Vec<(String, String)>, InvalidEnvironment> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_start()));
    lines
        .filter(|(_, text)| !text.is_empty() && !text.starts_with('#'))
        .map(|(line, text)| parse_assignment(text).map_err(|error| InvalidEnvironment { line, error }))
        .collect()
}

/// Reads `KEY=VALUE`; the value may be empty and may hold more `=`. A key with a blank, as in `export KEY=VALUE`, is none.
pub fn parse_assignment(text: &str) -> Result<(String, String), InvalidAssignment> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !key.contains([' ', '\t']) && !text.contains('\0') => {
            Ok((key.to_owned(), value.to_owned()))
        }
        // What may be a secret is not shown.
        Some((key, _)) => Err(InvalidAssignment(format!("{key}=…"))),
        None => Err(InvalidAssignment(text.to_owned())),
    }
}
