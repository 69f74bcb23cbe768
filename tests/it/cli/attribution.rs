//! The actor and the cause of each end, in all answers: actors, events, ready times, signals, restarts, failed starts.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use quell_tests::{
    eventually,
    host::has_program,
    jobs::Background,
    run::{Finished, PATIENCE},
    skip,
    test_env::TestEnv,
};
use serde_json::{Value, json};

fn events(job: &Background<'_>) -> Vec<Value> {
    let text = fs::read_to_string(job.dir().join("events.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn status(env: &TestEnv, job: &Background<'_>) -> Value {
    env.quell("status").args([job.id.as_str(), "--json"]).finish().envelope()["data"]["job"].clone()
}

/// Answers 200 to every request at this address until it is dropped.
struct Stranger {
    answered: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    port: u16,
    thread: Option<thread::JoinHandle<()>>,
}

impl Stranger {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (answered, over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, end) = (answered.clone(), over.clone());
        let thread = thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let _ = client.set_read_timeout(Some(PATIENCE));
                let _ = client.read(&mut [0; 1024]);
                let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { answered, over, port, thread: Some(thread) }
    }

    fn wait_asked(&self, times: usize) {
        let before = self.answered.load(Ordering::SeqCst);
        let asked = || self.answered.load(Ordering::SeqCst) >= before + times;
        assert!(eventually(PATIENCE, asked), "the stranger is not asked any more");
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = std::net::TcpStream::connect(("127.0.0.1", self.port));
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// Listens on the port of its first argument at ::1; at 127.0.0.1 too, once that is free and the file `now` is there.
const LATE: &str = "import os, socket, sys, time
port = int(sys.argv[1])
if socket.has_ipv6:
    try: other = socket.create_server(('::1', port), family=socket.AF_INET6)
    except OSError: pass
while not os.path.exists('now'): time.sleep(0.01)
while True:
    try: server = socket.create_server(('127.0.0.1', port)); break
    except OSError: time.sleep(0.01)
while True:
    client, _ = server.accept()
    client.recv(4096)
    client.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n')
    client.close()
";

#[test]
fn an_answer_of_a_stranger_makes_no_job_ready() {
    if !has_program("python3") {
        return skip("an_answer_of_a_stranger_makes_no_job_ready", "no python3 here");
    }
    let env = TestEnv::as_me();
    let late = env.write("late.py", LATE);
    let stranger = Stranger::new();
    let port = stranger.port;
    let job = env
        .start()
        .args(["--ready-http", &format!("http://127.0.0.1:{port}/")])
        .env("QUELL_READY_INTERVAL", "20ms")
        .command(["python3", late.to_str().expect("a path"), &port.to_string()])
        .begin();
    // Each question is asked when the answer before it was judged.
    stranger.wait_asked(4);
    assert_eq!(job.state(), "running", "a stranger has answered");
    assert!(!job.events().contains(&"ready".into()));
    env.write("now", "");
    stranger.wait_asked(2);
    assert_eq!(job.state(), "running", "a stranger has answered");
    drop(stranger);
    assert!(
        eventually(PATIENCE, || job.state() == "ready"),
        "its own server makes it ready: {}",
        job.state()
    );
}

#[test]
fn the_ready_time_survives_the_loss_of_the_keeper() {
    let env = TestEnv::as_me();
    let job =
        env.start().args(["--ready-log", "^go"]).sh(&format!("echo go; sleep {}", env.oracle.nap())).begin();
    assert!(eventually(PATIENCE, || job.state() == "ready"), "{}", job.state());
    let ready = job.record().expect("a record")["ready"].clone();
    assert!(ready["wall"].is_string(), "{ready}");
    assert!(job.process("keeper").expect("a keeper").signal("KILL"));
    assert!(job.wait_over(PATIENCE));
    assert_eq!(job.record().expect("a record")["ready"], ready);
    assert_eq!(status(&env, &job)["ready"], ready["wall"]);
}

/// A shell with a mark in its command line that calls quell and waits for it.
fn called_by_a_shell(env: &TestEnv, words: &str) -> (u32, Finished) {
    let line = format!("echo $$ >caller; {} {words} >said 2>&1; : the caller", env.quell_path().display());
    let quell = env.quell("list").wrapped(["sh", "-c", &line]);
    let done = quell.finish();
    let pid = fs::read_to_string(env.path("caller")).expect("a pid").trim().parse().expect("a pid");
    (pid, done)
}

#[test]
fn the_actor_of_a_stop_is_the_process_that_called_quell() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let (pid, done) = called_by_a_shell(&env, &format!("stop {} --reason enough", job.id));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let actor = job.receipt().expect("a receipt")["actor"].clone();
    let command = actor["command"].as_str().unwrap_or_default();
    assert_eq!(
        (&actor["kind"], &actor["pid"], &actor["reason"]),
        (&json!("client"), &json!(pid), &json!("enough"))
    );
    assert!(
        command.starts_with("sh -c echo $$") && command.ends_with('…') || command.contains("the caller"),
        "{actor}"
    );
    let asked = events(&job).into_iter().find(|event| event["event"] == "stop_asked").expect("an event");
    assert_eq!(asked["actor"], actor);
    let text = env.quell("status").args([&job.id]).finish().stdout;
    assert!(text.contains(&format!("pid {pid}, `sh -c echo")), "{text}");

    // A job in the foreground is asked by a signal, which says how it is to be stopped but not why.
    let file = env.path("receipt");
    let mut run = env
        .run()
        .args(["--receipt"])
        .args([&file])
        .script("echo ready >$QUELL_TEST_READY; exec sleep $N")
        .start();
    run.wait_ready().expect("ready");
    let id = env.ids("live").pop().expect("a live job");
    let (pid, done) = called_by_a_shell(&env, &format!("stop {id}"));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    run.wait_exit(PATIENCE).expect("it ends");
    let receipt: Value = serde_json::from_slice(&fs::read(&file).expect("a receipt")).expect("JSON");
    assert_eq!((&receipt["actor"]["kind"], &receipt["actor"]["pid"]), (&json!("client"), &json!(pid)));
}

#[test]
fn a_program_that_asks_by_itself_is_the_actor() {
    let env = TestEnv::as_me();
    let job = env
        .start()
        .args(["--mask", "SECRET"])
        .env("SECRET", "hunter22")
        .command(["sleep", &env.oracle.nap()])
        .begin();
    // One that speaks to the socket, as users of the library do, with a secret of the job in its command line.
    let script = "import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
s.sendall(b'{\"stop\":{\"kill\":false,\"reason\":null}}\\n')
while s.recv(4096): pass
";
    if !has_program("python3") {
        return skip("a_program_that_asks_by_itself_is_the_actor", "no python3 here");
    }
    let mut client = Command::new("python3");
    client.args(["-c", script]).arg(job.dir().join("control.sock")).arg("hunter22");
    let mut client = client.spawn().expect("python3");
    let pid = client.id();
    assert!(client.wait().is_ok_and(|status| status.success()));
    assert!(job.wait_over(PATIENCE));
    let actor = job.receipt().expect("a receipt")["actor"].clone();
    assert_eq!((&actor["kind"], &actor["pid"]), (&json!("client"), &json!(pid)), "{actor}");
    assert!(!actor.to_string().contains("hunter22"), "{actor}");
}

#[test]
fn what_tests_leave_behind_is_not_stopped_by_a_user() {
    let env = TestEnv::as_me();
    let script = format!("sleep {} & exit 0", env.oracle.nap());
    let done = env.quell("test").args(["--json", "--timeout", "1h", "--", "sh", "-c", &script]).finish();
    let answer = &done.envelope()["data"];
    assert_eq!(answer["leaked"].as_array().map(Vec::len), Some(1), "{answer:#}");
    let receipt = &answer["receipt"];
    assert_eq!(
        (&receipt["cause"], &receipt["actor"]["kind"]),
        (&json!("own_exit"), &json!("program")),
        "{receipt:#}"
    );
    let job = env.job(answer["job"].as_str().expect("an id"));
    assert!(events(&job).iter().all(|event| event["cause"] != "user"), "{:?}", events(&job));
}

#[test]
fn every_event_has_the_session_and_the_labels() {
    let env = TestEnv::as_me();
    let options = ["--owner", "session:agent-7", "--tag", "team=a", "--tag", "x=1", "--name", "web"];
    let job = env.start().args(options).command(["sleep", &env.oracle.nap()]).begin();
    assert_eq!(job.stop(&[]).code(), Some(0));
    let lost = env.start().args(["--tag", "team=b"]).command(["sleep", &env.oracle.nap()]).begin();
    lost.lose();
    env.quell("sweep").finish();
    let printed = env.quell("events").args([job.id.as_str(), "--json"]).finish().stdout;
    let printed =
        printed.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["data"].clone());
    let all: Vec<Value> = printed.chain(events(&job)).collect();
    assert!(all.len() > 6, "{all:?}");
    for event in all {
        assert_eq!(
            (&event["session"], &event["tags"]),
            (&json!("agent-7"), &json!({ "team": "a", "x": "1" })),
            "{event}"
        );
    }
    let of_lost = events(&lost);
    assert!(of_lost.iter().any(|event| event["event"] == "lost"), "{of_lost:?}");
    assert!(of_lost.iter().all(|event| event["tags"] == json!({ "team": "b" })), "{of_lost:?}");
}

#[test]
fn an_end_before_readiness_is_explained() {
    let env = TestEnv::as_me();
    let script = "seq 30; echo 'no such \x1b[2Jtable' >&2; exit 7";
    let start = || env.start().args(["--ready-log", "never", "--wait-ready=20s", "--name", "db"]);
    let done = start().sh(script).finish();
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("ended before it was ready: exited with 7, by itself"), "{}", done.stderr);
    assert!(
        done.stderr.contains("\n  no such \\x1b[2Jtable\n") && done.stderr.contains("\n  30\n"),
        "{}",
        done.stderr
    );
    assert!(!done.stderr.contains("\n  20\n"), "only the last lines: {}", done.stderr);
    let silent = start().sh("exit 3").finish();
    assert!(silent.stderr.contains("exited with 3, by itself; it has written nothing"), "{}", silent.stderr);
    let json = start().args(["--json"]).sh(script).finish();
    let data = &json.envelope()["data"];
    assert_eq!((&data["met"], &data["job"]["outcome"]["code"]), (&json!("exit"), &json!(7)), "{data:#}");
    let lines = data["last_lines"].as_array().expect("lines");
    assert!(lines.len() == 10 && lines.contains(&json!("30")), "{data:#}");

    let flag = env.path("fail");
    let job = env
        .start()
        .args(["--ready-log", "^up", "--wait-ready=20s"])
        .sh(&format!(
            "[ -e {f} ] && {{ echo broken; exit 9; }}; echo up; sleep {}",
            env.oracle.nap(),
            f = flag.display()
        ))
        .begin();
    env.write("fail", "");
    let again = env.quell("restart").args([job.id.as_str(), "--wait-ready=20s"]).finish();
    assert_eq!(again.code(), Some(1), "{}", again.stderr);
    assert!(
        again.stderr.contains("exited with 9, by itself") && again.stderr.contains("  broken\n"),
        "{}",
        again.stderr
    );
}

#[test]
fn a_restart_limit_that_is_reached_is_told() {
    let env = TestEnv::as_me();
    let start = |limit: &str, script: &str| {
        let options = ["--restart", "on-failure", "--restart-limit", limit];
        env.start().args(options).env("QUELL_START_RESTART_DELAY", "5ms").sh(script).begin()
    };
    let job = start("2", "exit 4");
    assert!(job.wait_over(PATIENCE));
    let all = events(&job);
    let names: Vec<&str> = all.iter().filter_map(|event| event["event"].as_str()).collect();
    let at = names.iter().position(|name| *name == "restart_limit_reached").expect("an event");
    assert_eq!(
        (&names[at + 1..], &all[at]["restarts"], &all[at]["run"]),
        (&["ended"][..], &json!(2), &json!(3))
    );
    assert_eq!(status(&env, &job)["restart_limit_reached"], json!(true));
    let text = env.quell("status").args([&job.id]).finish().stdout;
    assert!(text.contains("ended 4, restart limit") && text.contains("the limit is reached"), "{text}");
    // From the directory, and from the index.
    for _ in 0..2 {
        let text = env.quell("list").finish().stdout;
        assert!(text.contains("ended 4, restart limit"), "{text}");
    }
    assert!(env.quell("events").args([&job.id]).finish().stdout.contains("restart limit"));
    let waited = env.quell("wait").args([&job.id]).finish().stdout;
    assert!(waited.contains("restart limit is reached"), "{waited}");
    let options =
        ["--restart", "on-failure", "--restart-limit", "1", "--ready-log", "never", "--wait-ready=20s"];
    let unready = env.start().args(options).env("QUELL_START_RESTART_DELAY", "5ms").sh("exit 4").finish();
    assert!(unready.stderr.contains("restart limit is reached"), "{}", unready.stderr);
    // What it left running is not hidden behind that.
    let leaky = env
        .start()
        .args(["--name", "leaky", "--restart", "always", "--restart-limit", "1"])
        .env("QUELL_START_RESTART_DELAY", "5ms")
        .sh(&format!("sleep {} & exit 0", env.oracle.nap()))
        .begin();
    assert!(leaky.wait_over(PATIENCE));
    let text = env.quell("list").finish().stdout;
    assert!(text.contains("ended 0, restart limit, 1 outlived"), "{text}");
    let text = env.quell("status").args(["leaky"]).finish().stdout;
    assert!(text.contains("always, once at most,"), "{text}");
    // One that ends well, and one that is stopped, have not used it up.
    let well = start("0", "exit 0");
    assert!(well.wait_over(PATIENCE));
    let stopped = start("0", &format!("sleep {}", env.oracle.nap()));
    assert_eq!(stopped.stop(&[]).code(), Some(0));
    for job in [&well, &stopped] {
        assert!(!job.events().contains(&"restart_limit_reached".into()), "{:?}", job.events());
        assert_eq!(status(&env, job)["restart_limit_reached"], Value::Null);
    }
}

#[test]
fn a_signal_that_reaches_no_process_is_a_no() {
    let env = TestEnv::as_me();
    let script = format!("sleep {} & echo gone", env.oracle.nap());
    let job = env.start().args(["--until", "tree"]).sh(&script).begin();
    let exited = || job.events().contains(&"root_exited".into());
    assert!(eventually(PATIENCE, exited), "{:?}", job.events());
    let signal =
        |options: &[&str]| env.quell("signal").args([job.id.as_str(), "USR1"]).args(options).finish();
    let done = signal(&[]);
    assert_eq!(done.code(), Some(1), "{}{}", done.stdout, done.stderr);
    assert!(
        done.stdout.is_empty()
            && done.stderr.contains("reached no process")
            && done.stderr.contains("--tree"),
        "{}",
        done.stderr
    );
    let error = signal(&["--json"]).envelope()["error"].clone();
    assert_eq!((&error["code"], &error["details"]["sent"]), (&json!("no_process"), &json!(0)), "{error:#}");
    let tree = env.quell("signal").args([job.id.as_str(), "TERM", "--tree"]).finish();
    assert_eq!(tree.code(), Some(0), "{}", tree.stderr);
    assert!(job.wait_over(PATIENCE));
}
