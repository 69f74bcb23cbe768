use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use quell::binary::{list, resolve};
use quell::{Filter, GcRules, JobId};

use crate::fake::{Fake, TestHome, finish, gc};

/// A home with an index of 300 jobs, the last hundred in the log beside it.
fn indexed() -> (TestHome, Vec<JobId>) {
    let place = TestHome::new();
    let mut made = finish(&place.home, 200);
    assert_eq!(list(&place.home, &all()).unwrap().jobs.len(), 200);
    made.extend((200..300).map(|second| Fake::at(second).finish(&place.home)));
    assert_eq!(list(&place.home, &all()).unwrap().jobs.len(), 300);
    assert!(place.path("index.db-wal").metadata().unwrap().len() > 4096);
    (place, made)
}

fn all() -> Filter {
    Filter { all: true, ..Filter::default() }
}

fn listed(place: &TestHome) -> Vec<JobId> {
    let found = list(&place.home, &all()).unwrap();
    assert!(found.warnings.is_empty());
    found.jobs.into_iter().map(|view| view.id).rev().collect()
}

/// Listed in full, from a file that is whole again: the second list needs no repair.
fn is_whole(place: &TestHome, made: &[JobId]) {
    assert_eq!(listed(place), made);
    let db = rusqlite::Connection::open(place.home.index_path()).unwrap();
    let state: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(state, "ok");
    let rows: u32 = db.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0)).unwrap();
    assert_eq!(rows as usize, made.len());
    assert_eq!(listed(place), made);
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

fn cut(path: &Path, length: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

#[test]
fn an_index_that_was_deleted_is_made_again() {
    let (place, made) = indexed();
    fs::remove_file(place.path("index.db")).unwrap();
    is_whole(&place, &made);
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        let _ = fs::remove_file(place.path(name));
    }
    assert_eq!(resolve(&place.home, &made[5].to_string()[..20]).unwrap(), made[5]);
    is_whole(&place, &made);
}

#[test]
fn garbage_in_place_of_the_index_is_replaced() {
    let (place, made) = indexed();
    fs::write(place.path("index.db"), [0x5a; 20_000]).unwrap();
    is_whole(&place, &made);
    fs::write(place.path("index.db"), "").unwrap();
    is_whole(&place, &made);
}

#[test]
fn an_index_with_garbage_inside_is_replaced() {
    let (place, made) = indexed();
    let path = place.path("index.db");
    // Everything but the header, with no log that would hide it.
    let length = path.metadata().unwrap().len();
    overwrite(&path, 4096, &vec![0xa5; length as usize - 4096]);
    fs::remove_file(place.path("index.db-wal")).unwrap();
    is_whole(&place, &made);
}

#[test]
fn a_truncated_index_is_replaced() {
    let (place, made) = indexed();
    for length in [100, 4096, 10_000, 40_960] {
        fs::remove_file(place.path("index.db-wal")).unwrap();
        cut(&place.path("index.db"), length);
        is_whole(&place, &made);
        // The next round needs a log again.
        let id = Fake::at(1000).finish(&place.home);
        listed(&place);
        crate::fake::quell(&place.home).job_with(id).remove(quell::Removal::IfProvenDead).unwrap();
        assert!(place.path("index.db-wal").exists());
    }
}

#[test]
fn what_half_a_log_has_lost_is_found_by_the_next_list() {
    let (place, made) = indexed();
    let log = place.path("index.db-wal");
    cut(&log, log.metadata().unwrap().len() / 2 + 7);
    // The shared memory describes a log that is gone; a power cut removes it too.
    fs::remove_file(place.path("index.db-shm")).unwrap();
    is_whole(&place, &made);
}

#[test]
fn what_a_power_cut_has_taken_is_found_after_the_next_start() {
    let (place, made) = indexed();
    fs::remove_file(place.path("index.db-wal")).unwrap();
    let db = rusqlite::Connection::open(place.home.index_path()).unwrap();
    db.execute("UPDATE facts SET value = 'another boot' WHERE key = 'boot'", []).unwrap();
    drop(db);
    is_whole(&place, &made);
}

#[test]
fn an_index_of_another_version_or_of_somebody_else_is_replaced() {
    let (place, made) = indexed();
    for tampering in [
        "PRAGMA user_version = 77",
        "DROP TABLE jobs",
        "ALTER TABLE jobs RENAME COLUMN view TO other",
        "UPDATE jobs SET view = '{' WHERE id = (SELECT max(id) FROM jobs)",
        "UPDATE jobs SET id = 'x' WHERE id = (SELECT max(id) FROM jobs)",
    ] {
        let db = rusqlite::Connection::open(place.home.index_path()).unwrap();
        db.execute_batch(tampering).unwrap();
        drop(db);
        if tampering.contains("'x'") {
            // Only a query that reads the ids finds it.
            gc(&place.home, &GcRules::default(), false).unwrap();
        }
        is_whole(&place, &made);
    }
}

#[test]
fn a_crash_between_the_row_and_the_note_is_harmless() {
    let (place, made) = indexed();
    let note = place.path("done").join(made[3].to_string());
    fs::write(&note, "").unwrap();
    is_whole(&place, &made);
    assert!(!note.exists());
}

#[test]
fn a_half_made_index_is_thrown_away() {
    let (place, made) = indexed();
    fs::rename(place.path("index.db"), place.path("index.new")).unwrap();
    fs::write(place.path("index.new-journal"), "x").unwrap();
    is_whole(&place, &made);
    assert!(!place.path("index.new").exists());
    assert!(!place.path("index.new-journal").exists());
}
