//! `cargo nextest`: a line for each test, and the line of the summary.

use super::{Found, Names, Parser, Summaries, Tally, number_and_word};

#[derive(Default)]
pub(super) struct Nextest {
    seen: Tally,
    total: Summaries,
    /// The summary says that it did not come to all of them.
    cancelled: bool,
    names: Names,
    broken: Option<String>,
}

/// What stands behind `[   0.005s]` and, in newer versions, `(1/3)`.
fn test_name(rest: &str) -> Option<&str> {
    let (time, name) = rest.trim_start().strip_prefix('[')?.split_once(']')?;
    time.trim().trim_start_matches(['>', ' ']).strip_suffix('s')?.parse::<f64>().ok()?;
    let name = name.trim();
    match name.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((place, name)) if place.contains('/') => Some(name.trim()),
        Some(_) | None => Some(name),
    }
}

impl Parser for Nextest {
    fn line(&mut self, line: &str) {
        if let Some(broken) = line.trim_start().strip_prefix("error: ")
            && self.broken.is_none()
            && !broken.starts_with("test run failed")
        {
            self.broken = Some(broken.to_owned());
        }
        // The word ends in the twelfth column; what tests print is further in.
        let Some((word, rest)) = line.split_at_checked(12) else { return };
        if word.ends_with(' ') || !rest.starts_with(' ') {
            return;
        }
        let word = word.trim_start();
        if word == "Summary" {
            let Some((run, counts)) = rest.split_once(" run: ") else { return };
            // `2/3 tests`
            self.cancelled = run.contains('/');
            return self.total.add(summary(counts));
        }
        let Some(name) = test_name(rest) else { return };
        match word {
            "PASS" | "LEAK" => self.seen.passed += 1,
            "SKIP" => self.seen.skipped += 1,
            "FAIL" | "TIMEOUT" | "ABORT" | "LEAK-FAIL" | "XFAIL" => {
                self.seen.failed += 1;
                self.names.add(name);
            }
            word if word.starts_with("SIG") => {
                self.seen.failed += 1;
                self.names.add(name);
            }
            _ => {}
        }
    }

    fn finish(self: Box<Self>, code: Option<i32>) -> Option<Found> {
        let total = self.total.choose(code);
        if total.is_none() && self.seen.sum() == 0 {
            return self.broken.map(|broken| Found { broken: Some(broken), ..Found::default() });
        }
        let tally = total.unwrap_or(self.seen);
        Some(Found {
            passed: Some(tally.passed),
            failed: Some(tally.failed),
            skipped: Some(tally.skipped),
            errors: Some(tally.errors),
            complete: total.is_some() && !self.cancelled,
            names: self.names,
            running: None,
            broken: self.broken,
            missing: false,
        })
    }
}

/// `2 passed (1 slow, 1 flaky), 1 failed, 1 timed out, 0 skipped`
fn summary(counts: &str) -> Tally {
    let mut depth = 0;
    let flat: String = counts
        .chars()
        .filter(|c| {
            depth += i32::from(*c == '(') - i32::from(*c == ')');
            depth == 0 && *c != ')'
        })
        .collect();
    let mut total = Tally::default();
    for (number, word) in flat.split(',').filter_map(number_and_word) {
        match word {
            "passed" => total.passed += number,
            "failed" | "timed out" => total.failed += number,
            "skipped" => total.skipped += number,
            "exec failed" => total.errors += number,
            _ => {}
        }
    }
    total
}
