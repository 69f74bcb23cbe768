//! Checks the files that a runner reads on its own: settings, Python modules, links. With a scope, files outside it that would load code
//! or choose tests are refused.

mod cargo_settings;
mod pytest_settings;
mod python_modules;
mod stdlib;
mod symlinks;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use quell_guard::{BUILT_IN, DecisionCode, GUIDE};
use toml::Spanned;
use toml::de::DeTable;

use crate::check::{Checked, PathRole, PathWord, Rules, TestCommand, Variables, refuse};
use crate::runners::Runner;

pub(crate) use pytest_settings::pytest_setting;
pub(crate) use python_modules::check_importlib;

/// How large a settings file may be, in bytes.
const MAX_SIZE: u64 = 4 << 20;

/// Checks the files that the runner would read to run these targets.
pub(crate) fn check(
    command: &TestCommand,
    paths: &[PathWord],
    variables: &Variables,
    rules: &Rules<'_>,
) -> Checked<()> {
    let (scope, runner) = (rules.scope, command.runner);
    let targets = paths.iter().filter(|word| word.role == PathRole::Target);
    let targets: Vec<PathBuf> = targets.map(|word| scope.cwd.join(&word.path)).collect();
    if scope.is_set() {
        let with_cwd: Vec<PathBuf> = targets.iter().cloned().chain([scope.cwd.clone()]).collect();
        match runner {
            Runner::Pytest => {
                python_modules::check_modules(command, scope)?;
                pytest_settings::check_warnings(&with_cwd, rules)?;
            }
            Runner::Unittest => {
                python_modules::check_modules(command, scope)?;
                python_modules::check_targets(&targets, scope)?;
            }
            Runner::Cargo | Runner::Nextest => cargo_settings::check(runner, &with_cwd, variables, rules)?,
            Runner::Go | Runner::Jest | Runner::Vitest | Runner::Other => {}
        }
    }
    symlinks::check(scope, runner, targets)
}

/// The paths and all directories above them, as written and with links resolved.
fn with_parents(paths: &[PathBuf]) -> BTreeSet<PathBuf> {
    let real = paths.iter().filter_map(|path| path.canonicalize().ok());
    let all: Vec<PathBuf> = paths.iter().cloned().chain(real).collect();
    all.iter().flat_map(|path| path.ancestors()).map(Path::to_owned).collect()
}

/// The text of a file, or `None` if it does not exist. A file that quell can't read is refused, as the runner may be able to read it.
pub(crate) fn read(file: &Path) -> Checked<Option<String>> {
    let absent = [ErrorKind::NotFound, ErrorKind::NotADirectory];
    let found = match fs::metadata(file) {
        Ok(found) if !found.is_file() => return Ok(None),
        Ok(found) => found,
        Err(error) if absent.contains(&error.kind()) => return Ok(None),
        Err(error) => return unreadable(file, &error),
    };
    if found.len() > MAX_SIZE {
        return unreadable(file, &format!("it is larger than {MAX_SIZE} bytes"));
    }
    match fs::read(file).map(String::from_utf8) {
        Ok(Ok(text)) => Ok(Some(text)),
        Ok(Err(_)) => unreadable(file, &"it is not UTF-8"),
        Err(error) => unreadable(file, &error),
    }
}

fn parse<'t>(file: &Path, text: &'t str) -> Checked<Spanned<DeTable<'t>>> {
    DeTable::parse(text).or_else(|error| unreadable(file, &error))
}

fn unreadable<T>(file: &Path, why: &dyn Display) -> Checked<T> {
    let why = why.to_string();
    let first = why.lines().next().unwrap_or_default();
    let reason = format!("can't read `{}`, which the runner reads: {first}", file.display());
    refuse(DecisionCode::OptionNotAllowed, BUILT_IN, reason, "correct or remove that file")
}

/// Refuses a setting in a file, unless the policy allows its key.
fn refuse_setting(file: &Path, key: &str, why: &str, rules: &Rules<'_>) -> Checked<()> {
    if rules.allows_by_name(key) {
        return Ok(());
    }
    let reason = format!("`{key}` in `{}` {why}, and that file is outside the scope", file.display());
    let hint = format!(
        "remove it, use a scope that contains that file, or allow it in the policy: guard.test.allow = [\"{key}\"]; \
         {GUIDE}"
    );
    refuse(DecisionCode::OptionNotAllowed, "guard.test.allow", reason, hint)
}
