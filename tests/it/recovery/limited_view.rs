//! What a command can't see or judge: processes that /proc hides, start times of another time namespace, zombies that a
//! debugger holds, a copy of quell's home. The end is told as it is, and nothing is killed by mistake.

use std::{
    fs,
    process::{Command, Stdio},
};

use quell_tests::{
    eventually,
    evidence::verdict,
    host::{self, Contain, NOBODY, Setting, User, am_root},
    run::PATIENCE,
    skip,
    test_env::TestEnv,
};

/// Words that give what follows a /proc that hides processes from ordinary users.
const HIDING: [&str; 5] =
    ["unshare", "-m", "sh", "-c", "mount -t proc -o hidepid=2 proc /proc && exec \"$0\" \"$@\""];

fn can_hide(test: &str) -> bool {
    let made = || Command::new(HIDING[0]).args(&HIDING[1..]).arg("true").stderr(Stdio::null()).status();
    let can = am_root() && User::all().contains(&User::Ordinary) && made().is_ok_and(|done| done.success());
    if !can {
        skip(test, "needs root, and a /proc with hidepid");
    }
    can
}

#[test]
fn a_process_that_proc_hides_is_killed_and_named() {
    if !can_hide("a_process_that_proc_hides_is_killed_and_named") {
        return;
    }
    let env = TestEnv::new(User::Ordinary);
    let quell = env.run().args(["--json", "--contain", "reaper", "--grace", "300ms", "--timeout", "1s"]);
    let done = quell.actor("undumpable", None).wrapped(HIDING).finish();
    let data = &done.envelope()["data"];
    assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{data:#}");
    assert_eq!((done.code(), verdict(data)), (Some(124), "gone"), "{data:#}");
}

#[test]
fn after_a_loss_nothing_is_called_gone_where_proc_hides_processes() {
    if !can_hide("after_a_loss_nothing_is_called_gone_where_proc_hides_processes") {
        return;
    }
    let env = TestEnv::new(User::Ordinary);
    let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
    job.lose();
    let done = env.quell("stop").args([&job.id]).wrapped(HIDING).finish();
    let receipt = job.receipt().expect("a receipt");
    assert_eq!((done.code(), verdict(&receipt)), (Some(5), "unproven"), "{receipt:#}");
    assert_eq!(env.oracle.survivors_after(PATIENCE), []);
}

#[test]
fn after_a_loss_nothing_is_called_gone_in_a_time_namespace() {
    let shifted = ["unshare", "-T", "--boottime", "-1000"];
    let probe = Command::new(shifted[0]).args(&shifted[1..]).arg("true").stderr(Stdio::null()).status();
    if !probe.is_ok_and(|done| done.success()) {
        return skip(
            "after_a_loss_nothing_is_called_gone_in_a_time_namespace",
            "no time namespace can be made",
        );
    }
    let env = TestEnv::as_me();
    let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
    job.lose();
    let done = env.quell("stop").args([&job.id]).wrapped(shifted).finish();
    let receipt = job.receipt().expect("a receipt");
    assert_eq!((done.code(), verdict(&receipt)), (Some(5), "unproven"), "{receipt:#}");
    job.stop(&[]);
    env.oracle.end_survivors();
}

#[test]
fn a_copy_of_the_home_ends_no_job_that_is_kept() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let root = job.process("root").expect("a root");
    let copy = env.path("copy");
    let copied = Command::new("cp").arg("-a").arg(env.home()).arg(&copy).status().expect("cp");
    assert!(copied.success());
    if am_root() && env.user() == User::Ordinary {
        std::os::unix::fs::chown(&copy, Some(NOBODY), Some(NOBODY)).expect("chown");
    }
    for words in [&["list"][..], &["status", &job.id], &["sweep"], &["stop", &job.id]] {
        let quell = env.quell(words[0]).args(&words[1..]).env("QUELL_HOME", &copy);
        let done = quell.finish();
        assert!(root.is_alive(), "{words:?}: {}{}", done.stdout, done.stderr);
        assert_ne!(done.code(), Some(0), "{words:?}: {}{}", done.stdout, done.stderr);
    }
    assert_eq!((job.state().as_str(), job.is_over()), ("running", false));
    assert_eq!(job.stop(&["--now"]).code(), Some(0));
}

#[test]
fn the_removal_of_a_lost_job_does_not_hide_that_its_end_is_not_proven() {
    let env = TestEnv::enclosed(Setting { user: TestEnv::as_me().user(), contain: Contain::Cgroup });
    let script = "(setsid env -i sleep ${N}5 <&- >&- 2>&- &)
        until pgrep -f \"^sleep ${N}5\" >/dev/null; do :; done; echo ready >$QUELL_TEST_READY; sleep $N";
    let job = env.start().args(["--contain", "reaper"]).script(script).begin();
    job.lose();
    let done = env.quell("rm").args([&job.id]).finish();
    assert_eq!((done.code(), job.dir().exists()), (Some(5), true), "{}{}", done.stdout, done.stderr);
    assert_eq!(env.quell("rm").args([&job.id]).finish().code(), Some(0));
    assert!(!job.dir().exists());
}

/// A debugger that stands at its prompt does not wait for the process that it traces.
#[test]
fn a_corpse_that_a_tracer_holds_counts_as_dead() {
    for setting in Setting::all().into_iter().filter(|setting| setting.contain != Contain::Pidns) {
        let env = TestEnv::with(setting);
        let quell = env.start().args(["--contain", setting.contain.as_str()]);
        let script = "sleep $N & echo $! >pid; echo ready >$QUELL_TEST_READY; wait";
        let job = quell.script(script).begin();
        let pid = fs::read_to_string(env.path("pid")).expect("a pid").trim().to_owned();
        let words = env.prefix().into_iter().chain([host::actor().display().to_string()]);
        let mut words = words.chain(["seize".into(), env.oracle.token().to_owned(), pid.clone()]);
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut tracer = command.spawn().expect("a tracer");
        let traced = || {
            fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|text| {
                text.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
            })
        };
        if eventually(PATIENCE, traced) {
            let done = job.stop(&["--grace", "300ms"]);
            let told = format!("{setting}: {}{}", done.stdout, done.stderr);
            assert_eq!(done.code(), Some(0), "{told}");
            assert_eq!(verdict(&job.receipt().expect("a receipt")), "gone", "{told}");
        } else {
            skip("a_corpse_that_a_tracer_holds_counts_as_dead", "no ptrace of another's child here");
        }
        let _ = tracer.kill().and_then(|()| tracer.wait());
        job.stop(&["--now"]);
    }
}
