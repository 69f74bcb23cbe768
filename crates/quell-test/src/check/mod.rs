//! Decides whether tests may be run, by the command line, the policy and the disk. It changes nothing.
//!
//! This checks what is asked for. It is not a sandbox: tests are code, and can do whatever their user can do.

mod addopts;
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

use addopts::{AddedWords, added_words};
use command::{check_commands, program_name, read_command, refuse_directory_changes};
use options::read_options;
use reports::check_output;
use scope::{check_location, resolve, with_slashes};
use variables::is_runner_variable;
use wrapper::{check_cargo_verb, check_wrappers, refuse_early_exit};

pub(crate) use command::TestCommand;
pub(crate) use options::{
    COVERAGE, LOG, NEVER, NO_DOT, NUMBER, OptionStyle, Options, Rules, ambiguous, is_among,
};
pub(crate) use path::{check_target, printable};
pub(crate) use reports::check_evidence;
pub(crate) use scope::{PathRole, PathWord, Scope};

use quell_guard::DecisionCode;

use crate::runners::Runner;
use crate::{TestPlan, files, runners};

/// The variable whose words pytest puts before those of its command line.
pub(crate) const PYTEST_ADDOPTS: &str = "PYTEST_ADDOPTS";

/// The file that Python's coverage writes.
pub(crate) const COVERAGE_DATA: &str = ".coverage";

/// The options by which pytest writes a report for quell, without the path. `xunit1` has the file of each test.
const OWN_REPORT: [&str; 2] = ["--override-ini=junit_family=xunit1", "--junitxml="];

/// A plan that the guard allows, and what is to be executed.
#[derive(Debug)]
pub(crate) struct CheckedPlan {
    pub runner: Runner,
    /// The command line as it was checked. With a scope, its first word is the path of the program.
    pub words: Vec<OsString>,
    /// The whole environment of the tests.
    pub environment: Environment,
    /// Variables that were removed because there is a scope.
    pub cleared: Vec<String>,
    pub scope: Vec<String>,
    /// The report that the caller tells pytest to write.
    pub report: Option<PathBuf>,
    /// The options by which pytest writes a report for quell, if the caller does not name one.
    pub own_report: Option<ReportWords>,
    /// Whether the runner prints or writes its results at its end.
    pub reports: bool,
    pub decision: Decision,
}

impl CheckedPlan {
    /// The request with the command line, the environment and the directory that were checked.
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
pub(crate) type Checked<T> = Result<T, Box<Decision>>;

pub(crate) fn refuse<T>(
    code: DecisionCode,
    rule: &str,
    reason: impl Into<String>,
    hint: impl Into<String>,
) -> Checked<T> {
    Err(Box::new(Decision::refuse(code, rule, reason, hint)))
}

/// Checks a plan for a run in `cwd`.
pub(crate) fn check(policy: &TestPolicy, plan: &TestPlan, cwd: &Path, home: &Path) -> Checked<CheckedPlan> {
    let mut words = plan.request.command.iter().map(utf8).collect::<Checked<Vec<String>>>()?;
    let mut variables = plan.request.env.variables();
    let mut command = read_command(&words);
    let program = plan.request.command.first().and_then(|name| find_program(name, &variables, cwd));
    command.names.extend(program.as_ref().map(|file| cwd.join(file).display().to_string()));
    check_commands(policy, &command)?;
    let scope = Scope::of(policy, plan, cwd)?;
    let is_scoped = scope.is_set();
    // A list in a project's file does not lift the caller's scope.
    let listed = policy.commands_lift_scope && (plan.scope.is_empty() || !policy.commands_of_project);
    let rules = Rules { scope: &scope, roots: scope.roots(), allow: &policy.allow, listed };

    refuse_directory_changes(&command, &words)?;
    refuse_early_exit(&command, &words)?;
    if is_scoped {
        for at in check_wrappers(&command, &words, &rules)? {
            check_program(policy, &words[at], &variables, &rules)?;
        }
    }
    let mut paths = own_paths(&command, &mut words, &rules)?;
    refuse_patterns(&command, &paths, &scope)?;
    let own = words.get(command.args_start..).unwrap_or_default();
    let asks_version = own == ["--version"];
    if !asks_version {
        check_required_target(&scope, command.runner, &paths, plan.require_target)?;
    }
    let (mut report, mut own_report) = (None, None);
    if command.runner == Runner::Pytest {
        let AddedWords { paths: added, names_report, names_importlib } =
            added_words(own, &paths, &variables, &rules)?;
        let is_report = |word: &&PathWord| word.role == PathRole::Output("xml");
        let named = paths.iter().rfind(is_report).or(added.iter().rfind(is_report));
        report = named.map(|word| PathBuf::from(&word.path));
        let is_free = !names_report && plan.junit.is_none();
        own_report = is_free
            .then(|| ReportWords { at: command.args_start, words: OWN_REPORT.map(String::from).into() });
        paths.extend(added);
        if is_scoped && names_importlib {
            files::check_importlib(&command, &paths, &scope)?;
        }
    }
    let reports = command.runner.reports(own);
    if let Some(junit) = &plan.junit {
        paths.push(rules.path(&utf8(junit)?, PathRole::Any, false)?);
    }
    if words.iter().take(command.args_start).any(|word| program_name(word) == "coverage") {
        paths.push(PathWord { path: COVERAGE_DATA.into(), role: PathRole::Any, exists: false });
    }
    for word in &paths {
        let found = resolve(cwd, &word.path);
        check_location(&scope, word, &found)?;
        check_output(word, &found, cwd, home)?;
    }
    if !asks_version {
        files::check(&command, &paths, &variables, &rules)?;
    }
    let variable = Some(&policy.approval_variable).filter(|name| !name.is_empty());
    let approval = variable.and_then(|name| std::env::var(name).ok()).unwrap_or_default();
    let approved = check_approval(policy, plan.approved, &approval)?;

    let below = scope.describe();
    let reason = match paths.iter().filter(|word| word.role == PathRole::Target).count() {
        0 => format!("no target is named, and everything below {below} is allowed"),
        1 => format!("the target is below {below}"),
        many => format!("all {many} targets are below {below}"),
    } + &approved;
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    if let (true, Some(file), Some(first)) = (is_scoped, program, words.first_mut()) {
        *first = file.into();
    }
    let cleared = if is_scoped { clear(&mut variables, &rules) } else { Vec::new() };
    Ok(CheckedPlan {
        runner: command.runner,
        words,
        environment: Environment { clear: true, set: variables.into_iter().collect() },
        cleared,
        scope: scope.display_dirs(),
        report,
        own_report,
        reports,
        decision: Decision::allow(&scope.rule, reason),
    })
}

/// The paths among the runner's own words. Replaces backslashes in targets by slashes, see `with_slashes`, and with a narrow scope the
/// targets of jest by patterns that match nothing else, see `anchored`.
fn own_paths(command: &TestCommand, words: &mut [String], rules: &Rules<'_>) -> Checked<Vec<PathWord>> {
    let Some(table) = command.runner.table() else {
        // Without a scope there is nothing to check the words of an unknown command against.
        return if rules.scope.is_set() { script::script_paths(words, rules) } else { Ok(Vec::new()) };
    };
    let program = words.get(command.runner_index).cloned().unwrap_or_default();
    let own = words.get_mut(command.args_start..).unwrap_or_default();
    let end = own
        .iter()
        .position(|word| !table.separator.is_empty() && word == table.separator)
        .unwrap_or(own.len());
    let (own, behind) = own.split_at_mut(end);
    let mut found = read_options(&table.options, table.name, own, rules)?;
    if rules.scope.is_set() && command.runner.is_cargo() {
        let plain: Vec<&str> = found.positional.iter().map(|at| own[*at].as_str()).collect();
        check_cargo_verb(&program, &plain)?;
    }
    if found.positional.first().is_some_and(|at| is_among(table.verbs, &own[*at])) {
        found.positional.remove(0);
    }
    let mut paths = found.paths;
    let is_anchored =
        command.runner == Runner::Jest && rules.scope.is_narrow() && !runners::reads_paths(own)?;
    for at in found.positional {
        let word = &mut own[at];
        if is_anchored {
            *word = runners::unanchored(word);
        }
        let (path, name) = word.split_at(word.find("::").unwrap_or(word.len()));
        *word = with_slashes(path, &rules.scope.cwd) + name;
        paths.extend((table.parse_target)(word, rules)?);
        if is_anchored {
            *word = runners::anchored(word, rules)?;
        }
    }
    if is_anchored {
        for word in own.iter_mut() {
            if let Some(pattern) = runners::pattern_in_option(word) {
                *word = runners::anchored(pattern, rules)?;
            }
        }
    }
    let behind = behind.get(1..).unwrap_or_default();
    match table.program_options {
        Some(options) => paths.extend(read_options(options, "a test's program", behind, rules)?.paths),
        // The test program that go builds reads `-test.*` flags.
        None => match behind.iter().find(|word| word.trim_start_matches('-').starts_with("test.")) {
            Some(word) if !rules.allows(word) => return rules.refuse_option(word, "a test's program"),
            _ => {}
        },
    }
    Ok(paths)
}

/// Refuses targets that jest would read as more than a path: they are regular expressions, and `tests/x|.` matches every file. Brackets stand
/// for one character and are allowed. Targets of vitest are plain text.
fn refuse_patterns(command: &TestCommand, paths: &[PathWord], scope: &Scope) -> Checked<()> {
    let is_pattern = |word: &&PathWord| {
        word.role == PathRole::Target
            && word.path.contains(['|', '(', ')', '*', '+', '?', '^', '$', '{', '}'])
    };
    match paths.iter().find(is_pattern).filter(|_| command.runner == Runner::Jest && scope.is_narrow()) {
        Some(word) => ambiguous(
            format!("jest reads `{}` as a regular expression, which can match other files", word.path),
            "name the directory that it is in, or rename it",
        ),
        None => Ok(()),
    }
}

/// Removes variables by which a runner could load code from outside the scope. Returns their names.
fn clear(variables: &mut Variables, rules: &Rules<'_>) -> Vec<String> {
    let mut cleared = Vec::new();
    variables.retain(|name, _| {
        let name = name.to_string_lossy();
        let kept = !is_runner_variable(&name) || rules.allows_by_name(&name);
        cleared.extend((!kept).then(|| name.into_owned()));
        kept
    });
    cleared
}

/// The file that would be executed by this name.
fn find_program(name: &OsStr, variables: &Variables, cwd: &Path) -> Option<PathBuf> {
    let path = variables.get(OsStr::new("PATH"));
    quell_keeper::find_program(name, path.map(OsString::as_os_str), cwd).ok()
}

/// Checks a program that is written as a path. It must be below the working directory or the scope, or be the program that PATH finds by
/// that name. Any other file can have the name of a runner.
fn check_program(policy: &TestPolicy, word: &str, variables: &Variables, rules: &Rules<'_>) -> Checked<()> {
    let Some((_, name)) = word.rsplit_once('/') else { return Ok(()) };
    let cwd = &rules.scope.cwd;
    let file = cwd.join(word);
    let mut patterns = policy.commands.iter().filter(|pattern| rules.listed && pattern.contains('/'));
    let is_listed = patterns.any(|pattern| matches(pattern, &file.display().to_string()));
    let real = file.canonicalize().ok();
    // A program that does not exist can't be executed.
    let contains_or_cwd = check_target(word, &rules.roots).is_ok()
        && real.as_ref().is_none_or(|real| rules.scope.contains_or_cwd(real));
    let is_in_path =
        |name: &OsStr| find_program(name, variables, cwd).and_then(|found| found.canonicalize().ok()) == real;
    // A virtual environment has links to the interpreter that PATH finds.
    let names = [Some(OsStr::new(name)), real.as_deref().and_then(Path::file_name)];
    if is_listed || contains_or_cwd || real.is_some() && names.into_iter().flatten().any(is_in_path) {
        return Ok(());
    }
    let reason = format!(
        "the program `{}` is outside the working directory and the scope (or links there), and PATH finds another one",
        printable(word)
    );
    let hint = format!("call it by its name, or list its path in guard.test.commands; {GUIDE}");
    refuse(DecisionCode::CommandNotAllowed, "guard.test.commands", reason, hint)
}

/// Refuses a command without a target if the plan or a narrow scope requires one.
fn check_required_target(scope: &Scope, runner: Runner, paths: &[PathWord], required: bool) -> Checked<()> {
    let has_target = paths.iter().any(|word| word.role == PathRole::Target);
    if has_target || !(required || scope.is_narrow()) {
        return Ok(());
    }
    let (rule, why) = if scope.is_narrow() {
        (scope.rule.as_str(), format!("only tests below {} may be run", scope.describe()))
    } else {
        ("--require-target", "a target is required".into())
    };
    let hint = if runner.is_cargo() {
        "name the package with --manifest-path DIR/Cargo.toml, or use a scope that contains the whole workspace"
    } else {
        "name the files or directories to test"
    };
    let reason = format!("the command names no target; {why}");
    refuse(DecisionCode::TargetRequired, rule, reason, hint)
}

/// Refuses a run that needs approval and has it neither by the flag nor by the policy's variable. Returns the end of a sentence that says
/// what approved it.
fn check_approval(policy: &TestPolicy, flag: bool, variable: &str) -> Checked<String> {
    let name = &policy.approval_variable;
    if !policy.approval {
        return Ok(String::new());
    }
    if flag {
        return Ok("; approved by --approve".into());
    }
    if ["true", "1", "yes"].contains(&variable.trim().to_lowercase().as_str()) {
        return Ok(format!("; approved by the variable {name}"));
    }
    let hint = format!("pass --approve, or set {name} to true, 1 or yes, once a person has agreed; {GUIDE}");
    let reason = "the policy requires approval for test runs, and this one is not approved";
    refuse(DecisionCode::ApprovalRequired, "guard.test.approval", reason, hint)
}

pub(crate) fn utf8(word: impl AsRef<OsStr>) -> Checked<String> {
    let word = word.as_ref();
    let Some(text) = word.to_str() else {
        let shown: String = word.to_string_lossy().escape_default().take(60).collect();
        let reason = format!("`{shown}` is not UTF-8, so quell can't check what it names");
        return refuse(DecisionCode::PathControl, BUILT_IN, reason, "write it in UTF-8");
    };
    Ok(text.to_owned())
}
