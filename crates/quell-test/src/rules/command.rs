//! Which program runs the tests, by the way in which it is called.

use super::Decision;
use super::runner::misleads;
use super::wrapper::{is_flag, is_wrapper, telling_flag};

/// A program that runs tests, by the way in which it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// `pytest`, `python -m pytest`.
    Pytest,
    /// `python -m unittest`.
    Unittest,
    /// `cargo test`.
    Cargo,
    /// `cargo nextest`.
    Nextest,
    /// `go test`.
    Go,
    /// `jest`.
    Jest,
    /// `vitest`.
    Vitest,
    /// Any other one.
    Other,
}

impl Runner {
    /// What people call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pytest => "pytest",
            Self::Unittest => "unittest",
            Self::Cargo => "cargo test",
            Self::Nextest => "cargo nextest",
            Self::Go => "go test",
            Self::Jest => "jest",
            Self::Vitest => "vitest",
            Self::Other => "this command",
        }
    }
}

/// A command that runs tests.
#[derive(Clone, Debug)]
pub struct TestCommand {
    /// What it is.
    pub runner: Runner,
    /// The names that a policy may allow it by.
    pub names: Vec<String>,
    /// Where the runner is called: behind a wrapper's words, if there is one.
    pub at: usize,
    /// Where the runner's own words begin.
    pub call: usize,
}

/// Options of wrappers whose value may have a runner's name: `uv run --with pytest pytest tests`.
const WRAPPER_VALUES: &[&str] = &[
    "-u",
    "--unset",
    "-k",
    "-s",
    "--with",
    "-w",
    "--from",
    "--package",
    "-p",
    "--extra",
    "--group",
    "--only-group",
    "--python",
    "--source",
];

/// Words of wrappers by which the targets are seen from elsewhere: from a directory, or from a package of a workspace.
const ELSEWHERE: &[&str] = &[
    "--chdir",
    "--directory",
    "--cwd",
    "--prefix",
    "--dir",
    "--filter",
    "-F",
    "--recursive",
    "-r",
    "--workspace",
    "--workspaces",
    "workspace",
    "workspaces",
];

/// The last part of a path.
pub(super) fn last(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The name of a program without the version behind it: `python3.11` is `python`, `pytest-3` is `pytest`.
pub(super) fn bare(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
}

/// What the words call.
pub fn read_command(words: &[String]) -> TestCommand {
    let program = last(words.first().map_or("", String::as_str));
    let mut names = vec![program.to_owned()];
    if bare(program) != program && !bare(program).is_empty() {
        names.push(bare(program).to_owned());
    }
    let other = TestCommand { runner: Runner::Other, names, at: 0, call: 1 };
    if let Some((runner, call)) = runner_at(words, 0) {
        let mut command = TestCommand { runner, call, ..other };
        // Other flags can have any code loaded.
        if bare(program) == "python" && telling_flag(Runner::Pytest, &words[1..call], |_| false).is_none() {
            command.names.push(runner.name().into());
        }
        return command;
    }
    if !is_wrapper(bare(program)) && coverage_module(words, 0).is_none() {
        return other;
    }
    let value = |at: usize| {
        let (option, before) = (words[at - 1].as_str(), &words[..at - 1]);
        let wrapper = before.iter().rev().map(|word| bare(last(word))).find(|name| is_wrapper(name));
        WRAPPER_VALUES.contains(&option) && !wrapper.is_some_and(|wrapper| is_flag(wrapper, option))
    };
    let behind = (1..words.len()).filter(|at| !value(*at));
    let found = behind.filter_map(|at| Some((at, runner_at(words, at)?))).next();
    match found {
        Some((at, (runner, call))) => TestCommand { runner, at, call, ..other },
        None => other,
    }
}

/// The runner that is called there, and where its own words begin.
fn runner_at(words: &[String], at: usize) -> Option<(Runner, usize)> {
    let word = |at: usize| words.get(at).map(String::as_str);
    // `npx jest@29`.
    let name = last(word(at)?);
    match bare(name.split_once('@').map_or(name, |(name, _)| name)) {
        "pytest" | "py.test" => Some((Runner::Pytest, at + 1)),
        "jest" => Some((Runner::Jest, at + 1)),
        "vitest" => Some((Runner::Vitest, at + 1)),
        "cargo-nextest" => Some((Runner::Nextest, at + 1)),
        "python" => {
            let (place, module) = python_module(words, at + 1)?;
            module_runner(module).map(|runner| (runner, place + 1))
        }
        // `uv run -m pytest`, `coverage run -m pytest`.
        "-m" if at > 0 => module_runner(word(at + 1)?).map(|runner| (runner, at + 2)),
        "cargo" => cargo_verb(words, at + 1).map(|runner| (runner, at + 1)),
        "go" if word(at + 1) == Some("test") => Some((Runner::Go, at + 2)),
        _ => None,
    }
}

/// Where the module stands in `python -m coverage`.
pub(super) fn coverage_module(words: &[String], at: usize) -> Option<usize> {
    let python = words.get(at).is_some_and(|word| bare(last(word)) == "python");
    let (place, module) = python_module(words, at + 1).filter(|_| python)?;
    (module == "coverage").then_some(place)
}

fn module_runner(module: &str) -> Option<Runner> {
    match module {
        "pytest" | "py.test" => Some(Runner::Pytest),
        "unittest" => Some(Runner::Unittest),
        _ => None,
    }
}

/// The module that `python … -m MODULE` runs, and the place of the word that it is in. Python reads its options up to the
/// first one that says what to run, and everything behind that is for the program.
fn python_module(words: &[String], first: usize) -> Option<(usize, &str)> {
    let mut at = first;
    loop {
        let letters = words.get(at)?.strip_prefix('-').filter(|letters| !letters.is_empty())?;
        let mut takes_next = false;
        for (place, letter) in letters.char_indices() {
            let rest = &letters[place + letter.len_utf8()..];
            match letter {
                'b' | 'B' | 'd' | 'E' | 'i' | 'I' | 'O' | 'P' | 'q' | 's' | 'S' | 'u' | 'v' | 'V' | 'x' => {}
                'm' if rest.is_empty() => {
                    return words.get(at + 1).map(|module| (at + 1, module.as_str()));
                }
                'm' => return Some((at, rest)),
                'X' | 'W' => {
                    takes_next = rest.is_empty();
                    break;
                }
                // Code (`c`), a long option, or one that nobody here knows.
                _ => return None,
            }
        }
        at += if takes_next { 2 } else { 1 };
    }
}

/// What cargo is to do, behind a toolchain and options of its own.
fn cargo_verb(words: &[String], first: usize) -> Option<Runner> {
    let mut at = first;
    loop {
        match words.get(at)?.as_str() {
            "test" | "t" => return Some(Runner::Cargo),
            "nextest" => return Some(Runner::Nextest),
            "-C" | "-Z" | "--config" | "--color" => at += 2,
            option if option.starts_with(['-', '+']) => at += 1,
            _ => return None,
        }
    }
}

/// Refuses a wrapper's words that change what the targets are.
pub(super) fn wrapper_words(command: &TestCommand, words: &[String]) -> Result<(), Box<Decision>> {
    for word in words[..command.at.min(words.len())].iter().skip(1) {
        let option = word.split_once('=').map_or(word.as_str(), |(option, _)| option);
        if ELSEWHERE.contains(&option) || word.starts_with("-C") {
            let reason = format!("`{option}` changes the directory that targets are seen from");
            return misleads(reason, "go into that directory, and call quell there");
        }
        if option == "PYTEST_ADDOPTS" {
            let reason = "`PYTEST_ADDOPTS` has more options in it".into();
            return misleads(reason, "write them as options of pytest");
        }
    }
    Ok(())
}
