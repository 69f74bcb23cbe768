//! The state of a job in words for people: what `quell list`, `quell top` and others show.

use quell_core::{Cause, JobState, RootOutcome, Signal, Verdict};
use serde::{Deserialize, Serialize};

use crate::JobView;

/// How a state looks. It decides shape and color, and never more than the words say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StateLook {
    /// It is being started.
    Starting,
    /// It runs.
    Running,
    /// It runs and is ready.
    Ready,
    /// Its root has exited, and members are alive.
    RootExited,
    /// It waits for its next run.
    Waiting,
    /// It is being stopped.
    Stopping,
    /// It has ended well.
    Succeeded,
    /// It has ended by itself, and not well.
    Failed,
    /// It was stopped on request, or with its owner.
    Stopped,
    /// It was killed by something other than quell, at a limit, or because its keeper was lost.
    Killed,
    /// It has no keeper.
    Lost,
    /// A stop has left processes alive.
    LeftAlive,
    /// Its end is not proven.
    NotProven,
}

/// The state of a job in words for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StateWords {
    /// The words: `Running`, `Ended 0`, `2 left alive`.
    pub words: String,
    /// How it looks.
    pub look: StateLook,
}

impl StateWords {
    /// The words for a job. They depend on state, cause, outcome and verdict alone.
    pub fn of(view: &JobView) -> Self {
        let say = |words: &str, look| Self { words: words.to_owned(), look };
        match (&view.verdict, view.state) {
            (Some(Verdict::Survivors { count }), _) => {
                return Self { words: format!("{count} left alive"), look: StateLook::LeftAlive };
            }
            (Some(Verdict::Unproven { .. }), JobState::Ended) => {
                return say("Not proven", StateLook::NotProven);
            }
            _ => {}
        }
        match view.state {
            JobState::Created => say("Created", StateLook::Starting),
            JobState::Starting => say("Starting", StateLook::Starting),
            JobState::Running | JobState::Ready if view.outcome.is_some() => {
                Self { words: format!("Root {}", outcome(view).to_lowercase()), look: StateLook::RootExited }
            }
            JobState::Running => say("Running", StateLook::Running),
            JobState::Ready => say("Ready", StateLook::Ready),
            JobState::Stopping => say("Stopping", StateLook::Stopping),
            JobState::Waiting => say("Waiting", StateLook::Waiting),
            JobState::Lost => say("Lost", StateLook::Lost),
            JobState::Ended => ended(view),
        }
    }
}

fn ended(view: &JobView) -> StateWords {
    let say = |words: &str, look| StateWords { words: words.to_owned(), look };
    match view.cause {
        Some(Cause::StartFailed) => say("Not started", StateLook::Failed),
        Some(Cause::Timeout) => say("Timed out", StateLook::Failed),
        Some(Cause::HostReboot) => say("Host restarted", StateLook::Killed),
        Some(Cause::Limit) => say("Killed at limit", StateLook::Killed),
        Some(Cause::KeeperLost | Cause::FrontLost) => say("Killed", StateLook::Killed),
        Some(Cause::User | Cause::UserSignal | Cause::OwnerGone | Cause::InputClosed) => {
            say("Stopped", StateLook::Stopped)
        }
        Some(Cause::OwnExit | Cause::ExternalSignal) | None => match &view.outcome {
            _ if is_killed(view) => say("Killed", StateLook::Killed),
            Some(RootOutcome::Exited { code: 0 }) => say("Ended 0", StateLook::Succeeded),
            _ => StateWords { words: outcome(view), look: StateLook::Failed },
        },
    }
}

/// How the root ended.
fn outcome(view: &JobView) -> String {
    match &view.outcome {
        Some(RootOutcome::Exited { code: 0 }) => "Exited 0".into(),
        Some(RootOutcome::Exited { code }) if view.state == JobState::Ended => format!("Failed {code}"),
        Some(RootOutcome::Exited { code }) => format!("Exited {code}"),
        Some(RootOutcome::Signaled { signal, .. }) => format!("Died of {signal}"),
        Some(RootOutcome::NotStarted { .. }) => "Not started".into(),
        Some(RootOutcome::Unknown) | None => "Ended ?".into(),
    }
}

/// Whether a job that has ended was killed by something other than a stop.
pub(crate) fn is_killed(view: &JobView) -> bool {
    let by_kill = matches!(view.outcome, Some(RootOutcome::Signaled { signal: Signal::KILL, .. }));
    match view.cause {
        Some(Cause::ExternalSignal | Cause::OwnExit) => by_kill,
        Some(Cause::Limit | Cause::KeeperLost | Cause::FrontLost) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::JobView;

    #[test]
    fn each_end_has_its_words() {
        use JobState::{Created, Ended, Lost, Ready, Running, Starting, Stopping, Waiting};
        let exited = |code| Some(RootOutcome::Exited { code });
        let died = |signal| Some(RootOutcome::Signaled { signal, core: false });
        let left = || Some(Verdict::Survivors { count: 2 });
        let unproven = || Some(Verdict::Unproven { why: "x".into() });
        for (state, cause, outcome, verdict, words, look) in [
            (Created, None, None, None, "Created", StateLook::Starting),
            (Starting, None, None, None, "Starting", StateLook::Starting),
            (Running, None, None, None, "Running", StateLook::Running),
            (Ready, None, None, None, "Ready", StateLook::Ready),
            (Running, None, exited(0), None, "Root exited 0", StateLook::RootExited),
            (Ready, None, exited(3), None, "Root exited 3", StateLook::RootExited),
            (Waiting, Some(Cause::OwnExit), exited(1), Some(Verdict::Gone), "Waiting", StateLook::Waiting),
            (Stopping, Some(Cause::User), None, None, "Stopping", StateLook::Stopping),
            (Lost, None, None, None, "Lost", StateLook::Lost),
            (Lost, Some(Cause::User), None, left(), "2 left alive", StateLook::LeftAlive),
            (Stopping, Some(Cause::User), None, left(), "2 left alive", StateLook::LeftAlive),
            (Ended, Some(Cause::User), exited(0), unproven(), "Not proven", StateLook::NotProven),
            (Ended, Some(Cause::OwnExit), exited(0), None, "Ended 0", StateLook::Succeeded),
            (Ended, Some(Cause::OwnExit), exited(7), None, "Failed 7", StateLook::Failed),
            (Ended, Some(Cause::OwnExit), died(Signal::KILL), None, "Killed", StateLook::Killed),
            (Ended, Some(Cause::ExternalSignal), died(Signal::TERM), None, "Died of TERM", StateLook::Failed),
            (Ended, Some(Cause::ExternalSignal), died(Signal::KILL), None, "Killed", StateLook::Killed),
            (Ended, Some(Cause::User), died(Signal::KILL), None, "Stopped", StateLook::Stopped),
            (Ended, Some(Cause::User), exited(0), None, "Stopped", StateLook::Stopped),
            (Ended, Some(Cause::OwnerGone), exited(0), None, "Stopped", StateLook::Stopped),
            (Ended, Some(Cause::Timeout), died(Signal::TERM), None, "Timed out", StateLook::Failed),
            (Ended, Some(Cause::Limit), died(Signal::KILL), None, "Killed at limit", StateLook::Killed),
            (Ended, Some(Cause::KeeperLost), None, None, "Killed", StateLook::Killed),
            (Ended, Some(Cause::HostReboot), None, None, "Host restarted", StateLook::Killed),
            (Ended, Some(Cause::StartFailed), None, None, "Not started", StateLook::Failed),
            (Ended, None, None, None, "Ended ?", StateLook::Failed),
        ] {
            let view = JobView { state, cause, outcome, verdict, ..JobView::sample() };
            assert_eq!(StateWords::of(&view), StateWords { words: words.into(), look }, "{view:?}");
        }
    }
}
