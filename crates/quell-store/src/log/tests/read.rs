use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

const BOTH: [Stream; 2] = Stream::ALL;

fn all_pieces(reader: &mut LogReader) -> Vec<(Stream, u64, Vec<u8>)> {
    let mut pieces: Vec<(Stream, u64, Vec<u8>)> = Vec::new();
    while let Some(piece) = reader.next_piece().unwrap() {
        match piece {
            Piece::Data { stream, time_ns, bytes, .. } => {
                assert!(!bytes.is_empty() && bytes.len() <= 64 * 1024);
                match pieces.last_mut() {
                    Some(last) if last.1 == time_ns => last.2.extend_from_slice(bytes),
                    Some(_) | None => pieces.push((stream, time_ns, bytes.to_vec())),
                }
            }
            Piece::Cut(cut) => panic!("nothing was cut: {cut:?}"),
        }
    }
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn both_streams_come_back_in_the_order_of_the_writes(writes in writes(60, 2000)) {
        let capture = Capture::filled(1 << 20, &writes);
        let pieces = all_pieces(&mut LogReader::open(capture.path()).unwrap());
        let expected: Vec<_> = writes.into_iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
        prop_assert!(pieces.is_sorted_by_key(|piece| piece.1));
        let pieces: Vec<_> = pieces.into_iter().map(|(stream, _, bytes)| (stream, bytes)).collect();
        prop_assert_eq!(pieces, expected);
    }

    #[test]
    fn a_reader_that_stops_and_resumes_misses_no_byte_and_sees_none_twice(
        writes in writes(40, 300),
        stops in proptest::collection::vec(0usize..8, 0..40),
        by_lines in any::<bool>(),
    ) {
        let mut capture = Capture::new(1 << 20);
        let (mut got, mut cursor, mut stops) = ([Vec::new(), Vec::new()], Cursor::default(), stops.into_iter());
        for (index, (stream, bytes)) in writes.iter().enumerate() {
            capture.write(*stream, bytes);
            let count = if index + 1 == writes.len() { usize::MAX } else { stops.next().unwrap_or(0) };
            let mut reader = LogReader::open(capture.path()).unwrap();
            reader.seek(cursor.to_string().parse().unwrap());
            if by_lines {
                let mut lines = Lines::new(reader);
                for _ in 0..count {
                    let Some(LineOrCut::Line(line)) = lines.next_line().unwrap() else { break };
                    got[line.stream as usize].extend_from_slice(&line.bytes);
                    got[line.stream as usize].extend(line.ended.then_some(b'\n'));
                }
                if count == usize::MAX {
                    while let Some(line) = lines.next_begun() {
                        got[line.stream as usize].extend_from_slice(&line.bytes);
                    }
                }
                cursor = lines.cursor();
            } else {
                for _ in 0..count {
                    let Some(Piece::Data { stream, bytes, .. }) = reader.next_piece().unwrap() else { break };
                    got[stream as usize].extend_from_slice(bytes);
                }
                cursor = reader.cursor();
            }
        }
        prop_assert_eq!(&got, &capture.all);
        prop_assert_eq!(cursor, Cursor { out: capture.all[0].len() as u64, err: capture.all[1].len() as u64 });
    }

    #[test]
    fn any_cursor_is_good_even_one_into_what_is_cut(writes in writes(40, 1500), place in any::<prop::sample::Index>()) {
        let capture = Capture::filled(MIN_CAP, &writes);
        for stream in BOTH {
            let all = &capture.all[stream as usize];
            let from = place.index(all.len() + 1) as u64;
            let (_, whole) = check_stream(capture.path(), stream, 0, all);
            let (_, cuts) = check_stream(capture.path(), stream, from, all);
            for cut in &cuts {
                let amidst = whole.iter().any(|whole| whole.to == cut.to && whole.from < cut.from);
                prop_assert_eq!(cut.lines.is_none(), amidst);
            }
            prop_assert_eq!(cuts.len(), whole.iter().filter(|cut| cut.to > from).count());
        }
    }
}

#[test]
fn a_job_without_output_has_an_empty_log() {
    let dir = scratch();
    for path in [dir.path().to_owned(), dir.path().join("nowhere")] {
        let mut reader = LogReader::open(&path).unwrap();
        assert_eq!(reader.next_piece().unwrap(), None);
        assert_eq!(reader.cursor(), Cursor::default());
    }
}

#[test]
fn a_cursor_behind_the_end_waits_for_the_stream_to_come_there() {
    let mut capture = Capture::new(1 << 20);
    capture.out(b"0123");
    let mut reader = LogReader::open(capture.path()).unwrap();
    reader.seek(Cursor { out: 6, err: 0 });
    assert_eq!(reader.next_piece().unwrap(), None);
    capture.out(b"4567");
    match reader.next_piece().unwrap() {
        Some(Piece::Data { offset: 6, bytes: b"67", .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn readers_are_right_while_the_writer_rolls_over_and_cuts() {
    const TOTAL: usize = 2_000_000;
    let alls = BOTH.map(|stream| noise(TOTAL, stream as u32, 8));
    let dir = scratch();
    let mut writers = BOTH.map(|stream| CaptureWriter::create(dir.path(), stream, 20_000).unwrap());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut at, mut time) = ([0; 2], 0);
            while at.iter().any(|at| *at < TOTAL) {
                time += 1;
                let index = (time % 3 == 0) as usize;
                let to = TOTAL.min(at[index] + 1 + (time as usize * 7919) % 1500);
                writers[index].write(&alls[index][at[index]..to], time).unwrap();
                at[index] = to;
            }
            over.store(true, Ordering::Release);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let (mut ends, mut last, mut data, mut cut_bytes) = ([0u64; 2], 0, 0, 0);
                let mut reader = LogReader::open(dir.path()).unwrap();
                loop {
                    let finished = over.load(Ordering::Acquire);
                    let Some(piece) = reader.next_piece().unwrap() else {
                        if finished {
                            break;
                        }
                        continue;
                    };
                    match piece {
                        Piece::Data { stream, time_ns, offset, bytes } => {
                            let (all, end) = (&alls[stream as usize], &mut ends[stream as usize]);
                            assert_eq!(offset, *end);
                            *end += bytes.len() as u64;
                            assert!(bytes == &all[offset as usize..*end as usize], "{stream} at {offset}");
                            assert!(time_ns >= last, "{stream} at {offset}: {time_ns} after {last}");
                            last = time_ns;
                            data += bytes.len();
                        }
                        Piece::Cut(cut) => {
                            let (all, end) = (&alls[cut.stream as usize], &mut ends[cut.stream as usize]);
                            assert_eq!(cut.from, *end);
                            *end = cut.to;
                            let missing = &all[cut.from as usize..cut.to as usize];
                            assert_eq!(cut.lines, Some(line_ends(missing)));
                            cut_bytes += missing.len();
                        }
                    }
                }
                assert_eq!(ends, [TOTAL as u64; 2]);
                assert_eq!(data + cut_bytes, 2 * TOTAL);
            });
        }
    });
}

fn lines_of(capture: &Capture) -> Vec<Line> {
    let mut lines = Lines::new(LogReader::open(capture.path()).unwrap());
    let mut found = Vec::new();
    while let Some(next) = lines.next_line().unwrap() {
        match next {
            LineOrCut::Line(line) => found.push(line),
            LineOrCut::Cut(cut) => panic!("{cut:?}"),
        }
    }
    found.extend(std::iter::from_fn(|| lines.next_begun()));
    found
}

#[test]
fn half_a_line_of_one_stream_is_not_glued_to_one_of_the_other() {
    let mut capture = Capture::new(1 << 20);
    capture.out(b"half");
    capture.err(b"warning\nbut");
    capture.out(b" and half\nopen");
    let lines = lines_of(&capture);
    let shown: Vec<_> =
        lines.iter().map(|line| (line.stream.as_str(), &line.bytes[..], line.ended)).collect();
    let expected: [(&str, &[u8], bool); 4] = [
        ("stderr", b"warning", true),
        ("stdout", b"half and half", true),
        ("stderr", b"but", false),
        ("stdout", b"open", false),
    ];
    assert_eq!(shown, expected);
    assert!(lines[1].time_ns < lines[0].time_ns, "a line has the time of its beginning");
    assert_eq!((lines[1].offset, lines[3].offset, lines[2].offset), (0, 14, 8));
}

#[test]
fn a_line_of_any_length_comes_in_bounded_parts() {
    let mut capture = Capture::new(4 << 20);
    for length in [MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, 3 * MAX_LINE + 5] {
        capture.out(&vec![b'x'; length]);
        capture.out(b"\n");
    }
    capture.out(&vec![b'y'; 2 * MAX_LINE]);
    let lines = lines_of(&capture);
    let shape: Vec<_> = lines.iter().map(|line| (line.bytes.len(), line.ended, line.split)).collect();
    let part = (MAX_LINE, false, true);
    let whole = |length| (length, true, false);
    let expected = [
        whole(MAX_LINE - 1),
        whole(MAX_LINE),
        part,
        whole(1),
        part,
        part,
        part,
        whole(5),
        part,
        (MAX_LINE, false, false),
    ];
    assert_eq!(shape, expected);
}

#[test]
fn a_line_that_lost_its_end_is_given_before_the_cut() {
    let mut capture = Capture::new(MIN_CAP);
    capture.out(&vec![b'x'; 20_000]);
    let mut lines = Lines::new(LogReader::open(capture.path()).unwrap());
    let next = |lines: &mut Lines| lines.next_line().unwrap();
    let Some(LineOrCut::Line(line)) = next(&mut lines) else { panic!("a line") };
    assert!(!line.ended && !line.split);
    let Some(LineOrCut::Cut(cut)) = next(&mut lines) else { panic!("a cut") };
    assert_eq!((line.end(), cut.lines), (cut.from, Some(0)));
    assert_eq!(lines.cursor().out, cut.to);
    assert_eq!(next(&mut lines), None);
    assert_eq!(lines.next_begun().map(|line| (line.offset, line.end())), Some((cut.to, 20_000)));
}
