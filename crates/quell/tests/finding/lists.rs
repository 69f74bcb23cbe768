use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, UNIX_EPOCH};

use quell::binary::{Home, list};
use quell::{Error, Filter, JobId, JobState, JobView, RootOutcome};

use crate::fake::{Fake, THEN, TestHome, exists, finish};

fn ids(home: &Home, filter: &Filter) -> Vec<JobId> {
    list(home, filter).unwrap().jobs.into_iter().map(|view| view.id).collect()
}

#[test]
fn what_has_ended_is_taken_in_when_somebody_looks() {
    let place = TestHome::new();
    let made = finish(&place.home, 3);
    assert_eq!(place.home.done().unwrap(), made);
    let found = list(&place.home, &Filter::default()).unwrap();
    assert_eq!(found.jobs.iter().map(|view| view.id).rev().collect::<Vec<_>>(), made);
    assert!(found.jobs.iter().all(|view| view.state == JobState::Ended && view.size_on_disk.is_some()));
    assert_eq!(found.jobs[0].outcome, Some(RootOutcome::Exited { code: 0 }));
    assert!(place.home.done().unwrap().is_empty());

    let later = Fake::at(10).finish(&place.home);
    assert_eq!(ids(&place.home, &Filter::default())[0], later);
    assert!(place.home.done().unwrap().is_empty());
}

#[test]
fn the_index_is_the_users_alone() {
    let place = TestHome::new();
    finish(&place.home, 2);
    list(&place.home, &Filter::default()).unwrap();
    Fake::at(5).finish(&place.home);
    list(&place.home, &Filter::default()).unwrap();
    for name in ["index.db", "index.db-wal", "index.db-shm", "index.lock"] {
        let mode = place.path(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn live_jobs_come_first_and_ten_finished_ones_after_them() {
    let place = TestHome::new();
    let made = finish(&place.home, 15);
    let (old, _old) = Fake::at(1).live(&place.home);
    let ready = Fake::at(20);
    let (new, _new) = ready.live(&place.home);
    place.home.job(new).append_state(&ready.ready()).unwrap();
    let found = list(&place.home, &Filter::default()).unwrap();
    assert_eq!((found.jobs.len(), found.more), (12, 5));
    assert_eq!((found.jobs[0].id, found.jobs[1].id), (new, old));
    assert_eq!((found.jobs[0].state, found.jobs[1].state), (JobState::Ready, JobState::Running));
    assert_eq!(found.jobs[2].id, made[14]);
    let all = list(&place.home, &Filter { all: true, ..Filter::default() }).unwrap();
    assert_eq!((all.jobs.len(), all.more), (17, 0));
    let two = list(&place.home, &Filter { limit: Some(2), ..Filter::default() }).unwrap();
    assert_eq!((two.jobs.len(), two.more), (4, 13));
}

#[test]
fn a_filter_holds_for_live_and_finished_jobs() {
    let place = TestHome::new();
    let plain = Fake::at(0).finish(&place.home);
    let tagged = Fake { tags: vec![("team", "a"), ("x", "1")], ..Fake::at(1) }.finish(&place.home);
    let other = Fake { tags: vec![("team", "b")], session: Some("s"), ..Fake::at(2) }.finish(&place.home);
    let named = Fake { name: Some("web"), ..Fake::at(3) }.finish(&place.home);
    let fake = Fake { tags: vec![("team", "a")], session: Some("s"), name: Some("api"), ..Fake::at(4) };
    let (live, _lock) = fake.live(&place.home);

    let tags = |tags: &[&str]| Filter {
        tags: tags.iter().map(|tag| tag.parse().unwrap()).collect(),
        ..Filter::default()
    };
    assert_eq!(ids(&place.home, &tags(&["team=a"])), [live, tagged]);
    assert_eq!(ids(&place.home, &tags(&["team"])), [live, other, tagged]);
    assert_eq!(ids(&place.home, &tags(&["team=a", "x=1"])), [tagged]);
    assert_eq!(ids(&place.home, &tags(&["team="])), []);
    let session = Filter { session: Some("s".into()), ..Filter::default() };
    assert_eq!(ids(&place.home, &session), [live, other]);
    let name = |name: &str| Filter { name: Some(name.into()), ..Filter::default() };
    assert_eq!(ids(&place.home, &name("web")), [named]);
    assert_eq!(ids(&place.home, &name("api")), [live]);
    let states = |states: &[JobState]| Filter { states: states.to_vec(), ..Filter::default() };
    assert_eq!(ids(&place.home, &states(&[JobState::Running])), [live]);
    assert_eq!(ids(&place.home, &states(&[JobState::Ended])), [named, other, tagged, plain]);
    // Each ended a second after it was made.
    let since = Some(UNIX_EPOCH + Duration::from_millis(THEN + 3000));
    assert_eq!(ids(&place.home, &Filter { since, ..Filter::default() }), [live, named, other]);
    for bad in ["", "=", "=x", "a\0=b"] {
        assert!(bad.parse::<quell::TagFilter>().is_err(), "{bad}");
    }
}

#[test]
fn a_job_that_was_removed_has_no_receipt_and_is_not_there() {
    let place = TestHome::new();
    let job = crate::fake::quell(&place.home).job_with(Fake::at(0).finish(&place.home));
    assert!(job.receipt().is_ok());
    std::fs::remove_dir_all(place.home.job(job.id()).dir()).unwrap();
    for found in [job.receipt().map(drop), job.tree().map(drop)] {
        assert!(matches!(found, Err(quell::Error::NoSuchJob(_))), "{found:?}");
    }
}

#[test]
fn a_job_that_no_process_keeps_is_lost_whatever_its_state_says() {
    let place = TestHome::new();
    let (lost, lock) = Fake::at(0).live(&place.home);
    lock.release();
    let fake = Fake::at(1);
    let (ended, lock) = fake.live(&place.home);
    // Its keeper was killed after it had written the end, before it released the lock; or the job wrote that itself.
    place.home.job(ended).append_state(&fake.ended()).unwrap();
    lock.release();
    let found = list(&place.home, &Filter::default()).unwrap().jobs;
    assert_eq!((found[0].id, found[0].state), (ended, JobState::Lost));
    assert_eq!((found[1].id, found[1].state), (lost, JobState::Lost));
    // Reading leaves the lock as it was.
    assert!(matches!(place.home.job(lost).liveness().unwrap(), quell_store::Liveness::Orphaned(_)));
}

#[test]
fn a_job_without_a_state_is_created() {
    let place = TestHome::new();
    let fake = Fake::at(0);
    let job = place.home.job(fake.id());
    let _lock = job.create(&fake.spec(), None).unwrap();
    let view = quell::binary::look(&job).unwrap();
    assert_eq!((view.state, view.since), (JobState::Created, fake.spec().created));
    assert_eq!(view.started, None);
}

#[test]
fn the_start_of_a_live_job_is_told_by_its_clock() {
    let place = TestHome::new();
    let fake = Fake::at(0);
    let (id, _lock) = fake.live(&place.home);
    // It came into this state half a second after the start.
    assert_eq!(quell::binary::view(&place.home.job(id)).unwrap().started, Some(fake.spec().created));
}

#[test]
fn a_view_survives_the_round_trip() {
    let place = TestHome::new();
    let id = Fake { name: Some("a"), tags: vec![("k", "v")], ..Fake::at(0) }.finish(&place.home);
    let view = quell::binary::view(&place.home.job(id)).unwrap();
    let text = serde_json::to_string(&view).unwrap();
    assert_eq!(serde_json::from_str::<JobView>(&text).unwrap(), view);
    assert!(!text.contains(":null"), "{text}");
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_keeps_nobody_else_out() {
    let place = TestHome::new();
    let good = Fake::at(0).finish(&place.home);
    for (second, name) in ["spec.json", "state.jsonl", "receipt.json"].into_iter().enumerate() {
        let id = Fake::at(second as u64 + 1).finish(&place.home);
        std::fs::write(place.home.job(id).dir().join(name), "{\"schema\"").unwrap();
        let error = quell::binary::view(&place.home.job(id)).unwrap_err().to_string();
        assert_eq!(error.matches(name).count(), 1, "{error}");
    }
    let (live, _lock) = Fake::at(9).live(&place.home);
    std::fs::write(place.home.job(live).dir().join("state.jsonl"), "\0").unwrap();
    let found = list(&place.home, &Filter::default()).unwrap();
    assert_eq!(found.jobs.iter().map(|view| view.id).collect::<Vec<_>>(), [good]);
    assert_eq!(found.warnings.len(), 4, "{:?}", found.warnings);
    assert!(place.home.done().unwrap().is_empty());
    let error = quell::binary::view(&place.home.job(JobId::new(1, 1))).unwrap_err();
    assert!(matches!(error, Error::NoSuchJob(_)));
}

#[test]
fn a_home_that_is_not_there_has_no_jobs_and_is_not_made() {
    let place = TestHome::new();
    let found = list(&place.home, &Filter::default()).unwrap();
    assert_eq!((found.jobs.len(), found.more), (0, 0));
    assert!(!exists(place.home.dir()));
}

#[test]
fn a_list_needs_no_index() {
    let place = TestHome::new();
    let made = finish(&place.home, 12);
    // A directory in its place can neither be used nor removed as a file. It stands in for a read-only disk, also for root.
    for name in ["index.lock", "index.db", "index.new"] {
        std::fs::create_dir(place.path(name)).unwrap();
        for _ in 0..2 {
            let found = list(&place.home, &Filter::default()).unwrap();
            assert_eq!((found.jobs.len(), found.more), (10, 2), "{name}");
            assert_eq!(found.jobs[0].id, made[11]);
        }
        // A job that is not in an index keeps its note.
        assert_eq!(place.home.done().unwrap().len(), 12, "{name}");
        std::fs::remove_dir(place.path(name)).unwrap();
    }
    assert_eq!(list(&place.home, &Filter::default()).unwrap().more, 2);
    assert!(place.home.done().unwrap().is_empty());
}

#[test]
fn a_home_of_another_user_is_read_and_left_as_it_is() {
    let place = TestHome::new();
    finish(&place.home, 3);
    if std::os::unix::fs::chown(place.home.dir(), Some(65_534), None).is_err() {
        eprintln!("skipped: only root can give a directory away");
        return;
    }
    assert_eq!(list(&place.home, &Filter::default()).unwrap().jobs.len(), 3);
    assert_eq!(place.home.done().unwrap().len(), 3);
    assert!(!exists(&place.path("index.db")) && !exists(&place.path("index.lock")));
}

#[test]
fn a_row_without_a_directory_is_not_listed() {
    let place = TestHome::new();
    let made = finish(&place.home, 12);
    assert_eq!(list(&place.home, &Filter::default()).unwrap().more, 2);
    std::fs::remove_dir_all(place.home.job(made[11]).dir()).unwrap();
    let found = list(&place.home, &Filter::default()).unwrap();
    assert_eq!((found.jobs.len(), found.more, found.jobs[0].id), (10, 1, made[10]));
}

/// How many finished jobs a list without finished jobs counts.
fn told(home: &Home, filter: Filter) -> u64 {
    list(home, &Filter { limit: Some(0), ..filter }).unwrap().more
}

#[test]
fn the_number_of_all_is_right_whatever_has_come_and_gone() {
    let place = TestHome::new();
    let home = &place.home;
    let tag = || Filter { tags: vec!["team=a".parse().unwrap()], ..Filter::default() };
    let made: Vec<JobId> =
        (0..12).map(|second| Fake { tags: vec![("team", "a")], ..Fake::at(second) }.finish(home)).collect();
    assert_eq!((told(home, Filter::default()), told(home, tag())), (12, 12));
    // Added once more, as after a crash between the row and the note.
    fs::write(home.dir().join("done").join(made[3].to_string()), "").unwrap();
    assert_eq!((told(home, Filter::default()), told(home, tag())), (12, 12));
    // A job that can't be read does not count until it can be read.
    let spec = home.job(made[5]).dir().join("spec.json");
    let text = fs::read(&spec).unwrap();
    fs::write(&spec, "{").unwrap();
    fs::write(home.dir().join("done").join(made[5].to_string()), "").unwrap();
    assert_eq!((told(home, Filter::default()), told(home, tag())), (11, 11));
    fs::write(&spec, text).unwrap();
    fs::write(home.dir().join("done").join(made[5].to_string()), "").unwrap();
    assert_eq!((told(home, Filter::default()), told(home, tag())), (12, 12));
    crate::fake::gc(home, &quell::GcRules { max_count: Some(7), ..Default::default() }, false).unwrap();
    assert_eq!((told(home, Filter::default()), told(home, tag())), (7, 7));
    let last = list(home, &Filter { limit: Some(2), ..tag() }).unwrap();
    assert_eq!(last.jobs.iter().map(|view| view.id).collect::<Vec<_>>(), [made[11], made[10]]);
    assert_eq!(last.more, 5);
    let late = Filter { since: Some(UNIX_EPOCH + Duration::from_millis(THEN + 10_000)), ..tag() };
    assert_eq!(told(home, late), 3);
}
