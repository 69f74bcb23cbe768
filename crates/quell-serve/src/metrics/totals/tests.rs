use serde_json::{Value, json};

use super::*;
use crate::metrics::exposition::Format;

const NOW: &str = "2026-01-02T10:00:00.000Z";

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn id(n: u32) -> JobId {
    JobId::new(1_767_348_000_000, u128::from(n))
}

fn counted() -> Totals {
    Totals::new(time(NOW), BTreeSet::new())
}

/// A job that was started at ten and ended at `ended`, with these other facts.
fn view(n: u32, ended: &str, more: Value) -> JobView {
    let mut view = json!({
        "id": id(n), "mode": "start", "command": ["server"], "cwd": "/", "state": "ended", "since": ended,
        "created": NOW, "ended": ended, "held": "cgroup", "run": 1, "cause": "user",
        "outcome": {"kind": "signaled", "signal": "TERM", "core": false}, "verdict": {"kind": "gone"},
    });
    merge(&mut view, more);
    serde_json::from_value(view).unwrap()
}

/// The receipt of a job with two members: one exited when asked, one had to be killed after two seconds.
fn receipt(more: Value) -> Receipt {
    let member = |pid: u32, fate: &str| {
        json!({"pid": pid, "start": 1, "ppid": 1, "pgid": 1, "sid": 1, "uid": 0,
        "command": "x", "fate": fate})
    };
    let step = |step: &str, at: f64| json!({"at": at, "wall": NOW, "step": step, "note": "", "signals": []});
    let mut receipt = json!({
        "schema": "quell/1", "job": {"id": id(1), "command": ["server"], "cwd": "/"}, "boot_id": "b",
        "started": {"at": 0.0, "wall": NOW}, "ended": {"at": 12.5, "wall": NOW},
        "held": {"containment": "cgroup", "session": "own", "defeated_by": []},
        "cause": "user", "actor": {"kind": "unknown"}, "root": {"outcome": {"kind": "exited", "code": 0}},
        "left_at_root_exit": [], "survivors": [], "verdict": {"kind": "gone"},
        "members": [member(7, "exited_on_ask"), member(8, "killed_after_grace")],
        "steps": [step("stop_asked", 10.0), step("ask", 10.0), step("kill", 12.0)],
        "grace": {"asked": 2.0, "used": 2.0}, "kill": "grace_over",
        "usage": {"cpu_user": 0.0, "cpu_system": 0.0, "peak_process_memory": 0},
        "output": {"stdout": {"bytes": 100, "lines": 1, "cut_bytes": 40, "cut_lines": 0},
            "stderr": {"bytes": 0, "lines": 0, "cut_bytes": 0, "cut_lines": 0}},
    });
    merge(&mut receipt, more);
    serde_json::from_value(receipt).unwrap()
}

fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}

fn ended(view: JobView, receipt: Receipt) -> CountedEnd {
    CountedEnd { view, receipt: Some(receipt), events: Vec::new() }
}

/// The value of a series in the text.
fn value(totals: &Totals, series: &str) -> Option<String> {
    let mut text = Exposition::new(Format::Classic);
    totals.write(&mut text);
    let text = text.finish();
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned))
}

fn assert_values(totals: &Totals, expected: &[(&str, &str)]) {
    for (series, expected) in expected {
        assert_eq!(value(totals, series).as_deref(), Some(*expected), "{series}");
    }
}

#[test]
fn a_series_that_an_alert_needs_is_there_before_anything_has_happened() {
    let expected = [
        (r#"quell_stop_escalations_total{reason="grace_over"}"#, "0"),
        (r#"quell_job_ends_total{cause="keeper_lost",outcome="unknown",verdict="unproven"}"#, "0"),
        (r#"quell_output_cut_bytes_total{stream="stdout"}"#, "0"),
        ("quell_timeouts_total", "0"),
        (r#"quell_guard_refusals_total{verb="stop",code="EFFECT_DENIED"}"#, "0"),
        (r#"quell_job_start_failures_total{code="program_not_found"}"#, "0"),
        ("quell_leaks_total", "0"),
        ("quell_keepers_lost_total", "0"),
        (r#"quell_grace_used_ratio_bucket{le="1"}"#, "0"),
    ];
    assert_values(&counted(), &expected);
}

#[test]
fn an_end_is_counted_with_all_that_its_receipt_says() {
    let mut totals = counted();
    totals.add_end(&ended(view(1, "2026-01-02T10:00:12.500Z", json!({})), receipt(json!({}))));
    let expected = [
        (r#"quell_job_starts_total{mode="start",held="cgroup"}"#, "1"),
        (r#"quell_job_ends_total{cause="user",outcome="signaled",verdict="gone"}"#, "1"),
        (r#"quell_job_duration_seconds_sum{outcome="signaled"}"#, "12.5"),
        (r#"quell_job_duration_seconds_bucket{outcome="signaled",le="5"}"#, "0"),
        (r#"quell_job_duration_seconds_bucket{outcome="signaled",le="15"}"#, "1"),
        (r#"quell_stops_total{cause="user"}"#, "1"),
        (r#"quell_stop_duration_seconds_sum{escalated="yes"}"#, "2.5"),
        (r#"quell_stop_escalations_total{reason="grace_over"}"#, "1"),
        (r#"quell_stop_escalations_total{reason="now"}"#, "0"),
        (r#"quell_grace_used_ratio_bucket{le="0.9"}"#, "0"),
        (r#"quell_grace_used_ratio_bucket{le="1"}"#, "1"),
        (r#"quell_members_total{fate="exited_on_ask"}"#, "1"),
        (r#"quell_members_total{fate="killed_after_grace"}"#, "1"),
        (r#"quell_output_bytes_total{stream="stdout"}"#, "100"),
        (r#"quell_output_cut_bytes_total{stream="stdout"}"#, "40"),
    ];
    assert_values(&totals, &expected);
}

#[test]
fn a_kill_that_was_wanted_is_told_apart_and_says_nothing_about_the_grace() {
    let mut totals = counted();
    let wanted = receipt(json!({ "kill": "wanted" }));
    totals.add_end(&ended(view(1, NOW, json!({})), wanted));
    let expected = [
        (r#"quell_stop_escalations_total{reason="grace_over"}"#, "0"),
        (r#"quell_stop_escalations_total{reason="now"}"#, "1"),
        (r#"quell_stop_duration_seconds_count{escalated="no"}"#, "1"),
        ("quell_grace_used_ratio_count", "0"),
    ];
    assert_values(&totals, &expected);
}

#[test]
fn each_start_and_each_end_counts_once_however_often_it_is_seen() {
    let mut totals = counted();
    let live = view(1, NOW, json!({ "state": "running", "ended": null }));
    totals.add_live(&live);
    totals.add_live(&live);
    let end = ended(view(1, "2026-01-02T10:00:05.000Z", json!({})), receipt(json!({})));
    totals.add_end(&end);
    totals.add_end(&end);
    // Another one ended earlier and is seen later.
    let other = ended(view(2, "2026-01-02T09:59:00.000Z", json!({})), receipt(json!({})));
    totals.add_end(&other);
    totals.add_end(&other);
    let read: Totals = serde_json::from_str(&serde_json::to_string(&totals).unwrap()).unwrap();
    assert_eq!(read, totals);
    let mut read = read;
    read.add_end(&end);
    let expected = [
        (r#"quell_job_starts_total{mode="start",held="cgroup"}"#, "2"),
        (r#"quell_job_ends_total{cause="user",outcome="signaled",verdict="gone"}"#, "2"),
    ];
    assert_values(&read, &expected);
}

#[test]
fn the_end_of_a_job_that_was_seen_alive_counts_also_if_the_clock_was_set_back() {
    let mut totals = counted();
    totals.add_live(&view(1, NOW, json!({ "state": "running", "ended": null })));
    assert_eq!(totals.gone(&BTreeSet::new()), [id(1)]);
    totals.add_end(&ended(view(1, "2026-01-01T00:00:00.000Z", json!({})), receipt(json!({}))));
    assert_values(
        &totals,
        &[(r#"quell_job_ends_total{cause="user",outcome="signaled",verdict="gone"}"#, "1")],
    );
    assert!(totals.gone(&BTreeSet::new()).is_empty());
    // One that nothing has seen alive ended before the counts began.
    assert!(!totals.lacks_end(id(3), time("2026-01-01T00:00:00.000Z")));
}

#[test]
fn the_history_adds_lost_keepers_failed_hooks_and_kills_of_earlier_runs() {
    let event = |run: u32, more: Value| {
        let mut event = json!({"time": NOW, "job": id(1), "run": run});
        merge(&mut event, more);
        serde_json::from_value::<JobEvent>(event).unwrap()
    };
    let mut totals = counted();
    let mut job =
        ended(view(1, NOW, json!({ "run": 3 })), receipt(json!({ "run": 3, "kill": null, "members": [] })));
    job.events = vec![
        event(1, json!({"event": "ready", "after": 0.4})),
        event(1, json!({"event": "killed", "reason": "grace_over"})),
        event(2, json!({"event": "standby_lost"})),
        event(2, json!({"event": "hook_failed", "hook": "h", "at": "ended", "why": "w"})),
        event(3, json!({"event": "lost", "finished_by": "x"})),
        event(3, json!({"event": "killed", "reason": "keeper_lost"})),
    ];
    totals.add_end(&job);
    let expected = [
        (r#"quell_job_ready_seconds_bucket{le="0.5"}"#, "1"),
        (r#"quell_stop_escalations_total{reason="grace_over"}"#, "1"),
        (r#"quell_stop_escalations_total{reason="recovery"}"#, "0"),
        ("quell_standbys_lost_total", "1"),
        ("quell_keepers_lost_total", "1"),
        ("quell_restarts_total", "2"),
        (r#"quell_hook_failures_total{at="ended"}"#, "1"),
    ];
    assert_values(&totals, &expected);
}

#[test]
fn a_refusal_is_counted_by_verb_and_code() {
    let mut totals = counted();
    totals.add_refusal(time("2026-01-02T10:00:01.000Z"), "kill", "protected_name");
    totals.add_failed_start(time("2026-01-02T10:00:02.000Z"), "not_found");
    assert_eq!(totals.audited(), time("2026-01-02T10:00:02.000Z"));
    let expected = [
        (r#"quell_guard_refusals_total{verb="kill",code="protected_name"}"#, "1"),
        (r#"quell_job_start_failures_total{code="not_found"}"#, "1"),
    ];
    assert_values(&totals, &expected);
}

#[test]
fn counts_of_another_version_or_with_other_bounds_are_not_used() {
    let mut totals = counted();
    totals.add_end(&ended(view(1, NOW, json!({})), receipt(json!({}))));
    assert!(totals.is_usable());
    let mut other = totals.clone();
    other.version += 1;
    assert!(!other.is_usable());
    totals.histograms.values_mut().next().unwrap().counts.pop();
    assert!(!totals.is_usable());
}
