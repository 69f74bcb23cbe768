//! jest and vitest, whose outputs are alike.

use super::{Found, Names, Parser, Summaries, Tally, number_and_word};

pub(super) struct Jest {
    /// What stands between a suite and a test.
    between: char,
    passed: u64,
    failed: u64,
    skipped: u64,
    errors: u64,
    total: Summaries,
    files: bool,
    /// What is said is about a file whose tests failed.
    failing: bool,
    names: Names,
    broken: Option<String>,
}

impl Jest {
    pub fn new(between: char) -> Self {
        let (passed, failed, skipped, errors) = (0, 0, 0, 0);
        let (total, names, broken) = (Summaries::default(), Names::default(), None);
        Self { between, passed, failed, skipped, errors, total, files: false, failing: false, names, broken }
    }

    /// `1 failed, 2 passed, 3 total` or `1 failed | 2 passed (3)`.
    fn counts(text: &str) -> Tally {
        let mut total = Tally::default();
        let text = text.rsplit_once('(').map_or(text, |(counts, _)| counts);
        for (number, word) in text.split([',', '|']).filter_map(number_and_word) {
            match word {
                "passed" => total.passed += number,
                "failed" => total.failed += number,
                "skipped" | "todo" | "pending" => total.skipped += number,
                _ => {}
            }
        }
        total
    }

    /// A suite that could not be run has no tests to count.
    fn suite_failed(&mut self, name: &str) {
        self.errors += 1;
        self.names.add(name);
    }
}

/// Whether a test that is in no suite may be called so: jest has headings of its own.
fn is_test(name: &str) -> bool {
    name != "Console" && !name.contains("Warning") && !name.starts_with("Cannot log after tests are done")
}

impl Parser for Jest {
    fn line(&mut self, line: &str) {
        let text = line.trim();
        let jest = self.between == '›';
        // At the place where the runner writes it: what tests print is further in, or not.
        let summary = if jest { "Tests:" } else { "      Tests  " };
        if let Some(counts) = line.strip_prefix(summary) {
            return self.total.add(Self::counts(counts));
        }
        if text.starts_with("Test Suites:") || text.starts_with("Test Files ") {
            self.files = true;
        } else if text.starts_with("No tests found") || text.starts_with("No test files found") {
            self.broken = Some(text.to_owned());
        } else if let Some(name) = text.strip_prefix("● ").filter(|_| jest) {
            if name == "Test suite failed to run" && line.starts_with("  ● ") {
                self.errors += 1;
            } else if name.contains(self.between)
                || (self.failing && line.starts_with("  ● ") && is_test(name))
            {
                self.names.add(name);
            }
        } else if text.starts_with("PASS ") {
            self.failing = false;
        } else if let Some(rest) = text.strip_prefix("FAIL ") {
            self.failing = true;
            let name = rest.trim();
            match name.split_once(" > ") {
                Some(_) => self.names.add(name),
                // vitest: a file that could not be loaded is said with its own name in brackets.
                None if !jest && name.contains(" [ ") => {
                    self.suite_failed(name.split(" [ ").next().unwrap_or(name));
                }
                None => {}
            }
        } else if text.starts_with("✓ ") {
            self.passed += 1;
        } else if text.starts_with("✕ ") || text.starts_with("× ") {
            self.failed += 1;
        } else if text.starts_with("○ ") || text.starts_with("↓ ") {
            self.skipped += 1;
        }
    }

    fn finish(self: Box<Self>, code: Option<i32>) -> Option<Found> {
        let seen = Tally { passed: self.passed, failed: self.failed, skipped: self.skipped, errors: 0 };
        let total = self.total.choose(code);
        if total.is_none() && seen.sum() == 0 && self.names.is_empty() && !self.files {
            return self.broken.map(|broken| Found { broken: Some(broken), ..Found::default() });
        }
        let tally = total.unwrap_or(seen);
        Some(Found {
            passed: Some(tally.passed),
            failed: Some(tally.failed),
            skipped: Some(tally.skipped),
            errors: Some(self.errors),
            complete: total.is_some(),
            names: self.names,
            running: None,
            broken: self.broken,
            missing: false,
        })
    }
}
