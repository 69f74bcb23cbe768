//! P4: quell waits for events. Between the last exit and its return there is no sleep and no poll
//! interval, which a trace of its system calls shows.

use std::{
    collections::{HashMap, HashSet},
    fs,
};

use quell_tests::{
    host::{Setting, has_program},
    skip,
    test_env::TestEnv,
};

const WAITS: &str = "trace=execve,poll,ppoll,epoll_wait,epoll_pwait,epoll_pwait2,select,pselect6,\
                     nanosleep,clock_nanosleep,rt_sigtimedwait";

/// How the program's own exec looks in a trace: quell's has these words among its arguments only.
const SLEEP: &str = r#"/sleep", ["sleep""#;

/// The calls of quell's own processes that came back because time had passed, not because something
/// had happened. A look that does not wait is none of them. The program's process is left out from its
/// exec on; it sleeps as it likes.
fn waits_for_time(trace: &str, program: &str) -> Vec<String> {
    let mut programs = HashSet::new();
    let mut found = Vec::new();
    // strace tears a call apart when another process comes in between; its arguments are in the first part.
    let mut begun: HashMap<&str, String> = HashMap::new();
    for line in trace.lines() {
        let Some((pid, call)) = line.split_once(' ') else { continue };
        if let Some(begin) = call.strip_suffix("<unfinished ...>") {
            begun.insert(pid, begin.to_owned());
            continue;
        }
        let begin = if call.contains(" resumed>") { begun.remove(pid) } else { None };
        let call = &format!("{}{call}", begin.unwrap_or_default());
        if call.contains("execve(") && call.contains(program) {
            programs.insert(pid);
        }
        let looked = call.contains("{tv_sec=0, tv_nsec=0}") || call.contains(", 0) = 0 (Timeout)");
        let slept = !looked && (call.contains("nanosleep(") || call.contains("(Timeout)"));
        if slept && !programs.contains(pid) {
            found.push(format!("{pid} {call}"));
        }
    }
    found
}

fn trace_of(setting: Setting, options: &[&str], program: &[&str]) -> Option<(String, Option<i32>)> {
    let env = TestEnv::with(setting);
    let quell = env.run().wrapped(["strace", "-f", "-o", "trace", "-e", WAITS]).args(options);
    let done = quell.args(["--contain", setting.contain.as_str()]).command(program).finish();
    Some((fs::read_to_string(env.path("trace")).ok()?, done.code()))
}

#[test]
fn a_run_to_its_own_end_waits_for_nothing_but_events() {
    let name = "a_run_to_its_own_end_waits_for_nothing_but_events";
    if !has_program("strace") {
        return skip(name, "no strace here");
    }
    for setting in Setting::all() {
        let (trace, code) = trace_of(setting, &[], &["sleep", "0.7"]).expect("a trace");
        assert_eq!(code, Some(0), "under {setting}");
        assert_eq!(waits_for_time(&trace, SLEEP), Vec::<String>::new(), "under {setting}");
    }
}

#[test]
fn a_polite_stop_waits_for_the_timeout_and_then_for_nothing_but_events() {
    let name = "a_polite_stop_waits_for_the_timeout_and_then_for_nothing_but_events";
    if !has_program("strace") {
        return skip(name, "no strace here");
    }
    for setting in Setting::all() {
        let options = ["--timeout", "500ms", "--grace", "20s", "--quiet"];
        let (trace, code) = trace_of(setting, &options, &["sleep", "50"]).expect("a trace");
        assert_eq!(code, Some(124), "under {setting}");
        let waits = waits_for_time(&trace, SLEEP);
        assert!(waits.len() <= 1, "under {setting}, more than the one timeout: {waits:#?}");
    }
}
