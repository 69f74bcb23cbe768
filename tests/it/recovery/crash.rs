//! SIGKILL of any of quell's own processes at any instant: the next command shows the truth, and everything can be stopped,
//! started again and removed.

use std::{
    collections::BTreeSet,
    env, fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use quell_tests::{
    after_front, all_hold, eventually,
    evidence::{cause, says_gone, verdict},
    host::{Contain, Setting, User, cgroup_mount},
    jobs::Background,
    oracle::Process,
    rounds,
    run::PATIENCE,
    test_env::TestEnv,
};

use crate::stop::races::pause_up_to;

/// The name that all jobs here want, one after the other.
const NAME: [&str; 2] = ["--name", "web"];

/// The rounds of a race, a part of the whole, spread over the settings of this host.
pub(crate) fn spread(part: usize) -> Vec<(usize, Setting)> {
    let settings = Setting::all();
    (0..rounds().div_ceil(part)).map(|round| (round, settings[round % settings.len()])).collect()
}

/// quell's own processes of this name in the environment.
pub(crate) fn supervisors(env: &TestEnv, name: &str) -> Vec<Process> {
    let is_named = |process: &Process| {
        // The kernel keeps 15 characters.
        fs::read_to_string(format!("/proc/{}/comm", process.pid))
            .is_ok_and(|comm| comm.trim() == &name[..name.len().min(15)])
    };
    env.oracle.survivors().into_iter().filter(is_named).collect()
}

/// One after the other: as near to the same instant as it gets. The killed processes are dead afterwards.
pub(crate) fn signal_all(signal: &str, victims: &[Process]) -> bool {
    let sent = victims.iter().filter(|victim| victim.signal(signal)).count() > 0;
    let dead = || signal != "KILL" || victims.iter().all(|victim| !victim.is_alive());
    sent && eventually(PATIENCE, dead)
}

/// The cgroup of v2 that each of them is in.
fn cgroups(processes: &[Process]) -> BTreeSet<PathBuf> {
    let mount = cgroup_mount();
    let of = |process: &Process| {
        let text = fs::read_to_string(format!("/proc/{}/cgroup", process.pid)).ok()?;
        let path = text.lines().find_map(|line| line.strip_prefix("0::/").map(str::to_owned))?;
        path.contains("quell-0").then_some(mount.as_ref()?.join(path))
    };
    processes.iter().filter_map(of).collect()
}

/// Whatever happened before: nothing of it is left after the next commands, and the name can be had again.
pub(crate) fn truth(env: &TestEnv, what: &str) -> Result<(), String> {
    for (verb, options) in [("stop", &["--all", "--grace", "300ms"][..]), ("sweep", &[])] {
        let done = env.quell(verb).args(options).finish();
        // Where the end of a job without its keepers can't be proven, that is what is said.
        let unproven = || {
            env.ids("jobs").iter().any(|id| verdict(&env.job(id).receipt().unwrap_or_default()) == "unproven")
        };
        if done.code() != Some(0) && !(done.code() == Some(5) && unproven()) {
            return Err(format!("{what}: {verb}: {}: {} {}", done.status, done.stdout, done.stderr));
        }
    }
    let left = env.leftovers_after(PATIENCE);
    if !left.is_empty() {
        return Err(format!("{what}: left behind: {left:?}"));
    }
    // A lock that was never shown is hidden until no process can be about to show it.
    let live: Vec<String> = env.ids("live").into_iter().filter(|id| !id.starts_with('.')).collect();
    if !live.is_empty() {
        return Err(format!("{what}: still in live/: {live:?}"));
    }
    let again = env.start().args(NAME).command(["sleep", &env.oracle.nap()]).finish();
    let stop = env.quell("stop").args(["web", "--now"]).finish();
    if again.code() != Some(0) || stop.code() != Some(0) {
        let told =
            format!("{} {} / {} {}{}", again.status, again.stderr, stop.status, stop.stdout, stop.stderr);
        return Err(format!("{what}: the name is lost: {told}"));
    }
    let left = env.leftovers_after(PATIENCE);
    if left.is_empty() { Ok(()) } else { Err(format!("{what}: the next job left: {left:?}")) }
}

/// Waits for a command that may fail.
fn returns(child: &mut Child, what: &str) -> Result<(), String> {
    let back = eventually(PATIENCE, || matches!(child.try_wait(), Ok(Some(_))));
    if !back {
        let _ = child.kill().and_then(|()| child.wait());
    }
    if back { Ok(()) } else { Err(format!("{what}: the command did not return")) }
}

/// What the job is doing when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Running,
    Stopping,
}

/// Kills those of quell's processes that have these names, at a random instant of each phase.
fn survives_the_loss_of(names: &[&str], part: usize) {
    all_hold(3, &spread(part), |&(round, setting)| {
        let phase = [Phase::Starting, Phase::Running, Phase::Stopping][(round / 6 + round) % 3];
        let env = TestEnv::enclosed(setting);
        let shape = if round % 2 == 0 { "ignore-term" } else { "setsid" };
        let quell = env.start().args(NAME).args(["--contain", setting.contain.as_str(), "--grace", "100ms"]);
        let quell = quell.args(["--ready-cmd", "sleep 0.02; exit 1"]).actor(shape, None);
        let mut job = None;
        let mut command = match phase {
            Phase::Starting => Some(quell.spawn()),
            Phase::Running => {
                job = Some(quell.begin());
                None
            }
            Phase::Stopping => {
                let begun = quell.begin();
                let stop = env.quell("stop").args([&begun.id]).spawn();
                job = Some(begun);
                Some(stop)
            }
        };
        let pause = pause_up_to(if phase == Phase::Stopping { 130_000 } else { 30_000 });
        let victims: Vec<Process> = names.iter().flat_map(|name| supervisors(&env, name)).collect();
        let cgroup_dirs = cgroups(&victims);
        let killed = signal_all("KILL", &victims);
        let what = format!("round {round}, {setting}, {phase:?}, {names:?} after {pause:?}, {killed}");
        if let Some(command) = &mut command {
            returns(command, &what)?;
        }
        let alone = names == ["quell-keeper"] && killed;
        if alone {
            // No other command is needed: the standby does it.
            let alive = env.oracle.survivors_after(after_front());
            if !alive.is_empty() {
                return Err(format!("{what}: still alive: {alive:?}"));
            }
        }
        if let Some(job) = job.as_ref().filter(|_| alone && phase == Phase::Running) {
            let receipt = job.receipt().ok_or(format!("{what}: no receipt"))?;
            says_gone(&receipt).map_err(|why| format!("{what}: {why}"))?;
            if cause(&receipt) != "keeper_lost" || job.state() != "ended" || !job.is_over() {
                return Err(format!("{what}: {}, {}", cause(&receipt), job.state()));
            }
        }
        if let Some(job) =
            job.as_ref().filter(|_| phase == Phase::Running && !names.contains(&"quell-keeper"))
        {
            if job.state() != "running" || env.oracle.survivors().len() < 2 {
                return Err(format!("{what}: the job did not go on: {}", job.state()));
            }
            let done = job.stop(&[]);
            let receipt = job.receipt().unwrap_or_default();
            // A check that the killed helper has started may still run.
            let is_proven = done.code() == Some(0) || names == ["quell-helper"] && done.code() == Some(5);
            if !is_proven || cause(&receipt) != "user" {
                return Err(format!("{what}: {}, {}", done.stderr, cause(&receipt)));
            }
        }
        truth(&env, &what)?;
        let left: Vec<&PathBuf> = cgroup_dirs.iter().filter(|dir| dir.exists()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{what}: {left:?}")) }
    });
}

#[test]
fn the_keeper_of_a_background_job_may_be_killed_at_any_instant() {
    survives_the_loss_of(&["quell-keeper"], 4);
}

#[test]
fn the_standby_may_be_killed_at_any_instant() {
    survives_the_loss_of(&["quell-standby"], 4);
}

#[test]
fn both_may_be_killed_at_once_at_any_instant() {
    survives_the_loss_of(&["quell-keeper", "quell-standby"], 4);
}

#[test]
fn a_helper_may_be_killed_at_any_instant() {
    survives_the_loss_of(&["quell-helper"], 8);
}

#[test]
fn a_start_that_is_killed_leaves_a_listed_job_or_none() {
    all_hold(2, &spread(3), |&(round, setting)| {
        let env = TestEnv::enclosed(setting);
        let quell = env.start().args(NAME).args(["--contain", setting.contain.as_str(), "--grace", "100ms"]);
        let mut child = quell.command(["sleep", &env.oracle.nap()]).spawn();
        let pause = pause_up_to(25_000);
        let killed = child.kill().and_then(|()| child.wait());
        let what = format!("round {round}, {setting}, start killed after {pause:?}: {killed:?}");
        // From here on no command runs: either the job ends by itself, or it is on the list.
        let settled = eventually(PATIENCE, || {
            let alive = env.oracle.survivors();
            let kept = env.ids("live").iter().any(|id| env.job(id).state() == "running");
            alive.is_empty() || kept
        });
        if !settled {
            return Err(format!("{what}: unlisted: {:?}, {:?}", env.oracle.survivors(), env.ids("live")));
        }
        truth(&env, &what)
    });
}

#[test]
fn a_stop_that_is_killed_does_no_harm() {
    all_hold(2, &spread(4), |&(round, setting)| {
        let env = TestEnv::enclosed(setting);
        let quell = env.start().args(NAME).args(["--contain", setting.contain.as_str(), "--grace", "100ms"]);
        let job = quell.actor("ignore-term", None).begin();
        let mut stop = env.quell("stop").args([&job.id]).spawn();
        let pause = pause_up_to(120_000);
        let killed = stop.kill().and_then(|()| stop.wait());
        truth(&env, &format!("round {round}, {setting}, stop killed after {pause:?}: {killed:?}"))
    });
}

#[test]
fn a_sweep_that_is_killed_is_finished_by_the_next() {
    all_hold(2, &spread(4), |&(round, setting)| {
        let env = TestEnv::enclosed(setting);
        let quell = env.start().args(NAME).args(["--contain", setting.contain.as_str()]);
        let _job = quell.actor("setsid", None).begin();
        let supervisors: Vec<Process> =
            ["quell-keeper", "quell-standby"].iter().flat_map(|name| supervisors(&env, name)).collect();
        assert!(supervisors.len() == 2 && signal_all("KILL", &supervisors), "{supervisors:?}");
        let mut sweep = env.quell("sweep").spawn();
        let pause = pause_up_to(25_000);
        let killed = sweep.kill().and_then(|()| sweep.wait());
        truth(&env, &format!("round {round}, {setting}, sweep killed after {pause:?}: {killed:?}"))
    });
}

/// Not a test of its own: what the tests below start and kill. The library is called from a program of its own.
#[test]
#[ignore = "a part of other tests"]
fn library_caller() {
    let (Some(home), Some(program)) = (env::var_os("QUELL_HOME"), env::var_os("QUELL_TEST_PROGRAM")) else {
        return;
    };
    let quell = quell::binary::open(quell::binary::Home::at(home), program);
    match env::var("QUELL_TEST_RESTART") {
        Ok(job) => drop(quell.job(&job).and_then(|job| job.restart(&quell::StopOptions::default()))),
        Err(_) => {
            let rules = quell::GcRules { max_count: Some(0), ..quell::GcRules::default() };
            drop(quell.gc(&rules, quell::DryRun::No));
        }
    }
}

fn call_library(env: &TestEnv, restart: Option<&str>) -> Child {
    let mut command = Command::new(env::current_exe().expect("the tests themselves"));
    command.args(["--exact", "recovery::crash::library_caller", "--ignored"]).current_dir(env.dir());
    command.env("QUELL_HOME", env.home()).env("QUELL_TEST_PROGRAM", env.quell_path());
    command.envs(restart.map(|job| ("QUELL_TEST_RESTART", job)));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the tests themselves")
}

fn as_me() -> impl Iterator<Item = (usize, Setting)> {
    let me = TestEnv::as_me().user();
    spread(4).into_iter().filter(move |(_, setting)| setting.user == me)
}

#[test]
fn a_restart_that_is_killed_leaves_the_old_job_or_the_new_one_or_none() {
    all_hold(2, &as_me().collect::<Vec<_>>(), |&(round, setting)| {
        let env = TestEnv::enclosed(setting);
        let quell = env.start().args(NAME).args(["--contain", setting.contain.as_str(), "--grace", "50ms"]);
        let job = quell.command(["sleep", &env.oracle.nap()]).begin();
        let mut restart = call_library(&env, Some(&job.id));
        let pause = pause_up_to(60_000);
        let killed = restart.kill().and_then(|()| restart.wait());
        let what = format!("round {round}, {setting}, restart killed after {pause:?}: {killed:?}");
        let roots = || {
            let sleeps = |process: &&Process| process.command.starts_with("sleep ");
            env.oracle.survivors().iter().filter(sleeps).count()
        };
        if roots() > 1 {
            return Err(format!("{what}: two of them at once"));
        }
        truth(&env, &what)
    });
}

#[test]
fn a_gc_that_is_killed_leaves_whole_jobs_or_none() {
    let me = TestEnv::as_me().user();
    let setting = Setting { contain: Contain::Reaper, user: me };
    all_hold(2, &(0..rounds().div_ceil(10)).collect::<Vec<_>>(), |&round| {
        let env = TestEnv::enclosed(setting);
        let live = env.start().args(["--name", "stays"]).command(["sleep", &env.oracle.nap()]).begin();
        for _ in 0..3 {
            let done = env.start().command(["true"]).begin();
            assert!(done.wait_over(PATIENCE));
        }
        let mut gc = call_library(&env, None);
        let pause = pause_up_to(40_000);
        let killed = gc.kill().and_then(|()| gc.wait());
        let what = format!("round {round}, gc killed after {pause:?}: {killed:?}");
        if live.state() != "running" {
            return Err(format!("{what}: the live job is {:?}", live.state()));
        }
        let half: Vec<_> = env.records().into_iter().filter(|job| !job.id.starts_with('.')).collect();
        let whole = |job: &Background<'_>| job.receipt().is_some() || job.state() == "running";
        if let Some(job) = half.iter().find(|job| !whole(&env.job(&job.id))) {
            return Err(format!("{what}: half of {job:?} is left"));
        }
        let mut gc = call_library(&env, None);
        returns(&mut gc, &what)?;
        let left = env.ids("jobs");
        if left != [live.id.clone()] { Err(format!("{what}: {left:?}")) } else { Ok(()) }
    });
}

/// The counter that was kept is what was written, from the first on, and nothing is missing in between.
fn has_no_hole(output: &str) -> Result<usize, String> {
    let mut next = 1;
    for line in output.split_inclusive('\n') {
        let whole = format!("{next}\n");
        // Of the last one only the beginning may be there.
        let is_cut = whole.starts_with(line) && !line.ends_with('\n');
        if line != whole && !is_cut {
            return Err(format!("{line:?} where {next} should be"));
        }
        next += 1;
    }
    Ok(next - 1)
}

#[test]
fn no_output_is_lost_with_the_keeper() {
    let writers = ["exec seq 1 9999999", "i=1; while :; do echo $i; i=$((i+1)); done"];
    all_hold(2, &spread(4), |&(round, setting)| {
        let env = TestEnv::with(setting);
        let quell = env.start().args(["--contain", setting.contain.as_str()]);
        let job = quell.sh(writers[round % 2]).begin();
        let pause = pause_up_to(30_000);
        let what = format!("round {round}, {setting}, killed after {pause:?}");
        signal_all("KILL", &supervisors(&env, "quell-keeper"));
        if !job.wait_over(PATIENCE) {
            return Err(format!("{what}: it did not end: {}", job.state()));
        }
        has_no_hole(&job.output("stdout")).map(drop).map_err(|why| format!("{what}: {why}"))
    });
}

/// A keeper that is killed in a flood has moved some of it away from the pipe, and written a part of that.
#[test]
fn no_output_of_a_flood_is_lost_with_the_keeper() {
    let env = TestEnv::as_me();
    for round in 1..=12 {
        let job = env.start().args(["--max-log", "8G"]).command(["seq", "1", "999999999"]).begin();
        let log = job.dir().join("stdout.log");
        let is_flooded = || fs::metadata(&log).is_ok_and(|found| found.len() > round * (4 << 20));
        assert!(eventually(PATIENCE, is_flooded), "round {round}");
        job.process("keeper").expect("a keeper").signal("KILL");
        assert!(job.wait_over(PATIENCE), "round {round}: {}", job.state());
        let kept = fs::read(&log).expect("the output");
        let lines = has_no_hole(&String::from_utf8_lossy(&kept)).expect("no hole");
        let output = &job.receipt().expect("a receipt")["output"]["stdout"];
        assert_eq!(output["bytes"], kept.len(), "round {round}");
        assert_eq!(output["lines"], lines - usize::from(!kept.ends_with(b"\n")), "round {round}");
        assert_eq!(env.quell("rm").args([job.id.as_str()]).finish().code(), Some(0));
    }
}

#[test]
fn what_was_in_the_pipe_is_kept_to_the_last_byte() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let script = "echo ready >$QUELL_TEST_READY; until [ -e go ]; do sleep 0.01; done; \
                      seq 1 9999; touch written; sleep $N";
        let job = env.start().args(["--contain", setting.contain.as_str()]).script(script).begin();
        let (keeper, standby) = (supervisors(&env, "quell-keeper"), supervisors(&env, "quell-standby"));
        // The standby would have the keeper go on after three seconds.
        assert!(signal_all("STOP", &keeper) && signal_all("STOP", &standby), "{setting}");
        env.write("go", "");
        assert!(eventually(PATIENCE, || env.path("written").exists()), "{setting}");
        assert!(signal_all("KILL", &keeper) && signal_all("CONT", &standby), "{setting}");
        assert!(job.wait_over(PATIENCE), "{setting}");
        let kept = has_no_hole(&job.output("stdout"));
        assert_eq!(kept, Ok(9999), "{setting}");
        assert_eq!(job.receipt().expect("a receipt")["output"]["stdout"]["lines"], 9999, "{setting}");
    }
}

/// Everything that quell needs for an idle job.
#[test]
fn a_pair_that_has_nothing_to_do_is_small() {
    let env = TestEnv::new(if quell_tests::host::am_root() { User::Root } else { User::Ordinary });
    let jobs: Vec<_> = (0..8).map(|_| env.start().command(["sleep", &env.oracle.nap()]).begin()).collect();
    let pss = |process: &Process| {
        let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", process.pid)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:").map(str::to_owned));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok()).expect("a PSS")
    };
    let crews: Vec<Process> =
        ["quell-keeper", "quell-standby"].iter().flat_map(|name| supervisors(&env, name)).collect();
    assert_eq!(crews.len(), 2 * jobs.len());
    let each = crews.iter().map(pss).sum::<usize>() / jobs.len();
    println!("PSS of keeper and standby, with {} jobs: {each} kB a job", jobs.len());
    assert!(each < 4096, "{each} kB a job");
}

#[test]
fn what_had_outlived_the_command_is_told_after_the_loss_of_the_keeper() {
    let env = TestEnv::as_me();
    let script =
        "(trap '' TERM; echo ready >$QUELL_TEST_READY; while :; do sleep 0.1; done) & sleep 0.3; exit 5";
    let job = env.start().args(["--name", "it", "--grace", "20s"]).script(script).begin();
    assert!(eventually(PATIENCE, || job.events().contains(&"asked".into())), "{:?}", job.events());
    assert!(job.process("keeper").expect("a keeper").signal("KILL"));
    assert!(job.wait_over(PATIENCE));
    let receipt = job.receipt().expect("a receipt");
    assert!(receipt["left_at_root_exit"].as_array().is_some_and(|left| !left.is_empty()), "{receipt:#}");
    assert_eq!(
        (&receipt["cause"], &receipt["kill"]),
        (&"own_exit".into(), &"keeper_lost".into()),
        "{receipt:#}"
    );
    assert_eq!(job.events().iter().filter(|event| *event == "root_exited").count(), 1, "{:?}", job.events());
    let status = env.quell("status").args(["it"]).finish().stdout;
    assert!(status.contains("outlived") && job.events().contains(&"lost".into()), "{status}");
    // In the foreground a leak that fails the run is named.
    let mut run = env.run().args(["--leak", "fail", "--grace", "20s"]).script(script).start();
    run.wait_ready().expect("ready");
    let id = env.ids("live").pop().expect("a live job");
    assert!(eventually(PATIENCE, || env.job(&id).state() == "stopping"));
    assert!(run.keeper().expect("a keeper").signal("KILL"));
    let done = run.finish();
    assert_eq!(done.code(), Some(123), "{}", done.stderr);
    assert!(done.stderr.contains("outlived the command"), "{}", done.stderr);
}

#[test]
fn the_root_of_a_job_that_runs_until_its_tree_is_empty_is_told_after_the_loss_of_the_keeper() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        // A shell's child is not its program at once.
        let children = "for i in 1 2; do sleep $N & until grep -q sleep /proc/$!/comm; do :; done; done
            echo ready >$QUELL_TEST_READY";
        for (rest, root_exits) in [("exit 7", true), ("wait", false)] {
            let what = format!("{setting}, {rest}");
            let job = env
                .start()
                .args(["--until", "tree", "--contain", setting.contain.as_str()])
                .script(&format!("{children}; {rest}"))
                .begin();
            if root_exits {
                assert!(eventually(PATIENCE, || job.events().contains(&"root_exited".into())), "{what}");
            }
            let root = job.process("root").expect("a root").pid;
            assert!(job.process("keeper").expect("a keeper").signal("KILL"));
            assert!(job.wait_over(PATIENCE), "{what}");
            let receipt = job.receipt().expect("a receipt");
            let members = receipt["members"].as_array().cloned().unwrap_or_default();
            // With its keeper a PID namespace ends. The keeper reports members when the root exits, and no process sees them
            // later.
            let all_known = root_exits || setting.contain != Contain::Pidns;
            assert!(members.len() == 3 || !all_known, "{what}: {receipt:#}");
            let id = &receipt["root"]["id"];
            // In a PID namespace the record names its init.
            assert!(
                id["pid"] == root || setting.contain == Contain::Pidns && id.is_object(),
                "{what}: {receipt:#}"
            );
            let of_root = members.iter().find(|member| member["pid"] == id["pid"]).expect("the root");
            let died = if root_exits { "exited" } else { "killed" };
            assert_eq!(of_root["fate"], died, "{what}: {receipt:#}");
            for other in members.iter().filter(|member| member["pid"] != id["pid"]) {
                let command = other["command"].as_str().unwrap_or_default();
                assert!(command.starts_with("sleep") || !all_known, "{what}: {receipt:#}");
                assert_eq!(other["fate"], "killed", "{what}: {receipt:#}");
            }
            let kind = if root_exits { "exited" } else { "signaled" };
            assert_eq!(receipt["root"]["outcome"]["kind"], kind, "{what}: {receipt:#}");
            let steps = receipt["steps"].as_array().cloned().unwrap_or_default();
            let place = |kind: &str| steps.iter().position(|step| step["step"] == kind);
            let (exited, killed) = (place("root_exited").expect("an exit"), place("kill").expect("a kill"));
            assert_eq!(exited < killed, root_exits, "{what}: {receipt:#}");
            let tree = env.quell("tree").args([&job.id]).finish().stdout;
            assert!(tree.contains(&format!("{} process", members.len())), "{what}: {tree}");
        }
    }
}

/// Two members exit on TERM, the root and one more ignore it. The keeper asks all four, and is killed during the grace.
#[test]
fn the_account_of_a_loss_during_the_grace_agrees_with_the_history() {
    for roles in [&["keeper"][..], &["standby", "keeper"]] {
        let env = TestEnv::as_me();
        let nap = env.oracle.nap();
        // A shell's child is not its program at once.
        let script = format!(
            "child() {{ sleep {nap} & until grep -q sleep /proc/$!/comm; do :; done; }}
             child; child; trap '' TERM; child; echo >up; while :; do wait; done"
        );
        let job = env.start().args(["--contain", "reaper"]).command(["bash", "-c", &script]).begin();
        assert!(eventually(PATIENCE, || env.path("up").exists()), "{roles:?}");
        let root = job.process("root").expect("a root").pid;
        let children =
            || fs::read_to_string(format!("/proc/{root}/task/{root}/children")).unwrap_or_default();
        let left = || children().split_whitespace().count();
        let stop = env.quell("stop").args([&job.id, "--grace", "20s"]).start();
        let asked = || job.events().contains(&"asked".into()) && left() == 1;
        assert!(eventually(PATIENCE, asked), "{roles:?}: {:?}", job.events());
        job.lose_all(roles);
        let done = stop.finish();
        // Without any keeper, what else runs here decides whether the end is proven.
        assert!(matches!(done.code(), Some(0 | 5)), "{roles:?}: {}", done.stderr);
        let receipt = job.receipt().expect("a receipt");
        let members = receipt["members"].as_array().cloned().unwrap_or_default();
        let fates = |fate: &str| members.iter().filter(|member| member["fate"] == fate).count();
        let counted = (members.len(), fates("killed"), fates("ended") + fates("exited_on_ask"));
        assert_eq!(counted, (4, 2, 2), "{roles:?}: {receipt:#}");
        let history = fs::read_to_string(job.dir().join("events.jsonl")).expect("a history");
        let history: Vec<serde_json::Value> =
            history.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
        let event = |name: &str| history.iter().find(|event| event["event"] == name).expect(name);
        let counts = &event("ended")["counts"];
        assert_eq!((&counts["processes"], &counts["killed"]), (&4.into(), &2.into()), "{roles:?}: {counts}");
        assert_eq!(event("root_exited")["outcome"], receipt["root"]["outcome"], "{roles:?}");
        assert_eq!(event("asked")["members"], 4, "{roles:?}");
        let steps = receipt["steps"].as_array().cloned().unwrap_or_default();
        let ask = steps.iter().find(|step| step["step"] == "ask").expect("a request");
        assert_eq!(ask["signals"].as_array().map(Vec::len), Some(4), "{roles:?}: {receipt:#}");
        assert_eq!(receipt["grace"]["asked"], 20.0, "{roles:?}: {receipt:#}");
        assert!(receipt["grace"]["used"].as_f64().is_some_and(|used| used < 20.0), "{roles:?}: {receipt:#}");
        let said = (&receipt["cause"], &receipt["actor"]["kind"], &receipt["kill"]);
        assert_eq!(said, (&"user".into(), &"client".into(), &"keeper_lost".into()), "{roles:?}");
        assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new(), "{roles:?}");
    }
}
