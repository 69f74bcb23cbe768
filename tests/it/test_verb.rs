//! `quell test`: nothing runs that the guard refuses; what runs is bounded, counted and gone when it is over.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use quell_tests::{
    all_hold, eventually,
    evidence::{receipt, says_gone},
    host::has_program,
    oracle::Process,
    run::{Finished, PATIENCE, Quell},
    skip,
    test_env::TestEnv,
};
use serde_json::{Value, json};

/// An environment with directories that tests can be in.
pub(crate) fn test_env() -> TestEnv {
    let env = TestEnv::as_me();
    for dir in ["tests", "tests_evil", "src"] {
        fs::create_dir(env.path(dir)).expect("mkdir");
    }
    env
}

/// A program in place of a runner, which leaves a file when it is run and ends as pytest, unittest and cargo do: with a report.
pub(crate) const RUNNER: &str = "#!/bin/sh
touch \"$HOME/ran\"
for word; do case $word in --junitxml=*) echo '<testsuite tests=\"1\"><testcase name=\"a\"/></testsuite>' >\"${word#*=}\";; esac; done
echo 'Ran 1 test in 0.001s'
echo 'OK'
echo 'running 0 tests'
echo 'test result: ok. 0 passed; 0 failed; 0 ignored'
echo '     Summary [   0.001s] 0 tests run: 0 passed, 0 skipped'
";

/// `pytest`, if it is there, without files that only it needs.
fn pytest<'l>(env: &'l TestEnv, test: &str) -> Option<impl Fn(&[&str], &[&str]) -> Quell<'l>> {
    if !has_program("pytest-3") {
        skip(test, "no pytest here");
        return None;
    }
    Some(move |options: &[&str], words: &[&str]| {
        let quell = env.quell("test").args(["--json"]).args(options).env("PYTHONDONTWRITEBYTECODE", "1");
        quell.command(["pytest-3", "-p", "no:cacheprovider"].iter().chain(words))
    })
}

pub(crate) fn data(done: &Finished) -> Value {
    let envelope = done.envelope();
    assert_eq!(envelope["ok"], true, "{envelope:#}");
    envelope["data"].clone()
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The lines of the audit log about this verb.
fn audit_of(env: &TestEnv, verb: &str) -> Vec<Value> {
    audit(env).into_iter().filter(|line| line["verb"] == verb).collect()
}

/// The lines of the audit log.
pub(crate) fn audit(env: &TestEnv) -> Vec<Value> {
    let text = fs::read_to_string(env.home().join("audit.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// The published schema says what this is.
pub(crate) fn fits(what: &str, value: &Value) {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schema/test.json");
    // The tests may run where the source is not.
    let Ok(schema) = receipt(&schema) else { return skip(what, "no docs/schema here") };
    let validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let errors: Vec<String> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{what}: {errors:#?}\n{value:#}");
}

fn hanging(env: &TestEnv) -> PathBuf {
    let nap = env.oracle.nap();
    let text = format!(
        "import subprocess, time\n\
         def test_good():\n    print('heard')\n\
         def test_bad():\n    assert 1 == 2\n\
         def test_hangs():\n    \
             subprocess.Popen(['sleep', '{nap}'], start_new_session=True)\n    \
             time.sleep({nap})\n"
    );
    env.write("tests/test_hang.py", &text)
}

#[test]
fn a_hanging_pytest_times_out_and_its_child_in_another_session_is_gone() {
    let name = "a_hanging_pytest_times_out_and_its_child_in_another_session_is_gone";
    let forms = [(&["-v"][..], true), (&[], false), (&["-q"], false)];
    let cases: Vec<_> = ["auto", "reaper"].into_iter().flat_map(|c| forms.map(|form| (c, form))).collect();
    // Side by side, as each takes the whole of its time, which has to be enough for a pytest on a busy machine.
    all_hold(cases.len(), &cases, |&(contain, (words, running))| {
        let env = test_env();
        let Some(pytest) = pytest(&env, name) else { return Ok(()) };
        env.write("quell.toml", &format!("[start]\ncontain = \"{contain}\"\n"));
        hanging(&env);
        let options = ["--scope", "tests", "--timeout", "12s", "--evidence", "evidence.json"];
        let done = pytest(&options, &[words, &["tests/test_hang.py"]].concat()).finish();
        let data = data(&done);
        assert_eq!((done.code(), &data["status"]), (Some(124), &json!("timeout")), "{data:#}");
        assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{contain}");
        says_gone(&data["receipt"])?;
        assert_eq!(data["receipt"]["cause"], "timeout");
        assert_eq!(data["timeout_triggered"], true);
        let counts = &data["counts"];
        assert_eq!((&counts["passed"], &counts["failed"]), (&json!(1), &json!(1)), "{data:#}");
        assert_eq!((&counts["complete"], &counts["source"]), (&json!(false), &json!("pytest")));
        assert!(!data["stdout"]["text"].as_str().expect("a text").is_empty(), "{data:#}");
        if running {
            assert_eq!(data["running_test"], "tests/test_hang.py::test_hangs", "{data:#}");
            assert_eq!(strings(&data["failed_tests"]), ["tests/test_hang.py::test_bad"]);
        }
        let tree = data["tree_at_timeout"]["processes"].as_array().expect("a tree");
        let sleeps = |process: &&Value| process["command"] == format!("sleep {}", env.oracle.nap());
        let child = tree.iter().find(sleeps).unwrap_or_else(|| panic!("no sleep: {data:#}"));
        assert_eq!(child["sid"], child["pid"], "it leads its session");
        fits("a timeout", &data);
        let written = receipt(&env.path("evidence.json"))?;
        assert_eq!(written, data);
        assert_eq!(fs::metadata(env.path("evidence.json")).expect("stat").mode() & 0o777, 0o600);
        Ok(())
    });
}

#[test]
fn a_pytest_that_passes_and_leaves_a_process_ends_as_leak_and_names_it() {
    let env = test_env();
    let Some(pytest) = pytest(&env, "a_pytest_that_passes_and_leaves_a_process_ends_as_leak_and_names_it")
    else {
        return;
    };
    let nap = env.oracle.nap();
    let text = format!(
        "import subprocess\ndef test_it():\n    subprocess.Popen(['sleep', '{nap}'], start_new_session=True)\n"
    );
    env.write("tests/test_leak.py", &text);
    for (options, code, status) in
        [(&[][..], 1, "leak"), (&["--leak", "report"], 0, "pass"), (&["--leak", "stop"], 0, "pass")]
    {
        let done = pytest(options, &["tests/test_leak.py"]).finish();
        let data = data(&done);
        assert_eq!((done.code(), &data["status"]), (Some(code), &json!(status)), "{data:#}");
        assert_eq!(data["leaked"].as_array().map(Vec::len), Some(1), "{data:#}");
        assert_eq!(data["leaked"][0]["command"], format!("sleep {nap}"));
        assert_eq!((&data["exit_code"], &data["counts"]["passed"]), (&json!(0), &json!(1)));
        assert_eq!(env.oracle.survivors_after(PATIENCE), []);
        fits("a leak", &data);
    }
}

#[test]
fn a_process_that_exits_right_after_the_tests_is_not_a_leak() {
    let env = test_env();
    let done = env.quell("test").args(["--json"]).sh("sleep 0.2 & exit 0").finish();
    let data = data(&done);
    assert_eq!(
        (done.code(), &data["status"], &data["leaked"]),
        (Some(0), &json!("pass"), &json!([])),
        "{data:#}"
    );
}

#[test]
fn the_exit_codes_of_pytest_decide_the_status() {
    let env = test_env();
    let Some(pytest) = pytest(&env, "the_exit_codes_of_pytest_decide_the_status") else { return };
    env.write("tests/test_good.py", "def test_a(): pass\ndef test_b(): pass\n");
    env.write("tests/test_bad.py", "def test_a(): pass\ndef test_b(): assert 0\n");
    env.write("tests/test_broken.py", "import no_such_module\n");
    env.write("tests/test_none.py", "");
    for (words, code, status, counts) in [
        (&["tests/test_good.py"][..], 0, "pass", [2, 0, 0]),
        (&["-q", "tests/test_bad.py"], 1, "fail", [1, 1, 0]),
        (&["tests/test_bad.py::test_a"], 0, "pass", [1, 0, 0]),
        (&["tests/test_broken.py"], 125, "error", [0, 0, 1]),
        (&["tests/test_none.py"], 125, "error", [0, 0, 0]),
        (&["tests/test_good.py", "--no-such-option"], 125, "error", [99, 99, 99]),
    ] {
        // With a scope the guard would refuse what it doesn't know.
        let scope = if words.contains(&"--no-such-option") { &[][..] } else { &["--scope", "tests"] };
        let done = pytest(scope, words).finish();
        let data = data(&done);
        assert_eq!((done.code(), &data["status"]), (Some(code), &json!(status)), "{words:?}: {data:#}");
        let count = |what: &str| data["counts"][what].as_u64().unwrap_or(99);
        assert_eq!([count("passed"), count("failed"), count("errors")], counts, "{words:?}: {data:#}");
        fits("a run of pytest", &data);
    }
    let data = data(&pytest(&[], &["tests/test_bad.py", "tests/test_none.py"]).finish());
    assert_eq!(strings(&data["failed_tests"]), ["tests/test_bad.py::test_b"]);
}

#[test]
fn bytes_that_are_not_text_are_kept() {
    let env = test_env();
    let done =
        env.quell("test").args(["--json"]).sh("printf 'caf\\351\\n\\377\\000'; printf good >&2").finish();
    let data = data(&done);
    assert_eq!(data["stdout"]["base64"], "Y2Fm6Qr/AA==", "{data:#}");
    assert_eq!(data["stdout"]["bytes"], 7);
    assert!(
        data["stdout"]["text"].as_str().is_some_and(|text| text.starts_with("caf\u{fffd}\n")),
        "{data:#}"
    );
    assert_eq!((&data["stderr"]["text"], &data["stderr"]["base64"]), (&json!("good"), &Value::Null));
}

#[test]
fn a_large_output_is_cut_to_its_head_and_tail() {
    let env = test_env();
    let script = "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done";
    let data = data(&env.quell("test").args(["--json", "--max-output", "1K"]).sh(script).finish());
    let whole: String = (0..3000).map(|n| format!("line {n}\n")).collect();
    let (text, cut) = (data["stdout"]["text"].as_str().expect("a text"), &data["stdout"]["cut"]);
    assert!(text.len() <= 1024 && text.len() > 900, "{}", text.len());
    assert_eq!(data["stdout"]["bytes"], whole.len());
    assert_eq!(cut["bytes"], whole.len() - text.len());
    let (head, tail) = text.split_at(cut["at"].as_u64().expect("a place") as usize);
    assert!(whole.starts_with(head) && head.ends_with('\n'), "{head}");
    assert!(whole.ends_with(tail) && tail.starts_with("line "), "{tail}");
}

#[test]
fn a_report_that_is_missing_old_or_damaged_is_an_error() {
    let env = test_env();
    let good =
        "<testsuite><testcase classname='a' name='x'/><testcase name='y'><failure/></testcase></testsuite>";
    let half = &good[..good.len() - 12];
    let write = |text: &str, code: i32| format!("cat >report.xml <<'END'\n{text}\nEND\nexit {code}");
    let run = |script: &str| {
        let done = env.quell("test").args(["--json", "--junit", "report.xml"]).sh(script).finish();
        (done.code(), data(&done))
    };
    let (code, fresh) = run(&write(good, 0));
    assert_eq!(
        (code, &fresh["status"], &fresh["counts"]["source"]),
        (Some(1), &json!("fail"), &json!("junit")),
        "{fresh:#}"
    );
    assert_eq!((&fresh["counts"]["passed"], &fresh["counts"]["failed"]), (&json!(1), &json!(1)));
    assert_eq!(strings(&fresh["failed_tests"]), ["y"]);
    let (code, old) = run("exit 0");
    assert_eq!(
        (code, &old["status"], &old["counts"]["source"]),
        (Some(125), &json!("error"), &json!("exit_code")),
        "{old:#}"
    );
    assert_eq!(old["reason"], "the command exited with 0, but its report can't be used");
    assert_eq!(strings(&old["problems"]), ["the report report.xml can't be used: it is from before the run"]);
    assert_eq!(
        (&old["junit"]["used"], &old["junit"]["problem"]),
        (&json!(false), &json!("it is from before the run"))
    );
    let (code, cut) = run(&write(half, 7));
    assert_eq!((code, &cut["status"], &cut["exit_code"]), (Some(125), &json!("error"), &json!(7)), "{cut:#}");
    assert_eq!((&cut["counts"]["complete"], &cut["counts"]["passed"]), (&json!(false), &json!(1)), "{cut:#}");
    assert!(cut["junit"]["problem"].is_string(), "{cut:#}");
    let (code, none) = run("rm report.xml");
    assert_eq!((code, &none["junit"]["used"]), (Some(125), &json!(false)), "{none:#}");
    let done = env.quell("test").args(["--junit", "report.xml"]).sh("exit 0").finish();
    assert_eq!(done.code(), Some(125), "{}", done.stdout);
    assert!(
        done.stdout.contains("  the report report.xml can't be used: it does not exist\n"),
        "{}",
        done.stdout
    );
    fits("a run with a report", &cut);
}

#[test]
fn evidence_that_cant_be_written_is_an_error_before_anything_runs() {
    let env = test_env();
    fs::create_dir(env.path("dir")).expect("mkdir");
    symlink("elsewhere", env.path("link")).expect("a link");
    for path in ["no/such/dir/x.json", "dir", "dir/"] {
        let done = env.quell("test").args(["--json", "--evidence", path]).sh("touch ran").finish();
        let envelope = done.envelope();
        assert_eq!(
            (done.code(), &envelope["error"]["code"]),
            (Some(125), &json!("io")),
            "{path}: {envelope:#}"
        );
        assert!(!env.path("ran").exists(), "{path}");
    }
    assert_eq!(fs::read_dir(env.path("dir")).expect("a directory").count(), 0, "nothing is left there");
    let again = |words: [&str; 1]| {
        env.quell("test").args(["--json", "--evidence", "old.json"]).command(words).finish()
    };
    again(["true"]);
    let done = again(["no-such-program"]);
    let (data, written) = (data(&done), receipt(&env.path("old.json")).expect("evidence"));
    assert_eq!((done.code(), &data["status"]), (Some(125), &json!("error")), "{data:#}");
    assert_eq!((&data["error"]["code"], &written), (&json!("program_not_found"), &data), "{data:#}");
    fits("an error", &written);
}

#[test]
fn a_run_is_in_the_audit_log_with_its_decision_and_result() {
    let env = test_env();
    let data = data(&env.quell("test").args(["--json"]).sh("exit 3").finish());
    assert_eq!(
        (&data["status"], &data["exit_code"], &data["counts"]["source"]),
        (&json!("fail"), &json!(3), &json!("exit_code"))
    );
    let lines = audit_of(&env, "test");
    let kinds: Vec<&str> = lines.iter().filter_map(|line| line["kind"].as_str()).collect();
    assert_eq!(kinds, ["decision", "act"], "{lines:#?}");
    assert_eq!(
        (&lines[1]["receipt"], &lines[1]["result"]["status"]),
        (&data["job"], &json!("fail")),
        "{lines:#?}"
    );
    assert_eq!(
        (&lines[0]["decision"]["allowed"], &lines[0]["target"]),
        (&json!(true), &json!("sh -c exit 3"))
    );
}

#[test]
fn tests_end_with_the_quell_that_runs_them() {
    for signal in ["KILL", "TERM"] {
        let env = test_env();
        let mut running =
            env.quell("test").script("setsid sleep $N & echo ready >$QUELL_TEST_READY; sleep $N").start();
        running.wait_ready().expect("ready");
        assert!(running.front.signal(signal), "no quell");
        running.wait_exit(PATIENCE).expect("quell ends");
        assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{signal}");
    }
}

#[test]
fn a_person_sees_what_the_tests_write_and_a_summary() {
    let env = test_env();
    let done = env.quell("test").sh("echo to stdout; echo to stderr >&2; exit 1").finish();
    assert_eq!(done.code(), Some(1));
    assert!(done.stdout.starts_with("to stdout\nquell: fail: the command exited with 1"), "{}", done.stdout);
    assert_eq!(done.stderr, "to stderr\n");
    let done = env.quell("test").args(["--scope", "tests"]).command(["pytest", "src"]).finish();
    assert_eq!((done.code(), done.stdout.as_str()), (Some(4), ""));
    assert!(done.stderr.starts_with("quell: `src` is not below tests ("), "{}", done.stderr);
}

#[test]
fn a_summary_says_if_a_part_of_the_output_was_not_kept() {
    let env = test_env();
    let limited = || env.quell("test").env("QUELL_START_MAX_LOG", "10K");
    let done = limited().command(["seq", "100000"]).finish();
    let last = done.stdout.lines().last().unwrap_or_default();
    assert!(last.contains("shows the output that was kept; ") && !last.contains("whole"), "{last}");
    let done = limited().command(["seq", "10"]).finish();
    assert!(done.stdout.ends_with("shows the whole output\n"), "{}", done.stdout);
}

/// 64 MB in lines of two bytes: they were read one by one for longer than the tests ran.
#[test]
fn many_short_lines_do_not_hold_up_the_result() {
    let env = test_env();
    let done = env.quell("test").args(["--timeout", "1s", "--json"]).command(["yes"]).finish();
    let answer = data(&done);
    assert_eq!((done.code(), &answer["status"]), (Some(124), &json!("timeout")), "{answer:#}");
    // Its time limit is 1 s. A debug build took 50 s when each line was read on its own.
    assert!(done.took < Duration::from_secs(15), "{:?}", done.took);
}

#[test]
fn a_runner_that_is_stopped_or_dies_is_an_error_and_not_a_test_failure() {
    let env = test_env();
    let done = env.quell("test").args(["--json"]).sh("kill -KILL $$").finish();
    let died = data(&done);
    assert_eq!(
        (done.code(), &died["status"], &died["signal"]),
        (Some(125), &json!("error"), &json!("KILL")),
        "{died:#}"
    );
    let mut running = env
        .quell("test")
        .args(["--json", "--name", "suite"])
        .script("echo ready >$QUELL_TEST_READY; sleep $N")
        .start();
    running.wait_ready().expect("ready");
    assert_eq!(env.quell("stop").args(["suite"]).finish().code(), Some(0));
    let done = running.finish();
    let stopped = data(&done);
    assert_eq!((done.code(), &stopped["status"]), (Some(125), &json!("error")), "{stopped:#}");
    assert_eq!(
        (&stopped["reason"], &stopped["leaked"]),
        (&json!("it was stopped"), &json!([])),
        "{stopped:#}"
    );
    fits("a run that was stopped", &stopped);
}

#[test]
fn a_leak_has_its_own_command_line_and_not_that_of_its_parent() {
    let env = test_env();
    let nap = env.oracle.nap();
    for round in 0..5 {
        let done = env.quell("test").args(["--json"]).sh(&format!("setsid sleep {nap} & exit 0")).finish();
        let data = data(&done);
        assert_eq!(data["status"], "leak", "{data:#}");
        let left: Vec<&str> =
            data["leaked"].as_array().into_iter().flatten().filter_map(|it| it["command"].as_str()).collect();
        assert_eq!(left, [format!("sleep {nap}")], "round {round}: {data:#}");
    }
}

#[test]
fn a_signal_to_quell_stops_the_tests_and_is_in_the_result() {
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("QUIT", 3)] {
        let env = test_env();
        // They don't heed TERM, so that the end of their tree takes the whole grace.
        let script = "trap '' TERM; setsid sleep $N & echo ready >$QUELL_TEST_READY; sleep $N; sleep $N";
        let quell = env.quell("test").args(["--json", "--grace", "300ms", "--evidence", "ev.json"]);
        let mut running = quell.script(script).start();
        running.wait_ready().expect("ready");
        assert!(running.front.signal(signal), "no quell");
        let done = running.finish();
        // Right now, as it has said that they are gone. Its keepers end behind it.
        let left = env.oracle.survivors();
        let tests = left.iter().filter(|process| !process.command.starts_with("quell ")).collect::<Vec<_>>();
        assert_eq!(tests, Vec::<&Process>::new(), "{signal}");
        let answer = data(&done);
        assert_eq!((done.code(), &answer["status"]), (Some(128 + number), &json!("error")), "{answer:#}");
        assert_eq!(answer["reason"], format!("it was stopped ({signal} came to `quell test`)"));
        assert_eq!(answer["receipt"]["verdict"]["kind"], "gone", "{answer:#}");
        let evidence = receipt(&env.path("ev.json")).expect("evidence");
        assert_eq!((&evidence["status"], &evidence["job"]), (&json!("error"), &answer["job"]), "{signal}");
        let lines = audit_of(&env, "test");
        let kinds: Vec<&Value> = lines.iter().map(|line| &line["kind"]).collect();
        assert_eq!(kinds, ["decision", "act"], "{signal}");
        assert_eq!(lines[1]["receipt"], answer["job"], "{signal}");
    }
}

#[test]
fn a_pytest_whose_tests_print_is_counted_up_to_its_timeout() {
    let env = test_env();
    let Some(pytest) = pytest(&env, "a_pytest_whose_tests_print_is_counted_up_to_its_timeout") else {
        return;
    };
    hanging(&env);
    let done = pytest(&["--timeout", "3s"], &["-v", "-s", "tests/test_hang.py"]).finish();
    let data = data(&done);
    let counts = &data["counts"];
    assert_eq!((&counts["passed"], &counts["failed"]), (&json!(1), &json!(1)), "{data:#}");
    assert_eq!(data["running_test"], "tests/test_hang.py::test_hangs", "{data:#}");
}

#[test]
fn a_time_limit_that_is_reached_before_the_start_is_a_timeout() {
    let env = test_env();
    for round in 0..10 {
        let done = env.quell("test").args(["--json", "--timeout", "1ms"]).sh("sleep 5").finish();
        let data = data(&done);
        assert_eq!(
            (done.code(), &data["status"], &data["timeout_triggered"]),
            (Some(124), &json!("timeout"), &json!(true)),
            "round {round}: {data:#}"
        );
        fits("a timeout before the start", &data);
    }
}

#[test]
fn xml_that_is_not_a_report_is_not_counted() {
    let env = test_env();
    let script = "echo '<html></html>' >report.xml";
    let done = env.quell("test").args(["--json", "--junit", "report.xml"]).sh(script).finish();
    let data = data(&done);
    assert_eq!((done.code(), &data["counts"]["source"]), (Some(125), &json!("exit_code")), "{data:#}");
    assert_eq!(
        (&data["junit"]["used"], &data["junit"]["problem"]),
        (&json!(false), &json!("it is not a report of tests")),
        "{data:#}"
    );
}

#[test]
fn a_second_signal_to_quell_kills_the_tests_at_once() {
    let env = test_env();
    let script =
        "trap 'echo heard >$HERE/heard' TERM; echo ready >$QUELL_TEST_READY; while :; do sleep 0.1; done";
    let quell = env.quell("test").env("HERE", env.dir()).args(["--json", "--grace", "40s"]);
    let mut running = quell.script(script).start();
    running.wait_ready().expect("ready");
    assert!(running.front.signal("TERM"), "no quell");
    assert!(eventually(PATIENCE, || env.path("heard").exists()), "they were asked");
    assert!(running.front.signal("INT"), "no quell");
    let done = running.finish();
    assert_eq!((done.code(), &data(&done)["signal"]), (Some(128 + 15), &json!("KILL")), "{}", done.stdout);
}

#[test]
fn a_file_that_cant_be_loaded_and_an_aborted_program_are_errors() {
    let env = test_env();
    env.write("tests/test_imp.py", "import nosuchmod\n");
    env.write("tests/__init__.py", "");
    let cargo =
        "printf 'running 2 tests\\ntest a ... ok\\nerror: test failed, to rerun pass `--lib`\\n'; exit 101";
    env.script("cargo", &format!("#!/bin/sh\n{cargo}\n"));
    let unittest = ["python3", "-m", "unittest"];
    for (words, reason) in [
        ([&unittest[..], &["tests/test_imp.py"]].concat(), "unittest could not load test_imp (exit code 1)"),
        ([&unittest[..], &["discover", "tests"]].concat(), "unittest could not load test_imp (exit code 1)"),
        (vec!["./cargo", "test"], "the runner exited before it had reported its results (exit code 101)"),
    ] {
        let quell = env.quell("test").args(["--json"]).env("PYTHONDONTWRITEBYTECODE", "1");
        let done = quell.command(&words).finish();
        let data = data(&done);
        assert_eq!((done.code(), &data["status"]), (Some(125), &json!("error")), "{words:?}: {data:#}");
        assert!(data["reason"].as_str().is_some_and(|said| said.contains(reason)), "{words:?}: {data:#}");
    }
}

#[test]
fn a_runner_that_exits_with_0_before_its_end_is_an_error() {
    let env = test_env();
    let cut_off = |words: &[&str]| {
        let quell = env.quell("test").args(["--json"]).env("PYTHONDONTWRITEBYTECODE", "1");
        let done = quell.command(words).finish();
        let data = data(&done);
        assert_eq!((done.code(), &data["status"]), (Some(125), &json!("error")), "{words:?}: {data:#}");
        let reason = "the runner exited with 0 before it had reported its results";
        assert_eq!((&data["reason"], &data["exit_code"]), (&json!(reason), &json!(0)), "{words:?}: {data:#}");
        assert_eq!(data["counts"]["complete"], false, "{words:?}: {data:#}");
        fits("a runner that was cut off", &data);
    };
    let text = "import os, unittest\nclass TestIt(unittest.TestCase):\n    def test_a(self): pass\n    \
                def test_b(self): os._exit(0)\n    def test_c(self): pass\n";
    env.write("tests/test_exit.py", text);
    cut_off(&["python3", "-m", "unittest", "tests/test_exit.py"]);
    env.script("cargo", "#!/bin/sh\nprintf 'running 2 tests\\ntest a ... ok\\n'\n");
    cut_off(&["./cargo", "test"]);
    env.script("cargo", "#!/bin/sh\necho '    Finished `test` profile' >&2\n");
    cut_off(&["./cargo", "test"]);
    cut_off(&["./cargo", "nextest", "run"]);
    env.script("jest", "#!/bin/sh\nprintf '  ●  process.exit called with \"0\"\\n' >&2\n");
    cut_off(&["./jest", "tests"]);
    if !has_program("pytest-3") {
        return skip("a_runner_that_exits_with_0_before_its_end_is_an_error", "no pytest here");
    }
    let pytest = ["pytest-3", "-p", "no:cacheprovider", "tests/test_exit.py"];
    // With -q and no test before it nothing at all is printed.
    for words in [&[][..], &["-v"], &["-q", "-k", "test_b"], &["-qq"], &["--junitxml=report.xml"]] {
        cut_off(&[&pytest[..], words].concat());
    }
    // Without a report, the printed results decide.
    for words in [&[][..], &["-v"], &["-q"]] {
        cut_off(&[&pytest[..], &["-p", "no:junitxml"], words].concat());
    }
    env.write("pytest.ini", "[pytest]\naddopts = -p no:junitxml\n");
    cut_off(&pytest);
    fs::remove_file(env.path("pytest.ini")).expect("rm");
    // pytest reports its totals, but the test that ended it has not passed.
    env.write(
        "tests/test_exit.py",
        "import pytest\ndef test_a(): pass\ndef test_b(): pytest.exit('x', returncode=0)\n",
    );
    cut_off(&pytest);
}

#[test]
fn a_runner_that_is_asked_for_help_passes_without_results() {
    let env = test_env();
    env.write("tests/test_a.py", "def test_a(): pass\n");
    let passes = |words: &[&str]| {
        let quell = env.quell("test").args(["--json"]).env("PYTHONDONTWRITEBYTECODE", "1");
        let done = quell.command(words).finish();
        assert_eq!(
            (done.code(), &data(&done)["status"]),
            (Some(0), &json!("pass")),
            "{words:?} {}",
            done.stdout
        );
    };
    env.script("quiet", "#!/bin/sh\n");
    for name in ["cargo", "go", "jest", "vitest", "cargo-nextest"] {
        symlink("quiet", env.path(name)).expect("a link");
    }
    for line in ["./quiet", "sh -c true", "./cargo test --no-run", "./go test ."] {
        passes(&line.split(' ').collect::<Vec<_>>());
    }
    for line in ["./cargo test --help", "./cargo test -- --list", "./cargo test --examples"] {
        passes(&line.split(' ').collect::<Vec<_>>());
    }
    for line in
        ["./jest --listTests", "./vitest list", "./cargo-nextest run --no-run", "./cargo nextest list"]
    {
        passes(&line.split(' ').collect::<Vec<_>>());
    }
}

#[test]
fn a_run_of_pytest_or_unittest_without_a_test_is_an_error() {
    let env = test_env();
    env.write("tests/test_a.py", "def test_a(): pass\n");
    let status = |words: &[&str]| {
        let quell = env.quell("test").args(["--json"]).env("PYTHONDONTWRITEBYTECODE", "1");
        let done = quell.command(words).finish();
        (done.code(), data(&done)["status"].clone(), data(&done)["reason"].to_string())
    };
    let ran_none = |words: &[&str]| {
        let (code, status, reason) = status(words);
        assert_eq!((code, &status), (Some(125), &json!("error")), "{words:?} {reason}");
        // With --setup-plan pytest prints an outline of the tests, and no result of any.
        let reasons = ["no test", "before it had reported its results"];
        assert!(reasons.iter().any(|known| reason.contains(known)), "{words:?} {reason}");
    };
    ran_none(&["python3", "-m", "unittest", "--help"]);
    if !has_program("pytest-3") {
        return skip("a_run_of_pytest_or_unittest_without_a_test_is_an_error", "no pytest here");
    }
    let lists = ["--version", "--help", "--markers", "--fixtures", "--collect-only", "--co", "--setup-plan"];
    for words in lists {
        ran_none(&["pytest-3", "-p", "no:cacheprovider", "tests", words]);
    }
    for words in ["--fixtures", "--collect-only", "--setup-plan"] {
        ran_none(&["pytest-3", "-p", "no:cacheprovider", "-p", "no:junitxml", "tests", words]);
    }
    for words in [&["-qq"][..], &["-p", "no:junitxml", "-q"], &["-p", "no:junitxml", "-v", "--no-summary"]] {
        let (code, status, reason) =
            status(&[&["pytest-3", "-p", "no:cacheprovider", "tests"], words].concat());
        assert_eq!((code, &status), (Some(0), &json!("pass")), "{words:?} {reason}");
    }
}

#[test]
fn the_tests_of_unittest_are_counted_and_the_failed_ones_named() {
    let env = test_env();
    let text = "import unittest\nclass TestIt(unittest.TestCase):\n    def test_a(self): self.fail()\n    def test_b(self): pass\n";
    env.write("tests/test_fail.py", text);
    let words = ["python3", "-m", "unittest", "tests/test_fail.py"];
    let done = env.quell("test").args(["--json"]).env("PYTHONDONTWRITEBYTECODE", "1").command(words).finish();
    let data = data(&done);
    let counts = json!({ "passed": 1, "failed": 1, "skipped": 0, "errors": 0, "complete": true, "source": "unittest" });
    assert_eq!((done.code(), &data["counts"]), (Some(1), &counts), "{data:#}");
    assert_eq!(strings(&data["failed_tests"]), ["tests.test_fail.TestIt.test_a"]);
}

#[test]
fn setsid_does_not_hide_the_result_of_the_tests() {
    let env = test_env();
    let text = "import unittest\nclass TestIt(unittest.TestCase):\n    def test_a(self): self.fail()\n";
    env.write("tests/test_fail.py", text);
    let run = |words: &[&str]| {
        let words = [words, &["python3", "-m", "unittest", "tests/test_fail.py"]].concat();
        env.quell("test").args(["--json"]).env("PYTHONDONTWRITEBYTECODE", "1").command(words).finish()
    };
    let done = run(&["setsid"]);
    assert_eq!((done.code(), &done.envelope()["error"]["code"]), (Some(4), &json!("PATH_OPTION")));
    let done = run(&["setsid", "-w"]);
    assert_eq!((done.code(), &data(&done)["status"]), (Some(1), &json!("fail")), "{}", done.stdout);
}

#[test]
fn the_report_that_pytest_writes_for_quell_replaces_no_other() {
    let name = "the_report_that_pytest_writes_for_quell_replaces_no_other";
    let env = test_env();
    let Some(pytest) = pytest(&env, name) else { return };
    let text = "import subprocess\nclass TestX:\n    def test_nested(self):\n        \
                subprocess.run(['pytest-3', '-p', 'no:cacheprovider', 'src'])\ndef test_bad(): assert 0\n";
    env.write("tests/test_a.py", text);
    env.write("src/test_b.py", "def test_1(): pass\ndef test_2(): pass\ndef test_3(): pass\n");
    let run = |words: &[&str]| data(&pytest(&[], &[words, &["tests"]].concat()).finish());
    let counts = |answer: &Value| {
        let counts = &answer["counts"];
        assert_eq!(counts["complete"], true, "{answer:#}");
        (counts["passed"].clone(), counts["failed"].clone(), counts["source"].clone())
    };
    let all = |source: &str| (json!(1), json!(1), json!(source));
    let answer = run(&["-q"]);
    assert_eq!(counts(&answer), all("pytest"), "{answer:#}");
    assert_eq!(strings(&answer["failed_tests"]), ["tests/test_a.py::test_bad"], "{answer:#}");
    assert_eq!(answer["junit"], Value::Null, "{answer:#}");
    assert_eq!(counts(&run(&["--"])), all("pytest"));
    // Where `start` is denied the keeper makes the request again.
    env.write("quell.toml", "[guard]\ndeny = [\"start\"]\n");
    assert_eq!(counts(&run(&["-q"])), all("pytest"));
    env.write("pytest.ini", "[pytest]\naddopts = --junitxml=own.xml\n");
    let answer = run(&["-v"]);
    assert!(env.path("own.xml").exists(), "{answer:#}");
    assert_eq!(counts(&answer), all("pytest"), "{answer:#}");
    let scoped = pytest(&["--scope", "tests"], &["tests"]).finish();
    assert_eq!(counts(&data(&scoped)), all("junit"), "{}", scoped.stdout);
    assert_eq!(counts(&run(&["--junitxml=other.xml"])), all("junit"));
}

#[test]
fn the_cause_of_an_early_end_is_named() {
    for (lost, reason) in [
        (&["keeper"][..], "it was cut short: its keeper was lost"),
        (&["standby", "keeper"], "it was cut short: its keeper was lost"),
    ] {
        let env = test_env();
        let running =
            env.quell("test").args(["--evidence", "ev.json"]).script("echo begun; sleep $N").start();
        // It shows what the tests write as soon as it has heard that they were started.
        assert!(eventually(PATIENCE, || running.stdout().contains("begun")), "{}", running.stderr());
        let [id] = &env.ids("live")[..] else { panic!("not one job: {:?}", env.ids("live")) };
        env.job(id).lose_all(lost);
        running.finish();
        let evidence = receipt(&env.path("ev.json")).expect("evidence");
        let said = (&evidence["status"], &evidence["reason"]);
        assert_eq!(said, (&json!("error"), &json!(reason)), "{evidence:#}");
        assert_eq!(env.oracle.survivors_after(PATIENCE), []);
    }
}

#[test]
fn a_leak_of_a_test_is_a_leak_in_status_and_list() {
    let env = TestEnv::as_me();
    let told = env.path("told");
    let hooks =
        format!("[[hooks]]\non = [\"leaked\", \"ended\"]\nappend = {:?}\n", told.display().to_string());
    let config = env.write("own.toml", &hooks);
    // The process that is left is not the one that was alive when the command exited.
    let script = format!("(sleep 0.3; sleep {} & exit) & exit 0", env.oracle.nap());
    let quell = env.quell("test").env("QUELL_CONFIG", config);
    let done = quell.args(["--json", "--timeout", "1h", "--", "sh", "-c", &script]).finish();
    let answer = &done.envelope()["data"];
    assert_eq!(answer["leaked"].as_array().map(Vec::len), Some(1), "{answer:#}");
    let job = env.job(answer["job"].as_str().expect("an id"));
    let events = job.events();
    assert!(events.contains(&"leaked".into()) && !events.contains(&"stop_asked".into()), "{events:?}");
    crate::jobs::hooks::told(&told, &["leaked", "ended"]);
    let hooked = crate::jobs::hooks::events_in(&told);
    assert_eq!(
        (&hooked[0]["members"], &hooked[1]["counts"]["outlived"]),
        (&json!(1), &json!(1)),
        "{hooked:?}"
    );
    let status = env.quell("status").args([&job.id]).finish().stdout;
    assert!(status.contains("1 process outlived the command"), "{status}");
    let list = env.quell("list").finish().stdout;
    assert!(list.contains("ended 0, 1 outlived"), "{list}");
    assert_eq!(env.quell("stats").args(["--json"]).finish().envelope()["data"]["leaks"], 1);
}
