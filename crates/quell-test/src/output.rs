//! The output of the tests: all of it is read for the counts, and the head and the tail are kept for the answer.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use quell_store::{LogReader, Piece, Stream};
use serde::Serialize;

use super::counts::{Counter, plain};

/// How many bytes of a line are read for the counts.
const MAX_LINE: usize = 16 * 1024;

/// The part of a stream that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamText {
    /// The head, followed by the tail. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// The exact bytes, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// How many bytes were written.
    pub bytes: u64,
    /// What is missing between head and tail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<OutputCut>,
}

/// The part that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputCut {
    /// How many bytes are missing.
    pub bytes: u64,
    /// How many bytes are before it: the length of the head.
    pub at: u64,
}

/// Keeps the head and the tail of a stream.
#[derive(Debug)]
struct HeadTail {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    /// Bytes are missing in the captured output, so that later bytes can't go to the head.
    gap: bool,
}

impl HeadTail {
    fn new(limit: u64) -> Self {
        let half = usize::try_from(limit / 2).unwrap_or(usize::MAX).max(1);
        Self { half, head: Vec::new(), tail: VecDeque::new(), total: 0, gap: false }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let to_head = if self.gap || !self.tail.is_empty() {
            0
        } else {
            bytes.len().min(self.half.saturating_sub(self.head.len()))
        };
        self.head.extend(&bytes[..to_head]);
        let rest = &bytes[to_head..];
        self.tail.extend(&rest[rest.len().saturating_sub(self.half)..]);
        let over = self.tail.len().saturating_sub(self.half);
        self.tail.drain(..over);
    }

    /// Counts bytes that were not captured.
    fn skip(&mut self, bytes: u64) {
        self.total += bytes;
        self.gap = true;
        self.tail.clear();
    }

    fn finish(self) -> StreamText {
        let mut tail: Vec<u8> = self.tail.into();
        let mut head = self.head;
        let missing = self.total.saturating_sub((head.len() + tail.len()) as u64);
        if missing > 0 {
            head.truncate(end_of_lines(&head));
            let start = start_of_lines(&tail);
            tail.drain(..start);
        }
        let at = head.len() as u64;
        let mut kept = head;
        kept.append(&mut tail);
        let cut = self.total.saturating_sub(kept.len() as u64);
        let (text, base64) = match String::from_utf8(kept) {
            Ok(text) => (text, None),
            Err(error) => {
                let bytes = error.as_bytes();
                (String::from_utf8_lossy(bytes).into_owned(), Some(BASE64.encode(bytes)))
            }
        };
        StreamText { text, base64, bytes: self.total, cut: (cut > 0).then_some(OutputCut { bytes: cut, at }) }
    }
}

/// The end of the last whole line. If that would drop more than half, the end of the last whole character.
fn end_of_lines(bytes: &[u8]) -> usize {
    if let Some(at) = bytes.iter().rposition(|byte| *byte == b'\n')
        && at >= bytes.len() / 2
    {
        return at + 1;
    }
    match std::str::from_utf8(bytes) {
        // Only the last character is incomplete.
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    }
}

/// The start of the first whole line. If that would drop more than half, the start of the first whole character.
fn start_of_lines(bytes: &[u8]) -> usize {
    if let Some(at) = bytes.iter().position(|byte| *byte == b'\n')
        && at < bytes.len() / 2
    {
        return at + 1;
    }
    bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count()
}

/// Splits a stream into lines for the counts.
#[derive(Debug, Default)]
struct LineBuffer {
    line: Vec<u8>,
}

impl LineBuffer {
    fn add(&mut self, bytes: &[u8], counter: &mut Counter) {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let part;
            (part, rest) = (&rest[..end], &rest[end + 1..]);
            if self.line.is_empty() {
                // Not copied: output can have millions of lines.
                read_line(&part[..end.min(MAX_LINE)], counter);
            } else {
                self.hold(part);
                self.end(counter);
            }
        }
        self.hold(rest);
    }

    /// Keeps a part of a line whose end is to come.
    fn hold(&mut self, part: &[u8]) {
        let room = MAX_LINE.saturating_sub(self.line.len());
        self.line.extend(&part[..part.len().min(room)]);
    }

    fn end(&mut self, counter: &mut Counter) {
        if !self.line.is_empty() {
            read_line(&self.line, counter);
            self.line.clear();
        }
    }
}

fn read_line(line: &[u8], counter: &mut Counter) {
    counter.line(&plain(String::from_utf8_lossy(line).trim_end_matches('\r')));
}

/// Reads both streams of the job in `dir`. The job must have ended.
pub(super) fn read(dir: &Path, limit: u64, counter: &mut Counter) -> io::Result<[StreamText; 2]> {
    let mut reader = LogReader::open(dir)?;
    let mut kept = [HeadTail::new(limit), HeadTail::new(limit)];
    let mut lines = [LineBuffer::default(), LineBuffer::default()];
    let index = |stream: Stream| usize::from(stream == Stream::Stderr);
    while let Some(piece) = reader.next_piece()? {
        match piece {
            Piece::Data { stream, bytes, .. } => {
                kept[index(stream)].add(bytes);
                if counter.needs_lines() {
                    lines[index(stream)].add(bytes, counter);
                }
            }
            Piece::Cut(cut) => {
                kept[index(cut.stream)].skip(cut.bytes);
                lines[index(cut.stream)].end(counter);
                counter.skip();
            }
        }
    }
    lines.iter_mut().for_each(|lines| lines.end(counter));
    Ok(kept.map(HeadTail::finish))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(limit: u64, pieces: &[&[u8]]) -> StreamText {
        let mut kept = HeadTail::new(limit);
        pieces.iter().for_each(|piece| kept.add(piece));
        kept.finish()
    }

    #[test]
    fn a_short_output_is_kept_whole() {
        let text = kept(10, &[b"0123", b"45", b"6789"]);
        assert_eq!((text.text.as_str(), text.bytes, text.cut, text.base64), ("0123456789", 10, None, None));
    }

    #[test]
    fn a_long_output_is_cut_to_its_head_and_tail() {
        let whole: String = (0..1000).map(|n| format!("line {n}\n")).collect();
        for step in [1, 7, 4096] {
            let pieces: Vec<&[u8]> = whole.as_bytes().chunks(step).collect();
            let text = kept(100, &pieces);
            let cut = text.cut.expect("cut");
            assert!(text.text.len() <= 100, "{}", text.text.len());
            assert_eq!(text.bytes as usize, whole.len());
            assert_eq!(cut.bytes as usize + text.text.len(), whole.len());
            let (head, tail) = text.text.split_at(cut.at as usize);
            assert!(whole.starts_with(head) && whole.ends_with(tail), "{head:?} {tail:?}");
            assert!(head.ends_with('\n') && tail.starts_with("line "), "{head:?} {tail:?}");
        }
    }

    #[test]
    fn a_cut_does_not_split_a_character() {
        let whole = "ö€𝄞".repeat(100);
        for limit in 10..40 {
            let text = kept(limit, &[whole.as_bytes()]);
            assert_eq!(text.base64, None, "{limit}: {:?}", text.text);
            assert!(text.cut.is_some());
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_not_lost() {
        let text = kept(100, &[b"caf\xe9 \xff\x00"]);
        assert_eq!(text.base64.as_deref(), Some("Y2Fm6SD/AA=="));
        assert!(text.text.starts_with("caf\u{fffd}"));
    }

    #[test]
    fn bytes_that_were_not_captured_count_as_cut() {
        let mut kept = HeadTail::new(20);
        kept.add(b"begin\n");
        kept.skip(1000);
        kept.add(b"end\n");
        let text = kept.finish();
        assert_eq!((text.text.as_str(), text.bytes), ("begin\nend\n", 1010));
        assert_eq!(text.cut, Some(OutputCut { bytes: 1000, at: 6 }));
    }
}
