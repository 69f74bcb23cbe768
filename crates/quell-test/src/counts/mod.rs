//! How many tests passed, from what their runner wrote. A reader gets the lines one by one, without colours, and keeps only what it
//! counts: an output may be large, and may end anywhere. Tests print to the same place as their runner: numbers that don't fit the
//! runner's exit code are not believed, and a report beats all of them.

mod cargo;
mod go;
mod jest;
mod junit;
mod nextest;
mod pytest;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use serde::Serialize;

pub(crate) use junit::ReportFile;

use crate::runners::Runner;

/// How many names of failed tests are kept.
const MOST_NAMES: usize = 1000;
/// How many characters of a name are kept.
const LONGEST_NAME: usize = 500;

/// How many tests had which result. What is not known is absent: not every runner says how many passed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestCounts {
    /// Tests that passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passed: Option<u64>,
    /// Tests that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<u64>,
    /// Tests that were skipped, or failed as expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<u64>,
    /// Tests that could not be run, such as a file that can't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
    /// Whether the runner counted all of them; else these are the numbers up to the end of its output.
    pub complete: bool,
    /// The source: `junit`, `pytest`, `cargo`, `nextest`, `go`, `jest`, `vitest`; `exit_code` if nothing was counted.
    pub source: String,
}

/// What was found in an output or a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundTests {
    pub counts: TestCounts,
    /// The failed tests.
    pub names: Names,
    /// The test that began last and has not ended.
    pub running: Option<String>,
    /// Why the runner could not run tests, if it says so.
    pub broken: Option<String>,
    /// The runner is not installed.
    pub missing: bool,
}

/// How many tests had which result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
    errors: u64,
}

impl Tally {
    fn sum(&self) -> u64 {
        self.passed + self.failed + self.skipped + self.errors
    }

    fn is_clean(&self) -> bool {
        self.failed + self.errors == 0
    }

    /// Adds `2 passed`; false if that is not a result. A timeout is a failure.
    fn add(&mut self, item: &str) -> bool {
        let Some((number, word)) = item.trim().split_once(' ') else { return false };
        let Ok(number) = number.parse::<u64>() else { return false };
        let place = match word.trim() {
            "passed" | "xpassed" => &mut self.passed,
            "failed" | "timed out" => &mut self.failed,
            "skipped" | "xfailed" | "ignored" | "todo" | "pending" => &mut self.skipped,
            "error" | "errors" | "exec failed" => &mut self.errors,
            _ => return false,
        };
        *place = place.saturating_add(number);
        true
    }

    /// The results in a text, of which other words are passed over.
    fn of<'t>(items: impl IntoIterator<Item = &'t str>) -> Self {
        let mut tally = Self::default();
        for item in items {
            tally.add(item);
        }
        tally
    }
}

/// Names of failed tests, each once, and no more than a person reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub kept: Vec<String>,
    pub omitted: u64,
}

impl Names {
    fn add(&mut self, name: &str) {
        let name: String = name.trim().chars().take(LONGEST_NAME).collect();
        if name.is_empty() || self.kept.contains(&name) {
            return;
        }
        if self.kept.len() < MOST_NAMES {
            self.kept.push(name);
        } else {
            self.omitted += 1;
        }
    }
}

/// What a reader has seen so far.
#[derive(Default)]
struct Seen {
    /// By single lines.
    tally: Tally,
    /// The last summary without failed tests, and the last one with some: the exit code tells which is the runner's own.
    clean: Option<Tally>,
    bad: Option<Tally>,
    names: Names,
    running: Option<String>,
    broken: Option<String>,
    /// The runner does not say which tests passed.
    hides_passed: bool,
    /// cargo: the sum of all programs that ended, and the number of tests of the running program.
    total: Tally,
    open: Option<u64>,
    /// go: tests that began, tests whose package is not known yet, and whether the output is JSON.
    begun: HashSet<String>,
    pending: Vec<String>,
    is_json: bool,
    /// jest: the lines are about a file with failed tests.
    in_failed_file: bool,
    /// pytest: whether titles and the summary are framed by `=`, and whether the progress is over.
    is_framed: Option<bool>,
    is_over: bool,
}

impl Seen {
    fn summary(&mut self, tally: Tally) {
        *(if tally.is_clean() { &mut self.clean } else { &mut self.bad }) = Some(tally);
    }

    /// The summaries so far were not the runner's last.
    fn no_summary(&mut self) {
        (self.clean, self.bad) = (None, None);
    }

    fn failed(&mut self, name: &str) {
        self.tally.failed += 1;
        self.names.add(name);
    }

    fn end_of(&mut self, name: &str) {
        self.running.take_if(|running| running == name);
    }

    fn broke(&mut self, why: &str) {
        self.broken.get_or_insert_with(|| why.trim().to_owned());
    }
}

/// Reads the output of a run.
pub(crate) struct Counter {
    source: &'static str,
    read: fn(&mut Seen, &str),
    seen: Seen,
    /// A line that says that the runner is not installed.
    missing: Option<String>,
}

impl Counter {
    pub fn new(runner: Runner) -> Self {
        let (source, read): (_, fn(&mut Seen, &str)) = match runner {
            Runner::Pytest => ("pytest", pytest::read),
            Runner::Cargo => ("cargo", cargo::read),
            Runner::Nextest => ("nextest", nextest::read),
            Runner::Go => ("go", go::read),
            Runner::Jest => ("jest", jest::read_jest),
            Runner::Vitest => ("vitest", jest::read_vitest),
            Runner::Unittest | Runner::Other => ("exit_code", |_, _| {}),
        };
        let seen = Seen { hides_passed: runner == Runner::Go, ..Seen::default() };
        Self { source, read, seen, missing: None }
    }

    pub fn line(&mut self, line: &str) {
        if self.missing.is_none() && is_missing(line) {
            self.missing = Some(line.trim().to_owned());
        }
        (self.read)(&mut self.seen, line);
    }

    /// What was found. There is no exit code if the runner was stopped.
    pub fn finish(self, code: Option<i32>) -> Option<FoundTests> {
        let seen = self.seen;
        let is_pytest = self.source == "pytest";
        let summary = match code {
            Some(0) => seen.clean,
            // pytest found no tests.
            Some(5) if is_pytest => seen.clean,
            Some(1) if is_pytest => seen.bad,
            _ => seen.bad.or(seen.clean),
        };
        let tally = summary.unwrap_or(seen.tally);
        // What does not fit the exit code was printed by a test.
        let fits = match code {
            Some(0) => tally.is_clean(),
            Some(1) if is_pytest => !tally.is_clean(),
            _ => true,
        };
        let is_nothing = tally.sum() == 0 && seen.names.kept.is_empty();
        let nothing = |broken: String, missing: bool| {
            let counts = TestCounts { source: "exit_code".into(), ..TestCounts::default() };
            FoundTests { counts, broken: Some(broken), missing, ..FoundTests::default() }
        };
        if let Some(line) = self.missing.filter(|_| is_nothing && summary.is_none()) {
            return Some(nothing(line, true));
        }
        if !fits || is_nothing && summary.is_none() && seen.running.is_none() {
            return seen.broken.map(|broken| nothing(broken, false));
        }
        let complete = summary.is_some();
        Some(FoundTests {
            counts: TestCounts {
                passed: Some(tally.passed).filter(|_| !seen.hides_passed),
                failed: Some(tally.failed),
                skipped: Some(tally.skipped).filter(|_| !seen.hides_passed),
                errors: Some(tally.errors),
                complete,
                source: self.source.into(),
            },
            names: if complete && tally.is_clean() { Names::default() } else { seen.names },
            running: seen.running.filter(|_| !complete),
            broken: seen.broken,
            missing: false,
        })
    }
}

/// Parts of lines that say that the runner is not installed, each with what has to stand behind it.
const MISSING: [(&str, &[&str]); 7] = [
    // python -m pytest, coverage run -m pytest, and a script of pytest's whose package is gone.
    ("No module named ", &["pytest", "'pytest'", "_pytest", "'_pytest'", "py.test"]),
    // poetry run
    ("Command not found: ", &["pytest"]),
    // uv run
    ("Failed to spawn: ", &["`pytest`", "pytest"]),
    // yarn, pnpm
    ("Command \"", &["jest\" not found", "vitest\" not found"]),
    // npx
    ("could not determine executable to run", &[""]),
    ("canceled due to missing packages", &[""]),
    // cargo nextest
    ("no such command: ", &["`nextest`"]),
];

fn is_missing(line: &str) -> bool {
    MISSING.iter().any(|(sign, behind)| {
        let rest = line.split_once(sign).map(|(_, rest)| rest);
        rest.is_some_and(|rest| behind.iter().any(|word| rest.starts_with(word)))
    })
}

/// A line without the sequences by which a terminal is coloured or moved.
pub(crate) fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            if c == '\t' || !c.is_control() {
                plain.push(c);
            }
            continue;
        }
        match chars.next() {
            // CSI: parameters up to a letter.
            Some('[') => while chars.next().is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {},
            // OSC: a text up to BEL or ESC \.
            Some(']') => {
                while let Some(c) = chars.next() {
                    if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                        break;
                    }
                }
            }
            Some('(' | ')') => drop(chars.next()),
            Some(_) | None => {}
        }
    }
    plain
}
