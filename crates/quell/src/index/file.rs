//! The file of the index: how it is laid out, opened and made anew.

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

/// The version of the tables below, and of the views in them. A file of another one is made anew.
const VERSION: i32 = 5;

/// How long a write waits for another one, which takes milliseconds.
const BUSY: Duration = Duration::from_secs(5);

/// `jobs_ended` has all that sums are made of, `broken` too: a view is a hundred times as large as these, and a sum over all
/// jobs would have to read past every one.
///
/// `total` is kept by the triggers, so that the number of all jobs is read and not counted. SQLite's REPLACE calls none for
/// the row that it replaces: rows are deleted first. `tags` has the time of the end, so that the last jobs with a label are
/// its last rows; a job that can't be read has none there.
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

/// What was found where the file should be.
pub(super) enum Found {
    /// The index, and which making of it.
    Good(Connection, i32),
    /// Nothing, something else, or one of another version.
    Bad,
    /// It can't be used, and not be replaced either.
    Unusable,
}

/// Opens the file as it is. The caller holds the lock.
pub(super) fn open(home: &Home) -> Found {
    let path = home.index_path();
    match quell_sys::open_private(&path, quell_sys::OpenMode::Read) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Bad,
        // SQLite would follow a link, and wait for a fifo.
        Err(_) if path.symlink_metadata().is_ok_and(|found| !found.is_file() && !found.is_dir()) => {
            return Found::Bad;
        }
        Err(_) => return Found::Unusable,
    }
    match connect(&path) {
        Ok((db, VERSION, making)) => Found::Good(db, making),
        Ok(_) => Found::Bad,
        Err(error) if is_damage(&error) => Found::Bad,
        Err(_) => Found::Unusable,
    }
}

fn connect(path: &Path) -> rusqlite::Result<(Connection, i32, i32)> {
    // Not made by SQLite, whose files are as open as the umask lets them be.
    let db = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    db.busy_timeout(BUSY)?;
    // Each command is likely to be the last one to close the file; none shall wait for the disk because of that.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    db.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 4194304;")?;
    let version = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let making = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    Ok((db, version, making))
}

/// Lays out an empty index.
pub(super) fn lay_out(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(TABLES)
}

/// Makes the file anew from the records. The caller holds the lock alone.
///
/// It is made beside its place and moved there, so that a maker who is killed leaves nothing that looks like an index.
pub(super) fn make(home: &Home) -> Result<(), Fail> {
    let place = home.index_path();
    let new = place.with_extension("new");
    remove(&new)?;
    let io_at = |path: &Path| Error::io(path.to_owned());
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(io_at(&new))?;
    // Those that are noted as ended by now are in what is read from here on.
    let noted = home.done().map_err(io_at(home.dir()))?;
    let making = quell_sys::random_u128().map_err(io_at(&new))? as i32;
    let mut db = Connection::open_with_flags(&new, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // It is nobody's yet: if this is interrupted, it is thrown away.
    db.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")?;
    lay_out(&db)?;
    ingest::add_all(&mut db, home)?;
    set_boot(&db, &quell_sys::boot_id())?;
    db.pragma_update(None, "application_id", making)?;
    db.pragma_update(None, "user_version", VERSION)?;
    db.execute_batch("PRAGMA journal_mode = WAL;")?;
    db.close().map_err(|(_, error)| error)?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(io_at(&new))?;
    // The old one first: without its log it could look whole.
    remove(&place)?;
    fs::rename(&new, &place).map_err(io_at(&place))?;
    for id in noted {
        // If this fails, it is taken in once more.
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

/// The boot in which the index was last known to be whole.
pub(super) fn boot_of(db: &Connection) -> rusqlite::Result<Option<String>> {
    db.query_row("SELECT value FROM facts WHERE key = 'boot'", [], |row| row.get(0)).optional()
}

/// Says that the index is whole in this boot.
pub(super) fn set_boot(db: &Connection, boot: &str) -> rusqlite::Result<()> {
    db.execute("INSERT OR REPLACE INTO facts (key, value) VALUES ('boot', ?1)", [boot]).map(drop)
}
