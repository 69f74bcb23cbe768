//! The end of a job is written in one order, and each step of it is done once, whichever process dies behind which step.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use quell_tests::{
    eventually,
    evidence::verdict,
    faults::{self, Fault},
    host::{Contain, Setting, User},
    jobs::Background,
    run::{PATIENCE, Quell},
    skip,
    test_env::TestEnv,
};
use serde_json::json;

use crate::jobs::hooks::names_in;

fn test_env() -> TestEnv {
    TestEnv::enclosed(Setting { user: TestEnv::as_me().user(), contain: Contain::Cgroup })
}

fn is_built(test: &str) -> bool {
    faults::binary().inspect_err(|why| skip(test, why)).is_ok()
}

/// A start that meets a fault, with a hook that notes each end in the file `ends`.
fn start<'l>(env: &'l TestEnv, fault: &Fault) -> Quell<'l> {
    let ends = env.path("ends").display().to_string();
    let config = env.write("own.toml", &format!("[[hooks]]\non = [\"ended\"]\nappend = {ends:?}\n"));
    env.faulty("start", fault).env("QUELL_CONFIG", config).args(["--contain", "reaper"])
}

/// What the history says after the last run that was followed by another one.
pub(crate) fn of_last_run(job: &Background<'_>) -> Vec<String> {
    let events = job.events();
    let last = events.iter().rposition(|event| event == "restarting").map_or(0, |at| at + 1);
    events[last..].to_vec()
}

/// How often the history tells the end of the last run, or that there is no other one.
pub(crate) fn ends_of_last_run(job: &Background<'_>) -> usize {
    of_last_run(job).iter().filter(|event| ["ended", "not_restarted"].contains(&event.as_str())).count()
}

#[test]
fn an_end_on_record_is_in_the_history_once_and_hooks_learn_it_after_any_death() {
    if !is_built("an_end_on_record_is_in_the_history_once…") {
        return;
    }
    for step in ["end_published", "end_logged", "settled"] {
        for standby in ["", ",standby.keeper_missed:kill"] {
            let (env, fault) = (test_env(), Fault(format!("keeper.{step}:kill{standby}")));
            let job = start(&env, &fault).command(["true"]).begin();
            assert!(eventually(PATIENCE, || env.hit(&fault).is_some()), "{}: was not reached", fault.0);
            // Until the standby is done, or dead.
            assert!(eventually(PATIENCE, || env.oracle.survivors().is_empty()), "{}", fault.0);
            env.quell("status").args([&job.id]).finish();
            assert_eq!(ends_of_last_run(&job), 1, "{}: {:?}", fault.0, job.events());
            let told = || names_in(&env.path("ends")) == ["ended"];
            assert!(eventually(PATIENCE, told), "{}: hooks: {:?}", fault.0, names_in(&env.path("ends")));
            assert!(job.is_over() && job.state() == "ended", "{}", fault.0);
        }
    }
}

#[test]
fn a_stop_between_two_runs_is_in_the_history_before_the_end_is_on_record() {
    if !is_built("a_stop_between_two_runs_is_in_the_history…") {
        return;
    }
    for standby in ["", ",standby.keeper_missed:kill"] {
        // The first time it is the end of the first run.
        let (env, fault) = (test_env(), Fault(format!("keeper.end_published:kill@2{standby}")));
        let quell = start(&env, &fault).args(["--restart", "always"]).env("QUELL_START_RESTART_DELAY", "60s");
        let job = quell.command(["false"]).begin();
        assert!(eventually(PATIENCE, || job.state() == "waiting"), "{:?}", job.record());
        let stop = job.stop(&[]);
        assert!(matches!(stop.code(), Some(0 | 5)), "{}: {}{}", fault.0, stop.stdout, stop.stderr);
        assert!(env.hit(&fault).is_some(), "{}: was not reached", fault.0);
        let events = of_last_run(&job);
        let at = |name: &str| events.iter().position(|event| event == name);
        assert!(
            at("stop_asked").is_some() && at("stop_asked") < at("not_restarted"),
            "{}: {events:?}",
            fault.0
        );
        assert_eq!(ends_of_last_run(&job), 1, "{}: {events:?}", fault.0);
    }
}

#[test]
fn a_standby_syncs_an_end_whose_keeper_died_in_its_last_sync() {
    if !is_built("a_standby_syncs_an_end…") {
        return;
    }
    let (env, fault) = (test_env(), Fault("keeper.settled:kill".into()));
    let job = start(&env, &fault).command(["true"]).begin();
    let synced = || env.passed().iter().any(|passed| passed.point == "standby.end_synced");
    assert!(eventually(PATIENCE, synced), "{:?}", env.passed());
    assert!(job.is_over() && job.state() == "ended");
}

#[test]
fn the_receipt_of_an_earlier_run_does_not_hide_a_job_without_a_lock() {
    for verb in ["sweep", "stop"] {
        let env = test_env();
        let quell = env.start().args(["--contain", "reaper", "--restart", "always"]);
        let script = "test -e again || { touch again; exit 3; }; echo ready >$QUELL_TEST_READY; sleep $N";
        let job = quell.env("QUELL_START_RESTART_DELAY", "10ms").script(script).begin();
        assert!(job.receipt().is_some(), "no receipt of the first run");
        job.lose();
        fs::remove_file(env.home().join("live").join(&job.id)).expect("a lock");
        let args: &[&str] = if verb == "stop" { &["--all"] } else { &[] };
        let done = env.quell(verb).args(args).finish();
        assert!(matches!(done.code(), Some(0 | 5)), "{verb}: {}{}", done.stdout, done.stderr);
        assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{verb}: {}{}", done.stdout, done.stderr);
        assert_eq!(job.state(), "ended", "{verb}");
    }
}

#[test]
fn a_receipt_says_that_members_which_a_lost_keeper_has_killed_may_be_missing() {
    if !is_built("a_receipt_says_that_members_which_a_lost_keeper_has_killed_may_be_missing") {
        return;
    }
    let env = TestEnv::as_me();
    let script = "sleep $N & sleep $N & echo ready >$QUELL_TEST_READY; wait";
    let job = start(&env, &Fault("keeper.kill_round_done:kill".into()));
    let job = job.args(["--ask", "root"]).script(script).begin();
    let stop = job.stop(&["--now"]);
    let receipt = job.receipt().expect("a receipt");
    assert_eq!((stop.code(), verdict(&receipt)), (Some(0), "gone"), "{receipt:#}");
    let members = receipt["members"].as_array().map_or(0, Vec::len);
    assert!(members == 3 || receipt["warnings"].to_string().contains("may not be counted"), "{receipt:#}");
}

/// Sets the mode of a directory and of those below it.
fn set_modes(dir: &Path, mode: u32) {
    fs::set_permissions(dir, Permissions::from_mode(mode)).expect("chmod");
    let below = fs::read_dir(dir).expect("a directory").flatten().map(|entry| entry.path());
    below.filter(|path| path.is_dir() && !path.is_symlink()).for_each(|path| set_modes(&path, mode));
}

#[test]
fn an_end_in_a_home_whose_directories_can_not_be_written_is_on_record_as_it_was() {
    let env = TestEnv::new(User::Ordinary);
    let gated = "echo ready >$QUELL_TEST_READY; until test -e go; do sleep 0.02; done; exit";
    let exits = env.start().script(&format!("{gated} 3")).begin();
    let stopped = env.start().script("echo ready >$QUELL_TEST_READY; exec sleep $N").begin();
    let mut run = env.run().args(["--name", "front"]).script(&format!("{gated} 7")).start();
    run.wait_ready().expect("the program runs");
    set_modes(&env.home(), 0o500);
    env.write("go", "");
    let run = run.finish();
    let keepers = ["standby", "keeper"].map(|role| exits.process(role));
    let gone = eventually(PATIENCE, || keepers.iter().flatten().all(|keeper| !keeper.is_alive()));
    let stop = stopped.stop(&[]);
    let wait = env.quell("wait").args([&exits.id]).finish();
    set_modes(&env.home(), 0o700);
    assert!(gone, "{keepers:?} did not exit");
    assert_eq!(run.code(), Some(7), "{}", run.stderr);
    assert!(run.stderr.contains("the record could not be written"), "{}", run.stderr);
    for (what, done) in [("stop", stop), ("wait", wait)] {
        assert_eq!(done.code(), Some(125), "{what}: {}{}", done.stdout, done.stderr);
        assert!(
            done.stderr.contains("has ended") && done.stderr.contains("Permission"),
            "{what}: {}",
            done.stderr
        );
    }
    let code = |code: i32| json!({ "kind": "exited", "code": code });
    let term = json!({ "kind": "signaled", "signal": "TERM", "core": false });
    for (job, outcome, cause) in [
        (exits.id.as_str(), code(3), "own_exit"),
        ("front", code(7), "own_exit"),
        (stopped.id.as_str(), term, "user"),
    ] {
        let status = env.quell("status").args([job, "--json"]).finish();
        let view = &status.envelope()["data"]["job"];
        assert_eq!(
            (&view["state"], &view["outcome"], &view["cause"]),
            (&"ended".into(), &outcome, &cause.into()),
            "{view}"
        );
    }
    let receipt = exits.receipt().expect("a receipt");
    assert_eq!(
        (&receipt["root"]["outcome"], &receipt["cause"]),
        (&code(3), &"own_exit".into()),
        "{receipt:#}"
    );
    // Beside a process of the same user that started later, as other tests have them, the job is counted again instead.
    let is_made_later = receipt["warnings"].to_string().contains("made later");
    let is_counted = exits.events().iter().any(|event| event == "lost");
    assert!(is_made_later || is_counted, "{receipt:#}");
    assert_eq!(ends_of_last_run(&exits), 1, "{:?}", exits.events());
}

#[test]
fn a_lost_job_whose_root_had_exited_keeps_its_exit_code() {
    if !is_built("a_lost_job_whose_root_had_exited_keeps_its_exit_code") {
        return;
    }
    let (env, fault) = (test_env(), Fault("keeper.finish_begun:kill,standby.keeper_missed:kill".into()));
    let job = start(&env, &fault).sh("exit 3").begin();
    assert!(eventually(PATIENCE, || env.oracle.survivors().is_empty()), "{}", fault.0);
    let status = env.quell("status").args([&job.id, "--json"]).finish();
    let view = &status.envelope()["data"]["job"];
    let outcome = json!({ "kind": "exited", "code": 3 });
    assert_eq!((&view["outcome"], &view["cause"]), (&outcome, &"keeper_lost".into()), "{view}");
}
