//! Waiting for jobs: for the end, readiness, a line of output, or silence.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use quell_core::{EventKind, JobEvent, JobId, RootOutcome};
use quell_store::{Cursor, Line, LineOrCut, Lines, LogReader, MATCHED, Matches, Watch};
use regex_lite::Regex;
use serde::{Deserialize, Serialize};

use crate::keeper_client::KeeperClient;
use crate::logs::regex;
use crate::stop::continue_stopped_keeper;
use crate::{Error, Interrupt, Job, JobState, JobView, Result};

/// How long connecting to a keeper may take before its files are watched instead.
const CONNECT_PATIENCE: Duration = Duration::from_millis(50);

/// How often a job is looked at that may have stalled.
const SHORTEST_SAMPLE: Duration = Duration::from_millis(50);
const LONGEST_SAMPLE: Duration = Duration::from_millis(150);

/// What to wait for: the end of a job, and what else is added. The first that happens ends the wait.
///
/// ```no_run
/// # fn main() -> quell::Result<()> {
/// use std::time::Duration;
/// let job = quell::Quell::open()?.job("web")?;
/// let waited = job.wait(&quell::WaitFor::end().ready().log("listening")?, Some(Duration::from_secs(30)))?;
/// println!("{:?}", waited.met);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct WaitFor {
    ready: bool,
    log: Option<Regex>,
    stall: Option<Duration>,
    since: Cursor,
    interrupt: Option<Interrupt>,
}

impl WaitFor {
    /// The end of the job.
    pub fn end() -> Self {
        Self::default()
    }

    /// Adds readiness: the job runs, and has shown in this run that it is ready.
    pub fn ready(self) -> Self {
        Self { ready: true, ..self }
    }

    /// Adds a line of output that matches this regular expression.
    pub fn log(self, pattern: &str) -> Result<Self> {
        Ok(Self { log: Some(regex(pattern)?), ..self })
    }

    /// Adds silence: no output and no CPU time in the whole tree for this long.
    pub fn stall(self, stall: Duration) -> Self {
        Self { stall: Some(stall), ..self }
    }

    /// Looks for lines only after this position in the output.
    pub fn since(self, since: Cursor) -> Self {
        Self { since, ..self }
    }

    /// Ends the wait when this is raised, as if its time were over.
    pub fn or_interrupted(self, interrupt: &Interrupt) -> Self {
        Self { interrupt: Some(interrupt.clone()), ..self }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(Interrupt::is_raised)
    }

    /// Whether only the end is waited for.
    fn is_end(&self) -> bool {
        !self.ready && self.log.is_none() && self.stall.is_none()
    }
}

/// Whether a wait for several jobs is over when one of them has met its condition, or when all have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitMode {
    /// All of them.
    #[default]
    All,
    /// Any one of them.
    Any,
}

/// What ended the wait for one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// It has ended.
    Exit,
    /// It is ready.
    Ready,
    /// A line matched.
    Log,
    /// It was silent.
    Stall,
    /// Nothing has happened in time.
    Nothing,
}

/// The result of the wait for one job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[must_use]
pub struct Waited {
    /// The id of the job.
    pub id: JobId,
    /// What ended the wait.
    pub met: Condition,
    /// The line that matched. Of a longer one, its first 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// Whether that line is longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub line_cut: bool,
    /// The state of the job after the wait.
    pub job: JobView,
}

impl Waited {
    /// Whether that is what was waited for. The end of a job is, if only that was waited for and it succeeded.
    pub fn is_good(&self, wanted: &WaitFor) -> bool {
        match self.met {
            Condition::Ready | Condition::Log | Condition::Stall => true,
            Condition::Exit => wanted.is_end() && self.job.outcome == Some(RootOutcome::Exited { code: 0 }),
            Condition::Nothing => false,
        }
    }
}

impl Job {
    /// Waits until one of the conditions is met, or `within` is over: then it is [`Condition::Nothing`].
    pub fn wait(&self, wanted: &WaitFor, within: Option<Duration>) -> Result<Waited> {
        let deadline = within.and_then(|within| Instant::now().checked_add(within));
        let mut waited = wait(std::slice::from_ref(self), wanted, WaitMode::All, deadline)?;
        Ok(waited.remove(0))
    }

    /// Waits until the job is ready, or was ready since it was started. An error if it ends before that, or if it is not ready
    /// within the time.
    pub fn wait_ready(&self, within: Duration) -> Result<()> {
        let waited = self.wait_for_readiness(within)?;
        match waited.met {
            Condition::Ready => Ok(()),
            Condition::Exit => Err(Error::State(format!("{} ended before it was ready", self.id()))),
            _ => Err(Error::TimedOut(format!("{} is not ready yet", self.id()))),
        }
    }

    /// The same, with the state of the job.
    pub(crate) fn wait_for_readiness(&self, within: Duration) -> Result<Waited> {
        let waited = self.wait(&WaitFor::end().ready(), Some(within))?;
        let is_ready = |event: &JobEvent| matches!(event.what, EventKind::Ready { .. });
        let was_ready = || self.dir().events().is_ok_and(|events| events.iter().any(is_ready));
        let met = if waited.met != Condition::Ready && was_ready() { Condition::Ready } else { waited.met };
        Ok(Waited { met, ..waited })
    }

    /// Fails if one of the conditions can never be met by this job.
    pub(crate) fn check_can_meet(&self, wanted: &WaitFor) -> Result<()> {
        let Ok(spec) = self.dir().spec() else { return Ok(()) };
        let no = |why: &str| Err(Error::State(format!("{} {why}", self.id())));
        match spec.request.as_background() {
            Some(background) if wanted.ready && background.ready.rules.is_empty() => {
                Err(Error::NoReadyCheck(self.id()))
            }
            None if !wanted.is_end() => no("is a `quell run`: only its end can be waited for"),
            Some(_) | None => Ok(()),
        }
    }
}

/// Waits for several jobs, until `deadline` at most. The results are in the order of the jobs; a job that has met no condition has
/// [`Condition::Nothing`]. Conditions that can never be met are an error at once.
pub fn wait(
    jobs: &[Job],
    wanted: &WaitFor,
    mode: WaitMode,
    deadline: Option<Instant>,
) -> Result<Vec<Waited>> {
    let mut waiting = jobs.iter().map(|job| Waiting::new(job, wanted)).collect::<Result<Vec<_>>>()?;
    let mut changes: Option<Changes> = None;
    loop {
        for waiting in waiting.iter_mut().filter(|waiting| waiting.met == Condition::Nothing) {
            waiting.look(wanted, deadline)?;
        }
        let left: Vec<&Job> = waiting
            .iter()
            .filter(|waiting| waiting.met == Condition::Nothing)
            .map(|waiting| waiting.job)
            .collect();
        let enough = match mode {
            WaitMode::All => left.is_empty(),
            WaitMode::Any => left.len() < waiting.len(),
        };
        let now = Instant::now();
        if enough || deadline.is_some_and(|deadline| deadline <= now) || wanted.is_interrupted() {
            break;
        }
        // No event tells that nothing happens. The wait ends late by one such interval at most.
        let sample = wanted.stall.map(|stall| now + (stall / 4).clamp(SHORTEST_SAMPLE, LONGEST_SAMPLE));
        let until = deadline.into_iter().chain(sample).min();
        match &mut changes {
            Some(changes) => changes.wait(&left, wanted, until)?,
            // The next look sees what happened before this.
            None => changes = Some(Changes::of(&left, wanted)?),
        }
    }
    waiting.into_iter().map(Waiting::result).collect()
}

/// What tells that it is worth looking again.
enum Changes {
    /// A connection to each keeper, which the keeper closes when the job's end is on record.
    Connections(Vec<(JobId, KeeperClient)>),
    /// Changes of the files. They tell of everything, but the kernel takes long to close such a watch.
    Files(Watch),
}

impl Changes {
    /// Connections are enough if only the end is waited for. A keeper that was stopped by a signal is continued.
    fn of(jobs: &[&Job], wanted: &WaitFor) -> Result<Self> {
        jobs.iter().for_each(|job| continue_stopped_keeper(job.dir()));
        let connect =
            |job: &&Job| Some((job.id(), KeeperClient::connect_within(job.dir(), CONNECT_PATIENCE).ok()??));
        let connections = if wanted.is_end() { jobs.iter().map(connect).collect() } else { None };
        connections
            .map_or_else(|| Self::files(jobs, wanted), |connections| Ok(Self::Connections(connections)))
    }

    fn files(jobs: &[&Job], wanted: &WaitFor) -> Result<Self> {
        let mut watch = Watch::new().map_err(Error::io("inotify"))?;
        for dir in jobs.iter().map(|job| job.dir()) {
            let added =
                if wanted.log.is_some() { watch.add(dir.dir()) } else { watch.add_quietly(dir.dir()) };
            // The next look sees what is gone.
            let _ = added.and_then(|()| watch.add_quietly(&dir.live_path()));
        }
        Ok(Self::Files(watch))
    }

    /// Waits for a change of one of the jobs that are `left`. A connection can be closed though the job goes on: its keeper was killed
    /// or has too many clients. Then the files are watched from there on.
    fn wait(&mut self, left: &[&Job], wanted: &WaitFor, until: Option<Instant>) -> Result<()> {
        match self {
            Self::Files(watch) => {
                let interrupt = wanted.interrupt.as_ref().map(AsFd::as_fd);
                watch.wait_or(until, interrupt).map(drop).map_err(Error::io("inotify"))
            }
            Self::Connections(connections) => {
                connections.retain(|(id, _)| left.iter().any(|job| job.id() == *id));
                let interrupt = wanted.interrupt.as_ref().map(AsFd::as_fd);
                let keepers = connections.iter().map(|(_, keeper)| keeper);
                let closed = KeeperClient::wait_closed_or(keepers, until, interrupt)?;
                if closed && !left.iter().any(|job| job.has_ended().unwrap_or(false)) {
                    *self = Self::files(left, wanted)?;
                }
                Ok(())
            }
        }
    }
}

struct Waiting<'a> {
    job: &'a Job,
    met: Condition,
    line: Option<(String, bool)>,
    log: Option<Matches>,
    vitals: Option<(u64, u64)>,
    quiet_since: Instant,
}

impl<'a> Waiting<'a> {
    fn new(job: &'a Job, wanted: &WaitFor) -> Result<Self> {
        job.check_can_meet(wanted)?;
        let log = match &wanted.log {
            Some(regex) => {
                job.check_has_logs()?;
                let reader = LogReader::open(job.dir().dir()).map_err(Error::io(job.dir().dir()))?;
                let mut lines = Lines::new(reader);
                lines.seek(wanted.since);
                Some(Matches::new(lines, Some(regex.clone())))
            }
            None => None,
        };
        Ok(Self { job, met: Condition::Nothing, line: None, log, vitals: None, quiet_since: Instant::now() })
    }

    fn look(&mut self, wanted: &WaitFor, deadline: Option<Instant>) -> Result<()> {
        let view = self.job.view()?;
        let ended = view.state == JobState::Ended;
        if let Some(lines) = &mut self.log
            && let Some(line) = find_line(lines, ended).map_err(Error::io(self.job.dir().dir()))?
        {
            (self.met, self.line) = (Condition::Log, Some(line));
        } else if wanted.ready && view.state == JobState::Ready {
            self.met = Condition::Ready;
        } else if ended {
            self.met = Condition::Exit;
        } else if let Some(stall) = wanted.stall {
            // A job that ends right now has no vitals. The next look sees the end.
            let vitals = self.job.vitals_by(deadline).ok();
            if vitals.is_none() || vitals != self.vitals {
                (self.vitals, self.quiet_since) = (vitals, Instant::now());
            } else if self.quiet_since.elapsed() >= stall {
                self.met = Condition::Stall;
            }
        }
        Ok(())
    }

    fn result(self) -> Result<Waited> {
        let job = JobView::look(self.job.dir())?;
        let (line, line_cut) = self.line.map_or((None, false), |(line, cut)| (Some(line), cut));
        Ok(Waited { id: self.job.id(), met: self.met, line, line_cut, job })
    }
}

/// A line that matches, and whether it is cut at [`MATCHED`] bytes.
fn find_line(lines: &mut Matches, ended: bool) -> std::io::Result<Option<(String, bool)>> {
    let mut found: Option<Line> = None;
    loop {
        let next = match lines.next_line()? {
            Some(LineOrCut::Line(line)) => Some(line),
            Some(LineOrCut::Cut(_)) => continue,
            // The last line of a job may have no line end.
            None if ended => lines.next_begun(),
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
