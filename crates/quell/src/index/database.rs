//! The file of the index: its tables, how it is opened and rebuilt.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quell_store::Home;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::{Fail, ingest, is_damage};
use crate::Error;

/// The version of the tables below and of the views in them. A file of another version is rebuilt.
const VERSION: i32 = 5;

/// How long a write waits for another one, which takes milliseconds.
const BUSY: Duration = Duration::from_secs(5);

/// `jobs_ended` covers all columns that sums need, `broken` too: a view is a hundred times as large, and a sum over all jobs
/// would have to read past every one.
///
/// Triggers keep `total`, so that the number of all jobs is read and not counted. SQLite's REPLACE does not run them for the
/// row that it replaces, so rows are deleted first. `tags` has the time of the end, so that the last jobs with a label are its
/// last rows; a job that can't be read has no row there.
const TABLES: &str = "
CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    name TEXT,
    session TEXT,
    state TEXT NOT NULL,
    created INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    command TEXT NOT NULL,
    tags TEXT NOT NULL,
    size INTEGER NOT NULL,
    boot TEXT,
    cause TEXT,
    outcome TEXT,
    code INTEGER,
    verdict TEXT,
    duration REAL,
    stopped INTEGER NOT NULL,
    asked INTEGER NOT NULL,
    escalated INTEGER NOT NULL,
    timed_out INTEGER NOT NULL,
    leaked INTEGER NOT NULL,
    grace_asked REAL,
    grace_used REAL,
    broken TEXT,
    view TEXT
);
CREATE INDEX jobs_ended ON jobs (ended, id, state, cause, outcome, code, verdict, duration, stopped, asked, escalated, timed_out,
    leaked, grace_asked, grace_used, broken) WHERE broken IS NULL;
CREATE INDEX jobs_name ON jobs (name, id) WHERE name IS NOT NULL;
CREATE INDEX jobs_session ON jobs (session, ended) WHERE session IS NOT NULL;
CREATE INDEX jobs_broken ON jobs (id) WHERE broken IS NOT NULL;
CREATE TABLE tags (
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    ended INTEGER NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (key, value, ended, id)
) WITHOUT ROWID;
CREATE INDEX tags_id ON tags (id);
CREATE TABLE total (jobs INTEGER NOT NULL);
INSERT INTO total VALUES (0);
CREATE TRIGGER jobs_in AFTER INSERT ON jobs WHEN NEW.broken IS NULL BEGIN UPDATE total SET jobs = jobs + 1; END;
CREATE TRIGGER jobs_out AFTER DELETE ON jobs WHEN OLD.broken IS NULL BEGIN UPDATE total SET jobs = jobs - 1; END;
CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
";

/// What is in the place of the file.
pub(super) enum OpenedIndex {
    /// The index, and its generation.
    Good(Connection, i32),
    /// Nothing, another file, or an index of another version.
    Bad,
    /// It can neither be used nor replaced.
    Unusable,
}

/// Opens the file as it is. The caller holds the lock.
pub(super) fn open(home: &Home) -> OpenedIndex {
    let path = home.index_path();
    match quell_sys::open_private(&path, quell_sys::OpenMode::Read) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return OpenedIndex::Bad,
        // SQLite would follow a link, and wait for a fifo.
        Err(_) if path.symlink_metadata().is_ok_and(|found| !found.is_file() && !found.is_dir()) => {
            return OpenedIndex::Bad;
        }
        Err(_) => return OpenedIndex::Unusable,
    }
    match connect(&path) {
        Ok((db, VERSION, making)) => OpenedIndex::Good(db, making),
        Ok(_) => OpenedIndex::Bad,
        Err(error) if is_damage(&error) => OpenedIndex::Bad,
        Err(_) => OpenedIndex::Unusable,
    }
}

fn connect(path: &Path) -> rusqlite::Result<(Connection, i32, i32)> {
    // SQLite would make it with the mode that the umask allows.
    let db = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    db.busy_timeout(BUSY)?;
    // Each command may be the last to close the file, and must not wait for the disk then.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    db.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 4194304;")?;
    let version = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let making = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    Ok((db, version, making))
}

/// Makes the tables.
pub(super) fn lay_out(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(TABLES)
}

/// Rebuilds the file from the records. The caller holds the lock exclusively.
///
/// It is made under another name and moved, so that a process that is killed leaves nothing that looks like an index.
pub(super) fn make(home: &Home) -> Result<(), Fail> {
    let place = home.index_path();
    let new = place.with_extension("new");
    remove(&new)?;
    let io_at = |path: &Path| Error::io(path.to_owned());
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(io_at(&new))?;
    // The jobs that are noted as ended by now are included in what is read below.
    let noted = home.done().map_err(io_at(home.dir()))?;
    let making = quell_sys::random_u128().map_err(io_at(&new))? as i32;
    let mut db = Connection::open_with_flags(&new, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // It is not in use yet: if this is interrupted, it is thrown away.
    db.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")?;
    lay_out(&db)?;
    ingest::add_all(&mut db, home)?;
    set_boot(&db, &quell_sys::boot_id())?;
    db.pragma_update(None, "application_id", making)?;
    db.pragma_update(None, "user_version", VERSION)?;
    db.execute_batch("PRAGMA journal_mode = WAL;")?;
    db.close().map_err(|(_, error)| error)?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(io_at(&new))?;
    // The old one first: without its log it could look intact.
    remove(&place)?;
    fs::rename(&new, &place).map_err(io_at(&place))?;
    for id in noted {
        // If this fails, it is added once more.
        let _ = home.indexed(id);
    }
    Ok(())
}

/// Removes a database and what SQLite puts beside it.
fn remove(path: &Path) -> Result<(), Fail> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let path = PathBuf::from(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(path)(error).into());
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// The boot in which the index was last known to be complete.
pub(super) fn boot_of(db: &Connection) -> rusqlite::Result<Option<String>> {
    db.query_row("SELECT value FROM facts WHERE key = 'boot'", [], |row| row.get(0)).optional()
}

/// Notes that the index is complete in this boot.
pub(super) fn set_boot(db: &Connection, boot: &str) -> rusqlite::Result<()> {
    db.execute("INSERT OR REPLACE INTO facts (key, value) VALUES ('boot', ?1)", [boot]).map(drop)
}
