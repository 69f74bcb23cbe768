//! Commands that are not known runners, with a scope: a script in the scope, or a program that the policy lists.

use quell_guard::{BUILT_IN, DecisionCode, GUIDE};

use super::command::{bare, last, not_a_runner, not_tests};
use super::options::{Rules, is_among};
use super::path::shown;
use super::reports::is_any_report;
use super::scope::{PathWord, Place, resolve};
use super::{Verdict, refuse};

/// Programs that run a script, and the letters of flags that don't change what is run.
const INTERPRETERS: &[(&str, &str)] =
    &[("sh bash dash ksh zsh", "efuvx"), ("python", "bBdEIOqsSuv"), ("node ruby perl", "")];

/// The paths of a command. Of words that are not known those count that have a slash or that name something.
pub(super) fn script_paths(words: &[String], rules: &Rules<'_>) -> Verdict<Vec<PathWord>> {
    let Some((program, rest)) = words.split_first() else { return Ok(Vec::new()) };
    let name = bare(program);
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
                rest.get(at).filter(|script| !script.starts_with('-') && !is_any_report(last(script)));
            let Some(script) = script else { return not_a_script(program, rest.get(at)) };
            (vec![check_script(script, rules)?], &rest[at + 1..])
        }
        None if program.contains('/') => (vec![check_script(program, rules)?], rest),
        None => return not_a_runner(program),
    };
    for word in rest {
        match word.strip_prefix('-') {
            Some(option) => {
                // `--dir=../x`, `-C../x`.
                let glued = option.get(1..).filter(|_| !option.starts_with('-')).unwrap_or_default();
                let value = option.split_once('=').map_or(glued, |(_, value)| value);
                found.extend(rules.possible_path(word, value)?);
            }
            None if word.contains(['/', '\\']) || rules.exists(word) => {
                found.push(rules.path(word, Place::Target, true)?);
            }
            None => {}
        }
    }
    Ok(found)
}

/// Refuses a script that is a link to a report: a report has words of the caller's in it.
fn check_script(script: &str, rules: &Rules<'_>) -> Verdict<PathWord> {
    let word = rules.path(script, Place::Target, true)?;
    let found = resolve(&rules.scope.cwd, &word.path);
    let [written, real] = [&found.written, &found.real].map(|path| path.file_name().unwrap_or_default());
    if written != real && is_any_report(&real.to_string_lossy()) {
        let reason = format!("`{}` is a link to a report, and reports are not run", word.path);
        return refuse(DecisionCode::CommandNotAllowed, BUILT_IN, reason, "run the script itself");
    }
    Ok(word)
}

/// Refuses an interpreter that is told something else than to run a script.
fn not_a_script<T>(program: &str, word: Option<&String>) -> Verdict<T> {
    let instead = word.map_or_else(|| "nothing".into(), |word| format!("`{}`", shown(word)));
    let reason = format!(
        "with a scope `{}` runs a script that is in the scope and is not called like a report; here {instead} stands \
         in its place",
        shown(program)
    );
    let hint = format!(
        "write the script behind plain flags, or call a known runner; only a program in guard.test.commands of the \
         file that has the scope, or of a stronger one, may be told anything; {GUIDE}"
    );
    refuse(DecisionCode::CommandNotAllowed, "guard.test.commands", reason, hint)
}
