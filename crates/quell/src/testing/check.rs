//! Asks the guard whether these tests may be run. Looks at the disk, and changes nothing.

use std::io;
use std::path::{Path, PathBuf};

use quell_core::guard::{
    BUILT_IN, Decision, PathWord, Place, Resolved, Runner, Scope, TestCommand, TestPolicy, check_target,
    decide_approval, decide_command, decide_place, decide_presence, path_words, read_command, split_words,
};

use super::{TestPlan, links};
use crate::Config;

/// The variable whose words pytest puts before its own.
const PYTEST_WORDS: &str = "PYTEST_ADDOPTS";

/// What was found out on the way to an allowance.
#[derive(Debug)]
pub(super) struct Checked {
    pub command: TestCommand,
    pub scope: Vec<String>,
    pub decision: Decision,
}

type Verdict<T> = Result<T, Box<Decision>>;

/// Whether the plan may be carried out in `cwd`.
pub(super) fn check(policy: &TestPolicy, plan: &TestPlan, cwd: &Path) -> Verdict<Checked> {
    let words = texts(plan)?;
    let command = read_command(&words);
    decide_command(policy, &command)?;
    let scope = scope(policy, plan, cwd)?;
    let exists = |word: &str| cwd.join(word).symlink_metadata().is_ok();
    let mut paths = path_words(&command, &words, scope.is_narrow(), exists)?;
    decide_presence(&scope, command.runner, &paths, plan.require_target)?;
    if command.runner == Runner::Pytest
        && let Some(words) = std::env::var_os(PYTEST_WORDS)
    {
        let added = split_words(&text(words)?);
        let command = TestCommand { at: 0, call: 0, ..command.clone() };
        paths.extend(path_words(&command, &added, scope.is_narrow(), exists)?);
    }
    if let Some(junit) = &plan.junit {
        paths.push(PathWord { path: check_target(&text(junit)?)?, place: Place::Here, exists: false });
    }
    for word in &paths {
        decide_place(&scope, word, &resolve(cwd, &word.path))?;
    }
    if follows_links(command.runner) {
        let mut targets: Vec<PathBuf> = paths
            .iter()
            .filter(|word| word.place == Place::Target)
            .map(|word| cwd.join(&word.path))
            .collect();
        // Who is named nothing looks everywhere.
        if targets.is_empty() && !scope.dirs.is_empty() && command.runner != Runner::Other {
            targets.push(cwd.to_owned());
        }
        links::check(&scope, command.runner, targets)?;
    }
    let variable =
        std::env::var(&policy.approval_variable).ok().filter(|_| !policy.approval_variable.is_empty());
    decide_approval(policy, plan.approved, variable.as_deref())?;
    let targets = paths.iter().filter(|word| word.place == Place::Target).count();
    let where_to = shown(&scope);
    let below = if where_to.is_empty() { "the working directory".into() } else { where_to.join(", ") };
    let reason = match targets {
        0 => format!("no target is named, and none has to be; all is below {below}"),
        1 => format!("the target is below {below}"),
        many => format!("all {many} targets are below {below}"),
    };
    Ok(Checked { command, scope: where_to, decision: Decision::allow(&scope.rule, reason) })
}

/// Whether evidence may be put there: as a report it has to be below the working directory, and it is nothing that quell
/// itself goes by. Whoever may have tests run is not to write a policy with what is said of them.
pub(super) fn check_evidence(file: &Path, cwd: &Path, home: &Path) -> Verdict<()> {
    let word = PathWord { path: check_target(&text(file)?)?, place: Place::Here, exists: false };
    let found = resolve(cwd, &word.path);
    decide_place(&Scope { cwd: cwd.to_owned(), dirs: Vec::new(), rule: "--evidence".into() }, &word, &found)?;
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    if found.real.starts_with(home) || Config::is_read_from(&found.real, cwd) {
        let reason = format!("`{}` is among the files that quell itself goes by", word.path);
        let hint = "choose another name for the evidence";
        return Err(Box::new(Decision::refuse("PATH_PROTECTED", BUILT_IN, reason, hint)));
    }
    Ok(())
}

fn text(word: impl AsRef<std::ffi::OsStr>) -> Verdict<String> {
    let word = word.as_ref();
    word.to_str().map(str::to_owned).ok_or_else(|| {
        let shown: String = word.to_string_lossy().escape_default().take(60).collect();
        let reason = format!("`{shown}` is no UTF-8, so that it is not known what it names");
        Box::new(Decision::refuse("PATH_CONTROL", BUILT_IN, reason, "write it in UTF-8"))
    })
}

fn texts(plan: &TestPlan) -> Verdict<Vec<String>> {
    plan.start.command.iter().map(text).collect()
}

/// Whether the runner goes through links that it meets below a target, as far as that is known.
fn follows_links(runner: Runner) -> bool {
    match runner {
        Runner::Pytest | Runner::Vitest | Runner::Other => true,
        Runner::Cargo | Runner::Nextest | Runner::Go | Runner::Jest => false,
    }
}

/// The scopes as people read them; none for the working directory.
fn shown(scope: &Scope) -> Vec<String> {
    let short =
        |dir: &PathBuf| dir.strip_prefix(&scope.cwd).map(Path::to_owned).unwrap_or_else(|_| dir.clone());
    let name = |dir: PathBuf| if dir.as_os_str().is_empty() { ".".into() } else { dir.display().to_string() };
    scope.dirs.iter().map(|(written, _)| name(short(written))).collect()
}

/// The scopes of the policy, and in them those of the command line.
fn scope(policy: &TestPolicy, plan: &TestPlan, cwd: &Path) -> Verdict<Scope> {
    let rule = "guard.test.scope";
    let mut all = Scope { cwd: cwd.to_owned(), dirs: Vec::new(), rule: rule.into() };
    for written in &policy.scope {
        // The policy's author may write what the caller may not, such as an absolute path.
        let trimmed = written.trim_end_matches('/');
        let relative = if trimmed == "." { "" } else { trimmed.strip_prefix("./").unwrap_or(trimmed) };
        let path = if written.starts_with('/') { PathBuf::from(written) } else { cwd.join(relative) };
        let Ok(real) = path.canonicalize() else {
            // One that is not there has nothing in it, and allows nothing.
            all.dirs.push((path.clone(), path));
            continue;
        };
        if !written.starts_with('/') && !real.starts_with(cwd) {
            return Err(Box::new(escape(written, rule)));
        }
        all.dirs.push((path, real));
    }
    if plan.scope.is_empty() {
        return Ok(all);
    }
    let mut narrow = Scope { cwd: cwd.to_owned(), dirs: Vec::new(), rule: "--scope".into() };
    for given in &plan.scope {
        let given = text(given)?;
        let path = if given == "." { String::new() } else { check_target(&given)? };
        let word = PathWord { path, place: Place::Target, exists: true };
        let found = resolve(cwd, &word.path);
        decide_place(&all, &word, &found)?;
        if !found.real.is_dir() {
            let reason = format!("`{}` is no directory", word.path);
            let hint = "give the directory that the targets are in";
            return Err(Box::new(Decision::refuse("PATH_MISSING", "--scope", reason, hint)));
        }
        narrow.dirs.push((found.written, found.real));
    }
    Ok(narrow)
}

fn escape(name: &str, rule: &str) -> Decision {
    let reason = format!("the scope `{name}` leads out of the working directory through a link");
    Decision::refuse("PATH_SYMLINK_ESCAPE", rule, reason, "make it a directory")
}

/// Where a path leads. Of what is not there the nearest directory above it that is counts: that is where it would come to
/// be. A link that leads nowhere leads out, as nobody knows what will be there.
fn resolve(cwd: &Path, path: &str) -> Resolved {
    let written = if path.is_empty() { cwd.to_owned() } else { cwd.join(path) };
    let mut above = written.as_path();
    let mut rest = PathBuf::new();
    loop {
        match above.canonicalize() {
            Ok(real) => {
                let exists = rest.as_os_str().is_empty();
                let real = if exists { real } else { real.join(&rest) };
                return Resolved { written, real, exists };
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && above.symlink_metadata().is_err() => {}
            Err(_) => return Resolved { real: PathBuf::from("/"), exists: false, written },
        }
        let (Some(parent), Some(name)) = (above.parent(), above.file_name()) else {
            return Resolved { real: PathBuf::from("/"), exists: false, written };
        };
        rest = if rest.as_os_str().is_empty() { PathBuf::from(name) } else { Path::new(name).join(&rest) };
        above = parent;
    }
}
