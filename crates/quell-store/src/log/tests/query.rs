use std::ops::ControlFlow;

use regex_lite::Regex;

use super::*;

/// All lines of a log, read without a query; a cut is none.
fn naive(capture: &Capture, streams: Streams) -> Vec<Option<Line>> {
    let mut lines = Lines::new(LogReader::open(capture.path()).unwrap().only(streams));
    let mut all = Vec::new();
    while let Some(next) = lines.next_line().unwrap() {
        all.push(match next {
            LineOrCut::Line(line) => Some(line),
            LineOrCut::Cut(_) => None,
        });
    }
    all.extend(std::iter::from_fn(|| lines.next_begun().map(Some)));
    all
}

fn tail_of(all: &[Option<Line>], count: usize) -> Vec<Line> {
    let lines: Vec<&Line> = all.iter().flatten().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).clone()).collect()
}

fn which() -> impl Strategy<Value = Streams> {
    prop_oneof![Just(Streams::Both), Just(Streams::Stdout), Just(Streams::Stderr)]
}

fn everything() -> Option<Regex> {
    Some(Regex::new("").unwrap())
}

fn end_of(capture: &Capture, streams: Streams) -> Cursor {
    let length = |stream| if streams.has(stream) { capture.all[stream as usize].len() as u64 } else { 0 };
    Cursor { out: length(Stream::Stdout), err: length(Stream::Stderr) }
}

/// What lines there are of a stream and where.
fn places(lines: &[Line]) -> Vec<(Stream, u64, &[u8], bool)> {
    lines.iter().map(|line| (line.stream, line.offset, &line.bytes[..], line.ended)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn the_tail_by_the_index_is_the_tail_by_reading_all(
        writes in writes(60, 500),
        cap in prop_oneof![Just(MIN_CAP), Just(1 << 20)],
        count in 0usize..200,
        streams in which(),
    ) {
        let capture = Capture::filled(cap, &writes);
        let all = naive(&capture, streams);
        let expected = tail_of(&all, count);
        for grep in [None, everything()] {
            let query = LogQuery { tail: Some(count), streams, grep, ..LogQuery::default() };
            let page = query.page(capture.path()).unwrap();
            let got: Vec<Line> = page.lines().cloned().collect();
            prop_assert_eq!(&got, &expected);
            prop_assert_eq!(page.end.cursor, end_of(&capture, streams));
            prop_assert_eq!(page.cuts().count(), all.iter().filter(|line| line.is_none()).count());
            let left: u64 = all.iter().flatten().map(Line::size).sum::<u64>() - got.iter().map(Line::size).sum::<u64>();
            prop_assert_eq!(page.end.omitted.map_or(0, |omitted| omitted.bytes), left);
        }
    }

    #[test]
    fn a_budget_is_kept_and_what_is_left_out_is_stated_exactly(
        writes in writes(60, 500),
        cap in prop_oneof![Just(MIN_CAP), Just(1 << 20)],
        budget in prop_oneof![0u64..50, 50u64..5000, 5000u64..100_000],
        streams in which(),
        grep in any::<bool>(),
        ends in 0..4,
    ) {
        let capture = Capture::filled(cap, &writes);
        let grep = if grep { everything() } else { None };
        let all: Vec<Line> = naive(&capture, streams).into_iter().flatten().collect();
        let (head, tail) = ((ends & 1 == 1).then_some(20), (ends & 2 == 2).then_some(30));
        let query = LogQuery { budget: Some(budget), head, tail, streams, grep, ..LogQuery::default() };
        let page = query.page(capture.path()).unwrap();
        let shown: Vec<Line> = page.lines().cloned().collect();
        let size = |lines: &[Line]| lines.iter().map(Line::size).sum::<u64>();
        let line_ends = |lines: &[Line]| lines.iter().filter(|line| line.ended).count() as u64;
        prop_assert!(size(&shown) <= budget, "{} of {budget}", size(&shown));
        if let (Some(count), None) = (head, tail) {
            prop_assert!(shown.len() <= count + 1 && page.end.omitted.is_none());
            let rest = LogQuery { since: Some(page.end.cursor), streams, ..LogQuery::default() };
            let rest: Vec<Line> = rest.page(capture.path()).unwrap().lines().cloned().collect();
            prop_assert_eq!(size(&shown) + size(&rest), size(&all));
            return Ok(());
        }
        prop_assert_eq!(page.end.cursor, end_of(&capture, streams));
        if head.is_none() && tail.is_none() {
            prop_assert_eq!(page.end.omitted.is_some(), size(&all) > budget);
        }
        match page.end.omitted {
            None => prop_assert_eq!(places(&shown), places(&all)),
            Some(omitted) => {
                prop_assert_eq!(omitted.bytes + size(&shown), size(&all));
                prop_assert_eq!(omitted.lines + line_ends(&shown), line_ends(&all));
                let query = LogQuery { since: Some(omitted.from), until: Some(omitted.to), streams, ..LogQuery::default() };
                let missing: Vec<Line> = query.page(capture.path()).unwrap().lines().cloned().collect();
                prop_assert_eq!((size(&missing), line_ends(&missing)), (omitted.bytes, omitted.lines));
                if head.is_none() && tail.is_none() {
                    let longest = all.iter().map(Line::size).max().unwrap_or(0);
                    prop_assert!(size(&shown) + 2 * longest >= budget, "it makes use of the budget");
                }
            }
        }
        // Every line that is shown is a line, or, if it was too long, the beginning or the end of one.
        for line in &shown {
            let whole = all.iter().find(|whole| {
                whole.stream == line.stream && whole.offset <= line.offset && line.end() <= whole.end()
            });
            prop_assert!(whole.is_some_and(|whole| whole.bytes == line.bytes || whole.size() > budget / 2));
        }
    }

    #[test]
    fn pages_of_head_follow_each_other_to_the_end(writes in writes(40, 300), count in 1usize..30, streams in which()) {
        let capture = Capture::filled(MIN_CAP, &writes);
        let (mut got, mut since) = (Vec::new(), Cursor::default());
        loop {
            let query = LogQuery { since: Some(since), head: Some(count), streams, ..LogQuery::default() };
            let page = query.page(capture.path()).unwrap();
            prop_assert!(page.lines().count() <= count);
            got.extend(page.entries.iter().map(|entry| match entry {
                Entry::Line(line) => Some(line.clone()),
                Entry::Cut(_) | Entry::Omitted(_) => None,
            }));
            if page.end.cursor == since {
                break;
            }
            since = page.end.cursor;
        }
        prop_assert_eq!(got, naive(&capture, streams));
    }
}

fn numbered(capture: &mut Capture, count: usize) {
    for number in 1..=count {
        let stream = if number % 10 == 0 { Stream::Stderr } else { Stream::Stdout };
        capture.write(stream, format!("line {number}\n").as_bytes());
    }
}

fn shown(page: &LogPage) -> Vec<String> {
    let show = |entry: &Entry| match entry {
        Entry::Line(line) => String::from_utf8_lossy(&line.bytes).into_owned(),
        Entry::Cut(cut) => format!("[{} bytes cut]", cut.bytes),
        Entry::Omitted(omitted) => format!("[{} lines, {} bytes]", omitted.lines, omitted.bytes),
    };
    page.entries.iter().map(show).collect()
}

#[test]
fn head_and_tail_together_name_what_is_between() {
    let mut capture = Capture::new(1 << 20);
    numbered(&mut capture, 100);
    let query = LogQuery { head: Some(2), tail: Some(3), ..LogQuery::default() };
    let page = query.page(capture.path()).unwrap();
    let bytes: usize = (3..=97).map(|number| format!("line {number}\n").len()).sum();
    let middle = format!("[95 lines, {bytes} bytes]");
    assert_eq!(shown(&page), ["line 1", "line 2", &middle, "line 98", "line 99", "line 100"]);
    let omitted = page.end.omitted.unwrap();
    let query = LogQuery { since: Some(omitted.from), until: Some(omitted.to), ..LogQuery::default() };
    let page = query.page(capture.path()).unwrap();
    assert_eq!(shown(&page), (3..=97).map(|number| format!("line {number}")).collect::<Vec<_>>());
    assert_eq!(page.end.cursor, omitted.to);
}

#[test]
fn head_and_tail_of_a_short_log_are_the_log_once() {
    let mut capture = Capture::new(1 << 20);
    numbered(&mut capture, 4);
    for (head, tail) in [(4, 4), (3, 3), (2, 2), (10, 10)] {
        let query = LogQuery { head: Some(head), tail: Some(tail), ..LogQuery::default() };
        assert_eq!(shown(&query.page(capture.path()).unwrap()), ["line 1", "line 2", "line 3", "line 4"]);
    }
}

#[test]
fn only_matching_lines_are_counted_and_shown() {
    let mut capture = Capture::new(1 << 20);
    numbered(&mut capture, 100);
    let grep = Some(Regex::new("5$").unwrap());
    let query = LogQuery { grep, tail: Some(2), ..LogQuery::default() };
    let page = query.page(capture.path()).unwrap();
    let bytes = "line 5\n".len() + 7 * "line 15\n".len();
    assert_eq!(shown(&page), [&format!("[8 lines, {bytes} bytes]"), "line 85", "line 95"]);
    let query = LogQuery { grep: query.grep, head: Some(1), streams: Streams::Stdout, ..LogQuery::default() };
    let page = query.page(capture.path()).unwrap();
    assert_eq!((shown(&page), page.end.cursor.out), (vec!["line 5".to_owned()], 5 * 7));
}

#[test]
fn totals_are_those_of_the_whole_log() {
    let mut capture = Capture::new(MIN_CAP);
    numbered(&mut capture, 2000);
    let query = LogQuery { tail: Some(1), streams: Streams::Stderr, ..LogQuery::default() };
    let page = query.page(capture.path()).unwrap();
    assert_eq!(page.end.totals.stdout, capture.totals(Stream::Stdout));
    assert_eq!(page.end.totals.stderr, capture.totals(Stream::Stderr));
    assert!(page.end.totals.stdout.cut_lines > 0);
}

#[test]
fn a_listener_that_has_enough_gets_no_more_and_can_go_on() {
    let mut capture = Capture::new(1 << 20);
    numbered(&mut capture, 50);
    for query in [LogQuery::default(), LogQuery { tail: Some(50), ..LogQuery::default() }] {
        let mut got = 0;
        let end = query.stream(capture.path(), |_| {
            got += 1;
            Ok(if got == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        let rest = LogQuery { since: Some(end.unwrap().cursor), ..LogQuery::default() };
        assert_eq!((got, shown(&rest.page(capture.path()).unwrap())[0].as_str()), (7, "line 8"));
    }
}

/// How many bytes this thread has read so far.
fn bytes_read() -> u64 {
    let io = fs::read_to_string("/proc/thread-self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn the_end_of_a_large_log_is_found_without_reading_it() {
    let mut capture = Capture::new(64 << 20);
    let chunk = "some line of a large log, as builds write them\n".repeat(1400).into_bytes();
    for _ in 0..400 {
        capture.out(&chunk);
    }
    capture.out(b"last\n");
    let queries = [
        LogQuery { tail: Some(3), ..LogQuery::default() },
        LogQuery { budget: Some(1000), ..LogQuery::default() },
        LogQuery { head: Some(2), tail: Some(2), ..LogQuery::default() },
    ];
    for query in queries {
        let before = bytes_read();
        let page = query.page(capture.path()).unwrap();
        let read = bytes_read() - before;
        assert!(read < 2 << 20, "{read} bytes read of {}: {query:?}", page.end.totals.stdout.bytes);
        assert_eq!(page.lines().last().unwrap().bytes, b"last");
        let shown: u64 = page.lines().map(Line::size).sum();
        assert_eq!(page.end.omitted.unwrap().bytes + shown, page.end.totals.stdout.bytes);
    }
}

#[test]
fn a_log_without_any_line_end_has_one_line() {
    let mut capture = Capture::new(1 << 20);
    capture.out(&vec![b'x'; 200_000]);
    let query = LogQuery { tail: Some(1), ..LogQuery::default() };
    let page = query.page(capture.path()).unwrap();
    assert_eq!(page.lines().map(Line::size).sum::<u64>(), 200_000);
    let query = LogQuery { budget: Some(1001), ..LogQuery::default() };
    let page = query.page(capture.path()).unwrap();
    let sizes: Vec<_> = page.lines().map(|line| (line.offset, line.size())).collect();
    assert_eq!(sizes, [(0, 500), (200_000 - 501, 501)]);
    assert_eq!(page.end.omitted.map(|omitted| (omitted.lines, omitted.bytes)), Some((0, 200_000 - 1001)));
}

#[test]
fn queries_are_right_while_the_job_writes_and_cuts() {
    const TOTAL: usize = 1_000_000;
    let all = noise(TOTAL, 7, 8);
    let dir = scratch();
    let mut writer = CaptureWriter::create(dir.path(), Stream::Stdout, 20_000).unwrap();
    let queries = [
        LogQuery { tail: Some(20), ..LogQuery::default() },
        LogQuery { budget: Some(3000), ..LogQuery::default() },
        LogQuery { grep: everything(), tail: Some(5), ..LogQuery::default() },
        LogQuery::default(),
    ];
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for (time, chunk) in all.chunks(777).enumerate() {
                writer.write(chunk, time as u64 + 1).unwrap();
            }
        });
        let mut last = false;
        while !last {
            last = writing.is_finished();
            for query in &queries {
                let page = query.page(dir.path()).unwrap();
                let mut end = 0;
                for entry in &page.entries {
                    end = match entry {
                        Entry::Line(line) => {
                            assert_eq!(line.offset, end);
                            assert!(
                                line.bytes == all[line.offset as usize..][..line.bytes.len()],
                                "at {end}"
                            );
                            line.end()
                        }
                        Entry::Cut(cut) => cut.to.max(end),
                        Entry::Omitted(omitted) => {
                            assert_eq!(omitted.from.out, end);
                            omitted.to.out
                        }
                    };
                }
                assert_eq!(page.end.cursor.out, end);
                assert!(end >= page.end.totals.stdout.bytes, "all that there was when it was asked");
                assert!(!last || end == TOTAL as u64);
            }
        }
    });
}
