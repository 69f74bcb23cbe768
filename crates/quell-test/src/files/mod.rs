//! Files that a runner reads by itself: settings, modules of Python's, links. Where there is a scope, and such a file is outside of it,
//! what would load code or choose tests is refused.

mod cargo;
mod links;
mod pytest;
mod python;
mod stdlib;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use quell_guard::{BUILT_IN, GUIDE};
use toml::Spanned;
use toml::de::DeTable;

use crate::check::{PathWord, Place, Rules, TestCommand, Variables, Verdict, refuse};
use crate::runners::Runner;

pub(crate) use pytest::words as pytest_words;

/// How large a file of settings may be.
const LONGEST: u64 = 4 << 20;

/// Checks the files that the runner would read to run these targets.
pub(crate) fn check(
    command: &TestCommand,
    paths: &[PathWord],
    variables: &Variables,
    rules: &Rules<'_>,
) -> Verdict<()> {
    let (scope, runner) = (rules.scope, command.runner);
    let targets = paths.iter().filter(|word| word.place == Place::Target);
    let targets: Vec<PathBuf> = targets.map(|word| scope.cwd.join(&word.path)).collect();
    if scope.is_set() {
        let with_cwd: Vec<PathBuf> = targets.iter().cloned().chain([scope.cwd.clone()]).collect();
        match runner {
            Runner::Pytest => {
                python::check_modules(command, scope)?;
                pytest::check_warnings(&with_cwd, rules)?;
            }
            Runner::Unittest => {
                python::check_modules(command, scope)?;
                python::check_targets(&targets, scope)?;
            }
            Runner::Cargo | Runner::Nextest => cargo::check(runner, &with_cwd, variables, rules)?,
            Runner::Go | Runner::Jest | Runner::Vitest | Runner::Other => {}
        }
    }
    links::check(scope, runner, targets)
}

/// The directories of the paths, up to the root, with links and without.
fn above(paths: &[PathBuf]) -> BTreeSet<PathBuf> {
    let real = paths.iter().filter_map(|path| path.canonicalize().ok());
    let all: Vec<PathBuf> = paths.iter().cloned().chain(real).collect();
    all.iter().flat_map(|path| path.ancestors()).map(Path::to_owned).collect()
}

/// The text of a file; none if it does not exist. A file that can't be read is refused: the runner might be able to.
pub(crate) fn read(file: &Path) -> Verdict<Option<String>> {
    let absent = [ErrorKind::NotFound, ErrorKind::NotADirectory];
    let found = match fs::metadata(file) {
        Ok(found) if !found.is_file() => return Ok(None),
        Ok(found) => found,
        Err(error) if absent.contains(&error.kind()) => return Ok(None),
        Err(error) => return unreadable(file, &error),
    };
    if found.len() > LONGEST {
        return unreadable(file, &format!("it is larger than {LONGEST} bytes"));
    }
    match fs::read(file).map(String::from_utf8) {
        Ok(Ok(text)) => Ok(Some(text)),
        Ok(Err(_)) => unreadable(file, &"it is not UTF-8"),
        Err(error) => unreadable(file, &error),
    }
}

fn parse<'t>(file: &Path, text: &'t str) -> Verdict<Spanned<DeTable<'t>>> {
    DeTable::parse(text).or_else(|error| unreadable(file, &error))
}

fn unreadable<T>(file: &Path, why: &dyn Display) -> Verdict<T> {
    let why = why.to_string();
    let first = why.lines().next().unwrap_or_default();
    let reason = format!("can't read `{}`, which the runner goes by: {first}", file.display());
    refuse("OPTION_NOT_ALLOWED", BUILT_IN, reason, "correct that file, or remove it")
}

/// Refuses a setting in a file, unless the policy allows its key.
fn refuse_setting(file: &Path, key: &str, why: &str, rules: &Rules<'_>) -> Verdict<()> {
    if rules.names(key) {
        return Ok(());
    }
    let reason = format!("`{key}` in `{}` {why}, and that is outside the scope", file.display());
    let hint = format!(
        "remove it, or have a scope with that file in it, or have the policy allow it: guard.test.allow = \
         [\"{key}\"]; {GUIDE}"
    );
    refuse("OPTION_NOT_ALLOWED", "guard.test.allow", reason, hint)
}
