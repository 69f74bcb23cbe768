//! Jobs over HTTP: looking, stopping, waiting.

use std::time::{Duration, Instant};

use quell_tests::run::PATIENCE;
use quell_tests::test_env::TestEnv;
use serde_json::{Value, json};

use super::client::Server;

#[test]
fn a_stop_is_heard_at_once_and_its_receipt_and_the_audit_log_name_token_and_peer() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let added = env.quell("serve").args(["--add-token", "phone", "--role", "stop"]).finish();
    let token = added.stdout.trim().to_owned();
    let job = env.start().sh("trap '' TERM; echo up; while :; do sleep 1; done").begin();
    assert!(quell_tests::eventually(PATIENCE, || job.output("stdout") == "up\n"));
    let path = format!("/v1/jobs/{}/stop", job.id);
    let heard = server.ask_with(&token, "POST", &path, r#"{"grace":1,"reason":"enough"}"#);
    assert_eq!(heard.status, 202, "{}", heard.body);
    assert_eq!(heard.json()["data"]["id"], json!(job.id));
    assert!(!job.is_over(), "it ignores TERM, and has a second");
    let ended = server.ask_with(&token, "POST", &format!("{path}?wait=50s"), "{}");
    assert_eq!(ended.status, 200, "{}", ended.body);
    let receipt = &ended.json()["data"]["jobs"][0]["receipt"];
    assert_eq!((&receipt["verdict"]["kind"], &receipt["cause"]), (&json!("gone"), &json!("user")));
    let actor = &receipt["actor"];
    assert_eq!((&actor["reason"], &actor["through"]["surface"]), (&json!("enough"), &json!("http")));
    assert_eq!(actor["through"]["token"], "phone");
    assert!(actor["through"]["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")), "{actor}");
    let audit = std::fs::read_to_string(env.home().join("audit.jsonl")).unwrap();
    let line = audit.lines().find(|line| line.contains("enough")).expect("a line");
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["verb"], &line["actor"]["token"]), (&json!("stop"), &json!("phone")));
    assert_eq!(line["actor"]["pid"], json!(server.running.front.pid));
    for text in [audit, ended.body] {
        assert!(!text.contains(&token), "a token is never written");
    }
    let again = server.ask("POST", &path, "{}");
    assert_eq!((again.status, &again.json()["data"]["jobs"][0]["already_ended"]), (200, &json!(true)));
}

#[test]
fn a_stop_is_heard_within_a_second_though_the_keeper_is_stopped() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let keeper = job.process("keeper").expect("a keeper");
    assert!(keeper.signal("STOP"));
    let begun = Instant::now();
    let heard = server.ask("POST", &format!("/v1/jobs/{}/stop", job.id), "{}");
    let took = begun.elapsed();
    assert!([200, 202].contains(&heard.status), "{}", heard.body);
    // A second; other tests run at the same time. Without help it takes two seconds more.
    assert!(took < Duration::from_millis(1900), "{took:?}");
    assert!(job.wait_over(PATIENCE));
}

#[test]
fn a_group_is_stopped_only_if_the_number_is_as_expected() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let sleeper = || env.start().args(["--tag", "team=a"]).command(["sleep", &env.oracle.nap()]).begin();
    let jobs = [sleeper(), sleeper(), sleeper()];
    let wrong = server.ask("POST", "/v1/stop", r#"{"tag":"team=a","expect":2}"#);
    assert_eq!((wrong.status, wrong.code().as_str()), (409, "count_differs"));
    assert_eq!(wrong.json()["error"]["details"]["ids"].as_array().map(Vec::len), Some(3));
    assert!(jobs.iter().all(|job| !job.is_over()));
    assert_eq!(server.ask("POST", "/v1/stop", r#"{"tag":"team=a","all":true,"expect":3}"#).status, 400);
    assert_eq!(server.ask("POST", "/v1/stop", r#"{"tag":"team=a"}"#).status, 400, "the number is required");
    let done = server.ask("POST", "/v1/stop", r#"{"tag":"team=a","expect":3,"reason":"all of them"}"#);
    assert_eq!((done.status, done.header("content-type")), (200, Some("application/x-ndjson")));
    let lines: Vec<Value> = done.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3, "{}", done.body);
    for line in &lines {
        assert_eq!(line["receipt"]["verdict"]["kind"], "gone", "{line}");
        assert_eq!(line["receipt"]["actor"]["reason"], "all of them");
    }
}

#[test]
fn a_wait_ends_with_the_job_a_line_or_the_time() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let job = env.start().sh("sleep 1; echo up; sleep 1; exit 3").begin();
    let wait = |query: &str| {
        let answer = server.get(&format!("/v1/wait?job={}{query}", job.id));
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["data"]["jobs"][0].clone()
    };
    assert_eq!(wait("")["met"], "nothing");
    let line = wait("&log=^up$&for=30s");
    assert_eq!((&line["met"], &line["line"]), (&json!("log"), &json!("up")));
    let exit = wait("&for=30s");
    assert_eq!((&exit["met"], &exit["job"]["outcome"]["code"]), (&json!("exit"), &json!(3)));
    assert_eq!(server.get("/v1/wait?job=nosuch&for=1s").status, 404);
}

#[test]
fn a_list_has_pages() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    for _ in 0..5 {
        assert!(env.start().command(["true"]).begin().wait_over(PATIENCE));
    }
    let (mut seen, mut before) = (Vec::new(), String::new());
    for _ in 0..5 {
        let page = server.get(&format!("/v1/jobs?limit=2{before}")).json()["data"].clone();
        seen.extend(
            page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => before = format!("&before={next}"),
            None => break,
        }
    }
    let whole = server.get("/v1/jobs?limit=10").json()["data"]["jobs"].clone();
    let whole: Vec<&str> = whole.as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect();
    assert_eq!((seen.len(), &seen), (5, &whole.iter().map(|id| (*id).to_owned()).collect()));
}

#[test]
fn the_policy_applies_to_each_request() {
    let env = TestEnv::as_me();
    let policy = env.write("policy.toml", "[guard]\nmax_effect = \"read\"\n");
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let running = env.quell("serve").args(["--port", "0"]).env("QUELL_CONFIG", &policy).start();
    let server = Server::of(&env, running);
    let refused = server.ask("POST", &format!("/v1/jobs/{}/stop", job.id), "{}");
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert!(refused.json()["error"]["details"]["decision"].is_object(), "{}", refused.body);
    assert_eq!(server.get(&format!("/v1/jobs/{}", job.id)).status, 200);
    assert!(!job.is_over());
    job.stop(&[]);
}

#[test]
fn output_is_shown_by_no_route_if_the_policy_denies_logs() {
    let env = TestEnv::as_me();
    let policy = env.write("policy.toml", "[guard]\ndeny = [\"logs\"]\n");
    let job = env
        .start()
        .args(["--name", "web"])
        .sh("echo secret; exec sleep $N")
        .env("N", env.oracle.nap())
        .begin();
    assert!(env.quell("wait").args(["web", "--log", "secret", "--timeout", "30s"]).finish().status.success());
    let running = env.quell("serve").args(["--port", "0"]).env("QUELL_CONFIG", &policy).start();
    let server = Server::of(&env, running);
    for path in
        ["jobs/web/logs", "jobs/web/output/stdout", "stream?logs=web@o0e0", "wait?job=web&log=s.*&for=1s"]
    {
        let refused = server.get(&format!("/v1/{path}"));
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (403, "VERB_DENIED"),
            "{path}: {}",
            refused.body
        );
    }
    assert_eq!(server.get("/v1/wait?job=web").status, 200);
    let mut stream = server.stream(&server.token, "?vitals=1s", None);
    let vitals = stream.until("vitals", |vitals| vitals.get(&job.id).is_some()).data;
    assert!(vitals[&job.id].get("last_line").is_none(), "{vitals}");
    env.write("policy.toml", "[guard]\ndeny = [\"list\"]\n");
    assert_eq!(server.get("/v1/stream").code(), "VERB_DENIED", "its rows are those of the list");
    env.write("policy.toml", "[guard]\ndeny = [\"logs\"]\n");
    let waited =
        env.quell("wait").args(["web", "--log", "secret", "--timeout", "1s"]).env("QUELL_CONFIG", &policy);
    assert_eq!(waited.finish().code(), Some(4));
    job.stop(&[]);
}
