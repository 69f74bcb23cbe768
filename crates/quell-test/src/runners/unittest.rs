//! Python's unittest.

use std::path::Path;

use quell_guard::{BUILT_IN, DecisionCode};

use super::RunnerTable;
use crate::check::{
    Checked, NUMBER, OptionStyle, Options, PathRole, PathWord, Rules, ambiguous, printable, refuse,
};
use crate::files;

pub(super) const TABLE: RunnerTable = RunnerTable {
    name: "unittest",
    options: Options {
        style: OptionStyle::Unix,
        flags: "-h --help -v --verbose -q --quiet --locals -f --failfast -c --catch -b --buffer",
        values: "-k -p --pattern",
        choices: &[("--durations", NUMBER), ("-t --top-level-directory", ".")],
        paths: &[("-s --start-directory", PathRole::Target)],
        writes: &[],
        wide: "",
        plugins: "",
    },
    separator: "",
    program_options: None,
    verbs: "discover",
    parse_target: module,
};

/// A file, a directory, or a dotted name: `tests.test_a.TestX.test_y`. unittest calls whatever a name resolves to, including what the module
/// imports. So only a class that the module itself defines, and one of its tests, may follow the module.
fn module(word: &str, rules: &Rules<'_>) -> Checked<Vec<PathWord>> {
    let cwd = &rules.scope.cwd;
    if !rules.scope.is_set() {
        // Without a scope, modules from anywhere are allowed.
        return Ok(Vec::new());
    }
    if word.contains('/') && word.strip_suffix(".py").unwrap_or(word).trim_start_matches("./").contains('.') {
        let reason = format!("unittest reads a dot in `{}` as a slash", printable(word));
        return ambiguous(reason, "name a directory or a file without dots in its name");
    }
    if word.contains(['/', '\\']) || word.ends_with(".py") || rules.exists(word) {
        return Ok(vec![rules.path(word, PathRole::Target, true)?]);
    }
    let parts: Vec<&str> = word.split('.').collect();
    let exists = |path: &String| cwd.join(path).exists();
    let path = |length: usize| {
        let path = parts[..length].join("/");
        [format!("{path}.py"), path].into_iter().find(exists)
    };
    let found = (1..=parts.len()).rev().find_map(|length| Some((length, path(length)?)));
    let Some((length, path)) = found else {
        let reason = format!("`{}` is not a module below the working directory", printable(word));
        let hint = "name a file or a directory, such as tests/test_a.py";
        return refuse(DecisionCode::PathOutsideScope, BUILT_IN, reason, hint);
    };
    match parts[length..] {
        [] => {}
        [class] | [class, _] if defines(&cwd.join(&path), class)? => {}
        _ => {
            let reason = format!(
                "`{}` is not a class that the module defines, or a test of one, and unittest would call it",
                printable(word)
            );
            let hint = "name a file, a module, or module.Class.test with a class that the module defines";
            return refuse(DecisionCode::PathOutsideScope, BUILT_IN, reason, hint);
        }
    }
    Ok(vec![rules.path(&path, PathRole::Target, true)?])
}

/// Whether a file has a line that begins with `class NAME`.
fn defines(file: &Path, class: &str) -> Checked<bool> {
    let text = files::read(file)?.unwrap_or_default();
    let begin = format!("class {class}");
    let rest = |line: &str| line.strip_prefix(&begin).map(|rest| rest.trim_start().to_owned());
    Ok(text.lines().filter_map(rest).any(|rest| rest.starts_with(['(', ':', '['])))
}
