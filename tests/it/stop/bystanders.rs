//! P3: no signal ever reaches a process that is not of the job.

use std::{collections::HashSet, fs, time::Duration};

use quell_tests::{
    all_hold, few_pids,
    host::{Contain, Setting, User, has_program},
    oracle::Process,
    skip,
    test_env::TestEnv,
};

use crate::recovery::lost_jobs::lose;

const SIGNAL_CALLS: [&str; 6] =
    ["kill", "tgkill", "tkill", "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo"];

/// The shapes whose stop takes every path: polite, killed, swept, refilled, stopped.
const KINDS: [(&str, Option<&str>); 10] = [
    ("tree", None),
    ("setsid", None),
    ("daemon-exit", None),
    ("ignore-term", None),
    ("stopped", None),
    ("term-spawner", None),
    ("subreaper", None),
    ("group-hopper", None),
    ("chain", Some("2")),
    ("bomb", Some("20")),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Timeout,
    KillFront,
    KillKeeper,
}

#[test]
fn every_signal_of_a_stop_goes_to_a_process_of_the_job() {
    if !has_program("strace") {
        return skip("every_signal_of_a_stop_goes_to_a_process_of_the_job", "no strace here");
    }
    let mut cases = Vec::new();
    for setting in Setting::all() {
        for kind in KINDS {
            cases.push((setting, kind, Stop::Timeout));
        }
        for stop in [Stop::KillFront, Stop::KillKeeper] {
            cases.push((setting, ("setsid", None), stop));
            cases.push((setting, ("ignore-term", None), stop));
        }
    }
    all_hold(2, &cases, |&(setting, (kind, arg), stop)| {
        traced_stop(setting, kind, arg, stop)
            .map_err(|why| format!("{kind} under {setting}, {stop:?}: {why}"))
    });
}

fn traced_stop(setting: Setting, kind: &str, arg: Option<&str>, stop: Stop) -> Result<(), String> {
    let env = TestEnv::with(setting);
    let trace = env.path("trace");
    let calls = format!("trace=execve,prctl,{}", SIGNAL_CALLS.join(","));
    let strace = ["strace", "-f", "-o", "trace", "--decode-fds=pidfd", "-e", &calls];
    let mut quell =
        env.run().wrapped(strace).args(["--contain", setting.contain.as_str(), "--grace", "200ms"]);
    if stop == Stop::Timeout {
        // strace makes a start slow.
        quell = quell.args(["--timeout", "1s"]);
    }
    let mut running = quell.actor(kind, arg).start();
    if stop != Stop::Timeout {
        running.wait_ready()?;
        // What was started is strace; the front is its child, the keeper is below it.
        let front = running.front.children().into_iter().next().ok_or("no front below strace")?;
        let target = if stop == Stop::KillFront { Some(front) } else { keeper_of(&front) };
        target.ok_or("no keeper below the front")?.signal("KILL");
    }
    running.wait_exit(Duration::from_secs(20)).ok_or("strace did not return")?;
    let text = fs::read_to_string(&trace).map_err(|error| format!("no trace: {error}"))?;
    let strangers = strangers(&text, setting.contain);
    if !text.contains("SIGTERM") && !text.contains("SIGKILL") {
        return Err(format!("not one signal was traced: {text}"));
    }
    if strangers.is_empty() { Ok(()) } else { Err(strangers.join("\n")) }
}

fn keeper_of(front: &Process) -> Option<Process> {
    let is_keeper = |process: &Process| {
        fs::read_to_string(format!("/proc/{}/comm", process.pid))
            .is_ok_and(|comm| comm.trim() == "quell-keeper")
    };
    front.children().into_iter().find(is_keeper)
}

/// The traced calls that signal a process outside the trace. strace follows every child, so each
/// process of the job, or of quell, has its own lines in the trace.
fn strangers(trace: &str, contain: Contain) -> Vec<String> {
    let known: HashSet<i64> = trace.lines().filter_map(sender).collect();
    // The front has the first line, and the keeper has given itself its name.
    let keeper = trace.lines().find(|line| line.contains(r#"PR_SET_NAME, "quell-keeper""#));
    let outside: Vec<i64> = trace.lines().next().into_iter().chain(keeper).filter_map(sender).collect();
    trace
        .lines()
        .filter(|line| SIGNAL_CALLS.iter().any(|call| line.contains(&format!(" {call}("))))
        // The pidfd of a process that was reaped has no PID any more, and reaches no process.
        .filter(|line| !only_asks(line) && !line.contains("<anon_inode:[pidfd]>"))
        // A process in its own PID namespace reaches no process outside of it, by any number.
        .filter(|line| contain != Contain::Pidns || sender(line).is_some_and(|pid| outside.contains(&pid)))
        .filter(|line| target(line).is_none_or(|pid| pid == 0 || pid == -1 || !known.contains(&pid.abs())))
        .map(str::to_owned)
        .collect()
}

fn sender(line: &str) -> Option<i64> {
    line.split_whitespace().next()?.parse().ok()
}

/// Signal 0 is a question and is not delivered.
fn only_asks(line: &str) -> bool {
    let at = if line.contains("tgkill(") || line.contains("rt_tgsigqueueinfo(") { 2 } else { 1 };
    line.split(", ").nth(at).is_some_and(|signal| signal.starts_with('0'))
}

/// The target of a call like `kill(-12, SIGTERM) = 0` or `pidfd_send_signal(3<pid:12>, …`, as strace sees PIDs.
fn target(line: &str) -> Option<i64> {
    let args = line.split_once('(')?.1;
    let first = args.split(", ").next()?;
    match first.split_once("<pid:") {
        Some((_, pid)) => number(pid),
        None => number(first),
    }
}

fn number(text: &str) -> Option<i64> {
    let end =
        text.char_indices().find(|&(i, c)| !(c.is_ascii_digit() || (i == 0 && c == '-'))).map(|(i, _)| i);
    text[..end.unwrap_or(text.len())].parse().ok()
}

#[test]
fn a_stranger_is_seen_in_a_trace() {
    let harmless = [
        "10 execve(\"quell\") = 0",
        "20 prctl(PR_SET_NAME, \"quell-keeper\") = 0",
        "20 kill(21, SIGTERM) = 0",
        "20 kill(-21, SIGTERM) = 0",
        "20 pidfd_send_signal(3<pid:21>, SIGKILL, NULL, 0) = 0",
        "20 pidfd_send_signal(3<anon_inode:[pidfd]>, SIGKILL, NULL, 0) = -1 ESRCH (No such process)",
        "20 kill(15, 0) = 0",
        "21 +++ exited with 0 +++",
    ];
    let strange = [
        "20 kill(12, SIGTERM) = 0",
        "20 pidfd_send_signal(4<pid:13>, SIGKILL, NULL, 0) = 0",
        "20 kill(0, SIGTERM) = 0",
        "20 kill(-1, SIGTERM) = 0",
        "10 tgkill(14, 14, SIGTERM <unfinished ...>",
    ];
    let inside = ["21 kill(2, SIGTERM) = 0"];
    let trace = [&harmless[..], &strange[..], &inside[..]].concat().join("\n");
    assert_eq!(strangers(&trace, Contain::Pidns), strange);
    assert_eq!(strangers(&trace, Contain::Reaper).len(), strange.len() + 1);
}

/// A sweep has no descendants in the job: the processes that it signals started before it and are members.
#[test]
fn every_signal_of_a_sweep_goes_to_a_process_of_the_job() {
    let name = "every_signal_of_a_sweep_goes_to_a_process_of_the_job";
    if !has_program("strace") {
        return skip(name, "no strace here");
    }
    let kinds = ["tree", "setsid", "daemon-exit", "ignore-term", "stopped", "subreaper", "leader-thread"];
    let lasting = Setting::all().into_iter().filter(|setting| setting.contain != Contain::Pidns);
    let cases: Vec<(Setting, &str)> = lasting.flat_map(|setting| kinds.map(|kind| (setting, kind))).collect();
    all_hold(2, &cases, |&(setting, kind)| {
        let what = |why: String| format!("{kind} under {setting}: {why}");
        let env = TestEnv::with(setting);
        let _running = lose(&env, setting, (kind, None, None)).map_err(what)?;
        let members: HashSet<i64> =
            env.oracle.survivors().iter().map(|member| i64::from(member.pid)).collect();
        let calls = format!("trace={}", SIGNAL_CALLS.join(","));
        let strace = ["strace", "-f", "-o", "trace", "--decode-fds=pidfd", "-e", &calls];
        env.quell("sweep").wrapped(strace).finish();
        let trace = fs::read_to_string(env.path("trace")).map_err(|error| what(error.to_string()))?;
        let sent: Vec<&str> =
            trace.lines().filter(|line| line.contains("SIG") && line.contains('(')).collect();
        let strange = sent.iter().filter(|line| {
            !line.contains("<anon_inode:[pidfd]>") && target(line).is_none_or(|pid| !members.contains(&pid))
        });
        let strange: Vec<&&str> = strange.collect();
        // A process in a cgroup may be dead by cgroup.kill before its own signal is sent.
        let silent = sent.is_empty() && setting.contain == Contain::Reaper;
        if silent || !strange.is_empty() {
            return Err(what(format!("{strange:#?} of {sent:#?}, members {members:?}")));
        }
        Ok(())
    });
}

/// A signal by PID would hit one of the bystanders sooner or later.
#[test]
fn no_bystander_is_hit_where_pids_are_reused_all_the_time() {
    if let Err(reason) = few_pids::available() {
        return skip("no_bystander_is_hit_where_pids_are_reused_all_the_time", &reason);
    }
    let script = r#"
        for i in $(seq $ROUNDS); do
            for kind in tree setsid ignore-term "chain 1" "bomb 10"; do
                set -- $kind
                $Q run --quiet --contain $CONTAIN --timeout 40ms --grace 40ms -- $A $1 $T $2 2>>stderr.out
                echo "$1 $?" >>codes.out
            done
        done
    "#;
    for setting in Setting::all().into_iter().filter(|setting| setting.user == User::Root) {
        let env = TestEnv::with(setting);
        few_pids::check_bystanders(&env, setting.contain, script);
        // PIDs may run out for a moment; most of the stops must have been real ones.
        let codes = fs::read_to_string(env.path("codes.out")).unwrap_or_default();
        let timed_out = codes.lines().filter(|line| line.ends_with(" 124")).count();
        assert!(timed_out * 10 >= codes.lines().count() * 9, "{setting}: {codes}");
        assert!(!codes.lines().any(|line| line.ends_with(" 122")), "{setting}: not proven dead: {codes}");
    }
}
