//! The same act for many jobs, several of them at a time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use quell::{Error, Job};

/// How many jobs are dealt with at the same time; each waits for its own tree.
const AT_ONCE: usize = 64;

/// Does the same with many jobs, some of them at a time, and passes each result to `each`, in the order of the jobs and as soon
/// as it is known. A single job needs no thread. If no threads can be started, one job after the other.
pub fn for_each_parallel<T: Send>(
    jobs: &[Job],
    act: impl Fn(&Job) -> Result<T, Error> + Sync,
    mut each: impl FnMut(&Job, Result<T, Error>),
) {
    if let [job] = jobs {
        return each(job, act(job));
    }
    let (next, (tell, told)) = (AtomicUsize::new(0), mpsc::channel());
    let work = |tell: mpsc::Sender<(usize, Result<T, Error>)>| {
        while let at = next.fetch_add(1, Ordering::Relaxed)
            && let Some(job) = jobs.get(at)
        {
            let _ = tell.send((at, act(job)));
        }
    };
    std::thread::scope(|scope| {
        let worker = |_| {
            let (tell, work) = (tell.clone(), &work);
            quell::binary::thread().spawn_scoped(scope, move || work(tell)).is_ok()
        };
        if (0..AT_ONCE.min(jobs.len())).filter(|number| worker(*number)).count() == 0 {
            work(tell.clone());
        }
        drop(tell);
        let (mut done, mut shown) = (BTreeMap::new(), 0);
        for (at, result) in told {
            done.insert(at, result);
            while let Some(result) = done.remove(&shown) {
                each(&jobs[shown], result);
                shown += 1;
            }
        }
        // A thread that panicked has printed why.
        let failed = || Err(Error::Keeper("a thread of this command failed".into()));
        for (at, job) in jobs.iter().enumerate().skip(shown) {
            each(job, done.remove(&at).unwrap_or_else(failed));
        }
    });
}
