//! Many at once: threads, processes, and processes that are killed.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quell::binary::{Home, list, resolve};
use quell::{Filter, GcRules, JobId};

use crate::fake::{Fake, TestHome, finish, gc};

fn all() -> Filter {
    Filter { all: true, ..Filter::default() }
}

/// This test binary again, in another role.
fn other(part: &str, home: &Home) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "many::a_part_of_another_test", "--nocapture"])
        .env("QUELL_TEST_PART", part)
        .env("QUELL_TEST_HOME", home.dir())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Does nothing by itself: other processes run it in the tests below.
#[test]
fn a_part_of_another_test() {
    let Some(dir) = std::env::var_os("QUELL_TEST_HOME") else { return };
    let home = Home::at(dir);
    let part = std::env::var("QUELL_TEST_PART").unwrap();
    match part.as_str() {
        "list" => {
            // A finished job that was in one list is in every later one.
            let mut seen = BTreeSet::new();
            while !home.dir().join("stop").exists() {
                let found = list(&home, &all()).unwrap();
                let now: BTreeSet<JobId> = found.jobs.iter().map(|view| view.id).collect();
                assert!(found.warnings.is_empty(), "{:?}", found.warnings);
                assert_eq!(now.len(), found.jobs.len());
                assert!(seen.is_subset(&now));
                seen = now;
            }
        }
        "gc" => {
            gc(&home, &GcRules { max_count: Some(0), ..GcRules::default() }, false).unwrap();
        }
        other => panic!("{other}"),
    }
}

#[test]
fn processes_that_list_while_jobs_end_see_all_of_them() {
    let place = TestHome::new();
    finish(&place.home, 100);
    let readers: Vec<Child> = (0..8).map(|_| other("list", &place.home)).collect();
    for second in 100..300 {
        Fake::at(second).finish(&place.home);
        if second % 50 == 0 {
            // Another process removes the index meanwhile.
            let _ = std::fs::remove_file(place.home.index_path());
        }
    }
    std::fs::write(place.path("stop"), "").unwrap();
    for mut reader in readers {
        assert!(reader.wait().unwrap().success());
    }
    gc(&place.home, &GcRules::default(), false).unwrap();
    assert_eq!(list(&place.home, &all()).unwrap().jobs.len(), 300);
    assert!(place.home.done().unwrap().is_empty());
}

#[test]
fn threads_that_damage_the_index_and_ask_it_all_get_answers() {
    let place = TestHome::new();
    let made = finish(&place.home, 100);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (home, made, stop) = (&place.home, &made, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let id = made[number * 10];
                    assert_eq!(resolve(home, &id.to_string()[..22]).unwrap(), id);
                    let found = list(home, &Filter::default()).unwrap().jobs;
                    assert_eq!(found.iter().filter(|view| view.size_on_disk.is_some()).count(), 10);
                }
            });
        }
        for round in 0..20_u64 {
            // A new file with nonsense in it, made while no thread has the old one open: SQLite's locks belong to the
            // process, and fail if two of its threads have two files of the same name open.
            let nonsense = place.path("nonsense");
            std::fs::write(&nonsense, vec![round as u8; 8192]).unwrap();
            let locks = ["index.gate", "index.lock"].map(|name| {
                let file = std::fs::OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(place.path(name));
                file.and_then(|file| file.lock().map(|()| file)).unwrap()
            });
            std::fs::rename(&nonsense, place.home.index_path()).unwrap();
            drop(locks);
            Fake::at(500 + round).finish(&place.home);
            assert_eq!(list(&place.home, &Filter::default()).unwrap().jobs.len(), 10);
        }
        stop.store(true, Ordering::Relaxed);
    });
    gc(&place.home, &GcRules::default(), false).unwrap();
    assert_eq!(list(&place.home, &all()).unwrap().jobs.len(), 120);
}

#[test]
fn several_gc_at_once_remove_each_job_once() {
    let place = TestHome::new();
    let made = finish(&place.home, 200);
    let rules = GcRules { max_count: Some(20), ..GcRules::default() };
    let mut removed: Vec<JobId> = std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..4).map(|_| scope.spawn(|| gc(&place.home, &rules, false).unwrap())).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap().removed).collect()
    });
    removed.sort();
    assert_eq!(removed, made[..180]);
    assert_eq!(list(&place.home, &all()).unwrap().jobs.len(), 20);
}

#[test]
fn a_gc_that_is_killed_leaves_nothing_that_contradicts() {
    let rounds: u64 = std::env::var("QUELL_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    for round in 0..rounds {
        let place = TestHome::new();
        finish(&place.home, 200);
        list(&place.home, &Filter::default()).unwrap();
        let mut child = other("gc", &place.home);
        // Any instant will do; there is no event to wait for.
        std::thread::sleep(Duration::from_millis(round * 3));
        child.kill().unwrap();
        child.wait().unwrap();
        let left = place.home.all().unwrap();
        let found = list(&place.home, &all()).unwrap();
        let listed: Vec<JobId> = found.jobs.iter().map(|view| view.id).rev().collect();
        assert_eq!((listed, found.warnings.len()), (left.clone(), 0));
        for view in &found.jobs {
            assert!(quell::binary::view(&place.home.job(view.id)).is_ok());
        }
        let did = gc(&place.home, &GcRules { max_count: Some(0), ..GcRules::default() }, false).unwrap();
        assert_eq!(did.removed, left);
        assert_eq!(std::fs::read_dir(place.path("jobs")).unwrap().count(), 0);
    }
}

/// A process that can't write to the index leaves the notes alone: a job whose note is gone and whose row was never written
/// would be missing from every list until the next boot.
#[test]
fn a_note_is_kept_until_its_job_is_in_the_index() {
    let place = TestHome::new();
    finish(&place.home, 3);
    assert_eq!(list(&place.home, &all()).unwrap().jobs.len(), 3);
    let late = Fake::at(3).finish(&place.home);
    let writer = rusqlite::Connection::open(place.home.index_path()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(list(&place.home, &all()).unwrap().jobs.len(), 4, "made in memory");
    assert_eq!(place.home.done().unwrap(), [late]);
    writer.execute_batch("ROLLBACK").unwrap();
    assert_eq!(list(&place.home, &all()).unwrap().jobs.len(), 4);
    assert!(place.home.done().unwrap().is_empty());
}
