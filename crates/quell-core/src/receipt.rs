//! The receipt: what happened, as evidence.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Actor, AskScope, Cause, ContainmentInfo, Counts, Fate, JobId, KillReason, Member, Moment, ProcId,
    RootOutcome, Step, StepKind, Verdict,
};

/// The job in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobBrief {
    /// Its id.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub id: JobId,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Its command.
    pub command: Vec<String>,
    /// Where it started.
    pub cwd: String,
    /// The time it was given, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
}

/// The root and its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RootReport {
    /// Who it was; absent where it never came to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ProcId>,
    /// How it ended.
    pub outcome: RootOutcome,
}

/// The grace, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Grace {
    /// What was allowed; less than first promised, if a second stop had less patience.
    pub asked: f64,
    /// What was used; absent where nobody was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<f64>,
}

/// What the tree used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// Seconds of CPU in user mode, of all that were waited for.
    pub cpu_user: f64,
    /// Seconds of CPU in the kernel.
    pub cpu_system: f64,
    /// The largest resident set of one process, in bytes.
    pub peak_process_memory: u64,
    /// The peak of the whole tree, in bytes, where the cgroup's memory controller knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_tree_memory: Option<u64>,
}

/// What a stream of output came to.
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

/// What the job wrote, where quell kept it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Output {
    /// Standard output (and all of a terminal's).
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
    /// The boot in which pids and start times are meant.
    pub boot_id: String,
    /// When it began.
    pub started: Moment,
    /// When the count was done.
    pub ended: Moment,
    /// How it was held.
    pub held: ContainmentInfo,
    /// Why it ended.
    pub cause: Cause,
    /// Who brought that about.
    pub actor: Actor,
    /// The root's own outcome; a fact apart from the verdict.
    pub root: RootReport,
    /// Who was alive when the root had exited.
    pub left_at_root_exit: Vec<ProcId>,
    /// Everyone seen.
    pub members: Vec<Member>,
    /// How many more were seen than are listed.
    #[serde(default)]
    pub members_omitted: u64,
    /// What was done.
    pub steps: Vec<Step>,
    /// Who is not proven dead.
    pub survivors: Vec<ProcId>,
    /// What was proven.
    pub verdict: Verdict,
    /// Which processes were asked first, or would have been.
    #[serde(default)]
    pub ask: AskScope,
    /// The grace.
    pub grace: Grace,
    /// Why the tree was killed; absent where no process needed that, and in receipts of older versions.
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
    /// Whether it would have been started again, but had been as often as its limit allows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart_limit_reached: bool,
    /// What went wrong in quell itself without harming the stop, such as a record that could not be written.
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

    /// Whether the request to end was not enough, so that a kill was needed. A kill that was wanted is none.
    pub fn escalated(&self) -> bool {
        let was_asked = self.time_of(StepKind::Ask).is_some() && self.grace.asked > 0.0;
        self.killed() && self.kill.map_or(was_asked, |reason| reason == KillReason::GraceOver)
    }

    /// How many processes outlived the command and were stopped. Those that ended by themselves right after it don't
    /// count, nor do any where somebody had the job stopped.
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

    /// The numbers in short.
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
