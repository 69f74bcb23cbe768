use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, UNIX_EPOCH};

use quell::binary::stats_of;
use quell::{
    Bucket, Cause, Exits, Period, RootOutcome, Signal, Stats, StatsFilter, TagSums, Timestamp, Verdict,
};
use quell_guard::{Asker, AuditLine, Decision, Guard, Kind, Policy, Verb};

use crate::fake::{Fake, THEN, TestHome, stats};

#[test]
fn the_sums_are_those_of_the_receipts() {
    let place = TestHome::new();
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
        verdict: Verdict::Unproven { why: "x".into() },
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
    // The leak of the second job was stopped too.
    assert_eq!((sums.stopped, sums.killed, sums.kill_rate), (3, 1, Some(1.0 / 3.0)));
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
    let place = TestHome::new();
    let nothing = Stats { refusals: Some(0), ..Stats::default() };
    assert_eq!(stats(&place.home, None, &[]).unwrap(), nothing);
}

const HOUR: u64 = 3600;

/// A line of the audit log, this many seconds after `THEN`.
fn audit_line(second: u64, code: &str, kind: Kind) -> String {
    let line = AuditLine {
        schema: "quell/1".into(),
        at: Timestamp::from_unix_ms((THEN + second * 1000) as i64),
        kind,
        verb: "rm".into(),
        effect: None,
        target: "x".into(),
        actor: Asker { pid: 1, name: None, uid: 0, job: None, session: None, through: None },
        cause: None,
        decision: match code {
            "ALLOWED" => Decision::allow("guard", "It may be done."),
            _ => Decision::refuse(code.parse().unwrap(), "guard.deny", "It may not be done.", "Ask."),
        },
        receipt: None,
        result: None,
    };
    serde_json::to_string(&line).unwrap()
}

/// Appends to the log, with its owner and mode.
fn write_log(place: &TestHome, lines: &[String]) {
    place.home.make().unwrap();
    let path = place.path("audit.jsonl");
    std::fs::write(&path, lines.concat()).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn in_time(stats: &Stats, value: fn(&Bucket) -> u64) -> Vec<u64> {
    stats.over_time.iter().map(value).collect()
}

fn by(period: Period) -> StatsFilter {
    StatsFilter { period, ..StatsFilter::default() }
}

#[test]
fn over_time_gaps_show_and_refusals_count() {
    let place = TestHome::new();
    let home = &place.home;
    for (hour, grace_used) in [(0, 1.0), (0, 4.0), (0, 2.0), (4, 5.0)] {
        let killed = hour == 4;
        Fake { grace_used: Some(grace_used), killed, cause: Cause::Timeout, ..Fake::at(hour * HOUR) }
            .finish(home);
    }
    Fake { leaked: true, verdict: Verdict::Unproven { why: "x".into() }, ..Fake::at(4 * HOUR) }.finish(home);
    write_log(
        &place,
        &[
            audit_line(HOUR, "VERB_DENIED", Kind::Decision) + "\n",
            "{\"schema\": damaged\n\u{0}\n".into(),
            audit_line(HOUR, "ALLOWED", Kind::Decision) + "\n",
            audit_line(HOUR, "PID_INIT", Kind::Act) + "\n",
            audit_line(5 * HOUR, "PID_INIT", Kind::Decision) + "\n",
            audit_line(5 * HOUR, "PID_INIT", Kind::Decision) + "\n",
            // Cut by a crash.
            audit_line(5 * HOUR, "PID_INIT", Kind::Decision)[..90].into(),
        ],
    );
    let sums = stats_of(home, &by(Period::Hour)).unwrap();
    assert_eq!(sums.refusals, Some(3));
    let codes: Vec<(&str, u64)> = sums.refusals_by_code.iter().map(|(code, n)| (code.as_str(), *n)).collect();
    assert_eq!(codes, [("PID_INIT", 2), ("VERB_DENIED", 1)]);
    let starts: Vec<&str> = sums.over_time.iter().map(|bucket| &bucket.start[11..16]).collect();
    assert_eq!(starts, ["00:00", "01:00", "02:00", "03:00", "04:00", "05:00"]);
    assert!(sums.over_time.iter().all(|bucket| bucket.seconds == HOUR));
    assert_eq!(in_time(&sums, |bucket| bucket.sums.jobs), [3, 0, 0, 0, 2, 0]);
    assert_eq!(in_time(&sums, |bucket| bucket.sums.timeouts), [3, 0, 0, 0, 1, 0]);
    assert_eq!(in_time(&sums, |bucket| bucket.sums.stopped), [3, 0, 0, 0, 2, 0]);
    assert_eq!(in_time(&sums, |bucket| bucket.sums.killed), [0, 0, 0, 0, 1, 0]);
    assert_eq!(in_time(&sums, |bucket| bucket.sums.leaks), [0, 0, 0, 0, 1, 0]);
    assert_eq!(in_time(&sums, |bucket| bucket.sums.not_proven), [0, 0, 0, 0, 1, 0]);
    assert_eq!(in_time(&sums, |bucket| bucket.refusals.unwrap()), [0, 1, 0, 0, 0, 2]);
    let [first, gap] = [&sums.over_time[0].sums, &sums.over_time[1].sums];
    assert_eq!((first.grace_used, first.grace_given, first.grace_share), (Some(2.0), Some(5.0), Some(0.4)));
    assert_eq!((gap.grace_used, gap.grace_given, gap.grace_share), (None, None, None));
    let (given, share) = (sums.grace_given.unwrap(), sums.grace_share.unwrap());
    assert_eq!((given.count, given.median, share.median, share.max), (4, 5.0, 0.4, 1.0));

    let late = Some(UNIX_EPOCH + Duration::from_millis(THEN + 2 * HOUR * 1000));
    let late = stats_of(home, &StatsFilter { since: late, ..by(Period::Hour) }).unwrap();
    assert_eq!((late.jobs, late.refusals, late.over_time.len()), (2, Some(2), 2));
    assert_eq!(in_time(&late, |bucket| bucket.sums.jobs), [2, 0]);
}

#[test]
fn of_many_hours_the_last_ones_are_told_and_the_totals_are_of_all() {
    let place = TestHome::new();
    for hour in [0, 30, 99] {
        Fake { grace_used: Some(1.0), ..Fake::at(hour * HOUR) }.finish(&place.home);
    }
    let hours = stats_of(&place.home, &by(Period::Hour)).unwrap();
    assert_eq!((hours.jobs, hours.over_time.len(), hours.over_time_omitted), (3, 60, 40));
    assert_eq!(in_time(&hours, |bucket| bucket.sums.jobs).iter().sum::<u64>(), 1);
    assert_eq!(hours.over_time[59].sums.grace_used, Some(1.0));
    assert_eq!(hours.grace_used.unwrap().count, 3);
    let auto = stats_of(&place.home, &by(Period::Auto)).unwrap();
    assert_eq!((auto.over_time[0].seconds, auto.over_time_omitted), (6 * HOUR, 0));
    assert_eq!(in_time(&auto, |bucket| bucket.sums.jobs).iter().sum::<u64>(), 3);
    let days = stats_of(&place.home, &by(Period::Day)).unwrap();
    assert_eq!(in_time(&days, |bucket| bucket.sums.jobs), [1, 1, 0, 0, 1]);
    let weeks = stats_of(&place.home, &by(Period::Week)).unwrap();
    assert_eq!(weeks.over_time[0].start, "2023-10-30T00:00:00Z");
}

#[test]
fn by_label_the_most_common_come_first_and_a_job_counts_for_each() {
    let place = TestHome::new();
    let home = &place.home;
    write_log(&place, &[audit_line(0, "VERB_DENIED", Kind::Decision) + "\n"]);
    for (second, used) in [1.0, 3.0, 5.0].into_iter().enumerate() {
        let killed = used == 5.0;
        let tags = if killed { vec![("team", "a")] } else { vec![("team", "a"), ("web", "")] };
        Fake { tags, killed, grace_used: Some(used), ..Fake::at(second as u64) }.finish(home);
    }
    Fake { tags: vec![("team", "b")], leaked: true, ..Fake::at(9) }.finish(home);
    let found = |sums: &Stats| -> Vec<String> {
        let line = |tag: &TagSums| {
            let TagSums { key, value, sums } = tag;
            let (jobs, killed, leaks) = (sums.jobs, sums.killed, sums.leaks);
            format!("{key}={value} {jobs} {killed} {leaks} {:?}", sums.grace_used)
        };
        sums.by_tag.iter().map(line).collect()
    };
    let all = stats_of(home, &StatsFilter::default()).unwrap();
    assert_eq!(found(&all), ["team=a 3 1 0 Some(3.0)", "web= 2 0 0 Some(1.0)", "team=b 1 0 1 None"]);
    assert_eq!((all.by_tag_omitted, all.refusals), (0, Some(1)));
    let team = StatsFilter { tag_key: Some("team".into()), ..StatsFilter::default() };
    let team = stats_of(home, &team).unwrap();
    assert_eq!(found(&team), ["team=a 3 1 0 Some(3.0)", "team=b 1 0 1 None"]);
    assert_eq!(team.jobs, 4, "the key is for the table alone");
    // Refusals have no label: they are left out, not counted as 0.
    let web = stats(home, None, &["web".parse().unwrap()]).unwrap();
    assert_eq!(found(&web), ["team=a 2 0 0 Some(1.0)", "web= 2 0 0 Some(1.0)"]);
    assert_eq!((web.refusals, web.over_time[0].refusals), (None, None));
    assert!(web.refusals_by_code.is_empty());
}

#[test]
fn labels_without_number_are_cut_and_counted() {
    const VALUES: [&str; 25] = [
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t",
        "u", "v", "w", "x", "y",
    ];
    let place = TestHome::new();
    for (second, value) in VALUES.into_iter().enumerate() {
        Fake { tags: vec![("run", value)], grace_used: Some(1.0), ..Fake::at(second as u64) }
            .finish(&place.home);
    }
    Fake { tags: vec![("run", "y")], ..Fake::at(30) }.finish(&place.home);
    let sums = stats(&place.home, None, &[]).unwrap();
    assert_eq!((sums.by_tag.len(), sums.by_tag_omitted), (20, 5));
    assert_eq!((sums.by_tag[0].value.as_str(), sums.by_tag[0].sums.jobs), ("y", 2));
    assert_eq!(sums.by_tag[1].value, "a");
}

#[test]
fn refusals_without_jobs_have_a_time_too() {
    let place = TestHome::new();
    let guard = Guard::new(&place.home, Policy { deny: vec![Verb::Rm], ..Policy::default() });
    assert!(guard.permit(Verb::Rm, "web", None).is_err());
    assert!(guard.permit(Verb::Stop, "web", None).is_ok());
    let sums = stats(&place.home, None, &[]).unwrap();
    assert_eq!((sums.jobs, sums.refusals, sums.over_time.len()), (0, Some(1), 1));
    assert_eq!(sums.over_time[0].refusals, Some(1));
}

#[test]
fn a_log_that_can_not_be_read_is_an_error_and_no_absence_of_refusals() {
    let place = TestHome::new();
    Fake { tags: vec![("t", "1")], ..Fake::at(0) }.finish(&place.home);
    std::fs::create_dir(place.path("audit.jsonl")).unwrap();
    let error = stats(&place.home, None, &[]).unwrap_err().to_string();
    assert!(error.contains("audit.jsonl"), "{error}");
    assert_eq!(stats(&place.home, None, &["t".parse().unwrap()]).unwrap().jobs, 1);
}
