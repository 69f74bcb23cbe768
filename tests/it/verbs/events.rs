//! `quell events`: the history, and what happens.

use std::time::Instant;

use quell_tests::{eventually, jobs::Background, run::PATIENCE, test_env::TestEnv};
use serde_json::Value;

fn names(text: &str, id: &str) -> Vec<String> {
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    events
        .filter(|event| event["data"]["job"] == id)
        .map(|event| event["data"]["event"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn over<'l>(env: &'l TestEnv, name: &str, script: &str) -> Background<'l> {
    let job = env.start().args(["--name", name]).sh(script).begin();
    assert!(job.wait_over(PATIENCE));
    job
}

#[test]
fn the_history_is_whole_when_the_job_is_over() {
    let env = TestEnv::as_me();
    let job = over(&env, "web", "exit 3");
    let text = env.quell("events").args(["web"]).finish().stdout;
    assert!(
        text.lines().last().is_some_and(|line| line.contains("exited with 3, by itself, 0 left")),
        "{text}"
    );
    let json = env.quell("events").args(["web", "--json"]).finish().stdout;
    assert_eq!(names(&json, &job.id), job.events());
    assert_eq!(job.events().last().map(String::as_str), Some("ended"));
    assert!(env.quell("events").args(["--since", "1h"]).finish().stdout.contains("  web  "));
    assert_eq!(env.quell("events").args(["--since", "2200-01-01T00:00:00Z"]).finish().stdout, "");
    assert_eq!(env.quell("events").args(["--since", "soon"]).finish().code(), Some(2));
    assert_eq!(env.quell("events").args(["nosuch"]).finish().code(), Some(3));
}

#[test]
fn a_follower_of_a_job_ends_with_it() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", "300"]).begin();
    let follower = env.quell("events").args([job.id.as_str(), "-f", "--json"]).start();
    assert_eq!(job.stop(&["--reason", "enough"]).code(), Some(0));
    let done = follower.finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(names(&done.stdout, &job.id), job.events());
}

#[test]
fn a_follower_of_all_sees_jobs_that_come_and_go() {
    let env = TestEnv::as_me();
    let path = env.path("seen");
    let file = std::fs::File::create(&path).expect("a file");
    let follower = env.quell("events").args(["-f", "--json"]).stdout(file).start();
    let seen = || std::fs::read_to_string(&path).unwrap_or_default();
    // It follows from the first job on that it shows: what ended before it began to watch is not shown.
    assert!(eventually(PATIENCE, || {
        over(&env, "probe", "true");
        !seen().is_empty()
    }));
    let jobs: Vec<Background<'_>> = (0..5).map(|n| over(&env, &format!("job{n}"), "true")).collect();
    for job in &jobs {
        assert!(eventually(PATIENCE, || names(&seen(), &job.id) == job.events()), "{}\n{}", job.id, seen());
    }
    drop(follower);
}

#[test]
fn a_follower_of_all_misses_no_job_however_short_it_lived() {
    let env = TestEnv::as_me();
    let path = env.path("seen");
    let file = std::fs::File::create(&path).expect("a file");
    let follower = env.quell("events").args(["-f", "--json"]).stdout(file).start();
    let seen = || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text[..text.rfind('\n').map_or(0, |end| end + 1)].to_owned()
    };
    let ended = |text: &str, id: &str| names(text, id).last().is_some_and(|name| name == "ended");
    assert!(eventually(PATIENCE, || env.home().join("index.db").exists()));
    // A job that ends while it is looked at holds nothing up.
    let began = Instant::now();
    for round in 0..20 {
        let job = env.start().command(["true"]).begin();
        assert!(eventually(PATIENCE, || ended(&seen(), &job.id)), "round {round}: {}", job.id);
    }
    assert!(began.elapsed() < PATIENCE, "20 jobs were told of in {:?}", began.elapsed());
    // However many end between two looks.
    assert!(follower.front.signal("STOP"));
    let jobs: Vec<Background<'_>> = (0..70).map(|_| env.start().command(["true"]).begin()).collect();
    assert!(jobs.iter().all(|job| job.wait_over(PATIENCE)));
    assert!(follower.front.signal("CONT"));
    let missed = || jobs.iter().filter(|job| !ended(&seen(), &job.id)).count();
    assert!(eventually(PATIENCE, || missed() == 0), "{} of {} jobs missed", missed(), jobs.len());
}

#[test]
fn a_run_has_a_history_as_far_as_its_record_tells() {
    let env = TestEnv::as_me();
    assert_eq!(env.run().sh("exit 4").finish().code(), Some(4));
    let id = env.ids("jobs").pop().expect("a job");
    let json = env.quell("events").args([id.as_str(), "--json", "-f"]).finish();
    assert_eq!(json.code(), Some(0), "{}", json.stderr);
    assert_eq!(names(&json.stdout, &id), ["created", "started", "ended"]);
}
