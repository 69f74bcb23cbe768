//! The end of a job on disk: one order of steps for every process that writes it.
//!
//! ```text
//! receipt → state → `Ended` in the history → (sync) → the lock moves to done/ and is released → (sync)
//! ```
//!
//! The state is the commit: it is one appended line, and readers open the receipt only if it says `ended`. It is appended also
//! if the receipt can't be written, as its file exists already: then the next command makes the receipt from it. Steps before
//! it can be repeated: they replace the earlier result. Steps after it follow from the receipt and are done once: if the writer is
//! killed, by [`JobEnd::resume`]. The history comes before the move, because a client that waits for the move must find the
//! whole history.
//!
//! If another process watches the writer and would resume, the sync comes last, so that no client waits for it. Otherwise no
//! process would do it again, so it comes before the move.

use std::io;
use std::time::{Duration, Instant};

use quell_core::{EventKind, JobEvent, Receipt, RecordedState, StateRecord};
use quell_sys::fault::{FaultPoint, fault_point};

use crate::job::JobDir;
use crate::liveness::Lock;

/// How often a write to a full disk is tried again: there is no event for free space.
const DISK_LOOK: Duration = Duration::from_millis(50);

/// When the record is synced to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncWhen {
    /// Never: a job whose caller waits for its end.
    Never,
    /// Before the job counts as ended: no process would do it again.
    BeforeMark,
    /// After that: another process watches this one, and syncs if this one is killed.
    AfterMark,
}

/// What to do if the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFull {
    /// Fail.
    Fail,
    /// Use the reserve, and wait up to this long for more space.
    UseReserve(Duration),
}

/// What the caller is notified of while an end is written.
#[derive(Debug)]
pub enum EndStep<'a> {
    /// This event is in the history.
    Logged(&'a JobEvent),
    /// Clients that wait for the end can go: the job counts as ended, or the end can't be written.
    ClientsReleased,
}

/// How a run ended, to be put on record. The state is `ended`, `waiting` for the next run, or `stopping` if there are
/// survivors. Only an ended job is marked as ended.
#[derive(Debug)]
pub struct JobEnd<'a> {
    pub job: &'a JobDir,
    /// Its lock, which the caller holds. None if another process holds it that does not write to the record.
    pub lock: Option<&'a Lock>,
    pub receipt: &'a Receipt,
    /// The state after the run.
    pub record: &'a StateRecord,
    /// What is added to the history.
    pub events: &'a [JobEvent],
    pub sync: SyncWhen,
    pub disk_full: DiskFull,
}

impl JobEnd<'_> {
    /// Writes the end. After an error the job is not marked as ended yet, and its state is the old one or the last one: the next
    /// process that finds it without a keeper finishes it.
    pub fn write(&self, mut tell: impl FnMut(EndStep<'_>)) -> io::Result<()> {
        let written = self.commit().and_then(|()| {
            for event in self.events {
                // The end is more important than its event.
                let _ = self.insist(|| self.job.log_event(event));
                tell(EndStep::Logged(event));
            }
            fault_point(FaultPoint::EndLogged);
            if self.sync == SyncWhen::BeforeMark {
                sync(self.job);
            }
            match self.sync {
                _ if !self.record.state.is_ended() => Ok(()),
                // Most jobs in the foreground have neither a socket nor a reserve.
                SyncWhen::Never if self.job.socket().is_none() => mark(self.job, self.lock),
                SyncWhen::Never | SyncWhen::BeforeMark | SyncWhen::AfterMark => {
                    self.job.remove_live_files().and_then(|()| mark(self.job, self.lock))
                }
            }
        });
        // A job that waits for its next run keeps its clients.
        if !matches!(self.record.state, RecordedState::Waiting { .. }) {
            tell(EndStep::ClientsReleased);
        }
        if self.sync == SyncWhen::AfterMark {
            sync(self.job);
        }
        written
    }

    fn commit(&self) -> io::Result<()> {
        let write = || self.job.write_receipt(self.receipt).and_then(|()| self.job.append_state(self.record));
        if let Err(error) = self.insist(write) {
            let _ = self.job.append_state(self.record);
            return Err(error);
        }
        fault_point(FaultPoint::EndPublished);
        Ok(())
    }

    /// Writes something even if the disk is full: releases the reserve, and waits for more space if another process takes that
    /// space first.
    fn insist(&self, write: impl Fn() -> io::Result<()>) -> io::Result<()> {
        let DiskFull::UseReserve(patience) = self.disk_full else { return write() };
        let until = Instant::now() + patience;
        let mut written = write();
        while is_full(&written) && Instant::now() < until {
            let _ = self.job.release_reserve();
            written = write();
            if is_full(&written) {
                std::thread::sleep(DISK_LOOK);
            }
        }
        written
    }

    /// Completes an end that was committed before its writer was killed: history, sync, mark. Returns its receipt, or None if
    /// it was not committed or has no receipt. `lock` is as in [`JobEnd`].
    pub fn resume(
        job: &JobDir,
        lock: Option<&Lock>,
        mut logged: impl FnMut(&JobEvent),
    ) -> io::Result<Option<Receipt>> {
        let (Ok(record), Ok(receipt)) = (job.record(), job.receipt()) else { return Ok(None) };
        if !record.is_end_of(&receipt) {
            return Ok(None);
        }
        // A job in the foreground has no history, and is not synced while its caller waits.
        let request = job.spec().ok().map(|spec| spec.request);
        let is_background = request.as_ref().is_some_and(|request| request.as_background().is_some());
        if is_background {
            if let Some(event) = job.log_once(&receipt, EventKind::ended(&receipt))? {
                logged(&event);
            }
            fault_point(FaultPoint::EndLogged);
        }
        let is_left = record.standby.is_none() && request.is_some_and(|request| request.keeps_left());
        if is_background || is_left {
            sync(job);
        }
        // If it was moved already, its writer was killed during the last sync.
        if job.has_lock() {
            job.remove_live_files()?;
            mark(job, lock)?;
        }
        Ok(Some(receipt))
    }

    /// Removes a job whose program never ran, and releases its name.
    pub fn discard(job: &JobDir, name: Option<&str>) -> io::Result<()> {
        if let Some(name) = name {
            job.home().release_name(name, job.id());
            fault_point(FaultPoint::NameGiven);
        }
        job.remove()
    }
}

fn mark(job: &JobDir, lock: Option<&Lock>) -> io::Result<()> {
    job.mark_ended()?;
    if let Some(lock) = lock {
        lock.release();
    }
    Ok(())
}

/// A failure does not undo the end.
fn sync(job: &JobDir) {
    if job.sync_all().is_ok() {
        fault_point(FaultPoint::EndSynced);
    }
}

fn is_full(written: &io::Result<()>) -> bool {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    written.as_ref().is_err_and(|error| full.contains(&error.kind()))
}
