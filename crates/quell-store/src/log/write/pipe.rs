//! From a pipe into a capture, with nothing lost in between.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use quell_sys::fault::{FaultPoint as Step, fault_point};

use super::{CaptureWriter, POINT, line_ends};

#[cfg(test)]
#[path = "pipe_tests.rs"]
mod tests;

/// How much is looked at together: it is still in the processor's cache when its lines are counted.
const PIECE: usize = 64 * 1024;
const PAGE: usize = 4096;

/// What became of bytes in a pipe.
#[derive(Debug)]
pub enum Taken {
    /// There were none.
    Nothing,
    /// Some were taken.
    Bytes {
        /// How many.
        length: usize,
        /// Whether these were all that the pipe had.
        all: bool,
        /// With an error they are cut.
        kept: io::Result<()>,
    },
    /// They could not be written, and are in the pipe still.
    Refused,
}

impl CaptureWriter {
    /// Adds what is in `pipe`, at most `most` bytes, and shows it to `see`, piece by piece; `buffer` is as large as it has
    /// to be for that. `time_ns` as for [`Self::write`]. If the writer is killed here, each byte is in the pipe or on the
    /// disk: another one goes on with [`Self::resume`], and nothing is missing.
    pub fn take(
        &mut self,
        pipe: impl AsFd,
        most: usize,
        buffer: &mut Vec<u8>,
        time_ns: u64,
        mut see: impl FnMut(&[u8]),
    ) -> Taken {
        self.end.time = self.end.time.max(time_ns);
        if (self.open.is_none() || self.room() <= POINT) && self.roll().is_err() {
            return Taken::Refused;
        }
        let most = usize::try_from(self.room() - POINT).unwrap_or(usize::MAX).min(most);
        let before = self.last().bytes;
        let Some(files) = &self.open else { return Taken::Refused };
        let length = match quell_sys::splice(pipe, &files.log, most) {
            Ok(0) => return Taken::Nothing,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Taken::Nothing,
            // A full disk, or one that can't do this.
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

/// Shows `length` bytes of `file` to `see`, those from `start` on.
///
/// They are read to the place in a page of memory at which they are in their page of the file: there are processors that
/// copy ten times slower to a place that is up to 31 bytes further on, and an allocator's first block begins 16 bytes behind
/// the start of a page.
fn read_back(
    file: &File,
    mut start: u64,
    length: usize,
    buffer: &mut Vec<u8>,
    mut see: impl FnMut(&[u8]),
) -> io::Result<()> {
    let piece = length.min(PIECE);
    // What a quiet program says is not worth a page more.
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
