//! Python's unittest.

use std::path::Path;

use quell_guard::{BUILT_IN, DecisionCode};

use super::RunnerTable;
use crate::check::{NUMBER, OptionStyle, Options, PathWord, Place, Rules, Verdict, misleads, refuse, shown};
use crate::files;

pub(super) const TABLE: RunnerTable = RunnerTable {
    name: "unittest",
    options: Options {
        style: OptionStyle::Unix,
        flags: "-h --help -v --verbose -q --quiet --locals -f --failfast -c --catch -b --buffer",
        values: "-k -p --pattern",
        choices: &[("--durations", NUMBER), ("-t --top-level-directory", ".")],
        paths: &[("-s --start-directory", Place::Target)],
        wide: "",
        plugins: "",
    },
    end: "",
    behind: None,
    verbs: "discover",
    target: module,
};

/// A file, a directory, or a name as Python writes it: `tests.test_a.TestX.test_y`. unittest calls whatever a name leads to, also
/// through what a module imports. So only a class that the module itself defines may stand behind it, and the name of one test.
fn module(word: &str, rules: &Rules<'_>) -> Verdict<Vec<PathWord>> {
    let cwd = &rules.scope.cwd;
    if !rules.scope.is_set() {
        // Without a scope names of modules from anywhere are allowed.
        return Ok(Vec::new());
    }
    if word.contains('/') && word.strip_suffix(".py").unwrap_or(word).trim_start_matches("./").contains('.') {
        let reason = format!("unittest reads a dot in `{}` as a slash", shown(word));
        return misleads(reason, "name a directory or a file without dots in its name");
    }
    if word.contains(['/', '\\']) || word.ends_with(".py") || rules.exists(word) {
        return Ok(vec![rules.path(word, Place::Target, true)?]);
    }
    let parts: Vec<&str> = word.split('.').collect();
    let exists = |path: &String| cwd.join(path).exists();
    let path = |length: usize| {
        let path = parts[..length].join("/");
        [format!("{path}.py"), path].into_iter().find(exists)
    };
    let found = (1..=parts.len()).rev().find_map(|length| Some((length, path(length)?)));
    let Some((length, path)) = found else {
        let reason = format!("`{}` is not a module below the working directory", shown(word));
        let hint = "name a file or a directory, such as tests/test_a.py";
        return refuse(DecisionCode::PathOutsideScope, BUILT_IN, reason, hint);
    };
    match parts[length..] {
        [] => {}
        [class] | [class, _] if defines(&cwd.join(&path), class)? => {}
        _ => {
            let reason = format!(
                "`{}` is not a class of a module, or a test in one, and unittest calls it",
                shown(word)
            );
            let hint = "name a file, a module, or module.Class.test with a class that the module defines";
            return refuse(DecisionCode::PathOutsideScope, BUILT_IN, reason, hint);
        }
    }
    Ok(vec![rules.path(&path, Place::Target, true)?])
}

/// Whether a file has a line that begins with `class NAME`.
fn defines(file: &Path, class: &str) -> Verdict<bool> {
    let text = files::read(file)?.unwrap_or_default();
    let begin = format!("class {class}");
    let rest = |line: &str| line.strip_prefix(&begin).map(|rest| rest.trim_start().to_owned());
    Ok(text.lines().filter_map(rest).any(|rest| rest.starts_with(['(', ':', '['])))
}
