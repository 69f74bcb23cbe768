//! What happens to a job, as its history tells it: one JSON object a line in `events.jsonl`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Actor, AskScope, Cause, Counts, HookEvent, JobId, JobSpec, KillReason, ProcId, Receipt, RootOutcome,
    Signal, Timestamp, Verdict,
};

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobEvent {
    /// The wall clock, RFC 3339.
    pub time: Timestamp,
    /// The job.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub job: JobId,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The session that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Which run of the program, from 1 on.
    pub run: u32,
    /// What happened.
    #[serde(flatten)]
    pub what: EventKind,
}

impl JobEvent {
    /// What happened to the job of `spec` at `time`, in its run of that number.
    pub fn new(spec: &JobSpec, time: Timestamp, run: u32, what: EventKind) -> Self {
        let request = &spec.request;
        let (name, session) = (request.name.clone(), request.session.clone());
        Self { time, job: spec.id, name, session, tags: request.tags.clone(), run, what }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
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
        /// How long it has, in seconds.
        #[serde(with = "crate::seconds")]
        #[cfg_attr(feature = "schema", schemars(with = "f64"))]
        grace: Duration,
        /// How many were asked.
        members: usize,
        /// Whether this was for the whole tree or for the root alone.
        #[serde(default)]
        to: AskScope,
    },
    /// The kill has begun.
    Killed {
        /// Whether it was needed or wanted. Older histories don't have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<KillReason>,
        /// Why the job is being stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<Cause>,
    },
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
        /// How many processes it had, and what became of them. Older histories don't have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        counts: Option<Counts>,
    },
    /// It will be started again.
    Restarting {
        /// After this wait, in seconds.
        #[serde(with = "crate::seconds")]
        #[cfg_attr(feature = "schema", schemars(with = "f64"))]
        delay: Duration,
    },
    /// It is not started again, because that was done as often as its limit allows.
    RestartLimitReached {
        /// How often.
        restarts: u32,
    },
    /// The standby was killed; the keeper goes on alone.
    StandbyLost,
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

impl EventKind {
    /// The end of the run that `receipt` is about.
    pub fn ended(receipt: &Receipt) -> Self {
        Self::Ended {
            outcome: receipt.root.outcome.clone(),
            cause: receipt.cause,
            actor: receipt.actor.clone(),
            verdict: receipt.verdict.clone(),
            counts: Some(receipt.counts()),
        }
    }

    /// Why the job ends, as far as this event tells.
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Self::StopAsked { cause, .. } | Self::Ended { cause, .. } => Some(*cause),
            Self::Killed { cause, .. } => *cause,
            Self::TimedOut => Some(Cause::Timeout),
            Self::Lost { .. } => Some(Cause::KeeperLost),
            Self::Leaked { .. } => Some(Cause::OwnExit),
            Self::Created
            | Self::Started { .. }
            | Self::Ready { .. }
            | Self::Signaled { .. }
            | Self::Asked { .. }
            | Self::RootExited { .. }
            | Self::OwnerGone { .. }
            | Self::Restarting { .. }
            | Self::RestartLimitReached { .. }
            | Self::StandbyLost
            | Self::HookFailed { .. } => None,
        }
    }

    /// The event that hooks know it by, if they do.
    pub fn hook_event(&self) -> Option<HookEvent> {
        match self {
            Self::Started { .. } => Some(HookEvent::Started),
            Self::Ready { .. } => Some(HookEvent::Ready),
            Self::Ended { .. } => Some(HookEvent::Ended),
            Self::TimedOut => Some(HookEvent::TimedOut),
            Self::Killed { .. } => Some(HookEvent::Killed),
            Self::Leaked { .. } => Some(HookEvent::Leaked),
            Self::Lost { .. } => Some(HookEvent::Lost),
            Self::Created
            | Self::StopAsked { .. }
            | Self::Signaled { .. }
            | Self::Asked { .. }
            | Self::RootExited { .. }
            | Self::OwnerGone { .. }
            | Self::Restarting { .. }
            | Self::RestartLimitReached { .. }
            | Self::StandbyLost
            | Self::HookFailed { .. } => None,
        }
    }
}
