//! Which words of a runner are paths.

use super::command::{bare, last, wrapper_words};
use super::options::{
    CARGO, GO, JEST, LOG, Options, PYTEST, PYTEST_PARTS, PYTEST_PATH_LISTS, PYTEST_SETTINGS, UNITTEST,
    VITEST, is_among,
};
use super::path::{Root, check_target, shown};
use super::report_name::is_any_report;
use super::scan::{Scan, Special, check_end, looks_like_path, option_path, split_words};
use super::wrapper::{check_programs, names_category, no_runner, no_script, no_tests};
use super::{BUILT_IN, Decision, GUIDE, Runner, TestCommand, matches};

/// Where a path has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is a target: below a scope.
    Target,
    /// Below a scope, and no target.
    Within,
    /// Below a scope, and no scope itself, as it may be emptied.
    Inside,
    /// A directory that is below a scope, or above one; not above the working directory.
    Around,
    /// A file in such a directory.
    FileAround,
    /// Below the working directory or a scope.
    Here,
    /// A file there that the runner writes: a report, whose name ends in one of these.
    Output(&'static str),
    /// A directory there that the runner writes to, and may empty.
    OutputDir,
}

/// A word, or a part of one, that is a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathWord {
    /// In its plain form; empty for the working directory.
    pub path: String,
    /// Where it has to be.
    pub place: Place,
    /// Whether it has to be there.
    pub exists: bool,
}

/// What holds for the words of a command.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// There is a scope: what can load code from outside is refused.
    pub scoped: bool,
    /// The scope leaves out some of what is below the working directory.
    pub narrow: bool,
    /// The policy lists the program in `guard.test.commands`.
    pub listed: bool,
    /// Options and variables that the policy allows nevertheless: `guard.test.allow`.
    pub allow: &'a [String],
    /// What absolute paths may begin with.
    pub roots: &'a [Root],
}

impl Rules<'_> {
    /// Whether the policy allows an option or a variable, or needs to.
    pub(super) fn allows(&self, name: &str) -> bool {
        !self.scoped || self.is_named(name)
    }

    /// Whether the policy allows it by its name.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.allow.iter().any(|pattern| matches(pattern, name))
    }

    fn refuse(name: &str, reason: String, what: &str) -> Box<Decision> {
        let hint = format!("{what}, or have the policy allow it: guard.test.allow = [\"{name}\"]; {GUIDE}");
        Box::new(Decision::refuse("OPTION_NOT_ALLOWED", "guard.test.allow", reason, hint))
    }

    pub(super) fn refuse_option(&self, option: &str, program: &str) -> Box<Decision> {
        let option = shown(option);
        let reason = format!(
            "`{option}` is not among the options of {program} that are known to be harmless with a scope"
        );
        Self::refuse(&option, reason, "leave it out")
    }

    pub(super) fn refuse_value(option: &str, value: &str, choices: &str) -> Box<Decision> {
        let reason =
            format!("`{option}` with the value `{}` can load code from outside the scope", shown(value));
        Self::refuse(option, reason, &format!("use one of {}", choices.replace(' ', ", ")))
    }

    pub(super) fn refuse_variable(&self, name: &str) -> Box<Decision> {
        let name = shown(name);
        let reason = format!("the variable `{name}` can load code from outside the scope");
        Self::refuse(&name, reason, "leave it out")
    }

    fn target(&self, word: &str) -> Found {
        self.pattern(word, true)
    }

    fn pattern(&self, word: &str, exists: bool) -> Found {
        Ok(vec![PathWord { path: check_target(word, self.roots)?, place: Place::Target, exists }])
    }
}

pub(super) type Found = Result<Vec<PathWord>, Box<Decision>>;

/// What a command is made of, as far as paths go.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// The paths.
    pub paths: Vec<PathWord>,
    /// Where the words are that name programs: wrappers, and then the runner.
    pub programs: Vec<usize>,
}

/// A refusal of a word that would be read in another way than it looks.
pub(super) fn misleads<T>(reason: String, hint: &str) -> Result<T, Box<Decision>> {
    Err(Box::new(Decision::refuse("PATH_OPTION", BUILT_IN, reason, hint)))
}

/// The paths and the programs among the words of a command. Of a command that is not known the paths are guessed only where there
/// is a scope that they have to be in: a word with a slash, and one that names something that `exists`.
pub fn path_words(
    command: &TestCommand,
    words: &[String],
    rules: &Rules<'_>,
    exists: impl Fn(&str) -> bool,
) -> Result<Words, Box<Decision>> {
    let exists: &dyn Fn(&str) -> bool = &exists;
    wrapper_words(command, words)?;
    let programs = if rules.scoped { check_programs(command, words, rules)? } else { Vec::new() };
    let mut paths = match command.runner {
        Runner::Other if rules.scoped => other(words, rules, exists)?,
        Runner::Other => Vec::new(),
        _ => own_words(command.runner, words.get(command.call..).unwrap_or_default(), rules, exists)?,
    };
    let is_bound = matches!(command.runner, Runner::Jest | Runner::Vitest) && rules.narrow;
    if is_bound && !paths.iter().any(|word| word.place == Place::Target) {
        // Without a target they look for tests in all of `--rootDir`.
        paths
            .iter_mut()
            .filter(|word| word.place == Place::Around)
            .for_each(|word| word.place = Place::Target);
    }
    Ok(Words { paths, programs })
}

/// The paths among words of pytest's that a variable or a file puts before those of the command line.
pub fn added_words(words: &[String], rules: &Rules<'_>, exists: impl Fn(&str) -> bool) -> Found {
    check_end(words, rules)?;
    own_words(Runner::Pytest, words, rules, exists)
}

/// The paths among the words of a runner's own.
fn own_words(runner: Runner, words: &[String], rules: &Rules<'_>, exists: impl Fn(&str) -> bool) -> Found {
    let exists: &dyn Fn(&str) -> bool = &exists;
    let all: Vec<&str> = words.iter().map(String::as_str).collect();
    // Up to a word behind which the runner itself reads nothing.
    let own = |end: &str| -> Vec<&str> { all.iter().copied().take_while(|word| *word != end).collect() };
    let scan = |words: &[&str], known: &Options, special: &Special<'_>, target: &dyn Fn(&str) -> Found| {
        Scan { known, name: runner.name(), rules, exists, special, target }.read(words)
    };
    match runner {
        Runner::Pytest => {
            scan(&all, &PYTEST, &|option, value| pytest(option, value, rules, exists), &|word| {
                node(word, rules)
            })
        }
        // Without a scope its words are not looked into: they may be modules from anywhere.
        Runner::Unittest if !rules.scoped => Ok(Vec::new()),
        Runner::Unittest => {
            let own = all.strip_prefix(&["discover"]).unwrap_or(&all);
            scan(own, &UNITTEST, &nothing, &|word| module(word, rules, exists))
        }
        // The words of cargo that are no options are patterns for the names of tests.
        Runner::Cargo | Runner::Nextest => {
            let nothing = |_: &str| Ok(Vec::new());
            let own = own("--");
            let mut found = scan(&own, &CARGO, &|option, value| cargo(option, value, rules), &nothing)?;
            found.extend(libtest(&all[own.len()..], rules)?);
            Ok(found)
        }
        // What stands behind it is for the tests' own program.
        Runner::Go => {
            let own = own("-args");
            let special = |option: &str, value: Option<&str>| go(option, value, rules);
            let mut found = scan(&own, &GO, &special, &|word| go_target(word, rules))?;
            // That program reads flags of go's own as well.
            let go = |word: &&&str| word.trim_start_matches('-').starts_with("test.");
            let flags: Vec<&str> = all[own.len()..].iter().filter(go).copied().collect();
            found.extend(scan(&flags, &GO, &special, &|word| go_target(word, rules))?);
            Ok(found)
        }
        // Their words are patterns: without a scope they need not name anything.
        Runner::Jest => scan(&all, &JEST, &|option, value| jest(option, value, rules), &|word| {
            rules.pattern(word, rules.narrow)
        }),
        Runner::Vitest => {
            let own = own("--");
            let verbs =
                if rules.scoped { "run watch dev bench list" } else { "run related watch dev bench list" };
            let skip = usize::from(own.first().is_some_and(|word| is_among(verbs, word)));
            scan(&own[skip..], &VITEST, &nothing, &|word| rules.pattern(word, rules.narrow))
        }
        Runner::Other => Ok(Vec::new()),
    }
}

/// Programs that run a script, and the letters of their flags that change nothing of what is run.
const INTERPRETERS: &[(&str, &str)] = &[
    ("sh", "efuvx"),
    ("bash", "efuvx"),
    ("dash", "efuvx"),
    ("ksh", "efuvx"),
    ("zsh", "efuvx"),
    ("python", "bBdEIOqsSuv"),
    ("node", ""),
    ("ruby", ""),
    ("perl", ""),
];

/// A command that is no runner, with a scope: a script in the scope, or a program that the policy lists.
fn other(words: &[String], rules: &Rules<'_>, exists: &dyn Fn(&str) -> bool) -> Found {
    let all: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some((program, rest)) = all.split_first() else { return Ok(Vec::new()) };
    let name = bare(last(program));
    // Known programs, called for something else than tests.
    if is_among("cargo go", name) {
        return no_tests(name);
    }
    let flags = INTERPRETERS.iter().find(|known| known.0 == name).map(|known| known.1);
    let (mut found, rest) = match flags {
        _ if rules.listed => (Vec::new(), rest),
        Some(flags) => {
            let is_flag = |word: &&&str| {
                word.len() > 1
                    && word
                        .strip_prefix('-')
                        .is_some_and(|letters| letters.chars().all(|c| flags.contains(c)))
            };
            let at = rest.iter().take_while(is_flag).count();
            let Some(script) = rest.get(at).filter(|script| !script.starts_with('-')) else {
                return no_script(program, rest.get(at).copied());
            };
            if is_any_report(last(script)) {
                return no_script(program, Some(script));
            }
            (rules.target(script)?, &rest[at + 1..])
        }
        None if program.contains('/') => (rules.target(program)?, rest),
        None => return no_runner(program),
    };
    found.extend(guessed(rest, rules, exists)?);
    Ok(found)
}

/// The paths among words of which nothing is known.
fn guessed(words: &[&str], rules: &Rules<'_>, exists: &dyn Fn(&str) -> bool) -> Found {
    let mut found = Vec::new();
    for word in words {
        if let Some(option) = word.strip_prefix('-') {
            let value = match option.split_once('=') {
                Some((_, value)) => value,
                // Such as `-C../x`.
                None => option.get(1..).filter(|_| !option.starts_with('-')).unwrap_or_default(),
            };
            if looks_like_path(value, exists) {
                found.push(option_path(word, value, (Place::Here, false), rules)?);
            }
        } else if word.contains(['/', '\\']) || (!word.is_empty() && exists(word)) {
            found.extend(rules.target(word)?);
        }
    }
    Ok(found)
}

/// The file of `tests/test_a.py::test_x[1]`. What stands behind is compared with names, and opens nothing. Some versions of
/// pytest cut at the first bracket, also before the colons, and some don't: it has to be good in both ways.
fn node(word: &str, rules: &Rules<'_>) -> Found {
    let (file, name) = word.split_once("::").unwrap_or((word, ""));
    if name.chars().any(char::is_control) {
        check_target(word, rules.roots)?;
    }
    let mut found = rules.target(file)?;
    if let Some((short, _)) = file.split_once('[') {
        found.extend(rules.target(short)?);
    }
    Ok(found)
}

/// A file, a directory, or what is in one as Python writes it: `tests.test_a.TestX.test_y`.
fn module(word: &str, rules: &Rules<'_>, exists: &dyn Fn(&str) -> bool) -> Found {
    if word.contains('/') && word.strip_suffix(".py").unwrap_or(word).trim_start_matches("./").contains('.') {
        let reason = format!("for unittest a dot in `{}` is as good as a slash", shown(word));
        return misleads(reason, "name a directory or a file without dots in its name");
    }
    if word.contains(['/', '\\']) || word.ends_with(".py") || exists(word) {
        return rules.target(word);
    }
    let parts: Vec<&str> = word.split('.').collect();
    let mut ways = (1..=parts.len()).rev().map(|length| parts[..length].join("/"));
    let found = ways.find_map(|way| [format!("{way}.py"), way].into_iter().find(|path| exists(path)));
    match found {
        Some(path) => rules.target(&path),
        None => {
            let reason = format!("`{}` is not a module below the working directory", shown(word));
            let hint = "name a file or a directory, such as tests/test_a.py";
            Err(Box::new(Decision::refuse("PATH_OUTSIDE_SCOPE", BUILT_IN, reason, hint)))
        }
    }
}

/// go's way to write a directory: `.`, `./pkg`, `./pkg/...`, `/srv/app/pkg`.
fn go_target(word: &str, rules: &Rules<'_>) -> Found {
    let stem = word.strip_suffix("/...").unwrap_or(word);
    let path = check_target(stem, rules.roots)?;
    if stem == "." || stem.starts_with("./") || stem.starts_with('/') {
        return Ok(vec![PathWord { path, place: Place::Target, exists: true }]);
    }
    Err(Box::new(Decision::refuse(
        "PATH_OUTSIDE_SCOPE",
        BUILT_IN,
        format!("`{path}` names a package wherever it is, also outside of the working directory"),
        format!("write ./{path}"),
    )))
}

fn nothing(_: &str, _: Option<&str>) -> Result<Option<Vec<PathWord>>, Box<Decision>> {
    Ok(None)
}

fn pytest(
    option: &str,
    value: Option<&str>,
    rules: &Rules<'_>,
    exists: &dyn Fn(&str) -> bool,
) -> Result<Option<Vec<PathWord>>, Box<Decision>> {
    let text = value.unwrap_or_default();
    match option {
        "--pyargs" => {
            let reason = "--pyargs makes names of modules of the targets, wherever these are".into();
            misleads(reason, "name files or directories")
        }
        "-p" if !rules.allows("-p") => match text.strip_prefix("no:") {
            // A plugin is code.
            None => Err(rules.refuse_option("-p", "pytest")),
            Some(part) if is_among(PYTEST_PARTS, part) && !rules.allows(&format!("-p {text}")) => {
                Err(rules.refuse_option(&format!("-p {text}"), "pytest"))
            }
            // To do without one loads nothing.
            Some(_) => Ok(None),
        },
        "-W" | "--pythonwarnings" if names_category(text) && !rules.allows(option) => {
            Err(rules.refuse_option(option, "pytest"))
        }
        "-o" | "--override-ini" => {
            let (key, value) = text.split_once('=').unwrap_or_default();
            let key = key.trim();
            if key == "addopts" && value.trim().is_empty() {
                return Ok(None);
            }
            if key == "addopts" {
                return misleads("`-o addopts` has more options in it".into(), "write them as options");
            }
            let setting = format!("{option} {key}");
            if !is_among(PYTEST_SETTINGS, key) && !rules.allows(option) && !rules.allows(&setting) {
                return Err(rules.refuse_option(&setting, "pytest"));
            }
            let place = match key {
                "log_file" => Some(LOG),
                "cache_dir" => Some(Place::OutputDir),
                _ => None,
            };
            if let Some(place) = place {
                return Ok(Some(vec![option_path(&setting, value.trim(), (place, false), rules)?]));
            }
            let list = is_among(PYTEST_PATH_LISTS, key);
            let words = if list { split_words(value) } else { vec![value.trim().to_owned()] };
            let paths = words.iter().filter(|word| list || looks_like_path(word, exists));
            paths
                .map(|word| option_path(option, word, (Place::Here, false), rules))
                .collect::<Found>()
                .map(Some)
        }
        // `html:DIR`: what kind of report, and where.
        "--cov-report" => {
            let Some((kind, path)) = text.split_once(':') else { return Ok(None) };
            let place = match kind {
                "html" | "annotate" => Place::OutputDir,
                "xml" => Place::Output("xml"),
                "json" => Place::Output("json"),
                "lcov" => Place::Output("info lcov"),
                "markdown" | "markdown-append" => Place::Output("md"),
                _ if path == "skip-covered" => return Ok(None),
                _ if !rules.allows(option) => return Err(rules.refuse_option(option, "pytest")),
                _ => Place::Here,
            };
            Ok(Some(vec![option_path(option, path, (place, false), rules)?]))
        }
        // Where a module is, is known only when the package that it is in has been loaded.
        "--cov" if text.contains('.') && text != "." && !text.contains('/') && !exists(text) => {
            if rules.allows(option) {
                Ok(None)
            } else {
                Err(rules.refuse_option("--cov=MODULE.NAME", "pytest"))
            }
        }
        _ => Ok(None),
    }
}

fn jest(
    option: &str,
    value: Option<&str>,
    rules: &Rules<'_>,
) -> Result<Option<Vec<PathWord>>, Box<Decision>> {
    match (option, value) {
        // The same as a word that is no option.
        ("--testPathPattern" | "--testPathPatterns", Some(value)) => {
            rules.pattern(value, rules.narrow).map(Some)
        }
        _ => Ok(None),
    }
}

fn cargo(
    option: &str,
    value: Option<&str>,
    rules: &Rules<'_>,
) -> Result<Option<Vec<PathWord>>, Box<Decision>> {
    match option {
        "-C" => elsewhere(option),
        "-p" | "--package" | "--workspace" | "--all" if rules.narrow => {
            let reason = format!("`{option}` takes packages of the workspace, wherever these are");
            misleads(reason, "name the package alone, with --manifest-path DIR/Cargo.toml")
        }
        // A file says which linker is run.
        "--target" if value.is_some_and(|value| value.contains(['/', '.'])) && !rules.allows(option) => {
            Err(rules.refuse_option(option, "cargo"))
        }
        // `TOOL:FILE`.
        "--tool-config-file" => {
            let file = value.and_then(|value| value.split_once(':')).map_or("", |(_, file)| file);
            Ok(Some(vec![option_path(option, file, (Place::Here, true), rules)?]))
        }
        _ => Ok(None),
    }
}

/// The file that the program of Rust's tests writes, behind `--`.
fn libtest(words: &[&str], rules: &Rules<'_>) -> Found {
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let Some(rest) = word.strip_prefix("--logfile") else { continue };
        let value = rest.strip_prefix('=').or(words.get(at + 1).copied()).unwrap_or_default();
        found.push(option_path("--logfile", value, (LOG, false), rules)?);
    }
    Ok(found)
}

fn go(option: &str, value: Option<&str>, rules: &Rules<'_>) -> Result<Option<Vec<PathWord>>, Box<Decision>> {
    match option {
        "-C" => elsewhere(option),
        // They are part of the program that is run.
        "-coverpkg" if !rules.allows(option) => {
            let packages = value.unwrap_or_default().split(',');
            let found: Result<Vec<_>, _> = packages.map(|package| go_target(package, rules)).collect();
            // None of them is what is tested.
            let within = |word: PathWord| PathWord { place: Place::Within, ..word };
            Ok(Some(found?.into_iter().flatten().map(within).collect()))
        }
        _ => Ok(None),
    }
}

fn elsewhere<T>(option: &str) -> Result<T, Box<Decision>> {
    let reason = format!("`{option}` changes the directory that targets are seen from");
    misleads(reason, "go into that directory, and call quell there")
}
