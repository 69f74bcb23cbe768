//! Sums over the finished jobs, over time and by label, and what the guard refused.

mod query;
mod refusals;
mod spread;
mod time;

use std::collections::BTreeMap;
use std::time::SystemTime;

use quell_store::Home;
use serde::{Deserialize, Serialize};

use crate::{Filter, Result, TagFilter, index};

use spread::Graces;
pub use spread::Spread;
pub use time::Period;

/// How roots ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exits {
    /// Exited with 0.
    pub ok: u64,
    /// Exited with another code.
    pub failed: u64,
    /// Ended by a signal.
    pub signaled: u64,
    /// Never ran.
    pub not_started: u64,
    /// Not known.
    pub unknown: u64,
}

/// Sums over some jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sums {
    /// The number of jobs.
    pub jobs: u64,
    /// How many ran out of time.
    pub timeouts: u64,
    /// How many had to be stopped, completely or partly.
    pub stopped: u64,
    /// How many of those were killed after their grace, or because their keeper was killed. Requested kills don't count.
    pub killed: u64,
    /// How many roots left processes running.
    pub leaks: u64,
    /// How many are not proven to be gone.
    pub not_proven: u64,
    /// The median of the used grace in seconds, of jobs that were asked to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_used: Option<f64>,
    /// The median of the given grace, of the same jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_given: Option<f64>,
    /// The median of the used share of the grace, of jobs with a grace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_share: Option<f64>,
}

/// The jobs that ended within one period, and what was refused within it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bucket {
    /// When the period begins, in UTC.
    pub start: String,
    /// Its length in seconds.
    pub seconds: u64,
    /// The sums.
    #[serde(flatten)]
    pub sums: Sums,
    /// The number of refusals; absent if jobs were selected by label.
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
    /// The sums.
    #[serde(flatten)]
    pub sums: Sums,
}

/// Sums over the finished jobs. Of a job that was restarted, the last run counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stats {
    /// The number of jobs.
    pub jobs: u64,
    /// By cause.
    pub by_cause: BTreeMap<String, u64>,
    /// By the end of the root.
    pub exits: Exits,
    /// How many ran out of time.
    pub timeouts: u64,
    /// How many had to be stopped, completely or partly.
    pub stopped: u64,
    /// How many of those were killed after their grace, or because their keeper was killed. Requested kills (`--now`, a grace of
    /// 0, a second request) don't count.
    pub killed: u64,
    /// How many were asked to end and had a grace.
    #[serde(default)]
    pub asked: u64,
    /// How many of those that were asked were killed. The other killed ones were never asked.
    #[serde(default)]
    pub asked_killed: u64,
    /// The share of the killed ones among the jobs that were asked to end and had a grace; absent without such jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill_rate: Option<f64>,
    /// How many roots left processes running.
    pub leaks: u64,
    /// How many are not proven to be gone.
    pub not_proven: u64,
    /// The used grace, of jobs that were asked to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_used: Option<Spread>,
    /// The given grace, of the same jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_given: Option<Spread>,
    /// The used share of the grace, of jobs with a grace: 1 is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_share: Option<Spread>,
    /// How long they ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Spread>,
    /// The number of refusals. They have no labels, so it is absent if jobs were selected by label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusals: Option<u64>,
    /// Refusals by code.
    #[serde(default)]
    pub refusals_by_code: BTreeMap<String, u64>,
    /// By the time of the end: periods of one length, oldest first, at most 60. Periods without jobs between others are included.
    #[serde(default)]
    pub over_time: Vec<Bucket>,
    /// How many older periods are left out, because the requested length is too short for all.
    #[serde(default)]
    pub over_time_omitted: u64,
    /// By label: the 20 labels with the most jobs.
    #[serde(default)]
    pub by_tag: Vec<TagSums>,
    /// How many other labels there are.
    #[serde(default)]
    pub by_tag_omitted: u64,
}

/// Which jobs to sum up, and how.
#[derive(Clone, Debug, Default)]
pub struct StatsFilter {
    /// Jobs that ended then or later, and refusals of then or later.
    pub since: Option<SystemTime>,
    /// Jobs with all of these labels. If there are any, refusals are left out: they have no labels.
    pub tags: Vec<TagFilter>,
    /// The length of the periods.
    pub period: Period,
    /// The key of the labels to group by; any if not given.
    pub tag_key: Option<String>,
}

/// The sums over the finished jobs that are asked for.
pub fn stats_of(home: &Home, filter: &StatsFilter) -> Result<Stats> {
    let wanted = Filter { since: filter.since, tags: filter.tags.clone(), ..Filter::default() };
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
