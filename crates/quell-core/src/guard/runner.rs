//! Which program runs the tests, and which of its words are paths.

use super::options::{
    CARGO_PATHS, GO_PATHS, GO_VALUES, JEST_PATHS, JEST_VALUES, PYTEST_PATHS, PYTEST_SETTINGS, PYTEST_VALUES,
};
use super::path::check_target;
use super::{BUILT_IN, Decision};

/// A program that runs tests, by the way in which it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// `pytest`, `python -m pytest`.
    Pytest,
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

/// A command that runs tests.
#[derive(Clone, Debug)]
pub struct TestCommand {
    /// What it is.
    pub runner: Runner,
    /// The names that a policy may allow it by.
    pub names: Vec<String>,
    /// How many words are the call itself; the others are the runner's.
    pub call: usize,
}

/// Where a path has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is a target: below a scope.
    Target,
    /// Below a scope, and no scope itself, as it may be emptied.
    Inside,
    /// A directory that is below a scope, or above one; not above the working directory.
    Around,
    /// A file in such a directory.
    FileAround,
    /// Below the working directory or a scope.
    Here,
}

/// A word, or a part of one, that is a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathWord {
    /// In its plain form; empty for the working directory.
    pub path: String,
    /// Where it has to be.
    pub place: Place,
    /// Whether it has to be there.
    pub exists: bool,
}

/// The last part of a path.
fn last(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The name of a program without the version behind it: `python3.11` is `python`, `pytest-3` is `pytest`.
fn bare(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
}

fn runner_of(name: &str) -> Option<Runner> {
    match bare(name) {
        "pytest" | "py.test" => Some(Runner::Pytest),
        "jest" => Some(Runner::Jest),
        "vitest" => Some(Runner::Vitest),
        "cargo-nextest" => Some(Runner::Nextest),
        _ => None,
    }
}

/// What the words call.
pub fn read_command(words: &[String]) -> TestCommand {
    let word = |at: usize| words.get(at).map(String::as_str);
    let program = last(word(0).unwrap_or_default());
    let mut names = vec![program.to_owned()];
    if bare(program) != program && !bare(program).is_empty() {
        names.push(bare(program).to_owned());
    }
    let mut command = TestCommand { runner: Runner::Other, names, call: 1 };
    match bare(program) {
        "python" => {
            if let Some((at, module)) = python_module(words)
                && matches!(module, "pytest" | "py.test")
            {
                command.runner = Runner::Pytest;
                command.names.push("pytest".into());
                command.call = at + 1;
            }
        }
        "cargo" => {
            // A toolchain may stand before the verb.
            let at = if word(1).is_some_and(|word| word.starts_with('+')) { 2 } else { 1 };
            let runner = match word(at) {
                Some("test" | "t") => Some(Runner::Cargo),
                Some("nextest") => Some(Runner::Nextest),
                _ => None,
            };
            if let Some(runner) = runner {
                (command.runner, command.call) = (runner, at + 1);
            }
        }
        "go" if word(1) == Some("test") => (command.runner, command.call) = (Runner::Go, 2),
        "npx" | "bunx" | "yarn" | "pnpm" | "uv" | "poetry" | "pipenv" => {
            let at = if matches!(word(1), Some("run" | "exec" | "dlx")) { 2 } else { 1 };
            if let Some(runner) = word(at).and_then(|name| runner_of(last(name))) {
                (command.runner, command.call) = (runner, at + 1);
            }
        }
        _ => {
            if let Some(runner) = runner_of(program) {
                command.runner = runner;
            }
        }
    }
    command
}

/// The module that `python … -m MODULE` runs, and the place of its name.
fn python_module(words: &[String]) -> Option<(usize, &str)> {
    let mut at = 1;
    loop {
        match words.get(at)?.as_str() {
            "-m" => return words.get(at + 1).map(|module| (at + 1, module.as_str())),
            "-X" | "-W" => at += 2,
            option if option.starts_with('-') && option.len() > 1 && !option.starts_with("-c") => at += 1,
            _ => return None,
        }
    }
}

/// The paths among the words of a command. Of a command that is not known they are guessed only where there is a scope that
/// they have to be in: a word with a slash, and one that names something that `exists`.
pub fn path_words(
    command: &TestCommand,
    words: &[String],
    scoped: bool,
    exists: impl Fn(&str) -> bool,
) -> Result<Vec<PathWord>, Box<Decision>> {
    let rest = words.get(command.call..).unwrap_or_default();
    let target = |word: &str| Ok(PathWord { path: check_target(word)?, place: Place::Target, exists: true });
    match command.runner {
        Runner::Pytest => {
            let node = |word: &str| target(node_path(word)?);
            scan(rest, PYTEST_PATHS, PYTEST_VALUES, Dashes::Short, &pytest_special, &node)
        }
        // The words of cargo that are no options are patterns for the names of tests.
        Runner::Cargo | Runner::Nextest => {
            let mut found = Vec::new();
            let own: Vec<String> = rest.iter().take_while(|word| *word != "--").cloned().collect();
            let all = scan(&own, CARGO_PATHS, &[], Dashes::Long, &nothing_special, &|_| Ok(ignored()))?;
            found.extend(all.into_iter().filter(|word| *word != ignored()));
            Ok(found)
        }
        Runner::Go => {
            // What stands behind it is for the tests' own program.
            let own: Vec<String> = rest.iter().take_while(|word| *word != "-args").cloned().collect();
            scan(&own, GO_PATHS, GO_VALUES, Dashes::Go, &nothing_special, &go_target)
        }
        // Their words are patterns: without a scope they need not name anything.
        Runner::Jest | Runner::Vitest => {
            let skip = usize::from(
                command.runner == Runner::Vitest
                    && matches!(rest.first().map(String::as_str), Some("run" | "related" | "watch" | "dev")),
            );
            let pattern = |word: &str| Ok(PathWord { exists: scoped, ..target(word)? });
            scan(&rest[skip..], JEST_PATHS, JEST_VALUES, Dashes::Long, &nothing_special, &pattern)
        }
        Runner::Other if scoped => {
            let is_path = |word: &&String| {
                !word.starts_with('-') && (word.contains(['/', '\\']) || (!word.is_empty() && exists(word)))
            };
            rest.iter().filter(is_path).map(|word| target(word)).collect()
        }
        Runner::Other => Ok(Vec::new()),
    }
}

fn ignored() -> PathWord {
    PathWord { path: String::new(), place: Place::Here, exists: false }
}

/// The file of `tests/test_a.py::test_x[1]`. What stands behind is compared with names, and opens nothing.
fn node_path(word: &str) -> Result<&str, Box<Decision>> {
    let (file, name) = word.split_once("::").unwrap_or((word, ""));
    if name.chars().any(char::is_control) {
        check_target(word)?;
    }
    Ok(file)
}

/// go's way to write a directory: `.`, `./pkg`, `./pkg/...`.
fn go_target(word: &str) -> Result<PathWord, Box<Decision>> {
    let there = |path: String| PathWord { path, place: Place::Target, exists: true };
    if matches!(word, "." | "./" | "./...") {
        return Ok(there(String::new()));
    }
    let stem = word.strip_suffix("/...").unwrap_or(word);
    match stem.strip_prefix("./") {
        Some(rest) => Ok(there(check_target(rest)?)),
        None => {
            // An absolute one, one upwards or an empty one has its own code.
            let path = check_target(stem)?;
            Err(Box::new(Decision::refuse(
                "PATH_OUTSIDE_SCOPE",
                BUILT_IN,
                format!("`{path}` names a package wherever it is, also outside of the working directory"),
                format!("write ./{path}"),
            )))
        }
    }
}

/// How options are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dashes {
    /// Short ones may stand together, with a value behind the last: `-xcFILE`.
    Short,
    /// Each stands alone.
    Long,
    /// One dash is as good as two.
    Go,
}

type Special = dyn Fn(&str, Option<&str>) -> Result<Option<Vec<PathWord>>, Box<Decision>>;

fn nothing_special(_: &str, _: Option<&str>) -> Result<Option<Vec<PathWord>>, Box<Decision>> {
    Ok(None)
}

/// What pytest does with an option that is neither a path nor a plain value; none if that is nothing.
fn pytest_special(option: &str, value: Option<&str>) -> Result<Option<Vec<PathWord>>, Box<Decision>> {
    let refuse =
        |reason: String, hint: &str| Err(Box::new(Decision::refuse("PATH_OPTION", BUILT_IN, reason, hint)));
    match option {
        "--pyargs" => {
            let reason = "--pyargs makes names of modules of the targets, wherever these are".into();
            refuse(reason, "name files or directories")
        }
        "-o" | "--override-ini" => {
            let (key, value) = value.unwrap_or_default().split_once('=').unwrap_or_default();
            if key.trim() == "addopts" {
                return refuse("`-o addopts` has more options in it".into(), "write them as options");
            }
            let mut paths = Vec::new();
            if PYTEST_SETTINGS.contains(&key.trim()) {
                for word in value.split_whitespace() {
                    paths.push(option_path(option, word, Place::Here, false)?);
                }
            }
            Ok(Some(paths))
        }
        _ => Ok(None),
    }
}

/// The value of an option as a path. The working directory may be written as such.
fn option_path(option: &str, value: &str, place: Place, exists: bool) -> Result<PathWord, Box<Decision>> {
    // pytest, for one, puts variables in.
    if value.contains('$') {
        let reason = format!("the value of {option} has a variable in it");
        return Err(Box::new(Decision::refuse(
            "PATH_VARIABLE",
            BUILT_IN,
            reason,
            "write what it stands for",
        )));
    }
    let path = if value == "." { String::new() } else { check_target(value)? };
    Ok(PathWord { path, place, exists })
}

/// Goes through the words as the runner would.
fn scan(
    words: &[String],
    paths: &[(&str, Place, bool)],
    values: &[&str],
    dashes: Dashes,
    special: &Special,
    target: &dyn Fn(&str) -> Result<PathWord, Box<Decision>>,
) -> Result<Vec<PathWord>, Box<Decision>> {
    let mut found = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if word == "--" {
            // Everything behind it is a target, however it looks.
            for word in words.by_ref() {
                found.push(target(word)?);
            }
            break;
        }
        if !word.starts_with('-') || word == "-" {
            found.push(target(word)?);
            continue;
        }
        for (option, value) in options(word, paths, values, dashes) {
            let takes = |option: &str| paths.iter().any(|path| path.0 == option) || values.contains(&option);
            let special_takes = matches!(option.as_str(), "-o" | "--override-ini") && dashes == Dashes::Short;
            let value = match value {
                Some(value) => Some(value),
                None if takes(&option) || special_takes => words.next().map(str::to_owned),
                None => None,
            };
            if let Some(more) = special(&option, value.as_deref())? {
                found.extend(more);
            } else if let Some((_, place, exists)) = paths.iter().find(|path| path.0 == option) {
                found.push(option_path(&option, value.as_deref().unwrap_or_default(), *place, *exists)?);
            }
        }
    }
    Ok(found)
}

/// The options that a word is, with the value that is in it.
fn options(
    word: &str,
    paths: &[(&str, Place, bool)],
    values: &[&str],
    dashes: Dashes,
) -> Vec<(String, Option<String>)> {
    let word = if dashes == Dashes::Go && word.starts_with("--") { &word[1..] } else { word };
    if word.starts_with("--") || dashes != Dashes::Short {
        return match word.split_once('=') {
            Some((option, value)) => vec![(option.to_owned(), Some(value.to_owned()))],
            None => vec![(word.to_owned(), None)],
        };
    }
    let mut all = Vec::new();
    for (at, letter) in word.char_indices().skip(1) {
        let option = format!("-{letter}");
        let rest = &word[at + letter.len_utf8()..];
        let takes =
            paths.iter().any(|path| path.0 == option) || values.contains(&option.as_str()) || letter == 'o';
        if takes {
            let value = rest.strip_prefix('=').unwrap_or(rest);
            all.push((option, (!rest.is_empty()).then(|| value.to_owned())));
            break;
        }
        all.push((option, None));
    }
    all
}

/// The words that a variable such as PYTEST_ADDOPTS adds, as a shell would part them.
pub fn split_words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(chars.next()),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
