//! `QUELL_LOG` shows what quell's own processes did. It changes nothing for the job, and shows no secret.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use quell_tests::{eventually, oracle::Process, run::PATIENCE, test_env::TestEnv};

use crate::{
    cli::bad_input::one_clear_line,
    guard::decisions::{policy, verb},
};

const SECRET: &str = "hunter2-is-the-secret";

/// A line of the file.
#[derive(Debug)]
struct LogLine {
    role: String,
    pid: u32,
    job: String,
    what: String,
}

/// All lines; each of them has every part.
fn log_lines(log: &Path) -> Vec<LogLine> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let line = |line: &str| {
        let parts: Vec<&str> = line.splitn(5, ' ').collect();
        let [time, role, pid, job, what] = parts[..] else { panic!("not a whole line: {line:?}") };
        assert!(time.len() == 24 && time.ends_with('Z'), "{line}");
        assert!(["command", "front", "standby", "keeper", "helper"].contains(&role), "{line}");
        assert!(job == "-" || job.len() == 26, "{line}");
        LogLine { role: role.into(), pid: pid.parse().expect("a pid"), job: job.into(), what: what.into() }
    };
    text.lines().map(line).collect()
}

/// Whether these are told in this order, others between them.
#[track_caller]
fn in_order(told: &[LogLine], expected: &[(&str, &str)]) {
    let mut left = told.iter();
    for (role, what) in expected {
        let found = left.any(|told| told.role == *role && told.what.starts_with(what));
        assert!(found, "no `{role} {what}` in its place: {told:#?}");
    }
}

fn has_open(process: &Process, file: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{}/fd", process.pid)).into_iter().flatten().flatten();
    open.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|open| open == file)
}

#[test]
fn a_run_tells_its_steps_and_its_program_sees_nothing_of_it() {
    let env = TestEnv::as_me();
    let log = env.path("quell.log");
    let script = "env; ls -l /proc/self/fd; exit 3";
    let done = env.run().env("QUELL_LOG", &log).sh(script).finish();
    assert_eq!(done.code(), Some(3), "{}", done.stderr);
    assert!(!done.stdout.contains("QUELL_LOG") && !done.stdout.contains("quell.log"), "{}", done.stdout);
    let told = log_lines(&log);
    in_order(
        &told,
        &[
            ("command", "begins: run"),
            ("keeper", "state starting"),
            ("keeper", "state running"),
            ("keeper", "RootExited: exit code 3"),
            ("keeper", "Verify: 0 left"),
            ("keeper", "state ended"),
        ],
    );
    in_order(&told, &[("front", "step keeper_forked"), ("front", "step end_heard")]);
    let keepers: Vec<&LogLine> = told.iter().filter(|told| told.role == "keeper").collect();
    let (pid, job) = (keepers[0].pid, &keepers[0].job);
    assert!(keepers.iter().all(|told| told.pid == pid && told.job == *job && job.len() == 26), "{told:#?}");
    assert_eq!(fs::metadata(&log).expect("a file").permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_takeover_by_the_standby_is_told() {
    let env = TestEnv::as_me();
    let log = env.path("quell.log");
    let job = env.start().env("QUELL_LOG", &log).command(["sleep", &env.oracle.nap()]).begin();
    let [root, keeper, standby] = ["root", "keeper", "standby"].map(|role| job.process(role).expect(role));
    for process in [&root, &keeper, &standby] {
        assert!(!has_open(process, &log), "{process:?}");
    }
    let environment = fs::read(format!("/proc/{}/environ", root.pid)).expect("its environment");
    assert!(!String::from_utf8_lossy(&environment).contains("QUELL_LOG"));
    job.lose_all(&["keeper"]);
    assert!(job.wait_over(PATIENCE));
    // The standby tells this after the end is on record.
    assert!(eventually(PATIENCE, || log_lines(&log).iter().any(|told| told.what == "step taken_over")));
    let told = log_lines(&log);
    // The root leads its group: if it dies of the signal to the group at once, it gets none of its own.
    let killed = ["pid", "the group"].map(|target| format!("KILL to {target} {}", root.pid));
    in_order(
        &told,
        &[
            ("command", "begins: start"),
            ("standby", "step request_read"),
            ("keeper", "state running"),
            ("standby", "step keeper_missed"),
            ("standby", "StopAsked: the keeper was killed by KILL"),
            ("standby", "Kill"),
            ("standby", "state ended"),
        ],
    );
    assert!(told.iter().any(|told| killed.iter().any(|kill| told.what.contains(kill))), "{told:#?}");
    let of =
        |role: &str| told.iter().filter(|told| told.role == role).map(|told| told.pid).collect::<Vec<_>>();
    assert!(of("keeper").iter().all(|pid| *pid == keeper.pid), "{told:#?}");
    assert!(of("standby").iter().all(|pid| *pid == standby.pid), "{told:#?}");
}

#[test]
fn a_request_and_a_recovery_are_told() {
    let env = TestEnv::as_me();
    let (log, clients) = (env.path("keeper.log"), env.path("client.log"));
    let begin = || env.start().env("QUELL_LOG", &log).command(["sleep", &env.oracle.nap()]).begin();
    let stop = |id: &str| verb(&env, "stop").env("QUELL_LOG", &clients).args([id]).finish();
    let job = begin();
    assert_eq!(stop(&job.id).code(), Some(0));
    in_order(&log_lines(&clients), &[("command", "begins: stop"), ("command", "asks the keeper: stop")]);
    in_order(
        &log_lines(&log),
        &[
            ("keeper", "request stop from pid "),
            ("keeper", "state stopping"),
            ("keeper", "Ask"),
            ("keeper", "state ended"),
        ],
    );
    let lost = begin();
    lost.lose();
    let stopped = stop(&lost.id);
    // Processes of others on this host may have started after it; then its end is not proven.
    assert!(matches!(stopped.code(), Some(0 | 5)), "{}{}", stopped.stdout, stopped.stderr);
    let told = log_lines(&clients);
    in_order(
        &told,
        &[("command", "recovery: its keepers are gone"), ("command", "Kill"), ("command", "Verify: ")],
    );
    assert!(told.iter().any(|told| told.job == lost.id), "{told:#?}");
}

#[test]
fn no_secret_is_told() {
    let env = TestEnv::as_me();
    let log = env.path("quell.log");
    let script = "read line; echo $line; sleep $N";
    let job = env
        .start()
        .env("QUELL_LOG", &log)
        .env("TOKEN", SECRET)
        .env("N", env.oracle.nap())
        .args(["--mask", "TOKEN", "--stdin", "pipe"])
        .command(["sh", "-c", script, SECRET, &format!("--token={SECRET}")])
        .begin();
    let sent = verb(&env, "send").env("QUELL_LOG", &log).args([job.id.as_str(), SECRET]).finish();
    assert_eq!(sent.code(), Some(0), "{}", sent.stderr);
    assert!(eventually(PATIENCE, || job.output("stdout").contains(SECRET)));
    let reason = format!("because of {SECRET}");
    let stopped =
        verb(&env, "stop").env("QUELL_LOG", &log).args([job.id.as_str(), "--reason", &reason]).finish();
    assert_eq!(stopped.code(), Some(0), "{}", stopped.stderr);
    in_order(&log_lines(&log), &[("keeper", "request send"), ("keeper", "request stop")]);
    let text = fs::read_to_string(&log).expect("the file");
    assert!(!text.contains(&SECRET[..7]), "{text}");
}

#[test]
fn a_file_that_can_not_be_used_is_an_error_before_anything_is_done() {
    let env = TestEnv::as_me();
    let (file, link, made) = (env.path("file"), env.path("link"), env.path("made"));
    symlink(&file, &link).expect("a link");
    fs::create_dir_all(env.home()).expect("its home");
    let settings = env.dir().join("quell.toml");
    for bad in [
        env.dir().join("nowhere/log"),
        env.dir().to_owned(),
        link,
        env.fifo(),
        env.home().join("log"),
        settings,
    ] {
        for words in [&["run", "--", "touch"][..], &["start", "--", "touch"], &["list"]] {
            let touch = words.contains(&"touch").then(|| made.clone());
            let done = verb(&env, words[0]).env("QUELL_LOG", &bad).args(&words[1..]).args(touch).finish();
            one_clear_line(&done, if words[0] == "run" { 125 } else { 2 });
            assert!(done.stderr.starts_with("quell: QUELL_LOG: can't write "), "{}", done.stderr);
        }
    }
    assert!(!made.exists() && !file.exists() && !env.home().join("log").exists());
    assert_eq!(verb(&env, "list").env("QUELL_LOG", "").finish().code(), Some(0));
}

#[test]
fn only_a_new_file_an_empty_one_or_an_earlier_log_is_written() {
    let env = TestEnv::as_me();
    assert_eq!(env.run().command(["true"]).finish().code(), Some(0));
    let list = |log: &Path| verb(&env, "list").env("QUELL_LOG", log).finish();
    let audit = env.home().join("audit.jsonl");
    let [script, other_log] =
        [("script", "#!/bin/sh\n"), ("other", "2026-05-04T09:12:31.908Z INFO it began\n")]
            .map(|(name, text)| env.write(name, text));
    let [empty, link, second] = ["empty", "link", "second"].map(|name| env.path(name));
    fs::write(&empty, "").and_then(|()| fs::hard_link(&empty, &second)).expect("two names");
    fs::hard_link(&audit, &link).expect("a second name of the audit log");
    for bad in [&script, &other_log, &link, &second] {
        let before = fs::read_to_string(bad).expect("a file");
        let done = list(bad);
        one_clear_line(&done, 2);
        assert!(done.stderr.starts_with("quell: QUELL_LOG: can't write "), "{}", done.stderr);
        assert_eq!(fs::read_to_string(bad).expect("the file"), before);
    }
    fs::remove_file(&second).expect("rm");
    for lines in [1, 2] {
        assert_eq!(list(&empty).code(), Some(0));
        assert_eq!(log_lines(&empty).len(), lines);
    }
}

#[test]
fn what_is_refused_writes_no_events() {
    let env = TestEnv::as_me();
    policy(&env, "[guard]\nmax_effect = \"read\"\n");
    let log = env.path("quell.log");
    for words in [&["run", "--", "true"][..], &["start", "--", "true"], &["gc"]] {
        let done = verb(&env, words[0]).env("QUELL_LOG", &log).args(&words[1..]).finish();
        one_clear_line(&done, if words[0] == "run" { 125 } else { 4 });
        assert!(!log.exists(), "{words:?}");
    }
}
