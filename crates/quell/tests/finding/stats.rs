use std::time::{Duration, UNIX_EPOCH};

use quell::core::{Cause, RootOutcome, Signal, Verdict};
use quell::{Exits, stats};

use crate::fake::{Fake, Place, THEN};

#[test]
fn the_sums_are_those_of_the_receipts() {
    let place = Place::new();
    let home = &place.home;
    Fake { lasted: 1.0, tags: vec![("t", "1")], ..Fake::at(0) }.finish(home);
    Fake { lasted: 2.0, outcome: RootOutcome::Exited { code: 3 }, leaked: true, ..Fake::at(10) }.finish(home);
    let term = RootOutcome::Signaled { signal: Signal::TERM, core: false };
    Fake { lasted: 3.0, outcome: term, cause: Cause::User, grace_used: Some(0.25), ..Fake::at(20) }
        .finish(home);
    let kill = RootOutcome::Signaled { signal: Signal::KILL, core: false };
    Fake {
        lasted: 4.0,
        outcome: kill,
        cause: Cause::Timeout,
        grace_used: Some(5.0),
        killed: true,
        verdict: Verdict::Survivors { count: 1 },
        ..Fake::at(30)
    }
    .finish(home);
    Fake {
        lasted: 0.0,
        outcome: RootOutcome::NotStarted { reason: "x".into() },
        cause: Cause::StartFailed,
        ..Fake::at(40)
    }
    .finish(home);

    let sums = stats(home, None, &[]).unwrap();
    assert_eq!(sums.jobs, 5);
    assert_eq!(sums.exits, Exits { ok: 1, failed: 1, signaled: 2, not_started: 1, unknown: 0 });
    let causes: Vec<(&str, u64)> =
        sums.by_cause.iter().map(|(cause, &count)| (cause.as_str(), count)).collect();
    assert_eq!(causes, [("own_exit", 2), ("start_failed", 1), ("timeout", 1), ("user", 1)]);
    assert_eq!((sums.timeouts, sums.leaks, sums.not_proven), (1, 1, 1));
    assert_eq!((sums.stopped, sums.killed, sums.kill_rate), (2, 1, Some(0.5)));
    let grace = sums.grace_used.unwrap();
    assert_eq!((grace.count, grace.median, grace.p90, grace.max), (2, 0.25, 5.0, 5.0));
    let duration = sums.duration.unwrap();
    assert_eq!((duration.count, duration.median, duration.max), (5, 2.0, 4.0));

    let tagged = stats(home, None, &["t=1".parse().unwrap()]).unwrap();
    assert_eq!((tagged.jobs, tagged.exits.ok, tagged.kill_rate), (1, 1, None));
    let late = stats(home, Some(UNIX_EPOCH + Duration::from_millis(THEN + 30_000)), &[]).unwrap();
    assert_eq!(late.jobs, 2);
    assert_eq!(stats(home, None, &["no".parse().unwrap()]).unwrap().jobs, 0);
}

#[test]
fn a_home_without_jobs_has_sums_of_nothing() {
    let place = Place::new();
    assert_eq!(stats(&place.home, None, &[]).unwrap(), quell::Stats::default());
}
