//! `--restart`: the same program again and again, and never once more than wanted.

use std::fs;

use quell_tests::{
    eventually,
    host::Setting,
    jobs::Background,
    run::{PATIENCE, Quell},
    test_env::TestEnv,
};
use serde_json::Value;

use crate::recovery::crash::{signal_all, supervisors};

/// A start whose restarts come soon.
fn soon<'l>(env: &'l TestEnv, policy: &str) -> Quell<'l> {
    env.start()
        .args(["--restart", policy])
        .env("QUELL_STOP_GRACE", "300ms")
        .env("QUELL_START_RESTART_DELAY", "20ms")
        .env("QUELL_START_RESTART_MAX_DELAY", "60s")
}

fn count(job: &Background<'_>, event: &str) -> usize {
    job.events().iter().filter(|name| *name == event).count()
}

fn delays(job: &Background<'_>) -> Vec<f64> {
    let text = fs::read_to_string(job.dir().join("events.jsonl")).unwrap_or_default();
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events
        .filter(|event| event["event"] == "restarting")
        .filter_map(|event| event["delay"].as_f64())
        .collect()
}

fn is_quiet(env: &TestEnv) {
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
}

#[test]
fn a_program_that_fails_is_run_as_often_as_was_said() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let options = ["--restart-limit", "3", "--contain", setting.contain.as_str()];
        let script = "echo $QUELL_JOB >>ids; n=$(wc -l <ids); echo run $n; exit 3";
        let job = soon(&env, "on-failure").args(options).sh(script).begin();
        assert!(job.wait_over(PATIENCE), "{setting}: {}", job.state());
        assert_eq!(count(&job, "started"), 4, "{setting}: {:?}", job.events());
        assert_eq!(job.output("stdout"), "run 1\nrun 2\nrun 3\nrun 4\n", "{setting}");
        let ids = fs::read_to_string(env.path("ids")).expect("ids");
        assert!(ids.lines().all(|id| id == job.id), "{setting}: one job, one id: {ids}");
        let delays = delays(&job);
        assert!(delays.windows(2).all(|pair| pair[1] >= 1.9 * pair[0]), "{setting}: {delays:?}");
        let receipt = job.receipt().expect("a receipt");
        assert_eq!(
            (&receipt["run"], &receipt["root"]["outcome"]["code"]),
            (&4.into(), &3.into()),
            "{setting}"
        );
        is_quiet(&env);
    }
}

#[test]
fn a_program_that_succeeds_is_run_again_only_if_always() {
    let env = TestEnv::as_me();
    let once = soon(&env, "on-failure").command(["true"]).begin();
    assert!(once.wait_over(PATIENCE));
    assert_eq!(count(&once, "started"), 1);
    let always = soon(&env, "always").args(["--restart-limit", "2"]).command(["true"]).begin();
    assert!(always.wait_over(PATIENCE));
    assert_eq!(count(&always, "started"), 3);
    is_quiet(&env);
}

/// The old tree is gone before the new one begins: each run leaves a stubborn daemon, and looks for that of the last one.
#[test]
fn no_run_meets_what_the_last_one_left() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let options = ["--restart-limit", "2", "--contain", setting.contain.as_str()];
        let script = "[ -e pid ] && kill -0 $(cat pid) && touch met; trap '' TERM; \
                      setsid sh -c 'trap \"\" TERM; sleep 20; :' & echo $! >pid; exit 1";
        let job = soon(&env, "always").args(options).sh(script).begin();
        assert!(job.wait_over(PATIENCE), "{setting}: {}", job.state());
        assert_eq!(count(&job, "started"), 3, "{setting}");
        // In a namespace of its own each run has the same numbers.
        if setting.contain != quell_tests::host::Contain::Pidns {
            assert!(!env.path("met").exists(), "{setting}: the last run's daemon was still there");
        }
        is_quiet(&env);
    }
}

/// A job that waits for its next run, for much longer than any test.
fn resting<'l>(env: &'l TestEnv, options: &[&str]) -> Background<'l> {
    let start = soon(env, "always").env("QUELL_START_RESTART_DELAY", "50s").args(options);
    let job = start.sh("exit 3").begin();
    assert!(eventually(PATIENCE, || job.state() == "waiting"), "{}", job.state());
    job
}

/// What both the record and the receipt say of the end: the cause, the actor, and how the last run went.
fn end_of(job: &Background<'_>) -> (Value, Value, Value) {
    let (record, receipt) = (job.record().expect("a record"), job.receipt().expect("a receipt"));
    let last = &record["last"];
    let told = (last["ending"]["cause"].clone(), last["ending"]["actor"].clone(), last["outcome"].clone());
    let proven = (receipt["cause"].clone(), receipt["actor"].clone(), receipt["root"]["outcome"].clone());
    assert_eq!(told, proven, "the record and the receipt of {}", job.id);
    told
}

fn exited_with_3() -> Value {
    serde_json::json!({"kind": "exited", "code": 3})
}

#[test]
fn a_stop_ends_a_job_that_waits_for_its_next_run() {
    for options in [&[][..], &["--now"]] {
        let env = TestEnv::as_me();
        let job = resting(&env, &[]);
        let before = job.receipt().expect("the receipt of its run");
        let done = job.stop(options);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        assert!(job.is_over() && job.state() == "ended", "{}", job.state());
        let said = format!("{}{}", done.stdout, done.stderr);
        assert!(said.contains("stopped") && !said.contains("by itself"), "{said}");
        let (cause, actor, outcome) = end_of(&job);
        assert_eq!((cause, &actor["kind"], outcome), ("user".into(), &"client".into(), exited_with_3()));
        let after = job.receipt().expect("a receipt");
        assert!(after["ended"]["at"].as_f64() > before["ended"]["at"].as_f64(), "{after:#}");
        is_quiet(&env);
    }
}

#[test]
fn a_stop_of_a_job_that_waits_does_not_repeat_the_account_of_its_last_run() {
    let env = TestEnv::as_me();
    let told = env.path("told");
    let hooks =
        format!("[[hooks]]\non = [\"leaked\", \"ended\"]\nappend = {:?}\n", told.display().to_string());
    let config = env.write("own.toml", &hooks);
    let start = soon(&env, "always").env("QUELL_START_RESTART_DELAY", "50s").env("QUELL_CONFIG", config);
    let job = start.sh(&format!("sleep {} & exit 0", env.oracle.nap())).begin();
    assert!(eventually(PATIENCE, || job.state() == "waiting"), "{}", job.state());
    let done = job.stop(&[]);
    assert_eq!(
        (done.code(), done.stdout.as_str()),
        (Some(0), "quell: stopped while it waited for its next run: 0 processes\n"),
        "{}",
        done.stderr
    );
    crate::jobs::hooks::told(&told, &["leaked", "ended"]);
    let events = job.events();
    assert_eq!(
        (count(&job, "ended"), events.last().map(String::as_str)),
        (1, Some("not_restarted")),
        "{events:?}"
    );
    let receipt = job.receipt().expect("a receipt");
    assert_eq!((&receipt["cause"], &receipt["ended_waiting"]), (&"user".into(), &true.into()), "{receipt:#}");
    is_quiet(&env);
    // All hooks have run by now.
    assert_eq!(crate::jobs::hooks::names_in(&told), ["leaked", "ended"]);
}

#[test]
fn any_of_quells_processes_may_be_killed_while_a_job_waits() {
    for names in [&["quell-keeper"][..], &["quell-standby"], &["quell-keeper", "quell-standby"]] {
        let env = TestEnv::as_me();
        let job = resting(&env, &[]);
        let victims: Vec<_> = names.iter().flat_map(|name| supervisors(&env, name)).collect();
        assert!(signal_all("KILL", &victims), "{names:?}");
        if names == ["quell-keeper"] {
            assert!(job.wait_over(PATIENCE), "{names:?}: {}", job.state());
        }
        let done = job.stop(&[]);
        // Without any keeper, what else runs here decides whether the end is proven.
        let proven = done.code() == Some(0) || (names.len() == 2 && done.code() == Some(5));
        assert!(proven, "{names:?}: {:?} {}", done.code(), done.stderr);
        assert!(job.is_over() && job.state() == "ended", "{names:?}: {}", job.state());
        let wanted = if names == ["quell-standby"] { "user" } else { "keeper_lost" };
        let (cause, _, outcome) = end_of(&job);
        assert_eq!((cause, outcome), (wanted.into(), exited_with_3()), "{names:?}");
        // There was nothing to kill, and the end of the run is told once.
        assert_eq!(count(&job, "killed"), 0, "{names:?}: {:?}", job.events());
        let told = (count(&job, "ended"), job.events().pop());
        let once = told == (1, Some("not_restarted".into()));
        // Without any keeper, a process that was found may have been of a next run.
        assert!(once || names.len() == 2 && told == (2, Some("ended".into())), "{:?}", job.events());
        is_quiet(&env);
    }
}

#[test]
fn the_account_of_the_last_run_is_kept_if_the_keepers_of_a_job_that_waits_are_killed() {
    for roles in [&["keeper"][..], &["standby", "keeper"]] {
        let env = TestEnv::as_me();
        let start = soon(&env, "always").env("QUELL_START_RESTART_DELAY", "50s");
        let job = start.sh(&format!("sleep {} & sleep 0.1; exit 7", env.oracle.nap())).begin();
        assert!(eventually(PATIENCE, || job.state() == "waiting"), "{}", job.state());
        let last = job.receipt().expect("a receipt");
        assert_eq!(last["members"].as_array().map(Vec::len), Some(2), "{last:#}");
        job.lose_all(roles);
        let tree = env.quell("tree").args([&job.id]).finish();
        assert!(job.wait_over(PATIENCE), "{roles:?}: {} {}", job.state(), tree.stderr);
        let receipt = job.receipt().expect("a receipt");
        for same in ["members", "left_at_root_exit", "root", "kill", "grace", "started", "run"] {
            assert_eq!(receipt[same], last[same], "{roles:?}, {same}: {receipt:#}");
        }
        let ended = (&receipt["cause"], &receipt["ended_waiting"]);
        assert_eq!(ended, (&"keeper_lost".into(), &true.into()), "{roles:?}: {receipt:#}");
        assert_eq!((count(&job, "ended"), count(&job, "killed")), (1, 0), "{roles:?}: {:?}", job.events());
        let stats = env.quell("stats").args(["--json"]).finish().envelope();
        assert_eq!(stats["data"]["leaks"], 1, "{roles:?}: {stats:#}");
        is_quiet(&env);
    }
}

#[test]
fn what_ends_a_job_that_waits_is_told_as_while_it_runs() {
    let env = TestEnv::as_me();
    let job = resting(&env, &["--ttl", "1s"]);
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    assert_eq!(end_of(&job).0, "timeout");
    assert_eq!(count(&job, "timed_out"), 1, "{:?}", job.events());

    for (on_exit, kept) in [("stop", false), ("keep", true)] {
        let mut owner = std::process::Command::new("sleep").arg(env.oracle.nap()).spawn().expect("sleep");
        let pid = owner.id().to_string();
        let job = resting(&env, &["--owner", &pid, "--on-owner-exit", on_exit]);
        owner.kill().and_then(|()| owner.wait()).expect("kill");
        assert!(eventually(PATIENCE, || count(&job, "owner_gone") == 1), "{on_exit}: {:?}", job.events());
        if !kept {
            assert!(job.wait_over(PATIENCE), "{}", job.state());
            assert_eq!(end_of(&job).0, "owner_gone");
        } else {
            assert_eq!(job.state(), "waiting");
        }
    }
}

/// The root has ended by itself, and what it left is being asked: a stop at this time is for the job, not for the rest
/// of this run.
#[test]
fn a_stop_in_the_midst_of_a_runs_own_end_is_the_end() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let script = "echo run >>runs; \
                      sh -c 'trap \"\" TERM; echo >up; until [ -e go ]; do sleep 0.02; done' & \
                      while [ ! -e up ]; do sleep 0.01; done; exit 1";
        let quell = soon(&env, "always").args(["--contain", setting.contain.as_str()]);
        let job = quell.env("QUELL_STOP_GRACE", "20s").sh(script).begin();
        assert!(eventually(PATIENCE, || job.state() == "stopping"), "{setting}: {}", job.state());
        let stop = env.quell("stop").args([&job.id]).start();
        let heard = || job.events().contains(&"stop_asked".to_owned());
        assert!(eventually(PATIENCE, heard), "{setting}: {:?}", job.events());
        env.write("go", "");
        let done = stop.finish();
        assert_eq!(done.code(), Some(0), "{setting}: {}", done.stderr);
        assert!(job.is_over(), "{setting}: {}", job.state());
        is_quiet(&env);
        let runs = fs::read_to_string(env.path("runs")).expect("runs");
        assert_eq!(runs.lines().count(), 1, "{setting}: it was started again after the stop");
    }
}

#[test]
fn a_stop_at_any_instant_of_quick_restarts_is_heard() {
    let env = TestEnv::as_me();
    let rounds: Vec<usize> = (0..quell_tests::rounds().div_ceil(4)).collect();
    quell_tests::all_hold(3, &rounds, |round| {
        let quell = soon(&env, "always").args(["--restart-limit", "none"]);
        let quell = quell.env("QUELL_START_RESTART_DELAY", "1ms").env("QUELL_START_RESTART_MAX_DELAY", "2ms");
        let job = quell.command(["true", &env.oracle.nap()]).begin();
        let pause = crate::stop::races::pause_up_to(40_000);
        let done = job.stop(&[]);
        if done.code() != Some(0) || !job.is_over() {
            return Err(format!("round {round}, after {pause:?}: {}, {}", done.stderr, job.state()));
        }
        Ok(())
    });
    is_quiet(&env);
}

/// A signal is not a stop: only a stop ends the job.
#[test]
fn a_deadly_signal_ends_the_run_and_not_the_job() {
    let env = TestEnv::as_me();
    let job = soon(&env, "always").command(["sleep", &env.oracle.nap()]).begin();
    assert_eq!(env.quell("signal").args([job.id.as_str(), "KILL"]).finish().code(), Some(0));
    assert!(eventually(PATIENCE, || count(&job, "started") == 2), "{:?}", job.events());
    assert_eq!(job.stop(&[]).code(), Some(0));
    assert_eq!((count(&job, "started"), end_of(&job).0), (2, "user".into()));
    is_quiet(&env);
}

#[test]
fn the_time_to_live_is_that_of_all_runs() {
    let env = TestEnv::as_me();
    for script in ["sleep 0.05; exit 1", "sleep 50"] {
        let quell = soon(&env, "always").args(["--restart-limit", "none", "--ttl", "1s"]);
        let job = quell.env("QUELL_START_RESTART_MAX_DELAY", "30ms").sh(script).begin();
        assert!(job.wait_over(PATIENCE), "{script}: it lives on after its time: {}", job.state());
        assert_eq!(job.record().expect("a record")["last"]["ending"]["cause"], "timeout", "{script}");
        is_quiet(&env);
    }
}

#[test]
fn no_run_begins_after_the_owner_is_gone() {
    let env = TestEnv::as_me();
    let mut owner = std::process::Command::new("sleep").arg(env.oracle.nap()).spawn().expect("sleep");
    let pid = owner.id().to_string();
    let quell = soon(&env, "always").args(["--restart-limit", "none", "--owner", &pid]);
    let job = quell.env("QUELL_START_RESTART_MAX_DELAY", "30ms").command(["true"]).begin();
    assert!(eventually(PATIENCE, || count(&job, "started") > 2), "{:?}", job.events());
    owner.kill().and_then(|()| owner.wait()).expect("kill");
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    assert_eq!(job.record().expect("a record")["last"]["ending"]["cause"], "owner_gone");
    is_quiet(&env);
}

#[test]
fn a_job_whose_program_is_gone_at_a_restart_keeps_its_record_and_shows_no_masked_value() {
    let env = TestEnv::as_me();
    let program = env.path("program-hunter2");
    // Its first run removes it.
    env.script("program-hunter2", "#!/bin/sh\nrm \"$0\"\nexit 7\n");
    let start =
        soon(&env, "always").args(["--restart-limit", "2", "--mask", "TOKEN"]).env("TOKEN", "hunter2");
    let job = start.command([&program]).begin();
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    assert!(eventually(PATIENCE, || job.process("standby").is_none()));
    let receipt = job.receipt().expect("a receipt");
    assert_eq!(receipt["cause"], "start_failed", "{receipt:#}");
    assert!(receipt["run"].as_u64() > Some(1), "{receipt:#}");
    let status = env.quell("status").args([&job.id]).finish();
    assert!(status.stdout.contains("it never ran"), "{}{}", status.stdout, status.stderr);
    assert!(!receipt.to_string().contains("hunter2") && !status.stdout.contains("hunter2"), "{receipt:#}");
    is_quiet(&env);
}

/// A stop meets an exec that is under way: a large argument makes that take its time. Each run says at once that it runs.
#[test]
fn a_run_that_a_stop_meets_at_its_exec_is_told_as_it_was() {
    let env = TestEnv::as_me();
    let script = "echo run >>$R; exit 7";
    let long = "x".repeat(100_000);
    for round in 0..quell_tests::rounds().div_ceil(8) {
        let runs = env.path(&format!("runs{round}"));
        let start = soon(&env, "always").args(["--restart-limit", "none"]).env("R", &runs);
        let start = start.env("QUELL_START_RESTART_DELAY", "0");
        let job = start.command(["sh", "-c", script].into_iter().chain([long.as_str(); 6])).begin();
        std::thread::sleep(std::time::Duration::from_millis(5 + round as u64 % 20));
        assert_eq!(job.stop(&[]).code(), Some(0));
        let receipt = job.receipt().expect("a receipt");
        let ran = fs::read_to_string(&runs).unwrap_or_default().lines().count();
        let of_runs = receipt["run"].as_u64().unwrap_or_default() as usize;
        if receipt["root"]["outcome"]["kind"] == "not_started" {
            assert_eq!(ran, of_runs - 1, "{receipt:#}");
        }
    }
}
