//! Traps among quell's files: links, fifos, devices, files without an end, strangers' directories. Nothing waits for them,
//! nothing is written or removed through them, and the memory stays small.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::Path,
    process::Command,
};

use quell_tests::{
    host::{NOBODY, User, am_root},
    jobs::Background,
    run::PATIENCE,
    skip,
    test_env::{TestEnv, copy_program},
};

/// What keeps a quell from taking more than a part of the memory.
const SMALL: [&str; 2] = ["prlimit", "--as=1500000000"];

/// What can be laid where a file should be.
const TRAPS: [&str; 6] = ["link", "device", "fifo", "directory", "endless", "dangling"];

fn lay(trap: &str, at: &Path, victim: &Path) {
    let _ = fs::remove_file(at);
    match trap {
        "link" => symlink(victim, at).expect("a link"),
        "device" => symlink("/dev/zero", at).expect("a link"),
        "dangling" => symlink(victim.with_extension("new"), at).expect("a link"),
        "directory" => fs::create_dir(at).expect("a directory"),
        "fifo" => assert!(Command::new("mkfifo").arg(at).status().expect("mkfifo").success()),
        _ => {
            let file = fs::File::create(at).expect("a file");
            file.set_len(10 << 30).expect("a file with ten gigabytes of nothing");
        }
    }
}

fn ended(env: &TestEnv) -> Background<'_> {
    let job = env.start().command(["echo", "said"]).begin();
    assert!(job.wait_over(PATIENCE));
    job
}

/// Every command that reads, in little memory and in time; none may be killed by a signal.
fn look_at_all(env: &TestEnv, job: &Background<'_>, what: &str) {
    for words in [
        vec!["list", "--all", "--json"],
        vec!["status", &job.id],
        vec!["logs", &job.id],
        vec!["events", &job.id],
        vec!["stop", &job.id],
        vec!["sweep"],
        vec!["gc", "--dry-run"],
    ] {
        let quell = env.quell(words[0]).args(&words[1..]).wrapped(SMALL);
        // `finish` gives up after a time, which is a failure.
        let done = quell.finish();
        let harmless = if words[0] == "list" { done.code() == Some(0) } else { done.code().is_some() };
        assert!(harmless, "{what}: {words:?}: {done:?}");
    }
}

#[test]
fn a_trap_in_place_of_a_record_is_neither_waited_for_nor_followed() {
    for name in [
        "state.jsonl",
        "receipt.json",
        "spec.json",
        "events.jsonl",
        "stdout.log",
        "stdout.idx",
        "control.sock",
    ] {
        for trap in TRAPS {
            let env = TestEnv::as_me();
            let victim = env.write("victim", "precious");
            let job = ended(&env);
            lay(trap, &job.dir().join(name), &victim);
            look_at_all(&env, &job, &format!("{trap} for {name}"));
            let removed = env.quell("rm").args(["--force", &job.id]).wrapped(SMALL).finish();
            assert_eq!(removed.code(), Some(0), "{trap} for {name}: {}", removed.stderr);
            assert!(!job.dir().exists(), "{trap} for {name}");
            assert_eq!(fs::read_to_string(&victim).expect("the victim"), "precious", "{trap} for {name}");
            assert!(!victim.with_extension("new").exists(), "{trap} for {name}: written through a link");
        }
    }
}

#[test]
fn a_lost_job_is_not_saved_by_a_trap_in_place_of_its_state() {
    for trap in TRAPS.into_iter().filter(|trap| *trap != "directory") {
        let env = TestEnv::as_me();
        let victim = env.write("victim", "precious");
        let nap = env.oracle.nap();
        let job = env.start().args(["--contain", "reaper"]).command(["sleep", &nap]).begin();
        job.lose();
        assert!(!env.oracle.survivors().is_empty(), "{trap}: no process is left to be swept");
        lay(trap, &job.dir().join("state.jsonl"), &victim);
        let done = env.quell("sweep").wrapped(SMALL).finish();
        assert_eq!(env.oracle.survivors(), vec![], "{trap}: {}{}", done.stdout, done.stderr);
        assert!(job.is_over(), "{trap}: {}{}", done.stdout, done.stderr);
        assert_eq!(fs::read_to_string(&victim).expect("the victim"), "precious", "{trap}");
    }
}

#[test]
fn a_trap_in_place_of_a_lock_or_the_index_stops_no_other_job() {
    for name in ["live", "index.db", "index.lock", "index.gate", "last-gc", "names/.lock"] {
        for trap in TRAPS.into_iter().filter(|trap| *trap != "endless") {
            let env = TestEnv::as_me();
            let victim = env.write("victim", "precious");
            let job = ended(&env);
            let place = match name {
                "live" => env.home().join("live").join(&job.id),
                other => env.home().join(other),
            };
            fs::create_dir_all(env.home().join("names")).expect("a directory");
            lay(trap, &place, &victim);
            look_at_all(&env, &job, &format!("{trap} for {name}"));
            let other = env.start().wrapped(SMALL).command(["true"]).finish();
            assert_eq!(other.code(), Some(0), "{trap} for {name}: {}", other.stderr);
            assert_eq!(fs::read_to_string(&victim).expect("the victim"), "precious", "{trap} for {name}");
            assert!(!victim.with_extension("new").exists(), "{trap} for {name}: written through a link");
        }
    }
}

/// Files that quell writes when a job ends.
const FILES_OF_AN_END: [&str; 9] = [
    "jobs/ID/state.new",
    "jobs/ID/receipt.new",
    "jobs/ID/receipt.json",
    "jobs/ID/events.jsonl",
    "jobs/ID/spec.json",
    "jobs/ID/reserve",
    "jobs/ID/control.sock",
    "done/ID",
    "live/.ID",
];

#[test]
fn a_job_that_lays_traps_for_its_own_end_comes_to_it() {
    for trap in TRAPS {
        for how in ["kept", "lost"] {
            let env = TestEnv::as_me();
            let victim = env.write("victim", "precious");
            let job = env.start().args(["--grace", "100ms"]).command(["sleep", &env.oracle.nap()]).begin();
            if how == "lost" {
                job.lose();
            }
            // Ten gigabytes of nothing can't be told from a specification that was damaged.
            let files = FILES_OF_AN_END.iter().filter(|name| trap != "endless" || !name.contains("spec"));
            for name in files {
                lay(trap, &env.home().join(name.replace("ID", &job.id)), &victim);
            }
            let done = job.stop(&[]);
            let what = format!("{trap}, {how}: {}{}", done.stdout, done.stderr);
            assert!(done.code() == Some(0) || how == "lost" && done.code() == Some(5), "{what}");
            assert!(env.oracle.survivors_after(PATIENCE).is_empty(), "a process lives: {what}");
            assert!(job.is_over() && job.receipt().is_some(), "{what}");
            let status = env.quell("status").args(["--json", &job.id]).finish();
            assert_eq!(status.envelope()["data"]["job"]["state"], "ended", "{what}: {status:?}");
            let list = env.quell("list").args(["--json"]).finish();
            assert_eq!(list.envelope()["data"]["jobs"][0]["id"], job.id.as_str(), "{what}: {list:?}");
            assert_eq!(fs::read_to_string(&victim).expect("the victim"), "precious", "{what}");
            assert!(!victim.with_extension("new").exists(), "written through a link: {what}");
            let removed = env.quell("rm").args([&job.id]).finish();
            assert!(removed.code() == Some(0) && !job.dir().exists(), "{what}: {}", removed.stderr);
        }
    }
}

#[test]
fn all_verbs_know_a_live_job_with_a_trap_in_place_of_a_record() {
    for name in ["spec.json", "state.jsonl"] {
        for trap in TRAPS.into_iter().chain(["deleted", "garbage", "empty"]) {
            let env = TestEnv::as_me();
            let victim = env.write("victim", "precious");
            let job = env.start().args(["--name", "it"]).command(["sleep", &env.oracle.nap()]).begin();
            let file = job.dir().join(name);
            let after = |words: &[&str]| {
                match trap {
                    "deleted" => drop(fs::remove_file(&file)),
                    "garbage" => fs::write(&file, "{").expect("damage"),
                    "empty" => fs::write(&file, "").expect("damage"),
                    trap => lay(trap, &file, &victim),
                }
                let done = env.quell(words[0]).args(&words[1..]).finish();
                let what = format!("{trap} for {name}, {words:?}: {}{}", done.stdout, done.stderr);
                assert_eq!(fs::read_to_string(&victim).expect("the victim"), "precious", "{what}");
                (done, what)
            };
            for text in [&job.id, "it"] {
                let (status, what) = after(&["status", "--json", text]);
                assert_eq!(status.envelope()["data"]["job"]["state"], "running", "{what}");
            }
            let (list, what) = after(&["list", "--json"]);
            let jobs = &list.envelope()["data"]["jobs"];
            assert_eq!((list.code(), &jobs[0]["state"]), (Some(0), &"running".into()), "{what}");
            assert_eq!(jobs[0]["name"], "it", "{what}");
            let (stop, what) = after(&["stop", &job.id]);
            assert_eq!(stop.code(), Some(0), "{what}");
            // A specification that was damaged just before the stop is not made again.
            if name == "state.jsonl" || !["garbage", "empty", "endless"].contains(&trap) {
                let list = env.quell("list").args(["--json"]).finish();
                let found = &list.envelope()["data"]["jobs"][0];
                assert_eq!(
                    (&found["state"], &found["name"]),
                    (&"ended".into(), &"it".into()),
                    "{what}: {list:?}"
                );
                let status = env.quell("status").args(["--json", "it"]).finish();
                assert_eq!(status.envelope()["data"]["job"]["state"], "ended", "{what}: {status:?}");
            }
        }
    }
}

#[test]
fn what_is_removed_is_the_jobs_own_and_never_behind_a_link() {
    let env = TestEnv::as_me();
    let outside = env.path("outside");
    fs::create_dir(&outside).and_then(|()| fs::write(outside.join("file"), "precious")).expect("a directory");
    let is_whole = || fs::read_to_string(outside.join("file")).is_ok_and(|text| text == "precious");
    for verb in ["rm", "gc"] {
        let remove = |job: &Background<'_>| match verb {
            "rm" => env.quell("rm").args(["--force", &job.id]).finish(),
            _ => env.quell("gc").args(["--max-count", "0"]).finish(),
        };
        let job = ended(&env);
        symlink(&outside, job.dir().join("link")).expect("a link");
        fs::create_dir(job.dir().join("deep")).expect("a directory");
        symlink(&outside, job.dir().join("deep/link")).expect("a link");
        let done = remove(&job);
        assert!(is_whole() && !job.dir().exists(), "{verb}: {}", done.stderr);
        // The directory itself is a link.
        let job = ended(&env);
        fs::remove_dir_all(job.dir()).and_then(|()| symlink(&outside, job.dir())).expect("a link");
        let done = remove(&job);
        assert!(is_whole(), "{verb}: {}", done.stderr);
        let _ = fs::remove_file(job.dir());
    }
}

/// The words that every command of this home answers with, and that none of them succeeds.
fn is_refused(env: &TestEnv, why: &str) {
    for words in [vec!["list"], vec!["sweep"], vec!["gc"], vec!["stop", "x"], vec!["start", "--", "true"]] {
        let done = env.quell(words[0]).args(&words[1..]).finish();
        assert!(!matches!(done.code(), Some(0)), "{words:?}: {}", done.stdout);
        assert!(done.stderr.contains(why), "{words:?}: {}", done.stderr);
    }
    let done = env.run().command(["true"]).finish();
    assert_eq!(done.code(), Some(125), "{}", done.stderr);
    assert!(done.stderr.contains(why), "{}", done.stderr);
}

#[test]
fn a_home_that_others_can_write_is_refused() {
    for user in User::all() {
        let env = TestEnv::new(user);
        assert_eq!(env.run().command(["true"]).finish().code(), Some(0));
        for mode in [0o777, 0o1777, 0o770, 0o702] {
            fs::set_permissions(env.home(), fs::Permissions::from_mode(mode)).expect("chmod");
            is_refused(&env, "others can write there");
        }
        fs::set_permissions(env.home(), fs::Permissions::from_mode(0o755)).expect("chmod");
        assert_eq!(env.quell("list").finish().code(), Some(0));
    }
}

#[test]
fn a_shared_directory_or_a_file_is_no_home_and_the_hint_says_what_to_set() {
    let env = TestEnv::as_me();
    let shared = env.path("shared");
    fs::create_dir_all(shared.join("of-another")).expect("mkdir");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).expect("chmod");
    let file = env.write("file", "");
    for home in [shared.as_os_str(), file.as_ref()] {
        for words in
            [&["list"][..], &["status", "x"], &["stop", "x"], &["logs", "x"], &["start", "--", "true"]]
        {
            let done = env.quell(words[0]).env("QUELL_HOME", home).args(&words[1..]).finish();
            assert_eq!(done.code(), Some(125), "{words:?}: {}{}", done.stdout, done.stderr);
            assert!(done.stderr.contains("set QUELL_HOME"), "{words:?}: {}", done.stderr);
            assert!(!done.stderr.contains("chmod"), "{words:?}: {}", done.stderr);
        }
    }
    assert_eq!(fs::metadata(&shared).expect("the directory").permissions().mode() & 0o7777, 0o1777);
}

#[test]
fn an_empty_home_that_others_can_write_is_closed_to_them() {
    let env = TestEnv::as_me();
    fs::create_dir(env.home()).expect("a home");
    fs::set_permissions(env.home(), fs::Permissions::from_mode(0o1777)).expect("chmod");
    assert_eq!(env.quell("list").finish().code(), Some(0));
    ended(&env);
    assert_eq!(fs::metadata(env.home()).expect("a home").permissions().mode() & 0o7777, 0o700);
}

#[test]
fn a_home_of_another_users_or_behind_another_users_link_is_refused() {
    let name = "a_home_of_another_users_or_behind_another_users_link_is_refused";
    if !am_root() {
        return skip(name, "needs root to be two users");
    }
    for (user, other) in [(User::Root, NOBODY), (User::Ordinary, 0)] {
        let env = TestEnv::new(user);
        fs::create_dir(env.home()).expect("a home");
        chown(env.home(), Some(other), Some(other)).expect("chown");
        is_refused(&env, &format!("belongs to another user (uid {other})"));
        fs::remove_dir(env.home()).expect("rmdir");
    }
    // Nor is one made in a stranger's directory, as by `sudo -E`.
    let env = TestEnv::new(User::Root);
    chown(env.dir(), Some(NOBODY), Some(NOBODY)).expect("chown");
    is_refused(&env, "belongs to another user (uid 65534)");
    assert!(!env.home().exists());
    let env = TestEnv::new(User::Root);
    let own = env.path("own");
    fs::create_dir(&own).and_then(|()| symlink(&own, env.home())).expect("a link");
    assert_eq!(env.run().command(["true"]).finish().code(), Some(0), "a link of one's own");
    std::os::unix::fs::lchown(env.home(), Some(NOBODY), Some(NOBODY)).expect("lchown");
    is_refused(&env, "belongs to another user (uid 65534)");
}

#[test]
fn a_quell_with_more_rights_than_its_caller_refuses_to_run() {
    let name = "a_quell_with_more_rights_than_its_caller_refuses_to_run";
    if !am_root() {
        return skip(name, "needs root to make a set-user-id program");
    }
    let env = TestEnv::new(User::Ordinary);
    let raised = |program: &Path, mode: u32| {
        let copy = env.fresh("raised");
        copy_program(program, &copy);
        chown(&copy, Some(0), Some(0)).expect("chown");
        fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).expect("chmod");
        copy
    };
    let prefix = User::Ordinary.prefix();
    let call = |program: &Path, words: &[&str]| {
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).arg(program).args(words).env("QUELL_HOME", env.home());
        command.output().expect("setpriv")
    };
    let id = raised(Path::new("/usr/bin/id"), 0o4755);
    if call(&id, &["-u"]).stdout != b"0\n" {
        return skip(name, "the temporary directory is mounted without set-user-id programs");
    }
    for (mode, how) in [(0o4755, "set-user-id"), (0o2755, "set-group-id")] {
        let quell = raised(&env.quell_path(), mode);
        for words in [vec!["run", "--", "touch", "done"], vec!["list"], vec!["doctor"], vec!["--help"]] {
            let out = call(&quell, &words);
            assert_eq!(out.status.code(), Some(125), "{words:?}: {out:?}");
            assert!(String::from_utf8_lossy(&out.stderr).contains(how), "{words:?}: {out:?}");
        }
    }
    let out = call(&env.quell_path(), &["list"]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
}

#[test]
fn what_an_environment_file_holds_is_in_no_environment_of_quells_own() {
    let env = TestEnv::as_me();
    let secret = format!("kept-{}", env.oracle.token());
    let variables = env.write("variables", &format!("TOKEN={secret}\n"));
    let program = ["sh", "-c", "echo $TOKEN; exec sleep $0", &env.oracle.nap()];
    let job = env.start().args(["--env-file", variables.to_str().expect("a path")]).command(program).begin();
    assert!(quell_tests::eventually(PATIENCE, || job.output("stdout").contains(&secret)), "not given");
    for role in ["keeper", "standby"] {
        let process = job.process(role).expect("a kept job");
        for file in ["environ", "cmdline"] {
            let bytes = fs::read(format!("/proc/{}/{file}", process.pid)).expect("ours");
            assert!(!String::from_utf8_lossy(&bytes).contains(&secret), "{role}: {file}");
        }
    }
}
