//! The client of a server exits or is killed, and the end of the input does not tell: another process holds it.

use std::{
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use quell_tests::{
    all_hold, eventually,
    evidence::{cause, says_gone},
    host::{Setting, User},
    oracle::Process,
    rounds,
    run::{PATIENCE, Quell, Running},
    test_env::{TestEnv, copy_program},
};

use super::{cleaned, ends_clean, members, my_place, place, wrap};
use crate::{recovery::lost_jobs::only_receipt, stop::races::pause_up_to};

/// A client that is not a shell by its name: it runs what follows as a child, and waits.
fn agent(env: &TestEnv) -> PathBuf {
    let path = env.path("agent");
    if !path.exists() {
        copy_program(Path::new("/bin/sh"), &path);
    }
    path
}

/// Starts quell as the child of a client with this script, in which `"$@"` is quell. The process that is started is the client.
fn start(env: &TestEnv, quell: Quell<'_>, stdin: File, script: &str) -> Running {
    let agent = agent(env).display().to_string();
    let mut running = quell.wrapped([&agent, "-c", script, "agent"]).stdin(stdin).start();
    running.wait_ready().expect("the server is up");
    running
}

/// The input of a server whose other end is held here: by a third process, for client and server.
fn leaked() -> (File, std::io::PipeWriter) {
    let (read, write) = std::io::pipe().expect("a pipe");
    (OwnedFd::from(read).into(), write)
}

/// The receipt says that the client is gone, and names it.
fn names(receipt: &serde_json::Value, client: &Process, name: &str) -> Result<(), String> {
    says_gone(receipt)?;
    let actor = &receipt["actor"];
    let named = actor["kind"] == "owner" && actor["command"] == name && actor["pid"] == client.pid;
    let noted = receipt["steps"].as_array().is_some_and(|steps| {
        let note = format!("its owner {name} (pid {}) is gone", client.pid);
        steps.iter().any(|step| step["step"] == "stop_asked" && step["note"] == note.as_str())
    });
    if cause(receipt) == "owner_gone" && named && noted { Ok(()) } else { Err(format!("{receipt}")) }
}

#[test]
fn a_server_ends_with_its_client_though_its_input_stays_open() {
    for setting in Setting::all() {
        for signal in ["KILL", "TERM", "SEGV"] {
            let env = place(setting);
            let (stdin, _held) = leaked();
            let client =
                start(&env, wrap(&env, setting).actor("server", Some("100")), stdin, r#""$@"; exit $?"#);
            assert!(client.front.signal(signal));
            let receipt = ends_clean(&env, &format!("{setting}, {signal}"));
            names(&receipt, &client.front, "agent").unwrap_or_else(|why| panic!("{setting}: {why}"));
            assert!(cleaned(&env), "{setting}, {signal}");
        }
    }
}

#[test]
fn a_client_may_be_killed_at_any_instant() {
    let settings = Setting::all();
    let count = rounds().div_ceil(2);
    let cases: Vec<(usize, Setting)> = (0..count).map(|n| (n, settings[n % settings.len()])).collect();
    all_hold(2, &cases, |&(round, setting)| {
        let env = place(setting);
        let quell = wrap(&env, setting).args(["--grace", "300ms"]).actor("setsid", None);
        // With the leak only the death of the client tells; without it the input is closed too, by the client alone.
        let is_leaked = round % 2 == 0;
        let (stdin, held) = leaked();
        let fifo = env.fifo();
        let script = if is_leaked { r#""$@"; exit $?"# } else { r#"exec 9<>"$F"; "$@" <"$F" 9<&-; exit $?"# };
        let agent = agent(&env).display().to_string();
        let quell = quell.env("F", &fifo).wrapped([&agent, "-c", script, "agent"]).stdin(stdin);
        let mut client = quell.start();
        let held = is_leaked.then_some(held);
        // Before quell runs, while it starts the server, or later.
        let pause = pause_up_to(60_000);
        client.front.signal("KILL");
        client.wait_exit(PATIENCE).ok_or("the client lives")?;
        let left = env.leftovers_after(PATIENCE);
        drop(held);
        if !left.is_empty() {
            let receipt = only_receipt(&env);
            return Err(format!("round {round}, {setting}, killed after {pause:?}: {left:?}: {receipt:?}"));
        }
        Ok(())
    });
}

#[test]
fn a_client_that_is_gone_before_quell_runs_is_noticed() {
    for setting in Setting::all() {
        let env = place(setting);
        let (stdin, _held) = leaked();
        // The child that becomes quell kills its parent first, and goes on when it has been adopted.
        let script = r#"(
            kill -KILL $$
            # Nothing tells a shell that its parent has been reaped.
            while kill -0 $$ 2>/dev/null; do sleep 0.01; done
            exec "$@"
        ); exit $?"#;
        let agent = agent(&env).display().to_string();
        let quell = wrap(&env, setting).actor("setsid", None);
        let mut client = quell.wrapped([&agent, "-c", script, "agent"]).stdin(stdin).start();
        client.wait_exit(PATIENCE).expect("it has killed itself");
        assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new(), "{setting}");
        assert_eq!(env.ids("live"), Vec::<String>::new(), "{setting}");
    }
}

#[test]
fn a_deaf_tree_is_gone_seconds_after_the_death_of_its_client() {
    for setting in Setting::all() {
        let env = place(setting);
        let (stdin, _held) = leaked();
        let script = "trap '' TERM INT HUP; setsid sleep $N & echo ready >$QUELL_TEST_READY; wait; sleep $N";
        let client = start(&env, wrap(&env, setting).script(script), stdin, r#""$@"; exit $?"#);
        assert!(client.front.signal("KILL"));
        let receipt = ends_clean(&env, &setting.to_string());
        names(&receipt, &client.front, "agent").unwrap_or_else(|why| panic!("{setting}: {why}"));
        // Half a second to exit by itself and two seconds of grace; the rest is for a busy machine. The promise is 5 s.
        let used = receipt["grace"]["used"].as_f64().expect("it was asked");
        assert!((2.0..4.5).contains(&used), "{setting}: {receipt}");
    }
}

#[test]
fn a_shell_between_client_and_server_is_not_the_client() {
    let env = my_place();
    for killed in ["agent", "sh"] {
        let (stdin, _held) = leaked();
        let quell = env.quell("wrap").actor("server", Some("0"));
        let client = start(&env, quell, stdin, r#"sh -c '"$@"; exit $?' sh "$@"; exit $?"#);
        let shell = client.front.children().into_iter().next().expect("the shell");
        let id = env.ids("live").pop().expect("a live job");
        let spec = std::fs::read_to_string(env.job(&id).dir().join("spec.json")).expect("a record");
        assert!(spec.contains(r#""client":"agent""#), "{spec}");
        let victim = if killed == "agent" { &client.front } else { &shell };
        let name = if killed == "agent" { "agent".into() } else { comm(&shell) };
        assert!(victim.signal("KILL"));
        // The shell waits for quell, so it goes on until the server has ended.
        assert!(eventually(PATIENCE, || env.job(&id).receipt().is_some()));
        names(&env.job(&id).receipt().unwrap_or_default(), victim, &name)
            .unwrap_or_else(|why| panic!("{killed}: {why}"));
        assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
    }
}

fn comm(process: &Process) -> String {
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", process.pid)).expect("it is alive");
    comm.trim().to_owned()
}

#[test]
fn a_client_that_is_stopped_is_not_gone() {
    let env = TestEnv::in_own_cgroup(User::Ordinary);
    let (stdin, held) = leaked();
    let mut client = start(&env, env.quell("wrap").actor("server", Some("0")), stdin, r#""$@"; exit $?"#);
    assert!(client.front.signal("STOP"));
    // Nothing should happen, so there is no event to wait for.
    assert!(!eventually(Duration::from_millis(800), || members(&env, &client.front).is_empty()));
    assert!(client.front.signal("CONT"));
    drop(held);
    assert!(client.wait_exit(PATIENCE).is_some());
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
}
