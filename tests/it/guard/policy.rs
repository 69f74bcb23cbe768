//! What a policy says, and whose word counts: verbs and effects, projects, the machine's file, files with a mistake.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use quell_tests::{
    eventually,
    host::{User, am_root},
    oracle::Process,
    run::PATIENCE,
    skip,
    test_env::TestEnv,
};
use serde_json::Value;

use crate::guard::decisions::{Stranger, code, policy, traced, verb};

#[test]
fn every_verb_is_in_the_table_and_can_be_refused() {
    let env = TestEnv::as_me();
    let help = env.quell("help").finish();
    let listed: Vec<String> = help
        .stdout
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next().map(str::to_owned))
        .filter(|verb| verb != "help")
        .collect();
    assert!(listed.len() >= 20, "{}", help.stdout);
    for name in &listed {
        let words: &[&str] = if name == "service" { &["service stop"] } else { &[name] };
        let done = verb(&env, "guard").args(["check", "verb"]).args(words).finish();
        assert_eq!(done.code(), Some(0), "{name}: {}", done.stdout);
    }
    let done = verb(&env, "guard").args(["check", "verb", "frobnicate", "--json"]).finish();
    assert_eq!(done.envelope()["data"]["decision"]["code"], "VERB_UNLISTED");
}

#[test]
fn a_policy_can_close_verbs_and_effects() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    for (rules, words, wanted) in [
        ("deny = [\"stop\"]", vec!["stop", "--json", &job.id], "VERB_DENIED"),
        ("deny = [\"list\"]", vec!["list", "--json"], "VERB_DENIED"),
        ("max_effect = \"write\"", vec!["stop", "--json", "--all"], "EFFECT_DENIED"),
        ("max_effect = \"write\"", vec!["signal", "--json", &job.id, "TERM"], "EFFECT_DENIED"),
        ("max_effect = \"write\"", vec!["rm", "--json", &job.id], "EFFECT_DENIED"),
        ("max_effect = \"write\"", vec!["gc", "--json"], "EFFECT_DENIED"),
        ("max_effect = \"write\"", vec!["sweep", "--json"], "EFFECT_DENIED"),
        ("max_effect = \"write\"", vec!["restart", "--json", &job.id], "EFFECT_DENIED"),
        ("max_effect = \"read\"", vec!["start", "--json", "--", "touch", "made"], "EFFECT_DENIED"),
        ("max_effect = \"read\"", vec!["send", "--json", &job.id, "x"], "EFFECT_DENIED"),
    ] {
        policy(&env, &format!("[guard]\n{rules}\n"));
        let done = verb(&env, words[0]).args(&words[1..]).finish();
        assert_eq!((done.code(), code(&done).as_str()), (Some(4), wanted), "{words:?}: {}", done.stdout);
    }
    policy(&env, "[guard]\nmax_effect = \"read\"\n");
    let done = verb(&env, "run").args(["--", "touch", "made"]).finish();
    assert_eq!(done.code(), Some(125), "{}", done.stderr);
    assert!(!env.path("made").exists());
    assert_eq!(verb(&env, "list").finish().code(), Some(0));
    assert!(!job.is_over());
    policy(&env, "");
    assert_eq!(job.stop(&["--now"]).code(), Some(0));
    let log = fs::read_to_string(env.home().join("audit.jsonl")).expect("the log");
    let refusals = log.lines().filter(|line| line.contains("\"allowed\":false")).count();
    assert_eq!(refusals, 11, "{log}");
}

/// The lines of the audit log about what was done.
fn acts_on_record(env: &TestEnv) -> Vec<Value> {
    let log = fs::read_to_string(env.home().join("audit.jsonl")).unwrap_or_default();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    lines.filter(|line| line["kind"] == "act" && line["verb"] != "start").collect()
}

#[test]
fn a_command_that_may_only_look_kills_nothing_of_a_lost_job() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
    let root = job.process("root").expect("a root");
    job.lose();
    for (rules, key) in [("max_effect = \"read\"", "guard.max_effect"), ("deny = [\"stop\"]", "guard.deny")] {
        policy(&env, &format!("[guard]\n{rules}\n"));
        let named = job.id.as_str();
        for words in
            [&["list"][..], &["status", named], &["tree", named], &["wait", named], &["events", named]]
        {
            let done = verb(&env, words[0]).args(&words[1..]).finish();
            assert!(root.is_alive(), "{rules} {words:?}");
            assert_eq!(done.code(), Some(5), "{rules} {words:?}: {}{}", done.stdout, done.stderr);
            for part in ["is lost", "quell sweep", key] {
                assert!(done.stderr.contains(part), "{rules} {words:?}: {}", done.stderr);
            }
            // No way is named that the policy refuses.
            assert!(!done.stderr.contains("tries again"), "{rules} {words:?}: {}", done.stderr);
            let all_refused = key == "guard.max_effect";
            assert_eq!(done.stderr.contains("`quell sweep` would stop"), !all_refused, "{}", done.stderr);
            assert_eq!(done.stderr.contains("`sweep` is destructive"), all_refused, "{}", done.stderr);
        }
        let listed = verb(&env, "list").args(["--json"]).finish().envelope();
        assert_eq!(listed["data"]["jobs"][0]["state"], "lost", "{listed}");
        let status = verb(&env, "status").args(["--json", named]).finish().envelope();
        assert_eq!(status["data"]["job"]["state"], "lost", "{status}");
    }
    assert!(root.is_alive());
    assert_eq!(acts_on_record(&env), Vec::<Value>::new());
    // `stop` is still denied, and `sweep` is not.
    let swept = verb(&env, "sweep").finish();
    assert!(eventually(PATIENCE, || !root.is_alive()), "{}{}", swept.stdout, swept.stderr);
    let acts = acts_on_record(&env);
    assert_eq!(acts.len(), 1, "{acts:#?}");
    assert_eq!((&acts[0]["verb"], &acts[0]["target"]), (&"sweep".into(), &job.id.as_str().into()));
}

#[test]
fn the_stop_of_a_lost_job_that_a_reader_finishes_is_on_record() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
    let root = job.process("root").expect("a root");
    job.lose();
    policy(&env, "[guard]\ndeny = [\"sweep\"]\n");
    let listed = verb(&env, "list").finish();
    assert!(eventually(PATIENCE, || !root.is_alive()), "{}", listed.stderr);
    let acts = acts_on_record(&env);
    assert_eq!(acts.len(), 1, "{acts:#?}");
    assert_eq!((&acts[0]["verb"], &acts[0]["receipt"]), (&"sweep".into(), &job.id.as_str().into()));
    assert!(acts[0]["result"]["verdict"].is_object(), "{}", acts[0]);
}

#[test]
fn hooks_and_probes_need_run_to_be_allowed() {
    let env = TestEnv::as_me();
    let made = env.path("made");
    let hook =
        format!("[[hooks]]\non = [\"started\"]\nrun = [\"touch\", {:?}]\n", made.display().to_string());
    policy(&env, &format!("[guard]\ndeny = [\"run\"]\n{hook}"));
    let probed =
        verb(&env, "start").args(["--ready-cmd", "true"]).command(["sleep", &env.oracle.nap()]).finish();
    assert_eq!(probed.code(), Some(4), "{}", probed.stderr);
    assert!(probed.stderr.contains("`run`"), "{}", probed.stderr);
    let job = verb(&env, "start").command(["sleep", &env.oracle.nap()]).begin();
    assert!(eventually(PATIENCE, || job.events().contains(&"hook_failed".into())), "{:?}", job.events());
    assert!(!made.exists());
    policy(&env, &hook);
    let job = verb(&env, "start").args(["--ready-cmd", "true"]).command(["sleep", &env.oracle.nap()]).begin();
    assert!(eventually(PATIENCE, || job.state() == "ready"), "{}", job.state());
    assert!(eventually(PATIENCE, || made.exists()), "{:?}", job.events());
}

#[test]
fn a_project_may_forbid_but_allows_only_where_it_is_trusted() {
    let env = TestEnv::as_me();
    let stranger = Stranger::asleep(&env);
    let check = || verb(&env, "guard").args(["check", "kill", "--json", &stranger.pid()]).finish().envelope();
    policy(&env, "[guard.kill]\nmin_pid = 2\n");
    env.write("quell.toml", "[guard.kill]\nallow = [\"sleep\"]\nmin_pid = 2\n");
    assert_eq!(check()["data"]["decision"]["code"], "NOT_ALLOWED");
    let warned = verb(&env, "config").args(["show", "--json"]).finish().envelope();
    assert!(warned["data"]["warnings"].to_string().contains("guard.kill.allow"), "{warned}");
    policy(&env, &format!("[trust]\nprojects = [{:?}]\n", env.dir()));
    assert_eq!(check()["data"]["decision"]["code"], "ALLOWED");
    policy(&env, "[guard.kill]\nallow = [\"sleep\"]\nmin_pid = 2\n");
    env.write("quell.toml", "[guard.kill]\nprotect = [\"sleep\"]\nmin_pid = 2\n");
    assert_eq!(check()["data"]["decision"]["code"], "NAME_PROTECTED");
    // What one forbids the other can't give back.
    policy(&env, "[guard]\nmax_effect = \"read\"\n[guard.kill]\nallow = [\"sleep\"]\nmin_pid = 2\n");
    env.write("quell.toml", "[guard]\nmax_effect = \"destructive\"\n");
    assert_eq!(check()["data"]["decision"]["code"], "EFFECT_DENIED");
    // Its own file beside the other one.
    policy(&env, "");
    env.write("quell.toml", "");
    env.write(".config/quell/guard.toml", "[guard.kill]\nallow = [\"sl*\"]\nmin_pid = 2\n");
    assert_eq!(check()["data"]["decision"]["code"], "ALLOWED");
}

#[test]
fn a_user_that_is_not_known_is_named_with_its_line() {
    let env = TestEnv::as_me();
    policy(&env, "[guard.kill]\nusers = [\"root\", \"0\", \"*\"]\nprotect_users = [\"no-such-user\"]\n");
    let warnings =
        verb(&env, "config").args(["show", "--json"]).finish().envelope()["data"]["warnings"].clone();
    let [warning] = warnings.as_array().expect("warnings").as_slice() else { panic!("{warnings}") };
    let warning = warning.as_str().unwrap_or_default();
    assert!(warning.contains("config.toml:3: guard.kill.protect_users"), "{warning}");
    assert!(warning.contains("no-such-user"), "{warning}");
}

#[test]
fn a_check_says_what_a_restart_needs() {
    let env = TestEnv::as_me();
    for (rules, wanted) in [("", "ALLOWED"), ("[guard]\ndeny = [\"start\"]\n", "VERB_DENIED")] {
        policy(&env, rules);
        let done = verb(&env, "guard").args(["check", "verb", "restart", "--json"]).finish();
        assert_eq!(done.envelope()["data"]["decision"]["code"], wanted, "{}", done.stdout);
    }
}

#[test]
fn the_machines_policy_is_the_last_word() {
    if !am_root() {
        return skip("the_machines_policy_is_the_last_word", "needs root to put a file below /etc");
    }
    let env = TestEnv::as_me();
    let mut stranger = Stranger::asleep(&env);
    policy(&env, "[guard.kill]\nallow = [\"*\"]\nmin_pid = 2\n");
    fs::create_dir_all(env.path("etc/quell")).expect("mkdir");
    // Seen by this quell alone: /etc is another one in its mount namespace.
    let pid = stranger.pid();
    let ask = |rules: &str| {
        env.write("etc/quell/guard.toml", rules);
        env.write("etc/passwd", "root:x:0:0::/:/bin/sh\n");
        let mount = format!("mount --bind {} /etc && exec \"$@\"", env.path("etc").display());
        let words = ["unshare", "-m", "sh", "-c", &mount, "sh"];
        verb(&env, "kill").wrapped(words).args(["--json", &pid]).finish()
    };
    for (rules, wanted) in [
        ("", "NOT_ALLOWED"),
        ("[guard.kill]\nallow = [\"node\"]\n", "NOT_ALLOWED"),
        ("[guard]\ndeny = [\"kill\"]\n", "VERB_DENIED"),
        ("[guard.kill]\nallow = [\"sleep\"]\nmin_pid = 4000000\n", "PID_BELOW_FLOOR"),
        ("[stop]\ngrace = \"1s\"\n", "bad_config"),
        ("[guard.kill]\nalow = [\"sleep\"]\n", "bad_config"),
    ] {
        let done = ask(rules);
        assert_eq!(code(&done), wanted, "{rules}: {}{}", done.stdout, done.stderr);
    }
    assert!(stranger.is_alive());
    let done = ask("[guard.kill]\nallow = [\"sleep\"]\nmin_pid = 2\n");
    assert_eq!(done.code(), Some(0), "{}{}", done.stdout, done.stderr);
    assert!(!stranger.is_alive());
}

#[test]
fn no_file_of_the_user_approves_tests_for_the_machine() {
    if !am_root() {
        return skip(
            "no_file_of_the_user_approves_tests_for_the_machine",
            "needs root to put a file below /etc",
        );
    }
    let env = TestEnv::as_me();
    policy(&env, "[guard.test]\napproval_variable = \"IS_SANDBOX\"\n");
    fs::create_dir_all(env.path("etc/quell")).expect("mkdir");
    env.write("etc/passwd", "root:x:0:0::/:/bin/sh\n");
    let run = |rules: &str, variable: &str| {
        env.write("etc/quell/guard.toml", rules);
        let mount = format!("mount --bind {} /etc && exec \"$@\"", env.path("etc").display());
        let words = ["unshare", "-m", "sh", "-c", &mount, "sh"];
        let quell = verb(&env, "test").wrapped(words).args(["--json"]).env(variable, "yes");
        code(&quell.command(["true"]).finish())
    };
    let required = "[guard.test]\napproval = true\n";
    assert_eq!(run(required, "IS_SANDBOX"), "APPROVAL_REQUIRED");
    assert_ne!(run(required, "QUELL_APPROVE_TESTS"), "APPROVAL_REQUIRED");
    assert_ne!(run("", "IS_SANDBOX"), "APPROVAL_REQUIRED");
}

/// A policy that can't be read allows nothing, and says where it is wrong.
const POLICIES: [(&str, usize); 57] = [
    ("[guard.kill]\nprotect = [\"/usr/bin/sleep\"]\n", 2),
    ("[guard.kill]\nprotect = [\"sle?p\"]\n", 2),
    ("[guard.kill]\nprotect = [\"sl[e]ep\"]\n", 2),
    ("[guard.kill]\nprotect = [\" sleep\"]\n", 2),
    ("[guard.kill]\nallow = [\"a\"]\nprotect_users = [\"ro?t\"]\n", 3),
    ("[guard.kill]\nallow = [\"/bin/sleep\"]\n", 2),
    ("[guard.service]\nprotect = [\"web?\"]\n", 2),
    ("[guard]\nmax_effect = 1\n", 2),
    ("[guard]\nmax_effect = \"everything\"\n", 2),
    ("[guard]\ndeny = \"stop\"\n", 2),
    ("[guard]\ndeny = [1]\n", 2),
    ("[guard]\ndeny = [\"stopp\"]\n", 2),
    ("[guard]\nallow = [\"*\"]\n", 2),
    ("guard = true\n", 1),
    ("[[guard]]\n", 1),
    ("[guard]\nkill = true\n", 2),
    ("[guard.kil]\n", 1),
    ("[guard.kill]\nallow = \"*\"\n", 2),
    ("[guard.kill]\nallow = [\"\"]\n", 2),
    ("[guard.kill]\nallow = [\" \"]\n", 2),
    ("[guard.kill]\nallow = [1]\n", 2),
    ("[guard.kill]\nallow = true\n", 2),
    ("[guard.kill]\nalow = [\"*\"]\n", 2),
    ("[guard.kill]\nallow = [\"a\"]\nallow = [\"b\"]\n", 3),
    ("[guard.kill]\nallow = [\"a\"\n", 2),
    ("[guard.kill]\nmin_pid = 1\n", 2),
    ("[guard.kill]\nmin_pid = 0\n", 2),
    ("[guard.kill]\nmin_pid = -1\n", 2),
    ("[guard.kill]\nmin_pid = \"300\"\n", 2),
    ("[guard.kill]\nmin_pid = 0x10\n", 2),
    ("[guard.kill]\nmin_pid = 3.5\n", 2),
    ("[guard.kill]\nmin_pid = 99999999999999\n", 2),
    ("[guard.kill]\nsignals = [\"TREM\"]\n", 2),
    ("[guard.kill]\nsignals = [\"\"]\n", 2),
    ("[guard.kill]\nsignals = \"TERM\"\n", 2),
    ("[guard.service]\nverbs = [\"enable\"]\n", 2),
    ("[guard.service]\nallow = \"web\"\n", 2),
    ("[guard.test]\napproval = \"yes\"\n", 2),
    ("[guard.test]\napproval_variable = \"A B\"\n", 2),
    ("[guard.test]\napproval_variable = \"\"\n", 2),
    ("[guard.test]\nscope = \"tests\"\n", 2),
    ("[guard.test]\nscope = []\n", 2),
    ("[guard.test]\ncommands = []\n", 2),
    ("[guard.kill]\nsignals = []\n", 2),
    ("[guard.service]\nverbs = []\n", 2),
    ("[guard.service]\nverbs = [\"Stop\"]\n", 2),
    ("[guard.service]\nprotect = [\"\"]\n", 2),
    ("[guard.kill]\nprotect = [\"a\\u0000\"]\n", 2),
    ("[guard.kill]\nprotect = [\"a\\nb\"]\n", 2),
    ("[guard.kill]\nprotect = [[\"a\"]]\n", 2),
    ("[guard.kill]\nusers = {}\n", 2),
    ("[guard.kill]\nprotect_users = 0\n", 2),
    ("[Guard]\nmax_effect = \"read\"\n", 1),
    ("[guard]\nMost = \"read\"\n", 2),
    ("[guard]\nmax_effect = \"Read\"\n", 2),
    ("[guard]\ndeny = [\"kill \"]\n", 2),
    ("[guard]\nmax_effect = \"read\"\n[guard]\nmax_effect = \"write\"\n", 3),
];

#[test]
fn a_policy_that_cant_be_read_allows_nothing() {
    let env = TestEnv::as_me();
    let mut stranger = Stranger::asleep(&env);
    for (text, line) in POLICIES {
        policy(&env, text);
        let (done, acts) = traced(&env, "kill", &[&stranger.pid()]);
        let envelope = done.envelope();
        assert_eq!((done.code(), code(&done).as_str()), (Some(2), "bad_config"), "{text}: {}", done.stdout);
        assert_eq!(envelope["error"]["details"]["line"], line, "{text}: {envelope}");
        assert!(!envelope["error"]["hint"].as_str().unwrap_or_default().is_empty(), "{text}");
        assert_eq!(acts, Vec::<String>::new(), "{text}");
        let start = verb(&env, "start").args(["--", "touch", "made"]).finish();
        assert_eq!(start.code(), Some(2), "{text}: {}", start.stderr);
    }
    assert!(stranger.is_alive() && !env.path("made").exists());
    // What runs can still be looked at and stopped.
    policy(&env, "");
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    policy(&env, POLICIES[0].0);
    assert_eq!(verb(&env, "list").finish().code(), Some(0));
    let done = verb(&env, "stop").args([&job.id]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
}

#[test]
fn a_stop_under_a_policy_that_cant_be_read_says_so_and_so_does_the_log() {
    // An ordinary user: root can read every file.
    let env = TestEnv::new(User::Ordinary);
    let [job, lost] = [(); 2].map(|()| env.start().command(["sleep", &env.oracle.nap()]).begin());
    policy(&env, "");
    let rules = env.write(".config/quell/guard.toml", "[guard]\ndeny = [\"stop\"]\n");
    assert_eq!(verb(&env, "stop").args([&job.id]).finish().code(), Some(4));
    fs::set_permissions(&rules, fs::Permissions::from_mode(0o000)).expect("chmod");
    let unread = |text: &str| text.contains("could not be read") && text.contains("guard.toml");
    let done = verb(&env, "stop").args([&job.id]).finish();
    assert_eq!((done.code(), job.is_over()), (Some(0), true), "{}", done.stderr);
    assert!(unread(&done.stderr) && done.stderr.contains("only looking and stopping"), "{}", done.stderr);
    let reason = |line: &Value| line["decision"]["reason"].as_str().unwrap_or_default().to_owned();
    let stopped = lines(&env, "stop");
    assert_eq!(kinds(&stopped), ["decision", "decision", "act"], "{stopped:#?}");
    assert!(stopped[1..].iter().all(|line| unread(&reason(line))), "{stopped:#?}");
    // A command that only looks finishes the stop of a lost job.
    lost.lose();
    let _ = verb(&env, "list").finish();
    let swept = lines(&env, "sweep");
    assert!(kinds(&swept) == ["act"] && unread(&reason(&swept[0])), "{swept:#?}");
}

#[test]
fn what_a_broken_policy_refuses_is_in_the_log() {
    let env = TestEnv::as_me();
    policy(&env, "[guard]\nmax_effect = \"reed\"\n");
    for words in [
        &["start", "--", "true"][..],
        &["run", "--", "true"],
        &["run", "--no-record", "--", "true"],
        &["rm", "web"],
        &["gc"],
        &["signal", "web", "HUP"],
        &["send", "web", "x"],
        &["restart", "web"],
        &["man", "--dir", "man"],
        &["kill", "4711"],
        &["service", "stop", "web"],
        &["test", "--", "true"],
    ] {
        let name = if words[0] == "service" { "service stop" } else { words[0] };
        let before = lines(&env, name).len();
        let done = verb(&env, words[0]).args(&words[1..]).finish();
        assert_eq!(done.code(), Some(if name == "run" { 125 } else { 2 }), "{words:?}: {}", done.stderr);
        let now = lines(&env, name);
        assert_eq!(now.len(), before + 1, "{words:?}: {now:#?}");
        let decision = &now[before]["decision"];
        assert_eq!((&decision["allowed"], &decision["code"]), (&false.into(), &"bad_config".into()));
    }
    assert!(!env.path("man").exists());
}

/// The lines of the log that are about this verb.
fn lines(env: &TestEnv, verb: &str) -> Vec<Value> {
    let log = fs::read_to_string(env.home().join("audit.jsonl")).unwrap_or_default();
    let all = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    all.filter(|line| line["verb"] == verb).collect()
}

fn kinds(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["kind"].as_str()).collect()
}

#[test]
fn what_is_started_run_and_stopped_is_in_the_log_by_its_job() {
    let env = TestEnv::as_me();
    let jobs: Vec<_> = (0..2)
        .map(|_| env.start().args(["--tag", "q=1"]).command(["sleep", &env.oracle.nap()]).begin())
        .collect();
    let ids: Vec<&str> = jobs.iter().map(|job| job.id.as_str()).collect();
    let started = lines(&env, "start");
    assert_eq!(kinds(&started), ["decision", "act", "decision", "act"], "{started:#?}");
    let acts: Vec<&Value> = started.iter().filter(|line| line["kind"] == "act").collect();
    assert!(
        acts.iter().all(|line| line["target"] == "sleep" && line["result"]["started"] == true),
        "{acts:#?}"
    );
    assert_eq!(acts.iter().filter_map(|line| line["receipt"].as_str()).collect::<Vec<_>>(), ids);

    let done = verb(&env, "stop").args(["--tag", "q=1", "--now", "--reason", "because"]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let stopped = lines(&env, "stop");
    assert_eq!(kinds(&stopped), ["decision", "act", "act"], "{stopped:#?}");
    assert!(stopped.iter().all(|line| line["cause"] == "because"), "{stopped:#?}");
    assert_eq!(stopped[0]["target"], "--tag q=1");
    // They are stopped at the same time, and each line is written when its job is gone.
    let mut gone: Vec<&str> = stopped[1..].iter().filter_map(|line| line["receipt"].as_str()).collect();
    gone.sort_unstable();
    assert_eq!(gone, ids);
    for line in &stopped[1..] {
        assert_eq!(line["target"], line["receipt"], "{line:#}");
        assert_eq!(line["result"]["verdict"]["kind"], "gone", "{line:#}");
    }

    let run = verb(&env, "run").args(["--json", "--", "true"]).finish();
    assert_eq!(run.code(), Some(0), "{}", run.stderr);
    let ran = lines(&env, "run");
    assert_eq!(kinds(&ran), ["decision"], "one line, for a run has to be cheap");
    assert_eq!(ran[0]["receipt"], run.envelope()["data"]["job"]["id"], "{ran:#?}");
    let failed = verb(&env, "start").args(["--", "no-such-program"]).finish();
    let line = lines(&env, "start").pop().expect("a line");
    assert_eq!(
        (failed.code(), &line["kind"], &line["result"]["error"]),
        (Some(127), &"act".into(), &"program_not_found".into()),
        "{line:#}"
    );
}

#[test]
fn what_the_kernel_refuses_and_why_it_was_wanted_is_in_the_log() {
    let env = TestEnv::as_me();
    policy(&env, "[guard.kill]\nallow = [\"*\"]\nusers = [\"*\"]\nmin_pid = 2\n");
    let mut zombie = Command::new("true").spawn().expect("true");
    let is_zombie = || Process::now(zombie.id()).and_then(|process| process.state()) == Some('Z');
    assert!(eventually(PATIENCE, is_zombie));
    let pid = zombie.id().to_string();
    let done = verb(&env, "kill").args(["--json", "--reason", "it hangs", &pid]).finish();
    zombie.wait().expect("wait");
    assert_eq!(done.code(), Some(3), "{}", done.stdout);
    let line = lines(&env, "kill").pop().expect("a line");
    assert_eq!((&line["target"], &line["cause"]), (&pid.into(), &"it hangs".into()), "{line:#}");
    assert_eq!(
        (&line["decision"]["code"], &line["decision"]["allowed"]),
        (&"no_such_process".into(), &false.into())
    );
    let done = verb(&env, "service").args(["stop", "ssh", "--reason", "for a test", "--json"]).finish();
    assert_eq!(done.code(), Some(4), "{}", done.stdout);
    assert_eq!(lines(&env, "service stop")[0]["cause"], "for a test");
    let done = verb(&env, "test").args(["--reason", "for a test", "--", "true"]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(lines(&env, "test").iter().all(|line| line["cause"] == "for a test"));
}

#[test]
fn a_check_takes_the_words_of_what_it_checks() {
    let env = TestEnv::as_me();
    for words in [
        &["kill", "1", "--grace", "1s", "--reason", "x", "--tree"][..],
        &["service", "stop", "--force"],
        &["service", "stop", "ssh", "--timeout", "5s", "--reason", "x"],
        &["test", "--timeout", "5m", "--grace", "1s", "--leak", "report", "--junit", "../x", "--", "true"],
    ] {
        let done = verb(&env, "guard").args(["check", words[0], "--json"]).args(&words[1..]).finish();
        assert_eq!(done.code(), Some(4), "{words:?}: {}{}", done.stdout, done.stderr);
    }
    let done = verb(&env, "service").args(["stop", "--force", "--json"]).finish();
    assert_eq!((done.code(), code(&done).as_str()), (Some(4), "SERVICE_OPTION"), "{}", done.stdout);
    let done = verb(&env, "service").args(["stop", "--user", "--json", "ssh"]).finish();
    assert_eq!((done.code(), code(&done).as_str()), (Some(4), "SERVICE_PROTECTED"), "{}", done.stdout);
    policy(&env, "[guard.kill]\nallow = [1]\n");
    let done = verb(&env, "config").args(["show"]).finish();
    let said = "guard.kill.allow: must be a string, not integer `1`";
    assert!(done.stderr.contains(said) || done.stdout.contains(said), "{}{}", done.stdout, done.stderr);
}
