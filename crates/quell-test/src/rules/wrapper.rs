//! With a scope: the words before the runner's own. Wrappers, flags of the interpreter and cargo's toolchain can load code, or run
//! something else.

use super::command::{bare, coverage_module, last};
use super::options::is_among;
use super::path::shown;
use super::runner::{Rules, misleads};
use super::variables::{is_runner_variable, leads_elsewhere};
use super::{BUILT_IN, Decision, GUIDE, Runner, TestCommand};

/// A program that runs the command that stands behind its own words. With a scope only these words may stand there.
struct Wrapper {
    name: &'static str,
    /// Verbs, such as `run`.
    verbs: &'static str,
    flags: &'static str,
    /// Options that have a value.
    values: &'static str,
}

const fn wrapper(
    name: &'static str,
    verbs: &'static str,
    flags: &'static str,
    values: &'static str,
) -> Wrapper {
    Wrapper { name, verbs, flags, values }
}

const NPM_FLAGS: &str = "-y --yes --no --no-install --offline --prefer-offline -q --quiet -s --silent";
const UV_FLAGS: &str = "--frozen --locked --offline --no-sync --all-extras --all-groups --dev --no-dev --only-dev \
    --isolated --active --exact -q --quiet -v --verbose --no-progress";

/// Hosts that the name of a toolchain may end in.
const HOSTS: &str = "\
    aarch64-apple-darwin aarch64-pc-windows-msvc aarch64-unknown-linux-gnu aarch64-unknown-linux-musl \
    i686-unknown-linux-gnu x86_64-apple-darwin x86_64-pc-windows-gnu x86_64-pc-windows-msvc \
    x86_64-unknown-linux-gnu x86_64-unknown-linux-musl";

/// Those that can fetch what they run.
const FETCHING: &str = "uvx npx npm bun bunx yarn pnpm";

const WRAPPERS: &[Wrapper] = &[
    wrapper("env", "", "- -i --ignore-environment", "-u --unset"),
    wrapper("timeout", "", "--foreground --preserve-status -v --verbose", "-k --kill-after -s --signal"),
    wrapper("nice", "", "", "-n --adjustment"),
    wrapper("ionice", "", "-t --ignore", "-c --class -n --classdata"),
    wrapper("nohup", "", "", ""),
    wrapper("setsid", "", "-w --wait", ""),
    wrapper("stdbuf", "", "", "-i --input -o --output -e --error"),
    wrapper("time", "", "-p -v", ""),
    wrapper("xvfb-run", "", "-a --auto-servernum", "-n --server-num"),
    wrapper("coverage", "run", "--branch -p --parallel-mode -a --append", "--source --omit --include"),
    wrapper("uv", "run", UV_FLAGS, "--extra --no-extra --group --no-group --only-group --python"),
    wrapper("uvx", "", "--offline --isolated -q --quiet -v --verbose", ""),
    wrapper("poetry", "run", "-q --quiet -n --no-interaction -v", ""),
    wrapper("pipenv", "run", "-q --quiet -v --verbose", ""),
    wrapper("pdm", "run", "-q --quiet -v --verbose", ""),
    wrapper("hatch", "run", "-q --quiet -v --verbose", ""),
    wrapper("rye", "run", "", ""),
    wrapper("npx", "", NPM_FLAGS, ""),
    wrapper("npm", "exec x", NPM_FLAGS, ""),
    wrapper("bun", "run x", "--bun -b --silent", ""),
    wrapper("bunx", "", "--bun -b --silent", ""),
    wrapper("yarn", "run exec dlx", NPM_FLAGS, ""),
    wrapper("pnpm", "exec dlx", NPM_FLAGS, ""),
];

/// Whether a program runs the command behind its own words.
pub(super) fn is_wrapper(name: &str) -> bool {
    named(name).is_some()
}

/// Whether a wrapper has this flag, so that no value stands behind it.
pub(super) fn is_flag(name: &str, word: &str) -> bool {
    named(name).is_some_and(|wrapper| is_among(wrapper.flags, word))
}

fn named(name: &str) -> Option<&'static Wrapper> {
    WRAPPERS.iter().find(|wrapper| wrapper.name == name)
}

/// The places of the words that name programs: wrappers, and then the runner. With a scope each word before the runner's own has to
/// be one that is known, as others can load code, or run something else.
pub(super) fn check_programs(
    command: &TestCommand,
    words: &[String],
    rules: &Rules<'_>,
) -> Result<Vec<usize>, Box<Decision>> {
    let mut programs = Vec::new();
    let mut at = 0;
    while at < command.at {
        programs.push(at);
        let (mut name, mut own) = (bare(last(&words[at])), at + 1);
        // `python -m coverage run` is `coverage run`.
        if let Some(place) = coverage_module(words, at) {
            python_flags(Runner::Pytest, &words[own..=place], rules)?;
            (name, own) = ("coverage", place + 1);
        }
        let Some(wrapper) = named(name) else { return no_runner(&words[at]) };
        at = wrapper.command(words, own, command.at, rules)?;
    }
    // The words of a wrapper reach over what looked like a runner.
    if at != command.at {
        return no_runner(&words[command.at]);
    }
    let Some(runner) = words.get(command.at) else { return Ok(programs) };
    if let Some(place) = programs.iter().position(|at| is_among(FETCHING, bare(last(&words[*at])))) {
        fetched(command.runner, &words[programs[place]..=command.at], place + 1 == programs.len())?;
    }
    programs.push(command.at);
    match command.runner {
        Runner::Pytest | Runner::Unittest if bare(last(runner)) == "python" => {
            python_flags(command.runner, &words[command.at + 1..command.call], rules)?;
        }
        Runner::Cargo | Runner::Nextest => cargo_call(&words[command.at..])?,
        _ => {}
    }
    Ok(programs)
}

impl Wrapper {
    /// Where the command begins that stands behind its words.
    fn command(
        &self,
        words: &[String],
        first: usize,
        runner: usize,
        rules: &Rules<'_>,
    ) -> Result<usize, Box<Decision>> {
        let mut at = first;
        // `timeout` has one word that is no option.
        let mut time = self.name == "timeout";
        while at < runner {
            let word = words[at].as_str();
            let (option, value) = match word.split_once('=') {
                Some((option, value)) => (option, Some(value)),
                None => (word, None),
            };
            let glued = word.get(..2).filter(|short| !word.starts_with("--") && is_among(self.values, short));
            at += match () {
                () if word == "--" => return Ok(at + 1),
                // Any other one is the path of a program.
                () if option == "--python" && self.name == "uv" => {
                    let version = value.or(words.get(at + 1).map(String::as_str)).unwrap_or_default();
                    let number = |c: char| c.is_ascii_digit() || c == '.';
                    if !version.starts_with(|c: char| c.is_ascii_digit()) || !version.chars().all(number) {
                        return Err(rules.refuse_option(option, self.name));
                    }
                    if value.is_some() { 1 } else { 2 }
                }
                () if self.name == "nice" && is_number(word) => 1,
                () if is_among(self.values, option) && value.is_none() => 2,
                () if is_among(self.values, option) || is_among(self.flags, word) || glued.is_some() => 1,
                () if word.starts_with('-') && rules.allows(option) => 1,
                () if word.starts_with('-') => return Err(rules.refuse_option(option, self.name)),
                () if self.name == "env" && value.is_some() => {
                    if (is_runner_variable(option) || leads_elsewhere(option)) && !rules.allows(option) {
                        return Err(rules.refuse_variable(option));
                    }
                    1
                }
                () if is_among(self.verbs, word) => 1,
                () if time => {
                    time = false;
                    1
                }
                () => return Ok(at),
            };
        }
        Ok(at)
    }
}

/// Such as the `-5` of `nice -5`.
fn is_number(word: &str) -> bool {
    word.strip_prefix('-')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A refusal of an interpreter that is told something else than to run a script.
pub(super) fn no_script<T>(program: &str, word: Option<&str>) -> Result<T, Box<Decision>> {
    let name = shown(program);
    let instead = word.map_or_else(|| "nothing".into(), |word| format!("`{}`", shown(word)));
    let reason = format!(
        "with a scope `{name}` runs a script that is in the scope and is not called like a report, and here {instead} \
         stands in its place"
    );
    let hint = format!(
        "write the script behind plain flags, or call a known runner; only a program in guard.test.commands of the \
         file that has the scope, or of a stronger one, may be told anything; {GUIDE}"
    );
    Err(Box::new(Decision::refuse("COMMAND_NOT_ALLOWED", "guard.test.commands", reason, hint)))
}

/// A refusal of a program that can't be held to a scope.
pub(super) fn no_runner<T>(program: &str) -> Result<T, Box<Decision>> {
    let name = shown(program);
    let reason = format!("`{name}` is not a test runner that quell knows, so it can't be held to a scope");
    let hint = format!(
        "call a known runner, or a script that is in the scope, or have the file that has the scope list it in \
         guard.test.commands; {GUIDE}"
    );
    Err(Box::new(Decision::refuse("COMMAND_NOT_ALLOWED", "guard.test.commands", reason, hint)))
}

/// Python's own flags before `-m`.
fn python_flags(runner: Runner, flags: &[String], rules: &Rules<'_>) -> Result<(), Box<Decision>> {
    match telling_flag(runner, flags, |option| rules.allows(option)) {
        Some(option) => Err(rules.refuse_option(&option, "python")),
        None => Ok(()),
    }
}

/// The first of Python's flags before `-m` that can load code, or have something else run.
pub(super) fn telling_flag(
    runner: Runner,
    flags: &[String],
    allows: impl Fn(&str) -> bool,
) -> Option<String> {
    let harmless = "dev faulthandler importtime int_max_str_digits no_debug_ranges tracemalloc utf8";
    let mut words = flags.iter().map(String::as_str);
    while let Some(word) = words.next() {
        // Without the working directory in its path unittest finds the modules elsewhere.
        let elsewhere = |letter: char| runner == Runner::Unittest && matches!(letter, 'I' | 'P');
        let telling = |letter: char| matches!(letter, 'X' | 'W' | 'm' | 'i') || elsewhere(letter);
        let Some(at) = word.find(telling) else { continue };
        let (option, rest) = (&word[at..=at], &word[at + 1..]);
        let mut value = || if rest.is_empty() { words.next().unwrap_or_default() } else { rest };
        let sound = match option {
            "X" => is_among(harmless, value().split('=').next().unwrap_or_default()),
            "W" => !names_category(value()),
            "m" => return None,
            _ => false,
        };
        let option = format!("-{option}");
        if !sound && !allows(&option) {
            return Some(option);
        }
    }
    None
}

/// Whether a filter of warnings has a category in a module, which Python imports: `error::package.Warning`.
pub(super) fn names_category(filter: &str) -> bool {
    filter.split(':').nth(2).is_some_and(|category| category.contains('.'))
}

/// Only `cargo test` and `cargo nextest run`, with a toolchain that has an official name.
fn cargo_call(words: &[String]) -> Result<(), Box<Decision>> {
    let mut words = words.iter().map(String::as_str).peekable();
    let program = words.next().unwrap_or_default();
    if let Some(toolchain) = words.next_if(|word| word.starts_with('+')) {
        let name = &toolchain[1..];
        if !is_official(name) {
            let reason = format!(
                "`{}` can be any program: only official toolchains are allowed with a scope",
                shown(toolchain)
            );
            return misleads(reason, "use a name such as +stable or +nightly, or leave it out");
        }
    }
    let mut plain = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "--" => break,
            "-C" | "-Z" | "--config" | "--color" => drop(words.next()),
            word if word.starts_with('-') => {}
            word => plain.push(word),
        }
    }
    let first = usize::from(last(program) == "cargo-nextest" && plain.first() != Some(&"nextest"));
    match (plain.first(), plain.get(1 - first)) {
        // Not `t`: that is an alias, which a file can redefine.
        (Some(&"test"), _) | (_, Some(&"run")) => Ok(()),
        _ => no_tests("cargo"),
    }
}

/// Whether a toolchain has a name that rustup gives to no directory that somebody has linked: a channel, with a date and a
/// host or without. `stable-mine` is one that is linked.
fn is_official(name: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (channel, rest) = name.split_once('-').unwrap_or((name, ""));
    let is_version = (2..=3).contains(&channel.split('.').count()) && channel.split('.').all(number);
    if !["stable", "beta", "nightly"].contains(&channel) && !is_version {
        return false;
    }
    let is_date = |text: &str| {
        text.len() == 10 && text.split('-').map(str::len).eq([4, 2, 2]) && text.split('-').all(number)
    };
    let rest = match rest.get(..10).filter(|date| is_date(date)) {
        Some(_) => rest[10..].strip_prefix('-').unwrap_or(&rest[10..]),
        None => rest,
    };
    rest.is_empty() && !name.ends_with('-') || is_among(HOSTS, rest)
}

/// A refusal of a runner that is called for something else than tests.
pub(super) fn no_tests<T>(name: &str) -> Result<T, Box<Decision>> {
    let tests = if name == "cargo" { "`cargo test` and `cargo nextest run` are" } else { "`go test` is" };
    let reason = format!("with a scope only {tests} allowed");
    Err(Box::new(Decision::refuse(
        "COMMAND_NOT_ALLOWED",
        BUILT_IN,
        reason,
        "call that, or run it without quell test",
    )))
}

/// A wrapper that can fetch packages stands right before the runner, and that has its plain name: `npx nice jest` runs a package
/// called nice, `jest@29` is a version of jest, but `jest@file:/x` and `owner/jest` are any package.
fn fetched(runner: Runner, words: &[String], is_last: bool) -> Result<(), Box<Decision>> {
    let (Some((name, before)), Some(wrapper)) = (words.split_last(), words.first()) else { return Ok(()) };
    let (plain, version) = name.split_once('@').unwrap_or((name, ""));
    let own = match bare(last(wrapper)) {
        "uvx" => runner == Runner::Pytest && plain == "pytest",
        _ => matches!(runner, Runner::Jest | Runner::Vitest),
    };
    let sound = |c: char| c.is_ascii_alphanumeric() || ".-+^~".contains(c);
    if !own || !is_last || plain.contains('/') || !version.chars().all(sound) {
        let reason = format!("behind `{}`, `{}` can be any package", shown(wrapper), shown(name));
        return misleads(reason, "write the plain name of a runner behind it, or a version such as jest@29");
    }
    if bare(last(wrapper)) == "npm" && before.last().is_none_or(|word| word != "--") {
        let reason = "npm reads options behind the command, too".into();
        return misleads(reason, "write `--` before the runner, such as npm exec -- jest tests");
    }
    Ok(())
}
