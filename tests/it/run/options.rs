//! What each option of `quell run` does.

use std::{fs, time::Duration};

use quell_tests::{
    UNIGNORED, all_hold,
    evidence::{cause, receipt, says_gone, was_killed},
    host::{Contain, Setting, User, am_root, cgroup_mount},
    last_json, skip,
    test_env::TestEnv,
};
use serde_json::Value;

fn utf8(path: &std::path::Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn env_adds_and_replaces_variables() {
    let env = TestEnv::as_me();
    let quell =
        env.run().env("COLOUR", "red").args(["--env", "COLOUR=blue", "--env", "EMPTY=", "--env", "SUM=a=b"]);
    let done = quell.sh(r#"echo "$COLOUR|${EMPTY-unset}|$SUM|$HOME""#).finish();
    assert_eq!(done.stdout, format!("blue||a=b|{}\n", utf8(env.dir())), "{}", done.stderr);
}

#[test]
fn env_file_is_read_and_env_wins_over_it() {
    let env = TestEnv::as_me();
    let file = env.write("vars", "# a comment\n\nONE=1\nTWO=two words\nTHREE=3\n");
    let quell = env.run().args(["--env-file", utf8(&file), "--env", "THREE=drei"]);
    let done = quell.sh(r#"echo "$ONE|$TWO|$THREE""#).finish();
    assert_eq!(done.stdout, "1|two words|drei\n", "{}", done.stderr);
}

#[test]
fn clear_env_leaves_only_what_was_asked_for() {
    let env = TestEnv::as_me();
    let quell = env.run().env("SECRET", "x").args(["--clear-env", "--env", "ONLY=this"]);
    let done = quell.command(["/usr/bin/env"]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let names: Vec<&str> = done.stdout.lines().filter_map(|line| line.split('=').next()).collect();
    assert!(names.contains(&"ONLY"), "{}", done.stdout);
    // quell's own marker is there always: it is what the audit goes by.
    let others: Vec<_> = names.iter().filter(|n| **n != "ONLY" && !n.starts_with("QUELL")).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn cwd_is_where_the_program_starts() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        fs::create_dir(env.path("there")).expect("mkdir");
        let quell = env.run().args(["--contain", setting.contain.as_str(), "--cwd", "there"]);
        let done = quell.command(["pwd", "-P"]).finish();
        assert_eq!(
            done.stdout,
            format!("{}\n", utf8(&env.path("there").canonicalize().expect("it is there")))
        );
        let done = env.run().args(["--contain", setting.contain.as_str()]).command(["pwd", "-P"]).finish();
        assert_eq!(done.stdout, format!("{}\n", utf8(&env.dir().canonicalize().expect("it is there"))));
    }
}

#[test]
fn the_program_is_the_same_user_with_the_same_files() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let done = env
            .run()
            .args(["--contain", setting.contain.as_str()])
            .sh("id -u; touch mine; stat -c %u mine")
            .finish();
        let outside = {
            use std::os::unix::fs::MetadataExt;
            fs::metadata(env.path("mine")).expect("the program's file").uid()
        };
        assert_eq!(done.stdout, format!("{outside}\n{outside}\n"), "under {setting}");
        assert_eq!(outside == 0, setting.user == User::Root, "under {setting}");
    }
}

#[test]
fn until_tree_waits_for_the_last_process() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let quell = env.run().args(["--contain", setting.contain.as_str(), "--until", "tree"]);
        let done = quell.sh("(setsid sh -c 'sleep 0.4; touch late' &) ; exit 4").finish();
        assert_eq!(done.code(), Some(4), "under {setting}: {}", done.stderr);
        assert!(env.path("late").exists(), "under {setting}: the tree was not waited for");
        assert!(done.took >= Duration::from_millis(390), "under {setting}: {:?}", done.took);
        assert_eq!(env.leftovers(), Vec::<String>::new(), "under {setting}");
    }
}

#[test]
fn leak_says_what_becomes_of_what_the_root_left() {
    for setting in Setting::all() {
        for (leak, code, said) in [("stop", 0, false), ("report", 0, true), ("fail", 123, true)] {
            let env = TestEnv::with(setting);
            let file = env.path("receipt.json");
            let quell = env.run().args([
                "--contain",
                setting.contain.as_str(),
                "--leak",
                leak,
                "--receipt",
                utf8(&file),
            ]);
            let done = quell.actor("daemon-exit", None).finish();
            let what = format!("--leak {leak} under {setting}: {}", done.stderr);
            assert_eq!(done.code(), Some(code), "{what}");
            let receipt = receipt(&file).expect("a receipt");
            says_gone(&receipt).expect(&what);
            assert_eq!(receipt["left_at_root_exit"].as_array().map(Vec::len), Some(1), "{what}: {receipt}");
            if said {
                assert!(done.stderr.starts_with("quell: "), "{what}");
                assert!(done.stderr.lines().count() >= 2, "the tree is not drawn: {what}");
            }
            assert_eq!(env.leftovers(), Vec::<String>::new(), "{what}");
        }
    }
}

#[test]
fn leak_fail_is_content_when_nothing_is_left() {
    let env = TestEnv::as_me();
    let done = env.run().args(["--leak", "fail"]).sh("sleep 0.05 & wait; exit 3").finish();
    assert_eq!(done.code(), Some(3), "{}", done.stderr);
}

#[test]
fn the_receipt_tells_what_happened() {
    // The tree has to be up before its time is.
    let settings = Setting::all();
    all_hold(settings.len(), &settings, |&setting| {
        let env = TestEnv::with(setting);
        let file = env.path("receipt.json");
        let options = ["--contain", setting.contain.as_str(), "--timeout", "2s", "--grace", "200ms"];
        let quell =
            env.run().args(options).args(["--receipt", utf8(&file), "--name", "web", "--tag", "team=blue"]);
        let done = quell.actor("ignore-term", None).finish();
        let receipt = receipt(&file).expect("a receipt");
        let what = format!("under {setting}: {receipt:#}");
        assert_eq!(done.code(), Some(124), "{what}");
        says_gone(&receipt).expect(&what);
        assert_eq!(cause(&receipt), "timeout", "{what}");
        assert_eq!(text(&receipt["job"]["name"]), "web", "{what}");
        assert_eq!(text(&receipt["job"]["tags"]["team"]), "blue", "{what}");
        assert_eq!(text(&receipt["root"]["outcome"]["kind"]), "signaled", "{what}");
        let held = text(&receipt["held"]["containment"]);
        assert!(
            held == setting.contain.as_str() || (setting.contain == Contain::Cgroup && held == "scope"),
            "{what}"
        );
        assert!(receipt["held"]["defeated_by"].as_array().is_some_and(|list| !list.is_empty()), "{what}");
        let actors: Vec<&Value> = receipt["members"]
            .as_array()
            .expect("members")
            .iter()
            .filter(|member| text(&member["command"]).contains(env.oracle.token()))
            .collect();
        assert_eq!(actors.len(), 2, "{what}");
        // Before Linux 6.15 the kernel does not say what the members of a PID namespace died of.
        let fate = |member: &&Value| match text(&member["fate"]) {
            "ended" => setting.contain == Contain::Pidns,
            fate => fate == "killed_after_grace",
        };
        assert!(actors.iter().all(fate), "{what}");
        assert!(receipt["survivors"].as_array().is_some_and(Vec::is_empty), "{what}");
        assert_eq!(receipt["grace"]["asked"].as_f64(), Some(0.2), "{what}");
        let steps: Vec<&str> =
            receipt["steps"].as_array().expect("steps").iter().map(|s| text(&s["step"])).collect();
        for step in ["born", "running", "stop_asked", "ask", "kill", "verify"] {
            assert!(steps.contains(&step), "no step {step}: {what}");
        }
        let times: Vec<f64> = receipt["steps"]
            .as_array()
            .expect("steps")
            .iter()
            .filter_map(|step| step["at"].as_f64())
            .collect();
        assert!(times.is_sorted(), "the steps are not in order: {what}");
        assert!(done.stderr.starts_with("quell: timed out after "), "{}", done.stderr);
        assert!(done.stderr.contains("0 left"), "{}", done.stderr);
        Ok(())
    });
}

#[test]
fn receipt_fd_gets_the_same_receipt() {
    let env = TestEnv::as_me();
    let quell = env.run().wrapped(["sh", "-c", r#"exec "$@" 5>from-fd"#, "sh"]);
    let done = quell.args(["--receipt-fd", "5", "--receipt", "from-file"]).sh("exit 6").finish();
    assert_eq!(done.code(), Some(6), "{}", done.stderr);
    let from_fd = receipt(&env.path("from-fd")).expect("on the descriptor");
    assert_eq!(from_fd, receipt(&env.path("from-file")).expect("in the file"));
    assert_eq!(from_fd["root"]["outcome"]["code"], 6);
}

#[test]
fn json_puts_the_envelope_after_the_programs_output() {
    let env = TestEnv::as_me();
    let done = env.run().args(["--json"]).sh("printf 'no newline at the end'; exit 2").finish();
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(done.stdout.starts_with("no newline at the end\n"), "{}", done.stdout);
    let envelope = done.envelope();
    assert_eq!(envelope["schema"], "quell/1");
    assert_eq!(envelope["ok"], true, "{envelope}");
    assert_eq!(envelope["type"], "run");
    assert_eq!(envelope["data"]["verdict"]["kind"], "gone");
    assert_eq!(envelope["data"]["root"]["outcome"]["code"], 2);
}

#[test]
fn quiet_says_nothing_and_changes_no_code() {
    let env = TestEnv::as_me();
    let quell = env.run().args(["--quiet", "--timeout", "200ms", "--grace", "100ms"]);
    let done = quell.actor("ignore-term", None).finish();
    assert_eq!((done.code(), &*done.stderr), (Some(124), ""));
    let done = env.run().args(["--quiet", "--leak", "fail"]).script("sleep $N & exit 0").finish();
    assert_eq!((done.code(), &*done.stderr), (Some(123), ""));
}

#[test]
fn a_run_without_incident_says_nothing() {
    let env = TestEnv::as_me();
    let done = env.run().sh("echo out; echo err >&2; exit 1").finish();
    assert_eq!((done.code(), &*done.stdout, &*done.stderr), (Some(1), "out\n", "err\n"));
}

#[test]
fn a_finished_run_leaves_its_record_and_no_record_leaves_none() {
    let env = TestEnv::as_me();
    env.run().command(["true"]).finish();
    let records = env.records();
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(records[0].state, "ended");
    for file in ["spec.json", "state.jsonl", "receipt.json"] {
        assert!(records[0].dir.join(file).is_file(), "no {file}");
    }
    let env = TestEnv::as_me();
    let done = env.run().args(["--no-record"]).sh("exit 9").finish();
    assert_eq!(done.code(), Some(9), "{}", done.stderr);
    assert!(env.records().is_empty(), "{:?}", env.records());
}

#[test]
fn the_record_is_on_disk_before_the_program_runs() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let quell = env.run().args(["--contain", setting.contain.as_str()]);
        let done =
            quell.sh("cat $QUELL_HOME/jobs/*/spec.json >spec && cat $QUELL_HOME/jobs/*/state.jsonl").finish();
        assert_eq!(done.code(), Some(0), "under {setting}: {}", done.stderr);
        let state = last_json(done.stdout.as_bytes()).expect("state.jsonl is whole at any instant");
        assert!(matches!(text(&state["state"]), "starting" | "running"), "under {setting}: {state}");
        assert!(
            state["tree"]["root"]["pid"].is_u64(),
            "the root's identity is not on record, under {setting}: {state}"
        );
        receipt(&env.path("spec")).expect("spec.json is whole");
    }
}

#[test]
fn records_are_closed_to_other_users() {
    use std::os::unix::fs::PermissionsExt;
    let env = TestEnv::as_me();
    env.run().command(["true"]).finish();
    let mode = |path: &std::path::Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o077;
    assert_eq!(mode(&env.home()), 0);
}

#[test]
fn signal_is_what_is_sent_first() {
    for setting in Setting::all() {
        for signal in ["INT", "SIGINT", "int", "2"] {
            let env = TestEnv::with(setting);
            let file = env.path("receipt.json");
            let options = ["--contain", setting.contain.as_str(), "--signal", signal, "--grace", "20s"];
            // Without `set -m` the shell's background jobs would ignore INT and use up the grace.
            let quell = env.run().wrapped(UNIGNORED).args(options).args(["--receipt", utf8(&file)]).script(
                "set -m; trap 'echo got INT; exit 7' INT; trap '' TERM; echo ready >$QUELL_TEST_READY; \
                 while :; do sleep 1 & wait $!; done",
            );
            let mut running = quell.start();
            running.wait_ready().expect("ready");
            running.front.signal("TERM");
            let done = running.finish();
            assert_eq!(done.stdout, "got INT\n", "--signal {signal} under {setting}: {}", done.stderr);
            let receipt = receipt(&file).expect("a receipt");
            assert!(!was_killed(&receipt), "--signal {signal} under {setting}: {receipt:#}");
        }
    }
}

#[test]
fn every_ending_signal_to_the_front_starts_a_stop() {
    for signal in ["INT", "TERM", "HUP", "QUIT"] {
        let env = TestEnv::as_me();
        let file = env.path("receipt.json");
        let quell = env.run().args(["--grace", "20s", "--receipt", utf8(&file)]).actor("setsid", None);
        let mut running = quell.wrapped(UNIGNORED).start();
        running.wait_ready().expect("ready");
        running.front.signal(signal);
        running.wait_exit(Duration::from_secs(15)).expect("quell returns before the grace is over");
        let receipt = receipt(&file).expect("a receipt");
        assert_eq!(cause(&receipt), "user", "{signal}");
        assert_eq!(text(&receipt["actor"]["signal"]), signal, "{receipt:#}");
        assert_eq!(env.leftovers(), Vec::<String>::new(), "{signal}");
    }
}

#[test]
fn the_number_of_processes_can_be_limited_or_is_refused() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let quell = env.run().args(["--contain", setting.contain.as_str(), "--limit-procs", "10"]);
        let done =
            quell.sh("for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 20 & done; wait").finish();
        if done.code() == Some(125) {
            let reason = done.stderr.contains("limit") || done.stderr.contains("controller");
            assert!(done.stderr.starts_with("quell: ") && reason, "{setting}: {}", done.stderr);
        } else {
            assert!(
                done.stderr.to_lowercase().contains("fork"),
                "{setting}: no limit was felt: {}",
                done.stderr
            );
        }
        assert_eq!(env.leftovers(), Vec::<String>::new(), "{setting}");
    }
}

#[test]
fn doctor_says_what_this_host_can_do() {
    let env = TestEnv::as_me();
    let done = env.quell("doctor").finish();
    assert!(matches!(done.code(), Some(0 | 1)), "{}: {}", done.status, done.stderr);
    assert!(done.stdout.contains("cgroup") && done.stdout.contains("kernel"), "{}", done.stdout);
    let envelope = env.quell("doctor").args(["--json"]).finish().envelope();
    assert_eq!(
        (&envelope["ok"], &envelope["type"]),
        (&Value::Bool(true), &Value::from("doctor")),
        "{envelope}"
    );
}

#[test]
fn doctor_exits_with_1_where_only_the_weakest_containment_is_there() {
    let env = TestEnv::new(User::Ordinary);
    let strongest = Contain::Cgroup.available(User::Ordinary).is_ok() && !am_root();
    let done = env.quell("doctor").finish();
    let pidns = Contain::Pidns.available(User::Ordinary).is_ok();
    let wanted = if strongest || pidns { 0 } else { 1 };
    assert_eq!(done.code(), Some(wanted), "{}", done.stdout);
}

#[test]
fn doctor_promises_nothing_where_no_job_can_run() {
    let hidden = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"];
    let can = std::process::Command::new(hidden[0]).args(&hidden[1..]).arg("true").status();
    if !am_root() || !can.is_ok_and(|status| status.success()) {
        return skip("doctor_promises_nothing_where_no_job_can_run", "needs root for a mount");
    }
    let env = TestEnv::new(User::Root);
    let done = env.quell("doctor").wrapped(hidden).args(["--json"]).finish();
    let data = &done.envelope()["data"];
    assert_eq!(done.code(), Some(1), "{data:#}");
    assert_eq!((&data["auto"], &data["containments"]), (&serde_json::Value::Null, &serde_json::json!([])));
}

#[test]
fn a_containment_that_this_host_can_give_is_not_refused() {
    for user in User::all() {
        Contain::Reaper.available(user).expect("the reaper needs nothing");
        if cgroup_mount().is_some() && am_root() {
            Contain::Cgroup.available(user).expect("there is a cgroup v2 that this user may write");
        }
        let unshare = ["unshare", "-Urpf", "--mount-proc", "true"].map(String::from);
        let words: Vec<String> = user.prefix().into_iter().chain(unshare).collect();
        if std::process::Command::new(&words[0]).args(&words[1..]).status().is_ok_and(|s| s.success()) {
            Contain::Pidns.available(user).expect("unshare can make a PID namespace for this user");
        }
    }
}
