//! Many at once: starts, stops, names; and stops of jobs in every state, of keepers that don't answer too.
//!
//! `QUELL_TEST_CROWD` says how many jobs the largest test starts (100).

use std::{collections::BTreeSet, env, fs, thread};

use quell_tests::{
    all_hold, eventually,
    evidence::{cause, grace_used, says_gone},
    host::Setting,
    run::{Finished, PATIENCE},
    test_env::TestEnv,
};

use crate::recovery::crash::{signal_all, spread, supervisors};

fn job_count() -> usize {
    env::var("QUELL_TEST_CROWD").ok().and_then(|n| n.parse().ok()).unwrap_or(100)
}

fn all(count: usize) -> Vec<usize> {
    (0..count).collect()
}

fn is_quiet(env: &TestEnv, what: &str) {
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new(), "{what}");
    assert_eq!(env.ids("live"), Vec::<String>::new(), "{what}");
}

#[test]
fn a_crowd_of_starts_is_all_there_and_all_gone_after_one_stop() {
    let (env, count) = (TestEnv::as_me(), job_count());
    all_hold(40, &all(count), |round| {
        let done = env.start().command(["sleep", &env.oracle.nap()]).finish();
        if done.code() == Some(0) { Ok(()) } else { Err(format!("start {round}: {}", done.stderr)) }
    });
    let live = env.ids("live");
    assert_eq!(live.len(), count);
    assert!(live.iter().all(|id| env.job(id).state() == "running"));
    let done = env.quell("stop").args(["--all", "--json"]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(done.stdout.lines().count(), 1);
    assert_eq!(done.envelope()["data"]["jobs"].as_array().map(Vec::len), Some(count));
    let receipts: Vec<serde_json::Value> = live.iter().filter_map(|id| env.job(id).receipt()).collect();
    assert_eq!(receipts.len(), count);
    receipts.iter().for_each(|receipt| says_gone(receipt).expect("gone"));
    is_quiet(&env, "many jobs");
}

#[test]
fn a_stop_at_once_after_the_start_leaves_nothing_in_the_background() {
    all_hold(4, &spread(2), |&(round, setting)| {
        let env = TestEnv::enclosed(setting);
        let quell = env.start().args(["--contain", setting.contain.as_str(), "--grace", "200ms"]);
        let job = quell.command(["sleep", &env.oracle.nap()]).begin();
        let done = job.stop(&[]);
        let what = format!("round {round}, {setting}");
        if done.code() != Some(0) || !job.is_over() || job.state() != "ended" {
            return Err(format!("{what}: {} {}", done.stderr, job.state()));
        }
        says_gone(&job.receipt().ok_or("no receipt")?)?;
        let left = env.leftovers_after(PATIENCE);
        if left.is_empty() { Ok(()) } else { Err(format!("{what}: {left:?}")) }
    });
}

/// From without, at any instant of a start: the job is stopped, or there was none yet.
#[test]
fn a_stop_in_the_midst_of_a_start_is_right() {
    all_hold(3, &spread(3), |&(round, setting)| {
        let env = TestEnv::enclosed(setting);
        let quell = env.start().args(["--contain", setting.contain.as_str(), "--grace", "200ms"]);
        let mut start = quell.command(["sleep", &env.oracle.nap()]).start();
        let pause = crate::stop::races::pause_up_to(15_000);
        let stop = env.quell("stop").args(["--all"]).finish();
        let what = format!("round {round}, {setting}, stop after {pause:?}");
        let started = start.wait_exit(PATIENCE).ok_or(format!("{what}: the start did not return"))?;
        let said = start.stderr();
        if stop.code() != Some(0) {
            return Err(format!("{what}: {}: {}", stop.status, stop.stderr));
        }
        if !started.success() && (said.lines().count() != 1 || said.contains("was lost")) {
            return Err(format!("{what}: the start says {said:?}"));
        }
        crate::recovery::crash::truth(&env, &what)
    });
}

/// A program that takes its time when it is asked, and counts how often that happens.
const SLOW: &str = "trap 'echo asked >>asked; sleep 1; exit 0' TERM; echo ready >$QUELL_TEST_READY; \
                    while :; do sleep 0.02; done";

fn asked(env: &TestEnv) -> usize {
    fs::read_to_string(env.path("asked")).unwrap_or_default().lines().count()
}

/// Many commands at the same time; what became of each.
fn at_once(count: usize, command: impl Fn(usize) -> Finished + Sync) -> Vec<Finished> {
    thread::scope(|scope| {
        let command = &command;
        let running: Vec<_> = (0..count).map(|at| scope.spawn(move || command(at))).collect();
        running.into_iter().map(|running| running.join().expect("a command")).collect()
    })
}

#[test]
fn many_stops_of_one_job_are_one_polite_stop() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--grace", "20s"]).script(SLOW).begin();
    let id = job.id.as_str();
    let done = at_once(quell_tests::rounds().min(100), |_| env.job(id).stop(&["--json"]));
    for done in &done {
        assert_eq!(done.code(), Some(0), "{}{}", done.stdout, done.stderr);
    }
    assert_eq!(asked(&env), 1);
    let receipts: BTreeSet<String> =
        done.iter().map(|done| done.envelope()["data"]["jobs"][0]["receipt"].to_string()).collect();
    assert_eq!(receipts.len(), 1, "{receipts:?}");
    is_quiet(&env, "many stops");
}

#[test]
fn a_stop_now_hurries_the_polite_ones_and_all_succeed() {
    let env = TestEnv::as_me();
    let script =
        "trap 'echo asked >>asked' TERM; echo ready >$QUELL_TEST_READY; while :; do sleep 0.02; done";
    let job = env.start().args(["--grace", "25s"]).script(script).begin();
    let id = job.id.as_str();
    let done = at_once(8, |at| {
        if at >= 6 {
            eventually(PATIENCE, || asked(&env) > 0);
        }
        env.job(id).stop(if at >= 6 { &["--now"] } else { &[] })
    });
    assert!(done.iter().all(|done| done.code() == Some(0)), "{done:?}");
    let used = grace_used(&job.receipt().expect("a receipt"));
    assert!(used.is_some_and(|used| used < 25.0), "the grace was waited for: {used:?}");
    assert_eq!(asked(&env), 1);
    is_quiet(&env, "a mix of stops");
}

#[test]
fn of_many_starts_with_one_name_one_wins() {
    let env = TestEnv::as_me();
    for round in 0..quell_tests::rounds().div_ceil(25) {
        let done = at_once(8, |_| {
            env.start().args(["--name", "one"]).command(["sleep", &env.oracle.nap()]).finish()
        });
        let won: Vec<&Finished> = done.iter().filter(|done| done.code() == Some(0)).collect();
        assert_eq!(won.len(), 1, "round {round}: {done:?}");
        for lost in done.iter().filter(|done| done.code() != Some(0)) {
            assert_eq!(lost.code(), Some(1), "round {round}: {lost:?}");
            assert!(lost.stderr.contains(won[0].stdout.trim()), "round {round}: {lost:?}");
        }
        assert_eq!(env.ids("live"), [won[0].stdout.trim()], "round {round}");
        let stop = env.quell("stop").args(["one"]).finish();
        assert_eq!(stop.code(), Some(0), "round {round}: {}", stop.stderr);
        is_quiet(&env, "one name");
    }
}

/// The root is gone, and the tree is waited for: a stop ends it.
#[test]
fn a_job_that_waits_for_its_tree_can_be_stopped() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let quell = env.start().args(["--until", "tree", "--contain", setting.contain.as_str()]);
        let job = quell.args(["--grace", "300ms"]).actor("daemon-exit", None).begin();
        let root_gone = || job.events().contains(&"root_exited".to_owned());
        assert!(eventually(PATIENCE, root_gone), "{setting}: {:?}", job.events());
        assert!(!job.is_over(), "{setting}");
        let done = job.stop(&[]);
        assert_eq!(done.code(), Some(0), "{setting}: {}", done.stderr);
        assert_eq!(cause(&job.receipt().expect("a receipt")), "user", "{setting}");
        is_quiet(&env, &setting.to_string());
    }
}

/// A stop may give a job more time than it was started with, and a later stop does not take that away.
#[test]
fn a_longer_grace_is_given_in_full() {
    let env = TestEnv::as_me();
    let script = "trap 'sleep 9; echo done >asked; exit 7' TERM; echo ready >$QUELL_TEST_READY; \
                  while :; do sleep 0.02; done";
    let job = env.start().args(["--grace", "100ms"]).script(script).begin();
    let done = job.stop(&["--grace", "25s"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let receipt = job.receipt().expect("a receipt");
    assert_eq!(receipt["root"]["outcome"]["code"], 7, "{receipt}");
    assert_eq!((asked(&env), cause(&receipt)), (1, "user"));
}

/// quell's own processes are stopped (SIGSTOP): a stop is bounded all the same, and ends the job.
#[test]
fn a_job_whose_keepers_are_asleep_can_be_stopped() {
    let settings = Setting::all();
    let cases: Vec<(&[&str], Setting)> =
        [&["quell-keeper"][..], &["quell-standby"], &["quell-keeper", "quell-standby"]]
            .into_iter()
            .flat_map(|names| settings.iter().map(move |setting| (names, *setting)))
            .collect();
    all_hold(cases.len(), &cases, |&(names, setting)| {
        let what = format!("{names:?}, {setting}");
        let env = TestEnv::with(setting);
        let quell = env.start().args(["--contain", setting.contain.as_str(), "--grace", "300ms"]);
        let job = quell.actor("setsid", None).begin();
        let sleepers: Vec<_> = names.iter().flat_map(|name| supervisors(&env, name)).collect();
        if !signal_all("STOP", &sleepers) {
            return Err(format!("{what}: no process was stopped"));
        }
        let done = job.stop(&[]);
        if done.code() != Some(0) || !job.is_over() {
            return Err(format!("{what}: {} after {:?}: {}", done.status, done.took, done.stderr));
        }
        let left = env.leftovers_after(PATIENCE);
        if left.is_empty() { Ok(()) } else { Err(format!("{what}: {left:?}")) }
    });
}

/// A job in the foreground takes a second signal for impatience; a second stop is none.
#[test]
fn stops_of_a_run_one_after_the_other_are_one_polite_stop() {
    let env = TestEnv::as_me();
    let script = "trap 'sleep 1; echo polite; exit 7' TERM; echo ready >$QUELL_TEST_READY; while :; do sleep 0.05; done";
    let mut run = env.run().args(["--name", "fore", "--grace", "20s"]).script(script).start();
    run.wait_ready().expect("a program");
    let stop = || env.quell("stop").args(["fore"]).start();
    let first = stop();
    let stopping = || env.ids("jobs").iter().any(|id| env.job(id).state() == "stopping");
    assert!(quell_tests::eventually(PATIENCE, stopping), "it is not on record");
    for stop in [first, stop()] {
        let done = stop.finish();
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
    }
    let done = run.finish();
    assert_eq!((done.code(), done.stdout.as_str()), (Some(7), "polite\n"), "{}", done.stderr);
}
