//! The secrets of a job are shown nowhere, and to no other user.

use std::{
    fs,
    io::{Read, Write},
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use quell::binary::JobInternals;
use quell_tests::{
    eventually,
    host::{User, am_root},
    jobs::Background,
    rounds,
    run::{PATIENCE, Quell},
    skip,
    test_env::{TestEnv, copy_program},
};

use crate::library::{over, quell};

const SECRET: &str = "hunter2-is-the-secret";

/// The files whose content quell shows.
const SHOWN: [&str; 4] = ["spec.json", "state.jsonl", "receipt.json", "events.jsonl"];

/// What of the shown files holds any part of the secret that is longer than a few letters.
fn shown_with_secret(dir: &Path) -> Vec<String> {
    let text = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    SHOWN
        .iter()
        .filter(|name| text(name).contains(&SECRET[..7]))
        .map(|name| format!("{name}: {}", text(name)))
        .collect()
}

fn masked<'l>(env: &'l TestEnv, script: &str) -> Background<'l> {
    env.start()
        .env("TOKEN", SECRET)
        .env("N", env.oracle.nap())
        .args(["--mask", "TOKEN", "--grace", "100ms"])
        .command(["bash", "-c", script, "program", SECRET, &format!("--token={SECRET}")])
        .begin()
}

#[test]
fn a_masked_value_is_in_no_file_that_is_shown() {
    let env = TestEnv::as_me();
    // Its children bear it in their command lines as well; one of them has it where a command line is cut.
    let long = "x".repeat(150);
    let script = format!(
        "bash -c 'trap \"\" TERM; while :; do sleep 0.01; done' child --token=$TOKEN &
        bash -c 'while :; do sleep 0.01; done' {long} $TOKEN & sleep $N; wait"
    );
    let members =
        |job: &Background<'_>| job.receipt().map_or(0, |r| r["members"].as_array().map_or(0, Vec::len));
    let up = || {
        let all = env.oracle.survivors();
        let is_there = |start: &&str| all.iter().any(|process| process.command.starts_with(*start));
        ["bash -c trap", "bash -c while", "sleep 50."].iter().all(is_there)
    };
    let stopped = masked(&env, &script);
    assert!(eventually(PATIENCE, up), "{:?}", env.oracle.survivors());
    assert_eq!(stopped.stop(&["--reason", &format!("because of {SECRET}")]).code(), Some(0));
    assert!(members(&stopped) >= 3);
    assert_eq!(shown_with_secret(&stopped.dir()), Vec::<String>::new(), "after a stop");
    assert!(fs::read_to_string(stopped.dir().join("spec.json")).expect("a spec").contains("--token=***"));

    let orphaned = masked(&env, &script);
    assert!(eventually(PATIENCE, up), "{:?}", env.oracle.survivors());
    orphaned.process("keeper").expect("a keeper").signal("KILL");
    assert!(orphaned.wait_over(PATIENCE));
    assert_eq!(shown_with_secret(&orphaned.dir()), Vec::<String>::new(), "after the keeper's death");

    let lost = masked(&env, &script);
    assert!(eventually(PATIENCE, up), "{:?}", env.oracle.survivors());
    lost.lose();
    let done = env.quell("sweep").finish();
    // 5 where only the reaper held it: then its end can't be proven.
    assert!(matches!(done.code(), Some(0 | 5)), "{}{}", done.stdout, done.stderr);
    assert!(members(&lost) >= 2, "{:?}", lost.receipt());
    assert_eq!(shown_with_secret(&lost.dir()), Vec::<String>::new(), "after a recovery");

    // The same command runs again, with the true value.
    let again = quell(&env)
        .job(&stopped.id)
        .expect("the job")
        .restart(&quell::StopOptions::default())
        .expect("a restart");
    let has_secret = || {
        fs::read_dir("/proc").expect("/proc").flatten().any(|entry| {
            fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&format!("program\0{SECRET}")))
        })
    };
    assert!(eventually(PATIENCE, has_secret), "the program was started without its secret");
    assert_eq!(shown_with_secret(again.dir().dir()), Vec::<String>::new(), "after a restart");
    let _ = again.stop_with(&quell::StopOptions::kill()).expect("a stop");
}

/// What is shown is masked, and what is done is not: nor after a restart, which has only what is on disk.
#[test]
fn labels_and_signs_of_readiness_are_masked() {
    let env = TestEnv::as_me();
    let place = env.path(SECRET);
    fs::create_dir(&place).expect("mkdir");
    let start = env.start().env("TOKEN", SECRET).args(["--mask", "TOKEN", "--cwd"]).args([&place]).args([
        "--tag",
        &format!("k={SECRET}"),
        "--ready-log",
        &format!("up {SECRET}"),
        "--ready-cmd",
        &format!("test {SECRET} = $TOKEN"),
    ]);
    let job = start.sh(&format!("echo up $TOKEN; sleep {}", env.oracle.nap())).begin();
    is_ready_and_masked(&env, &job);
    let again = quell(&env).job(&job.id).expect("the job").restart(&quell::StopOptions::default());
    is_ready_and_masked(&env, &env.job(&again.expect("a restart").id().to_string()));
}

fn is_ready_and_masked(env: &TestEnv, job: &Background<'_>) {
    assert!(eventually(PATIENCE, || job.state() == "ready"), "{}: {:?}", job.state(), job.events());
    let status = env.quell("status").args([&job.id, "--json"]).finish();
    assert!(status.stdout.contains("***") && !status.stdout.contains(SECRET), "{}", status.stdout);
    assert_eq!(job.stop(&[]).code(), Some(0));
    assert_eq!(job.receipt().expect("a receipt")["job"]["tags"]["k"], "***");
    assert_eq!(shown_with_secret(&job.dir()), Vec::<String>::new());
}

#[test]
fn a_name_with_a_masked_value_is_refused() {
    let env = TestEnv::as_me();
    let name = format!("x-{SECRET}");
    for options in [["--name", &name], ["--owner", &format!("session:{name}")]] {
        let start = env.start().env("TOKEN", SECRET).args(["--mask", "TOKEN"]).args(options);
        let done = start.command(["true"]).finish();
        assert_eq!(done.code(), Some(2), "{options:?}: {}", done.stderr);
        assert!(!done.stderr.contains(SECRET), "{}", done.stderr);
        assert_eq!(env.ids("jobs"), Vec::<String>::new());
    }
}

/// Between two runs, too, a reason is masked before it is shown.
#[test]
fn the_reason_to_stop_a_job_that_waits_is_masked() {
    let env = TestEnv::as_me();
    let start = env.start().env("TOKEN", SECRET).env("QUELL_START_RESTART_DELAY", "50s");
    let job = start.args(["--mask", "TOKEN", "--restart", "always"]).sh("exit 3").begin();
    assert!(eventually(PATIENCE, || job.state() == "waiting"), "{}", job.state());
    assert_eq!(job.stop(&["--reason", &format!("because of {SECRET}")]).code(), Some(0));
    assert_eq!(shown_with_secret(&job.dir()), Vec::<String>::new());
    assert_eq!(job.receipt().expect("a receipt")["actor"]["reason"], "because of ***");
}

/// Also where the job is selected by a label or has ended, and the line is written before the job is known.
#[test]
fn the_audit_log_masks_the_reason_of_a_stop() {
    let env = TestEnv::as_me();
    let log = || fs::read_to_string(env.home().join("audit.jsonl")).expect("a log");
    let reason = format!("because of {SECRET}");
    let start = || env.start().env("TOKEN", SECRET).args(["--mask", "TOKEN", "--tag", "k=v"]);
    let first = start().command(["sleep", &env.oracle.nap()]).begin();
    let second = start().command(["sleep", &env.oracle.nap()]).begin();
    assert_eq!(first.stop(&["--reason", &reason]).code(), Some(0));
    assert_eq!(log().matches("because of ***").count(), 2, "{}", log());
    assert_eq!(first.stop(&["--reason", &reason]).code(), Some(0), "of one that has ended");
    assert_eq!(env.quell("stop").args(["--tag", "k=v", "--reason", &reason]).finish().code(), Some(0));
    assert_eq!(second.receipt().expect("a receipt")["actor"]["reason"], "because of ***");
    assert_eq!(log().matches("because of ***").count(), 5, "{}", log());
    assert!(!log().contains(&SECRET[..7]), "{}", log());
}

/// What `start.mask` names is masked in all lines, whichever command writes them.
#[test]
fn the_audit_log_masks_targets_sessions_and_reasons() {
    let env = TestEnv::as_me();
    let own = env.write("own.toml", "[start]\nmask = [\"TOKEN\"]\n[guard]\ndeny = [\"run\"]\n");
    let quell = |verb: &str| {
        env.quell(verb)
            .env("QUELL_CONFIG", &own)
            .env("TOKEN", SECRET)
            .env("QUELL_SESSION", format!("of-{SECRET}"))
    };
    let program = format!("./{SECRET}");
    quell("run").command([&program]).finish();
    quell("test").args(["--scope", "no-such"]).command(["pytest", &program]).finish();
    quell("test").args(["--reason", SECRET]).command(["true", &program]).finish();
    quell("stop").args([SECRET]).finish();
    quell("start").command([&program]).finish();
    quell("kill").args(["--reason", SECRET, "1"]).finish();
    let log = fs::read_to_string(env.home().join("audit.jsonl")).expect("a log");
    assert!(log.lines().count() >= 5 && log.contains("of-***") && log.contains("***"), "{log}");
    assert!(!log.contains(&SECRET[..7]), "{log}");
}

#[test]
fn what_the_tree_shows_is_masked() {
    let env = TestEnv::as_me();
    let job = masked(&env, "sleep $N; :");
    let tree = quell(&env).job(&job.id).and_then(|job| job.members()).expect("a tree");
    let commands: Vec<&str> = tree.iter().map(|member| member.command.as_str()).collect();
    assert!(commands.iter().any(|command| command.contains("program *** --token=***")), "{commands:?}");
}

/// A command line is shown without the blanks at its end, which a program may have put there as padding.
#[test]
fn a_masked_value_that_ends_in_a_blank_is_masked_at_the_end_of_a_command_line() {
    let env = TestEnv::as_me();
    let secret = format!(" {SECRET}  ");
    let script = format!("sleep {}; :", env.oracle.nap());
    let start = env.start().env("TOKEN", &secret).args(["--mask", "TOKEN", "--grace", "100ms"]);
    let job = start.command(["bash", "-c", &script, &secret]).begin();
    let tree = env.quell("tree").args([&job.id]).finish();
    assert!(tree.stdout.contains("***") && !tree.stdout.contains(&SECRET[..7]), "{}", tree.stdout);
    // The process that calls `quell stop` has it at the end, too.
    let words = env.quell("stop").args([&job.id]).words();
    let words: Vec<String> = words.iter().map(|word| format!("'{}'", word.to_string_lossy())).collect();
    let done = env.run().args(["--no-record"]).command([
        "sh",
        "-c",
        &format!("{}; exit $?", words.join(" ")),
        &secret,
    ]);
    assert_eq!(done.finish().code(), Some(0));
    assert!(job.receipt().expect("a receipt")["actor"]["command"].to_string().contains("***"));
    assert_eq!(shown_with_secret(&job.dir()), Vec::<String>::new());
}

/// The names of files are masked, whichever process writes about them.
#[test]
fn the_audit_log_and_a_restart_mask_the_program_and_its_files() {
    let env = TestEnv::as_me();
    let [program, cwd, input] = ["program", "cwd", "input"].map(|name| env.path(&format!("{name}-{SECRET}")));
    let start = || env.start().env("TOKEN", SECRET).args(["--mask", "TOKEN"]);
    let make = || {
        std::os::unix::fs::symlink("/bin/sleep", &program).expect("a link");
        fs::create_dir(&cwd).expect("mkdir");
        fs::write(&input, "").expect("a file");
    };
    make();
    let start_all = start().args(["--cwd"]).args([&cwd]).args(["--stdin"]).args([&input]);
    let job = start_all.command([program.as_os_str(), env.oracle.nap().as_ref()]).begin();
    let log = fs::read_to_string(env.home().join("audit.jsonl")).expect("a log");
    assert!(log.contains("\"act\"") && log.contains("program-***"), "{log}");
    assert!(!log.contains(&SECRET[..7]), "{log}");
    for json in [&[][..], &["--json"]] {
        for gone in [&program, &input, &cwd] {
            let aside = env.path("aside");
            fs::rename(gone, &aside).expect("rename");
            let done = env.quell("restart").args([&job.id]).args(json).finish();
            let said = format!("{}{}", done.stdout, done.stderr);
            assert_ne!(done.code(), Some(0), "{said}");
            assert!(said.contains("***") && !said.contains(&SECRET[..7]), "{said}");
            fs::rename(&aside, gone).expect("rename");
        }
    }
    let own = env.write("own.toml", "[guard]\ndeny = [\"start\"]\n");
    let done = start().env("QUELL_CONFIG", own).command([&program]).finish();
    assert_ne!(done.code(), Some(0), "{}", done.stderr);
    let log = fs::read_to_string(env.home().join("audit.jsonl")).expect("a log");
    assert!(log.contains("VERB_DENIED") && !log.contains(&SECRET[..7]), "{log}");
}

/// A command line is shown up to a length, and a value may lie across that place.
#[test]
fn a_masked_value_at_the_cut_of_a_command_line_is_masked_in_the_tree() {
    let env = TestEnv::as_me();
    let script = format!("sleep {}; :", env.oracle.nap());
    // Its first letters, and half of a letter of two bytes, are the last that are shown.
    let secret = format!("{}é-and-more", &SECRET[..8]);
    let before = ["bash", "-c", &script, "", ""].join("\0").len() - 1;
    let filler = "x".repeat(4096 - 9 - before - 1);
    let start = env.start().env("TOKEN", &secret).args(["--mask", "TOKEN", "--grace", "100ms"]);
    let job = start.command(["bash", "-c", &script, &filler, &secret]).begin();
    let tree = quell(&env).job(&job.id).and_then(|job| job.members()).expect("a tree");
    let root = tree.iter().find(|member| member.command.starts_with("bash")).expect("the root");
    assert!(root.command.contains(&filler), "{}", root.command);
    assert!(!root.command.contains(&SECRET[..7]), "{}", &root.command[4000..]);
}

/// What `start.mask` names is masked in a job of `quell run`, as it is in a job of `quell start`.
#[test]
fn run_masks_what_the_settings_name() {
    let env = TestEnv::as_me();
    let run = || env.run().env("TOKEN", SECRET).env("QUELL_START_MASK", "TOKEN");
    let done = run().args(["--name", &format!("x-{SECRET}")]).command(["true"]).finish();
    assert_eq!(done.code(), Some(125), "{}", done.stderr);
    assert!(done.stderr.contains("to be masked") && !done.stderr.contains(SECRET), "{}", done.stderr);
    assert_eq!(env.ids("jobs"), Vec::<String>::new());

    let begin = || {
        let script = format!("echo ready; sleep {}; :", env.oracle.nap());
        let words = ["bash", "-c", &script, "program", SECRET];
        let running = run().args(["--tag", &format!("k={SECRET}")]).command(words).start();
        assert!(eventually(PATIENCE, || running.stdout().contains("ready")), "{}", running.stderr());
        let id = env.ids("live").pop().expect("a job");
        (running, env.job(&id))
    };
    let (running, job) = begin();
    let tree = env.quell("tree").args([&job.id]).finish();
    assert!(tree.stdout.contains("program ***"), "{}{}", tree.stdout, tree.stderr);
    assert!(!tree.stdout.contains(SECRET), "{}", tree.stdout);
    assert!(running.front.signal("TERM"));
    let done = running.finish();
    assert!(!done.stderr.contains(SECRET), "{}", done.stderr);
    assert_eq!(shown_with_secret(&job.dir()), Vec::<String>::new(), "after a stop");
    assert_eq!(job.receipt().expect("a receipt")["job"]["tags"]["k"], "***");

    let (mut running, job) = begin();
    // After a loss the receipt may name processes that can't be told from the job's: this one, or one of another test.
    let program = env.path(&format!("x-{SECRET}"));
    fs::copy("/bin/sleep", &program).unwrap();
    let other = env.start().command([program.to_str().unwrap(), &env.oracle.nap()]).begin();
    running.lose().expect("the front and the keeper are killed");
    let done = env.quell("sweep").finish();
    assert!(matches!(done.code(), Some(0 | 5)), "{}{}", done.stdout, done.stderr);
    assert_eq!(shown_with_secret(&job.dir()), Vec::<String>::new(), "after a recovery");
    assert_eq!(other.state(), "running", "it was another job's");
}

#[test]
fn error_messages_are_masked() {
    let env = TestEnv::as_me();
    let program = format!("/nonexistent/{SECRET}");
    for (verb, options) in
        [("run", &[][..]), ("start", &[]), ("test", &[]), ("start", &["--json"]), ("test", &["--json"])]
    {
        let call = env.quell(verb).env("TOKEN", SECRET).env("QUELL_START_MASK", "TOKEN").args(options);
        let done = call.command([&program]).finish();
        assert_ne!(done.code(), Some(0), "{verb}");
        let said = format!("{}{}", done.stdout, done.stderr);
        assert!(said.contains("***") && !said.contains(SECRET), "{verb} {options:?}: {said}");
    }
    let done = env
        .start()
        .env("TOKEN", SECRET)
        .args(["--mask", "TOKEN", "--cwd", &program])
        .command(["true"])
        .finish();
    assert!(done.stderr.contains("***") && !done.stderr.contains(SECRET), "{}", done.stderr);
}

#[test]
fn the_errors_of_all_verbs_are_masked_and_so_is_the_name_of_the_caller() {
    let env = TestEnv::as_me();
    let masked = |quell: Quell<'_>| {
        let done = quell.env("TOKEN", SECRET).env("QUELL_START_MASK", "TOKEN").finish();
        assert_ne!(done.code(), Some(0));
        let said = format!("{}{}", done.stdout, done.stderr);
        assert!(said.contains("***") && !said.contains(&SECRET[..7]), "{said}");
    };
    for verb in ["kill", "stop", "status", "rm", "send"] {
        masked(env.quell(verb).args([SECRET]));
    }
    masked(env.quell("service").args(["start", SECRET]));
    let shell = env.path(SECRET);
    std::os::unix::fs::symlink("/bin/sh", &shell).expect("a link");
    masked(env.quell("kill").args([SECRET]).wrapped([
        shell.to_str().expect("a path"),
        "-c",
        "\"$@\"; exit $?",
        "sh",
    ]));
    let log = fs::read_to_string(env.home().join("audit.jsonl")).expect("a log");
    assert!(!log.contains(&SECRET[..7]), "{log}");
}

/// Also before the settings are read, where they can't be, and in decisions.
#[test]
fn usage_errors_bad_variables_and_decisions_are_masked() {
    let env = TestEnv::as_me();
    fs::create_dir(env.path("tests")).expect("mkdir");
    let said = |quell: Quell<'_>| {
        let done = quell.env("TOKEN", SECRET).env("QUELL_START_MASK", "TOKEN").finish();
        let said = format!("{}{}", done.stdout, done.stderr);
        assert!(said.contains("***") && !said.contains(&SECRET[..7]), "{said}");
    };
    for json in [&[][..], &["--json"]] {
        for line in [
            "start --env S -- true",
            "start --tag S -- true",
            "start --timeout S -- true",
            "start --owner S -- true",
            "start --contain S -- true",
            "kill --signal S 4000000",
            "signal job S",
            "gc --max-age S",
            "guard check test -- pytest S",
            "guard check test --scope tests -- pytest /x/S",
            "guard check kill S",
            "guard check service start S",
            "guard check verb S",
            "S",
        ] {
            let words = line.split(' ').map(|word| word.replace('S', SECRET));
            let mut words: Vec<String> = words.collect();
            let at = if words[0] == "guard" { 3 } else { 1 };
            words.splice(at..at, json.iter().map(ToString::to_string));
            said(env.quell(&words[0]).args(&words[1..]));
        }
        for variable in ["QUELL_STOP_GRACE", "QUELL_LOG", "QUELL_CONFIG"] {
            said(env.quell("start").args(json).env(variable, format!("/none/{SECRET}")).command(["true"]));
            said(env.quell("test").args(json).env(variable, format!("/none/{SECRET}")).command(["true"]));
        }
    }
    // A file can't be used, and the variable still counts, also in the log.
    env.write("quell.toml", "[stop]\ngrace = 1\n");
    let named =
        env.quell("kill").args([SECRET]).env("TOKEN", SECRET).env("QUELL_START_MASK", "TOKEN").finish();
    assert_eq!(named.code(), Some(2), "{}", named.stderr);
    let log = fs::read_to_string(env.home().join("audit.jsonl")).expect("a log");
    assert!(log.contains("bad_config") && !log.contains(&SECRET[..7]), "{log}");
}

/// The reason of a refusal shows a word in its plain form, escaped and cut: a value must not be left over in it.
#[test]
fn a_masked_value_is_in_no_refusal_however_it_is_written() {
    let env = TestEnv::as_me();
    fs::create_dir(env.path("tests")).expect("mkdir");
    let long = "s3cr3t".repeat(20);
    for secret in
        [long.as_str(), "s3cr3t\t1", "s3cr3t\n1", "s3cr3t\"1", "s3cr3t//1", "s3cr3t`1", "s3cr3t\u{e9}1"]
    {
        for word in
            [secret.to_owned(), format!("/x/{secret}"), format!("src/{secret}::x"), format!("--{secret}")]
        {
            let call = env.quell("test").env("TOKEN", secret).env("QUELL_START_MASK", "TOKEN");
            let done = call.args(["--json", "--scope", "tests"]).command(["pytest", &word]).finish();
            assert_eq!(done.code(), Some(4), "{word:?}: {}", done.stdout);
            assert!(
                !done.stdout.contains("s3cr3t") && !done.stderr.contains("s3cr3t"),
                "{word:?}: {}",
                done.stdout
            );
        }
    }
    let log = fs::read_to_string(env.home().join("audit.jsonl")).expect("a log");
    assert!(!log.contains("s3cr3t"), "{log}");
}

#[test]
fn the_evidence_of_tests_is_masked() {
    let env = TestEnv::as_me();
    let scope = env.path(SECRET);
    fs::create_dir(&scope).expect("mkdir");
    env.script(&format!("{SECRET}/check"), "exit 0");
    let check = format!("{SECRET}/check");
    let evidence = env.path("evidence.json");
    for scope in [scope.as_path(), Path::new("/nonexistent")] {
        let call = env.quell("test").env("TOKEN", SECRET).env("QUELL_START_MASK", "TOKEN");
        let call = call.args(["--scope"]).args([scope]).args(["--evidence"]).args([&evidence]);
        let call = call.args(["--junit", &format!("{SECRET}.xml"), "--json"]);
        let done = call.command([check.as_str(), SECRET]).finish();
        let text = fs::read_to_string(&evidence).unwrap_or_else(|error| panic!("{error}: {}", done.stdout));
        assert!(text.contains("***") && !text.contains(SECRET), "{text}");
        assert!(!done.stdout.contains(SECRET), "{}", done.stdout);
        fs::remove_file(&evidence).expect("the evidence");
    }
    let log = fs::read_to_string(env.home().join("audit.jsonl")).expect("a log");
    assert!(!log.contains(SECRET), "{log}");
}

#[test]
fn the_names_of_tests_are_masked() {
    let env = TestEnv::as_me();
    // The second name is cut, within the value.
    let long = format!("{}{SECRET}", "x".repeat(500 - 8));
    let text = format!(
        "#!/bin/sh\nprintf 'running 3 tests\ntest a::{SECRET} ... FAILED\ntest {long} ... FAILED\n'\n\
        printf 'test {SECRET}::b ... '\nexit 101\n"
    );
    env.script("cargo", &text);
    let evidence = env.path("evidence.json");
    let run = || {
        let call = env.quell("test").env("TOKEN", SECRET).env("QUELL_START_MASK", "TOKEN");
        call.args(["--max-output", "2", "--evidence"]).args([&evidence])
    };
    let done = run().command(["./cargo", "test"]).finish();
    assert!(done.stdout.contains("failed: a::***"), "{}{}", done.stdout, done.stderr);
    let done = run().args(["--json"]).command(["./cargo", "test"]).finish();
    let data = &done.envelope()["data"];
    assert_eq!(data["failed_tests"][0], "a::***", "{data:#}");
    assert_eq!(data["running_test"], "***::b", "{data:#}");
    assert!(data["failed_tests"][1].as_str().is_some_and(|name| name.ends_with("x***…")), "{data:#}");
    let text = fs::read_to_string(&evidence).expect("the evidence");
    assert!(text.contains("a::***") && !text.contains(&SECRET[..7]), "{text}");
}

#[test]
fn no_process_of_quells_own_bears_a_secret_in_its_command_line() {
    let env = TestEnv::as_me();
    // Not that of the tests beside this one, whose programs bear it on purpose.
    let secret = format!("kept-{}", env.oracle.nap());
    let input = env.write("input", &secret);
    let appended = env.path("appended").display().to_string();
    let config =
        env.write("own.toml", &format!("[[hooks]]\non = [\"started\", \"ended\"]\nappend = {appended:?}\n"));
    let variables = env.write("variables", &format!("TOKEN={secret}\n"));
    let over = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = Vec::new();
            while !over.load(Ordering::Relaxed) {
                for entry in fs::read_dir("/proc").expect("/proc").flatten() {
                    let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                    if String::from_utf8_lossy(&line).contains(&secret) {
                        seen.push(String::from_utf8_lossy(&line).into_owned());
                    }
                }
            }
            seen
        });
        for _ in 0..(rounds() / 10).max(3) {
            let job = env
                .start()
                .env("QUELL_CONFIG", &config)
                .args(["--env-file", variables.to_str().expect("a path")])
                .args(["--stdin", input.to_str().expect("a path"), "--ready-cmd", "test -n \"$TOKEN\""])
                .sh("sleep 0.1; cat >/dev/null")
                .begin();
            assert!(job.wait_over(PATIENCE));
        }
        over.store(true, Ordering::Relaxed);
        watcher.join().expect("the watcher")
    });
    assert_eq!(seen, Vec::<String>::new());
}

/// Everything below a directory, with it.
fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(walk(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

#[test]
fn what_quell_writes_is_its_users_alone() {
    for user in User::all() {
        let env = TestEnv::new(user);
        // The most careless caller.
        let careless = ["sh", "-c", r#"umask 0; exec "$@""#, "sh"];
        let appended = env.path("appended").display().to_string();
        let config =
            env.write("own.toml", &format!("[[hooks]]\non = [\"started\"]\nappend = {appended:?}\n"));
        let start = || env.start().wrapped(careless).env("QUELL_CONFIG", &config).args(["--max-log", "4K"]);
        let ended = start().args(["--name", "ended"]).sh("seq 10000; seq 10000 >&2").begin();
        assert!(ended.wait_over(PATIENCE));
        let _live = start().args(["--name", "live"]).command(["sleep", &env.oracle.nap()]).begin();
        let swept = env.quell("sweep").wrapped(careless).finish();
        assert_eq!(swept.code(), Some(0), "{}", swept.stderr);
        let open: Vec<String> = walk(&env.home())
            .into_iter()
            .chain([env.path("appended")])
            .filter_map(|path| {
                let meta = fs::symlink_metadata(&path).ok()?;
                let mode = meta.permissions().mode() & 0o777;
                let right = if meta.is_dir() { 0o700 } else { 0o600 };
                let harmless = meta.is_symlink() || (mode == right);
                let kind = if meta.file_type().is_socket() { "socket " } else { "" };
                (!harmless).then(|| format!("{kind}{} {mode:o}", path.display()))
            })
            .collect();
        assert_eq!(open, Vec::<String>::new());
        assert!(walk(&env.home()).iter().any(|path| path.ends_with("control.sock")));
    }
}

#[test]
fn another_user_reads_nothing_and_asks_for_nothing() {
    let name = "another_user_reads_nothing_and_asks_for_nothing";
    if !am_root() {
        return skip(name, "needs root to be two users");
    }
    let env = TestEnv::new(User::Root);
    let job = quell(&env)
        .start(&quell::JobRequest::background(["sh", "-c", "echo private; sleep 20"]))
        .expect("a start");
    let prefix = User::Ordinary.prefix();
    let as_ordinary_user = |words: &[&str]| {
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args(words).env("QUELL_HOME", env.home()).output().expect("setpriv")
    };
    let home = env.home();
    let out = as_ordinary_user(&["cat", &job.dir().dir().join("stdout.log").display().to_string()]);
    assert!(!out.status.success() && out.stdout.is_empty());
    let out = as_ordinary_user(&["ls", &home.display().to_string()]);
    assert!(!out.status.success() && out.stdout.is_empty());
    let bin = TestEnv::new(User::Ordinary);
    let out = as_ordinary_user(&[bin.quell_path().to_str().expect("a path"), "stop", &job.id().to_string()]);
    assert!(!out.status.success(), "{out:?}");
    assert_eq!(job.view().expect("a view").state, quell::JobState::Running);
    let _ = job.stop_with(&quell::StopOptions::kill()).expect("a stop");
    over(&job);
}

/// Not a test of its own: what the test below runs as another user.
#[test]
#[ignore = "a part of another test"]
fn a_caller_of_the_socket() {
    let Some(socket) = std::env::var_os("QUELL_TEST_SOCKET") else { return };
    let mut line = UnixStream::connect(socket).expect("a socket that is open to all");
    let stop = r#"{"stop":{"kill":true,"grace":null,"reason":null}}"#;
    let _ = writeln!(line, "{stop}");
    let mut answer = String::new();
    // A line that is closed without a word may also be reset.
    let _ = line.read_to_string(&mut answer);
    println!("ANSWER <{answer}>");
}

#[test]
fn another_user_that_can_reach_the_socket_is_not_heard() {
    let name = "another_user_that_can_reach_the_socket_is_not_heard";
    if !am_root() {
        return skip(name, "needs root to be two users");
    }
    let env = TestEnv::new(User::Root);
    let job = env.start().command(["sleep", &env.oracle.nap()]).begin();
    // Another program has opened the permissions that quell had closed.
    let socket = job.dir().join("control.sock");
    for path in socket.ancestors().take_while(|path| path.starts_with(env.dir())) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("chmod");
    }
    let caller = env.path("caller");
    copy_program(&std::env::current_exe().expect("the tests themselves"), &caller);
    let call = |prefix: &[String]| {
        let words = prefix.iter().cloned().chain([caller.display().to_string()]).collect::<Vec<_>>();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args([
            "--exact",
            "security::secrets::a_caller_of_the_socket",
            "--ignored",
            "--nocapture",
        ]);
        let output = command.env("QUELL_TEST_SOCKET", &socket).current_dir("/").output().expect("the caller");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = call(&User::Ordinary.prefix());
    assert!(said.contains("ANSWER <>"), "{said}");
    assert_eq!(job.state(), "running", "{said}");
    // The same call from its own user is accepted, so the message itself was correct.
    let said = call(&[]);
    assert!(said.contains("accepted"), "{said}");
    assert!(job.wait_over(PATIENCE), "{}", job.state());
}

#[test]
fn a_variable_to_be_masked_that_is_not_there_is_named() {
    let env = TestEnv::as_me();
    let start = |options: &[&str]| env.start().args(options).command(["true"]).finish();
    let done = start(&["--env", "TOKEN=s3cret", "--mask", "TOKNE", "--mask", "TOKEN", "--mask", "HOME"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("--mask TOKNE") && done.stderr.lines().count() == 1, "{}", done.stderr);
    assert!(start(&["--clear-env", "--mask", "HOME"]).stderr.contains("--mask HOME"));
}
