//! Ways around the guard that were tried: each of them was open once, or could be.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    process::{Child, Command, Stdio},
};

use quell_tests::{
    eventually,
    host::{User, am_root, has_program},
    oracle::Process,
    run::PATIENCE,
    skip,
    test_env::{TestEnv, copy_program},
};
use serde_json::Value;

use crate::{
    guard::decisions::{Stranger, code, policy, traced, verb},
    guard::service_edges::{can_pretend, instead},
};

const ALL: &str = "[guard.kill]\nallow = [\"*\"]\nusers = [\"*\"]\nmin_pid = 2\n";

fn is_called(pid: u32, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end_matches('\n') == name)
}

/// A child of the test's own that ends with it.
struct Own(Child);

impl Own {
    fn new(env: &TestEnv, program: &str, words: &[&str]) -> Own {
        let mut command = Command::new(program);
        command.args(words).current_dir(env.dir()).stdin(Stdio::null()).stdout(Stdio::null());
        Own(command.env("QUELL_TEST", env.oracle.token()).spawn().expect("a program"))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().expect("wait").is_none()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[test]
fn a_process_that_becomes_protected_in_its_grace_is_not_killed() {
    let env = TestEnv::as_me();
    policy(&env, &format!("{ALL}protect = [\"postgres\"]\n"));
    let script =
        "trap 'exec -a postgres sleep $N' TERM; touch $HERE/ready; while :; do read -t 0.1 <><(:); done";
    let mut stranger = Stranger::new(&env, env.user(), script);
    let done = verb(&env, "kill").args(["--json", "--grace", "3s", &stranger.pid()]).finish();
    assert!(stranger.is_alive(), "{}", done.stdout);
    let data = &done.envelope()["data"];
    assert_eq!((done.code(), &data["kill"]), (Some(5), &Value::Null), "{data}");
    assert_eq!(data["verdict"]["kind"], "survivors", "{data}");
    assert_eq!(data["members"][0]["spared"]["code"], "NAME_PROTECTED", "{data}");
}

#[test]
fn the_signals_of_the_policy_hold_for_the_last_one_too() {
    let env = TestEnv::as_me();
    policy(&env, &format!("{ALL}signals = [\"TERM\"]\n"));
    let script = "trap '' TERM; touch $HERE/ready; while :; do read -t 60 <><(:); done";
    let mut stranger = Stranger::new(&env, env.user(), script);
    let done = verb(&env, "kill").args(["--json", "--grace", "200ms", &stranger.pid()]).finish();
    assert!(stranger.is_alive(), "{}", done.stdout);
    let data = &done.envelope()["data"];
    assert_eq!((done.code(), &data["kill"]), (Some(5), &Value::Null), "{data}");
    assert_eq!(data["members"][0]["spared"]["code"], "SIGNAL_NOT_ALLOWED", "{data}");
    let done = verb(&env, "kill").args(["--grace", "0", &stranger.pid()]).finish();
    assert!(done.stdout.contains("SIGNAL_NOT_ALLOWED"), "{}", done.stdout);
}

#[test]
fn a_verb_that_is_denied_does_not_show_which_processes_exist() {
    let env = TestEnv::as_me();
    policy(&env, "[guard]\ndeny = [\"kill\", \"service stop\"]\n");
    for (words, wanted) in [
        (["kill", "4194304"].as_slice(), "VERB_DENIED"),
        (&["kill", "0"], "PID_ZERO"),
        (&["service", "stop", "a b"], "SERVICE_WHITESPACE"),
        (&["service", "stop", "web"], "VERB_DENIED"),
    ] {
        let act = verb(&env, words[0]).args(&words[1..]).args(["--json"]).finish();
        assert_eq!((act.code(), code(&act).as_str()), (Some(4), wanted), "{words:?}: {}", act.stdout);
        let check = verb(&env, "guard").args(["check"]).args(words).args(["--json"]).finish();
        assert_eq!(check.code(), Some(4), "{words:?}: {}", check.stdout);
        assert_eq!(check.envelope()["data"]["decision"]["code"], wanted, "{words:?}");
    }
}

#[test]
fn a_copy_of_quell_by_another_name_is_one_of_quells_own() {
    let env = TestEnv::as_me();
    policy(&env, ALL);
    let copy = env.path("mill");
    copy_program(&env.quell_path(), &copy);
    let mut front = Own(env.run().program(copy).command(["sleep", &env.oracle.nap()]).spawn());
    let process = Process::now(front.0.id()).expect("it lives");
    assert!(eventually(PATIENCE, || is_called(front.0.id(), "mill") && !process.children().is_empty()));
    let (done, acts) = traced(&env, "kill", &[&front.pid()]);
    assert_eq!((code(&done).as_str(), acts.len()), ("PID_IS_QUELL", 0), "{}", done.stdout);
    assert!(front.is_alive());
    assert!(process.signal("TERM"));
    front.0.wait().expect("wait");
}

#[test]
fn an_environment_neither_hides_a_member_of_a_job_nor_makes_one() {
    let env = TestEnv::as_me();
    policy(&env, ALL);
    let nap = env.oracle.nap();
    let job = env.start().args(["--contain", "reaper"]).command(["env", "-i", "sleep", &nap]).begin();
    let root = job.process("root").expect("a root");
    assert!(eventually(PATIENCE, || is_called(root.pid, "sleep")));
    let (done, acts) = traced(&env, "kill", &[&root.pid.to_string()]);
    assert_eq!((code(&done).as_str(), acts.len()), ("PID_IN_JOB", 0), "{}", done.stdout);
    assert!(done.stdout.contains(&job.id), "{}", done.stdout);
    // A home that knows nothing of the job: it is a job all the same.
    let done = verb(&env, "kill")
        .env("QUELL_HOME", env.path("other-home"))
        .args(["--json", &root.pid.to_string()])
        .finish();
    assert_eq!(code(&done), "PID_IN_JOB", "{}", done.stdout);
    let done = verb(&env, "kill").env("QUELL_JOB", &job.id).args(["--json", &root.pid.to_string()]).finish();
    assert_eq!(code(&done), "PID_IN_JOB", "{}", done.stdout);
    assert!(!job.is_over() && root.is_alive());
    job.stop(&["--now"]);
    let job = env.start().args(["--contain", "reaper"]).command(["sleep", &nap]).begin();
    let root = job.process("root").expect("a root");
    let done = verb(&env, "kill").env("QUELL_JOB", &job.id).args(["--json", &root.pid.to_string()]).finish();
    assert_eq!(code(&done), "PID_IN_JOB", "{}", done.stdout);
    assert!(root.is_alive());
    job.stop(&["--now"]);
}

#[test]
fn a_member_of_a_job_may_end_another_one_of_it() {
    let env = TestEnv::as_me();
    policy(&env, ALL);
    let quell = env.quell_path();
    let script = format!(
        "sleep {} & {} kill --json $! >{}/said",
        env.oracle.nap(),
        quell.display(),
        env.dir().display()
    );
    let job = env.start().args(["--contain", "reaper"]).command(["sh", "-c", &script]).begin();
    assert!(job.wait_over(PATIENCE));
    let said = fs::read_to_string(env.path("said")).expect("an answer");
    assert!(said.contains("\"kind\":\"gone\""), "{said}");
}

#[test]
fn every_user_that_a_process_has_counts() {
    if !am_root() || !has_program("setpriv") {
        return skip("every_user_that_a_process_has_counts", "needs root and setpriv");
    }
    let env = TestEnv::as_me();
    let mut theirs = Own::new(&env, "setpriv", &["--euid", "65534", "sleep", &env.oracle.nap()]);
    assert!(eventually(PATIENCE, || is_called(theirs.0.id(), "sleep")));
    for (rules, wanted) in [
        ("users = [\"nobody\"]\nprotect_users = [\"root\"]\n", "USER_PROTECTED"),
        ("users = [\"nobody\"]\nprotect_users = [\"0\"]\n", "USER_PROTECTED"),
        ("users = [\"nobody\"]\nprotect_users = [\"65534\"]\n", "USER_PROTECTED"),
        ("users = [\"root\"]\n", "USER_NOT_ALLOWED"),
    ] {
        policy(&env, &format!("[guard.kill]\nallow = [\"*\"]\nmin_pid = 2\n{rules}"));
        let (done, acts) = traced(&env, "kill", &[&theirs.pid()]);
        assert_eq!((code(&done).as_str(), acts.len()), (wanted, 0), "{rules}: {}", done.stdout);
    }
    assert!(theirs.is_alive());
}

#[test]
fn a_process_whose_leader_has_ended_is_known_by_its_threads() {
    if !has_program("python3") || cfg!(not(target_arch = "x86_64")) {
        return skip("a_process_whose_leader_has_ended_is_known_by_its_threads", "needs python3 on x86_64");
    }
    let env = TestEnv::as_me();
    policy(&env, &format!("{ALL}protect = [\"python3*\"]\n"));
    let script = "import ctypes, threading, time, sys\n\
        libc = ctypes.CDLL(None)\n\
        libc.prctl(15, b'innocent', 0, 0, 0)\n\
        threading.Thread(target=time.sleep, args=(60,)).start()\n\
        libc.syscall(60, 0)\n";
    let mut theirs = Own::new(&env, "python3", &["-c", script, &env.oracle.nap()]);
    let process = Process::now(theirs.0.id()).expect("it lives");
    assert!(eventually(PATIENCE, || process.state() == Some('Z')));
    let (done, acts) = traced(&env, "kill", &[&theirs.pid()]);
    assert_eq!((code(&done).as_str(), acts.len()), ("NAME_PROTECTED", 0), "{}", done.stdout);
    assert!(theirs.is_alive());
}

#[test]
fn a_script_is_known_by_its_whole_name() {
    let env = TestEnv::as_me();
    policy(&env, &format!("{ALL}protect = [\"*-agent-name\"]\n"));
    let file = env.script("a-very-long-agent-name", "#!/bin/bash\nwhile :; do read -t 60 <><(:); done\n");
    let mut theirs = Own::new(&env, file.to_str().expect("a path"), &[]);
    assert!(eventually(PATIENCE, || is_called(theirs.0.id(), "a-very-long-age")));
    let (done, acts) = traced(&env, "kill", &[&theirs.pid()]);
    assert_eq!((code(&done).as_str(), acts.len()), ("NAME_PROTECTED", 0), "{}", done.stdout);
    assert!(theirs.is_alive());
}

#[test]
fn a_script_is_protected_wherever_it_stands_in_the_command_line() {
    let env = TestEnv::as_me();
    policy(&env, &format!("{ALL}protect = [\"*-agent\"]\n"));
    let own = env.script("my-agent", "#!/usr/bin/env bash\nwhile :; do read -t 60 <><(:); done\n");
    let own = own.to_str().expect("a path");
    // More than one page of words before it.
    let many = vec!["-e"; 3000];
    let long = [&many[..], &[own]].concat();
    let lines: [(&str, &[&str]); 5] = [
        (own, &[]),
        ("bash", &["-e", own]),
        ("env", &["bash", own]),
        ("bash", &["--norc", "-u", "my-agent"]),
        ("bash", &long),
    ];
    for (program, words) in lines {
        let mut theirs = Own::new(&env, program, words);
        assert!(eventually(PATIENCE, || is_called(theirs.0.id(), "bash")), "{program}");
        let (done, acts) = traced(&env, "kill", &[&theirs.pid()]);
        assert_eq!((code(&done).as_str(), acts.len()), ("NAME_PROTECTED", 0), "{program}: {}", done.stdout);
        assert!(done.stdout.contains("`my-agent`") && theirs.is_alive(), "{program}: {}", done.stdout);
    }
    // What allows is compared with names alone.
    policy(&env, "[guard.kill]\nallow = [\"*-agent\"]\nmin_pid = 2\n");
    let mut theirs = Own::new(&env, "bash", &["-e", own]);
    let done = verb(&env, "kill").args(["--json", &theirs.pid()]).finish();
    assert_eq!(code(&done), "NOT_ALLOWED", "{}", done.stdout);
    assert!(theirs.is_alive());
}

#[test]
fn the_manual_is_written_only_where_writing_is_allowed_and_through_no_link() {
    let env = TestEnv::as_me();
    fs::create_dir(env.path("man")).expect("mkdir");
    let kept = env.write("kept", "kept\n");
    let page = env.path("man/quell.1");
    symlink(&kept, &page).expect("a link");
    policy(&env, "[guard]\nmax_effect = \"read\"\n");
    let man = || verb(&env, "man").args(["--dir", "man"]).finish();
    let log = || fs::read_to_string(env.home().join("audit.jsonl")).unwrap_or_default();
    let done = man();
    assert_eq!(done.code(), Some(4), "{}", done.stderr);
    assert_eq!(fs::read_dir(env.path("man")).expect("it").count(), 1);
    assert!(log().contains("EFFECT_DENIED"), "{}", log());
    policy(&env, "");
    let done = man();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(fs::read_to_string(&kept).expect("it"), "kept\n");
    assert!(page.symlink_metadata().expect("a page").is_file());
    assert!(
        log().lines().any(|line| line.contains("\"verb\":\"man\"") && line.contains("ALLOWED")),
        "{}",
        log()
    );
    let all = fs::read_dir(env.path("man")).expect("it").flatten();
    assert!(all.into_iter().all(|file| file.file_name().to_string_lossy().ends_with(".1")));
}

#[test]
fn a_name_steers_neither_a_terminal_nor_a_reader() {
    let env = TestEnv::as_me();
    policy(&env, "[guard.kill]\nmin_pid = 2\n");
    let sleep = ["/usr/bin/sleep", "/bin/sleep"].into_iter().find(|path| fs::metadata(path).is_ok());
    for name in ["*", "\u{1b}[31m\nok", "a\" , \"*"] {
        let link = env.path(name);
        symlink(sleep.expect("sleep"), &link).expect("link");
        let mut theirs = Own::new(&env, link.to_str().expect("a path"), &[&env.oracle.nap()]);
        assert!(eventually(PATIENCE, || is_called(theirs.0.id(), name)), "{name:?}");
        let act = verb(&env, "kill").args([&theirs.pid()]).finish();
        let check = verb(&env, "guard").args(["check", "kill", &theirs.pid()]).finish();
        for (done, said, lines) in [(&act, &act.stderr, 1), (&check, &check.stdout, 2)] {
            assert_eq!(done.code(), Some(4), "{name:?}: {said}");
            assert_eq!(said.lines().count(), lines, "{said:?}");
            assert!(!said.contains('\u{1b}') && !said.contains("add \""), "{said:?}");
        }
        assert!(theirs.is_alive());
    }
}

#[test]
fn the_session_leader_is_an_ancestor_also_if_the_parent_has_exited() {
    let env = TestEnv::as_me();
    policy(&env, ALL);
    let inner = "((\"$1\" kill --json $$ >said 2>&1; touch over) &); exec sleep \"$2\"";
    let words = ["-c", inner, "leader", env.quell_path().to_str().expect("a path"), &env.oracle.nap()]
        .map(str::to_owned);
    let mut leader = Command::new("setsid");
    leader.arg("bash").args(words).current_dir(env.dir()).stdin(Stdio::null());
    leader
        .env("QUELL_HOME", env.home())
        .env("HOME", env.dir())
        .env("XDG_CONFIG_HOME", "")
        .env("QUELL_CONFIG", "");
    let mut leader = Own(leader.spawn().expect("setsid"));
    assert!(eventually(PATIENCE, || env.path("over").exists()));
    let said = fs::read_to_string(env.path("said")).expect("an answer");
    assert!(said.contains("PID_IS_ANCESTOR"), "{said}");
    assert!(leader.is_alive());
}

#[test]
fn a_proc_of_another_namespace_is_not_believed() {
    if !am_root() {
        return skip("a_proc_of_another_namespace_is_not_believed", "needs root for a namespace");
    }
    let env = TestEnv::as_me();
    policy(&env, ALL);
    let nap = env.oracle.nap();
    let script = format!("sleep {nap} & \"$@\" --json $!; code=$?; kill $!; wait; exit $code");
    let words = ["unshare", "-pf", "sh", "-c", &script, "sh"];
    let done = verb(&env, "kill").wrapped(words).finish();
    assert_eq!(done.code(), Some(125), "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("another PID namespace"), "{}", done.stdout);
}

#[test]
fn in_a_container_the_floor_says_what_numbers_mean_there() {
    if !am_root() {
        return skip("in_a_container_the_floor_says_what_numbers_mean_there", "needs root for a namespace");
    }
    let env = TestEnv::as_me();
    policy(&env, "[guard.kill]\nallow = [\"sleep\"]\n");
    let script = format!("sleep {} & \"$@\" --json $!; code=$?; kill $!; wait; exit $code", env.oracle.nap());
    let words = ["unshare", "-pf", "--mount-proc", "sh", "-c", &script, "sh"];
    let done = verb(&env, "kill").wrapped(words).finish();
    assert_eq!(
        (done.code(), code(&done).as_str()),
        (Some(4), "PID_BELOW_FLOOR"),
        "{}{}",
        done.stdout,
        done.stderr
    );
    assert!(done.stdout.contains("container") && done.stdout.contains("min_pid = 2"), "{}", done.stdout);
}

#[test]
fn a_mistake_elsewhere_takes_no_refusal_back() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    policy(&env, "[guard]\ndeny = [\"stop\", \"list\"]\n");
    let refused = |what: &str| {
        for (name, words) in [("stop", vec![job.id.as_str()]), ("list", vec![])] {
            let done = verb(&env, name).args(["--json"]).args(words).finish();
            assert_eq!(
                (done.code(), code(&done).as_str()),
                (Some(4), "VERB_DENIED"),
                "{what}: {}",
                done.stdout
            );
        }
    };
    refused("as it is");
    env.write("quell.toml", "[stop\n");
    refused("a broken project");
    fs::remove_file(env.path("quell.toml")).expect("rm");
    let done = verb(&env, "stop").env("QUELL_STOP_GRACE", "soon").args(["--json", &job.id]).finish();
    assert_eq!(code(&done), "bad_value", "{}", done.stdout);
    assert!(!job.is_over());
    policy(&env, "");
    job.stop(&["--now"]);
}

#[test]
fn a_project_that_is_not_trusted_lowers_nothing() {
    let env = TestEnv::as_me();
    policy(&env, "[guard.test]\napproval = true\n");
    env.write("quell.toml", "[guard.kill]\nmin_pid = 2\n[guard.test]\napproval_variable = \"CI\"\n");
    let shown = || verb(&env, "config").args(["show", "--json"]).finish().envelope()["data"].clone();
    let data = shown();
    for key in ["guard.kill.min_pid", "guard.test.approval_variable"] {
        assert!(data["warnings"].to_string().contains(key), "{data}");
        assert!(!data["values"].to_string().contains(key), "{data}");
    }
    // Any file may raise it: that only refuses more.
    env.write("quell.toml", "[guard.kill]\nmin_pid = 4000000\n");
    assert!(shown()["values"].to_string().contains("4000000"));
}

#[test]
fn the_machines_file_is_roots_alone_and_never_overlooked() {
    if !am_root() || !has_program("setpriv") {
        return skip("the_machines_file_is_roots_alone_and_never_overlooked", "needs root and setpriv");
    }
    let env = TestEnv::as_me();
    policy(&env, ALL);
    fs::create_dir_all(env.path("etc/quell")).expect("mkdir");
    env.write("etc/passwd", "root:x:0:0::/:/bin/sh\n");
    let (dir, file) = (env.path("etc/quell"), env.path("etc/quell/guard.toml"));
    let mode = |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    let ask = |user: &str| {
        let mount = format!(
            "mount --bind {} /etc && exec setpriv --reuid {user} --clear-groups \"$@\"",
            env.path("etc").display()
        );
        let words = ["unshare", "-m", "sh", "-c", &mount, "sh"];
        // It has no home of its own there, and needs none for a refusal.
        verb(&env, "guard").wrapped(words).args(["check", "verb", "stop", "--json"]).finish()
    };
    mode(env.dir(), 0o755);
    for (what, lay) in [
        ("another user's", Box::new(|| chown(&file, Some(65534), None).expect("chown")) as Box<dyn Fn()>),
        ("a group's", Box::new(|| mode(&file, 0o664))),
        ("world-writable", Box::new(|| mode(&file, 0o666))),
        ("behind a closed door", Box::new(|| mode(&dir, 0o700))),
        ("not readable", Box::new(|| mode(&file, 0o600))),
        (
            "a directory",
            Box::new(|| fs::remove_file(&file).and_then(|()| fs::create_dir(&file)).expect("mkdir")),
        ),
        (
            "a link to nowhere",
            Box::new(|| fs::remove_file(&file).and_then(|()| symlink("/nowhere", &file)).expect("link")),
        ),
        (
            "a loop",
            Box::new(|| fs::remove_file(&file).and_then(|()| symlink("guard.toml", &file)).expect("link")),
        ),
        ("in a group's directory", Box::new(|| mode(&dir, 0o775))),
        ("in a world-writable directory", Box::new(|| mode(&dir, 0o777))),
        ("in another user's directory", Box::new(|| chown(&dir, Some(65534), None).expect("chown"))),
        (
            "taken out of a world-writable directory",
            Box::new(|| fs::remove_file(&file).map(|()| mode(&dir, 0o777)).expect("rm")),
        ),
        (
            "below a plain file",
            Box::new(|| {
                fs::remove_dir_all(&dir).and_then(|()| fs::write(&dir, "")).expect("a file");
            }),
        ),
        (
            "below a link to nowhere",
            Box::new(|| fs::remove_dir_all(&dir).and_then(|()| symlink("/nowhere", &dir)).expect("link")),
        ),
    ] {
        let _ = fs::remove_file(&dir);
        let _ = fs::create_dir(&dir);
        let _ = fs::remove_dir(&file);
        let _ = fs::remove_file(&file);
        mode(&dir, 0o755);
        chown(&dir, Some(0), None).expect("chown");
        env.write("etc/quell/guard.toml", "[guard]\ndeny = [\"stop\"]\n");
        mode(&file, 0o644);
        chown(&file, Some(0), None).expect("chown");
        lay();
        let done = ask("65534");
        assert_eq!(
            (done.code(), code(&done).as_str()),
            (Some(2), "bad_config"),
            "{what}: {}{}",
            done.stdout,
            done.stderr
        );
    }
    fs::remove_file(&dir).and_then(|()| fs::create_dir(&dir)).expect("mkdir");
    mode(&dir, 0o755);
    // Root's own directory without a file in it is not a policy.
    assert_eq!(ask("65534").code(), Some(0));
}

#[test]
fn a_line_that_was_cut_does_not_take_the_next_one_along() {
    let env = TestEnv::as_me();
    assert_eq!(verb(&env, "kill").args(["0"]).finish().code(), Some(4));
    let path = env.home().join("audit.jsonl");
    let whole = fs::read_to_string(&path).expect("the log");
    fs::write(&path, format!("{whole}{}", &whole[..whole.len() / 2])).expect("cut");
    assert_eq!(verb(&env, "kill").args(["1"]).finish().code(), Some(4));
    let log = fs::read_to_string(&path).expect("the log");
    let good: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(good.len(), 2, "{log}");
    assert_eq!(good[1]["decision"]["code"], "PID_INIT");
}

#[test]
fn the_log_takes_what_it_is_given_as_words_and_in_measure() {
    let env = TestEnv::as_me();
    let long = "x".repeat(100_000);
    let done = verb(&env, "kill")
        .env("QUELL_SESSION", &long)
        .env("QUELL_JOB", &long)
        .args(["--reason", &format!("a\n{{\"schema\":\"quell/1\"}}\n\u{1b}[2J{long}"), "--json", "5\n{}"])
        .finish();
    assert_eq!(code(&done), "PID_INVALID", "{}", done.stdout);
    let log = fs::read_to_string(env.home().join("audit.jsonl")).expect("the log");
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.len() < 4000 && !log.contains('\u{1b}'), "{} bytes", log.len());
}

#[test]
fn a_log_that_is_a_trap_lets_nothing_pass_and_delays_nothing() {
    let env = TestEnv::as_me();
    policy(&env, ALL);
    let mut stranger = Stranger::asleep(&env);
    fs::create_dir_all(env.home()).expect("mkdir");
    fs::set_permissions(env.home(), fs::Permissions::from_mode(0o700)).expect("chmod");
    let log = env.home().join("audit.jsonl");
    let mine = env.write("mine", "");
    let lay: [&dyn Fn(); 3] =
        [&|| symlink(&mine, &log).expect("link"), &|| fs::create_dir(&log).expect("mkdir"), &|| {
            assert!(Command::new("mkfifo").arg(&log).status().expect("mkfifo").success())
        }];
    for (trap, lay) in lay.iter().enumerate() {
        lay();
        let done = verb(&env, "kill").args(["--json", &stranger.pid()]).finish();
        assert_eq!(done.code(), Some(125), "{trap}: {}", done.stdout);
        assert!(stranger.is_alive(), "{trap}");
        let stats = verb(&env, "stats").args(["--json"]).finish();
        assert!(stats.code().is_some_and(|code| code == 0 || code == 125), "{trap}: {}", stats.stderr);
        fs::remove_file(&log).or_else(|_| fs::remove_dir(&log)).expect("rm");
    }
    assert_eq!(fs::read_to_string(&mine).expect("it"), "");
}

#[test]
fn without_a_line_in_the_log_jobs_can_only_be_looked_at_and_stopped() {
    let env = TestEnv::as_me();
    let live = env.start().args(["--stdin", "pipe"]).command(["cat"]).begin();
    let ended = env.start().command(["true"]).begin();
    assert!(ended.wait_over(PATIENCE));
    let (log, old) = (env.home().join("audit.jsonl"), env.home().join("audit.1.jsonl"));
    let try_all = |file: &str| {
        for words in [
            &["rm", ended.id.as_str()][..],
            &["gc", "--max-count", "0"],
            &["signal", live.id.as_str(), "KILL"],
            &["send", live.id.as_str(), "x"],
            &["restart", live.id.as_str()],
            &["man", "--dir", "man"],
        ] {
            let done = verb(&env, words[0]).args(&words[1..]).finish();
            assert_eq!(done.code(), Some(125), "{words:?}: {}{}", done.stdout, done.stderr);
            assert!(done.stderr.contains(file), "{words:?}: {}", done.stderr);
        }
        assert!(ended.dir().exists() && !live.is_over() && !env.path("man").exists());
        assert_eq!(live.output("stdout"), "");
    };
    // The log is too long and can't be renamed.
    fs::File::options().append(true).open(&log).and_then(|log| log.set_len(16 << 20)).expect("a long log");
    fs::create_dir(&old).expect("mkdir");
    try_all("/audit.1.jsonl: ");
    fs::remove_file(&log).and_then(|()| fs::create_dir(&log)).expect("mkdir");
    try_all("/audit.jsonl: ");
    for words in [&["stop", live.id.as_str()][..], &["sweep"]] {
        let done = verb(&env, words[0]).args(&words[1..]).finish();
        assert_eq!(done.code(), Some(0), "{words:?}: {}{}", done.stdout, done.stderr);
        assert!(
            done.stderr.contains("the audit log") && done.stderr.contains("/audit.jsonl: "),
            "{}",
            done.stderr
        );
    }
    assert!(live.is_over());
}

#[test]
fn what_systemd_says_without_an_end_is_not_decided_on() {
    if !can_pretend("what_systemd_says_without_an_end_is_not_decided_on") {
        return;
    }
    let env = TestEnv::new(User::all()[0]);
    policy(&env, "[guard.service]\nallow = [\"web\"]\n");
    let script = "#!/bin/sh\nPATH=/usr/bin:/bin\necho Id=web.service\necho Names=web.service\necho LoadState=loaded\n\
        echo ActiveState=active\ncase \"$*\" in *show*) printf 'BoundBy='; head -c 100000 /dev/zero | tr '\\0' x; echo ' ssh.service';;\n\
        *) touch \"$HOME/done\";; esac\n";
    let wrapper = instead(&env.script("systemctl", script));
    let done = verb(&env, "service").wrapped(wrapper).args(["stop", "web", "--json"]).finish();
    assert_eq!(done.code(), Some(125), "{}{}", done.stdout, done.stderr);
    assert!(!env.path("done").exists(), "{}", done.stdout);
}

/// Only root can see which file a process executes if its user may not read that file.
#[test]
fn a_process_whose_file_cannot_be_read_may_be_a_protected_one() {
    let env = TestEnv::new(User::Ordinary);
    let (file, link) = (env.path("postgres"), env.path("node"));
    fs::copy("/bin/sleep", &file).expect("a copy");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o111)).expect("chmod");
    // By the name of a link; its own name is known from nowhere else.
    symlink(&file, &link).expect("a link");
    let mut hidden = Stranger::new(&env, User::Ordinary, "exec ./node 5$N");
    assert!(eventually(PATIENCE, || is_called(hidden.0.id(), "node")));
    let kill = |rules: &str, verb_name: &str| {
        policy(&env, &format!("[guard.kill]\nallow = [\"node\"]\nmin_pid = 2\n{rules}"));
        let words: &[&str] = if verb_name == "guard" { &["check", "kill"] } else { &[] };
        verb(&env, verb_name).args(words).args(["--json", &hidden.pid()]).finish()
    };
    for rules in ["protect = [\"postgres\"]\n", "protect = [\"post*\", \"other\"]\n"] {
        let asked = kill(rules, "guard").envelope();
        assert_eq!(asked["data"]["decision"]["code"], "NAME_UNKNOWN", "{asked:#}");
        let done = kill(rules, "kill");
        assert_eq!((done.code(), code(&done).as_str()), (Some(4), "NAME_UNKNOWN"), "{}", done.stdout);
    }
    // Without protected names there is nothing that it could be mistaken for.
    assert_eq!(kill("", "kill").code(), Some(0));
    assert!(!hidden.is_alive());
}
