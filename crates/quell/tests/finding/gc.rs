use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quell::binary::{Home, list, resolve};
use quell::{Error, Filter, GcRules, JobId, Verdict};

use crate::fake::{Fake, THEN, TestHome, exists, finish, gc};

fn all(home: &Home) -> Vec<quell::JobView> {
    let found = list(home, &Filter { all: true, ..Filter::default() }).unwrap();
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    found.jobs.into_iter().rev().collect()
}

fn count(count: usize) -> GcRules {
    GcRules { max_count: Some(count), ..GcRules::default() }
}

#[test]
fn by_count_those_that_ended_last_stay() {
    let place = TestHome::new();
    let made = finish(&place.home, 10);
    let sizes: u64 = all(&place.home)[..7].iter().filter_map(|view| view.size_on_disk).sum();
    let would = gc(&place.home, &count(3), true).unwrap();
    assert_eq!((would.dry_run, &would.removed[..], would.kept), (true, &made[..7], 3));
    assert_eq!(all(&place.home).len(), 10);
    let did = gc(&place.home, &count(3), false).unwrap();
    assert_eq!((&did.removed, did.bytes, did.kept), (&would.removed, sizes, 3));
    assert_eq!(place.home.all().unwrap(), made[7..]);
    assert_eq!(all(&place.home).iter().map(|view| view.id).collect::<Vec<_>>(), made[7..]);
    assert!(gc(&place.home, &count(3), false).unwrap().removed.is_empty());
}

#[test]
fn by_age_those_that_ended_lately_stay() {
    let place = TestHome::new();
    let of_old = |second| Fake { boot: "another".into(), ..Fake::at(second) }.finish(&place.home);
    let made: Vec<JobId> = (0..3).map(of_old).collect();
    // The fake ones are years old; this one ended now.
    let second = (quell_sys::unix_ms() - THEN) / 1000;
    let young = Fake { lasted: 0.0, ..Fake::at(second) }.finish(&place.home);
    let rules = GcRules { max_age: Some(Duration::from_secs(86_400)), ..GcRules::default() };
    let did = gc(&place.home, &rules, false).unwrap();
    assert_eq!((did.removed, did.kept), (made, 1));
    assert_eq!(place.home.all().unwrap(), [young]);
    let century = Duration::from_secs(100 * 366 * 86_400);
    let since_then = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert!(century > since_then);
    let rules = GcRules { max_age: Some(century), ..GcRules::default() };
    assert!(gc(&place.home, &rules, false).unwrap().removed.is_empty());
}

/// The clock was set: a job that ended a minute ago seems to be years old.
#[test]
fn a_clock_that_jumped_removed_the_jobs_of_today() {
    let place = TestHome::new();
    let made = finish(&place.home, 3);
    let uptime = Duration::from_secs_f64(quell_sys::seconds_since(0));
    let rules = |age| GcRules { max_age: Some(age), ..GcRules::default() };
    assert!(gc(&place.home, &rules(uptime + Duration::from_secs(600)), false).unwrap().removed.is_empty());
    // They may be older than a shorter time, and then only the clock can tell.
    assert_eq!(gc(&place.home, &rules(uptime / 2), false).unwrap().removed, made);
}

#[test]
fn by_size_as_many_stay_as_fit() {
    let place = TestHome::new();
    let made = finish(&place.home, 5);
    fs::write(place.home.job(made[2]).dir().join("stdout.log"), vec![1; 300_000]).unwrap();
    let sizes: Vec<u64> = all(&place.home).iter().filter_map(|view| view.size_on_disk).collect();
    assert!(sizes[2] > sizes[1] && sizes[1] > 0);
    let room = |bytes| GcRules { max_size: Some(bytes), ..GcRules::default() };
    let total: u64 = sizes.iter().sum();
    assert!(gc(&place.home, &room(total), false).unwrap().removed.is_empty());
    assert_eq!(gc(&place.home, &room(total - 1), false).unwrap().removed, made[..1]);
    // The large one does not fit any more, so older ones are removed too.
    let did = gc(&place.home, &room(sizes[3] + sizes[4]), false).unwrap();
    assert_eq!((did.removed, did.bytes), (made[1..3].to_vec(), sizes[1] + sizes[2]));
    assert_eq!(gc(&place.home, &room(0), false).unwrap().removed, made[3..]);
}

#[test]
fn without_a_rule_nothing_goes() {
    let place = TestHome::new();
    finish(&place.home, 3);
    let did = gc(&place.home, &GcRules::default(), false).unwrap();
    assert_eq!((did.removed.len(), did.kept, did.remains), (0, 3, 0));
    let nowhere = TestHome::new();
    assert_eq!(gc(&nowhere.home, &count(0), false).unwrap(), quell::GcReport::default());
    // Only the audit log is made, with the permit.
    assert!(!exists(&nowhere.path("jobs")));
}

#[test]
fn live_jobs_are_never_removed() {
    let place = TestHome::new();
    let made = finish(&place.home, 2);
    let (live, lock) = Fake::at(0).live(&place.home);
    let (lost, gone) = Fake::at(1).live(&place.home);
    drop(gone);
    let rules = GcRules { max_count: Some(0), max_size: Some(0), force: true, ..GcRules::default() };
    assert_eq!(gc(&place.home, &rules, false).unwrap().removed, made);
    let mut left = vec![live, lost];
    left.sort();
    assert_eq!(place.home.all().unwrap(), left);
    assert_eq!(place.home.live().unwrap(), left);
    assert!(matches!(
        crate::fake::quell(&place.home).job_with(live).remove(quell::Removal::Force),
        Err(Error::State(_))
    ));
    assert!(place.home.job(live).spec().is_ok());
    drop(lock);
}

#[test]
fn a_job_with_survivors_stays_and_one_whose_end_is_not_proven_goes() {
    let place = TestHome::new();
    let left = Fake { verdict: Verdict::Survivors { count: 2 }, ..Fake::at(0) }.finish(&place.home);
    let open = Fake { verdict: Verdict::Unproven { why: "x".into() }, ..Fake::at(1) }.finish(&place.home);
    let did = gc(&place.home, &GcRules { force: true, ..count(0) }, false).unwrap();
    assert_eq!((did.removed, place.home.all().unwrap()), (vec![open], vec![left]));
}

#[test]
fn a_removed_job_leaves_nothing() {
    let place = TestHome::new();
    let id = Fake { name: Some("web"), tags: vec![("a", "b")], ..Fake::at(0) }.finish(&place.home);
    crate::fake::quell(&place.home).job_with(id).remove(quell::Removal::IfProvenDead).unwrap();
    assert!(matches!(
        crate::fake::quell(&place.home).job_with(id).remove(quell::Removal::IfProvenDead),
        Err(Error::NoSuchJob(_))
    ));
    assert!(matches!(resolve(&place.home, "web"), Err(Error::NoSuchJob(_))));
    for dir in ["jobs", "live", "done", "names"] {
        let left = fs::read_dir(place.path(dir)).unwrap().filter_map(|entry| entry.ok());
        let left: Vec<_> = left.map(|entry| entry.file_name()).filter(|name| name != ".lock").collect();
        assert!(left.is_empty(), "{dir}: {left:?}");
    }
    assert!(all(&place.home).is_empty());
    // The name of another job is kept.
    let first = Fake { name: Some("api"), ..Fake::at(1) }.finish(&place.home);
    let second = Fake { name: Some("api"), ..Fake::at(2) }.finish(&place.home);
    assert_eq!(gc(&place.home, &count(1), false).unwrap().removed, [first]);
    assert_eq!(place.home.named("api"), Some(second));
}

#[test]
fn remains_are_cleaned_away_and_what_is_in_the_making_is_not() {
    let place = TestHome::new();
    let home = &place.home;
    let kept = Fake::at(0).finish(home);
    let now = quell_sys::unix_ms();
    let [old, young] = [THEN, now].map(|ms| move |random| JobId::new(ms, random));
    let dir = |id: JobId| home.job(id).dir().to_owned();
    let note = |kind: &str, id: JobId| place.path(kind).join(id.to_string());
    for id in [old(1), young(1)] {
        fs::write(note("live", id), "").unwrap();
    }
    for id in [old(2), young(2)] {
        fs::create_dir(dir(id)).unwrap();
        fs::write(dir(id).join("launch.private.json"), "{}").unwrap();
    }
    for id in [old(3), young(3)] {
        fs::create_dir(dir(id)).unwrap();
        fs::write(note("live", id), "").unwrap();
    }
    fs::write(note("done", old(4)), "").unwrap();
    fs::create_dir(place.path("jobs").join(format!(".gone-{}", old(5)))).unwrap();
    home.claim("gone", old(6)).unwrap();
    home.claim("soon", young(6)).unwrap();
    // This one has run: a sweep finishes it.
    fs::create_dir(dir(old(8))).unwrap();
    fs::write(note("live", old(8)), "begun\n").unwrap();
    // Another process is making this one, although it is old.
    fs::write(note("live", old(7)), "").unwrap();
    let held = fs::File::open(note("live", old(7))).unwrap();
    held.lock().unwrap();
    fs::write(place.path("jobs").join("notes.txt"), "not quell's").unwrap();

    assert_eq!(gc(home, &GcRules::default(), true).unwrap().remains, 5);
    assert!(exists(&dir(old(2))));
    assert_eq!(gc(home, &GcRules::default(), false).unwrap().remains, 5);
    assert_eq!(gc(home, &GcRules::default(), false).unwrap().remains, 0);
    assert_eq!(home.all().unwrap(), [old(8), kept, young(2), young(3)]);
    assert_eq!(home.live().unwrap(), [old(7), old(8), young(1), young(3)]);
    assert!(home.done().unwrap().is_empty());
    assert_eq!((home.named("gone"), home.named("soon")), (None, Some(young(6))));
    assert!(exists(&place.path("jobs").join("notes.txt")));
    assert!(!exists(&place.path("jobs").join(format!(".gone-{}", old(5)))));
}

#[test]
fn a_job_that_cannot_be_read_can_be_removed() {
    let place = TestHome::new();
    let ids = finish(&place.home, 2);
    for id in &ids {
        fs::write(place.home.job(*id).dir().join("spec.json"), "").unwrap();
    }
    crate::fake::quell(&place.home).job_with(ids[0]).remove(quell::Removal::IfProvenDead).unwrap();
    assert_eq!(gc(&place.home, &count(0), false).unwrap().removed, ids[1..]);
    assert!(all(&place.home).is_empty());
}

#[test]
fn a_directory_without_a_row_is_found() {
    let place = TestHome::new();
    let made = finish(&place.home, 3);
    all(&place.home);
    let db = rusqlite::Connection::open(place.home.index_path()).unwrap();
    db.execute("DELETE FROM jobs WHERE id = ?1", [made[0].to_string()]).unwrap();
    drop(db);
    assert_eq!(gc(&place.home, &count(2), false).unwrap().removed, made[..1]);
}
