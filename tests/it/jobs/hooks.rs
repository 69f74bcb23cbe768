//! What is done at a job's events, and that it does the job no harm.

use std::{fs, path::Path, time::Duration};

use quell_tests::{eventually, jobs::Background, run::PATIENCE, run::Quell, test_env::TestEnv};
use serde_json::Value;

use crate::library::quell;

/// A start with these hooks in the user's own configuration.
fn start_with<'l>(env: &'l TestEnv, hooks: &str) -> Quell<'l> {
    let config = env.write("own.toml", hooks);
    env.start().env("QUELL_CONFIG", config)
}

/// The events in a file of a hook's: one JSON object a line, each of which must be one.
pub fn events_in(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

pub fn names_in(file: &Path) -> Vec<String> {
    events_in(file).iter().map(|event| event["event"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Waits for the hooks to have been told of these, in this order.
pub fn told(file: &Path, names: &[&str]) {
    assert!(
        eventually(PATIENCE, || names_in(file) == names),
        "{} of {names:?}: {:?}",
        file.display(),
        names_in(file)
    );
}

pub const ALL: &str = r#"["started", "ready", "ended", "timed_out", "killed", "leaked", "lost"]"#;

/// One hook of each kind, for all events.
fn both(env: &TestEnv) -> String {
    let tell = env.script("tell", &format!("#!/bin/sh\ncat >>{}\n", env.path("ran").display()));
    format!(
        "[[hooks]]\non = {ALL}\nappend = {:?}\n[[hooks]]\non = {ALL}\nrun = [{:?}]\n",
        env.path("appended").display().to_string(),
        tell.display().to_string()
    )
}

fn both_told(env: &TestEnv, job: &Background<'_>, names: &[&str]) {
    told(&env.path("appended"), names);
    // Commands run side by side, so their order is not that of the events.
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let wanted = sorted(names.iter().map(|name| name.to_string()).collect());
    let ran = env.path("ran");
    assert!(eventually(PATIENCE, || sorted(names_in(&ran)) == wanted), "{wanted:?}: {:?}", names_in(&ran));
    for event in events_in(&env.path("appended")).iter().chain(&events_in(&ran)) {
        assert_eq!(event["job"], job.id.as_str(), "{event}");
        assert!(event["time"].is_string() && event["run"] == 1, "{event}");
    }
    assert!(!job.events().contains(&"hook_failed".into()), "{:?}", job.events());
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
}

#[test]
fn each_event_is_told_to_commands_and_files() {
    let cases: [(&[&str], &str, &[&str]); 4] = [
        (
            &["--ready-log", "^up$"],
            "echo up; until [ -e go ]; do sleep 0.01; done",
            &["started", "ready", "ended"],
        ),
        (
            &["--timeout", "100ms", "--grace", "20s"],
            "until [ -e never ]; do sleep 0.01; done",
            &["started", "timed_out", "ended"],
        ),
        (
            // It has to get to its trap before its time is up.
            &["--timeout", "2s", "--grace", "100ms"],
            "trap '' TERM; while :; do sleep 0.01; done",
            &["started", "timed_out", "killed", "ended"],
        ),
        (&[], "sleep 20 & until [ -e go ]; do sleep 0.01; done; exit 0", &["started", "leaked", "ended"]),
    ];
    for (args, script, names) in cases {
        let env = TestEnv::as_me();
        let hooks = both(&env);
        let job = start_with(&env, &hooks).args(args).sh(script).begin();
        if names.contains(&"ready") {
            assert!(eventually(PATIENCE, || job.state() == "ready"), "{}", job.state());
        }
        env.write("go", "");
        assert!(job.wait_over(PATIENCE), "{script}: {}", job.state());
        both_told(&env, &job, names);
    }
}

/// A time limit is handed on as text, and must be read as what it was.
#[test]
fn a_command_runs_whatever_its_time_limit_is() {
    for (limit, ran) in [("90s", true), ("1h1m1.5s", true), ("0.4ms", false)] {
        let env = TestEnv::as_me();
        let tell = env.script("tell", &format!("#!/bin/sh\ncat >>{}\n", env.path("ran").display()));
        let hooks = format!(
            "[[hooks]]\non = [\"ended\"]\nrun = [{:?}]\ntimeout = {limit:?}\n",
            tell.display().to_string()
        );
        let job = start_with(&env, &hooks).command(["true"]).begin();
        assert!(job.wait_over(PATIENCE), "{limit}: {}", job.state());
        if ran {
            told(&env.path("ran"), &["ended"]);
            assert!(!job.events().contains(&"hook_failed".into()), "{limit}: {:?}", job.events());
        } else {
            let why = || fs::read_to_string(job.dir().join("events.jsonl")).unwrap_or_default();
            assert!(eventually(PATIENCE, || why().contains("it took too long")), "{limit}: {}", why());
        }
    }
}

#[test]
fn the_loss_of_a_keeper_is_told() {
    let env = TestEnv::as_me();
    let hooks = both(&env);
    let job = start_with(&env, &hooks).command(["sleep", &env.oracle.nap()]).begin();
    job.process("keeper").expect("a keeper").signal("KILL");
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    both_told(&env, &job, &["started", "lost", "killed", "ended"]);
}

#[test]
fn the_process_that_finishes_a_lost_job_tells_its_hooks() {
    let env = TestEnv::as_me();
    let hooks = both(&env);
    let job = start_with(&env, &hooks).command(["sleep", &env.oracle.nap()]).begin();
    // Its helper outlives the keepers, and would report the start after the other one's message.
    told(&env.path("appended"), &["started"]);
    job.lose();
    let swept = env.quell("sweep").finish();
    assert!(matches!(swept.code(), Some(0 | 5)), "{}", swept.stderr);
    both_told(&env, &job, &["started", "lost", "killed", "ended"]);
}

/// Why a hook failed, as the history tells it.
fn failures(job: &Background<'_>) -> Vec<String> {
    let text = fs::read_to_string(job.dir().join("events.jsonl")).unwrap_or_default();
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let failed = events.filter(|event| event["event"] == "hook_failed");
    failed.map(|event| event["why"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_bad_hook_is_recorded_and_harms_nothing() {
    let env = TestEnv::as_me();
    let forks = env.script(
        "forks",
        &format!("#!/bin/sh\nsetsid sleep {0} & (sleep {0} &) ; exit 0\n", env.oracle.nap()),
    );
    for (run, why) in [
        (r#"["false"]"#.into(), Some("exit code 1")),
        (r#"["no-such-program"]"#.into(), Some("it can't be found")),
        (format!("[{:?}]", env.write("plain", "").display().to_string()), Some("it can't be executed")),
        (format!(r#"["sleep", "{}"]"#, env.oracle.nap()), Some("it took too long")),
        (r#"["sh", "-c", "kill -9 $$"]"#.into(), Some("exit code 137")),
        (format!("[{:?}]", forks.display().to_string()), None),
        // One that doesn't read what it is told.
        (r#"["sh", "-c", "exec <&-; sleep 0.1"]"#.into(), None),
    ] {
        let timeout = if why == Some("it took too long") { "300ms" } else { "1m" };
        let hooks = format!("[[hooks]]\non = [\"started\"]\nrun = {run}\ntimeout = {timeout:?}\n");
        let job = start_with(&env, &hooks).command(["sleep", "20"]).begin();
        match why {
            Some(why) => {
                assert!(eventually(PATIENCE, || failures(&job) == [why]), "{run}: {:?}", failures(&job));
                assert_eq!(job.state(), "running", "{run}");
            }
            None => assert_eq!(failures(&job), Vec::<String>::new(), "{run}"),
        }
        assert_eq!(job.stop(&["--now"]).code(), Some(0), "{run}");
        assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new(), "{run}");
        assert_eq!(failures(&job).len(), usize::from(why.is_some()), "{run}");
    }
    let append = format!(
        "[[hooks]]\non = [\"started\"]\nappend = {:?}\n",
        env.path("no/such/dir").display().to_string()
    );
    let job = start_with(&env, &append).command(["sleep", "20"]).begin();
    assert!(eventually(PATIENCE, || failures(&job).len() == 1), "{:?}", job.events());
}

#[test]
fn a_hook_that_hangs_delays_neither_the_stop_nor_other_hooks() {
    let env = TestEnv::as_me();
    let appended = env.path("appended");
    let hooks = format!(
        "[[hooks]]\non = [\"started\", \"ended\"]\nrun = [\"sleep\", \"{}\"]\ntimeout = \"5m\"\n[[hooks]]\non = [\"ended\"]\nappend = {:?}\n",
        env.oracle.nap(),
        appended.display().to_string()
    );
    let job = start_with(&env, &hooks).command(["sleep", "20"]).begin();
    let done = job.stop(&["--now"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.took < PATIENCE, "{:?}", done.took);
    told(&appended, &["ended"]);
    // The hooks are still at work: what they do belongs to no job, and is ended with the environment.
    let at_work = || env.oracle.survivors().iter().any(|process| process.command.starts_with("sleep 50."));
    assert!(eventually(PATIENCE, at_work), "{:?}", env.oracle.survivors());
}

#[test]
fn a_hook_at_work_does_not_keep_a_lost_job_alive() {
    let env = TestEnv::as_me();
    let hooks = format!(
        "[[hooks]]\non = [\"started\"]\nrun = [\"sleep\", \"{}\"]\ntimeout = \"5m\"\n",
        env.oracle.nap()
    );
    let job = start_with(&env, &hooks).command(["sleep", "20"]).begin();
    assert!(eventually(PATIENCE, || {
        env.oracle.survivors().iter().any(|process| process.command.starts_with("sleep 50."))
    }));
    job.lose();
    let view = quell(&env).job(&job.id).and_then(|job| job.view());
    let view = view.unwrap_or_else(|error| panic!("{error}: {:?}", job.receipt()));
    assert_eq!(view.state, quell::JobState::Ended, "the hook is taken for a keeper");
}

#[test]
fn a_hook_knows_nothing_that_only_the_job_was_given() {
    let env = TestEnv::as_me();
    let tell = env
        .script("tell", &format!("#!/bin/sh\n(cat; env) >>{}\necho end >>{0}\n", env.path("ran").display()));
    let hooks = format!("[[hooks]]\non = [\"started\"]\nrun = [{:?}]\n", tell.display().to_string());
    let job = start_with(&env, &hooks)
        .args(["--env", "TOKEN=s3cret-of-the-job", "--mask", "TOKEN"])
        .sh("echo $TOKEN; sleep 20 # s3cret-of-the-job")
        .begin();
    let ran = || fs::read_to_string(env.path("ran")).unwrap_or_default();
    assert!(eventually(PATIENCE, || ran().ends_with("end\n")), "{}", ran());
    assert!(!ran().contains("s3cret"), "{}", ran());
    // The program itself has it, of course.
    assert!(eventually(PATIENCE, || job.output("stdout") == "s3cret-of-the-job\n"));
}

#[test]
fn hooks_outlast_a_job_that_is_over_at_once() {
    let env = TestEnv::as_me();
    let hooks = both(&env);
    for round in 1..=5 {
        let job = start_with(&env, &hooks).command(["true"]).begin();
        assert!(job.wait_over(PATIENCE), "{}", job.state());
        let events =
            || events_in(&env.path("ran")).iter().filter(|event| event["job"] == job.id.as_str()).count();
        assert!(eventually(PATIENCE, || events() == 2), "round {round}: {}", events());
    }
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
    // Nothing is left to wait for.
    assert!(env.oracle.survivors_after(Duration::ZERO).is_empty());
}
