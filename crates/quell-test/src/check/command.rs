//! Which runner a command calls, and behind which words.

use super::options::{ELSEWHERE, is_among, misleads};
use super::wrapper::{is_wrapper, python_module};
use super::{Verdict, refuse};
use crate::runners::{Runner, cargo_verb};
use quell_guard::{BUILT_IN, DecisionCode, GUIDE, TestPolicy, matches};

use super::path::shown;

/// A command that runs tests.
#[derive(Clone, Debug)]
pub(crate) struct TestCommand {
    pub runner: Runner,
    /// The names that a policy may allow it by.
    pub names: Vec<String>,
    /// Where the runner is called: behind the words of a wrapper, if there is one.
    pub at: usize,
    /// Where the runner's own words begin.
    pub call: usize,
}

/// Words of wrappers by which targets are seen from another directory, or from a package of a workspace.
const MOVES: &str = "\
    --chdir --directory --cwd --prefix --dir --filter -F --recursive -r --workspace --workspaces workspace workspaces";

/// The last part of a path.
pub(crate) fn last(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The name of a program without its directory and version: `python3.11` is `python`, `jest@29` is `jest`.
pub(super) fn bare(word: &str) -> &str {
    let name = last(word);
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
}

/// What the words call. Behind a wrapper the first word counts that calls a runner.
pub(crate) fn read_command(words: &[String]) -> TestCommand {
    let program = last(words.first().map_or("", String::as_str));
    let mut names = vec![program.to_owned()];
    if bare(program) != program && !bare(program).is_empty() {
        names.push(bare(program).to_owned());
    }
    let wraps =
        is_wrapper(bare(program)) || python_module(words, 0).is_some_and(|found| found.1 == "coverage");
    let places = if wraps { 0..words.len() } else { 0..words.len().min(1) };
    let found = places.into_iter().find_map(|at| Some((at, runner_at(words, at)?)));
    let Some((at, (runner, call))) = found else {
        return TestCommand { runner: Runner::Other, names, at: 0, call: 1 };
    };
    if at == 0 && bare(program) == "python" {
        names.push(runner.name().into());
    }
    TestCommand { runner, names, at, call }
}

/// The runner that is called there, and where its own words begin.
fn runner_at(words: &[String], at: usize) -> Option<(Runner, usize)> {
    let module = |name: &str| match name {
        "pytest" | "py.test" => Some(Runner::Pytest),
        "unittest" => Some(Runner::Unittest),
        _ => None,
    };
    match bare(words.get(at)?) {
        "pytest" | "py.test" => Some((Runner::Pytest, at + 1)),
        "jest" => Some((Runner::Jest, at + 1)),
        "vitest" => Some((Runner::Vitest, at + 1)),
        "cargo-nextest" => Some((Runner::Nextest, at + 1)),
        "cargo" => Some((cargo_verb(&words[at + 1..])?, at + 1)),
        "go" if words.get(at + 1)? == "test" => Some((Runner::Go, at + 2)),
        "python" => {
            let (place, name) = python_module(words, at)?;
            Some((module(name)?, place + 1))
        }
        // `uv run -m pytest`, `coverage run -m pytest`.
        _ if at > 0 && words[at] == "-m" => Some((module(words.get(at + 1)?)?, at + 2)),
        _ => None,
    }
}

/// Refuses words of a wrapper that change what the targets are.
pub(super) fn check_moves(command: &TestCommand, words: &[String]) -> Verdict<()> {
    for word in words.iter().take(command.at).skip(1) {
        let option = word.split_once('=').map_or(word.as_str(), |(option, _)| option);
        if is_among(MOVES, option) || word.starts_with("-C") {
            return misleads(
                format!("`{option}` changes the directory that targets are seen from"),
                ELSEWHERE,
            );
        }
        if option == "PYTEST_ADDOPTS" {
            return misleads("`PYTEST_ADDOPTS` has more options in it", "write them as options of pytest");
        }
    }
    Ok(())
}

/// Whether the policy lets this program run tests.
pub(super) fn check_commands(policy: &TestPolicy, command: &TestCommand) -> Verdict<()> {
    // A pattern with a slash is compared with a path, any other one with a name.
    let fits =
        |pattern: &String, name: &str| pattern.contains('/') == name.contains('/') && matches(pattern, name);
    let allowed = |name: &String| policy.commands.iter().any(|pattern| fits(pattern, name));
    if policy.commands.is_empty() || command.names.iter().any(allowed) {
        return Ok(());
    }
    let name = shown(command.names.first().map_or("", String::as_str));
    let reason =
        format!("`{name}` is not among the programs that may run tests ({})", policy.commands.join(", "));
    let hint = format!("use one of them, or add it to guard.test.commands; {GUIDE}");
    refuse(DecisionCode::CommandNotAllowed, "guard.test.commands", reason, hint)
}

/// Refuses a program that can't be held to a scope.
pub(super) fn not_a_runner<T>(program: &str) -> Verdict<T> {
    let name = shown(program);
    let reason = format!("`{name}` is not a test runner that quell knows, so it can't be held to a scope");
    let hint = format!(
        "call a known runner or a script in the scope, or list the program in guard.test.commands of the file that \
         has the scope; {GUIDE}"
    );
    refuse(DecisionCode::CommandNotAllowed, "guard.test.commands", reason, hint)
}

/// Refuses a runner that is called for something else than tests.
pub(super) fn not_tests<T>(name: &str) -> Verdict<T> {
    let tests = if name == "cargo" { "`cargo test` and `cargo nextest run` are" } else { "`go test` is" };
    let reason = format!("with a scope only {tests} allowed");
    refuse(DecisionCode::CommandNotAllowed, BUILT_IN, reason, "call that, or run it without quell test")
}
