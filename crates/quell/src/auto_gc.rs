//! The small gc that `start` runs now and then.

use std::io;
use std::time::{Duration, SystemTime};

use quell_sys::OpenMode;

use crate::gc::collect;
use crate::{DryRun, Error, GcReport, GcRules, Quell, Result};

/// The shortest time between two of them.
const EVERY: Duration = Duration::from_secs(3600);

/// The largest number of jobs that are removed at once. The next time, or `quell gc`, removes the rest.
const AT_ONCE: usize = 200;

impl Quell {
    /// Removes up to 200 of the finished jobs that `rules` don't keep; none if that was done within the last hour, or another
    /// process is doing it now.
    ///
    /// The file `last-gc` in the home has the time of the last one. The first call only makes that file: a new home has
    /// nothing to remove.
    pub fn auto_gc(&self, rules: &GcRules) -> Result<Option<GcReport>> {
        let path = self.home().dir().join("last-gc");
        let failed = |error: io::Error| Error::Io { path: path.clone(), error };
        let old = match quell_sys::open_private(&path, OpenMode::Read) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let Some(stamp) = old else {
            quell_sys::open_private(&path, OpenMode::Append).map_err(failed)?;
            return Ok(None);
        };
        // A time in the future comes from another clock.
        let due = |time: SystemTime| time.elapsed().map_or(true, |age| age >= EVERY);
        let is_due = || stamp.metadata()?.modified().map(due);
        if !is_due().map_err(failed)? || stamp.try_lock().is_err() || !is_due().map_err(failed)? {
            return Ok(None);
        }
        // Where `gc` is refused, nothing is removed automatically either.
        let policy = crate::Config::load_here()?.config.guard;
        if !quell_guard::decide_verb(&policy, quell_guard::Verb::Gc).allowed {
            return Ok(None);
        }
        // Before the work, so that a gc that fails is not repeated at each start.
        let touch = quell_sys::open_private(&path, OpenMode::Append);
        touch.and_then(|file| file.set_modified(SystemTime::now())).map_err(failed)?;
        collect(self.home(), rules, DryRun::No, Some(AT_ONCE)).map(Some)
    }
}
