//! The index of finished jobs: an SQLite file that readers fill when they look and make anew when it is not to be
//! trusted. The truth is in the jobs' directories; nothing is lost with the index but time.
//!
//! Whoever uses the file holds a lock together with others who do; whoever replaces it holds that lock alone. So nobody
//! writes to a file that has been replaced, and says then that what it wrote is in the index. If the file can't be
//! used at all (a home that is read-only, a full disk, a lock that is never given back), the same index is made in memory
//! for one question: that is slow, and right.

mod file;
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
pub(crate) use select::{Candidate, Wanted, ms_of};

/// How often the file is made anew for one question.
const TRIES: usize = 3;

/// The index, with everything in it that had ended when it was opened.
pub(crate) struct Index {
    db: Connection,
    /// Which making of the file this is; none in memory.
    making: Option<i32>,
    /// Keeps others from replacing the file.
    _in_use: Option<lock::InUse>,
}

/// Why a question got no answer.
#[derive(Debug)]
pub(crate) enum Fail {
    /// SQLite says so.
    Sql(rusqlite::Error),
    /// What is in the index makes no sense.
    Damaged(String),
    /// It has nothing to do with the index.
    Other(Error),
}

impl From<rusqlite::Error> for Fail {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Fail {
    /// Whether the file has to be made anew.
    fn is_damage(&self) -> bool {
        match self {
            Self::Sql(error) => is_damage(error),
            Self::Damaged(_) => true,
            Self::Other(_) => false,
        }
    }

    fn into_error(self) -> Error {
        match self {
            Self::Sql(error) => Error::Index(error.to_string()),
            Self::Damaged(why) => Error::Index(why),
            Self::Other(error) => error,
        }
    }
}

/// Whether SQLite says that the file is no index of ours. Our own fixed SQL fails for no other reason than tables that are
/// not ours.
fn is_damage(error: &rusqlite::Error) -> bool {
    let codes = [ErrorCode::DatabaseCorrupt, ErrorCode::NotADatabase, ErrorCode::Unknown];
    error.sqlite_error_code().is_none_or(|code| codes.contains(&code))
}

/// Answers a question from the index, which is brought up to date first. `ask` may be called more than once, and what it
/// changes must bear that.
pub(crate) fn with<T>(home: &Home, mut ask: impl FnMut(&mut Index) -> Result<T, Fail>) -> crate::Result<T> {
    let mut damaged = None;
    for _ in 0..TRIES {
        let Some(mut index) = Index::on_disk(home, damaged) else { break };
        let answer = index.catch_up(home).and_then(|()| ask(&mut index));
        match answer {
            Ok(answer) => return Ok(answer),
            Err(Fail::Other(error)) => return Err(error),
            Err(fail) if fail.is_damage() => damaged = index.making,
            // Busy for too long, a full disk, a failing one: the records can still be read.
            Err(_) => break,
        }
    }
    let mut index = Index::in_memory(home).map_err(Fail::into_error)?;
    ask(&mut index).map_err(Fail::into_error)
}

/// Drops the rows of removed jobs, if the file can be had: whoever meets one later does the same.
pub(crate) fn forget(home: &Home, ids: &[JobId]) {
    if let Some(mut index) = Index::on_disk(home, None) {
        let _ = index.drop_gone(home, ids);
    }
}

impl Index {
    /// The file, made if it is missing, of another version, or the making that was found to be damaged. None if it can't
    /// be had.
    fn on_disk(home: &Home, damaged: Option<i32>) -> Option<Self> {
        // What another user (root) made here could not be used by the one whose home it is.
        if home.dir().metadata().ok()?.uid() != quell_sys::uid() {
            return None;
        }
        for _ in 0..TRIES {
            let in_use = lock::share(home)?;
            match file::open(home) {
                file::Found::Good(db, making) if Some(making) != damaged => {
                    return Some(Self { db, making: Some(making), _in_use: Some(in_use) });
                }
                file::Found::Unusable => return None,
                file::Found::Good(..) | file::Found::Bad => drop(in_use),
            }
            let _alone = lock::alone(home)?;
            // Somebody else may have done it meanwhile.
            match file::open(home) {
                file::Found::Good(_, making) if Some(making) != damaged => {}
                file::Found::Unusable => return None,
                file::Found::Good(..) | file::Found::Bad => file::make(home).ok()?,
            }
        }
        None
    }

    /// The same, in memory, from the records alone.
    fn in_memory(home: &Home) -> Result<Self, Fail> {
        let mut db = Connection::open_in_memory()?;
        file::lay_out(&db)?;
        ingest::add_all(&mut db, home)?;
        Ok(Self { db, making: None, _in_use: None })
    }

    /// Takes in what has ended since the last look; and, once after each start of the machine, what a power cut may have
    /// taken out of the index.
    fn catch_up(&mut self, home: &Home) -> Result<(), Fail> {
        let boot = quell_sys::boot_id();
        if file::boot_of(&self.db)?.as_deref() != Some(boot.as_str()) {
            self.reconcile(home)?;
            file::set_boot(&self.db, &boot)?;
        }
        ingest::add_done(&mut self.db, home)
    }

    /// Compares the index with the directories: takes in what is missing, tries again what could not be read, and drops
    /// what is gone.
    pub fn reconcile(&mut self, home: &Home) -> Result<(), Fail> {
        ingest::reconcile(&mut self.db, home)
    }

    /// Drops the rows of those of `ids` whose directory is gone, and gives those.
    pub fn drop_gone(&mut self, home: &Home, ids: &[JobId]) -> Result<Vec<JobId>, Fail> {
        ingest::drop_gone(&mut self.db, home, ids)
    }
}
