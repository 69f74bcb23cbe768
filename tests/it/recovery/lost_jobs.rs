//! P6: front and keeper are both killed. The next quell command finishes the stop, from the record alone.

use std::{fmt, fs, path::PathBuf, thread};

use quell_tests::{
    all_hold, eventually,
    evidence::{cause, receipt, says_what_is_known, verdict},
    host::{Contain, Setting, User},
    oracle::Process,
    repeats,
    run::{Finished, PATIENCE, READER_PATIENCE, Running},
    test_env::TestEnv,
};
use serde_json::Value;

use crate::{recovery::crash::spread, stop::races::pause_up_to};

/// A bad actor, and what is special about it.
#[derive(Clone, Copy)]
struct Actor {
    kind: &'static str,
    arg: Option<&'static str>,
    /// A bash script instead of a kind of actor.
    script: Option<&'static str>,
    /// Makes sense for root only.
    root_only: bool,
    /// Can be found only by what holds it: under the reaper it is not tried.
    needs_hold: bool,
}

const PLAIN: Actor = Actor { kind: "", arg: None, script: None, root_only: false, needs_hold: false };

struct Case {
    actor: Actor,
    setting: Setting,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} under {}", self.actor.kind, self.setting)
    }
}

/// Starts it, waits until its shape is up, and kills front and keeper.
pub fn lose(
    env: &TestEnv,
    setting: Setting,
    actor: (&str, Option<&str>, Option<&str>),
) -> Result<Running, String> {
    let (kind, arg, script) = actor;
    let quell = env.run().args(["--contain", setting.contain.as_str(), "--until", "tree", "--grace", "20s"]);
    let mut running = match script {
        Some(script) => quell.script(script),
        None => quell.actor(kind, arg),
    }
    .start();
    running.wait_ready().map_err(|why| format!("{why}; {}", running.stderr()))?;
    running.lose()?;
    Ok(running)
}

/// A sweep and its report.
pub fn sweep(env: &TestEnv) -> (Finished, Value) {
    let done = env.quell("sweep").args(["--json"]).finish();
    let envelope = done.envelope();
    assert_eq!(envelope["type"], "sweep", "{envelope:#}");
    (done, envelope["data"].clone())
}

/// The receipt of the environment's one job.
pub fn only_receipt(env: &TestEnv) -> Result<Value, String> {
    let records = env.records();
    let [record] = records.as_slice() else { return Err(format!("not one record: {records:?}")) };
    receipt(&record.dir.join("receipt.json"))
}

fn is_gone_after_a_sweep(actor: Actor) {
    let fits = |setting: &Setting| {
        (!actor.root_only || setting.user == User::Root)
            && (!actor.needs_hold || setting.contain != Contain::Reaper)
    };
    let settings: Vec<Setting> = Setting::all().into_iter().filter(fits).collect();
    let cases: Vec<Case> = (0..repeats().unwrap_or(1))
        .flat_map(|_| settings.clone())
        .map(|setting| Case { actor, setting })
        .collect();
    all_hold(2, &cases, |case| check(case).map_err(|why| format!("{case}: {why}")));
}

fn check(case: &Case) -> Result<(), String> {
    let Case { actor, setting } = case;
    let env = TestEnv::with(*setting);
    let mut running = lose(&env, *setting, (actor.kind, actor.arg, actor.script))?;
    // Init of a PID namespace dies with its keeper; other processes must be alive, or nothing is tested. A chain can't
    // be seen by a look at /proc.
    if setting.contain != Contain::Pidns && env.oracle.survivors().is_empty() && actor.kind != "chain" {
        return Err("no process is left to be swept".into());
    }
    let (done, report) = sweep(&env);
    let alive = env.oracle.survivors();
    if !alive.is_empty() {
        let first: Vec<_> = alive.iter().take(5).collect();
        return Err(format!("{} survivors: {first:?}; {report:#}", alive.len()));
    }
    if !running.wait_output_closed(READER_PATIENCE) {
        return Err(format!("someone still holds stdout; {report:#}"));
    }
    let left = env.leftovers();
    if !left.is_empty() {
        return Err(format!("left behind: {left:?}; {:#}", only_receipt(&env).unwrap_or_default()));
    }
    let receipt = only_receipt(&env)?;
    says_what_is_known(done.code(), &receipt)?;
    if cause(&receipt) != "keeper_lost" {
        return Err(format!("the cause is {}", receipt["cause"]));
    }
    // Nothing new is to be said the second time.
    let (again, report) = sweep(&env);
    let jobs = report["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    if again.code() != done.code() || jobs.iter().any(|job| job["action"] != "report") {
        return Err(format!("the second sweep: {}, {report:#}", again.status));
    }
    Ok(())
}

macro_rules! gone {
    ($($claim:ident: $actor:expr;)*) => {
        $(#[test]
        fn $claim() {
            is_gone_after_a_sweep($actor);
        })*
    };
}

gone! {
    a_lost_tree_is_gone_after_a_sweep: Actor { kind: "tree", ..PLAIN };
    a_lost_setsid_child_is_gone_after_a_sweep: Actor { kind: "setsid", ..PLAIN };
    a_lost_daemon_is_gone_after_a_sweep: Actor { kind: "daemon", ..PLAIN };
    a_lost_daemon_without_its_root_is_gone_after_a_sweep: Actor { kind: "daemon-exit", ..PLAIN };
    a_lost_tree_that_ignores_term_is_gone_after_a_sweep: Actor { kind: "ignore-term", ..PLAIN };
    a_lost_stopped_child_is_gone_after_a_sweep: Actor { kind: "stopped", ..PLAIN };
    a_lost_process_whose_leader_thread_exited_is_gone_after_a_sweep: Actor { kind: "leader-thread", ..PLAIN };
    lost_orphans_of_a_subreaper_are_gone_after_a_sweep: Actor { kind: "subreaper", ..PLAIN };
    a_lost_bomb_is_gone_after_a_sweep: Actor { kind: "bomb", arg: Some("100"), ..PLAIN };
    lost_children_in_other_groups_are_gone_after_a_sweep: Actor { kind: "group-hopper", ..PLAIN };
    a_lost_traced_child_is_gone_after_a_sweep: Actor { kind: "traced", ..PLAIN };
    lost_sleepers_by_the_hundred_are_gone_after_a_sweep: Actor { kind: "many", arg: Some("400"), ..PLAIN };
    a_lost_child_without_environment_is_gone_after_a_sweep: Actor { kind: "clear-env", ..PLAIN };
    a_lost_child_of_another_uid_is_gone_after_a_sweep:
        Actor { kind: "other-uid", arg: Some("1"), root_only: true, ..PLAIN };

    a_lost_orphan_in_the_session_of_its_root_is_gone_after_a_sweep: Actor {
        kind: "bare orphan",
        script: Some("(env -i sleep $N <&- >&- 2>&- & ) ; echo ready >$QUELL_TEST_READY; sleep $N"),
        ..PLAIN
    };
    a_lost_daemon_without_environment_is_gone_after_a_sweep: Actor {
        kind: "bare daemon",
        script: Some("(setsid env -i sleep $N <&- >&- 2>&- & ) ; echo ready >$QUELL_TEST_READY; sleep $N"),
        needs_hold: true,
        ..PLAIN
    };
    a_nested_quell_of_a_lost_job_is_gone_after_a_sweep: Actor {
        kind: "nested quell",
        script: Some(
            "QUELL_HOME=$INNER $Q run -- bash -c 'setsid sleep $N & echo ready >$QUELL_TEST_READY; wait'",
        ),
        ..PLAIN
    };
}

/// One at a time: what is raced is the kernel's bookkeeping, not the machine's load.
#[test]
fn lost_chains_are_gone_after_a_sweep() {
    let widths = [Some("1"), Some("4")];
    let cases: Vec<Case> = (0..repeats().unwrap_or(1))
        .flat_map(|_| Setting::all())
        .flat_map(|setting| widths.map(|arg| Case { actor: Actor { kind: "chain", arg, ..PLAIN }, setting }))
        .collect();
    all_hold(1, &cases, |case| check(case).map_err(|why| format!("{case}: {why}")));
}

#[test]
fn a_sweep_may_be_killed_at_any_instant() {
    let kinds = [("tree", None), ("daemon-exit", None), ("bomb", Some("20")), ("setsid", None)];
    all_hold(2, &spread(1), |&(round, setting)| {
        let env = TestEnv::with(setting);
        let (kind, arg) = kinds[round % kinds.len()];
        let what = format!("round {round}, {kind} under {setting}");
        let mut running = lose(&env, setting, (kind, arg, None)).map_err(|why| format!("{what}: {why}"))?;
        for _ in 0..2 {
            let mut broken_off = env.quell("sweep").spawn();
            pause_up_to(25_000);
            broken_off.kill().and_then(|()| broken_off.wait()).map_err(|error| format!("{what}: {error}"))?;
        }
        let (done, report) = sweep(&env);
        let left = env.leftovers();
        if !left.is_empty() || !running.wait_output_closed(READER_PATIENCE) {
            return Err(format!("{what}: left behind: {left:?}; {report:#}"));
        }
        if !matches!(done.code(), Some(0 | 5)) {
            return Err(format!("{what}: {}, {report:#}", done.status));
        }
        let receipt = only_receipt(&env).map_err(|why| format!("{what}: {why}"))?;
        says_what_is_known(done.code(), &receipt).map_err(|why| format!("{what}: {why}"))?;
        if cause(&receipt) != "keeper_lost" {
            return Err(format!("{what}: {receipt:#}"));
        }
        Ok(())
    });
}

#[test]
fn of_several_sweeps_at_once_one_does_it_and_the_others_know() {
    all_hold(1, &spread(5), |&(round, setting)| {
        let env = TestEnv::with(setting);
        lose(&env, setting, ("many", Some("40"), None))?;
        let sweeps: Vec<(Finished, Value)> = thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(|| sweep(&env))).collect();
            all.into_iter().map(|one| one.join().expect("a sweep panicked")).collect()
        });
        let jobs: Vec<&Value> =
            sweeps.iter().flat_map(|(_, report)| report["jobs"].as_array().expect("jobs")).collect();
        let stops = jobs.iter().filter(|job| job["action"] == "stop").count();
        let proven = &jobs[0]["verdict"]["kind"];
        let wrong = jobs.iter().any(|job| !job["error"].is_null() || job["verdict"]["kind"] != *proven);
        let kept = sweeps.iter().any(|(_, report)| report["kept"] != 0);
        if stops != 1 || wrong || kept {
            return Err(format!("round {round}, {setting}: {sweeps:#?}"));
        }
        let left = env.leftovers();
        if left.is_empty() { Ok(()) } else { Err(format!("round {round}, {setting}: {left:?}")) }
    });
}

#[test]
fn a_dry_run_touches_nothing() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let _running = lose(&env, setting, ("tree", None, None)).expect("lost");
        // Every process in a PID namespace exits with its keeper, in a moment.
        if setting.contain == Contain::Pidns {
            assert_eq!(env.oracle.survivors_after(PATIENCE), [], "{setting}");
        }
        let before = env.oracle.survivors();
        let done = env.quell("sweep").args(["--dry-run", "--json"]).finish();
        let report = &done.envelope()["data"];
        assert_eq!(done.code(), Some(0), "{setting}: {report:#}");
        assert_eq!(report["jobs"][0]["action"], "stop", "{setting}: {report:#}");
        assert_eq!(report["jobs"][0]["processes"], before.len(), "{setting}: {report:#}, {before:?}");
        assert_eq!(env.oracle.survivors(), before, "{setting}");
        sweep(&env);
        assert_eq!(env.leftovers(), Vec::<String>::new(), "{setting}");
    }
}

#[test]
fn a_stop_that_was_under_way_keeps_its_cause() {
    for setting in Setting::all().into_iter().filter(|setting| setting.contain != Contain::Pidns) {
        let env = TestEnv::with(setting);
        let quell = env.run().args(["--contain", setting.contain.as_str(), "--grace", "20s"]);
        let mut running = quell.actor("ignore-term", None).start();
        running.wait_ready().expect("ready");
        running.front.signal("TERM");
        let stopping = || env.records().iter().any(|record| record.state == "stopping");
        assert!(eventually(PATIENCE, stopping), "{setting}: the request is not heard");
        running.lose().expect("lost");
        sweep(&env);
        let receipt = only_receipt(&env).expect("a receipt");
        assert_eq!((cause(&receipt), &receipt["actor"]["kind"]), ("user", &"sender".into()), "{setting}");
        assert_eq!(env.leftovers(), Vec::<String>::new(), "{setting}");
    }
}

#[test]
fn the_history_of_a_lost_job_has_the_times_of_its_receipt() {
    let env = TestEnv::as_me();
    let job = env
        .start()
        .args(["--grace", "20s"])
        .script("trap '' TERM; echo ready >$QUELL_TEST_READY; sleep $N; sleep $N")
        .begin();
    let mut stop = env.quell("stop").args([&job.id]).start();
    assert!(eventually(PATIENCE, || job.events().iter().any(|event| event == "asked")));
    // Nothing may finish the job before both are gone.
    assert!(stop.front.signal("KILL") && stop.wait_exit(PATIENCE).is_some());
    job.lose();
    sweep(&env);
    let receipt = job.receipt().expect("a receipt");
    let text = std::fs::read_to_string(job.dir().join("events.jsonl")).expect("the history");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let time = |name: &str| events.iter().find(|event| event["event"] == name).map(|event| &event["time"]);
    let steps = receipt["steps"].as_array().expect("steps");
    let kill = steps.iter().find(|step| step["step"] == "kill").map(|step| &step["wall"]);
    assert!(kill.is_some(), "{receipt:#}");
    for name in ["lost", "killed", "root_exited"] {
        assert!(time(name).is_none_or(|time| Some(time) == kill), "{name}: {events:#?}, {steps:#?}");
    }
    assert!(time("lost").is_some() && time("killed").is_some(), "{events:#?}");
    assert_eq!(time("ended"), Some(&receipt["ended"]["wall"]), "{events:#?}");
}

#[test]
fn a_front_that_is_about_to_take_over_is_left_to_it() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let file = env.path("receipt.json");
        let quell = env.run().args(["--contain", setting.contain.as_str(), "--receipt"]).args([&file]);
        let mut running = quell.actor("setsid", None).start();
        running.wait_ready().expect("ready");
        let keeper = running.keeper().expect("a keeper");
        assert!(running.front.signal("STOP") && keeper.signal("KILL"));
        assert!(eventually(PATIENCE, || !keeper.is_alive()));
        // Every process in a PID namespace exits with its keeper, in a moment; the front stays.
        let settled = || setting.contain != Contain::Pidns || env.oracle.survivors().len() == 1;
        assert!(eventually(PATIENCE, settled), "{setting}: {:?}", env.oracle.survivors());
        let before = env.oracle.survivors();
        let (done, report) = sweep(&env);
        assert_eq!((done.code(), &report["kept"]), (Some(0), &1.into()), "{setting}: {report:#}");
        assert_eq!(env.oracle.survivors(), before, "{setting}");
        running.front.signal("CONT");
        running.wait_exit(PATIENCE).expect("the front finishes");
        let receipt = receipt(&file).expect("a receipt");
        assert_eq!((cause(&receipt), verdict(&receipt)), ("keeper_lost", "gone"), "{setting}");
        assert_eq!(env.leftovers(), Vec::<String>::new(), "{setting}");
    }
}

/// A command does not kill its own ancestors, and says `gone` only if that is true.
#[test]
fn a_sweep_from_within_the_lost_job_leaves_it_to_others() {
    let script = "echo ready >$QUELL_TEST_READY; until [ -e go ]; do sleep 0.01; done
        $Q sweep --json >said; echo $? >code.new; mv code.new code; sleep $N";
    for setting in Setting::all().into_iter().filter(|setting| setting.contain != Contain::Pidns) {
        let env = TestEnv::with(setting);
        let _running = lose(&env, setting, ("inside", None, Some(script))).expect("lost");
        env.write("go", "");
        let code: PathBuf = env.path("code");
        assert!(eventually(PATIENCE, || code.exists()), "{setting}: the sweep within does not end");
        let said = fs::read_to_string(env.path("said")).expect("a report");
        assert_eq!(fs::read_to_string(&code).expect("a code").trim(), "5", "{setting}: {said}");
        let sleeps = |process: &Process| process.command.starts_with("sleep");
        let goes_on = || env.oracle.survivors().iter().any(sleeps);
        assert!(eventually(PATIENCE, goes_on), "{setting}: {said}");
        let (_, report) = sweep(&env);
        assert_eq!(env.leftovers(), Vec::<String>::new(), "{setting}: {report:#}");
    }
}
