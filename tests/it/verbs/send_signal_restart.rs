//! `quell send`, `quell signal` and `quell restart`.

use std::{fs, fs::File, time::Duration};

use quell_tests::{
    eventually,
    faults::{self, Fault},
    jobs::Background,
    run::{Finished, PATIENCE},
    skip,
    test_env::TestEnv,
};

fn to(env: &TestEnv, verb: &str, job: &Background<'_>, words: &[&str]) -> Finished {
    env.quell(verb).args([job.id.as_str()]).args(words).finish()
}

#[test]
fn what_is_sent_is_read_and_the_end_is_the_end() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--stdin", "pipe"]).command(["cat"]).begin();
    assert_eq!(to(&env, "send", &job, &["two", "words"]).code(), Some(0));
    assert_eq!(to(&env, "send", &job, &["--no-newline", "no end"]).code(), Some(0));
    let input: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    fs::write(env.path("input"), &input).expect("a file");
    let done = to(&env, "send", &job, &["--file", "input", "--json"]);
    assert_eq!((done.code(), &done.envelope()["data"]["bytes"]), (Some(0), &input.len().into()));
    let own = File::open(env.path("input")).expect("the file");
    let done = env.quell("send").args([job.id.as_str(), "--eof"]).stdin(own).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(job.wait_over(PATIENCE), "cat goes on: {}", job.state());
    let read = fs::read(job.dir().join("stdout.log")).expect("the output");
    assert!(read == [b"two words\nno end", &input[..], &input[..]].concat(), "{} bytes", read.len());
    let late = to(&env, "send", &job, &["more"]);
    assert_eq!(late.code(), Some(1));
}

#[test]
fn a_program_that_never_reads_is_not_waited_for_for_ever() {
    let env = TestEnv::as_me();
    let fifo = env.path("go");
    let made = std::process::Command::new("mkfifo").arg("-m666").arg(&fifo).status();
    assert!(made.is_ok_and(|status| status.success()));
    let job = env.start().args(["--stdin", "pipe"]).sh("read line <go; cat | wc -c").begin();
    fs::write(env.path("input"), vec![b'x'; 300_000]).expect("a file");
    let done = to(&env, "send", &job, &["--file", "input", "--timeout", "300ms", "--json"]);
    assert_eq!(done.code(), Some(6));
    let error = done.envelope()["error"].clone();
    assert_eq!(error["code"], "timed_out");
    let sent = error["details"]["sent"].as_u64().expect("how much");
    assert!((1..300_000).contains(&sent), "{sent}");
    // Nothing of the rest arrives later: neither of this one nor of one that was killed while it waited.
    let mut killed = env.quell("send").args([job.id.as_str(), "--file", "input"]).start();
    assert!(eventually(PATIENCE, || killed.front.state() == Some('S')));
    std::thread::sleep(Duration::from_millis(200)); // It waits in a read, as it did before it had said anything.
    assert!(killed.front.signal("KILL") && killed.wait_exit(PATIENCE).is_some());
    // The keeper hears of that by the end of the line, and before anything that is asked later.
    assert_eq!(to(&env, "tree", &job, &[]).code(), Some(0));
    fs::write(&fifo, "go\n").expect("the fifo");
    assert_eq!(to(&env, "send", &job, &["--file", "/dev/null", "--eof"]).code(), Some(0));
    assert!(job.wait_over(PATIENCE));
    assert_eq!(job.output("stdout").trim(), sent.to_string());
}

#[test]
fn a_terminal_is_written_to_and_ended() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--pty"]).sh("stty -echo; echo up; cat; echo over").begin();
    assert!(eventually(PATIENCE, || job.output("stdout").contains("up")));
    assert_eq!(to(&env, "send", &job, &["hello"]).code(), Some(0));
    assert!(eventually(PATIENCE, || job.output("stdout").contains("hello")));
    // In the midst of a line, too.
    assert_eq!(to(&env, "send", &job, &["--no-newline", "--eof", "half"]).code(), Some(0));
    assert!(job.wait_over(PATIENCE), "{}", job.output("stdout"));
    assert_eq!(job.output("stdout").replace('\r', ""), "up\nhello\nhalfover\n");
}

/// A tab is a control character, and no end of a line: the first ^D behind it only hands over what there is of it.
#[test]
fn a_terminals_input_ends_also_behind_a_tab() {
    let env = TestEnv::as_me();
    let job = env.start().args(["--pty"]).sh("stty -echo; echo up; cat >got").begin();
    assert!(eventually(PATIENCE, || job.output("stdout").contains("up")));
    assert_eq!(to(&env, "send", &job, &["--no-newline", "abc\t", "--eof"]).code(), Some(0));
    assert!(job.wait_over(PATIENCE), "cat goes on: {}", job.state());
    assert_eq!(fs::read_to_string(env.path("got")).expect("what it read"), "abc\t");
}

#[test]
fn a_job_without_an_input_says_so() {
    let env = TestEnv::as_me();
    let job = env.start().command(["sleep", "300"]).begin();
    for words in [&["x"][..], &["--eof", "--file", "/dev/null"]] {
        let done = to(&env, "send", &job, words);
        assert_eq!(done.code(), Some(1), "{words:?}");
        assert!(done.stderr.contains("--stdin pipe"), "{}", done.stderr);
    }
    assert_eq!(to(&env, "send", &job, &["x", "--file", "y"]).code(), Some(2));
    assert_eq!(env.quell("send").args(["nosuch", "x"]).finish().code(), Some(3));
}

#[test]
fn a_signal_reaches_the_root_or_the_tree_and_an_unknown_signal_is_not_sent() {
    let env = TestEnv::as_me();
    let script = "trap 'echo hup' HUP; trap 'echo usr1' USR1
        (trap 'echo child' USR1; trap '' HUP; echo ready >$QUELL_TEST_READY; while :; do sleep 0.05; done) &
        while :; do sleep 0.05; done";
    let job = env.start().script(script).begin();
    let done = to(&env, "signal", &job, &["hup"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stdout.ends_with("HUP sent to 1 process\n"), "{}", done.stdout);
    assert!(eventually(PATIENCE, || job.output("stdout").contains("hup")));
    for (word, says) in
        [("TREM", "did you mean TERM?"), ("99", "invalid signal"), ("KILLALL", "invalid signal")]
    {
        let done = to(&env, "signal", &job, &[word]);
        assert_eq!(done.code(), Some(2), "{word}");
        assert!(done.stderr.contains(says), "{}", done.stderr);
    }
    let done = to(&env, "signal", &job, &["SIGUSR1", "--tree", "--json"]);
    assert!(done.envelope()["data"]["sent"].as_u64() >= Some(2), "{}", done.stdout);
    let got = |word: &str| job.output("stdout").lines().any(|line| line == word);
    assert!(eventually(PATIENCE, || got("usr1") && got("child")), "{}", job.output("stdout"));
    assert_eq!(job.state(), "running");
    assert_eq!(to(&env, "signal", &job, &["KILL"]).code(), Some(0));
    assert!(job.wait_over(PATIENCE));
    let late = to(&env, "signal", &job, &["HUP", "--json"]);
    assert_eq!((late.code(), &late.envelope()["error"]["code"]), (Some(1), &"wrong_state".into()));
}

/// P9: the caller of a `quell signal` that killed the root is known, and a kill without quell is not attributed to it.
#[test]
fn a_death_of_a_signal_that_was_asked_for_is_its_askers() {
    let env = TestEnv::as_me();
    for word in ["TERM", "KILL", "ABRT"] {
        let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
        assert_eq!(to(&env, "signal", &job, &[word]).code(), Some(0));
        assert!(job.wait_over(PATIENCE), "{word}: {}", job.state());
        assert!(job.events().contains(&"signaled".into()), "{word}: {:?}", job.events());
        let last = job.record().expect("a record")["last"].take();
        assert_eq!(
            (&last["ending"]["cause"], &last["ending"]["actor"]["kind"]),
            (&"user_signal".into(), &"client".into()),
            "{word}"
        );
        assert_eq!(job.receipt().expect("a receipt")["actor"], last["ending"]["actor"], "{word}");
        assert_eq!(last["outcome"]["signal"], word);
        let status = env.quell("status").args([&job.id]).finish().stdout;
        assert!(status.contains("a signal was sent (pid "), "{status}");
    }
    let script = "trap '' USR1; echo ready >$QUELL_TEST_READY; sleep $N & wait";
    let job = env.start().script(script).begin();
    assert_eq!(to(&env, "signal", &job, &["USR1"]).code(), Some(0));
    assert!(job.process("root").expect("a root").signal("KILL"));
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    assert_eq!(job.record().expect("a record")["last"]["ending"]["cause"], "external_signal");
}

#[test]
fn a_signal_that_the_root_has_handled_is_not_the_cause_of_a_later_death() {
    let env = TestEnv::as_me();
    let script = "trap 'echo handled' USR1; echo up
        until [ -e go ]; do sleep 0.02; done
        trap - USR1; echo down; exec sleep $N";
    let job = env.start().env("N", env.oracle.nap()).sh(script).begin();
    let has_said = |word| eventually(PATIENCE, || job.output("stdout").lines().any(|line| line == word));
    assert!(has_said("up"));
    assert_eq!(to(&env, "signal", &job, &["USR1"]).code(), Some(0));
    assert!(has_said("handled"));
    // A program may handle a signal by sending it to itself again: for half a second its death is put down to the first one.
    std::thread::sleep(Duration::from_millis(600));
    env.write("go", "");
    assert!(has_said("down"));
    assert!(job.process("root").expect("a root").signal("USR1"));
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    let receipt = job.receipt().expect("a receipt");
    assert_eq!(
        (&receipt["cause"], &receipt["actor"]["kind"]),
        (&"external_signal".into(), &"unknown".into()),
        "{receipt:#}"
    );
}

#[test]
fn a_handler_that_sends_its_signal_again_dies_of_the_first_one() {
    let env = TestEnv::as_me();
    let script = "trap 'trap - TERM; kill -TERM $$' TERM; echo up; while :; do sleep 0.02; done";
    let job = env.start().sh(script).begin();
    assert!(eventually(PATIENCE, || job.output("stdout") == "up\n"));
    assert_eq!(to(&env, "signal", &job, &["TERM"]).code(), Some(0));
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    assert_eq!(job.receipt().expect("a receipt")["cause"], "user_signal");
}

#[test]
fn a_restart_has_a_new_id_and_the_same_command_place_and_name() {
    let env = TestEnv::as_me();
    fs::create_dir(env.path("place")).expect("a directory");
    let script = "echo $COLOUR; pwd; printf '%s\\n' \"$1\"; exec sleep 300";
    let old = env
        .start()
        .args(["--name", "web", "--tag", "a=b", "--cwd", "place", "--env", "COLOUR=red"])
        .command(["sh", "-c", script, "sh", "a  'b'"])
        .begin();
    assert!(eventually(PATIENCE, || old.output("stdout").lines().count() == 3));
    let done = env.quell("restart").args(["web"]).env("COLOUR", "blue").finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let new = env.job(done.stdout.trim());
    assert!(new.id != old.id && old.is_over() && !new.is_over());
    assert!(
        eventually(PATIENCE, || new.output("stdout") == old.output("stdout")),
        "{}",
        new.output("stdout")
    );
    let done = env.quell("restart").args([old.id.as_str(), "--json"]).finish();
    assert_eq!(done.code(), Some(1), "a live job has the name: {}", done.stdout);
    let done = env.quell("restart").args(["web", "--json", "--now"]).finish();
    let data = done.envelope()["data"].clone();
    assert_eq!((&data["restarted_from"], &data["job"]["name"]), (&new.id.as_str().into(), &"web".into()));
    assert_eq!(data["job"]["tags"]["a"], "b");
    assert_eq!(env.quell("stop").args(["--all", "--now"]).finish().code(), Some(0));
}

#[test]
fn a_tree_that_ignores_the_request_is_gone_before_its_successor_comes() {
    let env = TestEnv::as_me();
    let script = "trap '' TERM; (setsid sh -c \"trap '' TERM; sleep $N; sleep $N\") & echo ready >$QUELL_TEST_READY; sleep $N; sleep $N";
    let old = env.start().script(script).begin();
    let keepers = ["keeper", "standby", "root"].map(|role| old.process(role).expect(role));
    let done = to(&env, "restart", &old, &["--grace", "1s"]);
    // Before it waits for the keepers, which may take a moment to exit.
    assert!(!keepers[2].is_alive(), "the old program runs beside the new one");
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(eventually(PATIENCE, || keepers.iter().all(|process| !process.is_alive())));
    let receipt = old.receipt().expect("a receipt");
    assert_eq!(receipt["verdict"]["kind"], "gone");
    let new = env.job(done.stdout.trim());
    assert_eq!(new.stop(&["--now"]).code(), Some(0));
    assert_eq!(env.oracle.survivors_after(PATIENCE).len(), 0);
}

#[test]
fn a_restart_waits_for_readiness_and_refuses_what_it_can_not_do() {
    let env = TestEnv::as_me();
    let job = env
        .start()
        .args(["--name", "web", "--ready-log", "^up$"])
        .sh("sleep 0.2; echo up; sleep 300")
        .begin();
    let done = env.quell("restart").args(["web", "--wait-ready", "20s", "--json"]).finish();
    assert_eq!((done.code(), &done.envelope()["data"]["met"]), (Some(0), &"ready".into()));
    drop(job);
    assert_eq!(env.quell("stop").args(["--all", "--now"]).finish().code(), Some(0));
    let plain = env.start().command(["sleep", "300"]).begin();
    let done = to(&env, "restart", &plain, &["--wait-ready", "1s"]);
    assert_eq!((done.code(), plain.state().as_str()), (Some(1), "running"), "{}", done.stderr);
    assert_eq!(env.quell("restart").args(["nosuch"]).finish().code(), Some(3));
}

#[test]
fn a_restart_that_can_not_be_stops_nothing() {
    let env = TestEnv::as_me();
    fs::create_dir(env.path("place")).expect("a directory");
    let [input, place, program] = ["in.txt", "place", "nap"].map(|name| env.path(name));
    fs::write(&input, "x").expect("a file");
    fs::copy("/bin/sleep", &program).expect("a copy");
    let begin = |options: &[&str]| env.start().args(options);
    let read = begin(&["--stdin", "in.txt"]).command(["sleep", "300"]).begin();
    let there = begin(&["--cwd", "place"]).command(["sleep", "300"]).begin();
    let file = begin(&[]).command(["./nap", "300"]).begin();
    let given = begin(&["--stdin", "-"]).command(["sleep", "300"]).begin();
    fs::remove_file(input).and_then(|()| fs::remove_dir(place)).expect("removed");
    fs::remove_file(program).expect("removed");
    for (job, code) in [(&read, 125), (&there, 125), (&file, 127), (&given, 1)] {
        let done = to(&env, "restart", job, &[]);
        assert_eq!((done.code(), job.state().as_str()), (Some(code), "running"), "{}", done.stderr);
    }
}

#[test]
fn a_stop_during_a_restart_wins() {
    let env = TestEnv::as_me();
    let script = "trap 'until [ -e go ]; do sleep 0.01; done; exit 0' TERM; echo ready >$QUELL_TEST_READY; while :; do sleep 0.01; done";
    let old = env.start().args(["--name", "web", "--grace", "60s"]).script(script).begin();
    let restart = env.quell("restart").args(["web"]).start();
    let asked = || old.events().iter().filter(|event| *event == "stop_asked").count();
    assert!(eventually(PATIENCE, || asked() == 1), "{:?}", old.events());
    let stop = env.quell("stop").args(["web"]).start();
    assert!(eventually(PATIENCE, || asked() == 2), "{:?}", old.events());
    fs::write(env.path("go"), "").expect("a file");
    assert_eq!(stop.finish().code(), Some(0));
    let restart = restart.finish();
    assert_eq!(restart.code(), Some(1), "{}", restart.stdout);
    assert!(
        restart.stderr.contains("was stopped by another request during the restart"),
        "{}",
        restart.stderr
    );
    assert_eq!(env.ids("live"), Vec::<String>::new());
}

#[test]
fn a_stop_between_the_end_of_a_job_and_its_restart_stops_the_new_job() {
    let name = "a_stop_between_the_end_of_a_job_and_its_restart_stops_the_new_job";
    if let Err(why) = faults::binary() {
        return skip(name, &why);
    }
    let env = TestEnv::as_me();
    let old = env.start().args(["--name", "web"]).command(["sleep", "300"]).begin();
    let fault = Fault("command.restart_stopped:stop".into());
    let restart = env.faulty("restart", &fault).args(["web"]).start();
    assert!(eventually(PATIENCE, || env.hit(&fault).is_some()), "the restart has stopped the job");
    assert!(old.is_over());
    let stop = env.quell("stop").args(["web"]).start();
    // Nothing shows that the stop waits, so it has some time to be wrong.
    assert!(!eventually(Duration::from_millis(500), || !stop.front.is_alive()));
    assert!(restart.front.signal("CONT"));
    assert_eq!(restart.finish().code(), Some(0));
    assert_eq!(stop.finish().code(), Some(0));
    assert_eq!(env.ids("live"), Vec::<String>::new());
}

#[test]
fn of_many_restarts_of_a_job_one_succeeds() {
    let env = TestEnv::as_me();
    let old = env.start().command(["sleep", "300"]).begin();
    let all: Vec<_> = (0..5).map(|_| env.quell("restart").args([&old.id]).start()).collect();
    let codes: Vec<_> = all.into_iter().map(|one| one.finish().code()).collect();
    assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1, "{codes:?}");
    assert!(codes.iter().all(|code| [Some(0), Some(1)].contains(code)), "{codes:?}");
    let live = env.ids("live");
    assert_eq!(live.len(), 1, "{live:?}");
    // Nor later, also not by way of the one that came of it.
    let done = to(&env, "restart", &env.job(&live[0]), &[]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let done = to(&env, "restart", &old, &["--json"]);
    assert_eq!(done.envelope()["error"]["code"], "wrong_state", "{}", done.stdout);
    assert_eq!(env.ids("live").len(), 1);
    assert_eq!(env.quell("stop").args(["--all", "--now"]).finish().code(), Some(0));
}

#[test]
fn a_restart_looks_for_readiness_as_often_as_was_said() {
    let env = TestEnv::as_me();
    let start = env.start().args(["--ready-cmd", "echo x >>looks; false"]);
    let old = start.env("QUELL_READY_INTERVAL", "20s").env("QUELL_READY_TIMEOUT", "7s");
    let old = old.command(["sleep", "300"]).begin();
    let launch = |job: &Background<'_>| {
        let text = fs::read_to_string(job.dir().join("launch.private.json")).expect("launch.private.json");
        let launch: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let ready = &launch["request"]["mode"]["background"]["ready"];
        (ready["interval"].clone(), ready["timeout"].clone())
    };
    let done = to(&env, "restart", &old, &["--now"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let new = env.job(done.stdout.trim());
    assert_eq!(launch(&new), (20.0.into(), 7.0.into()));
    assert_eq!(env.quell("stop").args(["--all", "--now"]).finish().code(), Some(0));
}
