//! Whether the program of `quell run --json` has ended its last line: the answer must begin a new line.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsFd;

/// Whether the last line on stdout may have no line feed. The program's output does not pass through quell,
/// so only a file can be checked; for a pipe or a terminal it may always be so.
pub fn may_be_open() -> bool {
    last_byte().is_none_or(|last| last.is_some_and(|byte| byte != b'\n'))
}

/// The byte before the position of stdout; none if there is none or it can't be read.
fn last_byte() -> Option<Option<u8>> {
    let mut file = File::from(std::io::stdout().as_fd().try_clone_to_owned().ok()?);
    let found = file.metadata().ok().filter(|found| found.is_file())?;
    // In append mode the position is the end of the file.
    let at = match file.stream_position().ok()? {
        0 => found.len(),
        at => at,
    };
    let Some(last) = at.checked_sub(1) else { return Some(None) };
    // The descriptor itself may be for writing only.
    let (mut file, mut byte) = (File::open("/dev/stdout").ok()?, [0]);
    file.seek(SeekFrom::Start(last)).and_then(|_| file.read_exact(&mut byte)).ok()?;
    Some(Some(byte[0]))
}
