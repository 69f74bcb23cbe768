//! Nothing that a name, an argument, a job's output or another user says can give a terminal orders.

use std::{fs, process::Command};

use quell_tests::{
    host::has_program,
    run::{Finished, PATIENCE, Quell},
    skip,
    test_env::TestEnv,
};

/// Title, clipboard, screen, cursor, C1, delete, bidi, line separator.
const HOSTILE: &str =
    "\x1b]0;pwned\x07\x1b]52;c;cm0=\x1b\\\x1b[2J\x1b[1A\u{9b}2J\x7f\u{202e}\u{2066}\u{200f}\u{2028}\x1b[8m";

/// The first character that a terminal would obey, if there is one.
fn obeyed(text: &str) -> Option<char> {
    let bidi = |c: char| matches!(u32::from(c), 0x061c | 0x200e..=0x200f | 0x2028..=0x202e | 0x2066..=0x2069);
    text.chars().find(|c| (c.is_control() && !"\n\t".contains(*c)) || bidi(*c))
}

fn is_harmless(what: &str, done: &Finished) {
    for (stream, text) in [("stdout", &done.stdout), ("stderr", &done.stderr)] {
        assert_eq!(obeyed(text), None, "{what}: {stream}: {text:?}");
    }
}

/// The same command line in a terminal of its own: everything that it wrote there.
fn on_a_terminal(env: &TestEnv, quell: &Quell<'_>) -> String {
    let file = env.fresh("typescript");
    let quoted = |word: &std::ffi::OsString| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"));
    let words: Vec<String> = quell.words().iter().map(quoted).collect();
    let mut script = Command::new("script");
    script.args(["-qec", &words.join(" ")]).arg(&file).current_dir(env.dir());
    script.env("QUELL_HOME", env.home()).env("HOME", env.dir()).env("TERM", "xterm").env_remove("NO_COLOR");
    script.output().expect("script(1)");
    let text = String::from_utf8_lossy(&fs::read(&file).expect("what was written")).into_owned();
    // script's own first and last line, and what the terminal makes of a line feed.
    let from = text.find('\n').map_or(0, |at| at + 1);
    let to = text.rfind("\nScript done").unwrap_or(text.len());
    text.get(from..to).unwrap_or_default().replace("\r\n", "\n")
}

#[test]
fn arguments_of_every_verb_come_back_as_text() {
    let env = TestEnv::as_me();
    let verbs = [
        "run",
        "start",
        "test",
        "stop",
        "logs",
        "events",
        "wait",
        "send",
        "signal",
        "restart",
        "list",
        "status",
        "tree",
        "stats",
        "rm",
        "gc",
        "sweep",
        "kill",
        "guard",
        "service",
        "doctor",
        "config",
        "completions",
        HOSTILE,
    ];
    for verb in verbs {
        for words in [&[HOSTILE][..], &[&format!("--{HOSTILE}")], &["--json", HOSTILE], &["--tag", HOSTILE]] {
            is_harmless(verb, &env.quell(verb).args(words).finish());
        }
    }
    for (verb, words) in [
        ("start", ["--name", HOSTILE, "--", "true"]),
        ("start", ["--cwd", HOSTILE, "--", "true"]),
        ("run", ["--env-file", HOSTILE, "--", "true"]),
        ("list", ["--state", HOSTILE, "--name", HOSTILE]),
        ("kill", ["--signal", HOSTILE, "--", HOSTILE]),
        ("guard", ["check", "verb", HOSTILE, "--json"]),
        ("service", ["status", HOSTILE, "--user", "--json"]),
        ("test", ["--scope", HOSTILE, "--", HOSTILE]),
    ] {
        is_harmless(verb, &env.quell(verb).args(words).finish());
    }
    is_harmless("config", &env.quell("config").args(["show"]).env("QUELL_START_CONTAIN", HOSTILE).finish());
}

#[test]
fn a_jobs_words_come_back_as_text() {
    let env = TestEnv::as_me();
    let nap = env.oracle.nap();
    let script = format!("# {HOSTILE}\nprintf 'go %s\\n' \"$1\"; sleep {nap} & sleep {nap}");
    let job = env
        .start()
        .args(["--tag", &format!("k={HOSTILE}"), "--ready-log", "^go"])
        .command(["sh", "-c", &script, "sh", HOSTILE])
        .begin();
    let id = job.id.as_str();
    let waited = env.quell("wait").args([id, "--log", "^go"]).finish();
    assert!(waited.stdout.contains("pwned"), "{}", waited.stdout);
    is_harmless("wait", &waited);
    let verbs = ["list", "status", "tree", "events"];
    let look = |verb: &str, json: bool| {
        let words = [(verb != "list").then_some(id), json.then_some("--json")];
        env.quell(verb).args(words.into_iter().flatten())
    };
    for verb in verbs {
        is_harmless(verb, &look(verb, false).finish());
        is_harmless(verb, &look(verb, true).finish());
    }
    is_harmless("logs", &env.quell("logs").args([id, "--json"]).finish());
    let stopped = env.quell("stop").args([id, "--reason", HOSTILE]).finish();
    assert!(stopped.stdout.contains("pwned"), "{}", stopped.stdout);
    is_harmless("stop", &stopped);
    assert!(job.wait_over(PATIENCE));
    for verb in verbs {
        let done = look(verb, false).finish();
        is_harmless(verb, &done);
        let shown = done.stdout.contains("\\x1b]0;pwned");
        assert!(shown, "{verb} shows what it does not pass: {}", done.stdout);
        let done = look(verb, true).finish();
        is_harmless(verb, &done);
        // For programs nothing is lost.
        assert!(verb == "events" || done.envelope()["data"].to_string().contains('\u{202e}'), "{verb}");
    }
    is_harmless("stats", &env.quell("stats").args(["--by-tag", "k"]).finish());
    // Files that people read with other tools.
    for file in ["spec.json", "receipt.json", "events.jsonl", "state.jsonl"].map(|name| job.dir().join(name))
    {
        assert_eq!(obeyed(&fs::read_to_string(&file).expect("a file")), None, "{file:?}");
    }
    assert_eq!(obeyed(&fs::read_to_string(env.home().join("audit.jsonl")).expect("a log")), None);
}

#[test]
fn the_account_of_a_run_is_text() {
    let env = TestEnv::as_me();
    let script = format!("sleep {} # {HOSTILE}", env.oracle.nap());
    let run =
        env.run().args(["--timeout", "300ms", "--grace", "0"]).sh(&format!("({script}\n) & {script}\nwait"));
    let done = run.finish();
    assert_eq!(done.code(), Some(124), "{}", done.stderr);
    assert!(done.stderr.contains("timed out"), "{}", done.stderr);
    is_harmless("run", &done);
    is_harmless("run", &env.run().command([HOSTILE]).finish());
}

#[test]
fn on_a_terminal_only_quells_own_colors_are_added() {
    if !has_program("script") {
        return skip("on_a_terminal_only_quells_own_colors_are_added", "there is no script(1)");
    }
    let env = TestEnv::as_me();
    let job = env.start().args(["--tag", &format!("k={HOSTILE}")]).sh(&format!("exit 3 # {HOSTILE}")).begin();
    assert!(job.wait_over(PATIENCE));
    for verb in ["list", "status", "tree", "events", "stats"] {
        let words: &[&str] = match verb {
            "list" => &[],
            "stats" => &["--by-tag", "k"],
            _ => &[&job.id],
        };
        let mut text = on_a_terminal(&env, &env.quell(verb).args(words));
        for own in ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"] {
            text = text.replace(own, "");
        }
        assert_eq!(obeyed(&text), None, "{verb}: {text:?}");
    }
}

#[test]
fn logs_on_a_terminal_pass_colors_and_text_alone() {
    if !has_program("script") {
        return skip("logs_on_a_terminal_pass_colors_and_text_alone", "there is no script(1)");
    }
    let env = TestEnv::as_me();
    let said = format!("\x1b[1;32mgreen\x1b[0m\tä\n{HOSTILE}text\rmore\n\x1b]0;open\nlast\x1b[31m\n");
    let file = env.write("said", &said);
    let job = env.start().command(["cat", file.to_str().expect("a path")]).begin();
    assert!(job.wait_over(PATIENCE));
    let logs = |options: &[&str]| env.quell("logs").args([job.id.as_str()]).args(options);
    for options in [&[][..], &["--stdout"], &["-f"], &["--tail", "9"], &["--grep", "."]] {
        let text = on_a_terminal(&env, &logs(options));
        for passed in ["\x1b[1;32mgreen\x1b[0m\tä\n", "text\\rmore\n", "last\x1b[31m\n"] {
            assert!(text.contains(passed), "{options:?}: {passed:?} is missing: {text:?}");
        }
        assert!(text.trim_end().ends_with("\x1b[0m"), "{options:?}: the color goes on: {text:?}");
        let colorless = ["\x1b[1;32m", "\x1b[0m", "\x1b[31m"]
            .iter()
            .fold(text.clone(), |text, color| text.replace(color, ""));
        assert_eq!(obeyed(&colorless), None, "{options:?}: {text:?}");
        assert!(!text.contains("pwned") && !text.contains("cm0="), "{options:?}: {text:?}");
    }
    assert_eq!(on_a_terminal(&env, &logs(&["--raw"])), said, "--raw passes everything");
    // Into a pipe nothing is changed.
    for options in [&[][..], &["--stdout"], &["--raw"], &["-f"]] {
        assert_eq!(logs(options).finish().stdout, said, "{options:?}");
    }
}

#[test]
fn colors_of_tests_do_not_hide_the_summary() {
    if !has_program("script") {
        return skip("colors_of_tests_do_not_hide_the_summary", "there is no script(1)");
    }
    let env = TestEnv::as_me();
    for stream in ["", " >&2"] {
        let hiding = env.quell("test").sh(&format!(r"printf 'ok\033[30;40m\n'{stream}; exit 1"));
        let text = on_a_terminal(&env, &hiding);
        let coloured = text.find("\x1b[30;40m").unwrap_or_else(|| panic!("no color: {text:?}"));
        let summary = text.find("quell: fail").unwrap_or_else(|| panic!("no summary: {text:?}"));
        let reset = text[coloured..].find("\x1b[0m").map(|at| coloured + at);
        assert!(reset.is_some_and(|reset| reset < summary), "{stream}: {text:?}");
    }
}

/// A stop and a wait that take long show on a terminal that they go on, and nowhere else.
#[test]
fn progress_is_for_terminals_alone() {
    if !has_program("script") {
        return skip("progress_is_for_terminals_alone", "there is no script(1)");
    }
    let env = TestEnv::as_me();
    let deaf = format!("trap '' TERM; echo up; exec sleep {}", env.oracle.nap());
    let begin = || {
        let start = env.start().args(["--name", "deaf", "--ready-log", "up", "--wait-ready", "30s"]);
        start.args(["--grace", "4s"]).sh(&deaf).begin()
    };
    let mut job = begin();
    let wait = || env.quell("wait").args(["deaf", "--timeout", "3s"]);
    let text = on_a_terminal(&env, &wait());
    assert!(text.contains("waiting for deaf (") && text.contains("\r\x1b[K"), "{text:?}");
    let done = wait().finish();
    assert_eq!(done.code(), Some(6), "{}", done.stderr);
    assert!(!done.stderr.contains("waiting"), "{}", done.stderr);
    let text = on_a_terminal(&env, &env.quell("stop").args(["deaf"]));
    assert!(text.contains("stopping 1 job, 1 left (") && text.contains("0 left"), "{text:?}");
    assert!(job.wait_over(PATIENCE));
    for options in [&["--json"][..], &["--quiet"]] {
        job = begin();
        let text = on_a_terminal(&env, &env.quell("stop").args(["deaf"]).args(options));
        assert!(!text.contains("stopping") && !text.contains('\x1b'), "{options:?}: {text:?}");
        assert_eq!(text.is_empty(), options == ["--quiet"], "{options:?}: {text:?}");
        assert!(job.wait_over(PATIENCE));
    }
}
