//! Settings reach every verb that they are about, and a variable that is none is an error for all verbs.

use std::fs;

use quell_tests::{run::Finished, test_env::TestEnv};
use serde_json::Value;

use crate::{
    cli::bad_input::one_clear_line,
    guard::decisions::{Stranger, policy, verb},
    test_verb::data,
};

#[test]
fn an_unknown_variable_is_an_error_for_every_verb() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let file = env.path("made");
    let made = file.to_str().expect("a path");
    let verbs: &[&[&str]] = &[
        &["run", "--", "touch", made],
        &["start", "--", "touch", made],
        &["test", "--", "touch", made],
        &["stop", &job.id],
        &["logs", &job.id],
        &["events", &job.id],
        &["wait", "--timeout", "1s", &job.id],
        &["send", &job.id, "x"],
        &["signal", &job.id, "TERM"],
        &["restart", &job.id],
        &["list"],
        &["status", &job.id],
        &["tree", &job.id],
        &["stats"],
        &["rm", &job.id],
        &["gc"],
        &["sweep"],
        &["kill", "1"],
        &["guard", "check", "verb", "list"],
        &["service", "status", "web"],
        &["doctor"],
        &["config", "show"],
        &["completions", "bash"],
    ];
    for words in verbs {
        let done = verb(&env, words[0]).env("QUELL_STOP_GRCAE", "1s").args(&words[1..]).finish();
        let exit = if words[0] == "run" { 125 } else { 2 };
        assert_eq!(done.code(), Some(exit), "{words:?}: {}{}", done.stdout, done.stderr);
        let line = "quell: QUELL_STOP_GRCAE: there is no such setting (did you mean QUELL_STOP_GRACE?)\n";
        assert_eq!(done.stderr, line, "{words:?}");
    }
    assert!(!file.exists() && !job.is_over());
    // One that is empty counts as unset. A name that a terminal would obey is shown as words.
    assert_eq!(verb(&env, "list").env("QUELL_NONSENSE", "").finish().code(), Some(0));
    let done = verb(&env, "list").env("QUELL_\u{1b}[2J", "x").finish();
    one_clear_line(&done, 2);
    assert!(!done.stderr.contains('\u{1b}'), "{:?}", done.stderr);
    assert_eq!(job.stop(&["--now"]).code(), Some(0));
}

#[test]
fn a_variable_for_files_alone_or_with_a_bad_value_is_an_error_for_every_verb() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let verbs: &[&[&str]] = &[
        &["list"],
        &["doctor"],
        &["stats"],
        &["status", &job.id],
        &["stop", &job.id],
        &["logs", &job.id],
        &["sweep"],
        &["completions", "bash"],
        &["start", "--", "true"],
        &["guard", "check", "verb", "list"],
    ];
    for (name, value) in [
        ("QUELL_GUARD_MOST", "read"),
        ("QUELL_GUARD_KILL_ALLOW", "*"),
        ("QUELL_TRUST_PROJECTS", "/"),
        ("QUELL_HOOKS_RUN", "x"),
        ("QUELL_STOP_GRACE", "bad"),
    ] {
        for words in verbs {
            let done = verb(&env, words[0]).env(name, value).args(&words[1..]).finish();
            assert_eq!(done.code(), Some(2), "{name}, {words:?}: {}{}", done.stdout, done.stderr);
            assert!(done.stderr.starts_with(&format!("quell: {name}: ")), "{words:?}: {}", done.stderr);
        }
    }
    assert!(!job.is_over());
    // A mistake in a file, or a file that is not there, does not prevent looking and stopping.
    policy(&env, "[guard\n");
    assert_eq!(verb(&env, "list").finish().code(), Some(0));
    let done = verb(&env, "stop").env("QUELL_CONFIG", "/nowhere").args(["--now", &job.id]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
}

/// A job that calls quell has the variables that quell gave it.
#[test]
fn a_quell_inside_a_job_knows_the_variables_that_it_inherits() {
    let env = TestEnv::as_me();
    let inner = format!("{} list && {} run -- true", env.quell_path().display(), env.quell_path().display());
    for outer in ["run", "test"] {
        let done = verb(&env, outer).env("QUELL_SESSION", "s").sh(&inner).finish();
        assert_eq!(done.code(), Some(0), "{outer}: {}", done.stderr);
    }
}

/// The request in `spec.json` of the job of a test run.
fn spec(env: &TestEnv, done: &Finished) -> Value {
    let id = data(done)["job"].as_str().expect("a job").to_owned();
    let text = fs::read_to_string(env.home().join("jobs").join(id).join("spec.json")).expect("a record");
    let spec: Value = serde_json::from_str(&text).expect("JSON");
    spec["request"].clone()
}

#[test]
fn the_grace_and_the_time_of_tests_are_those_of_the_settings() {
    let env = TestEnv::as_me();
    let run = |words: &[&str]| verb(&env, "test").args(["--json"]).args(words).command(["true"]).finish();
    let seconds = Value::as_f64;
    policy(&env, "");
    let plain = spec(&env, &run(&[]));
    assert_eq!((seconds(&plain["stop"]["grace"]), seconds(&plain["timeout"])), (Some(5.0), Some(1800.0)));
    policy(&env, "[stop]\ngrace = \"7s\"\n[test]\ntimeout = \"9m\"\n");
    let set = spec(&env, &run(&[]));
    assert_eq!((seconds(&set["stop"]["grace"]), seconds(&set["timeout"])), (Some(7.0), Some(540.0)));
    let flags = spec(&env, &run(&["--grace", "3s", "--timeout", "2m"]));
    assert_eq!((seconds(&flags["stop"]["grace"]), seconds(&flags["timeout"])), (Some(3.0), Some(120.0)));
    let unbound = spec(&env, &run(&["--timeout", "none"]));
    assert_eq!(unbound["timeout"], Value::Null);
    let short = verb(&env, "test").env("QUELL_TEST_TIMEOUT", "300ms").args(["--json"]);
    let done = short.command(["sleep", &env.oracle.nap()]).finish();
    assert_eq!(
        (done.code(), data(&done)["status"].as_str()),
        (Some(124), Some("timeout")),
        "{}",
        done.stdout
    );
}

#[test]
fn the_grace_of_a_kill_is_that_of_the_settings() {
    let env = TestEnv::as_me();
    policy(&env, "[guard.kill]\nallow = [\"bash\"]\nmin_pid = 2\n[stop]\ngrace = \"100ms\"\n");
    let deaf = Stranger::new(&env, env.user(), "trap '' TERM; touch $HERE/ready; while :; do sleep 1; done");
    let done = verb(&env, "kill").args(["--json", &deaf.pid()]).finish();
    let answer = done.envelope()["data"].clone();
    assert_eq!((done.code(), &answer["kill"]), (Some(0), &"grace_over".into()), "{answer:#}");
    assert!(answer["took"].as_f64().is_some_and(|took| took < 4.5), "{answer:#}");
}
