//! `cargo test`: the sum over all test programs.

use super::{Found, Names, Parser, Tally, number_and_word};

#[derive(Default)]
pub(super) struct Cargo {
    total: Tally,
    /// Results that came while another program was still running: a test's own output, unless that program never ends.
    inner: Tally,
    /// By the lines of the program whose result is not there yet.
    open: Tally,
    /// How many tests the programs have that began and have not ended. All but the first are a test's own output.
    running_tests: Vec<u64>,
    ended: u64,
    names: Names,
    running: Option<String>,
    broken: Option<String>,
}

fn add(to: &mut Tally, tally: Tally) {
    to.passed += tally.passed;
    to.failed += tally.failed;
    to.skipped += tally.skipped;
}

impl Cargo {
    /// A result counts if it is about as many tests as have begun.
    fn result(&mut self, rest: &str) {
        let counts = rest.split_once(". ").map_or(rest, |(_, counts)| counts);
        let (mut tally, mut measured) = (Tally::default(), 0);
        for (number, word) in counts.split(';').filter_map(number_and_word) {
            match word {
                "passed" => tally.passed += number,
                "failed" => tally.failed += number,
                "ignored" => tally.skipped += number,
                "measured" => measured += number,
                _ => {}
            }
        }
        let sum = tally.sum() + measured;
        let Some(at) = self.running_tests.iter().rposition(|number| *number == sum) else { return };
        self.running_tests.truncate(at);
        if at > 0 {
            return add(&mut self.inner, tally);
        }
        add(&mut self.total, tally);
        (self.open, self.inner, self.running) = (Tally::default(), Tally::default(), None);
        self.ended += 1;
    }
}

impl Parser for Cargo {
    fn line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("test result: ") {
            return self.result(rest);
        }
        let number = line
            .strip_prefix("running ")
            .and_then(|rest| rest.strip_suffix(" tests").or_else(|| rest.strip_suffix(" test")));
        if let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) {
            self.running_tests.push(number);
        } else if let Some(rest) = line.strip_prefix("test ")
            && let Some((name, end)) = rest.split_once(" ... ")
        {
            match end.split([' ', ',', '<']).next().unwrap_or_default() {
                _ if self.running_tests.len() > 1 => return,
                "ok" => self.open.passed += 1,
                "FAILED" => {
                    self.open.failed += 1;
                    self.names.add(name);
                }
                "ignored" => self.open.skipped += 1,
                _ => return self.running = Some(name.to_owned()),
            }
            self.running = None;
        } else if let Some(rest) = line.strip_prefix("---- ")
            && let Some(name) = rest.strip_suffix(" stdout ----")
        {
            // With `-q` no test has a line of its own.
            self.names.add(name);
        } else if (line.starts_with("error: could not compile")
            || line.starts_with("error: no such command")
            || line.starts_with("error: could not find `Cargo.toml`"))
            && self.broken.is_none()
        {
            self.broken = Some(line["error: ".len()..].to_owned());
        }
    }

    fn finish(mut self: Box<Self>, _: Option<i32>) -> Option<Found> {
        if self.ended == 0 && self.running_tests.is_empty() {
            return self.broken.map(|broken| Found { broken: Some(broken), ..Found::default() });
        }
        let (open, inner) = (self.open, self.inner);
        add(&mut self.total, open);
        add(&mut self.total, inner);
        Some(Found {
            passed: Some(self.total.passed),
            failed: Some(self.total.failed),
            skipped: Some(self.total.skipped),
            errors: Some(0),
            complete: self.running_tests.is_empty(),
            names: self.names,
            running: self.running,
            broken: self.broken,
            missing: false,
        })
    }
}
