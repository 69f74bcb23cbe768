//! The history of jobs: reading and following it.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;
use std::time::Instant;

use quell_core::{EventKind, JobEvent, JobId, RecordedState, StateRecord, Timestamp};
use quell_store::Watch;
use quell_sys::{Polled, poll_until};

use quell_guard::Verb;

use crate::{Error, Filter, Interrupt, Job, Quell, Result};

/// A time in the past: a duration until now, such as `10m`, or a time such as `2026-01-31T12:00:00Z`.
pub fn parse_since(text: &str) -> Result<Timestamp> {
    if let Ok(ago) = quell_core::parse_duration(text) {
        return Ok(quell_store::now().before(ago));
    }
    let invalid = |_| {
        Error::BadValue(format!(
            "invalid time `{text}`: expected a duration such as 10m, or a time such as 2026-01-31T12:00:00Z"
        ))
    };
    text.parse().map_err(invalid)
}

impl Job {
    /// Its history, oldest first. A job in the foreground has none, so it is derived from its record.
    pub fn events(&self) -> Result<Vec<JobEvent>> {
        self.quell.permit(Verb::Events, "")?;
        EventFeed::new(self).read()
    }

    /// The history of a job in the foreground, by its record.
    fn derived(&self) -> Vec<JobEvent> {
        let Ok(spec) = self.dir().spec() else { return Vec::new() };
        if !spec.request.is_foreground() {
            return Vec::new();
        }
        let event = |time, what| JobEvent::new(&spec, time, 1, what);
        let (record, receipt) = (self.dir().record().ok(), self.dir().receipt().ok());
        // The clock of the run begins before its record does.
        let started = receipt.as_ref().map(|receipt| receipt.started.wall);
        let created = started.into_iter().fold(spec.created, Timestamp::min);
        let mut events = vec![event(created, EventKind::Created)];
        if let Some(receipt) = receipt {
            events.push(event(receipt.started.wall, EventKind::Started { root: receipt.root.id }));
            let ended = EventKind::ended(&receipt);
            events.push(event(receipt.ended.wall, ended));
        } else if let Some(StateRecord { since, state: RecordedState::Running { tree, .. }, .. }) = record {
            events.push(event(since.wall, EventKind::Started { root: tree.shown_root() }));
        }
        events
    }
}

/// Reads the history of one job as it grows.
#[derive(Debug)]
pub struct EventFeed {
    job: Job,
    /// The open file; it may have been renamed since.
    file: Option<File>,
    /// The beginning of a line that was not complete yet.
    partial: Vec<u8>,
    /// Whether the older part of a long history has been looked for.
    begun: bool,
    derived: usize,
    /// Whether the file has more than failed hooks.
    has_history: bool,
    /// Whether an [`EventWatch`] watches the record.
    watched: bool,
}

impl EventFeed {
    /// From the beginning.
    pub fn new(job: &Job) -> Self {
        Self {
            job: job.clone(),
            file: None,
            partial: Vec::new(),
            begun: false,
            derived: 0,
            has_history: false,
            watched: false,
        }
    }

    /// The job.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The events since the last call, oldest first; none if the job was removed.
    pub fn read(&mut self) -> Result<Vec<JobEvent>> {
        let path = self.job.dir().dir().join("events.jsonl");
        let mut events = Vec::new();
        self.read_files(&path, &mut events).map_err(Error::io(path))?;
        // The file of a job in the foreground has only failed hooks.
        self.has_history |= events.iter().any(|event| !matches!(event.what, EventKind::HookFailed { .. }));
        if !self.has_history {
            let derived = self.job.derived();
            events.extend(derived.iter().skip(self.derived).cloned());
            self.derived = self.derived.max(derived.len());
            events.sort_by_key(|event| event.time);
        }
        Ok(events)
    }

    fn read_files(&mut self, path: &PathBuf, events: &mut Vec<JobEvent>) -> io::Result<()> {
        if !self.begun {
            self.file = open(&self.job.dir().dir().join("events.old.jsonl"))?;
            self.begun = true;
        }
        loop {
            // Before reading: once another file has this name, nothing more is written to ours.
            let current = match fs::metadata(path) {
                Ok(metadata) => Some(metadata.ino()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            let ours = match &self.file {
                Some(file) => Some(file.metadata()?.ino()),
                None => None,
            };
            self.read_on(events)?;
            if current.is_none() || current == ours {
                return Ok(());
            }
            self.file = open(path)?;
            self.partial.clear();
        }
    }

    fn read_on(&mut self, events: &mut Vec<JobEvent>) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.read_to_end(&mut self.partial)?;
        let whole = self.partial.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let lines = self.partial[..whole].split(|&byte| byte == b'\n');
        // A line that a crash has cut is skipped.
        events.extend(lines.filter_map(|line| serde_json::from_slice::<JobEvent>(line).ok()));
        self.partial.drain(..whole);
        Ok(())
    }
}

/// Far larger than the writer of the history lets it grow.
const LARGEST: u64 = 64 * 1024 * 1024;

fn open(path: &std::path::Path) -> io::Result<Option<File>> {
    match quell_sys::open_private(path, quell_sys::OpenMode::Read) {
        Ok(file) if file.metadata()?.len() > LARGEST => {
            let why = format!("it is larger than {LARGEST} bytes: quell has not written it");
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Follows the histories of jobs.
///
/// ```no_run
/// # fn main() -> quell::Result<()> {
/// let quell = quell::Quell::open()?;
/// let mut watch = quell::EventWatch::of_all(&quell)?;
/// while let Some(events) = watch.next()? {
///     for event in events {
///         println!("{} {:?}", event.job, event.what);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EventWatch {
    feeds: Vec<EventFeed>,
    watch: Watch,
    home: Option<HomeWatch>,
}

/// Finds new jobs.
#[derive(Debug)]
struct HomeWatch {
    quell: Quell,
    watch: Watch,
    seen: HashSet<JobId>,
}

impl EventWatch {
    /// Follows these jobs, until all of them have ended.
    pub fn of(jobs: &[Job]) -> Result<Self> {
        let feeds = jobs.iter().map(EventFeed::new).collect();
        Ok(Self { feeds, watch: Watch::new().map_err(Error::io("inotify"))?, home: None })
    }

    /// Follows all live jobs and all that are started later, without end.
    pub fn of_all(quell: &Quell) -> Result<Self> {
        let mut watch = Watch::new().map_err(Error::io("inotify"))?;
        // They must exist to be watched.
        for name in ["live", "jobs"] {
            let dir = quell.home().dir().join(name);
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
            made.and_then(|()| watch.add(&dir)).map_err(Error::io(&dir))?;
        }
        // Makes keepers restore the deleted files of live jobs.
        quell.list(&Filter { limit: Some(0), ..Filter::default() })?;
        // In this order, a job that is in the first list and not in the second has ended.
        let all = quell.home().all().map_err(Error::io(quell.home().dir()))?;
        let live = quell.home().live().map_err(Error::io(quell.home().dir()))?;
        let jobs: Vec<Job> = live.iter().map(|&id| quell.job_with(id)).collect();
        let seen = all.into_iter().chain(live).collect();
        let home = HomeWatch { quell: quell.clone(), watch, seen };
        Ok(Self { home: Some(home), ..Self::of(&jobs)? })
    }

    /// Waits for events and returns them, sorted by time. The first call returns the whole history; none means that no more
    /// can come. If a job was lost, its stop is finished, which is an event too.
    #[expect(clippy::should_implement_trait, reason = "it waits, and can fail")]
    pub fn next(&mut self) -> Result<Option<Vec<JobEvent>>> {
        self.next_until(None, None)
    }

    /// The same, but it also returns, with an empty list, at `deadline` and once `interrupt` is raised.
    pub fn next_until(
        &mut self,
        deadline: Option<Instant>,
        interrupt: Option<&Interrupt>,
    ) -> Result<Option<Vec<JobEvent>>> {
        loop {
            if let Some(home) = &mut self.home {
                self.feeds.extend(home.look()?);
            }
            let mut events = Vec::new();
            let mut left = Vec::new();
            for mut feed in std::mem::take(&mut self.feeds) {
                feed.watched = feed.watched || add(&mut self.watch, feed.job())?;
                // Before reading: a job that had ended then has no more events.
                let over = over(feed.job())?;
                events.extend(feed.read()?);
                if !over {
                    left.push(feed);
                }
            }
            self.feeds = left;
            if !events.is_empty() {
                events.sort_by_key(|event| event.time);
                return Ok(Some(events));
            }
            if self.feeds.is_empty() && self.home.is_none() {
                return Ok(None);
            }
            let is_over = deadline.is_some_and(|deadline| deadline <= Instant::now());
            if is_over || interrupt.is_some_and(Interrupt::is_raised) {
                return Ok(Some(events));
            }
            self.wait(deadline, interrupt).map_err(Error::io("inotify"))?;
        }
    }

    fn wait(&mut self, deadline: Option<Instant>, interrupt: Option<&Interrupt>) -> io::Result<()> {
        let mut fds = vec![Polled::Read(self.watch.as_fd())];
        fds.extend(self.home.as_ref().map(|home| Polled::Read(home.watch.as_fd())));
        fds.extend(interrupt.map(|interrupt| Polled::Read(interrupt.as_fd())));
        poll_until(&fds, deadline)?;
        self.watch.drain().map(drop)
    }
}

impl HomeWatch {
    /// The new jobs.
    fn look(&mut self) -> Result<Vec<EventFeed>> {
        if !self.watch.drain().map_err(Error::io("inotify"))? {
            return Ok(Vec::new());
        }
        // All that are on record: a job may have ended already.
        let mut ids = self.quell.home().all().map_err(Error::io(self.quell.home().dir()))?;
        ids.retain(|&id| self.seen.insert(id));
        Ok(ids.into_iter().map(|id| EventFeed::new(&self.quell.job_with(id))).collect())
    }
}

/// Watches the job's record. Returns whether it exists.
fn add(watch: &mut Watch, job: &Job) -> Result<bool> {
    let dir = job.dir();
    match watch.add_quietly(dir.dir()).and_then(|()| watch.add_quietly(&dir.live_path())) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io(dir.dir())(error)),
    }
}

fn over(job: &Job) -> Result<bool> {
    match job.has_ended_now() {
        // It has no keeper, so nothing more is written; `sweep` names the processes that are left.
        Err(Error::NotProvenDead(_)) => Ok(true),
        other => other,
    }
}
