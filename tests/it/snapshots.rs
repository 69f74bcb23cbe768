//! What people see, as files in `snapshots/`: every help text, the tables, the account of a stop.
//!
//! `INSTA_UPDATE=always cargo test -p quell-tests --test it -- snapshots::` writes them again.

use std::path::Path;

use quell_tests::{jobs::Background, run::PATIENCE, skip, test_env::TestEnv};
use regex_lite::Regex;

use crate::cli::completions_man::verbs;

/// Compares `text` with the file of that name.
fn check(name: &str, text: &str) {
    if !Path::new(env!("CARGO_MANIFEST_DIR")).join("it/snapshots").is_dir() {
        // The tests may run where the source is not.
        return skip(name, "no tests/it/snapshots here");
    }
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, text);
    });
}

/// `text` with words in the place of all that differs from run to run.
fn redacted(env: &TestEnv, text: &str) -> String {
    let dir = regex_lite::escape(&env.dir().display().to_string());
    let nap = regex_lite::escape(&env.oracle.nap());
    let rules = [
        (dir.as_str(), "[dir]"),
        (nap.as_str(), "[nap]"),
        // Before the ids: `.012Z` ends like a short one.
        (r"\b\d{4}-\d\d-\d\dT[0-9:.]+Z", "[time]"),
        (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d\b", "[time]"),
        (r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "[id]"),
        (r"\b01[0-9A-HJKMNP-TV-Z]{2,22}\b", "[short]"),
        (r"\b(now|\d+s ago)\b", "[age]"),
        (r"\b\d+ %", "[part] %"),
        (r"(?s)\(pid [^)]*\)", "([caller])"),
        (r"\bpid \d+", "[pid]"),
        (r"\b\d{2,7}\b  ", "[pid]  "),
        (r"(?m)^ *\d{2,7}  ", "[pid]  "),
        (r"\b\d+(\.\d+)?(ms|s|m|h)\b", "[span]"),
        (r"\b\d+(\.\d+)? (KiB|MiB|GiB|B)\b", "[size]"),
        (r"\b(cgroup|scope|reaper)\b", "[hold]"),
        (r"(?m)^ +PID ", "PID "),
        // Columns are as wide as what was there before.
        (r" {2,}", "  "),
    ];
    // Continued lines stand further in than labels. What could defeat a containment differs from host to host.
    let mut defeats = false;
    let kept = text.lines().filter(|line| {
        defeats = line.starts_with("  defeated by") || (defeats && line.starts_with("    "));
        !defeats
    });
    let text: String = kept.map(|line| format!("{line}\n")).collect();
    rules.iter().fold(text, |text, (pattern, word)| {
        Regex::new(pattern).expect("a pattern").replace_all(&text, *word).into_owned()
    })
}

#[test]
fn help_texts() {
    let env = TestEnv::as_me();
    let nested =
        ["config show", "guard check", "guard check kill", "guard check service", "guard check test"];
    let nested = nested.into_iter().chain(["guard check verb", "man"]).map(str::to_owned);
    let all: Vec<String> = verbs(&env).into_iter().chain(nested).chain([String::new()]).collect();
    for columns in ["80", "120"] {
        for words in &all {
            let mut words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
            let name = ["help", columns].iter().chain(&words).copied().collect::<Vec<_>>().join("-");
            words.push("--help");
            let done = env.quell(words[0]).args(&words[1..]).env("COLUMNS", columns).finish();
            assert_eq!(done.code(), Some(0), "{words:?}: {}", done.stderr);
            let wide = |line: &&str| line.chars().count() > columns.parse().expect("a number");
            assert_eq!(done.stdout.lines().find(wide), None, "{name}");
            let first = done.stdout.lines().next().unwrap_or_default();
            assert!(first.len() <= 70 && !first.ends_with('.'), "{name}: {first}");
            check(&name, &done.stdout);
        }
    }
}

#[test]
fn the_account_of_a_stop_and_doctor_fit_the_terminal() {
    let env = TestEnv::as_me();
    let long = "a-rather-long-word-".repeat(10);
    let script = format!("bash -c 'sleep {}; :' {long} & wait", env.oracle.nap());
    for columns in [60, 80, 120] {
        let fits = |text: &str| {
            let wide = text.lines().find(|line| line.chars().count() > columns);
            assert_eq!(wide, None, "{columns}:\n{text}");
        };
        let start = |name| env.start().args(["--name", name]).command(["/bin/bash", "-c", &script]).begin();
        let jobs = ["web", "worker"].map(start);
        let stop = env.quell("stop").args(["web", "worker"]).env("COLUMNS", columns.to_string()).finish();
        assert_eq!(stop.code(), Some(0), "{}", stop.stderr);
        fits(&stop.stdout);
        for name in ["(web)", "(worker)"] {
            assert!(stop.stdout.contains(name), "{}", stop.stdout);
        }
        assert!(stop.stdout.contains("\nbash -c "), "{}", stop.stdout);
        for job in &jobs {
            fits(&env.quell("tree").args([&job.id]).env("COLUMNS", columns.to_string()).finish().stdout);
        }
        let doctor = env.quell("doctor").env("COLUMNS", columns.to_string()).finish().stdout;
        let whole = env.quell("doctor").finish().stdout;
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&doctor), words(&whole), "words are broken");
        fits(&doctor);
    }
}

/// A job of a shell, a child in another session, and one that ignores TERM; all of them are up.
fn web(env: &TestEnv) -> Background<'_> {
    let script = "setsid sleep $N & until grep -q sleep /proc/$!/comm; do :; done
        (trap '' TERM; exec sleep $N) & until grep -q sleep /proc/$!/comm; do :; done
        echo up; wait";
    let start =
        env.start().args(["--name", "web", "--tag", "team=a", "--ready-log", "up", "--grace", "100ms"]);
    let start = start.args(["--wait-ready", "30s"]).env("N", env.oracle.nap());
    env.write("web.sh", script);
    start.command(["bash", "web.sh"]).begin()
}

#[test]
fn tables_and_the_account_of_a_stop() {
    let env = TestEnv::as_me();
    let empty = env.quell("list").finish();
    check("list-empty", &format!("{}{}", empty.stdout, empty.stderr));
    let job = web(&env);
    let failed = env.start().args(["--name", "failed"]).command(["sh", "-c", "exit 3"]).begin();
    assert!(failed.wait_over(PATIENCE));
    let shown = |verb: &str, args: &[&str]| {
        let done = env.quell(verb).args(args).env("COLUMNS", "100").env("LC_ALL", "C.UTF-8").finish();
        redacted(&env, &format!("{}{}", done.stdout, done.stderr))
    };
    check("list", &shown("list", &[]));
    check("status-live", &shown("status", &["web"]));
    check("tree-live", &shown("tree", &["web"]));
    let stopped = job.stop(&[]);
    assert_eq!(stopped.code(), Some(0), "{}", stopped.stderr);
    check("account", &redacted(&env, &stopped.stdout));
    check("status-ended", &shown("status", &["web"]));
    check("tree-ended", &shown("tree", &["web"]));
    check("stats", &shown("stats", &["--chart"]));
}
