//! Checks commands that are not known runners, with a scope: scripts in the scope, and programs that the policy lists.

use std::path::PathBuf;

use quell_guard::{BUILT_IN, DecisionCode, GUIDE};

use super::command::{base_name, not_a_runner, not_before_a_script, not_tests, program_name};
use super::options::{Rules, is_among};
use super::path::printable;
use super::reports::is_any_report;
use super::scope::{PathRole, PathWord, resolve};
use super::wrapper::is_wrapper;
use super::{Checked, refuse};

/// Programs that run a script, and the flags that don't change what is run.
const INTERPRETERS: &[(&str, &str)] =
    &[("sh bash dash ksh zsh", "efuvx"), ("python", "bBdEIOqsSuv"), ("node ruby perl", "")];

/// The paths in a command. A word is a path if it has a slash or names an existing file.
pub(super) fn script_paths(words: &[String], rules: &Rules<'_>) -> Checked<Vec<PathWord>> {
    let Some((program, rest)) = words.split_first() else { return Ok(Vec::new()) };
    let name = program_name(program);
    if is_among("cargo go", name) {
        return not_tests(name);
    }
    let flags = INTERPRETERS.iter().find(|(names, _)| is_among(names, name)).map(|(_, flags)| flags);
    let (mut found, rest) = match flags {
        _ if rules.listed => (Vec::new(), rest),
        Some(flags) => {
            let is_flag = |word: &&String| {
                word.len() > 1
                    && word.strip_prefix('-').is_some_and(|rest| rest.chars().all(|c| flags.contains(c)))
            };
            let at = rest.iter().take_while(is_flag).count();
            let script =
                rest.get(at).filter(|script| !script.starts_with('-') && !is_any_report(base_name(script)));
            let Some(script) = script else { return not_a_script(program, rest.get(at)) };
            let script = check_script(script, rules)?;
            if name == "node" {
                check_extensions(&script, rules)?;
            }
            (vec![script], &rest[at + 1..])
        }
        None if is_wrapper(name) => return not_before_a_script(program),
        None if program.contains('/') => (vec![check_script(program, rules)?], rest),
        None => return not_a_runner(program),
    };
    for word in rest {
        match word.strip_prefix('-') {
            Some(option) => {
                // `--dir=../x`, `-C../x`.
                let glued = option.get(1..).filter(|_| !option.starts_with('-')).unwrap_or_default();
                let value = option.split_once('=').map_or(glued, |(_, value)| value);
                let path = rules.possible_path(word, value)?;
                found.extend(path.map(|path| PathWord { role: PathRole::Target, ..path }));
            }
            None if word.contains(['/', '\\']) || rules.exists(word) => {
                found.push(rules.path(word, PathRole::Target, true)?);
            }
            None => {}
        }
    }
    Ok(found)
}

/// Refuses a script that is a link to a report: the caller can have its own text written into a report.
fn check_script(script: &str, rules: &Rules<'_>) -> Checked<PathWord> {
    let word = rules.path(script, PathRole::Target, true)?;
    let found = resolve(&rules.scope.cwd, &word.path);
    let [written, real] = [&found.written, &found.real].map(|path| path.file_name().unwrap_or_default());
    if written != real && is_any_report(&real.to_string_lossy()) {
        let reason = format!("`{}` is a link to a report, and reports can't be run", word.path);
        return refuse(DecisionCode::CommandNotAllowed, BUILT_IN, reason, "run the script itself");
    }
    Ok(word)
}

/// Refuses a directory beside which node finds a file: `node tests` runs `tests.js` if there is one, even with a slash at the end.
fn check_extensions(script: &PathWord, rules: &Rules<'_>) -> Checked<()> {
    let found = resolve(&rules.scope.cwd, &script.path);
    if found.real.is_file() {
        return Ok(());
    }
    let files = [".js", ".json", ".node"].map(|end| {
        let mut file = found.written.clone().into_os_string();
        file.push(end);
        PathBuf::from(file)
    });
    let Some(file) = files.iter().find(|file| file.exists() && !rules.scope.contains_file(file)) else {
        return Ok(());
    };
    let reason =
        format!("node would run `{}`, which is outside the scope, before the directory", file.display());
    let hint = "name the file to run, such as tests/index.js";
    refuse(DecisionCode::PathOutsideScope, &rules.scope.rule, reason, hint)
}

/// Refuses an interpreter that is not told to run a script in the scope.
fn not_a_script<T>(program: &str, word: Option<&String>) -> Checked<T> {
    let instead = word.map_or_else(|| "nothing".into(), |word| format!("`{}`", printable(word)));
    let reason = format!(
        "with a scope `{}` must run a script in the scope whose name is not that of a report, but {instead} was given",
        printable(program)
    );
    let hint = format!(
        "put the script after plain flags, or call a known runner; other arguments need the program in \
         guard.test.commands of the file that sets the scope, or of a stronger one; {GUIDE}"
    );
    refuse(DecisionCode::CommandNotAllowed, "guard.test.commands", reason, hint)
}
