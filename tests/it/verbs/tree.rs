//! `quell tree`: the processes that are in a job, or were.

use std::time::{Duration, Instant};

use quell_tests::{eventually, host::Setting, run::PATIENCE, test_env::TestEnv};

#[test]
fn a_live_tree_is_drawn_with_processes_that_left_its_session() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let script = "sleep $N & setsid sleep $N & echo ready >$QUELL_TEST_READY; wait";
        let job = env.start().args(["--contain", setting.contain.as_str()]).script(script).begin();
        // The script is ready when both exist; one of them has still to leave the session.
        let sessions = || {
            let envelope = env.quell("tree").args([&job.id, "--json"]).finish().envelope();
            let processes = envelope["data"]["processes"].as_array().cloned().unwrap_or_default();
            processes
                .iter()
                .filter_map(|process| process["sid"].as_u64())
                .collect::<std::collections::BTreeSet<_>>()
        };
        assert!(
            quell_tests::eventually(quell_tests::run::PATIENCE, || sessions().len() == 2),
            "under {setting}"
        );
        let done = env.quell("tree").args([&job.id]).finish();
        assert_eq!(done.code(), Some(0), "under {setting}: {}", done.stderr);
        let text = &done.stdout;
        assert!(text.starts_with(&format!("{}  running, 3 processes\n", job.id)), "under {setting}: {text}");
        assert!(text.contains("  ├─ ") && text.contains("  └─ "), "under {setting}: {text}");
        let envelope = env.quell("tree").args([&job.id, "--json"]).finish().envelope();
        let processes = envelope["data"]["processes"].as_array().expect("processes").clone();
        assert_eq!(processes.len(), 3, "under {setting}: {envelope:#}");
        let sessions: std::collections::BTreeSet<u64> =
            processes.iter().filter_map(|process| process["sid"].as_u64()).collect();
        assert_eq!(sessions.len(), 2, "under {setting}: {envelope:#}");
    }
}

#[test]
fn a_process_that_ignores_term_is_marked() {
    for run in [false, true] {
        let env = TestEnv::as_me();
        let script = "sleep $N & trap '' TERM; echo ready >$QUELL_TEST_READY; sleep $N; :";
        let (job, running) = if run {
            let mut running = env.run().args(["--name", "here"]).script(script).start();
            running.wait_ready().expect("it runs");
            (None, Some(running))
        } else {
            (Some(env.start().args(["--name", "here"]).script(script).begin()), None)
        };
        // The shell, and the child that it has started since.
        let marked = || {
            let envelope = env.quell("tree").args(["here", "--json"]).finish().envelope();
            let processes = envelope["data"]["processes"].as_array().cloned().unwrap_or_default();
            let marks = processes.iter().map(|process| process["ignores_term"] == true);
            (processes.len(), marks.filter(|mark| *mark).count())
        };
        assert!(eventually(PATIENCE, || marked() == (3, 2)), "run: {run}: {:?}", marked());
        assert_eq!(env.quell("stop").args(["here", "--now"]).finish().code(), Some(0));
        drop((job, running));
    }
}

#[test]
fn an_ended_tree_shows_the_fate_of_each_process() {
    let env = TestEnv::as_me();
    let job = env.start().actor("ignore-term", None).begin();
    job.stop(&["--grace", "100ms"]);
    let done = env.quell("tree").args([&job.id]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stdout.starts_with(&format!("{}  ended, ", job.id)), "{}", done.stdout);
    assert!(done.stdout.contains("still running after 100ms, killed"), "{}", done.stdout);
    let envelope = env.quell("tree").args([&job.id, "--json"]).finish().envelope();
    assert_eq!(envelope["data"]["state"], "ended");
    assert!(
        envelope["data"]["members"].as_array().is_some_and(|members| !members.is_empty()),
        "{envelope:#}"
    );
}

#[test]
fn a_job_in_the_foreground_of_another_terminal_has_a_tree_too() {
    let env = TestEnv::as_me();
    let mut running =
        env.run().args(["--name", "front"]).script("sleep $N & echo ready >$QUELL_TEST_READY; wait").start();
    running.wait_ready().expect("ready");
    let asleep = || env.oracle.survivors().iter().any(|process| process.command.starts_with("sleep "));
    assert!(eventually(PATIENCE, asleep));
    let done = env.quell("tree").args(["front"]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(
        done.stdout.contains("running, 2 processes") && done.stdout.contains("└─ sleep"),
        "{}",
        done.stdout
    );
    running.front.signal("TERM");
    running.wait_exit(PATIENCE).expect("quell returns");
}

#[test]
fn of_a_lost_job_the_tree_is_that_of_its_end() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
    job.lose();
    let done = env.quell("tree").args([&job.id, "nobody"]).finish();
    assert_eq!(done.code(), Some(3), "{}", done.stderr);
    assert!(
        done.stdout.contains("ended, 1 process was seen") && done.stdout.contains("killed"),
        "{}",
        done.stdout
    );
}

#[test]
fn keepers_that_die_while_they_are_asked_are_not_waited_for() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
    let keepers = ["standby", "keeper"].map(|role| job.process(role).expect("a kept job"));
    // Silent, and still in possession of the lock and the socket.
    keepers.iter().for_each(|keeper| assert!(keeper.signal("STOP")));
    let mut asking = env.quell("tree").args([&job.id]).start();
    // It has no event for "has asked"; whenever the kill comes, the answer must be the same.
    assert!(asking.wait_exit(Duration::from_millis(300)).is_none(), "a stopped keeper answered");
    keepers.iter().for_each(|keeper| assert!(keeper.signal("KILL")));
    let killed = Instant::now();
    let done = asking.finish();
    let took = killed.elapsed();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("ended, 1 process was seen"), "{}", done.stdout);
    // A keeper that says nothing is waited for for 15 seconds.
    assert!(took < Duration::from_secs(12), "it took {took:?}");
}

#[test]
fn a_root_that_died_of_a_signal_has_not_exited() {
    let env = TestEnv::as_me();
    let job = env.start().sh(&format!("sleep {} & kill -SEGV $$", env.oracle.nap())).begin();
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    let text = env.quell("tree").args([&job.id]).finish().stdout;
    assert!(text.contains("died of SIGSEGV") && !text.contains("exited\n"), "{text}");
}
