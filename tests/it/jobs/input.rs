//! What a job reads: nothing, a file, what is sent to it, a terminal.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Write,
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
};

use quell::binary::JobInternals;
use quell::{Background, JobRequest, SendEof, Stdin, StopOptions};
use quell_tests::{
    eventually,
    run::{PATIENCE, Quell},
    test_env::TestEnv,
};

use crate::{
    jobs::captured_output::raw,
    library::{over, quell},
};

/// As in fcntl.h.
const O_NONBLOCK: i32 = 0o4000;

#[test]
fn a_terminal_is_one_in_every_respect() {
    let env = TestEnv::as_me();
    let script = "tty; test -t 0 -a -t 1 -a -t 2 && echo all three; stty size; ps -o tty= -p $$
        : </dev/tty && echo controlling
        echo ready >$QUELL_TEST_READY; cat; echo end; sleep $N";
    let job = env.start().args(["--pty"]).script(script).begin();
    let handle = quell(&env).job(&job.id).expect("the job");
    let lines = || job.output("stdout").lines().map(str::to_owned).collect::<Vec<_>>();
    // The program says that it is ready past quell, which may not have read all of its words yet.
    assert!(eventually(PATIENCE, || lines().len() >= 5), "{:?}", lines());
    let said = lines();
    let pts = said.first().and_then(|tty| tty.strip_prefix("/dev/")).expect("a terminal").to_owned();
    assert!(pts.starts_with("pts/"), "{said:?}");
    assert_eq!(&said[1..], ["all three", "24 80", &pts, "controlling"], "{said:?}");
    // A line, then a part of a line with the end of the input behind it.
    handle.send(b"hello\n", SendEof::No, PATIENCE).expect("a send");
    assert!(
        eventually(PATIENCE, || lines().iter().filter(|line| *line == "hello").count() == 2),
        "{:?}",
        lines()
    );
    handle.send(b"half", SendEof::Yes, PATIENCE).expect("a send");
    assert!(eventually(PATIENCE, || lines().iter().any(|line| line.ends_with("end"))), "{:?}", lines());
    assert_eq!(job.stop(&[]).code(), Some(0));
    assert_eq!(job.output("stderr"), "");
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
}

#[test]
fn a_program_that_reads_a_terminal_can_be_interrupted_and_hung_up() {
    let env = TestEnv::as_me();
    let script = "trap 'echo got INT' INT; trap 'echo got HUP; exit 4' HUP
        echo ready >$QUELL_TEST_READY; while :; do sleep 0.05; done";
    let job = env.start().args(["--pty", "--signal", "HUP"]).script(script).begin();
    let handle = quell(&env).job(&job.id).expect("the job");
    // Ctrl-C as a key, not as a signal of quell's.
    handle.send(b"\x03", SendEof::No, PATIENCE).expect("a send");
    assert!(eventually(PATIENCE, || job.output("stdout").contains("got INT")), "{:?}", job.output("stdout"));
    assert_eq!(job.stop(&[]).code(), Some(0));
    assert!(job.output("stdout").contains("got HUP"));
    assert_eq!(job.receipt().expect("a receipt")["root"]["outcome"]["code"], 4);
    // When the root is gone, the terminal tells its foreground group so, as for a shell that is closed.
    let script = "(trap 'echo told; exit' HUP; echo ready >$QUELL_TEST_READY; while :; do sleep 0.01; done) &
        until [ -e up ]; do sleep 0.01; done; exit 0";
    let job = env.start().args(["--pty", "--until", "tree"]).script(script).begin();
    env.write("up", "");
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    assert!(job.output("stdout").contains("told"), "{:?}", job.output("stdout"));
}

#[test]
fn the_program_reads_what_it_was_given_and_no_more() {
    let env = TestEnv::as_me();
    let every: Vec<u8> = (0..=255u8).cycle().take(300_000).collect();
    fs::write(env.path("input"), &every).expect("a file");
    // A file, and the caller's own standard input.
    for given in ["input", "-"] {
        let mut start = env.start().args(["--stdin", given]).command(["cat"]);
        if given == "-" {
            start = start.stdin(File::open(env.path("input")).expect("a file"));
        }
        let job = start.begin();
        assert!(job.wait_over(PATIENCE), "{given}");
        assert!(raw(&job, "stdout") == every, "{given}");
    }
    // Nothing, whatever the caller has: an open pipe without a writer is not waited for.
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let job = env.start().stdin(File::from(std::os::fd::OwnedFd::from(reader))).command(["cat"]).begin();
    assert!(job.wait_over(PATIENCE), "cat waits for the caller's input");
    // The same pipe, given on purpose: the start returns at once, and the program waits.
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let reader = File::from(std::os::fd::OwnedFd::from(reader));
    let job = env.start().args(["--stdin", "-"]).stdin(reader).command(["cat"]).begin();
    assert_eq!(job.state(), "running");
    writer.write_all(b"late").expect("a write");
    drop(writer);
    assert!(job.wait_over(PATIENCE), "the end of the input does not arrive");
    assert_eq!(job.output("stdout"), "late");
}

#[test]
fn what_is_sent_arrives_whole_and_its_end_too() {
    let env = TestEnv::as_me();
    let every: Vec<u8> = (0..=255u8).cycle().take(3_000_000).collect();
    let piped = Background { stdin: Stdin::Pipe, ..Background::default() };
    let start = JobRequest::new(["cat"], piped.clone());
    let job = quell(&env).start(&start).expect("a start");
    job.send(&every[..1000], SendEof::No, PATIENCE).expect("a send");
    job.send(&every[1000..], SendEof::Yes, PATIENCE).expect("a send");
    over(&job);
    assert!(fs::read(job.dir().dir().join("stdout.log")).expect("a log") == every);
    // To one that has none, or does not read any more, it is an error and no silence.
    let deaf = quell(&env).start(&JobRequest::background(["sleep", &env.oracle.nap()])).expect("a start");
    assert!(matches!(deaf.send(b"x", SendEof::No, PATIENCE), Err(quell::Error::State(_))));
    let script = format!("exec <&-; echo closed; sleep {}", env.oracle.nap());
    let start = JobRequest::new(["sh", "-c", &script], piped);
    let closed = quell(&env).start(&start).expect("a start");
    assert!(eventually(PATIENCE, || {
        fs::read(closed.dir().dir().join("stdout.log")).is_ok_and(|text| text == b"closed\n")
    }));
    assert!(matches!(closed.send(b"x", SendEof::No, PATIENCE), Err(quell::Error::State(_))));
    for job in [deaf, closed] {
        let _ = job.stop_with(&StopOptions::kill()).expect("a stop");
    }
}

#[test]
fn a_restarted_program_reads_its_file_from_the_beginning() {
    let env = TestEnv::as_me();
    env.write("input", "one\ntwo\n");
    let job = env
        .start()
        .args(["--stdin", "input", "--restart", "always", "--restart-limit", "2"])
        .env("QUELL_START_RESTART_DELAY", "1ms")
        .command(["cat"])
        .begin();
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    assert_eq!(job.output("stdout"), "one\ntwo\n".repeat(3));
    let again =
        quell(&env).job(&job.id).expect("the job").restart(&StopOptions::default()).expect("a restart");
    let log = again.dir().dir().join("stdout.log");
    assert!(eventually(PATIENCE, || fs::read(&log).is_ok_and(|text| text.starts_with(b"one\n"))));
    let _ = again.stop().expect("a stop");
}

#[test]
fn a_keeper_does_not_block_on_a_fifo_without_a_writer() {
    let env = TestEnv::as_me();
    let fifo = env.fifo();
    // Both ends, so that the first run gets it open; later ones find no process at the other end.
    let hold = File::options().read(true).write(true).open(&fifo).expect("the fifo");
    let job = env
        .start()
        .args(["--stdin", fifo.to_str().expect("a path"), "--restart", "always"])
        .env("QUELL_START_RESTART_DELAY", "50ms")
        .sh("until [ -e up ]; do sleep 0.01; done; exit 1")
        .begin();
    drop(hold);
    env.write("up", "");
    assert!(eventually(PATIENCE, || job.record().is_some_and(|record| record["run"].as_u64() > Some(2))));
    let done = job.stop(&[]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
}

#[test]
fn a_path_that_is_no_text_is_as_good_as_any() {
    let env = TestEnv::as_me();
    let odd = env.dir().join(OsStr::from_bytes(b"d\xff"));
    fs::create_dir(&odd).expect("a directory");
    fs::write(odd.join("in"), "read\n").expect("a file");
    let begin = || env.start().args([OsStr::new("--cwd"), odd.as_os_str()]);
    let job = begin().args([OsStr::new("--stdin"), odd.join("in").as_os_str()]).sh("pwd; cat").begin();
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    let said = fs::read(job.dir().join("stdout.log")).expect("the output");
    assert_eq!(said, [odd.as_os_str().as_bytes(), b"\nread\n"].concat());
    let again = env.quell("restart").args([&job.id]).finish();
    assert_eq!(again.code(), Some(0), "{}", again.stderr);
    assert!(env.job(again.stdout.trim()).wait_over(PATIENCE));
    assert_eq!(fs::read(env.job(again.stdout.trim()).dir().join("stdout.log")).expect("the output"), said);
    // Also quell's own home.
    let at_home = |quell: Quell<'_>| quell.env("QUELL_HOME", odd.join("home")).finish();
    let started = at_home(env.start().command(["sleep", &env.oracle.nap()]));
    assert_eq!(started.code(), Some(0), "{}", started.stderr);
    let status = at_home(env.quell("status").args([started.stdout.trim(), "--json"]));
    assert_eq!(status.envelope()["data"]["job"]["state"], "running", "{}", status.stderr);
    let stopped = at_home(env.quell("stop").args([started.stdout.trim()]));
    assert_eq!(stopped.code(), Some(0), "{}", stopped.stderr);
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
}

/// Neither holds up the start, and each writer's words arrive, with their end when the writer has gone.
#[test]
fn a_fifo_is_waited_for_by_the_program_and_not_by_the_start() {
    let env = TestEnv::as_me();
    let fifo = env.fifo();
    let write = |text: &str| fs::write(&fifo, text).expect("a write");
    let job = env.start().args([OsStr::new("--stdin"), fifo.as_os_str()]).command(["cat"]).begin();
    assert_eq!(env.quell("wait").args([&job.id, "--timeout", "200ms"]).finish().code(), Some(6));
    write("one");
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    assert_eq!(
        (job.output("stdout").as_str(), &job.receipt().expect("a receipt")["cause"]),
        ("one", &"own_exit".into())
    );
    let again = env.quell("restart").args([&job.id]).finish();
    assert_eq!(again.code(), Some(0), "{}", again.stderr);
    let again = env.job(again.stdout.trim());
    write("two");
    assert!(again.wait_over(PATIENCE), "{}", again.state());
    assert_eq!(again.output("stdout"), "two");
    // A writer that came first, and is gone when the program begins to read.
    let mut early = File::options().read(true).write(true).open(&fifo).expect("the fifo");
    early.write_all(b"three").expect("a write");
    let script = "until [ -e go ]; do sleep 0.01; done; cat";
    let job = env.start().args([OsStr::new("--stdin"), fifo.as_os_str()]).sh(script).begin();
    drop(early);
    env.write("go", "");
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    assert_eq!(job.output("stdout"), "three");
    // Nothing comes: it can be stopped, and the fifo is let go.
    let job = env.start().args([OsStr::new("--stdin"), fifo.as_os_str()]).command(["cat"]).begin();
    assert_eq!(job.stop(&[]).code(), Some(0));
    let open = || File::options().write(true).custom_flags(O_NONBLOCK).open(&fifo);
    assert!(eventually(PATIENCE, || open().is_err()), "the fifo is still read");
}
