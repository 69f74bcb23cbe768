//! From what users type to a job.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use quell_core::JobId;
use quell_store::{Home, JobDir, is_name};

use crate::index::{self, Fail, Index};
use crate::{Error, Result};

/// The shortest text that is taken for the beginning of an id.
pub const SHORTEST_PREFIX: usize = 4;

/// How many jobs an ambiguity names.
const AMBIGUOUS_SHOWN: usize = 5;

/// The job that `text` names: its id, its name, or a unique beginning of its id in either case. A name goes before a
/// beginning.
///
/// A text that could lead out of quell's home is [`Error::InvalidJob`] and never becomes part of a path. When this returns, the
/// job is on record, or at least its lock exists.
pub fn resolve(home: &Home, text: &str) -> Result<JobId> {
    let is_unknown = |found: &Result<JobId>| matches!(found, Err(Error::NoSuchJob(_)));
    let mut found = resolve_recorded(home, text);
    // Its files may have been deleted; then its keepers make them again.
    if is_unknown(&found) && restore(home) {
        found = resolve_recorded(home, text);
    }
    if !is_unknown(&found) {
        return found;
    }
    let whole_id: Option<JobId> = text.to_ascii_uppercase().parse().ok();
    if whole_id.is_some_and(|id| record_remains(home, Some(id))) {
        return resolve_recorded(home, text);
    }
    // Its directory may be gone, so that its lock is all that is left.
    whole_id.filter(|id| home.job(*id).has_lock()).map_or(found, Ok)
}

/// Makes keepers restore the deleted files of their jobs. Returns whether there are keepers, so that another look may find
/// more.
pub(crate) fn restore(home: &Home) -> bool {
    let whole = |job: &JobDir| job.has_lock() && job.exists();
    let kept = home.kept();
    kept.iter().map(|id| home.job(*id)).filter(|job| !whole(job)).for_each(|job| {
        job.have_restored();
    });
    !kept.is_empty()
}

/// Puts jobs of which only a cgroup with processes is left on record again, as lost ones. Returns whether there were any.
/// Without an id: the ones whose cgroup names this home. With an id: also one whose home is not known.
pub(crate) fn record_remains(home: &Home, wanted: Option<JobId>) -> bool {
    let lost = remains(home, wanted);
    lost.iter().filter(|id| home.job(**id).make_lost().is_ok()).count() > 0
}

/// The jobs of which only a cgroup with processes is left.
pub(crate) fn remains(home: &Home, wanted: Option<JobId>) -> Vec<JobId> {
    let place = |dir: &Path| fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let here = place(home.dir());
    // Also one whose record says that it has ended: a job can rewrite its record.
    let is_forgotten = |id: JobId| !home.job(id).has_lock();
    let mut found = quell_contain::orphaned_cgroups();
    found.retain(|remains| {
        let is_ours = remains.home.as_deref().map_or(wanted.is_some(), |other| place(other) == here);
        is_ours && wanted.is_none_or(|id| id == remains.id) && is_forgotten(remains.id)
    });
    let ids: BTreeSet<JobId> = found.into_iter().map(|remains| remains.id).collect();
    ids.into_iter().collect()
}

/// The same, only from what is on record.
pub(crate) fn resolve_recorded(home: &Home, text: &str) -> Result<JobId> {
    // Ids and their beginnings use fewer characters than names.
    if !is_name(text) {
        return Err(Error::InvalidJob(text.to_owned()));
    }
    let upper = text.to_ascii_uppercase();
    if let Some(id) = upper.parse::<JobId>().ok().filter(|&id| home.job(id).exists()) {
        return Ok(id);
    }
    let live = home.live().map_err(Error::io(home.dir().join("live")))?;
    let named = home.named(text).filter(|&id| home.job(id).exists());
    // A live job goes before one that has ended.
    if let Some(id) = named.filter(|id| live.contains(id)) {
        return Ok(id);
    }
    // The link of a live job's name may have been deleted.
    let unlinked: Vec<JobId> = live.iter().copied().filter(|&id| has_name(home, id, text)).collect();
    if unlinked.len() > 1 {
        return Err(ambiguous(text, &unlinked));
    }
    if let Some(id) = unlinked.first().copied().or(named) {
        return Ok(id);
    }
    index::with(home, |index| {
        if let Some(id) = still_there(home, index, |index| index.last_named(text))?.first() {
            return Ok(*id);
        }
        if text.len() < SHORTEST_PREFIX || !upper.bytes().all(is_of_ids) {
            return Err(Error::NoSuchJob(text.to_owned()).into());
        }
        let finished = still_there(home, index, |index| index.beginning_with(&upper, AMBIGUOUS_SHOWN + 1))?;
        let begins = |id: &JobId| id.to_string().starts_with(&upper);
        let alive = live.iter().copied().filter(begins);
        let mut found: BTreeSet<JobId> =
            finished.into_iter().chain(alive.filter(|&id| home.job(id).exists())).collect();
        if found.is_empty() {
            // Its lock may have been deleted.
            let all = home.all().map_err(Error::io(home.dir().join("jobs")))?;
            found.extend(all.into_iter().filter(begins));
        }
        if found.len() > 1 {
            return Err(ambiguous(text, &found.into_iter().collect::<Vec<_>>()).into());
        }
        found.pop_first().ok_or_else(|| Error::NoSuchJob(text.to_owned()).into())
    })
}

fn ambiguous(text: &str, found: &[JobId]) -> Error {
    Error::Ambiguous {
        prefix: text.to_owned(),
        ids: found.iter().take(AMBIGUOUS_SHOWN).map(JobId::to_string).collect(),
        more: found.len() > AMBIGUOUS_SHOWN,
    }
}

fn has_name(home: &Home, id: JobId, name: &str) -> bool {
    home.job(id).spec().is_ok_and(|spec| spec.request.name.as_deref() == Some(name))
}

/// Whether ids have this character: Crockford's base 32.
fn is_of_ids(byte: u8) -> bool {
    byte.is_ascii_digit() || (byte.is_ascii_uppercase() && !b"ILOU".contains(&byte))
}

/// Asks the index for jobs. Drops the ones whose directory is gone from it and asks again, until all exist.
fn still_there(
    home: &Home,
    index: &mut Index,
    ask: impl Fn(&Index) -> std::result::Result<Vec<JobId>, Fail>,
) -> std::result::Result<Vec<JobId>, Fail> {
    loop {
        let ids = ask(index)?;
        if index.drop_gone(home, &ids)?.is_empty() {
            return Ok(ids);
        }
    }
}
