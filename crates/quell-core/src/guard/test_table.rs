//! Tables: which words of which runner are paths, and where they may be.

use std::path::PathBuf;

use super::super::{path_words, read_command, split_words};
use super::*;
use crate::guard::Runner;

fn words(line: &str) -> Vec<String> {
    split_words(line)
}

fn scope(dirs: &[&str]) -> Scope {
    let cwd = PathBuf::from("/srv");
    let dirs = dirs.iter().map(|dir| (cwd.join(dir), cwd.join(dir))).collect();
    Scope { cwd, dirs, rule: "--scope".into() }
}

/// The code of the first refusal, or the paths that were checked. Nothing is there but what these names say.
fn judge(line: &str, scope: &Scope) -> String {
    let there =
        ["tests", "tests/a.py", "tests/pkg", "tests_evil", "src", "pytest.ini", "tests/x.toml", "pkg"];
    let words = words(line);
    let command = read_command(&words);
    let exists = |word: &str| there.contains(&word);
    let found = match path_words(&command, &words, scope.is_narrow(), exists) {
        Ok(found) => found,
        Err(decision) => return decision.code.clone(),
    };
    for word in &found {
        let path = scope.cwd.join(&word.path);
        let found = Resolved {
            written: path.clone(),
            real: path,
            exists: word.path.is_empty() || exists(&word.path),
        };
        if let Err(decision) = decide_place(scope, word, &found) {
            return decision.code.clone();
        }
    }
    if let Err(decision) = decide_presence(scope, &found, false) {
        return decision.code.clone();
    }
    let shown: Vec<&str> = found.iter().map(|word| word.path.as_str()).collect();
    format!("ok {}", shown.join(" ")).trim_end().to_owned()
}

#[test]
fn the_words_of_each_runner_that_are_paths_are_held_against_the_scope() {
    for (line, expected) in [
        ("pytest tests", "ok tests"),
        ("pytest -q tests/a.py::test_x", "ok tests/a.py"),
        ("pytest 'tests/a.py::test_x[../..]'", "ok tests/a.py"),
        ("pytest tests/a.py::T::test_x tests/pkg", "ok tests/a.py tests/pkg"),
        ("python3 -m pytest tests", "ok tests"),
        ("/usr/bin/python3.11 -X dev -I -m pytest tests/a.py", "ok tests/a.py"),
        ("uv run pytest tests", "ok tests"),
        ("pytest", "TARGET_REQUIRED"),
        ("pytest -q -k 'a or b'", "TARGET_REQUIRED"),
        ("pytest -k tests", "TARGET_REQUIRED"),
        ("pytest src", "PATH_OUTSIDE_SCOPE"),
        ("pytest tests src", "PATH_OUTSIDE_SCOPE"),
        ("pytest tests_evil", "PATH_OUTSIDE_SCOPE"),
        ("pytest tests_evil/a.py::test_x", "PATH_OUTSIDE_SCOPE"),
        ("pytest tests/none.py", "PATH_MISSING"),
        ("pytest tests ''", "PATH_EMPTY"),
        ("pytest '::test_x'", "PATH_EMPTY"),
        ("pytest /etc", "PATH_ABSOLUTE"),
        ("pytest tests/../src", "PATH_TRAVERSAL"),
        ("pytest .", "PATH_TRAVERSAL"),
        ("pytest -- tests", "ok tests"),
        ("pytest -- -x", "PATH_OPTION"),
        ("pytest tests @more", "PATH_OPTION"),
        ("pytest --pyargs os", "PATH_OPTION"),
        ("pytest -o addopts=--rootdir=/ tests", "PATH_OPTION"),
        ("pytest -o cache_dir=/tmp/x tests", "PATH_ABSOLUTE"),
        ("pytest -ocache_dir=../x tests", "PATH_TRAVERSAL"),
        ("pytest -o console_output_style=classic tests", "ok tests"),
        ("pytest --rootdir=/ tests", "PATH_ABSOLUTE"),
        ("pytest --rootdir / tests", "PATH_ABSOLUTE"),
        ("pytest --rootdir=. tests", "ok  tests"),
        ("pytest --rootdir=src tests", "PATH_OUTSIDE_SCOPE"),
        ("pytest --rootdir=$HOME tests", "PATH_VARIABLE"),
        ("pytest --confcutdir=.. tests", "PATH_TRAVERSAL"),
        ("pytest -c /etc/x.ini tests", "PATH_ABSOLUTE"),
        ("pytest -c/etc/x.ini tests", "PATH_ABSOLUTE"),
        ("pytest -xvc/etc/x.ini tests", "PATH_ABSOLUTE"),
        ("pytest -xc ../x.ini tests", "PATH_TRAVERSAL"),
        ("pytest -c pytest.ini tests", "ok pytest.ini tests"),
        ("pytest -c tests/x.toml tests", "ok tests/x.toml tests"),
        ("pytest -c src/x.toml tests", "PATH_OUTSIDE_SCOPE"),
        ("pytest --basetemp=/home tests", "PATH_ABSOLUTE"),
        ("pytest --basetemp=src tests", "PATH_OUTSIDE_SCOPE"),
        ("pytest --basetemp=tests tests", "PATH_OUTSIDE_SCOPE"),
        ("pytest --basetemp=tests/tmp tests", "ok tests/tmp tests"),
        ("pytest --junitxml=/etc/x tests", "PATH_ABSOLUTE"),
        ("pytest --junitxml=~/x tests", "PATH_HOME"),
        ("pytest --junitxml out.xml tests", "ok out.xml tests"),
        ("pytest --ignore=../x --deselect tests/a.py::x tests", "ok tests"),
        ("pytest --unknown value tests", "PATH_OUTSIDE_SCOPE"),
        ("pytest --unknown=value tests", "ok tests"),
        ("pytest -p no:cacheprovider -x --maxfail 2 tests", "ok tests"),
        ("go test ./tests/...", "ok tests"),
        ("go test ./tests/pkg -run TestX -count=1", "ok tests/pkg"),
        ("go test ./...", "PATH_OUTSIDE_SCOPE"),
        ("go test ./src/...", "PATH_OUTSIDE_SCOPE"),
        ("go test", "TARGET_REQUIRED"),
        ("go test fmt", "PATH_OUTSIDE_SCOPE"),
        ("go test tests/...", "PATH_OUTSIDE_SCOPE"),
        ("go test ../x/...", "PATH_TRAVERSAL"),
        ("go test ./tests/../x", "PATH_TRAVERSAL"),
        ("go test /etc/...", "PATH_ABSOLUTE"),
        ("go test -C /etc ./tests", "PATH_ABSOLUTE"),
        ("go test --coverprofile=/etc/x ./tests", "PATH_ABSOLUTE"),
        ("go test ./tests -args /etc/passwd", "ok tests"),
        ("cargo test", "TARGET_REQUIRED"),
        ("cargo test --manifest-path tests/x.toml some::name", "ok tests/x.toml"),
        ("cargo +nightly test --manifest-path=/x/Cargo.toml", "PATH_ABSOLUTE"),
        ("cargo nextest run --manifest-path ../x", "PATH_TRAVERSAL"),
        ("npx jest tests/a.py", "ok tests/a.py"),
        ("jest --rootDir=/ tests/a.py", "PATH_ABSOLUTE"),
        ("vitest run tests", "ok tests"),
        ("vitest run src", "PATH_OUTSIDE_SCOPE"),
        ("vitest run 'tests|src'", "PATH_OUTSIDE_SCOPE"),
        ("make check", "TARGET_REQUIRED"),
        ("make src", "PATH_OUTSIDE_SCOPE"),
        ("sh tests/a.py", "ok tests/a.py"),
        ("sh tests/a.py /etc/passwd", "PATH_ABSOLUTE"),
        ("sh tests\\\\..\\\\src", "PATH_TRAVERSAL"),
    ] {
        assert_eq!(judge(line, &scope(&["tests"])), expected, "{line}");
    }
}

#[test]
fn without_a_scope_all_below_the_working_directory_is_free() {
    for (line, expected) in [
        ("pytest", "ok"),
        ("pytest src tests", "ok src tests"),
        ("pytest ../x", "PATH_TRAVERSAL"),
        ("pytest none", "PATH_MISSING"),
        ("go test ./...", "ok"),
        ("cargo test name", "ok"),
        ("vitest run some-pattern", "ok some-pattern"),
        ("make /etc/passwd", "ok"),
        ("pytest --basetemp=.", "PATH_OUTSIDE_SCOPE"),
    ] {
        assert_eq!(judge(line, &scope(&[])), expected, "{line}");
    }
    assert_eq!(judge("pytest", &scope(&[""])), "ok", "a scope of all leaves nothing out");
}

#[test]
fn what_leads_out_through_a_link_is_refused() {
    let scope = scope(&["tests"]);
    let word = PathWord { path: "tests/link".into(), place: Place::Target, exists: true };
    let written = PathBuf::from("/srv/tests/link");
    for (real, code) in [
        ("/etc", "PATH_SYMLINK_ESCAPE"),
        ("/srv/src", "PATH_SYMLINK_ESCAPE"),
        ("/srv/tests_evil/x", "PATH_SYMLINK_ESCAPE"),
        ("/srv", "PATH_SYMLINK_ESCAPE"),
        ("/srv/tests/other", ""),
    ] {
        let found = Resolved { written: written.clone(), real: real.into(), exists: true };
        let decided = decide_place(&scope, &word, &found);
        assert_eq!(decided.err().map(|decision| decision.code).unwrap_or_default(), code, "{real}");
    }
}

#[test]
fn a_program_is_allowed_by_its_last_name() {
    let policy = |commands: &[&str]| TestPolicy {
        commands: commands.iter().map(ToString::to_string).collect(),
        ..TestPolicy::default()
    };
    for (commands, line, allowed) in [
        (&["pytest"][..], "pytest tests", true),
        (&["pytest"], ".venv/bin/pytest tests", true),
        (&["pytest"], "pytest-3 tests", true),
        (&["pytest"], "python3 -m pytest tests", true),
        (&["python"], "python3.11 -m pytest tests", true),
        (&["python3"], "python3 -m pytest tests", true),
        (&["pytest"], "python3 -m http.server", false),
        (&["pytest"], "python3 evil.py -m pytest", false),
        (&["pytest"], "python3 -c x -m pytest", false),
        (&["pytest"], "uv run pytest", false),
        (&["pytest"], "pytest_evil tests", false),
        (&["pytest"], "sh -c pytest", false),
        (&["cargo"], "cargo test", true),
        (&["cargo"], "cargo-evil test", false),
        (&["go", "cargo"], "/usr/bin/go test", true),
        (&["py*"], "pypy x", true),
        (&[], "anything at all", true),
    ] {
        let command = read_command(&words(line));
        assert_eq!(decide_command(&policy(commands), &command).is_ok(), allowed, "{commands:?} {line}");
    }
}

#[test]
fn runners_are_known_by_the_way_they_are_called() {
    for (line, runner) in [
        ("pytest", Runner::Pytest),
        ("python -m pytest", Runner::Pytest),
        ("python -m unittest", Runner::Other),
        ("cargo test", Runner::Cargo),
        ("cargo nextest run", Runner::Nextest),
        ("cargo build", Runner::Other),
        ("go test ./...", Runner::Go),
        ("go vet", Runner::Other),
        ("npx vitest", Runner::Vitest),
        ("node_modules/.bin/jest", Runner::Jest),
        ("", Runner::Other),
    ] {
        assert_eq!(read_command(&words(line)).runner, runner, "{line}");
    }
}

#[test]
fn approval_is_a_flag_or_a_word_that_means_yes() {
    let policy = TestPolicy { approval: true, approval_variable: "V".into(), ..TestPolicy::default() };
    for (flag, variable, approved) in [
        (true, None, true),
        (false, None, false),
        (false, Some("true"), true),
        (false, Some("TRUE"), true),
        (false, Some("Yes"), true),
        (false, Some("1"), true),
        (false, Some("0"), false),
        (false, Some(""), false),
        (false, Some("on"), false),
        (false, Some("truest"), false),
        (true, Some("no"), true),
    ] {
        let decided = decide_approval(&policy, flag, variable);
        assert_eq!(decided.is_ok(), approved, "{flag} {variable:?}");
        if let Err(decision) = decided {
            assert_eq!(decision.code, "APPROVAL_REQUIRED");
        }
    }
    assert!(decide_approval(&TestPolicy::default(), false, None).is_ok());
}
