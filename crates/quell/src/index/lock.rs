//! Who uses the file of the index and who replaces it.
//!
//! Two locks, because one that is shared by a stream of readers is never free: whoever wants the file alone shuts the gate
//! first, and then waits for those who are inside.

use std::fs::{File, TryLockError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use quell_store::Home;
use quell_sys::OpenMode;

/// How long it is waited for, which is enough for the making of an index of a hundred thousand jobs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The file is used: nobody replaces it. Freed when dropped, or when the process ends.
pub(super) struct InUse {
    _lock: File,
}

/// Nobody uses the file. Freed when dropped, or when the process ends.
pub(super) struct Alone {
    _gate: File,
    _lock: File,
}

/// Waits until nobody has the file alone. None if that takes too long, or if there can be no lock here.
pub(super) fn share(home: &Home) -> Option<InUse> {
    let deadline = Instant::now() + PATIENCE;
    let _gate = take(home, "index.gate", File::try_lock_shared, deadline)?;
    Some(InUse { _lock: take(home, "index.lock", File::try_lock_shared, deadline)? })
}

/// Waits until nobody uses the file. The caller doesn't either: two who do would wait for each other.
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
