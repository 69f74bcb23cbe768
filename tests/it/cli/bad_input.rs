//! Bad input gets one clear line and the documented code, in JSON too, and nothing is left behind.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    process::Command,
};

use quell_tests::{
    host::{Contain, Setting, User, am_root},
    run::{Finished, Quell},
    skip,
    test_env::TestEnv,
};

/// A program that leaves a trace if it ever runs.
pub(crate) const TRACE: &str = "touch ran";

pub(crate) fn one_clear_line(done: &Finished, code: i32) {
    let lines: Vec<&str> = done.stderr.lines().collect();
    assert_eq!(done.code(), Some(code), "{}; stderr: {:?}", done.status, done.stderr);
    assert_eq!(lines.len(), 1, "not one line: {:?}", done.stderr);
    assert!(lines[0].starts_with("quell: ") && lines[0].len() > 15, "not a clear line: {:?}", done.stderr);
}

pub(crate) fn error_envelope(done: &Finished, verb: &str, code: i32) {
    assert_eq!(done.code(), Some(code), "{}; stderr: {:?}", done.status, done.stderr);
    assert_eq!(done.stdout.trim().lines().count(), 1, "more than the envelope: {:?}", done.stdout);
    let envelope = done.envelope();
    assert_eq!(envelope["schema"], "quell/1", "{envelope}");
    assert_eq!(envelope["ok"], false, "{envelope}");
    assert_eq!(envelope["type"], verb, "{envelope}");
    let error = &envelope["error"];
    assert!(error["code"].as_str().is_some_and(|code| !code.is_empty()), "{envelope}");
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{envelope}");
    assert!(error["hint"].is_string() && error["retryable"].is_boolean(), "{envelope}");
    assert!(error.get("details").is_some(), "{envelope}");
}

/// The same command line for a person and, with `--json`, for a program.
pub(crate) fn is_refused<'l>(env: &'l TestEnv, code: i32, line: impl Fn(Quell<'l>) -> Quell<'l>) {
    one_clear_line(&line(env.run()).finish(), code);
    error_envelope(&line(env.run().args(["--json"])).finish(), "run", code);
    assert!(!env.path("ran").exists(), "the program ran although something was wrong");
    assert_eq!(env.leftovers(), Vec::<String>::new());
}

pub(crate) fn options_are_refused(cases: &[&[&str]]) {
    let env = TestEnv::as_me();
    for options in cases {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            is_refused(&env, 125, |quell| quell.args(*options).sh(TRACE));
        }))
        .map_err(|_| panic!("with {options:?}, see above"));
    }
}

#[test]
fn a_very_long_word_is_not_echoed_whole() {
    let env = TestEnv::as_me();
    let word = "x".repeat(100_000);
    for words in [&["run", "--", &word][..], &["start", "--", &word], &["status", &word]] {
        let done = env.quell(words[0]).args(&words[1..]).finish();
        one_clear_line(&done, done.code().filter(|code| *code != 0).expect("a failure"));
        assert!(done.stderr.len() < 10_000 && done.stderr.contains("xx…"), "{} bytes", done.stderr.len());
    }
}

#[test]
fn an_unknown_signal_is_an_error_and_never_a_kill() {
    options_are_refused(&[
        &["--signal", "NOPE"],
        &["--signal", "0"],
        &["--signal", "99"],
        &["--signal", "-9"],
        &["--signal", ""],
        &["--signal", "TERM KILL"],
    ]);
}

#[test]
fn a_bad_duration_is_an_error() {
    options_are_refused(&[
        &["--timeout", "soon"],
        &["--timeout", "5parsecs"],
        &["--timeout", "-1s"],
        &["--timeout", ""],
        &["--timeout", "1e99s"],
        &["--timeout", "nan"],
        &["--grace", "1x"],
        &["--grace", "inf"],
    ]);
}

#[test]
fn a_bad_choice_or_option_is_an_error() {
    options_are_refused(&[
        &["--contain", "magic"],
        &["--leak", "maybe"],
        &["--until", "never"],
        &["--bogus"],
        &["--tag", "noequals"],
        &["--timeout"],
    ]);
}

/// What is missing or would be right is part of the line.
#[test]
fn a_name_that_could_hide_the_id_of_another_job_is_refused() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    for name in [&job.id[..], &job.id[..8], &job.id[..12].to_lowercase()] {
        for (quell, code) in [(env.start(), 2), (env.run(), 125), (env.quell("test"), 2)] {
            let done = quell.args(["--name", name]).command(["true"]).finish();
            assert_eq!(done.code(), Some(code), "{name}: {}", done.stderr);
            assert!(done.stderr.contains("looks like the beginning of a job id"), "{name}: {}", done.stderr);
        }
    }
    assert_eq!(env.ids("jobs"), std::slice::from_ref(&job.id));
}

#[test]
fn a_usage_error_names_what_it_wants() {
    let env = TestEnv::as_me();
    for (verb, words, wanted) in [
        ("stop", &[][..], "<JOB|--tag"),
        ("wait", &[], "<JOB>"),
        ("start", &["--restart", "sometimes", "true"], "no, on-failure, always"),
        ("start", &["--signal", "TREM", "true"], "did you mean TERM?"),
        ("wait", &["x", "--timeout", "0"], "must be greater than 0"),
    ] {
        let done = env.quell(verb).args(words).finish();
        one_clear_line(&done, 2);
        assert!(done.stderr.contains(wanted), "{verb} {words:?}: {}", done.stderr);
    }
    for verb in ["run", "start"] {
        let help = env.quell(verb).args(["--help"]).finish().stdout;
        assert!(help.starts_with(if verb == "run" { "Run a command" } else { "Start a command" }), "{help}");
    }
    for words in [&["start", "--stdin", "nosuch", "--", "true"][..], &["send", "x", "--file", "nosuch"]] {
        let job = env.start().args(["--stdin", "pipe", "--name", "x"]).command(["cat"]).begin();
        let done = env.quell(words[0]).args(&words[1..]).finish();
        assert_eq!(done.code(), Some(125), "{}", done.stderr);
        assert!(!done.stderr.contains("space"), "{}", done.stderr);
        assert_eq!(job.stop(&["--now"]).code(), Some(0));
    }
}

#[test]
fn a_bad_limit_is_an_error() {
    options_are_refused(&[
        &["--limit-memory", "lots"],
        &["--limit-memory", "-5M"],
        &["--limit-procs", "many"],
        &["--limit-cpu", "fast"],
    ]);
}

#[test]
fn an_environment_without_an_equals_sign_is_an_error() {
    let env = TestEnv::as_me();
    is_refused(&env, 125, |quell| quell.args(["--env", "NOEQUALS"]).sh(TRACE));
    is_refused(&env, 125, |quell| quell.args(["--env", "=x"]).sh(TRACE));
    let file = env.write("bad.env", "GOOD=1\nthis is not an assignment\n");
    is_refused(&env, 125, |quell| quell.args(["--env-file", file.to_str().expect("UTF-8")]).sh(TRACE));
    // A line may be a part of a secret, so it is named and not shown.
    let file = env.write("shell.env", "A=1\nexport TOKEN=hidden\n");
    let words = ["--env-file", file.to_str().expect("UTF-8")];
    is_refused(&env, 125, |quell| quell.args(words).sh(TRACE));
    let done = env.run().args(words).sh(TRACE).finish();
    assert!(done.stderr.contains("shell.env: line 2 is not"), "{}", done.stderr);
    assert!(!done.stderr.contains("TOKEN") && !done.stderr.contains("hidden"), "{}", done.stderr);
    is_refused(&env, 125, |quell| quell.args(["--env-file", "/nonexistent/env"]).sh(TRACE));
}

#[test]
fn no_command_at_all_is_an_error() {
    let env = TestEnv::as_me();
    is_refused(&env, 125, |quell| quell);
    is_refused(&env, 125, |quell| quell.args(["--"]));
}

#[test]
fn a_missing_program_is_127_in_every_setting() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let contain = ["--contain", setting.contain.as_str()];
        is_refused(&env, 127, |quell| quell.args(contain).command(["no-such-program-anywhere"]));
        is_refused(&env, 127, |quell| quell.args(contain).command(["./no-such-file"]));
    }
}

#[test]
fn a_program_that_can_not_be_executed_is_126_in_every_setting() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let contain = ["--contain", setting.contain.as_str()];
        env.write("plain.txt", "not a program\n");
        fs::set_permissions(env.path("plain.txt"), fs::Permissions::from_mode(0o644)).expect("chmod");
        is_refused(&env, 126, |quell| quell.args(contain).command(["./plain.txt"]));
        is_refused(&env, 126, |quell| quell.args(contain).command(["/"]));
    }
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let env = TestEnv::as_me();
    is_refused(&env, 125, |quell| quell.args(["--cwd", "/nonexistent/dir"]).sh(TRACE));
    let file = env.write("file", "");
    is_refused(&env, 125, |quell| quell.args(["--cwd", file.to_str().expect("UTF-8")]).sh(TRACE));
}

#[test]
fn a_directory_that_may_not_be_entered_is_an_error() {
    let env = TestEnv::new(User::Ordinary);
    let closed = env.path("closed");
    fs::create_dir(&closed).expect("mkdir");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("chmod");
    is_refused(&env, 125, |quell| quell.args(["--cwd", closed.to_str().expect("UTF-8")]).sh(TRACE));
}

#[test]
fn a_receipt_that_can_not_be_written_is_an_error_before_the_program_runs() {
    let env = TestEnv::new(User::Ordinary);
    is_refused(&env, 125, |quell| quell.args(["--receipt", "/nonexistent/dir/receipt.json"]).sh(TRACE));
    is_refused(&env, 125, |quell| quell.args(["--receipt", "/proc/receipt.json"]).sh(TRACE));
    let dir = env.dir().to_str().expect("UTF-8");
    is_refused(&env, 125, |quell| quell.args(["--receipt", dir]).sh(TRACE));
    is_refused(&env, 125, |quell| quell.args(["--receipt-fd", "99"]).sh(TRACE));
    is_refused(&env, 125, |quell| quell.args(["--receipt-fd", "-1"]).sh(TRACE));
    let read_only = ["sh", "-c", "exec \"$@\" 9</dev/null", "sh"];
    is_refused(&env, 125, |quell| quell.wrapped(read_only).args(["--receipt-fd", "9"]).sh(TRACE));
}

#[test]
fn a_terminal_takes_no_other_standard_input() {
    let env = TestEnv::as_me();
    for stdin in ["null", "-", "/dev/null"] {
        let done = env.start().args(["--pty", "--stdin", stdin]).command(["true"]).finish();
        assert_eq!(done.code(), Some(2), "{stdin}: {}", done.stderr);
        assert!(done.stderr.contains("a terminal is its own standard input"), "{stdin}: {}", done.stderr);
    }
    assert_eq!(env.start().args(["--pty"]).command(["true"]).finish().code(), Some(0));
}

#[test]
fn errors_about_arguments_say_what_is_wrong_with_which() {
    let env = TestEnv::as_me();
    let job =
        env.start().args(["--name", "it", "--stdin", "pipe"]).command(["sleep", &env.oracle.nap()]).begin();
    let says = |verb: &str, words: &[&str], what: &str| {
        let done = env.quell(verb).args(words).finish();
        assert_eq!(done.code(), Some(2), "{verb} {words:?}: {}", done.stderr);
        assert!(done.stderr.contains(what), "{verb} {words:?}: {}", done.stderr);
    };
    for text in ["0", "x", "1.5"] {
        says("start", &["--limit-procs", text, "--", "true"], "expected a whole number greater than 0");
    }
    says("logs", &["it", "--tail", "x"], "expected a whole number");
    says("logs", &["it", "--head", "1.5"], "expected a whole number");
    says("list", &["--limit", "x"], "expected a whole number");
    says("list", &["--name", "a b"], "`a b` is not a name");
    says("list", &["--session", "a b"], "`a b` is not a name");
    let done = env.quell("send").args(["it", "--file", "/nonexistent"]).finish();
    let why = "/nonexistent: can't be read: No such file";
    assert!(done.code() == Some(125) && done.stderr.contains(why), "{}", done.stderr);
    says("start", &["--leak", "keep", "--", "true"], "(see `quell start --help`)");
    drop(job);
}

#[test]
fn a_receipt_never_replaces_a_device() {
    let env = TestEnv::as_me();
    let device = env.path("null");
    let made = Command::new("mknod").arg(&device).args(["c", "1", "3"]).output();
    if !made.is_ok_and(|output| output.status.success()) {
        return skip("a_receipt_never_replaces_a_device", "mknod is not allowed here");
    }
    let done = env.run().args(["--receipt", device.to_str().expect("UTF-8")]).command(["true"]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(fs::metadata(&device).is_ok_and(|meta| meta.file_type().is_char_device()), "the device is gone");
}

#[test]
fn a_state_directory_that_can_not_be_written_is_an_error() {
    let env = TestEnv::new(User::Ordinary);
    is_refused(&env, 125, |quell| quell.env("QUELL_HOME", "/proc/quell").sh(TRACE));
    let file = env.write("file", "");
    is_refused(&env, 125, |quell| quell.env("QUELL_HOME", &file).sh(TRACE));
}

#[test]
fn usage_errors_of_other_verbs_exit_with_2() {
    let env = TestEnv::as_me();
    one_clear_line(&env.quell("doctor").args(["--bogus"]).finish(), 2);
    error_envelope(&env.quell("doctor").args(["--json", "--bogus"]).finish(), "doctor", 2);
    one_clear_line(&env.quell("no-such-verb").finish(), 2);
}

#[test]
fn a_containment_that_can_not_be_had_is_an_error_and_never_a_downgrade() {
    if !am_root() {
        return skip("a_containment_that_can_not_be_had…", "needs root to take a cgroup away");
    }
    // The user `nobody` may not write the root cgroup, where the tests run, and no user bus answers there.
    let env = TestEnv::new(User::Ordinary);
    let probe = env.run().args(["--json", "--contain", Contain::Cgroup.as_str()]).command(["true"]).finish();
    if probe.code() == Some(0) {
        // What held it is what was asked for, or the success itself is the downgrade.
        assert!(Contain::Cgroup.is_held_in(&probe.envelope()["data"]), "{}", probe.stdout);
        return skip("a_containment_that_can_not_be_had…", "this user has a cgroup without help");
    }
    is_refused(&env, 125, |quell| quell.args(["--contain", "cgroup"]).sh(TRACE));
}

/// Runs `quell run` with the shell's redirections applied.
fn redirected(env: &TestEnv, redirections: &str, options: &[&str], script: &str) -> Finished {
    let exec = format!(r#"exec "$@" {redirections}"#);
    env.run().wrapped(["sh", "-c", &exec, "sh"]).args(options).sh(script).finish()
}

#[test]
fn closed_standard_descriptors_do_no_harm() {
    for setting in Setting::all() {
        for closed in ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"] {
            let env = TestEnv::with(setting);
            let options = ["--contain", setting.contain.as_str(), "--receipt", "receipt.json"];
            let done = redirected(&env, closed, &options, "touch ran; exit 5");
            assert_eq!(done.code(), Some(5), "{closed} under {setting}: {}", done.stderr);
            assert!(env.path("ran").exists(), "{closed} under {setting}: the program did not run");
            quell_tests::evidence::receipt(&env.path("receipt.json")).expect("a receipt");
            assert_eq!(env.leftovers(), Vec::<String>::new(), "{closed} under {setting}");
        }
    }
}

#[test]
fn json_with_a_closed_stdout_still_ends() {
    let env = TestEnv::as_me();
    let done = redirected(&env, ">&-", &["--json"], "exit 5");
    assert!(matches!(done.code(), Some(5 | 125)), "{}: {}", done.status, done.stderr);
    assert_eq!(env.leftovers(), Vec::<String>::new());
}

#[test]
fn a_full_disk_is_an_error_before_the_program_runs() {
    if !am_root() {
        return skip("a_full_disk_is_an_error…", "needs root to mount a small disk");
    }
    let env = TestEnv::new(User::Root);
    fs::create_dir(env.path("disk")).expect("mkdir");
    let wrapper = format!(
        r#"mount -t tmpfs -o size=64k none {0} && mkdir {0}/home && head -c 1m /dev/zero >{0}/fill 2>/dev/null; exec "$@""#,
        env.path("disk").display()
    );
    let full =
        |quell: Quell<'_>| quell.wrapped(["unshare", "-m", "sh", "-c", &wrapper, "sh"]).sh(TRACE).finish();
    let home = env.path("disk").join("home");
    one_clear_line(&full(env.run().env("QUELL_HOME", &home)), 125);
    error_envelope(&full(env.run().args(["--json"]).env("QUELL_HOME", &home)), "run", 125);
    assert!(!env.path("ran").exists(), "the program ran without a record");
    assert!(env.oracle.survivors().is_empty());
}

#[test]
fn a_receipt_on_a_full_disk_is_said_and_the_stop_is_done_all_the_same() {
    if !am_root() {
        return skip("a_receipt_on_a_full_disk…", "needs root to mount a small disk");
    }
    let env = TestEnv::new(User::Root);
    fs::create_dir(env.path("disk")).expect("mkdir");
    let wrapper = format!(r#"mount -t tmpfs -o size=64k none {0}; exec "$@""#, env.path("disk").display());
    let done = env
        .run()
        .wrapped(["unshare", "-m", "sh", "-c", &wrapper, "sh"])
        .args(["--receipt", "disk/receipt.json"])
        .script("setsid sleep $N & head -c 1m /dev/zero >disk/fill 2>/dev/null; exit 3")
        .finish();
    // The program ran and came to its end; only the paper is missing. Both must be told.
    assert!(matches!(done.code(), Some(3 | 125)), "{}: {}", done.status, done.stderr);
    assert!(done.stderr.lines().any(|line| line.starts_with("quell: ")), "not a word: {:?}", done.stderr);
    assert_eq!(env.leftovers(), Vec::<String>::new());
}
