//! `quell stats`: over time, by label, with what was refused, and as a chart.

use std::{
    fs::{self, OpenOptions},
    io::Write,
};

use quell::binary::Home;
use quell_guard::{Decision, Guard, Policy, Verb};
use quell_tests::{
    evidence::{receipt, was_killed},
    host::has_program,
    run::{Finished, PATIENCE, Quell},
    skip,
    terminal::Terminal,
    test_env::TestEnv,
};
use serde_json::{Value, json};

const BLOCKS: &str = "▁▂▃▄▅▆▇█";

fn stats(env: &TestEnv, words: &[&str]) -> Value {
    let done = env.quell("stats").args(["--json"]).args(words).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    done.envelope()["data"].clone()
}

fn text(env: &TestEnv, words: &[&str]) -> String {
    env.quell("stats").args(words).env("LC_ALL", "C.UTF-8").finish().stdout
}

/// A policy that forbids every removal.
fn guard(env: &TestEnv) -> Guard {
    Guard::new(&Home::at(env.home()), Policy { deny: vec![Verb::Rm], ..Policy::default() })
}

/// Runs to the end and gives the receipt.
fn receipt_of<'l>(env: &'l TestEnv, line: impl FnOnce(Quell<'l>) -> Quell<'l>) -> Value {
    let file = env.fresh("receipt");
    let done: Finished = line(env.run().args(["--receipt"]).args([&file])).finish();
    receipt(&file).unwrap_or_else(|why| panic!("{:?}, {}: {why}", done.code(), done.stderr))
}

/// One that had to be killed at its timeout, one that ended when it was asked to, one that left a process behind, and one
/// that had no trouble.
fn four_ends(env: &TestEnv) -> [Value; 4] {
    let tag = |team: &'static str| ["--tag", team];
    let killed = receipt_of(env, |quell| {
        // It has to be up before its time is.
        let limits = ["--timeout", "2s", "--grace", "100ms"];
        quell.args(tag("team=a")).args(limits).actor("ignore-term", None)
    });
    let polite = receipt_of(env, |quell| {
        let limits = ["--timeout", "300ms", "--grace", "20s", "--tag", "web=1"];
        quell.args(tag("team=a")).args(limits).command(["sleep", &env.oracle.nap()])
    });
    let leaking = receipt_of(env, |quell| quell.args(tag("team=b")).actor("daemon-exit", None));
    let clean = receipt_of(env, |quell| quell.command(["true"]));
    [killed, polite, leaking, clean]
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// How many of the receipts show this.
fn count(receipts: &[&Value], shows: impl Fn(&Value) -> bool) -> u64 {
    receipts.iter().filter(|receipt| shows(receipt)).count() as u64
}

fn has_leaked(receipt: &Value) -> bool {
    receipt["left_at_root_exit"].as_array().is_some_and(|left| !left.is_empty())
}

/// The lower of the two in the middle, as the median is of what was measured.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len().div_ceil(2) - 1]
}

fn check(sums: &Value, receipts: &[&Value]) {
    assert_eq!(sums["jobs"], receipts.len(), "{sums:#}");
    assert_eq!(sums["timeouts"], count(receipts, |receipt| receipt["cause"] == "timeout"), "{sums:#}");
    assert_eq!(sums["killed"], count(receipts, was_killed), "{sums:#}");
    assert_eq!(sums["leaks"], count(receipts, has_leaked), "{sums:#}");
    assert_eq!(
        sums["not_proven"],
        count(receipts, |receipt| receipt["verdict"]["kind"] != "gone"),
        "{sums:#}"
    );
    let asked: Vec<&&Value> = receipts.iter().filter(|receipt| !receipt["grace"]["used"].is_null()).collect();
    let graces = |of: fn(&Value) -> f64| median(asked.iter().map(|receipt| of(&receipt["grace"])).collect());
    if asked.is_empty() {
        assert_eq!(sums["grace_used"], Value::Null, "{sums:#}");
        return;
    }
    // The totals have more than the median.
    let of = |name: &str| number(if sums[name].is_object() { &sums[name]["median"] } else { &sums[name] });
    // What is read from text may differ in the last digit.
    let same =
        |name: &str, wanted: f64| assert!((of(name) - wanted).abs() < 1e-9, "{name}, {wanted}: {sums:#}");
    same("grace_used", graces(|grace| number(&grace["used"])));
    same("grace_given", graces(|grace| number(&grace["asked"])));
    same("grace_share", graces(|grace| number(&grace["used"]) / number(&grace["asked"])));
}

#[test]
fn the_numbers_are_those_of_the_receipts_in_all_and_by_label() {
    let env = TestEnv::as_me();
    let [killed, polite, leaking, clean] = four_ends(&env);
    assert!(
        was_killed(&killed) && !was_killed(&polite) && has_leaked(&leaking),
        "not the ends that were meant"
    );
    let sums = stats(&env, &["--by", "week"]);
    check(&sums, &[&killed, &polite, &leaking, &clean]);
    assert!(number(&sums["grace_share"]["max"]) >= 1.0, "the deaf one used all of it: {sums:#}");
    let tags = sums["by_tag"].as_array().expect("labels");
    let names: Vec<String> = tags.iter().map(|tag| format!("{}={}", tag["key"], tag["value"])).collect();
    assert_eq!(names, [r#""team"="a""#, r#""team"="b""#, r#""web"="1""#]);
    check(&tags[0], &[&killed, &polite]);
    check(&tags[1], &[&leaking]);
    check(&tags[2], &[&polite]);
    let one_key = stats(&env, &["--by-tag", "web"]);
    assert_eq!((one_key["by_tag"].as_array().map(Vec::len), &one_key["jobs"]), (Some(1), &json!(4)));
    assert_eq!(stats(&env, &["--tag", "team=b"])["by_tag"].as_array().map(Vec::len), Some(1));
}

#[test]
fn over_time_every_job_is_in_the_piece_in_which_it_ended() {
    let env = TestEnv::as_me();
    let receipts = four_ends(&env);
    let sums = stats(&env, &[]);
    let pieces = sums["over_time"].as_array().expect("pieces of time");
    assert!(!pieces.is_empty(), "{sums:#}");
    for piece in pieces {
        assert_eq!(piece["seconds"], 60, "a test takes no longer than an hour: {piece:#}");
        // Minutes, so that the time of the end begins with that of the piece.
        let minute = &piece["start"].as_str().expect("a time")[..16];
        let ended =
            |receipt: &&Value| receipt["ended"]["wall"].as_str().is_some_and(|at| at.starts_with(minute));
        check(piece, &receipts.iter().filter(ended).collect::<Vec<_>>());
    }
    let of_all = pieces.iter().map(|piece| piece["jobs"].as_u64().expect("a number")).sum::<u64>();
    assert_eq!(of_all, 4);
}

#[test]
fn refusals_are_counted_by_code_and_a_damaged_line_is_passed_over() {
    let env = TestEnv::as_me();
    receipt_of(&env, |quell| quell.args(["--tag", "a=b"]).command(["true"]));
    let guard = guard(&env);
    assert!(guard.permit(Verb::Rm, "web", None).is_err());
    assert!(guard.permit(Verb::Stop, "web", None).is_ok(), "an allowance is no refusal");
    let mut log = OpenOptions::new().append(true).open(env.home().join("audit.jsonl")).expect("the log");
    log.write_all(b"{\"schema\":\"quell/1\",\"at\":\"2026-\n\xff\xfe\n[]\n\n").expect("some damage");
    let no =
        Decision::refuse(quell_core::DecisionCode::PidInit, "built-in", "Not that one.", "Take another.");
    assert!(guard.decided(Verb::Kill, "1", no).is_err());
    assert!(guard.permit(Verb::Rm, "web", None).is_err());
    // The last PID that there could be: nothing is refused, as there is nothing to act on.
    assert_eq!(env.quell("kill").args(["4194303"]).finish().code(), Some(3));
    let sums = stats(&env, &[]);
    assert_eq!(sums["refusals"], 3, "{sums:#}");
    assert_eq!(sums["refusals_by_code"], json!({"PID_INIT": 1, "VERB_DENIED": 2}), "{sums:#}");
    let pieces = sums["over_time"].as_array().expect("pieces of time");
    assert_eq!(pieces.iter().filter_map(|piece| piece["refusals"].as_u64()).sum::<u64>(), 3, "{sums:#}");
    let said = text(&env, &[]);
    assert!(said.contains("refusals    3 (1 PID_INIT, 2 VERB_DENIED)"), "{said}");
    // They have no label.
    let tagged = stats(&env, &["--tag", "a"]);
    assert_eq!((&tagged["refusals"], &tagged["jobs"]), (&Value::Null, &json!(1)), "{tagged:#}");
    assert!(!text(&env, &["--tag", "a"]).contains("refusals"));
}

#[test]
fn a_home_with_refusals_alone_tells_of_them() {
    let env = TestEnv::as_me();
    assert!(guard(&env).permit(Verb::Rm, "web", None).is_err());
    let said = text(&env, &["--chart"]);
    assert!(said.starts_with("0 jobs have ended\n  refusals  1 (1 VERB_DENIED)\n"), "{said}");
    assert!(said.contains("refusals  █  min 1, max 1"), "{said}");
}

#[test]
fn a_person_gets_the_grace_the_labels_and_a_chart_and_a_program_no_chart() {
    let env = TestEnv::as_me();
    four_ends(&env);
    let said = text(&env, &[]);
    let grace =
        said.lines().find(|line| line.starts_with("  grace used")).unwrap_or_else(|| panic!("{said}"));
    assert!(
        grace.contains("half used ") && grace.contains("9 in 10 used ") && grace.contains('%'),
        "{grace}"
    );
    assert!(said.contains("  time to exit  half within "), "{said}");
    assert!(said.contains("LABEL\n") && said.contains("  team=a\n") && said.contains("  web=1\n"), "{said}");
    assert!(!said.contains(|c| BLOCKS.contains(c)), "a chart for a program: {said}");
    let ascii = env.quell("stats").args(["--chart"]).env("LC_ALL", "C").finish().stdout;
    assert!(ascii.is_ascii() && ascii.contains("over time (UTC), a column is 1m"), "{ascii}");
    let blocks = text(&env, &["--chart", "--by", "hour"]);
    assert!(blocks.contains(|c| BLOCKS.contains(c)) && blocks.contains("a column is 1h"), "{blocks}");
    assert_eq!(env.quell("stats").args(["--chart", "--json"]).finish().code(), Some(2));
    assert_eq!(env.quell("stats").args(["--by", "second"]).finish().code(), Some(2));
}

#[test]
fn on_a_terminal_the_chart_fits_and_has_colours_on_request() {
    if !has_program("tmux") {
        return skip("on_a_terminal_the_chart_fits", "no tmux here");
    }
    let env = TestEnv::as_me();
    let long = format!("{}={}", "k".repeat(30), "v".repeat(60));
    receipt_of(&env, |quell| quell.args(["--tag", &long]).command(["true"]));
    // An old refusal, so that there are many pieces of time.
    assert!(guard(&env).permit(Verb::Rm, "web", None).is_err());
    let path = env.home().join("audit.jsonl");
    let line = fs::read_to_string(&path).expect("the log");
    let last = line.lines().last().expect("a line");
    let old: Value = serde_json::from_str(last).expect("a line");
    let old = json!({"at": "2024-01-01T00:00:00.000Z", "schema": old["schema"], "kind": "decision", "verb": "rm",
        "target": "x", "actor": old["actor"], "decision": old["decision"]});
    fs::write(&path, format!("{old}\n{line}")).expect("the log");

    let terminal = Terminal::open(&env);
    for columns in [80, 60] {
        terminal.resize(columns, 40);
        // tmux gives the shell its new size later.
        terminal.line(&format!("until [ \"$(stty size)\" = '40 {columns}' ]; do :; done"));
        terminal.line(&format!("clear; $Q stats; echo at {columns} done"));
        let screen = terminal.wait_for_line(&format!("at {columns} done"));
        // Lines that the terminal had to wrap come as one.
        let wide = screen.lines().filter(|line| line.trim_end().chars().count() > columns as usize);
        assert_eq!(wide.collect::<Vec<_>>(), Vec::<&str>::new(), "{screen}");
        assert!(screen.contains("over time (UTC)") && screen.contains("T00:00"), "{screen}");
        for measure in ["jobs", "timeouts", "killed", "leaks", "refusals"] {
            let drawn =
                |line: &&str| line.trim_start().starts_with(measure) && line.contains(|c| BLOCKS.contains(c));
            assert_eq!(screen.lines().filter(drawn).count(), 1, "{measure}: {screen}");
        }
    }
    let seen = |name: &str, variables: &str| {
        let file = env.path(name);
        // script(1) gives the command a terminal and keeps what it wrote.
        terminal.line(&format!(
            "{variables} script -qec \"$Q stats\" {} >/dev/null; echo {name} done",
            file.display()
        ));
        terminal.wait_for_line(&format!("{name} done"));
        fs::read_to_string(file).expect("what script(1) kept")
    };
    assert!(seen("with", "NO_COLOR=").contains("\u{1b}[2m▁"), "no colours");
    let plain = seen("without", "NO_COLOR=1");
    let kept = plain.lines().skip(1).collect::<String>();
    assert!(plain.contains('▁') && !kept.contains('\u{1b}'), "colours in spite of NO_COLOR: {plain:?}");
    let ascii = seen("ascii", "NO_COLOR=1 LC_ALL=C");
    assert!(!ascii.contains(|c| BLOCKS.contains(c)) && ascii.contains("over time (UTC)"), "{ascii}");
}

#[test]
fn a_kill_because_the_keeper_was_killed_counts() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    assert!(job.process("keeper").expect("a keeper").signal("KILL"));
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    let found = stats(&env, &[]);
    assert_eq!((&found["stopped"], &found["killed"]), (&json!(1), &json!(1)), "{found:#}");
    assert!(found.get("kill_rate").is_none(), "it was not asked to end: {found:#}");
}

#[test]
fn the_share_of_the_killed_is_told_with_the_numbers_that_it_is_made_of() {
    let env = TestEnv::as_me();
    // Two are asked and one of them is killed after its grace. A third is killed and was never asked.
    let deaf = env.run().args(["--timeout", "1s", "--grace", "100ms"]).actor("ignore-term", None).finish();
    assert_eq!(deaf.code(), Some(124), "{}", deaf.stderr);
    let polite = env.start().command(["sleep", &env.oracle.nap()]).begin();
    assert_eq!(polite.stop(&[]).code(), Some(0));
    let lost = env.start().command(["sleep", &env.oracle.nap()]).begin();
    assert!(lost.process("keeper").expect("a keeper").signal("KILL"));
    assert!(lost.wait_over(PATIENCE), "{}", lost.state());
    let said = text(&env, &[]);
    assert!(said.contains("  2: 1 of 2 jobs did not exit within the grace (50 %)"), "{said}");
    let found = stats(&env, &[]);
    let numbers = (&found["killed"], &found["asked"], &found["asked_killed"], &found["kill_rate"]);
    assert_eq!(numbers, (&json!(2), &json!(2), &json!(1), &json!(0.5)), "{found:#}");
}
