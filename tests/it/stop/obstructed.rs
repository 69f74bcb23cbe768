//! P8, P2: a stop stops, whatever the job does to quell's files and processes: it may hold its lock, trace its keepers,
//! delete its record, or have a process that can't be killed.

use std::{
    fs::{self, Permissions},
    io::{ErrorKind, Write},
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use quell_tests::{
    eventually,
    evidence::{cause, verdict},
    host::{Contain, NOBODY, Setting, User, am_root, has_program},
    jobs::Background,
    oracle::Process,
    outsider::Outsider,
    run::{Finished, PATIENCE},
    skip,
    test_env::{TestEnv, copy_program},
};
use serde_json::Value;

/// How long a stop takes at most, in addition to its grace, with a margin for a busy machine. Before the fix it was 40 s.
const STOP: Duration = Duration::from_secs(20);

/// The settings in which a job can reach its keepers, and outlives them.
fn open_settings() -> Vec<Setting> {
    Setting::all().into_iter().filter(|setting| setting.contain != Contain::Pidns).collect()
}

/// That the stop of a job whose keepers are gone was true: after a loss the end may be unproven, and is never denied.
fn is_stopped(env: &TestEnv, job: &Background<'_>, done: &Finished, what: &str) {
    assert!(matches!(done.code(), Some(0 | 5)), "{what}: {:?} {}{}", done.code(), done.stdout, done.stderr);
    assert_eq!(env.oracle.survivors_after(PATIENCE), vec![], "{what}: {}{}", done.stdout, done.stderr);
    let receipt = job.receipt().unwrap_or_else(|| panic!("{what}: no receipt: {}", done.stderr));
    assert_ne!(verdict(&receipt), "survivors", "{what}: {receipt:#}");
    assert_eq!(job.state(), "ended", "{what}");
    assert!(done.took < STOP, "{what}: it took {:?}", done.took);
}

/// Both of its keepers are stopped, by the job: no process of quell's is left that could see that its time is up.
#[test]
fn a_job_that_stops_its_keepers_ends_in_time_once_another_command_looks_after_them() {
    for setting in open_settings() {
        for verb in ["sweep", "wait"] {
            let what = format!("{verb}, {setting}");
            let env = TestEnv::with(setting);
            let script = "echo ready >$QUELL_TEST_READY; while [ ! -e go ]; do sleep 0.02; done
                kill -STOP $(awk '{print $4}' /proc/$PPID/stat) $PPID; exec sleep $N";
            let begin = env.start().args(["--contain", setting.contain.as_str(), "--timeout", "1s"]);
            let job = begin.script(script).begin();
            env.write("go", "");
            let is_stopped = || {
                ["keeper", "standby"]
                    .iter()
                    .all(|role| job.process(role).and_then(|it| it.state()) == Some('T'))
            };
            assert!(eventually(PATIENCE, is_stopped), "{what}");
            let done = env.quell(verb).args((verb == "wait").then_some(job.id.as_str())).finish();
            assert!(matches!(done.code(), Some(0 | 1)), "{what}: {:?} {}", done.code(), done.stderr);
            assert!(job.wait_over(PATIENCE), "{what}: {}", job.state());
            let receipt = job.receipt().expect("a receipt");
            assert_eq!((cause(&receipt), verdict(&receipt)), ("timeout", "gone"), "{what}: {receipt:#}");
        }
    }
}

#[test]
fn a_job_that_holds_its_own_lock_is_stopped() {
    if !has_program("flock") {
        return skip("a_job_that_holds_its_own_lock_is_stopped", "no flock here");
    }
    // The second one comes back to whatever file is there.
    let waits =
        "exec 9<$QUELL_HOME/live/$QUELL_JOB; sleep $N 9<&- & echo ready >$QUELL_TEST_READY; flock -s 9;
        touch held; exec sleep $N";
    let comes_back = "sleep $N & echo ready >$QUELL_TEST_READY;
        while :; do flock -s -w 1 $QUELL_HOME/live/$QUELL_JOB sh -c 'touch held; sleep 0.3'; done";
    for setting in open_settings() {
        for (script, verb) in [(waits, "stop"), (comes_back, "stop"), (waits, "sweep"), (waits, "rm")] {
            let what = format!("{verb}, {setting}");
            let env = TestEnv::with(setting);
            let job = env.start().args(["--contain", setting.contain.as_str()]).script(script).begin();
            job.lose();
            assert!(eventually(PATIENCE, || env.path("held").exists()), "{what}: the lock is not held");
            let done = match verb {
                "stop" => job.stop(&["--now"]),
                "rm" => env.quell("rm").args(["--force", &job.id]).finish(),
                verb => env.quell(verb).finish(),
            };
            if verb == "rm" {
                assert_eq!((done.code(), job.dir().exists()), (Some(0), false), "{what}: {}", done.stderr);
                assert_eq!(env.oracle.survivors_after(PATIENCE), vec![], "{what}");
            } else {
                is_stopped(&env, &job, &done, &what);
                assert_eq!(env.quell("rm").args([&job.id]).finish().code(), Some(0), "{what}");
            }
            assert_eq!(env.ids("live"), Vec::<String>::new(), "{what}");
        }
    }
}

#[test]
fn the_lock_of_a_kept_job_is_not_taken_away() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let inode =
        || std::os::unix::fs::MetadataExt::ino(&fs::metadata(env.home().join("live").join(&job.id)).unwrap());
    let before = inode();
    // Not even where the record names no keeper.
    fs::remove_file(job.dir().join("state.jsonl")).expect("a state");
    for verb in ["list", "sweep", "status"] {
        let args: &[&str] = if verb == "status" { &[&job.id] } else { &[] };
        env.quell(verb).args(args).finish();
    }
    assert_eq!(inode(), before);
    assert_eq!(job.stop(&["--now"]).code(), Some(0));
}

#[test]
fn a_look_with_too_few_descriptors_does_not_take_a_job_for_lost() {
    let env = TestEnv::as_me();
    for limit in 4..=8 {
        let job = env.start().args(["--name", "it"]).command(["sleep", &env.oracle.nap()]).begin();
        let limited = format!("ulimit -n {limit}; exec \"$@\"");
        for words in
            [&["tree", "it"][..], &["events", "it"], &["wait", "it", "--timeout", "10ms"], &["sweep"]]
        {
            let quell = env.quell(words[0]).args(&words[1..]);
            quell.wrapped(["sh", "-c", &limited, "sh"]).finish();
        }
        assert_eq!((job.state().as_str(), job.is_over()), ("running", false), "{limit} descriptors");
        let done = job.stop(&["--now"]);
        assert_eq!(done.code(), Some(0), "{limit} descriptors: {}{}", done.stdout, done.stderr);
        assert_eq!(verdict(&job.receipt().expect("a receipt")), "gone", "{limit} descriptors");
    }
}

#[test]
fn a_verb_with_too_few_descriptors_fails_and_does_not_say_that_there_is_nothing() {
    let env = TestEnv::as_me();
    let over = env.start().command(["true"]).begin();
    assert!(over.wait_over(PATIENCE));
    let job = env.start().env("QUELL_SESSION", "s").args(["--tag", "k=v"]);
    let job = job.command(["sleep", &env.oracle.nap()]).begin();
    let cases = [
        ("list", &[][..], ""),
        ("stats", &[], "1 job has ended"),
        ("gc", &["--dry-run"], ""),
        ("sweep", &[], "1 job is alive"),
        ("stop", &["--session", "s"], "stopped"),
        ("stop", &["--tag", "k=v"], "stopped"),
        ("stop", &["--all"], "stopped"),
    ];
    for limit in 4..=12 {
        for (verb, args, true_words) in cases {
            let limited = format!("ulimit -n {limit}; exec \"$@\"");
            let done = env.quell(verb).args(args).wrapped(["sh", "-c", &limited, "sh"]).finish();
            let what = format!("{verb} {args:?} with {limit} descriptors: {}{}", done.stdout, done.stderr);
            match done.code() {
                Some(125) => assert!(done.stderr.contains("ulimit -n"), "{what}"),
                Some(0) => assert!(done.stdout.contains(true_words), "{what}"),
                _ => panic!("{what}"),
            }
            if verb == "list" && done.code() == Some(0) {
                assert!(done.stdout.contains("running"), "{what}");
            }
            if limit == 4 {
                assert_eq!(done.code(), Some(125), "{what}");
            }
            if job.is_over() {
                assert_eq!(verdict(&job.receipt().expect("a receipt")), "gone", "{what}");
                return;
            }
        }
    }
}

/// Traces its keepers, once its start has returned.
fn tracer(how: &str) -> String {
    format!(
        "echo ready >$QUELL_TEST_READY; until [ -e go ]; do sleep 0.01; done; exec $A trace-keepers $T {how}"
    )
}

/// Whether one of the two can be traced by the other's descendants here.
fn are_traced(job: &Background<'_>) -> bool {
    ["keeper", "standby"].iter().all(|role| job.process(role).is_some_and(|one| one.state() == Some('t')))
}

#[test]
fn keepers_that_their_job_traces_are_killed_by_a_stop() {
    stops_a_job_that_traces_its_keepers("keepers_that_their_job_traces_are_killed_by_a_stop", "");
}

#[test]
fn keepers_that_their_job_keeps_from_their_exit_do_not_hold_up_a_stop() {
    stops_a_job_that_traces_its_keepers(
        "keepers_that_their_job_keeps_from_their_exit_do_not_hold_up_a_stop",
        "exit",
    );
}

fn stops_a_job_that_traces_its_keepers(test: &str, how: &str) {
    for setting in open_settings() {
        for options in [&["--now"][..], &["--grace", "1s"]] {
            let what = format!("{options:?}, {setting}");
            let env = TestEnv::with(setting);
            let quell = env.start().args(["--contain", setting.contain.as_str()]);
            let job = quell.script(&tracer(how)).begin();
            env.write("go", "");
            if !eventually(Duration::from_secs(5), || are_traced(&job)) {
                return skip(test, "no ptrace of a parent here");
            }
            let done = job.stop(options);
            is_stopped(&env, &job, &done, &what);
            assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new(), "{what}");
        }
    }
}

#[test]
fn a_run_whose_front_and_keeper_are_traced_is_stopped() {
    for setting in open_settings() {
        let env = TestEnv::with(setting);
        let quell = env.run().args(["--contain", setting.contain.as_str()]);
        let mut running = quell.script(&tracer("")).start();
        running.wait_ready().expect("ready");
        env.write("go", "");
        if !eventually(Duration::from_secs(5), || running.front.state() == Some('t')) {
            return skip("a_run_whose_front_and_keeper_are_traced_is_stopped", "no ptrace of a parent here");
        }
        let job = env.job(&env.records()[0].id);
        let done = job.stop(&["--now"]);
        is_stopped(&env, &job, &done, &setting.to_string());
    }
}

/// A keeper that is held by a tracer does nothing when the time is up; killed, it can be reaped by no process but its tracer.
#[test]
fn a_job_that_traces_its_keeper_ends_when_its_time_is_up() {
    for setting in open_settings() {
        let env = TestEnv::with(setting);
        let options = ["--contain", setting.contain.as_str(), "--timeout", "2s", "--grace", "200ms"];
        let mut running = env.run().args(options).script("exec $A trace-keeper $T").start();
        running.wait_ready().expect("ready");
        assert!(running.wait_exit(STOP + PATIENCE).is_some(), "{setting}: the front does not exit");
        let done = running.finish();
        if done.stderr.contains("no ptrace here") {
            return skip(
                "a_job_that_traces_its_keeper_ends_when_its_time_is_up",
                "no ptrace of a parent here",
            );
        }
        // The front had to kill the keeper, which is why the job ended.
        let words = ["keeper was lost", "0 left"];
        assert!(words.iter().all(|word| done.stderr.contains(word)), "{setting}: {}", done.stderr);
        assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new(), "{setting}");
    }
}

/// The suspended front is continued at once. How fast that is depends on what else the machine does, so one of three
/// counts; before, none could take less than two seconds.
#[test]
fn the_stop_of_a_suspended_run_goes_out_at_once() {
    let mut took = Vec::new();
    for _ in 0..3 {
        let env = TestEnv::as_me();
        let mut running = env.run().actor("tree", None).start();
        running.wait_ready().expect("ready");
        assert!(running.front.signal("STOP"));
        assert!(eventually(PATIENCE, || running.front.state() == Some('T')), "it does not stop");
        let done = env.job(&env.records()[0].id).stop(&[]);
        assert_eq!(done.code(), Some(0), "{}{}", done.stdout, done.stderr);
        assert!(running.wait_exit(PATIENCE).is_some(), "the front stays");
        took.push(done.took);
    }
    assert!(took.iter().any(|took| *took < Duration::from_millis(1500)), "{took:?}");
}

/// A cgroup of the v1 freezer, thawed and removed when it is dropped.
struct Freezer(PathBuf);

impl Freezer {
    fn new(env: &TestEnv) -> Option<Freezer> {
        let path = Path::new("/sys/fs/cgroup/freezer").join(env.oracle.token());
        (am_root() && fs::create_dir(&path).is_ok()).then(|| Freezer(path))
    }

    fn freeze(&self, process: &Process) -> bool {
        let state = || fs::read_to_string(self.0.join("freezer.state")).unwrap_or_default();
        fs::write(self.0.join("cgroup.procs"), process.pid.to_string()).is_ok()
            && fs::write(self.0.join("freezer.state"), "FROZEN").is_ok()
            && eventually(PATIENCE, || state().trim() == "FROZEN")
    }

    fn thaw(&self) {
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        eventually(PATIENCE, || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

/// Grace and verification are the job's own; the rest is for a busy machine. A second try would take as long again.
#[test]
fn a_process_that_cannot_be_killed_is_named_by_the_stop_in_its_time() {
    for setting in open_settings().into_iter().filter(|setting| setting.user == TestEnv::as_me().user()) {
        let env = TestEnv::with(setting);
        let Some(freezer) = Freezer::new(&env) else {
            return skip(
                "a_process_that_cannot_be_killed_is_named_by_the_stop_in_its_time",
                "no v1 freezer here",
            );
        };
        let quell = env.start().args(["--contain", setting.contain.as_str()]);
        let script = "sleep $N & echo $! >pid; echo ready >$QUELL_TEST_READY; wait";
        let job = quell.script(script).begin();
        let pid = fs::read_to_string(env.path("pid")).expect("a pid").trim().parse().expect("a number");
        let frozen = Process::now(pid).expect("a child");
        assert!(freezer.freeze(&frozen), "{setting}: it does not freeze");
        let done = job.stop(&["--now", "--json"]);
        assert_eq!(done.code(), Some(5), "{setting}: {}{}", done.stdout, done.stderr);
        let error: Value = done.envelope()["error"].clone();
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(&pid.to_string()), "{setting}: it is not named: {message}");
        assert!(!message.contains("keeper"), "{setting}: {message}");
        assert!(done.took < Duration::from_secs(17), "{setting}: it took {:?}", done.took);
        let receipt = job.receipt().expect("a receipt");
        assert_eq!(receipt["survivors"][0]["pid"], pid, "{setting}: {receipt:#}");
        // It is not over, as a stop by a later command says too.
        assert_eq!(job.state(), "stopping", "{setting}");
        assert!(!job.events().contains(&"ended".into()), "{setting}: {:?}", job.events());
        freezer.thaw();
        assert!(eventually(PATIENCE, || !frozen.is_alive()), "{setting}");
        let again = job.stop(&["--now"]);
        is_stopped(&env, &job, &again, &setting.to_string());
    }
}

/// The standby has looked for as long as a stop may take. The stop does not do that once more.
#[test]
fn a_survivor_of_a_killed_keeper_is_named_by_the_stop_in_its_time() {
    let test = "a_survivor_of_a_killed_keeper_is_named_by_the_stop_in_its_time";
    let env = TestEnv::as_me();
    let Some(freezer) = Freezer::new(&env) else { return skip(test, "no v1 freezer here") };
    let script = "sleep $N & echo $! >pid; echo ready >$QUELL_TEST_READY; wait";
    let job = env.start().args(["--contain", "reaper"]).script(script).begin();
    let pid = fs::read_to_string(env.path("pid")).expect("a pid").trim().parse().expect("a number");
    let frozen = Process::now(pid).expect("a child");
    assert!(freezer.freeze(&frozen), "it does not freeze");
    assert!(job.process("keeper").expect("a keeper").signal("KILL"));
    let done = job.stop(&["--now"]);
    assert_eq!(done.code(), Some(5), "{}{}", done.stdout, done.stderr);
    assert!(done.stderr.contains(&pid.to_string()), "it is not named: {}", done.stderr);
    assert!(done.took < Duration::from_secs(17), "it took {:?}", done.took);
    freezer.thaw();
    assert!(eventually(PATIENCE, || !frozen.is_alive()));
    is_stopped(&env, &job, &job.stop(&["--now"]), test);
}

/// A mount over its directory in /proc shows another process in its place.
#[test]
fn a_survivor_is_named_until_it_is_dead_also_behind_a_mount() {
    let test = "a_survivor_is_named_until_it_is_dead_also_behind_a_mount";
    let env = TestEnv::as_me();
    let Some(freezer) = Freezer::new(&env).filter(|_| am_root()) else {
        return skip(test, "it needs root and a v1 freezer");
    };
    let script = "sleep $N & echo $! >pid; echo ready >$QUELL_TEST_READY; wait";
    let job = env.start().args(["--contain", "reaper"]).script(script).begin();
    let pid = fs::read_to_string(env.path("pid")).expect("a pid").trim().parse().expect("a number");
    let frozen = Process::now(pid).expect("a child");
    assert!(freezer.freeze(&frozen), "it does not freeze");
    job.lose();
    assert_eq!(job.stop(&["--now"]).code(), Some(5));
    for words in [&["list"][..], &["status", &job.id], &["sweep", "--dry-run"]] {
        let look = env.quell(words[0]).args(&words[1..]).finish();
        assert_eq!(look.code(), Some(5), "{words:?}: {}{}", look.stdout, look.stderr);
        assert!(look.took < Duration::from_secs(5), "{words:?} took {:?}", look.took);
    }
    let hide = format!("mount --bind /proc/1 /proc/{pid} && exec \"$0\" \"$@\"");
    let hidden = ["unshare", "-m", "sh", "-c", &hide];
    let again = env.quell("stop").args([job.id.as_str(), "--now"]).wrapped(hidden).finish();
    let receipt = job.receipt().expect("a receipt");
    assert_eq!((again.code(), verdict(&receipt)), (Some(5), "survivors"), "{receipt:#}");
    assert_eq!(receipt["survivors"][0]["pid"], pid, "{receipt:#}");
    freezer.thaw();
    assert!(eventually(PATIENCE, || !frozen.is_alive()));
    let last = job.stop(&["--now"]);
    assert!(!job.receipt().expect("a receipt").to_string().contains("survivors\":[{"), "{}", last.stdout);
}

/// A killed process stays in a frozen cgroup until that is thawed.
#[test]
fn frozen_keepers_do_not_hold_up_a_stop() {
    for setting in open_settings().into_iter().filter(|setting| setting.user == TestEnv::as_me().user()) {
        for roles in [&["keeper"][..], &["keeper", "standby"]] {
            let what = format!("{roles:?}, {setting}");
            let env = TestEnv::with(setting);
            let Some(freezer) = Freezer::new(&env) else {
                return skip("frozen_keepers_do_not_hold_up_a_stop", "no v1 freezer here");
            };
            let job = env.start().args(["--contain", setting.contain.as_str()]).actor("tree", None).begin();
            let keepers: Vec<Process> =
                roles.iter().map(|role| job.process(role).expect("a keeper")).collect();
            assert!(keepers.iter().all(|keeper| freezer.freeze(keeper)), "{what}: it does not freeze");
            let done = job.stop(&["--now"]);
            let is_keeper = |found: &Process| keepers.iter().any(|keeper| keeper.pid == found.pid);
            let members = || env.oracle.survivors().into_iter().filter(|found| !is_keeper(found)).count();
            assert!(eventually(PATIENCE, || members() == 0), "{what}: {}{}", done.stdout, done.stderr);
            freezer.thaw();
            is_stopped(&env, &job, &done, &what);
        }
    }
}

/// Deletes files of quell's home. A verb that could do without one may have left it so.
fn delete(env: &TestEnv, id: &str, paths: &[&str]) {
    for path in paths {
        let path = env.home().join(path.replace("ID", id));
        // A keeper may be making files again meanwhile, which a verb before this one has missed.
        let is_removed = || {
            let done = if path.is_dir() && !path.is_symlink() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            done.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) || done.is_ok()
        };
        assert!(eventually(PATIENCE, is_removed), "{} can't be removed", path.display());
    }
}

#[test]
fn all_verbs_know_a_job_whose_files_were_deleted() {
    let me = TestEnv::as_me().user();
    let deletions: [&[&str]; 5] =
        [&["live/ID"], &["jobs/ID"], &["jobs/ID/state.jsonl"], &["live/ID", "jobs/ID"], &[""]];
    for setting in Setting::all().into_iter().filter(|setting| setting.user == me) {
        for paths in deletions {
            let env = TestEnv::with(setting);
            let begin = |name: &str| {
                let quell = env.start().args(["--contain", setting.contain.as_str(), "--name", name]);
                quell.command(["sleep", &env.oracle.nap()]).begin()
            };
            let job = begin("it");
            let root = job.process("root").expect("a root");
            let after = |words: &[&str]| {
                delete(&env, &job.id, paths);
                let done = env.quell(words[0]).args(&words[1..]).finish();
                let what = format!("{setting}, {paths:?}, {words:?}: {}{}", done.stdout, done.stderr);
                (done, what)
            };
            let (list, what) = after(&["list", "--json"]);
            let jobs = list.envelope()["data"]["jobs"].as_array().cloned().unwrap_or_default();
            assert_eq!(jobs.len(), 1, "{what}");
            assert_eq!(
                (&jobs[0]["id"], &jobs[0]["state"]),
                (&job.id.clone().into(), &"running".into()),
                "{what}"
            );
            for text in [&job.id, &job.id[..10]] {
                let (status, what) = after(&["status", "--json", text]);
                assert_eq!(status.code(), Some(0), "{what}");
                assert_eq!(status.envelope()["data"]["job"]["state"], "running", "{what}");
            }
            let (wait, what) = after(&["wait", "--timeout", "100ms", &job.id]);
            assert_eq!(wait.code(), Some(6), "{what}");
            let (sweep, what) = after(&["sweep", "--json"]);
            let report = sweep.envelope()["data"].clone();
            assert_eq!(
                (sweep.code(), &report["kept"], &report["jobs"]),
                (Some(0), &1.into(), &serde_json::json!([])),
                "{what}"
            );
            let (rm, what) = after(&["rm", &job.id]);
            assert_eq!(rm.code(), Some(1), "{what}");
            let (kill, what) = after(&["kill", &root.pid.to_string()]);
            assert_eq!(kill.code(), Some(4), "{what}");
            // In a PID namespace that is its init, which is one of quell's own.
            assert!(setting.contain == Contain::Pidns || kill.stderr.contains(&job.id), "{what}");
            if paths != [""] {
                let (again, what) = after(&["start", "--name", "it", "--", "true"]);
                assert_eq!(again.code(), Some(1), "{what}");
                assert!(again.stderr.contains(&job.id), "{what}");
            }
            let (stop, what) = after(&["stop", "--json", &job.id]);
            assert_eq!(stop.code(), Some(0), "{what}");
            assert_eq!(verdict(&stop.envelope()["data"]["jobs"][0]["receipt"]), "gone", "{what}");
            assert!(job.receipt().is_some() && job.is_over(), "{what}");
            assert_eq!(env.oracle.survivors_after(PATIENCE), vec![], "{what}");
            let other = begin("other");
            delete(&env, &other.id, paths);
            let done = env.quell("stop").args(["--all"]).finish();
            assert_eq!(done.code(), Some(0), "{setting}, {paths:?}: {}{}", done.stdout, done.stderr);
            assert_eq!(env.oracle.survivors_after(PATIENCE), vec![], "{setting}, {paths:?}");
            assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new(), "{setting}, {paths:?}");
        }
    }
}

#[test]
fn a_run_whose_files_were_deleted_is_stopped() {
    for paths in [&["live/ID"][..], &["jobs/ID"], &["live/ID", "jobs/ID"]] {
        let env = TestEnv::as_me();
        let mut running = env.run().actor("tree", None).start();
        running.wait_ready().expect("ready");
        let id = env.records()[0].id.clone();
        delete(&env, &id, paths);
        let list = env.quell("list").finish();
        assert!(list.stdout.contains(&id[..8]), "{paths:?}: {}{}", list.stdout, list.stderr);
        delete(&env, &id, paths);
        let done = env.quell("stop").args(["--all"]).finish();
        assert_eq!(done.code(), Some(0), "{paths:?}: {}{}", done.stdout, done.stderr);
        assert!(running.wait_exit(PATIENCE).is_some(), "{paths:?}: the front stays");
        assert_eq!(env.oracle.survivors_after(PATIENCE), vec![], "{paths:?}");
    }
}

#[test]
fn a_run_in_a_pid_namespace_is_asked_by_a_stop_from_outside() {
    if !am_root() {
        return skip("a_run_in_a_pid_namespace_is_asked…", "needs root for a PID namespace");
    }
    let env = TestEnv::as_me();
    let script = "trap 'echo asked >asked; exit 0' TERM; echo ready >$QUELL_TEST_READY; sleep $N & wait";
    let inside = env.run().wrapped(["unshare", "--pid", "--fork", "--mount-proc"]).args(["--grace", "30s"]);
    let mut running = inside.script(script).start();
    running.wait_ready().unwrap_or_else(|why| panic!("{why}: {}", running.stderr()));
    let live = env.ids("live");
    let [id] = live.as_slice() else { panic!("not one job: {live:?}") };
    let stop = env.job(id).stop(&[]);
    assert_eq!(stop.code(), Some(0), "{}{}", stop.stdout, stop.stderr);
    assert!(env.path("asked").exists(), "it was not asked: {}{}", stop.stdout, stop.stderr);
    assert!(running.wait_exit(PATIENCE).is_some(), "the run goes on");
}

/// The front is known by what it is to its keeper, and not by the file that it executes: that may be a copy, an older release, or
/// a program that uses the library.
#[test]
fn a_run_of_another_binary_is_asked_by_a_stop() {
    let script = "trap 'echo asked >asked; exit 0' TERM; echo ready >$QUELL_TEST_READY; sleep $N & wait";
    for (removed, options, asked) in [(false, &[][..], true), (true, &[], true), (false, &["--now"], false)] {
        let env = TestEnv::as_me();
        let program = env.path("other");
        copy_program(&env.quell_path(), &program);
        let mut running = env.run().program(program.clone()).args(["--grace", "30s"]).script(script).start();
        running.wait_ready().unwrap_or_else(|why| panic!("{why}: {}", running.stderr()));
        if removed {
            fs::remove_file(&program).unwrap();
        }
        let what = format!("removed: {removed}, {options:?}");
        let job = env.job(&env.records()[0].id);
        let done = job.stop(options);
        assert_eq!(done.code(), Some(0), "{what}: {}{}", done.stdout, done.stderr);
        assert_eq!(env.path("asked").exists(), asked, "{what}: {}{}", done.stdout, done.stderr);
        let receipt = job.receipt().expect("a receipt");
        assert_eq!(
            (verdict(&receipt), receipt["cause"].as_str()),
            ("gone", Some("user")),
            "{what}: {receipt:#}"
        );
        assert!(running.wait_exit(PATIENCE).is_some(), "{what}: the front stays");
        assert!(done.took < STOP, "{what}: it took {:?}", done.took);
    }
}

/// What a job can put in the place of one of quell's files or directories.
const TRAPS: [&str; 8] = ["link", "dangling", "fifo", "file", "directory", "full", "foreign", "closed"];

/// Puts a trap at `place` in quell's home, instead of what is there. Nothing may be written to `victim`.
fn trap(env: &TestEnv, id: &str, place: &str, trap: &str, victim: &Path) {
    let at = env.home().join(place.replace("ID", id));
    let lay = || match trap {
        "link" => symlink(victim, &at),
        "dangling" => symlink(victim.with_extension("new"), &at),
        "fifo" => Command::new("mkfifo")
            .arg(&at)
            .stderr(Stdio::null())
            .status()
            .and_then(|made| if made.success() { Ok(()) } else { Err(ErrorKind::AlreadyExists.into()) }),
        "file" => fs::File::create_new(&at).and_then(|mut file| file.write_all(b"a trap")),
        "directory" => fs::create_dir(&at),
        "full" => fs::create_dir(&at).and_then(|()| fs::write(at.join("file"), "precious")),
        other => unreachable!("{other}"),
    };
    match trap {
        "foreign" => return chown(&at, Some(NOBODY), Some(NOBODY)).expect("chown"),
        "closed" => return fs::set_permissions(&at, Permissions::from_mode(0o000)).expect("chmod"),
        _ => {}
    }
    // The keeper may be making files again meanwhile, which a verb before this one has missed.
    let is_laid = || {
        delete(env, id, &[place]);
        lay().is_ok()
    };
    assert!(eventually(PATIENCE, is_laid), "{trap} at {}", at.display());
}

/// Which user lays which trap in which place: all that make sense for the user of the tests; for another one, those that depend on
/// the user.
fn traps() -> Vec<(User, &'static str, &'static str)> {
    let me = TestEnv::as_me().user();
    let fits = |user: User, place: &str, trap: &str| match trap {
        // Root may open every file.
        "closed" => user == User::Ordinary && place == "live/ID",
        // A regular file of the user's own is a lock, and a directory that of a job.
        "file" => user == me && place == "jobs/ID",
        "directory" => place == "live/ID",
        "full" => user == me && place == "live/ID",
        "foreign" => user == me && am_root(),
        _ => user == me,
    };
    let places = User::all().into_iter().flat_map(|user| ["live/ID", "jobs/ID"].map(|place| (user, place)));
    let all = places.flat_map(|(user, place)| TRAPS.map(|trap| (user, place, trap)));
    all.filter(|(user, place, trap)| fits(*user, place, trap)).collect()
}

fn is_untouched(victim: &Path) -> bool {
    fs::read_to_string(victim).is_ok_and(|text| text == "precious") && !victim.with_extension("new").exists()
}

#[test]
fn all_verbs_know_a_job_that_replaced_its_lock_or_its_directory() {
    for (user, place, by) in traps() {
        let env = TestEnv::new(user);
        let victim = env.write("victim", "precious");
        let begin =
            |name: &str| env.start().args(["--name", name]).command(["sleep", &env.oracle.nap()]).begin();
        let job = begin("it");
        let after = |words: &[&str]| {
            trap(&env, &job.id, place, by, &victim);
            let done = env.quell(words[0]).args(&words[1..]).finish();
            let what = format!("{by} at {place}, {user:?}, {words:?}: {}{}", done.stdout, done.stderr);
            assert!(is_untouched(&victim), "{what}");
            (done, what)
        };
        let (list, what) = after(&["list", "--json"]);
        let jobs = &list.envelope()["data"]["jobs"];
        assert_eq!(
            (&jobs[0]["id"], &jobs[0]["state"]),
            (&job.id.clone().into(), &"running".into()),
            "{what}"
        );
        for text in [&job.id, "it"] {
            let (status, what) = after(&["status", "--json", text]);
            assert_eq!(status.envelope()["data"]["job"]["state"], "running", "{what}");
        }
        for dry in [&["sweep", "--json"][..], &["sweep", "--json", "--dry-run"]] {
            let (sweep, what) = after(dry);
            let report = sweep.envelope()["data"].clone();
            assert_eq!(
                (sweep.code(), &report["kept"], &report["jobs"]),
                (Some(0), &1.into(), &serde_json::json!([])),
                "{what}"
            );
        }
        let (rm, what) = after(&["rm", &job.id]);
        assert_eq!(rm.code(), Some(1), "{what}");
        let (stop, what) = after(&["stop", "--json", &job.id]);
        assert_eq!(stop.code(), Some(0), "{what}");
        assert_eq!(verdict(&stop.envelope()["data"]["jobs"][0]["receipt"]), "gone", "{what}");
        assert!(job.receipt().is_some() && job.is_over(), "{what}");
        assert_eq!(env.oracle.survivors_after(PATIENCE), vec![], "{what}");
        for words in [&["stop", "other"][..], &["stop", "--all"], &["stop", "--all", "--now"]] {
            let other = begin("other");
            trap(&env, &other.id, place, by, &victim);
            let done = env.quell(words[0]).args(&words[1..]).finish();
            let what = format!("{by} at {place}, {user:?}, {words:?}: {}{}", done.stdout, done.stderr);
            assert_eq!(done.code(), Some(0), "{what}");
            assert_eq!(env.oracle.survivors_after(PATIENCE), vec![], "{what}");
            assert!(other.receipt().is_some() && is_untouched(&victim), "{what}");
        }
    }
}

#[test]
fn a_run_that_replaced_its_lock_or_its_directory_is_stopped() {
    for (user, place, by) in traps() {
        let env = TestEnv::new(user);
        let victim = env.write("victim", "precious");
        let mut running = env.run().actor("tree", None).start();
        running.wait_ready().expect("ready");
        let job = env.job(&env.records()[0].id);
        trap(&env, &job.id, place, by, &victim);
        let done = job.stop(&[]);
        assert_eq!(done.code(), Some(0), "{by} at {place}, {user:?}: {}{}", done.stdout, done.stderr);
        assert!(running.wait_exit(PATIENCE).is_some(), "{by} at {place}, {user:?}: the front stays");
        assert_eq!(env.oracle.survivors_after(PATIENCE), vec![], "{by} at {place}, {user:?}");
        assert!(is_untouched(&victim), "{by} at {place}, {user:?}");
    }
}

#[test]
fn a_lost_job_that_replaced_its_lock_or_its_directory_is_stopped() {
    let verbs = ["stop", "sweep", "list", "status"].into_iter().cycle();
    for ((user, place, by), verb) in traps().into_iter().zip(verbs) {
        let env = TestEnv::new(user);
        let victim = env.write("victim", "precious");
        let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
        let root = job.process("root").expect("a root");
        job.lose();
        trap(&env, &job.id, place, by, &victim);
        let args: &[&str] = if ["stop", "status"].contains(&verb) { &[&job.id] } else { &[] };
        let done = env.quell(verb).args(args).finish();
        let what = format!("{by} at {place}, {user:?}, {verb}: {}{}", done.stdout, done.stderr);
        assert!(matches!(done.code(), Some(0 | 1 | 5)), "{what}");
        // Without its directory neither its marker nor its root is known: then nothing but its cgroup is.
        let is_known = place == "live/ID";
        assert!(!is_known || eventually(PATIENCE, || !root.is_alive()), "{what}");
        assert!(job.is_over() && is_untouched(&victim), "{what}");
        let receipt = job.receipt().unwrap_or_else(|| panic!("no receipt: {what}"));
        assert!(!root.is_alive() || verdict(&receipt) != "gone", "{what}: {receipt:#}");
        root.signal("KILL");
    }
}

#[test]
fn what_a_job_put_in_the_place_of_its_lock_is_kept_if_it_has_content() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    trap(&env, &job.id, "live/ID", "full", &env.path("victim"));
    assert_eq!(job.stop(&["--now"]).code(), Some(0));
    let moved = |name: &String| name.starts_with(&job.id) && name.ends_with(".moved");
    let names: Vec<String> = fs::read_dir(env.home())
        .expect("a home")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    let name = names.iter().find(|name| moved(name)).unwrap_or_else(|| panic!("{names:?}"));
    assert_eq!(fs::read_to_string(env.home().join(name).join("file")).expect("a file"), "precious");
}

/// A member that a tracer from outside does not collect stays as a zombie, and the init of its namespace waits for it.
#[test]
fn the_init_that_waits_for_a_traced_member_is_named_by_the_first_stop() {
    let test = "the_init_that_waits_for_a_traced_member_is_named_by_the_first_stop";
    if !am_root() || Contain::Pidns.available(User::Root).is_err() {
        return skip(test, "it needs root and a PID namespace");
    }
    let env = TestEnv::as_me();
    let script = "sleep $N & echo ready >$QUELL_TEST_READY; wait";
    let job = env.start().args(["--contain", "pidns"]).script(script).begin();
    let init = job.process("root").expect("an init");
    let find = || env.oracle.survivors().into_iter().find(|found| found.command.starts_with("sleep"));
    // It may be ready before its child has executed the program.
    assert!(eventually(PATIENCE, || find().is_some()), "no member");
    let member = find().expect("a member");
    let (actor, pid) = (env.actor_path(), member.pid.to_string());
    let words = [actor.to_str().expect("UTF-8"), "seize", env.oracle.token(), &pid];
    let tracer = Outsider::start(&env, &words, &[]);
    let status = || fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let is_traced = || status().lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"));
    if !eventually(Duration::from_secs(5), is_traced) {
        return skip(test, "no ptrace here");
    }
    let stop = job.stop(&["--now"]);
    assert_eq!(stop.code(), Some(5), "{}{}", stop.stdout, stop.stderr);
    assert!(stop.stderr.contains(&init.pid.to_string()), "it is not named: {}", stop.stderr);
    // A command that only looks does not wait for a known survivor as long as a stop.
    let status = env.quell("status").args([&job.id]).finish();
    assert_eq!(status.code(), Some(5), "{}{}", status.stdout, status.stderr);
    assert!(status.took < Duration::from_secs(8), "it took {:?}", status.took);
    drop(tracer);
    assert!(eventually(PATIENCE, || !init.is_alive()), "the init lives on");
    let last = job.stop(&["--now"]);
    assert!(matches!(last.code(), Some(0 | 5)) && job.is_over(), "{}{}", last.stdout, last.stderr);
}
