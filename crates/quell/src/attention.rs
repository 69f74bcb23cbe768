//! Which jobs need attention, and why: the one definition that `quell list`, `quell top` and others share. Decisions are pure;
//! [`Quell::attention_facts`] reads what they need.

use std::time::Duration;

use quell_core::{EventKind, JobEvent, JobState, KillReason, RootOutcome, Timestamp, Verdict};
use quell_guard::Verb;
use serde::{Deserialize, Serialize};

use crate::state_words::is_killed;
use crate::{JobView, Quell, Result, Vitals};

/// The limits of what needs attention: `[attention]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionRules {
    /// A job that runs without output and CPU for this long is silent; none for never.
    pub silent: Option<Duration>,
    /// A stop that takes this much longer than its grace is overdue.
    pub stop_overdue: Duration,
    /// This many restarts within [`AttentionRules::restart_within`] are a loop; none for never.
    pub restarts: Option<u32>,
    /// The time in which restarts are counted.
    pub restart_within: Duration,
    /// A job that was killed needs attention for this long after its end.
    pub killed_for: Duration,
}

impl Default for AttentionRules {
    fn default() -> Self {
        Self {
            silent: Some(Duration::from_secs(30 * 60)),
            stop_overdue: Duration::from_secs(5),
            restarts: Some(3),
            restart_within: Duration::from_secs(10 * 60),
            killed_for: Duration::from_secs(10 * 60),
        }
    }
}

/// Why a job needs attention. The first are the most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttentionKind {
    /// A stop has left processes alive.
    Survivors,
    /// Its end is not proven.
    NotProven,
    /// It has no keeper.
    Lost,
    /// Its stop takes longer than its grace and some.
    StopOverdue,
    /// It is started again and again, or its limit of restarts was reached.
    RestartLoop,
    /// Its root has exited, and members are alive.
    RootExited,
    /// It does not write and does not use the CPU.
    Silent,
    /// It was killed lately though that was not requested.
    Killed,
}

/// What needs attention about a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attention {
    /// Why.
    pub kind: AttentionKind,
    /// The same for people, with numbers.
    pub reason: String,
}

/// What is known of a job beyond its view and its vitals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttentionFacts {
    /// The stop that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopProgress>,
    /// How many times it was started again lately, within [`AttentionRules::restart_within`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: u32,
    /// Why its tree was killed at the end of the last run, if that was not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub killed: Option<KillReason>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A stop that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StopProgress {
    /// When it was requested.
    pub asked_at: Timestamp,
    /// The time that the tree has to exit, in seconds.
    pub grace: f64,
    /// When the tree is killed.
    pub deadline: Timestamp,
    /// Whether the kill has begun.
    pub killing: bool,
}

/// Whether a job needs attention now, and why.
pub fn attention(
    view: &JobView,
    vitals: Option<&Vitals>,
    facts: &AttentionFacts,
    rules: &AttentionRules,
    now: Timestamp,
) -> Option<Attention> {
    let needs = |kind, reason: String| Some(Attention { kind, reason });
    let alive = |count: u64| plural(count, "process is", "processes are");
    match &view.verdict {
        Some(Verdict::Survivors { count }) => {
            return needs(
                AttentionKind::Survivors,
                format!("{} left alive after a stop", alive(*count as u64)),
            );
        }
        Some(Verdict::Unproven { why }) if view.state == JobState::Ended => {
            // After a restart of the host no process of it can be alive.
            return view.is_not_proven_dead().then(|| Attention {
                kind: AttentionKind::NotProven,
                reason: format!("not proven dead: {why}"),
            });
        }
        _ => {}
    }
    let processes = vitals.and_then(|vitals| vitals.processes);
    match view.state {
        JobState::Lost => {
            let alive = processes.filter(|count| *count > 0).map(|count| format!(", {} alive", alive(count)));
            needs(AttentionKind::Lost, format!("its keeper was killed{}", alive.unwrap_or_default()))
        }
        JobState::Stopping => {
            let late = facts.stop.map(|stop| seconds(now, stop.deadline))?;
            (late >= rules.stop_overdue.as_secs_f64()).then(|| Attention {
                kind: AttentionKind::StopOverdue,
                reason: format!("the stop is {} over its grace", span(late)),
            })
        }
        JobState::Ended if view.restart_limit_reached => {
            let ago = view.ended.map_or(0.0, |ended| seconds(now, ended));
            let reason = format!("not started again after {} runs, {} ago", view.run, span(ago));
            is_recent(view, rules, now).then_some(Attention { kind: AttentionKind::RestartLoop, reason })
        }
        JobState::Ended => {
            let killed = facts.killed.is_some() || is_killed(view);
            let ago = view.ended.map_or(0.0, |ended| seconds(now, ended));
            (killed && is_recent(view, rules, now)).then(|| Attention {
                kind: AttentionKind::Killed,
                reason: format!("{} {} ago", why_killed(facts.killed), span(ago)),
            })
        }
        JobState::Running | JobState::Ready | JobState::Starting | JobState::Waiting | JobState::Created => {
            if rules.restarts.is_some_and(|limit| facts.restarts >= limit.max(1)) {
                let (count, within) = (facts.restarts, span(rules.restart_within.as_secs_f64()));
                return needs(AttentionKind::RestartLoop, format!("started again {count} times in {within}"));
            }
            let is_running = matches!(view.state, JobState::Running | JobState::Ready);
            if is_running && let Some(outcome) = &view.outcome {
                let left = match processes {
                    Some(count) => format!("{} alive", alive(count)),
                    None => "members are alive".into(),
                };
                return needs(AttentionKind::RootExited, format!("its root {}, {left}", ended_how(outcome)));
            }
            // A server that has shown that it is ready may wait for requests as long as it likes.
            let quiet = vitals.filter(|_| view.state == JobState::Running).and_then(|vitals| {
                Some(vitals.quiet?.min(vitals.output_age.unwrap_or_else(|| age(view, now))))
            })?;
            let silent = rules.silent.is_some_and(|silent| quiet >= silent.as_secs_f64());
            silent.then(|| Attention {
                kind: AttentionKind::Silent,
                reason: format!("no output, no CPU: {}", span(quiet)),
            })
        }
    }
}

/// The order of a list: what needs attention first, the most urgent first; then the live ones and the ended ones, each with the
/// newest first.
pub fn order(view: &JobView, attention: Option<&Attention>) -> impl Ord + use<> {
    let kind = attention.map(|attention| attention.kind);
    let is_over = view.state == JobState::Ended;
    let newest = if is_over { view.ended.unwrap_or(view.since) } else { view.created };
    (kind.is_none(), kind, is_over, std::cmp::Reverse(newest), std::cmp::Reverse(view.id))
}

fn is_recent(view: &JobView, rules: &AttentionRules, now: Timestamp) -> bool {
    view.ended.is_some_and(|ended| seconds(now, ended) < rules.killed_for.as_secs_f64())
}

fn why_killed(reason: Option<KillReason>) -> &'static str {
    match reason {
        Some(KillReason::GraceOver) => "killed after its grace",
        Some(KillReason::KeeperLost) => "killed because its keeper was lost",
        Some(KillReason::Wanted) | None => "killed",
    }
}

fn ended_how(outcome: &RootOutcome) -> String {
    match outcome {
        RootOutcome::Exited { code } => format!("exited {code}"),
        RootOutcome::Signaled { signal, .. } => format!("died of SIG{signal}"),
        RootOutcome::NotStarted { .. } => "was not started".into(),
        RootOutcome::Unknown => "is gone".into(),
    }
}

fn plural(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

fn age(view: &JobView, now: Timestamp) -> f64 {
    seconds(now, view.started.unwrap_or(view.created))
}

/// How long `now` is after `then`, in seconds; negative if it is before.
fn seconds(now: Timestamp, then: Timestamp) -> f64 {
    now.unix_ms().saturating_sub(then.unix_ms()) as f64 / 1000.0
}

/// A span of time in words, in one unit: `38 min`.
fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..120 => format!("{whole} s"),
        120..7200 => format!("{} min", whole / 60),
        7200..172_800 => format!("{} h", whole / 3600),
        _ => format!("{} d", whole / 86_400),
    }
}

impl Quell {
    /// What [`attention`] needs beyond the view. Only the histories of jobs that are stopping or have run before are read, and the
    /// receipts of those that ended lately.
    pub fn attention_facts(&self, view: &JobView, rules: &AttentionRules) -> Result<AttentionFacts> {
        self.permit(Verb::List, "")?;
        let (dir, now) = (self.home().job(view.id), quell_store::now());
        let mut facts = AttentionFacts::default();
        let is_stopping = view.state == JobState::Stopping;
        if is_stopping || view.run > 1 && view.state != JobState::Ended {
            // A history that can't be read says nothing.
            let events = dir.events().unwrap_or_default();
            facts.restarts = restarts(&events, rules, now);
            let plan = || dir.spec().map(|spec| spec.request.stop.grace).unwrap_or_default();
            facts.stop = is_stopping.then(|| progress(&events, view, plan));
        }
        if view.state == JobState::Ended && is_recent(view, rules, now) {
            let receipt = dir.receipt().ok().filter(quell_core::Receipt::escalated);
            facts.killed = receipt.map(|receipt| receipt.kill.unwrap_or(KillReason::GraceOver));
        }
        Ok(facts)
    }
}

fn restarts(events: &[JobEvent], rules: &AttentionRules, now: Timestamp) -> u32 {
    let since = now.before(rules.restart_within);
    let recent = events.iter().filter(|event| event.time >= since && event.run > 1);
    recent.filter(|event| matches!(event.what, EventKind::Started { .. })).count() as u32
}

/// The stop that the last events are about. A job in the foreground has no history: its stop began with its state.
fn progress(events: &[JobEvent], view: &JobView, plan: impl FnOnce() -> Duration) -> StopProgress {
    let of_run = || events.iter().rev().filter(|event| event.run == view.run);
    let asked_at = of_run().find(|event| matches!(event.what, EventKind::StopAsked { .. }));
    let asked_at = asked_at.map_or(view.since, |event| event.time);
    let asked = of_run().find_map(|event| match event.what {
        EventKind::Asked { grace, .. } => Some((event.time, grace)),
        _ => None,
    });
    let (from, grace) = asked.unwrap_or_else(|| (asked_at, plan()));
    let killing = of_run().any(|event| matches!(event.what, EventKind::Killed { .. }));
    let deadline = Timestamp::from_unix_ms(from.unix_ms().saturating_add(grace.as_millis() as i64));
    StopProgress { asked_at, grace: grace.as_secs_f64(), deadline, killing }
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
