//! What needs attention, case by case.

use quell_core::{Cause, Signal};

use super::*;

const NOW: i64 = 10_000_000;

fn at(seconds_ago: i64) -> Timestamp {
    Timestamp::from_unix_ms(NOW - seconds_ago * 1000)
}

fn decide(view: &JobView, vitals: Option<&Vitals>, facts: &AttentionFacts) -> Option<Attention> {
    attention(view, vitals, facts, &AttentionRules::default(), at(0))
}

fn stop(deadline_ago: i64) -> AttentionFacts {
    let stop = StopProgress { asked_at: at(60), grace: 5.0, deadline: at(deadline_ago), killing: false };
    AttentionFacts { stop: Some(stop), ..AttentionFacts::default() }
}

/// A job, what is known of it, and what it needs.
type Case = (JobView, Option<Vitals>, AttentionFacts, Option<(AttentionKind, &'static str)>);

#[test]
fn each_case_has_its_kind_and_a_reason_with_numbers() {
    use AttentionKind::*;
    use JobState::{Ended, Lost as NoKeeper, Ready, Running, Stopping, Waiting};
    let base = |state| JobView { state, started: Some(at(9000)), ..JobView::sample() };
    let none = AttentionFacts::default;
    let restarted = |restarts| AttentionFacts { restarts, ..AttentionFacts::default() };
    let killed = |reason| AttentionFacts { killed: Some(reason), ..AttentionFacts::default() };
    let quiet = |quiet: f64, output_age: Option<f64>| {
        Some(Vitals { quiet: Some(quiet), output_age, processes: Some(3), ..Vitals::default() })
    };
    let exited = Some(RootOutcome::Exited { code: 0 });
    let died = Some(RootOutcome::Signaled { signal: Signal::KILL, core: false });
    let ended = |ago| JobView { ended: Some(at(ago)), cause: Some(Cause::User), ..base(Ended) };
    let cases: Vec<Case> = vec![
        (base(Running), None, none(), None),
        (base(Running), quiet(1799.0, Some(1799.0)), none(), None),
        (base(Running), quiet(1800.0, Some(2280.0)), none(), Some((Silent, "no output, no CPU: 30 min"))),
        (base(Running), quiet(2280.0, Some(5.0)), none(), None),
        (base(Running), quiet(2280.0, None), none(), Some((Silent, "no output, no CPU: 38 min"))),
        (base(Ready), quiet(9000.0, Some(9000.0)), none(), None),
        (
            JobView { outcome: exited.clone(), ..base(Running) },
            quiet(0.0, None),
            none(),
            Some((RootExited, "its root exited 0, 3 processes are alive")),
        ),
        (
            base(NoKeeper),
            quiet(0.0, None),
            none(),
            Some((Lost, "its keeper was killed, 3 processes are alive")),
        ),
        (base(NoKeeper), None, none(), Some((Lost, "its keeper was killed"))),
        (
            JobView { verdict: Some(Verdict::Survivors { count: 1 }), ..base(NoKeeper) },
            None,
            none(),
            Some((Survivors, "1 process is left alive after a stop")),
        ),
        (base(Stopping), None, stop(4), None),
        (base(Stopping), None, stop(-60), None),
        (base(Stopping), None, stop(5), Some((StopOverdue, "the stop is 5 s over its grace"))),
        (base(Waiting), None, restarted(2), None),
        (base(Waiting), None, restarted(3), Some((RestartLoop, "started again 3 times in 10 min"))),
        (
            JobView { restart_limit_reached: true, run: 11, ..ended(60) },
            None,
            none(),
            Some((RestartLoop, "not started again after 11 runs, 60 s ago")),
        ),
        (ended(60), None, none(), None),
        (ended(60), None, killed(KillReason::GraceOver), Some((Killed, "killed after its grace 60 s ago"))),
        (ended(601), None, killed(KillReason::GraceOver), None),
        (
            JobView { cause: Some(Cause::ExternalSignal), outcome: died, ..ended(5) },
            None,
            none(),
            Some((Killed, "killed 5 s ago")),
        ),
    ];
    for (view, vitals, facts, expected) in cases {
        let found = decide(&view, vitals.as_ref(), &facts);
        let found = found.as_ref().map(|found| (found.kind, found.reason.as_str()));
        assert_eq!(found, expected, "{view:?} {vitals:?} {facts:?}");
    }
}

#[test]
fn an_end_that_is_not_proven_needs_attention_in_its_own_boot_only() {
    let why = || Some(Verdict::Unproven { why: "/proc hides processes".into() });
    let view = |ended| JobView { state: JobState::Ended, verdict: why(), ended, ..JobView::sample() };
    let now = quell_store::now();
    let found = decide(&view(Some(now)), None, &AttentionFacts::default()).unwrap();
    assert_eq!(found.kind, AttentionKind::NotProven);
    assert_eq!(found.reason, "not proven dead: /proc hides processes");
    assert_eq!(decide(&view(Some(Timestamp::from_unix_ms(0))), None, &AttentionFacts::default()), None);
}

#[test]
fn nothing_is_silent_or_a_loop_where_the_settings_say_never() {
    let rules = AttentionRules { silent: None, restarts: None, ..AttentionRules::default() };
    let vitals = Vitals { quiet: Some(1e9), output_age: Some(1e9), ..Vitals::default() };
    let (view, facts) = (JobView::sample(), AttentionFacts { restarts: 99, ..AttentionFacts::default() });
    assert_eq!(attention(&view, Some(&vitals), &facts, &rules, at(0)), None);
}

#[test]
fn the_most_urgent_comes_first_and_the_ended_ones_last() {
    let view = |seconds_ago| JobView { created: at(seconds_ago), ..JobView::sample() };
    let needs = |kind| Some(Attention { kind, reason: String::new() });
    let ended = JobView { state: JobState::Ended, ended: Some(at(0)), ..view(1) };
    let mut jobs = [
        ("ended", ended, None),
        ("old", view(90), None),
        ("silent", view(5), needs(AttentionKind::Silent)),
        ("new", view(10), None),
        ("survivors", view(50), needs(AttentionKind::Survivors)),
    ];
    jobs.sort_by_key(|(_, view, attention)| order(view, attention.as_ref()));
    assert_eq!(jobs.map(|(name, _, _)| name), ["survivors", "silent", "new", "old", "ended"]);
}

#[test]
fn the_deadline_of_a_stop_is_that_of_its_last_request() {
    let job = JobView::sample();
    let event = |ago, what| JobEvent {
        time: at(ago),
        job: job.id,
        name: None,
        session: None,
        tags: Default::default(),
        run: 1,
        what,
    };
    let asked = |seconds| EventKind::Asked {
        signal: Signal::TERM,
        grace: Duration::from_secs(seconds),
        members: 1,
        to: Default::default(),
    };
    let requested = EventKind::StopAsked { cause: Cause::User, actor: quell_core::Actor::Quell };
    let events = [event(9, requested), event(8, asked(30)), event(3, asked(5))];
    let found = progress(&events, &job, || Duration::from_secs(99));
    assert_eq!((found.asked_at, found.grace, found.deadline), (at(9), 5.0, at(-2)));
    let killed = event(1, EventKind::Killed { reason: None, cause: None });
    assert!(!found.killing && progress(&[killed], &job, || Duration::ZERO).killing);
    // A job in the foreground has no history.
    let none = progress(&[], &JobView { since: at(4), ..JobView::sample() }, || Duration::from_secs(5));
    assert_eq!((none.asked_at, none.deadline), (at(4), at(-1)));
}
