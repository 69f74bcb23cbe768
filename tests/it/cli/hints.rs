//! A hint says what helps with this very error.

use std::{fs, os::unix::fs::PermissionsExt};

use quell_tests::{
    run::Quell,
    skip,
    test_env::{TestEnv, copy_program},
};

#[test]
fn a_home_that_cannot_be_made_is_not_told_to_free_space() {
    let env = TestEnv::as_me();
    for verb in ["start", "run"] {
        let done = env.quell(verb).env("QUELL_HOME", "/proc/nowhere/x").args(["--json"]).command(["true"]);
        let error = done.finish().envelope()["error"].clone();
        assert_eq!(error["code"], "record_unwritable", "{error:#}");
        let hint = error["hint"].as_str().expect("a hint");
        assert!(hint.starts_with("set QUELL_HOME to a directory that you may write"), "{hint}");
    }
}

#[test]
fn a_job_that_was_stopped_before_it_started_is_not_told_to_look_at_limits() {
    let env = TestEnv::as_me();
    for _ in 0..50 {
        let start = env.start().args(["--json", "--timeout", "1ms"]).command(["true"]);
        let error = start.finish().envelope()["error"].clone();
        if error.is_object() {
            assert_eq!(error["code"], "start_failed", "{error:#}");
            let hint = error["hint"].as_str().expect("a hint");
            assert!(!hint.contains("limits") && hint.contains("time was up"), "{hint}");
            return;
        }
    }
    skip("a_job_that_was_stopped_before_it_started_is_not_told_to_look_at_limits", "it always started first");
}

/// What is said on stderr.
fn said(quell: Quell<'_>) -> String {
    let done = quell.finish();
    assert_ne!(done.code(), Some(0), "{}", done.stdout);
    done.stderr
}

#[test]
fn a_lack_of_descriptors_is_told_as_that() {
    let env = TestEnv::as_me();
    for limit in 5..26 {
        let limited = format!("ulimit -n {limit}; exec \"$@\"");
        let start = env.start().wrapped(["bash", "-c", &limited, "bash"]);
        let done = start.args(["--name", "it"]).command(["true"]).finish();
        if done.code() == Some(0) {
            break;
        }
        let error = done.stderr;
        let helps = error.contains("open files") && !error.contains("QUELL_") && !error.contains("space");
        assert!(helps, "{limit}: {error}");
    }
}

#[test]
fn a_keeper_that_the_kernel_refuses_is_not_told_to_be_missing() {
    let env = TestEnv::as_me();
    // Root is exempt from the limit of processes, so this one is of descriptors: 7 are too few for a child's pipes.
    let start = env.start().wrapped(["bash", "-c", "ulimit -n 7; exec \"$@\"", "bash"]).command(["true"]);
    let error = said(start);
    assert!(error.contains("limits") && !error.contains("PATH"), "{error}");
}

#[test]
fn a_descriptor_that_is_not_open_is_not_told_to_be_a_path() {
    let env = TestEnv::as_me();
    let error = said(env.run().args(["--receipt-fd", "99"]).command(["true"]));
    assert!(error.contains("open that descriptor"), "{error}");
}

#[test]
fn only_a_file_that_lacks_the_right_is_told_to_be_made_executable() {
    let env = TestEnv::as_me();
    let file = |name: &str, mode: u32| {
        let path = env.write(name, "#!/nowhere/interpreter\n");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
        path
    };
    let dir = env.path("dir");
    fs::create_dir(&dir).expect("mkdir");
    for verb in ["run", "start"] {
        let error = |path: &std::path::Path| said(env.quell(verb).command([path]));
        let plain = error(&file("plain", 0o644));
        assert!(plain.contains("chmod +x"), "{plain}");
        let script = error(&file("script", 0o755));
        assert!(script.contains("interpreter") && !script.contains("chmod"), "{script}");
        let dir = error(&dir);
        assert!(dir.contains("is a directory") && !dir.contains("chmod"), "{dir}");
    }
}

#[test]
fn what_the_kernel_refuses_to_execute_is_told_by_its_reason() {
    let env = TestEnv::as_me();
    let link = env.path("link");
    std::os::unix::fs::symlink(&link, &link).expect("symlink");
    let busy = env.path("busy");
    copy_program(std::path::Path::new("/bin/true"), &busy);
    let _writer = fs::OpenOptions::new().append(true).open(&busy).expect("the program, open for writing");
    let long = env.write("long", &format!("LONG={}\n", "x".repeat(200_000)));
    for verb in ["run", "start"] {
        let error = |words: &[&str]| said(env.quell(verb).command(words));
        let looped = error(&[link.to_str().expect("a path")]);
        assert!(looped.contains("symbolic links") && !looped.contains("chmod"), "{looped}");
        let busy = error(&[busy.to_str().expect("a path")]);
        assert!(busy.contains("close it") && !busy.contains("chmod"), "{busy}");
        let big = said(env.quell(verb).args(["--env-file"]).args([&long]).command(["true"]));
        assert!(big.contains("a file or standard input") && !big.contains("chmod"), "{big}");
    }
}

#[test]
fn a_duration_is_told_what_is_wrong_with_it() {
    let env = TestEnv::as_me();
    let error = |grace: &str| said(env.quell("stop").args(["nosuch", "--grace", grace]));
    assert!(error("-1s").contains("negative"), "{}", error("-1s"));
    let long = error("99999999999d");
    assert!(long.contains("too long") && !long.contains("invalid duration"), "{long}");
}

#[test]
fn every_option_that_takes_a_duration_rejects_it_in_the_same_words() {
    let env = TestEnv::as_me();
    for words in [
        &["run", "--timeout"][..],
        &["run", "--grace"],
        &["start", "--timeout"],
        &["start", "--wait-ready"],
        &["list", "--since"],
        &["stats", "--since"],
        &["gc", "--max-age"],
        &["wait", "x", "--timeout"],
        &["wait", "x", "--stall"],
        &["send", "x", "--timeout"],
        &["kill", "1", "--grace"],
        &["service", "restart", "x", "--timeout"],
        &["restart", "x", "--grace"],
        &["stop", "x", "--grace"],
        &["test", "--timeout"],
        &["test", "--grace"],
    ] {
        let error = said(env.quell(words[0]).args(&words[1..]).args(["soon"]));
        let expected = "invalid duration `soon`: expected a number and a unit (ms, s, m, h or d), such as 300ms, 1.5s or 1m30s";
        assert!(error.contains(expected), "{words:?}: {error}");
    }
}

#[test]
fn a_beginning_of_an_id_that_is_too_short_is_told_so() {
    let env = TestEnv::as_me();
    let job = env.start().command(["true"]).begin();
    for length in 1..4 {
        let error = said(env.quell("status").args([&job.id[..length]]));
        assert!(error.contains("at least 4 characters"), "{error}");
    }
    let error = said(env.quell("status").args(["nosuch"]));
    assert!(!error.contains("characters"), "{error}");
}

#[test]
fn a_value_that_is_refused_is_named_with_the_reason() {
    let env = TestEnv::as_me();
    let job = env.start().command(["true"]).begin();
    let says = |verb: &str, words: &[&str], wanted: &str| {
        let error = said(env.quell(verb).args(words));
        assert!(error.contains(wanted), "{verb} {words:?}: {error}");
    };
    says("logs", &[&job.id, "--grep", "("], "invalid regular expression `(`: ");
    says("logs", &[&job.id, "--budget", "0"], "invalid size `0`: must be greater than 0");
    says("start", &["--max-log", "0", "--", "true"], "invalid size `0`: must be greater than 0");
    says("start", &["--mask", "", "--", "true"], "a value is required for '--mask");
    // Without the option `quell test` has a timeout.
    says("test", &["--timeout", "0", "--", "true"], "must be greater than 0; `none` means no limit");
    says("guard", &["check", "kill"], "see `quell guard check kill --help`");
}

#[test]
fn a_limit_that_cannot_be_held_is_not_told_to_try_another_containment() {
    let env = TestEnv::as_me();
    // These hold no memory limit on any host.
    for contain in ["reaper", "pidns"] {
        let error = said(env.run().args(["--contain", contain, "--limit-memory", "10M"]).command(["true"]));
        assert!(!error.contains("scope` holds") && error.contains("`quell doctor` shows"), "{error}");
    }
}

#[test]
fn hints_about_files_fit_what_is_wrong_with_them() {
    let env = TestEnv::as_me();
    let dir = env.dir().display().to_string();
    let error = said(env.run().args(["--env-file", "missing"]).command(["true"]));
    assert!(error.contains("give a file that exists") && !error.contains("KEY=VALUE"), "{error}");
    env.write("bad.env", "no assignment\n");
    let error = said(env.run().args(["--env-file", "bad.env"]).command(["true"]));
    assert!(error.contains("KEY=VALUE"), "{error}");
    let job = env.start().args(["--stdin", "pipe"]).command(["cat"]).begin();
    let error = said(env.quell("send").args([&job.id, "--file", &dir]));
    assert!(error.contains(&dir) && error.contains("directory") && !error.contains("space"), "{error}");
    assert_eq!(job.stop(&[]).code(), Some(0));
    let fifo = env.fifo();
    let error = said(env.run().args(["--receipt".as_ref(), fifo.as_os_str()]).command(["true"]));
    assert!(error.contains("a FIFO needs a reader"), "{error}");
    let done = env.quell("test").command(["./"]).finish();
    let text = done.stdout + &done.stderr;
    assert!(text.contains("name a program in it") && !text.contains("--cwd"), "{text}");
}

#[test]
fn a_receipt_that_cant_be_written_does_not_hide_how_the_command_ended() {
    let env = TestEnv::as_me();
    let done = env.run().args(["--receipt", "/dev/full"]).sh("exit 9").finish();
    assert_eq!(done.code(), Some(125), "{}", done.stderr);
    assert!(done.stderr.contains("the command exited with 9; quell exits with 125"), "{}", done.stderr);
}

#[test]
fn control_characters_in_a_usage_error_are_shown_as_escapes() {
    let env = TestEnv::as_me();
    for (option, value, shown) in [("--name", "a\x01b", r"a\x01b"), ("--timeout", "\x1b[2J", r"\x1b[2J")] {
        let error = said(env.start().args([option, value]).command(["true"]));
        assert!(error.contains(&format!("`{shown}`")), "{error:?}");
        let done = env.start().args(["--json", option, value]).command(["true"]).finish();
        let message = done.envelope()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(&format!("`{value}`")), "{message:?}");
    }
}
