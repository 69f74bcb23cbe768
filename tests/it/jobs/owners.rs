//! What ends a job and what does not: owners, sessions, jobs inside jobs, and the caller's group, terminal and cgroup.

use std::{
    fs,
    process::{Child, Command},
    time::Duration,
};

use quell_tests::{
    all_hold, eventually,
    evidence::{cause, says_gone, was_killed},
    host::{Setting, am_root, has_program},
    jobs::Background,
    oracle::Process,
    run::{PATIENCE, Quell},
    skip,
    terminal::Terminal,
    test_env::TestEnv,
};

use serde_json::{Value, json};

use crate::{
    jobs::hooks::events_in,
    recovery::crash::{signal_all, spread, supervisors},
    stop::races::pause_up_to,
};

/// A process to live for. Ended when dropped.
struct Owner(Child);

impl Owner {
    fn new(env: &TestEnv, script: &str) -> Owner {
        let mut command = Command::new("sh");
        Owner(command.args(["-c", script]).env("N", env.oracle.nap()).spawn().expect("sh"))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn signal(&self, signal: &str) {
        assert!(Process::now(self.0.id()).is_some_and(|process| process.signal(signal)));
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

fn nap<'l>(env: &'l TestEnv, quell: Quell<'l>) -> Background<'l> {
    quell.args(["--grace", "300ms"]).command(["sleep", &env.oracle.nap()]).begin()
}

/// It has ended for the sake of its owner.
fn follows(job: &Background<'_>, what: &str) {
    assert!(job.wait_over(PATIENCE), "{what}: {}", job.state());
    let receipt = job.receipt().expect("a receipt");
    says_gone(&receipt).unwrap_or_else(|why| panic!("{what}: {why}"));
    assert_eq!(cause(&receipt), "owner_gone", "{what}");
}

#[test]
fn a_job_ends_with_its_owner_however_that_ends() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        for signal in ["TERM", "KILL", "SEGV"] {
            let owner = Owner::new(&env, "sleep $N & wait");
            let quell = env.start().args(["--contain", setting.contain.as_str(), "--owner", &owner.pid()]);
            let job = nap(&env, quell);
            assert_eq!(job.state(), "running");
            owner.signal(signal);
            // No process has to reap it.
            follows(&job, &format!("{setting}, {signal}"));
        }
    }
}

#[test]
fn the_end_names_the_owner_that_is_gone() {
    let env = TestEnv::as_me();
    let names = |receipt: &Value, owner: &str| {
        let actor = &receipt["actor"];
        let command = actor["command"].as_str().expect("a command");
        assert_eq!(
            (&actor["kind"], actor["pid"].to_string().as_str()),
            (&json!("owner"), owner),
            "{receipt:#}"
        );
        let note = format!("its owner {command} (pid {owner}) is gone");
        let steps = receipt["steps"].as_array().expect("steps");
        assert!(steps.iter().any(|step| step["note"] == note.as_str()), "{receipt:#}");
    };
    let owner = Owner::new(&env, "exec sleep $N");
    let job = nap(&env, env.start().args(["--owner", &owner.pid()]));
    owner.signal("KILL");
    follows(&job, "start --owner");
    names(&job.receipt().expect("a receipt"), &owner.pid());
    let owner = Owner::new(&env, "exec sleep $N");
    let run = env.run().args([
        "--owner",
        &owner.pid(),
        "--receipt",
        env.path("receipt.json").to_str().expect("UTF-8"),
    ]);
    let mut run = run.script("echo ready >$QUELL_TEST_READY; exec sleep $N").start();
    run.wait_ready().expect("ready");
    owner.signal("KILL");
    run.finish();
    let receipt = fs::read_to_string(env.path("receipt.json")).expect("a receipt");
    names(&serde_json::from_str(&receipt).expect("JSON"), &owner.pid());
}

#[test]
fn an_owner_may_be_killed_at_any_instant() {
    all_hold(2, &spread(4), |&(round, setting)| {
        let env = TestEnv::with(setting);
        let owner = Owner::new(&env, "exec sleep $N");
        let quell = env.start().args(["--contain", setting.contain.as_str(), "--owner", &owner.pid()]);
        let start = quell.args(["--grace", "100ms"]).command(["sleep", &env.oracle.nap()]).start();
        let pause = pause_up_to(30_000);
        owner.signal("KILL");
        let started = start.finish();
        let what = format!("round {round}, {setting}, owner killed after {pause:?}: {:?}", started.code());
        let left = env.leftovers_after(PATIENCE);
        if !left.is_empty() || !env.ids("live").is_empty() {
            return Err(format!("{what}: left behind: {left:?} {:?}", env.ids("live")));
        }
        // Either the start failed because the owner was gone, or the job ran and ended with it.
        match (started.code(), env.ids("jobs").as_slice()) {
            (Some(0), [id]) => match cause(&env.job(id).receipt().unwrap_or_default()) {
                "owner_gone" => Ok(()),
                other => Err(format!("{what}: it ended for {other}")),
            },
            (Some(0), ids) => Err(format!("{what}: {ids:?}")),
            // A start that was refused half-way may have a record: it was stopped for the same reason.
            _ => Ok(()),
        }
    });
}

#[test]
fn an_owner_that_is_gone_is_an_error_and_nothing_runs() {
    let env = TestEnv::as_me();
    let mut gone = Command::new("true").spawn().expect("true");
    let pid = gone.id().to_string();
    // A zombie is gone too.
    let dead = || Process::now(gone.id()).is_some_and(|process| process.state() == Some('Z'));
    assert!(eventually(PATIENCE, dead));
    for what in ["a zombie", "nobody"] {
        let done = env.start().args(["--owner", &pid]).sh("touch ran").finish();
        assert_ne!(done.code(), Some(0), "{what}");
        assert_eq!(done.stderr.lines().count(), 1, "{what}: {}", done.stderr);
        assert!(!env.path("ran").exists(), "{what}");
        assert_eq!(env.ids("live"), Vec::<String>::new(), "{what}");
        assert_eq!(env.ids("jobs"), Vec::<String>::new(), "{what}");
        gone.wait().expect("wait");
    }
}

#[test]
fn a_stranger_with_the_pid_of_the_owner_is_not_the_owner() {
    let env = TestEnv::as_me();
    let stranger = Owner::new(&env, "exec sleep $N");
    // The owner had this number, and is gone; it had started long before.
    let id = quell::ProcId { pid: stranger.0.id(), start: 1 };
    let owner = Some(quell::Owner::Process { id });
    let background = quell::Background { owner, ..quell::Background::default() };
    let start = quell::JobRequest { mode: background.into(), ..crate::library::nap(&env) };
    let started = crate::library::quell(&env).start(&start);
    assert!(started.is_err(), "it lives for a stranger: {started:?}");
    assert_eq!(env.ids("jobs"), Vec::<String>::new());
}

#[test]
fn a_job_that_is_to_be_kept_outlives_its_owner() {
    let env = TestEnv::as_me();
    let owner = Owner::new(&env, "exec sleep $N");
    let job = nap(&env, env.start().args(["--owner", &owner.pid(), "--on-owner-exit", "keep"]));
    owner.signal("KILL");
    assert!(eventually(PATIENCE, || job.events().contains(&"owner_gone".to_owned())), "{:?}", job.events());
    assert_eq!(job.state(), "running");
    assert_eq!(job.stop(&[]).code(), Some(0));
}

#[test]
fn self_is_the_caller_and_parent_the_one_above() {
    for (word, survives_the_shell) in [("self", false), ("parent", true)] {
        let env = TestEnv::as_me();
        // Two shells: the inner one calls quell, and ends.
        let inner =
            format!("$Q start --grace 300ms --owner {word} -- sleep $N >id; touch started; [ -e no ]");
        let script = format!("sh -c '{inner}'; until [ -e go ]; do sleep 0.01; done");
        let mut outer = Command::new("sh");
        outer.args(["-c", &script]).current_dir(env.dir()).env("QUELL_HOME", env.home());
        outer.env("N", env.oracle.nap()).env("Q", env.quell_path());
        let mut outer = outer.spawn().expect("sh");
        assert!(eventually(PATIENCE, || env.path("started").exists()));
        let id = fs::read_to_string(env.path("id")).expect("id");
        let job = env.job(id.trim());
        if survives_the_shell {
            assert_eq!(job.state(), "running", "{word}");
            assert!(!job.wait_over(Duration::from_millis(300)), "{word}: it ended with the inner shell");
        }
        if !survives_the_shell {
            follows(&job, word);
        }
        env.write("go", "");
        outer.wait().expect("wait");
        follows(&job, word);
    }
}

#[test]
fn a_session_is_stopped_as_a_whole_and_nothing_else() {
    let env = TestEnv::as_me();
    // One that names its session, one that inherits it, one that was started inside a job of it.
    let named = nap(&env, env.start().args(["--owner", "session:red"]));
    let inherited = nap(&env, env.start().env("QUELL_SESSION", "red"));
    let script = "$Q start -- sleep $N >inner-id && echo ready >$QUELL_TEST_READY; wait; sleep $N";
    let outer = env.start().args(["--owner", "session:red", "--grace", "300ms"]).script(script).begin();
    let other = nap(&env, env.start().args(["--owner", "session:blue"]));
    let nobodys = nap(&env, env.start());
    let inner = env.job(fs::read_to_string(env.path("inner-id")).expect("inner-id").trim()).id.clone();
    let spec = fs::read_to_string(env.job(&inner).dir().join("spec.json")).expect("spec.json");
    assert!(spec.contains(r#""session":"red""#), "{spec}");
    let done = env.quell("stop").args(["--session", "red"]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    for job in [&named, &inherited, &outer, &env.job(&inner)] {
        assert!(job.is_over() && job.state() == "ended", "{}", job.state());
    }
    assert_eq!((other.state(), nobodys.state()), ("running".into(), "running".into()));
}

/// What ends the outer job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Exit,
    InnerStopped,
    Stop,
    KeeperKilled,
}

/// A job that is started inside a job belongs to it: it is gone with it, and on record as ended.
#[test]
fn a_job_inside_a_job_ends_with_it() {
    for (at, setting) in Setting::all().into_iter().enumerate() {
        for (case, (outer_verb, end)) in [
            ("start", End::Exit),
            ("start", End::InnerStopped),
            ("start", End::Stop),
            ("start", End::KeeperKilled),
            ("run", End::Exit),
            ("run", End::Stop),
            ("run", End::KeeperKilled),
        ]
        .into_iter()
        .enumerate()
        {
            // Half of the cases in each setting, and all in every containment.
            if (at + case) % 2 == 1 && quell_tests::rounds() <= 100 {
                continue;
            }
            let what = format!("{setting}, {outer_verb}, {end:?}");
            let env = TestEnv::with(setting);
            let script = "trap 'exit 0' TERM; \
                 $Q start --grace 3s -- $A askers $T 1 >inner-id && touch up; \
                 until [ -e go ]; do sleep 0.01; done";
            let quell = env.quell(outer_verb).args(["--contain", setting.contain.as_str(), "--grace", "5s"]);
            let _outer = quell.script(script).start();
            assert!(eventually(PATIENCE, || env.path("up").exists()), "{what}");
            let inner = fs::read_to_string(env.path("inner-id")).expect("inner-id");
            let inner = env.job(inner.trim());
            // In a namespace of its own the inner job's numbers mean nothing here.
            assert_eq!(inner.state(), "running", "{what}");
            let outer_id = env.ids("jobs").into_iter().find(|id| *id != inner.id).expect("the outer job");
            let outer_job = env.job(&outer_id);
            match end {
                End::Exit => drop(env.write("go", "")),
                End::InnerStopped => {
                    // From without, whatever namespace its keeper is in.
                    let done = inner.stop(&[]);
                    assert_eq!(done.code(), Some(0), "{what}: {}", done.stderr);
                    assert!(inner.is_over() && !outer_job.is_over(), "{what}: {}", inner.state());
                    env.write("go", "");
                }
                End::Stop => {
                    let done = outer_job.stop(&[]);
                    assert_eq!(done.code(), Some(0), "{what}: {}", done.stderr);
                }
                End::KeeperKilled => {
                    let keeper = outer_job.process("keeper").expect("its keeper");
                    assert!(keeper.signal("KILL"), "{what}");
                }
            }
            assert!(outer_job.wait_over(PATIENCE), "{what}: {}", outer_job.state());
            let alive = env.oracle.survivors_after(PATIENCE);
            assert!(alive.is_empty(), "{what}: {alive:?}");
            // Killed whole, it is on record as ended at the next command at the latest. That one may not be able to prove
            // the end, and says so.
            let first = env.quell("sweep").finish();
            assert!(matches!(first.code(), Some(0 | 5)), "{what}: {} {}", first.stdout, first.stderr);
            assert!(first.code() == Some(0) || end == End::KeeperKilled, "{what}: {}", first.stdout);
            let second = env.quell("sweep").finish();
            assert_eq!(second.code(), first.code(), "{what}: {} {}", second.stdout, second.stderr);
            assert!(inner.is_over() && inner.state() == "ended", "{what}: {}", inner.state());
            if matches!(end, End::Exit | End::Stop) {
                let cause = inner.record().expect("a record")["last"]["ending"]["cause"].clone();
                assert_eq!(cause, "owner_gone", "{what}: {:?}", inner.events());
                let told = inner.events().iter().filter(|event| *event == "owner_gone").count();
                assert_eq!(told, 1, "{what}: {:?}", inner.events());
            }
            assert_eq!(env.leftovers(), Vec::<String>::new(), "{what}");
        }
    }
}

/// A stop of the outer job asks every process once, the inner job's program included.
#[test]
fn a_stop_of_the_outer_job_asks_the_inner_program_once() {
    for setting in Setting::all() {
        for outer_verb in ["start", "run"] {
            let what = format!("{setting}, {outer_verb}");
            let env = TestEnv::with(setting);
            // It goes a moment after it was asked, so that it could hear a second request.
            let script = "$Q start --grace 20s --ready-log up --wait-ready 20s -- bash -c \
                 'trap \"echo asked >>asked\" TERM; echo up; sleep $N & wait; sleep 0.3 & wait; wait; exit 0' \
                 >inner-id && touch up; \
                 sleep $N & wait";
            let quell = env.quell(outer_verb).args(["--contain", setting.contain.as_str(), "--grace", "20s"]);
            let _outer = quell.script(script).start();
            assert!(eventually(PATIENCE, || env.path("up").exists()), "{what}");
            let inner = fs::read_to_string(env.path("inner-id")).expect("inner-id");
            let inner = env.job(inner.trim());
            let outer_id = env.ids("jobs").into_iter().find(|id| *id != inner.id).expect("the outer job");
            let done = env.job(&outer_id).stop(&[]);
            assert_eq!(done.code(), Some(0), "{what}: {}", done.stderr);
            let receipt = env.job(&outer_id).receipt().expect("a receipt");
            assert!(!was_killed(&receipt), "{what}: a process was not asked: {receipt:#}");
            let asked = fs::read_to_string(env.path("asked")).unwrap_or_default();
            assert_eq!(asked, "asked\n", "{what}");
            assert!(inner.is_over(), "{what}");
            assert_eq!(inner.receipt().expect("a receipt")["root"]["outcome"]["code"], 0, "{what}");
        }
    }
}

/// Still there, and still in quell's hands.
fn goes_on(job: &Background<'_>, what: &str) {
    assert_eq!(job.state(), "running", "{what}");
    assert!(job.process("keeper").is_some_and(|keeper| keeper.is_alive()), "{what}");
    let done = job.stop(&[]);
    assert_eq!(done.code(), Some(0), "{what}: {}", done.stderr);
    assert_eq!(cause(&job.receipt().expect("a receipt")), "user", "{what}");
}

#[test]
fn a_job_outlives_the_group_and_the_session_of_its_caller() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let quell = env.start().args(["--contain", setting.contain.as_str(), "--grace", "300ms"]);
        let words = quell.command(["sleep", &env.oracle.nap()]).words();
        let mut caller = Command::new("setsid");
        caller.args(["sh", "-c", r#""$@" >id; touch started; sleep 50"#, "sh"]).args(words);
        caller.current_dir(env.dir()).env("QUELL_HOME", env.home()).env("HOME", env.dir());
        let mut caller = caller.spawn().expect("setsid");
        assert!(eventually(PATIENCE, || env.path("started").exists()), "{setting}");
        let id = fs::read_to_string(env.path("id")).expect("id");
        let job = env.job(id.trim());
        let group = format!("-{}", caller.id());
        for signal in ["HUP", "INT", "TERM", "KILL"] {
            let _ = Command::new("kill").args(["-s", signal, "--", &group]).status();
        }
        caller.wait().expect("wait");
        goes_on(&job, &setting.to_string());
    }
}

#[test]
fn a_job_outlives_the_terminal_of_its_caller() {
    if !has_program("tmux") {
        return skip("a_job_outlives_the_terminal…", "there is no tmux");
    }
    let env = TestEnv::as_me();
    {
        let terminal = Terminal::open(&env);
        terminal.line("$Q start --grace 300ms -- sleep $N >id; echo started");
        terminal.wait_for_line("started");
    }
    let id = fs::read_to_string(env.path("id")).expect("id");
    goes_on(&env.job(id.trim()), "the terminal is closed");
}

#[test]
fn a_job_outlives_the_cgroup_of_its_caller() {
    if !am_root() {
        return skip("a_job_outlives_the_cgroup…", "needs root to make cgroups");
    }
    for contain in Setting::all().into_iter().filter(|s| s.user == TestEnv::as_me().user()).map(|s| s.contain)
    {
        let env = TestEnv::as_me();
        let Some(cgroup) = env.make_cgroup("caller") else {
            return skip("a_job_outlives_the_cgroup…", "no v2");
        };
        let join = r#"echo $$ >"$0/cgroup.procs" && exec "$@""#;
        let join = ["sh", "-c", join, cgroup.to_str().expect("UTF-8")];
        let quell = env.start().wrapped(join).args(["--contain", contain.as_str(), "--grace", "300ms"]);
        let job = quell.command(["sleep", &env.oracle.nap()]).begin();
        fs::write(cgroup.join("cgroup.kill"), "1").expect("cgroup.kill");
        goes_on(&job, contain.as_str());
        assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new(), "{contain:?}");
    }
}

/// An owner exits while the keeper is stopped: the job is stopped as soon as its keeper runs again.
#[test]
fn an_owner_that_goes_while_the_keeper_sleeps_is_missed_when_it_wakes() {
    let env = TestEnv::as_me();
    let owner = Owner::new(&env, "exec sleep $N");
    let job = nap(&env, env.start().args(["--owner", &owner.pid()]));
    let keeper = supervisors(&env, "quell-keeper");
    assert!(signal_all("STOP", &keeper));
    owner.signal("KILL");
    assert!(signal_all("CONT", &keeper));
    follows(&job, "after CONT");
}

#[test]
fn the_owner_of_a_run_is_on_record() {
    let env = TestEnv::as_me();
    let own = std::process::id();
    let run = env.run().args(["--owner", &own.to_string(), "--name", "it"]);
    let mut run = run.script("echo ready >$QUELL_TEST_READY; exec sleep $N").start();
    run.wait_ready().expect("ready");
    let status = env.quell("status").args(["it", "--json"]).finish().envelope();
    assert_eq!(status["data"]["job"]["owner"]["pid"], own, "{status:#}");
    let status = env.quell("status").args(["it"]).finish().stdout;
    assert!(status.contains(&format!("pid {own}; it is stopped with it")), "{status}");
    assert_eq!(env.quell("stop").args(["it"]).finish().code(), Some(0));
}

#[test]
fn a_run_is_part_of_its_session() {
    let env = TestEnv::as_me();
    let told = env.path("told");
    let config =
        env.write("hooks.toml", &format!("[[hooks]]\non = [\"started\", \"ended\"]\nappend = {told:?}\n"));
    let script = "echo $QUELL_SESSION; echo ready >$QUELL_TEST_READY; exec sleep $N";
    let by_variable = || env.run().env("QUELL_SESSION", "red");
    let by_option = || env.run().args(["--owner", "session:red"]);
    for run in [by_variable(), by_option()] {
        let mut run = run.env("QUELL_CONFIG", &config).script(script).start();
        run.wait_ready().expect("ready");
        let list =
            |session: &str| env.quell("list").args(["--session", session, "--json"]).finish().envelope();
        assert_eq!(list("blue")["data"]["jobs"], json!([]));
        assert_eq!(list("red")["data"]["jobs"][0]["session"], "red", "{:#}", list("red"));
        let done = env.quell("stop").args(["--session", "red"]).finish();
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let run = run.finish();
        assert_eq!((run.code(), run.stdout.as_str()), (Some(143), "red\n"), "{}", run.stderr);
    }
    let of_red = || events_in(&told).iter().filter(|event| event["session"] == "red").count();
    assert!(eventually(PATIENCE, || of_red() == 4), "{:?}", events_in(&told));
}

#[test]
fn a_session_in_the_environment_is_checked_as_one_on_the_command_line() {
    let env = TestEnv::as_me();
    for session in ["../x\u{1b}[31m", ".x", "a b"] {
        for (quell, code) in [(env.start(), 2), (env.run(), 125)] {
            let done = quell.env("QUELL_SESSION", session).command(["true"]).finish();
            crate::cli::bad_input::one_clear_line(&done, code);
            let said = &done.stderr;
            assert!(said.contains("QUELL_SESSION") && !said.contains('\u{1b}'), "{said}");
        }
    }
    assert_eq!(env.ids("jobs"), Vec::<String>::new());
}
