//! What the finished jobs add up to.

use std::collections::BTreeMap;
use std::time::SystemTime;

use quell_store::Home;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::find::TagFilter;
use crate::index::{self, Wanted};

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

/// How a measure is spread, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spread {
    /// How many values.
    pub count: u64,
    /// Half are no larger.
    pub median: f64,
    /// Nine in ten are no larger.
    pub p90: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of values in ascending order.
    fn of(sorted: &[f64]) -> Option<Self> {
        let max = *sorted.last()?;
        // The nearest rank: a value that was measured, none in between.
        let rank = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
        Some(Self { count: sorted.len() as u64, median: rank(50), p90: rank(90), max })
    }
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
    /// How many of those had to be killed.
    pub killed: u64,
    /// The share of those; absent if none was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill_rate: Option<f64>,
    /// How many roots left something running.
    pub leaks: u64,
    /// How many are not proven to be gone.
    pub not_proven: u64,
    /// The grace that was used, where somebody was asked to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_used: Option<Spread>,
    /// How long they took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Spread>,
}

/// The sums over the finished jobs that ended at `since` or later and bear all of `tags`.
pub fn stats(home: &Home, since: Option<SystemTime>, tags: &[TagFilter]) -> Result<Stats> {
    let wanted = Wanted { since, tags: tags.to_vec(), ..Wanted::default() };
    index::with(home, |index| {
        let count = |value: i64| value.cast_unsigned();
        let sums = index.sums(
            "count(*), total(outcome = 'exited' AND code = 0), total(outcome = 'exited' AND code <> 0),
             total(outcome = 'signaled'), total(outcome = 'not_started'),
             total(outcome = 'unknown' OR outcome IS NULL), total(timed_out), total(stopped),
             total(stopped AND escalated), total(leaked), total(verdict IS NULL OR verdict <> 'gone')",
            &wanted,
            "",
            |row| {
                let total = |column| row.get::<_, f64>(column).map(|sum| sum as u64);
                Ok(Stats {
                    jobs: count(row.get(0)?),
                    exits: Exits {
                        ok: total(1)?,
                        failed: total(2)?,
                        signaled: total(3)?,
                        not_started: total(4)?,
                        unknown: total(5)?,
                    },
                    timeouts: total(6)?,
                    stopped: total(7)?,
                    killed: total(8)?,
                    leaks: total(9)?,
                    not_proven: total(10)?,
                    ..Stats::default()
                })
            },
        )?;
        let mut stats = sums.into_iter().next().unwrap_or_default();
        stats.kill_rate = (stats.stopped > 0).then(|| stats.killed as f64 / stats.stopped as f64);
        stats.by_cause = index
            .sums("cause, count(*)", &wanted, "AND cause IS NOT NULL GROUP BY cause", |row| {
                Ok((row.get(0)?, count(row.get(1)?)))
            })?
            .into_iter()
            .collect();
        let sorted = |column: &str| {
            let rest = format!("AND {column} IS NOT NULL ORDER BY {column}");
            index.sums(column, &wanted, &rest, |row| row.get::<_, f64>(0))
        };
        stats.grace_used = Spread::of(&sorted("grace_used")?);
        stats.duration = Spread::of(&sorted("duration")?);
        Ok(stats)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_names_values_that_were_measured() {
        assert_eq!(Spread::of(&[]), None);
        let one = Spread::of(&[2.0]).unwrap();
        assert_eq!((one.median, one.p90, one.max), (2.0, 2.0, 2.0));
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        let ten = Spread::of(&ten).unwrap();
        assert_eq!((ten.count, ten.median, ten.p90, ten.max), (10, 5.0, 9.0, 10.0));
    }
}
