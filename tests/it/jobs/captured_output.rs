//! What a job writes is kept, up to its cap, and what is not kept is stated exactly.

use std::{
    fs,
    io::Write,
    os::unix::fs::MetadataExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use quell::binary::{JobInternals, LogReader, Piece, Watch};
use quell::{Job, JobRequest, JobState, Mode, SendEof, Stream};
use quell_tests::{jobs::Background, oracle::Process, run::PATIENCE, test_env::TestEnv};

use crate::library::{over, quell};

/// How many bytes the largest job writes: `QUELL_TEST_VOLUME`, or 300 MB.
pub(crate) fn volume() -> u64 {
    std::env::var("QUELL_TEST_VOLUME").ok().and_then(|text| text.parse().ok()).unwrap_or(300_000_000)
}

/// Each number that a flood writes takes this many bytes.
const RECORD: u64 = 16;

/// What a flood has at `from`, `length` bytes of it: numbers with a line end each, or without.
fn flooded(from: u64, length: u64, lines: bool) -> Vec<u8> {
    let (first, last) = (from / RECORD, (from + length).div_ceil(RECORD));
    let mut text = Vec::with_capacity(((last - first) * RECORD) as usize);
    for number in first..last {
        if lines {
            writeln!(text, "{number:015}").expect("into memory");
        } else {
            write!(text, "{number:016}").expect("into memory");
        }
    }
    let skip = (from - first * RECORD) as usize;
    text[skip..skip + length as usize].to_vec()
}

/// A start of so many bytes of flood.
fn flood(env: &TestEnv, kind: &str, bytes: u64) -> JobRequest {
    let actor = env.actor_path();
    JobRequest::background([
        actor.to_str().expect("a path"),
        kind,
        env.oracle.token(),
        &(bytes / RECORD).to_string(),
    ])
}

/// The same with a log of so many bytes.
fn with_log(mut request: JobRequest, max_log: u64) -> JobRequest {
    if let Mode::Background(background) = &mut request.mode {
        background.max_log = max_log;
    }
    request
}

/// What a reader has found out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    kept: u64,
    cut: u64,
    cut_lines: u64,
    cuts: usize,
    end: u64,
}

impl Found {
    /// Reads on, and compares each byte with what belongs there.
    fn read(&mut self, reader: &mut LogReader, lines: bool) {
        self.compare(reader, lines, |from, bytes| bytes == flooded(from, bytes.len() as u64, lines));
    }

    fn compare(&mut self, reader: &mut LogReader, lines: bool, right: impl Fn(u64, &[u8]) -> bool) {
        while let Some(piece) = reader.next_piece().expect("a piece") {
            match piece {
                Piece::Data { stream, offset, bytes, .. } => {
                    assert_eq!((stream, offset), (Stream::Stdout, self.end));
                    assert!(right(offset, bytes), "torn or wrong data in {} bytes at {offset}", bytes.len());
                    self.kept += bytes.len() as u64;
                    self.end += bytes.len() as u64;
                }
                Piece::Cut(cut) => {
                    assert_eq!((cut.from, cut.to - cut.from), (self.end, cut.bytes));
                    // All lines that end between the two offsets are missing.
                    let ends = |offset: u64| if lines { offset / RECORD } else { 0 };
                    assert_eq!(cut.lines, Some(ends(cut.to) - ends(cut.from)), "{cut:?}");
                    self.cut += cut.bytes;
                    self.cut_lines += cut.lines.unwrap_or(0);
                    self.cuts += 1;
                    self.end = cut.to;
                }
            }
        }
    }
}

/// What the files of the capture take.
fn on_disk(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len().max(meta.blocks() * 512)).sum()
}

/// The resident memory of a process that is its own, in bytes.
fn memory(process: &Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[test]
fn the_head_and_the_tail_of_a_flood_are_kept_and_the_cut_is_exact() {
    let env = TestEnv::as_me();
    let cap = 4 << 20;
    let bytes = volume() / RECORD * RECORD;
    // First idle, then the flood, then idle again.
    let script = format!("read x; $A flood $T {}; read x", bytes / RECORD);
    let job = env
        .start()
        .env("A", env.actor_path())
        .env("T", env.oracle.token())
        .args(["--stdin", "pipe", "--max-log", "4M"])
        .sh(&script)
        .begin();
    let handle = quell(&env).job(&job.id).expect("the job");
    let keeper = job.process("keeper").expect("a keeper");
    // The first answer is given before the first measure.
    handle.vitals().expect("vitals");
    let (before, began) = (memory(&keeper), Instant::now());
    handle.send(b"go\n", SendEof::No, PATIENCE).expect("a send");
    let mut most = 0;
    while handle.vitals().expect("vitals").1 < bytes {
        most = most.max(on_disk(&job.dir()));
        assert!(began.elapsed() < PATIENCE * 60, "the flood does not end");
        // A sample; no event tells that a file has grown too large.
        thread::sleep(Duration::from_millis(10));
    }
    let (after, took) = (memory(&keeper), began.elapsed());
    handle.send(b"", SendEof::Yes, PATIENCE).expect("an end");
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    eprintln!(
        "{} MB/s; {} KiB on disk at most; the keeper had {before} bytes of its own before, {after} after",
        (bytes as f64 / took.as_secs_f64() / 1e6).round(),
        most / 1024,
    );
    // The records beside the capture are small.
    assert!(most <= cap + (256 << 10), "{most} bytes on disk with a cap of {cap}");
    assert!(after <= before + (1 << 20), "the keeper's memory grew from {before} to {after}");
    let mut found = Found::default();
    found.read(&mut LogReader::open(&job.dir()).expect("a reader"), true);
    assert_eq!((found.end, found.cuts), (bytes, 1), "{found:?}");
    assert!(found.kept > cap * 3 / 4, "{found:?}");
    let totals = handle.receipt().expect("a receipt").output.expect("output").stdout;
    assert_eq!(
        (totals.bytes, totals.lines, totals.cut_bytes, totals.cut_lines),
        (bytes, bytes / RECORD, found.cut, found.cut_lines)
    );
}

#[test]
fn many_readers_of_a_writing_job_see_the_same_bytes() {
    let env = TestEnv::as_me();
    let bytes = volume() / 100 / RECORD * RECORD;
    let right = flooded(0, bytes, true);
    for cap in [bytes * 2, 1 << 20] {
        let start = with_log(flood(&env, "flood", bytes), cap);
        let job = quell(&env).start(&start).expect("a start");
        let found: Vec<Found> = thread::scope(|scope| {
            let readers: Vec<_> = (0..50).map(|_| scope.spawn(|| follow(&job, &right))).collect();
            readers.into_iter().map(|reader| reader.join().expect("a reader")).collect()
        });
        let totals = job.receipt().expect("a receipt").output.expect("output").stdout;
        assert_eq!(totals.bytes, bytes);
        for found in &found {
            // A quick reader sees more than what is kept in the end; what a reader misses is always reported.
            assert_eq!((found.end, found.kept + found.cut), (bytes, bytes), "{found:?}");
            assert!(found.cut <= totals.cut_bytes, "{found:?} {totals:?}");
        }
        if cap > bytes {
            assert_eq!(totals.cut_bytes, 0);
        }
    }
}

/// Follows a job to its end, as `logs -f` does.
fn follow(job: &Job, right: &[u8]) -> Found {
    let dir = job.dir().dir();
    let mut reader = LogReader::open(dir).expect("a reader");
    let mut watch = Watch::new().expect("a watch");
    watch.add(dir).expect("a watch");
    let mut found = Found::default();
    loop {
        let over = job.view().expect("a view").state == JobState::Ended;
        found.compare(&mut reader, true, |from, bytes| right[from as usize..].starts_with(bytes));
        if over {
            return found;
        }
        let deadline = Instant::now() + PATIENCE;
        assert!(watch.wait(Some(deadline)).expect("a wait"), "nothing has happened");
    }
}

#[test]
fn output_without_a_line_end_is_no_different() {
    let env = TestEnv::as_me();
    let bytes = volume() / 10 / RECORD * RECORD;
    // A line that never ends must not be held in memory to be matched.
    let mut background = quell::Background { max_log: 1 << 20, ..quell::Background::default() };
    background.ready.rules.log = Some("no such line".into());
    let start = JobRequest { mode: background.into(), ..flood(&env, "flood-flat", bytes) };
    let job = quell(&env).start(&start).expect("a start");
    assert_eq!(over(&job), quell::Condition::Exit);
    let mut found = Found::default();
    found.read(&mut LogReader::open(job.dir().dir()).expect("a reader"), false);
    let totals = job.receipt().expect("a receipt").output.expect("output").stdout;
    assert_eq!((totals.bytes, totals.lines, totals.cut_bytes), (bytes, 0, found.cut));
    assert_eq!((found.end, found.cuts, found.cut_lines), (bytes, 1, 0));
}

#[test]
fn a_grandchild_that_holds_the_pipes_delays_nothing() {
    let env = TestEnv::as_me();
    // It has left the tree as far as it can: own session, no parent. The root's exit is the job's end.
    let script =
        "echo before; setsid sh -c 'trap \"\" TERM HUP; sleep '$N & disown; echo ready >$QUELL_TEST_READY";
    let job = env.start().args(["--grace", "100ms"]).script(script).begin();
    let handle = quell(&env).job(&job.id).expect("the job");
    assert_eq!(over(&handle), quell::Condition::Exit);
    assert_eq!(job.output("stdout"), "before\n");
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
}

#[test]
fn both_streams_are_told_in_the_order_in_which_they_were_written() {
    let env = TestEnv::as_me();
    // The order of two pipes is that in which they are read, so each word waits until the one before it has been: on a
    // busy machine no pause is long enough.
    let script = r#"kept() { until grep -qx "$1 $i" "$DIR/$QUELL_JOB/std$1.log"; do :; done; }
        i=0; while [ $i -lt 40 ]; do echo out $i; kept out; echo err $i >&2; kept err; i=$((i+1)); done"#;
    let mut start = JobRequest::background(["sh", "-c", script]);
    start.env.set.push(("DIR".into(), env.home().join("jobs").into()));
    let job = quell(&env).start(&start).expect("a start");
    assert_eq!(over(&job), quell::Condition::Exit);
    let page = job.log_page(&quell::binary::LogQuery::default()).expect("logs");
    let told: Vec<String> =
        page.lines().map(|line| String::from_utf8_lossy(&line.bytes).into_owned()).collect();
    let right: Vec<String> = (0..40).flat_map(|i| [format!("out {i}"), format!("err {i}")]).collect();
    assert_eq!(told, right);
    assert!(page.lines().zip(page.lines().skip(1)).all(|(one, two)| one.time_ns < two.time_ns));
}

/// All that was kept of a stream, where nothing was cut.
pub fn raw(job: &Background<'_>, stream: &str) -> Vec<u8> {
    fs::read(job.dir().join(format!("{stream}.log"))).unwrap_or_default()
}

#[test]
fn bytes_are_kept_as_they_are() {
    let env = TestEnv::as_me();
    let every: Vec<u8> = (0..=255u8).cycle().take(100_000).collect();
    fs::write(env.path("every"), &every).expect("a file");
    for (script, out, err) in [
        ("cat every; cat every >&2", &every[..], &every[..]),
        ("printf 'no line end'", b"no line end", b""),
        ("exit 3", b"", b""),
        ("echo x; exec >&-; echo to nobody; echo y >&2", b"x\n", b"y\n"),
        // In the last instant: nothing that was written before the kill is lost.
        ("cat every; kill -9 $$", &every[..], b""),
        ("printf last >&2; kill -9 $$", b"", b"last"),
    ] {
        let job = env.start().sh(script).begin();
        assert!(job.wait_over(PATIENCE), "{script}");
        assert!(raw(&job, "stdout") == out, "{script}: {} bytes", raw(&job, "stdout").len());
        let told = raw(&job, "stderr");
        assert!(told.ends_with(err) && (script.contains("nobody") || told == err), "{script}: {told:?}");
    }
}

#[test]
fn what_was_written_is_there_after_a_kill_of_the_whole_tree() {
    let env = TestEnv::as_me();
    for round in 0..5 {
        // 48 KiB: less than a pipe holds, so that it may all be unread when the kill comes.
        let script = "head -c 49152 /dev/zero; echo ready >$QUELL_TEST_READY; sleep $N";
        let job = env.start().script(script).begin();
        if round % 2 == 0 {
            assert_eq!(job.stop(&["--now"]).code(), Some(0));
        } else {
            job.process("keeper").expect("a keeper").signal("KILL");
            assert!(job.wait_over(PATIENCE), "{}", job.state());
        }
        assert_eq!(raw(&job, "stdout").len(), 49152, "round {round}");
        assert_eq!(job.receipt().expect("a receipt")["output"]["stdout"]["bytes"], 49152, "round {round}");
    }
}

#[test]
fn nothing_is_lost_while_the_keeper_is_stopped() {
    let env = TestEnv::as_me();
    let bytes = 16 << 20;
    let script = format!("read x; $A flood $T {}; echo done >&2", bytes / RECORD);
    let job = env
        .start()
        .env("A", env.actor_path())
        .env("T", env.oracle.token())
        .args(["--stdin", "pipe"])
        .sh(&script)
        .begin();
    let handle = quell(&env).job(&job.id).expect("the job");
    let keeper = job.process("keeper").expect("a keeper");
    handle.send(b"go\n", SendEof::Yes, PATIENCE).expect("a send");
    for _ in 0..3 {
        keeper.signal("STOP");
        // Long enough to fill the pipe, and so that the program waits.
        thread::sleep(Duration::from_millis(300));
        keeper.signal("CONT");
    }
    assert!(job.wait_over(PATIENCE), "{}", job.state());
    assert!(raw(&job, "stdout") == flooded(0, bytes, true));
    assert_eq!(job.output("stderr"), "done\n");
}

#[test]
fn a_cap_holds_from_the_smallest_to_the_largest() {
    let env = TestEnv::as_me();
    for (size, code) in [
        ("4K", 0),
        ("4096", 0),
        ("8E", 2),
        ("1T", 0),
        ("4095", 2),
        ("0", 2),
        ("-1", 2),
        ("", 2),
        ("big", 2),
        ("64MB ", 2),
    ] {
        let done = env.start().args([&format!("--max-log={size}")]).command(["true"]).finish();
        assert_eq!(done.code(), Some(code), "{size:?}: {}", done.stderr);
        assert!(code == 0 || done.stderr.lines().count() <= 8, "{size:?}: {}", done.stderr);
    }
    let start = with_log(flood(&env, "flood", 160_000), 4096);
    let job = quell(&env).start(&start).expect("a start");
    assert_eq!(over(&job), quell::Condition::Exit);
    let mut found = Found::default();
    found.read(&mut LogReader::open(job.dir().dir()).expect("a reader"), true);
    assert_eq!((found.end, found.cuts), (160_000, 1), "{found:?}");
    assert!(found.kept <= 4096 && found.kept > 1024, "{found:?}");
}
