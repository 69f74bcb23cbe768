//! The program's stdin, stdout and stderr are the caller's own descriptors, untouched.

use std::{fs, fs::File, io::Write, process::Command};

use quell_tests::{UNIGNORED, host::Setting, test_env::TestEnv};

/// The descriptors that the actor saw, with and without quell, under the same redirections.
fn descriptors(setting: Setting, redirections: &str) -> (String, String) {
    let env = TestEnv::with(setting);
    env.write("in", "");
    env.write("out", "");
    env.write("err", "");
    let actor = env.actor_path().display().to_string();
    let exec = format!(r#"exec "$@" {redirections}"#);
    let fds = |file: &str| [actor.as_str(), "fds", env.oracle.token(), file].map(String::from);
    let quell = env.run().wrapped(["sh", "-c", &exec, "sh"]).args(["--contain", setting.contain.as_str()]);
    let done = quell.command(fds("with")).finish();
    assert_eq!(done.code(), Some(0), "{redirections} under {setting}: {}", done.stderr);
    let words: Vec<String> = env.user().prefix().into_iter().chain(fds("without")).collect();
    let plain = Command::new("sh").args(["-c", &exec, "sh"]).args(&words).current_dir(env.dir()).status();
    assert!(plain.is_ok_and(|status| status.success()));
    let read = |name: &str| fs::read_to_string(env.path(name)).expect("the actor's list");
    (read("with"), read("without"))
}

#[test]
fn the_program_has_the_callers_own_descriptors_and_no_others() {
    for setting in Setting::all() {
        let (with, without) = descriptors(setting, "<in >out 2>err");
        assert_eq!(with, without, "under {setting}");
    }
}

#[test]
fn closed_descriptors_stay_closed() {
    for setting in Setting::all() {
        for closed in ["<&- >out 2>err", "<in >&- 2>err", "<in >out 2>&-", "<&- >&- 2>&-"] {
            let (with, without) = descriptors(setting, closed);
            assert_eq!(with, without, "{closed} under {setting}");
        }
    }
}

#[test]
fn a_descriptor_that_the_caller_passes_on_arrives() {
    // make's job server and socket activation live by this.
    for setting in Setting::all() {
        let (with, without) = descriptors(setting, "<in >out 2>err 7<in 9>out");
        assert_eq!(with, without, "under {setting}");
    }
}

/// What a bash script in the environment prints.
fn bash(env: &TestEnv, script: &str) -> String {
    let mut bash = Command::new("bash");
    bash.args(["-c", script]).env("QUELL_HOME", env.home()).current_dir(env.dir());
    String::from_utf8_lossy(&bash.output().expect("bash").stdout).into_owned()
}

#[test]
fn a_pipeline_works() {
    let env = TestEnv::as_me();
    let quell = env.quell_path().display().to_string();
    let said = bash(
        &env,
        &format!("seq 100000 | {quell} run -- cat | {quell} run -- wc -l; echo ${{PIPESTATUS[*]}}"),
    );
    assert_eq!(said, "100000\n0 0 0\n");
    assert_eq!(env.leftovers(), Vec::<String>::new());
}

#[test]
fn a_reader_that_leaves_ends_the_writer_as_without_quell() {
    let env = TestEnv::as_me();
    let quell = env.quell_path().display().to_string();
    let said = bash(&env, &format!("{quell} run -- yes | head -1; echo ${{PIPESTATUS[0]}}"));
    // 128 + SIGPIPE: yes died of it, as it does alone.
    assert_eq!(said, "y\n141\n");
    assert_eq!(env.leftovers(), Vec::<String>::new());
}

#[test]
fn stdin_reaches_the_program_to_the_last_byte() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let text: String = (0..20_000).map(|n| format!("{n}\n")).collect();
        let input = env.write("input", &text);
        let quell = env.run().args(["--contain", setting.contain.as_str()]);
        let done = quell.stdin(File::open(input).expect("input")).command(["cat"]).finish();
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        assert!(done.stdout == text, "under {setting}: {} of {} bytes", done.stdout.len(), text.len());
    }
}

#[test]
fn what_the_program_leaves_in_stdin_is_the_callers() {
    let env = TestEnv::as_me();
    let quell = env.quell_path().display().to_string();
    let input = env.write("input", "one\ntwo\n");
    let script = format!("{quell} run -- sh -c 'read line; echo got $line'; read line; echo left $line");
    let output = Command::new("bash")
        .args(["-c", &script])
        .stdin(File::open(input).expect("input"))
        .env("QUELL_HOME", env.home())
        .current_dir(env.dir())
        .output()
        .expect("bash");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "got one\nleft two\n");
}

#[test]
fn a_pipe_holder_does_not_keep_the_reader_waiting() {
    let env = TestEnv::as_me();
    // `finish` does not wait for as long as the sleep.
    let done = env.run().script("sleep $N & echo said").finish();
    assert_eq!((done.code(), &*done.stdout), (Some(0), "said\n"), "{}", done.stderr);
}

#[test]
fn the_program_starts_with_no_signal_blocked_or_ignored() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let quell =
            env.run().args(["--contain", setting.contain.as_str()]).command(["cat", "/proc/self/status"]);
        let done = quell.wrapped(UNIGNORED).finish();
        for name in ["SigBlk:\t", "SigIgn:\t"] {
            let set = done.stdout.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("none");
            let bits = u64::from_str_radix(set, 16).expect("a set of signals");
            // The C library keeps 32 and 33 for itself and gives no way to set them.
            assert_eq!(bits & !(0b11 << 31), 0, "{name} under {setting}");
        }
    }
}

#[test]
fn writing_to_stderr_is_not_delayed_or_mixed() {
    let env = TestEnv::as_me();
    let file = env.path("both");
    let both = File::create(&file).expect("a file");
    let done = env.run().stdout(both).sh("for i in 1 2 3; do echo out $i; done").finish();
    assert_eq!(done.code(), Some(0));
    let mut more = File::options().append(true).open(&file).expect("the file");
    writeln!(more, "after").expect("write");
    assert_eq!(fs::read_to_string(file).expect("the file"), "out 1\nout 2\nout 3\nafter\n");
}
