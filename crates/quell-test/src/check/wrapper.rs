//! Checks the words before a runner, with a scope: wrappers with options that are known to be harmless, and flags of Python.

use super::Checked;
use super::command::{TestCommand, base_name, not_a_runner, not_tests, program_name};
use super::options::{Rules, ambiguous, is_among};
use super::path::printable;
use super::variables::{is_runner_variable, locates_programs};
use crate::runners::{Runner, is_official_toolchain};

/// A program that runs the command after its own arguments, and the arguments that are allowed with a scope.
struct Wrapper {
    name: &'static str,
    verbs: &'static str,
    flags: &'static str,
    /// Options that have a value.
    values: &'static str,
}

const NPM: &str = "-y --yes --no --no-install --offline --prefer-offline -q --quiet -s --silent";
const YARN: &str = "--offline --prefer-offline -q --quiet -s --silent";
const PNPM: &str = "--offline --prefer-offline -s --silent";
const UV: &str = "\
    --frozen --locked --offline --no-sync --all-extras --all-groups --dev --no-dev --only-dev --isolated --active \
    --exact -q --quiet -v --verbose --no-progress";
const QUIET: &str = "-q --quiet -v --verbose -n --no-interaction";

#[rustfmt::skip]
const WRAPPERS: &[Wrapper] = &[
    Wrapper { name: "env", verbs: "", flags: "- -i --ignore-environment", values: "-u --unset" },
    Wrapper { name: "timeout", verbs: "", flags: "--foreground --preserve-status -v --verbose", values: "-k --kill-after -s --signal" },
    Wrapper { name: "nice", verbs: "", flags: "", values: "-n --adjustment" },
    Wrapper { name: "nohup", verbs: "", flags: "", values: "" },
    Wrapper { name: "setsid", verbs: "", flags: "-w --wait", values: "" },
    Wrapper { name: "time", verbs: "", flags: "-p -v", values: "" },
    Wrapper { name: "coverage", verbs: "run", flags: "--branch -p --parallel-mode -a --append", values: "--source --omit --include" },
    Wrapper { name: "uv", verbs: "run", flags: UV, values: "--extra --no-extra --group --no-group --only-group" },
    Wrapper { name: "uvx", verbs: "", flags: "--offline --isolated -q --quiet -v --verbose", values: "" },
    Wrapper { name: "poetry", verbs: "run", flags: QUIET, values: "" },
    Wrapper { name: "pipenv", verbs: "run", flags: QUIET, values: "" },
    Wrapper { name: "pdm", verbs: "run", flags: QUIET, values: "" },
    Wrapper { name: "hatch", verbs: "run", flags: QUIET, values: "" },
    Wrapper { name: "rye", verbs: "run", flags: "", values: "" },
    Wrapper { name: "npx", verbs: "", flags: NPM, values: "" },
    Wrapper { name: "npm", verbs: "exec x", flags: NPM, values: "" },
    Wrapper { name: "bun", verbs: "run x", flags: "--bun -b --silent", values: "" },
    Wrapper { name: "bunx", verbs: "", flags: "--bun -b --silent", values: "" },
    Wrapper { name: "yarn", verbs: "run exec dlx", flags: YARN, values: "" },
    Wrapper { name: "pnpm", verbs: "exec dlx", flags: PNPM, values: "" },
];

/// Wrappers that can download the package that they run.
const DOWNLOADERS: &str = "uvx npx npm bun bunx yarn pnpm";

fn wrapper(name: &str) -> Option<&'static Wrapper> {
    WRAPPERS.iter().find(|wrapper| wrapper.name == name)
}

/// Whether a program runs the command after its own arguments.
pub(super) fn is_wrapper(name: &str) -> bool {
    wrapper(name).is_some()
}

/// Refuses `setsid` without `-w`: it forks and exits with 0 at once, so that its exit code is not that of the tests.
pub(super) fn refuse_early_exit(command: &TestCommand, words: &[String]) -> Checked<()> {
    if !words.first().is_some_and(|word| is_wrapper(program_name(word))) {
        return Ok(());
    }
    let end = if command.runner == Runner::Other { words.len() } else { command.runner_index };
    let waits = |word: &String| {
        let letters = word.strip_prefix('-').unwrap_or_default();
        word == "--wait" || !letters.starts_with('-') && letters.contains('w')
    };
    for (at, _) in words[..end].iter().enumerate().filter(|(_, word)| program_name(word) == "setsid") {
        if !words[at + 1..].iter().take_while(|word| word.starts_with('-')).any(waits) {
            let reason = "`setsid` may exit before the tests end, and its exit code is not theirs";
            return ambiguous(reason, "write `setsid -w`, or leave it out");
        }
    }
    Ok(())
}

/// Checks every word before the runner. Returns the indexes of the words that name programs: wrappers, then the runner.
pub(super) fn check_wrappers(
    command: &TestCommand,
    words: &[String],
    rules: &Rules<'_>,
) -> Checked<Vec<usize>> {
    let mut programs = Vec::new();
    let mut at = 0;
    while at < command.runner_index {
        programs.push(at);
        let (mut name, mut own) = (program_name(&words[at]), at + 1);
        // `python -m coverage run` is `coverage run`.
        if let Some((index, module)) = python_module(words, at).filter(|(_, module)| *module == "coverage") {
            (name, own) = (module, index + 1);
        }
        let Some(wrapper) = wrapper(name) else { return not_a_runner(&words[at]) };
        at = wrapper.skip(words, own, rules)?;
    }
    let Some(runner) = words.get(command.runner_index) else { return Ok(programs) };
    // A wrapper reads the word that looks like a runner as one of its own arguments.
    if at != command.runner_index {
        return not_a_runner(runner);
    }
    if let Some(&first) = programs.iter().find(|at| is_among(DOWNLOADERS, program_name(&words[**at]))) {
        if programs.last() != Some(&first) {
            return any_package(&words[first], runner);
        }
        check_package(command.runner, &words[first..=command.runner_index])?;
    }
    programs.push(command.runner_index);
    let toolchain = words.get(command.args_start).and_then(|word| word.strip_prefix('+'));
    if let Some(name) = toolchain.filter(|name| command.runner.is_cargo() && !is_official_toolchain(name)) {
        let reason = format!("the toolchain `+{}` can be any program", printable(name));
        return ambiguous(reason, "use an official name such as +stable or +1.85, or leave it out");
    }
    Ok(programs)
}

impl Wrapper {
    /// Whether npx takes the word after this option as its value, whatever npm knows about the option. npm would then read the options
    /// of the runner as its own.
    fn takes_next(&self, word: &str) -> bool {
        let is_flag = is_among(self.flags, word) && word != "--no";
        self.name == "npx" && !is_flag && !word.contains('=')
    }

    /// The index of the command after its own arguments, which begin at `first`.
    fn skip(&self, words: &[String], first: usize, rules: &Rules<'_>) -> Checked<usize> {
        let mut at = first;
        let mut is_timed = self.name != "timeout";
        while let Some(word) = words.get(at) {
            let (option, value) = word.split_once('=').map_or((word.as_str(), None), |(o, v)| (o, Some(v)));
            at += match () {
                () if word == "--" => return Ok(at + 1),
                // A Python module follows.
                () if word == "-m" && is_among("coverage uv", self.name) => return Ok(at),
                () if is_among(self.values, option) => {
                    let text = value.or(words.get(at + 1).map(String::as_str)).unwrap_or_default();
                    let both = format!("{option} {text}");
                    // To find a module with a dot in its name, coverage imports the package.
                    let imports =
                        option == "--source" && text.split(',').any(|s| s != "." && s.contains('.'));
                    if imports && !rules.allows(option) && !rules.allows(&both) {
                        return rules.refuse_option(&both, self.name);
                    }
                    1 + usize::from(value.is_none())
                }
                () if is_among(self.verbs, word) => 1,
                () if word.starts_with('-') => {
                    if !is_among(self.flags, word) && !rules.allows(option) {
                        return rules.refuse_option(option, self.name);
                    }
                    if self.takes_next(word) && words.get(at + 1).is_some_and(|next| !next.starts_with('-')) {
                        let reason = format!("npx takes the word after `{}` as its value", printable(word));
                        return ambiguous(
                            reason,
                            "write `--` before the runner, such as npx --no -- jest tests",
                        );
                    }
                    1
                }
                () if self.name == "env" && value.is_some() => {
                    if (is_runner_variable(option) || locates_programs(option)) && !rules.allows(option) {
                        return rules.refuse_name(option, "variables");
                    }
                    1
                }
                () if !is_timed => {
                    is_timed = true;
                    1
                }
                () => return Ok(at),
            };
        }
        Ok(at)
    }
}

/// Checks the words from a wrapper that can download packages up to the runner. The runner must have its plain name or a version
/// (`jest@29`): `jest@file:/x`, `jest@.x`, `jest@x.tgz` and `owner/jest` can be any package.
fn check_package(runner: Runner, words: &[String]) -> Checked<()> {
    let (Some((name, before)), Some(wrapper)) = (words.split_last(), words.first()) else { return Ok(()) };
    let (own, is_version): (_, fn(&str) -> bool) = match program_name(wrapper) {
        "uvx" => ("pytest", is_python_version),
        _ => ("jest vitest", is_npm_version),
    };
    let (plain, version) = name.split_once('@').unwrap_or((name, "latest"));
    if !is_among(own, plain) || !is_version(version) || plain != runner.name() {
        return any_package(wrapper, name);
    }
    if program_name(wrapper) == "npm" && before.last().is_none_or(|word| word != "--") {
        let hint = "write `--` before the runner, such as npm exec -- jest tests";
        return ambiguous("npm also reads options after the command", hint);
    }
    Ok(())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether npm and the like read a text after `jest@` as a version, a range or a tag. They read a text that begins with a dot or ends like an
/// archive as a path, so that only digits may follow a dot.
fn is_npm_version(text: &str) -> bool {
    let is_name = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let is_part = |part: &str| match part.split_once('-') {
        Some((number, name)) => is_number(number) && is_name(name),
        None => part == "x" || is_number(part),
    };
    let is_tag = text.starts_with(|c: char| c.is_ascii_alphabetic()) && is_name(text);
    is_tag || text.strip_prefix(['^', '~']).unwrap_or(text).split('.').all(is_part)
}

/// Whether uvx reads a text after `pytest@` as a version. It reads any other text as a path.
fn is_python_version(text: &str) -> bool {
    let is_early = |part: &str| {
        let mut halves = ["a", "b", "rc"].into_iter().filter_map(|mark| part.split_once(mark));
        halves.any(|(number, early)| is_number(number) && is_number(early))
    };
    text == "latest" || text.split('.').all(|part| is_number(part) || is_early(part))
}

/// `npx nice jest` runs a package called nice, so the runner must follow at once.
fn any_package<T>(wrapper: &str, name: &str) -> Checked<T> {
    let reason = format!("after `{}`, `{}` can be any package", printable(wrapper), printable(name));
    ambiguous(reason, "write the plain name of a runner directly after it, or a version such as jest@29")
}

/// The module that `python … -m MODULE` runs, and the index of the word that names it. `None` if a flag before it can load or run other
/// code. Python's own flags end at `-m`.
pub(super) fn python_module(words: &[String], at: usize) -> Option<(usize, &str)> {
    let harmless = "dev faulthandler importtime no_debug_ranges tracemalloc utf8";
    let (mut index, mut is_isolated) = (at + 1, false);
    while program_name(words.get(at)?) == "python" {
        let letters = words.get(index)?.strip_prefix('-').filter(|letters| !letters.is_empty())?;
        let rest = letters.trim_start_matches(|letter| "bBdEIOPqsSuv".contains(letter));
        is_isolated |= letters[..letters.len() - rest.len()].contains(['I', 'P']);
        if let Some(letter) = rest.chars().next() {
            index += usize::from(rest.len() == 1);
            let value = if rest.len() == 1 { words.get(index)? } else { rest.get(1..)? };
            match letter {
                // In isolated mode unittest does not look for modules in the working directory.
                'm' => {
                    return Some((index, value)).filter(|(_, module)| !is_isolated || *module != "unittest");
                }
                'X' if is_among(harmless, value.split('=').next()?) => {}
                // With a dot in the category, Python imports a module.
                'W' if !value.contains('.') => {}
                _ => return None,
            }
        }
        index += 1;
    }
    None
}

/// Refuses cargo commands other than `cargo test` and `cargo nextest run`. `cargo t` is an alias, which a file can redefine.
pub(super) fn check_cargo_verb(program: &str, positional: &[&str]) -> Checked<()> {
    let verbs = positional.iter().filter(|word| !word.starts_with('+')).take(2).copied().collect::<Vec<_>>();
    match (base_name(program), verbs.as_slice()) {
        ("cargo-nextest", ["run", ..]) | (_, ["test", ..] | ["nextest", "run"]) => Ok(()),
        _ => not_tests("cargo"),
    }
}
