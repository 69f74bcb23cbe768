use quell::binary::resolve;
use quell::{Error, JobId};

use crate::fake::{Fake, THEN, TestHome, finish};

#[test]
fn a_job_is_found_by_its_id_and_by_the_beginning_of_it_in_either_case() {
    let place = TestHome::new();
    let done = Fake { random: 7 << 70, ..Fake::at(100) }.finish(&place.home);
    let (live, _lock) = Fake { random: 9 << 70, ..Fake::at(100) }.live(&place.home);
    for id in [done, live] {
        let text = id.to_string();
        for end in [26, 25, 12] {
            assert_eq!(resolve(&place.home, &text[..end]).unwrap(), id);
            assert_eq!(resolve(&place.home, &text[..end].to_lowercase()).unwrap(), id);
        }
    }
    // Both were made in the same millisecond.
    match resolve(&place.home, &done.to_string()[..10]).unwrap_err() {
        Error::Ambiguous { ids, .. } => assert_eq!(ids, [done.to_string(), live.to_string()]),
        other => panic!("{other}"),
    }
}

#[test]
fn an_ambiguity_names_five() {
    let place = TestHome::new();
    finish(&place.home, 12);
    let common = &JobId::new(THEN, 0).to_string()[..5];
    match resolve(&place.home, common).unwrap_err() {
        error @ Error::Ambiguous { .. } => {
            assert_eq!(error.to_string(), format!("`{common}` is the beginning of more than 5 jobs"));
            assert_eq!(error.details()["ids"].as_array().map(Vec::len), Some(5));
        }
        other => panic!("{other}"),
    }
    assert!(matches!(resolve(&place.home, &common[..3]), Err(Error::NoSuchJob(_))));
}

#[test]
fn nothing_hostile_touches_a_path() {
    let place = TestHome::new();
    finish(&place.home, 1);
    std::fs::create_dir_all(place.path("names")).unwrap();
    let long = "x".repeat(65);
    let hostile =
        ["", ".", "..", "/", "/etc/passwd", "a/b", "../jobs", "a\0b", "-rf", ".lock", "a b", "ä", "*", &long];
    for text in hostile {
        assert!(matches!(resolve(&place.home, text), Err(Error::InvalidJob(_))), "{text:?}");
    }
    // Letters that no id has.
    for text in ["LOUI", "01ILO", "web", "0123456789ABCDEFGHJKMNPQRST", "'--", "%%%%"] {
        let error = resolve(&place.home, text).unwrap_err();
        assert!(matches!(error, Error::NoSuchJob(_) | Error::InvalidJob(_)), "{text}: {error}");
    }
}

#[test]
fn a_name_goes_before_the_beginning_of_an_id() {
    let place = TestHome::new();
    let other = Fake::at(0).finish(&place.home);
    // A name that is the beginning of the other job's id.
    let name: &'static str = other.to_string()[..12].to_owned().leak();
    let named = Fake { name: Some(name), ..Fake::at(5) }.finish(&place.home);
    assert_eq!(resolve(&place.home, name).unwrap(), named);
    // A whole id goes before a name.
    assert_eq!(resolve(&place.home, &other.to_string()).unwrap(), other);
}

#[test]
fn a_name_means_who_bears_it_or_bore_it_last() {
    let place = TestHome::new();
    let first = Fake { name: Some("web"), ..Fake::at(0) }.finish(&place.home);
    assert_eq!(resolve(&place.home, "web").unwrap(), first);
    // Without the link of the name, the index knows the last finished job.
    std::fs::remove_file(place.path("names").join("web")).unwrap();
    assert_eq!(resolve(&place.home, "web").unwrap(), first);
    let (second, _lock) = Fake { name: Some("web"), ..Fake::at(1) }.live(&place.home);
    assert_eq!(resolve(&place.home, "web").unwrap(), second);
    // A live job's record has its name.
    std::fs::remove_file(place.path("names").join("web")).unwrap();
    assert_eq!(resolve(&place.home, "web").unwrap(), second);
    assert!(matches!(resolve(&place.home, "WEB"), Err(Error::NoSuchJob(_))));
}

#[test]
fn a_job_that_is_gone_is_not_found_whatever_the_index_says() {
    let place = TestHome::new();
    let id = Fake { name: Some("web"), ..Fake::at(0) }.finish(&place.home);
    let text = id.to_string();
    assert_eq!(resolve(&place.home, &text[..14]).unwrap(), id);
    std::fs::remove_dir_all(place.home.job(id).dir()).unwrap();
    for text in [&text, &text[..14], "web"] {
        assert!(matches!(resolve(&place.home, text), Err(Error::NoSuchJob(_))), "{text}");
    }
}
