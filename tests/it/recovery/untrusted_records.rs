//! Records that can't be trusted: of another boot, damaged, forged, or of processes whose numbers others have now. No
//! stranger is touched, and every job comes to its end.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use quell_tests::{
    eventually,
    evidence::{cause, cgroups_of, receipt, verdict},
    host::{Contain, Setting},
    jobs::Background,
    last_json,
    oracle::{Oracle, Process},
    run::PATIENCE,
    test_env::TestEnv,
};
use serde_json::{Value, json};

use crate::recovery::lost_jobs::{lose, only_receipt, sweep};

/// Changes one file of the environment's one record.
fn forge(env: &TestEnv, name: &str, change: impl FnOnce(&mut Value)) {
    let path = env.records()[0].dir.join(name);
    let mut value = last_json(&fs::read(&path).expect(name)).expect("JSON");
    change(&mut value);
    fs::write(&path, value.to_string()).expect("a forged record");
}

/// The settings whose tree outlives its keeper.
fn lasting() -> Vec<Setting> {
    Setting::all().into_iter().filter(|setting| setting.contain != Contain::Pidns).collect()
}

/// A process that has nothing to do with quell, not even the token of this environment.
struct Stranger {
    oracle: Oracle,
    child: Child,
}

impl Stranger {
    /// `$N` is what to give `sleep`; whatever it starts is found by [`Stranger::living`].
    fn start(script: &str) -> Stranger {
        let oracle = Oracle::new();
        let mut command = Command::new("setsid");
        command.args(["bash", "-c", script]).env("N", oracle.nap());
        // Marked, but by another job.
        command.env("QUELL_MARK", "00112233445566778899aabbccddeeff").env("QUELL_JOB", "another");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Stranger { child: command.spawn().expect("setsid"), oracle }
    }

    fn living(&self) -> Vec<Process> {
        let sleeps = |process: &Process| process.command.starts_with("sleep");
        self.oracle.survivors().into_iter().filter(sleeps).collect()
    }

    fn wait_for(&self, count: usize) -> Vec<Process> {
        assert!(eventually(PATIENCE, || self.living().len() == count), "{:?}", self.oracle.survivors());
        self.living()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.oracle.end_survivors();
        let _ = self.child.wait();
    }
}

#[test]
fn a_stranger_with_the_recorded_pid_is_not_touched() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let _running = lose(&env, setting, ("tree", None, None)).expect("lost");
        let stranger = Stranger::start("exec sleep $N");
        let before = stranger.wait_for(1);
        // Older than all of the job, so that nothing but the identity speaks for the stranger.
        forge(&env, "state.jsonl", |state| {
            state["tree"]["root"] = json!({ "pid": before[0].pid, "start": 1 })
        });
        let (_, report) = sweep(&env);
        assert_eq!(stranger.living(), before, "{setting}: {report:#}");
        assert_ne!(before[0].state(), Some('T'), "{setting}: it was stopped");
        assert_eq!(env.oracle.survivors(), vec![], "{setting}: {report:#}");
    }
}

#[test]
fn a_stranger_with_the_pid_of_a_keeper_keeps_no_job() {
    for setting in lasting() {
        let env = TestEnv::with(setting);
        let _running = lose(&env, setting, ("tree", None, None)).expect("lost");
        let stranger = Stranger::start("exec sleep $N");
        let before = stranger.wait_for(1);
        forge(&env, "state.jsonl", |state| {
            for role in ["keeper", "standby"] {
                state[role] = json!({ "pid": before[0].pid, "start": 1 });
            }
        });
        let (_, report) = sweep(&env);
        assert_eq!(env.leftovers(), Vec::<String>::new(), "{setting}: {report:#}");
        assert_eq!(stranger.living(), before, "{setting}: {report:#}");
    }
}

#[test]
fn strangers_in_a_session_of_the_recorded_number_are_not_touched() {
    for setting in lasting() {
        let env = TestEnv::with(setting);
        let _running = lose(&env, setting, ("tree", None, None)).expect("lost");
        // Its leader is gone, so that no process has the number as its PID; the session goes on.
        let mut stranger = Stranger::start("sleep $N & sleep $N & exit");
        let leader = stranger.child.id();
        let before = stranger.wait_for(2);
        stranger.child.wait().expect("the leader ends");
        forge(&env, "state.jsonl", |state| state["tree"]["root"] = json!({ "pid": leader, "start": 1 }));
        let (_, report) = sweep(&env);
        assert_eq!(stranger.living(), before, "{setting}: {report:#}");
        assert_eq!(env.oracle.survivors(), vec![], "{setting}: {report:#}");
    }
}

#[test]
fn a_cgroup_that_is_not_named_for_the_job_is_not_touched() {
    for setting in lasting().into_iter().filter(|setting| setting.contain == Contain::Cgroup) {
        let env = TestEnv::with(setting);
        let _running = lose(&env, setting, ("tree", None, None)).expect("lost");
        let Some(other) = env.make_cgroup("stranger") else { continue };
        let stranger = Stranger::start("exec sleep $N");
        let before = stranger.wait_for(1);
        fs::write(other.join("cgroup.procs"), before[0].pid.to_string()).expect("a stranger in a cgroup");
        forge(&env, "state.jsonl", |state| state["tree"]["cgroup"] = json!(other));
        let (done, report) = sweep(&env);
        assert_eq!(stranger.living(), before, "{setting}: {report:#}");
        assert_eq!(done.code(), Some(5), "{setting}: {report:#}");
        drop(stranger);
        let _ = fs::remove_dir(&other);
    }
}

/// Gives the environment's one job an id of another time, and another marker: as it would be found after a reboot.
fn of_another_boot(env: &TestEnv) {
    const OLD: &str = "00KA3W6Z0GJ8X4T9M2N7Q5R1SB";
    forge(env, "spec.json", |spec| spec["boot_id"] = json!("00000000-0000-0000-0000-000000000000"));
    for file in ["spec.json", "state.jsonl"] {
        forge(env, file, |record| {
            record["marker"] = json!("00112233445566778899aabbccddeeff");
            record["id"] = json!(OLD);
        });
    }
    let id = env.records()[0].id.clone();
    for place in ["jobs", "live"] {
        let dir = env.home().join(place);
        fs::rename(dir.join(&id), dir.join(OLD)).expect("another id");
    }
}

#[test]
fn a_job_of_another_boot_ended_with_its_host_and_no_process_is_touched() {
    // A cgroup is of this boot for certain, whatever the record says.
    for setting in lasting().into_iter().filter(|setting| setting.contain == Contain::Reaper) {
        let env = TestEnv::with(setting);
        let _running = lose(&env, setting, ("tree", None, None)).expect("lost");
        let before = env.oracle.survivors();
        assert!(!before.is_empty(), "{setting}");
        of_another_boot(&env);
        let (done, report) = sweep(&env);
        assert_eq!(done.code(), Some(0), "{setting}: {report:#}");
        let receipt = only_receipt(&env).expect("a receipt");
        assert_eq!((cause(&receipt), verdict(&receipt)), ("host_reboot", "gone"), "{setting}");
        assert_eq!(env.records()[0].state, "ended", "{setting}");
        // They bear its numbers, but those were given in another boot.
        let mut after = env.oracle.survivors();
        after.retain(|process| process.state() != Some('T'));
        assert_eq!(after, before, "{setting}");
    }
}

#[test]
fn a_damaged_state_does_not_save_a_lost_job() {
    for setting in lasting() {
        for damage in ["", "{", "[]", "{\"schema\":\"quell/1\"}", "\0\0\0\0"] {
            let env = TestEnv::with(setting);
            let _running = lose(&env, setting, ("setsid", None, None)).expect("lost");
            let dir = env.records()[0].dir.clone();
            fs::write(dir.join("state.jsonl"), damage).expect("damage");
            let (_, report) = sweep(&env);
            assert_eq!(env.leftovers(), Vec::<String>::new(), "{setting}, {damage:?}: {report:#}");
            let receipt = receipt(&dir.join("receipt.json")).expect("a receipt");
            assert_eq!(cause(&receipt), "keeper_lost", "{setting}, {damage:?}");
            assert_eq!(receipt["root"]["outcome"]["kind"], "unknown", "{setting}, {damage:?}");
        }
    }
}

#[test]
fn a_damaged_specification_does_not_save_what_a_cgroup_holds() {
    for setting in lasting().into_iter().filter(|setting| setting.contain == Contain::Cgroup) {
        let env = TestEnv::with(setting);
        let _running = lose(&env, setting, ("setsid", None, None)).expect("lost");
        fs::write(env.records()[0].dir.join("spec.json"), "{").expect("damage");
        let (_, report) = sweep(&env);
        assert_eq!(env.leftovers(), Vec::<String>::new(), "{setting}: {report:#}");
    }
}

#[test]
fn a_job_that_ran_and_whose_state_was_deleted_is_a_lost_one() {
    for setting in lasting() {
        let env = TestEnv::with(setting);
        let _running = lose(&env, setting, ("tree", None, None)).expect("lost");
        let record = env.records().remove(0);
        fs::remove_file(record.dir.join("state.jsonl")).expect("no state");
        let (done, report) = sweep(&env);
        assert!(matches!(done.code(), Some(0 | 5)), "{setting}: {report:#}");
        assert_eq!(report["jobs"][0]["action"], json!("stop"), "{setting}: {report:#}");
        assert!(record.dir.join("receipt.json").exists(), "{setting}: no receipt");
        assert_eq!(env.oracle.survivors(), vec![], "{setting}: {report:#}");
        assert_eq!(cgroups_of(&record.id), Vec::<PathBuf>::new(), "{setting}");
    }
}

/// An id that was made at this time.
fn id_of(time: SystemTime) -> String {
    let ms = time.duration_since(UNIX_EPOCH).expect("a time").as_millis();
    let digit = |at: u32| char::from(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"[(ms >> (5 * at)) as usize % 32]);
    (0..10).rev().map(digit).chain("J8X4T9M2N7Q5R1SB".chars()).collect()
}

#[test]
fn a_lock_without_a_record_is_swept_away() {
    let env = TestEnv::as_me();
    assert_eq!(env.run().command(["true"]).finish().code(), Some(0));
    // A start that was killed before it made the directory. However slow the machine is, its lock is not younger than that.
    let lock = env.home().join("live").join(id_of(SystemTime::now() + Duration::from_secs(60)));
    fs::write(&lock, "").expect("a lock");
    let (done, report) = sweep(&env);
    assert_eq!((done.code(), lock.exists()), (Some(0), false), "{report:#}");
    assert_eq!(report["jobs"][0]["action"], json!("remove"), "{report:#}");
}

/// Such a state can also be the job's own work, so the end is proven only if nothing else here can be the job's.
#[test]
fn a_job_that_ended_but_for_the_last_stroke_is_settled_as_it_was() {
    let env = TestEnv::as_me();
    assert_eq!(env.run().sh("exit 3").finish().code(), Some(3));
    let record = env.records().remove(0);
    let read = || last_json(&fs::read(record.dir.join("receipt.json")).expect("a receipt")).expect("JSON");
    let before = read();
    let (done, live) = (env.home().join("done").join(&record.id), env.home().join("live").join(&record.id));
    fs::rename(&done, &live).expect("the stroke undone");
    let (swept, report) = sweep(&env);
    let (after, action) = (read(), &report["jobs"][0]["action"]);
    match (swept.code(), action.as_str()) {
        (Some(0), Some("settle")) => assert_eq!(after, before, "{report:#}"),
        (Some(0), Some("stop")) => assert_eq!(verdict(&after), "gone", "{report:#}"),
        (Some(5), Some("stop")) => assert_eq!(verdict(&after), "unproven", "{report:#}"),
        other => panic!("{other:?}: {report:#}"),
    }
    assert!(!live.exists(), "{report:#}");
    assert_eq!((&after["root"], &after["cause"]), (&before["root"], &before["cause"]), "{report:#}");
}

#[test]
fn an_empty_cgroup_of_an_ended_job_is_removed_and_one_of_an_unknown_job_is_not() {
    for setting in Setting::all().into_iter().filter(|setting| setting.contain == Contain::Cgroup) {
        let env = TestEnv::enclosed(setting);
        let quell = env.run().args(["--contain", "cgroup"]);
        assert_eq!(quell.sh("sed s/^0::// -n /proc/self/cgroup; true").finish().code(), Some(0));
        let record = env.records().remove(0);
        let state = last_json(&fs::read(record.dir.join("state.jsonl")).expect("a state")).expect("JSON");
        let old = PathBuf::from(state["tree"]["cgroup"].as_str().expect("a cgroup"));
        let unknown = old.with_file_name("quell-01KA3W6Z0GJ8X4T9M2N7Q5R1SB");
        fs::create_dir(&old).and_then(|()| fs::create_dir(&unknown)).expect("cgroups");
        let (_, report) = sweep(&env);
        assert_eq!((old.exists(), unknown.exists()), (false, true), "{setting}: {report:#}");
        fs::remove_dir(&unknown).expect("rmdir");
    }
}

#[test]
fn a_kept_job_is_not_touched() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let quell = env.run().args(["--contain", setting.contain.as_str(), "--grace", "300ms"]);
        let mut running = quell.actor("tree", None).start();
        running.wait_ready().expect("ready");
        let before = env.oracle.survivors();
        let (done, report) = sweep(&env);
        assert_eq!(
            (done.code(), &report["kept"], &report["jobs"]),
            (Some(0), &json!(1), &json!([])),
            "{report:#}"
        );
        assert_eq!(env.oracle.survivors(), before, "{setting}: {report:#}");
        running.front.signal("TERM");
        running.wait_exit(PATIENCE).expect("quell returns");
        assert_eq!(env.leftovers(), Vec::<String>::new(), "{setting}");
    }
}

/// A survivor that was named can't be found by a mark, and is not signalled for being named; but it is not forgotten.
#[test]
fn a_survivor_on_record_is_named_until_it_is_gone() {
    for setting in lasting().into_iter().filter(|setting| setting.contain == Contain::Reaper) {
        let env = TestEnv::with(setting);
        let _running = lose(&env, setting, ("tree", None, None)).expect("lost");
        let stranger = Stranger::start("exec sleep $N");
        let survivor = stranger.wait_for(1).remove(0);
        forge(&env, "state.jsonl", |state| {
            state["state"] = json!("stopping");
            state["ending"] = json!({ "cause": "user", "actor": { "kind": "unknown" } });
            state["survivors"] = json!([{ "pid": survivor.pid, "start": survivor.start }]);
        });
        for _ in 0..2 {
            let (done, report) = sweep(&env);
            assert_eq!(done.code(), Some(5), "{setting}: {report:#}");
            let state = &env.records()[0];
            let text = fs::read(state.dir.join("state.jsonl")).expect("a state");
            let state = last_json(&text).expect("JSON");
            assert_eq!(state["survivors"][0]["pid"], survivor.pid, "{setting}: {state:#}");
            assert!(survivor.is_alive(), "{setting}");
        }
        assert!(survivor.signal("KILL"));
        assert!(eventually(PATIENCE, || !survivor.is_alive()));
        let (_, report) = sweep(&env);
        let receipt = only_receipt(&env).expect("a receipt");
        assert!(["gone", "unproven"].contains(&verdict(&receipt)), "{setting}: {report:#}");
    }
}

/// Its keepers are lost, and a process beside it can't be told from its own.
fn unproven(env: &TestEnv) -> (Background<'_>, Stranger) {
    let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
    let stranger = Stranger::start("exec sleep $N");
    stranger.wait_for(1);
    job.lose();
    assert_eq!(env.quell("sweep").finish().code(), Some(5));
    (job, stranger)
}

#[test]
fn what_is_not_proven_dead_is_told_alike_by_all_verbs() {
    let env = TestEnv::as_me();
    let (job, _stranger) = unproven(&env);
    let say = |verb: &str| env.quell(verb).args([&job.id]).finish();
    let status = say("status");
    assert_eq!(status.code(), Some(5), "{}", status.stdout);
    let stop = say("stop");
    assert_eq!(stop.code(), Some(5), "{}", stop.stdout);
    assert!(stop.stdout.contains("not proven dead: "), "{}", stop.stdout);
    let restart = say("restart");
    assert_eq!(restart.code(), Some(5), "{}", restart.stderr);
    assert!(restart.stderr.contains("not proven dead: "), "{}", restart.stderr);
    assert_eq!(env.job(restart.stdout.trim()).stop(&["--now"]).code(), Some(0));
    assert_eq!(say("rm").code(), Some(0));
    let (other, _stranger) = unproven(&env);
    assert_eq!(env.quell("gc").args(["--max-count", "0"]).finish().code(), Some(0));
    assert!(!other.dir().exists(), "gc keeps what rm removes");
}

#[test]
fn a_job_whose_lock_was_deleted_is_alive_and_can_be_stopped() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let begin = || {
            let quell = env.start().args(["--contain", setting.contain.as_str()]);
            let job = quell.command(["sleep", &env.oracle.nap()]).begin();
            fs::remove_file(env.home().join("live").join(&job.id)).expect("the lock");
            job
        };
        let job = begin();
        let say = |verb: &str| env.quell(verb).args([&job.id]).finish();
        assert_eq!(say("rm").code(), Some(1), "{setting}: a live job is removed");
        assert_eq!(say("status").code(), Some(0), "{setting}");
        let swept = env.quell("sweep").args(["--json"]).finish();
        assert_eq!(swept.envelope()["data"]["kept"], 1, "{setting}: {}", swept.stdout);
        let done = say("stop");
        assert_eq!((done.code(), job.state().as_str()), (Some(0), "ended"), "{setting}: {}", done.stderr);
        assert!(env.quell("list").finish().stdout.contains("sleep"), "{setting}: it is not on the list");
        assert_eq!(say("rm").code(), Some(0), "{setting}");
        // Its standby finishes it without the lock.
        let job = begin();
        assert!(job.process("keeper").is_some_and(|keeper| keeper.signal("KILL")), "{setting}");
        assert!(eventually(PATIENCE, || job.state() == "ended"), "{setting}: {}", job.state());
        // Without any keeper it is lost, and is finished like any other.
        let job = begin();
        job.lose();
        env.quell("sweep").finish();
        assert_eq!(job.state(), "ended", "{setting}");
        assert_eq!(env.oracle.survivors_after(PATIENCE), Vec::new(), "{setting}");
        assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new(), "{setting}");
    }
}
