//! Records that can't be written, or can't be read: clear words, nothing lost, nothing that panics.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::Command,
    time::{Duration, Instant},
};

use quell_tests::{
    eventually,
    evidence::cause,
    host::{Contain, Setting, User, am_root},
    jobs::Background,
    run::{Finished, PATIENCE},
    skip,
    test_env::TestEnv,
};

fn speaks_clearly(done: &Finished, what: &str) {
    assert!(!done.stderr.contains("panicked"), "{what}: {}", done.stderr);
    assert!(done.code().is_some_and(|code| code != 101), "{what}: {}", done.status);
}

fn refused(done: &Finished, what: &str) {
    speaks_clearly(done, what);
    assert_eq!(done.code(), Some(125), "{what}: {}", done.stderr);
    // A stop goes on without its line in the audit log, and says so.
    let is_warning = |line: &&str| line.starts_with("quell: the audit log gets no line about this: ");
    let lines: Vec<&str> = done.stderr.lines().filter(|line| !is_warning(line)).collect();
    assert!(lines.len() == 1 && lines[0].starts_with("quell: "), "{what}: {:?}", done.stderr);
}

fn nap<'l>(env: &'l TestEnv, setting: Setting) -> Background<'l> {
    let quell =
        env.start().args(["--name", "web", "--grace", "300ms", "--contain", setting.contain.as_str()]);
    quell.command(["sleep", &env.oracle.nap()]).begin()
}

/// A place of 256 KiB that goes with the test.
pub(crate) struct Disk<'l>(&'l TestEnv);

impl Disk<'_> {
    /// Mounted as the environment's own home.
    pub(crate) fn new(env: &TestEnv) -> Disk<'_> {
        fs::create_dir(env.home()).expect("mkdir");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "none"]).arg(env.home()).status();
        assert!(mount.is_ok_and(|status| status.success()), "mount");
        Disk(env)
    }

    pub(crate) fn fill(&self) {
        let fill = self.0.home().join("fill");
        let _ =
            Command::new("sh").args(["-c", r#"head -c 1m /dev/zero >"$0" 2>/dev/null"#]).arg(fill).status();
    }

    pub(crate) fn free(&self) {
        fs::remove_file(self.0.home().join("fill")).expect("rm");
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = self.0.quell("stop").args(["--all", "--now"]).finish();
        let _ = Command::new("umount").arg("-l").arg(self.0.home()).status();
    }
}

/// Checks that `logs` and `status` name the error that kept 2 MB of output from the disk, and never the limit.
fn names_the_failed_write(env: &TestEnv, job: &Background<'_>, error: &str) {
    let shown = |words: &[&str]| {
        let done = env.quell(words[0]).args([&job.id]).args(&words[1..]).finish();
        format!("{}{}", done.stdout, done.stderr)
    };
    assert!(eventually(PATIENCE, || shown(&["status"]).contains(error)), "{}", shown(&["status"]));
    for when in ["while it lives", "after its end"] {
        for words in [&["logs", "--tail", "3"][..], &["logs", "--raw"], &["logs", "--json"], &["status"]] {
            let said = shown(words);
            let short = said.replace(&"x".repeat(64), "");
            assert!(said.contains(error) && !said.contains("--max-log"), "{when}: {words:?}: {short}");
        }
        let status: serde_json::Value = serde_json::from_str(&shown(&["status", "--json"])).expect("JSON");
        assert_eq!(status["data"]["unwritten"][0]["stream"], "stdout", "{when}: {status}");
        assert!(status["data"]["unwritten"][0]["why"].as_str().is_some_and(|why| why.contains(error)));
        if when == "while it lives" {
            assert_eq!(job.stop(&["--now"]).code(), Some(0));
        }
    }
    assert!(job.receipt().expect("a receipt")["output"]["stdout"]["cut_bytes"].as_u64() > Some(0));
}

/// Writes 2 MB.
const WRITES: &str = "head -c 2000000 /dev/zero | tr '\\0' x; exec sleep $N";

#[test]
fn output_that_a_full_disk_did_not_keep_is_told_with_the_true_reason() {
    if !am_root() {
        return skip("output_that_a_full_disk_did_not_keep…", "needs root to mount a small disk");
    }
    let env = TestEnv::new(User::Root);
    let _disk = Disk::new(&env);
    let job = env.start().env("N", env.oracle.nap()).sh(WRITES).begin();
    names_the_failed_write(&env, &job, "No space left on device");
}

#[test]
fn output_beyond_the_limit_of_file_sizes_is_told_with_the_true_reason() {
    let env = TestEnv::as_me();
    let limited = ["bash", "-c", "ulimit -f 128; exec \"$@\"", "bash"];
    let start = env.start().wrapped(limited).env("N", env.oracle.nap());
    names_the_failed_write(&env, &start.sh(WRITES).begin(), "File too large");
}

#[test]
fn a_full_disk_refuses_a_start_and_nothing_runs() {
    if !am_root() {
        return skip("a_full_disk_refuses_a_start…", "needs root to mount a small disk");
    }
    let env = TestEnv::new(User::Root);
    let disk = Disk::new(&env);
    disk.fill();
    refused(&env.start().sh("touch ran").finish(), "full");
    assert!(!env.path("ran").exists());
    assert!(env.oracle.survivors_after(PATIENCE).is_empty());
    disk.free();
    let sweep = env.quell("sweep").finish();
    assert_eq!(sweep.code(), Some(0), "{}", sweep.stderr);
    assert_eq!(env.leftovers(), Vec::<String>::new());
}

/// The record can't be written, and the tree is stopped all the same; when there is room again, everything is put right.
#[test]
fn a_disk_that_fills_up_meanwhile_keeps_no_job_alive() {
    if !am_root() {
        return skip("a_disk_that_fills_up…", "needs root to mount a small disk");
    }
    for contain in Contain::ALL {
        let setting = Setting { contain, user: User::Root };
        if contain.available(User::Root).is_err() {
            continue;
        }
        let env = TestEnv::new(User::Root);
        let disk = Disk::new(&env);
        let job = nap(&env, setting);
        disk.fill();
        let stop = job.stop(&[]);
        speaks_clearly(&stop, contain.as_str());
        let asleep =
            |env: &TestEnv| env.oracle.survivors().iter().any(|process| process.command.starts_with("sleep"));
        assert!(!asleep(&env), "{setting}: {}", stop.stderr);
        disk.free();
        let sweep = env.quell("sweep").finish();
        assert!(matches!(sweep.code(), Some(0 | 5)), "{setting}: {}{}", sweep.stdout, sweep.stderr);
        assert!(job.is_over(), "{setting}: {} {} {}", job.state(), stop.stderr, sweep.stdout);
        assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new(), "{setting}");
        let again = nap(&env, setting);
        assert_eq!(again.stop(&[]).code(), Some(0), "{setting}");
    }
}

#[test]
fn a_home_that_can_not_be_written_is_a_clear_error() {
    let env = TestEnv::new(User::Ordinary);
    env.write("file", "");
    let locked = env.path("locked");
    fs::create_dir(&locked).expect("mkdir");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).expect("chmod");
    for home in [env.path("file").join("home"), locked.join("home"), "/proc/home".into()] {
        let start = env.start().env("QUELL_HOME", &home).sh("touch ran").finish();
        refused(&start, &home.display().to_string());
        assert!(start.stderr.contains(home.to_str().expect("UTF-8")), "{}", start.stderr);
    }
    assert!(!env.path("ran").exists());
    assert!(env.oracle.survivors_after(PATIENCE).is_empty());
}

/// The environment's home, which only reads from now on, also for the keepers of its jobs.
struct ReadOnly<'l>(&'l TestEnv);

impl ReadOnly<'_> {
    fn new(env: &TestEnv) -> ReadOnly<'_> {
        for options in [&["--bind"][..], &["-o", "remount,ro,bind"]] {
            let mount = Command::new("mount").args(options).args([env.home(), env.home()]).status();
            assert!(mount.is_ok_and(|status| status.success()), "mount {options:?}");
        }
        ReadOnly(env)
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.home()).status();
    }
}

#[test]
fn a_home_that_becomes_read_only_keeps_no_job_alive() {
    if !am_root() {
        return skip("a_home_that_becomes_read_only…", "needs root to mount it so");
    }
    let env = TestEnv::new(User::Root);
    let job = nap(&env, Setting { contain: Contain::Reaper, user: User::Root });
    let root = job.process("root").expect("a root");
    let read_only = ReadOnly::new(&env);
    for words in [&["list"][..], &["status", "web"], &["tree", "web"], &["logs", "web"]] {
        let done = env.quell(words[0]).args(&words[1..]).finish();
        assert_eq!(done.code(), Some(0), "{words:?}: {}", done.stderr);
    }
    for start in [env.start().sh("touch ran").finish(), env.run().sh("touch ran").finish()] {
        refused(&start, "read-only");
        assert!(
            start.stderr.contains("Read-only") && start.stderr.contains("QUELL_HOME"),
            "{}",
            start.stderr
        );
    }
    let stop = job.stop(&[]);
    assert!(!root.is_alive(), "{}{}", stop.stdout, stop.stderr);
    refused(&stop, "a stop that can't be put on record");
    for words in ["has ended", "Read-only", "quell sweep"] {
        assert!(stop.stderr.contains(words), "no {words:?}: {}", stop.stderr);
    }
    drop(read_only);
    let sweep = env.quell("sweep").finish();
    assert!(matches!(sweep.code(), Some(0 | 5)), "{}{}", sweep.stdout, sweep.stderr);
    assert!(job.is_over() && !env.path("ran").exists(), "{}", sweep.stdout);
}

/// Whatever is done to the directories of the home while a job is kept, it is stopped as fast as any other.
#[test]
fn a_job_whose_directories_were_removed_or_replaced_is_stopped_in_its_time() {
    let damages = [
        "rm -r jobs",
        "rm -r live jobs",
        "rm -r live; touch live",
        "mv live kept; touch live",
        "rm -r done; touch done",
    ];
    for user in User::all() {
        for damage in damages {
            let env = TestEnv::enclosed(Setting { contain: Contain::Cgroup, user });
            let job = nap(&env, Setting { contain: Contain::Reaper, user });
            let root = job.process("root").expect("a root");
            let done = Command::new("sh").args(["-c", damage]).current_dir(env.home()).status();
            assert!(done.is_ok_and(|status| status.success()), "{damage}");
            let began = Instant::now();
            let stop = job.stop(&[]);
            assert_eq!(stop.code(), Some(0), "{damage}, {user:?}: {}", stop.stderr);
            assert!(!root.is_alive(), "{damage}, {user:?}");
            // Its keepers make the files again at once; without them the keepers would be killed, after many seconds.
            assert!(began.elapsed() < Duration::from_secs(10), "{damage}, {user:?}: {:?}", began.elapsed());
            assert_eq!(cause(&job.receipt().expect("a receipt")), "user", "{damage}, {user:?}");
            let list = env.quell("list").finish();
            assert_eq!(list.code(), Some(0), "{damage}, {user:?}: {}", list.stderr);
        }
    }
}

#[test]
fn what_was_removed_with_a_lost_job_is_made_again_to_finish_it() {
    for user in User::all() {
        let env = TestEnv::enclosed(Setting { contain: Contain::Cgroup, user });
        let job = nap(&env, Setting { contain: Contain::Reaper, user });
        let root = job.process("root").expect("a root");
        job.lose();
        fs::remove_dir_all(env.home().join("jobs")).expect("rm -r jobs");
        let stop = job.stop(&[]);
        // Nothing is known of it but its id, and so nothing is proven.
        assert_eq!(stop.code(), Some(5), "{user:?}: {}{}", stop.stdout, stop.stderr);
        root.signal("KILL");
        assert!(eventually(PATIENCE, || !root.is_alive()));
    }
}

#[test]
fn a_copy_of_a_home_tells_in_which_home_its_jobs_are_stopped() {
    let env = TestEnv::as_me();
    let job = nap(&env, Setting { contain: Contain::Reaper, user: env.user() });
    let copy = env.path("copy");
    let copied = Command::new("cp").arg("-a").args([&env.home(), &copy]).status();
    assert!(copied.is_ok_and(|status| status.success()), "cp");
    let real = fs::canonicalize(env.home()).expect("a path");
    for words in [&["stop", "web"][..], &["status", "web"], &["wait", "web"], &["rm", "web"]] {
        let done = env.quell(words[0]).args(&words[1..]).env("QUELL_HOME", &copy).finish();
        assert_eq!(done.code(), Some(1), "{words:?}: {}", done.stderr);
        let hint = format!("QUELL_HOME={} quell stop {}", real.display(), job.id);
        assert!(done.stderr.contains(&hint), "{words:?}: {}", done.stderr);
    }
    let hint = env.quell("stop").args([&job.id]).env("QUELL_HOME", &real).finish();
    assert_eq!(hint.code(), Some(0), "{}", hint.stderr);
}

const FILES: [&str; 3] = ["state.jsonl", "spec.json", "launch.private.json"];
const DAMAGE: [&[u8]; 4] = [b"", b"{", b"{\"state\":7}", b"\0\xff\xfe not JSON"];

/// Every file in every setting, with one damage after the other.
fn damages() -> impl Iterator<Item = (usize, Setting, &'static str, &'static [u8])> {
    let cases = Setting::all().into_iter().flat_map(|setting| FILES.map(|file| (setting, file)));
    cases.enumerate().map(|(at, (setting, file))| (at, setting, file, DAMAGE[(at + at / 4) % DAMAGE.len()]))
}

/// The keeper knows what it needs to know; a stop works, and the end is on record.
#[test]
fn a_live_job_with_a_damaged_record_can_be_stopped() {
    for (_, setting, file, damage) in damages() {
        let what = format!("{setting}, {file}, {:?}", String::from_utf8_lossy(damage));
        let env = TestEnv::with(setting);
        let job = nap(&env, setting);
        fs::write(job.dir().join(file), damage).expect("damage");
        for verb in ["sweep", "stop"] {
            let options: &[&str] = if verb == "stop" { &["--all"] } else { &[] };
            speaks_clearly(&env.quell(verb).args(options).finish(), &what);
        }
        let done = job.stop(&[]);
        assert_eq!(done.code(), Some(0), "{what}: {}", done.stderr);
        assert!(job.is_over() && job.receipt().is_some(), "{what}");
        assert!(env.oracle.survivors_after(PATIENCE).is_empty(), "{what}");
    }
}

/// The job has no keeper and half of its record is lost: the remaining processes are found as far as possible, and the job ends.
#[test]
fn a_lost_job_with_a_damaged_record_comes_to_an_end() {
    for (at, setting, file, damage) in damages() {
        let what = format!("{setting}, {file}, {:?}", String::from_utf8_lossy(damage));
        let env = TestEnv::with(setting);
        let job = nap(&env, setting);
        job.lose();
        fs::write(job.dir().join(file), damage).expect("damage");
        let done = if at % 2 == 0 { job.stop(&[]) } else { env.quell("sweep").finish() };
        speaks_clearly(&done, &what);
        assert!(matches!(done.code(), Some(0 | 5)), "{what}: {} {}", done.stdout, done.stderr);
        assert!(eventually(PATIENCE, || job.is_over()), "{what}: {} {}", done.stdout, done.stderr);
        // Without the specification neither the marker nor the boot of the PIDs is known.
        let known = file != "spec.json" || setting.contain == Contain::Cgroup;
        let alive = env.oracle.survivors_after(if known { PATIENCE } else { Duration::from_secs(3) });
        assert!(alive.is_empty() || !known, "{what}: {alive:?}");
        assert!(alive.is_empty() || done.code() == Some(5), "{what}: said to be gone: {alive:?}");
    }
}

/// The lock is only a file: without it a job looks like one that is over, and with nonsense in it it is as good as before.
#[test]
fn nonsense_in_a_lock_does_no_harm() {
    let env = TestEnv::as_me();
    let setting = Setting { contain: Contain::Reaper, user: env.user() };
    for text in ["nonsense", "finishing\n"] {
        let job = nap(&env, setting);
        let lock = env.home().join("live").join(&job.id);
        fs::write(&lock, text).expect("write");
        let done = job.stop(&[]);
        speaks_clearly(&done, text);
        // The text claims that another quell is finishing the job: the stop may wait for it, but not for ever.
        if let Ok(file) = fs::File::options().write(true).truncate(true).open(&lock) {
            drop(file);
            assert_eq!(job.stop(&[]).code(), Some(0), "{text:?}");
        }
        assert!(job.wait_over(PATIENCE), "{text:?}: {} {}", done.status, done.stderr);
        assert!(env.oracle.survivors_after(PATIENCE).is_empty(), "{text:?}");
    }
}
