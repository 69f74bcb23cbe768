//! A PID namespace with few PIDs, which are reused all the time by unrelated processes.

use std::{fs, process::Command};

use crate::{
    host::{Contain, am_root},
    rounds,
    test_env::TestEnv,
};

/// How many PIDs the namespace has.
const PID_MAX: u32 = 400;

/// Whether this host can limit the PIDs of a namespace, or why not. A kernel before 6.14 has one `pid_max` for the whole host, so
/// it must not even be tried there.
pub fn available() -> Result<(), String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.trim().parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if am_root() && version >= (6, 14) {
        Ok(())
    } else {
        Err("needs root and a pid_max per PID namespace (Linux 6.14)".into())
    }
}

/// Runs `script` in such a namespace beside ten sleepers and a process that forks all the time, and checks that none of them
/// was hit. The script has `$A` (the actors), `$Q` (quell), `$T` (the token), `$N` (a time for `sleep`), `$CONTAIN` and
/// `$ROUNDS`.
pub fn check_bystanders(env: &TestEnv, contain: Contain, script: &str) {
    let whole = format!(
        r#"
        echo {PID_MAX} >/proc/sys/kernel/pid_max || exit 77
        unset QUELL_TEST_READY
        $A churn $T 30 >churn.out & churn=$!
        for i in 1 2 3 4 5 6 7 8 9 10; do sleep 5$N & sleepers="$sleepers $!"; done
        {script}
        alive=0; for pid in $sleepers; do kill -0 $pid && alive=$((alive + 1)); done
        kill $churn; wait $churn
        echo "churn $? sleepers $alive"
        "#
    );
    let output = Command::new("unshare")
        .args(["-pf", "--mount-proc", "--kill-child", "bash", "-c", &whole])
        .current_dir(env.dir())
        .env("QUELL_HOME", env.home())
        .env("A", env.actor_path())
        .env("Q", env.quell_path())
        .env("T", env.oracle.token())
        .env("N", env.oracle.nap())
        .env("CONTAIN", contain.as_str())
        .env("ROUNDS", (rounds() / 10).max(1).to_string())
        .output()
        .expect("unshare");
    let read = |name: &str| fs::read_to_string(env.path(name)).unwrap_or_default();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = [read("churn.out"), read("codes.out"), read("stderr.out")].concat();
    assert_eq!(printed, "churn 0 sleepers 10\n", "{contain:?}: {all}");
}
