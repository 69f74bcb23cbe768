//! `cargo test`: the sum over all test programs.

use super::{Found, Names, Parser, number_and_word};

#[derive(Default)]
pub(super) struct Cargo {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Of the program whose result is not there yet.
    open: [u64; 3],
    begun: u64,
    ended: u64,
    names: Names,
    running: Option<String>,
    broken: Option<String>,
}

impl Cargo {
    fn result(&mut self, rest: &str) {
        let counts = rest.split_once(". ").map_or(rest, |(_, counts)| counts);
        for (number, word) in counts.split(';').filter_map(number_and_word) {
            match word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
        self.open = [0; 3];
        self.ended += 1;
        self.running = None;
    }
}

impl Parser for Cargo {
    fn line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("test result: ") {
            return self.result(rest);
        }
        let running = line
            .strip_prefix("running ")
            .and_then(|rest| rest.strip_suffix(" tests").or_else(|| rest.strip_suffix(" test")));
        if running.is_some_and(|number| number.parse::<u64>().is_ok()) {
            self.begun += 1;
        } else if let Some(rest) = line.strip_prefix("test ")
            && let Some((name, end)) = rest.split_once(" ... ")
        {
            match end.split([' ', ',', '<']).next().unwrap_or_default() {
                "ok" => self.open[0] += 1,
                "FAILED" => {
                    self.open[1] += 1;
                    self.names.add(name);
                }
                "ignored" => self.open[2] += 1,
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

    fn finish(self: Box<Self>) -> Option<Found> {
        if self.begun + self.ended == 0 {
            return self.broken.map(|broken| Found { broken: Some(broken), ..Found::default() });
        }
        let [passed, failed, skipped] = self.open;
        Some(Found {
            passed: Some(self.passed + passed),
            failed: Some(self.failed + failed),
            skipped: Some(self.skipped + skipped),
            errors: Some(0),
            complete: self.ended > 0 && self.ended >= self.begun,
            names: self.names,
            running: self.running,
            broken: self.broken,
        })
    }
}
