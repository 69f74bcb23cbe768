//! What the nearest peers get wrong, done right.

use std::{
    fs,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use quell::binary::JobInternals;
use quell::{RestartPolicy, StopOptions};
use quell_tests::{
    UNIGNORED, eventually,
    evidence::{cause, says_gone},
    few_pids,
    host::{Contain, Setting},
    last_json,
    oracle::Process,
    rounds,
    run::PATIENCE,
    skip,
    test_env::TestEnv,
};
use serde_json::Value;

use crate::library::{nap, over, quell};

fn nothing_left(env: &TestEnv) {
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
}

#[test]
fn a_member_that_ignores_term_is_gone_though_its_leader_died_first() {
    // The leader dies of TERM at once; what is in its group does not heed it.
    let script = "bash -c 'trap \"\" TERM; echo ready >$QUELL_TEST_READY; while :; do sleep $N; done' & wait";
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let job = env.start().args(["--contain", setting.contain.as_str()]).script(script).begin();
        let done = job.stop(&["--grace", "200ms"]);
        assert_eq!(done.code(), Some(0), "under {setting}: {}", done.stderr);
        says_gone(&job.receipt().expect("a receipt")).expect("gone");
        assert!(env.oracle.survivors_after(PATIENCE).is_empty(), "under {setting}");
    }
}

#[test]
fn what_the_root_left_behind_is_stopped_and_said_to_have_leaked() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let script = "setsid sleep $N & echo ready >$QUELL_TEST_READY; exit 0";
        let job = env.start().args(["--contain", setting.contain.as_str()]).script(script).begin();
        assert!(job.wait_over(PATIENCE), "under {setting}: {}", job.state());
        let receipt = job.receipt().expect("a receipt");
        assert_eq!(receipt["root"]["outcome"]["code"], 0, "under {setting}: {receipt}");
        assert_eq!(
            receipt["left_at_root_exit"].as_array().map(Vec::len),
            Some(1),
            "under {setting}: {receipt}"
        );
        assert!(job.events().contains(&"leaked".into()), "under {setting}: {:?}", job.events());
        says_gone(&receipt).expect("gone");
        nothing_left(&env);
    }
}

#[test]
fn with_until_tree_what_the_root_left_behind_is_waited_for() {
    let env = TestEnv::as_me();
    let script = "(sleep 0.3; echo late) & echo ready >$QUELL_TEST_READY; exit 7";
    let job = env.start().args(["--until", "tree"]).script(script).begin();
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    assert_eq!(job.output("stdout"), "late\n");
    assert_eq!(job.receipt().expect("a receipt")["root"]["outcome"]["code"], 7);
    assert!(!job.events().contains(&"leaked".into()), "{:?}", job.events());
    nothing_left(&env);
}

#[test]
fn a_stop_right_after_the_start_leaves_nothing() {
    let env = TestEnv::as_me();
    let quell = quell(&env);
    for round in 0..rounds() / 4 {
        let job = quell.start(&nap(&env)).expect("a start");
        let stop = if round % 2 == 0 { StopOptions::kill() } else { StopOptions::default() };
        let stopped = job.stop_with(&stop).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(stopped.receipt().verdict, quell::Verdict::Gone, "round {round}");
        assert!(!stopped.already_ended(), "round {round}");
    }
    nothing_left(&env);
}

/// Changes a file of the record, for example to PIDs of another boot or of processes that are gone.
fn forge(path: &std::path::Path, change: impl Fn(&mut Value)) {
    let mut value = last_json(&fs::read(path).expect("a record")).expect("JSON");
    change(&mut value);
    fs::write(path, serde_json::to_vec(&value).expect("JSON")).expect("a record");
}

#[test]
fn a_recycled_pid_is_neither_taken_for_the_job_nor_signalled() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    job.lose_all(&["standby", "keeper", "root"]);
    assert!(!job.is_over(), "no process is left to say so");
    // A stranger has got their numbers; it started at another time, which the kernel tells in hundredths of a second.
    thread::sleep(Duration::from_millis(20));
    let mut stranger = Command::new("sleep").arg("60").process_group(0).spawn().expect("sleep");
    forge(&job.dir().join("state.jsonl"), |state| {
        for role in ["/keeper", "/standby", "/tree/root"] {
            let process = state.pointer_mut(role).unwrap_or_else(|| panic!("no {role}"));
            process["pid"] = stranger.id().into();
        }
    });
    let view = quell(&env).job(&job.id).and_then(|job| job.view()).expect("a view");
    assert_eq!(view.state, quell::JobState::Ended);
    assert!(stranger.try_wait().expect("wait").is_none(), "the stranger was killed");
    stranger.kill().and_then(|()| stranger.wait()).expect("ours");
    nothing_left(&env);
}

#[test]
fn a_late_kill_hits_no_process_that_got_the_group_since() {
    if let Err(reason) = few_pids::available() {
        return skip("a_late_kill_hits_no_process_that_got_the_group_since", &reason);
    }
    let env = TestEnv::as_me();
    let script = r#"
        for i in $(seq $ROUNDS); do
            # The leader is gone at once; the KILL comes when its group may belong to others.
            id=$($Q start --contain $CONTAIN --grace 60ms -- bash -c 'trap "" TERM; (sleep 0.2)& sleep 0.01; exit 0' 2>>stderr.out)
            other=$($Q start --contain $CONTAIN --grace 60ms -- $A ignore-term $T 2>>stderr.out)
            $Q stop $id $other >>receipts.out 2>>stderr.out; echo "stop $?" >>codes.out
        done
    "#;
    few_pids::check_bystanders(&env, Contain::Reaper, script);
    let codes = fs::read_to_string(env.path("codes.out")).unwrap_or_default();
    assert!(!codes.contains("stop 5"), "not proven dead: {codes}");
}

#[test]
fn the_callers_group_gets_no_signal() {
    let env = TestEnv::as_me();
    // The caller is the leader of its group, so every process in it gets a signal to the group.
    let script = r#"
        trap 'echo TERM >>heard' TERM; trap 'echo INT >>heard' INT; trap 'echo HUP >>heard' HUP
        for i in 1 2 3; do
            id=$($Q start --grace 50ms -- bash -c 'trap "" TERM INT HUP; while :; do sleep $N; done')
            $Q stop $id >/dev/null || echo "stop $?" >>heard
            id=$($Q start -- sleep $N); $Q stop --now $id >/dev/null || echo "stop $?" >>heard
        done
        echo done >>heard
    "#;
    let mut caller = Command::new(UNIGNORED[0]);
    caller
        .args(&UNIGNORED[1..])
        .args(["bash", "-c", script])
        .current_dir(env.dir())
        .process_group(0)
        .stdin(Stdio::null());
    caller.env("Q", env.quell_path()).env("QUELL_HOME", env.home()).env("N", env.oracle.nap());
    let status = caller.status().expect("bash");
    assert!(status.success(), "{status}");
    assert_eq!(fs::read_to_string(env.path("heard")).expect("what it heard"), "done\n");
    nothing_left(&env);
}

#[test]
fn a_killed_keeper_leaves_no_program_behind() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let job = env.start().args(["--contain", setting.contain.as_str()]).actor("setsid", None).begin();
        job.process("keeper").expect("a keeper").signal("KILL");
        assert!(job.wait_over(PATIENCE), "under {setting}: {}", job.state());
        let receipt = job.receipt().expect("a receipt");
        assert_eq!(cause(&receipt), "keeper_lost", "under {setting}");
        says_gone(&receipt).unwrap_or_else(|why| panic!("under {setting}: {why}"));
        nothing_left(&env);
    }
}

#[test]
fn each_signal_is_sent_as_it_is_named_and_an_unknown_one_is_an_error() {
    let env = TestEnv::as_me();
    let script = "for s in HUP USR1 USR2 INT WINCH; do trap \"echo $s\" $s; done
        echo ready >$QUELL_TEST_READY; while :; do sleep 0.01; done";
    let job = env.start().script(script).begin();
    let handle = quell(&env).job(&job.id).expect("the job");
    for (text, word) in
        [("HUP", "HUP"), ("SIGUSR1", "USR1"), ("usr2", "USR2"), ("2", "INT"), ("sigwinch", "WINCH")]
    {
        let signal: quell::Signal = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(handle.signal(signal, quell::SignalTo::Root).expect("a signal"), 1, "{text}");
        let heard = || job.output("stdout").lines().last() == Some(word);
        assert!(eventually(PATIENCE, heard), "{text}: {:?}", job.output("stdout"));
    }
    for text in ["", "KILLALL", "SIGSIG", "0", "-9", "99", "TERM ", "HUP,KILL"] {
        assert!(text.parse::<quell::Signal>().is_err(), "{text:?}");
        let done = env.start().args(["--signal", text]).command(["true"]).finish();
        assert_eq!(done.code(), Some(2), "{text:?}: {}", done.stderr);
    }
    assert_eq!(job.state(), "running");
    // A stop by another signal than TERM: the program heeds only that one.
    let script = "trap '' TERM; trap 'echo bye; exit 3' USR1; echo ready >$QUELL_TEST_READY; while :; do sleep 0.01; done";
    let other = env.start().args(["--signal", "usr1"]).script(script).begin();
    assert_eq!(other.stop(&[]).code(), Some(0));
    assert_eq!(other.output("stdout"), "bye\n");
    assert_eq!(other.receipt().expect("a receipt")["root"]["outcome"]["code"], 3);
}

#[test]
fn what_cannot_start_is_an_error_and_leaves_no_trace() {
    let env = TestEnv::as_me();
    let file = env.write("file", "no program");
    let file = file.to_str().expect("a path");
    for (args, command, code, word) in [
        (vec!["--cwd", "/nonexistent"], "true", 125, "/nonexistent"),
        (vec!["--cwd", file], "true", 125, file),
        (vec!["--cwd", ""], "true", 2, "--cwd"),
        (vec![], "no-such-program", 127, "no-such-program"),
        (vec![], file, 126, file),
        (vec!["--stdin", "/nonexistent"], "true", 125, "/nonexistent"),
    ] {
        let done = env.start().args(&args).command([command]).finish();
        assert_eq!(done.code(), Some(code), "{args:?} {command}: {}{}", done.stdout, done.stderr);
        assert!(done.stderr.contains(word), "{args:?} {command}: {}", done.stderr);
        assert_eq!(done.stdout, "", "{args:?} {command}");
        for place in ["jobs", "live", "done"] {
            assert_eq!(env.ids(place), Vec::<String>::new(), "{args:?} {command}: {place}");
        }
    }
    nothing_left(&env);
}

#[test]
fn a_path_or_nothing_is_no_job() {
    let env = TestEnv::as_me();
    let quell = quell(&env);
    let job = quell.start(&quell::JobRequest::background(["true"])).expect("a start");
    over(&job);
    let precious = env.write("precious", "do not remove");
    let id = job.id().to_string();
    let in_dots = format!("../jobs/{id}");
    let absolute = job.dir().dir().display().to_string();
    for text in [
        "",
        ".",
        "..",
        "../..",
        "/",
        "/etc",
        "jobs/..",
        "*",
        "a b",
        "\n",
        "-1",
        &in_dots,
        &absolute,
        &format!("{id}/"),
        &format!("{id}/.."),
    ] {
        let found = quell.job(text);
        assert!(
            matches!(&found, Err(quell::Error::InvalidJob(_) | quell::Error::NoSuchJob(_))),
            "{text:?}: {found:?}"
        );
        let done = env.quell("stop").args(["--", text]).finish();
        assert!(matches!(done.code(), Some(2 | 3)), "{text:?}: {:?} {}", done.code(), done.stderr);
    }
    assert!(precious.exists() && job.dir().exists());
    // What isn't a job's record is not removed by its name either.
    let stranger: quell::JobId = "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().expect("an id");
    let gone = quell.job_with(stranger).remove(quell::Removal::Force);
    assert!(matches!(gone, Err(quell::Error::NoSuchJob(_))), "{gone:?}");
    job.remove(quell::Removal::IfProvenDead).expect("a remove");
    assert!(!job.dir().exists() && precious.exists());
}

#[test]
fn what_is_written_after_the_roots_exit_is_kept() {
    let env = TestEnv::as_me();
    // Until the tree is gone, its members may write: here in answer to the TERM of the leak's stop.
    let script = "bash -c 'trap \"echo last words; echo to stderr >&2; exit\" TERM
            echo ready >$QUELL_TEST_READY; while :; do sleep 0.01; done' & \
        until [ -e up ]; do sleep 0.01; done; echo first; exit 0";
    let job = env.start().script(script).begin();
    env.write("up", "");
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    assert_eq!(job.output("stdout"), "first\nlast words\n");
    // The shell may have its own word to say about its `sleep`.
    assert!(job.output("stderr").ends_with("to stderr\n"), "{:?}", job.output("stderr"));
    assert_eq!(job.receipt().expect("a receipt")["output"]["stdout"]["lines"], 2);
}

/// The processes of the environment that are the program, by a word of their command line.
fn programs(env: &TestEnv, word: &str) -> Vec<Process> {
    env.oracle.survivors().into_iter().filter(|process| process.command.contains(word)).collect()
}

#[test]
fn a_restart_begins_when_the_old_tree_is_gone() {
    let env = TestEnv::as_me();
    // It takes the lock of its generation: two at a time would be seen. Its child ignores the polite request.
    let script = env.script(
        "program",
        "#!/bin/bash
        exec 9>generation.lock
        flock -n 9 || { echo two >>twice; exit 9; }
        bash -c \"trap '' TERM; sleep $1; :\" survivor $1 &
        sleep $1",
    );
    let quell = quell(&env);
    let mut start = quell::JobRequest::background([script.to_str().expect("a path"), &env.oracle.nap()]);
    start.cwd = Some(env.dir().to_owned());
    start.name = Some("worker".into());
    let mut job = quell.start(&start).expect("a start");
    let stop = StopOptions::default().grace(Duration::from_millis(100));
    for round in 0..5 {
        assert!(eventually(PATIENCE, || !programs(&env, "survivor").is_empty()), "round {round}");
        let old = programs(&env, &env.oracle.nap());
        let next = job.restart(&stop).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(old.iter().all(|process| !process.is_alive()), "round {round}: the old tree lives");
        assert_ne!(next.id(), job.id());
        assert_eq!(next.view().expect("a view").restarted_from, Some(job.id()));
        assert_eq!(quell.job("worker").expect("by name").id(), next.id());
        job = next;
    }
    let _ = job.stop_with(&stop).expect("a stop");
    assert!(!env.path("twice").exists(), "two generations at a time");
    nothing_left(&env);
}

#[test]
fn a_program_that_is_started_again_by_itself_is_alone() {
    let env = TestEnv::as_me();
    let script = env.script(
        "program",
        "#!/bin/bash
        exec 9>generation.lock
        flock -n 9 || { echo two >>twice; exit 9; }
        setsid bash -c \"trap '' TERM; sleep $1; :\" survivor $1 &
        echo run >>runs; sleep 0.02; exit 1",
    );
    let quell = quell(&env);
    let mut background = quell::Background::default();
    background.restart.policy = RestartPolicy::OnFailure;
    background.restart.limit = Some(4);
    background.restart.delay = Duration::from_millis(1);
    let command = [script.to_str().expect("a path"), &env.oracle.nap()];
    let mut start = quell::JobRequest::new(command, background);
    start.cwd = Some(env.dir().to_owned());
    start.stop.grace = Duration::from_millis(50);
    let job = quell.start(&start).expect("a start");
    assert_eq!(over(&job), quell::Condition::Exit);
    assert_eq!(fs::read_to_string(env.path("runs")).expect("runs").lines().count(), 5);
    assert!(!env.path("twice").exists(), "two generations at a time");
    assert_eq!(job.view().expect("a view").run, 5);
    nothing_left(&env);
}

#[test]
fn a_restart_is_refused_while_there_are_survivors() {
    let env = TestEnv::as_me();
    let quell = quell(&env);
    let job = quell.start(&nap(&env)).expect("a start");
    let _ = job.stop().expect("a stop");
    // The record names a process that is still alive, as it would after a stop that failed.
    let mut survivor = Command::new("sleep").arg("60").spawn().expect("sleep");
    let process = Process::now(survivor.id()).expect("ours");
    forge(&job.dir().dir().join("state.jsonl"), |state| {
        state["state"] = "stopping".into();
        state["ending"] = state["last"]["ending"].take();
        state["survivors"] = serde_json::json!([{ "pid": process.pid, "start": process.start }]);
    });
    let again = job.restart(&StopOptions::default());
    survivor.kill().and_then(|()| survivor.wait()).expect("ours");
    assert!(matches!(again, Err(quell::Error::NotProvenDead(_))), "{again:?}");
    assert_eq!(quell.list(&quell::Filter::default()).expect("a list").jobs.len(), 1);
}
