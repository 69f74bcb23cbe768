//! What `quell test` refuses: with which code, and without running anything.

use std::{
    ffi::OsString,
    fs,
    os::unix::{ffi::OsStringExt, fs::symlink},
    path::PathBuf,
};

use quell_tests::{evidence::receipt, host::has_program, skip, test_env::TestEnv};
use serde_json::json;

use crate::test_verb::{RUNNER, audit, fits, test_env};

/// A command that leaves a file if it is run.
fn marker(env: &TestEnv) -> PathBuf {
    env.script("pytest", RUNNER)
}

#[test]
fn a_refusal_runs_nothing() {
    let env = test_env();
    marker(&env);
    env.write("tests/test_a.py", "");
    env.write("src/test_a.py", "");
    symlink(env.path("src"), env.path("tests/link")).expect("a link");
    symlink("/etc", env.path("etc")).expect("a link");
    symlink(env.path("nowhere"), env.path("tests/dangling")).expect("a link");
    let strace = has_program("strace");
    if !strace {
        skip("a_refusal_runs_nothing", "no strace here: only what it leaves is looked at");
    }
    let scope = &["--scope", "tests"][..];
    for (options, words, code) in [
        (scope, &[""][..], "PATH_EMPTY"),
        (scope, &["  "], "PATH_EMPTY"),
        (scope, &["/etc/passwd"], "PATH_ABSOLUTE"),
        (scope, &["C:\\tests"], "PATH_ABSOLUTE"),
        (scope, &["\\\\host\\share"], "PATH_ABSOLUTE"),
        (scope, &["tests/../src"], "PATH_TRAVERSAL"),
        (scope, &["tests\\..\\src"], "PATH_TRAVERSAL"),
        (scope, &["tests/%2e%2e/src"], "PATH_TRAVERSAL"),
        (scope, &["tests/\u{ff0e}\u{ff0e}/src"], "PATH_CONTROL"),
        (scope, &["tests\u{2215}x"], "PATH_CONTROL"),
        (scope, &["tests/\u{202e}x"], "PATH_CONTROL"),
        (scope, &["tests/a\nb"], "PATH_CONTROL"),
        (scope, &["~/x"], "PATH_HOME"),
        (scope, &["tests", "--", "-x"], "PATH_OPTION"),
        (scope, &["tests_evil"], "PATH_OUTSIDE_SCOPE"),
        (scope, &["src/test_a.py::test_x"], "PATH_OUTSIDE_SCOPE"),
        (scope, &["tests/link"], "PATH_SYMLINK_ESCAPE"),
        (scope, &["tests/link/test_a.py::x"], "PATH_SYMLINK_ESCAPE"),
        (scope, &["tests/none.py"], "PATH_MISSING"),
        (scope, &["tests/dangling"], "PATH_MISSING"),
        (scope, &[], "TARGET_REQUIRED"),
        (&["--require-target"], &["-q"], "TARGET_REQUIRED"),
        (&[], &["etc/passwd"], "PATH_SYMLINK_ESCAPE"),
        (&[], &["../x"], "PATH_TRAVERSAL"),
        (scope, &["tests", "--rootdir=/"], "OPTION_NOT_ALLOWED"),
        (scope, &["tests", "-c", "../x.ini"], "OPTION_NOT_ALLOWED"),
        (&[], &["tests", "--rootdir=/"], "PATH_ABSOLUTE"),
        (&[], &["tests", "-c", "../x.ini"], "PATH_TRAVERSAL"),
        (&[], &["tests", "--confcutdir=/"], "PATH_ABSOLUTE"),
        (scope, &["tests", "--basetemp", "tests/link/tmp"], "PATH_PROTECTED"),
        (scope, &["tests", "--confcutdir=/"], "OPTION_NOT_ALLOWED"),
        (&["--scope", ".."], &["tests"], "PATH_TRAVERSAL"),
        (&["--scope", "/etc"], &["tests"], "PATH_ABSOLUTE"),
        (&["--scope", "etc"], &["tests"], "PATH_SYMLINK_ESCAPE"),
        (&["--scope", "none"], &["tests"], "PATH_MISSING"),
        (&["--scope", "tests/test_a.py"], &["tests"], "PATH_MISSING"),
        (&["--junit", "/etc/x.xml"], &["tests"], "PATH_ABSOLUTE"),
        (&["--junit", "etc/x.xml"], &["tests"], "PATH_SYMLINK_ESCAPE"),
    ] {
        let _ = fs::remove_file(env.path("trace"));
        let quell = env.quell("test").args(["--json", "--evidence", "evidence.json"]).args(options);
        let quell = if strace {
            quell.wrapped([
                "strace",
                "-f",
                "-o",
                "trace",
                "-e",
                "trace=execve,execveat,fork,vfork,kill,tgkill",
            ])
        } else {
            quell
        };
        let done = quell.command(["./pytest"].iter().chain(words)).finish();
        let envelope = done.envelope();
        let what = format!("{options:?} {words:?}: {envelope:#}");
        assert_eq!((done.code(), &envelope["ok"]), (Some(4), &json!(false)), "{what}");
        assert_eq!(envelope["error"]["code"], code, "{what}");
        assert_eq!(envelope["error"]["details"]["decision"]["allowed"], false, "{what}");
        assert!(!envelope["error"]["hint"].as_str().unwrap_or_default().is_empty(), "{what}");
        assert!(!env.path("ran").exists(), "it ran: {what}");
        assert_eq!(env.ids("jobs"), [""; 0], "{what}");
        let evidence = receipt(&env.path("evidence.json")).expect("evidence");
        assert_eq!(
            (&evidence["status"], &evidence["decision"]["code"]),
            (&json!("refused"), &json!(code)),
            "{what}"
        );
        fits("a refusal", &evidence);
        fs::remove_file(env.path("evidence.json")).expect("evidence");
        if strace {
            // Behind the shell-less chain of wrappers, quell's own is the last.
            let trace = fs::read_to_string(env.path("trace")).expect("a trace");
            let lines: Vec<&str> =
                trace.lines().skip_while(|line| !line.contains("/quell\", [")).skip(1).collect();
            assert!(lines.iter().all(|line| line.contains("+++ exited")), "{what}\n{trace}");
        }
        let last = audit(&env).pop().expect("a line");
        assert_eq!((&last["kind"], &last["verb"]), (&json!("decision"), &json!("test")), "{last:#}");
        assert_eq!(last["decision"]["code"], code, "{last:#}");
    }
    assert!(audit(&env).iter().all(|line| line["kind"] == "decision"), "nothing was done");
    let good = ["./pytest", "tests/test_a.py"];
    let done = env.quell("test").args(["--json", "--scope", "tests"]).command(good).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stdout);
    assert!(env.path("ran").exists(), "what is allowed runs");
}

#[test]
fn the_words_in_pytest_addopts_are_checked() {
    let env = test_env();
    marker(&env);
    let call = |words: &str| {
        env.quell("test")
            .args(["--json"])
            .env("PYTEST_ADDOPTS", words)
            .command(["./pytest", "tests"])
            .finish()
    };
    assert_eq!(call("--rootdir=/").envelope()["error"]["code"], "PATH_ABSOLUTE");
    assert_eq!(call("-q ../x").envelope()["error"]["code"], "PATH_TRAVERSAL");
    // pytest reads them and the command line as one list: none of them may change what the words behind it are.
    for words in ["--", "-q --", "--debug", "--cov", "--cache-show", "-k", "-q -qk", "-n", "--maxfail"] {
        assert_eq!(call(words).envelope()["error"]["code"], "PATH_OPTION", "{words}");
    }
    assert!(!env.path("ran").exists());
    assert_eq!(call("-q --color=yes").code(), Some(0));
    assert_eq!(audit(&env).last().expect("a line")["target"], "PYTEST_ADDOPTS=-q --color=yes ./pytest tests");
}

#[test]
fn the_policy_restricts_scope_commands_and_approval() {
    let env = test_env();
    marker(&env);
    let policy = "[guard.test]\nscope = [\"tests\"]\ncommands = [\"pytest\"]\napproval = true\napproval_variable = \"OK\"\n";
    // The user's own: a project does not say what approves.
    let own = env.write("own.toml", policy);
    let call = |options: &[&str], variable: Option<&str>, words: &[&str]| {
        let quell = env.quell("test").args(["--json"]).args(options).command(words);
        let quell = quell.env("QUELL_CONFIG", &own);
        let quell = if let Some(value) = variable { quell.env("OK", value) } else { quell };
        let done = quell.finish();
        let ran = fs::remove_file(env.path("ran")).is_ok();
        assert_eq!(ran, done.code() == Some(0), "{}", done.stdout);
        done.envelope()["error"]["code"].as_str().unwrap_or("ran").to_owned()
    };
    let good = &["./pytest", "tests"][..];
    assert_eq!(call(&[], None, good), "APPROVAL_REQUIRED");
    for no in ["0", "no", "false", "", "y"] {
        assert_eq!(call(&[], Some(no), good), "APPROVAL_REQUIRED", "{no}");
    }
    for yes in ["true", "TRUE", "1", "yes", "Yes"] {
        assert_eq!(call(&[], Some(yes), good), "ran", "{yes}");
    }
    assert_eq!(call(&["--approve"], None, good), "ran");
    let said = |how: &str| {
        let lines = audit(&env).into_iter().filter(|line| line["verb"] == "test");
        lines
            .filter(|line| line["decision"]["reason"].as_str().is_some_and(|said| said.ends_with(how)))
            .count()
    };
    // A decision and an act each.
    assert_eq!((said("; approved by the variable OK"), said("; approved by --approve")), (10, 2));
    let approved = &["--approve"][..];
    assert_eq!(call(approved, None, &["sh", "-c", "touch ran"]), "COMMAND_NOT_ALLOWED");
    assert_eq!(call(approved, None, &["./pytest", "src"]), "PATH_OUTSIDE_SCOPE");
    assert_eq!(call(approved, None, &["./pytest"]), "TARGET_REQUIRED");
    assert_eq!(call(&["--approve", "--scope", "src"], None, &["./pytest", "src"]), "PATH_OUTSIDE_SCOPE");
    fs::create_dir(env.path("tests/unit")).expect("mkdir");
    assert_eq!(call(&["--approve", "--scope", "tests/unit"], None, good), "PATH_OUTSIDE_SCOPE");
    assert_eq!(call(&["--approve", "--scope", "tests/unit"], None, &["./pytest", "tests/unit"]), "ran");
    env.write("quell.toml", "[guard]\ndeny = [\"test\"]\n");
    assert_eq!(call(approved, None, good), "VERB_DENIED");
}

#[test]
fn a_scope_of_the_policy_that_became_a_link_allows_nothing() {
    let env = TestEnv::as_me();
    marker(&env);
    symlink("/etc", env.path("tests")).expect("a link");
    env.write("quell.toml", "[guard.test]\nscope = [\"tests\"]\n");
    let done = env.quell("test").args(["--json"]).command(["./pytest", "tests/passwd"]).finish();
    assert_eq!((done.code(), &done.envelope()["error"]["code"]), (Some(4), &json!("PATH_SYMLINK_ESCAPE")));
    assert!(!env.path("ran").exists());
}

/// A test, and elsewhere a directory with a test and a conftest which leave a file if they are run.
fn outside(env: &TestEnv, elsewhere: &TestEnv) -> PathBuf {
    let out = elsewhere.path("out");
    fs::create_dir(&out).expect("mkdir");
    let leave = format!("open({:?}, 'w')\n", env.path("ran"));
    elsewhere.write("out/test_out.py", &format!("def test_out():\n    {leave}"));
    elsewhere.write("out/conftest.py", &leave);
    env.write("tests/test_a.py", "def test_a():\n    pass\n");
    out
}

#[test]
fn a_real_pytest_runs_no_test_from_outside() {
    if !has_program("pytest-3") {
        return skip("a_real_pytest_runs_no_test_from_outside", "no pytest here");
    }
    let (env, elsewhere) = (test_env(), TestEnv::as_me());
    let out = outside(&env, &elsewhere);
    let tests = env.path("tests");
    fs::create_dir(tests.join("link[x")).expect("mkdir");
    fs::create_dir(tests.join("sub")).expect("mkdir");
    symlink(&out, tests.join("link")).expect("a link");
    symlink(&out, tests.join("sub/link")).expect("a link");
    let outside = out.join("test_out.py").display().to_string();
    let (trace, debug) = (format!("--trace-config {outside}"), format!("--debug={outside}"));
    let timeout = format!("--timeout {}", out.display());
    let nbsp = format!("--junitprefix=a\u{a0}-k {outside}");
    let tab = format!("--junitprefix=a\u{b}-k {outside}");
    let bytes = OsString::from_vec([b"--junitprefix=\xff ", outside.as_bytes()].concat());
    let dashes = "- x/../out/test_out.py";
    let before = fs::read(&outside).expect("the test");
    for (words, added, code) in [
        (trace.split(' ').collect(), None, "PATH_ABSOLUTE"),
        (vec![debug.as_str()], None, "PATH_ABSOLUTE"),
        (timeout.split(' ').collect(), None, "OPTION_NOT_ALLOWED"),
        (vec![dashes], None, "PATH_OPTION"),
        (vec![], Some(nbsp.into()), "PATH_ABSOLUTE"),
        (vec![], Some(tab.into()), "PATH_ABSOLUTE"),
        (vec![], Some(bytes), "PATH_CONTROL"),
        (vec!["tests/link[x"], None, "PATH_SYMLINK_ESCAPE"),
        (vec!["tests/sub"], None, "PATH_SYMLINK_ESCAPE"),
    ] {
        let quell = env.quell("test").args(["--json", "--scope", "tests"]);
        let quell =
            quell.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTEST_ADDOPTS", added.unwrap_or_default());
        let words =
            ["pytest-3", "-p", "no:cacheprovider"].into_iter().chain(words).chain(["tests/test_a.py"]);
        let done = quell.command(words).finish();
        let what = done.stdout.clone();
        assert!(!env.path("ran").exists(), "it ran: {what}");
        assert_eq!(fs::read(&outside).expect("the test"), before, "it was written: {what}");
        assert_eq!((done.code(), &done.envelope()["error"]["code"]), (Some(4), &json!(code)), "{what}");
    }
    let quell = env.quell("test").args(["--json", "--scope", "tests"]);
    let done = quell.command(["pytest-3", "-p", "no:cacheprovider", "tests/test_a.py"]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stdout);
}

#[test]
fn a_policy_that_allows_pytest_does_not_allow_other_python_code() {
    let env = test_env();
    env.write("tests/test_a.py", "");
    env.write("-m", "open('ran', 'w')\n");
    env.write("own.toml", "[guard.test]\ncommands = [\"pytest\"]\n");
    for words in [
        &["python3", "-Ic", "-1;open('ran', 'w')", "-m", "pytest", "tests/test_a.py"][..],
        &["python3", "--", "-m", "pytest", "tests"],
    ] {
        let quell = env.quell("test").args(["--json"]).env("QUELL_CONFIG", env.path("own.toml"));
        let done = quell.command(words).finish();
        assert!(!env.path("ran").exists(), "{words:?}");
        assert_eq!(done.envelope()["error"]["code"], "COMMAND_NOT_ALLOWED", "{words:?} {}", done.stdout);
    }
}

#[test]
fn evidence_does_not_replace_files_of_quell() {
    let env = test_env();
    let text = "[guard]\nmax_effect = \"read\"\n";
    fs::create_dir_all(env.path("conf/quell")).expect("mkdir");
    let policy = env.write("conf/quell/config.toml", text);
    let call = |evidence: &str| {
        let quell = env.quell("test").args(["--json", "--evidence", evidence]);
        quell.env("XDG_CONFIG_HOME", env.path("conf")).command(["true"]).finish()
    };
    // Where the verb itself is refused nothing is written at all.
    for evidence in ["conf/quell/config.toml", "fine.json"] {
        let done = call(evidence);
        assert_eq!((done.code(), &done.envelope()["error"]["code"]), (Some(4), &json!("EFFECT_DENIED")));
        assert!(!env.path("fine.json").exists());
        assert_eq!(fs::read_to_string(&policy).expect("the policy"), text);
    }
    fs::write(&policy, "").expect("the policy");
    env.write("quell.toml", "");
    symlink(env.path("conf"), env.path("way")).expect("a link");
    symlink("/etc", env.path("etc")).expect("a link");
    let home = env.home().strip_prefix(env.dir()).map(|home| home.join("index.db").display().to_string());
    let home = home.unwrap_or_else(|_| "quell.toml".into());
    for (evidence, code) in [
        ("conf/quell/config.toml", "PATH_PROTECTED"),
        ("conf/quell/guard.toml", "PATH_PROTECTED"),
        ("way/quell/x.json", "PATH_PROTECTED"),
        ("quell.toml", "PATH_PROTECTED"),
        (&home, "PATH_PROTECTED"),
        ("/tmp/x.json", "PATH_ABSOLUTE"),
        ("/dev/null", "PATH_ABSOLUTE"),
        ("../x.json", "PATH_TRAVERSAL"),
        ("etc/x.json", "PATH_SYMLINK_ESCAPE"),
        (".vscode/tasks.json", "PATH_PROTECTED"),
        (".claude/settings.json", "PATH_PROTECTED"),
        ("tests/.github/x.json", "PATH_PROTECTED"),
    ] {
        let done = call(evidence);
        let what = format!("{evidence}: {}", done.stdout);
        assert_eq!((done.code(), &done.envelope()["error"]["code"]), (Some(4), &json!(code)), "{what}");
        assert_eq!(fs::read_to_string(&policy).expect("the policy"), "", "{what}");
    }
    assert_eq!(call("fine.json").code(), Some(0));
}

#[test]
fn a_scope_above_the_working_directory_is_not_reported_as_a_link() {
    let env = test_env();
    let own = env.write("own.toml", "[guard.test]\nscope = [\"../\"]\n");
    let done = env.quell("test").args(["--json"]).env("QUELL_CONFIG", own).command(["pytest"]).finish();
    let error = done.envelope()["error"].clone();
    assert_eq!(error["code"], "PATH_TRAVERSAL", "{error}");
    assert!(!error["message"].as_str().unwrap_or_default().contains("link"), "{error}");
}

#[test]
fn evidence_replaces_only_earlier_evidence() {
    let env = test_env();
    let code = "def test_a():\n    pass\n";
    for file in ["src/test_e.py", "tests/conftest.py", "package.json"] {
        env.write(file, code);
        for target in ["src", "tests"] {
            let quell = env.quell("test").args(["--json", "--scope", "tests", "--evidence", file]);
            let done = quell.command(["pytest", target]).finish();
            let refused = (Some(4), &json!("PATH_PROTECTED"));
            assert_eq!((done.code(), &done.envelope()["error"]["code"]), refused, "{file}: {}", done.stdout);
            assert_eq!(fs::read_to_string(env.path(file)).expect("a file"), code, "{file}");
        }
    }
    // A name that is free, or that was made for it, and then twice the same.
    env.write("made.json", "");
    for file in ["free.json", "made.json"] {
        for (words, status) in [(["true"], "pass"), (["false"], "fail"), (["true"], "pass")] {
            env.quell("test").args(["--json", "--evidence", file]).command(words).finish();
            assert_eq!(receipt(&env.path(file)).expect("evidence")["status"], status, "{file}");
        }
    }
}

#[test]
fn an_untrusted_project_does_not_widen_the_scope() {
    let env = test_env();
    marker(&env);
    symlink("/etc", env.path("etc")).expect("a link");
    env.write("tests/test_a.py", "");
    for scope in ["[\"/\"]", "[\"tests\", \"/\"]"] {
        env.write("quell.toml", &format!("[guard.test]\nscope = {scope}\n"));
        let call = |target: &str| env.quell("test").args(["--json"]).command(["./pytest", target]).finish();
        let done = call("etc/passwd");
        assert_eq!(done.code(), Some(4), "{}", done.stdout);
        assert!(!env.path("ran").exists());
        assert!(done.stderr.contains("guard.test.scope is ignored"), "{}", done.stderr);
    }
    let own = env.write("own.toml", &format!("[trust]\nprojects = [{:?}]\n", env.dir()));
    let quell = env.quell("test").args(["--json"]).env("QUELL_CONFIG", own);
    assert_eq!(quell.command(["./pytest", "etc/passwd"]).finish().code(), Some(0), "a trusted project does");
}

#[test]
fn targets_behind_a_wrapper_are_checked_without_a_scope() {
    let env = test_env();
    marker(&env);
    for words in [&["env", "./pytest", "/tmp"][..], &["timeout", "5", "./pytest", "../x"]] {
        let done = env.quell("test").args(["--json"]).command(words).finish();
        assert_eq!(done.code(), Some(4), "{words:?} {}", done.stdout);
        assert!(!env.path("ran").exists(), "{words:?}");
    }
    let done = env.quell("test").args(["--json"]).command(["timeout", "5", "./pytest", "tests"]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stdout);
}
