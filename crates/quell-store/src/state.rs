//! The state of a job on disk: the last complete line of `state.jsonl`. One file per state would cost making one file and
//! removing another.

use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use quell_core::StateRecord;
use quell_sys::OpenMode;
use quell_sys::fault::{FaultPoint, fault_point};

use crate::files::{line_of, replace};
use crate::job::JobDir;

const STATES: &str = "state.jsonl";
/// The size at which a new file is begun: a job that is restarted again and again has many states.
const STATES_CAP: u64 = 64 * 1024;

impl JobDir {
    /// The present state. An error of kind `NotFound` means that the job has none yet.
    pub fn record(&self) -> io::Result<StateRecord> {
        let bytes = self.bytes(STATES)?;
        self.parse(STATES, last_line(&bytes))
    }

    /// Whether its record says that it has ended.
    pub fn has_ended(&self) -> bool {
        self.record().is_ok_and(|record| record.state.is_ended())
    }

    /// Makes `record` the present state.
    pub fn append_state(&self, record: &StateRecord) -> io::Result<()> {
        let line = line_of(record)?;
        if !self.append_state_line(&line)? {
            replace(self.home(), &self.dir().join(STATES), &line, FaultPoint::StateWritten)?;
        }
        fault_point(FaultPoint::StatePublished);
        Ok(())
    }

    /// The same, unless it is already the present state: another process may have rewritten the file.
    pub(crate) fn restore_state(&self, record: &StateRecord) -> io::Result<()> {
        let line = line_of(record)?;
        let same = self.bytes(STATES).is_ok_and(|bytes| last_line(&bytes) == line.trim_ascii_end());
        if same { Ok(()) } else { self.append_state(record) }
    }

    /// Appends a state. False if it has to be the first line of a new file.
    fn append_state_line(&self, line: &[u8]) -> io::Result<bool> {
        // There is none yet, or quell did not write it: then it is replaced.
        let path = self.dir().join(STATES);
        let Ok((file, found)) = quell_sys::open_private_found(&path, OpenMode::Extend) else {
            return Ok(false);
        };
        let (length, mut last) = (found.len(), [0]);
        let can_append = found.nlink() == 1
            && length + line.len() as u64 <= STATES_CAP
            && length > 0
            && file.read_at(&mut last, length - 1)? == 1
            && last == *b"\n";
        if !can_append {
            return Ok(false);
        }
        match (&file).write(line) {
            Ok(count) if count == line.len() => Ok(true),
            // Half a line would damage the next one. A full disk has no room for a new file either.
            Ok(_) => file.set_len(length).and(Err(io::ErrorKind::StorageFull.into())),
            Err(error) => file.set_len(length).and(Err(error)),
        }
    }
}

/// The last complete line, or everything if there is none.
fn last_line(bytes: &[u8]) -> &[u8] {
    let Some(end) = memchr::memrchr(b'\n', bytes) else { return bytes };
    let start = memchr::memrchr(b'\n', &bytes[..end]).map_or(0, |before| before + 1);
    &bytes[start..end]
}
