//! Which client and which session a job belongs to.

use quell_tests::eventually;
use quell_tests::oracle::Process;
use quell_tests::run::PATIENCE;
use quell_tests::test_env::TestEnv;
use serde_json::json;

use super::client::{Client, job_of};

#[test]
fn jobs_end_when_their_client_is_killed() {
    let env = TestEnv::as_me();
    // A client that starts a server, passes on what is written for it, and then hangs.
    let nap = env.oracle.nap();
    let call = |id: u32, arguments: serde_json::Value| {
        let params = json!({ "name": "start_job", "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
    };
    let mine = call(1, json!({ "command": format!("sleep {nap}"), "name": "mine" }));
    let kept = call(2, json!({ "command": format!("sleep {nap}"), "name": "kept", "keep": true }));
    let requests = env.write("requests", &format!("{mine}\n{kept}\n"));
    let out = env.path("answers");
    let script = format!(
        "\"$1\" mcp --session one < <(cat {}; sleep {nap}) > {} &\nwait\nsleep {nap}\n",
        requests.display(),
        out.display()
    );
    let script = env.write("client", &script);
    let quell = env.quell_path();
    let words = ["bash".as_ref(), script.as_os_str(), quell.as_os_str()];
    let prefix = env.prefix();
    let mut command = std::process::Command::new(prefix.first().map_or("env", String::as_str));
    command.args(prefix.iter().skip(1)).args(words).current_dir(env.dir());
    command.env("QUELL_HOME", env.home()).env("HOME", env.dir()).env("QUELL_SESSION", "");
    let mut client = command.spawn().unwrap();
    let answered = || std::fs::read_to_string(&out).unwrap_or_default().lines().count() == 2;
    assert!(eventually(PATIENCE, answered), "{:?}", std::fs::read_to_string(&out));
    let mut other = Client::initialized(&env, &["--session", "one"]);
    let state = |other: &mut Client, job: &str| {
        other.facts("job_status", json!({ "job": job }))["job"]["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state(&mut other, "mine"), "running");
    assert!(Process::now(client.id()).unwrap().signal("KILL"));
    client.wait().unwrap();
    assert!(eventually(PATIENCE, || state(&mut other, "mine") == "ended"), "the job outlives its client");
    let status = other.facts("job_status", json!({ "job": "mine" }))["job"].clone();
    assert_eq!(status["cause"], "owner_gone", "{status}");
    assert_eq!(state(&mut other, "kept"), "running");
    // A restart gives the job to the client that asks for it, and a kept one to none.
    let mine = other.facts("restart_job", json!({ "job": "mine" }))["job"]["id"].clone();
    let owner = other.facts("job_status", json!({ "job": mine }))["job"]["owner"].clone();
    assert_eq!(owner["pid"], std::process::id(), "{owner}");
    let kept = other.facts("restart_job", json!({ "job": "kept" }))["job"]["id"].clone();
    let status = other.facts("job_status", json!({ "job": kept }))["job"].clone();
    assert!(status.get("owner").is_none(), "{status}");
    other.facts("stop_jobs", json!({ "all_mine": true, "reason": "end of the test" }));
}

#[test]
fn a_restart_of_the_server_loses_nothing() {
    let env = TestEnv::as_me();
    let mut first = Client::initialized(&env, &[]);
    let ended = job_of(&first.text("run_command", json!({ "command": "echo before; exit 9" })));
    let text =
        first.text("start_job", json!({ "command": "echo up; sleep 600", "name": "web", "ready_log": "up" }));
    let cursor = text.trim_end().rsplit_once("since=").unwrap().1.to_owned();
    let session = first.facts("list_jobs", json!({}))["session"].clone();
    drop(first.finish());
    // The same client, so the same session.
    let mut second = Client::initialized(&env, &[]);
    let listed = second.facts("list_jobs", json!({}));
    assert_eq!(listed["session"], session);
    assert_eq!(listed["jobs"].as_array().map(Vec::len), Some(2), "{listed}");
    let text = second.text("wait_for", json!({ "jobs": [ended] }));
    assert!(text.contains(": exited 9 ") && text.contains("\nbefore\n"), "{text}");
    let text = second.text("read_output", json!({ "job": "web", "since": cursor }));
    assert!(text.contains("ready") && text.contains("[no new output]"), "{text}");
    let stopped = second.facts("stop_jobs", json!({ "jobs": ["web"], "reason": "done" }));
    assert_eq!(
        (&stopped["jobs"][0]["left"], &stopped["jobs"][0]["verdict"]["kind"]),
        (&json!(0), &json!("gone"))
    );
}

#[test]
fn a_stop_names_what_was_still_running_after_the_grace() {
    let env = TestEnv::as_me();
    let mut client = Client::initialized(&env, &[]);
    let slow = "trap 'sleep 20' TERM; echo up; while :; do sleep 0.05; done";
    client.text("start_job", json!({ "command": slow, "name": "slow", "ready_log": "up" }));
    let stopped = client.facts("stop_jobs", json!({ "jobs": ["slow"], "reason": "done", "grace_s": 1 }));
    let job = &stopped["jobs"][0];
    assert!(
        job["still_running_after_grace"][0].as_str().is_some_and(|found| found.contains("bash")),
        "{job:#}"
    );
    assert!(!stopped.to_string().contains("ignored"), "{job:#}");
}

#[test]
fn jobs_of_another_session_can_be_read_and_not_changed() {
    let env = TestEnv::as_me();
    let mut owner = Client::initialized(&env, &["--session", "theirs"]);
    let command = "echo theirs; cat";
    owner.text(
        "start_job",
        json!({ "command": command, "name": "web", "interactive": true, "ready_log": "theirs" }),
    );
    let outside = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let mut other = Client::initialized(&env, &["--session", "ours"]);
    assert_eq!(other.facts("list_jobs", json!({}))["jobs"], json!([]));
    let everyone = other.facts("list_jobs", json!({ "everyone": true }));
    assert_eq!(everyone["jobs"].as_array().map(Vec::len), Some(2), "{everyone}");
    assert!(other.text("read_output", json!({ "job": "web" })).contains("theirs"));
    for job in ["web", &outside.id] {
        for (tool, mut arguments) in [
            ("stop_jobs", json!({ "jobs": [job], "reason": "x" })),
            ("send_input", json!({ "job": job, "text": "x" })),
            ("restart_job", json!({ "job": job })),
        ] {
            let error = other.error(tool, arguments.take());
            assert!(
                error.starts_with("error OTHER_SESSION:") && error.contains("--scope all"),
                "{tool}: {error}"
            );
        }
    }
    other.facts("stop_jobs", json!({ "all_mine": true, "reason": "x" }));
    assert_eq!(outside.state(), "running");
    let log = std::fs::read_to_string(env.home().join("audit.jsonl")).unwrap();
    assert!(
        log.lines().any(|line| line.contains("OTHER_SESSION") && line.contains("\"surface\":\"mcp\"")),
        "{log}"
    );
    let mut all = Client::initialized(&env, &["--session", "ours", "--scope", "all"]);
    let stopped = all.facts("stop_jobs", json!({ "jobs": ["web", outside.id], "reason": "both" }));
    assert_eq!(stopped["jobs"].as_array().map(Vec::len), Some(2), "{stopped}");
    assert!(stopped["jobs"].as_array().unwrap().iter().all(|job| job["left"] == 0), "{stopped}");
}

#[test]
fn the_session_comes_from_the_command_line_the_environment_or_the_agent() {
    let env = TestEnv::as_me();
    let session = |options: &[&str], variables: &[(&str, &str)]| {
        let mut client = Client::start_with(&env, options, variables);
        client.initialize("2025-11-25", json!({}));
        client.facts("list_jobs", json!({}))["session"].as_str().unwrap().to_owned()
    };
    let agent = ("CLAUDE_CODE_SESSION_ID", "0a1b");
    assert_eq!(session(&["--session", "mine"], &[("QUELL_SESSION", "env"), agent]), "mine");
    assert_eq!(session(&[], &[("QUELL_SESSION", "env"), agent]), "env");
    assert_eq!(session(&[], &[agent]), "claude-0a1b");
    assert_eq!(session(&[], &[("CODEX_THREAD_ID", "t-1")]), "codex-t-1");
    assert!(session(&[], &[]).starts_with(&format!("mcp-{}-", std::process::id())));
}
