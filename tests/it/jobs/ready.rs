//! When a job counts as ready, and when it does not.

use std::{
    fs,
    net::TcpListener,
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};

use quell_tests::{
    eventually, evidence::verdict, host::has_program, jobs::Background, oracle::Process, run::PATIENCE, skip,
    test_env::TestEnv,
};

use crate::library::quell;

/// Listens on the port of its first argument, at the address of its second.
const LISTEN: &str = "import socket, sys, time
family = socket.AF_INET6 if ':' in sys.argv[2] else socket.AF_INET
server = socket.create_server((sys.argv[2], int(sys.argv[1])), family=family)
time.sleep(60)
";

/// Answers with the status that the file `status` holds.
const SERVE: &str = "import socket, sys, time
server = socket.create_server(('127.0.0.1', int(sys.argv[1])))
while True:
    client, _ = server.accept()
    status = open('status').read().strip()
    client.recv(4096)
    client.sendall(('HTTP/1.1 %s X\\r\\nContent-Length: 0\\r\\n\\r\\n' % status).encode())
    client.close()
";

/// A port without a listener, which no other call here gets. It is below the kernel's ephemeral ports: otherwise a connection
/// may use it, even a probe's, which would then reach itself.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Several runs of the tests may go on at the same time.
    let base = 12_000 + (std::process::id() % 15_000) as u16;
    let mut ports = (0..5_000).map(|_| base + NEXT.fetch_add(1, Ordering::Relaxed) % 5_000);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a port")
}

/// Whether it has been found ready in its present run.
fn is_ready(job: &Background<'_>) -> bool {
    job.state() == "ready"
}

/// It is not ready, though it has been looked for several times: each look takes place in an interval of 20 ms.
fn stays_unready(job: &Background<'_>, what: &str) {
    // Nothing tells that something was looked for and not found.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(job.state(), "running", "{what}");
    assert!(!job.events().contains(&"ready".into()), "{what}");
}

fn becomes_ready(job: &Background<'_>, what: &str) {
    assert!(eventually(PATIENCE, || is_ready(job)), "{what}: {}", job.state());
    assert!(job.record().is_some_and(|record| record["ready"]["wall"].is_string()), "{what}");
    // The state goes before the event.
    assert!(eventually(PATIENCE, || job.events().contains(&"ready".into())), "{what}: {:?}", job.events());
}

#[test]
fn a_command_makes_it_ready_whatever_its_time_limit_is() {
    let env = TestEnv::as_me();
    let start = env.start().env("QUELL_READY_TIMEOUT", "90s").args(["--ready-cmd", "true"]);
    let job = start.command(["sleep", &env.oracle.nap()]).begin();
    becomes_ready(&job, "a limit of 90 s");
}

#[test]
fn a_line_of_either_stream_makes_it_ready() {
    let env = TestEnv::as_me();
    for (script, regex) in [
        ("echo starting; sleep 0.05; echo 'listening on 80'", "listening on [0-9]+"),
        ("echo 'listening on 80' >&2", "^listening"),
        // In parts.
        ("printf 'liste'; sleep 0.05; printf 'ning'; sleep 0.05; echo ' on 80'", "^listening on 80$"),
        // Behind much that doesn't match.
        ("seq 100000; echo listening", "^listening$"),
    ] {
        let job = env.start().args(["--ready-log", regex]).sh(&format!("{script}; sleep 20")).begin();
        becomes_ready(&job, script);
        job.stop(&["--now"]);
    }
    for (script, regex) in [
        ("echo list; echo ening", "listening"),
        ("printf liste; printf ning >&2", "listening"),
        ("echo listening", "^stening"),
        // A line counts when it is whole.
        ("printf listening; sleep 0.1; echo ' failed: port taken'", "^listening$"),
        ("printf listening", "listening"),
    ] {
        let job = env.start().args(["--ready-log", regex]).sh(&format!("{script}; sleep 20")).begin();
        stays_unready(&job, script);
        job.stop(&["--now"]);
    }
}

#[test]
fn the_carriage_return_of_a_terminal_is_not_part_of_the_line() {
    let env = TestEnv::as_me();
    let script = format!("echo listening; sleep {}", env.oracle.nap());
    let job = env.start().args(["--pty", "--ready-log", "^listening$"]).sh(&script).begin();
    becomes_ready(&job, "a terminal");
    let waited = env.quell("wait").args([&job.id, "--log", "^listening$", "--timeout", "20s"]).finish();
    assert_eq!(waited.code(), Some(0), "{}", waited.stderr);
    let found = env.quell("logs").args([&job.id, "--grep", "^listening$"]).finish();
    assert_eq!(found.stdout, "listening\r\n");
}

/// A line is one line, whatever its length.
#[test]
fn a_long_line_makes_it_ready() {
    let env = TestEnv::as_me();
    let script = "head -c 100000 /dev/zero | tr '\\0' x; echo END; sleep 20";
    let job = env.start().args(["--ready-log", "^x+END$"]).sh(script).begin();
    becomes_ready(&job, "a long line");
    job.stop(&["--now"]);
}

#[test]
fn what_makes_no_sense_is_a_usage_error_that_names_it() {
    let env = TestEnv::as_me();
    for (args, word) in [
        (["--ready-log", "(["], "(["),
        (["--ready-http", "https://localhost/"], "https://localhost/"),
        (["--ready-http", "localhost:80"], "localhost:80"),
        (["--ready-http", "http://"], "http://"),
        (["--ready-http", "http://:80/"], "http://:80/"),
        (["--ready-http", "http://localhost:99999/"], "99999"),
        (["--ready-http", "http://[::1]:0/"], "[::1]:0"),
        (["--ready-http", "http://localhost:80/a b"], "a b"),
        (["--ready-http", "http://localhost:80/a\r\nX-Evil: 1"], "control character"),
        (["--ready-http", "http://localhost:80/\u{1b}[2J"], "control character"),
        (["--ready-port", "0"], "--ready-port"),
        (["--ready-port", "65536"], "65536"),
        (["--ready-port", "http"], "http"),
        (["--wait-ready", "soon"], "soon"),
        (["--wait-ready", "1s"], "--ready-port"),
    ] {
        let done = env.start().args(args).command(["true"]).finish();
        assert_eq!(done.code(), Some(2), "{args:?}: {}", done.stderr);
        assert!(done.stderr.contains(word), "{args:?}: {}", done.stderr);
    }
    assert_eq!(env.ids("jobs"), Vec::<String>::new());
}

#[test]
fn a_port_counts_when_a_process_of_the_job_listens_on_it() {
    if !has_program("python3") {
        return skip("a_port_counts_when_a_process_of_the_job_listens_on_it", "no python3 here");
    }
    let env = TestEnv::as_me();
    let listen = env.write("listen.py", LISTEN);
    let listen = listen.display();
    // What is not here can't be tested: a host without IPv6.
    let six = TcpListener::bind("[::1]:0").is_ok();
    for (address, before) in [("127.0.0.1", ""), ("::1", ""), ("127.0.0.1", "setsid ")] {
        if address.contains(':') && !six {
            skip("a port of IPv6", "no IPv6 here");
            continue;
        }
        let port = free_port();
        let (wait, there) = if before.is_empty() { ("exec ", "") } else { ("", " & sleep 20") };
        let script = format!(
            "until [ -e go ]; do sleep 0.01; done; {wait}{before}python3 {listen} {port} {address}{there}"
        );
        let job = env
            .start()
            .args(["--ready-port", &port.to_string()])
            .env("QUELL_READY_INTERVAL", "20ms")
            .sh(&script)
            .begin();
        stays_unready(&job, address);
        env.write("go", "");
        becomes_ready(&job, &script);
        job.stop(&["--now"]);
        fs::remove_file(env.path("go")).expect("a file");
    }
    // A stranger: this test.
    let stranger = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = stranger.local_addr().expect("an address").port().to_string();
    let job =
        env.start().args(["--ready-port", &port]).env("QUELL_READY_INTERVAL", "20ms").sh("sleep 20").begin();
    stays_unready(&job, "a stranger's port");
}

#[test]
fn a_server_that_goes_into_the_background_gets_ready_too() {
    if !has_program("python3") {
        return skip("a_server_that_goes_into_the_background_gets_ready_too", "no python3 here");
    }
    let env = TestEnv::as_me();
    let listen = env.write("listen.py", LISTEN);
    let port = free_port();
    let script = format!("setsid python3 {} {port} 127.0.0.1 & exit 0", listen.display());
    let job = env
        .start()
        .args(["--until", "tree", "--ready-port", &port.to_string(), "--wait-ready", "20s"])
        .env("QUELL_READY_INTERVAL", "20ms")
        .sh(&script)
        .begin();
    becomes_ready(&job, "a daemon");
}

#[test]
fn an_answer_from_200_to_399_makes_it_ready() {
    if !has_program("python3") {
        return skip("an_answer_from_200_to_399_makes_it_ready", "no python3 here");
    }
    let env = TestEnv::as_me();
    let serve = env.write("serve.py", SERVE);
    for (bad, good) in [("500", "200"), ("404", "302"), ("199", "399"), ("2000", "204")] {
        env.write("status", bad);
        let port = free_port();
        let job = env
            .start()
            .args(["--ready-http", &format!("http://127.0.0.1:{port}/health?x=1")])
            .env("QUELL_READY_INTERVAL", "20ms")
            .command(["python3", serve.to_str().expect("a path"), &port.to_string()])
            .begin();
        stays_unready(&job, bad);
        env.write("status", good);
        becomes_ready(&job, good);
        job.stop(&["--now"]);
    }
}

#[test]
fn a_server_that_never_answers_holds_up_nothing() {
    let env = TestEnv::as_me();
    // It is not a member of the job, so that it does not end with the job: a client of it waits.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", silent.local_addr().expect("an address"));
    let events = env.path("events.ndjson");
    let config =
        format!("[[hooks]]\non = [\"started\", \"ended\"]\nappend = {:?}\n", events.display().to_string());
    let config = env.write("own.toml", &config);
    let job = env
        .start()
        .args(["--ready-http", &url])
        .env("QUELL_CONFIG", &config)
        .env("QUELL_READY_INTERVAL", "20ms")
        // Far longer than this test waits for anything.
        .env("QUELL_READY_TIMEOUT", "10m")
        .command(["sleep", &env.oracle.nap()])
        .begin();
    let asked = silent.accept().expect("a question");
    stays_unready(&job, "no answer");
    assert_eq!(job.stop(&["--now"]).code(), Some(0));
    let told = || fs::read_to_string(&events).is_ok_and(|text| text.lines().count() == 2);
    assert!(eventually(PATIENCE, told), "the hook waits for the server");
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
    drop(asked);
}

#[test]
fn a_command_that_succeeds_at_last_makes_it_ready() {
    let env = TestEnv::as_me();
    // It fails three times; and what it starts is gone when it has ended, which the oracle sees by its token.
    let cmd = format!("sleep {} & echo x >>tries; [ $(wc -l <tries) -gt 3 ]", env.oracle.nap());
    let job =
        env.start().args(["--ready-cmd", &cmd]).env("QUELL_READY_INTERVAL", "20ms").sh("sleep 20").begin();
    becomes_ready(&job, &cmd);
    assert_eq!(fs::read_to_string(env.path("tries")).expect("tries").lines().count(), 4);
    let gone = || !env.oracle.survivors().iter().any(|process| process.command.starts_with("sleep 50."));
    assert!(eventually(PATIENCE, gone), "what the command started is left");
}

#[test]
fn a_command_that_hangs_is_ended() {
    let env = TestEnv::as_me();
    let hang = format!("echo x >>tries; setsid sleep {} & sleep {}", env.oracle.nap(), env.oracle.nap());
    let begin = |timeout: &str| {
        let start = env.start().args(["--ready-cmd", &hang]).env("QUELL_READY_INTERVAL", "20ms");
        start.env("QUELL_READY_TIMEOUT", timeout).sh("sleep 20").begin()
    };
    // By its own time limit; then it is tried again.
    let job = begin("100ms");
    let tries = || fs::read_to_string(env.path("tries")).unwrap_or_default().lines().count();
    assert!(eventually(PATIENCE, || tries() >= 2), "{}", tries());
    assert_eq!(job.state(), "running");
    assert_eq!(job.stop(&["--now"]).code(), Some(0));
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
    // By the end of the job, however much time it has.
    let before = tries();
    let job = begin("10m");
    assert!(eventually(PATIENCE, || tries() > before));
    assert_eq!(job.stop(&["--now"]).code(), Some(0));
    assert_eq!(env.leftovers_after(PATIENCE / 2), Vec::<String>::new());
}

#[test]
fn the_end_of_a_job_leaves_no_command_that_checks_its_readiness() {
    // How the check ends is not left to itself: it ignores the request, or quell's own processes of it are killed.
    let check = "trap '' TERM; echo $$ >check.new; mv check.new check; sleep $N; sleep $N; :";
    for (lost, end) in [(false, "stop"), (true, "stop"), (false, "keeper"), (false, "exit")] {
        let what = format!("{end}, its quell lost: {lost}");
        let env = TestEnv::as_me();
        let check = check.replace("$N", &env.oracle.nap());
        let quell = env.start().args(["--ready-cmd", &check, "--grace", "300ms"]);
        let job =
            quell.env("QUELL_READY_TIMEOUT", "1m").sh("until [ -e leave ]; do sleep 0.05; done").begin();
        assert!(eventually(PATIENCE, || env.path("check").exists()), "{what}: no check");
        let pid = fs::read_to_string(env.path("check")).unwrap().trim().parse().unwrap();
        let check = Process::now(pid).expect("a check");
        if lost {
            // Its keeper and its front, at the same time: neither can take over.
            let keeper = check.parent().expect("a keeper");
            let front = keeper.parent().expect("a front");
            for signal in ["STOP", "KILL"] {
                assert!(front.signal(signal) && keeper.signal(signal), "{what}");
            }
        }
        match end {
            "stop" => assert_eq!(job.stop(&[]).code(), Some(0), "{what}"),
            "keeper" => {
                assert!(job.process("keeper").expect("a keeper").signal("KILL"));
                assert!(job.wait_over(PATIENCE), "{what}: {}", job.state());
            }
            _ => {
                env.write("leave", "");
                assert!(job.wait_over(PATIENCE), "{what}: {}", job.state());
            }
        }
        assert!(!check.is_alive(), "{what}: {:#}", job.receipt().expect("a receipt"));
        let sleepers = || env.oracle.survivors().into_iter().filter(|left| left.command.starts_with("sleep"));
        assert_eq!(sleepers().count(), 0, "{what}");
        assert_eq!(verdict(&job.receipt().expect("a receipt")), "gone", "{what}");
    }
}

#[test]
fn a_job_whose_readiness_check_may_go_on_is_not_called_gone() {
    let env = TestEnv::as_me();
    let check = format!("echo $PPID >check.new; mv check.new check; sleep {}", env.oracle.nap());
    let quell = env.start().args(["--ready-cmd", &check, "--grace", "0s"]);
    let job = quell.env("QUELL_READY_TIMEOUT", "5s").command(["sleep", &env.oracle.nap()]).begin();
    assert!(eventually(PATIENCE, || env.path("check").exists()), "no check");
    let keeper = fs::read_to_string(env.path("check")).unwrap().trim().parse().unwrap();
    let helper = Process::now(keeper).and_then(|keeper| keeper.parent()?.parent()).expect("a helper");
    assert!(helper.signal("KILL"));
    let done = job.stop(&[]);
    assert_eq!(done.code(), Some(5), "{}{}", done.stdout, done.stderr);
    assert_eq!(verdict(&job.receipt().expect("a receipt")), "unproven");
    // The check ends by itself.
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
}

#[test]
fn all_that_was_asked_for_must_hold() {
    let env = TestEnv::as_me();
    let job = env
        .start()
        .args(["--ready-log", "^up$", "--ready-cmd", "test -e there"])
        .env("QUELL_READY_INTERVAL", "20ms")
        .sh("echo up; sleep 20")
        .begin();
    stays_unready(&job, "only the line");
    env.write("there", "");
    becomes_ready(&job, "both");
}

#[test]
fn a_wait_for_readiness_says_what_became_of_the_job() {
    let env = TestEnv::as_me();
    let start = |wait: &str, script: &str| {
        env.start().args(["--ready-log", "^up$", "--wait-ready", wait]).sh(script).finish()
    };
    let done = start("20s", "sleep 0.1; echo up; sleep 20");
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(env.job(done.stdout.trim()).state(), "ready");
    let done = start("200ms", "sleep 20");
    assert_eq!(done.code(), Some(6), "{}", done.stderr);
    assert!(
        done.stderr
            .ends_with("is not ready yet: it waits for a line that matches `^up$`. The job goes on.\n"),
        "{}",
        done.stderr
    );
    assert_eq!(env.job(done.stdout.trim()).state(), "running");
    let began = Instant::now();
    let done = start("10m", "sleep 0.1; echo down; exit 0");
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert!(began.elapsed() < PATIENCE, "the end of the job is not seen");
    assert_eq!(env.job(done.stdout.trim()).state(), "ended");
    // Ready, and over at once: it was ready.
    let done = start("10m", "echo up; exit 0");
    assert!(matches!(done.code(), Some(0 | 1)), "{}", done.stderr);
    for id in env.ids("live") {
        env.job(&id).stop(&["--now"]);
    }
}

/// In plain text the id comes before the wait. In JSON there is one object, and a signal does not keep it back.
#[test]
fn an_interrupted_wait_for_readiness_has_named_the_job() {
    let env = TestEnv::as_me();
    let script = "echo ready >$QUELL_TEST_READY; exec sleep $N";
    let start = || env.start().args(["--ready-log", "^up$", "--wait-ready", "10m"]).script(script);
    let mut plain = start().start();
    assert!(eventually(PATIENCE, || plain.stdout().trim().len() == 26), "no id: {:?}", plain.stdout());
    assert_eq!(env.job(plain.stdout().trim()).state(), "running");
    assert!(plain.front.signal("INT") && plain.wait_exit(PATIENCE).is_some());
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut json = start().args(["--json"]).start();
        json.wait_ready().expect("the program runs");
        assert!(json.front.signal(signal), "no quell");
        let done = json.finish();
        assert_eq!(done.code(), Some(code), "{}", done.stderr);
        let answer = &done.envelope()["data"];
        assert_eq!(answer["met"], "nothing", "{answer:#}");
        assert_eq!(env.job(answer["id"].as_str().expect("an id")).state(), "running", "{answer:#}");
    }
    let restart = env.quell("restart").args([plain.stdout().trim(), "--wait-ready", "10m"]);
    let mut restart = restart.start();
    assert!(eventually(PATIENCE, || restart.stdout().trim().len() == 26), "no id: {:?}", restart.stdout());
    assert!(restart.front.signal("INT") && restart.wait_exit(PATIENCE).is_some());
    for id in env.ids("live") {
        env.job(&id).stop(&["--now"]);
    }
}

#[test]
fn each_run_has_to_get_ready_anew() {
    let env = TestEnv::as_me();
    // Ready in its first run only.
    let script =
        "if [ -e again ]; then sleep 20; fi; echo up; until [ -e again ]; do sleep 0.01; done; exit 1";
    let job = env
        .start()
        .args(["--ready-log", "^up$", "--restart", "on-failure"])
        .env("QUELL_START_RESTART_DELAY", "10ms")
        .sh(script)
        .begin();
    becomes_ready(&job, "the first run");
    env.write("again", "");
    assert!(eventually(PATIENCE, || job.record().is_some_and(|record| record["run"] == 2)));
    assert!(eventually(PATIENCE, || job.state() == "running"), "{}", job.state());
    let record = job.record().expect("a record");
    assert!(record.get("ready").is_none(), "{record}");
    let view = quell(&env).job(&job.id).and_then(|job| job.view()).expect("a view");
    assert_eq!((view.state, view.ready), (quell::JobState::Running, None));
}

#[test]
fn a_command_of_the_run_before_does_not_make_the_next_one_ready() {
    let env = TestEnv::as_me();
    // The first run's command takes longer than the run, and then succeeds; later ones fail.
    let cmd =
        "[ -e first ] && exit 1; touch first; until [ -e second ]; do sleep 0.01; done; sleep 0.3; exit 0";
    let script =
        "if [ -e first ]; then touch second; sleep 20; fi; until [ -e first ]; do sleep 0.01; done; exit 1";
    let job = env
        .start()
        .args(["--ready-cmd", cmd, "--restart", "on-failure"])
        .env("QUELL_START_RESTART_DELAY", "1ms")
        .env("QUELL_READY_INTERVAL", "20ms")
        .sh(script)
        .begin();
    assert!(eventually(PATIENCE, || env.path("second").exists()));
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(job.state(), "running");
    assert!(!job.events().contains(&"ready".into()), "{:?}", job.events());
}

#[test]
fn a_line_written_before_a_quick_exit_makes_it_ready() {
    let env = TestEnv::as_me();
    for (script, code, words) in [
        ("echo ready; exit 3", 0, "was ready, and has ended since: exited with 3"),
        ("echo no; exit 3", 1, "ended before it was ready: exited with 3"),
    ] {
        for _ in 0..20 {
            let start = env.start().args(["--ready-log", "^ready$", "--wait-ready", "20s"]);
            let started = start.sh(script).finish();
            let what = format!("{script}: {}", started.stderr);
            assert_eq!(started.code(), Some(code), "{what}");
            let job = env.job(started.stdout.trim());
            // Where it was seen before its end, there is nothing more to say.
            assert!(started.stderr.contains(words) || (code == 0 && started.stderr.is_empty()), "{what}");
            assert!(job.wait_over(PATIENCE), "{what}");
            let events = job.events();
            assert_eq!(events.contains(&"ready".into()), code == 0, "{what}: {events:?}");
            let at = |name: &str| events.iter().position(|event| event == name);
            assert!(at("ready") < at("root_exited"), "{what}: {events:?}");
        }
    }
}

#[test]
fn a_job_that_waits_to_be_started_again_is_not_ready() {
    let env = TestEnv::as_me();
    let start = env.start().args(["--restart", "always", "--ready-log", "up"]);
    let start = start.env("QUELL_START_RESTART_DELAY", "50s").env("QUELL_START_RESTART_MAX_DELAY", "60s");
    let job = start.sh("echo up; until [ -e go ]; do sleep 0.01; done").begin();
    becomes_ready(&job, "it runs");
    let wait = || env.quell("wait").args([&job.id, "--ready", "--timeout", "100ms"]).finish();
    assert_eq!(wait().code(), Some(0));
    fs::write(env.path("go"), "").expect("go");
    assert!(eventually(PATIENCE, || job.state() == "waiting"), "{}", job.state());
    let waited = wait();
    assert_eq!(waited.code(), Some(6), "{}{}", waited.stdout, waited.stderr);
    let status = env.quell("status").args([&job.id, "--json"]).finish().envelope();
    assert!(status["data"]["job"]["ready"].is_null(), "{status:#}");
}
