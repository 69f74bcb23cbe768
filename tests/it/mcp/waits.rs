//! Waits: they end when something happens, never lose a job, and hold up nothing else.

use std::time::{Duration, Instant};

use quell_tests::run::PATIENCE;
use quell_tests::test_env::TestEnv;
use quell_tests::{eventually, rounds};
use serde_json::{Value, json};

use super::client::{Client, job_of, text_of};
use crate::stop::races::pause_up_to;

/// The states of the session's jobs by their command.
fn state_of(client: &mut Client, job: &str) -> String {
    client.facts("job_status", json!({ "job": job }))["job"]["state"].as_str().unwrap().to_owned()
}

#[test]
fn a_wait_that_ends_early_gives_the_job_and_the_next_one_the_rest() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let fifo = env.fifo();
    let command = format!("echo first; read x < {}; echo second; exit 4", fifo.display());
    let text = client.text("run_command", json!({ "command": command, "wait_s": 1 }));
    assert!(text.contains("still running after 1s") && text.contains("\nfirst\n"), "{text}");
    let cursor = text.trim_end().rsplit_once("since=").expect("a cursor").1.to_owned();
    std::fs::write(&fifo, "go\n").unwrap();
    let text = client.text("wait_for", json!({ "jobs": [job_of(&text)], "since": cursor }));
    assert!(text.contains(": exited 4 ") && text.contains("\nsecond\n") && !text.contains("first"), "{text}");
}

#[test]
fn a_wait_ends_when_it_happens() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let fifo = env.fifo();
    // Open in both directions, so that it has no end between two writers.
    let read = format!("exec 3<> {}; while read -r x <&3", fifo.display());
    let script = format!("{read}; do echo \"said $x\"; [ $x = end ] && exit 2; done");
    let job = job_of(&client.text("start_job", json!({ "command": script, "name": "talker" })));
    let mut waits = |arguments: Value, word: &str| {
        let id = client.send_call("wait_for", arguments);
        std::fs::write(&fifo, format!("{word}\n")).unwrap();
        let begun = Instant::now();
        let text = text_of(&client.answer(&json!(id))["result"]);
        // The promise is 0.2 s on a quiet machine, and the wait has 40 s.
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}: {text}", begun.elapsed());
        text
    };
    let text =
        waits(json!({ "jobs": ["talker"], "until": "log", "pattern": "said he", "wait_s": 40 }), "hello");
    assert!(text.contains("\nmatched: said hello\n"), "{text}");
    let cursor = text.trim_end().rsplit_once("since=").unwrap().1.to_owned();
    // The line from before the cursor does not count again.
    let again = json!({ "jobs": [job], "until": "log", "pattern": "said", "since": cursor, "wait_s": 40 });
    let text = waits(again, "more");
    assert!(text.contains("\nmatched: said more\n"), "{text}");
    let text = waits(json!({ "jobs": ["talker"], "until": "stall", "stall_s": 1, "wait_s": 40 }), "so");
    assert!(text.contains("it has fallen silent"), "{text}");
    let text = waits(json!({ "jobs": ["talker"], "wait_s": 40 }), "end");
    assert!(text.contains(": exited 2 "), "{text}");
}

#[test]
fn start_returns_when_the_job_is_ready_and_finds_one_that_runs_already() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let arguments = json!({ "command": "echo listening; sleep 600", "name": "web", "ready_log": "listen" });
    let first = client.text("start_job", arguments.clone());
    assert!(first.contains("(web): ready"), "{first}");
    let second = client.text("start_job", arguments);
    assert!(second.contains("was running already"), "{second}");
    assert_eq!(job_of(&first), job_of(&second));
    let error = client.error("start_job", json!({ "command": "sleep 1", "name": "web" }));
    assert!(error.contains("web"), "{error}");
    let failed = client.text("start_job", json!({ "command": "echo oops; exit 7", "ready_port": 1 }));
    assert!(failed.contains(": exited 7 ") && failed.contains("ended before it was ready"), "{failed}");
    assert!(failed.contains("\noops\n"), "{failed}");
    let restarted = client.facts("restart_job", json!({ "job": "web" }));
    assert_eq!((&restarted["ready"], &restarted["restarted_from"]), (&json!(true), &json!(job_of(&first))));
}

#[test]
fn a_wait_is_never_longer_than_the_server_allows() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &["--max-wait", "1s"]);
    let begun = Instant::now();
    let text = client.text("run_command", json!({ "command": "sleep 600", "wait_s": 500 }));
    assert!(text.contains("still running after 1s") && text.contains("[wait_s is at most 1 here]"), "{text}");
    assert!(begun.elapsed() < PATIENCE);
}

#[test]
fn other_calls_are_answered_while_some_wait() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let job = job_of(&client.text("start_job", json!({ "command": "sleep 600" })));
    let waits: Vec<u64> =
        (0..70).map(|_| client.send_call("wait_for", json!({ "jobs": [job], "wait_s": 45 }))).collect();
    // Those over the limit are refused at once.
    let refused = |message: &Value| message["result"]["isError"] == true;
    for _ in 64..70 {
        let message = client.message("a refusal", refused);
        assert!(text_of(&message["result"]).starts_with("error busy:"), "{message}");
    }
    client.check_alive("64 calls that wait");
    // A cancelled call makes room.
    client.raw(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": waits[0] } }).to_string());
    let made_room = eventually(PATIENCE, || client.call("list_jobs", json!({}))["isError"] != true);
    assert!(made_room);
    client.text("stop_jobs", json!({ "jobs": [job], "reason": "enough" }));
    for id in &waits[1..64] {
        assert!(text_of(&client.answer(&json!(id))["result"]).contains("(stopped: enough)"));
    }
}

#[test]
fn a_cancelled_command_is_stopped_and_gets_no_answer() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let command = format!("sleep {}", env.oracle.nap());
    let id = client.send_call("run_command", json!({ "command": command, "wait_s": 45 }));
    let runs = |client: &mut Client| {
        let jobs = client.facts("list_jobs", json!({ "state": "live" }))["jobs"].clone();
        jobs.as_array().into_iter().flatten().any(|job| job["state"] == "running")
    };
    assert!(eventually(PATIENCE, || runs(&mut client)));
    client.raw(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } })
            .to_string(),
    );
    assert!(eventually(PATIENCE, || !runs(&mut client)), "the job goes on");
    let mut last = json!(null);
    let ended = eventually(PATIENCE, || {
        last = client.facts("list_jobs", json!({}))["jobs"][0].clone();
        last["state"] == "ended" && last["cause"] == "user"
    });
    assert!(ended, "{last}");
    let (_, rest) = client.finish();
    assert!(rest.iter().all(|message| message["id"] != id), "{rest:?}");
}

#[test]
fn a_cancelled_start_leaves_the_job() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let command = format!("sleep {}", env.oracle.nap());
    let arguments = json!({ "command": command, "name": "slow", "ready_log": "never", "wait_s": 45 });
    let id = client.send_call("start_job", arguments);
    let is_there =
        |client: &mut Client| client.call("job_status", json!({ "job": "slow" }))["isError"] != true;
    assert!(eventually(PATIENCE, || is_there(&mut client)));
    client.raw(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } })
            .to_string(),
    );
    client.check_alive("the cancellation");
    assert_eq!(state_of(&mut client, "slow"), "running");
    client.facts("stop_jobs", json!({ "jobs": ["slow"], "reason": "end of the test" }));
}

#[test]
fn a_command_in_flight_is_stopped_when_the_client_closes_the_connection() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &["--session", "one"]);
    let command = format!("sleep {}", env.oracle.nap());
    client.send_call("run_command", json!({ "command": command, "wait_s": 45 }));
    let running = |client: &mut Client| {
        let jobs = client.facts("list_jobs", json!({ "state": "live" }))["jobs"].clone();
        jobs.as_array().is_some_and(|jobs| jobs.iter().any(|job| job["state"] == "running"))
    };
    assert!(eventually(PATIENCE, || running(&mut client)));
    drop(client.finish());
    let mut next = Client::initialized(&env, &["--session", "one"]);
    assert!(eventually(PATIENCE, || !running(&mut next)), "its id reached nothing, and it goes on");
}

#[test]
fn progress_is_reported_to_a_client_that_wants_it() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let params = json!({
        "name": "run_command", "arguments": { "command": "echo working; sleep 600", "wait_s": 12 },
        "_meta": { "progressToken": "t" },
    });
    let id = client.send("tools/call", params);
    let is_progress = |message: &Value| message["method"] == "notifications/progress";
    let first = client.message("progress", is_progress);
    assert_eq!(
        (&first["params"]["progressToken"], &first["params"]["message"]),
        (&json!("t"), &json!("working"))
    );
    let second = client.message("more progress", is_progress);
    assert!(second["params"]["progress"].as_f64() > first["params"]["progress"].as_f64(), "{first} {second}");
    assert!(text_of(&client.answer(&json!(id))["result"]).contains("still running"));
}

#[test]
fn a_wait_that_another_job_has_ended_says_that_this_one_is_still_running() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let slow = job_of(&client.text("start_job", json!({ "command": "sleep 600" })));
    let quick = job_of(&client.text("start_job", json!({ "command": "true" })));
    let text = client.text("wait_for", json!({ "jobs": [slow, quick], "any": true, "wait_s": 40 }));
    assert!(text.contains("; still running\n") && !text.contains("after 40s"), "{text}");
    // Silence that is asked for is waited for.
    let text = client.text("wait_for", json!({ "jobs": [slow], "stall_s": 1, "wait_s": 40 }));
    assert!(text.contains("; it has fallen silent"), "{text}");
}

#[test]
fn a_command_whose_answer_crosses_its_cancellation_is_stopped() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let answered = client.send_call("run_command", json!({ "command": "sleep 600", "wait_s": 0 }));
    let text = text_of(&client.answer(&json!(answered))["result"]);
    let job = job_of(&text);
    assert!(text.contains("still running"), "{text}");
    // A client that cancels a call has not taken its answer, so nothing knows the job.
    let cancelled = json!({ "requestId": answered });
    client.raw(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled }).to_string(),
    );
    let ended = client.text("wait_for", json!({ "jobs": [job], "wait_s": 40 }));
    assert!(ended.contains("(stopped: the call was cancelled)"), "{ended}");
}

#[test]
fn a_command_leaves_no_job_behind_wherever_the_connection_ends() {
    let env = TestEnv::as_me();
    for round in 0..rounds() {
        let mut client = Client::initialized(&env, &["--session", "one"]);
        client.send_call("run_command", json!({ "command": "sleep 600", "wait_s": 40 }));
        // Before the job is started, while it is, or later.
        pause_up_to(60_000);
        let signal = ["", "INT", "TERM"][round % 3];
        if signal.is_empty() {
            client.close();
        } else {
            assert!(client.server.front.signal(signal));
        }
        assert_eq!(client.server.wait_exit(PATIENCE).and_then(|status| status.code()), Some(0));
        let left = || env.ids("live");
        assert!(eventually(PATIENCE, || left().is_empty()), "round {round}, {signal}: {:?}", left());
    }
}
