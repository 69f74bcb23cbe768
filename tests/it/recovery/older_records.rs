//! A home that an older release has written: its jobs are damaged records to this one, not ended ones. They can be stopped
//! and removed, and nothing is known of them that is not.

use std::fs;

use quell_tests::{eventually, jobs::Background, run::PATIENCE, test_env::TestEnv};
use serde_json::{Value, json};

/// Writes `state.jsonl` of a job as an older version did: one object of optional fields, whatever the state.
fn state_as_older_version_wrote(job: &Background<'_>) {
    let state = job.record().expect("a state");
    let (tree, last) = (&state["tree"], &state["last"]);
    let mut old = json!({
        "schema": state["schema"], "id": state["id"], "state": state["state"], "since": state["since"], "run": 1,
        "held": tree["containment"], "session": tree["session"], "cgroup": tree["cgroup"], "root": tree["root"],
        "keeper": state["keeper"], "standby": state["standby"], "marker": state["marker"],
    });
    if state["state"] == "ended" {
        let ending = &last["ending"];
        (old["cause"], old["actor"]) = (ending["cause"].clone(), ending["actor"].clone());
        (old["outcome"], old["verdict"]) = (last["outcome"].clone(), last["verdict"].clone());
    }
    fs::write(job.dir().join("state.jsonl"), format!("{old}\n")).expect("the old shape");
}

/// Writes the record of a job as versions did whose specification had the request's fields in itself.
fn as_older_release_wrote(job: &Background<'_>) {
    state_as_older_version_wrote(job);
    let path = |name: &str| job.dir().join(name);
    let read = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(path(name)).expect("a file")).expect("JSON")
    };
    let spec = read("spec.json");
    let (request, mode) = (&spec["request"], &spec["request"]["mode"]["background"]);
    let old = json!({
        "schema": spec["schema"], "id": spec["id"], "mode": "start", "name": request["name"], "command": request["command"],
        "cwd": request["cwd"], "contain": request["contain"], "until": "root", "leak": "stop", "plan": request["stop"],
        "limits": {}, "marker": spec["marker"], "boot_id": spec["boot_id"], "pid_namespace": spec["pid_namespace"],
        "created": spec["created"],
        "background": {
            "stdin": "null", "pty": false, "max_log": mode["max_log"], "restart": mode["restart"], "on_owner_exit": "stop",
        },
    });
    let word = |word: &Value| json!({ "Unix": word.as_str().expect("a word").as_bytes() });
    let words: Vec<Value> = request["command"].as_array().expect("words").iter().map(word).collect();
    let launch = json!({
        "command": words, "cwd": request["cwd"], "environment": [[word(&json!("A")), word(&json!("b"))]], "stdin_file": null,
        "tags": {}, "ready": {}, "ready_interval": 0.25, "ready_timeout": 5.0, "test": false, "marker": spec["marker"],
    });
    for (name, value) in [("spec.json", old), ("launch.private.json", launch)] {
        fs::write(path(name), format!("{value}\n")).expect("the old shape");
    }
}

#[test]
fn an_ended_job_of_an_older_release_is_damaged_and_can_be_removed() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--name", "web"]).command(["true"]).begin();
    assert!(job.wait_over(PATIENCE));
    as_older_release_wrote(&job);
    for verb in ["status", "wait", "restart"] {
        let done = env.quell(verb).args([&job.id]).finish();
        assert_eq!(done.code(), Some(125), "{verb}: {}{}", done.stdout, done.stderr);
        assert!(done.stderr.contains("spec.json"), "{verb}: {}", done.stderr);
        assert!(!done.stdout.contains("ended"), "{verb}: {}", done.stdout);
    }
    let list = env.quell("list").args(["--all"]).finish();
    assert!(
        !list.stdout.contains(&job.id) && list.stderr.contains("spec.json"),
        "{}{}",
        list.stdout,
        list.stderr
    );
    let done = env.quell("rm").args([&job.id]).finish();
    assert_eq!((done.code(), env.ids("jobs").len()), (Some(0), 0), "{}", done.stderr);
    // Its name is free.
    let again = env.start().args(["--name", "web"]).command(["true"]).begin();
    assert!(again.wait_over(PATIENCE));
}

#[test]
fn an_ended_job_with_the_state_of_an_older_version_is_damaged() {
    let env = TestEnv::as_me();
    let job = env.start().command(["true"]).begin();
    assert!(job.wait_over(PATIENCE));
    state_as_older_version_wrote(&job);
    for verb in ["status", "wait"] {
        let done = env.quell(verb).args([&job.id]).finish();
        assert_eq!(done.code(), Some(125), "{verb}: {}{}", done.stdout, done.stderr);
        assert!(done.stderr.contains("state.jsonl"), "{verb}: {}", done.stderr);
        assert!(!done.stdout.contains("ended"), "{verb}: {}", done.stdout);
    }
    let done = env.quell("rm").args([&job.id]).finish();
    assert_eq!((done.code(), env.ids("jobs").len()), (Some(0), 0), "{}", done.stderr);
}

#[test]
fn a_live_job_of_an_older_release_can_be_stopped() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--grace", "1s"]).command(["sleep", &env.oracle.nap()]).begin();
    as_older_release_wrote(&job);
    let done = job.stop(&[]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(job.is_over() && env.oracle.survivors_after(PATIENCE).is_empty());
    assert_eq!(job.receipt().expect("a receipt")["verdict"]["kind"], "gone");
}

#[test]
fn a_lost_job_of_an_older_release_is_not_said_to_be_gone() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
    let root = job.process("root").expect("a root");
    job.lose();
    as_older_release_wrote(&job);
    let done = job.stop(&[]);
    // Nothing that can be read ties the process to the job.
    assert_eq!(done.code(), Some(5), "{}{}", done.stdout, done.stderr);
    assert!(root.is_alive(), "{}{}", done.stdout, done.stderr);
    assert_eq!(job.receipt().expect("a receipt")["verdict"]["kind"], "unproven");
    assert!(root.signal("KILL") && eventually(PATIENCE, || !root.is_alive()));
    assert_eq!(env.quell("rm").args([&job.id, "--force"]).finish().code(), Some(0));
    assert!(env.ids("jobs").is_empty());
}
