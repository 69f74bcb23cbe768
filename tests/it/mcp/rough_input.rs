//! Input that is not as it should be, and the end of the server.

use std::time::{Duration, Instant};

use quell_tests::run::PATIENCE;
use quell_tests::test_env::TestEnv;
use serde_json::{Value, json};

use super::client::Client;

/// Lines that must not end the server, and the code of the error that they get; none if they get no answer.
fn lines() -> Vec<(&'static str, Vec<u8>, Option<i64>)> {
    let text = |text: &str| text.as_bytes().to_vec();
    let deep = "[".repeat(100_000);
    vec![
        ("an empty line", text(""), None),
        ("a line of spaces", text("   "), None),
        ("not JSON", text("hello"), Some(-32700)),
        ("half of an object", text(r#"{"jsonrpc":"2.0","id":1"#), Some(-32700)),
        ("invalid UTF-8 outside of a string", b"\xff\xfe".to_vec(), Some(-32700)),
        ("deep nesting", text(&deep), Some(-32700)),
        ("a number", text("7"), Some(-32600)),
        ("null", text("null"), Some(-32600)),
        ("an empty batch", text("[]"), Some(-32600)),
        ("an empty object", text("{}"), Some(-32600)),
        ("id null", text(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#), Some(-32600)),
        ("id 1.5", text(r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#), Some(-32600)),
        ("id true", text(r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#), Some(-32600)),
        ("id {}", text(r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#), Some(-32600)),
        ("no version", text(r#"{"id":"v","method":"ping"}"#), Some(-32600)),
        ("version 1.0", text(r#"{"jsonrpc":"1.0","id":"v","method":"ping"}"#), Some(-32600)),
        ("method 7", text(r#"{"jsonrpc":"2.0","id":"m","method":7}"#), Some(-32600)),
        ("an unknown notification", text(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#), None),
        (
            "a malformed notification",
            text(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}"#),
            None,
        ),
        (
            "a cancellation of nothing",
            text(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#),
            None,
        ),
        ("an answer to nothing", text(r#"{"jsonrpc":"2.0","id":55,"result":{}}"#), None),
        ("an error to nothing", text(r#"{"jsonrpc":"2.0","id":55,"error":{"code":1,"message":"x"}}"#), None),
    ]
}

#[test]
fn nothing_that_is_read_ends_the_server_or_spoils_its_output() {
    let env = TestEnv::as_me();
    for initialized in [false, true] {
        let mut client = Client::start(&env, &[]);
        if initialized {
            client.initialize("2025-11-25", json!({}));
        }
        for (what, line, code) in lines() {
            client.raw_bytes(&[line.as_slice(), b"\n"].concat());
            if let Some(code) = code {
                let error = client.message(what, |message| message.get("error").is_some());
                assert_eq!(error["error"]["code"], code, "{what}: {error}");
            }
            // An answer that is too much would be found here or by the next message.
            client.check_alive(what);
        }
    }
}

#[test]
fn ids_come_back_as_they_were() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    for id in [json!("a"), json!(""), json!(-5), json!(i64::MAX), json!("5"), json!(5), json!("ü\n")] {
        client.raw(&json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }).to_string());
        assert_eq!(client.answer(&id)["result"], json!({}), "{id}");
    }
}

#[test]
fn a_request_with_bytes_that_are_not_utf8_is_answered() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    client.raw_bytes(b"{\"jsonrpc\":\"2.0\",\"id\":\"u\",\"method\":\"ping\",\"params\":{\"x\":\"\xff\"}}\n");
    assert_eq!(client.answer(&json!("u"))["result"], json!({}));
}

#[test]
fn a_line_of_20_megabytes_is_refused_and_the_next_one_is_served() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":"long","method":"ping","params":{{"x":"{}"}}}}"#,
        "x".repeat(20 << 20)
    );
    client.raw(&long);
    let error = client.message("the refusal", |message| message.get("error").is_some());
    assert_eq!(error["error"]["code"], -32700, "{error}");
    client.check_alive("a long line");
}

#[test]
fn each_request_of_a_batch_is_answered() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let ping = |id: &str| json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    client.raw(&json!([ping("b1"), note, 7, ping("b2")]).to_string());
    assert_eq!(client.answer(&json!("b1"))["result"], json!({}));
    assert_eq!(client.answer(&json!("b2"))["result"], json!({}));
    let error = client.message("the error of the number", |message| message.get("error").is_some());
    assert_eq!(error["error"]["code"], -32600);
}

#[test]
fn a_second_request_with_an_id_in_use_is_refused_and_runs_nothing() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let call = |command: &str| {
        let params = json!({ "name": "run_command", "arguments": { "command": command } });
        json!({ "jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": params }).to_string()
    };
    let (fifo, made) = (env.fifo(), env.path("made"));
    client.raw(&call(&format!("read x < {}; echo first", fifo.display())));
    client.raw(&call(&format!("touch {}", made.display())));
    let error = client.message("the refusal", |message| message.get("error").is_some());
    assert_eq!((error["error"]["code"].as_i64(), error.get("id")), (Some(-32600), None), "{error}");
    std::fs::write(&fifo, "go\n").unwrap();
    assert!(client.answer(&json!("same"))["result"].to_string().contains("first"));
    assert!(!made.exists());
    // With its answer the id is free.
    client.raw(&call("echo again"));
    assert!(client.answer(&json!("same"))["result"].to_string().contains("again"));
}

#[test]
fn answers_that_are_ready_are_written_before_the_end() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    for id in 0..500 {
        client.raw(&json!({ "jsonrpc": "2.0", "id": format!("p{id}"), "method": "ping" }).to_string());
    }
    // The last line has no line end.
    client.raw_bytes(br#"{"jsonrpc":"2.0","id":"last","method":"ping"}"#);
    let (status, rest) = client.finish();
    assert_eq!(status.and_then(|status| status.code()), Some(0));
    assert_eq!(rest.len(), 501, "{:?}", rest.last());
    assert!(rest.iter().any(|message| message["id"] == "last"));
}

#[test]
fn the_server_exits_at_once_though_calls_are_blocked() {
    let env = TestEnv::as_me();
    for how in ["eof", "INT", "TERM", "HUP"] {
        let mut client = Client::initialized(&env, &[]);
        let started = client.text("start_job", json!({ "command": "sleep 600" }));
        let job = super::client::job_of(&started);
        for _ in 0..5 {
            client.send_call("wait_for", json!({ "jobs": [job], "wait_s": 40 }));
        }
        client.check_alive("calls that wait");
        let begun = Instant::now();
        match how {
            "eof" => client.close(),
            signal => assert!(client.server.front.signal(signal)),
        }
        let status = client.server.wait_exit(PATIENCE);
        let took = begun.elapsed();
        assert_eq!(status.and_then(|status| status.code()), Some(0), "{how}");
        // The promise is 100 ms on a quiet machine; a client gives it half a second, and the waits here have 40.
        assert!(took < Duration::from_secs(5), "{how}: {took:?}");
    }
}

#[test]
fn a_client_that_does_not_read_does_not_hold_up_the_end() {
    let env = TestEnv::as_me();
    let (stdin, mut input) = std::io::pipe().unwrap();
    let (_unread, stdout) = std::io::pipe().unwrap();
    let file = |fd: std::os::fd::OwnedFd| std::fs::File::from(fd);
    let mut server = env.quell("mcp").stdin(file(stdin.into())).stdout(file(stdout.into())).start();
    // More than a pipe holds.
    for id in 0..100 {
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" });
        std::io::Write::write_all(&mut input, format!("{line}\n").as_bytes()).unwrap();
    }
    drop(input);
    assert_eq!(server.wait_exit(PATIENCE).and_then(|status| status.code()), Some(0));
}

#[test]
fn a_quiet_input_is_not_an_end() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    // Longer than any wait inside the server when it is idle.
    assert_eq!(client.read(Duration::from_millis(1500)), None::<Value>);
    client.check_alive("silence");
}

#[test]
fn the_id_of_a_cancelled_request_is_not_used_again() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let job = super::client::job_of(&client.text("start_job", json!({ "command": "sleep 600" })));
    let id = client.send_call("wait_for", json!({ "jobs": [job], "wait_s": 40 }));
    client.raw(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } })
            .to_string(),
    );
    // The call that was cancelled may still end, and its result would be taken for that of this one.
    client.raw(&json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }).to_string());
    let answer = client.answer(&json!(id));
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    client.check_alive("a cancelled id");
}
