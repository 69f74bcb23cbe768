//! Attacks at the control socket, with forged records, with another user's rights. The job is stopped all the same, and no
//! other process is touched.

use std::{
    fs,
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixListener, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use quell_tests::{
    eventually,
    host::{User, am_root},
    jobs::Background,
    last_json,
    oracle::Process,
    run::PATIENCE,
    skip,
    test_env::TestEnv,
};
use serde_json::{Value, json};

/// A process that has nothing to do with quell, the leader of its own session.
struct Stranger {
    child: Child,
    process: Process,
}

impl Stranger {
    fn new() -> Stranger {
        let mut command = Command::new("setsid");
        command.args(["sleep", "60"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("setsid");
        let sleeps = || Process::now(child.id()).filter(|process| process.command.starts_with("sleep"));
        assert!(eventually(PATIENCE, || sleeps().is_some()));
        let process = sleeps().expect("a stranger");
        Stranger { child, process }
    }

    fn json(&self) -> Value {
        json!({ "pid": self.process.pid, "start": self.process.start })
    }

    fn is_untouched(&self) -> bool {
        self.process.is_alive() && self.process.state() != Some('T')
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn forge(job: &Background<'_>, name: &str, change: impl FnOnce(&mut Value)) {
    let path = job.dir().join(name);
    let mut value = last_json(&fs::read(&path).expect(name)).expect("JSON");
    change(&mut value);
    fs::write(&path, value.to_string()).expect("a forged record");
}

fn nap(env: &TestEnv) -> Background<'_> {
    env.start()
        .args(["--contain", "reaper", "--grace", "100ms"])
        .command(["sleep", &env.oracle.nap()])
        .begin()
}

/// What runs `words` as another user than the tests'.
fn as_ordinary_user(words: &[&str]) -> Command {
    let prefix = User::Ordinary.prefix();
    let mut command = Command::new(&prefix[0]);
    command.args(&prefix[1..]).args(words);
    command
}

fn open_up(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

/// The path of a job's socket, with every door to it open.
fn open_socket(env: &TestEnv, job: &Background<'_>) -> PathBuf {
    let socket = job.dir().join("control.sock");
    for dir in [env.home(), env.home().join("jobs"), job.dir()] {
        open_up(&dir, 0o755);
    }
    open_up(&socket, 0o666);
    socket
}

#[test]
fn a_client_of_another_user_is_not_heard() {
    let name = "a_client_of_another_user_is_not_heard";
    if !am_root() {
        return skip(name, "needs root to be two users");
    }
    let env = TestEnv::new(User::Root);
    let job = nap(&env);
    let socket = open_socket(&env, &job);
    let script = r#"use IO::Socket::UNIX; $SIG{PIPE} = "IGNORE"; my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "refused";
        print "connected\n"; $s->print(qq({"stop":{"kill":true,"grace":null,"reason":null}}\n)); $s->flush; print <$s>;"#;
    let out =
        as_ordinary_user(&["perl", "-e", script, socket.to_str().expect("a path")]).output().expect("perl");
    // It got as far as the keeper, which hung up.
    assert_eq!(String::from_utf8_lossy(&out.stdout), "connected\n", "{out:?}");
    // Answered after that one was dealt with.
    let tree = env.quell("tree").args([&job.id]).finish();
    assert_eq!(tree.code(), Some(0), "{}", tree.stderr);
    assert_eq!(job.state(), "running");
    // Root may: the same words by the same program.
    let out = Command::new("perl").args(["-e", script]).arg(&socket).output().expect("perl");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "connected\n\"accepted\"\n", "{out:?}");
    assert!(job.wait_over(PATIENCE));
}

#[test]
fn a_socket_that_another_user_put_in_place_is_not_believed() {
    let name = "a_socket_that_another_user_put_in_place_is_not_believed";
    if !am_root() {
        return skip(name, "needs root to be two users");
    }
    let env = TestEnv::new(User::Root);
    let job = nap(&env);
    let socket = open_socket(&env, &job);
    let hidden = job.dir().join("real.sock");
    fs::rename(&socket, &hidden).expect("the socket hidden");
    open_up(&job.dir(), 0o777);
    let script = r#"use IO::Socket::UNIX; my $l = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 9) or die; $|=1;
        print "up\n"; while (my $s = $l->accept) { my $l = <$s>; print "heard $l"; print $s qq({"signaled":{"sent":7}}\n); }"#;
    let mut server = as_ordinary_user(&["perl", "-e", script, socket.to_str().expect("a path")]);
    let mut server = server.stdout(Stdio::piped()).spawn().expect("perl");
    let mut said = [0; 3];
    server.stdout.as_mut().expect("its output").read_exact(&mut said).expect("it is up");
    open_up(&socket, 0o666);
    let done = env.quell("signal").args([job.id.as_str(), "USR1"]).finish();
    server.kill().and_then(|()| server.wait()).expect("ours");
    let mut heard = String::new();
    server.stdout.take().expect("its output").read_to_string(&mut heard).expect("its output");
    assert_ne!(done.code(), Some(0), "{}", done.stdout);
    assert!(done.stderr.contains("another user"), "{}", done.stderr);
    // The connection may have been closed by the other side.
    assert!(!heard.contains("signal"), "it was told what was asked for: {heard}");
    fs::rename(&hidden, &socket).expect("the socket back");
    assert_eq!(job.stop(&[]).code(), Some(0));
}

/// A line of /proc/PID/status in kilobytes.
fn memory(process: &Process, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a field");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn clients_that_say_nothing_too_much_or_never_listen_do_not_keep_a_stop_out() {
    let env = TestEnv::as_me();
    let job = nap(&env);
    let keeper = job.process("keeper").expect("a keeper");
    let socket = job.dir().join("control.sock");
    let connect = || UnixStream::connect(&socket).expect("a connection");
    let mut held: Vec<UnixStream> = (0..1000).map(|_| connect()).collect();
    held.extend((0..50).map(|_| {
        let mut half = connect();
        half.write_all(b"{\"stop\":{\"kill\":tr").expect("half a line");
        half
    }));
    // They ask and ask, and take no answer.
    held.extend((0..20).map(|_| {
        let mut deaf = connect();
        deaf.set_nonblocking(true).expect("nonblocking");
        while deaf.write(b"\"list_members\"\n").is_ok() {}
        deaf
    }));
    // A line of 100 MB is cut off long before its end.
    let mut endless = connect();
    let chunk = vec![b'x'; 1 << 20];
    let written = (0..100).take_while(|_| endless.write_all(&chunk).is_ok()).count();
    assert!(written < 100, "all of it was taken");
    for _ in 0..3 {
        let done = env.quell("tree").args([&job.id]).finish();
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
    }
    assert!(memory(&keeper, "VmHWM") < 96 * 1024, "{} kB", memory(&keeper, "VmHWM"));
    let open = fs::read_dir(format!("/proc/{}/fd", keeper.pid)).expect("its descriptors").count();
    assert!(open < 300, "{open} descriptors");
    let done = job.stop(&[]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    drop(held);
}

#[test]
fn clients_leave_the_keeper_the_descriptors_that_a_stop_needs() {
    let env = TestEnv::as_me();
    let limited = ["bash", "-c", "ulimit -n 64; exec \"$@\"", "bash"];
    let script = "i=0; while [ $i -lt 60 ]; do sleep $N & i=$((i+1)); done; echo up; wait";
    let options = ["--ready-log", "up", "--wait-ready", "10s", "--grace", "1s"];
    let start = env.start().wrapped(limited).env("N", env.oracle.nap()).args(options);
    let job = start.sh(script).begin();
    let mut waiting = env.quell("wait").args([&job.id]).start();
    let socket = job.dir().join("control.sock");
    let held: Vec<UnixStream> =
        (0..80).map(|_| UnixStream::connect(&socket).expect("a connection")).collect();
    let done = job.stop(&[]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.took < Duration::from_secs(2), "it took {:?}", done.took);
    let receipt = job.receipt().expect("a receipt");
    let members = receipt["members"].as_array().expect("members");
    // Of those that bash has collected, and that there are no descriptors for, nothing tells what they died of.
    let is_true = |member: &&Value| member["fate"] == "exited_on_ask" || member["fate"] == "ended";
    assert_eq!((members.len(), members.iter().filter(is_true).count()), (61, 61), "{receipt:#}");
    // It was displaced, and waits by other means.
    assert!(waiting.wait_exit(PATIENCE).is_some());
    drop(held);
}

#[test]
fn a_keeper_that_was_stopped_with_a_full_queue_is_woken_and_the_job_stopped() {
    let env = TestEnv::as_me();
    let job = nap(&env);
    let stopped = ["standby", "keeper"].map(|role| job.process(role).expect("a kept job"));
    stopped.iter().for_each(|process| assert!(process.signal("STOP")));
    let socket = job.dir().join("control.sock");
    let crowd = thread::spawn(move || {
        // Waits in the queue when that is full, and ends when the listener is gone.
        let mut held = Vec::new();
        while held.len() < 10_000
            && let Ok(stream) = UnixStream::connect(&socket)
        {
            held.push(stream);
        }
    });
    // The queue is full when the process that fills it waits.
    let waits = || {
        let tasks = fs::read_dir("/proc/self/task").expect("our threads").flatten();
        tasks.into_iter().any(|task| {
            fs::read_to_string(task.path().join("syscall")).is_ok_and(|call| call.starts_with("42 "))
        })
    };
    assert!(eventually(PATIENCE, waits) || cfg!(not(target_arch = "x86_64")), "the queue takes them all");
    let done = job.stop(&[]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(job.wait_over(PATIENCE));
    crowd.join().expect("the crowd");
}

#[test]
fn a_record_that_names_a_stranger_as_the_root_kills_no_process() {
    // The session that a record claims, whether the stranger leads one of its own.
    for (session, leads) in [("shared", true), ("own", false)] {
        let env = TestEnv::as_me();
        let job = nap(&env);
        let stranger = Stranger::new();
        let mut follower = Command::new("sleep").arg("60").spawn().expect("sleep");
        let other = Process::now(follower.id()).expect("ours");
        job.lose();
        forge(&job, "state.jsonl", |state| {
            state["tree"]["session"] = json!(session);
            let follower = json!({ "pid": other.pid, "start": other.start });
            state["tree"]["root"] = if leads { stranger.json() } else { follower };
        });
        let swept = env.quell("sweep").args(["--json"]).finish();
        let untouched = stranger.is_untouched() && other.is_alive() && other.state() != Some('T');
        follower.kill().and_then(|()| follower.wait()).expect("ours");
        assert!(untouched, "{session}: {}", swept.stdout);
    }
}

#[test]
fn a_record_whose_marker_is_in_every_environment_kills_no_process() {
    let env = TestEnv::as_me();
    let job = nap(&env);
    let stranger = Stranger::new();
    job.lose();
    // What is older than the root is left alone anyway.
    forge(&job, "state.jsonl", |state| state["tree"]["root"] = json!({ "pid": 999_999_999, "start": 1 }));
    // Only the stranger has it: otherwise a failure of this test would kill every process.
    let environment = fs::read(format!("/proc/{}/environ", stranger.process.pid)).expect("its environment");
    assert!(!environment.is_empty());
    let marked = Command::new("setsid").args(["sleep", "60"]).env("FORGED", env.oracle.token()).spawn();
    let mut marked = marked.expect("setsid");
    let process = Process::now(marked.id()).expect("ours");
    forge(&job, "spec.json", |spec| spec["marker"] = json!(format!("FORGED={}", env.oracle.token())));
    let swept = env.quell("sweep").args(["--json"]).finish();
    let alive = process.is_alive() && process.state() != Some('T');
    marked.kill().and_then(|()| marked.wait()).expect("ours");
    assert!(alive && stranger.is_untouched(), "{}", swept.stdout);
}

#[test]
fn a_record_that_names_what_only_looks_like_a_cgroup_reaches_no_process_through_it() {
    let env = TestEnv::as_me();
    let job = nap(&env);
    job.lose();
    let fake = env.path("fake").join(format!("quell-{}", job.id));
    let precious = env.write("precious", "precious");
    fs::create_dir_all(&fake).expect("a directory");
    for name in ["cgroup.kill", "pids.max", "cgroup.freeze"] {
        std::os::unix::fs::symlink(&precious, fake.join(name)).expect("a link");
    }
    fs::write(fake.join("cgroup.events"), "populated 0\n").expect("a file");
    fs::write(fake.join("cgroup.procs"), "1\n").expect("a file");
    let around = env.path("fake/../fake").join(format!("quell-{}", job.id));
    forge(&job, "state.jsonl", |state| {
        state["tree"]["cgroup"] = json!(around);
        state["tree"]["containment"] = json!("cgroup");
    });
    let swept = env.quell("sweep").args(["--json"]).finish();
    assert_eq!(fs::read_to_string(&precious).expect("precious"), "precious", "{}", swept.stdout);
    assert!(fake.exists(), "{}", swept.stdout);
    assert_eq!(swept.code(), Some(5), "nothing of that proves anything: {}", swept.stdout);
}

#[test]
fn a_job_that_takes_the_place_of_its_socket_and_names_a_stranger_as_its_keeper_gets_no_process_killed() {
    let env = TestEnv::as_me();
    let job = nap(&env);
    let stranger = Stranger::new();
    let socket = job.dir().join("control.sock");
    fs::remove_file(&socket).expect("the socket removed");
    let silent = UnixListener::bind(&socket).expect("a silent one");
    forge(&job, "state.jsonl", |state| {
        for role in ["keeper", "standby"] {
            state[role] = stranger.json();
        }
    });
    // It waits eight seconds for an answer. Then it kills the keeper, which is known by the lock that it has open.
    let done = job.stop(&[]);
    assert!(stranger.is_untouched(), "{:?}: {}", done.code(), done.stderr);
    drop(silent);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert_eq!(env.oracle.survivors_after(PATIENCE), vec![], "{}", done.stdout);
}

#[test]
fn root_does_not_sweep_what_an_ordinary_user_can_write() {
    let name = "root_does_not_sweep_what_an_ordinary_user_can_write";
    if !am_root() {
        return skip(name, "needs root to be two users");
    }
    let env = TestEnv::new(User::Ordinary);
    let job = nap(&env);
    job.lose();
    let stranger = Stranger::new();
    let honest = fs::read(job.dir().join("state.jsonl")).expect("a state");
    forge(&job, "state.jsonl", |state| state["tree"]["root"] = stranger.json());
    let before = env.oracle.survivors();
    for words in [vec!["sweep"], vec!["stop", &job.id], vec!["list"], vec!["gc"], vec!["start", "--", "true"]]
    {
        let mut quell = Command::new(env.quell_path());
        let out = quell.args(&words).env("QUELL_HOME", env.home()).output().expect("quell");
        assert!(!out.status.success(), "{words:?}: {out:?}");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(said.contains("belongs to another user (uid 65534)"), "{words:?}: {said}");
    }
    // The library, which may be another program's: file by file.
    let embedded = crate::library::quell(&env);
    let looked = embedded.job_with(job.id.parse().expect("an id")).stop();
    assert!(looked.is_err(), "{looked:?}");
    assert!(stranger.is_untouched());
    assert_eq!(env.oracle.survivors(), before);
    assert!(!job.is_over(), "the user's own record is as it was");
    // Its owner may.
    fs::write(job.dir().join("state.jsonl"), honest).expect("the state back");
    env.quell("sweep").finish();
    assert!(job.is_over() && stranger.is_untouched());
}

#[test]
fn a_job_is_stopped_though_another_process_answers_at_its_socket() {
    let env = TestEnv::as_me();
    for words in ["x\n", "{\"refused\":\"no\"}\n", "{\"signaled\":{\"sent\":1}}\n"] {
        let job = env.start().args(["--grace", "300ms"]).command(["sleep", &env.oracle.nap()]).begin();
        let socket = job.dir().join("control.sock");
        fs::remove_file(&socket).expect("the keeper's socket");
        let listener = UnixListener::bind(&socket).expect("another socket");
        // It ends with the listener's last client: the keeper makes a new socket, and no client comes here any more.
        let server = thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            let _ = client.read(&mut [0; 1024]);
            let _ = client.write_all(words.as_bytes());
        });
        let done = job.stop(&[]);
        assert_eq!(done.code(), Some(0), "{words}: {}{}", done.stdout, done.stderr);
        assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new(), "{words}");
        server.join().expect("the server");
    }
}
