//! Lists of jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::str::FromStr;
use std::time::SystemTime;

use quell_core::{JobId, JobState};
use quell_guard::Verb;
use quell_store::{Home, Liveness};
use serde::{Deserialize, Serialize};

use crate::index;
use crate::resolve::restore;
use crate::view::JobView;
use crate::{Error, Quell, Result, recover_if_orphaned};

/// How many finished jobs are listed by default.
const FINISHED_SHOWN: usize = 10;

/// A label to look for: a key, with its value or any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagFilter {
    /// The key.
    pub key: String,
    /// The value; any if not given.
    pub value: Option<String>,
}

/// A text that is not a label.
#[derive(Debug, thiserror::Error)]
#[error("invalid label `{0}`: expected KEY or KEY=VALUE")]
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
    fn matches(&self, tags: &BTreeMap<String, String>) -> bool {
        tags.get(&self.key).is_some_and(|found| self.value.as_ref().is_none_or(|value| value == found))
    }
}

/// Which jobs to list. The default: the live ones and the last ten that ended.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// All finished ones, whatever `limit` says.
    pub all: bool,
    /// In one of these states; in any if empty.
    pub states: Vec<JobState>,
    /// With all of these labels.
    pub tags: Vec<TagFilter>,
    /// Of this session.
    pub session: Option<String>,
    /// Of this name.
    pub name: Option<String>,
    /// The largest number of finished ones.
    pub limit: Option<usize>,
    /// Finished ones only if they ended then or later.
    pub since: Option<SystemTime>,
    /// Only finished ones that ended before this finished one: the next page of a list. None if that one is not known.
    pub before: Option<JobId>,
}

impl Filter {
    pub(crate) fn matches(&self, view: &JobView) -> bool {
        let same = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        (self.states.is_empty() || self.states.contains(&view.state))
            && self.tags.iter().all(|tag| tag.matches(&view.tags))
            && same(&self.session, &view.session)
            && same(&self.name, &view.name)
    }
}

/// A list of jobs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Listing {
    /// The live ones, newest first; then the finished ones, those that ended last first.
    pub jobs: Vec<JobView>,
    /// How many finished ones are not listed.
    pub more: u64,
    /// What is wrong with jobs whose records can't be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The jobs that `filter` selects. A live job without a keeper is `lost`, and stays so.
///
/// A home that does not exist has no jobs, and is not made.
pub fn list(home: &Home, filter: &Filter) -> Result<Listing> {
    Ok(list_readable(home, filter)?.0)
}

/// The same, with the live jobs that can't be listed because their specification is missing or damaged.
fn list_readable(home: &Home, filter: &Filter) -> Result<(Listing, Vec<JobId>)> {
    let mut warnings = Vec::new();
    let failed = || Error::io(home.dir().to_owned());
    let (mut ids, on_disk) = (home.live().map_err(failed())?, home.count().map_err(failed())?);
    // All files may have been deleted.
    if ids.is_empty() && on_disk == 0 && restore(home) {
        ids = home.live().map_err(failed())?;
    }
    let limit = (!filter.all).then(|| filter.limit.unwrap_or(FINISHED_SHOWN));
    let (mut finished, count, broken, unlocked) = index::with(home, |index| {
        // A job that is on record and neither live nor in the index has lost its lock, or its row in the index.
        let mut broken = index.broken()?;
        let known = index.count(&Filter::default())? + (broken.len() + ids.len()) as u64;
        let unlocked: Vec<JobId> = if on_disk > known {
            index.reconcile(home)?;
            broken = index.broken()?;
            let known: BTreeSet<JobId> = index.all_ids()?.into_iter().chain(ids.iter().copied()).collect();
            home.all().map_err(failed())?.into_iter().filter(|id| !known.contains(id)).collect()
        } else {
            Vec::new()
        };
        let finished = loop {
            let views = index.newest(filter, limit)?;
            let ids: Vec<JobId> = views.iter().map(|view| view.id).collect();
            if index.drop_gone(home, &ids)?.is_empty() {
                break views;
            }
        };
        broken.truncate(limit.unwrap_or(usize::MAX));
        Ok((finished, index.count(filter)?, broken, unlocked))
    })?;
    ids.extend(unlocked);
    ids.sort_unstable();
    if filter.before.is_some() {
        ids.clear();
    }
    let (mut live, unreadable) = look_at(home, &ids, &mut warnings)?;
    live.retain(|view| filter.matches(view));
    // A job that has ended since it was found among the live ones is listed once, as ended. A job with a keeper has not
    // ended, whatever another process wrote into its record.
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

/// A list, and the lost jobs whose stop was finished for it.
#[derive(Debug)]
pub struct RecoveredList {
    /// The list.
    pub listing: Listing,
    /// The lost jobs that were finished first.
    pub recovered: Vec<JobId>,
    /// Why others could not be finished. They are listed as `lost`.
    pub failed: Vec<Error>,
}

impl Quell {
    /// Like [`Quell::list`], after finishing the stop of every lost job that `filter` would select in another state.
    pub fn list_recovered(&self, filter: &Filter) -> Result<RecoveredList> {
        let lost_only = Filter { states: vec![JobState::Lost], limit: Some(0), all: false, ..filter.clone() };
        self.permit(Verb::List, "")?;
        let wanted = if filter.states.is_empty() { filter } else { &lost_only };
        let (first, unreadable) = list_readable(self.home(), wanted)?;
        let is_lost = |view: &&JobView| view.state == JobState::Lost;
        let mut lost: Vec<JobId> = first.jobs.iter().filter(is_lost).map(|view| view.id).collect();
        let is_unkept = |id: &JobId| matches!(self.home().job(*id).liveness(), Ok(Liveness::Orphaned(_)));
        lost.extend(unreadable.into_iter().filter(is_unkept));
        if lost.is_empty() && filter.states.is_empty() {
            return Ok(RecoveredList { listing: first, recovered: Vec::new(), failed: Vec::new() });
        }
        let (mut recovered, mut failed) = (Vec::new(), Vec::new());
        for id in lost {
            match recover_if_orphaned(&self.home().job(id)) {
                // It has a keeper after all, or had ended.
                Ok(false) => {}
                Ok(true) => recovered.push(id),
                Err(error) => failed.push(error),
            }
        }
        Ok(RecoveredList { listing: self.list(filter)?, recovered, failed })
    }
}

/// Views of these jobs, which have not ended, newest first; and the ones whose records can't be read.
fn look_at(home: &Home, ids: &[JobId], warnings: &mut Vec<String>) -> Result<(Vec<JobView>, Vec<JobId>)> {
    let (mut views, mut unreadable) = (Vec::new(), Vec::new());
    for job in ids.iter().rev().map(|id| home.job(*id)) {
        let view = match JobView::look(&job) {
            // It is being put on record or removed; or its record was deleted.
            Err(Error::NoSuchJob(_)) => match job.liveness() {
                // Its keeper makes the record again.
                Ok(Liveness::Supervised) => JobView::look(&job),
                Ok(Liveness::Orphaned(_)) => {
                    unreadable.push(job.id());
                    continue;
                }
                Ok(Liveness::Finishing | Liveness::Ended) | Err(_) => continue,
            },
            other => other,
        };
        match view {
            Ok(view) => views.push(view),
            Err(Error::NoSuchJob(_)) => {}
            Err(error) if error.is_out_of_descriptors() => return Err(error),
            Err(error) => {
                unreadable.push(job.id());
                // A job that is being put on record has no specification yet.
                if !matches!(&error, Error::Io { error, .. } if error.kind() == io::ErrorKind::NotFound) {
                    warnings.push(error.to_string());
                }
            }
        }
    }
    Ok((views, unreadable))
}
