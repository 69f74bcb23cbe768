//! The small gc that happens by itself.

use std::io;
use std::time::{Duration, SystemTime};

use quell_sys::OpenMode;

use crate::gc::collect;
use crate::{DryRun, Error, GcReport, GcRules, Quell, Result};

/// How often at most.
const EVERY: Duration = Duration::from_secs(3600);

/// How many jobs are removed at once at most. The rest is for the next time, or for `quell gc`.
const AT_ONCE: usize = 200;

impl Quell {
    /// Removes some of the finished jobs that `rules` don't keep; none if that was done within the last hour, or somebody
    /// is doing it now. The work is bounded: at most 200 jobs go.
    ///
    /// When it was last done is the time of the file `last-gc` in the home. The first call only makes that file: a home
    /// that is new has nothing to remove.
    pub fn tidy(&self, rules: &GcRules) -> Result<Option<GcReport>> {
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
        // A time in the future is that of another clock.
        let due = |time: SystemTime| time.elapsed().map_or(true, |age| age >= EVERY);
        let is_due = || stamp.metadata()?.modified().map(due);
        if !is_due().map_err(failed)? || stamp.try_lock().is_err() || !is_due().map_err(failed)? {
            return Ok(None);
        }
        // Where nobody may remove, nothing goes by itself either.
        let policy = crate::Config::load_here()?.config.guard;
        if !quell_guard::decide_verb(&policy, quell_guard::Verb::Gc).allowed {
            return Ok(None);
        }
        // Before the work: one that can't be done is not tried again at each start.
        let touch = quell_sys::open_private(&path, OpenMode::Append);
        touch.and_then(|file| file.set_modified(SystemTime::now())).map_err(failed)?;
        collect(self.home(), rules, DryRun::No, Some(AT_ONCE)).map(Some)
    }
}
