//! `quell logs`: exact bytes, exact cuts, exact cursors; following that loses nothing and ends.

use std::{fs, fs::File, io::Read, process::Command};

use quell_tests::{
    jobs::Background,
    run::{Finished, PATIENCE},
    test_env::TestEnv,
};
use serde_json::Value;

fn logs(env: &TestEnv, job: &Background<'_>, options: &[&str]) -> Finished {
    let done = env.quell("logs").args([job.id.as_str()]).args(options).finish();
    assert_eq!(done.code(), Some(0), "{options:?}: {}", done.stderr);
    done
}

/// What `quell logs` writes to a file, byte by byte.
fn bytes(env: &TestEnv, job: &Background<'_>, options: &[&str]) -> Vec<u8> {
    let path = env.fresh("bytes");
    let done = env
        .quell("logs")
        .args([job.id.as_str()])
        .args(options)
        .stdout(File::create(&path).expect("a file"))
        .finish();
    assert_eq!(done.code(), Some(0), "{options:?}: {}", done.stderr);
    fs::read(path).expect("the file")
}

fn ended<'l>(env: &'l TestEnv, options: &[&str], script: &str) -> Background<'l> {
    let job = env.start().args(options).sh(script).begin();
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    job
}

#[test]
fn one_stream_alone_is_exact_to_the_byte() {
    let env = TestEnv::as_me();
    // Binary, with zeros, without a line end at the end, and more than any buffer.
    let script = "head -c 10000000 /dev/urandom | tee copy; printf 'no end' | tee -a copy; echo aside >&2";
    let job = ended(&env, &[], script);
    let copy = fs::read(env.path("copy")).expect("the copy");
    assert!(bytes(&env, &job, &["--stdout"]) == copy, "stdout differs");
    assert!(bytes(&env, &job, &["--stdout", "-f"]) == copy, "stdout differs when followed");
    assert_eq!(bytes(&env, &job, &["--stderr"]), b"aside\n");
    let raw = bytes(&env, &job, &["--raw"]);
    assert_eq!(raw.len(), copy.len() + "aside\n".len());
}

#[test]
fn both_streams_come_in_true_order() {
    let env = TestEnv::as_me();
    // The order of two pipes is that in which they are read: each line waits until the one before it has been.
    let script = r#"kept() { until grep -qx "$1" "$QUELL_HOME/jobs/$QUELL_JOB/std$2.log"; do :; done; }
        for i in 1 2 3; do echo out$i; kept out$i out; echo err$i >&2; kept err$i err; done; printf end"#;
    let job = ended(&env, &[], script);
    let done = logs(&env, &job, &[]);
    assert_eq!(done.stdout, "out1\nerr1\nout2\nerr2\nout3\nerr3\nend");
    let stamped = logs(&env, &job, &["--timestamps", "--stderr"]).stdout;
    assert_eq!(stamped.lines().count(), 3);
    assert!(stamped.lines().all(|line| line.get(23..28) == Some("Z err")), "{stamped}");
    assert_eq!(logs(&env, &job, &["--grep", "[13]$"]).stdout, "out1\nerr1\nout3\nerr3\n");
    assert_eq!(logs(&env, &job, &["--head", "1", "--grep", "err"]).stdout, "err1\n");
    assert_eq!(logs(&env, &job, &["--tail", "2"]).stdout, "err3\nend");
}

#[test]
fn readings_by_cursor_add_up_to_the_whole() {
    let env = TestEnv::as_me();
    let job = ended(&env, &[], "seq 1 1000; seq 1 50 >&2; printf last");
    let whole = logs(&env, &job, &[]).stdout;
    let (mut read, mut cursor) = (String::new(), "o0e0".to_owned());
    loop {
        let done = logs(&env, &job, &["--since", &cursor, "--head", "130", "--cursor"]);
        read += &done.stdout;
        cursor = done.stderr.trim().to_owned();
        if done.stdout.is_empty() {
            break;
        }
    }
    assert_eq!(read, whole);
    assert_eq!(cursor, format!("o{}e{}", 3893 + 4, 141));
    // Raw readings take the same cursors.
    let done = logs(&env, &job, &["--stdout", "--since", "o3893e0"]);
    assert_eq!(done.stdout, "last");
}

#[test]
fn a_budget_says_what_it_left_out_and_how_to_get_it() {
    let env = TestEnv::as_me();
    let job = ended(&env, &[], "seq 1 10000");
    let whole = logs(&env, &job, &[]).stdout;
    let done = logs(&env, &job, &["--budget", "1000"]);
    let marker = done.stdout.lines().find(|line| line.starts_with("[quell: ")).expect("a marker");
    let (head, tail) = done.stdout.split_once(&format!("{marker}\n")).expect("head and tail");
    assert!(head.len() + tail.len() <= 1000 && head.len() > 400 && tail.len() > 400, "{marker}");
    let again = marker.split_once("left out: ").expect("a command").1.trim_end_matches(']');
    let words: Vec<&str> = again.split(' ').collect();
    assert_eq!(&words[..2], ["quell", "logs"]);
    let middle = env.quell("logs").args(&words[2..]).finish().stdout;
    assert_eq!(format!("{head}{middle}{tail}"), whole);
    let count = |text: &str| text.replace(',', "").parse::<usize>().expect("a number");
    assert_eq!(
        count(marker["[quell: ".len()..].split(' ').next().unwrap_or_default()),
        middle.lines().count()
    );
    let exact = marker.split(" bytes)").next().and_then(|text| text.rsplit(' ').next()).unwrap_or_default();
    assert_eq!(count(exact), middle.len());
}

#[test]
fn a_cut_is_stated_exactly() {
    let env = TestEnv::as_me();
    let job = ended(&env, &["--max-log", "64K"], "seq 1 450000");
    let written: usize = (1..=450_000).map(|n: u32| n.to_string().len() + 1).sum();
    let done = logs(&env, &job, &["--json"]);
    let data = done.envelope()["data"].clone();
    let cuts = data["cuts"].as_array().expect("cuts");
    assert_eq!(cuts.len(), 1, "{cuts:?}");
    let lines = data["lines"].as_array().expect("lines");
    let kept: usize = lines
        .iter()
        .map(|line| line["text"].as_str().unwrap_or_default().len() + usize::from(line["ended"] == true))
        .sum();
    let cut = cuts[0]["bytes"].as_u64().expect("bytes") as usize;
    assert_eq!(kept + cut, written);
    let ends = lines.iter().filter(|line| line["ended"] == true).count();
    assert_eq!(ends + cuts[0]["lines"].as_u64().expect("lines") as usize, 450_000);
    // For people the same, in a line of its own; where bytes are wanted, beside them.
    let commas = |n: usize| {
        let digits = n.to_string();
        let parts: Vec<&str> =
            digits.as_bytes().rchunks(3).rev().map(|part| str::from_utf8(part).unwrap()).collect();
        parts.join(",")
    };
    let says = format!("{} bytes) of stdout were not kept: the job's --max-log is 64K]", commas(cut));
    let marked = |text: &str| {
        text.lines().filter(|line| line.starts_with("[quell: ") && line.ends_with(&says)).count()
    };
    assert_eq!(marked(&logs(&env, &job, &[]).stdout), 1);
    let raw = logs(&env, &job, &["--stdout"]);
    assert_eq!((marked(&raw.stdout), marked(&raw.stderr), raw.stdout.len()), (0, 1, kept));
}

#[test]
fn bytes_that_are_no_text_are_marked_in_json() {
    let env = TestEnv::as_me();
    let job = ended(&env, &[], r"printf 'a\377b\nplain\n'");
    let data = logs(&env, &job, &["--json"]).envelope()["data"].clone();
    assert_eq!(data["lines"][0]["text"], "a\u{fffd}b");
    assert_eq!(data["lines"][0]["lossy"], true);
    assert_eq!(data["lines"][1]["lossy"], Value::Null);
    assert_eq!(data["cursor"], "o10e0");
    assert_eq!(data["totals"]["stdout"]["bytes"], 10);
}

#[test]
fn eight_followers_get_every_byte_and_end_with_the_job() {
    let env = TestEnv::as_me();
    let script = "for i in $(seq 40); do seq 1 800; echo err$i >&2; sleep 0.02; done; printf end";
    let job = env.start().sh(script).begin();
    let followers: Vec<_> = (0..8)
        .map(|n| {
            env.quell("logs").args([job.id.as_str(), "-f"]).args((n % 2 == 1).then_some("--stdout")).start()
        })
        .collect();
    let read: Vec<Finished> = followers.into_iter().map(|follower| follower.finish()).collect();
    assert!(job.is_over(), "a follower ended before the job");
    let (merged, single) = (logs(&env, &job, &[]).stdout, job.output("stdout"));
    assert_eq!(single.len(), 40 * 3092 + 3);
    for (n, done) in read.iter().enumerate() {
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        assert!(
            done.stdout == if n % 2 == 1 { single.as_str() } else { merged.as_str() },
            "follower {n} differs"
        );
    }
}

#[test]
fn following_with_tail_begins_with_the_last_lines() {
    let env = TestEnv::as_me();
    let script =
        "seq 1 100; printf 'half'; echo ready >$QUELL_TEST_READY; read go <go; echo ' more'; echo end";
    let fifo = env.path("go");
    assert!(Command::new("mkfifo").arg("-m666").arg(&fifo).status().is_ok_and(|status| status.success()));
    let job = env.start().script(script).begin();
    assert!(quell_tests::eventually(PATIENCE, || job.output("stdout").ends_with("half")));
    let follower = env.quell("logs").args([job.id.as_str(), "-f", "--tail", "3"]).start();
    let json = env.quell("logs").args([job.id.as_str(), "-f", "--tail", "3", "--json"]).start();
    let begun = || [&follower, &json].iter().all(|reader| reader.stdout().contains("100"));
    assert!(quell_tests::eventually(PATIENCE, begun), "{:?} {:?}", follower.stdout(), json.stdout());
    fs::write(fifo, "go\n").expect("the fifo");
    assert_eq!(follower.finish().stdout, "99\n100\nhalf more\nend\n");
    let json = json.finish().stdout;
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let texts: Vec<&str> = lines.iter().filter_map(|line| line["data"]["text"].as_str()).collect();
    assert_eq!(texts, ["99", "100", "half more", "end"]);
    // Each says from where to go on.
    let cursor = lines[1]["data"]["cursor"].as_str().expect("a cursor");
    assert_eq!(logs(&env, &job, &["--since", cursor]).stdout, "half more\nend\n");
}

#[test]
fn a_reader_that_leaves_is_no_error_and_no_harm() {
    let env = TestEnv::as_me();
    let job = env.start().sh("while :; do seq 1 1000; sleep 0.01; done").begin();
    for options in [&["-f"][..], &["-f", "--stdout"], &["-f", "--json"]] {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let writer = File::from(std::os::fd::OwnedFd::from(writer));
        let follower = env.quell("logs").args([job.id.as_str()]).args(options).stdout(writer).start();
        let mut some = [0; 100];
        reader.read_exact(&mut some).expect("some output");
        drop(reader);
        let done = follower.finish();
        assert_eq!((done.code(), done.stderr.as_str()), (Some(0), ""), "{options:?}");
    }
    let killed = env.quell("logs").args([job.id.as_str(), "-f"]).start();
    killed.front.signal("KILL");
    drop(killed);
    assert_eq!(job.state(), "running");
}

#[test]
fn a_follower_ends_when_the_keepers_were_killed() {
    let env = TestEnv::as_me();
    let job = env.start().sh("echo here; exec sleep 300").begin();
    let follower = env.quell("logs").args([job.id.as_str(), "-f"]).start();
    assert!(quell_tests::eventually(PATIENCE, || job.output("stdout") == "here\n"));
    job.lose();
    let done = follower.finish();
    assert_eq!((done.code(), done.stdout.as_str()), (Some(0), "here\n"), "{}", done.stderr);
    assert!(job.is_over());
}

#[test]
fn a_follower_of_a_job_whose_files_were_deleted_ends_with_the_job() {
    let env = TestEnv::as_me();
    let job = env.start().sh("echo here; exec sleep 300").begin();
    assert!(quell_tests::eventually(PATIENCE, || job.output("stdout") == "here\n"));
    let mut follower = env.quell("logs").args([job.id.as_str(), "-f"]).start();
    assert!(quell_tests::eventually(PATIENCE, || follower.stdout() == "here\n"), "{}", follower.stderr());
    assert_eq!(follower.wait_exit(std::time::Duration::ZERO), None);
    fs::remove_dir_all(job.dir()).expect("the record is removed");
    fs::remove_file(env.home().join("live").join(&job.id)).expect("its lock, too");
    assert_eq!(env.quell("stop").args([job.id.as_str()]).finish().code(), Some(0));
    let done = follower.finish();
    assert_eq!((done.code(), done.stdout.as_str()), (Some(0), "here\n"), "{}", done.stderr);
}

/// A long line is one line, in all that matches lines.
#[test]
fn a_line_is_matched_as_a_whole() {
    let env = TestEnv::as_me();
    let fill = |bytes: usize| format!("head -c {bytes} /dev/zero | tr '\\0' x");
    let job = ended(&env, &["--pty"], &format!("{}; echo END; echo short", fill(65536)));
    for (regex, length) in [("xEND$", 65541), ("^x+$", 0), ("^END", 0), ("^short$", 7)] {
        for options in [&[][..], &["-f"], &["--tail", "1"]] {
            let done = env.quell("logs").args([&job.id, "--grep", regex]).args(options).finish();
            assert_eq!((done.stdout.len(), done.stderr.as_str()), (length, ""), "{regex} {options:?}");
        }
        let waited = env.quell("wait").args([&job.id, "--log", regex]).finish();
        assert_eq!(waited.code(), Some(i32::from(length == 0)), "{regex}: {}", waited.stdout);
    }
    // Beyond the limit the beginning decides, and that is said.
    let long = 3 << 20;
    let job = ended(&env, &[], &format!("{}; echo END", fill(long)));
    let done = env.quell("logs").args([&job.id, "--grep", "END"]).finish();
    assert!(done.stdout.is_empty() && done.stderr.contains("longer than 1 MiB"), "{}", done.stderr);
    let done = env.quell("logs").args([&job.id, "--grep", "^x"]).finish();
    assert_eq!((done.stdout.len(), done.stderr.lines().count()), (long + 4, 1), "{}", done.stderr);
    let answer = env.quell("logs").args([&job.id, "--json", "--grep", "^x"]).finish().envelope();
    assert_eq!(answer["data"]["long_lines"], 1);
    let answer = env.quell("wait").args([&job.id, "--json", "--log", "^x"]).finish().envelope();
    let waited = &answer["data"]["jobs"][0];
    assert_eq!((&waited["met"], &waited["line_cut"]), (&"log".into(), &true.into()));
    assert_eq!(waited["line"].as_str().map(str::len), Some(1 << 20));
    // A line whose middle was not kept is one line too.
    let job = ended(&env, &["--max-log", "8M"], &format!("{}; echo; echo next", fill(40 << 20)));
    let done = env.quell("logs").args([&job.id, "--grep", "next"]).finish();
    assert!(done.stdout.ends_with("\nnext\n"), "{}", done.stdout);
    assert_eq!(done.stderr, "quell: 1 line longer than 1 MiB: only the first 1 MiB was matched\n");
}

#[test]
fn what_makes_no_sense_is_said() {
    let env = TestEnv::as_me();
    let job = ended(&env, &["--name", "web"], "echo x");
    for (options, code) in [
        (&["nosuch"][..], 3),
        (&["../x"], 2),
        (&[job.id.as_str(), "--since", "12"], 2),
        (&[job.id.as_str(), "--grep", "("], 2),
        (&[job.id.as_str(), "-f", "--budget", "1K"], 2),
        (&[job.id.as_str(), "--raw", "--json"], 2),
    ] {
        let done = env.quell("logs").args(options).finish();
        assert_eq!(done.code(), Some(code), "{options:?}: {}", done.stderr);
        let json = env.quell("logs").args(options).args(["--json"]).finish();
        assert_eq!(json.envelope()["ok"], false, "{options:?}");
    }
    let run = env.run().command(["true"]).finish();
    assert_eq!(run.code(), Some(0));
    let foreground = env.ids("jobs").into_iter().find(|id| *id != job.id).expect("the run");
    let done = env.quell("logs").args([foreground.as_str()]).finish();
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert_eq!(logs(&env, &job, &[]).stdout, "x\n");
}

/// A last line without an end is a line, whether the log is followed or not.
#[test]
fn a_tail_that_is_followed_has_as_many_lines_as_one_that_is_not() {
    let env = TestEnv::as_me();
    let job = env.start().sh("seq 5; printf 'no end'").begin();
    assert!(job.wait_over(PATIENCE));
    for tail in ["0", "1", "2", "6", "9"] {
        let shown = |more: &[&str]| {
            let done = env.quell("logs").args([&job.id, "--tail", tail]).args(more).finish();
            assert_eq!(done.code(), Some(0), "{}", done.stderr);
            done.stdout
        };
        let expected = if tail == "0" { "no end".to_owned() } else { shown(&[]) };
        assert_eq!(shown(&["--follow"]).trim_end(), expected.trim_end(), "--tail {tail}");
    }
}
