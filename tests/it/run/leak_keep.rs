//! `quell run --leak keep`: the run returns at the exit of its command, and what the command left is a live job until it ends or its
//! owner does.

use std::{fs, path::PathBuf, time::Duration};

use quell_tests::{
    all_hold, eventually,
    evidence::{cause, says_gone},
    host::Setting,
    oracle::Process,
    rounds,
    run::{PATIENCE, Quell, READER_PATIENCE, Running},
    test_env::{TestEnv, copy_program},
};
use serde_json::Value;

use crate::{recovery::lost_jobs::only_receipt, stop::races::pause_up_to};

/// `quell run --leak keep` in this setting.
fn keep(env: &TestEnv, setting: Setting) -> Quell<'_> {
    env.run().args(["--leak", "keep", "--contain", setting.contain.as_str()]).env("N", env.oracle.nap())
}

pub(super) fn place(setting: Setting) -> TestEnv {
    TestEnv::in_own_cgroup(setting.user)
}

fn mine() -> (TestEnv, Setting) {
    let setting = Setting::all()[0];
    (place(setting), setting)
}

/// Leaves a process in a session of its own that ignores TERM, with closed standard streams.
const DEAF: &str = "setsid sh -c 'trap \"\" TERM; echo >up; sleep $N; :' <&- >&- 2>&- & until [ -e up ]; do sleep 0.01; done";

/// A process that is not a shell by its name, runs what follows as its child, and lives on after that.
pub(super) fn agent<'l>(env: &TestEnv, quell: Quell<'l>) -> Quell<'l> {
    let path: PathBuf = env.path("agent");
    if !path.exists() {
        copy_program("/bin/sh".as_ref(), &path);
    }
    let script = r#""$@"; echo $? >returned; exec sleep $N"#;
    let words = [path.display().to_string(), "-c".into(), script.into(), "agent".into()];
    let nap = env.oracle.nap();
    quell.env("N", nap).wrapped(words)
}

pub(super) fn returned(env: &TestEnv) -> bool {
    eventually(PATIENCE, || fs::read_to_string(env.path("returned")).is_ok_and(|text| text.ends_with('\n')))
}

/// The only live job.
pub(super) fn the_job(env: &TestEnv) -> String {
    let ids = env.ids("live");
    assert_eq!(ids.len(), 1, "{ids:?}");
    ids[0].clone()
}

pub(super) fn ends_clean(env: &TestEnv, patience: Duration) -> Result<Value, String> {
    let left = env.leftovers_after(patience);
    let receipt = only_receipt(env)?;
    if !left.is_empty() {
        return Err(format!("left behind: {left:?}: {receipt}"));
    }
    says_gone(&receipt).map(|()| receipt)
}

/// The receipt says that the owner is gone, and names it.
pub(super) fn names_owner(receipt: &Value, owner: &Process) -> Result<(), String> {
    let actor = &receipt["actor"];
    let named = actor["kind"] == "owner" && actor["command"] == "agent" && actor["pid"] == owner.pid;
    if cause(receipt) == "owner_gone" && named { Ok(()) } else { Err(format!("{receipt}")) }
}

#[test]
fn the_run_returns_with_its_command_and_what_is_left_is_a_live_job() {
    for setting in Setting::all() {
        let env = place(setting);
        let done = keep(&env, setting).sh(&format!("{DEAF}; echo said; exit 3")).finish();
        assert_eq!((done.code(), done.stdout.as_str()), (Some(3), "said\n"), "{setting}: {}", done.stderr);
        let id = the_job(&env);
        assert!(
            done.stderr.contains(&format!("go on as job {id}; `quell stop {id}` stops them")),
            "{}",
            done.stderr
        );
        let record = env.job(&id).record().expect("a record");
        assert_eq!(record["state"], "running", "{setting}: {record}");
        assert_eq!(record["outcome"]["code"], 3, "{setting}: {record}");
        assert!(record.get("standby").is_none(), "{setting}: {record}");
        let list = env.quell("list").finish().stdout;
        assert!(list.contains("running") && list.contains("left by: "), "{setting}: {list}");
        let status = env.quell("status").args([&id]).finish().stdout;
        assert!(status.contains("code 3") && status.contains("go on"), "{setting}: {status}");
        assert!(env.quell("tree").args([&id]).finish().stdout.contains("sleep"), "{setting}");
        let stopped = env.job(&id).stop(&["--grace", "200ms"]);
        assert_eq!(stopped.code(), Some(0), "{setting}: {}", stopped.stderr);
        let receipt = ends_clean(&env, PATIENCE).unwrap_or_else(|why| panic!("{setting}: {why}"));
        assert_eq!((cause(&receipt), &receipt["root"]["outcome"]["code"]), ("user", &3.into()), "{receipt}");
        assert!(
            !env.job(&id).dir().join("control.sock").exists() && !env.job(&id).dir().join("reserve").exists()
        );
    }
}

#[test]
fn a_run_that_leaves_nothing_ends_as_without_keep() {
    for setting in Setting::all() {
        let env = place(setting);
        let done = keep(&env, setting).sh("echo said; exit 7").finish();
        assert_eq!(
            (done.code(), done.stdout.as_str(), done.stderr.as_str()),
            (Some(7), "said\n", ""),
            "{setting}"
        );
        let receipt = ends_clean(&env, Duration::ZERO).unwrap_or_else(|why| panic!("{setting}: {why}"));
        assert_eq!(cause(&receipt), "own_exit", "{receipt}");
        let files = fs::read_dir(&env.records()[0].dir).expect("a record").count();
        assert_eq!(files, 3, "{setting}: a file of a live job is left");
    }
}

#[test]
fn what_is_left_holds_the_callers_pipe_and_quell_does_not() {
    for setting in Setting::all() {
        let env = place(setting);
        let mut running = keep(&env, setting).sh(DEAF).start();
        // Nothing but quell could hold it: what is left has closed its own.
        assert!(running.wait_output_closed(READER_PATIENCE), "{setting}: {}", running.stderr());
        let id = the_job(&env);
        assert_eq!(env.job(&id).state(), "running");
        env.job(&id).stop(&["--kill"]);
        ends_clean(&env, PATIENCE).unwrap_or_else(|why| panic!("{setting}: {why}"));
        let env = place(setting);
        let mut running = keep(&env, setting).sh("sleep $N & exit 0").start();
        assert!(
            running.wait_exit(PATIENCE).is_some() && !running.wait_output_closed(Duration::from_millis(100))
        );
        env.job(&the_job(&env)).stop(&[]);
        assert!(running.wait_output_closed(READER_PATIENCE), "{setting}");
    }
}

#[test]
fn what_is_left_is_gone_soon_after_the_owner_was_killed_and_the_receipt_names_it() {
    let cases: Vec<(Setting, &str, Option<&str>)> = Setting::all()
        .into_iter()
        .flat_map(|setting| {
            [("", None), ("daemon-exit", None), ("pipe-holder", None), ("chain-exit", None)]
                .map(|(kind, arg)| (setting, kind, arg))
        })
        .collect();
    all_hold(2, &cases, |&(setting, kind, arg)| {
        let what = |why: String| format!("{setting}, {kind}: {why}");
        let env = place(setting);
        let quell = keep(&env, setting).args(["--grace", "300ms"]);
        let quell = match kind {
            "" => quell.sh(DEAF),
            // Bounded: it forks and exits a thousand times at most.
            "chain-exit" => quell
                .sh("f() { [ $1 -gt 1000 ] && exit; (sleep 0.01; f $(($1 + 1))) & exit 0; }; (f 0) & exit 0"),
            kind => quell.actor(kind, arg),
        };
        let owner = agent(&env, quell).start();
        if !returned(&env) {
            return Err(what(format!("did not return: {}", owner.stderr())));
        }
        let id = the_job(&env);
        owner.front.signal("KILL");
        // The promise is five seconds.
        if !env.job(&id).wait_over(Duration::from_secs(5)) {
            return Err(what(format!("{:?}", env.leftovers())));
        }
        let receipt = ends_clean(&env, PATIENCE).map_err(what)?;
        names_owner(&receipt, &owner.front).map_err(what)
    });
}

#[test]
fn a_front_that_is_killed_before_its_command_exits_takes_everything_with_it() {
    for setting in Setting::all() {
        let env = place(setting);
        let mut running = keep(&env, setting).sh(&format!("{DEAF}; sleep $N; :")).start();
        assert!(eventually(PATIENCE, || env.path("up").exists()));
        assert!(running.front.signal("KILL") && running.wait_exit(PATIENCE).is_some());
        let receipt = ends_clean(&env, PATIENCE).unwrap_or_else(|why| panic!("{setting}: {why}"));
        assert_eq!(cause(&receipt), "front_lost", "{receipt}");
    }
}

#[test]
fn a_keeper_that_is_killed_after_the_return_is_replaced_by_the_next_command() {
    for setting in Setting::all() {
        let env = place(setting);
        let done = keep(&env, setting).sh(DEAF).finish();
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let id = the_job(&env);
        env.job(&id).lose_all(&["keeper"]);
        env.quell("list").finish();
        assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new(), "{setting}");
        // Without a cgroup a busy machine can make it impossible to prove that: `recovery::proof` is about it.
        let receipt = only_receipt(&env).unwrap_or_else(|why| panic!("{setting}: {why}"));
        assert_eq!(cause(&receipt), "keeper_lost", "{receipt}");
        assert_eq!(receipt["root"]["outcome"]["code"], 0, "{receipt}");
    }
}

#[test]
fn signals_to_the_group_of_the_command_or_to_its_session_do_not_reach_the_keeper() {
    for setting in Setting::all() {
        let env = place(setting);
        // In a group of its own, as agents start commands.
        let quell = keep(&env, setting).sh(&format!("{DEAF}; sleep 0.1"));
        let mut running = quell.wrapped(["setsid"]).start();
        assert!(running.wait_exit(PATIENCE).is_some());
        let group = running.front.pid;
        for signal in ["HUP", "TERM", "KILL"] {
            let _ =
                std::process::Command::new("kill").args(["-s", signal, "--", &format!("-{group}")]).output();
        }
        let id = the_job(&env);
        let keeper = env.job(&id).process("keeper").expect("a keeper");
        assert!(keeper.is_alive() && env.job(&id).state() == "running", "{setting}");
        assert_eq!(env.job(&id).stop(&["--kill"]).code(), Some(0));
        ends_clean(&env, PATIENCE).unwrap_or_else(|why| panic!("{setting}: {why}"));
    }
}

#[test]
fn front_and_keeper_may_be_killed_at_any_instant() {
    let settings = Setting::all();
    let cases: Vec<(usize, Setting)> =
        (0..rounds().max(20)).map(|n| (n, settings[n % settings.len()])).collect();
    all_hold(2, &cases, |&(round, setting)| {
        let env = place(setting);
        let script = "setsid sleep $N & (setsid sh -c 'trap \"\" TERM; sleep $N; :' &) ; exit 5";
        let mut running = keep(&env, setting).args(["--grace", "200ms"]).sh(script).start();
        let keeper = (round % 2 == 1).then(|| {
            eventually(PATIENCE, || running.keeper().is_some() || !running.front.is_alive());
            running.keeper()
        });
        let pause = pause_up_to(30_000);
        match keeper {
            Some(keeper) => drop(keeper.map(|keeper| keeper.signal("KILL"))),
            None => drop(running.front.signal("KILL")),
        }
        running.wait_exit(PATIENCE).ok_or("the front lives")?;
        // What goes on is known and can be stopped; what was lost is finished by that command too.
        for id in env.ids("live").iter().filter(|id| !id.starts_with('.')) {
            let stopped = env.job(id).stop(&["--grace", "100ms"]);
            // Beside other tests a loss can end unproven: their processes can't be told from the job's. The oracle can tell.
            let is_unproven = stopped.code() == Some(5) && stopped.stdout.contains("can't be told");
            if !matches!(stopped.code(), Some(0 | 3)) && !is_unproven {
                let words = (&stopped.stdout, &stopped.stderr);
                return Err(format!("round {round}, {setting}, after {pause:?}: {words:?}"));
            }
        }
        env.quell("list").finish();
        let left = env.leftovers_after(PATIENCE);
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("round {round}, {setting}, after {pause:?}: {left:?}"))
        }
    });
}

#[test]
fn a_stop_at_the_exit_of_the_command_reaches_the_keeper() {
    let settings = Setting::all();
    let cases: Vec<(usize, Setting)> =
        (0..rounds().max(20)).map(|n| (n, settings[n % settings.len()])).collect();
    all_hold(2, &cases, |&(round, setting)| {
        let env = place(setting);
        let script = "setsid sleep $N & while [ ! -e go ]; do sleep 0.005; done; exit 5";
        let mut running = keep(&env, setting).sh(script).start();
        if !eventually(PATIENCE, || env.records().iter().any(|record| record.state == "running")) {
            return Err(format!("{setting}: it does not run: {}", running.stderr()));
        }
        let id = the_job(&env);
        env.write("go", "");
        let pause = pause_up_to(12_000);
        let stopped = env.job(&id).stop(&[]);
        let what = format!("round {round}, {setting}, after {pause:?}");
        if stopped.code() != Some(0) || stopped.took > Duration::from_secs(4) {
            return Err(format!("{what}: {:?}: {}", stopped.took, stopped.stderr));
        }
        running.wait_exit(PATIENCE).ok_or(format!("{what}: the front lives"))?;
        let receipt = ends_clean(&env, PATIENCE).map_err(|why| format!("{what}: {why}"))?;
        // A TERM was enough: the request was not lost.
        if cause(&receipt) == "user" { Ok(()) } else { Err(format!("{what}: {receipt}")) }
    });
}

#[test]
fn the_time_limit_is_one_of_the_whole_job() {
    let (env, setting) = mine();
    let done = keep(&env, setting).args(["--timeout", "1s", "--grace", "200ms"]).sh(DEAF).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let receipt = ends_clean(&env, PATIENCE).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(cause(&receipt), "timeout", "{receipt}");
}

#[test]
fn the_json_answer_names_what_is_left_and_a_receipt_file_is_written_at_the_end() {
    let (env, setting) = mine();
    let file = env.path("r.json").display().to_string();
    let script = format!("{DEAF}; exit 4");
    let done = keep(&env, setting).args(["--json", "--receipt", &file]).sh(&script).finish();
    let answer = done.envelope();
    assert_eq!(
        (done.code(), &answer["type"], &answer["ok"]),
        (Some(4), &"run".into(), &true.into()),
        "{answer}"
    );
    let data = &answer["data"];
    let id = the_job(&env);
    assert_eq!((&data["id"], &data["state"]), (&id.as_str().into(), &"running".into()), "{data}");
    assert_eq!(
        (&data["root"]["outcome"]["code"], &data["owner"]["pid"]),
        (&4.into(), &std::process::id().into())
    );
    let left = data["left"].as_array().expect("a list");
    assert!(
        left.iter().any(|one| one["command"].as_str().is_some_and(|text| text.contains("sleep"))),
        "{data}"
    );
    assert_eq!(fs::read_to_string(&file).expect("made at the start"), "");
    env.job(&id).stop(&["--kill"]);
    let receipt: Value = serde_json::from_slice(&fs::read(&file).expect("a receipt")).expect("JSON");
    says_gone(&receipt).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn a_signal_to_the_tree_reaches_what_is_left() {
    let (env, setting) = mine();
    let script = "setsid sh -c 'trap \"echo >got\" USR1; echo >up; while :; do sleep 0.02; done' & until [ -e up ]; do sleep 0.01; done";
    assert_eq!(keep(&env, setting).sh(script).finish().code(), Some(0));
    let id = the_job(&env);
    let sent = env.quell("signal").args([id.as_str(), "USR1", "--tree"]).finish();
    assert_eq!(sent.code(), Some(0), "{}", sent.stderr);
    assert!(eventually(PATIENCE, || env.path("got").exists()));
    env.job(&id).stop(&[]);
    ends_clean(&env, PATIENCE).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn an_outer_job_asks_what_an_inner_run_has_left_politely() {
    let (env, setting) = mine();
    let inner = "trap 'echo >asked; exit' TERM; echo >up; while :; do sleep 0.02; done";
    // The owner is outside of the outer job, and does not exit.
    let script = format!(
        "\"$Q\" run -q --leak keep --owner {} -- sh -c 'setsid sh -c \"$I\" & until [ -e up ]; do sleep 0.01; done'; sleep $N; :",
        std::process::id()
    );
    let quell = env.run().args(["--contain", setting.contain.as_str(), "--grace", "10s"]);
    let quell = quell.env("N", env.oracle.nap()).env("Q", env.quell_path()).env("I", inner).sh(&script);
    let mut running: Running = quell.start();
    assert!(eventually(PATIENCE, || env.path("up").exists()), "{}", running.stderr());
    // The front of the inner run is gone.
    assert!(eventually(PATIENCE, || env.ids("live").iter().any(|id| {
        env.job(id)
            .record()
            .is_some_and(|record| record.get("standby").is_none() && !record["outcome"].is_null())
    })));
    assert!(running.front.signal("TERM"));
    assert!(running.wait_exit(Duration::from_secs(8)).is_some(), "{}", running.stderr());
    assert!(env.path("asked").exists(), "it was killed without being asked");
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
}

#[test]
fn options_that_contradict_it_are_refused_and_nothing_runs() {
    let env = TestEnv::as_me();
    for (verb, options) in [
        ("run", &["--no-record"][..]),
        ("run", &["--receipt-fd", "1"]),
        ("run", &["--until", "tree"]),
        ("start", &[]),
        ("test", &[]),
    ] {
        let done = env.quell(verb).args(["--leak", "keep"]).args(options).sh("echo ran >ran").finish();
        assert!(!matches!(done.code(), Some(0)), "{verb} {options:?}");
        assert!(done.stderr.contains("--leak keep"), "{verb} {options:?}: {}", done.stderr);
        assert!(!env.path("ran").exists() && env.ids("jobs").is_empty(), "{verb} {options:?}");
    }
}
