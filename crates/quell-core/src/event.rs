//! What happens to a job, as its history tells it: one JSON object a line in `events.jsonl`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Actor, Cause, HookEvent, JobId, ProcId, RootOutcome, Signal, Verdict};

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobEvent {
    /// The wall clock, RFC 3339.
    pub time: String,
    /// The job.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub job: JobId,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Which run of the program, from 1 on.
    pub run: u32,
    /// What happened.
    #[serde(flatten)]
    pub what: Happening,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Happening {
    /// The job is on record.
    Created,
    /// The program runs.
    Started {
        /// Its root.
        root: Option<ProcId>,
    },
    /// All that was to show that it is ready has.
    Ready {
        /// Seconds since the start of this run.
        after: f64,
    },
    /// Somebody wants it stopped.
    StopAsked {
        /// Why.
        cause: Cause,
        /// Who.
        actor: Actor,
    },
    /// Somebody had a signal sent to it.
    Signaled {
        /// Which.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        signal: Signal,
        /// Who.
        actor: Actor,
        /// How many got it: the root, or everyone in the tree.
        members: usize,
    },
    /// The tree was asked to end.
    Asked {
        /// With which signal.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        signal: Signal,
        /// How long it has.
        grace: Duration,
        /// How many were asked.
        members: usize,
    },
    /// It did not end when asked, or was not to be asked: the kill has begun.
    Killed,
    /// Its time was up.
    TimedOut,
    /// Descendants had outlived the root.
    Leaked {
        /// How many.
        members: usize,
    },
    /// The root has ended.
    RootExited {
        /// How.
        outcome: RootOutcome,
    },
    /// The owner is gone.
    OwnerGone {
        /// Whether the job goes on.
        kept: bool,
    },
    /// This run is over.
    Ended {
        /// How the root ended.
        outcome: RootOutcome,
        /// Why.
        cause: Cause,
        /// Who brought that about.
        actor: Actor,
        /// What was proven.
        verdict: Verdict,
    },
    /// It will be started again.
    Restarting {
        /// After this wait.
        delay: Duration,
    },
    /// The understudy was killed; the keeper goes on alone.
    UnderstudyLost,
    /// The keeper was killed.
    Lost {
        /// Who finished the stop, in words.
        finished_by: String,
    },
    /// A hook did not do its work.
    HookFailed {
        /// Which, in words.
        hook: String,
        /// At which event.
        at: HookEvent,
        /// Why.
        why: String,
    },
}

impl Happening {
    /// The event that hooks know it by, if they do.
    pub fn hook_event(&self) -> Option<HookEvent> {
        match self {
            Self::Started { .. } => Some(HookEvent::Started),
            Self::Ready { .. } => Some(HookEvent::Ready),
            Self::Ended { .. } => Some(HookEvent::Ended),
            Self::TimedOut => Some(HookEvent::TimedOut),
            Self::Killed => Some(HookEvent::Killed),
            Self::Leaked { .. } => Some(HookEvent::Leaked),
            Self::Lost { .. } => Some(HookEvent::Lost),
            Self::Created
            | Self::StopAsked { .. }
            | Self::Signaled { .. }
            | Self::Asked { .. }
            | Self::RootExited { .. }
            | Self::OwnerGone { .. }
            | Self::Restarting { .. }
            | Self::UnderstudyLost
            | Self::HookFailed { .. } => None,
        }
    }
}
