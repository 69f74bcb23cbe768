use std::io::Write;

use super::super::super::tests::check_stream;
use super::super::{CaptureWriter, Stream, line_ends};
use super::*;
use crate::testing::scratch;

const OUT: Stream = Stream::Stdout;
const WIDE: usize = 1 << 20;

/// A pipe that holds `bytes`, and nothing else will come. None where so much may not be in one.
fn holding(bytes: &[u8]) -> Option<std::os::fd::OwnedFd> {
    let (read, write) = quell_sys::pipe().unwrap();
    quell_sys::set_nonblocking(&read).unwrap();
    if quell_sys::resize(&write, WIDE).unwrap() < bytes.len() {
        return None;
    }
    File::from(write).write_all(bytes).unwrap();
    Some(read)
}

fn lines(bytes: usize) -> Vec<u8> {
    (0..).flat_map(|number: u32| format!("line {number}\n").into_bytes()).take(bytes).collect()
}

#[test]
fn a_full_pipe_is_taken_at_once_and_seen_whole() {
    let all = lines(3 * PIECE + 17);
    let Some(pipe) = holding(&all) else { return };
    let dir = scratch();
    let mut writer = CaptureWriter::create(dir.path(), OUT, 16 << 20).unwrap();
    let (mut buffer, mut seen) = (Vec::new(), Vec::new());
    let taken = writer.take(&pipe, WIDE, &mut buffer, 1, |bytes| seen.extend_from_slice(bytes));
    let Taken::Bytes { length, all: true, kept: Ok(()) } = taken else { panic!("{taken:?}") };
    assert_eq!((length, buffer.len()), (all.len(), PIECE + PAGE));
    assert!(seen == all);
    assert_eq!(writer.totals().lines, line_ends(&all));
    let (kept, cuts) = check_stream(dir.path(), OUT, 0, &all);
    assert!(cuts.is_empty() && kept.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() == all.len());
    assert!(matches!(writer.take(&pipe, WIDE, &mut buffer, 2, |_| panic!("nothing")), Taken::Nothing));
}

#[test]
fn no_more_is_taken_than_there_is_room_for() {
    let all = lines(60_000);
    let Some(pipe) = holding(&all) else { return };
    let dir = scratch();
    let mut writer = CaptureWriter::create(dir.path(), OUT, 32 << 10).unwrap();
    let (mut buffer, mut seen, mut rest) = (Vec::new(), Vec::new(), all.len());
    for time in 1.. {
        match writer.take(&pipe, 9000, &mut buffer, time, |bytes| seen.extend_from_slice(bytes)) {
            Taken::Bytes { length, all, kept: Ok(()) } => {
                rest -= length;
                assert!(length <= 9000 && (!all || rest == 0), "{length} {all} {rest}");
            }
            Taken::Nothing => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(seen == all);
    let totals = writer.totals();
    let (_, cuts) = check_stream(dir.path(), OUT, 0, &all);
    assert_eq!((totals.bytes, totals.lines), (all.len() as u64, line_ends(&all)));
    assert_eq!(totals.cut_bytes, cuts.iter().map(|cut| cut.bytes).sum::<u64>());
}

#[test]
fn what_the_disk_refuses_stays_in_the_pipe_and_what_the_index_refuses_is_cut() {
    let Some(pipe) = holding(b"one\ntwo\n") else { return };
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let dir = scratch();
    let mut writer = CaptureWriter::create(dir.path(), OUT, 1 << 20).unwrap();
    let files = writer.open.as_mut().unwrap();
    let log = std::mem::replace(&mut files.log, full());
    let mut buffer = Vec::new();
    assert!(matches!(writer.take(&pipe, WIDE, &mut buffer, 1, |_| ()), Taken::Refused));
    let files = writer.open.as_mut().unwrap();
    (files.log, files.idx) = (log, full());
    let taken = writer.take(&pipe, WIDE, &mut buffer, 2, |_| ());
    assert!(matches!(taken, Taken::Bytes { length: 8, kept: Err(_), .. }), "{taken:?}");
    let totals = writer.totals();
    assert_eq!((totals.bytes, totals.lines, totals.cut_bytes, totals.cut_lines), (8, 2, 8, 2));
}
