//! Adding jobs to the index and dropping them.
//!
//! A job that is removed meanwhile does not stay in it: its directory goes first and then its row, and a process that adds a
//! row has seen the directory in the same transaction.

use std::collections::HashSet;

use quell_core::JobId;
use quell_store::Home;
use quell_sys::fault::{FaultPoint, fault_point};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::row::{self, Row};
use super::{Fail, select};
use crate::Error;

/// How many jobs are added in one transaction: enough to be quick, few enough for other writers.
const BATCH: usize = 500;

/// Adds the jobs that are noted as ended.
pub(super) fn add_done(db: &mut Connection, home: &Home) -> Result<(), Fail> {
    let mut done = home.done().map_err(Error::io(home.dir().join("done")))?;
    done.retain(|id| has_ended(home, *id));
    for batch in done.chunks(BATCH) {
        add(db, home, batch)?;
        fault_point(FaultPoint::IndexAdded);
        for &id in batch {
            // If this fails, it is added once more.
            let _ = home.indexed(id);
        }
    }
    Ok(())
}

/// Adds all jobs that are not live.
pub(super) fn add_all(db: &mut Connection, home: &Home) -> Result<(), Fail> {
    let mut finished = finished(home)?;
    finished.retain(|id| has_ended(home, *id));
    finished.chunks(BATCH).try_for_each(|batch| add(db, home, batch))
}

/// Whether the job has no keeper any more, whatever its record says.
fn has_ended(home: &Home, id: JobId) -> bool {
    !home.job(id).is_dir_held()
}

/// All jobs on record that are not live, oldest first.
fn finished(home: &Home) -> Result<Vec<JobId>, Fail> {
    // In this order: the lock of a job is made before its directory, so a job that is on record and not live has ended.
    let mut all = home.all().map_err(Error::io(home.dir().join("jobs")))?;
    let live: HashSet<JobId> = home.live().map_err(Error::io(home.dir().join("live")))?.into_iter().collect();
    all.retain(|id| !live.contains(id));
    Ok(all)
}

/// Adds these jobs.
fn add(db: &mut Connection, home: &Home, ids: &[JobId]) -> Result<(), Fail> {
    let rows = ids.iter().filter_map(|&id| Row::of(&home.job(id)).transpose());
    let rows: Vec<Row> = rows.collect::<Result<_, Error>>()?;
    if rows.is_empty() {
        return Ok(());
    }
    let write = write(db)?;
    for row in rows.iter().filter(|row| home.job(row.id()).exists()) {
        row.insert(&write)?;
    }
    Ok(write.commit()?)
}

/// Begins to write; waits for other writers.
fn write(db: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    db.transaction_with_behavior(TransactionBehavior::Immediate)
}

/// Adds what is missing or was broken, and drops what is gone.
pub(super) fn reconcile(db: &mut Connection, home: &Home) -> Result<(), Fail> {
    let finished = finished(home)?;
    let (known, broken) = select::known(db)?;
    let missing = |id: &JobId| (!known.contains(id) || broken.contains(id)) && has_ended(home, *id);
    let missing: Vec<JobId> = finished.iter().copied().filter(missing).collect();
    for batch in missing.chunks(BATCH) {
        add(db, home, batch)?;
    }
    let there: HashSet<JobId> = finished.into_iter().collect();
    let gone: Vec<JobId> = known.into_iter().filter(|id| !there.contains(id)).collect();
    drop_gone(db, home, &gone).map(drop)
}

/// Drops the rows of jobs whose directory is gone, and returns these jobs.
pub(super) fn drop_gone(db: &mut Connection, home: &Home, ids: &[JobId]) -> Result<Vec<JobId>, Fail> {
    let gone: Vec<JobId> = ids.iter().copied().filter(|&id| !home.job(id).exists()).collect();
    for batch in gone.chunks(BATCH) {
        let write = write(db)?;
        for id in batch {
            row::delete(&write, &id.to_string())?;
        }
        write.commit()?;
    }
    Ok(gone)
}
