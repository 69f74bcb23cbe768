//! The end of a job on disk: one order of steps for every process that writes it.
//!
//! ```text
//! receipt → state → `Ended` in the history → (sync) → the lock moves to done/ and is released → (sync)
//! ```
//!
//! The state is the commit: one line that is appended, and readers open the receipt only behind it. What comes before it may
//! be done again, and is replaced then; what comes behind it follows from the receipt and is done once, by
//! [`JobEnd::resume`] if the writer was killed. The history comes before the move, because a client that waits for the move
//! must find the whole history.
//!
//! Where another process watches the writer and would go on, the sync comes last: no client waits for it. Where none does,
//! nothing would do it again, and it comes before the move.

use std::io;
use std::time::{Duration, Instant};

use quell_core::{EventKind, JobEvent, Receipt, RecordedState, StateRecord};
use quell_sys::fault::{FaultPoint, fault_point};

use crate::job::{JobDir, Lock, now};

/// How often a full disk is looked at again: nothing tells when it has room.
const DISK_LOOK: Duration = Duration::from_millis(50);

/// When what was written is synced to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncWhen {
    /// Not at all: a job in the foreground.
    Never,
    /// Before the job counts as ended: no process would do it again.
    BeforeMark,
    /// After that: another process watches this one, and does it again if this one is killed.
    AfterMark,
}

/// What to do where the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFull {
    /// Fail.
    Fail,
    /// Use the room that was put aside, and wait for so long for more.
    UseReserve(Duration),
}

/// What is told while an end is written.
#[derive(Debug)]
pub enum EndStep<'a> {
    /// The event is in the history.
    Logged(&'a JobEvent),
    /// Nothing more is written that a client waits for: the job counts as ended, or it can't be put on record.
    Told,
}

/// What a run of a job came to, to be put on record. Its state says what that is: `ended`, `waiting` for the next run, or
/// `stopping` if there are survivors. Only an ended job is marked as ended.
#[derive(Debug)]
pub struct JobEnd<'a> {
    /// Which job.
    pub job: &'a JobDir,
    /// Its lock, which the caller holds; none if another process holds it that writes nothing.
    pub lock: Option<&'a Lock>,
    /// What happened.
    pub receipt: &'a Receipt,
    /// The state.
    pub record: &'a StateRecord,
    /// What goes to the history; nothing of it is there yet.
    pub events: &'a [JobEvent],
    /// When it is synced.
    pub sync: SyncWhen,
    /// What to do where the disk is full.
    pub disk_full: DiskFull,
}

impl JobEnd<'_> {
    /// Writes it. After an error the state is the old one, or the job is not marked as ended yet: the next process that finds
    /// it without a keeper goes on.
    pub fn write(&self, mut tell: impl FnMut(EndStep<'_>)) -> io::Result<()> {
        let written = self.commit().and_then(|()| {
            for event in self.events {
                // The end does not depend on it.
                let _ = self.insist(|| self.job.log_event(event));
                tell(EndStep::Logged(event));
            }
            fault_point(FaultPoint::EndLogged);
            if self.sync == SyncWhen::BeforeMark {
                sync(self.job);
            }
            if self.record.state.is_ended() { mark(self.job, self.lock) } else { Ok(()) }
        });
        // A job that waits for its next run keeps its clients.
        if !matches!(self.record.state, RecordedState::Waiting { .. }) {
            tell(EndStep::Told);
        }
        if self.sync == SyncWhen::AfterMark {
            sync(self.job);
        }
        written
    }

    fn commit(&self) -> io::Result<()> {
        let write = || self.job.write_receipt(self.receipt).and_then(|()| self.job.append_state(self.record));
        self.insist(write)?;
        fault_point(FaultPoint::EndPublished);
        Ok(())
    }

    /// Writes something, also to a disk that is full: the room that was put aside is used, and if another process is faster,
    /// more is waited for a little.
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

    /// Goes on with an end that its writer had committed before it was killed: the history, the sync, the mark. Returns its
    /// receipt; none if it was not committed. `lock` as in [`JobEnd`].
    pub fn resume(
        job: &JobDir,
        lock: Option<&Lock>,
        mut logged: impl FnMut(&JobEvent),
    ) -> io::Result<Option<Receipt>> {
        let (Ok(record), Ok(receipt)) = (job.record(), job.receipt()) else { return Ok(None) };
        if !record.state.is_ended() {
            return Ok(None);
        }
        // A job in the foreground has no history, and is not synced.
        if job.spec().is_ok_and(|spec| spec.request.as_background().is_some()) {
            if let Some(event) = log_once(job, &receipt, EventKind::ended(&receipt))? {
                logged(&event);
            }
            fault_point(FaultPoint::EndLogged);
            sync(job);
        }
        // Else its writer was killed in its last sync.
        if job.live_path().exists() {
            mark(job, lock)?;
        }
        Ok(Some(receipt))
    }

    /// Removes a job of which no instruction has run, and gives its name back.
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

/// The job is over all the same if this fails.
fn sync(job: &JobDir) {
    if job.sync_all().is_ok() {
        fault_point(FaultPoint::EndSynced);
    }
}

fn is_full(written: &io::Result<()>) -> bool {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    written.as_ref().is_err_and(|error| full.contains(&error.kind()))
}

/// Adds to the history what a process that was killed may have added already, of the run that `receipt` is about; the event,
/// if it is new.
pub fn log_once(job: &JobDir, receipt: &Receipt, what: EventKind) -> io::Result<Option<JobEvent>> {
    let event = once(job, receipt, what)?;
    if let Some(event) = &event {
        job.log_event(event)?;
    }
    Ok(event)
}

/// The event that is to be added to the history; none if it is there.
pub fn once(job: &JobDir, receipt: &Receipt, what: EventKind) -> io::Result<Option<JobEvent>> {
    let same = |old: &JobEvent| {
        old.run == receipt.run && std::mem::discriminant(&old.what) == std::mem::discriminant(&what)
    };
    // The end of a run that was to be followed by another one is not the job's.
    let of_now = |old: &&JobEvent| !matches!(old.what, EventKind::Restarting { .. });
    if job.events()?.iter().rev().take_while(of_now).any(same) {
        return Ok(None);
    }
    Ok(Some(match job.spec() {
        Ok(spec) => JobEvent::new(&spec, now(), receipt.run, what),
        Err(_) => {
            let (name, tags) = (receipt.job.name.clone(), receipt.job.tags.clone());
            JobEvent { time: now(), job: job.id(), name, session: None, tags, run: receipt.run, what }
        }
    }))
}
