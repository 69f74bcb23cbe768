//! Asks the guard whether these tests may be run. Looks at the disk, and changes nothing.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use quell_core::Environment;

use crate::rules::{
    BUILT_IN, Decision, GUIDE, PathWord, Place, Resolved, Root, Rules, Runner, Scope, TestCommand,
    TestPolicy, added_words, check_target, decide_approval, decide_command, decide_evidence_name,
    decide_place, decide_presence, is_any_report, is_report_dir, is_runner_variable, matches, path_words,
    read_command, split_words,
};

use super::evidence::EvidenceFile;
use super::{TestPlan, cargo, ini, report, shadow, symlinks};
use quell::binary::Config;

/// The variable whose words pytest puts before its own.
pub(super) const PYTEST_WORDS: &str = "PYTEST_ADDOPTS";

/// What was found out on the way to an allowance.
#[derive(Debug)]
pub(super) struct Checked {
    pub runner: Runner,
    /// The words that are executed: those that were checked, the program by its path if there is a scope.
    pub words: Vec<OsString>,
    /// All variables that the tests get.
    pub environment: Environment,
    /// Those that they don't get, as there is a scope.
    pub cleared: Vec<String>,
    pub scope: Vec<String>,
    /// The report that pytest is told to write.
    pub report: Option<PathBuf>,
    pub decision: Decision,
}

pub(super) type Variables = BTreeMap<OsString, OsString>;
pub(super) type Verdict<T> = Result<T, Box<Decision>>;

/// Whether the plan may be carried out in `cwd`.
pub(super) fn check(
    policy: &TestPolicy,
    plan: &TestPlan,
    cwd: &Path,
    home: Option<&Path>,
) -> Verdict<Checked> {
    let mut words = texts(plan)?;
    let mut variables = plan.request.env.variables();
    let mut command = read_command(&words);
    with_slashes(&command, &mut words, cwd);
    let program = plan.request.command.first().and_then(|name| find(name, &variables, cwd));
    // A pattern with a slash is about the file itself.
    command.names.extend(program.as_ref().map(|file| cwd.join(file).display().to_string()));
    decide_command(policy, &command)?;
    let scope = scope(policy, plan, cwd)?;
    let exists = |word: &str| cwd.join(word).symlink_metadata().is_ok();
    let roots = roots(&scope);
    let rules = Rules {
        scoped: !scope.dirs.is_empty(),
        narrow: scope.is_narrow(),
        listed: lifts_scope(policy, plan),
        allow: &policy.allow,
        roots: &roots,
    };
    let found = path_words(&command, &words, &rules, exists)?;
    for at in found.programs {
        check_program(policy, rules.listed, &words[at], &variables, &scope, &roots)?;
    }
    let mut paths = found.paths;
    if rules.scoped && !rules.listed && command.runner == Runner::Other {
        check_script(&paths, cwd)?;
    }
    if rules.scoped && command.runner == Runner::Unittest {
        check_names(words.get(command.call..).unwrap_or_default(), cwd)?;
    }
    let asks_version = asks_version(&command, &words);
    if !asks_version {
        decide_presence(&scope, command.runner, &paths, plan.require_target)?;
    }
    let targets: Vec<PathBuf> =
        paths.iter().filter(|word| word.place == Place::Target).map(|word| cwd.join(&word.path)).collect();
    if command.runner == Runner::Pytest {
        let mut added = Vec::new();
        if let Some(words) = variables.get(OsStr::new(PYTEST_WORDS)) {
            added.push((PathBuf::from(PYTEST_WORDS), split_words(&text(words)?)));
        }
        if rules.scoped && !leaves_out_added(&words[command.call..]) {
            let everywhere = if targets.is_empty() { vec![cwd.to_owned()] } else { targets.clone() };
            added.extend(ini::words(&everywhere, "addopts")?);
        }
        if rules.scoped && !policy.allow.iter().any(|pattern| matches(pattern, "filterwarnings")) {
            let everywhere: Vec<PathBuf> = targets.iter().cloned().chain([cwd.to_owned()]).collect();
            shadow::check_warnings(&scope, &everywhere)?;
        }
        if rules.scoped && targets.is_empty() {
            // They may be patterns, which need not name anything.
            for (place, dirs) in ini::words(&[cwd.to_owned()], "testpaths")? {
                for dir in dirs {
                    let path = check_target(&dir, &roots).map_err(|refusal| added_by(&place, *refusal))?;
                    paths.push(PathWord { path, place: Place::Target, exists: false });
                }
            }
        }
        for (place, words) in added {
            let found = added_words(&words, &rules, exists).and_then(|found| {
                let mut placed =
                    found.iter().map(|word| decide_place(&scope, word, &resolve(cwd, &word.path)));
                placed.try_for_each(|decided| decided).map(|()| found)
            });
            paths.extend(found.map_err(|refusal| added_by(&place, *refusal))?);
        }
    }
    if let Some(junit) = &plan.junit {
        paths.push(PathWord {
            path: check_target(&text(junit)?, &roots)?,
            place: Place::Here,
            exists: false,
        });
    }
    for word in &paths {
        let found = resolve(cwd, &word.path);
        decide_place(&scope, word, &found)?;
        check_output(word, &found, cwd, home)?;
    }
    if rules.scoped && matches!(command.runner, Runner::Pytest | Runner::Unittest) {
        shadow::check(&scope, &command, &paths)?;
    }
    if rules.scoped && matches!(command.runner, Runner::Cargo | Runner::Nextest) {
        cargo::check(&scope, command.runner, &paths, &policy.allow, &variables)?;
    }
    if follows_links(command.runner) && !asks_version {
        let named = paths.iter().filter(|word| word.place == Place::Target);
        // Without a scope `.` is as good as nothing.
        let named = named.filter(|word| rules.scoped || !word.path.is_empty());
        let mut targets: Vec<PathBuf> = named.map(|word| cwd.join(&word.path)).collect();
        let is_cargo = matches!(command.runner, Runner::Cargo | Runner::Nextest);
        if is_cargo {
            // It builds what is beside the manifest.
            targets = targets.iter().filter_map(|manifest| manifest.parent()).map(Path::to_owned).collect();
        }
        // A runner that is told no target looks everywhere.
        if targets.is_empty() && rules.scoped && !is_cargo && command.runner != Runner::Other {
            targets.push(cwd.to_owned());
        }
        symlinks::check(&scope, command.runner, targets)?;
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
    let decision = Decision::allow(&scope.rule, reason);
    let report = own_report(&command, &words);
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    if let (true, Some(file), Some(first)) = (rules.scoped, program, words.first_mut()) {
        *first = file.into();
    }
    let cleared = if rules.scoped { clear(&mut variables, &policy.allow) } else { Vec::new() };
    let environment = Environment { clear: true, set: variables.into_iter().collect() };
    Ok(Checked { runner: command.runner, words, environment, cleared, scope: where_to, report, decision })
}

/// Whether a program in `guard.test.commands` may be told anything. A project's list does not lift a scope of the caller's.
fn lifts_scope(policy: &TestPolicy, plan: &TestPlan) -> bool {
    policy.commands_lift_scope && (plan.scope.is_empty() || !policy.commands_of_project)
}

/// Takes variables away by which code could be loaded from outside the scope, and names them.
fn clear(variables: &mut Variables, allow: &[String]) -> Vec<String> {
    let mut cleared = Vec::new();
    variables.retain(|name, _| {
        let name = name.to_string_lossy();
        let kept = !is_runner_variable(&name) || allow.iter().any(|pattern| matches(pattern, &name));
        if !kept {
            cleared.push(name.into_owned());
        }
        kept
    });
    cleared
}

/// What absolute paths may begin with: the working directory, also as the shell calls it, and the scopes.
fn roots(scope: &Scope) -> Vec<Root> {
    let root = |path: &Path, plain: &Path| {
        Some(Root { path: path.to_str()?.to_owned(), plain: plain.to_str()?.to_owned() })
    };
    let called = std::env::var_os("PWD").map(PathBuf::from);
    let called = called.filter(|dir| dir.canonicalize().is_ok_and(|real| real == scope.cwd));
    let here = [Some(scope.cwd.clone()), called].into_iter().flatten();
    let here = here.filter_map(|dir| root(&dir, Path::new("")));
    let dirs = scope.dirs.iter().flat_map(|(written, real)| [written, real]);
    here.chain(dirs.filter_map(|dir| root(dir, dir))).collect()
}

/// Turns the separators of Windows in targets. A word that names something as it is stays as it is: on this system a backslash may
/// be part of a name.
fn with_slashes(command: &TestCommand, words: &mut [String], cwd: &Path) {
    // The others have no targets among their words, or it is not known which these are.
    if matches!(command.runner, Runner::Cargo | Runner::Nextest | Runner::Other) {
        return;
    }
    let own = words.iter_mut().skip(command.call).take_while(|word| *word != "--" && *word != "-args");
    for word in own {
        let (path, name) = word.split_at(word.find("::").unwrap_or(word.len()));
        if path.starts_with(['-', '\\']) || !path.contains('\\') || cwd.join(path).symlink_metadata().is_ok()
        {
            continue;
        }
        let turned = path.replace('\\', "/");
        let dir = turned.strip_suffix("/...").unwrap_or(&turned);
        if cwd.join(dir).symlink_metadata().is_ok() {
            *word = turned + name;
        }
    }
}

/// The file that a name would be executed from.
fn find(name: &OsStr, variables: &Variables, cwd: &Path) -> Option<PathBuf> {
    let path = variables.get(OsStr::new("PATH"));
    quell_keeper::find_program(name, path.map(OsString::as_os_str), cwd).ok()
}

/// With a scope: a program that is written as a path has to be below the working directory or the scope, or the one that is found by
/// its name alone. Any other one could be anything, whatever its name is.
fn check_program(
    policy: &TestPolicy,
    lifts: bool,
    word: &str,
    variables: &Variables,
    scope: &Scope,
    roots: &[Root],
) -> Verdict<()> {
    let Some((_, name)) = word.rsplit_once('/') else { return Ok(()) };
    let cwd = scope.cwd.as_path();
    let file = cwd.join(word);
    let listed = policy.commands.iter().filter(|pattern| lifts && pattern.contains('/'));
    let listed = listed.into_iter().any(|pattern| matches(pattern, &file.display().to_string()));
    let real = file.canonicalize().ok();
    let is_here = |real: &PathBuf| real.starts_with(cwd) || scope.has(real);
    // One that is not there can't be executed.
    let inside = check_target(word, roots).is_ok() && real.as_ref().is_none_or(is_here);
    let is_it = |name: &OsStr| find(name, variables, cwd).and_then(|found| found.canonicalize().ok()) == real;
    // A virtual environment has links to the interpreter that PATH leads to.
    let names = [Some(OsStr::new(name)), real.as_deref().and_then(Path::file_name)];
    let same = || real.is_some() && names.into_iter().flatten().any(is_it);
    if listed || inside || same() {
        return Ok(());
    }
    let reason = format!(
        "the program `{word}` is, or leads, outside the working directory and the scope, and PATH leads to another one"
    );
    let hint =
        format!("call it by its name, or have the policy list its path in guard.test.commands; {GUIDE}");
    Err(Box::new(Decision::refuse("COMMAND_NOT_ALLOWED", "guard.test.commands", reason, hint)))
}

/// Refuses a script that is a link to a report: what tests print can be in there. The script is the first path.
fn check_script(paths: &[PathWord], cwd: &Path) -> Verdict<()> {
    let Some(script) = paths.first() else { return Ok(()) };
    let found = resolve(cwd, &script.path);
    let names = [&found.written, &found.real].map(|path| path.file_name().unwrap_or_default());
    if names[0] == names[1] || !is_any_report(&names[1].to_string_lossy()) {
        return Ok(());
    }
    let reason = format!("`{}` is a link to a report, and a report is not run", script.path);
    let hint = "run the script itself";
    Err(Box::new(Decision::refuse("COMMAND_NOT_ALLOWED", BUILT_IN, reason, hint)))
}

/// Refuses names such as `tests.test_app.app.drop`: unittest calls whatever such a name leads to, also through what the module
/// imports. Behind the module there may be a class that is written there, and the name of one test.
fn check_names(words: &[String], cwd: &Path) -> Verdict<()> {
    for word in
        words.iter().filter(|word| word.contains('.') && !word.contains('/') && !word.starts_with('-'))
    {
        if cwd.join(word).symlink_metadata().is_ok() {
            continue;
        }
        let parts: Vec<&str> = word.split('.').collect();
        let module = |length: &usize| cwd.join(format!("{}.py", parts[..*length].join("/"))).is_file();
        let package = |length: &usize| cwd.join(parts[..*length].join("/")).is_dir();
        let found = (1..=parts.len()).rev().find(|length| module(length) || package(length));
        // What leads to nothing is refused elsewhere.
        let Some(length) = found.filter(|length| *length < parts.len()) else { continue };
        let file = cwd.join(format!("{}.py", parts[..length].join("/")));
        let text = ini::read(&file)?.unwrap_or_default();
        let class = format!("class {}", parts[length]);
        let has_class = text.lines().any(|line| {
            line.strip_prefix(&class).is_some_and(|rest| rest.trim_start().starts_with(['(', ':', '[']))
        });
        if !has_class || parts.len() > length + 2 {
            let reason = format!(
                "`{word}` is not a class in a module, or a test in one, and unittest calls what it leads to"
            );
            let hint = "name a file, a module, or module.Class.test with a class that the module defines";
            return Err(Box::new(Decision::refuse("PATH_OUTSIDE_SCOPE", BUILT_IN, reason, hint)));
        }
    }
    Ok(())
}

/// Whether pytest is told to take no words from its files.
fn leaves_out_added(words: &[String]) -> bool {
    // `-qo` is `-q -o`.
    let plain = |word: &String| match word.strip_prefix('-') {
        Some(letters) if !letters.starts_with('-') => {
            format!("-{}", letters.trim_start_matches(|letter| "hlqsvVx".contains(letter)))
        }
        _ => word.clone(),
    };
    let glued = |word: &String| ["-oaddopts=", "--override-ini=addopts="].contains(&plain(word).as_str());
    let apart = |pair: &[String]| {
        ["-o", "--override-ini"].contains(&plain(&pair[0]).as_str()) && pair[1] == "addopts="
    };
    words.iter().any(glued) || words.windows(2).any(apart)
}

/// Whether nothing is asked for but the version of the runner, so that no tests are run.
fn asks_version(command: &TestCommand, words: &[String]) -> bool {
    let runner = matches!(command.runner, Runner::Pytest | Runner::Jest | Runner::Vitest);
    runner && words.get(command.call..).is_some_and(|own| own == ["--version"])
}

fn added_by(place: &Path, refusal: Decision) -> Box<Decision> {
    let place = place.display();
    let reason = format!("{} (added by {place})", refusal.reason);
    let hint = match refusal.hint {
        hint if place.to_string() == PYTEST_WORDS => hint,
        hint => format!("{hint}; or pass `-o addopts=` to leave out what files add"),
    };
    Box::new(Decision { reason, hint, ..refusal })
}

/// The report that pytest is told to write. The last one counts.
fn own_report(command: &TestCommand, words: &[String]) -> Option<PathBuf> {
    let own = words.get(command.call..).filter(|_| command.runner == Runner::Pytest)?;
    let at =
        own.iter().rposition(|word| word.starts_with("--junitxml") || word.starts_with("--junit-xml"))?;
    let value = own[at].split_once('=').map(|(_, value)| value);
    value.or_else(|| own.get(at + 1).map(String::as_str)).map(PathBuf::from)
}

/// Whether evidence may be put there: as a report it has to be below the working directory, and it is nothing that quell
/// itself goes by, and no file but earlier evidence is replaced. Whoever may have tests run is not to write a policy with what is said of them.
pub(super) fn check_evidence(file: &Path, cwd: &Path, home: &Path) -> Verdict<()> {
    let scope = Scope { cwd: cwd.to_owned(), dirs: Vec::new(), rule: "--evidence".into() };
    let word =
        PathWord { path: check_target(&text(file)?, &roots(&scope))?, place: Place::Here, exists: false };
    let found = resolve(cwd, &word.path);
    decide_place(&scope, &word, &found)?;
    protect(&word, &found, cwd, Some(home))?;
    protect_settings(&word, &found, cwd)?;
    // What is no file is found out when it is tried.
    if !found.written.is_dir() {
        decide_evidence_name(&word.path)?;
    }
    if EvidenceFile::may_replace(&found.written) {
        return Ok(());
    }
    let reason = format!("`{}` is there, and is not evidence that quell has written", word.path);
    Err(Box::new(Decision::refuse(
        "PATH_PROTECTED",
        BUILT_IN,
        reason,
        "choose another name, or remove the file",
    )))
}

/// Whether the runner may write there, if it is told to.
fn check_output(word: &PathWord, found: &Resolved, cwd: &Path, home: Option<&Path>) -> Verdict<()> {
    let is_dir = word.place == Place::OutputDir;
    let is_output = is_dir || matches!(word.place, Place::Output(_));
    // What an option does that is not known may be to write.
    if is_output || (word.place == Place::Here && !word.exists) {
        protect(word, found, cwd, home)?;
    }
    if is_output {
        protect_settings(word, found, cwd)?;
    }
    // Another name for what has been checked under this one could be anything.
    let there = found.written.symlink_metadata().ok().filter(|_| is_output);
    let Some(there) = there else { return Ok(()) };
    let refuse = |what: &str, hint: &str| {
        let reason = format!("`{}` is there, and is {what}", word.path);
        Err(Box::new(Decision::refuse("PATH_PROTECTED", BUILT_IN, reason, hint)))
    };
    if there.is_dir() != is_dir || !(is_dir || there.is_file() && there.nlink() == 1) {
        let what = if is_dir { "no plain directory" } else { "no plain file of one name" };
        return refuse(what, "choose another name");
    }
    if !is_dir && !report::may_replace(&found.written) {
        return refuse("not an earlier report", "choose another name, or remove the file");
    }
    Ok(())
}

/// Refuses to have something written that quell itself goes by, or that git does.
fn protect(word: &PathWord, found: &Resolved, cwd: &Path, home: Option<&Path>) -> Verdict<()> {
    // A request may name another home than the one that commands of this user find.
    let usual = quell_store::Home::find().map(|home| home.dir().to_owned());
    let mut homes = home.map(Path::to_owned).into_iter().chain(usual);
    let holds = |home: &Path| word.place == Place::OutputDir && home.starts_with(&found.real);
    let is_in = |home: PathBuf| {
        let home = home.canonicalize().unwrap_or(home);
        found.real.starts_with(&home) || holds(&home)
    };
    let whose = if homes.any(is_in) || Config::is_read_from(&found.real, cwd) {
        "quell itself"
    } else if found.real.components().any(|part| part.as_os_str() == ".git") {
        "git"
    } else {
        return Ok(());
    };
    Err(goes_by(word, whose))
}

fn goes_by(word: &PathWord, whose: &str) -> Box<Decision> {
    let reason = format!("`{}` is among the files that {whose} goes by", word.path);
    let hint = "choose another name for what is written";
    Box::new(Decision::refuse("PATH_PROTECTED", BUILT_IN, reason, hint))
}

/// Refuses a report in a directory such as .vscode or .github, where tools find settings by names of all kinds.
fn protect_settings(word: &PathWord, found: &Resolved, cwd: &Path) -> Verdict<()> {
    let below = found.real.strip_prefix(cwd).ok().and_then(Path::parent);
    let mut dirs =
        below.into_iter().flat_map(Path::components).map(|part| part.as_os_str().to_string_lossy());
    if dirs.any(|name| name.starts_with('.') && !is_report_dir(&name)) {
        return Err(goes_by(word, "some tool"));
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
    plan.request.command.iter().map(text).collect()
}

/// Whether the runner goes through links that it meets below a target, as far as that is known.
fn follows_links(runner: Runner) -> bool {
    match runner {
        Runner::Pytest | Runner::Unittest | Runner::Vitest | Runner::Other => true,
        Runner::Go | Runner::Cargo | Runner::Nextest => true,
        Runner::Jest => false,
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
        let mut given = text(given)?;
        let turned = given.replace('\\', "/");
        if cwd.join(&given).symlink_metadata().is_err() && cwd.join(&turned).is_dir() {
            given = turned;
        }
        let path = check_target(&given, &roots(&all))?;
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
    if Path::new(name).components().any(|part| part == Component::ParentDir) {
        let reason = format!("the scope `{name}` leads out of the working directory");
        return Decision::refuse("PATH_TRAVERSAL", rule, reason, "write it as an absolute path");
    }
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
