//! P2 and P6: whatever the tree does and whichever process is killed, nothing of it is left.
//!
//! Each test is one bad actor, and runs it under every containment, as every user that this host
//! has, with every way to stop it (`QUELL_TEST_REPEAT=1`, as in CI; else with half of them).

use std::{
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use quell_tests::{
    after_front, all_hold,
    evidence::{cause, receipt, says_gone},
    host::{Setting, User},
    repeats,
    run::{PATIENCE, READER_PATIENCE, Running},
    skip,
    test_env::TestEnv,
};

/// Two here and four tests at once (.cargo/config.toml): eight trees at a time on a small machine.
const AT_ONCE: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Timeout,
    TermFront,
    KillFront,
    KillKeeper,
}

const STOPS: [Stop; 4] = [Stop::Timeout, Stop::TermFront, Stop::KillFront, Stop::KillKeeper];

/// A bad actor and how it is run.
#[derive(Clone, Copy)]
struct Actor {
    kind: &'static str,
    arg: Option<&'static str>,
    /// A bash script instead of a kind of actor.
    script: Option<&'static str>,
    /// Its root ends at once: `--until tree` keeps the job going until the stop under test.
    until_tree: bool,
    /// Makes sense for root only.
    root_only: bool,
    timeout: &'static str,
}

const PLAIN: Actor =
    Actor { kind: "", arg: None, script: None, until_tree: false, root_only: false, timeout: "300ms" };

struct Case {
    actor: Actor,
    setting: Setting,
    stop: Stop,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = if self.actor.until_tree { " until tree" } else { "" };
        write!(f, "{}{until} under {} stopped by {:?}", self.actor.kind, self.setting, self.stop)
    }
}

fn is_gone_after_every_stop(actor: Actor) {
    let settings = Setting::all();
    if actor.root_only && !settings.iter().any(|s| s.user == User::Root) {
        return skip(actor.kind, "needs root");
    }
    let every_other = |(at, case): (usize, Case)| {
        // The next setting has the other stops: together they have all.
        let is_taken = repeats().is_some() || (at + at / STOPS.len()).is_multiple_of(2);
        is_taken.then_some(case)
    };
    let cases: Vec<Case> = (0..repeats().unwrap_or(1))
        .flat_map(|_| settings.clone())
        .filter(|setting| !actor.root_only || setting.user == User::Root)
        .flat_map(|setting| STOPS.map(|stop| Case { actor, setting, stop }))
        .enumerate()
        .filter_map(every_other)
        .collect();
    all_hold(AT_ONCE, &cases, |case| check(case).map_err(|why| format!("{case}: {why}")));
}

fn check(case: &Case) -> Result<(), String> {
    let env = TestEnv::with(case.setting);
    let elsewhere = (case.actor.kind == "move-cgroup").then(|| env.make_cgroup("elsewhere")).flatten();
    let arg = elsewhere.as_ref().and_then(|dir| dir.to_str()).or(case.actor.arg);
    let receipt_file = env.path("receipt.json");
    let mut quell = env
        .run()
        .args(["--contain", case.setting.contain.as_str(), "--grace", "300ms", "--receipt"])
        .args([&receipt_file]);
    quell = match case.actor.script {
        Some(script) => quell.script(script),
        None => quell.actor(case.actor.kind, arg),
    };
    if case.actor.until_tree {
        quell = quell.args(["--until", "tree"]);
    }
    if case.stop == Stop::Timeout {
        quell = quell.args(["--timeout", case.actor.timeout]);
    }
    let mut running = quell.start();
    let stop = stop(case, &env, &mut running)?;
    check_end(case, &env, running, stop, receipt_file)
}

/// What a stop did: whether it found the job still there, and when.
struct Stopped {
    in_time: bool,
    at: Instant,
}

fn stop(case: &Case, env: &TestEnv, running: &mut Running) -> Result<Stopped, String> {
    if case.stop != Stop::Timeout {
        running
            .wait_ready()
            .map_err(|why| format!("{why}; {}; {:?}", running.stderr(), env.oracle.survivors()))?;
    }
    let target = match case.stop {
        Stop::Timeout => return Ok(Stopped { in_time: true, at: Instant::now() }),
        Stop::TermFront | Stop::KillFront => Some(running.front.clone()),
        Stop::KillKeeper => running.keeper(),
    };
    let signal = if case.stop == Stop::TermFront { "TERM" } else { "KILL" };
    let in_time = target.is_some_and(|process| process.signal(signal));
    if !in_time && running.wait_exit(Duration::ZERO).is_none() && case.stop == Stop::KillKeeper {
        // A job whose root ends at once may be over before; one that goes on must have a keeper.
        running.wait_exit(PATIENCE).ok_or("found no keeper below the front")?;
    }
    Ok(Stopped { in_time, at: Instant::now() })
}

fn check_end(
    case: &Case,
    env: &TestEnv,
    mut running: Running,
    stopped: Stopped,
    receipt_file: PathBuf,
) -> Result<(), String> {
    let status = running
        .wait_exit(PATIENCE)
        .ok_or_else(|| format!("quell did not return; {:?}; {}", env.oracle.survivors(), running.stderr()))?;
    let patience = match case.stop {
        // The keeper goes on after the front's death; every other way to stop has counted before it returns.
        Stop::KillFront => after_front().saturating_sub(stopped.at.elapsed()),
        Stop::Timeout | Stop::TermFront | Stop::KillKeeper => Duration::ZERO,
    };
    let mut alive = env.oracle.survivors_after(patience);
    if case.stop == Stop::KillFront {
        // The tree is gone in time; its keeper still has the receipt to write, and must then go too.
        let quell = env.quell_path().display().to_string();
        alive.retain(|process| !process.command.starts_with(&quell));
        if alive.is_empty() {
            // With the time above less than the 30 seconds of a chain's life, of which a look at /proc may miss all else.
            alive = env.oracle.survivors_after(Duration::from_secs(8));
        }
    }
    if !alive.is_empty() {
        let count = alive.len();
        let first: Vec<_> = alive.into_iter().take(5).collect();
        return Err(format!("{count} survivors ({status}): {first:?}; stderr: {}", running.stderr()));
    }
    // The kernel closes a dead process's descriptors before it is seen as dead, but our reader has
    // to be scheduled.
    if !running.wait_output_closed(READER_PATIENCE) {
        return Err(format!("someone still holds stdout ({status}); stderr: {}", running.stderr()));
    }
    // A cgroup and a record may go a moment after the last process, but only when the front is dead.
    let patience = if case.stop == Stop::KillFront { after_front() } else { Duration::ZERO };
    let left = env.leftovers_after(patience);
    if !left.is_empty() {
        return Err(format!("left behind ({status}): {left:?}; stderr: {}", running.stderr()));
    }
    let receipt = receipt(&receipt_file).map_err(|why| format!("{why} ({status}); {}", running.stderr()))?;
    says_gone(&receipt)?;
    if !stopped.in_time {
        return Ok(());
    }
    let root_ends_alone = !case.actor.until_tree
        && matches!(case.actor.kind, "pipe-holder" | "daemon-exit" | "exit-now" | "disown");
    let wanted = match case.stop {
        Stop::Timeout => "timeout",
        Stop::TermFront => "user",
        Stop::KillFront => "front_lost",
        Stop::KillKeeper => "keeper_lost",
    };
    if !root_ends_alone && cause(&receipt) != wanted {
        return Err(format!("the cause is {}, not {wanted} ({status})", receipt["cause"]));
    }
    match (case.stop, status.code()) {
        (Stop::Timeout, code) if !root_ends_alone && code != Some(124) => {
            Err(format!("{status} after a timeout, not 124; stderr: {}", running.stderr()))
        }
        // The root's own code is known, but the run was cut short by the loss of the keeper.
        (Stop::KillKeeper, Some(125)) if case.actor.until_tree || root_ends_alone => Ok(()),
        (Stop::TermFront | Stop::KillKeeper, Some(122 | 125)) => {
            Err(format!("{status} although all is gone; stderr: {}", running.stderr()))
        }
        (Stop::Timeout | Stop::TermFront | Stop::KillFront | Stop::KillKeeper, _) => Ok(()),
    }
}

macro_rules! gone {
    ($($claim:ident: $actor:expr;)*) => {
        $(#[test]
        fn $claim() {
            is_gone_after_every_stop($actor);
        })*
    };
}

gone! {
    a_plain_tree_is_gone_after_stop: Actor { kind: "tree", ..PLAIN };
    a_setsid_child_is_gone_after_stop: Actor { kind: "setsid", ..PLAIN };
    a_double_forked_daemon_is_gone_after_stop: Actor { kind: "daemon", ..PLAIN };
    a_daemon_is_gone_when_its_root_has_exited: Actor { kind: "daemon-exit", ..PLAIN };
    a_daemon_that_is_waited_for_is_gone_after_stop: Actor { kind: "daemon-exit", until_tree: true, ..PLAIN };
    a_tree_that_ignores_term_is_gone_after_stop: Actor { kind: "ignore-term", ..PLAIN };
    a_stopped_child_is_gone_after_stop: Actor { kind: "stopped", ..PLAIN };
    a_child_born_in_a_term_handler_is_gone_after_stop: Actor { kind: "term-spawner", ..PLAIN };
    a_pipe_holder_is_gone_when_its_root_has_exited: Actor { kind: "pipe-holder", ..PLAIN };
    a_pipe_holder_that_is_waited_for_is_gone_after_stop: Actor { kind: "pipe-holder", until_tree: true, ..PLAIN };
    a_root_that_exits_at_once_leaves_nothing: Actor { kind: "exit-now", ..PLAIN };
    a_process_whose_leader_thread_exited_is_gone_after_stop: Actor { kind: "leader-thread", ..PLAIN };
    orphans_of_a_nested_subreaper_are_gone_after_stop: Actor { kind: "subreaper", ..PLAIN };
    a_fork_and_die_chain_is_gone_after_stop: Actor { kind: "chain", arg: Some("1"), ..PLAIN };
    eight_fork_and_die_chains_are_gone_after_stop: Actor { kind: "chain", arg: Some("8"), ..PLAIN };
    a_refilling_bomb_is_gone_after_stop:
        Actor { kind: "bomb", arg: Some("200"), timeout: "1s", ..PLAIN };
    a_child_without_environment_is_gone_after_stop: Actor { kind: "clear-env", ..PLAIN };
    a_child_of_another_uid_is_gone_after_stop:
        Actor { kind: "other-uid", arg: Some("1"), root_only: true, ..PLAIN };
    a_thousand_sleepers_are_gone_after_stop:
        Actor { kind: "many", arg: Some("1000"), timeout: "1s", ..PLAIN };
    a_child_that_moved_to_another_cgroup_is_gone_after_stop:
        Actor { kind: "move-cgroup", root_only: true, ..PLAIN };
    children_in_other_groups_are_gone_after_stop: Actor { kind: "group-hopper", ..PLAIN };
    a_traced_child_is_gone_after_stop: Actor { kind: "traced", ..PLAIN };
    a_polite_tree_is_gone_after_stop: Actor { kind: "polite", arg: Some("20"), ..PLAIN };

    a_nohup_child_is_gone_after_stop: Actor {
        kind: "nohup",
        script: Some("nohup sleep $N >/dev/null 2>&1 & echo ready >$QUELL_TEST_READY; wait"),
        ..PLAIN
    };
    a_disowned_child_is_gone_when_its_shell_has_exited: Actor {
        kind: "disown",
        script: Some("nohup sleep $N >/dev/null 2>&1 & disown -a; echo ready >$QUELL_TEST_READY"),
        ..PLAIN
    };
    background_jobs_in_a_pipeline_are_gone_after_stop: Actor {
        kind: "pipeline",
        script: Some("sleep $N | sleep $N & (sleep $N & sleep $N) | cat & echo ready >$QUELL_TEST_READY; wait"),
        ..PLAIN
    };
    jobs_of_a_shell_with_job_control_are_gone_after_stop: Actor {
        kind: "set -m",
        script: Some("set -m; sleep $N & (sleep $N | sleep $N) & echo ready >$QUELL_TEST_READY; wait"),
        ..PLAIN
    };
    a_daemonised_grandchild_of_a_shell_is_gone_after_stop: Actor {
        kind: "shell daemon",
        script: Some(
            "(setsid sh -c 'cd /; sleep $N & sleep $N' <&- >&- 2>&- & ) ; echo ready >$QUELL_TEST_READY; sleep $N",
        ),
        ..PLAIN
    };
    a_daemon_without_environment_is_gone_after_stop: Actor {
        kind: "bare daemon",
        script: Some(
            "(setsid env -i sleep $N <&- >&- 2>&- & ) ; echo ready >$QUELL_TEST_READY; sleep $N",
        ),
        ..PLAIN
    };
    a_nested_quell_and_its_job_are_gone_after_stop: Actor {
        kind: "nested quell",
        script: Some(
            "QUELL_HOME=$INNER $Q run --grace 100ms -- bash -c 'setsid sleep $N & echo ready >$QUELL_TEST_READY; wait'",
        ),
        ..PLAIN
    };
    a_nested_quell_that_shrugs_is_gone_after_stop: Actor {
        kind: "nested quell, TERM ignored",
        script: Some("QUELL_HOME=$INNER exec $Q run --grace 20s -- $A ignore-term $T"),
        ..PLAIN
    };
}
