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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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

impl Default for TestCounts {
    fn default() -> Self {
        let source = "exit_code".into();
        Self { passed: None, failed: None, skipped: None, errors: None, complete: false, source }
    }
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
    /// The line that says that the runner is not installed.
    pub missing: Option<String>,
    /// The runner came to its end and said what came of the tests, as far as that can be expected of it.
    pub reported: bool,
}

impl FoundTests {
    /// Takes what a report says in place of what was printed. False if the report is cut short, and the output is not.
    pub fn prefer(&mut self, report: Option<Self>, source: &str) -> bool {
        let Some(report) = report.filter(|report| report.reported || !self.counts.complete) else {
            return false;
        };
        self.counts = TestCounts { source: source.into(), ..report.counts };
        self.names = report.names;
        if report.reported {
            (self.reported, self.running, self.missing) = (true, None, None);
        }
        true
    }
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
            "passed" | "xpassed" | "measured" => &mut self.passed,
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
    /// cargo: the sum of all programs that ended, the number of tests of the running program, and whether cargo says that one failed.
    total: Tally,
    open: Option<u64>,
    has_failed_program: bool,
    /// go: tests that began, tests whose package is not known yet, and whether the output is JSON.
    begun: HashSet<String>,
    pending: Vec<String>,
    is_json: bool,
    /// jest: the lines are about a file with failed tests; a test called process.exit.
    in_failed_file: bool,
    has_exited: bool,
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
    runner: Runner,
    source: &'static str,
    read: fn(&mut Seen, &str),
    seen: Seen,
    /// The runner says at its end what came of the tests.
    reports: bool,
    /// A part of the output was not kept.
    is_cut: bool,
    /// A line that says that the runner is not installed.
    missing: Option<String>,
}

impl Counter {
    pub fn new(runner: Runner, reports: bool) -> Self {
        let (source, read): (_, fn(&mut Seen, &str)) = match runner {
            Runner::Pytest => ("pytest", pytest::read),
            Runner::Unittest => ("exit_code", pytest::read_unittest),
            Runner::Cargo => ("cargo", cargo::read),
            Runner::Nextest => ("nextest", nextest::read),
            Runner::Go => ("go", go::read),
            Runner::Jest => ("jest", jest::read_jest),
            Runner::Vitest => ("vitest", jest::read_vitest),
            Runner::Other => ("exit_code", |_, _| {}),
        };
        let seen = Seen { hides_passed: runner == Runner::Go, ..Seen::default() };
        Self { runner, source, read, seen, reports, is_cut: false, missing: None }
    }

    pub fn line(&mut self, line: &str) {
        if self.missing.is_none() && MISSING.lines().any(|sign| line.contains(sign)) {
            self.missing = Some(line.trim().to_owned());
        }
        (self.read)(&mut self.seen, line);
    }

    /// Lines are missing here.
    pub fn skip(&mut self) {
        self.is_cut = true;
    }

    /// What was found. There is no exit code if the runner was stopped.
    pub fn finish(self, code: Option<i32>) -> FoundTests {
        let seen = &self.seen;
        let is_good = code == Some(0);
        let summary = if is_good { seen.clean } else { seen.bad.or(seen.clean) };
        let tally = summary.unwrap_or(seen.tally);
        let is_nothing = tally.sum() == 0 && seen.names.kept.is_empty() && summary.is_none();
        let mut found = FoundTests {
            reported: self.has_reported(is_good, summary.is_some()),
            missing: self.missing.filter(|_| is_nothing && self.runner != Runner::Other),
            ..FoundTests::default()
        };
        // Numbers that do not fit the exit code were printed by a test.
        let fits = !is_good || tally.is_clean();
        if self.source != "exit_code" && fits && (!is_nothing || seen.running.is_some()) {
            let complete = summary.is_some();
            found.counts = TestCounts {
                passed: Some(tally.passed).filter(|_| !seen.hides_passed),
                failed: Some(tally.failed),
                skipped: Some(tally.skipped).filter(|_| !seen.hides_passed),
                errors: Some(tally.errors),
                complete,
                source: self.source.into(),
            };
            found.running = self.seen.running.filter(|_| !complete);
            found.names = if complete && tally.is_clean() { Names::default() } else { self.seen.names };
        }
        FoundTests { broken: self.seen.broken, ..found }
    }

    /// Whether the runner came to its end, as far as that can be known: jest and vitest may be told to print nothing of their own.
    fn has_reported(&self, is_good: bool, has_summary: bool) -> bool {
        let seen = &self.seen;
        has_summary && seen.open.is_none()
            || match self.runner {
                Runner::Pytest => !self.reports,
                _ if self.is_cut => true,
                Runner::Unittest => !self.reports,
                Runner::Cargo if is_good => seen.open.is_none(),
                Runner::Cargo => seen.open.is_some() || seen.has_failed_program,
                Runner::Go => is_good,
                Runner::Jest => !seen.has_exited,
                Runner::Nextest | Runner::Vitest | Runner::Other => true,
            }
    }
}

/// Parts of lines by which Python, poetry, uv, npm, yarn, pnpm, bun and cargo say that a runner is not installed.
const MISSING: &str = "\
No module named pytest
No module named 'pytest'
No module named _pytest
No module named '_pytest'
No module named py.test
No module named coverage
Command not found: pytest
Failed to spawn: `pytest`
Failed to spawn: pytest
\"jest\" not found
\"vitest\" not found
Script not found \"jest\"
Script not found \"vitest\"
could not determine executable to run
canceled due to missing packages
npm error code E
npm ERR! code E
no such command: `nextest`";

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
