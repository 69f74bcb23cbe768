//! The captured output with a damaged index.

use std::fs;
use std::path::PathBuf;

use quell_store::{CaptureWriter, Cursor, LogQuery, LogReader, Piece, Stream};

/// A directory in memory, where there is one; gone at the end.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        let shared = PathBuf::from("/dev/shm");
        let base = if shared.is_dir() { shared } else { std::env::temp_dir() };
        let thread = format!("{:?}", std::thread::current().id());
        let number: String = thread.chars().filter(char::is_ascii_digit).collect();
        let dir = base.join(format!("quell-fuzz-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).expect("a directory");
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The input: a byte that says how long the first index is (in points), that index, a second one for a tail segment, and
/// the rest is the text of both. The readers end, and give out no byte that isn't in the files.
pub fn log(input: &[u8]) {
    let Some((&points, rest)) = input.split_first() else { return };
    let (head, rest) = rest.split_at(rest.len().min(usize::from(points % 8) * 24));
    let (tail, text) =
        rest.split_at(rest.len().min(usize::from(points / 8 % 4) * 24 + usize::from(points >> 7)));
    let dir = Dir::new();
    let start = tail.get(8..16).map_or(64, |bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()));
    for (name, bytes) in [
        ("stdout.idx".to_owned(), head),
        ("stdout.log".to_owned(), text),
        (format!("stdout.{start:016x}.idx"), tail),
        (format!("stdout.{start:016x}.log"), text),
        ("stderr.idx".to_owned(), tail),
        ("stderr.log".to_owned(), text),
    ] {
        fs::write(dir.0.join(name), bytes).expect("a file");
    }
    let stored = text.len() as u64 * 3;
    let numbers =
        |at: usize| text.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap_or_default()));
    let places = [
        Cursor::default(),
        Cursor { out: start, err: start },
        Cursor { out: numbers(0), err: u64::MAX },
        Cursor { out: u64::MAX, err: numbers(8) },
    ];
    // Each look opens all the files; the input says which two there are, so that many inputs are looked at.
    let choice = text.iter().fold(usize::from(points), |sum, byte| sum + usize::from(*byte));
    for place in [places[choice % 4], places[choice / 4 % 4]] {
        read_all(&dir.0, place, stored, input.len());
        let query = match choice / 16 % 4 {
            0 => LogQuery { since: Some(place), tail: Some(2), ..LogQuery::default() },
            1 => LogQuery { until: Some(place), head: Some(1), tail: Some(1), ..LogQuery::default() },
            2 => LogQuery { since: Some(place), budget: Some(numbers(0) % 100), ..LogQuery::default() },
            _ => LogQuery {
                until: Some(place),
                budget: Some(10),
                tail: Some(usize::MAX),
                ..LogQuery::default()
            },
        };
        if let Ok(page) = query.page(&dir.0) {
            let shown: u64 = page.lines().map(|line| line.bytes.len() as u64).sum();
            assert!(shown <= stored, "{shown} bytes are shown of {stored}");
        }
    }
    // A process that continues it, as a standby does, writes what can be read.
    for stream in Stream::ALL {
        if let Ok(mut writer) = CaptureWriter::resume(&dir.0, stream, 4096) {
            let _ = writer.write(b"one more line\n", 7);
            let _ = writer.totals();
        }
    }
    read_all(&dir.0, Cursor::default(), stored + 64, input.len() + 256);
}

fn read_all(dir: &std::path::Path, place: Cursor, stored: u64, size: usize) {
    let Ok(mut reader) = LogReader::open(dir) else { return };
    reader.seek(place);
    let (mut pieces, mut bytes) = (0, 0);
    while let Ok(Some(piece)) = reader.next_piece() {
        pieces += 1;
        if let Piece::Data { bytes: data, .. } = piece {
            bytes += data.len() as u64;
        }
        assert!(pieces <= 100 + 4 * size, "the reader goes on for ever");
    }
    assert!(bytes <= stored, "{bytes} bytes are read of {stored}");
}
