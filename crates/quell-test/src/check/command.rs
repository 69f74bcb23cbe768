//! Finds the runner that a command line calls, and where its arguments start.

use super::options::{CHANGE_DIRECTORY, ambiguous, is_among};
use super::wrapper::{is_wrapper, python_module};
use super::{Checked, refuse};
use crate::runners::{Runner, cargo_verb};
use quell_guard::{BUILT_IN, DecisionCode, GUIDE, TestPolicy, matches};

use super::path::printable;

/// A command that runs tests.
#[derive(Clone, Debug)]
pub(crate) struct TestCommand {
    pub runner: Runner,
    /// The names by which `guard.test.commands` may list it.
    pub names: Vec<String>,
    /// The index of the word that calls the runner: after the words of a wrapper, if there is one.
    pub runner_index: usize,
    /// The index of the runner's first argument.
    pub args_start: usize,
}

/// Words of wrappers that change the directory, or choose a package of a workspace.
const DIRECTORY_OPTIONS: &str = "\
    --chdir --directory --cwd --prefix --dir --filter -F --recursive -r --workspace --workspaces workspace workspaces";

/// The last part of a path.
pub(crate) fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The name of a program without its directory and version: `python3.11` is `python`, `jest@29` is `jest`.
pub(super) fn program_name(word: &str) -> &str {
    let name = base_name(word);
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
}

/// Reads a command line. After a wrapper, the first word that calls a runner counts.
pub(crate) fn read_command(words: &[String]) -> TestCommand {
    let program = base_name(words.first().map_or("", String::as_str));
    let mut names = vec![program.to_owned()];
    if program_name(program) != program && !program_name(program).is_empty() {
        names.push(program_name(program).to_owned());
    }
    let wraps = is_wrapper(program_name(program))
        || python_module(words, 0).is_some_and(|found| found.1 == "coverage");
    let places = if wraps { 0..words.len() } else { 0..words.len().min(1) };
    let found = places.into_iter().find_map(|at| Some((at, runner_at(words, at)?)));
    let Some((runner_index, (runner, args_start))) = found else {
        return TestCommand { runner: Runner::Other, names, runner_index: 0, args_start: 1 };
    };
    if runner_index == 0 && program_name(program) == "python" {
        names.push(runner.name().into());
    }
    TestCommand { runner, names, runner_index, args_start }
}

/// The runner that the word at `at` calls, and the index of its first argument.
fn runner_at(words: &[String], at: usize) -> Option<(Runner, usize)> {
    let module = |name: &str| match name {
        "pytest" | "py.test" => Some(Runner::Pytest),
        "unittest" => Some(Runner::Unittest),
        _ => None,
    };
    match program_name(words.get(at)?) {
        "pytest" | "py.test" => Some((Runner::Pytest, at + 1)),
        "jest" => Some((Runner::Jest, at + 1)),
        "vitest" => Some((Runner::Vitest, at + 1)),
        "cargo-nextest" => Some((Runner::Nextest, at + 1)),
        "cargo" => Some((cargo_verb(&words[at + 1..])?, at + 1)),
        "go" if words.get(at + 1)? == "test" => Some((Runner::Go, at + 2)),
        "python" => {
            let (index, name) = python_module(words, at)?;
            Some((module(name)?, index + 1))
        }
        // `uv run -m pytest`, `coverage run -m pytest`.
        _ if at > 0 && words[at] == "-m" => Some((module(words.get(at + 1)?)?, at + 2)),
        _ => None,
    }
}

/// Refuses words of a wrapper by which the targets would mean other files, or by which pytest would get more options.
pub(super) fn refuse_directory_changes(command: &TestCommand, words: &[String]) -> Checked<()> {
    for word in words.iter().take(command.runner_index).skip(1) {
        let option = word.split_once('=').map_or(word.as_str(), |(option, _)| option);
        if is_among(DIRECTORY_OPTIONS, option) || word.starts_with("-C") {
            return ambiguous(
                format!("`{option}` changes the directory that targets are relative to"),
                CHANGE_DIRECTORY,
            );
        }
        if option == "PYTEST_ADDOPTS" {
            return ambiguous("`PYTEST_ADDOPTS` contains more options", "write them as options of pytest");
        }
    }
    Ok(())
}

/// Whether the policy lets this program run tests.
pub(super) fn check_commands(policy: &TestPolicy, command: &TestCommand) -> Checked<()> {
    // A pattern with a slash is compared with a path, any other one with a name.
    let fits =
        |pattern: &String, name: &str| pattern.contains('/') == name.contains('/') && matches(pattern, name);
    let allowed = |name: &String| policy.commands.iter().any(|pattern| fits(pattern, name));
    if policy.commands.is_empty() || command.names.iter().any(allowed) {
        return Ok(());
    }
    let name = printable(command.names.first().map_or("", String::as_str));
    let reason =
        format!("`{name}` is not one of the programs that may run tests ({})", policy.commands.join(", "));
    let hint = format!("use one of them, or add it to guard.test.commands; {GUIDE}");
    refuse(DecisionCode::CommandNotAllowed, "guard.test.commands", reason, hint)
}

/// Refuses a program whose targets quell can't check against a scope.
pub(super) fn not_a_runner<T>(program: &str) -> Checked<T> {
    let name = printable(program);
    let reason =
        format!("`{name}` is not a known test runner, so quell can't check its targets against the scope");
    let hint = format!(
        "call a known runner or a script in the scope, or list the program in guard.test.commands of the file that \
         sets the scope; {GUIDE}"
    );
    refuse(DecisionCode::CommandNotAllowed, "guard.test.commands", reason, hint)
}

/// Refuses a wrapper before a script or another program that is not a known runner: the arguments of the wrapper are not checked then.
pub(super) fn not_before_a_script<T>(wrapper: &str) -> Checked<T> {
    let name = printable(wrapper);
    let reason = format!(
        "with a scope `{name}` may stand only before a known test runner, and none was found after it"
    );
    let hint = format!(
        "run the script without `{name}` (variables can be set for quell itself, and --timeout limits the time), or list \
         `{name}` in guard.test.commands of the file that sets the scope; {GUIDE}"
    );
    refuse(DecisionCode::CommandNotAllowed, "guard.test.commands", reason, hint)
}

/// Refuses a cargo or go command that does not run tests.
pub(super) fn not_tests<T>(name: &str) -> Checked<T> {
    let tests = if name == "cargo" { "`cargo test` and `cargo nextest run` are" } else { "`go test` is" };
    let reason = format!("with a scope only {tests} allowed");
    refuse(DecisionCode::CommandNotAllowed, BUILT_IN, reason, "use that, or `quell run` for other commands")
}
