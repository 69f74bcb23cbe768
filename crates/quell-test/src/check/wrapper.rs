//! What may stand before a runner where there is a scope: wrappers with options that are known to be harmless, and flags of Python's.

use super::Verdict;
use super::command::{TestCommand, bare, last, not_a_runner, not_tests};
use super::options::{Rules, is_among, misleads};
use super::path::shown;
use super::variables::{is_runner_variable, leads_elsewhere};
use crate::runners::{Runner, is_official};

/// A program that runs the command behind its own words. With a scope only these words may stand there.
struct Wrapper {
    name: &'static str,
    verbs: &'static str,
    flags: &'static str,
    /// Options that have a value.
    values: &'static str,
}

const NPM: &str = "-y --yes --no --no-install --offline --prefer-offline -q --quiet -s --silent";
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
    Wrapper { name: "yarn", verbs: "run exec dlx", flags: NPM, values: "" },
    Wrapper { name: "pnpm", verbs: "exec dlx", flags: NPM, values: "" },
];

/// Wrappers that can download what they run.
const FETCHING: &str = "uvx npx npm bun bunx yarn pnpm";

fn named(name: &str) -> Option<&'static Wrapper> {
    WRAPPERS.iter().find(|wrapper| wrapper.name == name)
}

/// Whether a program runs the command behind its own words.
pub(super) fn is_wrapper(name: &str) -> bool {
    named(name).is_some()
}

/// Checks every word before those of the runner. Returns the places of the words that name programs: wrappers, then the runner.
pub(super) fn check_wrappers(
    command: &TestCommand,
    words: &[String],
    rules: &Rules<'_>,
) -> Verdict<Vec<usize>> {
    let mut programs = Vec::new();
    let mut at = 0;
    while at < command.at {
        programs.push(at);
        let (mut name, mut own) = (bare(&words[at]), at + 1);
        // `python -m coverage run` is `coverage run`.
        if let Some((place, module)) = python_module(words, at).filter(|(_, module)| *module == "coverage") {
            (name, own) = (module, place + 1);
        }
        let Some(wrapper) = named(name) else { return not_a_runner(&words[at]) };
        at = wrapper.skip(words, own, rules)?;
    }
    let Some(runner) = words.get(command.at) else { return Ok(programs) };
    // A wrapper reads what looked like a runner as a word of its own.
    if at != command.at {
        return not_a_runner(runner);
    }
    if let Some(&first) = programs.iter().find(|at| is_among(FETCHING, bare(&words[**at]))) {
        let stands_before = programs.last() == Some(&first);
        check_fetched(command.runner, &words[first..=command.at], stands_before)?;
    }
    programs.push(command.at);
    let toolchain = words.get(command.call).and_then(|word| word.strip_prefix('+'));
    if let Some(name) = toolchain.filter(|name| command.runner.is_cargo() && !is_official(name)) {
        let reason = format!("the toolchain `+{}` can be any program", shown(name));
        return misleads(reason, "use an official name such as +stable or +1.85, or leave it out");
    }
    Ok(programs)
}

impl Wrapper {
    /// Where the command begins that stands behind its words.
    fn skip(&self, words: &[String], first: usize, rules: &Rules<'_>) -> Verdict<usize> {
        let mut at = first;
        let mut is_timed = self.name != "timeout";
        while let Some(word) = words.get(at) {
            let (option, value) = word.split_once('=').map_or((word.as_str(), None), |(o, v)| (o, Some(v)));
            at += match () {
                () if word == "--" => return Ok(at + 1),
                // A module of Python's is named behind it.
                () if word == "-m" && is_among("coverage uv", self.name) => return Ok(at),
                () if is_among(self.values, option) => 1 + usize::from(value.is_none()),
                () if is_among(self.flags, word) || is_among(self.verbs, word) => 1,
                () if word.starts_with('-') && rules.allows(option) => 1,
                () if word.starts_with('-') => return rules.refuse_option(option, self.name),
                () if self.name == "env" && value.is_some() => {
                    if (is_runner_variable(option) || leads_elsewhere(option)) && !rules.allows(option) {
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

/// Behind a wrapper that can download packages the runner follows at once, by its plain name: `npx nice jest` runs a package called
/// nice, `jest@29` is a version of jest, but `jest@file:/x` and `owner/jest` can be any package.
fn check_fetched(runner: Runner, words: &[String], stands_before: bool) -> Verdict<()> {
    let (Some((name, before)), Some(wrapper)) = (words.split_last(), words.first()) else { return Ok(()) };
    let own = if bare(wrapper) == "uvx" { "pytest" } else { "jest vitest" };
    let is_version =
        |version: &str| version.chars().all(|c| c.is_ascii_alphanumeric() || ".-+^~".contains(c));
    let (plain, version) = name.split_once('@').unwrap_or((name, ""));
    if !is_among(own, plain) || !is_version(version) || !stands_before || plain != runner.name() {
        let reason = format!("behind `{}`, `{}` can be any package", shown(wrapper), shown(name));
        return misleads(reason, "write the plain name of a runner behind it, or a version such as jest@29");
    }
    if bare(wrapper) == "npm" && before.last().is_none_or(|word| word != "--") {
        let hint = "write `--` before the runner, such as npm exec -- jest tests";
        return misleads("npm reads options behind the command, too", hint);
    }
    Ok(())
}

/// The module that `python … -m MODULE` runs, and the place of the word that it is in. None if a flag before it can load other code,
/// or run something else. Python reads its flags up to `-m`; what follows is for the module.
pub(super) fn python_module(words: &[String], at: usize) -> Option<(usize, &str)> {
    let harmless = "dev faulthandler importtime no_debug_ranges tracemalloc utf8";
    let (mut place, mut is_isolated) = (at + 1, false);
    while bare(words.get(at)?) == "python" {
        let letters = words.get(place)?.strip_prefix('-').filter(|letters| !letters.is_empty())?;
        let rest = letters.trim_start_matches(|letter| "bBdEIOPqsSuv".contains(letter));
        is_isolated |= letters[..letters.len() - rest.len()].contains(['I', 'P']);
        if let Some(letter) = rest.chars().next() {
            place += usize::from(rest.len() == 1);
            let value = if rest.len() == 1 { words.get(place)? } else { rest.get(1..)? };
            match letter {
                // Without the working directory in its path unittest finds modules elsewhere.
                'm' => {
                    return Some((place, value)).filter(|(_, module)| !is_isolated || *module != "unittest");
                }
                'X' if is_among(harmless, value.split('=').next()?) => {}
                // Python imports the module of a category with a dot.
                'W' if !value.contains('.') => {}
                _ => return None,
            }
        }
        place += 1;
    }
    None
}

/// Whether cargo is called for tests: `cargo test`, `cargo nextest run`. `cargo t` is an alias, which a file can redefine.
pub(super) fn check_cargo_verb(program: &str, plain: &[&str]) -> Verdict<()> {
    let verbs = plain.iter().filter(|word| !word.starts_with('+')).take(2).copied().collect::<Vec<_>>();
    match (last(program), verbs.as_slice()) {
        ("cargo-nextest", ["run", ..]) | (_, ["test", ..] | ["nextest", "run"]) => Ok(()),
        _ => not_tests("cargo"),
    }
}
