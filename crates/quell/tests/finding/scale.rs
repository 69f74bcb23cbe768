//! How long it takes with many jobs. QUELL_TEST_JOBS says how many finished ones; a hundredth of that many are live.

use std::time::Instant;

use quell::binary::{list, resolve};
use quell::{Filter, GcRules};

use crate::fake::{Fake, TestHome, gc, stats};

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    println!("{what}: {:.1} ms", start.elapsed().as_secs_f64() * 1000.0);
    result
}

#[test]
fn many_finished_jobs_are_listed_found_and_removed() {
    let count: u64 = std::env::var("QUELL_TEST_JOBS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let place = TestHome::new();
    let home = &place.home;
    let half = count / 2;
    let tags = |second: u64| if second.is_multiple_of(100) { vec![("hundredth", "yes")] } else { Vec::new() };
    let finish = |seconds: std::ops::Range<u64>| {
        for second in seconds {
            Fake { tags: tags(second), ..Fake::at(second) }.finish(home);
        }
    };
    timed("making the first half", || finish(0..half));
    let found = timed("first list: the index is made", || list(home, &Filter::default()).unwrap());
    assert_eq!(found.more, half - 10);
    timed("making the second half", || finish(half..count));
    let found = timed("list: the second half is taken in", || list(home, &Filter::default()).unwrap());
    assert_eq!(found.more, count - 10);
    let live: Vec<_> = (0..count / 100).map(|second| Fake::at(count + second).live(home)).collect();
    let found = timed("list with live ones", || list(home, &Filter::default()).unwrap());
    assert_eq!((found.jobs.len(), found.more), (live.len() + 10, count - 10));
    assert_eq!(timed("list again", || list(home, &Filter::default()).unwrap()).more, count - 10);
    let tag = Filter { tags: vec!["hundredth".parse().unwrap()], ..Filter::default() };
    let found = timed("list by label", || list(home, &tag).unwrap());
    assert_eq!(found.more, count.div_ceil(100) - 10);
    let found = timed("list of all", || list(home, &Filter { all: true, ..Filter::default() }).unwrap());
    let id = found.jobs[found.jobs.len() / 2].id;
    let prefix = &id.to_string()[..16];
    assert_eq!(timed("resolve by prefix", || resolve(home, prefix).unwrap()), id);
    assert_eq!(timed("resolve by id", || resolve(home, &id.to_string()).unwrap()), id);
    assert_eq!(timed("stats", || stats(home, None, &[]).unwrap()).jobs, count);
    let rules = GcRules { max_count: Some(count as usize - 1), ..GcRules::default() };
    assert_eq!(timed("gc of one", || gc(home, &rules, false).unwrap()).removed.len(), 1);
    println!("index: {} bytes", home.index_path().metadata().unwrap().len());
}
