//! The state of a job: the word that people and programs read, and what is on disk.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{
    ContainmentKind, Ending, FinalVerdict, JobId, Moment, ProcId, Receipt, RootOutcome, SessionKind, Verdict,
};

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It is on record; nothing has been started.
    Created,
    /// Its program is being started.
    Starting,
    /// Its program runs.
    Running,
    /// It runs and has shown that it is ready.
    Ready,
    /// It is being stopped.
    Stopping,
    /// It waits to be started again.
    Waiting,
    /// It has ended.
    Ended,
    /// It has not ended, and has no keeper.
    Lost,
}

/// A text that is not a state of a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a state of a job: the states are {all}", all = JobState::ALL.map(JobState::as_str).join(", "))]
pub struct InvalidState(String);

impl JobState {
    /// All states, in the usual order.
    pub const ALL: [Self; 8] = [
        Self::Created,
        Self::Starting,
        Self::Running,
        Self::Ready,
        Self::Stopping,
        Self::Waiting,
        Self::Ended,
        Self::Lost,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Ready => "ready",
            Self::Stopping => "stopping",
            Self::Waiting => "waiting",
            Self::Ended => "ended",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for JobState {
    type Err = InvalidState;

    fn from_str(text: &str) -> Result<Self, InvalidState> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| InvalidState(text.to_owned()))
    }
}

/// The last line of `state.jsonl`, to which each transition adds one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateRecord {
    /// The schema of this file.
    pub schema: String,
    /// The job's id.
    pub id: JobId,
    /// Which run of the program this is, from 1 on.
    pub run: u32,
    /// When it came into this state.
    pub since: Moment,
    /// The process that keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<ProcId>,
    /// The process that finishes the stop if the keeper is killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<ProcId>,
    /// The marker of `spec.json` again, in case that file is damaged.
    pub marker: String,
    /// The cgroups of the job's starter and of its keeper, as /proc shows them. A process outside the tree that has the marker
    /// in its environment belongs to the job only if it is in one of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub home_cgroups: Vec<String>,
    /// The state, with all that is known in it.
    #[serde(flatten)]
    pub state: RecordedState,
}

/// The state of a job on disk. A job without one is `created`. `lost` is never written: it follows from the job's lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RecordedState {
    /// The root waits for permission to become the program.
    Starting {
        /// The tree.
        tree: RecordedTree,
    },
    /// The program runs, or processes that it started and that the job waits for.
    Running {
        /// The tree.
        tree: RecordedTree,
        /// How the root ended, if it has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<RootOutcome>,
    },
    /// It runs and has shown that it is ready.
    Ready {
        /// The tree.
        tree: RecordedTree,
        /// How the root ended, if it has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<RootOutcome>,
        /// When it was found ready.
        ready: Moment,
    },
    /// It is being stopped, or has processes that could not be stopped.
    Stopping {
        /// The tree; none if the keeper was killed before it reported one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tree: Option<RecordedTree>,
        /// How the root ended, if it has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<RootOutcome>,
        /// When it was found ready.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ready: Option<Moment>,
        /// Why it is stopped.
        ending: Ending,
        /// The processes that were still alive after the kill, as far as they can be named; none while that is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        survivors: Option<Vec<ProcId>>,
    },
    /// It waits for its next run.
    Waiting {
        /// How the last run ended.
        last: RunEnd,
        /// The tree of the last run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tree: Option<RecordedTree>,
    },
    /// It has ended.
    Ended {
        /// How the last run ended.
        last: RunEnd,
        /// The tree of the last run; none if the program could not be started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tree: Option<RecordedTree>,
        /// When the last run was found ready.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ready: Option<Moment>,
    },
}

/// What holds a tree, and how its processes are found without its keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedTree {
    /// What holds it.
    pub containment: ContainmentKind,
    /// Whether the root leads a session and group of its own, so that its PID is also the ID of the group.
    pub session: SessionKind,
    /// The root's identity (in a PID namespace: that of its init).
    pub root: ProcId,
    /// In a PID namespace: the root below that init.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner: Option<ProcId>,
    /// The cgroup's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// Other members that were alive when the keeper last looked at the tree, and during a stop those that were alive before, up
    /// to a limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<ProcId>,
}

impl RecordedTree {
    /// The root itself, as it is shown. None in a PID namespace whose record names only the init.
    pub fn shown_root(&self) -> Option<ProcId> {
        if self.containment.has_init() { self.inner } else { Some(self.root) }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// How the root ended.
    pub outcome: RootOutcome,
    /// Why the run ended.
    pub ending: Ending,
    /// What was proven about the tree.
    pub verdict: FinalVerdict,
}

impl StateRecord {
    /// Whether this is the end that `receipt` is about. It may be about an earlier run, or about an earlier attempt to stop.
    pub fn is_end_of(&self, receipt: &Receipt) -> bool {
        match (&self.state, RecordedState::after(receipt, None, None)) {
            (RecordedState::Ended { last, .. }, RecordedState::Ended { last: of_receipt, .. }) => {
                self.run == receipt.run && *last == of_receipt
            }
            _ => false,
        }
    }
}

impl RecordedState {
    /// The state after the run of `receipt`, if no other run follows. A job with survivors has not ended.
    pub fn after(receipt: &Receipt, tree: Option<RecordedTree>, ready: Option<Moment>) -> Self {
        let ending = Ending { cause: receipt.cause, actor: receipt.actor.clone() };
        let outcome = receipt.root.outcome.clone();
        let verdict = match &receipt.verdict {
            Verdict::Gone => FinalVerdict::Gone,
            Verdict::Unproven { why } => FinalVerdict::Unproven { why: why.clone() },
            Verdict::Survivors { .. } => {
                // A later attempt may find out how the root ended.
                let outcome = Some(outcome).filter(|outcome| *outcome != RootOutcome::Unknown);
                let survivors = Some(receipt.survivors.clone());
                return Self::Stopping { tree, outcome, ready, ending, survivors };
            }
        };
        Self::Ended { last: RunEnd { outcome, ending, verdict }, tree, ready }
    }

    /// The same state if another run follows.
    #[must_use]
    pub fn before_next_run(self) -> Self {
        match self {
            Self::Ended { last, tree, .. } => Self::Waiting { last, tree },
            other => other,
        }
    }

    /// The word for it.
    pub fn job_state(&self) -> JobState {
        match self {
            Self::Starting { .. } => JobState::Starting,
            Self::Running { .. } => JobState::Running,
            Self::Ready { .. } => JobState::Ready,
            Self::Stopping { .. } => JobState::Stopping,
            Self::Waiting { .. } => JobState::Waiting,
            Self::Ended { .. } => JobState::Ended,
        }
    }

    /// Whether the job has ended.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }

    /// The tree of the present or last run.
    pub fn tree(&self) -> Option<&RecordedTree> {
        match self {
            Self::Starting { tree } | Self::Running { tree, .. } | Self::Ready { tree, .. } => Some(tree),
            Self::Stopping { tree, .. } | Self::Waiting { tree, .. } | Self::Ended { tree, .. } => {
                tree.as_ref()
            }
        }
    }

    /// When the present run was found ready, or the last one of an ended job.
    pub fn ready(&self) -> Option<&Moment> {
        match self {
            Self::Ready { ready, .. } => Some(ready),
            Self::Stopping { ready, .. } | Self::Ended { ready, .. } => ready.as_ref(),
            Self::Starting { .. } | Self::Running { .. } | Self::Waiting { .. } => None,
        }
    }

    /// How the root of the present or last run ended.
    pub fn outcome(&self) -> Option<&RootOutcome> {
        match self {
            Self::Starting { .. } => None,
            Self::Running { outcome, .. } | Self::Ready { outcome, .. } | Self::Stopping { outcome, .. } => {
                outcome.as_ref()
            }
            Self::Waiting { last, .. } | Self::Ended { last, .. } => Some(&last.outcome),
        }
    }

    /// Why the present run ends, or the last one has ended.
    pub fn ending(&self) -> Option<&Ending> {
        match self {
            Self::Starting { .. } | Self::Running { .. } | Self::Ready { .. } => None,
            Self::Stopping { ending, .. } => Some(ending),
            Self::Waiting { last, .. } | Self::Ended { last, .. } => Some(&last.ending),
        }
    }

    /// The processes that a stop has left alive, as far as they can be named; none if no stop has.
    pub fn survivors(&self) -> Option<&[ProcId]> {
        match self {
            Self::Stopping { survivors, .. } => survivors.as_deref(),
            _ => None,
        }
    }

    /// What was proven about the tree of the last run.
    pub fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Waiting { last, .. } | Self::Ended { last, .. } => Some(match &last.verdict {
                FinalVerdict::Gone => Verdict::Gone,
                FinalVerdict::Unproven { why } => Verdict::Unproven { why: why.clone() },
            }),
            _ => self.survivors().map(|named| Verdict::Survivors { count: named.len().max(1) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_json_is_the_word_that_is_parsed() {
        for state in JobState::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("{:?}", state.as_str()));
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        assert!("draining".parse::<JobState>().is_err());
    }

    #[test]
    fn a_run_with_survivors_has_not_ended_and_its_root_may_still_be_heard_of() {
        let survivor = ProcId { pid: 7, start: 1 };
        let receipt = |outcome| {
            let mut receipt = Receipt::sample();
            receipt.root.outcome = outcome;
            Receipt { verdict: Verdict::Survivors { count: 1 }, survivors: vec![survivor], ..receipt }
        };
        let (tree, ready) = (tree(), Moment { at: 1.0, wall: crate::Timestamp::default() });
        let exited = RootOutcome::Exited { code: 0 };
        for (outcome, known) in [(exited.clone(), Some(&exited)), (RootOutcome::Unknown, None)] {
            let state = RecordedState::after(&receipt(outcome), Some(tree.clone()), Some(ready.clone()));
            assert_eq!((state.job_state(), state.is_ended()), (JobState::Stopping, false));
            assert_eq!((state.tree(), state.ready(), state.outcome()), (Some(&tree), Some(&ready), known));
            assert_eq!(state.survivors(), Some(&[survivor][..]));
            assert_eq!(state.verdict(), Some(Verdict::Survivors { count: 1 }));
        }
    }

    #[test]
    fn a_run_that_is_gone_has_ended_unless_another_one_follows() {
        let (receipt, tree) = (Receipt::sample(), tree());
        let ending = Ending { cause: receipt.cause, actor: receipt.actor.clone() };
        let ended = RecordedState::after(&receipt, Some(tree.clone()), None);
        let waiting = ended.clone().before_next_run();
        for (state, word) in [(&ended, JobState::Ended), (&waiting, JobState::Waiting)] {
            assert_eq!((state.job_state(), state.is_ended()), (word, word == JobState::Ended));
            assert_eq!((state.tree(), state.ready()), (Some(&tree), None));
            assert_eq!((state.outcome(), state.ending()), (Some(&receipt.root.outcome), Some(&ending)));
            assert_eq!((state.survivors(), state.verdict()), (None, Some(Verdict::Gone)));
        }
    }

    fn tree() -> RecordedTree {
        let (containment, session) = (ContainmentKind::Reaper, SessionKind::Own);
        RecordedTree {
            containment,
            session,
            root: ProcId { pid: 6, start: 1 },
            inner: None,
            cgroup: None,
            members: vec![],
        }
    }
}
