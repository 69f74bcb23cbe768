//! The directories that targets have to be in, and whether a path is where it may be.

use std::io;
use std::path::{Component, Path, PathBuf};

use quell_guard::{BUILT_IN, DecisionCode, GUIDE, TestPolicy};

use super::path::{Root, check_target, shown};
use super::{Verdict, refuse, text};
use crate::TestPlan;

/// Directories that targets have to be in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// The working directory, without links.
    pub cwd: PathBuf,
    /// Each directory as it is written, and without links. Empty: everything below the working directory.
    pub dirs: Vec<(PathBuf, PathBuf)>,
    /// The key or option that they come from.
    pub rule: String,
}

/// Where a path has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Below the scope: it names tests.
    Target,
    /// Below the working directory or the scope.
    Here,
    /// The same, and the runner writes a file there whose name ends in one of these.
    Output(&'static str),
    /// The same, and the runner fills a directory there. It may empty it first.
    OutputDir,
}

/// A word, or a part of one, that is a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathWord {
    /// In its plain form; empty for the working directory.
    pub path: String,
    pub place: Place,
    /// Whether it has to exist.
    pub exists: bool,
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    /// As it is written, below the working directory.
    pub written: PathBuf,
    /// Without links. If it does not exist: the nearest directory above it that does, and the rest.
    pub real: PathBuf,
    pub exists: bool,
}

impl Scope {
    /// The scope of the policy, and in it that of the command line.
    pub fn of(policy: &TestPolicy, plan: &TestPlan, cwd: &Path) -> Verdict<Self> {
        let mut all = Self { cwd: cwd.to_owned(), dirs: Vec::new(), rule: "guard.test.scope".into() };
        for written in &policy.scope {
            // A policy may use an absolute path, which a caller may not.
            let path = cwd.join(written.trim_start_matches("./").trim_end_matches('/'));
            let path = if written.starts_with('/') { PathBuf::from(written) } else { path };
            let path: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
            // A directory that does not exist has nothing in it, and allows nothing.
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
            let given = with_slashes(&text(given)?, cwd);
            let path = check_target(&given, &all.roots())?;
            let word = PathWord { path, place: Place::Target, exists: true };
            let found = resolve(cwd, &word.path);
            check_place(&all, &word, &found)?;
            if !found.real.is_dir() {
                let reason = format!("`{}` is not a directory", word.path);
                let hint = "give the directory that has the targets";
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

    /// Whether it leaves out something below the working directory, so that targets have to be named.
    pub fn is_narrow(&self) -> bool {
        self.is_set() && !self.dirs.iter().any(|(_, real)| self.cwd.starts_with(real))
    }

    /// Whether a path without links is in it.
    pub fn has(&self, path: &Path) -> bool {
        !self.is_set() && path.starts_with(&self.cwd)
            || self.dirs.iter().any(|(_, real)| path.starts_with(real))
    }

    /// Whether an existing path leads into it.
    pub fn has_file(&self, path: &Path) -> bool {
        path.canonicalize().is_ok_and(|real| self.has(&real))
    }

    /// Whether a path without links is in it or below the working directory.
    pub fn is_here(&self, path: &Path) -> bool {
        path.starts_with(&self.cwd) || self.has(path)
    }

    /// What absolute paths may begin with: the working directory, also as the shell calls it, and the scope.
    pub fn roots(&self) -> Vec<Root> {
        let root = |path: &Path, plain: &Path| {
            Some(Root { path: path.to_str()?.to_owned(), plain: plain.to_str()?.to_owned() })
        };
        let called = std::env::var_os("PWD").map(PathBuf::from);
        let called = called.filter(|dir| dir.canonicalize().is_ok_and(|real| real == self.cwd));
        let here = [Some(self.cwd.clone()), called].into_iter().flatten();
        let here = here.filter_map(|dir| root(&dir, Path::new("")));
        let dirs = self.dirs.iter().flat_map(|(written, real)| [written, real]);
        here.chain(dirs.filter_map(|dir| root(dir, dir))).collect()
    }

    /// The directories as people read them; none for the working directory.
    pub fn shown(&self) -> Vec<String> {
        let name = |dir: &Path| {
            let short = dir.strip_prefix(&self.cwd).unwrap_or(dir);
            if short.as_os_str().is_empty() { ".".into() } else { short.display().to_string() }
        };
        self.dirs.iter().map(|(written, _)| name(written)).collect()
    }

    /// The same in one text.
    pub fn words(&self) -> String {
        if self.is_set() { self.shown().join(", ") } else { "the working directory".into() }
    }
}

fn leads_out<T>(written: &str, rule: &str) -> Verdict<T> {
    if Path::new(written).components().any(|part| part == Component::ParentDir) {
        let reason = format!("the scope `{written}` leads out of the working directory");
        return refuse(DecisionCode::PathTraversal, rule, reason, "write it as an absolute path");
    }
    let reason = format!("the scope `{written}` leads out of the working directory through a link");
    refuse(DecisionCode::PathSymlinkEscape, rule, reason, "make it a directory")
}

/// Turns backslashes into slashes if only then the path exists. Here a backslash may be part of a name.
pub(crate) fn with_slashes(path: &str, cwd: &Path) -> String {
    let exists = |path: &str| cwd.join(path).symlink_metadata().is_ok();
    let turned = path.replace('\\', "/");
    let turns = path.contains('\\') && !path.starts_with('\\') && !exists(path);
    if turns && exists(turned.trim_end_matches("/...")) { turned } else { path.to_owned() }
}

/// Where a path leads. A link without a target leads to `/`: it is not known what will be there.
pub(crate) fn resolve(cwd: &Path, path: &str) -> Resolved {
    let written = if path.is_empty() { cwd.to_owned() } else { cwd.join(path) };
    // None if nothing is there; no path in it if it can't be known what is there.
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

/// Whether a path is where it has to be.
pub(crate) fn check_place(scope: &Scope, word: &PathWord, found: &Resolved) -> Verdict<()> {
    let name = if word.path.is_empty() { ".".into() } else { shown(&word.path) };
    let is_target = word.place == Place::Target;
    let is_in = |path: &Path| if is_target { scope.has(path) } else { scope.is_here(path) };
    let is_written_in = scope.dirs.iter().any(|(written, _)| found.written.starts_with(written));
    if !is_written_in && !is_in(&found.written) {
        let reason = format!("`{name}` is not below {}", scope.words());
        let hint = format!("choose a path below it, or change {}; {GUIDE}", scope.rule);
        return refuse(DecisionCode::PathOutsideScope, &scope.rule, reason, hint);
    }
    if word.exists && !found.exists {
        let hint = "check how it is written, and the working directory";
        return refuse(DecisionCode::PathMissing, BUILT_IN, format!("`{name}` does not exist"), hint);
    }
    if !is_in(&found.real) {
        let reason = format!("`{name}` leads out of {} through a link", scope.words());
        let hint = "name the path without the link";
        return refuse(DecisionCode::PathSymlinkEscape, &scope.rule, reason, hint);
    }
    Ok(())
}
