//! "Gone" is said only of what is gone: after the loss of both keepers, beside PID namespaces that are not the job's, and
//! with a record that was rewritten. And what only looks like the job's is left alone.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use quell_tests::{
    eventually,
    evidence::{cause, verdict},
    faults::{self, Fault},
    host::{self, Contain, NOBODY, Setting, User},
    jobs::Background,
    last_json,
    oracle::Process,
    outsider::{Outsider, age},
    run::{PATIENCE, Quell},
    skip,
    test_env::TestEnv,
};
use serde_json::{Value, json};

/// Whether other tests can't see what is left in a foreign PID namespace here: an orphan there may be a process of any job of
/// the same user that was started from the same cgroup. As root, ordinary users are tested in cgroups of their own.
fn is_apart(test: &str) -> bool {
    let apart = host::am_root() && Contain::Cgroup.available(User::Root).is_ok();
    if !apart {
        skip(test, "no cgroup of its own can be had, and jobs of other tests would be unproven");
    }
    apart
}

/// A script that leaves an orphan in the PID namespace of `init`.
fn enter(init: &Process) -> String {
    format!(
        "nsenter -t {} -U -p --preserve-credentials -- sh -c 'setsid env -i sleep '$N' <&- >&- 2>&- & \
         while ! pgrep -f \"^sleep '$N'\" >/dev/null; do :; done'",
        init.pid
    )
}

fn survivor(env: &TestEnv) -> Option<Process> {
    env.oracle.survivors().into_iter().find(|found| found.command.starts_with("sleep"))
}

#[test]
fn an_orphan_in_a_foreign_pid_namespace_is_not_called_gone() {
    if !is_apart("an_orphan_in_a_foreign_pid_namespace_is_not_called_gone") {
        return;
    }
    for user in User::all() {
        let env = TestEnv::in_own_cgroup(user);
        let Some((_outsider, init)) = Outsider::pid_namespace(&env) else {
            skip("an_orphan_in_a_foreign_pid_namespace_is_not_called_gone", "no user namespace can be made");
            continue;
        };
        // It ends by itself, and no process was asked or killed.
        let script = enter(&init);
        let run = env.run().args(["--json", "--contain", "reaper"]).script(&script).finish();
        let orphan = survivor(&env).expect("an orphan");
        let data = &run.envelope()["data"];
        assert_eq!((run.code(), verdict(data)), (Some(122), "unproven"), "{user:?}: {data:#}");
        assert!(
            data["verdict"]["why"].as_str().is_some_and(|why| why.contains(&orphan.pid.to_string())),
            "{data:#}"
        );
        let told = data["held"]["defeated_by"].to_string();
        assert!(told.contains("entered the PID namespace"), "{told}");
        assert!(orphan.signal("KILL") && eventually(PATIENCE, || !orphan.is_alive()));
        // It is stopped.
        let job = env
            .start()
            .args(["--contain", "reaper"])
            .script(&format!("{script}; echo ready >$QUELL_TEST_READY; sleep $N"));
        let job = job.begin();
        let orphan = survivor(&env).expect("an orphan");
        let stop = job.stop(&["--now"]);
        assert_eq!(stop.code(), Some(5), "{user:?}: {}", stop.stdout);
        assert!(orphan.is_alive() || stop.stdout.contains("not proven"), "{}", stop.stdout);
    }
}

#[test]
fn a_marked_orphan_among_the_processes_of_a_sandbox_is_not_called_gone() {
    const TEST: &str = "a_marked_orphan_among_the_processes_of_a_sandbox_is_not_called_gone";
    if !is_apart(TEST) {
        return;
    }
    for user in User::all() {
        let env = TestEnv::in_own_cgroup(user);
        let sandbox = ["unshare", "-Urfpm", "bash", "-c", "exec sleep $N"];
        let Some((_outsider, init)) = Outsider::namespace(&env, &sandbox) else {
            skip(TEST, "no user namespace can be made");
            continue;
        };
        // It has the cgroup and the mounts of the sandbox, and its own environment.
        let script = enter(&init).replace(" -p ", " -p -m ").replace("env -i ", "");
        let run = env.run().args(["--json", "--contain", "reaper"]).script(&script).finish();
        let data = &run.envelope()["data"];
        assert!(survivor(&env).is_some(), "{user:?}: {data:#}");
        assert_eq!((run.code(), verdict(data)), (Some(122), "unproven"), "{user:?}: {data:#}");
    }
}

#[test]
fn an_orphan_in_the_namespace_of_another_job_is_not_called_gone() {
    if !is_apart("an_orphan_in_the_namespace_of_another_job_is_not_called_gone") {
        return;
    }
    for user in User::all() {
        if let Err(why) = Contain::Pidns.available(user) {
            skip("an_orphan_in_the_namespace_of_another_job_is_not_called_gone", &why);
            continue;
        }
        let env = TestEnv::in_own_cgroup(user);
        let other = env
            .start()
            .args(["--contain", "pidns"])
            .script("echo ready >$QUELL_TEST_READY; exec tail -f /dev/null");
        let other = other.begin();
        let init = other.process("root").expect("an init");
        let own_user = fs::metadata(format!("/proc/{}/ns/user", init.pid)).ok().map(|found| inode(&found));
        let here = fs::metadata("/proc/self/ns/user").ok().map(|found| inode(&found));
        let enter = if own_user == here { enter(&init).replace(" -U", "") } else { enter(&init) };
        let run = env.run().args(["--json", "--contain", "reaper"]).script(&enter).finish();
        let data = &run.envelope()["data"];
        assert!(survivor(&env).is_some(), "{user:?}: {data:#}");
        assert_eq!((run.code(), verdict(data)), (Some(122), "unproven"), "{user:?}: {data:#}");
        assert_eq!(other.stop(&["--now"]).code(), Some(0), "{user:?}");
        assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{user:?}");
    }
}

fn inode(found: &fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    found.ino()
}

#[test]
fn what_others_do_in_their_own_namespaces_spoils_no_proof() {
    for user in User::all() {
        let env = TestEnv::in_own_cgroup(user);
        // It makes children of its init all the time, with the job and behind it.
        let busy = ["unshare", "-Urfp", "bash", "-c", "while :; do sleep 0.02 & sleep 0.01; done; sleep $N"];
        let outsider = Outsider::start(&env, &busy, &[]);
        if !eventually(PATIENCE, || outsider.oracle.survivors().len() > 1) {
            skip("what_others_do_in_their_own_namespaces_spoils_no_proof", "no user namespace can be made");
            continue;
        }
        for _ in 0..5 {
            let run = env
                .run()
                .args(["--json", "--contain", "reaper"])
                .sh("sleep 0.05; setsid sleep 9 & sleep 0.05");
            let run = run.finish();
            let data = &run.envelope()["data"];
            assert_eq!((run.code(), verdict(data)), (Some(0), "gone"), "{user:?}: {data:#}");
        }
    }
}

/// The verdict on a job beside which another quell starts a job in a PID namespace. `is_there` says when that has come far enough.
fn beside_a_start_elsewhere(
    env: &TestEnv,
    quell: &Path,
    variables: &[(&str, &str)],
    is_there: impl Fn(&Outsider) -> bool,
) {
    let run = env.run().args(["--json", "--contain", "reaper"]);
    let mut running =
        run.script("echo ready >$QUELL_TEST_READY; until [ -e go ]; do sleep 0.01; done").start();
    running.wait_ready().expect("ready");
    let (home, quell) = (env.path("inner"), quell.display());
    let script = format!("QUELL_HOME={} {quell} start -- sleep $N; sleep $N", home.display());
    let words = ["unshare", "-fp", "--mount-proc", "sh", "-c", &script];
    let outsider = Outsider::start(env, &words, variables);
    assert!(eventually(PATIENCE, || is_there(&outsider)), "no job in a namespace");
    env.write("go", "");
    let done = running.finish();
    let data = &done.envelope()["data"];
    assert_eq!((done.code(), verdict(data)), (Some(0), "gone"), "{data:#}");
}

#[test]
fn the_keepers_of_a_job_in_another_pid_namespace_spoil_no_proof() {
    if !is_apart("the_keepers_of_a_job_in_another_pid_namespace_spoil_no_proof") {
        return;
    }
    let env = TestEnv::in_own_cgroup(User::Root);
    beside_a_start_elsewhere(&env, &env.quell_path(), &[], |outsider| outsider.oracle.survivors().len() > 2);
}

#[test]
fn a_job_that_is_being_started_in_another_pid_namespace_spoils_no_proof() {
    if !is_apart("a_job_that_is_being_started_in_another_pid_namespace_spoils_no_proof") {
        return;
    }
    for point in ["request_read", "pipes_made", "lock_made"] {
        let env = TestEnv::in_own_cgroup(User::Root);
        let fault = Fault(format!("standby.{point}:stop"));
        let log = env.write("points", "");
        let variables =
            [("QUELL_FAULT", fault.0.as_str()), ("QUELL_FAULT_LOG", log.to_str().expect("a path"))];
        let program = env.faulty_path(faults::binary().expect("a quell with points"));
        beside_a_start_elsewhere(&env, &program, &variables, |_| env.hit(&fault).is_some());
    }
}

/// A script with a member that has left its environment, its session and its parent.
const ESCAPED: &str = "(setsid env -i sh -c 'exec sleep '${N}5 <&- >&- 2>&- &)
    until pgrep -f \"^sleep ${N}5\" >/dev/null; do :; done; echo ready >$QUELL_TEST_READY; sleep $N";

/// That member.
fn escaped(env: &TestEnv) -> Process {
    let name = format!("sleep {}5", env.oracle.nap());
    let found = env.oracle.survivors().into_iter().find(|found| found.command == name);
    found.expect("an escaped member")
}

/// A job in the background with a member that has left all that ties it to the job: environment, session, parent, and
/// the cgroup for that of `elsewhere`.
fn with_escaped<'l>(
    env: &'l TestEnv,
    contain: Contain,
    elsewhere: Option<&Path>,
) -> (Background<'l>, Process) {
    let leave = elsewhere.map_or(String::new(), |dir| format!("echo $$ >{}/cgroup.procs; ", dir.display()));
    let script = ESCAPED.replace("sh -c '", &format!("sh -c '{leave}"));
    let labels = ["--tag", "kind=escaped", "--owner", "session:escaped"];
    let job = env.start().args(["--contain", contain.as_str()]).args(labels).script(&script).begin();
    (job, escaped(env))
}

#[test]
fn an_empty_cgroup_alone_is_no_proof_after_a_loss() {
    for user in User::all() {
        if let Err(why) = Contain::Cgroup.available(user) {
            skip("an_empty_cgroup_alone_is_no_proof_after_a_loss", &why);
            continue;
        }
        let env = TestEnv::in_own_cgroup(user);
        let inside = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        assert!(inside.contains("cgroup2"));
        let Some(elsewhere) = place_beside(&env) else {
            skip("an_empty_cgroup_alone_is_no_proof_after_a_loss", "no cgroup can be made");
            continue;
        };
        let (job, escaped) = with_escaped(&env, Contain::Cgroup, Some(&elsewhere));
        job.lose();
        let stop = job.stop(&[]);
        let receipt = job.receipt().expect("a receipt");
        assert_eq!((stop.code(), verdict(&receipt)), (Some(5), "unproven"), "{user:?}: {receipt:#}");
        let why = receipt["verdict"]["why"].as_str().unwrap_or_default();
        assert!(why.contains("can't be told from its own") || why.contains("faster"), "{user:?}: {why}");
        assert!(escaped.is_alive(), "{user:?}");
        escaped.signal("KILL");
    }
}

/// A cgroup to which a job of this environment can move.
fn place_beside(env: &TestEnv) -> Option<PathBuf> {
    let out = Command::new(env.prefix().first()?)
        .args(&env.prefix()[1..])
        .args(["sh", "-c", "sed -n 's/^0:://p' /proc/self/cgroup"])
        .output()
        .ok()?;
    let own = String::from_utf8_lossy(&out.stdout).trim().trim_start_matches('/').to_owned();
    let place = host::cgroup_mount()?.join(own).join("elsewhere");
    fs::create_dir(&place).ok()?;
    if env.user() == User::Ordinary && host::am_root() {
        for path in [place.clone(), place.join("cgroup.procs")] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).ok()?;
        }
    }
    Some(place)
}

/// Where no other process is that could be the job's, its end is proven: in a PID namespace with nothing else in it.
#[test]
fn a_lost_job_beside_which_nothing_was_started_is_proven_gone() {
    if !host::am_root() {
        return skip("a_lost_job_beside_which_nothing_was_started_is_proven_gone", "it needs root");
    }
    for contain in Contain::ALL {
        if contain.available(User::Root).is_err() {
            continue;
        }
        let env = TestEnv::in_own_cgroup(User::Root);
        let script = format!(
            "id=$($0 start --contain {} -- sh -c 'setsid sleep $1 & sleep $1' x $1); \
             for role in standby keeper; do \
             pid=$(tail -n 1 $QUELL_HOME/jobs/$id/state.jsonl | sed 's/.*\"'$role'\":{{\"pid\":\\([0-9]*\\).*/\\1/'); \
             kill -STOP $pid; pids=\"$pids $pid\"; done; kill -KILL $pids; \
             for pid in $pids; do while kill -0 $pid 2>/dev/null && ! grep -q '^State:.Z' /proc/$pid/status; do :; done; done; \
             $0 stop $id >$QUELL_HOME/said 2>&1; echo $? >$QUELL_HOME/code",
            contain.as_str()
        );
        let mut words = env.prefix();
        words.extend(["unshare", "-pf", "--mount-proc", "sh", "-c", &script].map(String::from));
        let home = env.home();
        fs::create_dir(&home).and_then(|()| private(&home)).expect("a home");
        let done = Command::new(&words[0])
            .args(&words[1..])
            .arg(env.quell_path())
            .arg(env.oracle.nap())
            .env("QUELL_HOME", &home)
            .stdin(Stdio::null())
            .output()
            .expect("unshare");
        let said = fs::read_to_string(home.join("said")).unwrap_or_default();
        let code = fs::read_to_string(home.join("code")).unwrap_or_default();
        let errors = String::from_utf8_lossy(&done.stderr);
        if code.is_empty() && errors.contains("unshare") {
            return skip("a_lost_job_beside_which_nothing_was_started_is_proven_gone", errors.trim());
        }
        assert_eq!(code.trim(), "0", "{contain:?}: {said}{errors}");
        assert!(said.contains("0 left"), "{contain:?}: {said}");
    }
}

fn private(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
}

/// Changes the last line of a file of the job's record.
fn forge(job: &Background<'_>, name: &str, change: impl FnOnce(&mut Value)) {
    let path = job.dir().join(name);
    let mut value = last_json(&fs::read(&path).expect(name)).expect("JSON");
    change(&mut value);
    fs::write(&path, format!("{value}\n")).expect("a forged record");
}

/// Whether a stop says what can be known: gone with 0, or unproven with 5.
fn is_honest(env: &TestEnv, job: &Background<'_>, what: &str) {
    let stop = job.stop(&[]);
    let receipt =
        job.receipt().unwrap_or_else(|| panic!("{what}: no receipt: {}{}", stop.stdout, stop.stderr));
    let proven = match stop.code() {
        Some(0) => "gone",
        Some(5) => "unproven",
        other => panic!("{what}: {other:?}: {}", stop.stdout),
    };
    assert_eq!(verdict(&receipt), proven, "{what}: {receipt:#}");
    assert_eq!(cause(&receipt), "keeper_lost", "{what}: {receipt:#}");
    assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{what}: {receipt:#}");
}

fn pose_as_waiting(state: &mut Value) {
    let ending = json!({ "cause": "own_exit", "actor": { "kind": "program" } });
    state["state"] = json!("waiting");
    state["last"] =
        json!({ "outcome": { "kind": "unknown" }, "ending": ending, "verdict": { "kind": "gone" } });
}

#[test]
fn a_rewritten_record_saves_no_tree() {
    const OTHER_BOOT: &str = "00000000-0000-0000-0000-000000000000";
    for setting in Setting::all().into_iter().filter(|setting| setting.contain != Contain::Pidns) {
        let env = TestEnv::enclosed(setting);
        let begin = || {
            let quell = env.start().args(["--contain", setting.contain.as_str()]);
            let job = quell.script("setsid sleep $N & echo ready >$QUELL_TEST_READY; sleep $N").begin();
            job.lose();
            job
        };
        let dead = json!({ "pid": 1, "start": 1 });
        let late = json!({ "pid": 4_000_000, "start": u64::MAX / 2 });
        let job = begin();
        forge(&job, "spec.json", |spec| spec["boot_id"] = json!(OTHER_BOOT));
        is_honest(&env, &job, &format!("{setting}: another boot"));
        for root in [&dead, &late] {
            let job = begin();
            forge(&job, "state.jsonl", |state| {
                pose_as_waiting(state);
                state["tree"]["root"] = root.clone();
            });
            is_honest(&env, &job, &format!("{setting}: waiting, with another root"));
        }
        let job = begin();
        forge(&job, "state.jsonl", |state| {
            state["tree"]["containment"] = json!("pidns");
            state["tree"]["root"] = late.clone();
            state["tree"].as_object_mut().map(|tree| tree.remove("cgroup"));
        });
        is_honest(&env, &job, &format!("{setting}: another containment"));
        if setting.contain == Contain::Cgroup
            && let Some(place) = place_beside(&env)
        {
            let job = begin();
            let empty = place.join(format!("quell-{}", job.id));
            fs::create_dir(&empty).expect("an empty cgroup");
            forge(&job, "state.jsonl", |state| state["tree"]["cgroup"] = json!(empty));
            is_honest(&env, &job, &format!("{setting}: another cgroup"));
            let _ = fs::remove_dir(&empty);
            let _ = fs::remove_dir(&place);
        }
    }
}

#[test]
fn a_rewritten_record_and_a_member_that_nothing_ties_to_its_job_are_not_called_gone() {
    for user in User::all() {
        let env = TestEnv::in_own_cgroup(user);
        type Change = fn(&mut Value);
        let changes: [(&str, &str, Change); 3] = [
            ("another boot", "spec.json", |spec| {
                spec["boot_id"] = json!("00000000-0000-0000-0000-000000000000");
            }),
            ("waiting", "state.jsonl", |state| {
                pose_as_waiting(state);
                state["tree"]["root"] = json!({ "pid": 1, "start": 1 });
                state["tree"]["members"] = json!([]);
            }),
            ("another containment", "state.jsonl", |state| {
                state["tree"]["containment"] = json!("pidns");
                state["tree"]["root"] = json!({ "pid": 4_000_000, "start": 1 });
                state["tree"]["members"] = json!([]);
            }),
        ];
        for (what, file, change) in changes {
            let (job, escaped) = with_escaped(&env, Contain::Reaper, None);
            job.lose();
            forge(&job, file, change);
            let stop = job.stop(&[]);
            assert_eq!(stop.code(), Some(5), "{user:?}, {what}: {}", stop.stdout);
            assert!(
                escaped.signal("KILL") && eventually(PATIENCE, || !escaped.is_alive()),
                "{user:?}, {what}"
            );
        }
    }
}

#[test]
fn a_member_that_the_keeper_has_seen_is_found_after_a_loss() {
    for user in User::all() {
        let env = TestEnv::in_own_cgroup(user);
        let script = "setsid env -i sleep $N <&- >&- 2>&- & echo ready >$QUELL_TEST_READY";
        let job = env.start().args(["--contain", "reaper", "--until", "tree"]).script(script).begin();
        let recorded = || job.record().is_some_and(|record| !record["tree"]["members"].is_null());
        assert!(eventually(PATIENCE, recorded), "{user:?}: {:?}", job.record());
        job.lose();
        let stop = job.stop(&[]);
        assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{user:?}: {}", stop.stdout);
        // Seen by a look from outside.
        let (job, escaped) = with_escaped(&env, Contain::Reaper, None);
        assert_eq!(env.quell("tree").args([&job.id]).finish().code(), Some(0), "{user:?}");
        job.lose();
        let stop = job.stop(&[]);
        assert!(eventually(PATIENCE, || !escaped.is_alive()), "{user:?}: {}", stop.stdout);
    }
}

/// Replaces the marker in a file of the record by another one, as a flipped bit does.
fn flip_marker(job: &Background<'_>, name: &str) {
    let path = job.dir().join(name);
    let text = fs::read_to_string(&path).expect(name);
    let marker = text.split("\"marker\":\"").nth(1).expect("a marker")[..32].to_owned();
    let last = if marker.ends_with('0') { '1' } else { '0' };
    fs::write(&path, text.replace(&marker, &format!("{}{last}", &marker[..31]))).expect(name);
}

#[test]
fn one_damaged_copy_of_the_marker_hides_no_process_of_a_lost_job() {
    let script = "(setsid sleep ${N}5 <&- >&- 2>&- &)
        until pgrep -f \"^sleep ${N}5\" >/dev/null; do :; done; echo ready >$QUELL_TEST_READY; sleep $N";
    for user in User::all() {
        for file in ["spec.json", "state.jsonl", "launch.private.json"] {
            // A job in the foreground has no third copy.
            for copies in [2, 3] {
                let env = TestEnv::in_own_cgroup(user);
                let job = env.start().args(["--contain", "reaper"]).script(script).begin();
                job.lose();
                flip_marker(&job, file);
                if copies == 2 {
                    fs::remove_file(job.dir().join("launch.private.json")).expect("a copy");
                }
                let stop = job.stop(&["--now"]);
                let left = env.oracle.survivors_after(PATIENCE);
                assert_eq!(left, [], "{file}, {copies}, {user:?}: {}{}", stop.stdout, stop.stderr);
            }
        }
    }
}

/// A quell whose wall clock is `ahead` by so many seconds; none where it can't be given one.
fn with_clock<'l>(env: &'l TestEnv, verb: &str, ahead: &Path) -> Option<Quell<'l>> {
    let program = std::env::var_os("QUELL_CLOCK_BIN");
    let program = program.map_or_else(|| env.quell_path(), |program| env.clocked_path(Path::new(&program)));
    let library = env.path("clock.so");
    if !library.exists() {
        fs::copy(host::clock_library(), &library).ok()?;
    }
    let quell = env.quell(verb).program(program);
    Some(quell.env("LD_PRELOAD", &library).env("TEST_CLOCK", ahead))
}

#[test]
fn a_clock_that_was_set_back_hides_no_member_of_a_lost_job() {
    const NAME: &str = "a_clock_that_was_set_back_hides_no_member_of_a_lost_job";
    for user in User::all() {
        let env = TestEnv::in_own_cgroup(user);
        let clock = env.write("clock", "3");
        let Some(quell) = with_clock(&env, "start", &clock) else {
            skip(NAME, "the library with the clock can't be read");
            continue;
        };
        let job = quell.args(["--contain", "reaper"]).script(ESCAPED).begin();
        let escaped = escaped(&env);
        // It was started three seconds later than it is now, if its clock was another one at all.
        let plain = env.start().command(["true"]).begin();
        if plain.id > job.id {
            skip(NAME, "this quell has no libraries, and so no clock of its own");
            continue;
        }
        // Its keeper notes its members at a look.
        assert_eq!(env.quell("tree").args([&job.id]).finish().code(), Some(0), "{user:?}");
        // By the wall clock the job is about a second old now, and so began after its processes.
        assert!(eventually(PATIENCE, || age(&escaped) > 4.5));
        job.lose();
        let stop = job.stop(&["--now"]);
        assert!(eventually(PATIENCE, || !escaped.is_alive()), "{user:?}: {}{}", stop.stdout, stop.stderr);
    }
}

#[test]
fn a_record_that_names_strangers_as_members_does_not_get_them_killed() {
    for user in User::all() {
        let env = TestEnv::in_own_cgroup(user);
        // Older than the job.
        let (_older, older) = Outsider::sleeper(&env, &[]);
        let older_than = || quell_tests::eventually(PATIENCE, || age(&older) > 0.05);
        assert!(older_than(), "{user:?}");
        let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
        job.lose();
        let mut named = vec![json!({ "pid": older.pid, "start": older.start })];
        // Another user's.
        let other = (user == User::Root).then(|| {
            let (guard, process) = Outsider::sleeper(&TestEnv::new(User::Ordinary), &[]);
            named.push(json!({ "pid": process.pid, "start": process.start }));
            (guard, process)
        });
        forge(&job, "state.jsonl", |state| state["tree"]["members"] = json!(named));
        let stop = job.stop(&[]);
        assert_eq!(stop.code(), Some(5), "{user:?}: {}", stop.stdout);
        assert!(older.is_alive(), "{user:?}: an older process was killed");
        assert!(
            other.as_ref().is_none_or(|(_, process)| process.is_alive()),
            "another user's process was killed"
        );
        drop(other);
        older.signal("KILL");
        assert!(eventually(PATIENCE, || !older.is_alive()));
        env.quell("sweep").finish();
    }
}

#[test]
fn an_end_that_is_not_proven_is_told_alike_by_list_status_sweep_and_stop() {
    let env = TestEnv::in_own_cgroup(if host::am_root() { User::Root } else { User::Ordinary });
    let (job, escaped) = with_escaped(&env, Contain::Reaper, None);
    job.lose();
    let list = env.quell("list").finish();
    assert_eq!(list.code(), Some(5), "{}", list.stdout);
    assert!(list.stdout.contains("UNPROVEN"), "{}", list.stdout);
    for words in [
        vec!["status", &job.id],
        vec!["sweep"],
        vec!["stop", &job.id],
        vec!["stop", "--all"],
        vec!["stop", "--tag", "kind=escaped"],
        vec!["stop", "--session", "escaped"],
        vec!["sweep"],
        vec!["list"],
    ] {
        let done = env.quell(words[0]).args(&words[1..]).finish();
        assert_eq!(done.code(), Some(5), "{words:?}: {}", done.stdout);
        assert!(done.stdout.to_lowercase().contains("proven"), "{words:?}: {}", done.stdout);
    }
    let swept = env.quell("sweep").args(["--json"]).finish();
    assert_eq!(swept.envelope()["data"]["jobs"][0]["action"], "report", "{}", swept.stdout);
    escaped.signal("KILL");
    assert_eq!(env.quell("rm").args([&job.id]).finish().code(), Some(0));
    for verb in ["list", "sweep"] {
        assert_eq!(env.quell(verb).finish().code(), Some(0), "{verb}");
    }
}

#[test]
fn the_public_id_of_a_job_in_an_environment_is_no_mark() {
    for user in User::all() {
        let env = TestEnv::in_own_cgroup(user);
        let script = "setsid sleep $N & echo ready >$QUELL_TEST_READY; sleep $N";
        let job = env.start().args(["--contain", "reaper"]).script(script).begin();
        let spec: Value = last_json(&fs::read(job.dir().join("spec.json")).expect("a spec")).expect("JSON");
        let marker = spec["marker"].as_str().expect("a marker").to_owned();
        let note = format!("QUELL_MARK={marker}");
        let (_one, mentions) = Outsider::sleeper(
            &env,
            &[("QUELL_JOB", &job.id), ("NOTE", &note), ("OTHER", &marker), ("QUELL_MARK", &marker[1..])],
        );
        job.lose();
        fs::write(job.dir().join("spec.json"), "{").expect("damage");
        env.quell("sweep").finish();
        assert!(mentions.is_alive(), "{user:?}: a stranger was killed");
        assert_ne!(mentions.state(), Some('T'), "{user:?}: a stranger was stopped");
        // Its own are found by the marker, of which the state has a copy.
        assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{user:?}");
    }
}

/// One rule for a stop and for a recovery: what carries the marker in another cgroup is left alone.
#[test]
fn a_marked_process_in_another_cgroup_is_spared_by_a_stop_and_by_a_recovery() {
    if !host::am_root() || host::cgroup_mount().is_none() {
        let why = "it needs root and cgroups";
        return skip("a_marked_process_in_another_cgroup_is_spared_by_a_stop_and_by_a_recovery", why);
    }
    for user in User::all() {
        for lost in [false, true] {
            let env = TestEnv::in_own_cgroup(user);
            let Some(elsewhere) = place_beside(&env) else { continue };
            let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
            let spec: Value =
                last_json(&fs::read(job.dir().join("spec.json")).expect("a spec")).expect("JSON");
            let marker = spec["marker"].as_str().expect("a marker").to_owned();
            let (_far, far) = Outsider::sleeper(&env, &[("QUELL_MARK", &marker)]);
            fs::write(elsewhere.join("cgroup.procs"), far.pid.to_string()).expect("another cgroup");
            let (_near, near) = Outsider::sleeper(&env, &[("QUELL_MARK", &marker)]);
            if lost {
                job.lose();
            }
            let stop = job.stop(&[]);
            let what = format!("{user:?}, lost: {lost}: {}", stop.stdout);
            assert!(far.is_alive(), "{what}");
            assert!(eventually(PATIENCE, || !near.is_alive()), "{what}");
            if lost {
                assert_eq!(stop.code(), Some(5), "{what}");
                assert!(stop.stdout.contains(&far.pid.to_string()), "{what}");
            }
            far.signal("KILL");
            assert!(eventually(PATIENCE, || fs::remove_dir(&elsewhere).is_ok()));
        }
    }
}

/// A front that has its caller's children can't tell whose an orphan without a mark is: it says which it means.
#[test]
fn an_orphan_that_may_be_the_callers_is_named() {
    for user in User::all() {
        let env = TestEnv::new(user);
        let job = "(setsid env -i sleep $N <&- >&- 2>&- &) ; until pgrep -f \"^sleep $N\" >/dev/null; do :; done; kill -KILL $PPID; sleep $N";
        let wrap = ["bash", "-c", "sleep ${N}1 <&- >&- 2>&- & exec \"$0\" \"$@\""];
        let run = env.run().wrapped(wrap).args(["--json", "--contain", "reaper"]).script(job).finish();
        let data = &run.envelope()["data"];
        let orphan = env
            .oracle
            .survivors()
            .into_iter()
            .find(|found| found.command == format!("sleep {}", env.oracle.nap()));
        assert_eq!((run.code(), verdict(data)), (Some(122), "unproven"), "{user:?}: {data:#}");
        let named = data["survivors"].as_array().map(Vec::as_slice).unwrap_or_default();
        let orphan = orphan.expect("an orphan");
        assert!(named.iter().any(|id| id["pid"] == orphan.pid), "{user:?}: {orphan:?}, {data:#}");
        let why = data["verdict"]["why"].as_str().unwrap_or_default();
        assert!(why.contains(&format!("{} (sleep)", orphan.pid)), "{user:?}: {why}");
    }
}

/// A job with a member in a session of its own.
fn with_tree<'l>(env: &'l TestEnv, setting: Setting) -> Background<'l> {
    let quell = env.start().args(["--contain", setting.contain.as_str()]);
    quell.script("setsid sleep $N & echo ready >$QUELL_TEST_READY; sleep $N").begin()
}

fn open_settings() -> impl Iterator<Item = Setting> {
    Setting::all().into_iter().filter(|setting| setting.contain != Contain::Pidns)
}

/// That a verb which has met a lost job said what can be known: it left a receipt, and `gone` only with nothing alive.
fn is_told(env: &TestEnv, job: &Background<'_>, code: Option<i32>, what: &str) {
    let receipt = job.receipt().unwrap_or_else(|| panic!("{what}: exit code {code:?} and no receipt"));
    let alive = env.oracle.survivors();
    match (verdict(&receipt), code) {
        ("gone", Some(0)) => assert_eq!(alive, [], "{what}: {receipt:#}"),
        ("unproven", Some(5)) => {}
        other => panic!("{what}: {other:?}: {receipt:#}"),
    }
    assert_eq!((cause(&receipt), job.is_over()), ("keeper_lost", true), "{what}: {receipt:#}");
}

#[test]
fn a_tree_is_not_said_to_have_never_run_because_its_record_says_so() {
    let never_started = |job: &Background<'_>| {
        forge(job, "state.jsonl", |state| {
            state["state"] = json!("stopping");
            state["ending"] = json!({ "cause": "keeper_lost", "actor": { "kind": "unknown" } });
            state.as_object_mut().map(|state| state.remove("tree"));
        });
    };
    type Harm<'a> = &'a dyn Fn(&TestEnv, &Background<'_>);
    let harms: [(&str, Harm<'_>); 4] = [
        ("directory deleted", &|_, job| fs::remove_dir_all(job.dir()).expect("a directory")),
        ("state deleted", &|_, job| fs::remove_file(job.dir().join("state.jsonl")).expect("a state")),
        ("state forged", &|_, job| never_started(job)),
        ("state forged and lock emptied", &|env, job| {
            // Later than any start makes its lock.
            let root = job.process("root").expect("a root");
            assert!(eventually(PATIENCE, || age(&root) > 3.5));
            never_started(job);
            fs::write(env.home().join("live").join(&job.id), "").expect("a lock");
        }),
    ];
    for setting in open_settings() {
        for (harm, strike) in &harms {
            for verb in ["stop", "sweep"] {
                let what = format!("{harm}, {verb}, {setting}");
                let env = TestEnv::enclosed(setting);
                let job = with_tree(&env, setting);
                job.lose();
                strike(&env, &job);
                let words: &[&str] = if verb == "stop" { &[&job.id] } else { &[] };
                let done = env.quell(verb).args(words).finish();
                is_told(&env, &job, done.code(), &what);
                if setting.contain == Contain::Cgroup {
                    assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{what}: {}", done.stdout);
                }
                let rm = env.quell("rm").args([&job.id]).finish();
                assert_eq!((rm.code(), job.dir().exists()), (Some(0), false), "{what}: {}", rm.stderr);
                env.oracle.end_survivors();
            }
        }
    }
}

#[test]
fn a_tree_of_which_only_its_cgroup_is_left_is_stopped() {
    let test = "a_tree_of_which_only_its_cgroup_is_left_is_stopped";
    for setting in open_settings().filter(|setting| setting.contain == Contain::Cgroup) {
        for words in [&["stop", "ID"][..], &["stop", "--all"], &["sweep"]] {
            let what = format!("{words:?}, {setting}");
            let env = TestEnv::enclosed(setting);
            let job = with_tree(&env, setting);
            if job.record().is_none_or(|record| record["tree"]["containment"] != "cgroup") {
                return skip(test, "the job is not in a cgroup of quell's");
            }
            job.lose();
            fs::remove_dir_all(job.dir()).expect("a directory");
            fs::remove_file(env.home().join("live").join(&job.id)).expect("a lock");
            let dry = env.quell("sweep").args(["--dry-run", "--json"]).finish();
            let swept = dry.envelope()["data"]["jobs"].clone();
            assert_eq!((&swept[0]["id"], &swept[0]["action"]), (&json!(job.id), &json!("stop")), "{what}");
            assert!(!env.oracle.survivors().is_empty() && !job.dir().exists(), "{what}: a dry run did it");
            let args = words[1..].iter().map(|word| if *word == "ID" { job.id.as_str() } else { word });
            let done = env.quell(words[0]).args(args).finish();
            assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{what}: {}{}", done.stdout, done.stderr);
            is_told(&env, &job, done.code(), &what);
            let rm = env.quell("rm").args([&job.id]).finish();
            assert_eq!((rm.code(), job.dir().exists()), (Some(0), false), "{what}: {}", rm.stderr);
            assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new(), "{what}");
        }
    }
}

/// Each quell that looks for such cgroups, in any home, has them open for a moment.
#[test]
fn a_quell_that_looks_at_the_cgroup_of_a_lost_job_does_not_hide_it() {
    let test = "a_quell_that_looks_at_the_cgroup_of_a_lost_job_does_not_hide_it";
    let setting = Setting { user: TestEnv::as_me().user(), contain: Contain::Cgroup };
    if let Err(why) = setting.contain.available(setting.user) {
        return skip(test, &why);
    }
    let env = TestEnv::enclosed(setting);
    let job = with_tree(&env, setting);
    let cgroup = job.record().and_then(|record| Some(record["tree"]["cgroup"].as_str()?.to_owned()));
    let Some(cgroup) = cgroup else { return skip(test, "the job is not in a cgroup of quell's") };
    let other = TestEnv::as_me();
    let waited_for = other.start().command(["sleep", &other.oracle.nap()]).begin();
    let script = "exec 9<$0; exec \"$@\"";
    let look = other.quell("wait").args([&waited_for.id]).wrapped(["bash", "-c", script, &cgroup]).start();
    let looks = || {
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut quells = pids.filter(|dir| {
            fs::read_to_string(dir.path().join("comm")).is_ok_and(|comm| comm.trim() == "quell")
        });
        quells.any(|dir| fs::read_link(dir.path().join("fd/9")).is_ok_and(|file| file == Path::new(&cgroup)))
    };
    assert!(eventually(PATIENCE, looks), "no quell has it open");
    job.lose();
    fs::remove_dir_all(job.dir()).expect("a directory");
    fs::remove_file(env.home().join("live").join(&job.id)).expect("a lock");
    let stop = job.stop(&[]);
    assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{}{}", stop.stdout, stop.stderr);
    assert_eq!(waited_for.stop(&["--now"]).code(), Some(0));
    look.finish();
}

#[test]
fn the_cgroup_of_a_job_of_another_home_is_left_alone() {
    for setting in open_settings().filter(|setting| setting.contain == Contain::Cgroup) {
        for lost in [false, true] {
            let env = TestEnv::enclosed(setting);
            let job = with_tree(&env, setting);
            if lost {
                job.lose();
            }
            let before = env.oracle.survivors();
            let elsewhere = env.path("another home").display().to_string();
            for words in [&["stop", &job.id][..], &["stop", "--all"], &["sweep"]] {
                let done = env.quell(words[0]).args(&words[1..]).env("QUELL_HOME", &elsewhere).finish();
                let what = format!("{words:?}, lost: {lost}, {setting}: {}{}", done.stdout, done.stderr);
                assert!(before.iter().all(Process::is_alive), "{what}");
                assert_eq!(
                    done.code(),
                    Some(if words.len() > 1 && words[1] == job.id { 3 } else { 0 }),
                    "{what}"
                );
            }
            let done = job.stop(&["--now"]);
            assert!(matches!(done.code(), Some(0 | 5)), "{setting}: {}", done.stderr);
        }
    }
}
