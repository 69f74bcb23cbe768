//! Counts tests by the output of their runner. A reader gets the lines one by one, without colours, and keeps only the counts: the output
//! may be large, and may end anywhere. Tests print to the same streams as their runner, so numbers that contradict the runner's exit code
//! are ignored, and a report takes precedence over printed numbers.

mod cargo;
mod go;
mod jest;
mod junit;
mod nextest;
mod pytest;
#[cfg(test)]
mod tests;
mod unittest;

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Serialize;

pub(crate) use junit::ReportFile;

use crate::runners::Runner;

/// The limit for the names of failed tests.
const MAX_NAMES: usize = 1000;
/// The limit for a name, in characters.
const MAX_NAME_LENGTH: usize = 500;

/// The number of tests per result. A number that the runner does not print is absent.
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
    /// Tests that could not be run, such as those in a file that can't be loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
    /// Whether the runner printed or wrote its totals. If not, these are the results that it printed before it ended.
    pub complete: bool,
    /// The source: `junit`, `pytest`, `unittest`, `cargo`, `nextest`, `go`, `jest`, `vitest`; `exit_code` if nothing was counted.
    pub source: String,
}

impl Default for TestCounts {
    fn default() -> Self {
        let source = "exit_code".into();
        Self { passed: None, failed: None, skipped: None, errors: None, complete: false, source }
    }
}

/// What an output or a report says about the tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundTests {
    pub counts: TestCounts,
    /// The names of failed tests.
    pub names: Names,
    /// The test that began last and has not ended.
    pub running: Option<String>,
    /// Why the runner could not run the tests, in its own words.
    pub broken: Option<String>,
    /// The line of output which says that the runner is not installed.
    pub missing: Option<String>,
    /// Whether the runner reported its results. True also for runners that need not print any.
    pub reported: bool,
    /// Whether a report has a test without a result, which ended the runner.
    pub is_cut_short: bool,
    /// How many tests unittest says that it ran.
    pub ran: Option<u64>,
}

impl FoundTests {
    /// Whether no test ran, though the runner succeeded: it was asked for a list, a version or help. Only pytest and unittest always tell.
    pub fn ran_none(&self, runner: Runner) -> bool {
        let TestCounts { passed, failed, skipped, errors, .. } = self.counts;
        match runner {
            Runner::Pytest => [passed, failed, skipped, errors].into_iter().flatten().all(|count| count == 0),
            Runner::Unittest => self.ran.is_none_or(|ran| ran == 0),
            Runner::Cargo | Runner::Nextest | Runner::Go | Runner::Jest | Runner::Vitest | Runner::Other => {
                false
            }
        }
    }

    /// Replaces the printed results by those of a report. Returns false, and changes nothing, if the report is incomplete and the output
    /// is not.
    pub fn use_report(&mut self, report: Option<Self>, source: &str) -> bool {
        let is_better = |report: &Self| report.reported || report.is_cut_short || !self.counts.complete;
        let Some(report) = report.filter(is_better) else { return false };
        self.counts = TestCounts { source: source.into(), ..report.counts };
        self.names = report.names;
        if report.reported {
            (self.reported, self.running, self.missing) = (true, None, None);
        } else if report.is_cut_short {
            self.reported = false;
        }
        true
    }
}

/// The number of tests per result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    passed: u64,
    failed: u64,
    skipped: u64,
    errors: u64,
}

impl Totals {
    fn sum(&self) -> u64 {
        self.passed + self.failed + self.skipped + self.errors
    }

    fn is_clean(&self) -> bool {
        self.failed + self.errors == 0
    }

    /// Adds an item such as `2 passed`. Ignores other text. A timeout is a failure.
    fn add(&mut self, item: &str) {
        let Some((number, word)) = item.trim().split_once(' ') else { return };
        let Ok(number) = number.parse::<u64>() else { return };
        let count = match word.trim() {
            "passed" | "xpassed" | "measured" => &mut self.passed,
            "failed" | "timed out" => &mut self.failed,
            "skipped" | "xfailed" | "ignored" | "todo" | "pending" => &mut self.skipped,
            "error" | "errors" | "exec failed" => &mut self.errors,
            _ => return,
        };
        *count = count.saturating_add(number);
    }

    /// The sum of the items that are results.
    fn of<'t>(items: impl IntoIterator<Item = &'t str>) -> Self {
        let mut totals = Self::default();
        for item in items {
            totals.add(item);
        }
        totals
    }
}

/// The names of failed tests, without duplicates and up to a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub kept: Vec<String>,
    pub omitted: u64,
}

impl Names {
    fn add(&mut self, name: &str) {
        let mut name = name.trim().to_owned();
        if let Some((end, _)) = name.char_indices().nth(MAX_NAME_LENGTH) {
            name.truncate(end);
            name.push('…');
        }
        if name.is_empty() || self.kept.contains(&name) {
            return;
        }
        if self.kept.len() < MAX_NAMES {
            self.kept.push(name);
        } else {
            self.omitted += 1;
        }
    }
}

/// The results that a reader has found so far.
#[derive(Default)]
struct ReaderState {
    /// Counted line by line.
    totals: Totals,
    /// The last summary without failed tests, and the last one with some. The exit code decides which is the runner's own.
    clean: Option<Totals>,
    bad: Option<Totals>,
    names: Names,
    running: Option<String>,
    broken: Option<String>,
    /// The runner does not print which tests passed.
    hides_passed: bool,
    /// unittest: the number of passed tests does not follow from the numbers that it prints.
    passed_is_unknown: bool,
    /// cargo: the sum over all test programs that ended, the number of tests in the running one (unittest: of those whose result is not
    /// printed yet), and whether cargo says that one failed.
    total: Totals,
    open: Option<u64>,
    has_failed_program: bool,
    /// cargo says that it runs a test program. One with a harness of its own may print no results.
    has_program: bool,
    /// go: tests that began, tests whose package is not known yet, and whether the output is JSON.
    begun: HashSet<String>,
    pending: Vec<String>,
    is_json: bool,
    /// jest: whether the lines are about a file with failed tests, and whether a test called process.exit.
    in_failed_file: bool,
    has_exited: bool,
    /// unittest: how many tests it says that it ran.
    ran: Option<u64>,
}

impl ReaderState {
    fn summary(&mut self, totals: Totals) {
        *(if totals.is_clean() { &mut self.clean } else { &mut self.bad }) = Some(totals);
    }

    /// Discards the summaries: the runner goes on, so they were not its last.
    fn clear_summaries(&mut self) {
        (self.clean, self.bad) = (None, None);
    }

    fn failed(&mut self, name: &str) {
        self.totals.failed += 1;
        self.names.add(name);
    }

    fn test_ended(&mut self, name: &str) {
        self.running.take_if(|running| running == name);
    }

    fn set_broken(&mut self, why: &str) {
        self.broken.get_or_insert_with(|| why.trim().to_owned());
    }
}

/// Reads the output of a run.
pub(crate) struct Counter {
    runner: Runner,
    source: &'static str,
    read: fn(&mut ReaderState, &str),
    state: ReaderState,
    /// Whether the runner is expected to report its results.
    reports: bool,
    /// A part of the output was not captured.
    is_cut: bool,
    /// The first line which says that the runner is not installed.
    missing: Option<String>,
}

impl Counter {
    pub fn new(runner: Runner, reports: bool) -> Self {
        let (source, read): (_, fn(&mut ReaderState, &str)) = match runner {
            Runner::Pytest => ("pytest", pytest::read),
            Runner::Unittest => ("unittest", unittest::read),
            Runner::Cargo => ("cargo", cargo::read),
            Runner::Nextest => ("nextest", nextest::read),
            Runner::Go => ("go", go::read),
            Runner::Jest => ("jest", jest::read_jest),
            Runner::Vitest => ("vitest", jest::read_vitest),
            Runner::Other => ("exit_code", |_, _| {}),
        };
        let state = ReaderState { hides_passed: runner == Runner::Go, ..ReaderState::default() };
        Self { runner, source, read, state, reports, is_cut: false, missing: None }
    }

    /// Whether lines can change the result. They can't for a program that is not a known runner.
    pub fn needs_lines(&self) -> bool {
        self.runner != Runner::Other
    }

    pub fn line(&mut self, line: &str) {
        if line.len() >= SHORTEST_MISSING
            && self.missing.is_none()
            && MISSING.lines().any(|sign| line.contains(sign))
        {
            self.missing = Some(line.trim().to_owned());
        }
        (self.read)(&mut self.state, line);
    }

    /// Notes that output is missing here.
    pub fn skip(&mut self) {
        self.is_cut = true;
    }

    /// The results. `code` is `None` if the runner was stopped.
    pub fn finish(self, code: Option<i32>) -> FoundTests {
        let state = &self.state;
        let succeeded = code == Some(0);
        let summary = if succeeded { state.clean } else { state.bad.or(state.clean) };
        let totals = summary.unwrap_or(state.totals);
        let is_empty = totals.sum() == 0 && state.names.kept.is_empty() && summary.is_none();
        let mut found = FoundTests {
            reported: self.has_reported(succeeded, summary.is_some()),
            missing: self.missing.filter(|_| is_empty && self.runner != Runner::Other),
            ran: state.ran,
            ..FoundTests::default()
        };
        // Numbers that contradict the exit code were printed by a test.
        let fits = !succeeded || totals.is_clean();
        if self.source != "exit_code" && fits && (!is_empty || state.running.is_some()) {
            let complete = summary.is_some();
            found.counts = TestCounts {
                passed: Some(totals.passed).filter(|_| !state.hides_passed && !state.passed_is_unknown),
                failed: Some(totals.failed),
                skipped: Some(totals.skipped).filter(|_| !state.hides_passed),
                errors: Some(totals.errors),
                complete,
                source: self.source.into(),
            };
            found.running = self.state.running.filter(|_| !complete);
            found.names = if complete && totals.is_clean() { Names::default() } else { self.state.names };
        }
        FoundTests { broken: self.state.broken, ..found }
    }

    /// Whether the runner reported its results, or need not: jest and vitest can be told to print nothing.
    fn has_reported(&self, succeeded: bool, has_summary: bool) -> bool {
        let state = &self.state;
        has_summary && state.open.is_none()
            || match self.runner {
                // Their results come last, and of a long output the tail is kept.
                Runner::Pytest | Runner::Unittest => !self.reports,
                _ if self.is_cut => true,
                Runner::Cargo if succeeded => state.open.is_none() && (state.has_program || !self.reports),
                // A program that has begun and printed no result was aborted, or a test ended it.
                Runner::Cargo => state.open.is_none() && state.has_failed_program,
                Runner::Nextest => !succeeded || !self.reports,
                Runner::Go => succeeded,
                Runner::Jest => !state.has_exited,
                Runner::Vitest | Runner::Other => true,
            }
    }
}

/// Messages of Python, poetry, uv, npm, yarn, pnpm, bun and cargo about a runner that is not installed.
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

/// The length of the shortest of them.
const SHORTEST_MISSING: usize = "npm ERR! code E".len();

/// A line without control characters and terminal escape sequences.
pub(crate) fn plain(line: &str) -> Cow<'_, str> {
    if line.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) {
        return line.into();
    }
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
    plain.into()
}
