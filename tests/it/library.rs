//! The library, as programs embed it: this very test process is the parent.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use quell::binary::{Home, open, open_permitted};
use quell::{Condition, Interrupt, JobRequest, Quell, StopOptions, WaitFor};
use quell_guard::{Guard, Policy, Verb};
use quell_tests::{eventually, run::PATIENCE, skip, test_env::TestEnv};

/// quell's library, with the jobs of this environment.
pub fn quell(env: &TestEnv) -> Quell {
    open(Home::at(env.home()), env.quell_path())
}

/// A program that does nothing until it is stopped, and that the oracle sees.
pub fn nap(env: &TestEnv) -> JobRequest {
    JobRequest::background(["sleep", &env.oracle.nap()])
}

/// Waits until the job is over; what it came to.
pub fn over(job: &quell::Job) -> Condition {
    let waited = job.wait(&WaitFor::end(), Some(PATIENCE * 10));
    waited.expect("a wait").met
}

/// The lines about a verb in the audit log of this environment: their kinds.
fn kinds(env: &TestEnv, verb: &str) -> Vec<String> {
    let lines = crate::test_verb::audit(env);
    let of_verb = lines.iter().filter(|line| line["verb"] == verb);
    of_verb.map(|line| line["kind"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A permit covers its own verb, and no other: each call that it does not cover asks for itself, and writes that down.
#[test]
fn no_permit_is_good_for_another_verb() {
    let env = TestEnv::as_me();
    let guard = Guard::new(&Home::at(env.home()), Policy::default());
    let permitted = |verb| {
        let permit = guard.permit(verb, "", None).expect("a permit");
        open_permitted(Some(Home::at(env.home())), env.quell_path(), Some(permit)).expect("a usable home")
    };
    let stop = StopOptions::kill();
    let job = permitted(Verb::Start).start(&nap(&env)).expect("a start");
    assert_eq!(kinds(&env, "stop"), Vec::<String>::new());
    let _ = job.stop_with(&stop).expect("a stop");
    assert_eq!(kinds(&env, "stop"), ["decision", "act"], "a start does not permit a stop");
    let other = quell(&env).start(&nap(&env)).expect("a start").id();
    let _ = permitted(Verb::Stop).job_with(other).stop_with(&stop).expect("a stop");
    assert_eq!(
        kinds(&env, "stop"),
        ["decision", "act", "decision", "act"],
        "a permit for stops is for one, and records its result"
    );
    permitted(Verb::Stop).job_with(other).remove(quell::Removal::IfProvenDead).expect("removed");
    assert_eq!(kinds(&env, "rm"), ["decision"]);
}

/// One line of `/proc/self/status`.
fn own(field: &str) -> String {
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.expect("a field of status").trim().to_owned()
}

/// The children of this process that are zombies and bear the name of quell: number and time of birth.
fn zombies() -> Vec<(String, String)> {
    let me = std::process::id().to_string();
    let stats = fs::read_dir("/proc").expect("/proc").flatten();
    let stats = stats.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats
        .filter(|stat| stat.contains("(quell"))
        .filter_map(|stat| {
            let rest: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
            let ours = rest.first() == Some(&"Z") && rest.get(1) == Some(&me.as_str());
            let pid = stat.split(' ').next().filter(|_| ours)?;
            Some((pid.to_owned(), rest.get(19)?.to_string()))
        })
        .collect()
}

#[test]
fn a_large_parent_with_many_threads_starts_and_stops_jobs() {
    let env = TestEnv::as_me();
    let quell = quell(&env);
    let begin = || {
        let began = Instant::now();
        let job = quell.start(&nap(&env)).expect("a start");
        (job, began.elapsed())
    };
    let small: Duration = (0..5)
        .map(|_| {
            let (job, took) = begin();
            let _ = job.stop_with(&StopOptions::kill()).expect("a stop");
            took
        })
        .min()
        .expect("five");
    // Pages that are really there, as a fork would have to copy their table.
    let ballast = vec![1u8; 256 << 20];
    let handlers = ["SigBlk", "SigIgn", "SigCgt"].map(own);
    let large = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut took = Vec::new();
                    for _ in 0..3 {
                        let (job, time) = begin();
                        took.push(time);
                        let stopped = job.stop_with(&StopOptions::kill()).expect("a stop");
                        assert_eq!(stopped.receipt().verdict, quell::Verdict::Gone);
                    }
                    took
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a thread")).min().expect("some")
    });
    assert_eq!(["SigBlk", "SigIgn", "SigCgt"].map(own), handlers);
    // Those that other tests have started are collected in a moment; one without a parent that waits stays.
    let seen = zombies();
    let stays = || zombies().into_iter().filter(|zombie| seen.contains(zombie)).collect::<Vec<_>>();
    assert!(eventually(PATIENCE, || stays().is_empty()), "{:?}", stays());
    assert!(ballast.iter().step_by(4096).all(|byte| *byte == 1));
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
    eprintln!("the quickest start: {small:?} alone, {large:?} with 256 MiB and 8 threads");
}

#[test]
fn a_job_that_is_seen_to_have_ended_can_be_removed_and_its_name_be_taken() {
    let env = TestEnv::as_me();
    let quell = quell(&env);
    let mut start = JobRequest::background(["true"]);
    start.name = Some("web".into());
    for round in 0..20 {
        let job = quell.start(&start).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(over(&job), Condition::Exit);
        if round % 2 == 0 {
            job.remove(quell::Removal::IfProvenDead).unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
    }
}

#[test]
fn a_home_that_is_named_from_here_is_here() {
    let env = TestEnv::as_me();
    // From wherever the tests run, which all of them share.
    let here = std::env::current_dir().expect("here");
    let up = here.ancestors().skip(1).map(|_| "..").collect::<PathBuf>();
    let home = up.join(env.home().strip_prefix("/").expect("an absolute path"));
    let quell = open(Home::at(home), env.quell_path());
    let job = quell.start(&nap(&env)).expect("a start");
    assert_eq!(env.ids("live"), [job.id().to_string()]);
    let _ = job.stop_with(&StopOptions::kill()).expect("a stop");
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
}

/// The example on the first page of the crate's documentation, with a program that is ready and ends by itself.
#[test]
fn the_first_example_works() {
    let env = TestEnv::as_me();
    let quell = quell(&env);
    let script = "echo listening; sleep 0.2; printf 'no line end'; sleep $0";
    let job = quell
        .command("sh")
        .args(["-c", script, &env.oracle.nap()])
        .ready_log("^listening$")
        .tag("kind", "example")
        .owned_by_this_process()
        .start()
        .expect("a start");
    job.wait_ready(PATIENCE).expect("a ready job");
    let logs = job.logs().last(1).matching("listen").expect("a pattern").read().expect("logs");
    assert_eq!(logs.lines[0].text, "listening");
    let follower = {
        let lines = job.follow().expect("a follower");
        thread::spawn(move || lines.map(|line| line.expect("a line").text).collect::<Vec<_>>())
    };
    assert_eq!(job.signal(quell::Signal::CONT, quell::SignalTo::Tree).expect("a signal"), 2);
    assert_eq!(
        job.wait(&WaitFor::end(), Some(Duration::from_millis(500))).expect("a wait").met,
        Condition::Nothing
    );
    let stopped = job.stop().expect("a stop");
    assert!(!stopped.already_ended());
    assert_eq!(stopped.receipt().verdict, quell::Verdict::Gone);
    assert!(job.stop().expect("another stop").already_ended());
    // The last line has no line end.
    assert_eq!(follower.join().expect("a follower"), ["listening", "no line end"]);
    job.remove(quell::Removal::IfProvenDead).expect("removed");
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
}

#[test]
fn a_job_that_ends_before_it_is_ready_is_an_error() {
    let env = TestEnv::as_me();
    let quell = quell(&env);
    let job = quell.command("false").ready_log("never").start().expect("a start");
    let error = job.wait_ready(PATIENCE).expect_err("it has ended");
    assert_eq!(error.to_string(), format!("{} ended before it was ready", job.id()));
    let job = quell.command("sleep").arg(env.oracle.nap()).ready_log("never").start().expect("a start");
    let error = job.wait_ready(Duration::from_millis(50)).expect_err("it is not ready");
    assert_eq!(error.to_string(), format!("{} is not ready yet", job.id()));
    let _ = job.stop_with(&StopOptions::kill()).expect("a stop");
}

#[test]
fn an_interrupt_ends_every_wait_that_has_it() {
    let env = TestEnv::as_me();
    let job = quell(&env).start(&nap(&env)).expect("a start");
    let stall = Duration::from_secs(600);
    for wanted in
        [WaitFor::end(), WaitFor::end().log("never").expect("a pattern"), WaitFor::end().stall(stall)]
    {
        let interrupt = Interrupt::new().expect("a pipe");
        let wanted = wanted.or_interrupted(&interrupt);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| job.wait(&wanted, None).expect("a wait").met);
            interrupt.raise();
            assert_eq!(waiting.join().expect("the wait ends"), Condition::Nothing);
        });
        assert!(interrupt.is_raised());
        assert_eq!(job.wait(&wanted, None).expect("a wait").met, Condition::Nothing, "it stays raised");
    }
    let _ = job.stop_with(&StopOptions::kill()).expect("a stop");
}

/// One watch over all jobs returns at its deadline and when it is interrupted, without events, and goes on afterwards.
#[test]
fn a_watch_over_all_jobs_can_be_interrupted_and_misses_nothing() {
    let env = TestEnv::as_me();
    let quell = quell(&env);
    let (mut watch, interrupt) =
        (quell::EventWatch::of_all(&quell).expect("a watch"), Interrupt::new().unwrap());
    let now = Some(Instant::now());
    assert_eq!(watch.next_until(now, None).expect("a look"), Some(Vec::new()), "nothing has happened");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| watch.next_until(None, Some(&interrupt)).expect("a wait"));
        interrupt.raise();
        assert_eq!(waiting.join().expect("the watch"), Some(Vec::new()));
    });
    let job = quell.start(&nap(&env)).expect("a start");
    let _ = job.stop_with(&StopOptions::kill()).expect("a stop");
    let mut seen = Vec::new();
    while !seen.contains(&"ended") {
        let soon = Some(Instant::now() + PATIENCE);
        let events = watch.next_until(soon, None).expect("a wait").expect("more can come");
        assert!(!events.is_empty(), "only {seen:?} in time");
        assert!(events.iter().all(|event| event.job == job.id()));
        seen.extend(events.iter().map(|event| match event.what {
            quell::EventKind::Started { .. } => "started",
            quell::EventKind::Ended { .. } => "ended",
            _ => "other",
        }));
    }
    assert_eq!(seen[0], "started", "{seen:?}");
}

#[test]
fn a_line_before_the_cursor_does_not_end_a_wait() {
    let env = TestEnv::as_me();
    let fifo = env.fifo();
    let script = format!("echo word; read x < {}; echo word again", fifo.display());
    let job = quell(&env).command("sh").args(["-c", &script]).start().expect("a start");
    let wanted = || WaitFor::end().log("word").expect("a pattern");
    assert_eq!(job.wait(&wanted(), Some(PATIENCE)).expect("a wait").line.as_deref(), Some("word"));
    let cursor = job.logs().read().expect("the log").cursor;
    let waiting = thread::spawn({
        let (job, wanted) = (job.clone(), wanted().since(cursor));
        move || job.wait(&wanted, Some(PATIENCE * 10)).expect("a wait").line
    });
    fs::write(&fifo, "go\n").expect("the fifo");
    assert_eq!(waiting.join().expect("the wait ends").as_deref(), Some("word again"));
    assert_eq!(over(&job), Condition::Exit);
}

/// An example of the library, built by cargo, in this environment; none where this user has no cargo, or may not build here.
fn example(env: &TestEnv, name: &str) -> Option<std::process::Output> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["run", "--quiet", "-p", "quell", "--features", "tokio", "--example", name])
        .current_dir(root);
    command.env("QUELL_HOME", env.home()).env("QUELL_BIN", env.quell_path());
    command.output().ok()
}

/// The user that this runs as.
fn own_uid() -> u32 {
    fs::metadata("/proc/self").map_or(u32::MAX, |metadata| metadata.uid())
}

#[test]
fn the_examples_run() {
    let env = TestEnv::as_me();
    let target = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let own = fs::metadata(target).is_ok_and(|metadata| metadata.uid() == own_uid());
    if !own {
        return skip("the_examples_run", "this user can't build here");
    }
    for (name, words) in
        [("builder", "all gone"), ("follow", "stdout: no line end"), ("async", "3 jobs, all gone")]
    {
        let Some(output) = example(&env, name) else {
            return skip("the_examples_run", "there is no cargo here");
        };
        let said = String::from_utf8_lossy(&output.stdout);
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains(words), "{name}: {said}{why}");
    }
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
}
