//! `quell test` with a scope: nothing is loaded or run but the tests that are named, as far as words, variables and files decide that;
//! and the result of a runner is not decided by what its tests print.

use std::{fs, os::unix::fs::symlink};

use quell_tests::{
    host::has_program,
    run::{Finished, Quell},
    skip,
    test_env::TestEnv,
};
use serde_json::{Value, json};

use crate::guard::decisions::verb;
use crate::test_verb::{RUNNER, data, fits, test_env};

/// The code of the refusal, or the status.
fn outcome(done: &Finished) -> String {
    let envelope = done.envelope();
    let word = envelope["error"]["code"].as_str().or(envelope["data"]["status"].as_str());
    word.unwrap_or("nothing").to_owned()
}

fn reason(done: &Finished) -> String {
    let envelope = done.envelope();
    let said = [&envelope["error"]["message"], &envelope["data"]["reason"]];
    said.iter().find_map(|said| said.as_str()).unwrap_or_default().to_owned()
}

fn scoped<'l>(env: &'l TestEnv, words: &[&str]) -> Quell<'l> {
    let quell = env.quell("test").args(["--json", "--scope", "tests"]).env("PYTHONDONTWRITEBYTECODE", "1");
    quell.command(words)
}

/// An environment with a test, and with a module that leaves a file when it is loaded.
fn with_module() -> TestEnv {
    let env = test_env();
    env.write("tests/test_a.py", "def test_a():\n    pass\n");
    env.write("src/test_src.py", &format!("open({:?}, 'w')\ndef test_src():\n    pass\n", env.path("ran")));
    env.write("src/evil.py", &format!("open({:?}, 'w')\n", env.path("ran")));
    env
}

/// Programs under the names of runners, which leave a file when they are run.
fn with_runners() -> TestEnv {
    let env = test_env();
    for name in ["pytest", "python3", "cargo", "go", "jest", "vitest", "env", "npx", "uv", "make", "sh"] {
        env.script(name, RUNNER);
    }
    env.write("tests/test_a.py", "");
    env.write("tests/Cargo.toml", "");
    env
}

#[test]
fn a_scope_lets_no_word_load_code_or_run_something_else() {
    let env = with_runners();
    for (line, code) in [
        ("./pytest -p evil tests", "OPTION_NOT_ALLOWED"),
        ("./pytest -c tests/x.ini tests", "OPTION_NOT_ALLOWED"),
        ("./pytest --rootdir=src tests", "OPTION_NOT_ALLOWED"),
        ("./python3 -X presite=evil -m pytest tests", "COMMAND_NOT_ALLOWED"),
        ("./python3 -c x tests", "COMMAND_NOT_ALLOWED"),
        ("./cargo --config x test --manifest-path tests/Cargo.toml", "OPTION_NOT_ALLOWED"),
        (
            "./cargo test --config build.rustc-wrapper='x' --manifest-path tests/Cargo.toml",
            "OPTION_NOT_ALLOWED",
        ),
        ("./cargo +/x test --manifest-path tests/Cargo.toml", "PATH_OPTION"),
        ("./cargo run --manifest-path tests/Cargo.toml", "COMMAND_NOT_ALLOWED"),
        ("./go test -exec x ./tests", "OPTION_NOT_ALLOWED"),
        ("./go test -toolexec=x ./tests", "OPTION_NOT_ALLOWED"),
        ("./go test -ldflags=-extld=x ./tests", "OPTION_NOT_ALLOWED"),
        ("./jest --setupFiles=./x tests", "OPTION_NOT_ALLOWED"),
        ("./jest --modulePaths=x tests", "OPTION_NOT_ALLOWED"),
        ("./vitest run --environment=./x tests", "OPTION_NOT_ALLOWED"),
        ("./vitest run --reporter=./x tests", "OPTION_NOT_ALLOWED"),
        ("./env -Sx ./pytest tests", "OPTION_NOT_ALLOWED"),
        ("./env PYTHONPATH=src ./pytest tests", "OPTION_NOT_ALLOWED"),
        ("./npx evil/jest tests", "PATH_OPTION"),
        ("./uv run --with evil pytest tests", "OPTION_NOT_ALLOWED"),
        ("make tests", "COMMAND_NOT_ALLOWED"),
        ("./make tests", "PATH_OUTSIDE_SCOPE"),
        ("./sh -c x tests", "COMMAND_NOT_ALLOWED"),
        ("./pytest tests", "pass"),
        ("./cargo test --manifest-path tests/Cargo.toml --lib name -- --nocapture", "pass"),
        ("./go test ./tests -run X -v -count=1 -race -timeout 30s", "pass"),
        ("./npx jest tests -t name --runInBand --ci", "pass"),
        ("./npx vitest run tests", "pass"),
    ] {
        let done = scoped(&env, &line.split(' ').collect::<Vec<_>>()).finish();
        assert_eq!(outcome(&done), code, "{line}: {}", done.stdout);
        let ran = fs::remove_file(env.path("ran")).is_ok();
        assert_eq!(ran, code == "pass", "{line}");
        if code.ends_with("NOT_ALLOWED") {
            let hint = done.envelope()["error"]["hint"].as_str().unwrap_or_default().to_owned();
            let way = ["guard.test.allow", "guard.test.commands", "use that"];
            assert!(way.iter().any(|way| hint.contains(way)), "{line}: {hint}");
        }
        // Without a scope all of it is allowed.
        if code == "OPTION_NOT_ALLOWED" && !line.contains("-c tests") && !line.contains("--config x") {
            let done = env.quell("test").args(["--json"]).command(line.split(' ')).finish();
            assert_ne!(outcome(&done), code, "{line}");
            let _ = fs::remove_file(env.path("ran"));
        }
    }
}

#[test]
fn a_policy_of_the_user_allows_options_and_variables_and_one_of_a_project_does_not() {
    let env = with_runners();
    let policy = "[guard.test]\nscope = [\"tests\"]\nallow = [\"--alluredir\", \"MY*\", \"PYTHONPATH\"]\n";
    let own = env.write("own.toml", policy);
    let call = |own: Option<&std::path::Path>, words: &[&str]| {
        let quell = env.quell("test").args(["--json"]).command(words);
        let quell = if let Some(own) = own { quell.env("QUELL_CONFIG", own) } else { quell };
        outcome(&quell.finish())
    };
    assert_eq!(call(Some(&own), &["./pytest", "--alluredir=out", "tests"]), "pass");
    assert_eq!(call(Some(&own), &["./pytest", "--alluredir=/out", "tests"]), "PATH_ABSOLUTE");
    assert_eq!(call(Some(&own), &["./env", "PYTHONPATH=src", "./pytest", "tests"]), "pass");
    assert_eq!(call(Some(&own), &["./pytest", "-p", "evil", "tests"]), "OPTION_NOT_ALLOWED");
    env.write("quell.toml", policy);
    assert_eq!(call(None, &["./pytest", "--alluredir=out", "tests"]), "OPTION_NOT_ALLOWED");
}

#[test]
fn variables_that_load_code_do_not_reach_tests_that_have_a_scope() {
    let test = "variables_that_load_code_do_not_reach_tests_that_have_a_scope";
    if !has_program("pytest-3") {
        return skip(test, "no pytest here");
    }
    let env = with_module();
    let words = ["pytest-3", "-p", "no:cacheprovider", "tests"];
    let call = |quell: Quell<'_>| {
        let quell = quell.env("PYTHONPATH", env.path("src")).env("PYTEST_PLUGINS", "evil");
        quell.env("COVERAGE_FILE", env.home().join("audit.jsonl")).finish()
    };
    let done = call(scoped(&env, &words));
    let answer = data(&done);
    assert_eq!((done.code(), &answer["counts"]["passed"]), (Some(0), &json!(1)), "{answer:#}");
    assert!(!env.path("ran").exists(), "{answer:#}");
    let said = answer["problems"].to_string();
    for name in ["PYTHONPATH", "PYTEST_PLUGINS", "COVERAGE_FILE"] {
        assert!(said.contains(name), "{name}: {said}");
    }
    let done = call(env.quell("test").args(["--json"]).env("PYTHONDONTWRITEBYTECODE", "1").command(words));
    assert_eq!(done.code(), Some(0), "{}", done.stdout);
    assert!(env.path("ran").exists(), "without a scope they are the caller's own business");
}

#[test]
fn words_that_pytests_files_add_are_checked_against_the_scope() {
    let test = "words_that_pytests_files_add_are_checked_against_the_scope";
    if !has_program("pytest-3") {
        return skip(test, "no pytest here");
    }
    for (file, text, expected) in [
        ("tests/pytest.ini", "[pytest]\naddopts = src/test_src.py\n", "PATH_OUTSIDE_SCOPE"),
        ("tests/pytest.ini", "[pytest]\naddopts =\n    -q\n    ../src\n", "PATH_TRAVERSAL"),
        ("pytest.ini", "[pytest]\naddopts = -p evil\n", "OPTION_NOT_ALLOWED"),
        ("setup.cfg", "[tool:pytest]\naddopts = --rootdir=src\n", "OPTION_NOT_ALLOWED"),
        ("pyproject.toml", "[tool.pytest.ini_options]\naddopts = ['-c', 'x.ini']\n", "OPTION_NOT_ALLOWED"),
        (
            "pyproject.toml",
            "[tool.pytest.ini_options]\naddopts = '-q --strict-markers -m \"not slow\"'\n",
            "pass",
        ),
    ] {
        let env = with_module();
        env.write(file, text);
        let words = ["pytest-3", "-p", "no:cacheprovider", "tests/test_a.py"];
        let done = scoped(&env, &words).finish();
        assert_eq!(outcome(&done), expected, "{file}: {text}: {}", done.stdout);
        assert!(!env.path("ran").exists(), "{file}: {text}");
        if expected != "pass" {
            assert!(reason(&done).contains(file), "{}", reason(&done));
        }
        let done = scoped(&env, &[&words[..], &["-o", "addopts="]].concat()).finish();
        assert_eq!(outcome(&done), "pass", "{file}: {text}: {}", done.stdout);
    }
    // Where no target is named, another setting chooses them.
    let env = with_module();
    env.write("pytest.ini", "[pytest]\ntestpaths = ../out\n");
    let done = env.quell("test").args(["--json", "--scope", "."]).command(["pytest-3"]).finish();
    assert_eq!(outcome(&done), "PATH_TRAVERSAL", "{}", done.stdout);
}

#[test]
fn the_program_is_found_once_and_executed_by_its_path() {
    let env = with_runners();
    fs::create_dir_all(env.path("bin")).expect("mkdir");
    let found = env.script("bin/pytest", RUNNER);
    let other = TestEnv::as_me();
    let foreign = other.script("pytest", RUNNER).display().to_string();
    let path = format!("{}:/usr/bin:/bin", env.path("bin").display());
    let call = |words: &[&str], policy: &str| {
        let own = env.write("own.toml", policy);
        scoped(&env, words).env("PATH", &path).env("QUELL_CONFIG", own).finish()
    };
    let done = call(&["pytest", "tests"], "");
    assert_eq!(data(&done)["command"][0], found.display().to_string(), "{}", done.stdout);
    assert_eq!(outcome(&call(&[&found.display().to_string(), "tests"], "")), "pass");
    assert_eq!(outcome(&call(&["bin/pytest", "tests"], "")), "pass");
    let pinned = |file: &str| format!("[guard.test]\ncommands = [{file:?}]\n");
    for (words, policy, expected) in [
        (&[foreign.as_str(), "tests"][..], String::new(), "COMMAND_NOT_ALLOWED"),
        (&["env", &foreign, "tests"], String::new(), "COMMAND_NOT_ALLOWED"),
        (&["../pytest", "tests"], String::new(), "COMMAND_NOT_ALLOWED"),
        (&[&foreign, "tests"], pinned("pytest"), "COMMAND_NOT_ALLOWED"),
        (&[&foreign, "tests"], pinned(&foreign), "pass"),
        (&["pytest", "tests"], pinned(&foreign), "COMMAND_NOT_ALLOWED"),
    ] {
        let _ = fs::remove_file(env.path("ran"));
        let done = call(words, &policy);
        assert_eq!(outcome(&done), expected, "{words:?} {policy}: {}", done.stdout);
        assert_eq!(env.path("ran").exists(), expected == "pass", "{words:?} {policy}");
    }
}

/// Those that are meant are resolved first: no link in the middle of a path or at its end leads out.
#[test]
fn a_program_or_a_source_behind_a_link_that_leads_out_is_refused() {
    let env = with_runners();
    let other = TestEnv::as_me();
    let foreign = other.script("pytest", RUNNER);
    other.write("x_test.go", "");
    fs::create_dir_all(env.path("bin")).expect("mkdir");
    fs::create_dir_all(env.path("tests/go")).expect("mkdir");
    symlink(other.dir(), env.path("way")).expect("a link");
    symlink(other.dir(), env.path("tests/way")).expect("a link");
    symlink(&foreign, env.path("bin/pytest")).expect("a link");
    symlink(env.path("pytest"), env.path("bin/py.test")).expect("a link");
    symlink(other.dir().join("x_test.go"), env.path("tests/go/x_test.go")).expect("a link");
    for (line, code) in [
        ("./way/pytest tests/test_a.py", "COMMAND_NOT_ALLOWED"),
        ("tests/way/pytest tests/test_a.py", "COMMAND_NOT_ALLOWED"),
        ("bin/pytest tests/test_a.py", "COMMAND_NOT_ALLOWED"),
        ("./env ./way/pytest tests/test_a.py", "COMMAND_NOT_ALLOWED"),
        ("./sh tests/way/pytest", "PATH_SYMLINK_ESCAPE"),
        ("./go test ./tests/go", "PATH_SYMLINK_ESCAPE"),
        ("bin/py.test tests/test_a.py", "pass"),
    ] {
        let done = scoped(&env, &line.split(' ').collect::<Vec<_>>()).finish();
        assert_eq!(outcome(&done), code, "{line}: {}", done.stdout);
        assert_eq!(fs::remove_file(env.path("ran")).is_ok(), code == "pass", "{line}");
        assert!(!other.path("ran").exists(), "{line}");
    }
    // Sources of a package of cargo's, too.
    symlink(other.dir(), env.path("tests/src")).expect("a link");
    let done = scoped(&env, &["./cargo", "test", "--manifest-path", "tests/Cargo.toml"]).finish();
    assert_eq!(outcome(&done), "PATH_SYMLINK_ESCAPE", "{}", done.stdout);
}

/// What is written of a refusal, or by a runner, has words of the caller's in it.
#[test]
fn no_file_that_a_test_run_writes_is_run_by_another_one() {
    let env = test_env();
    env.write("tests/test_a.py", "");
    let word = format!("--x=$(touch {})", env.path("ran").display());
    for file in ["tests/run.sh", "tests/run", "tests/package.json", "tests/run.json"] {
        let quell = env.quell("test").args(["--json", "--scope", "tests", "--evidence", file]);
        quell.command(["pytest", &word, "tests"]).finish();
        assert_eq!(env.path(file).exists(), file == "tests/run.json", "{file}");
        let done = scoped(&env, &["sh", file]).finish();
        assert!(!env.path("ran").exists(), "{file}: {}", done.stdout);
    }
}

/// Files in the working directory that Python loads for `python -m`, and that are not in the scope.
#[test]
fn no_file_in_the_working_directory_replaces_a_python_module_or_adds_a_plugin() {
    let test = "no_file_in_the_working_directory_replaces_a_python_module_or_adds_a_plugin";
    if !has_program("pytest-3") {
        return skip(test, "no pytest here");
    }
    let pytest = &["python3", "-m", "pytest", "-p", "no:cacheprovider", "tests/test_a.py"][..];
    let unittest = &["python3", "-m", "unittest", "tests/test_a.py"][..];
    let plugin = "[console_scripts]\nx = x:main\n\n [pytest11] \nevil = evil\n";
    let scripts = "[console_scripts]\nx = evil:main\n[gui_scripts]\ny = evil:main\n";
    for (file, text, words, expected) in [
        ("argparse.py", None, pytest, "PATH_OUTSIDE_SCOPE"),
        ("argparse.py", None, unittest, "PATH_OUTSIDE_SCOPE"),
        ("logging/__init__.py", None, pytest, "PATH_OUTSIDE_SCOPE"),
        ("_bisect.py", None, pytest, "PATH_OUTSIDE_SCOPE"),
        ("attr.py", None, pytest, "PATH_OUTSIDE_SCOPE"),
        ("pytest_cov.py", None, pytest, "PATH_OUTSIDE_SCOPE"),
        ("x.egg-info/entry_points.txt", Some(plugin), pytest, "PATH_OUTSIDE_SCOPE"),
        ("X-1.0.DIST-INFO/entry_points.txt", Some(plugin), pytest, "PATH_OUTSIDE_SCOPE"),
        ("EGG-INFO/entry_points.txt", Some(plugin), pytest, "PATH_OUTSIDE_SCOPE"),
        // Not a package, but `python -m` runs it where the module is not installed.
        ("coverage/__main__.py", None, pytest, "PATH_OUTSIDE_SCOPE"),
        ("py/test.py", None, pytest, "PATH_OUTSIDE_SCOPE"),
        ("org.py", None, pytest, "PATH_OUTSIDE_SCOPE"),
        ("org.py", None, unittest, "PATH_OUTSIDE_SCOPE"),
        ("org/__init__.py", None, pytest, "PATH_OUTSIDE_SCOPE"),
        ("org/python/core.py", None, unittest, "PATH_OUTSIDE_SCOPE"),
        ("org/example/Main.java", None, pytest, "pass"),
        ("coverage/index.html", None, pytest, "pass"),
        ("pytest.ini", Some("[pytest]\naddopts\u{1c}= -p evil\n"), pytest, "OPTION_NOT_ALLOWED"),
        ("x.egg-info/entry_points.txt", Some(scripts), pytest, "pass"),
        ("x.egg-info/entry_points.txt", Some(plugin), &["pytest-3", "tests/test_a.py"], "pass"),
        ("argparse.py", None, &["pytest-3", "tests/test_a.py"], "pass"),
        ("test/__init__.py", None, pytest, "pass"),
        ("setup.py", None, pytest, "pass"),
    ] {
        let env = with_module();
        let evil = format!("open({:?}, 'w')\n", env.path("ran"));
        env.write("evil.py", &evil);
        let path = env.path(file);
        fs::create_dir_all(path.parent().expect("a directory")).expect("mkdir");
        fs::write(&path, text.unwrap_or(&evil)).expect("a file");
        let done = scoped(&env, words).finish();
        assert_eq!(outcome(&done), expected, "{file} {words:?}: {}", done.stdout);
        assert!(!env.path("ran").exists(), "{file} {words:?}");
    }
    // In the scope it is the tests' own.
    let env = with_module();
    env.write("tests/argparse.py", "from getopt import *\n");
    assert_eq!(outcome(&scoped(&env, pytest).finish()), "pass");
}

#[test]
fn files_outside_the_scope_do_not_choose_the_programs_of_cargo() {
    let env = with_runners();
    fs::create_dir_all(env.path("any/.cargo")).expect("mkdir");
    fs::create_dir_all(env.path("any/.config")).expect("mkdir");
    fs::create_dir_all(env.path("any/tests/.cargo")).expect("mkdir");
    env.write("any/tests/Cargo.toml", "");
    let (test, nextest) = (&["test"][..], &["nextest", "run"][..]);
    let config = "any/.cargo/config.toml";
    for (file, text, verb, expected) in [
        (config, "[build]\nrustc-wrapper = '/x'\n", test, "OPTION_NOT_ALLOWED"),
        (config, "build = { rustc = '/x' }\n", test, "OPTION_NOT_ALLOWED"),
        (config, "build.rustc-workspace-wrapper = '/x'\n", test, "OPTION_NOT_ALLOWED"),
        (config, "[build]\nrustdoc = '/x'\n", test, "OPTION_NOT_ALLOWED"),
        (config, "[build]\nrustflags = ['-Clinker=/x']\n", test, "OPTION_NOT_ALLOWED"),
        (config, "[target.'cfg(unix)']\nrunner = '/x'\n", test, "OPTION_NOT_ALLOWED"),
        (config, "[target.x86_64-unknown-linux-gnu]\nlinker = '/x'\n", test, "OPTION_NOT_ALLOWED"),
        (config, "[env]\nRUSTC_WRAPPER = '/x'\n", test, "OPTION_NOT_ALLOWED"),
        (config, "[source.crates-io]\nreplace-with = 'x'\n", test, "OPTION_NOT_ALLOWED"),
        (config, "[alias]\nnextest = ['run']\n", nextest, "OPTION_NOT_ALLOWED"),
        (config, "no toml", test, "OPTION_NOT_ALLOWED"),
        ("any/.cargo/config", "[build]\nrustc-wrapper = '/x'\n", test, "OPTION_NOT_ALLOWED"),
        ("any/rust-toolchain.toml", "[toolchain]\npath = '/x'\n", test, "OPTION_NOT_ALLOWED"),
        ("any/rust-toolchain", "[toolchain]\npath = '/x'\n", test, "OPTION_NOT_ALLOWED"),
        ("any/rust-toolchain", "/x\n", test, "OPTION_NOT_ALLOWED"),
        ("rust-toolchain.toml", "[toolchain]\npath = '/x'\n", test, "OPTION_NOT_ALLOWED"),
        ("any/.config/nextest.toml", "[scripts.setup.x]\ncommand = '/x'\n", nextest, "OPTION_NOT_ALLOWED"),
        (
            config,
            "[build]\njobs = 2\ntarget = 'x86_64-unknown-linux-gnu'\n[term]\nquiet = true\n",
            test,
            "pass",
        ),
        (config, "[alias]\nxtask = 'run -p xtask'\n[net]\nretry = 1\n", test, "pass"),
        ("any/rust-toolchain.toml", "[toolchain]\nchannel = '1.85'\n", test, "pass"),
        ("any/rust-toolchain", "stable\n", test, "pass"),
        ("any/.config/nextest.toml", "[profile.ci]\nretries = 2\n", nextest, "pass"),
        ("any/tests/.cargo/config.toml", "[build]\nrustc-wrapper = '/x'\n", test, "pass"),
    ] {
        let path = env.write(file, text);
        let words = [&["../cargo"][..], verb, &["--manifest-path", "tests/Cargo.toml"]].concat();
        let (scope, cargo) = (env.path("any/tests"), env.path("any/../cargo"));
        let call = |keys: &str| {
            let rules =
                format!("[guard.test]\nscope = [{scope:?}]\ncommands = [{cargo:?}]\nallow = [{keys}]\n");
            let quell = env.quell("test").args(["--json"]).wrapped(["env", "-C", "any"]).command(&words);
            quell.env("QUELL_CONFIG", env.write("own.toml", &rules)).finish()
        };
        let done = call("");
        assert_eq!(outcome(&done), expected, "{file} {text}: {}", done.stdout);
        assert_eq!(fs::remove_file(env.path("ran")).is_ok(), expected == "pass", "{file} {text}");
        if text.contains("rustc-wrapper") {
            assert_eq!(outcome(&call("\"build.rustc-wrapper\"")), "pass", "{file} {text}");
        }
        let _ = fs::remove_file(env.path("ran"));
        fs::remove_file(path).expect("the file");
    }
}

/// A listed program may be told anything, so such a list is only as strong as the file that it is in.
#[test]
fn commands_of_a_project_narrow_the_users_scope_and_never_lift_it() {
    let env = with_runners();
    let other = TestEnv::as_me();
    let foreign = other.script("pytest", RUNNER).display().to_string();
    let scope = format!("[guard.test]\nscope = [{:?}]\n", env.path("tests"));
    let trusting = format!("[trust]\nprojects = [{:?}]\n{scope}", env.dir());
    let list = |names: &str| format!("[guard.test]\ncommands = [{names}]\n");
    let shell = &["./sh", "-c", "id", "tests"][..];
    for (user, project, words, expected) in [
        (scope.clone(), String::new(), shell, "COMMAND_NOT_ALLOWED"),
        (scope.clone(), list("\"sh\""), shell, "COMMAND_NOT_ALLOWED"),
        (scope.clone(), list("\"*\""), &["./make", "tests"], "PATH_OUTSIDE_SCOPE"),
        (scope.clone(), list(&format!("{foreign:?}")), &[&foreign, "tests"], "COMMAND_NOT_ALLOWED"),
        (trusting.clone(), list("\"sh\""), shell, "COMMAND_NOT_ALLOWED"),
        (scope.clone(), list("\"sh\""), &["./pytest", "tests"], "COMMAND_NOT_ALLOWED"),
        (scope.clone(), list("\"pytest\""), &["./pytest", "tests"], "pass"),
        (format!("{scope}commands = [\"sh\"]\n"), String::new(), shell, "pass"),
        (list("\"sh\""), "[guard.test]\nscope = [\"tests\"]\n".into(), shell, "pass"),
    ] {
        let own = env.write("own.toml", &user);
        env.write("quell.toml", &project);
        let quell = env.quell("test").args(["--json"]).command(words).env("QUELL_CONFIG", own);
        let done = quell.finish();
        assert_eq!(outcome(&done), expected, "{user}{project}{words:?}: {}", done.stdout);
        assert_eq!(fs::remove_file(env.path("ran")).is_ok(), expected == "pass", "{user}{project}{words:?}");
    }
    // A scope of the caller's is stronger than a project, also than a trusted one.
    env.write("quell.toml", &list("\"sh\""));
    for (user, expected) in [
        (String::new(), "COMMAND_NOT_ALLOWED"),
        (format!("[trust]\nprojects = [{:?}]\n", env.dir()), "COMMAND_NOT_ALLOWED"),
        (list("\"sh\""), "pass"),
    ] {
        let own = env.write("own.toml", &user);
        let done = scoped(&env, shell).env("QUELL_CONFIG", own).finish();
        assert_eq!(outcome(&done), expected, "{user}: {}", done.stdout);
        assert_eq!(fs::remove_file(env.path("ran")).is_ok(), expected == "pass", "{user}");
    }
    // The user's two files are one place.
    env.write("quell.toml", "");
    fs::create_dir_all(env.path(".config/quell")).expect("mkdir");
    env.write(".config/quell/config.toml", &scope);
    env.write(".config/quell/guard.toml", &list("\"sh\""));
    let done = verb(&env, "test").args(["--json"]).command(shell).finish();
    assert_eq!(outcome(&done), "pass", "{}", done.stdout);
}

#[test]
fn a_target_inside_the_scope_may_be_written_in_any_plain_way() {
    let test = "a_target_inside_the_scope_may_be_written_in_any_plain_way";
    if !has_program("pytest-3") {
        return skip(test, "no pytest here");
    }
    let env = with_module();
    let here = env.dir().canonicalize().expect("a path").display().to_string();
    let link = TestEnv::as_me();
    symlink(env.dir(), link.path("way")).expect("a link");
    let way = link.path("way").display().to_string();
    symlink(env.path("src"), env.path("tests/link")).expect("a link");
    // A name with a backslash, which is part of the name here, and the path that it would be on Windows.
    env.write("tests\\test_b.py", &format!("open({:?}, 'w')\n", env.path("ran")));
    env.write("tests/test_b.py", "def test_b():\n    pass\n");
    let inside = |name: &str| format!("{here}/{name}");
    for (target, expected, part) in [
        ("./tests/test_a.py".to_owned(), "pass", ""),
        ("././tests//test_a.py::test_a".into(), "pass", ""),
        (inside("tests/test_a.py"), "pass", ""),
        (inside("tests/test_a.py::test_a"), "pass", ""),
        (format!("{way}/tests/test_a.py"), "pass", ""),
        ("tests\\test_a.py".into(), "pass", ""),
        (".\\tests\\test_a.py::test_a".into(), "pass", ""),
        (".".into(), "PATH_OUTSIDE_SCOPE", "`.`"),
        (here.clone(), "PATH_OUTSIDE_SCOPE", "not below tests"),
        (inside("src/test_src.py"), "PATH_OUTSIDE_SCOPE", "src/test_src.py"),
        (inside("tests/../src"), "PATH_TRAVERSAL", "`..`"),
        (inside("tests/link/test_src.py"), "PATH_SYMLINK_ESCAPE", "through a link"),
        ("./tests/link".into(), "PATH_SYMLINK_ESCAPE", "through a link"),
        (format!("{here}x/tests"), "PATH_ABSOLUTE", "absolute"),
        ("/etc/passwd".into(), "PATH_ABSOLUTE", "absolute"),
        ("tests\\..\\src".into(), "PATH_TRAVERSAL", "`..`"),
        ("src\\test_src.py".into(), "PATH_OUTSIDE_SCOPE", "src/test_src.py"),
        ("tests\\link\\test_src.py".into(), "PATH_SYMLINK_ESCAPE", "through a link"),
        ("tests\\test_b.py".into(), "PATH_OUTSIDE_SCOPE", "test_b.py"),
    ] {
        let quell = scoped(&env, &["pytest-3", "-p", "no:cacheprovider", &target]).env("PWD", &way);
        let done = quell.finish();
        assert_eq!(outcome(&done), expected, "{target}: {}", done.stdout);
        assert!(reason(&done).contains(part), "{target}: {}", reason(&done));
        assert!(!env.path("ran").exists(), "{target}");
        if expected == "pass" {
            assert_eq!(data(&done)["counts"]["passed"], 1, "{target}: {}", done.stdout);
        }
    }
    // The scope itself, too; and all of the working directory, with nothing that leads out.
    fs::remove_file(env.path("tests/link")).expect("the link");
    fs::remove_file(env.path("tests\\test_b.py")).expect("the file");
    for (scope, target) in [
        ("./tests", "tests"),
        (&inside("tests"), "./tests"),
        ("tests\\", "tests"),
        (".", "tests"),
        (&here, "."),
    ] {
        let words = ["pytest-3", "-p", "no:cacheprovider", "--ignore=src", target];
        let done = env.quell("test").args(["--json", "--scope", scope]).command(words).finish();
        assert_eq!(outcome(&done), "pass", "{scope} {target}: {}", done.stdout);
        assert_eq!(data(&done)["counts"]["passed"], 2, "{scope} {target}");
    }
}

#[test]
fn a_runner_that_is_not_installed_is_an_error_and_not_a_test_failure() {
    let env = test_env();
    env.script("python3", "#!/bin/sh\necho \"$0: No module named pytest\" >&2\nexit 1\n");
    env.script("npx", "#!/bin/sh\necho 'npm error could not determine executable to run' >&2\nexit 1\n");
    env.script("cargo", "#!/bin/sh\necho 'error: no such command: `nextest`' >&2\nexit 101\n");
    env.script("uv", "#!/bin/sh\necho 'error: Failed to spawn: `pytest`' >&2\nexit 2\n");
    env.script("pipenv", "#!/bin/sh\necho 'Error: the command pytest could not be found' >&2\nexit 1\n");
    env.script(
        "npm",
        "#!/bin/sh\necho 'npm error npx canceled due to missing packages and no YES option: [\"jest@30\"]' >&2\nexit 1\n",
    );
    env.script(
        "pytest",
        "#!/bin/sh\necho 'No module named pytest'\necho '=== 1 failed in 0.1s ==='\nexit 1\n",
    );
    for (words, code, status, why) in [
        (&["./python3", "-m", "pytest", "tests"][..], 125, "error", "No module named pytest"),
        (&["./npx", "jest", "tests"], 125, "error", "could not determine executable"),
        (&["./cargo", "nextest", "run"], 125, "error", "no such command: `nextest`"),
        (&["./uv", "run", "pytest", "tests"], 125, "error", "Failed to spawn: `pytest`"),
        (&["./pipenv", "run", "pytest", "tests"], 125, "error", "before it had reported its results"),
        (&["./npm", "exec", "--", "jest", "tests"], 125, "error", "missing packages"),
        (&["./cargo", "test"], 125, "error", "no such command"),
        (&["./python3", "-m", "unittest", "tests"], 125, "error", "No module named"),
        (&["node_modules/.bin/jest", "tests"], 125, "error", "node_modules/.bin/jest"),
        (&["env", "node_modules/.bin/jest", "tests"], 125, "error", "not found"),
        (&["no-such-dir/go", "test", "."], 125, "error", "no-such-dir/go"),
        (&["env", "no-such-runner"], 125, "error", "not found"),
        (&["sh", "-c", "no-such-runner"], 125, "error", "not found"),
        (&["./pytest", "tests"], 1, "fail", "exited with 1"),
    ] {
        let done = env.quell("test").args(["--json"]).command(words).finish();
        let answer = data(&done);
        assert_eq!((done.code(), &answer["status"]), (Some(code), &json!(status)), "{words:?}: {answer:#}");
        assert!(reason(&done).contains(why), "{words:?}: {}", reason(&done));
        fits("a runner that is missing", &answer);
    }
}

#[test]
fn output_of_tests_does_not_change_the_result_of_the_runner() {
    let test = "output_of_tests_does_not_change_the_result_of_the_runner";
    if !has_program("pytest-3") {
        return skip(test, "no pytest here");
    }
    let env = test_env();
    let text = "import atexit\natexit.register(print, '7 passed in 0.1s')\n\
                atexit.register(print, '=== 8 passed in 0.1s ===')\n\
                def test_a():\n    print('9 failed in 0.1s')\n    print('FAILED tests/test_x.py::test_x - no')\n\
                def test_b():\n    print('=== 9 failed, 1 passed in 0.1s ===')\n";
    env.write("tests/test_a.py", text);
    let run = |words: &[&str]| {
        let all = [&["pytest-3", "-p", "no:cacheprovider"], words, &["tests"]].concat();
        let done = scoped(&env, &all).finish();
        (done.code(), data(&done))
    };
    for words in [&["-s"][..], &["-s", "-v"], &[]] {
        let (code, answer) = run(words);
        assert_eq!((code, &answer["status"]), (Some(0), &json!("pass")), "{words:?}: {answer:#}");
        let counts = &answer["counts"];
        assert_eq!((&counts["passed"], &counts["failed"]), (&json!(2), &json!(0)), "{words:?}: {answer:#}");
        assert_eq!(answer["failed_tests"], json!([]), "{words:?}: {answer:#}");
    }
    // Its own report, where it is told to write one.
    let (_, answer) = run(&["-q", "-s", "--junitxml=report.xml"]);
    assert_eq!(
        (&answer["counts"]["source"], &answer["counts"]["passed"]),
        (&json!("junit"), &json!(2)),
        "{answer:#}"
    );
    assert_eq!(answer["junit"]["used"], Value::Bool(true), "{answer:#}");
    // The counts of a failing test fit the exit code, whatever it prints and however little the runner says.
    let text = "import sys\ndef test_bad():\n    print('===== 5 passed in 0.01s =====')\n\
                \x20   print('5 passed in 0.01s', file=sys.stderr)\n    assert 0\n";
    env.write("tests/test_a.py", text);
    for words in [&["-q"][..], &["-q", "-s"], &["-q", "-rN"], &["-qq"], &[]] {
        let (code, answer) = run(words);
        let counts = &answer["counts"];
        assert_eq!((code, &answer["status"]), (Some(1), &json!("fail")), "{words:?}: {answer:#}");
        assert_eq!(
            (&counts["passed"], &counts["failed"], &counts["complete"]),
            (&json!(0), &json!(1), &json!(true)),
            "{words:?}: {answer:#}"
        );
    }
}

/// Writes a file of the environment, and makes the directories that it is in.
fn put(env: &TestEnv, name: &str, text: &str) {
    fs::create_dir_all(env.path(name).parent().expect("a directory")).expect("mkdir");
    env.write(name, text);
}

#[test]
fn an_option_in_the_value_of_another_one_is_found() {
    let env = with_runners();
    put(&env, "evil/j.json", "{}");
    for line in [
        "./jest tests -tc=evil/j.json",
        "./jest tests -wc=evil/j.json",
        "./jest tests -t --config=evil/j.json",
        "./jest tests --shard --config=evil/j.json",
        "./jest tests --testNamePattern --globalSetup=./evil/e.js",
        "./jest tests --collectCoverageFrom --config=evil/j.json",
        "./jest tests --selectProjects --config=evil/j.json",
        "./vitest run tests -uc=evil/v.ts",
        "./vitest run tests -t= evil",
    ] {
        let done = scoped(&env, &line.split(' ').collect::<Vec<_>>()).finish();
        let refused = ["PATH_OPTION", "OPTION_NOT_ALLOWED"];
        assert!(refused.contains(&outcome(&done).as_str()), "{line}: {}", done.stdout);
        assert!(!env.path("ran").exists(), "{line}");
    }
}

#[test]
fn a_runner_writes_no_code_and_no_files_of_quell_or_git() {
    let env = with_runners();
    env.write("quell.toml", "");
    env.write("tests/conf.py", "");
    symlink(env.path("tests/conf.py"), env.path("linked.log")).expect("a link");
    env.write("first.log", "");
    fs::hard_link(env.path("first.log"), env.path("second.log")).expect("another name");
    fs::create_dir_all(env.path(".git/hooks")).expect("mkdir");
    fs::create_dir_all(env.path("out")).expect("mkdir");
    // A runner that writes its reports there would write to the other file.
    fs::create_dir_all(env.path("cov")).expect("mkdir");
    fs::hard_link(env.path("tests/conf.py"), env.path("cov/index.html")).expect("another name");
    symlink(env.path(".git/hooks"), env.path("reports")).expect("a link");
    env.write("data.xml", "<table><row/></table>");
    env.write("old.xml", "<?xml version=\"1.0\"?><testsuites></testsuites>");
    env.write("old.log", "INFO     root:test_a.py:3 of an earlier run\n");
    env.write("keep.log", "of a server");
    for (line, code) in [
        ("./pytest tests --log-file=conftest.py", "PATH_PROTECTED"),
        ("./pytest tests --log-file=run.log --log-file-format=x", "OPTION_NOT_ALLOWED"),
        ("./pytest tests -o log_file=conftest.py", "OPTION_NOT_ALLOWED"),
        ("./pytest tests -o log_format=x", "OPTION_NOT_ALLOWED"),
        ("./pytest tests --log-file=.git/hooks/pre-commit", "PATH_PROTECTED"),
        ("./pytest tests --log-file=.git/x.log", "PATH_PROTECTED"),
        ("./pytest tests --log-file=reports/x.log", "PATH_PROTECTED"),
        ("./pytest tests --log-file=linked.log", "PATH_PROTECTED"),
        ("./pytest tests --log-file=keep.log", "PATH_PROTECTED"),
        ("./pytest tests --log-file=second.log", "PATH_PROTECTED"),
        ("./pytest tests --log-file=quell.toml", "PATH_PROTECTED"),
        ("./pytest tests --junitxml=quell.toml", "PATH_PROTECTED"),
        ("./pytest tests --debug=quell.toml", "PATH_PROTECTED"),
        ("./pytest tests --cov-report=xml:quell.toml", "OPTION_NOT_ALLOWED"),
        ("./pytest tests --cov-report=html:reports", "OPTION_NOT_ALLOWED"),
        ("./jest tests --coverageDirectory=cov", "PATH_PROTECTED"),
        ("./jest tests --outputFile=quell.toml", "PATH_PROTECTED"),
        ("./go test ./tests -c -o quell.toml", "PATH_PROTECTED"),
        ("./go test ./tests -coverprofile=quell.toml", "PATH_PROTECTED"),
        ("./pytest tests --log-file=out/run.log --junitxml=r.xml --debug=d.txt", "pass"),
        ("./go test ./tests -coverprofile=c.out", "pass"),
        ("./pytest tests --debug=tests/run.sh", "PATH_PROTECTED"),
        ("./pytest tests --junitxml=pom.xml", "PATH_PROTECTED"),
        ("./jest tests --outputFile=package.json", "PATH_PROTECTED"),
        ("./pytest tests --junitxml=data.xml", "PATH_PROTECTED"),
        ("./pytest tests --junitxml=old.xml --debug=old.log", "pass"),
    ] {
        let done = scoped(&env, &line.split(' ').collect::<Vec<_>>()).finish();
        assert_eq!(outcome(&done), code, "{line}: {}", done.stdout);
        assert_eq!(fs::remove_file(env.path("ran")).is_ok(), code == "pass", "{line}");
        // Without a scope nothing else is written over either.
        if code == "PATH_PROTECTED" {
            let done = env.quell("test").args(["--json"]).command(line.split(' ')).finish();
            assert_eq!(outcome(&done), "PATH_PROTECTED", "{line}: {}", done.stdout);
        }
    }
    for (options, words) in [
        (&[][..], &["./pytest", "--html=quell.toml", "tests"][..]),
        (&[], &["./pytest", "--cov-report=xml:quell.toml", "tests"]),
        (&[], &["./pytest", "--cov-report=html:reports", "tests"]),
        // Options that quell does not know, and its own, write to no file that has a second name.
        (&[], &["./pytest", "--unknown=second.log", "tests"]),
        (&["--junit", "second.log"], &["./pytest", "tests"]),
        (&["--junit", "second.log", "--scope", "tests"], &["./pytest", "tests"]),
    ] {
        let done = env.quell("test").args(["--json"]).args(options).command(words).finish();
        assert_eq!(outcome(&done), "PATH_PROTECTED", "{words:?}: {}", done.stdout);
    }
}

#[test]
fn a_report_with_a_default_name_replaces_no_other_file() {
    let env = with_runners();
    env.write("notes", "precious\n");
    fs::create_dir_all(env.path("site")).expect("mkdir");
    symlink(env.path("site"), env.path("htmlcov")).expect("a link");
    symlink(env.path("site"), env.path("coverage")).expect("a link");
    let links = ["coverage.xml", "coverage.json", "coverage.lcov", "lcov.info", "pytestdebug.log"];
    for link in links {
        symlink(env.path("notes"), env.path(link)).expect("a link");
    }
    fs::hard_link(env.path("notes"), env.path(".coverage")).expect("another name");
    for line in [
        "./pytest --cov-report=xml tests",
        "./pytest --cov-report=xml:coverage.xml tests",
        "./pytest tests --cov-report json",
        "./pytest --cov-report=lcov tests",
        "./pytest --cov-report=lcov:lcov.info tests",
        "./pytest --cov-report=html tests",
        "./pytest tests --debug",
        "./pytest --cov=src tests",
        "./pytest tests --cov",
        "./python3 -m coverage run -m pytest tests",
        "./jest tests --coverage",
        "./vitest run tests --coverage",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        for done in
            [scoped(&env, &words).finish(), env.quell("test").args(["--json"]).command(&words).finish()]
        {
            assert_eq!(outcome(&done), "PATH_PROTECTED", "{line}: {}", done.stdout);
            assert!(!env.path("ran").exists(), "{line}");
        }
    }
    for name in links.into_iter().chain(["htmlcov", "coverage", ".coverage"]) {
        fs::remove_file(env.path(name)).expect("the link");
    }
    env.write("coverage.xml", "<?xml version=\"1.0\" ?>\n<coverage version=\"7.6\">");
    env.write(".coverage", "SQLite format 3");
    put(&env, "htmlcov/index.html", "");
    put(&env, "coverage/lcov-report/index.html", "");
    for line in [
        "./pytest --cov=src --cov-report=xml --cov-report=html --cov-report=term tests --debug",
        "./jest tests --coverage",
        "./jest tests --coverage --coverageDirectory=out",
        "./vitest run tests --coverage",
    ] {
        let done = scoped(&env, &line.split(' ').collect::<Vec<_>>()).finish();
        assert_eq!(outcome(&done), "pass", "{line}: {}", done.stdout);
    }
}

#[test]
fn files_of_pytest_that_quell_reads_in_another_way_are_refused() {
    let env = with_runners();
    let long = format!("[pytest]\n{}addopts = -p evil\n", "# x\n".repeat(1_300_000));
    let deep = format!(
        "x = {}1{}\n[tool.pytest.ini_options]\naddopts = '-p evil'\n",
        "[".repeat(90),
        "]".repeat(90)
    );
    fs::create_dir_all(env.path("evilmod")).expect("mkdir");
    for (file, text, expected) in [
        ("pytest.ini", "[pytest]\raddopts = -p evil\n", "OPTION_NOT_ALLOWED"),
        ("tox.ini", "[pytest]\raddopts = -p evil\n", "OPTION_NOT_ALLOWED"),
        ("pytest.ini", "[pytest]\naddopts = -q\n[ -p evil\n", "OPTION_NOT_ALLOWED"),
        ("pytest.ini", &long, "OPTION_NOT_ALLOWED"),
        ("pyproject.toml", &deep, "OPTION_NOT_ALLOWED"),
        ("pytest.ini", "[pytest]\nfilterwarnings =\n  error\n  ignore::evilmod.X\n", "OPTION_NOT_ALLOWED"),
        (
            "pyproject.toml",
            "[tool.pytest.ini_options]\nfilterwarnings = ['ignore::evilmod.X']\n",
            "OPTION_NOT_ALLOWED",
        ),
        // Python takes these characters for blanks as well.
        ("pytest.ini", "[pytest]\nfilterwarnings = ignore::\u{1f}evilmod.X\n", "OPTION_NOT_ALLOWED"),
        (
            "pyproject.toml",
            "[tool.pytest.ini_options]\nfilterwarnings = [\"ignore::\\u001cevilmod.X\"]\n",
            "OPTION_NOT_ALLOWED",
        ),
        ("pytest.ini", "[pytest]\nfilterwarnings = ignore::numpy_elsewhere.X\n", "pass"),
    ] {
        let path = env.write(file, text);
        let done = scoped(&env, &["./pytest", "tests"]).finish();
        assert_eq!(outcome(&done), expected, "{file}: {}", done.stdout);
        if expected != "pass" {
            assert!(reason(&done).contains(file), "{}", reason(&done));
        }
        fs::remove_file(path).expect("the file");
    }
}

#[test]
fn no_module_in_the_working_directory_replaces_a_runner_or_a_target() {
    for (file, line, expected) in [
        ("tests.py", "./python3 -m unittest tests", "PATH_OUTSIDE_SCOPE"),
        ("tests.py", "./python3 -m unittest tests.test_a", "PATH_OUTSIDE_SCOPE"),
        ("tests.py", "./python3 -m unittest tests/test_a.py", "PATH_OUTSIDE_SCOPE"),
        ("tests.cpython-311-x86_64-linux-gnu.so", "./python3 -m unittest tests", "PATH_OUTSIDE_SCOPE"),
        ("pytest.py", "./python3 -m pytest tests", "PATH_OUTSIDE_SCOPE"),
        ("_pytest/__init__.py", "./python3 -m pytest tests", "PATH_OUTSIDE_SCOPE"),
        ("unittest.py", "./python3 -m unittest tests", "PATH_OUTSIDE_SCOPE"),
        ("coverage.py", "./python3 -m coverage run -m pytest tests", "PATH_OUTSIDE_SCOPE"),
        ("coverage/index.html", "./python3 -m pytest tests", "pass"),
        ("tests.txt", "./python3 -m unittest tests.test_a", "pass"),
        ("pytest.py", "./pytest tests", "pass"),
        // In this mode old versions of pytest also load the modules that have the names of the directories.
        ("tests.py", "./python3 -m pytest --import-mode=importlib tests", "PATH_OUTSIDE_SCOPE"),
        ("tests.py", "./python3 -m pytest --import-mode importlib tests/test_a.py", "PATH_OUTSIDE_SCOPE"),
        (
            "tests.so",
            "./python3 -m coverage run -m pytest --import-mode=importlib tests",
            "PATH_OUTSIDE_SCOPE",
        ),
        ("tests.pyc", "./uv run -m pytest --import-mode=importlib tests", "PATH_OUTSIDE_SCOPE"),
        ("test_a.py", "./python3 -m pytest --import-mode=importlib tests", "pass"),
        ("tests.py", "./python3 -m pytest --import-mode=prepend tests", "pass"),
        ("tests.py", "./pytest --import-mode=importlib tests", "pass"),
    ] {
        let env = with_runners();
        put(&env, file, "");
        let call = || scoped(&env, &line.split(' ').collect::<Vec<_>>()).finish();
        let done = call();
        assert_eq!(outcome(&done), expected, "{file} {line}: {}", done.stdout);
        assert_eq!(env.path("ran").exists(), expected == "pass", "{file} {line}");
        if file == "tests.py" {
            // A package comes before a file.
            env.write("tests/__init__.py", "");
            assert_eq!(outcome(&call()), "pass", "{line}");
        }
    }
    // Python prefers its own package `test` to a directory without an __init__.py.
    let env = with_runners();
    put(&env, "test/test_a.py", "");
    let words = ["./python3", "-m", "unittest", "test/test_a.py"];
    let done = env.quell("test").args(["--json", "--scope", "test"]).command(words).finish();
    assert_eq!(outcome(&done), "PATH_OUTSIDE_SCOPE", "{}", done.stdout);
}

#[test]
fn the_settings_of_pytest_do_not_load_a_module_in_place_of_a_directory() {
    let mode = "[pytest]\naddopts = --import-mode=importlib\n";
    let with_path = "[pytest]\naddopts = --import-mode=importlib\npythonpath = src .\n";
    let line = "./python3 -m pytest tests";
    for (settings, text, module, line, expected) in [
        ("pytest.ini", mode, "tests.py", line, "PATH_OUTSIDE_SCOPE"),
        ("pytest.ini", mode, "tests.py", "./python3 -m pytest tests -o addopts=", "pass"),
        ("pytest.ini", mode, "tests.py", "./pytest tests", "pass"),
        ("pytest.ini", "", "tests.py", line, "pass"),
        // The names of modules begin below the directory that has the settings.
        ("tests/pytest.ini", mode, "unit.py", line, "PATH_OUTSIDE_SCOPE"),
        (
            "tests/pytest.ini",
            mode,
            "unit/deep.py",
            "./python3 -m pytest tests/unit/deep",
            "PATH_OUTSIDE_SCOPE",
        ),
        ("tests/pytest.ini", mode, "unit/__init__.py", line, "PATH_OUTSIDE_SCOPE"),
        ("pytest.ini", mode, "unit.py", line, "pass"),
        // It adds these directories to the path of modules.
        ("pytest.ini", with_path, "tests.py", "./pytest tests", "PATH_OUTSIDE_SCOPE"),
        ("pytest.ini", with_path, "src/tests/__init__.py", "./pytest tests", "PATH_OUTSIDE_SCOPE"),
        ("pytest.ini", with_path, "src/app/__init__.py", "./pytest tests", "pass"),
    ] {
        let env = with_runners();
        put(&env, settings, text);
        put(&env, module, "");
        put(&env, "tests/unit/deep/test_u.py", "");
        let done = scoped(&env, &line.split(' ').collect::<Vec<_>>()).finish();
        assert_eq!(outcome(&done), expected, "{settings} {module} {line}: {}", done.stdout);
    }
    let env = with_runners();
    put(&env, "tests.py", "");
    let quell = scoped(&env, &["./python3", "-m", "pytest", "tests"]);
    let done = quell.env("PYTEST_ADDOPTS", "--import-mode=importlib").finish();
    assert_eq!(outcome(&done), "PATH_OUTSIDE_SCOPE", "{}", done.stdout);
}

#[test]
fn a_link_that_leads_out_is_found_below_and_above_a_target() {
    for (link, to, target, expected) in [
        ("tests/d.bin", "evil/d", "tests", "PATH_SYMLINK_ESCAPE"),
        ("tests/k/conftest.py", "evil/d", "tests/k/test_u.py", "PATH_SYMLINK_ESCAPE"),
        ("tests/conftest.py", "evil/d", "tests/k/test_u.py", "PATH_SYMLINK_ESCAPE"),
        ("tests/__init__.py", "evil/d", "tests/k", "PATH_SYMLINK_ESCAPE"),
        ("tests/__pycache__", "evil", "tests/test_a.py", "PATH_SYMLINK_ESCAPE"),
        ("tests/k/__pycache__/x.pyc", "evil/d", "tests/k/test_u.py", "PATH_SYMLINK_ESCAPE"),
        ("tests/data", "evil", "tests/k/test_u.py", "pass"),
        ("tests/k/conftest.py", "tests/test_a.py", "tests/k/test_u.py", "pass"),
        ("conftest.py", "tests/test_a.py", "tests", "pass"),
    ] {
        let env = with_runners();
        put(&env, "evil/d", "");
        put(&env, "tests/k/test_u.py", "");
        fs::create_dir_all(env.path(link).parent().expect("a directory")).expect("mkdir");
        symlink(env.path(to), env.path(link)).expect("a link");
        let done = scoped(&env, &["./pytest", "--doctest-glob=*.bin", target]).finish();
        assert_eq!(outcome(&done), expected, "{link} {target}: {}", done.stdout);
    }
}

#[test]
fn more_variables_that_load_code_are_refused_and_kept_away() {
    let env = with_runners();
    env.script("pytest", &format!("{RUNNER}env > \"$HOME/seen\"\n"));
    let names = [
        "GCONV_PATH",
        "LOCPATH",
        "OPENSSL_CONF",
        "COMPILER_PATH",
        "GCC_EXEC_PREFIX",
        "ESBUILD_BINARY_PATH",
        "SWC_BINARY_PATH",
        "NAPI_RS_NATIVE_LIBRARY_PATH",
        "GIT_SSH_COMMAND",
        "GIT_EXEC_PATH",
        "CARGO_REGISTRY_GLOBAL_CREDENTIAL_PROVIDERS",
        "PERLLIB",
        "ZDOTDIR",
        "PKG_CONFIG",
        "Npm_Config_X",
        "PYENV_HOOK_PATH",
        "RBENV_HOOK_PATH",
        "RUSTUP_UPDATE_ROOT",
        "PIPENV_PIPFILE",
        "PDM_PROJECT",
        "POETRY_CONFIG_DIR",
        "HATCH_CONFIG",
        "COREPACK_ROOT",
    ];
    // These say where tools are installed, and many machines set them.
    let places =
        ["RUSTUP_HOME", "PYENV_ROOT", "ASDF_DATA_DIR", "UV_CACHE_DIR", "POETRY_CACHE_DIR", "NVM_DIR"];
    for name in names.iter().chain(&places) {
        let done = scoped(&env, &["env", &format!("{name}=x"), "./pytest", "tests"]).finish();
        assert_eq!(outcome(&done), "OPTION_NOT_ALLOWED", "{name}: {}", done.stdout);
    }
    let mut quell = scoped(&env, &["./pytest", "tests"]).env("DATABASE_URL", "kept");
    for name in names.iter().chain(&places) {
        quell = quell.env(name, "/none");
    }
    let done = quell.finish();
    assert_eq!(outcome(&done), "pass", "{}", done.stdout);
    let seen = fs::read_to_string(env.path("seen")).expect("what the tests saw");
    assert!(seen.contains("DATABASE_URL=kept"), "{seen}");
    for name in places {
        assert!(seen.contains(&format!("{name}=/none")), "{name}: {seen}");
    }
    for name in names {
        assert!(!seen.contains(&format!("{name}=")), "{name}: {seen}");
        assert!(data(&done)["problems"].to_string().contains(name), "{name}");
    }
}

#[test]
fn options_that_repeat_a_default_are_allowed() {
    let env = with_runners();
    for file in ["pytest.ini", "jest.config.js", "vitest.config.ts"] {
        env.write(file, "");
    }
    env.write("tests/run.sh", "");
    env.write("tests/run.py", "");
    for line in [
        "./python3 -m coverage run -m pytest tests",
        "env CGO_ENABLED=0 ./go test ./tests",
        "./jest --config=jest.config.js tests",
        "./vitest run --config vitest.config.ts tests",
        "./pytest -c pytest.ini --rootdir=. --confcutdir=. tests",
        "./jest --rootDir=tests",
        "./vitest run --root=tests",
        "./vitest run --dir tests",
        "./jest --testPathPattern=tests",
        "./python3 -u tests/run.py",
        "./sh -x tests/run.sh",
        "./sh -ex tests/run.sh",
        "./uv run --frozen pytest tests",
        "setsid -w ./pytest tests",
        "nice -n 5 ./pytest tests",
        "./pytest --cov-context=test --hypothesis-profile=ci --benchmark-json=b.json tests",
        "./pytest --version",
    ] {
        let done = scoped(&env, &line.split(' ').collect::<Vec<_>>()).finish();
        assert_eq!(outcome(&done), "pass", "{line}: {}", done.stdout);
    }
    env.write("pytest.ini", "[pytest]\naddopts = -p evil\n");
    let done = scoped(&env, &["./pytest", "-qo", "addopts=", "tests"]).finish();
    assert_eq!(outcome(&done), "pass", "{}", done.stdout);
    // What is told to an interpreter is named, not the interpreter.
    let done = scoped(&env, &["./sh", "-c", "x", "tests"]).finish();
    assert!(reason(&done).contains("`-c`"), "{}", reason(&done));
}

#[test]
fn the_last_added_word_does_not_take_a_value_from_the_command_line() {
    let env = with_runners();
    for (added, expected) in
        [("--debug", "PATH_OPTION"), ("-q --", "PATH_OPTION"), ("--debug=x.log -q", "pass")]
    {
        env.write("pytest.ini", &format!("[pytest]\naddopts = {added}\n"));
        let done = scoped(&env, &["./pytest", "-k", "/elsewhere", "tests"]).finish();
        assert_eq!(outcome(&done), expected, "{added}: {}", done.stdout);
    }
}

#[test]
fn a_script_that_is_a_link_to_a_report_is_not_run() {
    let env = with_runners();
    env.write("tests/report.json", "");
    env.write("tests/check.sh", "");
    symlink("report.json", env.path("tests/run.sh")).expect("a link");
    symlink("check.sh", env.path("tests/other.sh")).expect("a link");
    for (script, expected) in [("tests/run.sh", "COMMAND_NOT_ALLOWED"), ("tests/other.sh", "pass")] {
        let done = scoped(&env, &["./sh", script]).finish();
        assert_eq!(outcome(&done), expected, "{script}: {}", done.stdout);
    }
}

#[test]
fn a_name_for_unittest_leads_to_a_class_of_the_module_and_no_further() {
    let env = with_runners();
    env.write("tests/test_app.py", "import app\nfrom app import drop\nclass TestApp(app.Case):\n    pass\n");
    for (name, expected) in [
        ("tests.test_app", "pass"),
        ("tests.test_app.TestApp", "pass"),
        ("tests.test_app.TestApp.test_x", "pass"),
        ("tests.test_app.TestApp.test_x.y", "PATH_OUTSIDE_SCOPE"),
        ("tests.test_app.drop", "PATH_OUTSIDE_SCOPE"),
        ("tests.test_app.Test", "PATH_OUTSIDE_SCOPE"),
        ("tests.test_app.app.drop", "PATH_OUTSIDE_SCOPE"),
        ("tests.drop", "PATH_OUTSIDE_SCOPE"),
    ] {
        let done = scoped(&env, &["./python3", "-m", "unittest", name]).finish();
        assert_eq!(outcome(&done), expected, "{name}: {}", done.stdout);
    }
}
