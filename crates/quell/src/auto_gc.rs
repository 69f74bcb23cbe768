//! The small gc that `start` runs now and then.

use std::fs::Metadata;
use std::io;
use std::time::{Duration, SystemTime};

use quell_guard::{Guard, Verb};
use quell_sys::OpenMode;
use serde_json::json;

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
        let old = match quell_sys::open_private_found(&path, OpenMode::Read) {
            Ok(old) => Some(old),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let Some((stamp, found)) = old else {
            quell_sys::open_private(&path, OpenMode::Append).map_err(failed)?;
            return Ok(None);
        };
        // A time in the future comes from another clock.
        let due = |time: SystemTime| time.elapsed().map_or(true, |age| age >= EVERY);
        let is_due = |found: Metadata| found.modified().map(due).map_err(failed);
        if !is_due(found)? || stamp.try_lock().is_err() || !is_due(stamp.metadata().map_err(failed)?)? {
            return Ok(None);
        }
        // Where `gc` is refused, nothing is removed automatically either.
        let config = crate::Config::load_here()?.config;
        let guard = Guard::new(self.home(), config.guard.clone()).masking(config.mask());
        let Ok(permit) = guard.permit_act(Verb::Gc) else { return Ok(None) };
        // Before the work, so that a gc that fails is not repeated at each start.
        let touch = quell_sys::open_private(&path, OpenMode::Append);
        touch.and_then(|file| file.set_modified(SystemTime::now())).map_err(failed)?;
        let report = collect(self.home(), rules, DryRun::No, Some(AT_ONCE))?;
        let GcReport { removed, bytes, remains, .. } = &report;
        if !removed.is_empty() || *remains > 0 {
            let result = json!({ "removed": removed.len(), "bytes": bytes, "remains": remains });
            permit.record("automatic", &result, None)?;
        }
        Ok(Some(report))
    }
}
