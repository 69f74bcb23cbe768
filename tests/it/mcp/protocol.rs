//! Versions of the protocol, and what a server has to answer in each of them.

use quell_tests::test_env::TestEnv;
use serde_json::{Value, json};

use super::client::{Client, text_of};

const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const MODERN: &str = "2026-07-28";

/// Parameters of a request that carries its own version, as modern clients send it.
fn modern(mut params: Value, capabilities: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": { "name": "modern client", "version": "3" },
    });
    params
}

#[test]
fn every_known_version_is_accepted_and_an_unknown_one_is_answered_with_an_offer() {
    let env = TestEnv::as_me();
    for version in LEGACY {
        let answer = Client::start(&env, &[]).initialize(version, json!({}));
        assert_eq!(answer["result"]["protocolVersion"], version, "{answer}");
        assert_eq!(answer["result"]["serverInfo"]["name"], "quell");
        let instructions = answer["result"]["instructions"].as_str().unwrap();
        assert!(instructions.len() <= 900 && instructions.contains("run_command"), "{instructions}");
    }
    for version in ["1999-01-01", "2027-01-01", "", MODERN] {
        let answer = Client::start(&env, &[]).initialize(version, json!({}));
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{version}: {answer}");
    }
}

#[test]
fn a_modern_client_discovers_lists_and_calls_without_initialize() {
    let env = TestEnv::as_me();
    let mut client = Client::start(&env, &[]);
    let found = client.ask("server/discover", modern(json!({}), json!({})));
    let versions = found["result"]["supportedVersions"].as_array().cloned().unwrap_or_default();
    assert!(versions.contains(&json!(MODERN)), "{found}");
    let listed = client.ask("tools/list", modern(json!({}), json!({})));
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(10), "{listed}");
    assert_eq!(listed["result"]["resultType"], "complete", "{listed}");
    assert!(listed["result"]["ttlMs"].is_number() && listed["result"]["cacheScope"].is_string(), "{listed}");
    let params = json!({ "name": "run_command", "arguments": { "command": "echo modern" } });
    let called = client.ask("tools/call", modern(params, json!({})));
    assert!(text_of(&called["result"]).contains("\nmodern\n"), "{called}");
    let mut unknown = modern(json!({}), json!({}));
    unknown["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2031-01-01");
    let refused = client.ask("tools/list", unknown);
    assert_eq!(refused["error"]["code"], -32022, "{refused}");
}

#[test]
fn both_eras_work_in_one_process_and_legacy_answers_have_no_modern_fields() {
    let env = TestEnv::as_me();
    let mut client = Client::start(&env, &[]);
    assert!(client.ask("server/discover", modern(json!({}), json!({})))["result"].is_object());
    client.initialize("2025-06-18", json!({}));
    for _ in 0..2 {
        let legacy = client.ask("tools/list", json!({}))["result"].clone();
        for field in ["resultType", "ttlMs", "cacheScope"] {
            assert!(legacy.get(field).is_none(), "{field} in {legacy}");
        }
        let new = client.ask("tools/list", modern(json!({}), json!({})))["result"].clone();
        assert_eq!(new["tools"], legacy["tools"], "the list is the same for everyone");
    }
    client.check_alive("requests of both eras");
}

#[test]
fn the_list_of_tools_fits_into_seven_kilobytes_and_is_always_the_same() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let (first, second) = (client.ask("tools/list", json!({})), client.ask("tools/list", json!({})));
    assert_eq!(first["result"], second["result"]);
    let size = first.to_string().len();
    assert!(size <= 7 * 1024, "{size} bytes");
    let size = client.ask("tools/list", modern(json!({}), json!({}))).to_string().len();
    assert!(size <= 7 * 1024, "{size} bytes");
}

#[test]
fn unknown_methods_tools_and_parameters_are_errors_of_the_protocol() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    for (method, params, code) in [
        ("no/such/method", json!({}), -32601),
        ("resources/list", json!({}), -32601),
        ("prompts/list", json!({}), -32601),
        ("tools/call", json!({ "name": "no_such_tool", "arguments": {} }), -32602),
        ("tools/call", json!({}), -32602),
        ("tools/call", json!({ "name": 7 }), -32602),
        ("tools/call", json!({ "name": "list_jobs", "arguments": "x" }), -32602),
        ("initialize", json!({ "protocolVersion": 7 }), -32602),
    ] {
        let answer = client.ask(method, params.clone());
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
    }
    client.check_alive("all of them");
}

#[test]
fn wrong_arguments_are_results_that_the_model_can_read() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    for (tool, arguments, wanted) in [
        ("run_command", json!({}), "command"),
        ("run_command", json!({ "command": "true", "wait": 3 }), "has no argument `wait`"),
        ("run_command", json!({ "command": "true", "wait_s": -1 }), "whole number"),
        ("wait_for", json!({ "jobs": [] }), "`jobs` is empty"),
        ("wait_for", json!({ "jobs": ["a"], "until": "end" }), "exit, ready, log, stall"),
        ("run_command", json!({ "command": 3 }), "`command` must be string, not 3"),
        ("run_command", json!({ "command": "true", "timeout_s": 0 }), "`timeout_s` must be greater than 0"),
        ("run_tests", json!({ "command": "true", "timeout_s": 0 }), "`timeout_s` must be greater than 0"),
        ("start_job", json!({ "command": "true", "ttl_s": 0 }), "`ttl_s` must be greater than 0"),
        ("wait_for", json!({ "jobs": ["a"], "until": "log" }), "needs a `pattern`"),
        ("wait_for", json!({ "jobs": ["a"], "pattern": "x", "stall_s": 1 }), "say which with `until`"),
        ("wait_for", json!({ "jobs": ["a"], "until": "exit", "pattern": "x" }), "`pattern` is for until=log"),
        ("read_output", json!({ "job": "nosuch" }), "there is no job `nosuch`"),
        ("read_output", json!({ "job": "../../etc" }), "bad_job"),
        ("stop_jobs", json!({ "reason": "x" }), "either `jobs` or all_mine"),
        ("start_job", json!({ "command": "true", "ready_port": 70000 }), "65535"),
        ("start_job", json!({ "command": "true", "ready_log": "(" }), "regular expression"),
        ("start_job", json!({ "command": "true", "ready_log": "(" }), "hint: correct the arguments"),
        ("run_command", json!({ "command": "true", "cwd": "/no/such/dir" }), "/no/such/dir"),
        ("run_command", json!({ "command": "true", "cwd": "/no/such/dir" }), "hint: give `cwd` a directory"),
        ("run_tests", json!({ "command": "pytest; rm -r x" }), "plain command"),
    ] {
        let text = client.error(tool, arguments.clone());
        assert!(text.starts_with("error ") && text.contains(wanted), "{tool} {arguments}: {text}");
    }
}
