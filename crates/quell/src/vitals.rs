//! What live jobs use now: CPU, memory, processes, and the age of their output. It is read from the kernel's books and the files of
//! the job, so no keeper wakes up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use quell_contain::TreeUsage;
use quell_core::{JobId, JobState, RecordedTree, StateRecord, Timestamp};
use quell_guard::Verb;
use quell_store::{JobDir, LogQuery, Stream};
use serde::{Deserialize, Serialize};

use crate::{JobView, Quell, Result};

/// How often a tree without a cgroup is looked at, at most: all of its processes are read one by one.
const WALK_AGAIN: Duration = Duration::from_secs(2);
/// Two samples that are closer give no rate: the kernel counts the CPU of a process in ticks of 10 ms.
const SHORTEST_SPAN: Duration = Duration::from_millis(100);
/// A tree that uses less of a core than this does nothing: it only wakes up now and then.
const IDLE_CPU: f64 = 0.01;
/// How much of the last line is kept, in bytes.
const LINE_LENGTH: u64 = 400;

/// What a live job uses now. What is not known is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Vitals {
    /// How many cores it uses, over the time since the sample before: 1.5 is one and a half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Its memory in bytes. Without a memory controller it is the sum of the resident sets, in which shared pages count more than
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// The number of its living processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Seconds since its last output. Not of a job in the foreground, whose output went to its caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_age: Option<f64>,
    /// The last line of its output, as it was written, cut after some hundred bytes. Escape sequences are still in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_line: Option<String>,
    /// Seconds since it was seen to write or to use the CPU. It is never more than the time since its first sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<f64>,
}

/// Samples live jobs. It keeps what it needs from one sample to the next: the rate of the CPU needs two.
///
/// ```no_run
/// # fn main() -> quell::Result<()> {
/// let quell = quell::Quell::open()?;
/// let mut sampler = quell::VitalsSampler::new(&quell);
/// let jobs = quell.list(&quell::Filter::default())?.jobs;
/// for (job, vitals) in sampler.sample(&jobs)? {
///     println!("{job} {:?} processes", vitals.processes);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct VitalsSampler {
    quell: Quell,
    known: BTreeMap<JobId, Sampled>,
}

/// What is kept of one job.
#[derive(Debug)]
struct Sampled {
    /// The state that `tree` and `keeper` are from.
    since: Timestamp,
    record: Option<StateRecord>,
    usage: Option<(Instant, TreeUsage)>,
    cpu: Option<f64>,
    output: LastOutput,
    active: Instant,
}

impl VitalsSampler {
    /// One that has sampled nothing.
    pub fn new(quell: &Quell) -> Self {
        Self { quell: quell.clone(), known: BTreeMap::new() }
    }

    /// Samples the live ones of these jobs, and forgets all others. The first sample of a job has no rate of the CPU. The last lines
    /// are left out if the policy does not allow to read logs.
    pub fn sample(&mut self, jobs: &[JobView]) -> Result<BTreeMap<JobId, Vitals>> {
        self.quell.permit(Verb::List, "")?;
        let with_lines = self.quell.may_read(Verb::Logs);
        let mut known = std::mem::take(&mut self.known);
        let mut sampled = BTreeMap::new();
        for view in jobs.iter().filter(|view| is_alive(view)) {
            let dir = self.quell.home().job(view.id);
            let mut job = known.remove(&view.id).unwrap_or_else(|| Sampled::new(view));
            sampled.insert(view.id, job.sample(&dir, view, with_lines));
            self.known.insert(view.id, job);
        }
        Ok(sampled)
    }
}

/// Whether it can have processes that its keeper knows of.
fn is_alive(view: &JobView) -> bool {
    match view.state {
        JobState::Starting | JobState::Running | JobState::Ready | JobState::Stopping => true,
        // A lost job is alive too, and so are survivors.
        JobState::Lost => true,
        JobState::Created | JobState::Waiting | JobState::Ended => false,
    }
}

impl Sampled {
    fn new(view: &JobView) -> Self {
        let (since, output) = (view.since, LastOutput::default());
        Self { since, record: None, usage: None, cpu: None, output, active: Instant::now() }
    }

    fn sample(&mut self, dir: &JobDir, view: &JobView, with_lines: bool) -> Vitals {
        if self.record.is_none() || self.since != view.since {
            (self.record, self.since) = (dir.record().ok(), view.since);
        }
        let now = Instant::now();
        if let Some(usage) = self.usage_now(dir.id(), now) {
            self.take(now, usage);
        }
        if self.output.look(dir.dir(), with_lines) || self.cpu.is_some_and(|cpu| cpu >= IDLE_CPU) {
            self.active = now;
        }
        let usage = self.usage.map(|(_, usage)| usage);
        let quiet = now.saturating_duration_since(self.active).as_secs_f64();
        Vitals {
            cpu: self.cpu,
            memory: usage.map(|usage| usage.memory),
            processes: usage.map(|usage| usage.processes),
            output_age: self.output.age(),
            last_line: self.output.line.clone(),
            quiet: Some(quiet),
        }
    }

    /// The usage if it can be read now. Trees without a cgroup are read at most every [`WALK_AGAIN`].
    fn usage_now(&self, id: JobId, now: Instant) -> Option<TreeUsage> {
        let record = self.record.as_ref()?;
        let tree: &RecordedTree = record.state.tree()?;
        match &tree.cgroup {
            Some(path) => quell_contain::cgroup_usage(id, path),
            None => {
                let is_due = self.usage.is_none_or(|(at, _)| now.saturating_duration_since(at) >= WALK_AGAIN);
                is_due.then(|| quell_contain::walked_usage(record.keeper, tree))
            }
        }
    }

    fn take(&mut self, now: Instant, usage: TreeUsage) {
        let Some((before, last)) = self.usage else {
            self.usage = Some((now, usage));
            return;
        };
        let span = now.saturating_duration_since(before);
        if span < SHORTEST_SPAN {
            // The next one is compared with the older one.
            self.usage = Some((before, TreeUsage { cpu: last.cpu, ..usage }));
            return;
        }
        // The CPU of a process that its keeper has collected is missing in a walked tree.
        self.cpu = Some((usage.cpu - last.cpu).max(0.0) / span.as_secs_f64());
        self.usage = Some((now, usage));
    }
}

/// The end of a job's output.
#[derive(Debug, Default)]
struct LastOutput {
    /// The last file of each stream, and the time of the directory in which they were found.
    files: Vec<PathBuf>,
    found: Option<SystemTime>,
    /// The time and size of the files.
    state: Vec<(SystemTime, u64)>,
    line: Option<String>,
}

impl LastOutput {
    /// Looks whether there is more. Returns whether there is.
    fn look(&mut self, dir: &Path, with_lines: bool) -> bool {
        // A new segment changes the directory. Its time comes first: what is made later is found at the next look.
        let changed = dir.metadata().and_then(|found| found.modified()).ok();
        if self.found.is_none() || changed != self.found {
            let last = |stream| quell_store::last_segment(dir, stream).ok().flatten();
            (self.files, self.found) = (Stream::ALL.into_iter().filter_map(last).collect(), changed);
        }
        let of = |path: &PathBuf| {
            let found = path.metadata().ok()?;
            Some((found.modified().ok()?, found.len()))
        };
        let state: Vec<_> = self.files.iter().filter_map(of).collect();
        if state == self.state {
            return false;
        }
        self.state = state;
        self.line = if with_lines { last_line(dir) } else { None };
        true
    }

    /// Seconds since the last output. None without any.
    fn age(&self) -> Option<f64> {
        let written = self.state.iter().filter(|(_, size)| *size > 0).map(|(time, _)| *time).max()?;
        Some(written.elapsed().unwrap_or_default().as_secs_f64())
    }
}

fn last_line(dir: &Path) -> Option<String> {
    let query = LogQuery { tail: Some(1), budget: Some(LINE_LENGTH), ..LogQuery::default() };
    let page = query.page(dir).ok()?;
    page.lines().last().map(|line| String::from_utf8_lossy(&line.bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled() -> Sampled {
        let (since, output) = (Timestamp::default(), LastOutput::default());
        Sampled { since, record: None, usage: None, cpu: None, output, active: Instant::now() }
    }

    #[test]
    fn a_rate_needs_two_samples_and_is_never_negative() {
        let usage = |cpu| TreeUsage { cpu, memory: 1, processes: 1 };
        let (mut job, start) = (sampled(), Instant::now());
        for (after, cpu, rate) in [
            (0, 5.0, None),
            // Too close: the next one is compared with the first.
            (50, 5.1, None),
            (1000, 6.0, Some(1.0)),
            (3000, 7.0, Some(0.5)),
            // A process was collected by the keeper.
            (4000, 2.0, Some(0.0)),
        ] {
            job.take(start + Duration::from_millis(after), usage(cpu));
            assert_eq!(job.cpu, rate, "after {after} ms");
        }
    }

    #[test]
    fn output_is_noticed_once_and_its_last_line_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut output = LastOutput::default();
        assert!(!output.look(dir.path(), true) && output.age().is_none(), "nothing was written");
        let mut writer = quell_store::CaptureWriter::create(dir.path(), Stream::Stdout, 1 << 20).unwrap();
        writer.write(b"one\ntwo\n", 1).unwrap();
        assert!(output.look(dir.path(), true));
        assert_eq!((output.line.as_deref(), output.age().is_some()), (Some("two"), true));
        assert!(!output.look(dir.path(), true), "nothing more was written");
        writer.write(b"three", 2).unwrap();
        assert!(output.look(dir.path(), false) && output.line.is_none(), "lines were not asked for");
    }
}
