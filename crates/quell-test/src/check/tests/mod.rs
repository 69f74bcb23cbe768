//! Tables of command lines: which are allowed, and with which code the others are refused.

mod lines;
mod names;
mod targets;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use quell_core::{Background, JobRequest};
use tempfile::TempDir;

use lines::{FOREIGN, ORDINARY};

use super::command::read_command;
use super::scope::Resolved;
use super::*;
use crate::runners::shlex_split;

/// A directory in which only these files exist.
fn cwd() -> &'static Path {
    static DIR: OnceLock<(PathBuf, TempDir)> = OnceLock::new();
    let made = DIR.get_or_init(|| {
        let dir = TempDir::new().expect("a directory");
        let path = dir.path().canonicalize().expect("a path");
        for name in ["tests/pkg", "tests_evil", "src", "pkg", "7", "logical", "term", "strict"] {
            fs::create_dir_all(path.join(name)).expect("mkdir");
        }
        for name in ["pytest.ini", "tests.js", "tests/x.toml", "tests/x|.", "tests/[id].js"] {
            fs::write(path.join(name), "").expect("a file");
        }
        fs::write(path.join("tests/a.py"), "class TestX(Case):\n    pass\n").expect("a file");
        (path, dir)
    });
    &made.0
}

/// `ok`, or the code of the refusal, with this scope. `/srv` in a line is replaced by the working directory.
fn decide(line: &str, scope: &[&str]) -> String {
    decide_with(line, scope, &[], false)
}

/// The same, with `guard.test.allow`, and whether `guard.test.commands` lists the program.
fn decide_with(line: &str, scope: &[&str], allow: &[&str], listed: bool) -> String {
    let line = line.replace("/srv", &cwd().display().to_string());
    let words: Vec<OsString> = shlex_split(&line).into_iter().map(OsString::from).collect();
    let scope = scope.iter().map(PathBuf::from).collect();
    let plan = TestPlan { scope, ..TestPlan::new(JobRequest::new(words, Background::default())) };
    let policy = TestPolicy {
        allow: allow.iter().map(ToString::to_string).collect(),
        commands_lift_scope: listed,
        ..TestPolicy::default()
    };
    let checked = check(&policy, &plan, cwd(), Path::new("/none"));
    checked.map_or_else(|refusal| refusal.code.to_string(), |_| "ok".into())
}

/// Decides about each line, and fails with all lines that were not decided as expected.
fn assert_decisions<'l>(rows: impl IntoIterator<Item = (&'l str, &'l str)>, decide: impl Fn(&str) -> String) {
    let decided = rows.into_iter().map(|(line, expected)| (line, expected, decide(line)));
    let wrong = decided.filter(|(_, expected, decided)| decided != expected);
    let wrong: Vec<String> =
        wrong.map(|(line, expected, decided)| format!("{line}: {decided}, not {expected}")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn targets_behind_a_wrapper_are_checked() {
    for (dirs, line, expected) in [
        (&[][..], "env pytest-3 /out", "PATH_ABSOLUTE"),
        (&[], "env -i A=/x pytest tests", "ok"),
        (&[], "timeout 5 pytest-3 /out", "PATH_ABSOLUTE"),
        (&[], "env timeout -k 1 5 nice -n 5 pytest ../x", "PATH_TRAVERSAL"),
        (&[], "uv run --with x pytest /etc", "PATH_ABSOLUTE"),
        (&[], "uv run --with=pytest pytest tests", "ok"),
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
        (&[], "setsid pytest tests", "PATH_OPTION"),
        (&[], "setsid -c pytest tests", "PATH_OPTION"),
        (&[], "nice /usr/bin/setsid cargo test", "PATH_OPTION"),
        (&[], "timeout 60 setsid ./run.sh -w", "PATH_OPTION"),
        (&[], "setsid -cw pytest tests", "ok"),
        (&[], "env setsid --wait ./run.sh", "ok"),
        (&[], "./run.sh setsid", "ok"),
        (&["tests"], "setsid pytest tests", "PATH_OPTION"),
        (&["tests"], "env A=/x pytest tests", "ok"),
        (&["tests"], "uv run sh src/x.sh pytest tests", "COMMAND_NOT_ALLOWED"),
        (&["tests"], "uv run --env-file=/x pytest tests", "OPTION_NOT_ALLOWED"),
        (&["tests"], "env pytest", "TARGET_REQUIRED"),
    ] {
        assert_eq!(decide(line, dirs), expected, "{line}");
    }
}

#[test]
fn ordinary_command_lines_pass_with_a_scope() {
    assert_decisions(ORDINARY.iter().map(|line| (*line, "ok")), |line| decide(line, &["tests"]));
    let whole = [
        "cargo test -p crate --lib name -- --nocapture",
        "cargo nextest run --workspace",
        "pytest .",
        "pytest",
    ];
    for line in whole {
        assert!(decide(line, &["."]).starts_with("ok"), "{line}: {}", decide(line, &["."]));
    }
}

#[test]
fn other_code_is_refused_with_a_scope_and_allowed_without_one() {
    assert_decisions(FOREIGN.iter().copied(), |line| decide(line, &["tests"]));
    for (line, expected) in FOREIGN.iter().filter(|(_, code)| code.ends_with("NOT_ALLOWED")) {
        // The working directory as the scope is a scope, too.
        assert_eq!(decide(line, &["."]), *expected, "{line}");
        let free = decide(line, &[]);
        assert!(!free.contains("NOT_ALLOWED"), "{line}: {free}");
    }
}

#[test]
fn an_incomplete_command_line_does_not_panic() {
    let lines = ORDINARY.iter().chain(FOREIGN.iter().map(|(line, _)| line));
    for line in lines {
        let words = shlex_split(line);
        for length in 0..=words.len() {
            for scope in [&["tests"][..], &[]] {
                let quoted: Vec<String> = words[..length].iter().map(|word| format!("'{word}'")).collect();
                decide(&quoted.join(" "), scope);
            }
        }
    }
}

#[test]
fn a_policy_can_allow_what_is_refused_with_a_scope() {
    let scope = &["tests"][..];
    for (allow, line, expected) in [
        ("-p", "pytest -p xdist tests", "ok"),
        ("--foo", "npx --foo=x jest tests", "ok"),
        ("--foo", "npx --foo -- jest tests", "ok"),
        ("--foo", "npx --foo jest -w 2 tests", "PATH_OPTION"),
        ("-o pythonpath=*", "pytest -o pythonpath=src tests", "ok"),
        ("-p no:logging", "pytest -p no:logging tests", "ok"),
        ("-p no:logging", "pytest -p no:terminal tests", "OPTION_NOT_ALLOWED"),
        ("-o pythonpath=*", "pytest -o filterwarnings=x tests", "OPTION_NOT_ALLOWED"),
        ("--alluredir", "pytest --alluredir=out tests", "ok"),
        ("--alluredir", "pytest --alluredir=/out tests", "PATH_ABSOLUTE"),
        ("--rootdir", "pytest --rootdir=src tests", "ok"),
        ("--timeout", "pytest --timeout src tests", "PATH_OPTION"),
        ("--timeout", "pytest --timeout src[x tests", "PATH_OPTION"),
        ("--basetemp", "pytest --basetemp=src tests", "PATH_PROTECTED"),
        ("--junitxml", "pytest --junitxml=out tests", "ok"),
        ("--junitxml", "pytest --junitxml=quell.toml tests", "PATH_PROTECTED"),
        ("--reporters", "jest --reporters=x tests", "PATH_OPTION"),
        ("--config", "jest --config=tests/x.toml tests", "ok"),
        ("PYTHONPATH", "env PYTHONPATH=src pytest tests", "ok"),
        ("-C", "cargo -C src test --manifest-path tests/x.toml", "PATH_OPTION"),
        ("*", "cargo run --manifest-path tests/x.toml", "COMMAND_NOT_ALLOWED"),
    ] {
        assert_eq!(decide_with(line, scope, &[allow], false), expected, "{line}");
    }
    assert_eq!(decide_with("make tests", scope, &[], true), "ok");
    assert_eq!(
        decide_with("cargo run --manifest-path tests/x.toml", scope, &[], true),
        "COMMAND_NOT_ALLOWED"
    );
}

#[test]
fn words_are_split_as_shlex_does() {
    for (text, expected) in [
        ("a b\tc\rd\ne", &["a", "b", "c", "d", "e"][..]),
        ("a\u{a0}b\u{b}c\u{c}d\u{2003}e", &["a\u{a0}b\u{b}c\u{c}d\u{2003}e"]),
        (r#""a\b\"c\\d""#, &[r#"a\b"c\d"#]),
        (r"a\ b\\c", &[r"a b\c"]),
        (r"'a\b' ''", &[r"a\b", ""]),
        ("--junitprefix=a\u{a0}-k /out", &["--junitprefix=a\u{a0}-k", "/out"]),
    ] {
        assert_eq!(shlex_split(text), expected, "{text:?}");
    }
}

#[test]
fn a_refusal_without_a_target_says_how_to_name_one() {
    for (line, hint) in [
        ("cargo test", "--manifest-path"),
        ("cargo nextest run", "--manifest-path"),
        ("pytest", "files or directories"),
    ] {
        let decided =
            check_required_target(&scope(&["tests"]), read_command(&shlex_split(line)).runner, &[], false);
        assert!(decided.expect_err(line).hint.contains(hint), "{line}");
    }
}

#[test]
fn a_wrapper_before_a_script_is_refused_by_its_name_with_what_to_do() {
    for line in ["env CI=1 sh tests/run.sh", "timeout 5 sh tests/run.sh", "nice ./tests/run.sh", "uv run x"] {
        let words: Vec<OsString> = shlex_split(line).into_iter().map(OsString::from).collect();
        let plan = TestPlan {
            scope: vec!["tests".into()],
            ..TestPlan::new(JobRequest::new(words, Background::default()))
        };
        let refusal = check(&TestPolicy::default(), &plan, cwd(), Path::new("/none")).expect_err(line);
        let wrapper = line.split(' ').next().unwrap_or_default();
        assert_eq!(refusal.code.as_str(), "COMMAND_NOT_ALLOWED", "{line}");
        assert!(
            refusal.reason.starts_with(&format!("with a scope `{wrapper}` ")),
            "{line}: {}",
            refusal.reason
        );
        assert!(refusal.hint.contains(&format!("without `{wrapper}`")), "{line}: {}", refusal.hint);
    }
}

fn scope(dirs: &[&str]) -> Scope {
    let cwd = PathBuf::from("/srv");
    let dirs = dirs.iter().map(|dir| (cwd.join(dir), cwd.join(dir))).collect();
    Scope { cwd, dirs, rule: "--scope".into() }
}

#[test]
fn without_a_scope_everything_below_the_working_directory_is_allowed() {
    for (line, expected) in [
        ("pytest", "ok"),
        ("pytest src tests", "ok"),
        ("pytest ../x", "PATH_TRAVERSAL"),
        ("pytest none", "PATH_MISSING"),
        ("pytest -p xdist --cov-config x.ini -o cache_dir=out/x tests", "ok"),
        ("pytest --x=/etc/a=b", "PATH_ABSOLUTE"),
        ("pytest --x=html:/out", "PATH_ABSOLUTE"),
        ("go test -ldflags='-X a/b.V=1' -coverpkg ./... -exec x ./pkg", "ok"),
        ("cargo test --target-dir out --config x", "ok"),
        ("go test ./...", "ok"),
        ("cargo test name", "ok"),
        ("vitest run some-pattern", "ok"),
        ("make /etc/passwd", "ok"),
        ("python -m unittest anything", "ok"),
        ("pytest --basetemp=.", "PATH_PROTECTED"),
    ] {
        assert_eq!(decide(line, &[]), expected, "{line}");
    }
    assert_eq!(decide("pytest", &["."]), "ok", "the scope is the whole working directory");
}

#[test]
fn a_link_that_leads_out_is_refused() {
    let scope = scope(&["tests"]);
    let word = PathWord { path: "tests/link".into(), role: PathRole::Target, exists: true };
    let written = PathBuf::from("/srv/tests/link");
    for (real, code) in [
        ("/etc", "PATH_SYMLINK_ESCAPE"),
        ("/srv/src", "PATH_SYMLINK_ESCAPE"),
        ("/srv/tests_evil/x", "PATH_SYMLINK_ESCAPE"),
        ("/srv", "PATH_SYMLINK_ESCAPE"),
        ("/srv/tests/other", ""),
    ] {
        let found = Resolved { written: written.clone(), real: real.into(), exists: true };
        let decided = check_location(&scope, &word, &found);
        assert_eq!(
            decided.err().map(|decision| decision.code.to_string()).unwrap_or_default(),
            code,
            "{real}"
        );
    }
}

#[test]
fn with_a_narrow_scope_no_target_of_jest_is_a_pattern_for_other_files() {
    for line in ["jest 'tests/x|.'", "npx jest 'tests/x|.'", "jest '--testPathPattern=tests/x|.'"] {
        assert_eq!(decide(line, &["tests"]), "PATH_OPTION", "{line}");
        assert_eq!(decide(line, &["."]), "ok", "{line}");
    }
}

/// jest compares its patterns with absolute paths: without this, `tests` would match every file of a project below a directory `tests`.
#[test]
fn with_a_narrow_scope_jest_gets_each_target_as_the_pattern_of_one_absolute_path() {
    let dir = TempDir::new().expect("a directory");
    let cwd = dir.path().canonicalize().expect("a path").join("tests/c++ (1)/a.pp");
    fs::create_dir_all(cwd.join("tests/pkg")).expect("mkdir");
    for name in ["tests/a.test.js", "tests/[id].js", "tests/["] {
        fs::write(cwd.join(name), "").expect("a file");
    }
    let words_of = |words: Vec<OsString>, scope: &str| {
        let plan = TestPlan {
            scope: vec![scope.into()],
            ..TestPlan::new(JobRequest::new(words, Background::default()))
        };
        check(&TestPolicy::default(), &plan, &cwd, Path::new("/none")).expect("allowed").words
    };
    let above = dir.path().canonicalize().expect("a path").display().to_string().replace('.', r"\.");
    for (line, scope, expected) in [
        ("npx jest tests", "tests", "npx jest ROOT/tests/"),
        ("npx jest ./tests/a.test.js --ci", "tests", r"npx jest ROOT/tests/a\.test\.js --ci"),
        (
            "npx jest tests/pkg 'tests/[id].js' tests/[",
            "tests",
            r"npx jest ROOT/tests/pkg/ ROOT/tests/\[id\]\.js ROOT/tests/\[",
        ),
        // Only some versions of jest know each of these options.
        ("npx jest --ci --testPathPattern=tests", "tests", "npx jest --ci ROOT/tests/"),
        ("npx jest --test-path-patterns=tests", "tests", "npx jest ROOT/tests/"),
        ("npx jest --rootDir=tests", "tests", "npx jest --rootDir=tests"),
        ("npx jest --runTestsByPath tests/a.test.js", "tests", "npx jest --runTestsByPath tests/a.test.js"),
        ("npx jest tests -t tests", "tests", "npx jest ROOT/tests/ -t tests"),
        ("npx jest 'te.*'", ".", "npx jest 'te.*'"),
        ("npx vitest run tests", "tests", "npx vitest run tests"),
    ] {
        let root = format!(r"{above}/tests/c\+\+ \(1\)/a\.pp");
        let given: Vec<OsString> = shlex_split(line).into_iter().map(OsString::from).collect();
        let expected: Vec<OsString> = expected
            .split(' ')
            .skip(1)
            .map(|word| word.replace("ROOT", &root).replace('\'', "").into())
            .collect();
        let once = words_of(given, scope);
        assert_eq!(once[1..], expected, "{line}");
        // The keeper checks the same words again.
        assert_eq!(words_of(once, scope)[1..], expected, "{line}");
    }
}

#[test]
fn a_target_of_jest_is_refused_if_only_case_tells_it_from_files_outside_the_scope() {
    let dir = TempDir::new().expect("a directory");
    let cwd = dir.path().canonicalize().expect("a path");
    for name in ["tests/unit", "tests/Unit", "Tests", "e2e", "Other"] {
        fs::create_dir_all(cwd.join(name)).expect("mkdir");
    }
    for (target, scope, expected) in [
        ("tests", "tests", "PATH_OPTION"),
        ("tests/unit", "tests", "PATH_OPTION"),
        ("e2e", "e2e", "ok"),
        ("Tests", ".", "ok"),
    ] {
        let plan = TestPlan {
            scope: vec![scope.into()],
            ..TestPlan::new(JobRequest::new(["jest", target], Background::default()))
        };
        let checked = check(&TestPolicy::default(), &plan, &cwd, Path::new("/none"));
        let decided = checked.map_or_else(|refusal| refusal.code.to_string(), |_| "ok".into());
        assert_eq!(decided, expected, "{target} {scope}");
    }
}

#[test]
fn the_values_of_a_scripts_options_are_checked_as_targets() {
    for line in ["tests/a.py --x=src/y", "sh tests/a.py -Csrc", "python3 tests/a.py --x=src"] {
        assert_eq!(decide(line, &["tests"]), "PATH_OUTSIDE_SCOPE", "{line}");
    }
    assert_eq!(decide_with("make --x=src/y tests", &["tests"], &[], true), "PATH_OUTSIDE_SCOPE");
}

#[test]
fn approval_is_a_flag_or_a_variable_that_says_yes() {
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
        let decided = check_approval(&policy, flag, variable.unwrap_or_default());
        assert_eq!(decided.is_ok(), approved, "{flag} {variable:?}");
        if let Err(decision) = decided {
            assert_eq!(decision.code.as_str(), "APPROVAL_REQUIRED");
        }
    }
    assert!(check_approval(&TestPolicy::default(), false, "").is_ok());
}
