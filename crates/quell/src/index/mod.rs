//! The index of finished jobs: an SQLite file that readers fill, and rebuild if it is damaged. It has nothing that is not in
//! the jobs' directories; it saves time.
//!
//! A process that uses the file shares a lock; a process that replaces it holds that lock exclusively. So no process writes to
//! a file that has been replaced. If the file can't be used at all (a home that is read-only, a full disk, a lock that is never
//! released), the same index is made in memory for one question, which is slow but correct.

mod database;
mod ingest;
mod lock;
mod row;
mod select;

use std::os::unix::fs::MetadataExt;

use quell_core::JobId;
use quell_store::Home;
use rusqlite::{Connection, ErrorCode};

use crate::Error;
pub(crate) use row::Broken;
pub(crate) use select::{Candidate, ms_of};

/// How often the file is rebuilt for one question.
const TRIES: usize = 3;

/// The index, with all jobs that had ended when it was opened.
pub(crate) struct Index {
    db: Connection,
    /// The generation of the file; none in memory.
    making: Option<i32>,
    /// Keeps others from replacing the file.
    _in_use: Option<lock::InUse>,
}

/// Why a question failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fail {
    /// SQLite failed.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    /// The index has invalid values.
    #[error("{0}")]
    Damaged(String),
    /// Something else failed.
    #[error(transparent)]
    Other(#[from] Error),
}

impl Fail {
    /// Whether the file must be rebuilt.
    fn is_damage(&self) -> bool {
        match self {
            Self::Sql(error) => is_damage(error),
            Self::Damaged(_) => true,
            Self::Other(_) => false,
        }
    }

    fn into_error(self) -> Error {
        match self {
            Self::Other(error) => error,
            other => Error::Index(other.to_string()),
        }
    }
}

/// Whether SQLite says that the file is not our index. Our SQL is fixed, so it fails only if the tables are not ours.
fn is_damage(error: &rusqlite::Error) -> bool {
    let codes = [ErrorCode::DatabaseCorrupt, ErrorCode::NotADatabase, ErrorCode::Unknown];
    error.sqlite_error_code().is_none_or(|code| codes.contains(&code))
}

/// Answers a question from the index, which is brought up to date first. `ask` may be called more than once, so its changes
/// must be repeatable.
pub(crate) fn with<T>(home: &Home, mut ask: impl FnMut(&mut Index) -> Result<T, Fail>) -> crate::Result<T> {
    let mut damaged = None;
    for _ in 0..TRIES {
        let Some(mut index) = Index::on_disk(home, damaged) else { break };
        let answer = index.catch_up(home).and_then(|()| ask(&mut index));
        match answer {
            Ok(answer) => return Ok(answer),
            Err(Fail::Other(error)) => return Err(error),
            Err(fail) if fail.is_damage() => damaged = index.making,
            // Busy for too long, or a full or failing disk: the records can still be read.
            Err(_) => break,
        }
    }
    let mut index = Index::in_memory(home).map_err(Fail::into_error)?;
    ask(&mut index).map_err(Fail::into_error)
}

/// Drops the rows of removed jobs, if the file can be used: a later reader that finds one does the same.
pub(crate) fn forget(home: &Home, ids: &[JobId]) {
    if let Some(mut index) = Index::on_disk(home, None) {
        let _ = index.drop_gone(home, ids);
    }
}

impl Index {
    /// The file, rebuilt if it is missing, of another version, or the generation that was found to be damaged. None if it can't be
    /// used.
    fn on_disk(home: &Home, damaged: Option<i32>) -> Option<Self> {
        // The user of this home could not use a file that root made here.
        if home.dir().metadata().ok()?.uid() != quell_sys::uid() {
            return None;
        }
        for _ in 0..TRIES {
            let in_use = lock::share(home)?;
            match database::open(home) {
                database::OpenedIndex::Good(db, making) if Some(making) != damaged => {
                    return Some(Self { db, making: Some(making), _in_use: Some(in_use) });
                }
                database::OpenedIndex::Unusable => return None,
                database::OpenedIndex::Good(..) | database::OpenedIndex::Bad => drop(in_use),
            }
            let _alone = lock::alone(home)?;
            // Another process may have done it meanwhile.
            match database::open(home) {
                database::OpenedIndex::Good(_, making) if Some(making) != damaged => {}
                database::OpenedIndex::Unusable => return None,
                database::OpenedIndex::Good(..) | database::OpenedIndex::Bad => database::make(home).ok()?,
            }
        }
        None
    }

    /// The same in memory, only from the records.
    fn in_memory(home: &Home) -> Result<Self, Fail> {
        let mut db = Connection::open_in_memory()?;
        database::lay_out(&db)?;
        ingest::add_all(&mut db, home)?;
        Ok(Self { db, making: None, _in_use: None })
    }

    /// Adds what has ended since the last time; and, once after each boot, what a power cut may have removed from the index.
    fn catch_up(&mut self, home: &Home) -> Result<(), Fail> {
        let boot = quell_sys::boot_id();
        if database::boot_of(&self.db)?.as_deref() != Some(boot.as_str()) {
            self.reconcile(home)?;
            database::set_boot(&self.db, &boot)?;
        }
        ingest::add_done(&mut self.db, home)
    }

    /// Compares the index with the directories: adds what is missing, tries again what could not be read, and drops what is gone.
    pub fn reconcile(&mut self, home: &Home) -> Result<(), Fail> {
        ingest::reconcile(&mut self.db, home)
    }

    /// Drops the rows of those of `ids` whose directory is gone, and returns these.
    pub fn drop_gone(&mut self, home: &Home, ids: &[JobId]) -> Result<Vec<JobId>, Fail> {
        ingest::drop_gone(&mut self.db, home, ids)
    }
}
