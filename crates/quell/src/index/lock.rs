//! Locks for using and for replacing the file of the index.
//!
//! There are two, because a lock that is shared by a stream of readers is never free: a process that replaces the file takes
//! the gate first, and then waits for the users.

use std::fs::{File, TryLockError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use quell_store::Home;
use quell_sys::OpenMode;

/// How long to wait: enough to build an index of a hundred thousand jobs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The file is in use and is not replaced. Released when dropped, or when the process ends.
pub(super) struct InUse {
    _lock: File,
}

/// No process uses the file. Released when dropped, or when the process ends.
pub(super) struct Alone {
    _gate: File,
    _lock: File,
}

/// Waits until no process replaces the file. None if that takes too long, or if locks don't work here.
pub(super) fn share(home: &Home) -> Option<InUse> {
    let deadline = Instant::now() + PATIENCE;
    let _gate = take(home, "index.gate", File::try_lock_shared, deadline)?;
    Some(InUse { _lock: take(home, "index.lock", File::try_lock_shared, deadline)? })
}

/// Waits until no process uses the file. The caller must not use it: two such callers would wait for each other.
pub(super) fn alone(home: &Home) -> Option<Alone> {
    let deadline = Instant::now() + PATIENCE;
    let _gate = take(home, "index.gate", File::try_lock, deadline)?;
    Some(Alone { _gate, _lock: take(home, "index.lock", File::try_lock, deadline)? })
}

fn take(
    home: &Home,
    name: &str,
    lock: fn(&File) -> Result<(), TryLockError>,
    deadline: Instant,
) -> Option<File> {
    let path = home.dir().join(name);
    let file = quell_sys::open_private(&path, OpenMode::Append).ok()?;
    loop {
        match lock(&file) {
            Ok(()) => return Some(file),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                // flock has no deadline and no event.
                sleep(Duration::from_millis(2));
            }
            Err(_) => return None,
        }
    }
}
