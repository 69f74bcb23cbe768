//! How the server begins and ends, and what it leaves.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::time::{Duration, Instant};

use quell_tests::host::{User, am_root};
use quell_tests::run::PATIENCE;
use quell_tests::skip;
use quell_tests::test_env::TestEnv;

use super::client::{Server, Stream};

#[test]
fn a_killed_server_harms_no_job_and_the_next_one_takes_its_place() {
    let env = TestEnv::as_me();
    let mut server = Server::start(&env, &[]);
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    let second = env.quell("serve").args(["--no-tcp"]).finish();
    assert_eq!(second.code(), Some(125), "{}", second.stderr);
    assert!(second.stderr.contains("runs already"), "{}", second.stderr);
    server.running.front.signal("KILL");
    server.running.wait_exit(PATIENCE);
    assert_eq!(env.quell("serve").args(["--status"]).finish().code(), Some(1), "none runs");
    assert_eq!(job.state(), "running");
    let server = Server::start_at(&env, server.port, &[]);
    assert_eq!(env.quell("serve").args(["--status"]).finish().code(), Some(0));
    let stop = server.ask("POST", &format!("/v1/jobs/{}/stop?wait=50s", job.id), "{}");
    assert_eq!(stop.status, 200, "{}", stop.body);
}

#[test]
fn a_server_with_two_hundred_streams_ends_within_two_seconds() {
    let env = TestEnv::as_me();
    let mut server = Server::start(&env, &[]);
    let token = |number: usize| {
        let name = format!("t{number}");
        env.quell("serve").args(["--add-token", &name, "--role", "view"]).finish().stdout.trim().to_owned()
    };
    let tokens: Vec<String> = (0..4).map(token).collect();
    let mut streams: Vec<Stream> =
        (0..200).map(|number| server.stream(&tokens[number % 4], "", None)).collect();
    for stream in &mut streams[..100] {
        assert_eq!(stream.next().expect("an event").kind, "hello");
    }
    let begun = Instant::now();
    server.running.front.signal("TERM");
    let status = server.running.wait_exit(PATIENCE).expect("it ends");
    assert!(status.success(), "{status}");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let last = std::iter::from_fn(|| streams[0].next()).last().expect("an event");
    assert_eq!(last.kind, "bye");
    assert!(!server.socket().exists(), "it leaves no socket");
}

#[test]
fn only_loopback_is_listened_at() {
    let env = TestEnv::as_me();
    for address in ["0.0.0.0", "192.168.1.2", "::"] {
        let refused = env.quell("serve").args(["--listen", address]).finish();
        assert_eq!(refused.code(), Some(2), "{address}");
        assert!(refused.stderr.contains("ssh -L"), "{}", refused.stderr);
    }
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let busy = env.quell("serve").args(["--port", &port.to_string()]).finish();
    assert_eq!(busy.code(), Some(125), "{}", busy.stderr);
    assert!(busy.stderr.contains("choose another --port"), "{}", busy.stderr);
}

#[test]
fn a_directory_that_others_could_write_is_not_used() {
    let env = TestEnv::as_me();
    let serve = env.home().join("serve");
    let fails = |what: &str, why: &str| {
        let done = env.quell("serve").args(["--no-tcp"]).finish();
        assert_eq!(done.code(), Some(125), "{what}: {}", done.stderr);
        assert!(done.stderr.contains(why), "{what}: {}", done.stderr);
    };
    // Makes the home.
    env.quell("start").command(["true"]).finish();
    let elsewhere = env.dir().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &serve).unwrap();
    fails("a link", "not a directory");
    fs::remove_file(&serve).unwrap();
    fs::create_dir(&serve).unwrap();
    fs::set_permissions(&serve, fs::Permissions::from_mode(0o755)).unwrap();
    fails("open to others", "chmod 700");
    fs::set_permissions(&serve, fs::Permissions::from_mode(0o700)).unwrap();
    symlink("/etc/hostname", serve.join("token")).unwrap();
    fails("a linked token", "it is a link");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn another_user_gets_no_answer_at_the_socket() {
    let test = "another_user_gets_no_answer_at_the_socket";
    if !am_root() {
        return skip(test, "only root can be another user");
    }
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    // As if the user had opened it by mistake.
    let open =
        |path: &std::path::Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for dir in [env.dir(), &env.home(), &env.home().join("serve")] {
        open(dir, 0o755);
    }
    open(&server.socket(), 0o666);
    let script = format!(
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('{}'); s.settimeout(10)\n\
         try:\n s.sendall(b'GET /v1/jobs HTTP/1.1\\r\\nHost: q\\r\\n\\r\\n'); print(len(s.recv(100)))\n\
         except OSError: print(0)",
        server.socket().display()
    );
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return skip(test, "there is no /usr/bin/python3");
    }
    let prefix = User::Ordinary.prefix();
    let output =
        Command::new(&prefix[0]).args(&prefix[1..]).args(["/usr/bin/python3", "-c", &script]).output();
    let Ok(output) = output.map_err(|error| skip(test, &error.to_string())) else { return };
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        "0",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(server.over_socket("GET", "/v1/server", "").status, 200);
}

#[test]
fn the_token_is_in_no_place_that_other_users_can_read() {
    let env = TestEnv::as_me();
    let server = Server::start(&env, &[]);
    assert_eq!(server.get("/v1/jobs").status, 200);
    let pid = server.running.front.pid;
    for file in ["cmdline", "environ"] {
        let text = fs::read(format!("/proc/{pid}/{file}")).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains(&server.token), "{file}");
    }
    assert!(!server.running.stderr().contains(&server.token));
    for name in ["token", "state.json", "lock"] {
        let mode = fs::metadata(env.home().join("serve").join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name}");
    }
    assert!(!fs::read_to_string(env.home().join("serve/state.json")).unwrap().contains(&server.token));
}

#[test]
fn a_browser_is_opened_only_where_the_policy_allows_run() {
    let env = TestEnv::as_me();
    let opened = env.path("opened");
    let browser = env.script("xdg-open", &format!("#!/bin/sh\necho \"$1\" >{}\n", opened.display()));
    let path = format!("{}:/usr/bin:/bin", browser.parent().unwrap().display());
    let serve = || env.quell("serve").args(["--port", "0", "--open"]).env("PATH", &path);
    let policy = env.write("policy.toml", "[guard]\nmax_effect = \"read\"\n");
    let refused = serve().env("QUELL_CONFIG", &policy).finish();
    assert_eq!(refused.code(), Some(4), "{}", refused.stderr);
    assert!(!opened.exists());
    let server = Server::of(&env, serve().start());
    assert!(quell_tests::eventually(PATIENCE, || opened.exists()));
    drop(server);
    let audit = fs::read_to_string(env.home().join("audit.jsonl")).unwrap();
    assert_eq!(audit.lines().filter(|line| line.contains("xdg-open")).count(), 2, "{audit}");
}
