//! What verbs print with `--json`: the `data` of their envelopes. docs/schema has a schema of each.

use std::path::{Path, PathBuf};
use std::time::Duration;

use quell_core::{
    ErrorBody, JobId, Member, OnOwnerExit, Output, Owner, ProcId, ReadyRules, Receipt, RestartRules,
    RootReport, Signal,
};
use quell_guard::{Decision, Verb};
use quell_keeper::Left;
use serde::Serialize;

use crate::config::{ConfigFile, Loaded, Sourced};
use crate::{
    Condition, Cursor, Error, Job, JobState, JobView, LiveMember, LogCut, LogLine, LogsView, Result,
    Unwritten, Waited, recover_if_orphaned,
};

/// `quell run --leak keep`, if the command has exited and processes of it go on. All other runs print a receipt.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunLeft {
    /// The job that goes on: `quell stop` and `quell status` take it.
    pub id: JobId,
    /// Its state.
    pub state: JobState,
    /// The command itself, which has exited, and how.
    pub root: RootReport,
    /// How many processes were seen alive when the command had exited.
    pub processes: usize,
    /// The first few of them.
    pub left: Vec<LeftProcess>,
    /// What the job lives for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

/// A process that outlived its command and goes on.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftProcess {
    /// Its identity.
    #[serde(flatten)]
    pub id: ProcId,
    /// Its command line.
    pub command: String,
}

impl RunLeft {
    /// What is left of a job that lives for `owner`.
    pub fn new(left: &Left, owner: Option<Owner>) -> Self {
        let process = |member: &Member| LeftProcess { id: member.id, command: member.command.clone() };
        Self {
            id: left.id,
            state: JobState::Running,
            root: RootReport { id: left.root, outcome: left.outcome.clone() },
            processes: left.count,
            left: left.members.iter().map(process).collect(),
            owner,
        }
    }
}

/// `quell start`, and `quell restart` for each job.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StartAnswer {
    /// The new job's id.
    pub id: JobId,
    /// The id of the job that it replaces, for a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarted_from: Option<JobId>,
    /// The job; absent if it was removed already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobView>,
    /// How the wait for readiness ended, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<Condition>,
    /// The last lines of its output, if it ended before it was ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
}

impl StartAnswer {
    /// What is known of `job` now. `met`: how the wait for readiness ended.
    pub fn new(job: &Job, restarted_from: Option<JobId>, met: Option<Condition>) -> Self {
        Self { id: job.id(), restarted_from, job: job.view().ok(), met, last_lines: job.last_lines(met) }
    }
}

/// `quell stop`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StopAnswer {
    /// The jobs that were stopped or had ended before; empty if none was selected.
    pub jobs: Vec<StoppedJob>,
    /// What went wrong with the others.
    pub failed: Vec<ErrorBody>,
}

/// A job that was stopped.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoppedJob {
    /// The job's id.
    pub id: JobId,
    /// Whether it had ended before.
    pub already_ended: bool,
    /// Its receipt.
    pub receipt: Receipt,
}

/// `quell guard check`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckAnswer {
    /// The verb in question.
    pub verb: String,
    /// Its target.
    pub target: String,
    /// The guard's decision.
    pub decision: Decision,
}

/// `quell wait`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitAnswer {
    /// How the wait for each ended, in the order in which they were given.
    pub jobs: Vec<Waited>,
}

/// `quell send`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SendAnswer {
    /// The job's id.
    pub id: JobId,
    /// How many bytes were written.
    pub bytes: u64,
    /// Whether the input was closed after them.
    pub eof: bool,
}

/// `quell signal`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SignalAnswer {
    /// The job's id.
    pub id: JobId,
    /// The signal.
    pub signal: Signal,
    /// Whether it was sent to the whole tree.
    pub tree: bool,
    /// How many processes got it.
    pub sent: usize,
}

/// `quell logs`: one page, or with `--follow` entries one by one.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum LogsAnswer {
    /// One page.
    Page(LogsView),
    /// One entry.
    Followed(Followed),
}

/// An entry of `quell logs --follow`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Followed {
    /// A line.
    Line {
        /// The line.
        #[serde(flatten)]
        line: LogLine,
        /// Where to continue after it.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        cursor: Cursor,
    },
    /// Output that was not kept.
    Cut {
        /// The cut.
        #[serde(flatten)]
        cut: LogCut,
        /// Where to continue after it.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        cursor: Cursor,
    },
}

/// `quell status`, for each job.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusAnswer {
    /// The job as in lists, with its output also while it is alive.
    pub job: JobView,
    /// What could defeat its containment.
    pub defeated_by: Vec<String>,
    /// Its directory.
    pub dir: PathBuf,
    /// The path of its receipt, once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<PathBuf>,
    /// What shows that it is ready, if it has a readiness check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_rules: Option<ReadyRules>,
    /// How it is started again, for a background job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_rules: Option<RestartRules>,
    /// What happens to it when its owner is gone, for a background job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_owner_exit: Option<OnOwnerExit>,
    /// How long it may live in all, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<f64>,
    /// Output that could not be written to disk.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unwritten: Vec<Unwritten>,
}

/// `quell tree`, for each job.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TreeAnswer {
    /// The job's id.
    pub id: JobId,
    /// Its state.
    pub state: JobState,
    /// The living processes, parents first; empty once it has ended.
    pub processes: Vec<LiveMember>,
    /// The processes that were seen, with their fates, once it has ended.
    pub members: Vec<Member>,
    /// How many more were seen than are listed.
    pub members_omitted: u64,
}

/// `quell rm`, for each job.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RmAnswer {
    /// The job that is removed.
    pub id: JobId,
}

/// `quell config show`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigAnswer {
    /// Each setting with its origin; then the hooks and the trusted directories.
    pub values: Vec<Sourced>,
    /// The files that were read, weakest first.
    pub files: Vec<ConfigFile>,
    /// Settings that were ignored, and why.
    pub warnings: Vec<String>,
}

impl From<&Loaded> for ConfigAnswer {
    fn from(loaded: &Loaded) -> Self {
        let Loaded { values, files, warnings, .. } = loaded;
        Self { values: values.clone(), files: files.clone(), warnings: warnings.clone() }
    }
}

impl Job {
    /// Everything that is known of it. If it was lost, its stop is finished first; if it can't be proven dead, it is shown as
    /// `lost`.
    pub fn status(&self) -> Result<StatusAnswer> {
        self.quell.permit(Verb::Status, "")?;
        match recover_if_orphaned(self.dir()) {
            Ok(_) | Err(Error::NotProvenDead(_) | Error::TimedOut(_)) => {}
            Err(error) => return Err(error),
        }
        let mut job = JobView::look(self.dir())?;
        let spec = self.dir().spec().ok();
        let background = spec.as_ref().and_then(|spec| spec.request.as_background());
        if job.output.is_none() && background.is_some() {
            job.output = self.written();
        }
        let receipt = self.dir().dir().join("receipt.json");
        // JSON has only UTF-8.
        let shown = |path: &Path| PathBuf::from(path.to_string_lossy().into_owned());
        let seconds = |duration: Duration| duration.as_secs_f64();
        Ok(StatusAnswer {
            defeated_by: job.held.map(quell_contain::defeated_by).unwrap_or_default(),
            dir: shown(self.dir().dir()),
            receipt: Some(receipt)
                .filter(|path| job.state == JobState::Ended && path.exists())
                .map(|path| shown(&path)),
            ready_rules: background
                .map(|background| background.ready.rules.clone())
                .filter(|ready| !ready.is_empty()),
            restart_rules: background.map(|background| background.restart),
            on_owner_exit: background.map(|background| background.on_owner_exit),
            ttl: background.and_then(|background| background.ttl).map(seconds),
            unwritten: self.unwritten(),
            job,
        })
    }

    /// The last lines that it has written, if it ended before what was waited for: they mostly say why. Long ones are cut.
    pub fn last_lines(&self, met: Option<Condition>) -> Vec<String> {
        const LINES: usize = 10;
        const LONGEST: usize = 400;
        if met != Some(Condition::Exit) {
            return Vec::new();
        }
        let cut = |LogLine { text, .. }: LogLine| match text.char_indices().nth(LONGEST) {
            Some((at, _)) => format!("{}…", &text[..at]),
            None => text,
        };
        let read = self.logs().last(LINES).max_bytes((LINES * LONGEST * 4) as u64).read();
        read.map(|page| page.lines.into_iter().map(cut).collect()).unwrap_or_default()
    }

    /// The output so far; none if it can't be read.
    fn written(&self) -> Option<Output> {
        self.logs().last(0).read().ok().map(|page| page.totals)
    }
}
