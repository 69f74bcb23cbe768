//! Requests that are too large, too slow, or no requests: each gets an answer or an end, and the server goes on.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use quell_tests::run::PATIENCE;
use quell_tests::test_env::TestEnv;
use serde_json::json;

use super::client::Server;

#[test]
fn what_is_too_large_or_no_json_is_refused_with_a_code() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let bearer = format!("Bearer {}", server.token);
    let post = |kind: &str, body: &str| {
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", kind)];
        server.send("POST", "/v1/jobs/x/stop", &headers, body)
    };
    let deep = format!("{{\"reason\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    for (kind, body, status, code) in [
        ("text/plain", "{}", 415, "not_json"),
        ("application/x-www-form-urlencoded", "a=b", 415, "not_json"),
        ("", "", 415, "not_json"),
        ("application/json", "{", 400, "bad_value"),
        ("application/json", "[]", 400, "bad_value"),
        ("application/json", "{\"grcae\":1}", 400, "bad_value"),
        ("application/json", "{\"grace\":-1}", 400, "bad_value"),
        ("application/json", "{\"grace\":1e999}", 400, "bad_value"),
        ("application/json", "{\"grace\":1,\"grace\":2}", 400, "bad_value"),
        ("application/json", deep.as_str(), 400, "bad_value"),
        ("application/json; charset=utf-8", "{}", 404, "job_not_found"),
        ("application/json", "", 404, "job_not_found"),
    ] {
        let answer = post(kind, body);
        let what = format!("{kind} {:.60}: {} {}", body, answer.head, answer.body);
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{what}");
    }
    let large = post("application/json", &format!("{{\"reason\":\"{}\"}}", "x".repeat(2 << 20)));
    assert!([0, 413].contains(&large.status), "{}", large.head);
    let chunks = format!("{:x}\r\n{}\r\n0\r\n\r\n", 2 << 20, "x".repeat(2 << 20));
    let head = format!(
        "POST /v1/jobs/x/stop HTTP/1.1\r\nHost: {}\r\nAuthorization: {bearer}\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        server.host()
    );
    let chunked = server.raw((head + &chunks).as_bytes());
    assert!([0, 413].contains(&chunked.status), "{}", chunked.head);
    assert_eq!(server.get("/v1/jobs").status, 200, "it goes on");
}

#[test]
fn paths_and_parameters_that_mean_nothing_are_refused() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    for (path, status) in [
        ("/v1/jobs/..", 400),
        ("/v1/jobs/%2e%2e", 400),
        ("/v1/jobs/%2e%2e%2f%2e%2e%2fetc%2fpasswd", 400),
        ("/v1/jobs/%00", 400),
        ("/v1/jobs/%ff", 400),
        ("/v1/jobs/no-such", 404),
        ("/v1/jobs?limit=501", 400),
        ("/v1/jobs?limti=5", 400),
        ("/v1/jobs?state=nope", 400),
        ("/v1/jobs?tag=%3Da", 400),
        ("/v1/wait", 400),
        ("/v1/wait?job=x&for=51s", 400),
        ("/v1/stream?after=x", 400),
        ("/v1/events?after=1", 400),
        ("/assets/x/../../../../etc/passwd", 404),
        ("/assets/x/%2e%2e%2fCargo.toml", 404),
        ("/v2/jobs", 404),
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert_eq!(answer.json()["ok"], false, "{path}");
    }
    for (method, path, allow) in
        [("PUT", "/v1/jobs", "GET, POST"), ("GET", "/v1/stop", "POST"), ("TRACE", "/v1/server", "GET")]
    {
        let answer = server.ask(method, path, "");
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
    }
}

#[test]
fn a_head_that_is_too_long_or_has_too_many_fields_is_refused() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let head = |more: String| {
        format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n{more}Connection: close\r\n\r\n", server.host())
    };
    let many: String = (0..100).map(|number| format!("X-{number}: 1\r\n")).collect();
    assert_eq!(server.raw(head(many).as_bytes()).status, 431);
    let long = server.raw(head(format!("X: {}\r\n", "x".repeat(200 * 1024))).as_bytes());
    assert!([0, 431].contains(&long.status), "{}", long.head);
    assert_eq!(server.raw(head(String::new()).as_bytes()).status, 200);
    assert_eq!(server.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").status, 400, "TLS");
    let pipelined = head(String::new()).replace("Connection: close\r\n", "") + &head(String::new());
    assert!(server.raw(pipelined.as_bytes()).body.matches("ok\n").count() >= 1);
}

#[test]
fn a_slow_head_ends_and_slow_connections_do_not_keep_a_stop_from_being_heard() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let mut slow: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"GET /v1/jobs HTTP/1.1\r\nHo").unwrap();
    }
    let begun = Instant::now();
    let stop = server.ask("POST", &format!("/v1/jobs/{}/stop", job.id), "{}");
    assert!([200, 202].contains(&stop.status), "{}", stop.body);
    // Far above what it takes; a machine that runs other tests is slow.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let mut rest = Vec::new();
    slow[0].set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(slow[0].read_to_end(&mut rest).unwrap_or(0), 0, "the server closes it");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(job.wait_over(PATIENCE));
}

#[test]
fn a_job_cannot_hide_markup_in_an_answer_or_a_download() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    let job = env.start().sh("printf '<script>alert(1)</script>\\033[2J\\n'").begin();
    assert!(job.wait_over(PATIENCE));
    let logs = server.get(&format!("/v1/jobs/{}/logs", job.id));
    assert_eq!(logs.header("content-type"), Some("application/json"));
    assert!(!logs.body.contains('\u{1b}'), "escaped: {}", logs.body);
    assert_eq!(logs.json()["data"]["lines"][0]["text"], json!("<script>alert(1)</script>\u{1b}[2J"));
    let raw = server.get(&format!("/v1/jobs/{}/output/stdout", job.id));
    assert_eq!(raw.header("content-type"), Some("application/octet-stream"));
    assert!(raw.header("content-disposition").is_some_and(|value| value.starts_with("attachment")));
    let bearer = format!("Bearer {}", server.token);
    let part = [("Authorization", bearer.as_str()), ("Range", "bytes=1-6")];
    let part = server.send("GET", &format!("/v1/jobs/{}/output/stdout", job.id), &part, "");
    assert_eq!((part.status, part.body.as_str()), (206, "script"));
    assert_eq!(part.header("content-range"), Some("bytes 1-6/30"));
}
