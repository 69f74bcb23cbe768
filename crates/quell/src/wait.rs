//! Waiting for jobs: one bounded call for the end, readiness, a line of output, or silence.

use std::time::{Duration, Instant};

use quell_core::{EventKind, JobEvent, JobId, RootOutcome};
use quell_store::{Line, LineOrCut, Lines, LogReader, MATCHED, Matches, Watch};
use regex_lite::Regex;
use serde::{Deserialize, Serialize};

use crate::call::Caller;
use crate::{Error, Job, JobState, JobView, Result};

/// How long a keeper may take to be called; one that is busier is watched from afar.
const LINE_PATIENCE: Duration = Duration::from_millis(50);

/// What is waited for. The first that holds for a job settles it; its end settles it in any case.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// It is ready: it runs, and has shown that it is ready in this run.
    pub ready: bool,
    /// A line of its output matches.
    pub log: Option<Regex>,
    /// No output and no CPU time in the whole tree for so long.
    pub stall: Option<Duration>,
}

/// What settled the wait for one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Met {
    /// It has ended.
    Exit,
    /// It is ready.
    Ready,
    /// A line matched.
    Log,
    /// It does nothing any more.
    Stall,
    /// Nothing yet.
    Nothing,
}

/// What became of the wait for one job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Waited {
    /// Which job.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub id: JobId,
    /// What settled it.
    pub met: Met,
    /// The line that matched; of a longer one its first 1 MiB, by which it was matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// Whether that line is longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub line_cut: bool,
    /// How it is.
    pub job: JobView,
}

impl Waited {
    /// Whether that is what was waited for: for its end, that it succeeded.
    pub fn is_good(&self, conditions: &Conditions) -> bool {
        let only_exit = !conditions.ready && conditions.log.is_none() && conditions.stall.is_none();
        match self.met {
            Met::Ready | Met::Log | Met::Stall => true,
            Met::Exit => only_exit && self.job.outcome == Some(RootOutcome::Exited { code: 0 }),
            Met::Nothing => false,
        }
    }
}

struct Waiting<'a> {
    job: &'a Job,
    met: Met,
    line: Option<(String, bool)>,
    log: Option<Matches>,
    vitals: Option<(u64, u64)>,
    quiet_since: Instant,
}

impl Job {
    /// That waiting for `conditions` makes sense: an error for what can never hold for this job.
    pub fn check_can_meet(&self, conditions: &Conditions) -> Result<()> {
        let Ok(spec) = self.dir().spec() else { return Ok(()) };
        let no = |why: &str| Err(Error::State(format!("{} {why}", self.id())));
        match spec.request.as_background() {
            Some(background) if conditions.ready && background.ready.rules.is_empty() => {
                Err(Error::NoReadyCheck(self.id()))
            }
            None if conditions.ready || conditions.log.is_some() || conditions.stall.is_some() => {
                no("is a `quell run`: only its end can be waited for")
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Waits until the job is ready, or was since it was started: its end may follow at once.
    pub fn wait_ready(&self, patience: Duration) -> Result<Waited> {
        let ready = Conditions { ready: true, ..Conditions::default() };
        let waited = wait(std::slice::from_ref(self), &ready, false, Some(Instant::now() + patience))?;
        let Some(waited) = waited.into_iter().next() else { unreachable!("one for each job") };
        let is_ready = |event: &JobEvent| matches!(event.what, EventKind::Ready { .. });
        let was_ready = || self.dir().events().is_ok_and(|events| events.iter().any(is_ready));
        let met = if waited.met != Met::Ready && was_ready() { Met::Ready } else { waited.met };
        Ok(Waited { met, ..waited })
    }
}

/// Waits until `conditions` are met for all of `jobs`, or for `any` of them, or until `deadline`. What each came to, in
/// order; those with [`Met::Nothing`] were still waited for. Conditions that can never hold are an error at once.
pub fn wait(
    jobs: &[Job],
    conditions: &Conditions,
    any: bool,
    deadline: Option<Instant>,
) -> Result<Vec<Waited>> {
    let mut waiting = Vec::new();
    for job in jobs {
        job.check_can_meet(conditions)?;
        let dir = job.dir();
        let log = match &conditions.log {
            Some(regex) => {
                let reader = LogReader::open(dir.dir()).map_err(Error::io(dir.dir()))?;
                Some(Matches::new(Lines::new(reader), Some(regex.clone())))
            }
            None => None,
        };
        let (met, line, vitals, quiet_since) = (Met::Nothing, None, None, Instant::now());
        waiting.push(Waiting { job, met, line, log, vitals, quiet_since });
    }
    let mut news: Option<News> = None;
    loop {
        for waiting in waiting.iter_mut().filter(|waiting| waiting.met == Met::Nothing) {
            waiting.look(conditions, deadline)?;
        }
        let met = waiting.iter().filter(|waiting| waiting.met != Met::Nothing).count();
        let enough = if any { met > 0 } else { met == waiting.len() };
        let now = Instant::now();
        if enough || deadline.is_some_and(|deadline| deadline <= now) {
            break;
        }
        // Nothing tells that nothing happens.
        let sample = conditions.stall.map(|stall| now + (stall / 4).max(Duration::from_millis(50)));
        let until = deadline.into_iter().chain(sample).min();
        let left: Vec<&Job> =
            waiting.iter().filter(|waiting| waiting.met == Met::Nothing).map(|waiting| waiting.job).collect();
        match &mut news {
            Some(news) => news.wait(&left, conditions, until)?,
            // What happens from now on is told; what has happened before is seen at the next look.
            None => news = Some(News::of(&left, conditions)?),
        }
    }
    waiting
        .into_iter()
        .map(|waiting| {
            let job = JobView::look(waiting.job.dir())?;
            let (line, line_cut) = waiting.line.map_or((None, false), |(line, cut)| (Some(line), cut));
            Ok(Waited { id: waiting.job.id(), met: waiting.met, line, line_cut, job })
        })
        .collect()
}

/// What tells that it is worth while to look again.
enum News {
    /// The lines to the keepers of all jobs that are waited for: each is closed when the job's end is on record.
    Lines(Vec<(JobId, Caller)>),
    /// Changes on disk. They tell of everything, but the kernel takes its time to end such a watch.
    Changes(Watch),
}

impl News {
    /// For the end of jobs that are kept the lines will do.
    fn of(jobs: &[&Job], conditions: &Conditions) -> Result<Self> {
        let only_end = !conditions.ready && conditions.log.is_none() && conditions.stall.is_none();
        let line = |job: &&Job| Some((job.id(), Caller::connect_within(job.dir(), LINE_PATIENCE).ok()??));
        let lines = if only_end { jobs.iter().map(line).collect() } else { None };
        lines.map_or_else(|| Self::changes(jobs, conditions), |lines| Ok(Self::Lines(lines)))
    }

    fn changes(jobs: &[&Job], conditions: &Conditions) -> Result<Self> {
        let mut watch = Watch::new().map_err(Error::io("inotify"))?;
        for dir in jobs.iter().map(|job| job.dir()) {
            let added =
                if conditions.log.is_some() { watch.add(dir.dir()) } else { watch.add_quietly(dir.dir()) };
            // What is gone already is seen at the next look.
            let _ = added.and_then(|()| watch.add_quietly(&dir.live_path()));
        }
        Ok(Self::Changes(watch))
    }

    /// Waits for news of one of those that are `left`. A line that is closed though the job goes on, as its keeper was
    /// killed or has too many clients, tells no more: then it is looked for changes.
    fn wait(&mut self, left: &[&Job], conditions: &Conditions, until: Option<Instant>) -> Result<()> {
        match self {
            Self::Changes(watch) => watch.wait(until).map(drop).map_err(Error::io("inotify")),
            Self::Lines(lines) => {
                lines.retain(|(id, _)| left.iter().any(|job| job.id() == *id));
                let closed = Caller::wait_closed(lines.iter().map(|(_, line)| line), until)?;
                if closed && !left.iter().any(|job| job.is_over().unwrap_or(false)) {
                    *self = Self::changes(left, conditions)?;
                }
                Ok(())
            }
        }
    }
}

impl Waiting<'_> {
    fn look(&mut self, conditions: &Conditions, deadline: Option<Instant>) -> Result<()> {
        let view = self.job.view()?;
        let over = matches!(view.state, JobState::Ended);
        if let Some(lines) = &mut self.log
            && let Some(line) = find_line(lines, over).map_err(Error::io(self.job.dir().dir()))?
        {
            (self.met, self.line) = (Met::Log, Some(line));
            return Ok(());
        }
        if conditions.ready && view.state == JobState::Ready {
            self.met = Met::Ready;
        } else if over {
            self.met = Met::Exit;
        } else if let Some(stall) = conditions.stall {
            // A job that ends right now has no vitals; its end is seen next.
            let vitals = self.job.vitals_by(deadline).ok();
            if vitals.is_none() || vitals != self.vitals {
                (self.vitals, self.quiet_since) = (vitals, Instant::now());
            } else if self.quiet_since.elapsed() >= stall {
                self.met = Met::Stall;
            }
        }
        Ok(())
    }
}

/// A line that matches, and whether it is longer than what is given of it.
fn find_line(lines: &mut Matches, over: bool) -> std::io::Result<Option<(String, bool)>> {
    let mut found: Option<Line> = None;
    loop {
        let next = match lines.next_line()? {
            Some(LineOrCut::Line(line)) => Some(line),
            Some(LineOrCut::Cut(_)) => continue,
            // The last line of a job that is over may have no end.
            None if over => lines.next_begun(),
            None => None,
        };
        match (&mut found, next) {
            (None, None) => return Ok(None),
            (None, Some(line)) => found = Some(line),
            (Some(first), Some(line)) if first.stream == line.stream => {
                first.bytes.extend(line.bytes);
                first.split = line.split;
            }
            (Some(_), Some(_)) => continue,
            (Some(first), None) => first.split = false,
        }
        if let Some(line) = found.take_if(|line| !line.split || line.bytes.len() > MATCHED) {
            let text = line.bytes.get(..MATCHED);
            let whole = || line.bytes.strip_suffix(b"\r").unwrap_or(&line.bytes);
            return Ok(Some((
                String::from_utf8_lossy(text.unwrap_or_else(whole)).into_owned(),
                line.bytes.len() > MATCHED,
            )));
        }
    }
}
