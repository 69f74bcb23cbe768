//! Links below a target that lead out of the scope: a runner that goes through them would run what is there.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::rules::{BUILT_IN, Decision, Runner, Scope, decide_link};

/// How many entries are looked at. More of them are no tests, and would be waited for.
const MOST: usize = 200_000;

/// The ends of files that go builds into a test's program.
const SOURCES: [&str; 13] = ["go", "s", "S", "sx", "c", "cc", "cpp", "cxx", "h", "hh", "hpp", "m", "syso"];

/// Whether nothing below the targets leads out.
pub(super) fn check(scope: &Scope, runner: Runner, targets: Vec<PathBuf>) -> Result<(), Box<Decision>> {
    check_at_most(scope, runner, targets, MOST)
}

fn check_at_most(
    scope: &Scope,
    runner: Runner,
    targets: Vec<PathBuf>,
    most: usize,
) -> Result<(), Box<Decision>> {
    let mut seen: HashSet<PathBuf> = HashSet::new();
    let mut ahead: Vec<PathBuf> = targets.iter().filter_map(|target| target.canonicalize().ok()).collect();
    for target in &ahead {
        check_way(scope, target)?;
    }
    let mut looked_at = 0;
    while let Some(dir) = ahead.pop() {
        if !dir.is_dir() || !seen.insert(dir.clone()) {
            continue;
        }
        // What can't be read here can't be read by the tests either.
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            looked_at += 1;
            if looked_at > most {
                return Err(Box::new(too_many(&dir, most)));
            }
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            if kind.is_dir() && !is_passed_over(runner, &path) {
                ahead.push(path);
            } else if kind.is_symlink()
                && let Ok(real) = path.canonicalize()
                && is_followed(runner, &path, &real)
            {
                decide_link(scope, &path, &real)?;
                ahead.push(real);
            }
        }
    }
    Ok(())
}

/// Whether none of the files leads out that Python loads on its way to a target: those of the directories around it.
fn check_way(scope: &Scope, target: &Path) -> Result<(), Box<Decision>> {
    for dir in target.ancestors().skip(1).take_while(|dir| scope.has(dir)) {
        let cached = dir.join("__pycache__");
        let entries = fs::read_dir(&cached).into_iter().flatten().flatten().map(|entry| entry.path());
        let named = ["conftest.py", "__init__.py"].map(|name| dir.join(name));
        for path in entries.chain(named).chain([cached]) {
            if let (true, Ok(real)) = (path.is_symlink(), path.canonicalize()) {
                decide_link(scope, &path, &real)?;
            }
        }
    }
    Ok(())
}

/// Whether no tests are ever taken from there: package managers fill it with links, or cargo has built it.
fn is_passed_over(runner: Runner, dir: &Path) -> bool {
    let name = dir.file_name().unwrap_or_default();
    match runner {
        Runner::Vitest => name == "node_modules",
        Runner::Cargo | Runner::Nextest => name == "target" && dir.join("CACHEDIR.TAG").exists(),
        _ => false,
    }
}

/// Whether the runner takes code from behind a link: go does so for files of source code alone.
fn is_followed(runner: Runner, link: &Path, real: &Path) -> bool {
    let end = link.extension().unwrap_or_default().to_string_lossy();
    runner != Runner::Go || (!real.is_dir() && SOURCES.contains(&&*end))
}

fn too_many(dir: &Path, most: usize) -> Decision {
    let reason = format!("there are more than {most} entries to look at for links, up to {}", dir.display());
    Decision::refuse("PATH_TOO_MANY", BUILT_IN, reason, "name a directory with less in it")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory of this test's own, away when it is over.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("quell-links-{name}-{}", std::process::id()));
            fs::create_dir_all(path.join("tests/deep")).expect("mkdir");
            fs::create_dir_all(path.join("out")).expect("mkdir");
            Self(path.canonicalize().expect("a path"))
        }

        fn judge(&self, runner: Runner, most: usize) -> String {
            let tests = self.0.join("tests");
            let dirs = vec![(tests.clone(), tests.clone())];
            let scope = Scope { cwd: self.0.clone(), dirs, rule: "--scope".into() };
            let decided = check_at_most(&scope, runner, vec![tests], most);
            decided.err().map_or_else(|| "ok".into(), |decision| decision.code)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_link_below_a_target_that_leads_out_is_found_wherever_it_is() {
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
            let dir = Dir::new("found");
            fs::write(dir.0.join("out/test_x.py"), "").expect("a file");
            let path = dir.0.join(link);
            fs::create_dir_all(path.parent().expect("a directory")).expect("mkdir");
            symlink(dir.0.join(to), path).expect("a link");
            assert_eq!(dir.judge(runner, MOST), expected, "{link} → {to}");
        }
    }

    #[test]
    fn what_is_too_much_to_look_at_is_refused() {
        let dir = Dir::new("many");
        fs::write(dir.0.join("tests/a"), "").expect("a file");
        assert_eq!(dir.judge(Runner::Pytest, 2), "ok");
        assert_eq!(dir.judge(Runner::Pytest, 1), "PATH_TOO_MANY");
    }
}
