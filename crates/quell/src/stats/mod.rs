//! What the finished jobs add up to, over time and by label, and what the guard refused meanwhile.

mod query;
mod refusals;
mod spread;
mod time;

use std::collections::BTreeMap;
use std::time::SystemTime;

use quell_store::Home;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::find::TagFilter;
use crate::index::{self, Wanted};

use spread::Graces;
pub use spread::Spread;
pub use time::Period;

/// How roots ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exits {
    /// With 0.
    pub ok: u64,
    /// With another code.
    pub failed: u64,
    /// By a signal.
    pub signaled: u64,
    /// They never ran.
    pub not_started: u64,
    /// Nobody knows.
    pub unknown: u64,
}

/// What some of the jobs add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sums {
    /// How many.
    pub jobs: u64,
    /// How many ran out of time.
    pub timeouts: u64,
    /// How many had to be stopped, wholly or in part.
    pub stopped: u64,
    /// How many of those had to be killed after their grace; kills that were wanted don't count.
    pub killed: u64,
    /// How many roots left something running.
    pub leaks: u64,
    /// How many are not proven to be gone.
    pub not_proven: u64,
    /// The grace that was used, in seconds: the median, where somebody was asked to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_used: Option<f64>,
    /// The grace that was given: the median, of the same jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_given: Option<f64>,
    /// The share of the grace that was used: the median, where any was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_share: Option<f64>,
}

/// The jobs that ended within a piece of time, and what was refused within it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bucket {
    /// When it begins, by the wall clock in UTC.
    pub start: String,
    /// How wide it is.
    pub seconds: u64,
    /// What they add up to.
    #[serde(flatten)]
    pub sums: Sums,
    /// What the guard refused; absent if jobs were chosen by label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusals: Option<u64>,
}

/// The jobs with one label.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TagSums {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// What they add up to.
    #[serde(flatten)]
    pub sums: Sums,
}

/// What the finished jobs add up to. Of a job that was started again and again, the last run counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stats {
    /// How many.
    pub jobs: u64,
    /// Why they ended.
    pub by_cause: BTreeMap<String, u64>,
    /// How their roots ended.
    pub exits: Exits,
    /// How many ran out of time.
    pub timeouts: u64,
    /// How many had to be stopped, wholly or in part.
    pub stopped: u64,
    /// How many of those were asked to end and had to be killed after their grace. Kills that were wanted (`--now`, a
    /// grace of 0, a second request) don't count.
    pub killed: u64,
    /// The share of those among the jobs that were asked to end and had their grace; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill_rate: Option<f64>,
    /// How many roots left something running.
    pub leaks: u64,
    /// How many are not proven to be gone.
    pub not_proven: u64,
    /// The grace that was used, where somebody was asked to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_used: Option<Spread>,
    /// The grace that was given, of the same jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_given: Option<Spread>,
    /// The share of the grace that was used, where any was given: 1 is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_share: Option<Spread>,
    /// How long they took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Spread>,
    /// How often the guard refused something. What is refused bears no label, so it is absent if jobs were chosen by
    /// label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusals: Option<u64>,
    /// The same by the code of the refusal.
    #[serde(default)]
    pub refusals_by_code: BTreeMap<String, u64>,
    /// The same by the time of the end: pieces of one width, oldest first, at most 60 of them. Those without jobs that lie
    /// between others are among them.
    #[serde(default)]
    pub over_time: Vec<Bucket>,
    /// How many older pieces are not among them, because a width was asked for that is too narrow for all.
    #[serde(default)]
    pub over_time_omitted: u64,
    /// The same by label: the 20 that most jobs have.
    #[serde(default)]
    pub by_tag: Vec<TagSums>,
    /// How many other labels there are.
    #[serde(default)]
    pub by_tag_omitted: u64,
}

/// Which jobs are added up, and how.
#[derive(Clone, Debug, Default)]
pub struct StatsFilter {
    /// Those that ended then or later; and of the refusals those of that time.
    pub since: Option<SystemTime>,
    /// Those with all of these labels. If there is one, refusals are left out: they have none.
    pub tags: Vec<TagFilter>,
    /// How wide the pieces of time are.
    pub period: Period,
    /// The key of the labels that jobs are told apart by; any if there is none.
    pub tag_key: Option<String>,
}

/// The sums over the finished jobs that are asked for.
pub fn stats_of(home: &Home, filter: &StatsFilter) -> Result<Stats> {
    let wanted = Wanted { since: filter.since, tags: filter.tags.clone(), ..Wanted::default() };
    let refusals = match filter.tags.is_empty() {
        true => Some(refusals::refusals(home, filter.since)?),
        false => None,
    };
    let mut stats = index::with(home, |index| {
        let (mut stats, span) = query::totals(index, &wanted)?;
        let graces = query::graces(index, &wanted)?;
        let grid = query::grid(span, refusals.as_deref(), filter.period);
        if let Some(grid) = &grid {
            stats.over_time = query::over_time(index, &wanted, grid, &graces, refusals.as_deref())?;
            stats.over_time_omitted = grid.omitted;
        }
        let mut all = Graces::default();
        graces.iter().for_each(|grace| all.add(grace.given, grace.used));
        [stats.grace_used, stats.grace_given, stats.grace_share] = all.spreads();
        (stats.by_tag, stats.by_tag_omitted) = query::by_tag(index, &wanted, filter.tag_key.as_deref())?;
        Ok(stats)
    })?;
    for refusal in refusals.iter().flatten() {
        *stats.refusals_by_code.entry(refusal.code.clone()).or_default() += 1;
    }
    stats.refusals = refusals.map(|refusals| refusals.len() as u64);
    Ok(stats)
}
