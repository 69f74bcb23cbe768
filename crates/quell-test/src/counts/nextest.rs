//! Reads the output of `cargo nextest run`: a line for each test, and a summary.

use super::{ReaderState, Totals};

pub(super) fn read(state: &mut ReaderState, line: &str) {
    if let Some(why) =
        line.trim_start().strip_prefix("error: ").filter(|why| !why.starts_with("test run failed"))
    {
        state.set_broken(why);
    }
    // The status ends in the twelfth column. The output of tests is indented further.
    let Some((word, rest)) = line.split_at_checked(12) else { return };
    if word.ends_with(' ') || !rest.starts_with(' ') {
        return;
    }
    let word = word.trim_start();
    if word == "Summary" {
        let Some((run, counts)) = rest.split_once(" run: ") else { return };
        // `2 passed (1 slow, 1 flaky), 1 failed, 1 timed out`
        let totals = Totals::of(counts.split(['(', ')', ',']));
        state.clear_summaries();
        // `2/3 tests`: it was cancelled.
        if run.contains('/') {
            state.totals = totals;
        } else {
            state.summary(totals);
        }
        return;
    }
    let Some(name) = test_name(rest) else { return };
    match word {
        "PASS" | "LEAK" => state.totals.passed += 1,
        "SKIP" => state.totals.skipped += 1,
        "FAIL" | "TIMEOUT" | "ABORT" | "LEAK-FAIL" | "XFAIL" => state.failed(name),
        word if word.starts_with("SIG") => state.failed(name),
        _ => {}
    }
}

/// The text after `[   0.005s]` and, in newer versions, `(1/3)`.
fn test_name(rest: &str) -> Option<&str> {
    let (time, name) = rest.trim_start().strip_prefix('[')?.split_once(']')?;
    time.trim_matches(['>', ' ', 's']).parse::<f64>().ok()?;
    let name = name.trim();
    match name.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((place, name)) if place.contains('/') => Some(name.trim()),
        Some(_) | None => Some(name),
    }
}
