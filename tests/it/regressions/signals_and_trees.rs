//! Defects that were found and fixed, each told by what happened. Those of files, pipes and the command
//! line are in `files_and_pipes`.

use std::{fs, os::unix::process::ExitStatusExt, process::Command, thread, time::Duration};

use quell_tests::{
    all_hold, eventually,
    evidence::{cause, receipt, says_gone, verdict},
    host::{Contain, Setting, User, am_root, cgroup_mount},
    oracle::Process,
    rounds,
    run::{PATIENCE, READER_PATIENCE},
    skip,
    test_env::TestEnv,
};

use crate::{
    cli::bad_input::{TRACE, is_refused},
    run::job_control::{in_a_terminal, wait_for_state},
};

/// The settings of the user that runs the tests: no helper program is between the start and quell.
fn my_settings(contains: &[Contain]) -> Vec<Setting> {
    let me = TestEnv::as_me().user();
    Setting::all().into_iter().filter(|s| s.user == me && contains.contains(&s.contain)).collect()
}

/// The same as many times over.
fn times(rounds: usize, settings: &[Setting]) -> Vec<(usize, Setting)> {
    (0..rounds).flat_map(|round| settings.iter().map(move |&setting| (round, setting))).collect()
}

fn nothing_left(env: &TestEnv, what: &str) -> Result<(), String> {
    let left = env.leftovers();
    if left.is_empty() { Ok(()) } else { Err(format!("{what}: left behind: {left:?}")) }
}

/// The pids in such a /proc are those of other processes: a stranger was signalled in place of the
/// root, and the survivors, which could not be seen, were reported as gone.
#[test]
fn a_proc_of_another_pid_namespace_made_quell_signal_a_stranger() {
    let name = "a_proc_of_another_pid_namespace_made_quell_signal_a_stranger";
    let unshare = ["unshare", "-pf"];
    if !am_root() || !Command::new("unshare").args(["-pf", "true"]).status().is_ok_and(|s| s.success()) {
        return skip(name, "needs root for a PID namespace without its own /proc");
    }
    let env = TestEnv::new(User::Root);
    for contain in Contain::ALL {
        let options = ["--contain", contain.as_str(), "--timeout", "1s"];
        is_refused(&env, 125, |quell| quell.wrapped(unshare).args(options).sh(TRACE));
        // For this reason, and not because a number that it took for the root's happened to be free.
        let done = env.run().wrapped(unshare).args(options).sh(TRACE).finish();
        assert!(done.stderr.contains("another PID namespace"), "{contain:?}: {}", done.stderr);
    }
}

/// A root that died between two looks of the keeper was counted as gone before its end was read: the
/// outcome was `unknown` and the exit code 125.
#[test]
fn a_term_soon_after_the_start_lost_the_outcome_of_the_root() {
    let cases = times(rounds(), &my_settings(&[Contain::Reaper, Contain::Cgroup]));
    all_hold(2, &cases, |&(round, setting)| {
        let env = TestEnv::with(setting);
        let file = env.path("receipt.json");
        let quell = env.run().args(["--contain", setting.contain.as_str(), "--receipt"]).args([&file]);
        let mut running = quell.command(["sleep", &env.oracle.nap()]).start();
        // Any instant of the first 20 ms will do.
        thread::sleep(Duration::from_micros(500 + round as u64 * 7919 % 20_000));
        running.front.signal("TERM");
        let status = running.wait_exit(PATIENCE).ok_or(format!("round {round}, {setting}: no return"))?;
        let what = format!("round {round}, {setting}: {status}, {}", running.stderr());
        if status.signal() == Some(15) {
            // The front was hit before it was quell, or before it had looked at its signals.
            return nothing_left(&env, &what);
        }
        let receipt = receipt(&file).map_err(|why| format!("{what}: {why}"))?;
        let outcome = receipt["root"]["outcome"]["kind"].as_str().unwrap_or("none");
        if status.code() != Some(143) || !matches!(outcome, "signaled" | "not_started") {
            return Err(format!("{what}: outcome {outcome}"));
        }
        says_gone(&receipt).map_err(|why| format!("{what}: {why}"))?;
        nothing_left(&env, &what)
    });
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Timeout,
    Term,
    OwnExit,
}

/// The front waited for the word of a keeper that the job itself had stopped, and both waited for ever.
#[test]
fn a_job_that_stopped_its_keeper_was_never_stopped() {
    let endings = [Ending::Timeout, Ending::Term, Ending::OwnExit];
    let settings = my_settings(&[Contain::Reaper, Contain::Cgroup]);
    let cases: Vec<_> = settings.iter().flat_map(|&s| endings.map(|ending| (s, ending))).collect();
    all_hold(cases.len(), &cases, |&(setting, ending)| {
        let env = TestEnv::with(setting);
        let file = env.path("receipt.json");
        let options = ["--contain", setting.contain.as_str(), "--grace", "500ms", "--receipt"];
        let mut quell = env.run().args(options).args([&file]);
        if let Ending::Timeout = ending {
            quell = quell.args(["--timeout", "500ms"]);
        }
        let last = if let Ending::OwnExit = ending { "exit 7" } else { "wait" };
        let stop_it = "kill -STOP $PPID; sleep $N & echo ready >$QUELL_TEST_READY;";
        let mut running = quell.script(&format!("{stop_it} {last}")).start();
        running.wait_ready()?;
        let what = format!("{setting}, {ending:?}");
        if let Ending::Term = ending {
            running.front.signal("TERM");
        }
        let status = running
            .wait_exit(PATIENCE)
            .ok_or_else(|| format!("{what}: no return; {:?}", env.oracle.survivors()))?;
        let (code, why) = match ending {
            Ending::Timeout => (124, "timeout"),
            Ending::Term => (143, "user"),
            Ending::OwnExit => (7, "own_exit"),
        };
        let receipt = receipt(&file)?;
        if status.code() != Some(code) || cause(&receipt) != why || verdict(&receipt) != "gone" {
            return Err(format!("{what}: {status}, {}: {receipt}", running.stderr()));
        }
        nothing_left(&env, &what)
    });
}

/// A wrapper whose shell leaves a child to the front, and notes its pid in the file `leftover`.
const WITH_A_CHILD: [&str; 4] =
    ["sh", "-c", r#"sleep $N >/dev/null 2>&1 & echo $! >leftover; exec "$@""#, "sh"];

fn noted(env: &TestEnv, file: &str) -> Option<Process> {
    Process::now(fs::read_to_string(env.path(file)).ok()?.trim().parse().ok()?)
}

/// Every child of the front was taken for the job's when the front took over.
#[test]
fn taking_over_killed_a_child_of_the_callers() {
    all_hold(2, &my_settings(&Contain::ALL), |&setting| {
        let env = TestEnv::with(setting);
        let file = env.path("receipt.json");
        let quell = env.run().wrapped(WITH_A_CHILD).args(["--contain", setting.contain.as_str()]);
        let quell = quell.args(["--receipt"]).args([&file]).env("N", env.oracle.nap());
        let mut running = quell.actor("setsid", None).start();
        running.wait_ready()?;
        let leftover = noted(&env, "leftover").ok_or("the caller's child did not start")?;
        running.keeper().ok_or("no keeper")?.signal("KILL");
        let status = running.wait_exit(PATIENCE).ok_or("no return")?;
        let what = format!("{setting}: {status}, {}", running.stderr());
        if !leftover.is_alive() {
            return Err(format!("{what}: the caller's child was killed"));
        }
        let alive: Vec<_> = env.oracle.survivors().into_iter().filter(|p| p.pid != leftover.pid).collect();
        if !alive.is_empty() {
            return Err(format!("{what}: alive: {alive:?}"));
        }
        let receipt = receipt(&file)?;
        if cause(&receipt) != "keeper_lost" {
            return Err(format!("{what}: {receipt}"));
        }
        says_gone(&receipt)
    });
}

/// An orphan without the job's mark can't be told from the caller's own: it was passed over, and the
/// tree reported as gone.
#[test]
fn an_unmarked_orphan_was_reported_as_gone_after_taking_over() {
    all_hold(1, &my_settings(&[Contain::Reaper]), |&setting| {
        let env = TestEnv::with(setting);
        let file = env.path("receipt.json");
        let quell = env.run().wrapped(WITH_A_CHILD).args(["--contain", setting.contain.as_str()]);
        let orphan = "(env -i setsid sleep $N >/dev/null 2>&1 & echo $! >orphan)";
        let script = format!("{orphan}; echo ready >$QUELL_TEST_READY; wait; sleep $N");
        let mut running = quell.args(["--receipt"]).args([&file]).script(&script).start();
        running.wait_ready()?;
        let orphan = noted(&env, "orphan").ok_or("the orphan did not start")?;
        let of = |file: &str| fs::read(format!("/proc/{}/{file}", orphan.pid)).unwrap_or_default();
        // An environment is empty for an instant in every exec: what counts is that of the last program.
        if !eventually(PATIENCE, || of("comm") == b"sleep\n" && of("environ").is_empty()) {
            return Err("the orphan did not clear its environment".into());
        }
        running.keeper().ok_or("no keeper")?.signal("KILL");
        // Ten seconds of it are the time that a proof may take.
        let status = running.wait_exit(PATIENCE).ok_or("no return")?;
        let receipt = receipt(&file)?;
        if status.code() == Some(122) && verdict(&receipt) != "gone" {
            return Ok(());
        }
        Err(format!("{status}, the orphan lives: {}; {}", orphan.is_alive(), receipt["verdict"]))
    });
}

/// Once the root was gone no process was left to get the key, and quell still left it to the program.
#[test]
fn ctrl_c_was_lost_when_the_root_had_exited() {
    in_a_terminal("ctrl_c_was_lost_when_the_root_had_exited", |env, terminal, run| {
        let run = run.replace(" --contain", " --until tree --contain");
        terminal.line(&format!("{run} sh -c 'setsid sleep $N & exit 0'"));
        wait_for_state(env, "sleep", "S");
        let root_is_gone = || !env.oracle.survivors().iter().any(|p| p.command.starts_with("sh -c setsid"));
        assert!(eventually(PATIENCE, root_is_gone), "the root did not exit");
        terminal.key("C-c");
        terminal.line("echo over=$?");
        terminal.wait_for("prompt", |screen| screen.lines().any(|line| line.starts_with("over=")));
        assert!(!env.oracle.survivors().iter().any(|p| p.command.starts_with("sleep")), "the tree lives");
    });
}

/// The events file of a removed cgroup is always readable: the keeper read it without end.
#[test]
fn a_removed_cgroup_made_the_keeper_spin() {
    let name = "a_removed_cgroup_made_the_keeper_spin";
    let settings = Setting::all();
    let setting = Setting { contain: Contain::Cgroup, user: User::Root };
    if !settings.contains(&setting) {
        return skip(name, "needs root and a cgroup");
    }
    let env = TestEnv::with(setting);
    let elsewhere = env.make_cgroup("elsewhere").expect("a cgroup");
    let script = r#"
        own=$MOUNT$(sed -n 's/^0:://p' /proc/self/cgroup)
        echo $$ >$ELSEWHERE/cgroup.procs
        until rmdir $own; do sleep 0.01; done
        setsid sleep $N &
        echo ready >$QUELL_TEST_READY"#;
    let quell = env.run().args(["--contain", "cgroup", "--until", "tree"]).env("ELSEWHERE", &elsewhere);
    let quell = quell.env("MOUNT", cgroup_mount().expect("a mount")).script(script);
    let mut running = quell.start();
    running.wait_ready().expect("ready");
    let keeper = running.keeper().expect("a keeper");
    let before = keeper.cpu_ticks().expect("the keeper lives");
    // What is measured is a second of idleness.
    thread::sleep(Duration::from_secs(1));
    let used = keeper.cpu_ticks().expect("the keeper lives") - before;
    running.front.signal("TERM");
    let status = running.wait_exit(PATIENCE).expect("quell returns");
    assert!(used < 20, "the keeper used {used} of 100 ticks while it had nothing to do");
    let alive = env.oracle.survivors();
    assert!(alive.is_empty(), "{status}, {}: {alive:?}", running.stderr());
}

/// Each member was held by a descriptor until all were asked: with few of them the rest went unasked
/// and was killed when the grace was over.
#[test]
fn members_beyond_the_limit_of_open_files_were_never_asked() {
    all_hold(1, &my_settings(&Contain::ALL), |&setting| {
        let env = TestEnv::with(setting);
        let file = env.path("receipt.json");
        let limited = ["sh", "-c", r#"ulimit -n 24; exec "$@""#, "sh"];
        let options = ["--contain", setting.contain.as_str(), "--grace", "10s", "--receipt"];
        let quell = env.run().wrapped(limited).args(options).args([&file]);
        let mut running = quell.actor("askers", Some("60")).start();
        running.wait_ready()?;
        running.front.signal("TERM");
        let done = running.finish();
        let asked = fs::read_to_string(env.path("asked")).unwrap_or_default().lines().count();
        let what = format!("{setting}: {}, {asked} of 61 asked, {}", done.status, done.stderr);
        let receipt = receipt(&file).map_err(|why| format!("{what}: {why}"))?;
        let members = receipt["members"].as_array().cloned().unwrap_or_default();
        // Before Linux 6.15 the kernel does not say what a process died of that its own parent has reaped.
        let killed = |fate: &serde_json::Value| fate != "exited_on_ask" && fate != "ended";
        let killed = members.iter().filter(|m| killed(&m["fate"])).count();
        if asked != 61 || done.code() != Some(0) || killed != 0 || members.len() != 61 {
            return Err(format!("{what}; {killed} of {} members not so", members.len()));
        }
        says_gone(&receipt)?;
        nothing_left(&env, &what)
    });
}

/// A chain that dies and forks behind each listing was never found: 122, or it was counted as gone.
#[test]
fn a_chain_that_outlived_its_root_could_not_be_counted() {
    let cases = times((rounds() * 3).div_ceil(10), &my_settings(&Contain::ALL));
    all_hold(1, &cases, |&(round, setting)| {
        let env = TestEnv::with(setting);
        let file = env.path("receipt.json");
        let options = ["--contain", setting.contain.as_str(), "--grace", "40ms", "--receipt"];
        let width = if round % 2 == 0 { "1" } else { "8" };
        let mut running = env.run().args(options).args([&file]).actor("chain-exit", Some(width)).start();
        let what = format!("round {round}, {setting}, width {width}");
        let status = running.wait_exit(PATIENCE).ok_or(format!("{what}: no return"))?;
        let what = format!("{what}: {status}, {}", running.stderr());
        if status.code() != Some(0) || !running.wait_output_closed(READER_PATIENCE) {
            return Err(what);
        }
        says_gone(&receipt(&file)?).map_err(|why| format!("{what}: {why}"))?;
        nothing_left(&env, &what)
    });
}

/// The root's death, of which the keeper had told, was taken for a silence of the keeper's: after six seconds of grace the
/// front killed it, and with it the rest of the tree.
#[test]
fn a_keeper_that_gave_a_long_grace_was_killed_for_its_silence() {
    let cases = my_settings(&Contain::ALL);
    all_hold(cases.len(), &cases, |&setting| {
        let env = TestEnv::with(setting);
        let file = env.path("receipt.json");
        let options =
            ["--contain", setting.contain.as_str(), "--timeout", "2s", "--grace", "8s", "--receipt"];
        let script = r#"(trap "" TERM; exec sleep $N) & exec sleep $N"#;
        let done = env.run().args(options).args([&file]).script(script).finish();
        let receipt = receipt(&file)?;
        let used = receipt["grace"]["used"].as_f64().unwrap_or(0.0);
        if done.code() != Some(124) || cause(&receipt) != "timeout" || used < 7.9 {
            return Err(format!("{setting}: {}, {}: {receipt}", done.status, done.stderr));
        }
        nothing_left(&env, &setting.to_string())
    });
}

/// The front that took over did not know that the keeper had found a leak, and exited with the root's 0.
#[test]
fn a_leak_was_forgotten_when_the_keeper_was_lost() {
    for setting in my_settings(&[Contain::Reaper, Contain::Cgroup]) {
        let env = TestEnv::with(setting);
        let options = ["--contain", setting.contain.as_str(), "--leak", "fail", "--grace", "20s"];
        let script = r#"(trap "" TERM; echo >up; exec sleep $N) & until [ -e up ]; do sleep 0.01; done"#;
        let mut running = env.run().args(options).script(script).start();
        let stopping = || env.records().iter().any(|record| record.state == "stopping");
        assert!(eventually(PATIENCE, stopping), "{setting}: the leak is not found");
        assert!(running.keeper().is_some_and(|keeper| keeper.signal("KILL")), "{setting}: no keeper");
        let status = running.wait_exit(PATIENCE).expect("quell returns");
        assert_eq!(status.code(), Some(123), "{setting}: {}", running.stderr());
        nothing_left(&env, &setting.to_string()).expect("nothing is left");
    }
}

/// A terminal that hangs up is told of by the kernel and by the shell, a service manager sends TERM and HUP: the second
/// signal was taken for a second request, and the tree had no grace.
#[test]
fn two_signals_for_one_event_took_away_the_grace() {
    for pair in [["TERM", "HUP"], ["HUP", "TERM"], ["TERM", "TERM"], ["HUP", "HUP"]] {
        let env = TestEnv::as_me();
        let script =
            "trap 'sleep 0.5; exit 7' TERM; echo ready >$QUELL_TEST_READY; while :; do sleep 0.05; done";
        let mut running = env.run().args(["--grace", "20s"]).script(script).start();
        running.wait_ready().expect("ready");
        running.front.signal(pair[0]);
        // The first one is heard before the second is sent, so that they are not one for the kernel.
        let stopping = || env.records().iter().any(|record| record.state == "stopping");
        assert!(eventually(Duration::from_millis(80), stopping) || running.front.is_alive());
        running.front.signal(pair[1]);
        let status = running.wait_exit(PATIENCE).expect("quell returns");
        assert_eq!(status.code(), Some(7), "{pair:?}: {}", running.stderr());
        nothing_left(&env, "in the end").expect("nothing");
    }
}

/// In a PID namespace a root that was gone soon was not on the receipt, or another process was named as the root.
#[test]
fn a_root_that_exited_at_once_in_a_pid_namespace_was_not_named() {
    for (round, setting) in times(rounds() / 8 + 1, &my_settings(&[Contain::Pidns])) {
        let env = TestEnv::with(setting);
        let file = env.path("receipt.json");
        let options = ["--contain", setting.contain.as_str(), "--receipt"];
        let quell = env.run().args(options).args([&file]);
        let done = quell.script("sleep $N >/dev/null 2>&1 & exit 7").finish();
        assert_eq!(done.code(), Some(7), "{round}: {}", done.stderr);
        let receipt = receipt(&file).expect("a receipt");
        let root = &receipt["root"]["id"];
        let members = receipt["members"].as_array().expect("members");
        let member = members.iter().find(|member| member["pid"] == root["pid"]);
        let command = member.map_or("", |member| member["command"].as_str().unwrap_or_default());
        assert!(root.is_object() && command.contains("exit 7"), "{round}: {receipt:#}");
        assert_eq!(member.map(|member| &member["fate"]), Some(&"exited".into()), "{round}: {receipt:#}");
    }
}

/// A process that moved to another session and executed another program was drawn as it was when it was first seen.
#[test]
fn the_tree_was_not_drawn_as_it_stood() {
    for setting in my_settings(&[Contain::Cgroup, Contain::Reaper, Contain::Pidns]) {
        let env = TestEnv::with(setting);
        let file = env.path("receipt.json");
        let options = ["--contain", setting.contain.as_str(), "--until", "tree", "--receipt"];
        let quell = env.run().args(options).args([&file]);
        // Seen when the root exits, while it still is the shell's copy.
        let script = "(until [ -e go ]; do sleep 0.01; done; exec setsid sleep $N) & exit 3";
        let mut running = quell.script(script).start();
        let left = || env.records().iter().any(|record| record.dir.join("state.jsonl").exists());
        assert!(eventually(PATIENCE, left), "{setting}");
        // No event tells that the keeper has seen the root's exit; if it comes later, there is less to be mended.
        thread::sleep(Duration::from_millis(200));
        env.write("go", "");
        wait_for_state(&env, "sleep 50", "S");
        running.front.signal("TERM");
        running.wait_exit(PATIENCE).expect("quell returns");
        let receipt = receipt(&file).expect("a receipt");
        let members = receipt["members"].as_array().expect("members");
        let sleeper = |member: &&serde_json::Value| {
            member["pid"] == member["sid"]
                && member["command"].as_str().is_some_and(|command| command.starts_with("sleep 50"))
        };
        assert!(members.iter().any(|member| sleeper(&member)), "{setting}: {receipt:#}");
    }
}
