//! The server has the client's own descriptors: each byte, each end of file and each error is as without quell.

use std::{
    fs,
    io::{ErrorKind, Read},
    os::fd::{AsRawFd, OwnedFd},
    thread,
    time::Duration,
};

use quell_tests::{
    eventually,
    host::Setting,
    run::{PATIENCE, Quell, READER_PATIENCE, Running},
};

use super::{ClientEnd, Kind, my_place, place, wrap};
use crate::jobs::captured_output::volume;

/// Bytes without a pattern that a lost or doubled piece would fit into. Both ends make the same ones.
struct Noise {
    state: u64,
    rest: Vec<u8>,
}

impl Noise {
    fn new(seed: u64) -> Noise {
        Noise { state: seed, rest: Vec::new() }
    }

    fn next(&mut self, length: usize) -> Vec<u8> {
        while self.rest.len() < length {
            for _ in 0..8192 {
                self.state ^= self.state << 13;
                self.state ^= self.state >> 7;
                self.state ^= self.state << 17;
                self.rest.extend_from_slice(&self.state.to_ne_bytes());
            }
        }
        self.rest.drain(..length).collect()
    }
}

const SEED: u64 = 88_172_645_463_325_252;

/// Sizes of chunks below, at and above those of a pipe, a page and a line.
const CHUNKS: [usize; 9] = [1, 7, 511, 4095, 4096, 4097, 65_535, 65_537, 1_000_003];

#[test]
fn every_byte_passes_both_ways() {
    for kind in Kind::ALL {
        let env = my_place();
        let total = volume() as usize / 3;
        let (stdin, mut client) = kind.open();
        let (mut answers, stdout) = match Kind::open(kind) {
            (_, ClientEnd::Pipe(_)) => {
                let (read, write) = std::io::pipe().expect("a pipe");
                (Box::new(read) as Box<dyn Read>, OwnedFd::from(write))
            }
            (server, ClientEnd::Socket(end)) => (Box::new(end) as Box<dyn Read>, OwnedFd::from(server)),
        };
        let running = env.quell("wrap").stdin(stdin).stdout(stdout.into()).command(["cat"]).start();
        let writer = thread::spawn(move || {
            let (mut noise, mut sent) = (Noise::new(SEED), 0);
            for size in CHUNKS.into_iter().cycle() {
                let size = size.min(total - sent);
                client.write_all(&noise.next(size)).expect("the server reads");
                sent += size;
                if sent == total {
                    break;
                }
            }
            client
        });
        let (mut noise, mut got, mut chunk) = (Noise::new(SEED), 0, vec![0; 300_007]);
        let mut before = None;
        while got < total {
            let length = answers.read(&mut chunk).expect("the answers");
            assert!(length > 0, "{kind:?}: it ends after {got} bytes");
            assert!(noise.next(length) == chunk[..length], "{kind:?}: other bytes after {got}");
            got += length;
            before.get_or_insert_with(|| wake_ups(&running));
        }
        // No process of quell's has a part in this. A few times they wake up in any case, to free memory after the start.
        let woke = wake_ups(&running) - before.expect("something was read");
        assert!(woke < 20, "{kind:?}: quell woke up {woke} times while {total} bytes passed");
        drop(writer.join().expect("all was written"));
        assert_eq!(answers.read(&mut chunk).expect("the end"), 0, "{kind:?}: more than {total} bytes");
        let done = running.finish();
        assert_eq!((done.code(), &*done.stderr), (Some(0), ""), "{kind:?}");
    }
}

/// How often front and keeper have gone to sleep so far.
fn wake_ups(running: &Running) -> u64 {
    let keeper = running.keeper().expect("a keeper");
    let slept = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it is alive");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<u64>().ok()).expect("a number")
    };
    slept(running.front.pid) + slept(keeper.pid)
}

#[test]
fn the_server_has_the_clients_own_descriptors_and_no_others() {
    for setting in Setting::all() {
        let env = place(setting);
        let (stdin, _client) = Kind::Socket.open();
        let socket = fs::read_link(format!("/proc/self/fd/{}", stdin.as_raw_fd())).expect("a link");
        let fds = |file: &str| {
            [&env.actor_path().display().to_string(), "fds", env.oracle.token(), file].map(str::to_owned)
        };
        // What the tests themselves have inherited is passed on, with quell and without it.
        let run = |quell: Quell<'_>, file: &str| {
            let done = quell.stdin(stdin.try_clone().expect("dup")).command(fds(file)).finish();
            assert_eq!(done.code(), Some(0), "{setting}: {}", done.stderr);
            let seen = fs::read_to_string(env.path(file)).expect("the actor's list");
            let fd = |line: &str| line.split(' ').next().map(str::to_owned);
            (seen.lines().next().map(str::to_owned), seen.lines().map(fd).collect::<Vec<_>>())
        };
        let (input, wrapped) = run(wrap(&env, setting), "wrapped");
        assert_eq!(input, Some(format!("0 {}", socket.display())), "{setting}");
        let (_, plain) = run(env.run().args(["--contain", setting.contain.as_str()]), "plain");
        assert_eq!(wrapped, plain, "{setting}");
    }
}

#[test]
fn a_client_sees_at_once_that_its_server_has_closed_its_output() {
    for setting in Setting::all() {
        let env = place(setting);
        let (stdin, _client) = Kind::Pipe.open();
        let script = "echo last; exec >&-; echo ready >$QUELL_TEST_READY; exec sleep $N";
        let mut running = wrap(&env, setting).stdin(stdin).script(script).start();
        running.wait_ready().expect("the server is up");
        assert!(running.wait_output_closed(READER_PATIENCE), "{setting}: it is still open");
        assert_eq!(running.stdout(), "last\n");
        assert_eq!(running.wait_exit(Duration::ZERO), None, "{setting}: the server lives");
        running.front.signal("TERM");
        running.wait_exit(PATIENCE).expect("stopped");
    }
}

#[test]
fn a_client_that_writes_to_a_server_that_has_exited_gets_an_error_at_once() {
    for setting in Setting::all() {
        for kind in Kind::ALL {
            let env = place(setting);
            let (stdin, mut client) = kind.open();
            // What is left of the server is deaf, and has no copy of the input.
            let script = "trap '' TERM; setsid sleep $N </dev/null >/dev/null & exit 0";
            let quell = wrap(&env, setting).args(["--grace", "20s"]).stdin(stdin);
            let mut running = quell.script(script).start();
            let mut error = None;
            assert!(eventually(READER_PATIENCE, || {
                error = client.write_all(b"{}\n").err();
                error.is_some()
            }));
            assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::BrokenPipe), "{setting}, {kind:?}");
            assert_eq!(
                running.wait_exit(Duration::ZERO),
                None,
                "{setting}, {kind:?}: the rest is stopped by now"
            );
        }
    }
}
