//! What the fault campaign has found, each as what happened.

use std::{fs, process::Command, time::Duration};

use quell_tests::{
    eventually,
    evidence::{cause, says_what_is_known, verdict},
    faults::{self, Fault},
    host::{Contain, Setting, User, am_root},
    oracle::Process,
    run::PATIENCE,
    skip,
    test_env::TestEnv,
};

use crate::{
    recovery::crash::{signal_all, supervisors},
    recovery::damaged_records::Disk,
};

fn nap<'l>(env: &'l TestEnv, words: &[&str]) -> quell_tests::jobs::Background<'l> {
    env.start().args(words).args(["--grace", "300ms"]).command(["sleep", &env.oracle.nap()]).begin()
}

fn sleeps(env: &TestEnv) -> Vec<Process> {
    let asleep = |process: &Process| process.command.starts_with("sleep ");
    env.oracle.survivors().into_iter().filter(asleep).collect()
}

#[test]
fn a_job_whose_socket_was_deleted_could_not_be_stopped() {
    let env = TestEnv::as_me();
    let job = nap(&env, &[]);
    fs::remove_file(job.dir().join("control.sock")).expect("the socket");
    let done = job.stop(&["--json"]);
    assert_eq!(done.code(), Some(0), "{}{}", done.stdout, done.stderr);
    let receipt = job.receipt().expect("a receipt");
    assert_eq!((cause(&receipt), verdict(&receipt)), ("user", "gone"));
    assert_eq!(receipt["root"]["outcome"]["signal"], "TERM", "it was asked, and not killed");
}

/// And without a record that would name its keeper.
#[test]
fn a_job_without_a_socket_and_a_record_could_not_be_stopped() {
    let env = TestEnv::as_me();
    let job = nap(&env, &[]);
    fs::remove_file(job.dir().join("control.sock")).expect("the socket");
    fs::write(job.dir().join("state.jsonl"), "{").expect("the record");
    let done = job.stop(&[]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(cause(&job.receipt().expect("a receipt")), "user");
    assert_eq!(env.oracle.survivors_after(PATIENCE).len(), 0);
}

/// The disk is full when the job ends: what its keeper knows must not be lost.
#[test]
fn a_full_disk_took_the_exit_code_and_the_cause() {
    if !am_root() {
        return skip("a_full_disk_took_the_exit_code_and_the_cause", "needs root to mount a small disk");
    }
    let env = TestEnv::new(User::Root);
    let disk = Disk::new(&env);
    let job = env.start().args(["--stdin", "pipe"]).sh("read x; exit 7").begin();
    disk.fill();
    assert_eq!(env.quell("send").args([job.id.as_str(), "go"]).finish().code(), Some(0));
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    let (record, receipt) = (job.record().expect("a record"), job.receipt().expect("a receipt"));
    assert_eq!((record["state"].as_str(), cause(&record["last"]["ending"])), (Some("ended"), "own_exit"));
    assert_eq!(record["last"]["outcome"]["code"], 7);
    assert_eq!((verdict(&record["last"]), verdict(&receipt)), ("gone", "gone"));
    disk.free();
    assert!(!job.dir().join("reserve").exists(), "what was put aside is still there");
}

/// In a PID namespace only the keeper sees the program's end.
#[test]
fn a_run_whose_keeper_was_stopped_never_returned() {
    let me = TestEnv::as_me().user();
    for contain in Contain::ALL.into_iter().filter(|contain| contain.available(me).is_ok()) {
        let env = TestEnv::for_containment(me, contain);
        let script = "sleep $N & echo ready >$QUELL_TEST_READY; until [ -e go ]; do sleep 0.01; done; exit 5";
        let mut run = env.run().args(["--contain", contain.as_str()]).script(script).start();
        run.wait_ready().expect("ready");
        let keeper = run.keeper().expect("a keeper");
        assert!(keeper.signal("STOP"), "{contain:?}");
        env.write("go", "");
        let status = run.wait_exit(PATIENCE);
        assert_eq!(status.and_then(|status| status.code()), Some(5), "{contain:?}: {}", run.stderr());
    }
}

#[test]
fn stop_all_passed_over_a_job_whose_record_was_damaged() {
    let env = TestEnv::as_me();
    let job = nap(&env, &[]);
    for name in ["state.jsonl", "spec.json"] {
        fs::write(job.dir().join(name), "\0").expect("damage");
    }
    let done = env.quell("stop").args(["--all", "--json"]).finish();
    assert_eq!(env.oracle.survivors_after(PATIENCE).len(), 0, "{}{}", done.stdout, done.stderr);
    assert!(job.is_over());
}

#[test]
fn nonsense_in_a_lock_was_taken_for_a_stop_under_way() {
    let env = TestEnv::as_me();
    let job = nap(&env, &[]);
    fs::write(env.home().join("live").join(&job.id), "nonsense").expect("the lock");
    let done = job.stop(&[]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
}

/// The name's bearer is lost, and its tree alive: it is finished before another one gets the name.
#[test]
fn a_name_was_given_away_while_its_lost_bearer_lived() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let words = ["--name", "web", "--contain", setting.contain.as_str()];
        let old = nap(&env, &words);
        old.lose();
        // Below a PID namespace's init every process exits with the keeper.
        let root = old.process("root");
        let new = nap(&env, &words);
        let still = root.filter(Process::is_alive);
        assert!(still.is_none(), "{setting}: {still:?} beside {}", new.id);
        assert!(old.is_over(), "{setting}");
        assert_eq!(cause(&old.receipt().expect("a receipt")), "keeper_lost", "{setting}");
        assert_eq!(sleeps(&env).len(), 1, "{setting}");
    }
}

/// The keeper dies before it has given the go: the program has not run, and so has not exited with 0.
#[test]
fn a_program_that_never_ran_was_said_to_have_succeeded() {
    if let Err(why) = faults::binary() {
        return skip("a_program_that_never_ran_was_said_to_have_succeeded", &why);
    }
    let me = TestEnv::as_me().user();
    for contain in Contain::ALL.into_iter().filter(|contain| contain.available(me).is_ok()) {
        let env = TestEnv::for_containment(me, contain);
        let fault = Fault("keeper.identity_recorded:kill".into());
        let done = env.faulty("run", &fault).args(["--contain", contain.as_str()]).sh("touch ran").finish();
        assert!(env.hit(&fault).is_some() && !env.path("ran").exists(), "{contain:?}");
        assert_ne!(done.shell_code(), 0, "{contain:?}: {}", done.stderr);
    }
}

/// The process that has taken over has no socket, and it is stopped (SIGSTOP).
#[test]
fn a_standby_that_was_stopped_while_it_took_over_was_never_woken() {
    if let Err(why) = faults::binary() {
        return skip("a_standby_that_was_stopped_while_it_took_over_was_never_woken", &why);
    }
    // Also if the record does not name it any more.
    for damaged in [false, true] {
        let env = TestEnv::as_me();
        let fault = Fault("standby.tree_taken:stop".into());
        let quell = env.faulty("start", &fault).args(["--contain", "reaper", "--grace", "100ms"]);
        let job = quell.command(["sleep", &env.oracle.nap()]).begin();
        job.process("keeper").expect("a keeper").signal("KILL");
        assert!(eventually(PATIENCE, || env.hit(&fault).is_some()));
        if damaged {
            fs::write(job.dir().join("state.jsonl"), "{").expect("the record");
        }
        let done = job.stop(&[]);
        assert_eq!(done.code(), Some(0), "damaged: {damaged}: {}", done.stderr);
        assert_eq!(env.oracle.survivors_after(PATIENCE).len(), 0);
    }
}

/// Both keepers die when the root is born and has no go yet; the root is stopped (SIGSTOP), and holds the job's lock like them.
#[test]
fn a_stub_that_was_stopped_kept_its_lost_job_for_ever() {
    if let Err(why) = faults::binary() {
        return skip("a_stub_that_was_stopped_kept_its_lost_job_for_ever", &why);
    }
    let env = TestEnv::as_me();
    let fault = Fault("keeper.identity_recorded:stop".into());
    let mut start = env.faulty("start", &fault).command(["sleep", &env.oracle.nap()]).start();
    assert!(eventually(PATIENCE, || env.hit(&fault).is_some()));
    let keeper = supervisors(&env, "quell-keeper").into_iter().find(|keeper| !keeper.children().is_empty());
    let keeper = keeper.expect("the keeper with its stub");
    let stub = keeper.children().remove(0);
    // It sleeps when it waits for the go, and has closed what it inherited by then.
    assert!(eventually(PATIENCE, || stub.state() == Some('S')));
    assert!(stub.signal("STOP"));
    signal_all("KILL", &supervisors(&env, "quell-standby"));
    keeper.signal("KILL");
    // No process is left to answer, and the stub does not hold the socket.
    assert!(start.wait_exit(PATIENCE).is_some_and(|status| !status.success()), "start waits for a stub");
    assert!(stub.is_alive());
    let done = env.quell("stop").args(["--all", "--grace", "100ms"]).finish();
    // Where nothing but the reaper held it, its keepers are gone and so is the proof.
    assert!(matches!(done.code(), Some(0 | 5)), "{}", done.stderr);
    assert_eq!(env.oracle.survivors_after(PATIENCE).len(), 0);
    assert_eq!(env.ids("live").len(), 0);
}

/// The namespace's init was reaped by the keeper that is lost; the process that took over is lost, too.
#[test]
fn a_namespace_that_was_gone_could_not_be_proven_to_be() {
    let me = TestEnv::as_me().user();
    if let Err(why) = faults::binary().and(Contain::Pidns.available(me).map(|()| std::path::Path::new(""))) {
        return skip("a_namespace_that_was_gone_could_not_be_proven_to_be", &why);
    }
    let env = TestEnv::for_containment(me, Contain::Pidns);
    let fault = Fault("keeper.root_collected:kill,standby.finish_begun:kill".into());
    let quell = env.faulty("start", &fault).args(["--contain", "pidns"]);
    let job = quell.sh("exit 3").begin();
    let lost =
        || supervisors(&env, "quell-keeper").is_empty() && supervisors(&env, "quell-standby").is_empty();
    assert!(eventually(PATIENCE, lost));
    assert!(env.hit(&fault).is_some());
    let done = env.quell("sweep").finish();
    says_what_is_known(done.code(), &job.receipt().expect("a receipt")).expect("the truth");
}

/// The standby goes when the end is on record: the keeper must not write its state over it.
#[test]
fn a_verdict_was_lost_when_the_standby_went_last() {
    if let Err(why) = faults::binary() {
        return skip("a_verdict_was_lost_when_the_standby_went_last", &why);
    }
    let env = TestEnv::as_me();
    let fault = Fault("keeper.receipt_kept:stop".into());
    let job = env.faulty("start", &fault).sh("until [ -e go ]; do sleep 0.01; done; exit 3").begin();
    // It would have the keeper go on after three seconds.
    let standby = supervisors(&env, "quell-standby");
    assert!(signal_all("STOP", &standby));
    env.write("go", "");
    assert!(eventually(PATIENCE, || env.hit(&fault).is_some()));
    assert!(signal_all("KILL", &standby));
    assert!(signal_all("CONT", &supervisors(&env, "quell-keeper")));
    assert!(job.wait_over(PATIENCE));
    let quiet = job.wait_quiet(PATIENCE);
    assert!(quiet.is_empty(), "{quiet:?}");
    let last = job.record().expect("a record")["last"].take();
    assert_eq!((verdict(&last), last["outcome"]["code"].as_i64()), ("gone", Some(3)), "{last}");
}

/// Held by the reaper alone, and neither its specification nor its state can be read: its marker is in its third file.
#[test]
fn a_lost_job_with_a_damaged_record_left_its_processes_behind() {
    let me = TestEnv::as_me().user();
    let env = TestEnv::as_me();
    let words = ["--contain", "reaper", "--grace", "100ms"];
    let job = env.start().args(words).actor("setsid", None).begin();
    job.lose();
    for name in ["spec.json", "state.jsonl"] {
        fs::write(job.dir().join(name), "{").expect("damage");
    }
    let stranger = TestEnv::new(me);
    let bystander = nap(&stranger, &[]);
    let done = env.quell("sweep").finish();
    assert_eq!(env.oracle.survivors_after(PATIENCE).len(), 0, "{}{}", done.stdout, done.stderr);
    assert!(bystander.process("root").is_some_and(|root| root.is_alive()), "a stranger was hit");
}

/// The cgroup is empty and removed; then the keeper is lost, and after it the process that took over.
#[test]
fn a_cgroup_that_was_removed_could_not_be_proven_to_be_empty() {
    let me = TestEnv::as_me().user();
    if let Err(why) = faults::binary().and(Contain::Cgroup.available(me).map(|()| std::path::Path::new(""))) {
        return skip("a_cgroup_that_was_removed_could_not_be_proven_to_be_empty", &why);
    }
    let env = TestEnv::for_containment(me, Contain::Cgroup);
    let fault = Fault("keeper.place_released:kill,standby.receipt_written:kill".into());
    let job = env.faulty("start", &fault).args(["--contain", "cgroup"]).sh("exit 3").begin();
    let lost =
        || supervisors(&env, "quell-keeper").is_empty() && supervisors(&env, "quell-standby").is_empty();
    assert!(eventually(PATIENCE, lost));
    assert!(env.hit(&fault).is_some());
    let done = env.quell("sweep").finish();
    let receipt = job.receipt().expect("a receipt");
    says_what_is_known(done.code(), &receipt).expect("the truth");
    assert_eq!(receipt["held"]["containment"], "cgroup");
}

/// It waits to be started again, and the disk is full: it is stopped, and that is on record.
#[test]
fn a_stop_of_a_waiting_job_was_lost_on_a_full_disk() {
    if !am_root() {
        return skip("a_stop_of_a_waiting_job_was_lost_on_a_full_disk", "needs root to mount a small disk");
    }
    let env = TestEnv::new(User::Root);
    let disk = Disk::new(&env);
    let job = env.start().args(["--restart", "always", "--stdin", "pipe"]).sh("read x; exit 7").begin();
    disk.fill();
    assert_eq!(env.quell("send").args([job.id.as_str(), "go"]).finish().code(), Some(0));
    assert!(eventually(PATIENCE, || job.process("root").is_none()));
    let done = job.stop(&[]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let record = job.record().expect("a record");
    assert_eq!(
        (record["state"].as_str(), cause(&record["last"]["ending"])),
        (Some("ended"), "user"),
        "{record}"
    );
    disk.free();
}

#[test]
fn a_command_that_could_have_no_threads_panicked() {
    let env = TestEnv::new(User::Ordinary);
    let jobs = [nap(&env, &[]), nap(&env, &[])];
    let mut words = env.prefix();
    words.extend(["prlimit", "--nproc=1"].map(String::from));
    let mut stop = Command::new(&words[0]);
    stop.args(&words[1..]).arg(env.quell_path()).arg("stop").args(jobs.each_ref().map(|job| &job.id));
    let done = stop.env("QUELL_HOME", env.home()).current_dir(env.dir()).output().expect("prlimit");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.is_empty(), "{}: {said}", done.status);
    assert!(jobs.iter().all(|job| job.is_over()));
}

/// A job that never ran is removed, file by file, while a stop runs.
#[test]
fn a_stop_that_met_a_job_on_its_way_out_failed() {
    let env = TestEnv::as_me();
    let job = env.start().sh("true").begin();
    assert!(job.wait_over(PATIENCE));
    fs::remove_file(job.dir().join("receipt.json")).expect("the receipt");
    let mut stop = env.quell("stop").args([&job.id]).start();
    // It looks for the receipt for longer than this.
    assert!(stop.wait_exit(Duration::from_millis(50)).is_none(), "{}", stop.stderr());
    fs::remove_dir_all(job.dir()).expect("the rest");
    let done = stop.finish();
    assert_eq!(done.code(), Some(3), "{}", done.stderr);
}

#[test]
fn a_stop_of_a_job_that_had_just_died_said_that_nothing_outlived_it() {
    let env = TestEnv::as_me();
    let job = nap(&env, &["--contain", "reaper"]);
    // The root's death is not noticed until the keeper continues, and the stop continues it.
    let keeper = job.process("keeper").expect("a keeper");
    assert!(keeper.signal("STOP") && job.process("root").expect("a root").signal("KILL"));
    let done = job.stop(&[]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    // On a slow machine its parent has continued the keeper before the stop came.
    let said = ["quell: died of a signal from outside: ", &format!("{} had ended already", job.id)];
    assert!(said.iter().any(|said| done.stdout.starts_with(said)), "{}", done.stdout);
}

/// The caller was told that it runs before its history and its hooks were.
#[test]
fn a_start_was_not_on_the_history_of_a_keeper_that_died_right_after_it() {
    if let Err(why) = faults::binary() {
        return skip("a_start_was_not_on_the_history_of_a_keeper_that_died_right_after_it", &why);
    }
    let env = TestEnv::as_me();
    let fault = Fault("keeper.starter_told:kill".into());
    let job = env.faulty("start", &fault).command(["sleep", &env.oracle.nap()]).begin();
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    assert!(env.hit(&fault).is_some() && job.events().contains(&"started".into()), "{:?}", job.events());
}

/// While a process was paused claiming a name, every sweep failed.
#[test]
fn a_sweep_failed_while_another_process_was_paused_claiming_a_name() {
    let env = TestEnv::as_me();
    let job = nap(&env, &["--name", "web"]);
    let names = env.home().join("names");
    let half = names.join(format!(".{}", job.id));
    std::os::unix::fs::symlink(&job.id, &half).expect("a half-made link");
    let claims = fs::File::open(names.join(".lock")).expect("the lock of the names");
    claims.lock().expect("locked");
    let beside = env.quell("sweep").finish();
    assert_eq!(beside.code(), Some(0), "{}", beside.stderr);
    assert!(half.is_symlink(), "a link that may be in use was removed");
    let named = env.start().args(["--name", "other"]).command(["true"]).finish();
    assert!(named.code() == Some(125) && named.stderr.contains("another quell"), "{}", named.stderr);
    drop(claims);
    assert_eq!(env.quell("sweep").finish().code(), Some(0));
    assert!(!half.is_symlink(), "a stale link was left");
    assert_eq!(job.stop(&["--now"]).code(), Some(0));
}
