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
    if let Err(decision) = decide_presence(scope, command.runner, &found, false) {
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
        ("go test -C /etc ./tests", "PATH_OPTION"),
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

/// Each was once a way for a target to pass as something else.
#[test]
fn no_word_that_a_runner_takes_for_a_target_is_passed_over() {
    let wrong: Vec<String> = [
        // An option that takes no value, or takes one only with `=`.
        ("pytest --trace-config /out/a.py tests", "PATH_ABSOLUTE"),
        ("pytest --trace-config tests", "ok tests"),
        ("pytest --cache-show src tests", "PATH_OPTION"),
        ("pytest --debug src tests", "PATH_OPTION"),
        ("pytest tests --debug", "ok tests"),
        ("pytest --debug=/out/victim tests", "PATH_ABSOLUTE"),
        ("pytest --debug=../victim tests", "PATH_TRAVERSAL"),
        ("pytest --debug=log.txt tests", "ok log.txt tests"),
        ("pytest --keyword /out tests", "PATH_ABSOLUTE"),
        ("pytest --log-auto-indent on tests", "ok tests"),
        // Without the plugin the value is a target.
        ("pytest -n 4 --timeout 5 tests", "ok tests"),
        ("pytest --timeout /out tests", "PATH_ABSOLUTE"),
        ("pytest --timeout src tests", "PATH_OUTSIDE_SCOPE"),
        ("pytest --cov-report=html:/out tests", "PATH_ABSOLUTE"),
        ("pytest --cov-report=term tests", "ok tests"),
        // An option that nobody knows.
        ("pytest --alluredir=/out tests", "PATH_ABSOLUTE"),
        ("pytest --alluredir=../out tests", "PATH_TRAVERSAL"),
        ("pytest --alluredir=./out/x tests", "ok out/x tests"),
        ("pytest --base-url=http://localhost:1/x tests", "ok tests"),
        ("pytest --x=file:///etc tests", "PATH_ABSOLUTE"),
        // What argparse takes for no option.
        ("pytest '- x/../../out/a.py' tests", "PATH_OPTION"),
        ("pytest '-Zo x/../../out/a.py' tests", "PATH_OPTION"),
        ("pytest '--x=y/../../out/a.py::a b' tests", "PATH_OPTION"),
        ("pytest -1 tests", "PATH_OPTION"),
        ("pytest '-ka b' '-xk a b' '--junit-prefix=a b' tests", "ok tests"),
        // Cut at the first bracket, or not.
        ("pytest 'tests/a.py[x'", "PATH_MISSING"),
        ("pytest 'src[x'", "PATH_OUTSIDE_SCOPE"),
        ("pytest 'tests/a.py::test[a::b]'", "ok tests/a.py"),
        // Settings are parted as shlex does it.
        ("pytest -o 'testpaths=\"/out\"' tests", "PATH_ABSOLUTE"),
        ("pytest -o log_file=../x tests", "PATH_TRAVERSAL"),
        ("go test -buildvcs /out ./tests", "PATH_ABSOLUTE"),
        ("go test -test.coverprofile=/out ./tests", "PATH_ABSOLUTE"),
        ("go test -test.run X ./tests", "ok tests"),
        ("go test -pgo=/out ./tests", "PATH_ABSOLUTE"),
        ("go test -C tests ./pkg", "PATH_OPTION"),
        ("go test -unknown=/out ./tests", "PATH_ABSOLUTE"),
        ("jest --logHeapUsage /out tests", "PATH_ABSOLUTE"),
        ("jest --bail /out tests", "PATH_ABSOLUTE"),
        ("jest --bail tests", "ok tests"),
        ("jest --bail=2 tests", "ok tests"),
        ("jest --projects=../x --ci tests", "PATH_TRAVERSAL"),
        ("jest tests --projects ../x", "PATH_TRAVERSAL"),
        ("jest --root-dir=src tests", "PATH_OUTSIDE_SCOPE"),
        ("jest -c../x.json tests", "PATH_TRAVERSAL"),
        ("jest --globalSetup=/out/x.js tests", "PATH_ABSOLUTE"),
        // All words behind it are values: nothing is named, and jest would choose for itself.
        ("jest --reporters default tests", "PATH_OPTION"),
        ("jest --reporters=default tests", "PATH_OPTION"),
        ("jest tests --reporters default", "ok tests"),
        ("vitest run -w /out tests", "PATH_ABSOLUTE"),
        ("vitest run --logHeapUsage /out tests", "PATH_ABSOLUTE"),
        ("vitest run --bail 2 tests", "ok tests"),
        ("vitest run --changed src tests", "PATH_OPTION"),
        ("vitest run -r=/out tests", "PATH_ABSOLUTE"),
        ("vitest run --coverage.reportsDirectory=/out tests", "PATH_ABSOLUTE"),
        ("vitest run -- tests", "TARGET_REQUIRED"),
        ("cargo nextest run --archive-file /x", "PATH_ABSOLUTE"),
        ("cargo nextest run --manifest-path tests/x.toml --config-file=../n.toml", "PATH_TRAVERSAL"),
        ("cargo nextest run --manifest-path tests/x.toml --tool-config-file=a:/n", "PATH_ABSOLUTE"),
        ("cargo test --manifest-path tests/x.toml --workspace", "PATH_OPTION"),
        ("cargo test --manifest-path tests/x.toml -pother", "PATH_OPTION"),
        ("cargo -C src test --manifest-path tests/x.toml", "PATH_OPTION"),
        ("cargo -qCsrc test --manifest-path tests/x.toml", "PATH_OPTION"),
        ("cargo --color always test --manifest-path tests/x.toml", "ok tests/x.toml"),
        ("sh tests/a.py --dir=/etc", "PATH_ABSOLUTE"),
        ("sh tests/a.py -C../x", "PATH_TRAVERSAL"),
        ("sh tests/a.py --level=3 -x", "ok tests/a.py"),
    ]
    .iter()
    .filter_map(|(line, expected)| {
        let judged = judge(line, &scope(&["tests"]));
        (judged != *expected).then(|| format!("{line}: {judged}, not {expected}"))
    })
    .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_wrapper_hides_no_target() {
    let wrong: Vec<String> = [
        (&[][..], "env pytest-3 /out", "PATH_ABSOLUTE"),
        (&[], "env -i A=/x pytest tests", "ok tests"),
        (&[], "env -u pytest pytest tests", "ok tests"),
        (&[], "timeout 5 pytest-3 /out", "PATH_ABSOLUTE"),
        (&[], "env timeout -k 1 5 nice -n 5 pytest ../x", "PATH_TRAVERSAL"),
        (&[], "uv run --with x pytest /etc", "PATH_ABSOLUTE"),
        (&[], "uv run --with pytest pytest tests", "ok tests"),
        (&[], "uv run -m pytest /etc", "PATH_ABSOLUTE"),
        (&[], "coverage run -m pytest /etc", "PATH_ABSOLUTE"),
        (&[], "poetry run python -m pytest /etc", "PATH_ABSOLUTE"),
        (&[], "pipenv run python3 -Om pytest /etc", "PATH_ABSOLUTE"),
        (&[], "timeout 5 go test /etc", "PATH_ABSOLUTE"),
        (&[], "nice cargo test --manifest-path=/x/Cargo.toml", "PATH_ABSOLUTE"),
        (&[], "pnpm exec vitest run ../x", "PATH_TRAVERSAL"),
        (&[], "npx jest@29 /etc", "PATH_ABSOLUTE"),
        (&[], "pnpm --filter x exec vitest run tests", "PATH_OPTION"),
        (&[], "yarn workspace x jest tests", "PATH_OPTION"),
        (&[], "cargo -C .. test", "PATH_OPTION"),
        (&[], "env -C /etc pytest tests", "PATH_OPTION"),
        (&[], "env --chdir=src pytest tests", "PATH_OPTION"),
        (&[], "uv run --directory src pytest tests", "PATH_OPTION"),
        (&[], "env PYTEST_ADDOPTS=/out pytest tests", "PATH_OPTION"),
        (&["tests"], "env A=/x pytest tests", "ok tests"),
        (&["tests"], "uv run sh src/x.sh pytest tests", "PATH_OUTSIDE_SCOPE"),
        (&["tests"], "uv run --env-file=/x pytest tests", "PATH_ABSOLUTE"),
        (&["tests"], "env pytest", "TARGET_REQUIRED"),
    ]
    .iter()
    .filter_map(|(dirs, line, expected)| {
        let judged = judge(line, &scope(dirs));
        (judged != *expected).then(|| format!("{line}: {judged}, not {expected}"))
    })
    .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn words_are_parted_as_shlex_does_it() {
    for (text, expected) in [
        ("a b\tc\rd\ne", &["a", "b", "c", "d", "e"][..]),
        ("a\u{a0}b\u{b}c\u{c}d\u{2003}e", &["a\u{a0}b\u{b}c\u{c}d\u{2003}e"]),
        (r#""a\b\"c\\d""#, &[r#"a\b"c\d"#]),
        (r"a\ b\\c", &[r"a b\c"]),
        (r"'a\b' ''", &[r"a\b", ""]),
        ("--junitprefix=a\u{a0}-k /out", &["--junitprefix=a\u{a0}-k", "/out"]),
    ] {
        assert_eq!(split_words(text), expected, "{text:?}");
    }
}

#[test]
fn who_is_refused_for_want_of_a_target_is_told_what_would_be_one() {
    for (line, hint) in [
        ("cargo test", "--manifest-path"),
        ("cargo nextest run", "--manifest-path"),
        ("pytest", "files or directories"),
    ] {
        let (words, scope) = (words(line), scope(&["tests"]));
        let decided = decide_presence(&scope, read_command(&words).runner, &[], false);
        assert!(decided.expect_err(line).hint.contains(hint), "{line}");
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
        (&["pytest"], "python3 -Ic '-1;import os' -m pytest tests", false),
        (&["pytest"], "python3 -- -m pytest tests", false),
        (&["pytest"], "python3 - -m pytest tests", false),
        (&["pytest"], "python3 -Xc -m pytest tests", true),
        (&["pytest"], "python3 -X -c -m pytest tests", true),
        (&["pytest"], "python3 -W error -OIm pytest tests", true),
        (&["pytest"], "python3 -mpytest tests", true),
        (&["pytest"], "python3 -mhttp.server -m pytest", false),
        (&["pytest"], "python3 -Z -m pytest tests", false),
        (&["pytest"], "python3 --check-hash-based-pycs -m pytest tests", false),
        (&["pytest"], "env pytest", false),
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
