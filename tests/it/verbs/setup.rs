//! `quell setup`: an agent's configuration is changed with consent, checked, and restored.

use std::fs;

use quell_tests::{
    host::User,
    run::{Finished, Quell},
    skip,
    terminal::Terminal,
    test_env::TestEnv,
};
use serde_json::Value;

use crate::cli::bad_input::{error_envelope, one_clear_line};

/// Each agent, its user's file and its project's file.
const FILES: [(&str, &str, &str); 7] = [
    ("claude", ".claude.json", "p/.mcp.json"),
    ("codex", ".codex/config.toml", "p/.codex/config.toml"),
    ("gemini", ".gemini/settings.json", "p/.gemini/settings.json"),
    ("opencode", ".config/opencode/opencode.json", "p/opencode.json"),
    ("cursor", ".cursor/mcp.json", "p/.cursor/mcp.json"),
    ("vscode", ".config/Code/User/mcp.json", "p/.vscode/mcp.json"),
    ("windsurf", ".codeium/windsurf/mcp_config.json", ""),
];

const SERVERS: &str =
    "{\n  // mine\n  \"mcpServers\": {\"files\": {\"command\": \"npx\", \"args\": [\"files\"]}}\n}\n";

/// The verb, without what the tests' own environment may say about files.
fn setup<'e>(env: &'e TestEnv, words: &[&str]) -> Quell<'e> {
    let quell = env.quell("setup").args(words);
    let empty = ["XDG_CONFIG_HOME", "QUELL_CONFIG", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"];
    empty.into_iter().fold(quell, |quell, name| quell.env(name, ""))
}

fn said(done: &Finished) -> &str {
    assert_eq!(done.code(), Some(0), "{} {}", done.stdout, done.stderr);
    &done.stdout
}

/// The one line of an error.
fn refused(done: &Finished, code: i32) -> &str {
    one_clear_line(done, code);
    &done.stderr
}

/// Everything in the directory that setup could have written: names and contents.
fn files(env: &TestEnv) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for dir in [
        "",
        ".codex",
        ".gemini",
        ".config/opencode",
        ".cursor",
        ".config/Code/User",
        ".codeium/windsurf",
        "p",
    ] {
        for entry in fs::read_dir(env.path(dir)).into_iter().flatten().flatten() {
            let name = entry.path().display().to_string();
            if entry.path().is_file() && !name.contains("stderr") {
                all.push((name, fs::read_to_string(entry.path()).unwrap_or_default()));
            }
        }
    }
    all.sort();
    all
}

#[test]
fn each_agent_is_set_up_checked_and_restored() {
    for user in User::all() {
        let env = TestEnv::new(user);
        for (agent, user_file, _) in FILES {
            let no = setup(&env, &[agent, "--check"]).finish();
            assert_eq!(no.code(), Some(1), "{agent}: {}", no.stdout);
            let before = files(&env);
            assert!(said(&setup(&env, &[agent, "--yes"]).finish()).contains("added to"), "{agent}");
            let text = fs::read_to_string(env.path(user_file)).expect(user_file);
            assert!(text.contains("\"mcp\"") && text.contains("/quell"), "{agent}: {text}");
            let check = setup(&env, &[agent, "--check", "--json"]).finish();
            let state = &check.envelope()["data"]["state"];
            assert_eq!(
                (check.code(), &state["works"]),
                (Some(0), &Value::Bool(true)),
                "{agent}: {}",
                check.stdout
            );
            let doctor = env.quell("doctor").finish().stdout;
            assert!(doctor.contains(&format!("yes  setup {agent}")), "{agent}: {doctor}");
            let after = files(&env);
            assert!(said(&setup(&env, &[agent, "--yes"]).finish()).contains("already"), "{agent}");
            assert_eq!(files(&env), after, "a second run changes nothing");
            said(&setup(&env, &[agent, "--remove", "--yes"]).finish());
            assert_eq!(files(&env), before, "{agent}");
            assert!(!env.quell("doctor").finish().stdout.contains("setup"), "{agent}");
        }
    }
}

#[test]
fn a_projects_file_is_the_one_in_the_current_directory() {
    let env = TestEnv::as_me();
    fs::create_dir(env.path("p")).expect("mkdir");
    let inside = ["sh", "-c", r#"cd p && exec "$@""#, "sh"];
    for (agent, _, file) in FILES {
        let done = setup(&env, &[agent, "--project", "--yes"]).wrapped(inside).finish();
        if file.is_empty() {
            assert!(refused(&done, 2).contains("no configuration file for a project"));
            continue;
        }
        assert!(said(&done).contains(file), "{}", done.stdout);
        assert!(fs::read_to_string(env.path(file)).expect(file).contains("quell"), "{agent}");
        said(&setup(&env, &[agent, "--project", "--remove", "--yes"]).wrapped(inside).finish());
        assert!(!env.path(file).exists(), "{agent}");
    }
}

#[test]
fn nothing_is_written_without_consent() {
    let env = TestEnv::as_me();
    env.write(".claude.json", SERVERS);
    let before = files(&env);
    let done = setup(&env, &["claude", "--wrap"]).finish();
    assert!(refused(&done, 4).contains("--yes"), "{}", done.stderr);
    error_envelope(&setup(&env, &["claude", "--json"]).finish(), "setup", 4);
    let shown = setup(&env, &["claude", "--wrap", "--dry-run"]).finish();
    assert!(said(&shown).contains("+ ") && shown.stdout.contains("wrapped: files"), "{}", shown.stdout);
    let printed = setup(&env, &["claude", "--print"]).finish();
    let entry: Value = serde_json::from_str(said(&printed)).expect("JSON to paste");
    assert_eq!(entry["mcpServers"]["quell"]["args"][0], "mcp");
    assert_eq!(files(&env), before);
    assert!(!env.home().join("setup.json").exists());
}

#[test]
fn on_a_terminal_setup_asks_and_the_default_is_no() {
    let env = TestEnv::as_me();
    let file = env.write(".claude.json", SERVERS);
    let terminal = Terminal::open(&env);
    terminal.line("unset CLAUDE_CONFIG_DIR; $Q setup claude --wrap; echo code $?");
    let screen = terminal.wait_for("the question", |screen| screen.contains("[y/N]"));
    assert!(screen.contains("wrap"), "{screen}");
    terminal.key("Enter");
    terminal.wait_for_line("code 4");
    assert_eq!(fs::read_to_string(&file).expect("file"), SERVERS);
    terminal.line("clear; $Q setup claude --wrap; echo code $?");
    terminal.wait_for("the question", |screen| screen.contains("[y/N]"));
    terminal.line("y");
    terminal.wait_for_line("code 0");
    let text = fs::read_to_string(&file).expect("file");
    assert!(text.contains(r#""wrap", "--", "npx", "files""#) && text.contains("// mine"), "{text}");
}

#[test]
fn the_guard_is_asked_and_the_log_has_decision_and_act() {
    let env = TestEnv::as_me();
    env.write(".claude.json", SERVERS);
    let before = files(&env);
    for policy in ["deny = [\"setup\"]", "max_effect = \"read\""] {
        let policy = env.write("policy.toml", &format!("[guard]\n{policy}\n"));
        let done = setup(&env, &["claude", "--yes"]).env("QUELL_CONFIG", &policy).finish();
        assert!(refused(&done, 4).contains("setup"), "{}", done.stderr);
        fs::remove_file(policy).expect("remove");
        assert_eq!(files(&env), before);
    }
    said(&setup(&env, &["claude", "--yes"]).finish());
    let log = fs::read_to_string(env.home().join("audit.jsonl")).expect("the log");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let kinds: Vec<_> =
        lines.iter().map(|line| (line["kind"].as_str(), line["decision"]["allowed"].as_bool())).collect();
    let decision = |allowed| (Some("decision"), Some(allowed));
    assert_eq!(kinds, [decision(false), decision(false), decision(true), (Some("act"), Some(true))], "{log}");
    let act = &lines[3];
    assert_eq!((&act["verb"], &act["effect"]), (&"setup".into(), &"write".into()));
    assert!(act["target"].as_str().is_some_and(|target| target.ends_with(".claude.json")), "{act}");
}

#[test]
fn a_file_that_cannot_be_used_is_named_and_stays() {
    let env = TestEnv::as_me();
    for (text, word) in [
        ("{ not json", "can't parse"),
        ("{\"mcpServers\": []}", "is not an object"),
        ("{\"mcpServers\": {}, \"mcpServers\": {}}", "twice"),
        ("{\"mcpServers\": {\"quell\": {\"command\": \"npx\"}}}", "not quell's"),
    ] {
        let file = env.write(".claude.json", text);
        for words in [&["claude", "--yes"][..], &["claude", "--dry-run"]] {
            let done = setup(&env, words).finish();
            let line = refused(&done, 2);
            assert!(line.contains(word) && line.contains(file.to_str().expect("UTF-8")), "{line}");
        }
        assert_eq!(fs::read_to_string(&file).expect("file"), text);
    }
    assert_eq!(files(&env).len(), 1, "no backup is left");
}

#[test]
fn doctor_names_a_setup_that_no_longer_works() {
    let env = TestEnv::as_me();
    env.write(".claude.json", SERVERS);
    said(&setup(&env, &["claude", "--wrap", "--yes"]).finish());
    let file = env.path(".claude.json");
    let text = fs::read_to_string(&file).expect("file");
    let quell = env.quell_path().display().to_string();
    if !text.contains(&quell) {
        return skip("doctor_names_a_setup_that_no_longer_works", "quell is called by another path");
    }
    fs::write(&file, text.replace(&quell, "/nowhere/quell")).expect("write");
    let doctor = env.quell("doctor").finish().stdout;
    assert!(doctor.contains("no   setup claude") && doctor.contains("/nowhere/quell"), "{doctor}");
    assert_eq!(setup(&env, &["claude", "--check"]).finish().code(), Some(1));
    // Setup corrects it, also in the wrapped servers, and remove still gives the original.
    said(&setup(&env, &["claude", "--yes"]).finish());
    assert_eq!(setup(&env, &["claude", "--check", "--wrap"]).finish().code(), Some(0));
    said(&setup(&env, &["claude", "--remove", "--yes"]).finish());
    assert!(!fs::read_to_string(&file).expect("file").contains("quell"));
}
