//! Every way in which quell runs a program passes the guard: also the roles in which it executes itself, a restart, and what
//! only looks like one of its helpers.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::{
        fd::OwnedFd,
        unix::{fs::symlink, net::UnixStream},
    },
    path::Path,
};

use quell_tests::{
    eventually,
    host::am_root,
    run::{Finished, PATIENCE, Quell},
    skip,
    test_env::TestEnv,
};
use serde_json::{Value, json};

use crate::{
    cli::bad_input::one_clear_line,
    guard::decisions::{code, policy, verb},
    test_verb::audit,
};

/// Policies that let no program be started, and the code of the refusal.
const CLOSED: [(&str, &str); 4] = [
    ("[guard]\nmax_effect = \"read\"\n", "EFFECT_DENIED"),
    ("[guard]\ndeny = [\"start\"]\n", "VERB_DENIED"),
    ("[guard]\ndeny = [\"run\", \"start\", \"test\"]\n", "VERB_DENIED"),
    ("[guard]\nmax_effect = \"reed\"\n", "bad_config"),
];

/// What a keeper of this command is asked, as a caller of `quell __keep` can write it.
fn request(env: &TestEnv, command: &[&str], terms: Value) -> Value {
    json!({
        "home": env.home(),
        "request": {
            "command": command, "cwd": env.dir(), "env": { "clear": true, "set": [["PATH", "/usr/bin:/bin"]] },
            "mode": { "background": { "max_log": 1 << 20, "test": terms } },
        },
    })
}

/// What only a background job has, in such a request.
fn background(message: &mut Value) -> &mut Value {
    &mut message["request"]["mode"]["background"]
}

/// `quell __keep` with this request on a socket, as its own caller gives it.
fn keep(env: &TestEnv, request: &Value) -> Finished {
    keep_by(verb(env, "__keep"), request)
}

fn keep_by(role: Quell<'_>, request: &Value) -> Finished {
    let (mut ours, theirs) = UnixStream::pair().expect("a socket pair");
    ours.write_all(format!("{request}\n").as_bytes()).expect("it is read");
    let done = role.stdin(File::from(OwnedFd::from(theirs))).finish();
    // A caller that is gone before the answer has its job stopped.
    ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    BufReader::new(ours).read_line(&mut String::new()).expect("an answer");
    done
}

/// The last line of the log.
fn last(env: &TestEnv) -> Value {
    audit(env).pop().expect("a line in the audit log")
}

#[test]
fn a_request_for_a_keeper_passes_the_guard() {
    let env = TestEnv::as_me();
    let made = env.path("made");
    let touch = request(&env, &["touch", &made.to_string_lossy()], Value::Null);
    for (rules, code) in CLOSED {
        policy(&env, rules);
        let lines = audit(&env).len();
        assert_eq!(keep(&env, &touch).code(), Some(4), "{rules}");
        assert_eq!(audit(&env).len(), lines + 1, "{rules}");
        let line = last(&env);
        assert_eq!((&line["verb"], &line["target"]), (&json!("start"), &json!("touch")), "{line:#}");
        assert_eq!((&line["decision"]["code"], &line["decision"]["allowed"]), (&json!(code), &json!(false)));
        assert!(env.ids("jobs").is_empty(), "{rules}");
    }
    assert!(!made.exists());
    // Where a start is allowed, so is this; and the log has its line.
    policy(&env, "");
    assert_eq!(keep(&env, &touch).code(), Some(0));
    assert!(eventually(PATIENCE, || made.exists()));
    assert_eq!((&last(&env)["verb"], &last(&env)["decision"]["allowed"]), (&json!("start"), &json!(true)));
    assert!(eventually(PATIENCE, || env.ids("live").is_empty()));
}

#[test]
fn a_role_without_a_request_says_so() {
    let env = TestEnv::as_me();
    let nonsense = env.write("nonsense", "{\"home\": 1}\n");
    for role in ["__keep", "__hooks"] {
        let done = verb(&env, role).stdin(File::open(&nonsense).expect("a file")).finish();
        one_clear_line(&done, 2);
        assert!(done.stderr.contains("request"), "{}", done.stderr);
    }
}

#[test]
fn a_start_is_in_the_log_once_with_the_process_that_called_it() {
    let env = TestEnv::as_me();
    let job = env.start().command(["true"]).begin();
    let lines = audit(&env);
    let kinds: Vec<_> = lines.iter().map(|line| (&line["kind"], &line["verb"])).collect();
    assert_eq!(
        kinds,
        [(&json!("decision"), &json!("start")), (&json!("act"), &json!("start"))],
        "{lines:#?}"
    );
    assert_eq!(
        (&lines[0]["actor"], &lines[1]["receipt"]),
        (&lines[1]["actor"], &json!(job.id)),
        "{lines:#?}"
    );
    assert!(job.wait_over(PATIENCE));
}

#[test]
fn without_its_line_in_the_log_nothing_is_started() {
    let env = TestEnv::as_me();
    assert_eq!(env.start().command(["true"]).finish().code(), Some(0));
    assert!(eventually(PATIENCE, || env.ids("live").is_empty()));
    fs::remove_file(env.home().join("audit.jsonl")).expect("the log");
    fs::create_dir(env.home().join("audit.jsonl")).expect("mkdir");
    let made = env.path("made");
    let done = env.start().args(["--json"]).command(["touch".as_ref(), made.as_os_str()]).finish();
    assert_eq!((done.code(), code(&done).as_str()), (Some(125), "record_unwritable"), "{}", done.stdout);
    let done = env.run().args(["--json"]).command(["touch".as_ref(), made.as_os_str()]).finish();
    assert_eq!((done.code(), code(&done).as_str()), (Some(125), "record_unwritable"), "{}", done.stdout);
    assert!(done.stdout.contains("audit.jsonl") && done.stdout.contains("--no-record"), "{}", done.stdout);
    assert!(!made.exists());
    let done = env.run().args(["--no-record"]).command(["touch".as_ref(), made.as_os_str()]).finish();
    assert_eq!((done.code(), made.exists()), (Some(0), true), "{}", done.stderr);
}

/// With `start` denied and `test` allowed, a request has to pass as the test run that it says it is.
#[test]
fn a_test_run_passes_where_only_tests_are_allowed_and_nothing_else_does() {
    let env = TestEnv::as_me();
    fs::create_dir(env.path("tests")).expect("mkdir");
    let script = env.script("check", "#!/bin/sh\ntouch made\n");
    let (made, name) = (env.path("made"), script.to_string_lossy().into_owned());
    let rules = "[guard]\ndeny = [\"run\", \"start\"]\n[guard.test]\ncommands = [\"check\"]\n";
    policy(&env, rules);
    let done = verb(&env, "test").args(["--json"]).command([&name]).finish();
    assert_eq!((done.code(), made.exists()), (Some(0), true), "{}{}", done.stdout, done.stderr);
    fs::remove_file(&made).expect("it was made");

    let hook = json!({ "on": ["started"], "action": { "run": ["touch", made] }, "timeout": { "secs": 5, "nanos": 0 } });
    let mut hooked = request(&env, &[&name], json!({}));
    hooked["request"]["hooks"] = json!([hook]);
    let mut probed = request(&env, &[&name], json!({}));
    let ready =
        json!({ "rules": { "cmd": format!("touch {}", made.display()) }, "interval": 1.0, "timeout": 1.0 });
    background(&mut probed)["ready"] = ready;
    let outside = request(&env, &[&name], json!({ "scope": ["/etc"] }));
    let other = request(&env, &["touch", "made"], json!({}));
    let start = request(&env, &[&name], Value::Null);
    for (what, forged) in
        [("hook", hooked), ("probe", probed), ("scope", outside), ("command", other), ("start", start)]
    {
        assert_eq!(keep(&env, &forged).code(), Some(4), "{what}");
        assert_eq!(last(&env)["decision"]["allowed"], false, "{what}");
    }
    assert!(!made.exists());
    policy(&env, &format!("{rules}approval = true\n"));
    assert_eq!(keep(&env, &request(&env, &[&name], json!({}))).code(), Some(4));
    assert_eq!(last(&env)["decision"]["code"], "APPROVAL_REQUIRED");
    assert!(!made.exists());
}

/// The other fields of a request are not a way around the check of a test run.
#[test]
fn a_request_for_a_test_run_carries_no_code_past_the_check() {
    let env = TestEnv::as_me();
    fs::create_dir_all(env.path("tests")).expect("mkdir");
    fs::create_dir_all(env.path("other/tests")).expect("mkdir");
    let (made, said) = (env.path("made"), env.path("said"));
    let evil = env.write("evil.sh", &format!("touch {}\n", made.display()));
    let text = format!("#!/bin/bash\ncat >> {said} 2>&1\nenv >> {said}\n", said = said.display());
    let (script, elsewhere) = (env.script("tests/check", &text), env.script("other/tests/check", &text));
    let scope = env.path("tests");
    policy(&env, &format!("[guard]\ndeny = [\"run\", \"start\"]\n[guard.test]\nscope = [{scope:?}]\n"));
    let name = script.to_string_lossy().into_owned();
    let sound = || request(&env, &[&name], json!({}));
    let bash_env = json!(["BASH_ENV", evil]);
    let finish = |what: &str, done: Finished| {
        assert_eq!(done.code(), Some(0), "{what}");
        let over = || fs::read_to_string(&said).is_ok_and(|text| text.contains("QUELL_JOB="));
        assert!(eventually(PATIENCE, over), "{what}");
        assert!(eventually(PATIENCE, || env.ids("live").is_empty()), "{what}");
        assert!(!made.exists(), "{what}");
        let text = fs::read_to_string(&said).expect("it was written");
        fs::remove_file(&said).expect("it was written");
        text
    };

    let mut set = sound();
    set["request"]["env"]["set"].as_array_mut().expect("a list").push(bash_env);
    let text = finish("a variable of the request", keep(&env, &set));
    assert!(!text.contains("BASH_ENV"), "{text}");

    let mut inherited = sound();
    inherited["request"]["env"]["clear"] = json!(false);
    let role = verb(&env, "__keep").env("BASH_ENV", &evil);
    let text = finish("a variable of the role", keep_by(role, &inherited));
    assert!(!text.contains("BASH_ENV"), "{text}");

    // A test run reads nothing, and is not started again.
    let fed = env.write("fed", "fed to it\n");
    let mut more = sound();
    background(&mut more)["stdin"] = json!({ "file": fed });
    background(&mut more)["restart"] =
        json!({ "policy": "always", "limit": 1, "delay": 0.0, "max_delay": 1.0 });
    let text = finish("the rest", keep(&env, &more));
    assert!(!text.contains("fed to it"), "{text}");
    assert_eq!(text.matches("QUELL_JOB=").count(), 1, "{text}");

    // The settings of the directory in which it is asked for hold.
    let mut moved = request(&env, &[&elsewhere.to_string_lossy()], json!({}));
    moved["request"]["cwd"] = json!(env.path("other"));
    policy(&env, "[guard]\ndeny = [\"run\", \"start\"]\n[guard.test]\nscope = [\"tests\"]\n");
    let mut named = sound();
    named["request"]["name"] = json!("../../name");
    for (what, forged, wanted) in [("cwd", moved, Some(4)), ("name", named, Some(1))] {
        assert_eq!(keep(&env, &forged).code(), wanted, "{what}");
        assert!(!said.exists() && env.ids("jobs").len() == 3, "{what}");
    }
}

/// A job that is over and had this hook at its end; the file that the hook makes is removed.
fn hooked<'l>(env: &'l TestEnv, made: &Path, on: &str) -> quell_tests::jobs::Background<'l> {
    policy(env, &format!("[[hooks]]\non = [\"{on}\"]\nrun = [\"touch\", {made:?}]\n"));
    verb(env, "start").command(["sleep", &env.oracle.nap()]).begin()
}

#[test]
fn hooks_of_a_record_run_only_where_a_start_is_allowed() {
    let env = TestEnv::as_me();
    let made = env.path("made");
    let job = hooked(&env, &made, "ended");
    assert_eq!(job.stop(&["--now"]).code(), Some(0));
    assert!(eventually(PATIENCE, || made.exists()));
    fs::remove_file(&made).expect("it was made");
    let events = fs::read_to_string(job.dir().join("events.jsonl")).expect("a history");
    let ended: Value = serde_json::from_str(events.lines().last().expect("an event")).expect("JSON");
    let message = json!({ "home": env.home(), "job": job.id, "events": [ended] });
    let tell = || {
        let file = File::open(env.write("message", &format!("{message}\n"))).expect("it was written");
        verb(&env, "__hooks").stdin(file).finish()
    };
    for (rules, code) in CLOSED {
        policy(&env, rules);
        assert_eq!(tell().code(), Some(4), "{rules}");
        let line = last(&env);
        assert_eq!(line["decision"]["code"], code, "{line:#}");
        assert_eq!(line["target"], format!("hooks of {}", job.id), "{line:#}");
    }
    assert!(!made.exists());
    policy(&env, "");
    assert_eq!(tell().code(), Some(0));
    assert!(eventually(PATIENCE, || made.exists()));
}

#[test]
fn a_verb_that_only_looks_does_not_run_the_hooks_of_a_lost_job_where_nothing_may_be_started() {
    let env = TestEnv::as_me();
    let made = env.path("made");
    let job = hooked(&env, &made, "lost");
    job.lose();
    policy(&env, "[guard]\ndeny = [\"run\", \"start\"]\n");
    // Beside other tests it may not be provable that the lost job is gone.
    let list = verb(&env, "list").finish();
    assert!(matches!(list.code(), Some(0 | 5)), "{}", list.stderr);
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    let line = last(&env);
    assert_eq!((&line["verb"], &line["decision"]["allowed"]), (&json!("start"), &json!(false)), "{line:#}");
    assert!(!made.exists());
}

#[test]
fn a_parent_that_looks_like_a_helper_of_quells_gives_no_rights() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let (quell, link, made, said) =
        (env.quell_path(), env.path("quell-helper"), env.path("made"), env.path("said"));
    symlink(&quell, &link).expect("a link");
    // The shell becomes a quell with the name of a helper; its child was there before.
    let script = format!(
        "p=$$; (until [ \"$(cat /proc/$p/comm)\" = quell-helper ]; do :; done; \
         exec {} run --no-record -- touch {} 2>{}) & exec {} wait {}",
        quell.display(),
        made.display(),
        said.display(),
        link.display(),
        job.id
    );
    let text = || fs::read_to_string(&said).unwrap_or_default();
    let forge = |rules: &str| {
        policy(&env, rules);
        let _ = fs::remove_file(&said);
        let forged = verb(&env, "list").wrapped(["sh", "-c", &script, "sh"]).start();
        assert!(eventually(PATIENCE, || made.exists() || !text().is_empty()));
        forged
    };
    let first = forge(CLOSED[0].0);
    assert!(!made.exists() && text().contains("at most"), "{}", text());
    let second = forge("[guard]\ndeny = [\"run\"]\n");
    assert!(!made.exists(), "{}", text());
    let line = last(&env);
    let found = (&line["verb"], &line["decision"]["allowed"], &line["target"]);
    assert_eq!(found, (&json!("run"), &json!(false), &json!("touch")), "{line:#}");
    policy(&env, "");
    assert_eq!(job.stop(&["--now"]).code(), Some(0));
    first.finish();
    second.finish();
}

#[test]
fn a_refused_run_is_in_the_log_also_without_a_record() {
    let env = TestEnv::as_me();
    policy(&env, "[guard]\ndeny = [\"run\"]\n");
    let done = verb(&env, "run").args(["--no-record"]).command(["true"]).finish();
    assert_eq!(done.code(), Some(125), "{}", done.stderr);
    let line = last(&env);
    assert_eq!((&line["verb"], &line["decision"]["allowed"]), (&json!("run"), &json!(false)), "{line:#}");
    policy(&env, "");
    let lines = audit(&env).len();
    assert_eq!(verb(&env, "run").args(["--no-record"]).command(["true"]).finish().code(), Some(0));
    assert_eq!(audit(&env).len(), lines);
}

#[test]
fn the_machines_policy_binds_the_roles_that_quell_executes_itself_in() {
    let name = "the_machines_policy_binds_the_roles_that_quell_executes_itself_in";
    if !am_root() {
        return skip(name, "needs root to put a file below /etc");
    }
    let env = TestEnv::as_me();
    fs::create_dir_all(env.path("etc/quell")).expect("mkdir");
    env.write("etc/quell/guard.toml", CLOSED[0].0);
    let made = env.path("made");
    let touch = request(&env, &["touch", &made.to_string_lossy()], Value::Null);
    let file = File::open(env.write("request", &format!("{touch}\n"))).expect("it was written");
    let mount = format!("mount --bind {} /etc && exec \"$@\"", env.path("etc").display());
    let words = ["unshare", "-m", "sh", "-c", &mount, "sh"];
    let done = verb(&env, "__keep").wrapped(words).env("QUELL_CONFIG", "/dev/null").stdin(file).finish();
    assert_eq!(done.code(), Some(4), "{}", done.stderr);
    assert_eq!(last(&env)["decision"]["code"], "EFFECT_DENIED");
    assert!(!made.exists());
}

#[test]
fn a_restart_is_admitted_as_the_start_that_it_is() {
    let env = TestEnv::as_me();
    policy(&env, "");
    let job = verb(&env, "start").command(["sleep", &env.oracle.nap()]).begin();
    for (rules, wanted) in &CLOSED[1..] {
        policy(&env, rules);
        let done = verb(&env, "restart").args(["--json", "--now", &job.id]).finish();
        let exit = if *wanted == "bad_config" { 2 } else { 4 };
        assert_eq!((done.code(), code(&done).as_str()), (Some(exit), *wanted), "{}", done.stdout);
        assert!(!job.is_over(), "it was stopped before it was refused");
        if exit == 4 {
            let line = last(&env);
            assert_eq!((&line["verb"], &line["target"]), (&json!("start"), &json!("sleep")), "{line:#}");
        }
    }
    policy(&env, "[guard]\ndeny = [\"run\", \"test\"]\n");
    let done = verb(&env, "restart").args(["--now", &job.id]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(last(&env)["verb"], "start");
    assert_eq!(env.job(done.stdout.trim()).stop(&["--now"]).code(), Some(0));
}

/// A restart that is refused, or that can't be written down, stops nothing.
#[test]
fn a_restart_is_admitted_as_the_stop_that_it_is_and_with_a_line_in_the_log() {
    let env = TestEnv::as_me();
    policy(&env, "");
    let job = verb(&env, "start").command(["sleep", &env.oracle.nap()]).begin();
    policy(&env, "[guard]\ndeny = [\"stop\"]\n");
    let done = verb(&env, "restart").args(["--json", "--now", &job.id]).finish();
    assert_eq!((done.code(), code(&done).as_str()), (Some(4), "VERB_DENIED"), "{}", done.stdout);
    let line = last(&env);
    assert_eq!((&line["verb"], &line["decision"]["allowed"]), (&json!("restart"), &json!(false)), "{line:#}");
    let done = verb(&env, "guard").args(["check", "verb", "restart", "--json"]).finish();
    assert_eq!(done.envelope()["data"]["decision"]["code"], "VERB_DENIED", "{}", done.stdout);
    assert!(!job.is_over(), "it was stopped before it was refused");
    policy(&env, "");
    let log = env.home().join("audit.jsonl");
    fs::rename(&log, env.path("kept")).expect("the log");
    fs::create_dir(&log).expect("mkdir");
    let done = verb(&env, "restart").args(["--json", "--now", &job.id]).finish();
    assert_eq!((done.code(), code(&done).as_str()), (Some(125), "record_unwritable"), "{}", done.stdout);
    assert!(done.stdout.contains("audit.jsonl"), "{}", done.stdout);
    assert!(!job.is_over(), "it was stopped, and could not be started again");
    assert_eq!(job.stop(&["--now"]).code(), Some(0), "a stop needs no line");
}

#[test]
fn a_test_run_is_not_restarted() {
    let env = TestEnv::as_me();
    let made = env.path("made");
    policy(&env, "");
    let done = verb(&env, "test").args(["--json"]).command(["touch".as_ref(), made.as_os_str()]).finish();
    let job = done.envelope()["data"]["job"].as_str().expect("a job").to_owned();
    fs::remove_file(&made).expect("it was made");
    policy(&env, "[guard.test]\napproval = true\n");
    let done = verb(&env, "restart").args(["--json", &job]).finish();
    assert_eq!(done.code(), Some(1), "{}", done.stdout);
    assert!(done.envelope()["error"]["message"].to_string().contains("quell test"), "{}", done.stdout);
    assert!(!made.exists());
}

#[test]
fn words_for_a_report_are_not_taken_from_the_request_of_a_test_run() {
    let env = TestEnv::as_me();
    policy(&env, "[guard]\ndeny = [\"start\"]\n");
    let [made, forged] = ["made", "forged"].map(|name| env.path(name));
    let report = json!({ "report": { "at": 1, "words": [forged, ""] } });
    let done = keep(&env, &request(&env, &["touch", &made.to_string_lossy()], report));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(eventually(PATIENCE, || made.exists()), "it is run");
    assert!(eventually(PATIENCE, || env.ids("live").is_empty()), "it ends");
    assert!(!forged.exists());
}
