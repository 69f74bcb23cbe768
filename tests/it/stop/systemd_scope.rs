//! An ordinary user with a systemd user manager and no cgroup of its own: `auto` asks for a scope, and
//! whatever the tree does, nothing of it is left.

use std::time::Duration;

use quell_tests::{
    all_hold, eventually,
    evidence::{cause, receipt, says_gone, says_what_is_known},
    host::{Contain, Setting, User},
    repeats,
    run::PATIENCE,
    skip,
    systemd_user::SystemdUser,
    test_env::TestEnv,
};

use crate::recovery::lost_jobs::{lose, only_receipt, sweep};

/// A test beside a manager, which has no scope of quell's left at the end.
fn beside_a_manager(name: &str, test: impl FnOnce(&SystemdUser)) {
    let manager = match SystemdUser::start() {
        Ok(manager) => manager,
        Err(why) => return skip(name, &why),
    };
    test(&manager);
    // The manager removes a scope by itself, when it has seen that it is empty.
    eventually(PATIENCE, || manager.scopes().is_empty());
    assert_eq!(manager.scopes(), Vec::<std::path::PathBuf>::new());
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    OwnExit,
    Timeout,
    TermFront,
    KillFront,
    KillKeeper,
}

fn is_gone(manager: &SystemdUser, kind: &str, stop: Stop) -> Result<(), String> {
    let env = TestEnv::beside(manager);
    let file = env.path("receipt.json");
    let mut quell = env.run().args(["--grace", "300ms", "--receipt"]).args([&file]);
    if stop == Stop::Timeout {
        quell = quell.args(["--timeout", "500ms"]);
    }
    let mut running = quell.actor(kind, None).start();
    running.wait_ready()?;
    let (target, signal) = match stop {
        Stop::OwnExit | Stop::Timeout => (None, ""),
        Stop::TermFront => (Some(running.front.clone()), "TERM"),
        Stop::KillFront => (Some(running.front.clone()), "KILL"),
        Stop::KillKeeper => (Some(running.keeper().ok_or("no keeper")?), "KILL"),
    };
    if target.is_some_and(|target| !target.signal(signal)) {
        return Err(format!("could not be stopped: {}", running.stderr()));
    }
    let status = running.wait_exit(PATIENCE).ok_or("quell did not return")?;
    // A killed front leaves its keeper to finish.
    let patience = if stop == Stop::KillFront { PATIENCE } else { Duration::ZERO };
    let alive = env.oracle.survivors_after(patience);
    if !alive.is_empty() {
        return Err(format!("{status}, alive: {alive:?}; {}", running.stderr()));
    }
    let left = env.leftovers_after(PATIENCE);
    if !left.is_empty() {
        return Err(format!("{status}, left: {left:?}; {}", running.stderr()));
    }
    let receipt = receipt(&file)?;
    let why = match stop {
        Stop::OwnExit => "own_exit",
        Stop::Timeout => "timeout",
        Stop::TermFront => "user",
        Stop::KillFront => "front_lost",
        Stop::KillKeeper => "keeper_lost",
    };
    if receipt["held"]["containment"] != "scope" || cause(&receipt) != why {
        return Err(format!("{status}, {}: {} by {}", running.stderr(), cause(&receipt), receipt["held"]));
    }
    says_gone(&receipt)
}

#[test]
fn a_tree_in_a_scope_is_gone_after_every_stop() {
    beside_a_manager("a_tree_in_a_scope_is_gone_after_every_stop", |manager| {
        let stops = [Stop::Timeout, Stop::TermFront, Stop::KillFront, Stop::KillKeeper];
        let once: Vec<_> = ["setsid", "ignore-term", "daemon"]
            .iter()
            .flat_map(|kind| stops.map(|stop| (*kind, stop)))
            .chain([("daemon-exit", Stop::OwnExit), ("pipe-holder", Stop::OwnExit)])
            .collect();
        let cases: Vec<_> = (0..repeats().unwrap_or(1)).flat_map(|_| once.clone()).collect();
        all_hold(2, &cases, |&(kind, stop)| {
            is_gone(manager, kind, stop).map_err(|why| format!("{kind} stopped by {stop:?}: {why}"))
        });
    });
}

#[test]
fn auto_and_cgroup_take_a_scope_where_there_is_no_better() {
    beside_a_manager("auto_and_cgroup_take_a_scope_where_there_is_no_better", |manager| {
        for contain in ["auto", "cgroup"] {
            let env = TestEnv::beside(manager);
            let done = env.run().args(["--json", "--contain", contain]).sh("exit 3").finish();
            assert_eq!(done.code(), Some(3), "{contain}: {}", done.stderr);
            let receipt = &done.envelope()["data"];
            assert_eq!(receipt["held"]["containment"], "scope", "{contain}: {receipt:#}");
            assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new(), "{contain}");
        }
    });
}

#[test]
fn a_limit_that_the_manager_can_not_hold_is_refused() {
    beside_a_manager("a_limit_that_the_manager_can_not_hold_is_refused", |manager| {
        let limits = [
            ("memory", "--limit-memory", "64M"),
            ("pids", "--limit-procs", "50"),
            ("cpu", "--limit-cpu", "1"),
        ];
        for (controller, option, value) in limits {
            let env = TestEnv::beside(manager);
            let done = env.run().args(["--json", option, value]).sh("touch ran; exit 3").finish();
            let envelope = done.envelope();
            if manager.has_controller(controller) {
                assert_eq!(done.code(), Some(3), "{option}: {envelope:#}");
                assert_eq!(envelope["data"]["held"]["containment"], "scope", "{option}: {envelope:#}");
            } else {
                assert_eq!(done.code(), Some(125), "{option}: {envelope:#}");
                let code = envelope["error"]["code"].as_str().unwrap_or_default();
                let honest = ["limit_unavailable", "containment_unavailable"].contains(&code);
                assert!(honest, "{option}: {envelope:#}");
                assert!(!env.path("ran").exists(), "{option}: it ran without its limit");
                assert!(env.records().is_empty(), "{option}: {:?}", env.records());
            }
            assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new(), "{option}");
        }
    });
}

#[test]
fn a_lost_scope_is_gone_after_a_sweep() {
    beside_a_manager("a_lost_scope_is_gone_after_a_sweep", |manager| {
        let setting = Setting { contain: Contain::Cgroup, user: User::Ordinary };
        for kind in ["tree", "setsid", "daemon-exit"] {
            let env = TestEnv::beside(manager);
            let _running = lose(&env, setting, (kind, None, None)).expect(kind);
            assert!(!env.oracle.survivors().is_empty(), "{kind}: no process is left to be swept");
            let (done, report) = sweep(&env);
            assert_eq!(env.oracle.survivors(), vec![], "{kind}: {report:#}");
            let receipt = only_receipt(&env).expect(kind);
            assert_eq!(receipt["held"]["containment"], "scope", "{kind}: {receipt:#}");
            assert_eq!(cause(&receipt), "keeper_lost", "{kind}");
            says_what_is_known(done.code(), &receipt).expect(kind);
        }
    });
}
