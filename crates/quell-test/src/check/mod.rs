//! May these tests be run? Looks at the words of the command, at the policy and at the disk, and changes nothing.
//!
//! It is a check of what is asked for, not a sandbox: tests are code, and can do whatever their user can do.

mod command;
mod options;
mod path;
mod reports;
mod scope;
mod script;
#[cfg(test)]
mod tests;
mod variables;
mod wrapper;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use quell_core::{Environment, JobRequest, Mode, ReportWords, TestTerms};
use quell_guard::{BUILT_IN, Decision, GUIDE, TestPolicy, matches};

use command::{check_commands, check_moves, read_command};
use options::read_options;
use reports::check_output;
use scope::{check_place, resolve, with_slashes};
use variables::is_runner_variable;
use wrapper::{check_cargo_verb, check_wrappers};

pub(crate) use command::TestCommand;
pub(crate) use options::{LOG, NEVER, NO_DOT, NUMBER, OptionStyle, Options, Rules, is_among, misleads};
pub(crate) use path::{check_target, shown};
pub(crate) use reports::check_evidence;
pub(crate) use scope::{PathWord, Place, Scope};

use quell_guard::DecisionCode;

use crate::runners::{Runner, adds_nothing, split_words};
use crate::{TestPlan, files};

/// The variable whose words pytest puts before its own.
pub(crate) const PYTEST_WORDS: &str = "PYTEST_ADDOPTS";

/// The words by which pytest writes a report for quell, without the path. In this form it has the file of each test.
const OWN_REPORT: [&str; 2] = ["--override-ini=junit_family=xunit1", "--junitxml="];

/// What was found out on the way to an allowance.
#[derive(Debug)]
pub(crate) struct Checked {
    pub runner: Runner,
    /// The words that are executed: those that were checked, the program by its path if there is a scope.
    pub words: Vec<OsString>,
    /// All variables that the tests get.
    pub environment: Environment,
    /// Variables that they don't get, because there is a scope.
    pub cleared: Vec<String>,
    pub scope: Vec<String>,
    /// The report that pytest is told to write.
    pub report: Option<PathBuf>,
    /// How pytest is told to write one for quell, if it is not told to write another one.
    pub own_report: Option<ReportWords>,
    /// Whether the runner says at its end what came of the tests.
    pub reports: bool,
    pub decision: Decision,
}

impl Checked {
    /// The request for what was checked: its words, its variables, and the directory that they were checked in.
    pub fn request(self, plan: &TestPlan, cwd: &Path) -> JobRequest {
        let mut request = plan.request.clone();
        request.command = self.words;
        request.env = self.environment;
        request.cwd = Some(cwd.to_owned());
        if let Mode::Background(background) = &mut request.mode {
            background.test = Some(TestTerms { report: self.own_report, ..plan.terms() });
        }
        request
    }
}

pub(crate) type Variables = BTreeMap<OsString, OsString>;
pub(crate) type Verdict<T> = Result<T, Box<Decision>>;

pub(crate) fn refuse<T>(
    code: DecisionCode,
    rule: &str,
    reason: impl Into<String>,
    hint: impl Into<String>,
) -> Verdict<T> {
    Err(Box::new(Decision::refuse(code, rule, reason, hint)))
}

/// Whether the plan may be carried out in `cwd`.
pub(crate) fn check(policy: &TestPolicy, plan: &TestPlan, cwd: &Path, home: &Path) -> Verdict<Checked> {
    let mut words = plan.request.command.iter().map(text).collect::<Verdict<Vec<String>>>()?;
    let mut variables = plan.request.env.variables();
    let mut command = read_command(&words);
    let program = plan.request.command.first().and_then(|name| find(name, &variables, cwd));
    command.names.extend(program.as_ref().map(|file| cwd.join(file).display().to_string()));
    check_commands(policy, &command)?;
    let scope = Scope::of(policy, plan, cwd)?;
    let is_scoped = scope.is_set();
    // A project's list does not lift a scope that the caller gives.
    let listed = policy.commands_lift_scope && (plan.scope.is_empty() || !policy.commands_of_project);
    let rules = Rules { scope: &scope, roots: scope.roots(), allow: &policy.allow, listed };

    check_moves(&command, &words)?;
    if is_scoped {
        for at in check_wrappers(&command, &words, &rules)? {
            check_program(policy, &words[at], &variables, &rules)?;
        }
    }
    let mut paths = own_paths(&command, &mut words, &rules)?;
    let own = words.get(command.call..).unwrap_or_default();
    let asks_version = own == ["--version"];
    if !asks_version {
        check_presence(&scope, command.runner, &paths, plan.require_target)?;
    }
    let (mut report, mut own_report) = (None, None);
    if command.runner == Runner::Pytest {
        let (added, names_report) = added_paths(own, &paths, &variables, &rules)?;
        let is_report = |word: &&PathWord| word.place == Place::Output("xml");
        let named = paths.iter().rfind(is_report).or(added.iter().rfind(is_report));
        report = named.map(|word| PathBuf::from(&word.path));
        let is_free = !names_report && plan.junit.is_none();
        own_report =
            is_free.then(|| ReportWords { at: command.call, words: OWN_REPORT.map(String::from).into() });
        paths.extend(added);
    }
    // These end without running a test.
    let asks = own.iter().any(|word| is_among("-h --help -V --version --markers", word));
    let has_report = command.runner != Runner::Pytest || report.is_some() || own_report.is_some();
    if let Some(junit) = &plan.junit {
        paths.push(rules.path(&text(junit)?, Place::Here, false)?);
    }
    for word in &paths {
        let found = resolve(cwd, &word.path);
        check_place(&scope, word, &found)?;
        check_output(word, &found, cwd, home)?;
    }
    if !asks_version {
        files::check(&command, &paths, &variables, &rules)?;
    }
    let variable = Some(&policy.approval_variable).filter(|name| !name.is_empty());
    let approval = variable.and_then(|name| std::env::var(name).ok()).unwrap_or_default();
    check_approval(policy, plan.approved, &approval)?;

    let below = scope.words();
    let reason = match paths.iter().filter(|word| word.place == Place::Target).count() {
        0 => format!("no target is named, and none has to be; everything below {below} is allowed"),
        1 => format!("the target is below {below}"),
        many => format!("all {many} targets are below {below}"),
    };
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    if let (true, Some(file), Some(first)) = (is_scoped, program, words.first_mut()) {
        *first = file.into();
    }
    let cleared = if is_scoped { clear(&mut variables, &rules) } else { Vec::new() };
    Ok(Checked {
        runner: command.runner,
        words,
        environment: Environment { clear: true, set: variables.into_iter().collect() },
        cleared,
        scope: scope.shown(),
        report,
        own_report,
        reports: has_report && !asks,
        decision: Decision::allow(&scope.rule, reason),
    })
}

/// The paths among the words of the runner. Targets that are written with backslashes are turned.
fn own_paths(command: &TestCommand, words: &mut [String], rules: &Rules<'_>) -> Verdict<Vec<PathWord>> {
    let Some(table) = command.runner.table() else {
        // Without a scope nothing is known that paths could be held against.
        return if rules.scope.is_set() { script::script_paths(words, rules) } else { Ok(Vec::new()) };
    };
    let program = words.get(command.at).cloned().unwrap_or_default();
    let own = words.get_mut(command.call..).unwrap_or_default();
    let end = own.iter().position(|word| !table.end.is_empty() && word == table.end).unwrap_or(own.len());
    let (own, behind) = own.split_at_mut(end);
    let mut found = read_options(&table.options, table.name, own, rules)?;
    if rules.scope.is_set() && command.runner.is_cargo() {
        let plain: Vec<&str> = found.plain.iter().map(|at| own[*at].as_str()).collect();
        check_cargo_verb(&program, &plain)?;
    }
    if found.plain.first().is_some_and(|at| is_among(table.verbs, &own[*at])) {
        found.plain.remove(0);
    }
    let mut paths = found.paths;
    for at in found.plain {
        let word = &mut own[at];
        let (path, name) = word.split_at(word.find("::").unwrap_or(word.len()));
        *word = with_slashes(path, &rules.scope.cwd) + name;
        paths.extend((table.target)(word, rules)?);
    }
    let behind = behind.get(1..).unwrap_or_default();
    match table.behind {
        Some(options) => paths.extend(read_options(options, "a test's program", behind, rules)?.paths),
        // The program of go's tests reads flags of go's own.
        None => match behind.iter().find(|word| word.trim_start_matches('-').starts_with("test.")) {
            Some(word) if !rules.allows(word) => return rules.refuse_option(word, "a test's program"),
            _ => {}
        },
    }
    Ok(paths)
}

/// The paths among words that pytest takes from a variable or from files, and puts before those of the command line; and whether any
/// word is about a report, or switches reports off.
fn added_paths(
    own: &[String],
    paths: &[PathWord],
    variables: &Variables,
    rules: &Rules<'_>,
) -> Verdict<(Vec<PathWord>, bool)> {
    let cwd = &rules.scope.cwd;
    let targets = paths.iter().filter(|word| word.place == Place::Target);
    let mut targets: Vec<PathBuf> = targets.map(|word| cwd.join(&word.path)).collect();
    let has_targets = !targets.is_empty();
    if !has_targets {
        targets.push(cwd.clone());
    }
    let (mut added, mut found) = (Vec::new(), Vec::new());
    if let Some(words) = variables.get(OsStr::new(PYTEST_WORDS)) {
        added.push((PathBuf::from(PYTEST_WORDS), split_words(&text(words)?)));
    }
    let is_report = |word: &String| word.contains("junitxml") || word.contains("junit-xml");
    let mut names_report = own.iter().any(is_report);
    if !adds_nothing(own) {
        let of_files = files::pytest_words(&targets, "addopts");
        // Without a scope it does not matter what files add, or whether they can be read.
        let of_files = if rules.scope.is_set() { of_files? } else { of_files.unwrap_or_default() };
        names_report |= of_files.iter().flat_map(|(_, words)| words).any(is_report);
        added.extend(of_files.into_iter().filter(|_| rules.scope.is_set()));
    }
    for (file, words) in added {
        names_report |= words.iter().any(is_report);
        let checked = check_added(&words, rules);
        found.extend(checked.map_err(|refusal| added_by(&file, *refusal))?);
    }
    if rules.scope.is_set() && !has_targets {
        // They may be patterns, which need not name anything.
        for (file, dirs) in files::pytest_words(&targets, "testpaths")? {
            for dir in dirs {
                let word = rules.path(&dir, Place::Target, false);
                found.push(word.map_err(|refusal| added_by(&file, *refusal))?);
            }
        }
    }
    Ok((found, names_report))
}

/// pytest reads added words and the command line as one list, so none of them may change what the words behind it are.
fn check_added(added: &[String], rules: &Rules<'_>) -> Verdict<Vec<PathWord>> {
    let Some(table) = Runner::Pytest.table() else { return Ok(Vec::new()) };
    // In place of the first word of the command line.
    let next = "tests".to_owned();
    let words: Vec<String> = added.iter().cloned().chain([next]).collect();
    let mut found = read_options(&table.options, table.name, &words, rules)?;
    if added.iter().any(|word| word == "--") || found.plain.pop() != Some(added.len()) {
        let reason = "its last word would take the next word for its value, or for a target";
        return misleads(reason, "write the value with `=`, and leave out `--`");
    }
    for at in found.plain {
        found.paths.extend((table.target)(&words[at], rules)?);
    }
    for word in &found.paths {
        check_place(rules.scope, word, &resolve(&rules.scope.cwd, &word.path))?;
    }
    Ok(found.paths)
}

fn added_by(file: &Path, refusal: Decision) -> Box<Decision> {
    let reason = format!("{} (added by {})", refusal.reason, file.display());
    let hint = match refusal.hint {
        hint if file == Path::new(PYTEST_WORDS) => hint,
        hint => format!("{hint}; or pass `-o addopts=` to leave out what files add"),
    };
    Box::new(Decision { reason, hint, ..refusal })
}

/// Takes variables away by which code could be loaded from outside the scope, and names them.
fn clear(variables: &mut Variables, rules: &Rules<'_>) -> Vec<String> {
    let mut cleared = Vec::new();
    variables.retain(|name, _| {
        let name = name.to_string_lossy();
        let kept = !is_runner_variable(&name) || rules.names(&name);
        cleared.extend((!kept).then(|| name.into_owned()));
        kept
    });
    cleared
}

/// The file that a name would be executed from.
fn find(name: &OsStr, variables: &Variables, cwd: &Path) -> Option<PathBuf> {
    let path = variables.get(OsStr::new("PATH"));
    quell_keeper::find_program(name, path.map(OsString::as_os_str), cwd).ok()
}

/// A program that is written as a path has to be below the working directory or the scope, or the one that PATH leads to. Any other
/// one could be anything, whatever its name is.
fn check_program(policy: &TestPolicy, word: &str, variables: &Variables, rules: &Rules<'_>) -> Verdict<()> {
    let Some((_, name)) = word.rsplit_once('/') else { return Ok(()) };
    let cwd = &rules.scope.cwd;
    let file = cwd.join(word);
    let mut patterns = policy.commands.iter().filter(|pattern| rules.listed && pattern.contains('/'));
    let is_listed = patterns.any(|pattern| matches(pattern, &file.display().to_string()));
    let real = file.canonicalize().ok();
    // A program that does not exist can't be executed.
    let is_here = check_target(word, &rules.roots).is_ok()
        && real.as_ref().is_none_or(|real| rules.scope.is_here(real));
    let is_it = |name: &OsStr| find(name, variables, cwd).and_then(|found| found.canonicalize().ok()) == real;
    // A virtual environment has links to the interpreter that PATH leads to.
    let names = [Some(OsStr::new(name)), real.as_deref().and_then(Path::file_name)];
    if is_listed || is_here || real.is_some() && names.into_iter().flatten().any(is_it) {
        return Ok(());
    }
    let reason = format!(
        "the program `{}` is, or leads, outside the working directory and the scope, and PATH leads to another one",
        shown(word)
    );
    let hint = format!("call it by its name, or list its path in guard.test.commands; {GUIDE}");
    refuse(DecisionCode::CommandNotAllowed, "guard.test.commands", reason, hint)
}

/// Whether a target is named where one has to be.
fn check_presence(scope: &Scope, runner: Runner, paths: &[PathWord], required: bool) -> Verdict<()> {
    let has_target = paths.iter().any(|word| word.place == Place::Target);
    if has_target || !(required || scope.is_narrow()) {
        return Ok(());
    }
    let (rule, why) = if scope.is_narrow() {
        (scope.rule.as_str(), format!("only tests below {} may be run", scope.words()))
    } else {
        ("--require-target", "a target is required".into())
    };
    let hint = if runner.is_cargo() {
        "cargo takes no directories: name the package with --manifest-path DIR/Cargo.toml, or have a scope with all of \
         the workspace in it"
    } else {
        "name the files or directories that are to be tested"
    };
    let reason = format!("the command names no target, so that the runner would choose; {why}");
    refuse(DecisionCode::TargetRequired, rule, reason, hint)
}

/// Whether the run is approved, if it has to be: by the flag, or by the policy's variable.
fn check_approval(policy: &TestPolicy, flag: bool, variable: &str) -> Verdict<()> {
    if !policy.approval || flag || ["true", "1", "yes"].contains(&variable.trim().to_lowercase().as_str()) {
        return Ok(());
    }
    let name = &policy.approval_variable;
    let hint = format!("pass --approve, or set {name} to true, 1 or yes, once a person has agreed; {GUIDE}");
    let reason = "test runs have to be approved here, and this one is not";
    refuse(DecisionCode::ApprovalRequired, "guard.test.approval", reason, hint)
}

pub(crate) fn text(word: impl AsRef<OsStr>) -> Verdict<String> {
    let word = word.as_ref();
    let Some(text) = word.to_str() else {
        let shown: String = word.to_string_lossy().escape_default().take(60).collect();
        let reason = format!("`{shown}` is not UTF-8, so it is not known what it names");
        return refuse(DecisionCode::PathControl, BUILT_IN, reason, "write it in UTF-8");
    };
    Ok(text.to_owned())
}
