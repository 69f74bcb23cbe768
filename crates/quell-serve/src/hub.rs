//! One thread and one inotify instance that follow all live jobs, for all clients: rows and events go into the ring, and the
//! bell of a client rings when a job has changed that it waits for.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::DirBuilder;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quell::binary::{
    Home, Interest, JobInternals, Liveness, Polled, QuellInternals, SharedWatch, WatchId, json, look,
    poll_until,
};
use quell::{Error, EventFeed, Filter, Job, JobId, JobState, JobView, Quell, Result};
use serde::Serialize;
use tokio::sync::{Notify, watch};

use crate::pools;
use crate::ring::{Item, ItemKind, Ring};

/// When to look once more after a change: the kernel reports that a lock was closed before it releases it.
const ECHO: Duration = Duration::from_millis(10);
/// How many jobs that have ended are remembered.
const REMEMBERED: usize = 256;
/// How many ends of a session are remembered.
const LONGEST_SESSION: usize = 1000;

/// The end of one job of a session.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndedJob {
    /// Its id.
    pub id: JobId,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How its root ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<quell::RootOutcome>,
    /// Why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<quell::Cause>,
    /// What was proven about its processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<quell::Verdict>,
}

/// The last job of a session has ended.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionStopped {
    /// The session.
    pub session: String,
    /// Its jobs that have ended since the server was started, in the order of their ends, with what their receipts prove.
    pub jobs: Vec<EndedJob>,
}

/// A live job.
#[derive(Debug)]
struct Followed {
    /// Taken while it is read.
    feed: Option<EventFeed>,
    watches: HashSet<WatchId>,
    row: String,
    session: Option<String>,
    /// Whether its stop is being finished here.
    settling: bool,
}

/// Rings when one of the jobs that a client waits for has changed.
#[derive(Debug, Default)]
pub struct Bell {
    jobs: Mutex<HashSet<JobId>>,
    notify: Notify,
}

impl Bell {
    fn ring(&self, id: JobId) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        self.notify.notify_one();
    }

    /// Waits until a job has changed since the last call, and returns those that have.
    pub async fn rung(&self) -> HashSet<JobId> {
        loop {
            let jobs = std::mem::take(&mut *self.jobs.lock().unwrap_or_else(PoisonError::into_inner));
            if !jobs.is_empty() {
                return jobs;
            }
            self.notify.notified().await;
        }
    }
}

/// The clients that wait for changes of a job.
#[derive(Debug, Default)]
struct Waiters {
    bells: Vec<(u64, Interest, Arc<Bell>)>,
    /// The watch for output, while a client waits for that.
    output: Option<WatchId>,
}

impl Waiters {
    fn want_output(&self) -> bool {
        self.bells.iter().any(|(_, interest, _)| *interest == Interest::Output)
    }
}

#[derive(Debug, Default)]
struct Inner {
    ring: Ring,
    jobs: HashMap<JobId, Followed>,
    by_watch: HashMap<WatchId, JobId>,
    waiters: HashMap<JobId, Waiters>,
    ended: BTreeMap<String, Vec<EndedJob>>,
    subscriptions: u64,
    /// Jobs that have ended just now: a late report of their birth is not news.
    over: VecDeque<JobId>,
}

/// The hub. One per server.
#[derive(Debug)]
pub struct Hub {
    quell: Quell,
    watch: SharedWatch,
    inner: Mutex<Inner>,
    /// The number of the last event.
    last: watch::Sender<u64>,
}

impl Hub {
    /// Begins to follow the jobs of `quell`, on a thread of its own.
    pub fn begin(quell: Quell) -> Result<Arc<Self>> {
        let watch = SharedWatch::new().map_err(Error::io("inotify"))?;
        // They must exist to be watched. A job's directory is made after its lock.
        for name in ["live", "jobs"] {
            let dir = quell.home_dir().join(name);
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
            made.and_then(|()| watch.add_for_new(&dir)).map_err(Error::io(&dir))?;
        }
        // Makes keepers restore the deleted files of live jobs.
        quell.list(&Filter { limit: Some(0), ..Filter::default() })?;
        let hub = Self { quell, watch, inner: Mutex::default(), last: watch::Sender::new(0) };
        let hub = Arc::new(hub);
        hub.look_for_all(Tell::No);
        let followed = hub.clone();
        pools::spawn(move || followed.follow())
            .map_err(|failure| Error::Keeper(failure.body().message.clone()))?;
        Ok(hub)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn home(&self) -> &Home {
        self.quell.home()
    }

    pub fn quell(&self) -> &Quell {
        &self.quell
    }

    /// The number of the last event, as it changes.
    pub fn last(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// The events after `number`: see [`Ring::after`].
    pub fn after(&self, number: u64, most: usize) -> Option<(Vec<(u64, Item)>, u64)> {
        self.inner().ring.after(number, most)
    }

    fn follow(self: Arc<Self>) {
        let mut echo: Option<(Instant, HashSet<JobId>)> = None;
        loop {
            let until = echo.as_ref().map(|(at, _)| *at);
            if poll_until(&[Polled::Read(self.watch.as_fd())], until).is_err() {
                // It can't be polled any more: clients see no more changes, and no other work depends on it.
                return;
            }
            let Ok(changes) = self.watch.read() else { return };
            let (mut changed, mut written) = (HashSet::new(), HashSet::new());
            for change in &changes.of {
                let known = self.inner().by_watch.get(&change.watch).copied();
                let made = || change.made.as_ref().and_then(|name| name.parse().ok());
                let id = known.or_else(|| made().inspect(|id| self.begin_to_follow(*id)));
                if change.is_write { &mut written } else { &mut changed }.extend(id);
            }
            if changes.lost {
                self.look_for_all(Tell::Yes);
                changed.extend(self.inner().jobs.keys().copied());
            }
            for id in written.difference(&changed) {
                self.wake(*id);
            }
            let due = echo.take_if(|(at, _)| *at <= Instant::now()).map(|(_, ids)| ids).unwrap_or_default();
            let all: HashSet<JobId> = due.union(&changed).copied().collect();
            self.look_at(&all);
            let mut again = echo.take().map(|(_, ids)| ids).unwrap_or_default();
            again.extend(changed.iter().filter(|id| self.inner().jobs.contains_key(id)));
            echo = (!again.is_empty()).then(|| (Instant::now() + ECHO, again));
            if !written.is_empty() && changed.is_empty() {
                // A program that writes without end would keep this thread busy: many writes are one change.
                std::thread::sleep(ECHO);
            }
        }
    }

    fn look_for_all(self: &Arc<Self>, tell: Tell) {
        for id in self.home().live().unwrap_or_default() {
            self.begin_to_follow(id);
            self.look_at_one(id, tell);
        }
    }

    fn look_at(self: &Arc<Self>, ids: &HashSet<JobId>) {
        for &id in ids {
            self.look_at_one(id, Tell::Yes);
        }
    }

    /// Reads what is new of a job. One thread at a time calls this, so nothing is told twice.
    fn look_at_one(self: &Arc<Self>, id: JobId, tell: Tell) {
        let feed = self.inner().jobs.get_mut(&id).and_then(|followed| followed.feed.take());
        // Of a job that had ended before there is nothing to tell.
        let Some(mut feed) = feed else { return self.wake(id) };
        // Each time: its directory may not have been there the last time.
        self.add_watches(id);
        // Before reading: a job that had ended then has no more events.
        // The state is on record before the last event is, and the lock is released after it.
        let has_ended = matches!(self.home().job(id).liveness(), Ok(Liveness::Ended));
        let view = look(&self.home().job(id)).ok();
        let events = feed.read().unwrap_or_default();
        let mut inner = self.inner();
        let Some(mut followed) = inner.jobs.remove(&id) else { return };
        followed.feed = Some(feed);
        let before = inner.ring.last();
        if tell == Tell::Yes {
            for event in &events {
                inner.ring.push(ItemKind::Event, Some(id), json(event));
            }
        }
        let is_over = match &view {
            Some(view) => {
                let row = json(view);
                if row != followed.row && tell == Tell::Yes {
                    inner.ring.push(ItemKind::Job, Some(id), row.clone());
                }
                followed.row = row;
                followed.session.clone_from(&view.session);
                has_ended && view.state == JobState::Ended
            }
            // It is being made or removed.
            None => {
                let dir = self.home().job(id);
                !dir.exists() && !dir.live_path().exists()
            }
        };
        let is_lost = view.as_ref().is_some_and(|view| view.state == JobState::Lost);
        let settle = is_lost && !followed.settling;
        followed.settling |= is_lost;
        if is_over {
            inner.over.push_front(id);
            inner.over.truncate(REMEMBERED);
            self.end_following(&mut inner, &followed, view.as_ref());
        } else {
            inner.jobs.insert(id, followed);
        }
        let last = inner.ring.last();
        drop(inner);
        if last > before {
            self.last.send_replace(last);
        }
        self.wake(id);
        if settle {
            self.settle(id);
        }
    }

    fn begin_to_follow(&self, id: JobId) {
        let feed = || Some(EventFeed::new(&self.quell.job_with(id)));
        let mut inner = self.inner();
        if inner.over.contains(&id) {
            return;
        }
        inner.jobs.entry(id).or_insert_with(|| Followed {
            feed: feed(),
            watches: HashSet::new(),
            row: String::new(),
            session: None,
            settling: false,
        });
    }

    /// Watches the directory and the lock of a job that is followed.
    fn add_watches(&self, id: JobId) {
        let dir = self.home().job(id);
        let mut inner = self.inner();
        let wants_output = inner.waiters.get(&id).is_some_and(Waiters::want_output);
        let interest = if wants_output { Interest::Output } else { Interest::Records };
        for (path, interest) in [(dir.dir(), interest), (&dir.live_path(), Interest::Records)] {
            if let Ok(watch) = self.watch.add(path, interest) {
                inner.by_watch.insert(watch, id);
                inner.jobs.get_mut(&id).map(|followed| followed.watches.insert(watch));
            }
        }
    }

    fn end_following(&self, inner: &mut Inner, followed: &Followed, view: Option<&JobView>) {
        for watch in &followed.watches {
            self.watch.remove(*watch);
            inner.by_watch.remove(watch);
        }
        let Some((view, session)) = view.and_then(|view| Some((view, view.session.clone()?))) else { return };
        let ended = inner.ended.entry(session.clone()).or_default();
        if ended.len() < LONGEST_SESSION {
            let JobView { id, name, outcome, cause, verdict, .. } = view.clone();
            ended.push(EndedJob { id, name, outcome, cause, verdict });
        }
        let lives = |other: &Followed| other.session.as_ref() == Some(&session);
        if !inner.jobs.values().any(lives) {
            let jobs = inner.ended.remove(&session).unwrap_or_default();
            inner.ring.push(ItemKind::Session, None, json(&SessionStopped { session, jobs }));
        }
    }

    /// Finishes the stop of a lost job, if the policy allows it. What that changes is told as any other change.
    fn settle(self: &Arc<Self>, id: JobId) {
        let job = self.quell.job_with(id);
        let _ = pools::spawn(move || drop(job.recover_if_orphaned()));
    }

    fn wake(&self, id: JobId) {
        let inner = self.inner();
        for (_, _, bell) in inner.waiters.get(&id).iter().flat_map(|waiters| &waiters.bells) {
            bell.ring(id);
        }
    }

    /// Rings `bell` at changes of a job, until what is returned is dropped. Subscribe first, then look: so no change is missed.
    pub fn subscribe(self: &Arc<Self>, job: &Job, interest: Interest, bell: &Arc<Bell>) -> Subscription {
        let id = job.id();
        let mut inner = self.inner();
        inner.subscriptions += 1;
        let number = inner.subscriptions;
        let waiters = inner.waiters.entry(id).or_default();
        waiters.bells.push((number, interest, bell.clone()));
        // A job that has ended writes no more, and needs none.
        if interest == Interest::Output
            && waiters.output.is_none()
            && let Ok(watch) = self.watch.add(job.dir().dir(), Interest::Output)
        {
            waiters.output = Some(watch);
            inner.by_watch.insert(watch, id);
        }
        Subscription { hub: self.clone(), id, number }
    }
}

/// Whether changes are told, or only taken note of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tell {
    Yes,
    No,
}

/// Keeps a bell ringing at the changes of one job.
#[derive(Debug)]
#[must_use = "the bell does not ring once it is dropped"]
pub struct Subscription {
    hub: Arc<Hub>,
    id: JobId,
    number: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut inner = self.hub.inner();
        let is_followed = inner.jobs.contains_key(&self.id);
        let Some(waiters) = inner.waiters.get_mut(&self.id) else { return };
        waiters.bells.retain(|(number, _, _)| *number != self.number);
        let (is_unused, output) = (waiters.bells.is_empty(), waiters.output);
        if let Some(watch) = output.filter(|_| !waiters.want_output()) {
            waiters.output = None;
            if is_followed {
                // It goes on for records alone.
                let _ = self.hub.watch.add(self.hub.home().job(self.id).dir(), Interest::Records);
            } else {
                self.hub.watch.remove(watch);
                inner.by_watch.remove(&watch);
            }
        }
        if is_unused {
            inner.waiters.remove(&self.id);
        }
    }
}
