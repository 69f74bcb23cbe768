//! The receipt: what happened, as evidence.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Actor, AskScope, Cause, ContainmentInfo, Counts, Fate, JobId, JobRequest, KillReason, Member, Moment,
    ProcId, RootOutcome, Step, StepKind, Verdict,
};

/// The job in a receipt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobBrief {
    /// Its id.
    pub id: JobId,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Its command.
    pub command: Vec<String>,
    /// Its working directory.
    pub cwd: String,
    /// The time it was given, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
}

impl JobBrief {
    /// The job that was requested with `request`.
    pub fn new(id: JobId, request: &JobRequest) -> Self {
        Self {
            id,
            name: request.name.clone(),
            tags: request.tags.clone(),
            command: request.words(),
            cwd: request.cwd.as_ref().map(|cwd| cwd.display().to_string()).unwrap_or_default(),
            timeout: request.timeout.map(|timeout| timeout.as_secs_f64()),
        }
    }
}

/// The root and its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RootReport {
    /// Its identity; absent if it was never made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ProcId>,
    /// How it ended.
    pub outcome: RootOutcome,
}

/// The grace, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Grace {
    /// What was allowed; less than planned if a second stop shortened it.
    pub asked: f64,
    /// What was used; absent if no process was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<f64>,
}

/// What the tree used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// Seconds of CPU in user mode, of all processes that were reaped.
    pub cpu_user: f64,
    /// Seconds of CPU in the kernel.
    pub cpu_system: f64,
    /// The largest resident set of one process, in bytes.
    pub peak_process_memory: u64,
    /// The peak of the whole tree, in bytes, if the cgroup has a memory controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_tree_memory: Option<u64>,
}

/// The size of one output stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamTotals {
    /// The bytes that were written.
    pub bytes: u64,
    /// The line ends among them.
    pub lines: u64,
    /// The bytes that were not kept.
    pub cut_bytes: u64,
    /// The line ends among those.
    pub cut_lines: u64,
}

/// The size of the output that quell captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Output {
    /// Standard output, and all output of a terminal.
    pub stdout: StreamTotals,
    /// Standard error.
    pub stderr: StreamTotals,
}

/// The receipt of one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receipt {
    /// The schema of this object.
    pub schema: String,
    /// The job.
    pub job: JobBrief,
    /// The boot that PIDs and start times belong to.
    pub boot_id: String,
    /// When it began.
    pub started: Moment,
    /// When its processes were counted.
    pub ended: Moment,
    /// What held it.
    pub held: ContainmentInfo,
    /// Why it ended.
    pub cause: Cause,
    /// What caused the end.
    pub actor: Actor,
    /// The root and how it ended.
    pub root: RootReport,
    /// The processes that were alive when the root had exited.
    pub left_at_root_exit: Vec<ProcId>,
    /// The processes that were seen, up to a limit.
    pub members: Vec<Member>,
    /// How many more were seen than are listed.
    #[serde(default)]
    pub members_omitted: u64,
    /// What was done to stop it.
    pub steps: Vec<Step>,
    /// The processes that are not proven dead.
    pub survivors: Vec<ProcId>,
    /// What was proven.
    pub verdict: Verdict,
    /// Which processes were asked first, or would have been.
    #[serde(default)]
    pub ask: AskScope,
    /// The grace.
    pub grace: Grace,
    /// Why the tree was killed; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<KillReason>,
    /// What was used.
    pub usage: Usage,
    /// What it wrote, for a background job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    /// Which run of the program this was, from 1 on.
    #[serde(default = "first_run")]
    pub run: u32,
    /// Whether it was not started again because the limit of restarts was reached.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart_limit_reached: bool,
    /// What went wrong without harm to the stop, such as a record that could not be written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

fn first_run() -> u32 {
    1
}

impl Receipt {
    /// Whether members were killed, or a kill did not end them.
    pub fn killed(&self) -> bool {
        self.time_of(StepKind::Kill).is_some()
            && self.members.iter().any(|member| member.fate.is_of_a_kill() || member.fate == Fate::Alive)
    }

    /// Whether the request to end was not enough, so that a kill was needed. Not if the kill was requested.
    pub fn escalated(&self) -> bool {
        let was_asked = self.time_of(StepKind::Ask).is_some() && self.grace.asked > 0.0;
        self.killed() && self.kill.map_or(was_asked, |reason| reason == KillReason::GraceOver)
    }

    /// How many processes outlived the command and were stopped. Processes that ended by themselves right after it don't
    /// count; and none count if a stop of the job was requested first.
    pub fn outlived(&self) -> usize {
        let stop = self.time_of(StepKind::StopAsked);
        if stop.is_some_and(|stop| self.time_of(StepKind::Ask).is_none_or(|ask| stop < ask)) {
            return 0;
        }
        let stopped = |id: &&ProcId| {
            let member = self.members.iter().find(|member| member.id == **id);
            member.is_none_or(|member| member.fate != Fate::Exited)
        };
        self.left_at_root_exit.iter().filter(stopped).count()
    }

    /// The totals.
    pub fn counts(&self) -> Counts {
        // The audit kills too.
        let is_kill = |step: &Step| match step.step {
            StepKind::Kill => true,
            kind => kind == StepKind::Audit && !step.signals.is_empty(),
        };
        let killed = self.members.iter().filter(|member| member.fate.is_of_a_kill()).count();
        Counts {
            processes: self.members.len() as u64 + self.members_omitted,
            outlived: self.outlived() as u64,
            killed: if self.steps.iter().any(is_kill) { killed as u64 } else { 0 },
            survivors: self.survivors.len() as u64,
        }
    }

    /// The time of the first step of a kind, in seconds since the start.
    pub fn time_of(&self, kind: StepKind) -> Option<f64> {
        self.steps.iter().find(|step| step.step == kind).map(|step| step.moment.at)
    }
}
