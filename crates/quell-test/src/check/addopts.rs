//! Checks the words that pytest adds to its command line: from PYTEST_ADDOPTS, and from `addopts` and `testpaths` in its settings files.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use quell_guard::Decision;

use super::options::{Rules, ambiguous, read_options};
use super::scope::{PathRole, PathWord, check_location, resolve};
use super::{Checked, PYTEST_ADDOPTS, Variables, utf8};
use crate::files;
use crate::runners::{Runner, clears_addopts, shlex_split};

/// The words that pytest adds, together with those of the command line.
#[derive(Default)]
pub(super) struct AddedWords {
    /// The paths in the words of `addopts` and PYTEST_ADDOPTS, and in `testpaths` if the command names no target.
    pub paths: Vec<PathWord>,
    /// Whether any word is about a report.
    pub names_report: bool,
    /// Whether any word is about the mode `importlib`.
    pub names_importlib: bool,
}

/// Checks the words that pytest adds to its `own`.
pub(super) fn added_words(
    own: &[String],
    paths: &[PathWord],
    variables: &Variables,
    rules: &Rules<'_>,
) -> Checked<AddedWords> {
    let cwd = &rules.scope.cwd;
    let targets = paths.iter().filter(|word| word.role == PathRole::Target);
    let mut targets: Vec<PathBuf> = targets.map(|word| cwd.join(&word.path)).collect();
    let has_targets = !targets.is_empty();
    if !has_targets {
        targets.push(cwd.clone());
    }
    let (mut added, mut found) = (Vec::new(), Vec::new());
    if let Some(words) = variables.get(OsStr::new(PYTEST_ADDOPTS)) {
        added.push((PathBuf::from(PYTEST_ADDOPTS), shlex_split(&utf8(words)?)));
    }
    let is_report = |word: &String| word.contains("junitxml") || word.contains("junit-xml");
    let is_importlib = |word: &String| word.contains("importlib");
    let mut names_report = own.iter().any(is_report);
    let mut names_importlib = own.iter().any(is_importlib);
    if !clears_addopts(own) {
        let of_files = files::pytest_setting(&targets, "addopts");
        // Without a scope the files are read only to see whether they name a report.
        let of_files = if rules.scope.is_set() { of_files? } else { of_files.unwrap_or_default() };
        names_report |= of_files.iter().flat_map(|(_, words)| words).any(is_report);
        added.extend(of_files.into_iter().filter(|_| rules.scope.is_set()));
    }
    for (file, words) in added {
        names_report |= words.iter().any(is_report);
        names_importlib |= words.iter().any(is_importlib);
        let checked = check_added(&words, rules);
        found.extend(checked.map_err(|refusal| added_by(&file, *refusal))?);
    }
    if rules.scope.is_set() && !has_targets {
        // These can be patterns, so they need not exist.
        for (file, dirs) in files::pytest_setting(&targets, "testpaths")? {
            for dir in dirs {
                let word = rules.path(&dir, PathRole::Target, false);
                found.push(word.map_err(|refusal| added_by(&file, *refusal))?);
            }
        }
    }
    Ok(AddedWords { paths: found, names_report, names_importlib })
}

/// Checks the words from one source. pytest puts them before the command line, so the last one must not take the next word as its value.
fn check_added(added: &[String], rules: &Rules<'_>) -> Checked<Vec<PathWord>> {
    let Some(table) = Runner::Pytest.table() else { return Ok(Vec::new()) };
    // Stands for the first word of the command line.
    let next = "tests".to_owned();
    let words: Vec<String> = added.iter().cloned().chain([next]).collect();
    let mut found = read_options(&table.options, table.name, &words, rules)?;
    if added.iter().any(|word| word == "--") || found.positional.pop() != Some(added.len()) {
        let reason = "its last word would change how pytest reads the next word";
        return ambiguous(reason, "write the value with `=`, and remove `--`");
    }
    for at in found.positional {
        found.paths.extend((table.parse_target)(&words[at], rules)?);
    }
    for word in &found.paths {
        check_location(rules.scope, word, &resolve(&rules.scope.cwd, &word.path))?;
    }
    Ok(found.paths)
}

/// Adds the source of the words to a refusal.
fn added_by(file: &Path, refusal: Decision) -> Box<Decision> {
    let reason = format!("{} (added by {})", refusal.reason, file.display());
    let hint = match refusal.hint {
        hint if file == Path::new(PYTEST_ADDOPTS) => hint,
        hint => format!("{hint}; or pass `-o addopts=` to ignore what files add"),
    };
    Box::new(Decision { reason, hint, ..refusal })
}
