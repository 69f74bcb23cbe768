//! Defects of files, pipes and the command line that were found and fixed, each told by what happened.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::mpsc,
    thread,
    time::Duration,
};

use quell_tests::{
    all_hold, eventually,
    evidence::receipt,
    host::Setting,
    run::{Finished, PATIENCE},
    test_env::TestEnv,
};

use crate::cli::bad_input::{TRACE, is_refused, options_are_refused};

/// The receipt's own file was opened first, got the number 3, and was taken for the caller's: quell
/// closed it twice and aborted.
#[test]
fn a_closed_receipt_descriptor_was_taken_for_the_receipts_file() {
    let env = TestEnv::as_me();
    let options = ["--receipt", "file", "--receipt-fd", "3"];
    let closed = ["sh", "-c", r#"exec "$@" 3>&-"#, "sh"];
    is_refused(&env, 125, |quell| quell.wrapped(closed).args(options).sh(TRACE));

    let open = ["sh", "-c", r#"exec "$@" 3>descriptor"#, "sh"];
    let done = env.run().wrapped(open).args(options).command(["true"]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let [from_file, from_descriptor] = ["file", "descriptor"].map(|name| receipt(&env.path(name)));
    assert_eq!(from_file.expect("in the file"), from_descriptor.expect("on the descriptor"));
}

/// quell died of SIGXFSZ in the middle of its work and left what it had made.
#[test]
fn a_limit_on_the_size_of_files_killed_quell() {
    // In blocks of 512 bytes: nothing at all, less than the specification, less than the receipt.
    let limits = ["0", "1", "2", "4", "8"];
    let cases: Vec<_> = Setting::all().into_iter().flat_map(|s| limits.map(|limit| (s, limit))).collect();
    all_hold(2, &cases, |&(setting, limit)| {
        let env = TestEnv::enclosed(setting);
        // stderr goes the way of stdout, a pipe: no limit can silence quell there.
        let limited = ["sh", "-c", r#"ulimit -f $0; exec "$@" 2>&1"#, limit];
        let done =
            env.run().wrapped(limited).args(["--contain", setting.contain.as_str()]).sh("exit 5").finish();
        let what = format!("{setting}, ulimit -f {limit}: {}, {:?}", done.status, done.stdout);
        let told = done.stdout.lines().filter(|line| line.starts_with("quell: ")).count();
        // Either it did not run at all, or it ran and only the record is missing.
        let refused = done.code() == Some(125) && told == 1;
        let ran = done.code() == Some(5) && (told > 0 || is_on_record(&env));
        let left = env.leftovers_after(PATIENCE);
        if (refused || ran) && left.is_empty() { Ok(()) } else { Err(format!("{what}; left: {left:?}")) }
    });
}

/// The receipt went into a file that had no name any more, and nothing said so.
#[test]
fn a_receipt_whose_file_the_command_removes_was_lost() {
    let env = TestEnv::as_me();
    let file = env.path("receipt.json");
    let shown = file.display();
    for script in [format!("rm {shown}"), format!("echo own >{shown}.new; mv {shown}.new {shown}")] {
        let done = env.run().args(["--receipt"]).args([&file]).sh(&script).finish();
        assert_eq!(done.code(), Some(0), "{script}: {}", done.stderr);
        assert_eq!(receipt(&file).expect("a receipt")["verdict"]["kind"], "gone", "{script}");
    }
    let dir = env.path("dir");
    std::fs::create_dir(&dir).expect("mkdir");
    let quell = env.run().args(["--receipt"]).args([dir.join("receipt.json")]);
    let done = quell.sh(&format!("rm -r {}", dir.display())).finish();
    assert_eq!(done.code(), Some(125), "{}", done.stderr);
    assert!(done.stderr.contains("receipt could not be written to"), "{}", done.stderr);
}

/// A file that never had a name is the caller's to read, by its own descriptor.
#[test]
fn a_receipt_can_go_to_a_file_without_a_name() {
    let env = TestEnv::as_me();
    let file = env.path("receipt.json");
    let nameless = format!(r#"exec 7<>{0}; rm {0}; "$@" && cat <&7"#, file.display());
    let quell = env.run().wrapped(["sh", "-c", &nameless, "sh"]).args(["--receipt", "/dev/fd/7"]);
    let done = quell.command(["true"]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stdout.starts_with(r#"{"schema""#), "{}", done.stdout);
    assert!(!file.exists());
}

fn is_on_record(env: &TestEnv) -> bool {
    env.records().iter().any(|record| receipt(&record.dir.join("receipt.json")).is_ok())
}

/// Fills a fifo and keeps its reading end, from which nothing is ever read.
fn full(fifo: &Path) -> File {
    const O_NONBLOCK: i32 = 0o4000;
    let open = OpenOptions::new().read(true).write(true).custom_flags(O_NONBLOCK).open(fifo);
    let mut pipe = open.expect("open the fifo");
    while pipe.write(&[b'x'; 4096]).is_ok() {}
    pipe
}

/// quell waited for ever for the reader of its receipt, with the job long gone.
#[test]
fn a_receipt_for_a_reader_that_does_not_read_hung_quell() {
    let check = |what: &str, done: Finished| {
        let told = done.stderr.lines().any(|line| line.starts_with("quell: ") && line.contains("receipt"));
        assert!(done.code() == Some(125) && told, "{what}: {}, {:?}", done.status, done.stderr);
    };
    let env = TestEnv::as_me();
    let fifo = env.fifo();
    let _reader = full(&fifo);
    let redirected = format!(r#"exec "$@" 3>{}"#, fifo.display());
    let quell = env.run().wrapped(["sh", "-c", &redirected, "sh"]).args(["--receipt-fd", "3"]);
    check("as a descriptor", quell.command(["true"]).finish());
    check("as a file", env.run().args(["--receipt"]).args([&fifo]).command(["true"]).finish());
    assert_eq!(env.leftovers(), Vec::<String>::new());
}

/// The front overwrote the end that its keeper had put on record before it was killed, with another cause.
#[test]
fn an_end_on_record_was_taken_back_when_the_keeper_was_killed_after_it() {
    let env = TestEnv::as_me();
    let fifo = env.fifo();
    let _reader = full(&fifo);
    // The keeper waits for this reader when the end is on record already.
    let redirected = format!(r#"exec "$@" 3>{}"#, fifo.display());
    let quell = env.run().wrapped(["sh", "-c", &redirected, "sh"]).args(["--receipt-fd", "3"]);
    let mut running = quell.script("exit 7").start();
    let ended = || env.records().iter().any(|record| record.state == "ended");
    assert!(eventually(PATIENCE, ended), "{:?}", env.records());
    let keepers = running.front.children();
    assert!(keepers.len() == 1 && keepers[0].signal("KILL"), "{keepers:?}");
    assert!(running.wait_exit(PATIENCE).is_some());
    let records = env.records();
    assert_eq!(records[0].state, "ended", "{records:?}");
    let kept = receipt(&records[0].dir.join("receipt.json")).unwrap();
    assert_eq!(kept["cause"], "own_exit", "{kept}");
    assert_eq!(env.leftovers(), Vec::<String>::new());
}

/// The front and the keeper held on to what the caller had passed on, so that a reader saw no end
/// before quell's own.
#[test]
fn the_reader_of_a_pipe_that_the_program_had_closed_waited_for_quell() {
    all_hold(2, &Setting::all(), |&setting| {
        let env = TestEnv::with(setting);
        let fifo = env.fifo();
        let (send, ended) = mpsc::channel();
        let reader = fifo.clone();
        thread::spawn(move || {
            let mut text = String::new();
            let read = File::open(reader).and_then(|mut pipe| pipe.read_to_string(&mut text));
            send.send(read.map(|_| text))
        });
        let extra = format!(r#"exec "$@" 3>{}"#, fifo.display());
        let quell =
            env.run().wrapped(["sh", "-c", &extra, "sh"]).args(["--contain", setting.contain.as_str()]);
        let script = "echo first; echo third >&3; exec >&- 2>&- 3>&-; sleep $N & wait";
        let mut running = quell.script(script).start();
        let stdout_ended = running.wait_output_closed(PATIENCE);
        let third = ended.recv_timeout(PATIENCE);
        let still_runs = running.wait_exit(Duration::ZERO).is_none();
        running.front.signal("TERM");
        let status = running.wait_exit(PATIENCE).ok_or(format!("{setting}: no return"))?;
        if !stdout_ended || !still_runs || !matches!(&third, Ok(Ok(text)) if text == "third\n") {
            let ends = format!("stdout ended: {stdout_ended}, descriptor 3: {third:?}, runs: {still_runs}");
            return Err(format!("{setting}: {status}, {}; {ends}", running.stderr()));
        }
        Ok(())
    });
}

/// What quell did not know was taken for the program, or for its first word.
#[test]
fn an_unknown_option_was_taken_for_the_program() {
    options_are_refused(&[
        &["--no-such-option"],
        &["--timeoot", "1s"],
        &["--Timeout=1s"],
        &["-x"],
        &["--timeout", "1s", "--bogus=1"],
    ]);
}

/// A descriptor to a file was emptied for the receipt: an older log was lost, or the program's own output.
#[test]
fn a_receipt_descriptor_to_a_file_lost_what_was_in_it() {
    let env = TestEnv::as_me();
    let log = env.write("log", "before\n");
    let append = format!(r#"exec "$@" 3>>{0} >>{0}"#, log.display());
    let quell = env.run().wrapped(["sh", "-c", &append, "sh"]).args(["--receipt-fd", "3"]);
    let done = quell.sh("echo from the program").finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let text = std::fs::read_to_string(&log).expect("the log");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert_eq!(lines[..2], ["before", "from the program"]);
    assert!(lines[2].starts_with(r#"{"schema":"quell/1""#), "{text}");
}

/// A start that failed had emptied the file that its receipt was to replace, and left an empty one where there was none.
#[test]
fn a_run_that_never_began_emptied_the_file_for_its_receipt() {
    let env = TestEnv::as_me();
    let (old, new) = (env.write("old.json", "precious\n"), env.path("new.json"));
    for file in [&old, &new] {
        for words in [&["--cwd", "/nonexistent"][..], &[]] {
            let quell = env.run().args(["--receipt"]).args([file]).args(words);
            let done = quell.command(["/nonexistent/program"]).finish();
            assert!(matches!(done.code(), Some(125 | 127)), "{}", done.stderr);
        }
    }
    assert_eq!(std::fs::read_to_string(&old).expect("the old one"), "precious\n");
    assert!(!new.exists());
    let done = env.run().args(["--receipt"]).args([&old]).command(["true"]).finish();
    assert!(done.code() == Some(0) && receipt(&old).is_ok(), "{}", done.stderr);
}

/// A receipt to the file that the program wrote to took the place of all that was in it.
#[test]
fn a_receipt_to_where_the_program_writes_took_its_place() {
    let env = TestEnv::as_me();
    let log = env.write("log", "before\n");
    for name in ["/dev/stdout", "/dev/stderr", log.to_str().expect("UTF-8")] {
        std::fs::write(&log, "before\n").expect("the log");
        let append = format!(r#"exec "$@" >>{0} 2>>{0}"#, log.display());
        let quell = env.run().wrapped(["sh", "-c", &append, "sh"]).args(["--receipt", name]);
        assert_eq!(quell.sh("echo from the program").finish().code(), Some(0));
        let text = std::fs::read_to_string(&log).expect("the log");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), &lines[..2]), (3, &["before", "from the program"][..]), "{name}: {text}");
        assert!(lines[2].starts_with(r#"{"schema":"quell/1""#), "{name}: {text}");
    }
}

/// Opening a fifo without a reader took for ever.
#[test]
fn a_receipt_to_a_fifo_without_a_reader_hung_quell() {
    let env = TestEnv::as_me();
    let fifo = env.fifo();
    is_refused(&env, 125, |quell| quell.args(["--receipt"]).args([&fifo]).sh(TRACE));
}
