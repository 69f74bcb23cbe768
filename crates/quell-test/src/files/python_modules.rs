//! Python modules that would be loaded instead of the runner or of a target: `python -m` looks for both in the working directory first.

use std::fs;
use std::path::{Path, PathBuf};

use quell_guard::{BUILT_IN, DecisionCode};

use super::pytest_settings::{is_blank, is_line_end, may_be_root, pytest_setting};
use super::read;
use super::stdlib::MODULES;
use crate::check::{Checked, PathRole, PathWord, Scope, TestCommand, is_among, refuse};
use crate::runners::Runner;

/// Modules that `python -m` loads to run tests, other than Python's own. Names that begin with `pytest_` are plugins. `copy` and `pickle` of
/// Python load `org.python.core` if it exists.
const RUNNER_MODULES: &str = "\
    pytest _pytest py pluggy iniconfig packaging coverage attr attrs exceptiongroup execnet importlib_metadata org \
    pygments tomli typing_extensions xdist zipp";

/// Sections of entry points that are not loaded during a test run.
const SCRIPTS: [&str; 2] = ["console_scripts", "gui_scripts"];

/// Refuses modules in the working directory that would be loaded instead of those of the runner.
pub(super) fn check_modules(command: &TestCommand, scope: &Scope) -> Checked<()> {
    if !is_module(command) {
        return Ok(());
    }
    for entry in entries(&scope.cwd) {
        let name = entry.split('.').next().unwrap_or_default();
        if is_among(RUNNER_MODULES, name) || is_among(MODULES, name) || name.starts_with("pytest_") {
            refuse_module(scope, find(&scope.cwd, name).or_else(|| find_main(&scope.cwd, name)), name)?;
        }
        if command.runner == Runner::Pytest {
            check_entry_points(scope, &entry)?;
        }
    }
    Ok(())
}

/// Whether the runner is called as `python -m RUNNER`. Only then Python looks for modules in the working directory.
fn is_module(command: &TestCommand) -> bool {
    command.args_start != command.runner_index + 1
}

/// Refuses modules that pytest loads with `--import-mode=importlib` before it has loaded a test: for `tests/unit/test_a.py` old versions
/// (7.2, but not 8.4) load `tests` and `tests.unit`, wherever Python finds them.
pub(crate) fn check_importlib(command: &TestCommand, paths: &[PathWord], scope: &Scope) -> Checked<()> {
    let targets = paths.iter().filter(|word| word.role == PathRole::Target);
    let targets: Vec<PathBuf> = targets.map(|word| scope.cwd.join(&word.path)).collect();
    let mut places: Vec<PathBuf> =
        Some(scope.cwd.clone()).filter(|_| is_module(command)).into_iter().collect();
    for (file, dirs) in pytest_setting(&targets, "pythonpath")? {
        let root = file.parent().unwrap_or(&scope.cwd);
        places.extend(dirs.iter().map(|dir| root.join(dir)));
    }
    for target in &targets {
        let dir = if target.is_dir() { target } else { target.parent().unwrap_or(target) };
        for root in dir.ancestors().filter(|root| *root == scope.cwd || may_be_root(root)) {
            let mut names = vec![dir.to_owned()];
            if root == dir {
                let below = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
                names = below.filter(|path| path.is_dir()).collect();
            }
            for (place, name) in places.iter().flat_map(|place| names.iter().map(move |name| (place, name))) {
                check_packages(scope, place, root, name)?;
            }
        }
    }
    Ok(())
}

/// Refuses modules in `place` that have the names of the directories from `root` to `dir`.
fn check_packages(scope: &Scope, place: &Path, root: &Path, dir: &Path) -> Checked<()> {
    let (mut place, mut own) = (place.to_owned(), root.to_owned());
    for part in dir.strip_prefix(root).into_iter().flat_map(Path::components) {
        let name = part.as_os_str().to_string_lossy();
        own.push(part);
        let found = find(&place, &name).filter(|found| *found != own && !scope.contains_file(found));
        if let Some(found) = found {
            let reason = format!(
                "with --import-mode=importlib pytest may load `{}`, which is outside the scope",
                found.display()
            );
            let hint = "rename that file, use a scope that contains it, or leave the option out";
            return refuse(DecisionCode::PathOutsideScope, &scope.rule, reason, hint);
        }
        place.push(part);
    }
    Ok(())
}

/// Refuses modules that would be loaded instead of a target of unittest: `tests.py` beside `tests`.
pub(super) fn check_targets(targets: &[PathBuf], scope: &Scope) -> Checked<()> {
    for target in targets {
        let mut dir = scope.cwd.clone();
        for part in target.strip_prefix(&scope.cwd).into_iter().flat_map(Path::components) {
            let part = part.as_os_str().to_string_lossy();
            let path = dir.join(&*part);
            let found = find(&dir, part.strip_suffix(".py").unwrap_or(&part));
            // Python has its own package `test`, which is found before a directory without `__init__.py`.
            if found.is_none() && part == "test" && dir == scope.cwd {
                let reason = "`test` has no __init__.py, so Python loads its own package of that name";
                let hint = "create test/__init__.py, or use `discover -s test`";
                return refuse(DecisionCode::PathOutsideScope, BUILT_IN, reason, hint);
            }
            refuse_module(scope, found.filter(|found| *found != path), &part)?;
            dir = path;
        }
    }
    Ok(())
}

/// Refuses package metadata that names plugins: pytest loads the plugins of every directory in Python's module path.
fn check_entry_points(scope: &Scope, entry: &str) -> Checked<()> {
    let lower = entry.to_lowercase();
    let dir = scope.cwd.join(entry);
    // The name `EGG-INFO` without a prefix is used in a directory `*.egg`.
    let is_metadata = lower.ends_with(".dist-info") || lower.ends_with(".egg-info") || lower == "egg-info";
    if !is_metadata || scope.contains_file(&dir) {
        return Ok(());
    }
    let text = read(&dir.join("entry_points.txt"))?.unwrap_or_default();
    let lines = text.split(is_line_end).map(|line| line.trim_matches(is_blank));
    let mut sections = lines.filter(|line| line.starts_with('[')).map(|line| line.trim_matches(['[', ']']));
    let Some(section) = sections.find(|name| !SCRIPTS.contains(name)) else { return Ok(()) };
    let reason =
        format!("`{entry}` in the working directory names plugins ([{section}]), and is outside the scope");
    let hint = "call `pytest` itself, which does not look there, or use a scope that contains it";
    refuse(DecisionCode::PathOutsideScope, &scope.rule, reason, hint)
}

/// The package or file that Python loads from a directory by this name. A package comes first.
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
    // If there are several files, only `NAME.py` is told from the others: targets are compared with it.
    first(dir, name).map(|found| if file.exists() { file } else { dir.join(found) })
}

/// The directory from which Python loads code although it is not a package, if no module of that name is installed.
fn find_main(dir: &Path, name: &str) -> Option<PathBuf> {
    let dir = dir.join(name);
    let main = match name {
        // `python -m py.test` is an old name of pytest.
        "py" => "test",
        "org" => "python",
        _ => "__main__",
    };
    let is_main = |entry: String| entry.split('.').next() == Some(main);
    let runs = entries(&dir).any(is_main);
    runs.then_some(dir)
}

fn entries(dir: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn refuse_module(scope: &Scope, found: Option<PathBuf>, name: &str) -> Checked<()> {
    let Some(found) = found.filter(|found| !scope.contains_file(found)) else { return Ok(()) };
    let reason =
        format!("Python would load `{}`, which is outside the scope, instead of `{name}`", found.display());
    let hint =
        "rename that file, or use a scope that contains it; `pytest` without `python -m` does not look there";
    refuse(DecisionCode::PathOutsideScope, &scope.rule, reason, hint)
}
