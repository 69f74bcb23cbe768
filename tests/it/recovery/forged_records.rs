//! After both keepers were killed, a job of the same user can rewrite all that quell has on disk, pose as a keeper, or leave
//! a process where a command can't see it. None of that makes a living tree "gone", nor gets a stranger killed.

use std::{
    fs,
    process::{Command, Stdio},
};

use quell_tests::{
    eventually,
    evidence::{cause, verdict},
    host::{Contain, User},
    jobs::Background,
    last_json,
    oracle::Process,
    outsider::{Outsider, age},
    run::PATIENCE,
    skip,
    test_env::TestEnv,
};
use serde_json::{Value, json};

fn identity(process: &Process) -> Value {
    json!({ "pid": process.pid, "start": process.start })
}

/// Replaces the last line of `state.jsonl`.
fn forge(job: &Background<'_>, change: impl FnOnce(&mut Value)) {
    let path = job.dir().join("state.jsonl");
    let mut state = last_json(&fs::read(&path).expect("a state")).expect("JSON");
    change(&mut state);
    fs::write(&path, format!("{state}\n")).expect("a forged state");
}

/// Gives `job` the state and the receipt of a job that has ended, with the id replaced.
fn pose_as_ended(env: &TestEnv, job: &Background<'_>) {
    let other = env.start().command(["true"]).begin();
    assert!(other.wait_over(PATIENCE) && eventually(PATIENCE, || other.receipt().is_some()));
    for name in ["state.jsonl", "receipt.json"] {
        let text = fs::read_to_string(other.dir().join(name)).expect(name);
        fs::write(job.dir().join(name), text.replace(&other.id, &job.id)).expect(name);
    }
    // Not another's end, which `stop` and `list` would tell of as well.
    assert_eq!(env.quell("rm").args([&other.id]).finish().code(), Some(0));
}

/// A job held by the reaper, with a process that has left its environment, its session and its parent.
fn with_escaped(env: &TestEnv) -> (Background<'_>, Process) {
    let script = "(setsid env -i sleep ${N}5 <&- >&- 2>&- &)
        until pgrep -f \"^sleep ${N}5\" >/dev/null; do :; done; echo ready >$QUELL_TEST_READY; sleep $N";
    let job = env.start().args(["--contain", "reaper"]).script(script).begin();
    let name = format!("sleep {}5", env.oracle.nap());
    let escaped = env.oracle.survivors().into_iter().find(|found| found.command == name);
    (job, escaped.expect("an escaped process"))
}

#[test]
fn the_record_of_an_ended_job_does_not_end_another_one() {
    for user in User::all() {
        for verb in ["stop", "sweep", "list", "status"] {
            let env = TestEnv::in_own_cgroup(user);
            let (job, escaped) = with_escaped(&env);
            job.lose();
            pose_as_ended(&env, &job);
            let args: &[&str] = if ["stop", "status"].contains(&verb) { &[&job.id] } else { &[] };
            let done = env.quell(verb).args(args).finish();
            assert_eq!(done.code(), Some(5), "{verb}, {user:?}: {}{}", done.stdout, done.stderr);
            assert_ne!(verdict(&job.receipt().expect("a receipt")), "gone", "{verb}, {user:?}");
            escaped.signal("KILL");
        }
    }
}

#[test]
fn a_job_whose_keeper_lives_has_not_ended_whatever_its_record_says() {
    for user in User::all() {
        for lock in ["in its place", "deleted", "among those of ended jobs"] {
            let env = TestEnv::in_own_cgroup(user);
            let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
            let root = job.process("root").expect("a root");
            let live = env.home().join("live").join(&job.id);
            let forge = || {
                pose_as_ended(&env, &job);
                match lock {
                    "deleted" => fs::remove_file(&live).expect("a lock"),
                    "among those of ended jobs" => {
                        fs::rename(&live, env.home().join("done").join(&job.id)).expect("a lock");
                    }
                    _ => {}
                }
            };
            let quell = |verb: &str, args: &[&str]| {
                forge();
                let done = env.quell(verb).args(args).finish();
                (format!("{verb}, lock {lock}, {user:?}: {}{}", done.stdout, done.stderr), done)
            };
            let (what, status) = quell("status", &[&job.id, "--json"]);
            assert_eq!(status.envelope()["data"]["job"]["state"], "running", "{what}");
            let (what, list) = quell("list", &["--json"]);
            let jobs = list.envelope()["data"]["jobs"].clone();
            assert_eq!(
                (&jobs[0]["state"], jobs.as_array().map(Vec::len)),
                (&json!("running"), Some(1)),
                "{what}"
            );
            let (what, wait) = quell("wait", &[&job.id, "--timeout", "300ms"]);
            assert_eq!(wait.code(), Some(6), "{what}");
            let (what, rm) = quell("rm", &[&job.id]);
            assert!(rm.code() != Some(0) && job.dir().exists(), "{what}");
            let (what, stop) = quell("stop", &[&job.id]);
            assert_eq!(stop.code(), Some(0), "{what}");
            assert!(!root.is_alive(), "{what}");
            assert_eq!(cause(&job.receipt().expect("a receipt")), "user", "{what}");
        }
    }
}

#[test]
fn a_tree_whose_record_says_that_it_has_ended_is_stopped_by_its_cgroup() {
    for user in User::all() {
        if let Err(why) = Contain::Cgroup.available(user) {
            skip("a_tree_whose_record_says_that_it_has_ended_is_stopped_by_its_cgroup", &why);
            continue;
        }
        for verb in ["stop", "sweep"] {
            let env = TestEnv::in_own_cgroup(user);
            let job = env.start().args(["--contain", "cgroup"]).command(["sleep", &env.oracle.nap()]).begin();
            job.lose();
            pose_as_ended(&env, &job);
            fs::remove_file(env.home().join("live").join(&job.id)).expect("a lock");
            let args: &[&str] = if verb == "stop" { &[&job.id] } else { &[] };
            let done = env.quell(verb).args(args).finish();
            assert!(matches!(done.code(), Some(0 | 5)), "{verb}, {user:?}: {}{}", done.stdout, done.stderr);
            assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{verb}, {user:?}: {}", done.stdout);
        }
    }
}

#[test]
fn a_parent_that_the_record_names_as_the_standby_is_not_killed() {
    // A keeper's name and the lock delay a stop by its whole time, so one user has to do.
    let user = TestEnv::as_me().user();
    for mode in ["start", "run"] {
        let env = TestEnv::in_own_cgroup(user);
        let quell = env.start().args(["--contain", "reaper", "--grace", "0s"]);
        let job = quell.command(["sleep", &env.oracle.nap()]).begin();
        let root = job.process("root").expect("a root");
        job.lose();
        // A child that has a keeper's name and the job's lock.
        let script = &format!(
            "cd {}; ln -sf $(command -v sleep) quell-keeper;
            (exec 9<{}/live/{}; flock -s 9; exec ./quell-keeper ${{N}}7) & sleep $N; :",
            env.dir().display(),
            env.home().display(),
            job.id
        );
        let stranger = Outsider::script(&env, script);
        let (impostor, parent) = (stranger.find("./quell-keeper"), stranger.find("bash -c"));
        forge(&job, |state| {
            state["keeper"] = identity(&impostor);
            state["standby"] = identity(&parent);
        });
        let spec = fs::read_to_string(job.dir().join("spec.json")).expect("a specification");
        let mut spec: Value = serde_json::from_str(&spec).expect("JSON");
        if mode == "run" {
            spec["request"]["mode"] = json!({ "foreground": {} });
        }
        fs::write(job.dir().join("spec.json"), spec.to_string()).expect("a forged specification");
        let done = job.stop(&["--now"]);
        assert!(parent.is_alive(), "{mode}, {user:?}: {}{}", done.stdout, done.stderr);
        assert!(
            eventually(PATIENCE, || !root.is_alive()),
            "{mode}, {user:?}: {}{}",
            done.stdout,
            done.stderr
        );
    }
}

#[test]
fn an_older_session_leader_that_the_record_names_as_the_root_is_not_killed() {
    for user in User::all() {
        let env = TestEnv::in_own_cgroup(user);
        let stranger = Outsider::script(&env, "exec sleep $N");
        let older = stranger.find("sleep");
        // A few clock ticks: an id tells no less.
        assert!(eventually(PATIENCE, || age(&older) > 0.05));
        let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
        job.lose();
        forge(&job, |state| state["tree"]["root"] = identity(&older));
        let done = job.stop(&["--now"]);
        assert!(older.is_alive(), "{user:?}: {}{}", done.stdout, done.stderr);
    }
}

#[test]
fn a_run_that_left_its_job_is_not_called_gone() {
    for user in User::all() {
        let env = TestEnv::in_own_cgroup(user);
        let script = format!(
            "(setsid env -i PATH=$PATH {} run --no-record -- sleep ${{N}}5 <&- >&- 2>&- &)
             until pgrep -f \"^sleep ${{N}}5\" >/dev/null; do :; done; echo ready >$QUELL_TEST_READY; sleep $N",
            env.quell_path().display()
        );
        let job = env.start().args(["--contain", "reaper"]).script(&script).begin();
        job.lose();
        let name = format!("sleep {}5", env.oracle.nap());
        let inner = || env.oracle.survivors().into_iter().find(|found| found.command == name);
        assert!(inner().is_some(), "{user:?}: no run below the job");
        let done = job.stop(&["--now"]);
        let receipt = job.receipt().expect("a receipt");
        assert_eq!((done.code(), verdict(&receipt)), (Some(5), "unproven"), "{user:?}: {receipt:#}");
    }
}

#[test]
fn a_command_in_another_pid_namespace_does_not_call_a_lost_job_gone() {
    for user in User::all() {
        let env = TestEnv::in_own_cgroup(user);
        let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
        job.lose();
        let user_namespace: &[&str] = if user == User::Root { &[] } else { &["--user", "--map-root-user"] };
        let inside = |words: &[&str]| {
            // Behind the words that make this process the user's.
            let mut all = env.prefix();
            all.extend(["unshare", "--fork", "--pid", "--mount-proc"].map(String::from));
            all.extend(user_namespace.iter().map(|word| word.to_string()));
            let mut command = Command::new(&all[0]);
            command.args(&all[1..]).arg(env.quell_path()).args(words);
            command.env("QUELL_HOME", env.home()).current_dir(env.dir()).stdin(Stdio::null());
            command.output().expect("unshare")
        };
        let probe = inside(&["--version"]);
        if !probe.status.success() {
            skip(
                "a_command_in_another_pid_namespace_does_not_call_a_lost_job_gone",
                String::from_utf8_lossy(&probe.stderr).trim(),
            );
            continue;
        }
        for words in [&["sweep"][..], &["list"], &["stop", &job.id]] {
            let done = inside(words);
            let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
            assert_eq!(done.status.code(), Some(5), "{words:?}, {user:?}: {said}");
            assert!(said.contains("another PID namespace"), "{words:?}, {user:?}: {said}");
            assert!(!job.is_over(), "{words:?}, {user:?}: {said}");
        }
        let done = job.stop(&["--now"]);
        assert!(matches!(done.code(), Some(0 | 5)), "{user:?}: {}{}", done.stdout, done.stderr);
        assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{user:?}: {}{}", done.stdout, done.stderr);
    }
}

#[test]
fn a_lost_job_without_its_specification_is_told_of_alike_by_all_verbs() {
    let env = TestEnv::as_me();
    for first in ["list", "status", "wait", "sweep", "stop"] {
        let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
        job.lose();
        for name in ["spec.json", "launch.private.json"] {
            fs::remove_file(job.dir().join(name)).expect(name);
        }
        let ask = |verb: &str| {
            let args: &[&str] = if ["list", "sweep"].contains(&verb) { &[] } else { &[&job.id] };
            env.quell(verb).args(args).finish()
        };
        let done = ask(first);
        assert_eq!(
            env.oracle.survivors_after(PATIENCE),
            [],
            "{first} was first: {}{}",
            done.stdout,
            done.stderr
        );
        assert_eq!((job.state().as_str(), job.is_over()), ("ended", true), "{first} was first");
        // Whether its end is proven depends on what else runs here; all of them say the same.
        let proven = verdict(&job.receipt().expect("a receipt")) == "gone";
        for (verb, code) in [("list", 0), ("status", 1), ("wait", 1), ("stop", 0), ("sweep", 0)] {
            let done = ask(verb);
            let told = format!("{first} was first, then {verb}: {}{}", done.stdout, done.stderr);
            assert_eq!(done.code(), Some(if proven { code } else { 5 }), "{told}");
            assert!(!done.stderr.contains("spec.json"), "{told}");
        }
        assert_eq!(ask("rm").code(), Some(0), "{first} was first");
    }
}

#[test]
fn all_verbs_say_that_a_job_is_not_proven_dead_whatever_id_or_boot_its_record_names() {
    let other_boot = "00000000-0000-0000-0000-000000000000";
    for forged in ["boot_id", "id"] {
        for first in ["stop", "status", "list", "sweep"] {
            let env = TestEnv::in_own_cgroup(TestEnv::as_me().user());
            let (job, escaped) = with_escaped(&env);
            job.lose();
            for name in ["spec.json", "launch.private.json", "state.jsonl"] {
                let path = job.dir().join(name);
                let text = fs::read_to_string(&path).expect(name);
                let text = match forged {
                    "id" => text.replace(&job.id, "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
                    _ => {
                        let own = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id");
                        text.replace(own.trim(), other_boot)
                    }
                };
                fs::write(path, text).expect(name);
            }
            for verb in [first, "stop", "status", "list", "sweep"] {
                let args: &[&str] = if ["stop", "status"].contains(&verb) { &[&job.id] } else { &[] };
                let done = env.quell(verb).args(args).finish();
                let what = format!("{forged}, {first}, then {verb}: {}{}", done.stdout, done.stderr);
                assert_eq!(done.code(), Some(5), "{what}");
                let is_listed = done.stdout.contains(&job.id[..8]);
                assert!(is_listed || !["list", "sweep"].contains(&verb), "{what}");
            }
            assert!(escaped.is_alive(), "{forged}, {first}: the escaped process is dead");
            escaped.signal("KILL");
        }
    }
}
