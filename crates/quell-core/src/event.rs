//! The events of a job: one JSON object per line in `events.jsonl`.

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
    pub job: JobId,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its session.
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
    /// An event in a run of the job of `spec`.
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
    /// It has shown that it is ready.
    Ready {
        /// Seconds since the start of this run.
        after: f64,
    },
    /// A stop was requested.
    StopAsked {
        /// The reason.
        cause: Cause,
        /// What asked for it.
        actor: Actor,
    },
    /// A signal was sent to it on request.
    Signaled {
        /// The signal.
        signal: Signal,
        /// What asked for it.
        actor: Actor,
        /// How many processes got it: the root, or the whole tree.
        members: usize,
    },
    /// The tree was asked to end.
    Asked {
        /// The signal.
        signal: Signal,
        /// Its grace, in seconds.
        #[serde(with = "crate::seconds")]
        #[cfg_attr(feature = "schema", schemars(with = "f64"))]
        grace: Duration,
        /// How many were asked.
        members: usize,
        /// Whether the whole tree was asked, or only the root.
        #[serde(default)]
        to: AskScope,
    },
    /// The kill has begun.
    Killed {
        /// Whether it was needed or requested.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<KillReason>,
        /// Why the job is being stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<Cause>,
    },
    /// Its time was up.
    TimedOut,
    /// Processes had outlived the root.
    Leaked {
        /// Their number.
        members: usize,
    },
    /// The root has ended.
    RootExited {
        /// How it ended.
        outcome: RootOutcome,
    },
    /// The owner is gone.
    OwnerGone {
        /// Whether the job keeps running.
        kept: bool,
    },
    /// This run is over.
    Ended {
        /// How the root ended.
        outcome: RootOutcome,
        /// The reason.
        cause: Cause,
        /// What caused the end.
        actor: Actor,
        /// What was proven.
        verdict: Verdict,
        /// How many processes it had, and how they ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        counts: Option<Counts>,
    },
    /// It will be started again.
    Restarting {
        /// The wait before that, in seconds.
        #[serde(with = "crate::seconds")]
        #[cfg_attr(feature = "schema", schemars(with = "f64"))]
        delay: Duration,
    },
    /// It ended while it waited for its next run.
    NotRestarted {
        /// The reason.
        cause: Cause,
        /// What caused the end.
        actor: Actor,
    },
    /// It is not started again, because the limit of restarts is reached.
    RestartLimitReached {
        /// The number of restarts.
        restarts: u32,
    },
    /// The standby was killed; the keeper goes on alone.
    StandbyLost,
    /// The keeper was killed.
    Lost {
        /// What finished the stop, for people.
        finished_by: String,
    },
    /// A hook failed.
    HookFailed {
        /// The hook, for people.
        hook: String,
        /// The event that it was run for.
        at: HookEvent,
        /// The reason.
        why: String,
    },
}

impl EventKind {
    /// The end of the run that `receipt` is about, or of the job that waited for its next run.
    pub fn ended(receipt: &Receipt) -> Self {
        if receipt.ended_waiting {
            return Self::NotRestarted { cause: receipt.cause, actor: receipt.actor.clone() };
        }
        Self::Ended {
            outcome: receipt.root.outcome.clone(),
            cause: receipt.cause,
            actor: receipt.actor.clone(),
            verdict: receipt.verdict.clone(),
            counts: Some(receipt.counts()),
        }
    }

    /// Why the job ends, if this event says so.
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Self::StopAsked { cause, .. } | Self::Ended { cause, .. } | Self::NotRestarted { cause, .. } => {
                Some(*cause)
            }
            Self::Killed { cause, .. } => *cause,
            Self::TimedOut => Some(Cause::Timeout),
            Self::Lost { .. } => Some(Cause::KeeperLost),
            Self::Leaked { .. } => Some(Cause::OwnExit),
            _ => None,
        }
    }

    /// The hook event for it, if there is one.
    pub fn hook_event(&self) -> Option<HookEvent> {
        match self {
            Self::Started { .. } => Some(HookEvent::Started),
            Self::Ready { .. } => Some(HookEvent::Ready),
            Self::Ended { .. } => Some(HookEvent::Ended),
            Self::TimedOut => Some(HookEvent::TimedOut),
            Self::Killed { .. } => Some(HookEvent::Killed),
            Self::Leaked { .. } => Some(HookEvent::Leaked),
            Self::Lost { .. } => Some(HookEvent::Lost),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_tells_the_cause_and_the_hooks_that_belong_to_it() {
        let (cause, actor) = (Cause::OwnerGone, Actor::Quell);
        let stop_asked = EventKind::StopAsked { cause, actor: actor.clone() };
        let not_restarted = EventKind::NotRestarted { cause, actor };
        let ended = EventKind::ended(&Receipt { cause, ..Receipt::sample() });
        let killed = EventKind::Killed { reason: None, cause: Some(cause) };
        let lost = EventKind::Lost { finished_by: String::new() };
        for (event, cause, hook) in [
            (EventKind::Created, None, None),
            (EventKind::Started { root: None }, None, Some(HookEvent::Started)),
            (EventKind::Ready { after: 1.0 }, None, Some(HookEvent::Ready)),
            (stop_asked, Some(cause), None),
            (not_restarted, Some(cause), None),
            (ended, Some(cause), Some(HookEvent::Ended)),
            (killed, Some(cause), Some(HookEvent::Killed)),
            (EventKind::TimedOut, Some(Cause::Timeout), Some(HookEvent::TimedOut)),
            (EventKind::Leaked { members: 1 }, Some(Cause::OwnExit), Some(HookEvent::Leaked)),
            (lost, Some(Cause::KeeperLost), Some(HookEvent::Lost)),
        ] {
            assert_eq!((event.cause(), event.hook_event()), (cause, hook), "{event:?}");
        }
    }
}
