//! `quell-sh`: the commands and servers of an agent that calls it as its shell prefix.

use std::{fs, os::unix::fs::symlink, time::Duration};

use quell_tests::{
    eventually,
    evidence::{cause, says_gone},
    host::Setting,
    run::{PATIENCE, Quell},
    test_env::TestEnv,
};
use serde_json::Value;

use super::leak_keep::{agent, ends_clean, names_owner, place, returned, the_job};

fn mine() -> TestEnv {
    place(Setting::all()[0])
}

/// `quell-sh LINE`, as the agent calls it for a server.
fn server<'l>(env: &'l TestEnv, line: &str) -> Quell<'l> {
    let link = env.path("quell-sh");
    if !link.exists() {
        symlink(env.quell_path(), &link).expect("a link");
    }
    let quell =
        env.quell(line).program(link).env("CLAUDE_CODE_SESSION_ID", "1-2-3").env("SHELL", "/bin/bash");
    quell.env("N", env.oracle.nap())
}

/// The same for a command.
fn command<'l>(env: &'l TestEnv, line: &str) -> Quell<'l> {
    server(env, line).env("CLAUDE_CODE_CHILD_SESSION", "1")
}

fn spec(env: &TestEnv, id: &str) -> Value {
    let text = fs::read(env.job(id).dir().join("spec.json")).expect("a record");
    serde_json::from_slice(&text).expect("JSON")
}

/// The lines of the audit log, as verb and job.
fn audit(env: &TestEnv) -> Vec<(String, String)> {
    let text = fs::read_to_string(env.home().join("audit.jsonl")).unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.map(|line| (word(&line["verb"]), word(&line["receipt"]))).collect()
}

#[test]
fn a_command_returns_and_what_it_leaves_lives_for_the_agent_in_its_session() {
    let env = mine();
    let line = "echo said; trap '' TERM; setsid sleep $N >/dev/null 2>&1 & exit 3";
    let owner = agent(&env, command(&env, line)).start();
    assert!(returned(&env), "{}", owner.stderr());
    assert_eq!(fs::read_to_string(env.path("returned")).expect("a code"), "3\n");
    assert!(eventually(PATIENCE, || owner.stdout() == "said\n"), "{:?}", owner.stdout());
    assert_eq!(owner.stderr(), "", "quell adds nothing");
    let id = the_job(&env);
    let request = &spec(&env, &id)["request"];
    assert_eq!((&request["session"], &request["tags"]["kind"]), (&"claude-1-2-3".into(), &"command".into()));
    assert_eq!(audit(&env), [("run".to_owned(), id.clone())]);
    owner.front.signal("KILL");
    assert!(env.job(&id).wait_over(Duration::from_secs(5)), "{:?}", env.leftovers());
    let receipt = ends_clean(&env, PATIENCE).unwrap_or_else(|why| panic!("{why}"));
    names_owner(&receipt, &owner.front).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn what_claude_code_wraps_around_a_command_is_read_by_the_same_shell() {
    let env = mine();
    env.write("snapshot.sh", "f() { echo \"f: $1\"; }\n");
    let line = r#"source ./snapshot.sh 2>/dev/null || true && { \builtin shopt -u extglob || \builtin setopt NO_EXTENDED_GLOB; } >/dev/null 2>&1 || true && eval 'f "a  b'"'"'c"
cat; [[ x == x ]] && false' \< /dev/null && pwd -P >| cwd"#;
    let done = command(&env, line).finish();
    assert_eq!((done.code(), done.stdout.as_str(), done.stderr.as_str()), (Some(1), "f: a  b'c\n", ""));
    let done = command(&env, "eval true && pwd -P >| cwd").finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let dir = fs::canonicalize(env.dir()).expect("a directory");
    assert_eq!(fs::read_to_string(env.path("cwd")).expect("written").trim(), dir.to_str().expect("UTF-8"));
}

#[test]
fn a_server_is_wrapped_and_ends_with_its_input() {
    let env = mine();
    let (stdin, client) = std::io::pipe().expect("a pipe");
    // It does not exit at the end of its input.
    let line = "sh -c 'read line; echo \"got $line\"; trap \"\" TERM; setsid sleep $N & wait; sleep $N'";
    let mut running = server(&env, line).stdin(std::os::fd::OwnedFd::from(stdin).into()).start();
    std::io::Write::write_all(&mut &client, b"hello\n").expect("it reads");
    assert!(eventually(PATIENCE, || running.stdout() == "got hello\n"), "{}", running.stderr());
    let id = the_job(&env);
    assert_eq!(spec(&env, &id)["request"]["tags"]["kind"], "mcp");
    assert_eq!(audit(&env), [("wrap".to_owned(), id.clone())]);
    drop(client);
    assert!(running.wait_exit(PATIENCE).is_some());
    let receipt = ends_clean(&env, PATIENCE).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(cause(&receipt), "input_closed", "{receipt}");
    assert_eq!(running.stderr(), "");
}

#[test]
fn quells_own_server_is_not_wrapped_and_a_line_that_only_looks_like_it_is() {
    let env = mine();
    let quell = env.quell_path().display().to_string();
    let done = server(&env, &format!("{quell} mcp")).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(env.ids("jobs").is_empty() && audit(&env).iter().all(|(verb, _)| verb == "mcp"));
    let done = server(&env, &format!("{quell} mcp; echo more")).finish();
    assert_eq!((done.code(), done.stdout.as_str()), (Some(0), "more\n"), "{}", done.stderr);
    assert_eq!(env.ids("done").len(), 1);
}

#[test]
fn the_guard_is_asked_about_each_line() {
    let env = mine();
    let policy = env.write("quell.toml", "[guard]\ndeny = [\"run\", \"wrap\"]\n");
    for quell in [command(&env, "echo ran >ran"), server(&env, "echo ran >ran")] {
        let done = quell.env("QUELL_CONFIG", &policy).finish();
        assert_eq!(done.code(), Some(125), "{}", done.stderr);
        assert!(!env.path("ran").exists() && env.ids("jobs").is_empty());
    }
    let verbs: Vec<String> = audit(&env).into_iter().map(|(verb, _)| verb).collect();
    assert_eq!(verbs, ["run", "wrap"]);
}

#[test]
fn other_calls_than_with_one_line_are_errors() {
    let env = mine();
    for words in [&["one", "two"][..], &["-c", "echo ran >ran"]] {
        let quell = command(&env, words[0]).args(&words[1..]);
        let done = quell.finish();
        assert_eq!(done.code(), Some(125), "{words:?}: {}", done.stderr);
        assert!(!env.path("ran").exists() && env.ids("jobs").is_empty());
    }
}

#[test]
fn a_command_that_ends_by_itself_leaves_a_finished_job_and_nothing_else() {
    let env = mine();
    let done = command(&env, "exit 7").finish();
    assert_eq!((done.code(), done.stdout.as_str(), done.stderr.as_str()), (Some(7), "", ""));
    let receipt = ends_clean(&env, PATIENCE).unwrap_or_else(|why| panic!("{why}"));
    says_gone(&receipt).unwrap_or_else(|why| panic!("{why}"));
}
