//! `quell rm` and `quell gc`: what has ended goes when it is told to, and nothing else ever.

use std::{
    fs::{self, File},
    time::{Duration, SystemTime},
};

use quell_tests::{host::User, jobs::Background, run::PATIENCE, test_env::TestEnv};
use serde_json::Value;

use crate::cli::bad_input::one_clear_line;
use crate::test_verb::audit;
use crate::verbs::list::multiply;

fn ended<'l>(env: &'l TestEnv, count: usize) -> Vec<Background<'l>> {
    let one = || {
        let job = env.start().command(["true"]).begin();
        // Before the next one begins: gc goes by the order of the ends.
        assert!(job.wait_over(PATIENCE));
        job
    };
    (0..count).map(|_| one()).collect()
}

#[test]
fn an_ended_job_is_removed_with_its_name() {
    for user in User::all() {
        let env = TestEnv::new(user);
        let job = env.start().args(["--name", "web"]).command(["true"]).begin();
        assert!(job.wait_over(PATIENCE));
        let done = env.quell("rm").args(["web"]).finish();
        assert_eq!((done.code(), done.stdout), (Some(0), format!("{} removed\n", job.id)), "{}", done.stderr);
        assert!(!job.dir().exists());
        one_clear_line(&env.quell("rm").args(["web"]).finish(), 3);
        assert_eq!(env.quell("list").args(["--all", "--ids"]).finish().stdout, "");
    }
}

/// Between the link and its rename to the name.
#[test]
fn the_link_of_a_start_that_was_killed_while_it_claimed_a_name_is_put_away() {
    for verb in ["sweep", "gc"] {
        let env = TestEnv::as_me();
        let job = env.start().args(["--name", "web"]).command(["true"]).begin();
        assert!(job.wait_over(PATIENCE));
        let link = env.home().join("names").join(format!(".{}", job.id));
        std::os::unix::fs::symlink(&job.id, &link).expect("a link");
        assert_eq!(env.quell(verb).finish().code(), Some(0), "{verb}");
        assert!(fs::symlink_metadata(&link).is_err(), "{verb}");
        assert_eq!(env.ids("names"), [".lock", "web"], "{verb}");
    }
}

#[test]
fn a_live_job_is_refused_by_rm() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    for force in [&[][..], &["--force"]] {
        let done = env.quell("rm").args([&job.id]).args(force).finish();
        one_clear_line(&done, 1);
        assert!(done.stderr.contains("stop it first"), "{}", done.stderr);
    }
    assert!(job.process("root").is_some() && job.state() == "running");
    let over = ended(&env, 1);
    let done = env.quell("rm").args([&over[0].id, &job.id, "--json"]).finish();
    let oks: Vec<bool> = done.stdout.lines().map(|line| line.contains("\"ok\":true")).collect();
    assert_eq!((done.code(), oks), (Some(1), vec![true, false]), "{}", done.stdout);
}

#[test]
fn a_lost_job_is_finished_and_then_removed() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
    job.lose();
    let done = env.quell("rm").args([&job.id]).finish();
    assert!(done.stderr.contains("its stop is finished now"), "{}", done.stderr);
    // What else runs here decides whether its end is proven. If it is not, that is told once before the record goes.
    if done.code() == Some(5) {
        assert_eq!(env.quell("rm").args([&job.id]).finish().code(), Some(0), "{}", done.stderr);
    } else {
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
    }
    assert!(!job.dir().exists() && job.wait_quiet(PATIENCE).is_empty());
}

#[test]
fn no_variable_decides_how_large_the_stacks_of_quells_own_threads_are() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let done = env.quell("stop").args([&job.id, "--now"]).env("RUST_MIN_STACK", "1").finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
}

#[test]
fn rm_says_that_a_stop_is_finished_only_if_it_is() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
    job.lose();
    let closed = env.write("closed.toml", "[guard]\ndeny = [\"stop\"]\n");
    let done = env.quell("rm").args([&job.id]).env("QUELL_CONFIG", closed).finish();
    assert_eq!(done.code(), Some(5), "{}", done.stderr);
    assert!(!done.stderr.contains("finished now"), "{}", done.stderr);
    assert!(job.dir().exists());
    let done = env.quell("rm").args([&job.id]).finish();
    assert!(done.stderr.contains("its stop is finished now"), "{}", done.stderr);
    assert!(job.wait_quiet(PATIENCE).is_empty());
}

#[test]
fn no_word_leads_rm_out_of_its_home() {
    let env = TestEnv::as_me();
    let jobs = ended(&env, 1);
    let treasure = env.write("treasure", "gold");
    fs::create_dir(env.path("home/jobs/inner")).expect("mkdir");
    let absolute = jobs[0].dir().display().to_string();
    let beside = format!("{}/../{}", jobs[0].id, jobs[0].id);
    for hostile in
        ["..", ".", "", "/", "a/b", "../../treasure", "*", "inner/", "\u{1b}[31m", &absolute, &beside]
    {
        // A word that is none spoils the others, too.
        for words in [vec![hostile], vec![&jobs[0].id, hostile]] {
            one_clear_line(&env.quell("rm").args(&words).args(["--force"]).finish(), 2);
        }
    }
    one_clear_line(&env.quell("rm").args(["inner"]).finish(), 3);
    one_clear_line(&env.quell("rm").args([&jobs[0].id[..3]]).finish(), 3);
    assert!(jobs[0].dir().join("receipt.json").exists() && env.path("home/jobs/inner").exists());
    assert_eq!(fs::read_to_string(treasure).expect("the treasure"), "gold");
}

#[test]
fn gc_removes_by_its_rules_and_never_a_live_one() {
    for user in User::all() {
        let env = TestEnv::new(user);
        let live = env.start().command(["sleep", &env.oracle.nap()]).begin();
        let old = ended(&env, 3);
        let none = ["--max-age", "none", "--max-size", "none"];
        let dry = env.quell("gc").args(none).args(["--max-count", "1", "--dry-run"]).finish();
        assert_eq!(dry.code(), Some(0), "{}", dry.stderr);
        assert!(dry.stdout.contains(&format!("{} would be removed\n", old[0].id)), "{}", dry.stdout);
        assert!(
            dry.stdout.lines().last().is_some_and(|line| line.starts_with("2 jobs to remove, ")),
            "{}",
            dry.stdout
        );
        assert!(old.iter().all(|job| job.dir().exists()));

        let done = env.quell("gc").args(none).args(["--max-count", "1"]).finish();
        assert!(
            done.stdout.lines().last().is_some_and(|line| line.starts_with("2 jobs removed, ")),
            "{}",
            done.stdout
        );
        let there: Vec<bool> = old.iter().map(|job| job.dir().exists()).collect();
        assert_eq!(there, [false, false, true]);
        let all = env.quell("gc").args(["--max-age", "0", "--max-count", "0", "--force", "--json"]).finish();
        assert_eq!(all.envelope()["data"]["removed"], serde_json::json!([old[2].id]), "{}", all.stdout);
        assert!(live.dir().exists() && live.process("root").is_some());
        assert_eq!(env.quell("list").args(["--all", "--ids"]).finish().stdout, format!("{}\n", live.id));
    }
}

#[test]
fn the_configured_rules_hold_where_none_are_given() {
    let env = TestEnv::as_me();
    let jobs = ended(&env, 2);
    let kept = |done: &Value| done["data"]["kept"].clone();
    let gc = |options: &[&str]| env.quell("gc").args(options).args(["--json", "--dry-run"]);
    assert_eq!(kept(&gc(&[]).finish().envelope()), 2, "none is 30 days old");
    assert_eq!(kept(&gc(&[]).env("QUELL_GC_MAX_COUNT", "1").finish().envelope()), 1);
    assert_eq!(kept(&gc(&["--max-count", "none"]).env("QUELL_GC_MAX_COUNT", "1").finish().envelope()), 2);
    assert_eq!(kept(&gc(&["--max-size", "1"]).finish().envelope()), 0);
    for options in [["--max-age", "x"], ["--max-count", "-1"], ["--max-size", "0"]] {
        one_clear_line(&env.quell("gc").args(options).finish(), 2);
    }
    assert!(jobs.iter().all(|job| job.dir().exists()));
}

/// The stamp of the last gc, as old as this.
fn stamp(env: &TestEnv, age: Duration) {
    let file = File::options().append(true).open(env.home().join("last-gc")).expect("start makes the stamp");
    file.set_modified(SystemTime::now() - age).expect("a new time");
}

#[test]
fn start_tidies_up_once_an_hour_and_says_nothing() {
    let env = TestEnv::as_me();
    let old = ended(&env, 2);
    let begin = || env.start().env("QUELL_GC_MAX_COUNT", "0").command(["sleep", &env.oracle.nap()]);
    let hours = Duration::from_secs(2 * 3600);
    let (_first, there) = (begin().begin(), || old.iter().filter(|job| job.dir().exists()).count());
    assert_eq!(there(), 2, "the hour is not over");
    stamp(&env, hours);
    let _second = begin().env("QUELL_GC_AUTO", "false").begin();
    assert_eq!(there(), 2, "that was not requested");
    let done = begin().finish();
    assert_eq!((done.stdout.lines().count(), done.stderr.as_str(), there()), (1, "", 0));
    assert_eq!(env.ids("live").len(), 3, "live jobs stay");
    stamp(&env, hours);
    let _third = begin().begin();
    let lines: Vec<Value> = audit(&env).into_iter().filter(|line| line["verb"] == "gc").collect();
    assert_eq!(lines.len(), 1, "a line for the one that removed something: {lines:#?}");
    assert_eq!((&lines[0]["kind"], &lines[0]["result"]["removed"]), (&"act".into(), &2.into()), "{lines:#?}");
    let _ = env.quell("stop").args(["--all", "--now"]).finish();
}

#[test]
fn tidying_up_is_bounded_and_never_fails_a_start() {
    let env = TestEnv::as_me();
    let old = ended(&env, 1);
    multiply(&env, &old[0], 300);
    stamp(&env, Duration::from_secs(2 * 3600));
    let _job = env.start().env("QUELL_GC_MAX_COUNT", "0").command(["sleep", &env.oracle.nap()]).begin();
    assert_eq!(env.ids("jobs").len(), 302 - 200);
    // The stamp can't be read or written.
    fs::remove_file(env.home().join("last-gc")).expect("rm");
    fs::create_dir(env.home().join("last-gc")).expect("mkdir");
    let _other = env.start().command(["sleep", &env.oracle.nap()]).begin();
}
