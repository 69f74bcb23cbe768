//! How clients shut a server down: by closing its input, by signals, by killing the front. A server that cleans up gets the
//! time for it, and nothing is left.

use std::{
    thread,
    time::{Duration, Instant},
};

use quell_tests::{
    UNIGNORED, all_hold, eventually,
    evidence::{cause, grace_used, says_gone, was_killed},
    host::Setting,
    rounds,
    run::PATIENCE,
};

use super::{Kind, await_signals, cleaned, my_place, place, server, signals, the_receipt, wrap};
use crate::{run::job_control::in_a_terminal, stop::races::pause_up_to};

const NONE: [String; 0] = [];

/// When the step of this kind was taken, in seconds.
fn time_of(receipt: &serde_json::Value, kind: &str) -> Option<f64> {
    let steps = receipt["steps"].as_array()?;
    steps.iter().find(|step| step["step"] == kind)?["at"].as_f64()
}

#[test]
fn a_server_that_exits_at_the_end_of_its_input_is_not_asked() {
    for setting in Setting::all() {
        for kind in Kind::ALL {
            let env = place(setting);
            let (stdin, mut client) = kind.open();
            let running = wrap(&env, setting).stdin(stdin).command(["cat"]).start();
            client.write_all(b"the last question\n").expect("room in the pipe");
            drop(client);
            let done = running.finish();
            assert_eq!((done.code(), &*done.stdout, &*done.stderr), (Some(0), "the last question\n", ""));
            let receipt = the_receipt(&env);
            assert_eq!(cause(&receipt), "own_exit", "{setting}, {kind:?}");
            assert_eq!(time_of(&receipt, "ask"), None, "{receipt}");
            assert_eq!(env.leftovers(), NONE);
        }
    }
}

#[test]
fn a_server_that_ignores_the_end_of_its_input_is_asked_after_the_eof_grace() {
    for setting in Setting::all() {
        for kind in Kind::ALL {
            let env = place(setting);
            let (running, client) = server(wrap(&env, setting), kind, 100);
            drop(client);
            let done = running.finish();
            let receipt = the_receipt(&env);
            assert_eq!((done.code(), &*done.stderr), (Some(0), ""), "{setting}, {kind:?}: {receipt}");
            assert_eq!((signals(&env), cleaned(&env)), (vec!["15".to_owned()], true));
            assert_eq!(cause(&receipt), "input_closed");
            let (closed, asked) = (time_of(&receipt, "input_closed"), time_of(&receipt, "ask"));
            let waited = asked.expect("asked") - closed.expect("closed");
            assert!(waited >= 1.5, "asked after {waited} s: {receipt}");
            assert_eq!(env.leftovers(), NONE);
        }
    }
}

#[test]
fn a_socket_that_its_client_shuts_down_for_writing_counts_as_closed() {
    let env = my_place();
    let (running, client) = server(env.quell("wrap").args(["--eof-grace", "10ms"]), Kind::Socket, 0);
    let super::ClientEnd::Socket(socket) = &client else { unreachable!() };
    socket.shutdown(std::net::Shutdown::Write).expect("a connected socket");
    assert_eq!(running.finish().code(), Some(0));
    assert_eq!(cause(&the_receipt(&env)), "input_closed");
}

#[test]
fn what_was_written_before_the_hang_up_can_still_be_read() {
    for kind in Kind::ALL {
        let env = my_place();
        let (stdin, mut client) = kind.open();
        client.write_all(b"one\ntwo\n").expect("room in the pipe");
        drop(client);
        // The input is closed before the server runs, and it takes a while to read it.
        let done = env.quell("wrap").stdin(stdin).sh("sleep 0.3; read line; echo $line; exec cat").finish();
        assert_eq!((done.code(), &*done.stdout), (Some(0), "one\ntwo\n"), "{kind:?}: {}", done.stderr);
    }
}

#[test]
fn a_deaf_server_is_killed_in_silence() {
    for setting in Setting::all() {
        let env = place(setting);
        let (stdin, client) = Kind::Pipe.open();
        let times = ["--eof-grace", "100ms", "--grace", "300ms"];
        let mut running = wrap(&env, setting).args(times).stdin(stdin).actor("ignore-term", None).start();
        running.wait_ready().expect("the server is up");
        drop(client);
        let done = running.finish();
        assert_eq!((done.code(), &*done.stderr), (Some(137), ""), "{setting}");
        let receipt = the_receipt(&env);
        says_gone(&receipt).expect("gone");
        assert_eq!((cause(&receipt), was_killed(&receipt)), ("input_closed", true));
        assert_eq!(env.leftovers(), NONE);
    }
}

#[test]
fn each_signal_reaches_the_server_as_it_is_once_and_does_not_shorten_the_grace() {
    for (order, numbers) in
        [(["INT", "TERM", "HUP"], ["2", "15", "1"]), (["HUP", "QUIT", "TERM"], ["1", "3", "15"])]
    {
        for setting in Setting::all() {
            let env = place(setting);
            let quell = wrap(&env, setting).wrapped(UNIGNORED);
            let (running, _client) = server(quell, Kind::Socket, 800);
            for (count, signal) in order.iter().enumerate() {
                assert!(running.front.signal(signal));
                await_signals(&env, count + 1);
                assert!(running.front.signal(signal), "the same again");
            }
            let done = running.finish();
            assert_eq!((done.code(), &*done.stderr), (Some(0), ""), "{order:?} under {setting}");
            assert_eq!(signals(&env), numbers, "{order:?} under {setting}");
            assert!(cleaned(&env));
            let receipt = the_receipt(&env);
            assert_eq!((cause(&receipt), &receipt["actor"]["signal"]), ("user", &order[0].into()));
            assert_eq!(env.leftovers(), NONE);
        }
    }
}

#[test]
fn the_shutdown_of_claude_code_leaves_a_server_its_cleanup() {
    let settings = Setting::all();
    let cases: Vec<(usize, Setting)> = (0..rounds()).map(|n| (n, settings[n % settings.len()])).collect();
    all_hold(2, &cases, |&(round, setting)| {
        let env = place(setting);
        let (mut running, _client) = server(wrap(&env, setting).wrapped(UNIGNORED), Kind::Socket, 300);
        let began = Instant::now();
        running.front.signal("INT");
        // INT, 100 ms, TERM, 400 ms, KILL is what the client does, each 20 ms sooner or later.
        thread::sleep(Duration::from_millis(80));
        let first = pause_up_to(40_000);
        running.front.signal("TERM");
        thread::sleep(Duration::from_millis(380));
        let second = pause_up_to(40_000);
        running.front.signal("KILL");
        let what = format!("round {round}, {setting}, {first:?}, {second:?}, {:?}", began.elapsed());
        running.wait_exit(PATIENCE).ok_or(format!("{what}: quell did not return"))?;
        let left = env.leftovers_after(PATIENCE);
        let receipt = the_receipt(&env);
        says_gone(&receipt).map_err(|why| format!("{what}: {why}"))?;
        if !left.is_empty() || !cleaned(&env) || was_killed(&receipt) {
            return Err(format!("{what}: cleaned: {}, left: {left:?}, {receipt}", cleaned(&env)));
        }
        Ok(())
    });
}

#[test]
fn a_front_that_is_killed_during_the_grace_leaves_the_server_the_rest_of_it() {
    for setting in Setting::all() {
        let env = place(setting);
        let quell = wrap(&env, setting).args(["--grace", "20s"]).wrapped(UNIGNORED);
        // Longer than the grace of a server whose front is killed without a sign.
        let (mut running, _client) = server(quell, Kind::Socket, 1500);
        running.front.signal("INT");
        await_signals(&env, 1);
        running.front.signal("KILL");
        running.wait_exit(PATIENCE).expect("killed");
        assert_eq!(env.leftovers_after(PATIENCE), NONE, "{setting}");
        let receipt = the_receipt(&env);
        assert!(cleaned(&env) && !was_killed(&receipt), "{setting}: {receipt}");
        assert_eq!((cause(&receipt), signals(&env)), ("user", vec!["2".to_owned()]));
    }
}

#[test]
fn a_front_that_is_killed_during_the_eof_grace_leaves_the_server_the_rest_of_it() {
    let env = my_place();
    let (mut running, client) = server(env.quell("wrap").args(["--eof-grace", "1s"]), Kind::Pipe, 300);
    drop(client);
    running.front.signal("KILL");
    running.wait_exit(PATIENCE).expect("killed");
    assert_eq!(env.leftovers_after(PATIENCE), NONE);
    let receipt = the_receipt(&env);
    assert!(cleaned(&env) && !was_killed(&receipt), "{receipt}");
    // If the keeper saw the death of the front first, that is the first sign.
    if cause(&receipt) != "front_lost" {
        let waited =
            time_of(&receipt, "ask").expect("asked") - time_of(&receipt, "input_closed").expect("closed");
        assert!(waited >= 1.0, "asked after {waited} s: {receipt}");
    }
}

#[test]
fn a_front_that_is_killed_without_a_sign_leaves_the_server_a_second() {
    for setting in Setting::all() {
        let env = place(setting);
        let (mut running, _client) = server(wrap(&env, setting), Kind::Pipe, 300);
        running.front.signal("KILL");
        running.wait_exit(PATIENCE).expect("killed");
        assert_eq!(env.leftovers_after(PATIENCE), NONE, "{setting}");
        let receipt = the_receipt(&env);
        assert!(cleaned(&env) && !was_killed(&receipt), "{setting}: {receipt}");
        assert_eq!((cause(&receipt), receipt["grace"]["asked"].as_f64()), ("front_lost", Some(1.0)));
    }
}

#[test]
fn signals_and_the_end_of_the_input_together_are_one_shutdown() {
    // Codex: TERM and EOF at once. Gemini: TERM, EOF after 20 ms. The SDKs: EOF, TERM two seconds later; here in the middle of
    // the time that the server has to exit by itself.
    for (first, pause, second) in
        [("TERM", 0, "eof"), ("TERM", 20, "eof"), ("eof", 0, "TERM"), ("eof", 500, "TERM")]
    {
        let env = my_place();
        let (running, client) = server(env.quell("wrap"), Kind::Pipe, 300);
        let mut client = Some(client);
        let mut send = |what: &str| match what {
            "eof" => drop(client.take()),
            signal => assert!(running.front.signal(signal)),
        };
        send(first);
        thread::sleep(Duration::from_millis(pause));
        send(second);
        let done = running.finish();
        let receipt = the_receipt(&env);
        assert_eq!((done.code(), &*done.stderr), (Some(0), ""), "{first}, {pause}, {second}: {receipt}");
        assert_eq!((signals(&env), cleaned(&env)), (vec!["15".to_owned()], true));
        assert_eq!(cause(&receipt), "user", "{first}, {pause}, {second}: {receipt}");
        assert_eq!(env.leftovers(), NONE);
    }
}

#[test]
fn a_browser_that_a_server_leaves_is_stopped_in_silence_and_the_exit_code_is_the_servers() {
    for setting in Setting::all() {
        let env = place(setting);
        let (stdin, _client) = Kind::Socket.open();
        let script = "trap '' TERM INT HUP; setsid sleep $N </dev/null >/dev/null 2>&1 & exit 7";
        let quell = wrap(&env, setting).args(["--grace", "200ms"]);
        let done = quell.stdin(stdin).script(script).finish();
        assert_eq!((done.code(), &*done.stderr), (Some(7), ""), "{setting}");
        let receipt = the_receipt(&env);
        says_gone(&receipt).expect("gone");
        assert!(was_killed(&receipt), "{receipt}");
        assert_eq!(env.leftovers(), NONE);
    }
}

#[test]
fn a_server_that_hangs_is_left_alone_while_its_client_is_there() {
    let env = my_place();
    let (mut running, client) =
        server(env.quell("wrap").args(["--eof-grace", "0s", "--grace", "0s"]), Kind::Pipe, 0);
    // Nothing should happen, so there is no event to wait for.
    assert_eq!(running.wait_exit(Duration::from_millis(700)), None);
    assert_eq!(signals(&env), NONE);
    drop(client);
    assert!(running.wait_exit(PATIENCE).is_some());
}

#[test]
fn a_stop_by_name_stops_a_wrapped_server() {
    let env = my_place();
    let (running, _client) = server(env.quell("wrap").args(["--name", "files"]), Kind::Socket, 100);
    let stopped = env.quell("stop").args(["files"]).finish();
    assert_eq!(stopped.code(), Some(0), "{}", stopped.stderr);
    let done = running.finish();
    assert_eq!((done.code(), &*done.stderr, cleaned(&env)), (Some(0), "", true));
    assert!(grace_used(&the_receipt(&env)).is_some());
}

#[test]
fn the_keys_of_a_terminal_are_for_the_client() {
    in_a_terminal("the_keys_of_a_terminal_are_for_the_client", |env, terminal, run| {
        let wrap = run.replace("$Q run", "$Q wrap --name it");
        terminal.line(&format!("{wrap} $A server $T 100"));
        let front =
            || env.oracle.survivors().into_iter().find(|process| process.command.contains(" wrap --name"));
        assert!(eventually(PATIENCE, || front().is_some() && env.path("signals").exists()));
        let front = front().expect("the front");
        for key in ["C-c", "C-z", "C-\\"] {
            terminal.key(key);
        }
        // The keys were handled when the terminal has passed on what was typed behind them.
        terminal.line("echo behind the keys");
        terminal.wait_for("echo", |screen| screen.contains("behind the keys"));
        assert_eq!(signals(env), NONE);
        assert!(front.state().is_some_and(|state| "SR".contains(state)), "{:?}", front.state());
        let stopped = env.quell("stop").args(["it"]).finish();
        assert_eq!(stopped.code(), Some(0), "{}", stopped.stderr);
        assert_eq!(signals(env), ["15"]);
    });
}
