//! The receipt: what happened, as evidence.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{AskScope, ContainmentKind, JobId, Moment, SessionKind, Signal};

/// Who a process is, for the length of a boot: a pid and the time at which it started, in clock ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcId {
    /// The number; reused by the kernel after the process is reaped.
    pub pid: u32,
    /// Field 22 of /proc/PID/stat.
    pub start: u64,
}

/// Why a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The root came to its own end.
    OwnExit,
    /// The program could not be started.
    StartFailed,
    /// A person or program asked for it.
    User,
    /// Its time was up.
    Timeout,
    /// The kernel ended it at a limit that was asked for.
    Limit,
    /// Somebody outside quell sent the root a deadly signal.
    ExternalSignal,
    /// The process that the user called was killed.
    FrontLost,
    /// The keeper was killed.
    KeeperLost,
    /// The process or session it lived for is gone.
    OwnerGone,
    /// The machine was restarted.
    HostReboot,
}

/// Who brought the end about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Actor {
    /// The program itself.
    Program,
    /// quell, following what it was told to do.
    Quell,
    /// A process that sent quell a signal.
    Sender {
        /// The signal that quell got.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        signal: Signal,
        /// The sender's pid.
        pid: u32,
        /// The sender's user.
        uid: u32,
        /// The sender's command line, if it could be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
    /// A process that asked quell to stop the job. If it did so by calling `quell stop`, the process that called it.
    Client {
        /// Its pid.
        pid: u32,
        /// Its user.
        uid: u32,
        /// Its command line, if it could be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
        /// Why, in its own words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The kernel: a terminal that hung up, or a limit.
    Kernel,
    /// Not known: the signal came from outside quell.
    Unknown,
}

/// How the root ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RootOutcome {
    /// With an exit code.
    Exited {
        /// The code.
        code: i32,
    },
    /// By a signal.
    Signaled {
        /// The signal.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        signal: Signal,
        /// Whether a core was dumped.
        core: bool,
    },
    /// It never ran.
    NotStarted {
        /// Why.
        reason: String,
    },
    /// It is gone, and nobody could learn how.
    Unknown,
}

/// What was proven about the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Verdict {
    /// Counted: nobody is left.
    Gone,
    /// Counted: some are left.
    Survivors {
        /// How many.
        count: usize,
    },
    /// It could not be counted.
    Unproven {
        /// Why.
        why: String,
    },
}

/// Why a tree was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KillReason {
    /// It was asked, and something was still running after the grace.
    GraceOver,
    /// The kill was asked for: at once, with a grace of 0, with KILL as the signal that asks, or by a second request.
    Wanted,
    /// The keeper was killed, so the rest of the tree was killed without a grace.
    KeeperLost,
}

/// How many processes a job had, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counts {
    /// Processes that were seen; short-lived ones may not have been.
    pub processes: u64,
    /// Of those, how many outlived the command and were stopped.
    pub outlived: u64,
    /// Of those, how many were killed; 0 where quell killed none.
    pub killed: u64,
    /// Of those, how many are not proven dead.
    pub survivors: u64,
}

/// How one member ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It ended without being asked.
    Exited,
    /// It was asked, and then exited or died of that signal: within the grace, or before the kill reached it.
    ExitedOnAsk,
    /// It was asked, was still running after its grace, and died of the kill.
    #[serde(alias = "ignored_ask")]
    KilledAfterGrace,
    /// It died of KILL without its whole grace: it was not asked, the kill was wanted, or another process sent the KILL.
    Killed,
    /// It was asked, and died of another signal than the request or KILL; or the kernel does not say what it died of.
    Ended,
    /// It is not proven dead.
    Alive,
}

impl Fate {
    /// Whether a kill has, or may have, ended it.
    pub fn is_of_a_kill(self) -> bool {
        matches!(self, Self::KilledAfterGrace | Self::Killed | Self::Ended)
    }
}

/// One process that was seen in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Member {
    /// Its identity.
    #[serde(flatten)]
    pub id: ProcId,
    /// Its parent when first seen.
    pub ppid: u32,
    /// Its process group when first seen.
    pub pgid: u32,
    /// Its session when first seen.
    pub sid: u32,
    /// Its user.
    pub uid: u32,
    /// The user's name, where the host knows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its command line, or its short name in brackets where it has none; cut at 200 characters.
    pub command: String,
    /// How it ended.
    pub fate: Fate,
}

/// What became of one signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SignalResult {
    /// Delivered.
    Sent,
    /// The process was gone already.
    Gone,
    /// The kernel refused.
    Refused,
}

/// A signal and to whom it went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SentSignal {
    /// The signal.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub signal: Signal,
    /// To which process.
    pub to: ProcId,
    /// With which result.
    pub result: SignalResult,
}

/// A rung of the ladder, or a fact that was learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// The stub exists, held, and is on record; no instruction of the program has run.
    Born,
    /// The program runs.
    Running,
    /// The program could not be executed.
    StartFailed,
    /// The root has ended (and is kept unreaped).
    RootExited,
    /// A stop was asked for.
    StopAsked,
    /// The polite signal.
    Ask,
    /// New processes are kept from being made.
    Brake,
    /// The kill.
    Kill,
    /// Adopted children killed and reaped.
    Sweep,
    /// The search for marked processes outside the tree.
    Audit,
    /// The final count.
    Verify,
}

/// One step, with its time and its signals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Step {
    /// When.
    #[serde(flatten)]
    pub moment: Moment,
    /// What.
    pub step: StepKind,
    /// In words, where there is more to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The signals that it sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<SentSignal>,
}

/// How many signals of a step are shown.
const SHOWN_SIGNALS: usize = 32;

/// For diagnostics: `Ask; TERM to pid 12 (Sent)`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.step)?;
        if !self.note.is_empty() {
            write!(f, ": {}", self.note)?;
        }
        for sent in self.signals.iter().take(SHOWN_SIGNALS) {
            write!(f, "; {} to pid {} ({:?})", sent.signal, sent.to.pid, sent.result)?;
        }
        match self.signals.len().saturating_sub(SHOWN_SIGNALS) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

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

/// How the tree was held, and what could defeat that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContainmentInfo {
    /// The containment.
    pub containment: ContainmentKind,
    /// Whose session the root was in.
    pub session: SessionKind,
    /// The cgroup, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// What could defeat this, in words.
    pub defeated_by: Vec<String>,
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
