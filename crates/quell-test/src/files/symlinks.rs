//! Finds symbolic links that lead out of the scope. A runner that follows them would run tests outside the scope.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use quell_guard::{BUILT_IN, DecisionCode};

use crate::check::{Checked, Scope, printable, refuse};
use crate::runners::Runner;

/// How many directory entries are checked. More would take too long.
const MAX_ENTRIES: usize = 200_000;

/// The extensions of files that go builds into a test program.
const SOURCES: [&str; 13] = ["go", "s", "S", "sx", "c", "cc", "cpp", "cxx", "h", "hh", "hpp", "m", "syso"];

/// Refuses links below the targets that lead out of the scope.
pub(super) fn check(scope: &Scope, runner: Runner, mut targets: Vec<PathBuf>) -> Checked<()> {
    // jest does not follow links.
    if runner == Runner::Jest {
        return Ok(());
    }
    if runner.is_cargo() {
        // It builds the directory of the manifest.
        targets = targets.iter().filter_map(|manifest| manifest.parent()).map(Path::to_owned).collect();
    } else if !scope.is_set() {
        // Naming the working directory is the same as naming no target.
        targets.retain(|target| *target != scope.cwd);
    } else if targets.is_empty() && runner != Runner::Other {
        // Without a target a runner searches the working directory.
        targets.push(scope.cwd.clone());
    }
    check_entries(scope, runner, &targets, MAX_ENTRIES)
}

fn check_entries(scope: &Scope, runner: Runner, targets: &[PathBuf], limit: usize) -> Checked<()> {
    let mut seen: HashSet<PathBuf> = HashSet::new();
    let mut pending: Vec<PathBuf> = targets.iter().filter_map(|target| target.canonicalize().ok()).collect();
    pending.iter().try_for_each(|target| check_parents(scope, target))?;
    let mut count = 0;
    while let Some(dir) = pending.pop() {
        if !dir.is_dir() || !seen.insert(dir.clone()) {
            continue;
        }
        // A directory that quell can't read can't be read by the tests either.
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            count += 1;
            if count > limit {
                let reason =
                    format!("the targets have more than {limit} files to check (last: {})", dir.display());
                let hint = "name a directory with fewer files";
                return refuse(DecisionCode::PathTooMany, BUILT_IN, reason, hint);
            }
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            if kind.is_dir() && !is_skipped(runner, &path) {
                pending.push(path);
            } else if kind.is_symlink()
                && let Ok(real) = path.canonicalize()
                && is_followed(runner, &path, &real)
            {
                check_link(scope, &path)?;
                pending.push(real);
            }
        }
    }
    Ok(())
}

/// Checks the files that Python loads from the directories above a target.
fn check_parents(scope: &Scope, target: &Path) -> Checked<()> {
    for dir in target.ancestors().skip(1).take_while(|dir| scope.contains(dir)) {
        let cached = dir.join("__pycache__");
        let entries = fs::read_dir(&cached).into_iter().flatten().flatten().map(|entry| entry.path());
        let named = ["conftest.py", "__init__.py"].map(|name| dir.join(name));
        entries.chain(named).chain([cached]).try_for_each(|path| check_link(scope, &path))?;
    }
    Ok(())
}

fn check_link(scope: &Scope, link: &Path) -> Checked<()> {
    let leads_out = link.is_symlink() && link.canonicalize().is_ok_and(|real| !scope.contains(&real));
    if !leads_out {
        return Ok(());
    }
    let name = link.strip_prefix(&scope.cwd).unwrap_or(link).display().to_string();
    let reason = format!(
        "the runner would follow the link `{}`, which leads out of {}",
        printable(&name),
        scope.describe()
    );
    refuse(DecisionCode::PathSymlinkEscape, &scope.rule, reason, "remove the link, or name other targets")
}

/// Whether the runner takes no tests from a directory: package managers fill it with links, or cargo writes its build there.
fn is_skipped(runner: Runner, dir: &Path) -> bool {
    let name = dir.file_name().unwrap_or_default();
    match runner {
        Runner::Vitest => name == "node_modules",
        Runner::Cargo | Runner::Nextest => name == "target" && dir.join("CACHEDIR.TAG").exists(),
        _ => false,
    }
}

/// Whether the runner follows a link. go follows only links to source files.
fn is_followed(runner: Runner, link: &Path, real: &Path) -> bool {
    let end = link.extension().unwrap_or_default().to_string_lossy();
    runner != Runner::Go || (!real.is_dir() && SOURCES.contains(&&*end))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// A temporary directory by its real path. It is removed on drop.
    struct Dir(PathBuf, #[expect(dead_code, reason = "removes it")] TempDir);

    impl Dir {
        fn new() -> Self {
            let dir = TempDir::new().expect("a directory");
            let path = dir.path().canonicalize().expect("a path");
            fs::create_dir_all(path.join("tests/deep")).expect("mkdir");
            fs::create_dir_all(path.join("out")).expect("mkdir");
            Self(path, dir)
        }

        fn decide(&self, runner: Runner, limit: usize) -> String {
            let tests = self.0.join("tests");
            let dirs = vec![(tests.clone(), tests.clone())];
            let scope = Scope { cwd: self.0.clone(), dirs, rule: "--scope".into() };
            let decided = check_entries(&scope, runner, &[tests], limit);
            decided.err().map_or_else(|| "ok".into(), |decision| decision.code.to_string())
        }
    }

    #[test]
    fn a_link_below_a_target_that_leads_out_is_found() {
        for (link, to, runner, expected) in [
            ("tests/deep/link", "out", Runner::Pytest, "PATH_SYMLINK_ESCAPE"),
            ("tests/deep/up", "", Runner::Pytest, "PATH_SYMLINK_ESCAPE"),
            ("tests/deep/test_x.py", "out/test_x.py", Runner::Pytest, "PATH_SYMLINK_ESCAPE"),
            ("tests/deep/data.bin", "out/test_x.py", Runner::Pytest, "PATH_SYMLINK_ESCAPE"),
            ("tests/deep/data.bin", "tests/test_y.py", Runner::Pytest, "ok"),
            ("tests/deep/round", "tests", Runner::Pytest, "ok"),
            ("tests/deep/nowhere", "none", Runner::Pytest, "ok"),
            ("tests/node_modules/x", "out", Runner::Vitest, "ok"),
            ("tests/node_modules/x", "out", Runner::Pytest, "PATH_SYMLINK_ESCAPE"),
            ("tests/deep/x_test.go", "out/test_x.py", Runner::Go, "PATH_SYMLINK_ESCAPE"),
            ("tests/deep/data", "out/test_x.py", Runner::Go, "ok"),
            ("tests/deep/link", "out", Runner::Go, "ok"),
            ("tests/deep/x.rs", "out/test_x.py", Runner::Cargo, "PATH_SYMLINK_ESCAPE"),
            ("tests/src", "out", Runner::Nextest, "PATH_SYMLINK_ESCAPE"),
        ] {
            let dir = Dir::new();
            fs::write(dir.0.join("out/test_x.py"), "").expect("a file");
            let path = dir.0.join(link);
            fs::create_dir_all(path.parent().expect("a directory")).expect("mkdir");
            symlink(dir.0.join(to), path).expect("a link");
            assert_eq!(dir.decide(runner, MAX_ENTRIES), expected, "{link} → {to}");
        }
    }

    #[test]
    fn too_many_files_are_refused() {
        let dir = Dir::new();
        fs::write(dir.0.join("tests/a"), "").expect("a file");
        assert_eq!(dir.decide(Runner::Pytest, 2), "ok");
        assert_eq!(dir.decide(Runner::Pytest, 1), "PATH_TOO_MANY");
    }
}
