//! Modules of Python that would be loaded in place of the runner or of a target: Python looks for both in the working directory
//! first.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::rules::{BUILT_IN, Decision, PathWord, Place, Runner, Scope, TestCommand};

use super::ini;
use super::stdlib::MODULES;

/// What `python -m` loads to run tests, as far as others bring it. What begins with `pytest_` is a plugin.
const PARTS: &str = "\
    pytest _pytest py pluggy iniconfig packaging coverage attr attrs exceptiongroup execnet importlib_metadata \
    pygments tomli typing_extensions xdist zipp";

/// Sections of a package's entry points that nothing loads while tests are run.
const SCRIPTS: [&str; 2] = ["console_scripts", "gui_scripts"];

/// Whether nothing outside the scope is loaded in place of the runner, or of a target of unittest.
pub(super) fn check(scope: &Scope, command: &TestCommand, paths: &[PathWord]) -> Result<(), Box<Decision>> {
    // `python -m RUNNER`, and the like: a runner that is called by its own name is not looked for here.
    if command.call > command.at + 1 {
        for entry in entries(&scope.cwd) {
            let name = entry.split('.').next().unwrap_or_default();
            let known = |list: &str| list.split_whitespace().any(|known| known == name);
            if known(PARTS) || known(MODULES) || name.starts_with("pytest_") {
                refuse(scope, find(&scope.cwd, name), name)?;
            }
            if command.runner == Runner::Pytest {
                check_entry_points(scope, &entry)?;
            }
        }
    }
    let targets = paths.iter().filter(|word| word.place == Place::Target);
    for target in targets.filter(|_| command.runner == Runner::Unittest) {
        let mut dir = scope.cwd.clone();
        for part in Path::new(&target.path).components() {
            let Component::Normal(part) = part else { continue };
            let part = part.to_string_lossy();
            let path = dir.join(&*part);
            let found = find(&dir, part.strip_suffix(".py").unwrap_or(&part));
            // Python has a package of that name, which comes before a directory that is none.
            if found.is_none() && part == "test" && dir == scope.cwd {
                let reason = "`test` has no __init__.py, so that Python loads its own package of that name";
                let hint = "put an __init__.py into it, or use `discover -s test`";
                return Err(Box::new(Decision::refuse("PATH_OUTSIDE_SCOPE", BUILT_IN, reason, hint)));
            }
            refuse(scope, found.filter(|found| *found != path), &part)?;
            dir = path;
        }
    }
    Ok(())
}

/// Whether what describes an installed package, and is outside the scope, names no plugins: pytest loads those of every directory
/// that Python looks into.
fn check_entry_points(scope: &Scope, entry: &str) -> Result<(), Box<Decision>> {
    let lower = entry.to_lowercase();
    let dir = scope.cwd.join(entry);
    if !(lower.ends_with(".dist-info") || lower.ends_with(".egg-info")) || is_inside(scope, &dir) {
        return Ok(());
    }
    let Some(text) = ini::read(&dir.join("entry_points.txt"))? else { return Ok(()) };
    let sections = text
        .split(ini::is_end)
        .map(|line| line.trim_matches(ini::is_blank))
        .filter(|line| line.starts_with('['));
    let mut names = sections.map(|line| line.trim_matches(['[', ']']));
    let Some(section) = names.find(|name| !SCRIPTS.contains(name)) else { return Ok(()) };
    let reason =
        format!("`{entry}` in the working directory names plugins ([{section}]), and is outside the scope");
    let hint = "call pytest by its own name, which does not look there, or have a scope that it is in";
    Err(Box::new(Decision::refuse("PATH_OUTSIDE_SCOPE", &scope.rule, reason, hint)))
}

/// Whether no file of pytest's has a filter of warnings for which a module outside the scope is loaded.
pub(super) fn check_warnings(scope: &Scope, targets: &[PathBuf]) -> Result<(), Box<Decision>> {
    let mut dirs = ini::dirs(targets);
    for (file, found) in ini::words(targets, "pythonpath")? {
        let beside = file.parent().unwrap_or(Path::new("/"));
        dirs.extend(found.iter().map(|dir| beside.join(dir)));
    }
    for (file, filters) in ini::lines(targets, "filterwarnings")? {
        for filter in filters {
            let category = filter.split(':').nth(2).unwrap_or_default().trim_matches(ini::is_blank);
            let Some((module, _)) = category.split_once('.') else { continue };
            let near = |dir: &PathBuf| {
                let package = Some(dir.join(module)).filter(|dir| dir.is_dir());
                find(dir, module).or(package).filter(|found| !is_inside(scope, found))
            };
            if let Some(found) = dirs.iter().find_map(near) {
                let reason = format!(
                    "filterwarnings in `{}` has `{category}`, for which `{}` is loaded, and that is outside the scope",
                    file.display(),
                    found.display()
                );
                let hint = "take the filter away, or have the policy allow it: guard.test.allow = [\"filterwarnings\"]";
                return Err(Box::new(Decision::refuse(
                    "OPTION_NOT_ALLOWED",
                    "guard.test.allow",
                    reason,
                    hint,
                )));
            }
        }
    }
    Ok(())
}

/// What Python loads from a directory by this name: a package before a file.
fn find(dir: &Path, name: &str) -> Option<PathBuf> {
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
    // Which file it is does not matter, but that it is another one than what is named.
    first(dir, name).map(|found| if file.exists() { file } else { dir.join(found) })
}

/// The names of what is in a directory.
fn entries(dir: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn is_inside(scope: &Scope, path: &Path) -> bool {
    path.canonicalize().is_ok_and(|real| scope.has(&real))
}

fn refuse(scope: &Scope, found: Option<PathBuf>, name: &str) -> Result<(), Box<Decision>> {
    let Some(found) = found.filter(|found| !is_inside(scope, found)) else { return Ok(()) };
    let reason = format!(
        "Python would load `{}` in place of `{name}`, and that is outside the scope",
        found.display()
    );
    let hint = "give that file another name, or have a scope that it is in; pytest by its own name does not look there";
    Err(Box::new(Decision::refuse("PATH_OUTSIDE_SCOPE", &scope.rule, reason, hint)))
}
