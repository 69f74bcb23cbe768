//! What the tests wrote: everything is read for the counts, and the head and the tail are kept.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use quell_store::{LogReader, Piece, Stream};
use serde::Serialize;

use super::counts::{Counter, plain};

/// How much of a line the counts look at.
const LONGEST_LINE: usize = 16 * 1024;

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
struct Ends {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    /// The stream was cut when it was captured: what came before that does not belong to the tail.
    gap: bool,
}

impl Ends {
    fn new(most: u64) -> Self {
        let half = usize::try_from(most / 2).unwrap_or(usize::MAX).max(1);
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

    /// Bytes are missing here: they were not captured.
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
            let begin = begin_of_lines(&tail);
            tail.drain(..begin);
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

/// Where the last whole line ends; if that is too far away, where the last whole character does.
fn end_of_lines(bytes: &[u8]) -> usize {
    if let Some(at) = bytes.iter().rposition(|byte| *byte == b'\n')
        && at >= bytes.len() / 2
    {
        return at + 1;
    }
    match std::str::from_utf8(bytes) {
        // Only the last character is not whole.
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    }
}

/// Where the first whole line begins; if that is too far away, where the first whole character does.
fn begin_of_lines(bytes: &[u8]) -> usize {
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
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LONGEST_LINE.saturating_sub(self.line.len());
            self.line.extend(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                self.end(counter);
            }
        }
    }

    fn end(&mut self, counter: &mut Counter) {
        if !self.line.is_empty() {
            let text = String::from_utf8_lossy(&self.line);
            counter.line(&plain(text.trim_end_matches(['\n', '\r'])));
            self.line.clear();
        }
    }
}

/// Reads both streams of the job in `dir`, which has ended.
pub(super) fn read(dir: &Path, most: u64, counter: &mut Counter) -> io::Result<[StreamText; 2]> {
    let mut reader = LogReader::open(dir)?;
    let mut ends = [Ends::new(most), Ends::new(most)];
    let mut lines = [LineBuffer::default(), LineBuffer::default()];
    let index = |stream: Stream| usize::from(stream == Stream::Stderr);
    while let Some(piece) = reader.next_piece()? {
        match piece {
            Piece::Data { stream, bytes, .. } => {
                ends[index(stream)].add(bytes);
                lines[index(stream)].add(bytes, counter);
            }
            Piece::Cut(cut) => {
                ends[index(cut.stream)].skip(cut.bytes);
                lines[index(cut.stream)].end(counter);
                counter.skip();
            }
        }
    }
    lines.iter_mut().for_each(|lines| lines.end(counter));
    Ok(ends.map(Ends::finish))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(most: u64, pieces: &[&[u8]]) -> StreamText {
        let mut ends = Ends::new(most);
        pieces.iter().for_each(|piece| ends.add(piece));
        ends.finish()
    }

    #[test]
    fn a_short_output_is_kept_whole() {
        let text = kept(10, &[b"0123", b"45", b"6789"]);
        assert_eq!((text.text.as_str(), text.bytes, text.cut, text.base64), ("0123456789", 10, None, None));
    }

    #[test]
    fn of_a_long_output_head_and_tail_are_kept_and_the_cut_is_stated() {
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
        for most in 10..40 {
            let text = kept(most, &[whole.as_bytes()]);
            assert_eq!(text.base64, None, "{most}: {:?}", text.text);
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
    fn what_was_cut_at_the_capture_counts_as_cut() {
        let mut ends = Ends::new(20);
        ends.add(b"begin\n");
        ends.skip(1000);
        ends.add(b"end\n");
        let text = ends.finish();
        assert_eq!((text.text.as_str(), text.bytes), ("begin\nend\n", 1010));
        assert_eq!(text.cut, Some(OutputCut { bytes: 1000, at: 6 }));
    }
}
