//! What is bounded: memory for long lines, a file system without inodes, a small stack, a budget.

use std::{
    fs::{self, File},
    process::Command,
};

use quell_tests::{
    eventually,
    host::{User, am_root, has_program},
    run::{Finished, PATIENCE},
    skip,
    test_env::TestEnv,
};
use serde_json::Value;

/// The length of the long line.
const LONG: usize = 20_000_000;

/// Enough for any verb, and less than a few copies of the line.
const MEMORY: u64 = 40_000_000;

#[test]
fn a_line_of_any_length_is_shown_with_bounded_memory() {
    if !has_program("prlimit") {
        return skip("a_line_of_any_length_is_shown_with_bounded_memory", "there is no prlimit");
    }
    let env = TestEnv::as_me();
    let script = format!("echo first; head -c {LONG} /dev/zero | tr '\\0' x; echo; echo last");
    let job = env.start().args(["--max-log", "256M"]).sh(&script).begin();
    assert!(job.wait_over(PATIENCE));
    let limit = ["prlimit", &format!("--as={MEMORY}"), "--"];
    for (options, size) in [
        (&["--json", "--tail", "2"][..], LONG),
        (&["--json", "--grep", "x|last"], LONG),
        (&["--tail", "2"], LONG + 6),
        (&["--grep", "x"], LONG + 1),
        (&["--follow", "--tail", "2"], LONG + 6),
        (&["--follow", "--json", "--tail", "2"], LONG),
        (&["--json", "--tail", "2", "--budget", "1K"], 1),
    ] {
        let path = env.fresh("shown");
        let words = [job.id.as_str()].into_iter().chain(options.iter().copied());
        let quell = env.quell("logs").wrapped(limit).args(words).stdout(File::create(&path).expect("a file"));
        let done = quell.finish();
        assert_eq!(done.code(), Some(0), "{options:?}: {}", done.stderr);
        let bytes = fs::read(&path).expect("what was shown");
        let shown = bytes.iter().filter(|byte| **byte == b'x').count();
        if !options.contains(&"--budget") {
            // The field `text` has an x too.
            assert!((LONG..LONG + 10_000).contains(&shown), "{options:?}: {shown} of {LONG}");
        }
        if !options.contains(&"--json") && !options.contains(&"--budget") {
            assert_eq!(bytes.len(), size, "{options:?}");
        }
        if options.contains(&"--json") && !options.contains(&"--follow") {
            let answer: Value = serde_json::from_slice(&bytes).expect("JSON");
            let lines = answer["data"]["lines"].as_array().expect("lines");
            let text: usize = lines.iter().filter_map(|line| line["text"].as_str()).map(str::len).sum();
            assert!(text >= size, "{options:?}: {text}");
        }
        fs::remove_file(&path).expect("a file");
    }
}

#[test]
fn a_start_that_fails_for_lack_of_descriptors_leaves_no_trace() {
    let env = TestEnv::as_me();
    let entries = |name: &str| {
        let found = fs::read_dir(env.home().join(name)).into_iter().flatten().flatten();
        found.map(|entry| format!("{name}/{}", entry.file_name().display())).collect::<Vec<_>>()
    };
    let kinds = [&[][..], &["--name", "it"], &["--pty"], &["--ready-cmd", "true"], &["--stdin", "pipe"]];
    let mut failed = 0;
    for (limit, options) in (5..30).flat_map(|limit| kinds.map(|options| (limit, options))) {
        let limited = format!("ulimit -n {limit}; exec \"$@\"");
        let start = env.start().wrapped(["bash", "-c", &limited, "bash"]).args(options);
        let done = start.command(["sleep", &env.oracle.nap()]).finish();
        let what = format!("{limit} descriptors, {options:?}: {}{}", done.stdout, done.stderr);
        match done.code() {
            Some(0) => {
                assert_eq!(env.quell("stop").args(["--all", "--now"]).finish().code(), Some(0), "{what}")
            }
            Some(125) => {
                failed += 1;
                let left = || ["live", "jobs", "names"].map(entries).concat();
                let is_trace = |name: &String| !name.starts_with("names/.lock");
                let none = eventually(PATIENCE, || !left().iter().any(is_trace));
                assert!(none, "{what}: {:?}", left());
            }
            _ => panic!("{what}"),
        }
        let _ = fs::remove_dir_all(env.home());
    }
    assert!(failed > 20, "{failed}");
    assert_eq!(env.oracle.survivors_after(PATIENCE), vec![]);
}

#[test]
fn a_run_that_too_few_descriptors_could_keep_is_refused_and_leaves_no_trace() {
    let env = TestEnv::as_me();
    for limit in 8..20 {
        let limited = format!("ulimit -n {limit}; exec \"$@\"");
        let done = env.run().wrapped(["bash", "-c", &limited, "bash"]).command(["true"]).finish();
        assert_eq!(done.code(), Some(125), "{limit}: {}", done.stderr);
        assert!(done.stderr.contains("open files"), "{limit}: {}", done.stderr);
        assert_eq!((env.ids("jobs"), env.ids("live")), (vec![], vec![]), "{limit}");
    }
    // The hard limit counts; the program has the caller's own soft one, after a restart too.
    let limited = ["bash", "-c", "ulimit -Sn 16; exec \"$@\"", "bash"];
    let done = env.run().wrapped(limited).sh("ulimit -n").finish();
    assert_eq!((done.code(), done.stdout.as_str()), (Some(0), "16\n"), "{}", done.stderr);
    let limited = ["bash", "-c", "ulimit -Sn 64; exec \"$@\"", "bash"];
    let start = env.start().wrapped(limited).args(["--restart", "on-failure", "--restart-limit", "1"]);
    let job = start.env("QUELL_START_RESTART_DELAY", "5ms").sh("ulimit -n; exit 1").begin();
    assert!(job.wait_over(PATIENCE));
    assert_eq!(job.output("stdout"), "64\n64\n");
}

#[test]
fn a_job_with_few_descriptors_is_refused_or_accounted_truly() {
    let env = TestEnv::as_me();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do setsid sleep $N & done; echo up; wait";
    let mut kept = 0;
    for limit in [26, 28, 30, 48] {
        let limited = format!("ulimit -n {limit}; exec \"$@\"");
        let start = env.start().wrapped(["bash", "-c", &limited, "bash"]).env("N", env.oracle.nap());
        let done =
            start.args(["--contain", "reaper", "--ready-log", "up", "--wait-ready"]).sh(script).finish();
        if done.code() == Some(125) {
            assert!(done.stderr.contains("open files"), "{limit}: {}", done.stderr);
            continue;
        }
        kept += 1;
        let job = env.job(done.stdout.lines().last().unwrap_or_default());
        // Each has become `sleep`, which TERM ends.
        let asleep =
            || env.oracle.survivors().iter().filter(|process| process.command.starts_with("sleep")).count();
        assert!(eventually(PATIENCE, || asleep() == 20), "{limit}");
        assert_eq!(job.stop(&["--grace", "20s"]).code(), Some(0), "{limit}");
        let receipt = job.receipt().expect("a receipt");
        let members = receipt["members"].as_array().expect("members");
        let polite = |member: &&Value| member["fate"] == "exited_on_ask" || member["fate"] == "ended";
        assert_eq!((members.len(), members.iter().filter(polite).count()), (21, 21), "{limit}: {receipt:#}");
        assert_eq!(receipt["kill"], Value::Null, "{limit}");
    }
    assert!(kept > 0);
}

#[test]
fn a_keeper_that_can_not_fork_says_so() {
    let env = TestEnv::new(User::Ordinary);
    for limit in 1..6 {
        let mut words = env.prefix();
        words.extend(["prlimit".into(), format!("--nproc={limit}")]);
        let mut start = Command::new(&words[0]);
        start.args(&words[1..]).arg(env.quell_path()).args(["start", "--", "true"]);
        let done = start.env("QUELL_HOME", env.home()).current_dir(env.dir()).output().expect("prlimit");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success() || !said.contains("the keeper was lost"), "{limit}: {said}");
    }
}

/// A file system of its own with few inodes, in a mount namespace that ends with the script.
fn without_inodes(env: &TestEnv, script: &str) -> Option<String> {
    let place = env.path("small");
    fs::create_dir(&place).expect("a directory");
    let mount = format!(
        "mount -t tmpfs -o nr_inodes=120,mode=700 none {p} && cd {p} || exit 77",
        p = place.display()
    );
    let fill = "fill() { i=0; while : >f$i; do i=$((i+1)); done 2>/dev/null; }";
    let mut unshare = Command::new("unshare");
    unshare.args(if am_root() { &["-m"][..] } else { &["-Urm"] }).args(["bash", "-c"]);
    unshare.arg(format!("{mount}\n{fill}\n{script}"));
    unshare.env("QUELL_HOME", place.join("home")).env("Q", env.quell_path()).env("N", env.oracle.nap());
    unshare.env("T", env.oracle.token());
    let output = unshare.output().ok().filter(|output| output.status.code() != Some(77))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Some(said)
}

#[test]
fn an_end_without_a_free_inode_is_on_record() {
    let env = TestEnv::as_me();
    for (what, end) in [
        ("a stop", "fill; $Q stop --json $id >said || exit 1"),
        ("its own end", "fill; kill $(cat pid); $Q wait $id >/dev/null"),
        ("a lost job", "
            for role in standby keeper; do
                pids=\"$pids $($Q status --json $id | grep -o \"\\\"$role\\\":{\\\"pid\\\":[0-9]*\" | grep -o '[0-9]*$')\"
            done
            kill -STOP $pids; kill -KILL $pids
            while kill -0 $pids 2>/dev/null; do sleep 0.01; done
            fill; $Q stop --json $id >said"),
    ] {
        let script = format!(
            "id=$($Q start -- sh -c 'echo $$ >pid; exec sleep $N') || exit 78
             : >said; while [ ! -s pid ]; do sleep 0.01; done
             {end}
             ls home/live home/done
             $Q status --json $id; :"
        );
        let Some(said) = without_inodes(&env, &script) else {
            return skip("an_end_without_a_free_inode_is_on_record", "no file system can be mounted here");
        };
        let answer = said.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
        let job = answer.map(|answer| answer["data"]["job"].clone()).unwrap_or_default();
        assert_eq!(job["state"], "ended", "{what}: {said}");
        // After a loss the processes of other tests can't be told from the job's.
        let told = job["verdict"]["kind"] == "gone" || what == "a lost job" && job["verdict"]["kind"] == "unproven";
        assert!(told, "{what}: {said}");
        let id = job["id"].as_str().expect("an id");
        assert!(said.contains(&format!("home/done:\n{id}\n")), "{what}: it is not settled: {said}");
        fs::remove_dir(env.path("small")).expect("an empty directory");
    }
    assert!(env.oracle.survivors_after(PATIENCE).is_empty());
}

#[test]
fn a_stack_that_is_too_small_is_an_error() {
    let env = TestEnv::as_me();
    for verb in ["list", "run", "start", "doctor", "--help"] {
        let quell = env.quell(verb).wrapped(["sh", "-c", "ulimit -s 64; exec \"$@\"", "sh"]);
        let done = if ["run", "start"].contains(&verb) { quell.command(["true"]) } else { quell }.finish();
        assert_eq!(done.code(), Some(125), "{verb}: {:?} {}", done.signal(), done.stderr);
        assert!(
            done.stderr.contains("stack limit of 64 KiB") && done.stderr.contains("ulimit -s"),
            "{}",
            done.stderr
        );
        assert!(done.stdout.is_empty(), "{}", done.stdout);
    }
    let small = env.quell("list").args(["--json"]).wrapped(["sh", "-c", "ulimit -s 64; exec \"$@\"", "sh"]);
    let answer = small.finish().envelope();
    assert_eq!((&answer["ok"], &answer["type"]), (&Value::from(false), &Value::from("list")), "{answer}");
}

#[test]
fn a_budget_is_for_all_that_is_shown() {
    let env = TestEnv::as_me();
    let job = env.start().sh("seq 5000; echo short >&2").begin();
    assert!(job.wait_over(PATIENCE));
    for budget in [200, 250, 300, 500, 1000, 4096, 8000] {
        for options in [&[][..], &["--tail", "400"], &["--head", "50", "--tail", "50"], &["--grep", "1"]] {
            let words = [job.id.as_str(), "--budget", &budget.to_string()];
            let done = env.quell("logs").args(words).args(options).finish();
            let what = format!("{budget} {options:?}: {} bytes\n{}", done.stdout.len(), done.stdout);
            assert!(done.stdout.len() <= budget, "{what}");
            let left_out = done.stdout.contains("left out: quell logs");
            assert!(left_out && done.stderr.is_empty(), "{what}");
            // As much as there is room for.
            let few_lines = options.contains(&"--tail");
            assert!(few_lines || done.stdout.len() + 60 > budget, "{what}");
        }
    }
    // The times of the lines and the JSON around them count too; an object is never cut.
    for budget in [100, 700, 1000, 4096, 60_000] {
        for options in [&["--timestamps"][..], &["--json"], &["--json", "--grep", "1"]] {
            let words = [job.id.as_str(), "--budget", &budget.to_string()];
            let done = env.quell("logs").args(words).args(options).finish();
            let what = format!("{budget} {options:?}: {} bytes\n{}", done.stdout.len(), done.stdout);
            let lines = |done: &Finished| done.envelope()["data"]["lines"].as_array().map(Vec::len);
            let is_bare = options.contains(&"--json") && lines(&done) == Some(0);
            assert!(done.stdout.len() <= budget || is_bare, "{what}");
            assert!(budget < 1000 || done.stdout.len() + 200 > budget, "{what}");
        }
    }
    // No room for it at all.
    let done = env.quell("logs").args([job.id.as_str(), "--budget", "40"]).finish();
    assert!(done.stdout.len() <= 40 && done.stdout.starts_with("1\n2\n"), "{}", done.stdout);
    assert!(done.stderr.contains("left out: quell logs"), "{}", done.stderr);
    // All of it fits.
    let done = env.quell("logs").args([job.id.as_str(), "--budget", "1M"]).finish();
    assert!(!done.stdout.contains("left out"), "{}", done.stdout);
}

/// In a PID namespace, as in a container: process 1 starts a job for itself.
#[test]
fn process_1_of_a_container_can_be_an_owner() {
    let env = TestEnv::as_me();
    for owner in ["self", "1", "parent"] {
        let who = if owner == "parent" {
            "sh -c '$Q start --owner parent -- sleep $N; :'"
        } else {
            &format!("$Q start --owner {owner} -- sleep $N")
        };
        let script =
            format!("id=$({who}) && $Q status --json $id && $Q stop $id >/dev/null; echo code $?; :");
        let mut unshare = Command::new("unshare");
        unshare.args(if am_root() { &["-pf"][..] } else { &["-Urpf"] }).args([
            "--mount-proc",
            "bash",
            "-c",
            &script,
        ]);
        unshare.env("QUELL_HOME", env.home()).env("Q", env.quell_path()).env("N", env.oracle.nap());
        let Ok(output) = unshare.current_dir(env.dir()).output() else {
            return skip("process_1_of_a_container_can_be_an_owner", "there is no unshare");
        };
        let [said, error] =
            [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        if error.contains("unshare") {
            return skip("process_1_of_a_container_can_be_an_owner", error.trim());
        }
        let answer: Value =
            said.lines().next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        assert_eq!(answer["data"]["job"]["owner"]["pid"], 1, "{owner}: {said}{error}");
        assert!(said.contains("code 0"), "{owner}: {said}{error}");
    }
}
