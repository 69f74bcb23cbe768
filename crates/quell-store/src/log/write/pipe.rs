//! Moves bytes from a pipe into a capture without losing any.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use quell_sys::fault::{FaultPoint as Step, fault_point};

use super::{CaptureWriter, POINT, line_ends};

#[cfg(test)]
#[path = "pipe_tests.rs"]
mod tests;

/// How much is read at once: it is still in the CPU's cache when its lines are counted.
const PIECE: usize = 64 * 1024;
const PAGE: usize = 4096;

/// What happened to the bytes in a pipe.
#[derive(Debug)]
pub enum Taken {
    /// There were none.
    Nothing,
    /// Some were taken.
    Bytes {
        length: usize,
        /// Whether the pipe is empty now.
        all: bool,
        /// On an error they were cut.
        kept: io::Result<()>,
    },
    /// They could not be written, and are still in the pipe.
    Refused,
}

impl CaptureWriter {
    /// Adds at most `most` bytes from `pipe`, and passes them to `see`, piece by piece. `buffer` grows as needed. `time_ns` is
    /// as in [`Self::write`]. If the writer is killed here, each byte is in the pipe or on the disk: another writer continues
    /// with [`Self::resume`], and nothing is missing.
    pub fn take(
        &mut self,
        pipe: impl AsFd,
        most: usize,
        buffer: &mut Vec<u8>,
        time_ns: u64,
        mut see: impl FnMut(&[u8]),
    ) -> Taken {
        self.end.time = self.end.time.max(time_ns);
        if (self.open.is_none() || self.room() <= POINT) && self.rotate().is_err() {
            return Taken::Refused;
        }
        let most = usize::try_from(self.room() - POINT).unwrap_or(usize::MAX).min(most);
        let before = self.last().bytes;
        let Some(files) = &self.open else { return Taken::Refused };
        let length = match quell_sys::splice(pipe, &files.log, most) {
            Ok(0) => return Taken::Nothing,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Taken::Nothing,
            // The disk is full, or does not support this.
            Err(_) => return Taken::Refused,
        };
        fault_point(Step::OutputTaken);
        let mut lines = 0;
        let read = read_back(&files.log, before, length, buffer, |bytes| {
            lines += line_ends(bytes);
            see(bytes);
        });
        let kept = read.and_then(|()| self.index(length as u64, lines));
        if let Err(error) = &kept {
            self.cut(length as u64, lines, error);
        }
        Taken::Bytes { length, all: length < most, kept }
    }
}

/// Passes `length` bytes of `file` from `start` on to `see`.
///
/// They are read to the same offset in a page of memory as in their page of the file: some CPUs copy ten times slower to an
/// address that is up to 31 bytes higher, and an allocator's first block begins 16 bytes after the start of a page.
fn read_back(
    file: &File,
    mut start: u64,
    length: usize,
    buffer: &mut Vec<u8>,
    mut see: impl FnMut(&[u8]),
) -> io::Result<()> {
    let piece = length.min(PIECE);
    // A quiet program's output is not worth another page.
    let spare = if length < PAGE { 0 } else { PAGE };
    if buffer.len() < piece + spare {
        buffer.resize(piece + spare, 0);
    }
    let skip = if spare == 0 { 0 } else { (start as usize).wrapping_sub(buffer.as_ptr().addr()) % PAGE };
    let mut left = length;
    while left > 0 {
        let bytes = &mut buffer[skip..skip + left.min(piece)];
        file.read_exact_at(bytes, start)?;
        see(bytes);
        start += bytes.len() as u64;
        left -= bytes.len();
    }
    Ok(())
}
