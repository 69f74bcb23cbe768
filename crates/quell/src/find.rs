//! From what users type to jobs, and lists of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::time::SystemTime;

use quell_core::{JobId, JobState};
use quell_store::{Home, Liveness, is_name};
use serde::{Deserialize, Serialize};

use quell_guard::Verb;

use crate::index::{self, Fail, Index, Wanted};
use crate::view::JobView;
use crate::{Error, Quell, Result, settle_lost};

/// The shortest text that is taken for the beginning of an id.
pub const SHORTEST_PREFIX: usize = 4;

/// How many jobs an ambiguity names.
const AMBIGUOUS_SHOWN: usize = 5;

/// How many finished jobs are listed if nobody says.
const FINISHED_SHOWN: usize = 10;

/// The job that `text` means: its id, its name, or the beginning of its id in either case, if no other begins so. A name
/// goes before a beginning.
///
/// Nothing that could leave quell's home touches a path: it is [`Error::InvalidJob`]. The job is on record when this returns, or
/// at least its lock is there.
pub fn resolve(home: &Home, text: &str) -> Result<JobId> {
    let is_unknown = |found: &Result<JobId>| matches!(found, Err(Error::NoSuchJob(_)));
    let mut found = resolve_recorded(home, text);
    // Its files may have been deleted, and made again meanwhile by its keepers.
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
    // Its directory may be gone for good: what its lock says is all that is known.
    whole_id.filter(|id| home.job(*id).live_path().exists()).map_or(found, Ok)
}

/// Has keepers make again the files of their jobs, where those were deleted; whether there are any keepers, so that another
/// look may find more.
pub(crate) fn restore(home: &Home) -> bool {
    let whole =
        |id: &JobId| home.job(*id).live_path().exists() && home.job(*id).dir().join("spec.json").exists();
    let kept = home.kept();
    // A look at what keeps it is enough for that.
    kept.iter().filter(|id| !whole(id)).for_each(|id| drop(home.job(*id).liveness()));
    !kept.is_empty()
}

/// Puts jobs on record again, as lost ones, of which nothing is left but a cgroup with processes; whether there were any.
/// Without an id those whose cgroup names this home; with an id also the one of which no home is known.
pub(crate) fn record_remains(home: &Home, wanted: Option<JobId>) -> bool {
    let lost = remains(home, wanted);
    lost.iter().filter(|id| home.job(**id).make_lost().is_ok()).count() > 0
}

/// Those jobs.
pub(crate) fn remains(home: &Home, wanted: Option<JobId>) -> Vec<JobId> {
    let place = |dir: &Path| fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let here = place(home.dir());
    // One that its record says has ended is among them: the record is the job's to rewrite.
    let is_forgotten = |id: JobId| !home.job(id).live_path().exists();
    let mut found = quell_contain::remains();
    found.retain(|remains| {
        let is_ours = remains.home.as_deref().map_or(wanted.is_some(), |other| place(other) == here);
        is_ours && wanted.is_none_or(|id| id == remains.id) && is_forgotten(remains.id)
    });
    let ids: BTreeSet<JobId> = found.into_iter().map(|remains| remains.id).collect();
    ids.into_iter().collect()
}

/// The same from what is on record alone.
pub(crate) fn resolve_recorded(home: &Home, text: &str) -> Result<JobId> {
    // Ids and their beginnings have fewer characters than names.
    if !is_name(text) {
        return Err(Error::InvalidJob(text.to_owned()));
    }
    let upper = text.to_ascii_uppercase();
    if let Some(id) = upper.parse::<JobId>().ok().filter(|&id| home.job(id).exists()) {
        return Ok(id);
    }
    let live = home.live().map_err(Error::io(home.dir().join("live")))?;
    let named = home.named(text).filter(|&id| home.job(id).exists());
    // One that is live goes before one that has ended. Those in the foreground claim no name; several may have the same.
    let in_front = || live.iter().rev().copied().find(|&id| bears(home, id, text));
    if let Some(id) = named.filter(|id| live.contains(id)).or_else(in_front).or(named) {
        return Ok(id);
    }
    index::with(home, |index| {
        if let Some(id) = still_there(home, index, |index| Ok(index.last_named(text)?.into_iter().collect()))?
            .into_iter()
            .next()
        {
            return Ok(id);
        }
        if is_too_short(text) || !upper.bytes().all(is_of_ids) {
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
        match found.len() {
            0 => Err(Error::NoSuchJob(text.to_owned()).into()),
            1 => Ok(found.into_iter().next().ok_or_else(|| Error::NoSuchJob(text.to_owned()))?),
            _ => Err(Error::Ambiguous {
                prefix: text.to_owned(),
                ids: found.iter().take(AMBIGUOUS_SHOWN).map(JobId::to_string).collect(),
                more: found.len() > AMBIGUOUS_SHOWN,
            }
            .into()),
        }
    })
}

fn bears(home: &Home, id: JobId, name: &str) -> bool {
    home.job(id).spec().is_ok_and(|spec| spec.request.name.as_deref() == Some(name))
}

/// Whether it may be meant as the beginning of an id, and is too short for that.
fn is_too_short(text: &str) -> bool {
    text.len() < SHORTEST_PREFIX
}

/// Whether ids are made of it: Crockford's base 32.
fn is_of_ids(byte: u8) -> bool {
    byte.is_ascii_digit() || (byte.is_ascii_uppercase() && !b"ILOU".contains(&byte))
}

/// Asks the index for jobs and takes those out of it whose directory is gone, until all are there.
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

/// A label that is asked for: a key, with its value or any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagFilter {
    /// The key.
    pub key: String,
    /// The value; any if there is none.
    pub value: Option<String>,
}

/// A text that asks for no label.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no label: write KEY or KEY=VALUE")]
pub struct InvalidTag(String);

impl FromStr for TagFilter {
    type Err = InvalidTag;

    fn from_str(text: &str) -> std::result::Result<Self, InvalidTag> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (text, None),
        };
        if key.is_empty() || text.contains('\0') {
            return Err(InvalidTag(text.to_owned()));
        }
        Ok(Self { key: key.to_owned(), value })
    }
}

impl TagFilter {
    fn fits(&self, tags: &BTreeMap<String, String>) -> bool {
        tags.get(&self.key).is_some_and(|found| self.value.as_ref().is_none_or(|value| value == found))
    }
}

/// Which jobs to list. The default: the live ones and the last ten that ended.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// All finished ones, whatever `limit` says.
    pub all: bool,
    /// In one of these states; in any if there is none.
    pub states: Vec<JobState>,
    /// With all of these labels.
    pub tags: Vec<TagFilter>,
    /// Of this session.
    pub session: Option<String>,
    /// Of this name.
    pub name: Option<String>,
    /// How many finished ones at most.
    pub limit: Option<usize>,
    /// Of the finished ones, those that ended then or later.
    pub since: Option<SystemTime>,
}

impl Filter {
    fn fits(&self, view: &JobView) -> bool {
        let same = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        (self.states.is_empty() || self.states.contains(&view.state))
            && self.tags.iter().all(|tag| tag.fits(&view.tags))
            && same(&self.session, &view.session)
            && same(&self.name, &view.name)
    }

    fn wanted(&self) -> Wanted {
        Wanted {
            states: self.states.clone(),
            tags: self.tags.clone(),
            session: self.session.clone(),
            name: self.name.clone(),
            since: self.since,
        }
    }
}

/// A list of jobs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Listing {
    /// The live ones, newest first; then the finished ones, those that ended last first.
    pub jobs: Vec<JobView>,
    /// How many more finished ones there are.
    pub more: u64,
    /// Jobs whose records can't be read, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The jobs that `filter` asks for. A live job that nobody keeps is `lost`; nothing is done about that here.
///
/// A home that isn't there has no jobs; it is not made.
pub fn list(home: &Home, filter: &Filter) -> Result<Listing> {
    Ok(list_readable(home, filter)?.0)
}

/// The same, and the live jobs that can't be listed, as their specification is missing or damaged.
fn list_readable(home: &Home, filter: &Filter) -> Result<(Listing, Vec<JobId>)> {
    let mut warnings = Vec::new();
    let failed = || Error::io(home.dir().to_owned());
    let (mut ids, on_disk) = (home.live().map_err(failed())?, home.count().map_err(failed())?);
    // All of it may have been deleted.
    if ids.is_empty() && on_disk == 0 && restore(home) {
        ids = home.live().map_err(failed())?;
    }
    let limit = (!filter.all).then(|| filter.limit.unwrap_or(FINISHED_SHOWN));
    let wanted = filter.wanted();
    let (mut finished, count, broken, unlocked) = index::with(home, |index| {
        // What is on record, and neither live nor finished, has lost its lock, or its row in the index.
        let mut broken = index.broken()?;
        let known = index.count(&Wanted::default())? + (broken.len() + ids.len()) as u64;
        let unlocked: Vec<JobId> = if on_disk > known {
            index.reconcile(home)?;
            broken = index.broken()?;
            let known: BTreeSet<JobId> = index.all_ids()?.into_iter().chain(ids.iter().copied()).collect();
            home.all().map_err(failed())?.into_iter().filter(|id| !known.contains(id)).collect()
        } else {
            Vec::new()
        };
        let finished = loop {
            let views = index.newest(&wanted, limit)?;
            let ids: Vec<JobId> = views.iter().map(|view| view.id).collect();
            if index.drop_gone(home, &ids)?.is_empty() {
                break views;
            }
        };
        broken.truncate(limit.unwrap_or(usize::MAX));
        Ok((finished, index.count(&wanted)?, broken, unlocked))
    })?;
    ids.extend(unlocked);
    ids.sort_unstable();
    let (mut live, unreadable) = look_at(home, &ids, &mut warnings)?;
    live.retain(|view| filter.fits(view));
    // What has ended since it was found among the live ones is listed once, as ended. One that a keeper keeps has not ended,
    // whatever another process wrote for the index to read.
    let kept = |view: &&JobView| !matches!(view.state, JobState::Ended | JobState::Lost);
    let kept: BTreeSet<JobId> = live.iter().filter(kept).map(|view| view.id).collect();
    let mistaken: Vec<JobId> =
        finished.extract_if(.., |view| kept.contains(&view.id)).map(|view| view.id).collect();
    if !mistaken.is_empty() {
        index::forget(home, &mistaken);
    }
    let over: BTreeSet<JobId> = finished.iter().map(|view| view.id).collect();
    live.retain(|view| !over.contains(&view.id));
    warnings.extend(broken.into_iter().map(|broken| broken.why));
    let more = count.saturating_sub(finished.len() as u64);
    Ok((Listing { jobs: live.into_iter().chain(finished).collect(), more, warnings }, unreadable))
}

/// A list without ghosts.
#[derive(Debug)]
pub struct Settled {
    /// The list.
    pub listing: Listing,
    /// The lost jobs whose stop was finished first.
    pub finished: Vec<JobId>,
    /// Why others could not be finished. They are listed as `lost`.
    pub failed: Vec<Error>,
}

impl Quell {
    /// Like [`Quell::list`], after the stop of every lost job that `filter` would let through in some state has been
    /// finished.
    pub fn list_settled(&self, filter: &Filter) -> Result<Settled> {
        let lost_only = Filter { states: vec![JobState::Lost], limit: Some(0), all: false, ..filter.clone() };
        self.permit(Verb::List, "")?;
        let wanted = if filter.states.is_empty() { filter } else { &lost_only };
        let (first, unreadable) = list_readable(self.home(), wanted)?;
        let is_lost = |view: &&JobView| view.state == JobState::Lost;
        let mut lost: Vec<JobId> = first.jobs.iter().filter(is_lost).map(|view| view.id).collect();
        let is_unkept = |id: &JobId| matches!(self.home().job(*id).liveness(), Ok(Liveness::Orphaned(_)));
        lost.extend(unreadable.into_iter().filter(is_unkept));
        if lost.is_empty() && filter.states.is_empty() {
            return Ok(Settled { listing: first, finished: Vec::new(), failed: Vec::new() });
        }
        let (mut finished, mut failed) = (Vec::new(), Vec::new());
        for id in lost {
            match settle_lost(&self.home().job(id)) {
                // It is kept after all, or was over.
                Ok(false) => {}
                Ok(true) => finished.push(id),
                Err(error) => failed.push(error),
            }
        }
        Ok(Settled { listing: self.list(filter)?, finished, failed })
    }
}

/// How these jobs, which have not ended, are, newest first; and those whose records can't be read.
fn look_at(home: &Home, ids: &[JobId], warnings: &mut Vec<String>) -> Result<(Vec<JobView>, Vec<JobId>)> {
    let (mut views, mut unreadable) = (Vec::new(), Vec::new());
    for job in ids.iter().rev().map(|id| home.job(*id)) {
        let view = match JobView::look(&job) {
            // It is just being put on record or removed; or its record was deleted, and its keeper makes it again.
            Err(Error::NoSuchJob(_)) if matches!(job.liveness(), Ok(Liveness::Supervised)) => {
                JobView::look(&job)
            }
            other => other,
        };
        match view {
            Ok(view) => views.push(view),
            Err(Error::NoSuchJob(_)) => {}
            Err(error) if error.is_out_of_descriptors() => return Err(error),
            Err(error) => {
                unreadable.push(job.id());
                // One that is just being put on record has no specification yet.
                if !matches!(&error, Error::Io { error, .. } if error.kind() == io::ErrorKind::NotFound) {
                    warnings.push(error.to_string());
                }
            }
        }
    }
    Ok((views, unreadable))
}
