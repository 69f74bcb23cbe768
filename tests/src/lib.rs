//! The harness of quell's integration tests: bad actors to run, a place to run them in, and an
//! oracle that says what is still alive, without a line of quell's own code.
//!
//! - [`oracle`]: the processes that are alive, found in `/proc` by a token that every process of a test carries.
//! - [`host`]: what this machine lets the tests do: users, containments, the binary under test.
//! - [`systemd_user`]: a private systemd user manager, as on a desktop.
//! - [`test_env`]: one test's private directory, state directory and cgroup, all removed at its end.
//! - [`run`]: the builder of a `quell` command line, and the running or finished command.
//! - [`jobs`]: jobs in the background.
//! - [`faults`]: a quell that dies where a test wants it to.
//! - [`few_pids`]: a PID namespace in which PIDs are reused all the time.
//! - [`evidence`]: what quell left on disk: receipts, records, cgroups.
//! - [`terminal`]: a real terminal with a shell in it, by tmux.
#![cfg(target_os = "linux")]

pub mod evidence;
pub mod faults;
pub mod few_pids;
pub mod host;
pub mod jobs;
pub mod oracle;
pub mod outsider;
pub mod run;
pub mod systemd_user;
pub mod terminal;
pub mod test_env;

pub use jobs::last_json;

use std::{
    io::Write,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The start of a command line that undoes what the tests themselves may have been started with: under `nohup`, or in the
/// background of a script, HUP, INT and QUIT are ignored, and quell leaves them so on purpose.
pub const UNIGNORED: [&str; 2] = ["env", "--default-signal=HUP,INT,QUIT"];

/// Says that a test, or a part of it, does not run here. Goes around libtest's capture, so that a
/// skip is seen in every log.
pub fn skip(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

/// How many rounds a race loop takes: `QUELL_TEST_ROUNDS`, or 20. CI takes more.
pub fn rounds() -> usize {
    std::env::var("QUELL_TEST_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20)
}

/// How many times in a row each escape is tried with every stop in every setting: `QUELL_TEST_REPEAT`, as CI sets it. Without it
/// each setting meets every other stop.
pub fn repeats() -> Option<usize> {
    std::env::var("QUELL_TEST_REPEAT").ok().and_then(|n| n.parse().ok())
}

/// How long after SIGKILL of the front the tree may live (the grace of the jobs here included): `QUELL_TEST_AFTER_FRONT`,
/// in seconds. The promise is one second; the default is more, as a busy machine proves nothing, and less than the 30 seconds
/// after which chains and bombs end by themselves.
pub fn after_front() -> Duration {
    let seconds = std::env::var("QUELL_TEST_AFTER_FRONT").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(20))
}

/// Waits for something of which no event tells; whether it came in time.
pub fn eventually(patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !is_so() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Runs `check` on every item, `width` at a time, and fails with all the failures, not only the first.
pub fn all_hold<T: Sync>(width: usize, items: &[T], check: impl Fn(&T) -> Result<(), String> + Sync) {
    let next = AtomicUsize::new(0);
    let failures: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..width)
            .map(|_| {
                scope.spawn(|| {
                    let mut failures = Vec::new();
                    while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                        failures.extend(check(item).err());
                    }
                    failures
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a check panicked")).collect()
    });
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), items.len(), failures.join("\n"));
}
