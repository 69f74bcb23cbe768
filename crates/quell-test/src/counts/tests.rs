//! Real outputs of the runners, and what is read from them.

use super::junit::read as read_junit;
use super::*;

fn read(runner: Runner, text: &str) -> (String, FoundTests) {
    let found = read_with(runner, text, None);
    (found.counts.source.clone(), found)
}

fn read_with(runner: Runner, text: &str, code: Option<i32>) -> FoundTests {
    let mut counter = Counter::new(runner, true);
    text.lines().for_each(|line| counter.line(&plain(line)));
    counter.finish(code)
}

/// passed, failed, skipped, errors, complete.
fn numbers(found: &FoundTests) -> (u64, u64, u64, u64, bool) {
    let number = |count: Option<u64>| count.unwrap_or(999);
    let TestCounts { passed, failed, skipped, errors, complete, .. } = &found.counts;
    (number(*passed), number(*failed), number(*skipped), number(*errors), *complete)
}

const PYTEST: &str = "\
\u{1b}[1m============================= test session starts ==============================\u{1b}[0m
platform linux -- Python 3.11.2, pytest-7.2.1, pluggy-1.0.0+repack -- /usr/bin/python3
rootdir: /w
\u{1b}[1mcollecting ... \u{1b}[0mcollected 8 items

tests/test_all.py::test_ok \u{1b}[32mPASSED\u{1b}[0m\u{1b}[32m                                        [ 12%]\u{1b}[0m
tests/test_all.py::test_bad \u{1b}[31mFAILED\u{1b}[0m\u{1b}[31m                                       [ 25%]\u{1b}[0m
tests/test_all.py::test_s \u{1b}[33mSKIPPED\u{1b}[0m (unconditional skip)\u{1b}[31m                   [ 37%]\u{1b}[0m
tests/test_all.py::test_xf \u{1b}[33mXFAIL\u{1b}[0m\u{1b}[31m                                         [ 50%]\u{1b}[0m
tests/test_all.py::test_xp \u{1b}[33mXPASS\u{1b}[0m\u{1b}[31m                                         [ 62%]\u{1b}[0m
tests/test_all.py::test_e \u{1b}[31mERROR\u{1b}[0m\u{1b}[31m                                          [ 75%]\u{1b}[0m
tests/test_all.py::test_p[a b] \u{1b}[31mFAILED\u{1b}[0m\u{1b}[31m                                    [ 87%]\u{1b}[0m
tests/test_all.py::test_p[../c] \u{1b}[31mFAILED\u{1b}[0m\u{1b}[31m                                   [100%]\u{1b}[0m
";

const PYTEST_END: &str = "
==================================== ERRORS ====================================
___________________________ ERROR at setup of test_e ___________________________
E   ValueError
=================================== FAILURES ===================================
E   AssertionError: a - b
.....
\u{1b}[36m\u{1b}[1m=========================== short test summary info ============================\u{1b}[0m
\u{1b}[31mFAILED\u{1b}[0m tests/test_all.py::\u{1b}[1mtest_bad\u{1b}[0m - AssertionError: a - b
\u{1b}[31mFAILED\u{1b}[0m tests/test_all.py::\u{1b}[1mtest_p[a - b]\u{1b}[0m - AssertionError: assert 'a b' == 'q'
\u{1b}[31mFAILED\u{1b}[0m tests/test_all.py::\u{1b}[1mtest_p[../c]\u{1b}[0m - AssertionError: assert '../c' == 'q'
\u{1b}[31mERROR\u{1b}[0m tests/test_all.py::\u{1b}[1mtest_e\u{1b}[0m - ValueError
\u{1b}[31m==== \u{1b}[31m\u{1b}[1m3 failed\u{1b}[0m, \u{1b}[32m1 passed\u{1b}[0m, \u{1b}[33m1 skipped\u{1b}[0m, \u{1b}[33m1 xfailed\u{1b}[0m, \u{1b}[33m1 xpassed\u{1b}[0m, \u{1b}[31m\u{1b}[1m1 error\u{1b}[0m\u{1b}[31m in 0.10s\u{1b}[0m\u{1b}[31m =====\u{1b}[0m
";

#[test]
fn pytest_without_a_report_is_counted_by_its_last_line() {
    let (source, found) = read(Runner::Pytest, &(PYTEST.to_owned() + PYTEST_END));
    assert_eq!((source.as_str(), numbers(&found)), ("pytest", (2, 3, 2, 1, true)));
    assert_eq!(found.names.kept.len(), 4);
    for (line, expected) in [
        ("============ 12 passed, 3 warnings in 61.20s (0:01:01) ============", (12, 0, 0, 0, true)),
        ("1 passed, 2 deselected in 0.01s", (1, 0, 0, 0, true)),
        ("============ no tests ran in 0.01s ============", (0, 0, 0, 0, true)),
        ("=== 1 error in 0.06s ===", (0, 0, 0, 1, true)),
    ] {
        assert_eq!(numbers(&read(Runner::Pytest, line).1), expected, "{line}");
    }
}

#[test]
fn pytest_that_was_stopped_is_counted_by_its_progress() {
    let (_, found) = read(Runner::Pytest, &(PYTEST.to_owned() + "tests/test_hang.py::test_hang "));
    assert_eq!(numbers(&found), (2, 3, 2, 1, false));
    assert_eq!(found.running.as_deref(), Some("tests/test_hang.py::test_hang"));
    assert_eq!(found.names.kept.len(), 4);
    for (text, expected) in [
        ("collected 3 items\n\ntests/test_hang.py .F", (1, 1, 0, 0, false)),
        ("tests/test_a.py ..s   [ 50%]\ntests/test_b.py E.x", (3, 0, 2, 1, false)),
        ("..F.   [ 50%]\n...", (6, 1, 0, 0, false)),
        (
            "[gw0] [ 33%] PASSED tests/a.py::test_x\n[gw1] [ 66%] FAILED tests/a.py::test_y",
            (1, 1, 0, 0, false),
        ),
    ] {
        assert_eq!(numbers(&read(Runner::Pytest, text).1), expected, "{text}");
    }
    let (source, found) = read(Runner::Pytest, "nothing that pytest says");
    assert_eq!((source.as_str(), found.reported), ("exit_code", false));
}

const CARGO: &str = "
running 4 tests
test tests::dies ... ok
test tests::good ... ok
test tests::left_out ... ignored, later
test tests::bad ... FAILED

failures:
    tests::bad

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.14s

running 1 test
test src/lib.rs - f (line 3) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

#[test]
fn cargo_is_summed_over_its_programs() {
    let (source, found) = read(Runner::Cargo, CARGO);
    assert_eq!((source.as_str(), numbers(&found)), ("cargo", (3, 1, 1, 0, true)));
    assert_eq!(found.names.kept, ["tests::bad"]);
    let hanging = format!("{CARGO}running 3 tests\ntest a ... ok\ntest b ... FAILED\ntest c ... ");
    let (_, found) = read(Runner::Cargo, &hanging);
    assert_eq!(numbers(&found), (4, 2, 1, 0, false));
    assert_eq!((found.running.as_deref(), found.names.kept.len()), (Some("c"), 2));
    let quiet = "running 2 tests\n.F\nfailures:\n\n---- tests::bad stdout ----\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored";
    assert_eq!(read(Runner::Cargo, quiet).1.names.kept, ["tests::bad"]);
    let (_, found) = read(Runner::Cargo, "error: could not compile `x` (lib) due to 1 previous error");
    assert_eq!(found.broken.as_deref(), Some("could not compile `x` (lib) due to 1 previous error"));
}

#[test]
fn nextest_is_counted_by_its_summary_or_line_by_line() {
    let lines = "    Starting 3 tests across 1 binary (1 test skipped)
     SIGABRT [   0.008s] (1/3) cr tests::dies
        FAIL [   0.169s] (2/3) cr tests::bad
    test tests::bad ... FAILED
    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.13s
        PASS [   0.005s] cr tests::good
";
    let (source, found) = read(Runner::Nextest, lines);
    assert_eq!((source.as_str(), numbers(&found)), ("nextest", (1, 2, 0, 0, false)));
    assert_eq!(found.names.kept, ["cr tests::dies", "cr tests::bad"]);
    let whole = format!(
        "{lines}     Summary [   0.170s] 3 tests run: 1 passed (1 slow, 1 leaky), 1 failed, 1 timed out, 1 skipped
        FAIL [   0.169s] (2/3) cr tests::bad
error: test run failed"
    );
    assert_eq!(numbers(&read(Runner::Nextest, &whole).1), (1, 2, 1, 0, true));
    let short = "     Summary [   0.170s] 2/3 tests run: 0 passed, 2 failed, 1 skipped";
    assert_eq!(numbers(&read(Runner::Nextest, short).1), (0, 2, 1, 0, false));
}

#[test]
fn go_is_counted_as_text_and_as_json() {
    let text = "--- FAIL: TestX (0.00s)
    --- FAIL: TestX/part (0.00s)
        x_test.go:5: no
FAIL
FAIL\texample.com/a\t0.002s
ok  \texample.com/b\t0.003s
?   \texample.com/c\t[no test files]
FAIL";
    let (source, found) = read(Runner::Go, text);
    assert_eq!((source.as_str(), numbers(&found)), ("go", (999, 1, 999, 0, true)));
    assert_eq!(found.names.kept, ["example.com/a.TestX", "example.com/a.TestX/part"]);
    let verbose = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n--- SKIP: TestB (0.00s)\nPASS\nok  \tp\t0.1s";
    assert_eq!(numbers(&read(Runner::Go, verbose).1), (1, 0, 1, 0, true));
    let (_, found) = read(Runner::Go, "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB");
    assert_eq!((numbers(&found), found.running.as_deref()), ((1, 0, 0, 0, false), Some("TestB")));
    let json = r#"{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- FAIL: TestZ (0.00s)\n"}
{"Action":"fail","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Test":"TestB","Elapsed":0}
{"Action":"fail","Package":"p","Elapsed":0.002}"#;
    let (_, found) = read(Runner::Go, json);
    assert_eq!((numbers(&found), found.names.kept.join(" ").as_str()), ((1, 1, 0, 0, true), "p.TestA"));
    let (_, found) = read(Runner::Go, "FAIL\texample.com/a [build failed]\nFAIL");
    assert_eq!(found.broken.as_deref(), Some("example.com/a could not be built"));
}

#[test]
fn jest_and_vitest_are_counted_by_their_summaries() {
    let jest = "FAIL src/a.test.js
  sum
    ✓ adds (2 ms)
    ✕ subtracts (1 ms)
  ● Console
  ● sum › subtracts
    expect(received).toBe(expected)
Summary of all failing tests
  ● sum › subtracts
Test Suites: 1 failed, 1 passed, 2 total
Tests:       1 failed, 1 skipped, 2 passed, 4 total
Snapshots:   0 total";
    let (source, found) = read(Runner::Jest, jest);
    assert_eq!((source.as_str(), numbers(&found)), ("jest", (2, 1, 1, 0, true)));
    assert_eq!(found.names.kept, ["sum › subtracts"]);
    let vitest = " \u{1b}[31m❯\u{1b}[39m src/a.test.ts (3 tests | 1 failed) 5ms
   × sum > subtracts 3ms
 FAIL  src/a.test.ts > sum > subtracts
 FAIL  src/b.test.ts [ src/b.test.ts ]
 Test Files  2 failed | 1 passed (3)
      Tests  1 failed | 2 passed | 1 skipped (4)
   Duration  300ms";
    let (source, found) = read(Runner::Vitest, vitest);
    assert_eq!((source.as_str(), numbers(&found)), ("vitest", (2, 1, 1, 1, true)));
    assert_eq!(found.names.kept, ["src/a.test.ts > sum > subtracts", "src/b.test.ts"]);
}

#[test]
fn the_output_of_an_unknown_command_is_not_guessed() {
    for text in [PYTEST_END, CARGO, "Tests:       2 passed, 2 total"] {
        assert_eq!(read_with(Runner::Other, text, Some(0)).counts, TestCounts::default());
    }
}

#[test]
fn escape_sequences_are_removed() {
    for (line, expected) in [
        ("\u{1b}[1;31mred\u{1b}[0m", "red"),
        ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{7}", "link"),
        ("\u{1b}(Ba\u{1b}", "a"),
        ("a\u{1b}[", "a"),
        ("tab\tand\u{8}bell\u{7}", "tab\tandbell"),
    ] {
        assert_eq!(plain(line), expected, "{line:?}");
    }
}

const JUNIT: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="s" tests="5">
<testcase classname="a.b" name="good" time="0.1"/>
<testcase classname="a.b" name="bad &lt;x&gt; &amp; y"><failure message="m">text</failure></testcase>
<testcase name="left"><skipped/></testcase>
<testcase classname="a.b" name="broke"><error/><system-out><![CDATA[<failure>]]></system-out></testcase>
"#;

#[test]
fn a_junit_report_is_counted_case_by_case() {
    let whole = format!("{JUNIT}</testsuite></testsuites>");
    let (found, problem) = read_junit(whole.as_bytes());
    let found = found.expect("a report");
    assert_eq!((numbers(&found), problem), ((1, 1, 1, 1, true), None));
    assert_eq!(found.names.kept, ["a.b.bad <x> & y", "a.b.broke"]);
}

#[test]
fn a_test_that_ended_the_runner_has_not_passed() {
    let text = r#"<testsuites><testsuite name="pytest" errors="0" failures="0" tests="1">
        <testcase classname="a" name="ok"/><testcase classname="a" name="ends_it"/></testsuite></testsuites>"#;
    let found = read_junit(text.as_bytes()).0.expect("a report");
    assert_eq!(numbers(&found), (1, 0, 0, 0, false));
    let mut printed = read_with(Runner::Pytest, "=== 1 passed in 0.01s ===", Some(0));
    assert!(printed.reported);
    assert!(printed.use_report(Some(found), "pytest"));
    assert!(!printed.reported && !printed.counts.complete, "{printed:?}");
}

#[test]
fn a_junit_report_that_is_damaged_says_so_and_counts_what_it_has() {
    for cut in [JUNIT.len(), JUNIT.len() - 5] {
        let (found, problem) = read_junit(&JUNIT.as_bytes()[..cut]);
        assert!(problem.is_some(), "{cut}");
        let found = found.expect("a report");
        assert!(!found.counts.complete && found.counts.passed == Some(1), "{cut}: {found:?}");
    }
    for (text, what, counts) in [
        ("", "nothing", false),
        ("no xml at all", "text", false),
        ("<html></html>", "another document", false),
        ("<testsuite><testcase", "half a tag", true),
        ("<testsuite></wrong>", "tags that don't match", true),
        ("\u{0}\u{1}<", "bytes", false),
    ] {
        let (found, problem) = read_junit(text.as_bytes());
        assert!(problem.is_some(), "{what}");
        assert_eq!(found.is_some(), counts, "{what}");
    }
    let deep = "<a>".repeat(200_000);
    assert!(read_junit(deep.as_bytes()).1.is_some());
}

#[test]
fn nested_entities_are_not_expanded() {
    let mut bomb = String::from("<?xml version=\"1.0\"?><!DOCTYPE x [<!ENTITY a0 \"ha\">");
    for n in 1..60 {
        bomb += &format!("<!ENTITY a{n} \"&a{};&a{};\">", n - 1, n - 1);
    }
    bomb += "<!ENTITY f SYSTEM \"file:///etc/passwd\">]>";
    bomb += "<testsuite><testcase classname=\"&f;\" name=\"&a59;\"><failure>&a59;</failure></testcase></testsuite>";
    let found = read_junit(bomb.as_bytes()).0.expect("a report");
    assert_eq!(found.counts.failed, Some(1), "{found:?}");
    assert_eq!(found.names.kept, ["&f;.&a59;"]);
}

#[test]
fn output_between_the_name_of_a_test_and_its_result_does_not_hide_the_result() {
    let text = "tests/test_h.py::test_good heard
PASSED                                        [ 25%]
tests/test_h.py::test_bad no endFAILED
tests/test_h.py::test_p[a b] a line
PASSED
PASSED
tests/test_h.py::test_hangs a line
and another";
    let (_, found) = read(Runner::Pytest, text);
    assert_eq!(numbers(&found), (2, 1, 0, 0, false));
    assert_eq!(found.names.kept, ["tests/test_h.py::test_bad"]);
    assert_eq!(found.running.as_deref(), Some("tests/test_h.py::test_hangs"));
}

#[test]
fn a_jest_test_outside_a_suite_is_named() {
    let text = "FAIL ./a.test.js
  ✕ bad (1 ms)
  ● Console
    console.log
      ● no test
  ● Deprecation Warning:
  ● bad
    expect(received).toBe(expected)
PASS ./b.test.js
  ● Console
  ● none of it
FAIL ./c.test.js
  ● Test suite failed to run
Test Suites: 2 failed, 1 passed, 3 total
Tests:       1 failed, 1 passed, 2 total";
    let (_, found) = read(Runner::Jest, text);
    assert_eq!((numbers(&found), found.names.kept.join(", ").as_str()), ((1, 1, 0, 1, true), "bad"));
}

#[test]
fn output_of_tests_does_not_override_the_runner() {
    let fine = (1, 0, 0, 0, true);
    let inner =
        "running 9 tests\ntest x ... FAILED\ntest result: FAILED. 8 passed; 1 failed; 0 ignored; 0 measured";
    for (runner, code, expected, text) in [
        (Runner::Pytest, 0, fine, "=== 9 failed in 0.1s ===\n=== 1 passed in 0.1s ===\n=== 8 failed in 0.2s ===".to_owned()),
        (Runner::Pytest, 1, (0, 1, 0, 0, true), "=== 1 failed in 0.1s ===\n=== 9 passed in 0.1s ===".into()),
        (Runner::Cargo, 0, fine, format!("running 1 test\n{inner}\ntest a ... ok\ntest result: ok. 1 passed; 0 failed")),
        (Runner::Cargo, 0, fine, "running 1 test\ntest result: ok. 99 passed; 0 failed\ntest a ... ok\ntest result: ok. 1 passed; 0 failed\ntest result: FAILED. 0 passed; 5 failed".into()),
        (Runner::Nextest, 0, fine, "    Summary [   0.1s] 9 tests run: 9 failed\n     Summary [   0.1s] 1 test run: 1 passed".into()),
        (Runner::Nextest, 0, fine, "         Summary [   0.1s] 9 tests run: 9 passed\n     Summary [   0.1s] 1 test run: 1 passed".into()),
        (Runner::Go, 0, fine, "=== RUN   TestA\n--- PASS: TestFake (0.00s)\n--- FAIL: TestFake (0.00s)\n--- PASS: TestA (0.00s)\nok  \tp\t0.1s".into()),
        (Runner::Go, 0, (999, 0, 999, 0, true), "--- FAIL: TestFake (0.00s)\nok  \tp\t0.1s".into()),
        (Runner::Go, 0, fine, "{\"Action\":\"run\",\"Package\":\"p\",\"Test\":\"A\"}\n--- FAIL: B (0.00s)\n{\"Action\":\"pass\",\"Package\":\"p\",\"Test\":\"A\"}\n{\"Action\":\"pass\",\"Package\":\"p\"}".into()),
        (Runner::Jest, 0, fine, "    Tests:       9 failed, 9 total\nTests:       1 passed, 1 total".into()),
        (Runner::Vitest, 0, fine, "Tests  9 failed (9)\n      Tests  1 passed (1)\n      Tests  3 failed (3)".into()),
    ] {
        let found = read_with(runner, &text, Some(code));
        assert_eq!(numbers(&found), expected, "{runner:?}:\n{text}");
        assert!(code != 0 || found.names.kept.is_empty(), "{runner:?}: {:?}\n{text}", found.names);
    }
    // The only summary contradicts the exit code.
    let found = read_with(Runner::Pytest, "=== 1 failed in 0.1s ===", Some(0));
    assert_eq!(found.counts, TestCounts::default());
}

#[test]
fn results_after_a_program_that_died_are_not_counted() {
    let text =
        "running 4 tests\ntest a ... ok\nrunning 2 tests\ntest result: ok. 2 passed; 0 failed; 0 ignored";
    let found = read_with(Runner::Cargo, text, Some(101));
    assert_eq!(numbers(&found), (1, 0, 0, 0, false));
}

#[test]
fn a_missing_runner_is_recognized_by_its_message() {
    for (runner, text) in [
        (Runner::Pytest, "/usr/bin/python3: No module named pytest"),
        (Runner::Pytest, "ModuleNotFoundError: No module named 'pytest'"),
        (Runner::Unittest, "/usr/bin/python3: No module named coverage"),
        (Runner::Pytest, "Command not found: pytest"),
        (Runner::Pytest, "error: Failed to spawn: `pytest`"),
        (Runner::Jest, "npm error could not determine executable to run"),
        (Runner::Jest, "npm error npx canceled due to missing packages and no YES option: [\"jest@30.5.2\"]"),
        (Runner::Vitest, "npm error code ENOTFOUND"),
        (Runner::Jest, "error Command \"jest\" not found."),
        (Runner::Nextest, "error: no such command: `nextest`"),
    ] {
        let found = read_with(runner, text, Some(1));
        assert_eq!((found.missing.as_deref(), found.counts.failed), (Some(text), None), "{text}: {found:?}");
    }
    let found = read_with(Runner::Pytest, "No module named pytest\n=== 1 failed in 0.1s ===", Some(1));
    assert_eq!((numbers(&found), found.missing), ((0, 1, 0, 0, true), None));
    assert_eq!(read_with(Runner::Pytest, "No module named numpy", Some(1)).missing, None);
}

#[test]
fn a_runner_that_exited_early_is_told_from_one_that_prints_no_results() {
    let cargo = "running 1 test\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";
    let exit = "  ●  process.exit called with \"0\"";
    for (runner, code, text, reported) in [
        (Runner::Pytest, 0, "tests/a.py .", false),
        (Runner::Pytest, 0, "=== 1 passed in 0.1s ===", true),
        (Runner::Pytest, 1, "", false),
        (Runner::Unittest, 0, ".", false),
        (Runner::Unittest, 0, ".\nRan 1 test in 0.001s\n\nOK", true),
        (Runner::Unittest, 1, "", false),
        (Runner::Cargo, 0, "running 2 tests\ntest a ... ok", false),
        (Runner::Cargo, 0, &format!("running 2 tests\n{cargo}"), false),
        (Runner::Cargo, 0, &format!("{cargo}running 2 tests"), false),
        (Runner::Cargo, 0, cargo, true),
        (
            Runner::Cargo,
            0,
            "running 2 tests\ntest result: ok. 0 passed; 0 failed; 0 ignored; 2 measured",
            true,
        ),
        (Runner::Cargo, 0, "    Finished `test` profile", false),
        (Runner::Cargo, 0, "     Running tests/own_harness.rs (target/debug/deps/own_harness-1)", true),
        (Runner::Cargo, 0, "     Running tests/a.rs (target/debug/deps/a-1)\nrunning 1 test", false),
        (Runner::Cargo, 101, "error: no test target named `x`", false),
        (Runner::Cargo, 101, "error: it was a test\nerror: test failed, to rerun pass `--test x`", true),
        (
            Runner::Cargo,
            101,
            "running 2 tests\ntest a ... ok\nerror: test failed, to rerun pass `--lib`",
            false,
        ),
        (Runner::Go, 0, "ok  \tp\t(cached)", true),
        (Runner::Go, 1, "go: cannot find main module", false),
        (Runner::Go, 1, "FAIL\tp\t0.1s", true),
        (Runner::Jest, 0, exit, false),
        (Runner::Jest, 0, &format!("{exit}\nTests:       1 passed, 1 total"), true),
        (Runner::Jest, 0, "", true),
        (Runner::Vitest, 0, "", true),
        (Runner::Nextest, 0, "        PASS [   0.005s] (1/2) nx tests::a", false),
        (Runner::Nextest, 0, "     Summary [   0.005s] 1 test run: 1 passed, 0 skipped", true),
        (Runner::Pytest, 0, "===== 2 tests collected in 0.01s =====", true),
        (Runner::Pytest, 0, "1/2 tests collected (1 deselected) in 0.01s", true),
        (Runner::Other, 0, "", true),
    ] {
        assert_eq!(read_with(runner, text, Some(code)).reported, reported, "{runner:?} {code}:\n{text}");
    }
    for runner in [Runner::Pytest, Runner::Unittest, Runner::Cargo, Runner::Nextest] {
        assert!(Counter::new(runner, false).finish(Some(0)).reported, "{runner:?} is only asked for help");
    }
    let mut flooded = Counter::new(Runner::Unittest, true);
    flooded.skip();
    assert!(!flooded.finish(Some(0)).reported, "the tail of the output was kept, and has no result");
    let mut cut = Counter::new(Runner::Cargo, true);
    cut.line("running 2 tests");
    cut.skip();
    assert!(cut.finish(Some(0)).reported, "the result may be in what was not kept");
}

#[test]
fn a_run_without_a_test_is_told_from_one_with_tests() {
    for (runner, text, ran_none) in [
        (Runner::Pytest, "========= 2 tests collected in 0.01s =========", true),
        (Runner::Pytest, "========= no tests ran in 0.01s =========", true),
        (Runner::Pytest, "pytest 8.3.4", true),
        (Runner::Pytest, "========= 1 passed in 0.01s =========", false),
        (Runner::Pytest, "========= 1 skipped in 0.01s =========", false),
        (Runner::Unittest, "usage: python -m unittest [-h]", true),
        (Runner::Unittest, "Ran 0 tests in 0.000s\n\nOK", true),
        (Runner::Unittest, "Ran 1 test in 0.000s\n\nOK", false),
        (Runner::Unittest, "Ran 12 tests in 0.000s\n\nOK (skipped=12)", false),
        (Runner::Cargo, "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out", false),
        (Runner::Jest, "", false),
        (Runner::Other, "", false),
    ] {
        assert_eq!(read_with(runner, text, Some(0)).ran_none(runner), ran_none, "{runner:?} {text}");
    }
    let report = br#"<testsuites><testsuite name="pytest" tests="0"></testsuite></testsuites>"#;
    assert!(read_junit(report).0.expect("a report").ran_none(Runner::Pytest));
}

#[test]
fn the_output_of_unittest_is_counted_and_its_failed_tests_are_named() {
    let read = |text: &str, code| read_with(Runner::Unittest, text, Some(code));
    let numbers = |found: &FoundTests| {
        let TestCounts { passed, failed, skipped, errors, complete, ref source } = found.counts;
        (passed, failed, skipped, errors, complete && source == "unittest")
    };
    let bad = "F.\n======\nFAIL: test_x (mod.Class.test_x)\nWhat it does\n------\nTraceback\n\nRan 2 tests in 0.001s\n\nFAILED (failures=1)";
    let found = read(bad, 1);
    assert_eq!(numbers(&found), (Some(1), Some(1), Some(0), Some(0), true));
    assert_eq!((&found.names.kept[..], found.reported), (&["mod.Class.test_x".to_owned()][..], true));
    let old = "ERROR: test_y (mod.Class)\nFAIL: test_z (mod.Class) (i=1)\nFAIL: test_z (mod.Class) (i=2)\nRan 7 tests in 1.001s\n\n\
        FAILED (failures=2, errors=1, skipped=3, expected failures=1)";
    let found = read(old, 1);
    assert_eq!(numbers(&found), (None, Some(2), Some(4), Some(1), true));
    assert_eq!(found.names.kept, ["mod.Class.test_y", "mod.Class.test_z"]);
    for (text, passed) in [
        ("Ran 3 tests in 0.000s\n\nOK", Some(3)),
        ("Ran 3 tests in 0.000s\n\nOK (skipped=1)", None),
        // What tests print comes last if it goes to a pipe.
        ("Ran 3 tests in 0.000s\n\nOK\nFAILED (failures=1)\nOK (skipped=2)", Some(3)),
        ("Ran 1 test in 0.000s\n\nFAILED (errors=1)\nRan 3 tests in 0.000s\n\nOK", Some(3)),
    ] {
        let found = read(text, 0);
        let rest = (found.counts.failed, found.counts.complete, found.reported);
        assert_eq!((found.counts.passed, rest), (passed, (Some(0), true, true)), "{text}");
    }
    let fixture = "ERROR: setUpClass (mod.Class)\nRan 0 tests in 0.000s\n\nFAILED (errors=1)";
    assert_eq!(numbers(&read(fixture, 1)), (None, Some(0), Some(0), Some(1), true));
    assert!(!read("Ran 3 tests in 0.000s\n", 1).reported, "its result is missing");
}

#[test]
fn a_file_that_unittest_cant_load_is_recognized() {
    for class in ["_FailedTest)", "_FailedTest.test_imp)"] {
        let text =
            format!("ERROR: test_imp (unittest.loader.{class}\n\nRan 1 test in 0.000s\n\nFAILED (errors=1)");
        let found = read_with(Runner::Unittest, &text, Some(1));
        assert_eq!(found.broken.as_deref(), Some("unittest could not load test_imp"), "{class}");
    }
    let text = "ERROR: test_a (tests.test_a.TestIt.test_a)\n\nRan 1 test in 0.000s\n\nFAILED (errors=1)";
    assert_eq!(read_with(Runner::Unittest, text, Some(1)).broken, None);
}

#[test]
fn the_names_in_a_pytest_report_are_node_ids() {
    let case =
        |attributes: &str| format!("<testsuite><testcase {attributes}><failure/></testcase></testsuite>");
    for (attributes, expected) in [
        (
            "classname='tests.test_a' name='test_x[a - b]' file='tests/test_a.py'",
            "tests/test_a.py::test_x[a - b]",
        ),
        (
            "classname='tests.test_a.TestX' name='test_y' file='tests/test_a.py'",
            "tests/test_a.py::TestX::test_y",
        ),
        ("classname='' name='tests.test_b' file='tests/test_b.py'", "tests/test_b.py"),
        ("classname='tests.test_a.TestX' name='test_y' file='tests/base.py'", "tests.test_a.TestX.test_y"),
        ("classname='a.B' name='c' file='a/B.java'", "a.B.c"),
    ] {
        let found = read_junit(case(attributes).as_bytes()).0.expect("a report");
        assert_eq!(found.names.kept, [expected], "{attributes}");
    }
}
