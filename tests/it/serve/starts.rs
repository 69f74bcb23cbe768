//! Jobs that are started over HTTP: with what environment, and only once.

use std::fs;

use quell_tests::run::PATIENCE;
use quell_tests::test_env::TestEnv;
use serde_json::{Value, json};

use super::client::{Answer, Server};

fn body(env: &TestEnv, script: &str, more: Value) -> String {
    let mut body = json!({ "command": ["sh", "-c", script], "cwd": env.dir() });
    for (key, value) in more.as_object().expect("an object") {
        body[key] = value.clone();
    }
    body.to_string()
}

#[test]
fn a_job_takes_nothing_over_from_the_server() {
    let env = TestEnv::as_me();
    let quell = env.quell("serve").args(["--port", "0"]);
    let running = quell.env("QUELL_SESSION", "the-servers").env("OTHER", "kept").start();
    let server = Server::of(&env, running);
    let script = "env | sort; ulimit -n";
    let started = server.ask("POST", "/v1/jobs", &body(&env, script, json!({ "env": { "OWN": "x" } })));
    assert_eq!(started.status, 201, "{}", started.body);
    let id = started.json()["data"]["id"].as_str().expect("an id").to_owned();
    let job = env.job(&id);
    assert!(job.wait_over(PATIENCE));
    let output = job.output("stdout");
    assert!(output.contains("OWN=x\n") && output.contains("OTHER=kept\n"), "{output}");
    let own: Vec<&str> = output.lines().filter(|line| line.starts_with("QUELL_")).collect();
    assert!(
        own.iter().all(|line| line.starts_with("QUELL_JOB=") || line.starts_with("QUELL_MARK=")),
        "{own:?}"
    );
    let soft = env.start().sh("ulimit -n").begin();
    assert!(soft.wait_over(PATIENCE));
    assert!(output.ends_with(&soft.output("stdout")), "the limit of open files is the caller's: {output}");
    let view = server.get(&format!("/v1/jobs/{id}")).json()["data"]["job"].clone();
    assert_eq!((view.get("session"), view.get("owner")), (None, None), "{view}");
    let audit = fs::read_to_string(env.home().join("audit.jsonl")).unwrap();
    let line = audit.lines().find(|line| line.contains("\"verb\":\"start\"")).expect("a line");
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["actor"]["surface"], &line["actor"]["token"]), (&json!("http"), &json!("default")));
    assert_eq!(line["actor"]["pid"], json!(server.running.front.pid));
}

#[test]
fn a_start_with_a_key_happens_once_also_after_a_restart_of_the_server() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let start = |server: &Server, key: &str, body: &str| -> Answer {
        let bearer = format!("Bearer {}", server.token);
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
            ("Idempotency-Key", key),
        ];
        server.send("POST", "/v1/jobs", &headers, body)
    };
    let (one, other) = (body(&env, "true", json!({})), body(&env, "false", json!({})));
    let first = start(&server, "k1", &one);
    assert_eq!(first.status, 201, "{}", first.body);
    let same = start(&server, "k1", &one);
    assert_eq!((same.status, &same.json()["data"]["id"]), (200, &first.json()["data"]["id"]));
    let reused = start(&server, "k1", &other);
    assert_eq!((reused.status, reused.code().as_str()), (422, "key_reused"));
    let mut server = server;
    server.running.front.signal("KILL");
    server.running.wait_exit(PATIENCE);
    let server = Server::start(&env, &[]);
    let again = start(&server, "k1", &one);
    assert_eq!((again.status, &again.json()["data"]["id"]), (200, &first.json()["data"]["id"]));
    assert_eq!(env.ids("jobs").len(), 1);
}

#[test]
fn a_start_that_cannot_be_carried_out_says_why() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    for (body, status, code) in [
        (json!({ "command": ["true"] }), 400, "bad_value"),
        (json!({ "command": [], "cwd": "/" }), 400, "bad_value"),
        (json!({ "command": ["true"], "cwd": "relative" }), 400, "bad_value"),
        (json!({ "command": ["true"], "cwd": "/nonexistent" }), 422, "cwd"),
        (json!({ "command": ["no-such-program"], "cwd": "/" }), 422, "program_not_found"),
        (json!({ "command": ["true"], "cwd": "/", "name": "a/b" }), 400, "bad_value"),
        (json!({ "command": ["true"], "cwd": "/", "timeout": 0 }), 400, "bad_value"),
        (json!({ "command": ["true"], "cwd": "/", "env": { "A=B": "x" } }), 400, "bad_value"),
        (json!({ "command": ["true"], "cwd": "/", "stdin": "/etc/passwd" }), 400, "bad_value"),
    ] {
        let answer = server.ask("POST", "/v1/jobs", &body.to_string());
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        let found = answer.code();
        assert!(found == code || status == 422, "{body}: {found}");
    }
    assert!(env.ids("live").is_empty());
}
