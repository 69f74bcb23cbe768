//! `cargo nextest`: a line for each test, and the line of the summary.

use super::{Found, Names, Parser, number_and_word};

#[derive(Default)]
pub(super) struct Nextest {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// By the summary.
    total: Option<[u64; 4]>,
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
        let text = line.trim_start();
        if let Some(broken) = text.strip_prefix("error: ")
            && self.broken.is_none()
            && !broken.starts_with("test run failed")
        {
            self.broken = Some(broken.to_owned());
        }
        // Behind the summary the failed ones are listed once more.
        if self.total.is_some() {
            return;
        }
        let Some((word, rest)) = text.split_once(' ') else { return };
        if word == "Summary" {
            let Some((run, counts)) = rest.split_once(" run: ") else { return };
            // `2/3 tests`
            self.cancelled = run.contains('/');
            let mut total = [0; 4];
            // `2 passed (1 slow, 1 flaky), 1 failed, 1 timed out, 0 skipped`
            let mut depth = 0;
            let flat: String = counts
                .chars()
                .filter(|c| {
                    depth += i32::from(*c == '(') - i32::from(*c == ')');
                    depth == 0 && *c != ')'
                })
                .collect();
            for (number, word) in flat.split(',').filter_map(number_and_word) {
                match word {
                    "passed" => total[0] += number,
                    "failed" | "timed out" => total[1] += number,
                    "skipped" => total[2] += number,
                    "exec failed" => total[3] += number,
                    _ => {}
                }
            }
            self.total = Some(total);
            return;
        }
        let Some(name) = test_name(rest) else { return };
        match word {
            "PASS" | "LEAK" => self.passed += 1,
            "SKIP" => self.skipped += 1,
            "FAIL" | "TIMEOUT" | "ABORT" | "LEAK-FAIL" | "XFAIL" => {
                self.failed += 1;
                self.names.add(name);
            }
            word if word.starts_with("SIG") => {
                self.failed += 1;
                self.names.add(name);
            }
            _ => {}
        }
    }

    fn finish(self: Box<Self>) -> Option<Found> {
        let seen = [self.passed, self.failed, self.skipped, 0];
        if self.total.is_none() && seen == [0; 4] {
            return self.broken.map(|broken| Found { broken: Some(broken), ..Found::default() });
        }
        let [passed, failed, skipped, errors] = self.total.unwrap_or(seen);
        Some(Found {
            passed: Some(passed),
            failed: Some(failed),
            skipped: Some(skipped),
            errors: Some(errors),
            complete: self.total.is_some() && !self.cancelled,
            names: self.names,
            running: None,
            broken: self.broken,
        })
    }
}
