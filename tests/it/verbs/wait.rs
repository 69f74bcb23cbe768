//! `quell wait`: each condition, any and all, and always an end.

use std::time::Duration;

use quell_tests::{
    jobs::Background,
    run::{Finished, PATIENCE},
    test_env::TestEnv,
};
use serde_json::Value;

fn wait(env: &TestEnv, jobs: &[&Background<'_>], options: &[&str]) -> Finished {
    env.quell("wait").args(jobs.iter().map(|job| job.id.as_str())).args(options).finish()
}

fn met(done: &Finished) -> Vec<Value> {
    let jobs = done.envelope()["data"]["jobs"].as_array().cloned().unwrap_or_default();
    jobs.into_iter().map(|job| job["met"].clone()).collect()
}

#[test]
fn the_end_is_waited_for_and_its_success_is_the_answer() {
    let env = TestEnv::as_me();
    let good = env.start().args(["--name", "good"]).sh("sleep 0.2").begin();
    let bad = env.start().sh("sleep 0.1; exit 3").begin();
    assert_eq!(wait(&env, &[&good], &[]).code(), Some(0));
    let done = wait(&env, &[&good, &bad], &[]);
    assert_eq!(done.code(), Some(1));
    assert!(done.stdout.contains("(good): ended: exited with 0, by itself\n"), "{}", done.stdout);
    assert!(done.stdout.contains("exited with 3"), "{}", done.stdout);
    let json = wait(&env, &[&good, &bad], &["--any", "--json"]);
    assert_eq!((json.code(), met(&json)), (Some(0), vec!["exit".into(), "exit".into()]));
}

#[test]
fn any_is_settled_by_one_and_all_by_the_last() {
    let env = TestEnv::as_me();
    let quick = env.start().command(["true"]).begin();
    let slow = env.start().command(["sleep", "300"]).begin();
    let done = wait(&env, &[&quick, &slow], &["--any", "--json"]);
    assert_eq!((done.code(), met(&done)), (Some(0), vec!["exit".into(), "nothing".into()]));
    let done = wait(&env, &[&quick, &slow], &["--all", "--timeout", "300ms"]);
    assert_eq!(done.code(), Some(6));
    assert!(done.stdout.contains("still running"), "{}", done.stdout);
    assert_eq!(slow.state(), "running");
}

#[test]
fn readiness_and_lines_are_waited_for() {
    let env = TestEnv::as_me();
    let job =
        env.start().args(["--ready-log", "^up$"]).sh("sleep 0.2; echo up; printf prompt; sleep 300").begin();
    let done = wait(&env, &[&job], &["--ready", "--json"]);
    assert_eq!((done.code(), met(&done)), (Some(0), vec!["ready".into()]));
    let done = wait(&env, &[&job], &["--log", "u.", "--json"]);
    assert_eq!((done.code(), met(&done)), (Some(0), vec!["log".into()]));
    assert_eq!(done.envelope()["data"]["jobs"][0]["line"], "up");
    assert_eq!(wait(&env, &[&job], &["--log", "never", "--timeout", "200ms"]).code(), Some(6));
}

#[test]
fn an_end_before_the_condition_is_a_no() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--ready-log", "^up$"]).sh("echo down; printf 'no end'").begin();
    assert_eq!(wait(&env, &[&job], &["--ready"]).code(), Some(1));
    assert_eq!(wait(&env, &[&job], &["--log", "up"]).code(), Some(1));
    // The last line counts also without an end.
    assert_eq!(wait(&env, &[&job], &["--log", "^no end$"]).code(), Some(0));
}

#[test]
fn a_daemon_that_holds_the_pipes_delays_no_end() {
    let env = TestEnv::as_me();
    let other = env.start().actor("daemon-exit", None).begin();
    let done = wait(&env, &[&other], &["--timeout", "20s"]);
    assert_eq!(done.code(), Some(0), "{} {}", done.stdout, done.stderr);
}

#[test]
fn sleepers_stall_and_workers_do_not() {
    let env = TestEnv::as_me();
    let sleeper = env.start().sh("sleep 300 & sleep 300; wait").begin();
    let busy = env.start().sh("while :; do :; done").begin();
    let writer = env.start().sh("while :; do echo x; sleep 0.1; done").begin();
    let done = wait(&env, &[&sleeper], &["--stall", "500ms", "--timeout", "20s", "--json"]);
    assert_eq!((done.code(), met(&done)), (Some(0), vec!["stall".into()]));
    let done = wait(&env, &[&busy, &writer], &["--any", "--stall", "1s", "--timeout", "2500ms", "--json"]);
    assert_eq!((done.code(), met(&done)), (Some(6), vec!["nothing".into(), "nothing".into()]));
}

#[test]
fn what_can_never_happen_is_said_at_once() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", "300"]).begin();
    let done = wait(&env, &[&job], &["--ready"]);
    assert_eq!(done.code(), Some(1));
    assert!(done.took < PATIENCE && done.stderr.contains("--ready-port"), "{}", done.stderr);
    assert_eq!(env.quell("wait").args(["nosuch"]).finish().code(), Some(3));
    assert_eq!(wait(&env, &[&job], &["--log", "("]).code(), Some(2));
    assert_eq!(wait(&env, &[&job], &["--timeout", "0"]).code(), Some(2));
    assert_eq!(env.quell("wait").finish().code(), Some(2));
}

#[test]
fn a_stall_is_waited_for_no_longer_than_the_timeout_however_silent_the_keeper_is() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", "300"]).begin();
    let keepers = ["standby", "keeper"].map(|role| job.process(role).expect(role));
    assert!(keepers.iter().all(|process| process.signal("STOP")), "{keepers:?}");
    let done = wait(&env, &[&job], &["--stall", "500ms", "--timeout", "1s"]);
    assert_eq!(done.code(), Some(6), "{}", done.stderr);
    assert!(done.took < Duration::from_secs(8), "{:?}", done.took);
    assert!(keepers.iter().all(|process| process.signal("CONT")), "{keepers:?}");
}
