use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::super::tests::{check_stream, disk_use, text};
use super::*;
use crate::testing::scratch;

const OUT: Stream = Stream::Stdout;

fn segments(dir: &Path) -> Vec<SegmentId> {
    SegmentId::list(dir, OUT, "idx").unwrap()
}

/// Checks all that is on disk against what was written and what the writer says.
fn check(dir: &Path, writer: &CaptureWriter, all: &[u8]) {
    let (kept, cuts) = check_stream(dir, OUT, 0, all);
    let totals = writer.totals();
    assert_eq!((totals.bytes, totals.lines), (all.len() as u64, line_ends(all)));
    assert_eq!(totals.cut_bytes, cuts.iter().map(|cut| cut.bytes).sum::<u64>());
    assert_eq!(totals.cut_lines, cuts.iter().map(|cut| cut.lines.unwrap()).sum::<u64>());
    let bytes: u64 = kept.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    assert_eq!(bytes + totals.cut_bytes, totals.bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_pattern_of_writes_takes_more_than_the_cap_and_head_and_tail_stay(
        cap in 4096u64..20_000,
        chunks in proptest::collection::vec(text(3000), 0..60),
    ) {
        let dir = scratch();
        let mut writer = CaptureWriter::create(dir.path(), OUT, cap).unwrap();
        let mut all = Vec::new();
        for (time, chunk) in chunks.iter().enumerate() {
            writer.write(chunk, time as u64 + 1).unwrap();
            all.extend_from_slice(chunk);
            prop_assert!(disk_use(dir.path(), OUT) <= cap);
        }
        check(dir.path(), &writer, &all);
        if all.len() as u64 > 2 * cap {
            let (kept, cuts) = check_stream(dir.path(), OUT, 0, &all);
            prop_assert_eq!(cuts.len(), 1, "only the midst is missing");
            let head: u64 = kept.iter().map(|(at, b)| if *at < cuts[0].from { b.len() as u64 } else { 0 }).sum();
            let tail = all.len() as u64 - cuts[0].to;
            prop_assert!(head > cap / 2 - cap / 8 && tail > cap / 4, "head {head} tail {tail} of {cap}");
        }
    }

    #[test]
    fn whoever_follows_a_killed_writer_loses_nothing(
        chunks in proptest::collection::vec(text(700), 1..30),
        pick in any::<prop::sample::Index>(),
        extra in any::<prop::sample::Index>(),
        torn in 0..24u64,
        more in text(5000),
    ) {
        let dir = scratch();
        let mut writer = CaptureWriter::create(dir.path(), OUT, MIN_CAP).unwrap();
        let mut all = Vec::new();
        for (time, chunk) in chunks.iter().enumerate() {
            writer.write(chunk, time as u64 + 1).unwrap();
            all.extend_from_slice(chunk);
        }
        drop(writer);
        // As it is after a kill: some points are there, the bytes behind them up to anywhere before the next point, and
        // if all of those, then perhaps a part of that point.
        let last = *segments(dir.path()).last().unwrap();
        let idx = fs::read(last.idx(dir.path(), OUT)).unwrap();
        let points: Vec<Point> = idx.as_chunks().0.iter().map(Point::from_bytes).collect();
        let kept = pick.index(points.len());
        let next = points.get(kept + 1).unwrap_or(&points[kept]).offset;
        let length = points[kept].offset + extra.index((next - points[kept].offset) as usize + 1) as u64;
        let torn = if length == next && kept + 1 < points.len() { torn } else { 0 };
        let resize = |path: PathBuf, length| OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
        resize(last.log(dir.path(), OUT), length - last.start());
        resize(last.idx(dir.path(), OUT), (kept as u64 + 1) * POINT + torn);
        all.truncate(length as usize);

        let mut writer = CaptureWriter::resume(dir.path(), OUT, MIN_CAP).unwrap();
        check(dir.path(), &writer, &all);
        prop_assert!(disk_use(dir.path(), OUT) <= MIN_CAP);
        writer.write(&more, writer.last_time() + 1).unwrap();
        all.extend_from_slice(&more);
        check(dir.path(), &writer, &all);
        prop_assert!(disk_use(dir.path(), OUT) <= MIN_CAP);
    }
}

#[test]
fn a_kill_while_segments_are_made_or_removed_does_no_harm() {
    // Which files the kill left of the newest and of the oldest tail segment: (log, idx), and the length of the idx.
    for (newest, oldest) in
        [(Some(0), true), (Some(10), true), (None, true), (Some(24), false), (None, false)]
    {
        let dir = scratch();
        let mut writer = CaptureWriter::create(dir.path(), OUT, MIN_CAP).unwrap();
        let mut all = Vec::new();
        // The last write fills a segment to its end, so the next one begins a new segment.
        while all.len() < 9000 || writer.room() > POINT {
            let length = (writer.room().saturating_sub(POINT)).clamp(1, 100) as usize;
            let chunk = &b"some words and then a line end\n".repeat(4)[..length];
            writer.write(chunk, all.len() as u64 + 1).unwrap();
            all.extend_from_slice(chunk);
        }
        drop(writer);
        let new = SegmentId::Tail(all.len() as u64);
        fs::write(new.log(dir.path(), OUT), b"").unwrap();
        if let Some(length) = newest {
            let end = Point { time: u64::MAX / 2, offset: all.len() as u64, lines: line_ends(&all) };
            fs::write(new.idx(dir.path(), OUT), &end.to_bytes()[..length]).unwrap();
        }
        if !oldest {
            fs::remove_file(segments(dir.path())[1].idx(dir.path(), OUT)).unwrap();
        }
        let mut writer = CaptureWriter::resume(dir.path(), OUT, MIN_CAP).unwrap();
        check(dir.path(), &writer, &all);
        for _ in 0..100 {
            writer.write(b"after\n", writer.last_time() + 1).unwrap();
            all.extend_from_slice(b"after\n");
            assert!(disk_use(dir.path(), OUT) <= MIN_CAP);
        }
        check(dir.path(), &writer, &all);
        let logs = SegmentId::list(dir.path(), OUT, "log").unwrap();
        assert_eq!(logs, segments(dir.path()), "no file is left without its other half");
    }
}

#[test]
fn single_bytes_fill_the_cap_and_no_more() {
    let dir = scratch();
    let mut writer = CaptureWriter::create(dir.path(), OUT, MIN_CAP).unwrap();
    let mut all = Vec::new();
    for time in 1..2000u64 {
        let byte = if time % 7 == 0 { b'\n' } else { b'a' + (time % 26) as u8 };
        writer.write(&[byte], time).unwrap();
        all.push(byte);
        assert!(disk_use(dir.path(), OUT) <= MIN_CAP);
    }
    check(dir.path(), &writer, &all);
    assert!(writer.totals().cut_bytes > 0);
}

#[test]
fn a_cap_below_the_least_is_the_least_and_files_are_private() {
    let dir = scratch();
    let mut writer = CaptureWriter::create(dir.path(), OUT, 0).unwrap();
    writer.write(&[b'x'; 10_000], 1).unwrap();
    check(dir.path(), &writer, &[b'x'; 10_000]);
    for entry in fs::read_dir(dir.path()).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().permissions();
        assert_eq!(mode.mode() & 0o7777, Permissions::from_mode(0o600).mode());
    }
}

#[test]
fn a_second_capture_in_the_same_place_is_refused_and_changes_nothing() {
    let dir = scratch();
    let mut writer = CaptureWriter::create(dir.path(), OUT, MIN_CAP).unwrap();
    writer.write(b"first\n", 1).unwrap();
    let error = CaptureWriter::create(dir.path(), OUT, MIN_CAP).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("stdout.log"), "{error}");
    check(dir.path(), &writer, b"first\n");
    assert_eq!(segments(dir.path()), [SegmentId::Head]);
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

#[test]
fn what_a_full_disk_swallows_is_cut_exactly() {
    for broken in ["log", "idx"] {
        let dir = scratch();
        let mut writer = CaptureWriter::create(dir.path(), OUT, MIN_CAP).unwrap();
        let mut all = b"kept\nand ".to_vec();
        writer.write(&all, 1).unwrap();
        let files = writer.open.as_mut().unwrap();
        if broken == "log" {
            files.log = full()
        } else {
            files.idx = full()
        };
        let error = writer.write(b"lost\nlost\n", 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        all.extend_from_slice(b"lost\nlost\n");
        let totals = writer.totals();
        assert_eq!((totals.bytes, totals.cut_bytes, totals.lines, totals.cut_lines), (19, 10, 3, 2));
        writer.write(b"back\n", 3).unwrap();
        all.extend_from_slice(b"back\n");
        check(dir.path(), &writer, &all);
        let (_, cuts) = check_stream(dir.path(), OUT, 0, &all);
        assert_eq!((cuts.len(), cuts[0].from, cuts[0].to, cuts[0].lines), (1, 9, 19, Some(2)));
        assert_eq!(segments(dir.path()), [SegmentId::Head, SegmentId::Tail(19)]);
    }
}

#[test]
fn a_segment_that_cant_be_made_costs_only_what_comes_then() {
    let dir = scratch();
    let mut writer = CaptureWriter::create(dir.path(), OUT, MIN_CAP).unwrap();
    let mut all = vec![b'h'; (MIN_CAP / 2 - 2 * POINT) as usize];
    writer.write(&all, 1).unwrap();
    // Where the next segment has to be is something else.
    let in_the_way = SegmentId::Tail(all.len() as u64).idx(dir.path(), OUT);
    fs::create_dir(&in_the_way).unwrap();
    for time in 2..5 {
        let result = writer.write(b"x\n", time);
        all.extend_from_slice(b"x\n");
        assert_eq!(result.is_err(), time == 2, "{time}: {result:?}");
    }
    fs::remove_dir(&in_the_way).unwrap();
    check(dir.path(), &writer, &all);
    assert_eq!(writer.totals().cut_bytes, 2);
}

#[test]
fn a_loss_at_the_very_end_is_stated_when_the_writer_goes() {
    let dir = scratch();
    let mut writer = CaptureWriter::create(dir.path(), OUT, MIN_CAP).unwrap();
    writer.write(b"kept\n", 1).unwrap();
    writer.open.as_mut().unwrap().log = full();
    writer.write(b"lost\n", 2).unwrap_err();
    drop(writer);
    let (_, cuts) = check_stream(dir.path(), OUT, 0, b"kept\nlost\n");
    assert_eq!(cuts.len(), 1);
    let writer = CaptureWriter::resume(dir.path(), OUT, MIN_CAP).unwrap();
    check(dir.path(), &writer, b"kept\nlost\n");
}

#[test]
fn a_disk_that_is_full_now_and_then_does_not_cost_the_whole_tail() {
    let dir = scratch();
    let cap = 256 * 1024;
    let mut writer = CaptureWriter::create(dir.path(), OUT, cap).unwrap();
    let mut all = Vec::new();
    for time in 1..3000u64 {
        if time % 50 == 0
            && let Some(files) = &mut writer.open
        {
            files.log = full();
        }
        let chunk = format!("line {time}\n");
        let failed = writer.write(chunk.as_bytes(), time).is_err();
        assert_eq!(failed, time % 50 == 0, "{time}");
        all.extend_from_slice(chunk.as_bytes());
        assert!(disk_use(dir.path(), OUT) <= cap && writer.tail.len() <= MAX_TAIL);
    }
    check(dir.path(), &writer, &all);
    assert_eq!(writer.totals().cut_lines, 59, "only what failed is missing");
}

#[test]
fn bytes_that_a_power_cut_lost_are_cut() {
    let dir = scratch();
    let mut writer = CaptureWriter::create(dir.path(), OUT, MIN_CAP).unwrap();
    let mut all = b"one\ntwo\nthree\n".to_vec();
    for (time, line) in all.split_inclusive(|byte| *byte == b'\n').enumerate() {
        writer.write(line, time as u64 + 1).unwrap();
    }
    drop(writer);
    let (log, idx) = (SegmentId::Head.log(dir.path(), OUT), SegmentId::Head.idx(dir.path(), OUT));
    OpenOptions::new().write(true).open(&log).unwrap().set_len(6).unwrap();
    let length = fs::metadata(&idx).unwrap().len();
    OpenOptions::new().write(true).open(&idx).unwrap().set_len(length + 2 * POINT).unwrap();
    let (_, cuts) = check_stream(dir.path(), OUT, 0, &all);
    assert_eq!((cuts.len(), cuts[0].from, cuts[0].lines), (1, 6, Some(2)));

    let mut writer = CaptureWriter::resume(dir.path(), OUT, MIN_CAP).unwrap();
    writer.write(b"four\n", writer.last_time() + 1).unwrap();
    all.extend_from_slice(b"four\n");
    check(dir.path(), &writer, &all);
}
