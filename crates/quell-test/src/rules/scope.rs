//! May these tests be run?

use std::path::{Path, PathBuf};

use super::path::shown;
use super::{BUILT_IN, Decision, GUIDE, PathWord, Place, Runner, TestCommand, TestPolicy, matches};

/// Directories that targets have to be in, as they are written and as they are.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// The working directory, without links.
    pub cwd: PathBuf,
    /// Each scope as it is written, below the working directory, and without links. None for the working directory itself.
    pub dirs: Vec<(PathBuf, PathBuf)>,
    /// The key or option that they come from.
    pub rule: String,
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// As it is written, below the working directory.
    pub written: PathBuf,
    /// Without links; of what is not there, the nearest directory above it that is, and the rest.
    pub real: PathBuf,
    /// Whether it is there.
    pub exists: bool,
}

impl Scope {
    /// Whether it leaves out some of what is below the working directory, so that targets have to be named.
    pub fn is_narrow(&self) -> bool {
        !self.dirs.is_empty() && !self.dirs.iter().any(|(_, real)| self.cwd.starts_with(real))
    }

    fn has_written(&self, path: &Path) -> bool {
        let mut dirs = self.dirs.iter();
        self.dirs.is_empty() && path.starts_with(&self.cwd)
            || dirs.any(|(written, real)| path.starts_with(written) || path.starts_with(real))
    }

    /// Whether a path without links is below a scope.
    pub fn has(&self, path: &Path) -> bool {
        self.dirs.is_empty() && path.starts_with(&self.cwd)
            || self.dirs.iter().any(|(_, real)| path.starts_with(real))
    }

    fn is_one(&self, path: &Path) -> bool {
        path == self.cwd || self.dirs.iter().any(|(_, real)| real == path)
    }

    /// Whether a directory is below a scope or above one, and not above the working directory.
    fn is_around(&self, path: &Path) -> bool {
        let above = |dir: &PathBuf| dir.starts_with(path) && path.starts_with(&self.cwd);
        self.has(path) || self.dirs.iter().any(|(_, real)| above(real))
    }

    fn words(&self) -> String {
        let shown = |dir: &PathBuf| {
            let short = dir.strip_prefix(&self.cwd).unwrap_or(dir);
            if short.as_os_str().is_empty() { ".".to_owned() } else { short.display().to_string() }
        };
        let all: Vec<String> = self.dirs.iter().map(|(written, _)| shown(written)).collect();
        if all.is_empty() { "the working directory".into() } else { all.join(", ") }
    }
}

/// Whether a path is where it has to be.
pub fn decide_place(scope: &Scope, word: &PathWord, found: &Resolved) -> Result<(), Box<Decision>> {
    let name = if word.path.is_empty() { ".".into() } else { shown(&word.path) };
    let here = |path: &Path| path.starts_with(&scope.cwd) || scope.has(path);
    let parent = |path: &Path| path.parent().map(Path::to_owned).unwrap_or_default();
    let allowed = |path: &Path| match word.place {
        Place::Target | Place::Within => scope.has(path),
        Place::Inside => scope.has(path) && !scope.is_one(path),
        Place::Around => scope.is_around(path),
        Place::FileAround => scope.is_around(&parent(path)),
        Place::Here | Place::Output(_) | Place::OutputDir => here(path),
    };
    let written = match word.place {
        Place::Target | Place::Within | Place::Inside => scope.has_written(&found.written),
        Place::Around | Place::FileAround | Place::Here | Place::Output(_) | Place::OutputDir => {
            allowed(&found.written) || scope.has_written(&found.written)
        }
    };
    if !written {
        let reason = format!("`{name}` is not below {}", scope.words());
        let hint = format!("choose what is below it, or change {}; {GUIDE}", scope.rule);
        return Err(Box::new(Decision::refuse("PATH_OUTSIDE_SCOPE", &scope.rule, reason, hint)));
    }
    if word.exists && !found.exists {
        let reason = format!("there is no `{name}`");
        let hint = "check how it is written, and the working directory";
        return Err(Box::new(Decision::refuse("PATH_MISSING", BUILT_IN, reason, hint)));
    }
    if !allowed(&found.real) {
        if word.place == Place::Inside && scope.is_one(&found.real) {
            let reason = format!("`{name}` is a scope itself, and would be emptied");
            let hint = "choose a directory below it";
            return Err(Box::new(Decision::refuse("PATH_OUTSIDE_SCOPE", &scope.rule, reason, hint)));
        }
        let reason = format!("`{name}` leads out of {} through a link", scope.words());
        let hint = "name what is really below it";
        return Err(Box::new(Decision::refuse("PATH_SYMLINK_ESCAPE", &scope.rule, reason, hint)));
    }
    Ok(())
}

/// Whether a link that a runner would meet on its way leads to where targets may be.
pub fn decide_link(scope: &Scope, link: &Path, real: &Path) -> Result<(), Box<Decision>> {
    if scope.has(real) {
        return Ok(());
    }
    let link = link.strip_prefix(&scope.cwd).unwrap_or(link).display().to_string();
    let reason = format!(
        "the link `{}`, which the runner would go through, leads out of {}",
        shown(&link),
        scope.words()
    );
    let hint = "take the link away, or name targets that are beside it";
    Err(Box::new(Decision::refuse("PATH_SYMLINK_ESCAPE", &scope.rule, reason, hint)))
}

/// Whether this program may run tests.
pub fn decide_command(policy: &TestPolicy, command: &TestCommand) -> Result<(), Box<Decision>> {
    // A pattern with a slash is about a path, any other one about a name.
    let fits =
        |pattern: &String, name: &str| pattern.contains('/') == name.contains('/') && matches(pattern, name);
    let allowed = |name: &String| policy.commands.iter().any(|pattern| fits(pattern, name));
    if policy.commands.is_empty() || command.names.iter().any(allowed) {
        return Ok(());
    }
    let name = shown(command.names.first().map_or("", String::as_str));
    let reason =
        format!("`{name}` is not among the programs that may run tests ({})", policy.commands.join(", "));
    let hint = format!("use one of them, or add it to guard.test.commands; {GUIDE}");
    Err(Box::new(Decision::refuse("COMMAND_NOT_ALLOWED", "guard.test.commands", reason, hint)))
}

/// Whether the run is approved, if it has to be: by the flag, or by what the policy's variable says.
pub fn decide_approval(policy: &TestPolicy, flag: bool, variable: Option<&str>) -> Result<(), Box<Decision>> {
    if !policy.approval || flag || variable.is_some_and(is_yes) {
        return Ok(());
    }
    let name = &policy.approval_variable;
    let hint = format!("pass --approve, or set {name} to true, 1 or yes, once somebody has agreed; {GUIDE}");
    let reason = "test runs have to be approved here, and this one is not";
    Err(Box::new(Decision::refuse("APPROVAL_REQUIRED", "guard.test.approval", reason, hint)))
}

fn is_yes(text: &str) -> bool {
    ["true", "1", "yes"].contains(&text.trim().to_ascii_lowercase().as_str())
}

/// Whether a target is named where one has to be.
pub fn decide_presence(
    scope: &Scope,
    runner: Runner,
    words: &[PathWord],
    wanted: bool,
) -> Result<(), Box<Decision>> {
    if words.iter().any(|word| word.place == Place::Target) || !(wanted || scope.is_narrow()) {
        return Ok(());
    }
    let (rule, why) = if scope.is_narrow() {
        (scope.rule.as_str(), format!("tests may be run below {} alone", scope.words()))
    } else {
        ("--require-target", "a target is required".into())
    };
    let reason = format!("the command names no target, and would choose for itself; {why}");
    let hint = match runner {
        Runner::Cargo | Runner::Nextest => {
            "cargo takes no directories: name the package with --manifest-path DIR/Cargo.toml, or have a scope that has all of \
             the workspace in it"
        }
        _ => "name the files or directories that are to be tested",
    };
    Err(Box::new(Decision::refuse("TARGET_REQUIRED", rule, reason, hint)))
}

#[cfg(test)]
#[path = "scope_table.rs"]
mod table;
