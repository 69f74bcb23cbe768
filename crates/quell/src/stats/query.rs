//! Queries for sums: the index adds up, and returns single jobs only for medians.

use std::time::SystemTime;

use jiff::Timestamp;
use rusqlite::Row;

use super::refusals::Refusal;
use super::spread::{Graces, Spread};
use super::time::{Grid, Period};
use super::{Bucket, Exits, Stats, Sums, TagSums};
use crate::Filter;
use crate::index::{Fail, Index};

/// How many labels are listed.
const TAGS: i64 = 20;

/// The columns that [`sums`] reads.
const SUMS: &str = "count(*), total(timed_out), total(stopped), total(stopped AND escalated), total(leaked),
    total(verdict IS NULL OR verdict <> 'gone')";

/// The sums in the columns from `first` on.
fn sums(row: &Row<'_>, first: usize) -> rusqlite::Result<Sums> {
    Ok(Sums {
        jobs: row.get::<_, i64>(first)?.cast_unsigned(),
        timeouts: total(row, first + 1)?,
        stopped: total(row, first + 2)?,
        killed: total(row, first + 3)?,
        leaks: total(row, first + 4)?,
        not_proven: total(row, first + 5)?,
        ..Sums::default()
    })
}

fn total(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, f64>(column).map(|sum| sum as u64)
}

/// The grace of one job that was asked to end.
pub(super) struct GraceUse {
    ended: i64,
    pub given: f64,
    pub used: f64,
}

/// The sums over all of them, and when the first and the last ended.
pub(super) fn totals(index: &Index, wanted: &Filter) -> Result<(Stats, Option<(i64, i64)>), Fail> {
    let columns = format!(
        "total(outcome = 'exited' AND code = 0), total(outcome = 'exited' AND code <> 0),
         total(outcome = 'signaled'), total(outcome = 'not_started'),
         total(outcome = 'unknown' OR outcome IS NULL), min(ended), max(ended), total(asked),
         total(asked AND escalated), {SUMS}"
    );
    let rows = index.sums(&columns, wanted, "", |row| {
        let Sums { jobs, timeouts, stopped, killed, leaks, not_proven, .. } = sums(row, 9)?;
        let exits = Exits {
            ok: total(row, 0)?,
            failed: total(row, 1)?,
            signaled: total(row, 2)?,
            not_started: total(row, 3)?,
            unknown: total(row, 4)?,
        };
        let stats = Stats { jobs, exits, timeouts, stopped, killed, leaks, not_proven, ..Stats::default() };
        Ok((stats, row.get::<_, Option<i64>>(5)?.zip(row.get(6)?), [total(row, 7)?, total(row, 8)?]))
    })?;
    let (mut stats, span, [asked, killed]) = rows.into_iter().next().unwrap_or_default();
    (stats.asked, stats.asked_killed) = (asked, killed);
    stats.kill_rate = (asked > 0).then(|| killed as f64 / asked as f64);
    let causes = index.sums("cause, count(*)", wanted, "AND cause IS NOT NULL GROUP BY cause", |row| {
        Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned()))
    })?;
    stats.by_cause = causes.into_iter().collect();
    stats.duration =
        Spread::of(index.sums("duration", wanted, "AND duration IS NOT NULL", |row| row.get(0))?);
    Ok((stats, span))
}

/// The grace of all that were asked to end.
pub(super) fn graces(index: &Index, wanted: &Filter) -> Result<Vec<GraceUse>, Fail> {
    let rest = "AND grace_used IS NOT NULL AND grace_asked IS NOT NULL";
    index.sums("ended, grace_asked, grace_used", wanted, rest, |row| {
        Ok(GraceUse { ended: row.get(0)?, given: row.get(1)?, used: row.get(2)? })
    })
}

/// The periods from the first job or refusal to the last; none without any.
pub(super) fn grid(span: Option<(i64, i64)>, refusals: Option<&[Refusal]>, period: Period) -> Option<Grid> {
    let refused = refusals.unwrap_or_default().iter().map(|refusal| refusal.at);
    let all = || span.into_iter().flat_map(|(first, last)| [first, last]).chain(refused.clone());
    Some(Grid::over(all().min()?, all().max()?, period))
}

/// Sums and refusals for each period.
pub(super) fn over_time(
    index: &Index,
    wanted: &Filter,
    grid: &Grid,
    graces: &[GraceUse],
    refusals: Option<&[Refusal]>,
) -> Result<Vec<Bucket>, Fail> {
    let bucket = |place| Bucket {
        start: grid.wall(place),
        seconds: (grid.width / 1000).cast_unsigned(),
        sums: Sums::default(),
        refusals: refusals.map(|_| 0),
    };
    let mut buckets: Vec<Bucket> = (0..grid.count).map(bucket).collect();
    let columns = format!("{}, {SUMS}", grid.place_sql("ended"));
    let wanted = Filter { since: wanted.since.max(Some(time_of(grid.first))), ..wanted.clone() };
    let rows =
        index.sums(&columns, &wanted, "GROUP BY 1", |row| Ok((row.get::<_, i64>(0)?, sums(row, 1)?)))?;
    for (place, sums) in rows {
        if let Some(bucket) = usize::try_from(place).ok().and_then(|place| buckets.get_mut(place)) {
            bucket.sums = sums;
        }
    }
    let mut used = vec![Graces::default(); grid.count];
    for grace in graces {
        if let Some(place) = grid.place(grace.ended) {
            used[place].add(grace.given, grace.used);
        }
    }
    for (bucket, graces) in buckets.iter_mut().zip(used) {
        set_graces(&mut bucket.sums, graces);
    }
    for refusal in refusals.unwrap_or_default() {
        let count = grid.place(refusal.at).and_then(|place| buckets[place].refusals.as_mut());
        count.into_iter().for_each(|count| *count += 1);
    }
    Ok(buckets)
}

fn time_of(ms: i64) -> SystemTime {
    Timestamp::from_millisecond(ms).map_or(SystemTime::UNIX_EPOCH, SystemTime::from)
}

fn set_graces(sums: &mut Sums, graces: Graces) {
    [sums.grace_used, sums.grace_given, sums.grace_share] =
        graces.spreads().map(|spread| spread.map(|spread| spread.median));
}

/// The labels with the most jobs, with this key or with any, and the number of other labels.
pub(super) fn by_tag(index: &Index, wanted: &Filter, key: Option<&str>) -> Result<(Vec<TagSums>, u64), Fail> {
    let columns = format!("key, value, count(*) OVER (), {SUMS}");
    let rest = format!("GROUP BY key, value ORDER BY count(*) DESC, key, value LIMIT {TAGS}");
    let mut all = 0;
    let mut tags = index.tag_sums(&columns, wanted, key, &rest, |row| {
        all = row.get::<_, i64>(2)?.cast_unsigned();
        Ok(TagSums { key: row.get(0)?, value: row.get(1)?, sums: sums(row, 3)? })
    })?;
    let mut graces = vec![Graces::default(); tags.len()];
    let rest = "AND grace_used IS NOT NULL AND grace_asked IS NOT NULL";
    // Labels that are not listed are dropped as they come: there can be as many as jobs.
    index.tag_sums("key, value, grace_asked, grace_used", wanted, key, rest, |row| {
        let (key, value) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
        if let Some(place) = tags.iter().position(|tag| tag.key == key && tag.value == value) {
            graces[place].add(row.get(2)?, row.get(3)?);
        }
        Ok(())
    })?;
    for (tag, graces) in tags.iter_mut().zip(graces) {
        set_graces(&mut tag.sums, graces);
    }
    let others = all.saturating_sub(tags.len() as u64);
    Ok((tags, others))
}
