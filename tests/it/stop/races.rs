//! Things that happen at the same instant, many times over. `QUELL_TEST_ROUNDS` sets how many.

use std::{
    fs,
    io::Read,
    thread,
    time::{Duration, Instant},
};

use quell_tests::{
    after_front, all_hold, eventually,
    evidence::{grace_used, receipt, says_gone, was_killed},
    host::Setting,
    rounds,
    run::{PATIENCE, READER_PATIENCE},
    test_env::TestEnv,
};

/// The rounds of a race, spread over the settings of this host.
fn spread() -> Vec<(usize, Setting)> {
    let settings = Setting::all();
    (0..rounds()).map(|round| (round, settings[round % settings.len()])).collect()
}

/// Up to this many microseconds, by chance. A sleep is the point here: any instant will do.
pub(crate) fn pause_up_to(most: u64) -> Duration {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes)).expect("/dev/urandom");
    let pause = Duration::from_micros(u64::from_ne_bytes(bytes) % most);
    thread::sleep(pause);
    pause
}

fn nothing_left(env: &TestEnv, what: &str) -> Result<(), String> {
    let left = env.leftovers();
    if left.is_empty() { Ok(()) } else { Err(format!("{what}: left behind: {left:?}")) }
}

#[test]
fn a_program_that_exits_at_once_is_always_reported() {
    all_hold(2, &spread(), |&(round, setting)| {
        let env = TestEnv::with(setting);
        let code = (round % 200).to_string();
        let words = [env.actor_path().to_str().expect("UTF-8"), "exit-now", env.oracle.token(), &code]
            .map(String::from);
        let done = env.run().args(["--contain", setting.contain.as_str()]).command(words).finish();
        if done.code() != Some((round % 200) as i32) {
            return Err(format!("round {round}, {setting}: {}, not {code}; {}", done.status, done.stderr));
        }
        nothing_left(&env, &format!("round {round}, {setting}"))
    });
}

#[test]
fn a_stop_at_once_after_the_start_leaves_nothing() {
    all_hold(2, &spread(), |&(round, setting)| {
        let env = TestEnv::with(setting);
        let quell = env.run().args(["--contain", setting.contain.as_str(), "--grace", "200ms"]);
        let mut running = quell.actor("setsid", None).start();
        let pause = pause_up_to(15_000);
        running.front.signal("TERM");
        let what = format!("round {round}, {setting}, TERM after {pause:?}");
        let status = running.wait_exit(PATIENCE).ok_or(format!("{what}: quell did not return"))?;
        nothing_left(&env, &format!("{what}, {status}, {}", running.stderr()))
    });
}

#[test]
fn a_stop_as_soon_as_the_program_runs_is_polite() {
    all_hold(2, &spread(), |&(round, setting)| {
        let env = TestEnv::with(setting);
        let file = env.path("receipt.json");
        let quell = env
            .run()
            .args(["--contain", setting.contain.as_str(), "--grace", "20s", "--receipt"])
            .args([&file]);
        let mut running = quell.actor("polite", Some("0")).start();
        running.wait_ready()?;
        running.front.signal("TERM");
        let done = running.finish();
        let receipt = receipt(&file)?;
        // Each of them exits with 0 when it is asked, and only then; a process that was not asked uses up the grace.
        let in_time = !was_killed(&receipt) && grace_used(&receipt).is_some_and(|used| used < 20.0);
        if done.code() != Some(0) || receipt["root"]["outcome"]["code"] != 0 || !in_time {
            return Err(format!("round {round}, {setting}: {}, {receipt}, {}", done.status, done.stderr));
        }
        nothing_left(&env, &format!("round {round}, {setting}"))
    });
}

#[test]
fn a_chain_is_outrun_every_time() {
    // One at a time: what is raced is the kernel's bookkeeping, not the machine's load.
    all_hold(1, &spread(), |&(round, setting)| {
        let env = TestEnv::with(setting);
        let options = ["--contain", setting.contain.as_str(), "--timeout", "60ms", "--grace", "40ms"];
        let width = if round % 12 < 6 { "1" } else { "8" };
        let mut running = env.run().args(options).actor("chain", Some(width)).start();
        let what = format!("round {round}, {setting}, width {width}");
        // Before it ends by itself, after 30 seconds.
        let patience = Duration::from_secs(20);
        let status = running.wait_exit(patience).ok_or(format!("{what}: no return"))?;
        if status.code() != Some(124) || !running.wait_output_closed(READER_PATIENCE) {
            return Err(format!("{what}: {status}, {}", running.stderr()));
        }
        nothing_left(&env, &what)
    });
}

#[test]
fn an_exit_at_the_instant_of_the_timeout_is_one_or_the_other() {
    all_hold(2, &spread(), |&(round, setting)| {
        let env = TestEnv::with(setting);
        let file = env.path("receipt.json");
        let quell = env.run().args(["--contain", setting.contain.as_str(), "--timeout", "50ms", "--receipt"]);
        // 46 to 54 ms: on both sides of the timeout.
        let nap = format!("0.{:03}", 46 + round % 9);
        let done = quell.args([&file]).command(["sh", "-c", "sleep $0; exit 3", &nap]).finish();
        let what = format!("round {round}, {setting}, {}, {}", done.status, done.stderr);
        if !matches!(done.code(), Some(3 | 124)) {
            return Err(what);
        }
        says_gone(&receipt(&file)?).map_err(|why| format!("{what}: {why}"))?;
        nothing_left(&env, &what)
    });
}

/// What to kill at a random instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Front,
    Keeper,
}

/// SIGKILL at any instant: nothing is alive a moment later, and no record says that it is.
fn survives_the_loss_of(victim: Victim) {
    all_hold(4, &spread(), |&(round, setting)| {
        let env = TestEnv::with(setting);
        let quell = env.run().args(["--contain", setting.contain.as_str(), "--grace", "100ms"]);
        let mut running = quell.actor(if round % 2 == 0 { "ignore-term" } else { "setsid" }, None).start();
        let pause = pause_up_to(40_000);
        let target = match victim {
            Victim::Front => Some(running.front.clone()),
            Victim::Keeper => running.keeper(),
        };
        let Some(target) = target.filter(|target| target.signal("KILL")) else {
            // No keeper yet: this instant is the front's alone. End it as a person would.
            running.front.signal("TERM");
            running.wait_exit(PATIENCE).ok_or("quell did not return after TERM")?;
            return nothing_left(&env, &format!("round {round}, {setting}, no keeper after {pause:?}"));
        };
        let killed = Instant::now();
        let what = format!("round {round}, {setting}, {victim:?} {} killed after {pause:?}", target.pid);
        let alive = env.oracle.survivors_after(after_front());
        if !alive.is_empty() {
            return Err(format!("{what}: {} ms later: {alive:?}", killed.elapsed().as_millis()));
        }
        if running.wait_exit(PATIENCE).is_none() {
            return Err(format!("{what}: the front is gone but not for its parent"));
        }
        nothing_left(&env, &format!("{what}; {}", running.stderr()))
    });
}

#[test]
fn the_front_may_be_killed_at_any_instant() {
    survives_the_loss_of(Victim::Front);
}

/// The keeper makes the record and the cgroup, and puts them away. When the front made them, one that
/// was killed before it had a keeper left a record without a state, and a cgroup, for ever.
#[test]
fn a_front_that_is_killed_in_its_first_moments_leaves_no_litter() {
    all_hold(2, &spread(), |&(round, setting)| {
        let env = TestEnv::enclosed(setting);
        let quell = env.run().args(["--contain", setting.contain.as_str(), "--grace", "100ms"]);
        let mut child = quell.command(["sleep", &env.oracle.nap()]).spawn();
        // From the exec on, past the helpers that come before quell; the sleep is the race.
        let (exe, quell) = (format!("/proc/{}/exe", child.id()), fs::canonicalize(env.quell_path()));
        while fs::read_link(&exe).is_ok_and(|exe| quell.as_ref().is_ok_and(|quell| exe != *quell)) {}
        let pause = pause_up_to(3_000);
        let killed = child.kill().and_then(|()| child.wait());
        let what = format!("round {round}, {setting}, front killed after {pause:?}: {killed:?}");
        // Before the keeper is gone it may not even have begun.
        let alive = env.oracle.survivors_after(PATIENCE);
        if alive.is_empty() { nothing_left(&env, &what) } else { Err(format!("{what}: {alive:?}")) }
    });
}

#[test]
fn the_keeper_may_be_killed_at_any_instant() {
    survives_the_loss_of(Victim::Keeper);
}

#[test]
fn a_second_term_kills_at_once() {
    let env = TestEnv::as_me();
    let file = env.path("receipt.json");
    let quell = env.run().args(["--grace", "20s", "--receipt"]).args([&file]);
    let mut running = quell.actor("ignore-term", None).start();
    running.wait_ready().expect("ready");
    running.front.signal("TERM");
    let stopping = || env.records().iter().any(|record| record.state == "stopping");
    assert!(eventually(PATIENCE, stopping), "the first one is not heard");
    // Those that come within a tenth of a second are one request.
    std::thread::sleep(Duration::from_millis(150));
    running.front.signal("TERM");
    running.wait_exit(PATIENCE).expect("quell returns");
    let receipt = receipt(&file).expect("a receipt");
    assert!(grace_used(&receipt).is_some_and(|used| used < 20.0), "{receipt:#}");
    assert_eq!(env.leftovers(), Vec::<String>::new());
}

#[test]
fn a_polite_tree_ends_the_wait_as_soon_as_it_is_gone() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let quell = env.run().args(["--contain", setting.contain.as_str(), "--grace", "20s"]);
        let mut running = quell.actor("polite", Some("100")).start();
        running.wait_ready().expect("ready");
        let asked = Instant::now();
        running.front.signal("TERM");
        running.wait_exit(PATIENCE).expect("quell returns");
        let took = asked.elapsed();
        assert!(took >= Duration::from_millis(95), "{setting}: there was no grace: {took:?}");
        // `events.rs` shows in a trace that nothing but events is waited for; this is about the 20 s of grace.
        assert!(took < Duration::from_secs(15), "{setting}: {took:?} for a tree that was gone after 0.1 s");
        assert_eq!(env.leftovers(), Vec::<String>::new(), "{setting}");
    }
}

#[test]
fn a_stopped_program_is_woken_to_hear_the_request() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let quell = env.run().args(["--contain", setting.contain.as_str(), "--grace", "20s"]);
        // The shell's trap can run only once it goes on; killed, it would not exit with 7.
        let script = "trap 'exit 7' TERM; echo ready >$QUELL_TEST_READY; kill -STOP $$; sleep $N & wait";
        let mut running = quell.script(script).start();
        running.wait_ready().expect("ready");
        let stopped = || env.oracle.survivors().iter().any(|process| process.state() == Some('T'));
        assert!(eventually(PATIENCE, stopped), "{setting}: it does not stop itself");
        running.front.signal("TERM");
        let done = running.finish();
        assert_eq!(done.code(), Some(7), "{setting}: {}", done.stderr);
    }
}
