//! How many tests passed, from what their runner wrote. Every parser is given the lines one by one, as they came, without
//! colours, and keeps only what it counts: an output may be large, and may end anywhere.

mod cargo;
mod go;
mod jest;
mod junit;
mod missing;
mod nextest;
mod pytest;
#[cfg(test)]
mod tests;

use crate::runners::Runner;
use serde::Serialize;

pub(crate) use junit::Report;
#[cfg(test)]
use junit::read as read_junit;

/// How many names of failed tests are kept.
const MOST_NAMES: usize = 1000;
/// How much of a name is kept, in characters.
const LONGEST_NAME: usize = 500;

/// How many tests came to what. What is not known is absent: not every runner says how many passed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestCounts {
    /// Those that passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passed: Option<u64>,
    /// Those that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<u64>,
    /// Those that were left out, or were expected to fail and did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<u64>,
    /// Those that could not be run, such as a file that can't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
    /// Whether the runner came to its own end and counted all; else these are those up to the end of its output.
    pub complete: bool,
    /// Where this is from: `junit`, `pytest`, `cargo`, `nextest`, `go`, `jest`, `vitest`; `exit_code` if nobody counted.
    pub source: String,
}

/// What a parser has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FoundTests {
    pub passed: Option<u64>,
    pub failed: Option<u64>,
    pub skipped: Option<u64>,
    pub errors: Option<u64>,
    /// The runner's own summary was there.
    pub complete: bool,
    /// The failed tests.
    pub names: Names,
    /// The test that had begun last, if it has not ended.
    pub running: Option<String>,
    /// Why the runner could not run tests, if that is what it says.
    pub broken: Option<String>,
    /// That is because it is not installed.
    pub missing: bool,
}

impl FoundTests {
    /// Whether nothing at all was counted.
    fn is_nothing(&self) -> bool {
        let all = [self.passed, self.failed, self.skipped, self.errors];
        all.iter().all(|count| count.unwrap_or(0) == 0) && self.names.is_empty()
    }
}

/// How many tests came to what.
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
}

/// The last summaries of an output. Tests may print what looks like one: which of them is the runner's own is told by its exit code.
#[derive(Default)]
struct Summaries {
    clean: Option<Tally>,
    bad: Option<Tally>,
    last: Option<Tally>,
}

impl Summaries {
    fn add(&mut self, tally: Tally) {
        *(if tally.is_clean() { &mut self.clean } else { &mut self.bad }) = Some(tally);
        self.last = Some(tally);
    }

    fn choose(&self, code: Option<i32>) -> Option<Tally> {
        match code {
            Some(0) => self.clean,
            Some(_) => self.bad.or(self.clean),
            None => self.last,
        }
    }
}

/// Names of failed tests, each once, and no more than can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub kept: Vec<String>,
    pub omitted: u64,
}

impl Names {
    pub fn add(&mut self, name: &str) {
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

    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

/// Reads the output of one runner.
trait Parser {
    /// A line without its end; the last one of an output may not have had one.
    fn line(&mut self, line: &str);
    /// What was found, if it was this runner's output at all. The exit code of the runner is none if that did not come to its end,
    /// or if it is not known which one it is.
    fn finish(self: Box<Self>, code: Option<i32>) -> Option<FoundTests>;
}

/// Reads an output, by the rules of one runner or, if that is not known, of whichever fits.
pub(super) struct Counter {
    parsers: Vec<(&'static str, Box<dyn Parser>)>,
    guessing: bool,
    /// What says that the runner is not installed.
    missing: Option<String>,
}

impl Counter {
    pub fn new(runner: Runner) -> Self {
        let named = |runner: Runner| -> Option<(&'static str, Box<dyn Parser>)> {
            Some(match runner {
                Runner::Pytest => ("pytest", Box::<pytest::Pytest>::default()),
                Runner::Cargo => ("cargo", Box::<cargo::Cargo>::default()),
                Runner::Nextest => ("nextest", Box::<nextest::Nextest>::default()),
                Runner::Go => ("go", Box::<go::Go>::default()),
                Runner::Jest => ("jest", Box::new(jest::Jest::new('›'))),
                Runner::Vitest => ("vitest", Box::new(jest::Jest::new('>'))),
                Runner::Unittest | Runner::Other => return None,
            })
        };
        let known = named(runner);
        let guessing = known.is_none();
        let every =
            [Runner::Pytest, Runner::Nextest, Runner::Cargo, Runner::Go, Runner::Vitest, Runner::Jest];
        let parsers = match known {
            Some(parser) => vec![parser],
            None => every.into_iter().filter_map(named).collect(),
        };
        Self { parsers, guessing, missing: None }
    }

    pub fn line(&mut self, line: &str) {
        if self.missing.is_none() && missing::says_so(line) {
            self.missing = Some(line.trim().to_owned());
        }
        for (_, parser) in &mut self.parsers {
            parser.line(line);
        }
    }

    /// What was found, and by whose rules. Only a whole summary counts where the runner had to be guessed. Where the runner is known
    /// and exited with 0 no test has failed, whatever is printed.
    pub fn finish(self, code: Option<i32>) -> Option<(&'static str, FoundTests)> {
        let guessing = self.guessing;
        let code = code.filter(|_| !guessing);
        let found = self.parsers.into_iter().filter_map(|(name, parser)| Some((name, parser.finish(code)?)));
        let bad = |found: &FoundTests| found.failed.unwrap_or(0) + found.errors.unwrap_or(0) > 0;
        let mut found = found.filter(|(_, found)| !guessing || (found.complete && !found.is_nothing()));
        let found = found.find(|(_, found)| code != Some(0) || !bad(found)).map(|(name, mut found)| {
            if found.complete && !bad(&found) {
                found.names = Names::default();
            }
            (name, found)
        });
        // Tests may print such a line, too: it counts where nothing of a runner is seen.
        match self.missing {
            Some(line) if found.as_ref().is_none_or(|(_, found)| found.is_nothing() && !found.complete) => {
                Some(("exit_code", FoundTests { broken: Some(line), missing: true, ..FoundTests::default() }))
            }
            _ => found,
        }
    }
}

/// A line without the sequences by which a terminal is coloured or moved.
pub(super) fn plain(line: &str) -> String {
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

/// The number at the beginning of a text, and the word behind it: `2 passed`.
fn number_and_word(text: &str) -> Option<(u64, &str)> {
    let (number, word) = text.trim().split_once(' ')?;
    Some((number.parse().ok()?, word.trim()))
}
