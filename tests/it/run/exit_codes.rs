//! The program's own end passes through, whatever it is.

use quell_tests::{all_hold, host::Setting, test_env::TestEnv};

/// Signals that do not end a process.
const HARMLESS: [i32; 8] = [17, 18, 19, 20, 21, 22, 23, 28];

fn ends_with(env: &TestEnv, setting: Setting, kind: &str, n: i32, wanted: i32) -> Result<(), String> {
    let program = env.actor_path();
    let words =
        [program.to_str().expect("UTF-8"), kind, env.oracle.token(), &n.to_string()].map(String::from);
    let done = env.run().args(["--contain", setting.contain.as_str()]).command(words).finish();
    if done.shell_code() == wanted {
        Ok(())
    } else {
        Err(format!("{kind} {n} under {setting}: {}, not {wanted}; {}", done.status, done.stderr))
    }
}

#[test]
fn every_exit_code_passes_through() {
    let settings = Setting::all();
    let labs: Vec<TestEnv> = settings.iter().map(|setting| TestEnv::with(*setting)).collect();
    let cases: Vec<(usize, i32)> = (0..256).map(|code| (code as usize % labs.len(), code)).collect();
    all_hold(4, &cases, |&(i, code)| ends_with(&labs[i], settings[i], "exit-now", code, code));
}

#[test]
fn every_deadly_signal_passes_through_as_128_and_its_number() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let signals: Vec<i32> = (1..=64).filter(|n| !HARMLESS.contains(n)).collect();
        all_hold(4, &signals, |&n| ends_with(&env, setting, "die-by-signal", n, 128 + n));
    }
}

#[test]
fn the_codes_that_quell_uses_itself_pass_through_when_the_program_gives_them() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        all_hold(2, &[0, 1, 122, 123, 124, 125, 126, 127, 255], |&n| {
            ends_with(&env, setting, "exit-now", n, n)
        });
    }
}

#[test]
fn an_exit_code_is_not_lost_when_the_caller_ignores_the_death_of_children() {
    let env = TestEnv::as_me();
    // dash can't ignore SIGCHLD for its children; env can.
    let done = env.run().wrapped(["env", "--ignore-signal=CHLD"]).command(["sh", "-c", "exit 7"]).finish();
    assert_eq!(done.code(), Some(7), "{}", done.stderr);
}

#[test]
fn a_run_that_another_process_stops_says_why() {
    let env = TestEnv::as_me();
    let begin = |options: &[&str]| {
        let run = env.run().args(["--name", "it"]).args(options);
        let mut run = run.script("echo ready >$QUELL_TEST_READY; exec sleep $N").start();
        run.wait_ready().expect("ready");
        run
    };
    let run = begin(&[]);
    assert!(run.front.signal("TERM"));
    let done = run.finish();
    assert!(done.stderr.starts_with("quell: stopped by TERM from pid "), "{}", done.stderr);
    assert_eq!((done.code(), done.stderr.lines().count()), (Some(143), 1), "{}", done.stderr);
    let run = begin(&[]);
    assert_eq!(env.quell("stop").args(["it"]).finish().code(), Some(0));
    let done = run.finish();
    assert!(done.stderr.starts_with("quell: stopped by pid "), "{}", done.stderr);
    let mut owner = std::process::Command::new("sleep").arg(env.oracle.nap()).spawn().expect("sleep");
    let run = begin(&["--owner", &owner.id().to_string()]);
    owner.kill().expect("kill");
    owner.wait().expect("wait");
    let said = format!("quell: stopped because its owner is gone (pid {}, `sleep`)\n", owner.id());
    assert_eq!(run.finish().stderr, said);
    let run = begin(&["--quiet"]);
    assert!(run.front.signal("TERM"));
    assert_eq!(run.finish().stderr, "");
}
