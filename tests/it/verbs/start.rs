//! `quell start`: a job that outlives the command.

use std::fs;

use quell_tests::{
    eventually,
    evidence::{cause, says_gone},
    host::Setting,
    jobs::Background,
    run::PATIENCE,
    test_env::TestEnv,
};

fn over(job: &Background<'_>) -> serde_json::Value {
    assert!(job.is_over(), "{}", job.state());
    job.receipt().expect("a receipt")
}

#[test]
fn a_job_outlives_the_command_and_is_gone_after_stop() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let job = env.start().args(["--contain", setting.contain.as_str()]).actor("setsid", None).begin();
        assert_eq!(job.state(), "running", "under {setting}");
        assert!(!env.oracle.survivors().is_empty(), "under {setting}");
        let done = job.stop(&["--grace", "200ms"]);
        assert_eq!(done.code(), Some(0), "under {setting}: {}", done.stderr);
        let receipt = over(&job);
        says_gone(&receipt).unwrap_or_else(|why| panic!("under {setting}: {why}"));
        assert_eq!(cause(&receipt), "user");
        assert!(job.wait_quiet(quell_tests::run::PATIENCE).is_empty(), "under {setting}");
        assert_eq!(env.leftovers(), Vec::<String>::new(), "under {setting}");
    }
}

/// What is printed when all is well is told where it can't be.
#[test]
fn an_id_that_can_not_be_printed_is_in_the_error() {
    let env = TestEnv::as_me();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let begin = || env.start().command(["sleep", &env.oracle.nap()]);
    let closed = begin().wrapped(["sh", "-c", "exec \"$@\" >&-", "sh"]);
    for quell in [begin().stdout(full()), closed] {
        let done = quell.finish();
        assert_eq!(done.code(), Some(125), "{}", done.stderr);
        let live = env.ids("live");
        let [id] = live.as_slice() else { panic!("not one job: {live:?}") };
        assert!(done.stderr.contains(&format!("quell stop {id}")), "{}", done.stderr);
        assert_eq!(env.job(id).stop(&["--now"]).code(), Some(0));
    }
}

#[test]
fn a_restart_that_can_not_print_the_new_id_tells_it_with_the_error() {
    let env = TestEnv::as_me();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let done = env.quell("restart").args([&job.id]).stdout(full).finish();
    assert_eq!(done.code(), Some(125), "{}", done.stderr);
    let live = env.ids("live");
    let [id] = live.as_slice() else { panic!("not one job: {live:?}") };
    assert!(*id != job.id && done.stderr.contains(&format!("quell stop {id}")), "{}", done.stderr);
    assert_eq!(env.job(id).stop(&["--now"]).code(), Some(0));
}

#[test]
fn an_error_that_can_not_be_written_as_json_is_told_on_stderr() {
    let env = TestEnv::as_me();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let done = env.quell("stop").args(["nosuch", "--json"]).stdout(full).finish();
    assert_eq!(done.code(), Some(3), "{}", done.stderr);
    assert!(done.stderr.contains("nosuch"), "{:?}", done.stderr);
}

#[test]
fn a_root_that_has_exited_before_its_job_is_shown_as_such() {
    let env = TestEnv::as_me();
    let job =
        env.start().args(["--until", "tree"]).sh(&format!("sleep {} & exit 0", env.oracle.nap())).begin();
    let root = || {
        let text = env.quell("status").args([&job.id]).finish().stdout;
        text.lines().find(|line| line.trim_start().starts_with("root ")).unwrap_or_default().to_owned()
    };
    assert!(eventually(PATIENCE, || root().contains("(has exited)")), "{}", root());
    assert_eq!(job.stop(&["--now"]).code(), Some(0));
}

#[test]
fn a_word_that_means_no_job_keeps_no_other_from_being_stopped() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--name", "w1"]).command(["sleep", "300"]).begin();
    let done = env.quell("stop").args(["nosuch", "w1"]).finish();
    assert_eq!(done.code(), Some(3), "{}", done.stderr);
    assert!(done.stderr.contains("nosuch") && job.is_over(), "{} {}", done.stderr, job.state());
}

#[test]
fn a_leak_can_not_fail_what_has_returned() {
    let env = TestEnv::as_me();
    let done = env.start().args(["--leak", "fail"]).sh(crate::cli::bad_input::TRACE).finish();
    crate::cli::bad_input::one_clear_line(&done, 2);
    assert!(done.stderr.contains("--leak fail") && !env.path("ran").exists(), "{}", done.stderr);
}

#[test]
fn a_name_is_that_of_one_live_job_in_either_mode() {
    let env = TestEnv::as_me();
    let script = format!("echo up; exec sleep {}", env.oracle.nap());
    let mut running = env.run().args(["--name", "two"]).sh(&script).start();
    assert!(eventually(PATIENCE, || running.stdout().contains("up")), "{}", running.stderr());
    let second = env.start().args(["--name", "two"]).sh(&script).finish();
    assert_eq!(second.code(), Some(1), "{}", second.stdout);
    assert!(second.stderr.contains("the name `two` is that of the live job"), "{}", second.stderr);
    let third = env.run().args(["--name", "two"]).sh("echo ran").finish();
    assert_eq!((third.code(), third.stdout.as_str()), (Some(125), ""), "{}", third.stderr);
    assert_eq!(env.ids("jobs").len(), 1, "those that were refused leave nothing");
    assert_eq!(env.quell("stop").args(["two"]).finish().code(), Some(0));
    assert!(running.wait_exit(PATIENCE).is_some());

    // It is free again after the end, after a start that fails, and after the loss of its keepers.
    let missing = env.run().args(["--name", "two"]).command(["/nonexistent"]).finish();
    assert_eq!(missing.code(), Some(127), "{}", missing.stderr);
    let mut lost = env.run().args(["--name", "two"]).sh(&script).start();
    assert!(eventually(PATIENCE, || lost.stdout().contains("up")), "{}", lost.stderr());
    lost.lose().expect("front and keeper are killed");
    env.quell("sweep").finish();
    let job = env.start().args(["--name", "two"]).sh(&script).begin();
    assert_eq!(job.stop(&[]).code(), Some(0));
}

#[test]
fn a_name_that_several_live_jobs_have_means_none_of_them() {
    let env = TestEnv::as_me();
    let start = || env.start().args(["--name", "two"]).command(["sleep", &env.oracle.nap()]).begin();
    let first = start();
    // As after the loss of the directory of names.
    fs::remove_file(env.home().join("names/two")).expect("its name");
    let second = start();
    fs::remove_file(env.home().join("names/two")).expect("its name");
    let done = env.quell("stop").args(["two"]).finish();
    assert_eq!(done.code(), Some(2), "{}", done.stdout);
    assert!([&first, &second].iter().all(|job| done.stderr.contains(&job.id)), "{}", done.stderr);
    assert!(!first.is_over() && !second.is_over());
    assert_eq!((first.stop(&[]).code(), second.stop(&[]).code()), (Some(0), Some(0)));
}
