//! An error names its dirs and what to do about it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use quell::Error;
use quell::binary::Config;

use crate::ConfigDirs;

/// The line, message and hint of the error for a project file with this text.
fn told(text: &str) -> (usize, String, String) {
    let dirs = ConfigDirs::new();
    let path = dirs.project(text);
    match dirs.load(&[]) {
        Err(Error::Config { file, line, message, hint }) => {
            assert_eq!(file, path);
            (line, message, hint)
        }
        other => panic!("{text:?} gives {other:?}"),
    }
}

#[track_caller]
fn is_told(text: &str, line: usize, message: &str, hint: &str) {
    let told = told(text);
    assert_eq!((told.0, told.1.as_str(), told.2.as_str()), (line, message, hint), "{text:?}");
}

#[test]
fn an_unknown_key_is_told_with_its_line_and_the_nearest_one() {
    is_told("[stop]\n\ngrce = \"5s\"\n", 3, "unknown key `grce` in [stop]", "did you mean `grace`?");
    is_told("stop.max = 1", 1, "unknown key `max` in [stop]", "known keys: grace, signal, verify, ask");
    is_told("[stop]\nmax_log = 1", 2, "unknown key `max_log` in [stop]", "it belongs into [start]");
    is_told("\ngrace = \"5s\"", 2, "`grace` is in no table", "put it below [stop]");
}

#[test]
fn an_unknown_table_is_told_with_its_line_and_the_nearest_one() {
    is_told("[stop]\n[strat]\n", 2, "unknown table `strat`", "did you mean `start`?");
    let all = "known tables: stop, start, test, gc, ready, attention, guard, hooks, trust";
    is_told("# x\n\n[limits]\nmemory = 1\n", 3, "unknown table `limits`", all);
    is_told("colour = true\n", 1, "unknown key `colour`", all);
    is_told("stop = 1\n", 1, "`stop` must be a table", "write [stop] in a line of its own");
}

#[test]
fn a_wrong_type_is_told_with_what_was_expected() {
    is_told(
        "[stop]\ngrace = 5\n",
        2,
        "stop.grace: must be a string, not integer `5`",
        "such as grace = \"5s\"",
    );
    is_told(
        "[gc]\nauto = \"yes\"\n",
        2,
        "gc.auto: must be true or false, not string \"yes\"",
        "such as auto = true",
    );
    for wrong in ["\"many\"", "1.5", "0x10"] {
        let (line, message, hint) = told(&format!("[gc]\nmax_count = {wrong}\n"));
        assert_eq!((line, hint.as_str()), (2, "such as max_count = 10"));
        assert!(message.starts_with("gc.max_count: must be a whole number or \"none\""), "{message}");
    }
    for (wrong, expected) in [
        ("\"A\"", "must be a list of strings, not string \"A\""),
        ("[1]", "must be a string, not integer `1`"),
        ("[\"A\", true]", "must be a string, not boolean `true`"),
    ] {
        let (_, message, hint) = told(&format!("[start]\nmask = {wrong}\n"));
        assert_eq!(message, format!("start.mask: {expected}"));
        assert_eq!(hint, "such as mask = [\"API_TOKEN\"]");
    }
}

#[test]
fn a_bad_value_is_told_with_what_to_write() {
    let (line, message, hint) = told("[stop]\nverify = \"1s\"\ngrace = \"soon\"\n");
    assert_eq!((line, hint.as_str()), (3, "such as grace = \"5s\""));
    assert!(message.starts_with("stop.grace: invalid duration `soon`: expected "), "{message}");
    for (text, part) in [
        ("stop.signal = \"NOPE\"", "stop.signal: invalid signal `NOPE`: expected "),
        ("start.max_log = \"lots\"", "start.max_log: invalid size `lots`: expected "),
        ("start.max_log = \"1K\"", "start.max_log: `1K` is too small for a log: write at least 4K"),
        ("gc.max_count = -1", "gc.max_count: `-1` is not a count: write "),
        ("start.restart_limit = 4294967296", "start.restart_limit: `4294967296` is not a count"),
        ("stop.verify = \"0s\"", "stop.verify: `0s` is too short: it must be longer than 0"),
        ("stop.ask = \"leaf\"", "stop.ask: `leaf` is none of tree, root"),
        ("start.restart_limit = -1", "start.restart_limit: `-1` is not a count"),
        ("start.restart_limit = +1", "start.restart_limit: `+1` is not a count"),
        ("gc.max_age = \"None\"", "gc.max_age: invalid duration `None`"),
        ("ready.interval = \"0s\"", "ready.interval: `0s` is too short: it must be longer than 0"),
        ("start.mask = [\"A=b\"]", "start.mask: `A=b` is not a name of a variable"),
        ("start.mask = [\"A,B\"]", "start.mask: `A,B` is not a name"),
    ] {
        let (line, message, hint) = told(text);
        assert!(line == 1 && message.starts_with(part) && !hint.is_empty(), "{message} ({hint})");
    }
    let (_, message, hint) = told("stop.signal = \"TREM\"");
    assert!(message.starts_with("stop.signal: invalid signal `TREM`"), "{message}");
    assert_eq!(hint, "did you mean `TERM`?");
    is_told(
        "start.contain = \"atuo\"",
        1,
        "start.contain: `atuo` is none of auto, cgroup, pidns, reaper",
        "did you mean `auto`?",
    );
    is_told(
        "start.restart = \"on_failure\"",
        1,
        "start.restart: `on_failure` is none of no, on-failure, always",
        "did you mean `on-failure`?",
    );
}

#[test]
fn a_bad_value_is_an_error_also_where_a_stronger_layer_wins() {
    let dirs = ConfigDirs::new();
    dirs.user("[stop]\ngrace = \"soon\"\n");
    dirs.project("[stop]\ngrace = \"1s\"\n");
    assert!(matches!(dirs.load(&[("QUELL_STOP_GRACE", "1s")]), Err(Error::Config { line: 2, .. })));
}

#[test]
fn an_error_is_one_line_whatever_was_written() {
    let (_, message, _) = told("[stop]\ngrace = \"a\\n\\u001b[1mb\"\n");
    assert!(message.starts_with("stop.grace: invalid duration `a\\n\\u{1b}[1mb`"), "{message:?}");
    let (_, message, _) = told("[\"a\\nb\"]\n");
    assert_eq!(message, "unknown table `a\\nb`");
}

#[test]
fn of_several_problems_the_first_is_told_and_the_others_are_named() {
    let (line, message, _) = told("[stop]\nsignal = 1\ngrce = 1\n[abc]\nx = 1\n");
    let more = " (more is wrong in line 3, 4)";
    assert_eq!((line, message), (2, format!("stop.signal: must be a string, not integer `1`{more}")));
}

#[test]
fn a_syntax_error_is_told_with_its_line() {
    for (text, wanted) in [
        ("[stop]\ngrace = \n", 2),
        ("[stop]\ngrace = \"5s\nsignal = \"TERM\"\n", 2),
        ("\n\n[stop\n", 3),
        ("[stop]\ngrace = \"1s\"\ngrace = \"2s\"\n", 3),
        ("[gc]\nauto = yes\n", 2),
    ] {
        let (line, message, hint) = told(text);
        assert_eq!(line, wanted, "{text:?}: {message}");
        assert!(!message.is_empty() && !message.contains('\n'), "{message:?}");
        assert!(hint.contains("toml.io"), "{hint}");
    }
}

#[test]
fn a_file_that_is_no_utf8_is_told_with_its_line() {
    let dirs = ConfigDirs::new();
    dirs.write("project/quell.toml", b"[stop]\n# caf\xe9\n");
    let error = dirs.load(&[]).unwrap_err();
    assert!(matches!(error, Error::Config { line: 2, .. }), "{error:?}");
    assert!(error.to_string().ends_with("quell.toml:2: is not UTF-8"), "{error}");
}

#[test]
fn a_bad_hook_is_told_with_its_line() {
    let one = "a hook has exactly one of `run` and `append`";
    for (text, line, message) in [
        ("[[hooks]]\non = [\"ended\"]\n", 1, one),
        ("\n[[hooks]]\non = [\"ended\"]\nrun = [\"a\"]\nappend = \"b\"\n", 2, one),
        ("[[hooks]]\nappend = \"b\"\n", 1, "a hook without `on` is never called"),
        (
            "[[hooks]]\non = [\"endde\"]\nappend = \"b\"\n",
            2,
            "hooks.on: `endde` is none of started, ready, ended,",
        ),
        ("[[hooks]]\non = []\nappend = \"b\"\n", 2, "hooks.on: must be a list of events"),
        ("[[hooks]]\non = [\"ended\"]\nrun = []\n", 3, "hooks.run: the command is missing"),
        ("[[hooks]]\non = [\"ended\"]\nrun = [\"\"]\n", 3, "hooks.run: the command is missing"),
        (
            "[[hooks]]\non = [\"ended\"]\nrun = \"a b\"\n",
            3,
            "hooks.run: must be a list of strings, not string \"a b\"",
        ),
        (
            "[[hooks]]\non = [\"ended\"]\nrun = [\"a\\u0000\"]\n",
            3,
            "hooks.run: a word of a command can't hold a NUL",
        ),
        ("[[hooks]]\non = [\"ended\"]\nappend = \"\"\n", 3, "hooks.append: `` is not the path of a file"),
        (
            "[[hooks]]\non = [\"ended\"]\nappend = \"a\"\ntimeout = \"0s\"\n",
            4,
            "hooks.timeout: `0s` is too short",
        ),
        (
            "[[hooks]]\non = [\"ended\"]\nappend = \"a\"\ntimeout = 3\n",
            4,
            "hooks.timeout: must be a string, not",
        ),
        ("[[hooks]]\non = [\"ended\"]\nappend = \"a\"\nevery = 1\n", 4, "hooks: unknown key `every`"),
        ("[hooks]\non = [\"ended\"]\n", 1, "`hooks` must be a list of tables"),
        ("hooks = [1]\n", 1, "hooks: must be a table, not integer `1`"),
    ] {
        let told = told(text);
        assert!(told.0 == line && told.1.starts_with(message) && !told.2.is_empty(), "{text:?}: {told:?}");
    }
    let hint = told("[[hooks]]\non = [\"endde\"]\nappend = \"b\"\n").2;
    assert_eq!(hint, "did you mean `ended`?");
}

#[test]
fn a_bad_variable_is_told_by_its_name() {
    let dirs = ConfigDirs::new();
    for (name, value, message, hint) in [
        (
            "QUELL_STOP_GRACE",
            "soon",
            "QUELL_STOP_GRACE: invalid duration `soon`",
            "correct it, or unset QUELL_STOP_GRACE",
        ),
        (
            "QUELL_GC_AUTO",
            "maybe",
            "QUELL_GC_AUTO: `maybe` is none of true, false, yes, no",
            "correct it, or unset QUELL_GC_AUTO",
        ),
        (
            "QUELL_GC_MAX_COUNT",
            "+1",
            "QUELL_GC_MAX_COUNT: `+1` is not a count",
            "correct it, or unset QUELL_GC_MAX_COUNT",
        ),
        (
            "QUELL_START_UNTIL",
            "rot",
            "QUELL_START_UNTIL: `rot` is none of root, tree",
            "did you mean `root`?",
        ),
        (
            "QUELL_STOP_GRCE",
            "1s",
            "QUELL_STOP_GRCE: there is no such setting",
            "did you mean QUELL_STOP_GRACE?",
        ),
        (
            "QUELL_START_GRACE",
            "1s",
            "QUELL_START_GRACE: there is no such setting",
            "did you mean QUELL_STOP_GRACE?",
        ),
        ("QUELL_HOMME", "x", "QUELL_HOMME: there is no such setting", "did you mean QUELL_HOME?"),
        ("QUELL_TEST_TIMOUT", "1s", "QUELL_TEST_TIMOUT: there is no", "did you mean QUELL_TEST_TIMEOUT?"),
        (
            "QUELL_STOPWATCH",
            "x",
            "QUELL_STOPWATCH: there is no",
            "unset it; docs/config.md lists the variables that quell knows",
        ),
        (
            "QUELL_READY_PORT_NUMBER",
            "1",
            "QUELL_READY_PORT_NUMBER: there is no",
            "unset it; known are QUELL_READY_INTERVAL, QUELL_READY_TIMEOUT",
        ),
        (
            "QUELL_TRUST_PROJECTS",
            "/",
            "QUELL_TRUST_PROJECTS: [trust] can only be set in a file",
            "unset QUELL_TRUST_PROJECTS",
        ),
        ("QUELL_GUARD_X", "1", "QUELL_GUARD_X: [guard] can only be set in a file", "unset QUELL_GUARD_X"),
        ("QUELL_HOOKS_X", "1", "QUELL_HOOKS_X: [hooks] can only be set in a file", "unset QUELL_HOOKS_X"),
    ] {
        let error = dirs.load(&[(name, value)]).unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
        assert_eq!((error.code(), error.suggestion()), ("bad_value", Some(hint)));
        assert_eq!(error.details()["variable"], name);
    }
    let latin = OsString::from_vec(b"\xe9".to_vec());
    let error = Config::load(&dirs.path("project"), [("QUELL_STOP_GRACE".into(), latin)]).unwrap_err();
    assert_eq!(error.to_string(), "QUELL_STOP_GRACE: is not UTF-8");
}
