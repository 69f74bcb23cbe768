//! `quell status`: everything about one job, and an exit code that says how it is.

use quell_tests::{eventually, evidence::verdict, host::Setting, run::PATIENCE, test_env::TestEnv};

use crate::cli::bad_input::one_clear_line;

#[test]
fn the_status_of_a_live_job_names_its_keeper_and_what_could_defeat_it() {
    let env = TestEnv::as_me();
    let nap = env.oracle.nap();
    let options =
        ["--name", "web", "--tag", "a=b", "--contain", "reaper", "--timeout", "1h", "--ready-port", "1"];
    let job = env.start().args(options).command(["sleep", &nap]).begin();
    let done = env.quell("status").args(["web"]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let text = &done.stdout;
    let has = |label: &str, value: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(label)).unwrap_or_default();
        assert!(line.contains(value), "no {label} with {value} in\n{text}");
    };
    assert!(text.starts_with(&format!("{}\n", job.id)), "{text}");
    has("name", "web");
    has("state", "running");
    has("command", &format!("sleep {nap}"));
    has("held by", "reaper");
    has("defeated by", "- a descendant that became another user");
    has("tags", "a=b");
    has("timeout", "1h");
    has("ready", "not yet: port 1");
    for role in ["root", "keeper", "standby"] {
        has(role, &format!("pid {}", job.process(role).expect("alive").pid));
    }
    let done = env.quell("status").args(["web"]).env("COLUMNS", "80").finish();
    assert!(done.stdout.lines().all(|line| line.chars().count() <= 80), "{}", done.stdout);
}

#[test]
fn the_root_is_the_command_in_every_answer_under_each_containment() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let start = env.start().args(["--name", "r", "--contain", setting.contain.as_str()]);
        let job = start.command(["sleep", &env.oracle.nap()]).begin();
        let tree = env.quell("tree").args(["--json", "r"]).finish().envelope();
        let root = &tree["data"]["processes"][0]["pid"];
        assert!(root.is_u64(), "{setting}: {tree:#}");
        let status = || env.quell("status").args(["--json", "r"]).finish().envelope();
        assert_eq!(status()["data"]["job"]["root"]["pid"], *root, "{setting}");
        let list = env.quell("list").args(["--json"]).finish().envelope();
        assert_eq!(list["data"]["jobs"][0]["root"]["pid"], *root, "{setting}: {list:#}");
        assert_eq!(job.stop(&[]).code(), Some(0), "{setting}");
        assert_eq!(job.receipt().expect("a receipt")["root"]["id"]["pid"], *root, "{setting}");
        assert_eq!(status()["data"]["job"]["root"]["pid"], *root, "{setting}");
    }
}

#[test]
fn the_status_of_an_ended_job_names_cause_and_actor() {
    let env = TestEnv::as_me();
    let job = env.start().sh(&format!("echo one; echo two; sleep {}", env.oracle.nap())).begin();
    assert!(eventually(PATIENCE, || job.output("stdout") == "one\ntwo\n"), "{}", job.output("stdout"));
    job.stop(&["--reason", "deploy \u{1b}[31m"]);
    let done = env.quell("status").args([&job.id]).finish();
    assert_eq!(done.code(), Some(1), "it did not exit with 0: {}", done.stdout);
    for words in [
        "ended SIGTERM",
        "a stop was requested",
        "deploy \\x1b[31m",
        "counted: 0 left",
        "receipt.json",
        "2 lines",
    ] {
        assert!(done.stdout.contains(words), "no {words:?} in\n{}", done.stdout);
    }
}

#[test]
fn the_exit_code_says_how_it_is() {
    let env = TestEnv::as_me();
    let live = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let good = env.start().command(["true"]).begin();
    let bad = env.start().sh("exit 7").begin();
    assert!(good.wait_over(PATIENCE) && bad.wait_over(PATIENCE));
    let code = |words: &[&str]| env.quell("status").args(words).finish().code();
    assert_eq!(code(&[&live.id]), Some(0));
    assert_eq!(code(&[&good.id]), Some(0));
    assert_eq!(code(&[&bad.id]), Some(1));
    assert_eq!(code(&[&live.id, &bad.id, "nobody"]), Some(3));
    one_clear_line(&env.quell("status").args(["nobody"]).finish(), 3);
    for hostile in ["..", "/etc", "", "a/b", "../jobs"] {
        one_clear_line(&env.quell("status").args([hostile]).finish(), 2);
    }
    one_clear_line(&env.quell("status").finish(), 2);
    let done = env.quell("status").args([&live.id, &bad.id, "nobody", "--json"]).finish();
    let kinds: Vec<bool> = done.stdout.lines().map(|line| line.contains("\"ok\":true")).collect();
    assert_eq!(kinds, [true, true, false], "an envelope each: {}", done.stdout);
}

#[test]
fn a_lost_job_is_finished_before_it_is_shown() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--contain", "reaper"]).command(["sleep", &env.oracle.nap()]).begin();
    job.lose();
    let done = env.quell("status").args([&job.id]).finish();
    // Beside other processes that started after it, it can't be proven.
    let code = if verdict(&job.receipt().expect("a receipt")) == "gone" { 1 } else { 5 };
    assert_eq!(done.code(), Some(code), "{}", done.stdout);
    assert!(done.stdout.contains("its keeper was lost"), "{}", done.stdout);
    assert!(done.stderr.contains(&format!("the keeper of {} was lost", job.id)), "{}", done.stderr);
    assert!(job.is_over() && job.wait_quiet(PATIENCE).is_empty());
}

#[test]
fn a_root_whose_main_thread_has_exited_has_not_exited() {
    let env = TestEnv::as_me();
    let job = env.start().actor("leader-thread", None).begin();
    let root = format!("pid {}", job.process("root").expect("alive").pid);
    let status = env.quell("status").args([&job.id]).finish().stdout;
    assert!(status.contains(&root) && !status.contains("has exited"), "{status}");
    job.stop(&["--now"]);
}
