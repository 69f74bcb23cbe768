//! `quell wrap`: a server that its client talks to over standard input and output.

use std::{
    fs::{self, File},
    io::PipeWriter,
    os::{fd::OwnedFd, unix::net::UnixStream},
};

use quell_tests::{
    eventually,
    evidence::says_gone,
    host::Setting,
    oracle::Process,
    run::{PATIENCE, Quell, Running},
    test_env::TestEnv,
};

use serde_json::Value;

use crate::recovery::lost_jobs::only_receipt;

mod clients;
mod shutdown;
mod stdio;
mod surface;

/// What a client talks through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Codex and most programs.
    Pipe,
    /// Node and Bun, so most agents.
    Socket,
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::Pipe, Kind::Socket];

    /// The server's end, and the client's.
    fn open(self) -> (File, ClientEnd) {
        match self {
            Kind::Pipe => {
                let (read, write) = std::io::pipe().expect("a pipe");
                (OwnedFd::from(read).into(), ClientEnd::Pipe(write))
            }
            Kind::Socket => {
                let (server, client) = UnixStream::pair().expect("a socket pair");
                (OwnedFd::from(server).into(), ClientEnd::Socket(client))
            }
        }
    }
}

/// The client's end of a server's standard input. Closed when dropped.
#[derive(Debug)]
enum ClientEnd {
    Pipe(PipeWriter),
    Socket(UnixStream),
}

impl ClientEnd {
    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        use std::io::Write;
        match self {
            ClientEnd::Pipe(end) => end.write_all(bytes),
            ClientEnd::Socket(end) => end.write_all(bytes),
        }
    }
}

/// `quell wrap` in this setting.
fn wrap(env: &TestEnv, setting: Setting) -> Quell<'_> {
    env.quell("wrap").args(["--contain", setting.contain.as_str()])
}

/// A server of the actors that needs `cleanup` milliseconds after the first signal, and its client's end.
fn server(quell: Quell<'_>, kind: Kind, cleanup: u64) -> (Running, ClientEnd) {
    let (stdin, client) = kind.open();
    let mut running = quell.stdin(stdin).actor("server", Some(&cleanup.to_string())).start();
    running.wait_ready().expect("the server is up");
    (running, client)
}

/// The signals that the actors' server has got so far, by number.
fn signals(env: &TestEnv) -> Vec<String> {
    fs::read_to_string(env.path("signals")).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Waits until the actors' server has got so many signals.
fn await_signals(env: &TestEnv, count: usize) {
    assert!(eventually(PATIENCE, || signals(env).len() >= count), "{:?}", signals(env));
}

fn cleaned(env: &TestEnv) -> bool {
    env.path("cleaned").exists()
}

/// All processes of the test but quell's own and its client.
fn members(env: &TestEnv, client: &Process) -> Vec<Process> {
    let is_quell = |process: &Process| {
        fs::read_to_string(format!("/proc/{}/comm", process.pid))
            .is_ok_and(|comm| comm.trim().starts_with("quell"))
    };
    let mut all = env.oracle.survivors();
    all.retain(|process| process.pid != client.pid && !is_quell(process));
    all
}

/// The receipt of the only job in the environment.
fn the_receipt(env: &TestEnv) -> Value {
    only_receipt(env).unwrap_or_else(|why| panic!("{why}"))
}

/// Waits until nothing of a server is left, and its receipt says so.
fn ends_clean(env: &TestEnv, what: &str) -> Value {
    let left = env.leftovers_after(PATIENCE);
    let receipt = the_receipt(env);
    assert!(left.is_empty(), "{what}: left behind: {left:?}: {receipt}");
    says_gone(&receipt).unwrap_or_else(|why| panic!("{what}: {why}"));
    receipt
}

/// An environment in a cgroup of its own. A process that the init of a PID namespace has adopted, in the same cgroup, may be that of
/// any job there, whose verdict is `unproven` then: the tests beside this one have such processes.
fn place(setting: Setting) -> TestEnv {
    TestEnv::in_own_cgroup(setting.user)
}

/// The same for the user that runs the tests.
fn my_place() -> TestEnv {
    TestEnv::in_own_cgroup(TestEnv::as_me().user())
}
