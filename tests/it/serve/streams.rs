//! Streams: rows, events and output as they come, and going on after a gap.

use std::collections::BTreeSet;

use quell_tests::run::PATIENCE;
use quell_tests::test_env::TestEnv;
use serde_json::json;

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
fn a_client_that_comes_back_gets_what_it_has_missed_or_hears_that_it_cannot() {
    let env = TestEnv::as_me();
    let mut server = Server::start(&env, &[]);
    let mut stream = server.stream(&server.token, "", None);
    stream.next();
    let first = env.start().command(["true"]).begin();
    let seen =
        stream.until("event", |event| event["job"] == first.id.as_str() && event["event"] == "created");
    drop(stream);
    let second = env.start().command(["true"]).begin();
    assert!(second.wait_over(PATIENCE));
    let mut stream = server.stream(&server.token, "", seen.id.as_deref());
    stream.until("event", |event| event["job"] == first.id.as_str() && event["event"] == "ended");
    let created =
        |event: &serde_json::Value| event["job"] == second.id.as_str() && event["event"] == "created";
    stream.until("event", created);
    drop(stream);
    let after = seen.id.clone().expect("an id");
    let poll = server.get(&format!("/v1/events?after={after}")).json()["data"].clone();
    assert!(poll["events"].as_array().unwrap().iter().any(created), "{poll}");
    assert_eq!(poll["reset"], false);
    let (epoch, _) = after.split_once('.').expect("an epoch");
    let ahead = format!("{epoch}.999999");
    let why = |server: &Server, after: &str| {
        let mut stream = server.stream(&server.token, "", Some(after));
        stream.until("reset", |_| true).data["why"].clone()
    };
    assert_eq!(why(&server, &ahead), "gap");
    server.running.front.signal("KILL");
    server.running.wait_exit(PATIENCE);
    let server = Server::start(&env, &[]);
    assert_eq!(why(&server, &after), "epoch");
    assert_eq!(server.get(&format!("/v1/events?after={after}")).json()["data"]["reset"], true);
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
    let (one, other) = (start("sleep 0.2; exit 1"), start("sleep 1"));
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
