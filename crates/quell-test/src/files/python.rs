//! Modules of Python's that would be loaded in place of the runner or of a target: `python -m` looks for both in the working
//! directory first.

use std::fs;
use std::path::{Path, PathBuf};

use quell_guard::{BUILT_IN, DecisionCode};

use super::pytest::{is_blank, is_end};
use super::read;
use super::stdlib::MODULES;
use crate::check::{Scope, TestCommand, Verdict, is_among, refuse};
use crate::runners::Runner;

/// What `python -m` loads to run tests, as far as it is not Python's own. What begins with `pytest_` is a plugin.
const PARTS: &str = "\
    pytest _pytest py pluggy iniconfig packaging coverage attr attrs exceptiongroup execnet importlib_metadata \
    pygments tomli typing_extensions xdist zipp";

/// Sections of a package's entry points that nothing loads while tests are run.
const SCRIPTS: [&str; 2] = ["console_scripts", "gui_scripts"];

/// Refuses what is in the working directory and would be loaded in place of a part of the runner.
pub(super) fn check_modules(command: &TestCommand, scope: &Scope) -> Verdict<()> {
    // A runner that is called by its own name is not looked for here, as with `python -m RUNNER`.
    if command.call == command.at + 1 {
        return Ok(());
    }
    for entry in entries(&scope.cwd) {
        let name = entry.split('.').next().unwrap_or_default();
        if is_among(PARTS, name) || is_among(MODULES, name) || name.starts_with("pytest_") {
            refuse_module(scope, find(&scope.cwd, name), name)?;
        }
        if command.runner == Runner::Pytest {
            check_entry_points(scope, &entry)?;
        }
    }
    Ok(())
}

/// Refuses what would be loaded in place of a target of unittest: `tests.py` beside `tests`.
pub(super) fn check_targets(targets: &[PathBuf], scope: &Scope) -> Verdict<()> {
    for target in targets {
        let mut dir = scope.cwd.clone();
        for part in target.strip_prefix(&scope.cwd).into_iter().flat_map(Path::components) {
            let part = part.as_os_str().to_string_lossy();
            let path = dir.join(&*part);
            let found = find(&dir, part.strip_suffix(".py").unwrap_or(&part));
            // A package comes before a directory that is not one, and Python has a package of that name.
            if found.is_none() && part == "test" && dir == scope.cwd {
                let reason = "`test` has no __init__.py, so Python loads its own package of that name";
                let hint = "put an __init__.py into it, or use `discover -s test`";
                return refuse(DecisionCode::PathOutsideScope, BUILT_IN, reason, hint);
            }
            refuse_module(scope, found.filter(|found| *found != path), &part)?;
            dir = path;
        }
    }
    Ok(())
}

/// Refuses the description of an installed package that names plugins: pytest loads those of every directory that Python looks into.
fn check_entry_points(scope: &Scope, entry: &str) -> Verdict<()> {
    let lower = entry.to_lowercase();
    let dir = scope.cwd.join(entry);
    // In a directory `*.egg` the name alone is enough.
    let is_description = lower.ends_with(".dist-info") || lower.ends_with(".egg-info") || lower == "egg-info";
    if !is_description || scope.has_file(&dir) {
        return Ok(());
    }
    let text = read(&dir.join("entry_points.txt"))?.unwrap_or_default();
    let lines = text.split(is_end).map(|line| line.trim_matches(is_blank));
    let mut sections = lines.filter(|line| line.starts_with('[')).map(|line| line.trim_matches(['[', ']']));
    let Some(section) = sections.find(|name| !SCRIPTS.contains(name)) else { return Ok(()) };
    let reason =
        format!("`{entry}` in the working directory names plugins ([{section}]), and is outside the scope");
    let hint = "call pytest by its own name, which does not look there, or have a scope with it in it";
    refuse(DecisionCode::PathOutsideScope, &scope.rule, reason, hint)
}

/// What Python loads from a directory by this name: a package before a file.
pub(super) fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    let module = |entry: &str, name: &str| {
        let end = entry.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')).unwrap_or_default();
        matches!(end, "py" | "pyc" | "so") || end.ends_with(".so")
    };
    let first = |dir: &Path, name: &str| entries(dir).filter(|entry| module(entry, name)).min();
    let package = dir.join(name);
    if first(&package, "__init__").is_some() {
        return Some(package);
    }
    let file = dir.join(format!("{name}.py"));
    // Which file it is does not matter, but whether it is another one than the named one.
    first(dir, name).map(|found| if file.exists() { file } else { dir.join(found) })
}

fn entries(dir: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn refuse_module(scope: &Scope, found: Option<PathBuf>, name: &str) -> Verdict<()> {
    let Some(found) = found.filter(|found| !scope.has_file(found)) else { return Ok(()) };
    let reason = format!("Python would load `{}` in place of `{name}`, outside the scope", found.display());
    let hint = "rename that file, or have a scope with it in it; pytest by its own name does not look there";
    refuse(DecisionCode::PathOutsideScope, &scope.rule, reason, hint)
}
