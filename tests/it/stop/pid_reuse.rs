//! The number of a process that is another's by the time of the signal.

use std::{fs, process::Command};

use quell_tests::{faults, few_pids, skip, test_env::TestEnv};

/// Each round: a victim; `$LOOK` looks at it and is stopped there; the victim ends, and a bystander gets its PID; `$LOOK`
/// continues.
const ROUNDS: &str = r#"
    echo 700 >/proc/sys/kernel/pid_max || exit 77
    [ -w /proc/sys/kernel/ns_last_pid ] || exit 78
    stands_still() { while read -r key state _; do [ "$key" = State: ] && { [ "$state" = T ]; return; }; done <"/proc/$1/status"; }
    hit=0 alive=0 same=0
    for i in $(seq 200); do
        sleep 60 & victim=$!
        until read -r name <"/proc/$victim/comm" && [ "$name" = sleep ]; do :; done
        P=$victim bash -c "$LOOK" >>said 2>>said & looker=$!
        # The process that looks may be a child of the shell that was started.
        at=$looker
        until stands_still $at 2>/dev/null; do
            read -r child <"/proc/$looker/task/$looker/children" 2>/dev/null && at=${child%% *} || at=$looker
            [ -d "/proc/$looker" ] || break
        done
        kill -KILL $victim; wait $victim 2>/dev/null
        echo $((victim - 1)) >/proc/sys/kernel/ns_last_pid
        sleep 60 & bystander=$!
        until read -r name <"/proc/$bystander/comm" && [ "$name" = sleep ]; do :; done
        [ $bystander = $victim ] && same=$((same + 1))
        kill -CONT $at; wait $looker 2>/dev/null
        # Of two signals that end it, the first decides what it died of.
        kill -KILL $bystander 2>/dev/null; wait $bystander 2>/dev/null
        if [ $? = 137 ]; then alive=$((alive + 1)); else hit=$((hit + 1)); fi
    done
    echo "same $same alive $alive hit $hit"
"#;

fn tried(env: &TestEnv, look: &str) -> (Option<i32>, String) {
    let program = faults::binary().map_or_else(|_| env.quell_path(), |binary| env.faulty_path(binary));
    let output = Command::new("unshare")
        .args(["-pf", "--mount-proc", "--kill-child", "bash", "-c", ROUNDS])
        .current_dir(env.dir())
        .env("QUELL_HOME", env.home())
        .env("HOME", env.dir())
        .env("XDG_CONFIG_HOME", env.path(".config"))
        .env("T", env.oracle.token())
        .env("Q", program)
        .env("LOOK", look)
        .output()
        .expect("unshare");
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.code(), format!("{said}{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn a_number_that_is_anothers_by_now_gets_no_signal() {
    let name = "a_number_that_is_anothers_by_now_gets_no_signal";
    if let Err(why) = faults::binary() {
        return skip(name, &why);
    }
    if let Err(why) = few_pids::available() {
        return skip(name, &why);
    }
    let env = TestEnv::as_me();
    crate::guard::decisions::policy(&env, "[guard.kill]\nallow = [\"sleep\"]\nmin_pid = 2\n");
    // The way of most scripts: look, then send to the number. It is to fail, or this test proves nothing.
    let (code, said) = tried(&env, "kill -0 $P && kill -STOP $$ && kill -TERM $P");
    if matches!(code, Some(77 | 78)) {
        return skip(name, "needs a pid_max per PID namespace (6.14) and ns_last_pid");
    }
    assert_eq!(said, "same 200 alive 0 hit 200", "by number");
    let look = "export QUELL_FAULT=command.victim_validated:stop; exec $Q kill $P --grace 0 --json";
    let (_, said) = tried(&env, look);
    let heard = fs::read_to_string(env.path("said")).unwrap_or_default();
    assert_eq!(said, "same 200 alive 200 hit 0", "{heard}");
    // And each time it had been allowed to: what saved the bystander was the pin.
    let gone = heard.lines().filter(|line| line.contains("\"kind\":\"gone\"")).count();
    assert_eq!(gone, 200, "{heard}");
}
