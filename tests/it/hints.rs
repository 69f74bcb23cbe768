//! A hint says what helps with this very error.

use quell_tests::{lab::Lab, skip};

#[test]
fn a_home_that_cannot_be_made_is_not_told_to_free_space() {
    let lab = Lab::as_me();
    for verb in ["start", "run"] {
        let done = lab.quell(verb).env("QUELL_HOME", "/proc/nowhere/x").args(["--json"]).command(["true"]);
        let error = done.finish().envelope()["error"].clone();
        assert_eq!(error["code"], "record_unwritable", "{error:#}");
        let hint = error["hint"].as_str().expect("a hint");
        assert!(hint.starts_with("set QUELL_HOME to a directory that you may write"), "{hint}");
    }
}

#[test]
fn a_job_that_was_stopped_before_it_started_is_not_told_to_look_at_limits() {
    let lab = Lab::as_me();
    for _ in 0..50 {
        let start = lab.start().args(["--json", "--timeout", "1ms"]).command(["true"]);
        let error = start.finish().envelope()["error"].clone();
        if error.is_object() {
            assert_eq!(error["code"], "start_failed", "{error:#}");
            let hint = error["hint"].as_str().expect("a hint");
            assert!(!hint.contains("limits") && hint.contains("time was up"), "{hint}");
            return;
        }
    }
    skip("a_job_that_was_stopped_before_it_started_is_not_told_to_look_at_limits", "it always started first");
}
