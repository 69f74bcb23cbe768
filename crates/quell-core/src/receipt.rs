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

impl Grace {
    /// The time between two moments, in whole microseconds as they are. Their difference has digits that don't survive reading
    /// and writing.
    pub fn between(began: f64, ended: f64) -> f64 {
        ((ended - began) * 1e6).round() / 1e6
    }
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
    /// Whether the job ended while it waited for its next run, when it had no process. What else is here is about its last run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended_waiting: bool,
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
    /// Puts `shown` of them in place of the texts that name processes, whose names and command lines may hold what is masked.
    pub fn show_processes(&mut self, shown: impl Fn(&str) -> String) {
        let commands = self.members.iter_mut().map(|member| &mut member.command);
        let why = match &mut self.verdict {
            Verdict::Unproven { why } => Some(why),
            Verdict::Gone | Verdict::Survivors { .. } => None,
        };
        let notes = self.steps.iter_mut().map(|step| &mut step.note);
        for text in commands.chain(why).chain(notes).filter(|text| !text.is_empty()) {
            *text = shown(text);
        }
    }

    /// Whether members were killed, or a kill did not end them.
    pub fn killed(&self) -> bool {
        self.time_of(StepKind::Kill).is_some()
            && self.members.iter().any(|member| member.fate.is_of_a_kill() || member.fate == Fate::Alive)
    }

    /// Whether members were killed though no kill was requested: after their grace, or because the keeper was killed.
    pub fn escalated(&self) -> bool {
        let was_asked = self.time_of(StepKind::Ask).is_some() && self.grace.asked > 0.0;
        self.killed() && self.kill.map_or(was_asked, |reason| reason != KillReason::Wanted)
    }

    /// How many processes outlived the command and were stopped. Processes that ended by themselves right after it don't
    /// count; and none count if a stop of the job was requested first, or if nothing was stopped.
    pub fn outlived(&self) -> usize {
        if self.time_of(StepKind::Ask).or(self.time_of(StepKind::Kill)).is_none() {
            return 0;
        }
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
        let killed = self.members.iter().filter(|member| member.fate.is_killed()).count();
        Counts {
            processes: self.members.len() as u64 + self.members_omitted,
            outlived: self.outlived() as u64,
            killed: if self.steps.iter().any(is_kill) { killed as u64 } else { 0 },
            survivors: self.survivors.len() as u64,
        }
    }

    /// The account of a job that ended while it waited for its next run: this receipt is of its last run, and only why and when
    /// the job ended is new. `note` says that in the step that is added.
    #[must_use]
    pub fn ended_between_runs(mut self, cause: Cause, actor: Actor, ended: Moment, note: String) -> Self {
        let step = Step { moment: ended.clone(), step: StepKind::StopAsked, note, signals: Vec::new() };
        self.steps.push(step);
        Self { cause, actor, ended, ended_waiting: true, ..self }
    }

    /// The time of the first step of a kind, in seconds since the start.
    pub fn time_of(&self, kind: StepKind) -> Option<f64> {
        self.steps.iter().find(|step| step.step == kind).map(|step| step.moment.at)
    }
}

#[cfg(test)]
impl Receipt {
    /// The receipt of a job that exited by itself, alone.
    pub(crate) fn sample() -> Self {
        let moment = Moment { at: 0.0, wall: crate::Timestamp::default() };
        Self {
            schema: crate::SCHEMA.into(),
            job: JobBrief::new(JobId::new(1, 1), &JobRequest::foreground(["true"])),
            boot_id: String::new(),
            started: moment.clone(),
            ended: moment,
            held: ContainmentInfo {
                containment: crate::ContainmentKind::Reaper,
                session: crate::SessionKind::Own,
                cgroup: None,
                defeated_by: Vec::new(),
            },
            cause: Cause::OwnExit,
            actor: Actor::Program,
            root: RootReport { id: None, outcome: RootOutcome::Exited { code: 0 } },
            left_at_root_exit: Vec::new(),
            members: Vec::new(),
            members_omitted: 0,
            steps: Vec::new(),
            survivors: Vec::new(),
            verdict: Verdict::Gone,
            ask: AskScope::Tree,
            grace: Grace { asked: 5.0, used: None },
            kill: None,
            usage: Usage::default(),
            output: None,
            run: 1,
            ended_waiting: false,
            restart_limit_reached: false,
            warnings: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SentSignal, Signal, SignalResult, Timestamp};

    fn id(pid: u32) -> ProcId {
        ProcId { pid, start: 1 }
    }

    fn member(pid: u32, fate: Fate) -> Member {
        let command = String::new();
        Member { id: id(pid), ppid: 1, pgid: 1, sid: 1, uid: 0, user: None, command, fate }
    }

    fn step(step: StepKind, at: f64) -> Step {
        let moment = Moment { at, wall: Timestamp::default() };
        Step { moment, step, note: String::new(), signals: Vec::new() }
    }

    fn receipt(members: &[Member], steps: &[Step]) -> Receipt {
        Receipt { members: members.to_vec(), steps: steps.to_vec(), ..Receipt::sample() }
    }

    #[test]
    fn a_used_grace_is_the_same_after_reading_and_writing() {
        for micros in (0..8_000_000).step_by(41) {
            let used = Grace::between(0.1, f64::from(100_000 + micros) / 1e6);
            let read: f64 = serde_json::from_str(&serde_json::to_string(&used).unwrap()).unwrap();
            assert_eq!((read.to_bits(), used), (used.to_bits(), f64::from(micros) / 1e6));
        }
    }

    #[test]
    fn a_receipt_without_a_run_is_that_of_the_first() {
        let mut json = serde_json::to_value(Receipt::sample()).unwrap();
        json.as_object_mut().unwrap().remove("run");
        assert_eq!(serde_json::from_value::<Receipt>(json).unwrap().run, 1);
    }

    #[test]
    fn a_job_was_killed_if_a_kill_ended_a_member_or_could_not() {
        let kill = [step(StepKind::Kill, 2.0)];
        for (fate, killed) in [(Fate::Killed, true), (Fate::Alive, true), (Fate::ExitedOnAsk, false)] {
            assert_eq!(receipt(&[member(7, fate)], &kill).killed(), killed, "{fate:?}");
        }
        assert!(!receipt(&[member(7, Fate::Killed)], &[]).killed());
    }

    #[test]
    fn a_kill_that_was_wanted_is_not_an_escalation() {
        let (ask, kill) = (step(StepKind::Ask, 1.0), step(StepKind::Kill, 2.0));
        let killed = Receipt { kill: None, ..receipt(&[member(7, Fate::Killed)], &[ask, kill.clone()]) };
        for (reason, escalated) in
            [(KillReason::GraceOver, true), (KillReason::KeeperLost, true), (KillReason::Wanted, false)]
        {
            assert_eq!(Receipt { kill: Some(reason), ..killed.clone() }.escalated(), escalated, "{reason:?}");
        }
        // Older receipts have no reason.
        assert!(killed.escalated());
        assert!(!Receipt { grace: Grace { asked: 0.0, used: None }, ..killed.clone() }.escalated());
        assert!(!Receipt { steps: vec![kill], ..killed.clone() }.escalated());
        assert!(!Receipt { members: Vec::new(), kill: Some(KillReason::GraceOver), ..killed }.escalated());
    }

    #[test]
    fn a_process_outlived_the_command_if_it_did_not_exit_by_itself_and_no_stop_came_first() {
        let (stop, ask) = (|at| step(StepKind::StopAsked, at), step(StepKind::Ask, 2.0));
        let members = [member(1, Fate::Exited), member(2, Fate::Killed)];
        for (steps, outlived) in [
            (vec![ask.clone()], 2),
            (vec![stop(1.0), ask.clone()], 0),
            (vec![ask, stop(3.0)], 2),
            (vec![stop(1.0)], 0),
        ] {
            let left = vec![id(1), id(2), id(3)];
            let receipt = Receipt { left_at_root_exit: left, ..receipt(&members, &steps) };
            assert_eq!(receipt.outlived(), outlived, "{steps:?}");
        }
    }

    #[test]
    fn the_totals_have_the_members_that_are_not_listed_and_count_the_killed_only_after_a_kill() {
        let sent = SentSignal { signal: Signal::KILL, to: id(2), result: SignalResult::Sent };
        let with_signal = |kind| Step { signals: vec![sent.clone()], ..step(kind, 1.0) };
        let members = [member(1, Fate::Exited), member(2, Fate::Killed), member(3, Fate::Ended)];
        for (done, killed, outlived) in [
            (step(StepKind::Kill, 1.0), 1, 1),
            (with_signal(StepKind::Audit), 1, 0),
            (step(StepKind::Audit, 1.0), 0, 0),
            (with_signal(StepKind::Ask), 0, 1),
        ] {
            let receipt = Receipt {
                members_omitted: 4,
                left_at_root_exit: vec![id(2)],
                survivors: vec![id(8), id(9), id(10)],
                ..receipt(&members, std::slice::from_ref(&done))
            };
            let counts = Counts { processes: 7, outlived, killed, survivors: 3 };
            assert_eq!(receipt.counts(), counts, "{done:?}");
        }
    }
}
