//! Whether the account of a stop is true: what each process died of, whether a kill was wanted, what outlived the command.

use std::{fs, time::Duration};

use quell_tests::{
    eventually,
    host::{Contain, Setting},
    oracle::Process,
    run::{PATIENCE, Quell},
    skip,
    test_env::TestEnv,
};
use serde_json::{Value, json};

use crate::jobs::hooks::{ALL, events_in, names_in, told as hook_told};

/// The fates of the members whose command begins with `command`.
fn fates(receipt: &Value, command: &str) -> Vec<String> {
    let members = receipt["members"].as_array().cloned().unwrap_or_default();
    let wanted = members.iter().filter(|m| m["command"].as_str().is_some_and(|c| c.starts_with(command)));
    wanted.map(|member| member["fate"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The word for `fate` under `setting`. The kernel reaps the members of a PID namespace, and tells before Linux 6.15 of
/// none what it died of.
fn told(env: &TestEnv, setting: Setting, fate: &str) -> String {
    if setting.contain == Contain::Pidns && !kernel_tells(env) { "ended".into() } else { fate.into() }
}

#[test]
fn a_process_that_died_of_the_request_exited_on_it_even_with_no_grace() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let job = env
            .start()
            .args(["--contain", setting.contain.as_str()])
            // A shell's child is deaf to TERM until it has become its program.
            .script(
                "for i in 1 2 3; do sleep $N & until grep -q sleep /proc/$!/comm; do :; done; done
                 echo ready >$QUELL_TEST_READY; wait",
            )
            .begin();
        assert_eq!(job.stop(&["--grace", "0"]).code(), Some(0), "{setting}");
        let receipt = job.receipt().expect("a receipt");
        let found = fates(&receipt, "");
        let fate = told(&env, setting, "exited_on_ask");
        assert_eq!(found.len(), 4, "{setting}: {receipt:#}");
        assert!(found.iter().all(|it| *it == fate || it == "exited_on_ask"), "{setting}: {found:?}");
        // No process died of the kill that was sent right behind the request.
        if found.iter().all(|it| it == "exited_on_ask") {
            assert!(receipt["kill"].is_null(), "{setting}: {receipt:#}");
        }
        let tree = env.quell("tree").args([&job.id]).finish().stdout;
        assert!(!tree.contains("ignored") && !tree.contains("still running"), "{setting}: {tree}");
    }
}

#[test]
fn a_slow_handler_was_still_running_and_ignored_nothing() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let job = env
            .start()
            .args(["--contain", setting.contain.as_str()])
            .script("trap 'sleep $N' TERM; echo ready >$QUELL_TEST_READY; while :; do sleep 0.01; done")
            .begin();
        let stopped = job.stop(&["--grace", "200ms"]);
        assert_eq!(stopped.code(), Some(0), "{setting}: {}", stopped.stderr);
        let receipt = job.receipt().expect("a receipt");
        // The root comes first; one of its forks may not have become `sleep` yet.
        let root = fates(&receipt, "bash").first().cloned();
        let fate = told(&env, setting, "killed_after_grace");
        assert_eq!(root.as_ref(), Some(&fate), "{setting}: {receipt:#}");
        if fate == "ended" {
            continue;
        }
        let tree = env.quell("tree").args([&job.id]).finish().stdout;
        assert!(tree.contains("still running after 200ms, killed"), "{setting}: {tree}");
        assert!(!tree.contains("ignored"), "{setting}: {tree}");
        let said = format!("{}{}", stopped.stdout, stopped.stderr);
        assert!(said.contains("still running after 200ms)"), "{setting}: {said}");
    }
}

/// A hook that appends each event to the file `told`.
fn hooked<'l>(env: &'l TestEnv, quell: Quell<'l>) -> Quell<'l> {
    let file = env.path("told").display().to_string();
    let config = env.write("hooked.toml", &format!("[[hooks]]\non = {ALL}\nappend = {file:?}\n"));
    quell.env("QUELL_CONFIG", config)
}

#[test]
fn a_kill_that_was_wanted_is_not_an_escalation() {
    let env = TestEnv::as_me();
    type Case<'a> = (&'a [&'a str], &'a [&'a [&'a str]], &'a str);
    let stops: [Case<'_>; 6] = [
        (&[], &[&["--now"]], "wanted"),
        (&[], &[&["--grace", "0"]], "wanted"),
        (&["--signal", "KILL"], &[&[]], "wanted"),
        (&["--timeout", "1h"], &[&["--grace", "1m", "--json"], &["--now"]], "wanted"),
        (&[], &[&["--grace", "100ms"]], "grace_over"),
        (&[], &[&["--grace", "1m", "--json"], &["--grace", "100ms"]], "grace_over"),
    ];
    for (options, stops, reason) in stops {
        let job = hooked(&env, env.start()).args(options).actor("ignore-term", None).begin();
        let what = format!("{options:?} {stops:?}");
        let mut first =
            (stops.len() > 1).then(|| env.quell("stop").args([job.id.as_str()]).args(stops[0]).start());
        if first.is_some() {
            assert!(eventually(PATIENCE, || job.events().contains(&"asked".into())), "{what}");
        }
        assert_eq!(job.stop(stops[stops.len() - 1]).code(), Some(0), "{what}");
        first.take().map(|first| first.finish());
        let receipt = job.receipt().expect("a receipt");
        assert_eq!(receipt["kill"], reason, "{what}: {receipt:#}");
        let fate = if reason == "wanted" { "killed" } else { "killed_after_grace" };
        assert!(fates(&receipt, "").iter().all(|it| it == fate), "{what}: {receipt:#}");
        // The second request allows less than the first.
        let grace = |what: &str| receipt["grace"][what].as_f64().unwrap_or_default();
        if reason == "grace_over" {
            assert!(grace("asked") >= 0.1 && grace("asked") < 60.0, "{what}: {receipt:#}");
            assert!(grace("used") >= grace("asked") - 0.01, "{what}: {receipt:#}");
        }
        let kills = || {
            let events = events_in(&env.path("told"));
            let of_this = |event: &Value| event["job"] == job.id.as_str() && event["event"] == "killed";
            events.into_iter().filter(of_this).collect::<Vec<_>>()
        };
        assert!(eventually(PATIENCE, || kills().len() == 1), "{what}: {:?}", kills());
        assert_eq!((&kills()[0]["reason"], &kills()[0]["cause"]), (&json!(reason), &json!("user")), "{what}");
    }
    let stats = env.quell("stats").args(["--json"]).finish().envelope();
    let data = &stats["data"];
    assert_eq!((&data["stopped"], &data["killed"]), (&json!(6), &json!(2)), "{stats:#}");
    assert_eq!(data["kill_rate"], json!(1.0), "two were asked and had their grace: {stats:#}");
}

#[test]
fn a_stop_of_a_run_is_accounted_as_that_of_a_background_job() {
    let env = TestEnv::as_me();
    type Case<'a> = (&'a [&'a [&'a str]], &'a str, &'a str);
    let stops: [Case<'_>; 5] = [
        (&[&["--now"]], "wanted", "killed"),
        (&[&["--grace", "0"]], "wanted", "killed"),
        (&[&[], &["--now"]], "wanted", "killed"),
        (&[&["--grace", "100ms"]], "grace_over", "killed_after_grace"),
        (&[&[], &["--grace", "100ms"]], "grace_over", "killed_after_grace"),
    ];
    for (stops, reason, fate) in stops {
        let what = format!("{stops:?}");
        let (file, told) = (env.path("receipt"), env.path("told"));
        let run =
            hooked(&env, env.run()).args(["--name", "run", "--grace", "20s", "--receipt"]).args([&file]);
        let mut run = run.actor("ignore-term", None).start();
        run.wait_ready().expect("ready");
        let stop = |options: &[&str]| env.quell("stop").args(["run"]).args(options).start();
        let first = (stops.len() > 1).then(|| stop(stops[0]));
        let id = env.ids("live").pop().expect("a live job");
        if first.is_some() {
            assert!(eventually(PATIENCE, || env.job(&id).state() == "stopping"), "{what}");
        }
        let done = stop(stops[stops.len() - 1]).finish();
        assert_eq!(done.code(), Some(0), "{what}: {}", done.stderr);
        assert!(done.took < Duration::from_secs(15), "{what}: it took {:?}", done.took);
        first.map(|first| first.finish());
        run.wait_exit(PATIENCE).expect("it ends");
        let receipt: Value = serde_json::from_slice(&fs::read(&file).expect("a receipt")).expect("JSON");
        assert_eq!(
            (&receipt["kill"], &receipt["cause"], &receipt["actor"]["kind"]),
            (&json!(reason), &json!("user"), &json!("client")),
            "{what}: {receipt:#}"
        );
        assert!(fates(&receipt, "").iter().all(|it| it == fate), "{what}: {receipt:#}");
        let kills = || events_in(&told).into_iter().filter(|event| event["event"] == "killed");
        assert!(eventually(PATIENCE, || names_in(&told).contains(&"ended".into())), "{what}");
        assert!(kills().map(|event| event["reason"].clone()).eq([json!(reason)]), "{what}");
        fs::remove_file(&told).expect("told");
    }
}

#[test]
fn hooks_fire_for_a_run_and_are_told_what_it_was() {
    for options in [&[][..], &["--no-record"]] {
        let env = TestEnv::as_me();
        let run = hooked(&env, env.run()).args(options).args(["--tag", "team=blue", "--name", "job"]);
        let done = run.sh("exit 7").finish();
        assert_eq!(done.code(), Some(7), "{}", done.stderr);
        hook_told(&env.path("told"), &["started", "ended"]);
        let events = events_in(&env.path("told"));
        for event in &events {
            assert_eq!(event["command"], json!(["sh", "-c", "exit 7"]), "{event:#}");
            assert_eq!(
                (&event["tags"]["team"], &event["name"]),
                (&json!("blue"), &json!("job")),
                "{event:#}"
            );
        }
        let ended = &events[1];
        assert_eq!((&ended["cause"], &ended["verdict"]["kind"]), (&json!("own_exit"), &json!("gone")));
        assert_eq!((&ended["counts"]["processes"], &ended["counts"]["killed"]), (&json!(1), &json!(0)));
        assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
    }
}

#[test]
fn a_background_jobs_hooks_are_told_its_command_tags_session_and_counts() {
    let env = TestEnv::as_me();
    let start = hooked(&env, env.start()).args(["--tag", "team=blue", "--owner", "session:s1"]);
    let job = start.command(["sleep", &env.oracle.nap()]).begin();
    assert_eq!(job.stop(&[]).code(), Some(0));
    hook_told(&env.path("told"), &["started", "ended"]);
    for event in events_in(&env.path("told")) {
        assert_eq!(event["command"], json!(["sleep", env.oracle.nap()]), "{event:#}");
        assert_eq!((&event["tags"]["team"], &event["session"]), (&json!("blue"), &json!("s1")), "{event:#}");
    }
    let ended = events_in(&env.path("told")).pop().expect("an end");
    assert_eq!((&ended["cause"], &ended["counts"]["processes"]), (&json!("user"), &json!(1)), "{ended:#}");
}

#[test]
fn a_run_tells_its_hooks_of_a_timeout_a_kill_a_leak_and_a_loss() {
    let env = TestEnv::as_me();
    let told = env.path("told");
    let begin = || hooked(&env, env.run());
    let done = begin().args(["--timeout", "2s", "--grace", "100ms"]).actor("ignore-term", None).finish();
    assert_eq!(done.code(), Some(124), "{}", done.stderr);
    hook_told(&told, &["started", "timed_out", "killed", "ended"]);
    fs::remove_file(&told).expect("told");
    let done = begin().sh(&format!("sleep {} & exit 0", env.oracle.nap())).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    hook_told(&told, &["started", "leaked", "ended"]);
    fs::remove_file(&told).expect("told");
    let mut running = begin().actor("ignore-term", None).start();
    running.wait_ready().expect("ready");
    hook_told(&told, &["started"]);
    running.keeper().expect("a keeper").signal("KILL");
    running.finish();
    hook_told(&told, &["started", "lost", "killed", "ended"]);
    fs::remove_file(&told).expect("told");
    // Both are killed: the next command finishes the stop, and tells the hooks that are on record.
    let mut running = begin().actor("ignore-term", None).start();
    running.wait_ready().expect("ready");
    hook_told(&told, &["started"]);
    running.lose().expect("front and keeper");
    assert!(matches!(env.quell("sweep").finish().code(), Some(0 | 5)));
    hook_told(&told, &["started", "lost", "killed", "ended"]);
    running.finish();
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
}

#[test]
fn a_hook_of_a_run_delays_nothing_and_its_failure_is_in_the_history() {
    let env = TestEnv::as_me();
    let config = format!(
        "[[hooks]]\non = [\"started\", \"ended\"]\nrun = [\"sleep\", \"{}\"]\ntimeout = \"5m\"\n
         [[hooks]]\non = [\"started\"]\nrun = [\"false\"]\n",
        env.oracle.nap()
    );
    let config = env.write("slow.toml", &config);
    let done = env.run().env("QUELL_CONFIG", config).sh("echo out; exit 3").finish();
    // The end of its output was seen, too: no hook holds the caller's pipes.
    assert_eq!((done.code(), done.stdout.as_str()), (Some(3), "out\n"), "{}", done.stderr);
    let id = env.ids("jobs").pop().expect("a record");
    let events = || env.quell("events").args([id.as_str(), "--json"]).finish().stdout;
    assert!(eventually(PATIENCE, || events().contains("hook_failed")), "{}", events());
    for event in ["created", "started", "ended", "hook_failed"] {
        assert_eq!(events().matches(&format!("\"event\":\"{event}\"")).count(), 1, "{}", events());
    }
    // The slow ones are still at work; the environment's end stops them.
    let at_work = || env.oracle.survivors().iter().any(|process| process.command.starts_with("sleep 50."));
    assert!(eventually(PATIENCE, at_work));
}

#[test]
fn a_run_inside_a_job_has_no_hooks_that_job_could_leak() {
    let env = TestEnv::as_me();
    let inner = env.quell_path().display().to_string();
    let run = hooked(&env, env.run()).args(["--leak", "fail"]);
    let done = run.command([inner.as_str(), "run", "--no-record", "--", "true"]).finish();
    assert_eq!((done.code(), done.stderr.as_str()), (Some(0), ""));
    hook_told(&env.path("told"), &["started", "ended"]);
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
    hook_told(&env.path("told"), &["started", "ended"]);
}

#[test]
fn what_a_hook_runs_has_no_hooks() {
    let env = TestEnv::as_me();
    let (again, quell) = (env.path("again"), env.quell_path());
    let script = format!(
        "#!/bin/sh\n{0} run --no-record -- true\n{0} start -- true\necho done >>{1}\n",
        quell.display(),
        again.display()
    );
    let script = env.script("again.sh", &script);
    let file = env.path("told").display().to_string();
    let config = format!(
        "[[hooks]]\non = [\"ended\"]\nrun = [{:?}]\n[[hooks]]\non = [\"ended\"]\nappend = {file:?}\n",
        script.display().to_string()
    );
    let config = env.write("again.toml", &config);
    assert_eq!(env.run().env("QUELL_CONFIG", config).command(["true"]).finish().code(), Some(0));
    assert!(eventually(PATIENCE, || fs::read_to_string(&again).is_ok_and(|text| text == "done\n")));
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
    assert_eq!(names_in(&env.path("told")), ["ended"]);
}

#[test]
fn a_short_grace_is_reported_as_what_it_was() {
    let env = TestEnv::as_me();
    let script = "trap '' TERM; echo up; while :; do sleep 0.02; done";
    let job =
        env.start().args(["--grace", "2ms", "--ready-log", "up", "--wait-ready", "20s"]).sh(script).begin();
    let stop = env.quell("stop").args([&job.id]).finish();
    assert!(stop.stdout.contains("still running after 2ms"), "{}{}", stop.stdout, stop.stderr);
    let events = env.quell("events").args([&job.id]).finish().stdout;
    assert!(events.contains("2ms of grace"), "{events}");
}

#[test]
fn a_leak_that_was_stopped_is_explained_wherever_the_end_is_shown() {
    let env = TestEnv::as_me();
    let leaves = format!("sleep {0} & sleep {0} & echo up; exit 0", env.oracle.nap());
    let why = "2 processes outlived the command and were stopped (--until tree waits for them, --leak keep lets them run)";

    let done = env.run().sh(&leaves).finish();
    assert_eq!((done.code(), done.stderr.as_str()), (Some(0), format!("quell: {why}\n").as_str()));
    assert_eq!(env.run().args(["--quiet"]).sh(&leaves).finish().stderr, "");
    assert_eq!(env.run().args(["--until", "tree"]).sh("sleep 0.1 & exit 0").finish().stderr, "");

    let waits = ["--ready-log", "^never$", "--wait-ready", "30s"];
    let start = env.start().args(waits).sh(&leaves).finish();
    assert_eq!(start.code(), Some(1), "{}", start.stderr);
    let words = format!("ended before it was ready: exited with 0, by itself, {why}");
    assert!(start.stderr.contains(&words), "{}", start.stderr);
    let id = start.stdout.trim();

    let status = env.quell("status").args([id]).finish();
    assert!(status.stdout.contains(why) && !status.stdout.contains("own end"), "{}", status.stdout);
    let status = env.quell("status").args([id, "--json"]).finish().envelope();
    assert!(status.to_string().contains("\"outlived\":2"), "{status:#}");
    let wait = env.quell("wait").args([id]).finish();
    assert!(wait.stdout.contains(why), "{}", wait.stdout);
    for _ in ["from the files", "from the index"] {
        let list = env.quell("list").finish();
        assert!(list.stdout.contains("ended 0, 2 outlived"), "{}", list.stdout);
        assert!(
            list.stderr.contains("(--until tree waits for them, --leak keep lets them run)"),
            "{}",
            list.stderr
        );
    }
    // The receipt has the same number, through the history.
    let job = env.job(id);
    let text = fs::read_to_string(job.dir().join("events.jsonl")).expect("events");
    assert!(text.contains("\"outlived\":2"), "{text}");
}

/// A supervisor whose workers write an error if TERM reaches them directly. On TERM it stops them in order by a word of
/// their own, and writes `clean`.
const SUPERVISOR: &str = r#"
    worker() {
        trap 'echo hit >>$D/err; exit 1' TERM; trap 'exit 0' USR1
        : >$D/up$1; while :; do sleep 0.02; done
    }
    worker 1 & a=$!; worker 2 & b=$!
    trap 'for w in $a $b; do kill -USR1 $w; wait $w; done; echo clean >$D/clean; exit 0' TERM
    until [ -e $D/up1 ] && [ -e $D/up2 ]; do sleep 0.01; done
    echo ready >$QUELL_TEST_READY
    while :; do sleep 0.02; done"#;

/// Whether the supervisor came to a clean end, and what is wrong if not. The next one starts from the beginning.
fn clean_end(env: &TestEnv, receipt: &Value) -> Result<(), String> {
    let err = fs::read_to_string(env.path("err")).unwrap_or_default();
    let clean = env.path("clean").exists() && err.is_empty();
    for name in ["err", "clean", "up1", "up2"] {
        let _ = fs::remove_file(env.path(name));
    }
    let exited = receipt["root"]["outcome"] == json!({ "kind": "exited", "code": 0 });
    let first = receipt["steps"].as_array().into_iter().flatten().find(|step| step["step"] == "ask");
    let alone = first.and_then(|step| step["signals"].as_array()).map(Vec::len) == Some(1);
    let gone = receipt["verdict"]["kind"] == "gone" && receipt["kill"].is_null();
    if clean && exited && alone && gone && receipt["ask"] == "root" {
        return Ok(());
    }
    Err(format!("clean {clean}, {err:?}: {receipt:#}"))
}

#[test]
fn a_root_that_is_asked_alone_shuts_its_workers_down_in_order() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let contain = ["--contain", setting.contain.as_str(), "--grace", "30s"];
        let start = || env.start().args(contain).env("D", env.dir());
        let job = start().args(["--ask", "root"]).script(SUPERVISOR).begin();
        assert_eq!(job.stop(&[]).code(), Some(0), "{setting}");
        clean_end(&env, &job.receipt().expect("a receipt")).unwrap_or_else(|why| panic!("{setting}: {why}"));
        // A stop may request it, too.
        let job = start().script(SUPERVISOR).begin();
        assert_eq!(job.stop(&["--ask", "root"]).code(), Some(0), "{setting}");
        clean_end(&env, &job.receipt().expect("a receipt")).unwrap_or_else(|why| panic!("{setting}: {why}"));
        // Asked all at once, the workers die of it.
        let job = start().script(SUPERVISOR).begin();
        assert_eq!(job.stop(&["--ask", "tree"]).code(), Some(0), "{setting}");
        clean_end(&env, &job.receipt().expect("a receipt")).expect_err("the workers were hit");
    }
}

#[test]
fn a_run_and_the_settings_can_have_the_root_asked_alone() {
    let env = TestEnv::as_me();
    let config = env.write("root.toml", "[stop]\nask = \"root\"\ngrace = \"30s\"\n");
    for by_option in [true, false] {
        let receipt = env.fresh("receipt");
        let run = env.run().args(["--receipt"]).args([&receipt]).env("D", env.dir());
        let run = match by_option {
            true => run.args(["--ask", "root", "--grace", "30s"]),
            false => run.env("QUELL_CONFIG", &config),
        };
        let mut running = run.script(SUPERVISOR).start();
        running.wait_ready().expect("ready");
        assert!(running.front.signal("TERM"));
        let done = running.finish();
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let receipt = serde_json::from_slice(&fs::read(&receipt).expect("a receipt")).expect("JSON");
        clean_end(&env, &receipt).unwrap_or_else(|why| panic!("by option: {by_option}: {why}"));
    }
    let shown = env.quell("config").args(["show"]).env("QUELL_CONFIG", &config).finish().stdout;
    assert!(shown.lines().any(|line| line.contains("stop.ask") && line.contains("root")), "{shown}");
}

#[test]
fn what_a_root_that_was_asked_alone_leaves_behind_is_asked_and_then_killed() {
    // Two workers: one ends when asked, one is deaf. Both outlive the root.
    let script = "(trap 'exit 0' TERM; : >$D/up1; while :; do sleep 0.02; done) &
        (trap '' TERM; : >$D/up2; exec sleep $N) &
        trap 'sleep 0.5; exit 5' TERM
        until [ -e $D/up1 ] && [ -e $D/up2 ] && grep -q sleep /proc/$!/comm; do sleep 0.01; done
        echo ready >$QUELL_TEST_READY; while :; do sleep 0.02; done";
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let start =
            env.start().args(["--contain", setting.contain.as_str(), "--ask", "root", "--grace", "2s"]);
        let job = start.env("D", env.dir()).script(script).begin();
        let stopped = job.stop(&[]);
        assert_eq!(stopped.code(), Some(0), "{setting}: {}", stopped.stderr);
        let receipt = job.receipt().expect("a receipt");
        let what = format!("{setting}: {receipt:#}");
        let steps: Vec<&str> = receipt["steps"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|step| step["step"].as_str())
            .filter(|step| ["ask", "root_exited", "kill"].contains(step))
            .collect();
        assert_eq!(steps[..4], ["ask", "root_exited", "ask", "kill"], "{what}");
        assert_eq!(receipt["root"]["outcome"]["code"], 5, "{what}");
        assert_eq!(receipt["kill"], "grace_over", "{what}");
        let deaf = format!("sleep {}", env.oracle.nap());
        assert_eq!(fates(&receipt, &deaf), [told(&env, setting, "killed_after_grace")], "{what}");
        // The root and the worker that heeds; their forks that have not become `sleep` yet may be told of, too.
        let heeded = fates(&receipt, "bash").iter().filter(|fate| *fate == "exited_on_ask").count();
        assert!(heeded >= 2, "{what}");
        let said = format!("{}{}", stopped.stdout, stopped.stderr);
        assert!(said.contains("TERM to the root at"), "{setting}: {said}");
        // Its time runs from when it was asked itself.
        assert!(said.contains(", TERM to the rest at"), "{setting}: {said}");
        let tree = env.quell("tree").args([&job.id]).finish().stdout;
        assert!(!format!("{said}{tree}").contains("still running after 2s"), "{setting}: {said}{tree}");
        assert!(job.events().iter().filter(|event| *event == "asked").count() == 2, "{:?}", job.events());
    }
}

#[test]
fn a_root_that_was_asked_alone_and_does_not_end_is_killed_with_all_others_after_the_grace() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        let start = env.start().args(["--contain", setting.contain.as_str(), "--ask", "root"]);
        let script = "trap '' TERM; (trap 'echo hit >>$D/err' TERM; : >$D/up; exec sleep $N) &
            until [ -e $D/up ] && grep -q sleep /proc/$!/comm; do sleep 0.01; done
            echo ready >$QUELL_TEST_READY; while :; do sleep 0.02; done";
        let job = start.env("D", env.dir()).script(script).begin();
        assert_eq!(job.stop(&["--grace", "200ms"]).code(), Some(0), "{setting}");
        let receipt = job.receipt().expect("a receipt");
        assert!(!env.path("err").exists(), "{setting}: {receipt:#}");
        let fate = told(&env, setting, "killed_after_grace");
        assert_eq!(fates(&receipt, "bash").first(), Some(&fate), "{setting}: {receipt:#}");
        let worker = format!("sleep {}", env.oracle.nap());
        assert_eq!(fates(&receipt, &worker), ["killed"], "{setting}: {receipt:#}");
    }
}

/// Whether the kernel says what a process died of that its own parent has reaped (Linux 6.15).
fn kernel_tells(env: &TestEnv) -> bool {
    let doctor = env.quell("doctor").args(["--json"]).finish().envelope().to_string();
    doctor.contains("pidfd_exit_code") && !doctor.contains("needs Linux 6.15")
}

#[test]
fn a_process_that_died_of_another_signal_did_not_exit_on_the_request() {
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        for (signal, fate) in [("KILL", "killed"), ("SEGV", "ended"), ("TERM", "exited_on_ask")] {
            let script = "trap \"trap - $S; kill -$S \\$\\$\" TERM
                echo ready >$QUELL_TEST_READY; while :; do sleep 0.01; done";
            let start = env.start().args(["--contain", setting.contain.as_str()]);
            let job = start.env("S", signal).script(script).begin();
            assert_eq!(job.stop(&["--grace", "20s"]).code(), Some(0), "{setting}, {signal}");
            let receipt = job.receipt().expect("a receipt");
            let what = format!("{setting}, {signal}: {receipt:#}");
            assert_eq!(receipt["root"]["outcome"]["signal"], signal, "{what}");
            // The root comes first; one of its forks may not have become `sleep` yet.
            assert_eq!(fates(&receipt, "bash").first().map(String::as_str), Some(fate), "{what}");
            assert!(receipt["kill"].is_null(), "{what}");
        }
    }
}

/// The root ends its worker with KILL: the worker was asked before, or was not.
#[test]
fn a_worker_that_its_root_has_killed_was_killed_and_did_not_exit() {
    let script = "(trap '' TERM; exec sleep $N) &
        until grep -q sleep /proc/$!/comm; do sleep 0.01; done
        trap \"kill -KILL $!; wait; exit 0\" TERM
        echo ready >$QUELL_TEST_READY; while :; do sleep 0.01; done";
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        for ask in ["tree", "root"] {
            let start = env.start().args(["--contain", setting.contain.as_str(), "--ask", ask]);
            let job = start.script(script).begin();
            assert_eq!(job.stop(&["--grace", "20s"]).code(), Some(0), "{setting}, {ask}");
            let receipt = job.receipt().expect("a receipt");
            let fate = if kernel_tells(&env) { "killed" } else { "ended" };
            let worker = format!("sleep {}", env.oracle.nap());
            assert_eq!(fates(&receipt, &worker), [fate], "{setting}, {ask}: {receipt:#}");
            let root = fates(&receipt, "bash").first().cloned();
            assert_eq!(root.as_deref(), Some("exited_on_ask"), "{setting}, {ask}: {receipt:#}");
        }
    }
}

#[test]
fn a_request_to_what_the_root_has_left_is_not_said_to_have_gone_to_the_root() {
    let env = TestEnv::as_me();
    let options = ["--leak", "report", "--ask", "root", "--grace", "100ms"];
    let script =
        format!("(trap '' TERM; : >up; exec sleep {}) & until [ -e up ]; do :; done", env.oracle.nap());
    let done = env.quell("run").args(options).sh(&script).finish();
    assert!(done.stderr.contains("1 process outlived the command"), "{}", done.stderr);
    assert!(done.stderr.contains(", TERM at "), "{}", done.stderr);
    assert!(!done.stderr.contains("to the root"), "{}", done.stderr);
}

/// A member of a live job by its command line, as `quell tree` shows it. The keeper has seen it then.
fn member(env: &TestEnv, id: &str, command: &str) -> Process {
    let tree = env.quell("tree").args(["--json", id]).finish().envelope();
    let members = tree["data"]["processes"].as_array().cloned().unwrap_or_default();
    let found = members.iter().find(|member| member["command"] == command);
    let pid = found.and_then(|member| member["pid"].as_u64()).unwrap_or_else(|| panic!("{tree:#}"));
    Process::now(pid as u32).expect("alive")
}

#[test]
fn a_member_that_another_process_has_killed_was_killed_and_did_not_exit() {
    // An orphan, which the keeper reaps, and a process that its own parent reaps.
    let ready = "sleep $N & until grep -q sleep /proc/$!/comm; do :; done; echo ready >$QUELL_TEST_READY";
    let scripts = [
        ("--until=tree", format!("{ready}; sleep 9$N &")),
        ("--until=root", format!("({ready}; wait; sleep 9$N) & exec sleep 8$N")),
    ];
    for setting in Setting::all() {
        let env = TestEnv::with(setting);
        for (until, script) in &scripts {
            let job = env.start().args(["--contain", setting.contain.as_str(), until]).script(script).begin();
            let command = format!("sleep {}", env.oracle.nap());
            let victim = member(&env, &job.id, &command);
            assert!(victim.signal("KILL"), "{setting}, {until}");
            assert!(eventually(PATIENCE, || Process::now(victim.pid).is_none()), "{setting}, {until}");
            assert_eq!(job.stop(&[]).code(), Some(0), "{setting}, {until}");
            let receipt = job.receipt().expect("a receipt");
            // Before Linux 6.15 only its parent knows what a process died of.
            let is_reaped_by_quell = *until == "--until=tree" && setting.contain != Contain::Pidns;
            let fate = if is_reaped_by_quell || kernel_tells(&env) { "killed" } else { "ended" };
            assert_eq!(fates(&receipt, &command), [fate], "{setting}, {until}: {receipt:#}");
        }
    }
}

#[test]
fn the_end_of_a_pid_namespace_whose_init_was_killed_is_told_as_that() {
    let me = TestEnv::as_me().user();
    if let Err(why) = Contain::Pidns.available(me) {
        return skip("the_end_of_a_pid_namespace_whose_init_was_killed_is_told_as_that", &why);
    }
    let env = TestEnv::for_containment(me, Contain::Pidns);
    let script = "sleep $N & until grep -q sleep /proc/$!/comm; do :; done; echo ready >$QUELL_TEST_READY";
    for (then, root, cause) in
        [("; wait", "killed", "external_signal"), ("; until [ -e go ]; do :; done", "exited", "own_exit")]
    {
        let start = env.start().args(["--contain", "pidns", "--until", "tree"]);
        let job = start.script(&format!("{script}{then}")).begin();
        let command = format!("sleep {}", env.oracle.nap());
        member(&env, &job.id, &command);
        if root == "exited" {
            env.write("go", "");
            assert!(eventually(PATIENCE, || job.events().contains(&"root_exited".to_owned())));
        }
        // The record names the init.
        assert!(job.process("root").expect("alive").signal("KILL"));
        assert!(job.wait_over(PATIENCE));
        let receipt = job.receipt().expect("a receipt");
        assert_eq!(receipt["cause"], cause, "{receipt:#}");
        assert_eq!(fates(&receipt, "bash"), [root], "{receipt:#}");
        let fate = if kernel_tells(&env) { "killed" } else { "ended" };
        assert_eq!(fates(&receipt, &command), [fate], "{receipt:#}");
        let warnings = receipt["warnings"].to_string();
        assert!(warnings.contains("the init of its PID namespace"), "{receipt:#}");
        let status = env.quell("status").args(["--json", &job.id]).finish().envelope();
        assert!(status["data"]["job"]["outlived"].is_null(), "no process was stopped: {status:#}");
    }
}

/// A process that is first seen in the middle of its exec has no command line then.
#[test]
fn a_command_line_that_could_not_be_read_at_first_is_read_before_the_first_signal() {
    let env = TestEnv::as_me();
    let job = env.start().script("$A no-command-line $T & wait").begin();
    let seen = member(&env, &job.id, "[actor]");
    assert!(seen.signal("USR1"));
    let has_it = || Process::now(seen.pid).is_some_and(|now| now.command.contains("no-command-line"));
    assert!(eventually(PATIENCE, has_it));
    assert_eq!(job.stop(&[]).code(), Some(0));
    let receipt = job.receipt().expect("a receipt");
    let actor = format!("{} no-command-line", env.actor_path().display());
    assert_eq!(fates(&receipt, &actor), ["exited_on_ask"], "{receipt:#}");
}
