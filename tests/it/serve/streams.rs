//! Streams: rows, events and output as they come, and going on after a gap.

use std::collections::BTreeSet;

use quell_tests::run::PATIENCE;
use quell_tests::test_env::TestEnv;
use serde_json::{Value, json};

use super::client::{Server, Stream};

/// Reads lines of output until one that is `last`. Returns them, with the cursor after them.
fn lines_until(stream: &mut Stream, last: &str) -> (Vec<String>, String) {
    let mut lines = Vec::new();
    loop {
        let event = stream.until("log", |_| true);
        let text = event.data["text"].as_str().expect("a text").to_owned();
        lines.push(text);
        if lines.last().is_some_and(|text| text == last) {
            return (lines, event.data["cursor"].as_str().expect("a cursor").to_owned());
        }
    }
}

#[test]
fn a_stream_says_hello_and_shows_the_whole_row_after_each_change() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let mut stream = server.stream(&server.token, "", None);
    let hello = stream.next().expect("an event");
    assert_eq!((hello.kind.as_str(), &hello.data["role"]), ("hello", &json!("admin")));
    let head = stream.head.to_ascii_lowercase();
    assert!(
        head.contains("content-type: text/event-stream") && head.contains("x-accel-buffering: no"),
        "{head}"
    );
    let job = env.start().args(["--name", "web"]).command(["sleep", &env.oracle.nap()]).begin();
    stream.until("job", |row| row["id"] == job.id.as_str() && row["state"] == "running");
    server.ask("POST", "/v1/jobs/web/stop", "{}");
    stream.until("event", |event| event["event"] == "ended" && event["verdict"]["kind"] == "gone");
    let row = stream.until("job", |row| row["state"] == "ended").data;
    assert_eq!((&row["name"], &row["verdict"]["kind"]), (&json!("web"), &json!("gone")));
}

#[test]
fn a_stream_goes_on_after_the_last_event_that_was_read() {
    let env = TestEnv::as_me();
    let mut server = Server::start(&env, &[]);
    let mut stream = server.stream(&server.token, "", None);
    let first = env.start().args(["--name", "first"]).command(["sleep", &env.oracle.nap()]).begin();
    let seen = stream.until("job", |row| row["id"] == first.id.as_str());
    drop(stream);
    // What happens meanwhile is sent to a client that comes back.
    let second = env.start().args(["--name", "second"]).command(["sleep", &env.oracle.nap()]).begin();
    let row = |server: &Server| server.get("/v1/jobs/second").json()["data"]["job"]["state"] == "running";
    assert!(quell_tests::eventually(PATIENCE, || row(&server)));
    let id = seen.id.expect("an event has an id");
    let mut stream = server.stream(&server.token, "", Some(&id));
    assert_eq!(stream.next().expect("an event").kind, "hello");
    let next = stream.next().expect("an event");
    assert_ne!(next.kind, "reset");
    assert_ne!(next.id.as_ref(), Some(&id), "each event comes once");
    if next.kind != "job" || next.data["id"] != second.id.as_str() {
        stream.until("job", |row| row["id"] == second.id.as_str());
    }
    // Another run of the server has other events, and says so.
    server.running.front.signal("KILL");
    server.running.wait_exit(PATIENCE);
    let server = Server::start_at(&env, server.port, &[]);
    let mut stream = server.stream(&server.token, "", Some(&id));
    assert_eq!(stream.until("reset", |_| true).data["why"], "epoch");
}

#[test]
fn vitals_come_while_they_change_and_say_what_needs_attention() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let busy = env.start().sh("echo at work; while :; do :; done").begin();
    let nap = env.oracle.nap();
    let left = env.start().args(["--until", "tree"]).sh(&format!("sleep {nap} & exit 3")).begin();
    let mut stream = server.stream(&server.token, "?vitals=1s", None);
    let of = |data: &Value, job: &str| data[job].clone();
    let vitals = stream.until("vitals", |data| {
        let busy = of(data, &busy.id);
        busy["processes"] == 1 && busy["last_line"] == "at work" && busy["cpu"].as_f64() > Some(0.0)
    });
    assert!(of(&vitals.data, &busy.id)["memory"].as_u64() > Some(0), "{}", vitals.data);
    // What does not change is sent once. A new stream begins with all of it.
    let mut stream = server.stream(&server.token, "?vitals=1s", None);
    stream.until("vitals", |data| of(data, &left.id)["attention"]["kind"] == "root_exited");
    let stop = server.ask("POST", &format!("/v1/jobs/{}/stop?wait=50s", left.id), "{}");
    assert_eq!(stop.status, 200, "{}", stop.body);
    stream.until("vitals", |data| data[left.id.as_str()] == json!({}));
}

#[test]
fn each_line_comes_once_though_the_server_is_killed_between() {
    let env = TestEnv::as_me();
    let mut server = Server::start(&env, &[]);
    let script = "i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); sleep 0.05; done; printf end";
    let job = env.start().sh(script).begin();
    let mut stream = server.stream(&server.token, &format!("?logs={}", job.id), None);
    let (mut lines, cursor) = lines_until(&mut stream, "line 5");
    server.running.front.signal("KILL");
    server.running.wait_exit(PATIENCE);
    assert!(!job.is_over(), "the job goes on");
    let server = Server::start_at(&env, server.port, &[]);
    let mut stream = server.stream(&server.token, &format!("?events=0&logs={}@{cursor}", job.id), None);
    lines.extend(lines_until(&mut stream, "end").0);
    let expected: Vec<String> = (0..60).map(|i| format!("line {i}")).chain(["end".to_owned()]).collect();
    assert_eq!(lines, expected);
}

#[test]
fn the_end_of_the_last_job_of_a_session_is_told_with_the_verdicts() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let mut stream = server.stream(&server.token, "", None);
    stream.next();
    let start = |script: &str| env.start().args(["--owner", "session:s1"]).sh(script).begin();
    let (one, other) = (start("sleep 4; exit 1"), start("sleep 5"));
    let stopped = stream.until("session.stopped", |data| data["session"] == "s1").data;
    let jobs = stopped["jobs"].as_array().expect("jobs");
    let ids: BTreeSet<&str> = jobs.iter().map(|job| job["id"].as_str().unwrap()).collect();
    assert_eq!(ids, BTreeSet::from([one.id.as_str(), other.id.as_str()]));
    assert!(jobs.iter().all(|job| job["verdict"]["kind"] == "gone"), "{stopped}");
}

#[test]
fn a_token_has_sixty_four_streams_and_a_closed_one_is_free_again() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let mut streams: Vec<Stream> = (0..64).map(|_| server.stream(&server.token, "", None)).collect();
    for stream in &mut streams {
        assert_eq!(stream.next().expect("an event").kind, "hello");
    }
    let full = server.get("/v1/stream");
    assert_eq!((full.status, full.code().as_str()), (429, "too_many_streams"));
    assert_eq!(server.get("/v1/server").json()["data"]["streams"], 64);
    drop(streams);
    let is_free = || server.get("/v1/server").json()["data"]["streams"] == 0;
    assert!(quell_tests::eventually(PATIENCE, is_free));
}
