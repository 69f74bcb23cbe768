//! Reads the output of `python -m unittest`: the headings of failed tests, and the two last lines.

use super::{ReaderState, Totals};

pub(super) fn read(state: &mut ReaderState, line: &str) {
    if let Some(ran) = tests_run(line) {
        // A test may run unittest itself: the last numbers are the runner's own.
        state.clear_summaries();
        (state.ran, state.open) = (Some(ran), Some(ran));
    } else if let Some(test) =
        ["FAIL: ", "ERROR: ", "UNEXPECTED SUCCESS: "].iter().find_map(|word| line.strip_prefix(word))
    {
        failed(state, test);
    } else if let (Some(ran), Some(result)) = (state.open, result(line)) {
        state.open = None;
        let bad = result.failed + result.errors;
        // A skipped class counts as one, a failed fixture is not a test, and a test can fail more than once.
        let names = &state.names.kept;
        state.passed_is_unknown =
            result.skipped > 0 || bad != names.len() as u64 || names.iter().any(|name| is_fixture(name));
        state.summary(Totals { passed: ran.saturating_sub(bad), ..result });
    }
}

/// `Ran 2 tests in 0.001s`
fn tests_run(line: &str) -> Option<u64> {
    let (number, rest) = line.strip_prefix("Ran ")?.split_once(' ')?;
    rest.strip_prefix("test")?.trim_start_matches('s').strip_prefix(" in ")?;
    number.parse().ok()
}

/// `test_x (mod.Class.test_x)`, before Python 3.11 `test_x (mod.Class)`; for a part of a test with ` (i=1)` at its end.
fn failed(state: &mut ReaderState, test: &str) {
    let Some((name, rest)) = test.split_once(" (") else { return };
    let Some((class, _)) = rest.split_once(')') else { return };
    if name.contains(' ') || class.contains(' ') {
        return;
    }
    if class.starts_with("unittest.loader._FailedTest") {
        state.set_broken(&format!("unittest could not load {name}"));
        return state.names.add(name);
    }
    let is_whole = class.rsplit_once('.').is_some_and(|(_, last)| last == name);
    if is_whole { state.names.add(class) } else { state.names.add(&format!("{class}.{name}")) }
}

/// `mod.Class.setUpClass`
fn is_fixture(name: &str) -> bool {
    name.rsplit('.').next().is_some_and(|last| last.starts_with("setUp") || last.starts_with("tearDown"))
}

/// `OK`, `OK (skipped=1)`, `FAILED (failures=1, errors=2, expected failures=1)`, `NO TESTS RAN`
fn result(line: &str) -> Option<Totals> {
    let words = ["OK", "FAILED", "NO TESTS RAN"];
    let rest = words.iter().find_map(|word| line.trim_end().strip_prefix(word))?;
    let mut totals = Totals::default();
    if rest.is_empty() {
        return Some(totals);
    }
    for item in rest.strip_prefix(" (")?.strip_suffix(')')?.split(", ") {
        let (what, number) = item.split_once('=')?;
        let number: u64 = number.parse().ok()?;
        let count = match what {
            "failures" | "unexpected successes" => &mut totals.failed,
            "errors" => &mut totals.errors,
            "skipped" | "expected failures" => &mut totals.skipped,
            _ => return None,
        };
        *count = count.saturating_add(number);
    }
    Some(totals)
}
