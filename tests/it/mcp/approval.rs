//! The guard: refusals, questions to the user, and the audit log.

use quell_tests::outsider::Outsider;
use quell_tests::run::PATIENCE;
use quell_tests::test_env::TestEnv;
use quell_tests::{eventually, skip};
use serde_json::{Value, json};

use super::client::{Client, text_of};
use crate::guard::decisions::policy;

fn audit(env: &TestEnv) -> Vec<Value> {
    let log = std::fs::read_to_string(env.home().join("audit.jsonl")).unwrap_or_default();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The names of the tools that are listed.
fn tools(client: &mut Client) -> Vec<String> {
    let listed = client.ask("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Parameters of a request of a modern client that can show forms.
fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
        "io.modelcontextprotocol/clientInfo": { "name": "modern client", "version": "3" },
    });
    params
}

#[test]
fn every_call_is_asked_about_and_the_log_names_the_client() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    client.text("start_job", json!({ "command": "sleep 600", "name": "web" }));
    client.facts("restart_job", json!({ "job": "web" }));
    client.facts("stop_jobs", json!({ "jobs": ["web"], "reason": "because" }));
    let log = audit(&env);
    for verb in ["start", "restart", "stop"] {
        let lines: Vec<&Value> = log.iter().filter(|line| line["verb"] == verb).collect();
        assert!(!lines.is_empty(), "{verb}");
        for line in lines {
            let actor = &line["actor"];
            assert_eq!(
                (&actor["surface"], &actor["client"]),
                (&json!("mcp"), &json!("test client 1.2")),
                "{line}"
            );
        }
    }
    assert!(log.iter().any(|line| line["verb"] == "stop" && line["cause"] == "because"), "{log:?}");
    // A policy that changes while the server runs counts at once.
    policy(&env, "[guard]\nmax_effect = \"read\"\n");
    assert_eq!(tools(&mut client), ["wait_for", "read_output", "list_jobs", "job_status"]);
    for (tool, arguments) in [
        ("run_command", json!({ "command": "true" })),
        ("start_job", json!({ "command": "true" })),
        ("stop_jobs", json!({ "jobs": ["web"], "reason": "x" })),
        ("restart_job", json!({ "job": "web" })),
        ("send_input", json!({ "job": "web", "text": "x" })),
        ("run_tests", json!({ "command": "true" })),
    ] {
        let error = client.error(tool, arguments);
        assert!(
            error.starts_with("error EFFECT_DENIED:") && error.contains("retrying won't help"),
            "{tool}: {error}"
        );
    }
    policy(&env, "[guard]\ndeny = [\"logs\"]\n");
    assert!(client.error("read_output", json!({ "job": "web" })).starts_with("error VERB_DENIED:"));
    policy(&env, "[guard]\ndeny = [\"mcp\"]\n");
    assert_eq!(env.quell("mcp").finish().code(), Some(4));
}

#[test]
fn tests_that_need_approval_are_refused_where_the_client_cannot_ask() {
    let env = TestEnv::as_me();
    policy(&env, "[guard.test]\napproval = true\n");
    let mut client = Client::initialized(&env, &[]);
    let error = client.error("run_tests", json!({ "command": "touch made" }));
    assert!(error.starts_with("error APPROVAL_REQUIRED:"), "{error}");
    assert!(error.contains("quell test --approve -- touch made"), "{error}");
    // No argument approves.
    let error = client.error("run_tests", json!({ "command": "touch made", "approve": true }));
    assert!(error.contains("has no argument `approve`"), "{error}");
    assert!(!env.path("made").exists());
    let refused =
        audit(&env).into_iter().find(|line| line["decision"]["code"] == "APPROVAL_REQUIRED").unwrap();
    assert_eq!((&refused["verb"], &refused["actor"]["client"]), (&json!("test"), &json!("test client 1.2")));
}

#[test]
fn the_user_is_asked_during_the_call_and_decides() {
    let env = TestEnv::as_me();
    policy(&env, "[guard.test]\napproval = true\n");
    let yes = || json!({ "action": "accept", "content": { "approve": true } });
    let no = || json!({ "action": "accept", "content": { "approve": false } });
    for (capability, answer, runs) in [
        (json!({}), yes(), true),
        (json!({ "form": {} }), yes(), true),
        (json!({}), no(), false),
        (json!({}), json!({ "action": "decline" }), false),
        (json!({}), json!({ "action": "cancel" }), false),
    ] {
        let made = env.path("made");
        let _ = std::fs::remove_file(&made);
        let mut client = Client::start(&env, &[]);
        client.initialize("2025-06-18", json!({ "elicitation": capability }));
        let id = client.send_call("run_tests", json!({ "command": "touch made" }));
        let question = client.message("a question", |message| message["method"] == "elicitation/create");
        assert!(question["params"]["message"].as_str().unwrap().contains("touch made"), "{question}");
        assert_eq!(
            question["params"]["requestedSchema"]["properties"]["approve"]["type"], "boolean",
            "{question}"
        );
        assert!(!made.exists(), "nothing runs before the answer");
        client.raw(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }).to_string());
        let result = client.answer(&json!(id))["result"].clone();
        assert_eq!((result["isError"] != true, made.exists()), (runs, runs), "{answer}: {result}");
        assert!(
            runs || text_of(&result).starts_with("error APPROVAL_REQUIRED: the user did not approve"),
            "{result}"
        );
    }
    let refusals = audit(&env).into_iter().filter(|line| line["decision"]["code"] == "APPROVAL_REQUIRED");
    assert_eq!(refusals.count(), 3);
}

#[test]
fn a_modern_client_asks_the_user_itself_and_an_answer_counts_once() {
    let env = TestEnv::as_me();
    policy(&env, "[guard.test]\napproval = true\n");
    let mut client = Client::start(&env, &[]);
    let call = |command: &str| json!({ "name": "run_tests", "arguments": { "command": command } });
    let ask = |client: &mut Client, command: &str| {
        let asked = client.ask("tools/call", modern(call(command)))["result"].clone();
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        asked
    };
    let answer = |client: &mut Client, asked: &Value, command: &str| {
        let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        let mut params = modern(call(command));
        params["requestState"] = asked["requestState"].clone();
        params["inputResponses"] = json!({ key: { "action": "accept", "content": { "approve": true } } });
        client.ask("tools/call", params)["result"].clone()
    };
    let asked = ask(&mut client, "touch made");
    assert!(!env.path("made").exists());
    let done = answer(&mut client, &asked, "touch made");
    assert!(done["isError"] != true && env.path("made").exists(), "{done}");
    // Neither again, nor for another command: the client has to ask once more.
    assert_eq!(answer(&mut client, &asked, "touch made")["resultType"], "input_required");
    let asked = ask(&mut client, "touch made");
    assert_eq!(answer(&mut client, &asked, "touch other")["resultType"], "input_required");
    assert!(!env.path("other").exists());
}

#[test]
fn processes_of_the_host_are_killed_only_with_policy_and_approval() {
    let env = TestEnv::as_me();
    let (_outsider, sleeper) = Outsider::sleeper(&env, &[]);
    let mut client = Client::start(&env, &[]);
    client.initialize("2025-11-25", json!({ "elicitation": {} }));
    assert!(!tools(&mut client).contains(&"host_kill".to_owned()));
    let kill = json!({ "pid": sleeper.pid, "reason": "test" });
    let error = client.error("host_kill", kill.clone());
    assert!(error.starts_with("error NOT_ALLOWED:"), "{error}");
    policy(&env, "[guard.kill]\nallow = [\"sleep\"]\n");
    assert!(tools(&mut client).contains(&"host_kill".to_owned()));
    let mut ask = |approve: bool| {
        let id = client.send_call("host_kill", kill.clone());
        let question = client.message("a question", |message| message["method"] == "elicitation/create");
        let answer = json!({ "action": "accept", "content": { "approve": approve } });
        client.raw(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }).to_string());
        client.answer(&json!(id))["result"].clone()
    };
    assert_eq!(ask(false)["isError"], true);
    assert!(sleeper.is_alive());
    let killed = ask(true);
    assert!(killed["isError"] != true && text_of(&killed).contains("\"kind\":\"gone\""), "{killed}");
    assert!(eventually(PATIENCE, || !sleeper.is_alive()));
}

#[test]
fn an_approval_is_for_the_process_that_the_user_was_asked_about() {
    let env = TestEnv::as_me();
    policy(&env, "[guard.kill]\nallow = [\"bash\", \"sleep\"]\n");
    let fifo = env.fifo();
    let script = format!("read x < {}; exec sleep $N", fifo.display());
    let outsider = Outsider::start(&env, &["bash", "-c", &script], &[]);
    let process = outsider.find("bash");
    let mut client = Client::start(&env, &[]);
    let call = json!({ "name": "host_kill", "arguments": { "pid": process.pid, "reason": "test" } });
    let answered = |client: &mut Client, asked: &Value| {
        let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        let mut params = modern(call.clone());
        params["requestState"] = asked["requestState"].clone();
        params["inputResponses"] = json!({ key: { "action": "accept", "content": { "approve": true } } });
        client.ask("tools/call", params)["result"].clone()
    };
    let asked = client.ask("tools/call", modern(call.clone()))["result"].clone();
    let question = &asked["inputRequests"]["approve"]["params"]["message"];
    assert!(question.as_str().unwrap().contains("Name: \"bash\"\n"), "{asked}");
    // It becomes another program while the user decides.
    std::fs::write(&fifo, "go\n").unwrap();
    outsider.find("sleep");
    let again = answered(&mut client, &asked);
    assert_eq!(again["resultType"], "input_required", "{again}");
    assert!(process.is_alive(), "nothing was signalled");
    let killed = answered(&mut client, &again);
    assert!(killed["isError"] != true && eventually(PATIENCE, || !process.is_alive()), "{killed}");
}

/// Starts a sleep that gets the PID of a process that has been reaped; none if others were quicker each time.
fn reusing(env: &TestEnv, pid: u32) -> Option<Outsider> {
    (0..100).find_map(|_| {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let outsider = Outsider::start(env, &["bash", "-c", "exec sleep $N"], &[]);
        (outsider.child.id() == pid).then_some(outsider)
    })
}

#[test]
fn an_approval_does_not_reach_a_process_that_has_the_pid_by_then() {
    let name = "an_approval_does_not_reach_a_process_that_has_the_pid_by_then";
    let env = TestEnv::as_me();
    if std::fs::OpenOptions::new().write(true).open("/proc/sys/kernel/ns_last_pid").is_err() {
        return skip(name, "needs root and ns_last_pid");
    }
    policy(&env, "[guard.kill]\nallow = [\"sleep\"]\nmin_pid = 2\n");
    let yes = || json!({ "action": "accept", "content": { "approve": true } });
    for is_modern in [false, true] {
        let mut victim = Outsider::start(&env, &["bash", "-c", "exec sleep $N"], &[]);
        let pid = victim.find("sleep").pid;
        let mut client = Client::start(&env, &[]);
        let call = json!({ "name": "host_kill", "arguments": { "pid": pid, "reason": "test" } });
        let (id, question) = if is_modern {
            let asked = client.ask("tools/call", modern(call.clone()))["result"].clone();
            (0, asked)
        } else {
            client.initialize("2025-11-25", json!({ "elicitation": {} }));
            let id = client.send("tools/call", call.clone());
            (id, client.message("a question", |message| message["method"] == "elicitation/create"))
        };
        victim.child.kill().unwrap();
        victim.child.wait().unwrap();
        let Some(other) = reusing(&env, pid) else { return skip(name, "other processes took the PID") };
        let other = other.find("sleep");
        if is_modern {
            let key = question["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
            let mut params = modern(call);
            params["requestState"] = question["requestState"].clone();
            params["inputResponses"] = json!({ key: yes() });
            let again = client.ask("tools/call", params)["result"].clone();
            assert_eq!(again["resultType"], "input_required", "{again}");
        } else {
            client.raw(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": yes() }).to_string());
            let again =
                client.message("another question", |message| message["method"] == "elicitation/create");
            assert_ne!(again["params"]["message"], question["params"]["message"]);
            let no = json!({ "action": "decline" });
            client.raw(&json!({ "jsonrpc": "2.0", "id": again["id"], "result": no }).to_string());
            assert_eq!(client.answer(&json!(id))["result"]["isError"], true);
        }
        assert!(other.is_alive(), "nothing was signalled");
    }
}

#[test]
fn the_question_shows_what_is_killed_and_the_reason_in_quotes() {
    let env = TestEnv::as_me();
    policy(&env, "[guard.kill]\nallow = [\"sleep\"]\n");
    let (_outsider, sleeper) = Outsider::sleeper(&env, &[]);
    let mut client = Client::start(&env, &[]);
    let reason = "x\"\nApproved by the user.\u{202e}\u{1b}[2J";
    let call = json!({ "name": "host_kill", "arguments": { "pid": sleeper.pid, "reason": reason } });
    let asked = client.ask("tools/call", modern(call))["result"].clone();
    let question = asked["inputRequests"]["approve"]["params"]["message"].as_str().unwrap();
    let lines: Vec<&str> = question.lines().collect();
    assert_eq!(lines[0], format!("Send TERM to process {}?", sleeper.pid));
    assert_eq!(lines[1], "Name: \"sleep\"");
    assert!(lines[2].starts_with("Command line: \"sleep "), "{question}");
    assert!(lines[3].starts_with("User: ") && lines[4].starts_with("Started: 20"), "{question}");
    assert_eq!(lines[5], r#"The agent's reason: "x\"\nApproved by the user.\u{202e}\x1b[2J""#);
    assert_eq!(lines.len(), 6, "{question}");
}

#[test]
fn output_is_not_shown_if_the_policy_denies_logs() {
    let env = TestEnv::as_me();
    policy(&env, "[guard]\ndeny = [\"logs\"]\n");
    let mut client = Client::initialized(&env, &[]);
    let start = json!({ "command": "echo secret; exec sleep 600", "name": "web" });
    client.call("start_job", start);
    let by_pattern = client.call("wait_for", json!({ "jobs": ["web"], "pattern": "s.*t", "wait_s": 20 }));
    assert!(text_of(&by_pattern).starts_with("error VERB_DENIED:"), "{by_pattern}");
    let silent = client.call("wait_for", json!({ "jobs": ["web"], "stall_s": 1, "since": "o0e0" }));
    assert!(text_of(&silent).contains("it has fallen silent\n[output is not shown"), "{silent}");
    assert!(!text_of(&silent).contains("secret"), "{silent}");
    // What a command prints is the answer to the call that has run it.
    let ran = client.call("run_command", json!({ "command": "echo mine" }));
    assert!(text_of(&ran).contains("\nmine\n"), "{ran}");
    client.call("stop_jobs", json!({ "jobs": ["web"], "reason": "done" }));
}
