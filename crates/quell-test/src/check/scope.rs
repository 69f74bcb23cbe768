//! The directories that targets must be in, and the check of a path against them on disk.

use std::io;
use std::path::{Component, Path, PathBuf};

use quell_guard::{BUILT_IN, DecisionCode, GUIDE, TestPolicy};

use super::path::{Root, check_target, printable};
use super::{Checked, refuse, utf8};
use crate::TestPlan;

/// The directories that targets must be in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// The working directory, with links resolved.
    pub cwd: PathBuf,
    /// Each directory as written, and with links resolved. Empty: everything below the working directory.
    pub dirs: Vec<(PathBuf, PathBuf)>,
    /// The setting or option that they come from.
    pub rule: String,
}

/// What a path is for, and so where it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathRole {
    /// It names tests. Must be in the scope.
    Target,
    /// Anything else that is named. Must be in the scope or below the working directory.
    Any,
    /// A file that the runner writes, and its allowed extensions. In the scope or below the working directory.
    Output(&'static str),
    /// A directory that the runner writes to, and may empty first. In the scope or below the working directory.
    OutputDir,
}

/// A path in a word of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathWord {
    /// In its plain form; empty for the working directory.
    pub path: String,
    pub role: PathRole,
    /// Whether it must exist.
    pub exists: bool,
}

/// A path on disk.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    /// As written, made absolute.
    pub written: PathBuf,
    /// With links resolved. If it does not exist: the nearest existing directory above it, and the rest.
    pub real: PathBuf,
    pub exists: bool,
}

impl Scope {
    /// The scope of the command line, which must be inside that of the policy; without one, that of the policy.
    pub fn of(policy: &TestPolicy, plan: &TestPlan, cwd: &Path) -> Checked<Self> {
        let mut all = Self { cwd: cwd.to_owned(), dirs: Vec::new(), rule: "guard.test.scope".into() };
        for written in &policy.scope {
            // A policy may use any absolute path, a caller may not.
            let path = cwd.join(written.trim_start_matches("./").trim_end_matches('/'));
            let path = if written.starts_with('/') { PathBuf::from(written) } else { path };
            let path: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
            // A directory that does not exist allows nothing.
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            if !written.starts_with('/') && path.exists() && !real.starts_with(cwd) {
                return leads_out(written, &all.rule);
            }
            all.dirs.push((path, real));
        }
        if plan.scope.is_empty() {
            return Ok(all);
        }
        let mut narrow = Self { dirs: Vec::new(), rule: "--scope".into(), ..all.clone() };
        for given in &plan.scope {
            let given = with_slashes(&utf8(given)?, cwd);
            let path = check_target(&given, &all.roots())?;
            let word = PathWord { path, role: PathRole::Target, exists: true };
            let found = resolve(cwd, &word.path);
            check_location(&all, &word, &found)?;
            if !found.real.is_dir() {
                let reason = format!("`{}` is not a directory", word.path);
                let hint = "name the directory that contains the targets";
                return refuse(DecisionCode::PathMissing, "--scope", reason, hint);
            }
            narrow.dirs.push((found.written, found.real));
        }
        Ok(narrow)
    }

    /// Whether there is a scope at all.
    pub fn is_set(&self) -> bool {
        !self.dirs.is_empty()
    }

    /// Whether a part of the working directory is outside the scope, so that targets must be named.
    pub fn is_narrow(&self) -> bool {
        self.is_set() && !self.dirs.iter().any(|(_, real)| self.cwd.starts_with(real))
    }

    /// Whether a resolved path is in the scope.
    pub fn contains(&self, path: &Path) -> bool {
        !self.is_set() && path.starts_with(&self.cwd)
            || self.dirs.iter().any(|(_, real)| path.starts_with(real))
    }

    /// Whether a path exists and leads into the scope.
    pub fn contains_file(&self, path: &Path) -> bool {
        path.canonicalize().is_ok_and(|real| self.contains(&real))
    }

    /// Whether a resolved path is in the scope or below the working directory.
    pub fn contains_or_cwd(&self, path: &Path) -> bool {
        path.starts_with(&self.cwd) || self.contains(path)
    }

    /// The directories that an absolute path may be in: the working directory, also by its name in PWD, and the scope.
    pub fn roots(&self) -> Vec<Root> {
        let root = |path: &Path, plain: &Path| {
            Some(Root { path: path.to_str()?.to_owned(), plain: plain.to_str()?.to_owned() })
        };
        let pwd = std::env::var_os("PWD").map(PathBuf::from);
        let pwd = pwd.filter(|dir| dir.canonicalize().is_ok_and(|real| real == self.cwd));
        let cwd = [Some(self.cwd.clone()), pwd].into_iter().flatten();
        let cwd = cwd.filter_map(|dir| root(&dir, Path::new("")));
        let dirs = self.dirs.iter().flat_map(|(written, real)| [written, real]);
        cwd.chain(dirs.filter_map(|dir| root(dir, dir))).collect()
    }

    /// The directories relative to the working directory. Empty if there is no scope.
    pub fn display_dirs(&self) -> Vec<String> {
        let name = |dir: &Path| {
            let short = dir.strip_prefix(&self.cwd).unwrap_or(dir);
            if short.as_os_str().is_empty() { ".".into() } else { short.display().to_string() }
        };
        self.dirs.iter().map(|(written, _)| name(written)).collect()
    }

    /// The same for messages.
    pub fn describe(&self) -> String {
        if self.is_set() { self.display_dirs().join(", ") } else { "the working directory".into() }
    }
}

fn leads_out<T>(written: &str, rule: &str) -> Checked<T> {
    if Path::new(written).components().any(|part| part == Component::ParentDir) {
        let reason = format!("the scope `{written}` leads out of the working directory");
        return refuse(DecisionCode::PathTraversal, rule, reason, "write it as an absolute path");
    }
    let reason = format!("the scope `{written}` leads out of the working directory through a link");
    refuse(DecisionCode::PathSymlinkEscape, rule, reason, "make it a directory")
}

/// Replaces backslashes by slashes if the path exists only then. On Linux a backslash can be part of a name.
pub(crate) fn with_slashes(path: &str, cwd: &Path) -> String {
    let exists = |path: &str| cwd.join(path).symlink_metadata().is_ok();
    let turned = path.replace('\\', "/");
    let turns = path.contains('\\') && !path.starts_with('\\') && !exists(path);
    if turns && exists(turned.trim_end_matches("/...")) { turned } else { path.to_owned() }
}

/// Resolves a path. A broken link resolves to `/`, as its target may be created anywhere.
pub(crate) fn resolve(cwd: &Path, path: &str) -> Resolved {
    let written = if path.is_empty() { cwd.to_owned() } else { cwd.join(path) };
    // `None` if nothing exists there; `Some(None)` if something does that can't be resolved.
    let real = |above: &Path| match above.canonicalize() {
        Ok(real) => Some(Some(real)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && above.symlink_metadata().is_err() => None,
        Err(_) => Some(None),
    };
    match written.ancestors().find_map(|above| Some((above, real(above)?))) {
        Some((above, Some(real))) => {
            let exists = above == written;
            let rest = written.strip_prefix(above).unwrap_or(Path::new(""));
            let real = if exists { real } else { real.join(rest) };
            Resolved { exists, real, written }
        }
        _ => Resolved { exists: false, real: "/".into(), written },
    }
}

/// Checks that a path is where its role requires, as written and with links resolved.
pub(crate) fn check_location(scope: &Scope, word: &PathWord, found: &Resolved) -> Checked<()> {
    let name = if word.path.is_empty() { ".".into() } else { printable(&word.path) };
    let is_target = word.role == PathRole::Target;
    let is_in = |path: &Path| if is_target { scope.contains(path) } else { scope.contains_or_cwd(path) };
    let is_written_in = scope.dirs.iter().any(|(written, _)| found.written.starts_with(written));
    if !is_written_in && !is_in(&found.written) {
        let reason = format!("`{name}` is not below {}", scope.describe());
        let hint = format!("choose a path below it, or change {}; {GUIDE}", scope.rule);
        return refuse(DecisionCode::PathOutsideScope, &scope.rule, reason, hint);
    }
    if word.exists && !found.exists {
        let hint = "check the spelling and the working directory";
        return refuse(DecisionCode::PathMissing, BUILT_IN, format!("`{name}` does not exist"), hint);
    }
    if !is_in(&found.real) {
        let reason = format!("`{name}` leads out of {} through a link", scope.describe());
        let hint = "name the path without the link";
        return refuse(DecisionCode::PathSymlinkEscape, &scope.rule, reason, hint);
    }
    Ok(())
}
