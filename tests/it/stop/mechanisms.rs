//! Mechanisms whose loss no other test notices for certain. Each test here fails when its mechanism is switched off
//! (`tests/mutations`).

use std::{
    fs::{self, File},
    io::{Read, Seek},
    os::unix::process::ExitStatusExt,
    process::{Child, Command},
};

use quell_tests::{
    eventually,
    evidence::{cause, receipt, says_gone},
    host::{Contain, Setting, am_root, has_program},
    oracle::Process,
    run::{PATIENCE, Running},
    skip,
    test_env::TestEnv,
};
use serde_json::Value;

fn json(path: &std::path::Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a record")).expect("JSON")
}

/// P3: as long as a process of the tree is still to be stopped, the PID of its root is not reused.
#[test]
fn the_root_stays_a_corpse_until_its_tree_is_gone() {
    // In a PID namespace it is its init that is pinned.
    for setting in Setting::all().into_iter().filter(|setting| setting.contain != Contain::Pidns) {
        let env = TestEnv::with(setting);
        let quell = env.start().args(["--until", "tree", "--contain", setting.contain.as_str()]);
        let job = quell.args(["--grace", "300ms"]).actor("daemon-exit", None).begin();
        let root_gone = || job.events().contains(&"root_exited".to_owned());
        assert!(eventually(PATIENCE, root_gone), "{setting}: {:?}", job.events());
        let root = job.process("root").unwrap_or_else(|| panic!("{setting}: the root was collected"));
        assert_eq!(root.state(), Some('Z'), "{setting}");
        assert_eq!(job.stop(&[]).code(), Some(0), "{setting}");
        assert!(Process::now(root.pid).is_none_or(|now| now.start != root.start), "{setting}: it stays");
    }
}

/// A process that carries the marker of the only job here and is not a descendant of it, such as another program may
/// start with the job's environment.
fn marked(env: &TestEnv) -> Child {
    let marker = json(&env.records()[0].dir.join("spec.json"))["marker"].as_str().map(str::to_owned);
    let mut command = Command::new("sleep");
    let child = command.arg(env.oracle.nap()).env("QUELL_MARK", marker.expect("a marker")).spawn();
    let child = child.expect("sleep");
    let line = format!("/proc/{}/cmdline", child.id());
    let runs = || fs::read(&line).is_ok_and(|line| line.starts_with(b"sleep"));
    assert!(eventually(PATIENCE, runs), "no sleep");
    child
}

/// Stops the run, and says of what the marked process had died by then.
fn killed_by_the_stop(mut running: Running, mut marked: Child) -> Option<i32> {
    running.front.signal("TERM");
    running.wait_exit(PATIENCE).expect("quell returns");
    let killed = marked.try_wait().expect("wait").and_then(|status| status.signal());
    let _ = marked.kill().and_then(|()| marked.wait());
    killed
}

#[test]
fn the_marker_search_kills_a_process_outside_the_tree() {
    let me = TestEnv::as_me().user();
    for setting in Setting::all().into_iter().filter(|setting| setting.user == me) {
        let env = TestEnv::as_me();
        let file = env.path("receipt.json");
        let quell = env.run().args(["--contain", setting.contain.as_str(), "--grace", "300ms"]);
        let mut running = quell.args(["--receipt"]).args([&file]).actor("tree", None).start();
        running.wait_ready().expect("ready");
        let marked = marked(&env);
        let pid = marked.id();
        let killed = killed_by_the_stop(running, marked);
        let receipt = receipt(&file).expect("a receipt");
        assert_eq!(killed, Some(9), "{setting}: {:#}", receipt["steps"]);
        says_gone(&receipt).unwrap_or_else(|why| panic!("{setting}: {why}"));
        let steps = receipt["steps"].as_array().cloned().unwrap_or_default();
        let audit = steps.iter().find(|step| step["step"] == "audit").cloned().unwrap_or_default();
        assert_eq!(audit["signals"][0]["to"]["pid"], pid, "{setting}: {steps:#?}");
    }
}

/// The keepers of a background job are elsewhere; the search looks where the job was started.
#[test]
fn the_marker_search_of_a_background_job_looks_where_it_was_started() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--grace", "300ms"]).actor("tree", None).begin();
    let mut marked = marked(&env);
    let cgroup_of = |pid: u32| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let (here, keeper) = (cgroup_of(std::process::id()), job.process("keeper").expect("a keeper"));
    if env.make_cgroup("can").is_some_and(|made| fs::remove_dir(made).is_ok()) {
        let there = cgroup_of(keeper.pid);
        assert!(there != here && there.contains("/quell-keepers\n"), "here {here}, its keeper {there}");
    } else {
        skip(
            "the_marker_search_of_a_background_job_looks_where_it_was_started (elsewhere)",
            "no cgroup can be made",
        );
    }
    assert_eq!(job.stop(&[]).code(), Some(0));
    let killed = marked.try_wait().expect("wait").and_then(|status| status.signal());
    let _ = marked.kill().and_then(|()| marked.wait());
    assert_eq!(killed, Some(9), "{:#}", job.receipt().expect("a receipt")["steps"]);
}

/// P3: a service manager that was handed the job's environment gives it to services that are none of the job's business.
#[test]
fn a_marked_process_in_another_cgroup_is_left_alone() {
    let env = TestEnv::as_me();
    let Some(service) = env.make_cgroup("service").filter(|_| am_root()) else {
        return skip("a_marked_process_in_another_cgroup_is_left_alone", "needs root to make a cgroup");
    };
    let mut running = env.run().args(["--grace", "300ms"]).actor("tree", None).start();
    running.wait_ready().expect("ready");
    let marked = marked(&env);
    fs::write(service.join("cgroup.procs"), marked.id().to_string()).expect("a service");
    assert_eq!(killed_by_the_stop(running, marked), None, "the service was killed");
}

/// P1: no instruction of the program runs outside of what holds it.
#[test]
fn the_first_thing_that_a_program_sees_is_its_own_cgroup() {
    for setting in Setting::all().into_iter().filter(|setting| setting.contain == Contain::Cgroup) {
        let env = TestEnv::with(setting);
        let job = env.start().args(["--contain", "cgroup"]).command(["cat", "/proc/self/cgroup"]).begin();
        assert!(job.wait_over(PATIENCE), "{setting}: {}", job.state());
        let seen = job.output("stdout");
        assert!(seen.contains(&format!("quell-{}", job.id)), "{setting}: {seen}");
    }
}

/// P6: a reader of a state that is changing gets the old one or the new one, and each is whole. If it were written over,
/// a reader (or a keeper that is killed) in the midst of it would be left with a part.
#[test]
fn a_state_is_added_and_never_written_over() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    assert!(eventually(PATIENCE, || job.state() == "running"), "{}", job.state());
    let path = job.dir().join("state.jsonl");
    let mut old = File::open(&path).expect("a state");
    let before = fs::read_to_string(&path).expect("a state");
    assert_eq!(job.stop(&["--now"]).code(), Some(0));
    assert_eq!(job.state(), "ended");
    let mut kept = String::new();
    old.rewind().and_then(|()| old.read_to_string(&mut kept)).expect("the old state");
    assert!(kept.starts_with(&before), "what a reader had open was changed under it: {before} {kept}");
}

/// P6: a power cut does not take back what a user was told of the end. The cut itself can't be tried here; that each file,
/// and then their directory, is synced can be seen: right after the job counts as over, by a keeper with a standby,
/// and before that by a keeper without one.
#[test]
fn the_end_of_a_background_job_is_on_the_disk_when_its_last_process_goes() {
    if !has_program("strace") {
        return skip(
            "the_end_of_a_background_job_is_on_the_disk_when_its_last_process_goes",
            "no strace here",
        );
    }
    for alone in [false, true] {
        let env = TestEnv::as_me();
        let strace =
            ["strace", "-f", "-y", "-o", "trace", "-e", "trace=fsync,fdatasync,rename,renameat,renameat2"];
        // The keeper must have missed its standby before the program ends.
        let script = if alone {
            "kill -9 $(cut -d ' ' -f 4 /proc/$PPID/stat)
            until grep -q standby_lost $QUELL_HOME/jobs/*/events.jsonl; do sleep 0.05; done; echo something"
        } else {
            "echo something"
        };
        let done = env.start().wrapped(strace).sh(script).finish();
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let trace = fs::read_to_string(env.path("trace")).expect("a trace");
        let id = env.ids("jobs").pop().expect("a job");
        let lines: Vec<&str> = trace.lines().collect();
        let told =
            lines.iter().position(|line| line.contains("rename") && line.contains(&format!("done/{id}")));
        let told = told.unwrap_or_else(|| panic!("it did not end: {trace}"));
        let there = if alone { &lines[..told] } else { &lines[told..] };
        let at = |end: &str| {
            let is = |line: &&str| line.contains("sync(") && line.contains(&format!("{end}>"));
            there.iter().position(is).unwrap_or_else(|| panic!("{end} is not synced in time: {trace}"))
        };
        let files = ["/receipt.json", "/state.jsonl", "/stdout.log"].map(at);
        assert!(files.iter().all(|file| *file < at(&format!("jobs/{id}"))), "{trace}");
    }
}

/// P6: in a PID namespace only the keeper learns how the root ended; the process that takes over knows it from the keeper.
#[test]
fn the_exit_code_of_the_root_is_not_lost_with_the_keeper() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let quell = env.start().args(["--until", "tree", "--contain", setting.contain.as_str()]);
        let script = "setsid sleep $N >/dev/null 2>&1 & echo ready >$QUELL_TEST_READY; exit 7";
        let job = quell.script(script).begin();
        let root_gone = || job.events().contains(&"root_exited".to_owned());
        assert!(eventually(PATIENCE, root_gone), "{setting}: {:?}", job.events());
        assert!(job.process("keeper").expect("a keeper").signal("KILL"), "{setting}");
        assert!(job.wait_over(PATIENCE), "{setting}: {}", job.state());
        let receipt = job.receipt().expect("a receipt");
        assert_eq!(receipt["root"]["outcome"]["code"], 7, "{setting}: {}", receipt["root"]);
        assert_eq!(cause(&receipt), "keeper_lost", "{setting}");
    }
}

#[test]
fn the_ask_and_the_members_are_not_lost_with_the_keeper() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let quell = env.start().args(["--contain", setting.contain.as_str(), "--grace", "40s"]);
        let script = "(exec sleep $N) & one=$!; trap '' TERM; (exec sleep $N) & two=$!
            for pid in $one $two; do until grep -q sleep /proc/$pid/comm; do :; done; done
            echo ready >$QUELL_TEST_READY; wait";
        let job = quell.script(script).begin();
        let stop = env.quell("stop").args([&job.id]).start();
        let asked = || job.events().contains(&"asked".to_owned());
        assert!(eventually(PATIENCE, asked), "{setting}: {:?}", job.events());
        assert!(job.process("keeper").expect("a keeper").signal("KILL"), "{setting}");
        let stop = stop.finish();
        assert!(job.wait_over(PATIENCE), "{setting}: {}", job.state());
        let receipt = job.receipt().expect("a receipt");
        assert_eq!((cause(&receipt), receipt["kill"].as_str()), ("user", Some("keeper_lost")), "{setting}");
        let members = receipt["members"].as_array().expect("members");
        assert!(members.len() >= 3, "{setting}: {receipt:#}");
        let steps = receipt["steps"].as_array().expect("steps");
        let ask = steps.iter().find(|step| step["step"] == "ask").expect("an ask");
        assert_eq!(ask["signals"].as_array().map(Vec::len), Some(members.len()), "{setting}: {ask}");
        let lost = |step: &Value| step["note"].as_str().is_some_and(|note| note.contains("killed by KILL"));
        assert!(steps.iter().any(lost), "{setting}: {receipt:#}");
        assert_eq!(receipt["grace"]["asked"], 40.0, "{setting}");
        let used = receipt["grace"]["used"].as_f64();
        assert!(used.is_some_and(|used| (0.0..40.0).contains(&used)), "{setting}: {used:?}");
        // None ended unasked.
        assert!(members.iter().all(|member| member["fate"] != "exited"), "{setting}: {receipt:#}");
        assert!(stop.stdout.contains("TERM at") && stop.stdout.contains("keeper was lost"), "{stop:?}");
    }
}

/// P7: a tree that is gone at the first count leaves no time for another look at the pipes but the last.
#[test]
fn what_an_ended_program_had_written_is_not_lost_with_its_keeper() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let script =
            "echo ready >$QUELL_TEST_READY; until [ -e go ]; do sleep 0.01; done; seq 1 9999; touch written";
        let job = env.start().args(["--contain", setting.contain.as_str()]).script(script).begin();
        let (keeper, root) = (job.process("keeper").expect("a keeper"), job.process("root").expect("a root"));
        // Its standby would have it go on after three seconds.
        let standby = job.process("standby").expect("a standby");
        assert!(keeper.signal("STOP") && standby.signal("STOP"), "{setting}");
        assert!(eventually(PATIENCE, || keeper.state() == Some('T')), "{setting}: it does not stop");
        env.write("go", "");
        assert!(eventually(PATIENCE, || env.path("written").exists()), "{setting}");
        // In a PID namespace it is its init whose end is the last.
        let over = || root.state().is_none_or(|state| state == 'Z');
        assert!(eventually(PATIENCE, over), "{setting}: {root:?}");
        assert!(keeper.signal("KILL") && standby.signal("CONT"), "{setting}");
        assert!(job.wait_over(PATIENCE), "{setting}: {}", job.state());
        let wanted: String = (1..=9999).map(|number| format!("{number}\n")).collect();
        assert!(job.output("stdout") == wanted, "{setting}: {} bytes", job.output("stdout").len());
    }
}

/// P6: that a job is kept is known from its lock alone: the record may be lost, or not be written yet.
#[test]
fn a_job_without_a_record_belongs_to_the_holder_of_its_lock() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let quell = env.start().args(["--contain", setting.contain.as_str(), "--grace", "300ms"]);
        let job = quell.command(["sleep", &env.oracle.nap()]).begin();
        let root = job.process("root").expect("a root");
        fs::remove_file(job.dir().join("state.jsonl")).expect("a state");
        let sweep = env.quell("sweep").finish();
        assert_eq!(sweep.code(), Some(0), "{setting}: {}{}", sweep.stdout, sweep.stderr);
        assert!(root.is_alive(), "{setting}: it was swept away: {}", sweep.stdout);
        assert_eq!(job.stop(&[]).code(), Some(0), "{setting}");
        assert_eq!(cause(&job.receipt().expect("a receipt")), "user", "{setting}");
    }
}

/// P8: in a PID namespace the front does not see the root's end as long as another process is alive in it: that the keeper,
/// which sees it, is stopped is all that there is to see.
#[test]
fn a_stopped_keeper_is_continued_also_if_no_client_waits() {
    let me = TestEnv::as_me().user();
    if let Err(why) = Contain::Pidns.available(me) {
        return skip("a_stopped_keeper_is_continued_also_if_no_client_waits", &why);
    }
    let env = TestEnv::for_containment(me, Contain::Pidns);
    let script = "sleep $N & echo ready >$QUELL_TEST_READY; until [ -e go ]; do sleep 0.01; done; exit 5";
    let mut running = env.run().args(["--contain", "pidns", "--grace", "300ms"]).script(script).start();
    running.wait_ready().expect("ready");
    let keeper = running.keeper().expect("a keeper");
    assert!(keeper.signal("STOP"));
    assert!(eventually(PATIENCE, || keeper.state() == Some('T')), "it does not stop");
    env.write("go", "");
    let status = running.wait_exit(PATIENCE).expect("quell returns");
    assert_eq!(status.code(), Some(5), "{}", running.stderr());
}
