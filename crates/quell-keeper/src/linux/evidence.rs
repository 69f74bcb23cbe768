//! The evidence of one job, gathered as it happens, and the receipt made from it.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use quell_contain::Containment;
use quell_core::{
    Actor, Cause, Grace, JobBrief, JobSpec, KillReason, Lifecycle, Moment, ProcId, Receipt, RootOutcome,
    RootReport, SCHEMA, SentSignal, Signal, Step, StepKind, Verdict,
};
use quell_store::now;
use quell_sys::Polled;

/// How many steps a receipt lists; a kill that takes its whole time has hundreds of rounds, all alike.
const STEPS: usize = 64;

/// How long a receipt waits for the reader of its pipe, each time that it is full.
pub const READER_PATIENCE: Duration = Duration::from_secs(2);
/// PIPE_BUF.
const PIPE_CHUNK: usize = 4096;

/// The two clocks of a job.
#[derive(Clone, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// This instant on both clocks.
    pub fn now(&self) -> Moment {
        Moment { at: self.start.elapsed().as_micros() as f64 / 1e6, wall: now() }
    }
}

/// What has happened so far.
#[derive(Debug)]
pub struct Evidence {
    clock: Clock,
    started: Moment,
    steps: Vec<Step>,
    /// The grace that was left of what had been promised.
    hurried: Option<Duration>,
    /// Who was alive when the root had exited.
    pub left: Vec<ProcId>,
    /// What went wrong in quell itself.
    pub warnings: Vec<String>,
}

impl Evidence {
    /// Nothing has happened yet.
    pub fn new(clock: Clock) -> Self {
        let started = clock.now();
        Self { clock, started, steps: Vec::new(), hurried: None, left: Vec::new(), warnings: Vec::new() }
    }

    /// This instant.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Notes a step that is taken now.
    pub fn step(&mut self, step: StepKind, note: String, signals: Vec<SentSignal>) {
        self.step_at(self.clock.now(), step, note, signals);
    }

    /// Notes a step that was taken at `moment`.
    pub fn step_at(&mut self, moment: Moment, step: StepKind, note: String, signals: Vec<SentSignal>) {
        self.add(Step { moment, step, note, signals });
    }

    /// Notes a step that was taken.
    pub fn add(&mut self, new: Step) {
        tracing::debug!("{new}");
        let step = new.step;
        let alike = |old: &Step| old.step == new.step && old.note == new.note && new.signals.is_empty();
        if self.steps.last().is_some_and(alike) {
            return;
        }
        if self.steps.len() < STEPS
            || matches!(step, StepKind::Verify | StepKind::Audit | StepKind::RootExited)
        {
            self.steps.push(new);
        }
    }

    /// Notes a request to end that a lost keeper had told of, in parts.
    pub fn recall(&mut self, asked: Step) {
        match self.steps.last_mut().filter(|step| step.moment == asked.moment) {
            Some(step) => step.signals.extend(asked.signals),
            None => self.add(asked),
        }
    }

    /// Notes that the grace ends `left` from now, sooner than was promised.
    pub fn hurry(&mut self, left: Duration) {
        let asked = self.time_of(StepKind::Ask).unwrap_or(self.clock.now().at);
        let since = Duration::try_from_secs_f64(self.clock.now().at - asked).unwrap_or_default();
        self.hurried = Some(since + left);
    }

    /// How many were asked in the last step.
    pub fn asked(&self) -> usize {
        self.steps.last().map_or(0, |step| step.signals.len())
    }

    /// Whether anybody was asked or killed.
    pub fn acted(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.step, StepKind::Ask | StepKind::Kill))
    }

    fn time_of(&self, kind: StepKind) -> Option<f64> {
        self.steps.iter().find(|step| step.step == kind).map(|step| step.moment.at)
    }

    /// The receipt.
    pub fn receipt(
        &mut self,
        spec: &JobSpec,
        life: &Lifecycle,
        hold: &Containment,
        verdict: Verdict,
        survivors: Vec<ProcId>,
    ) -> Receipt {
        let ended = self.clock.now();
        let outcome = life.root().cloned().unwrap_or(RootOutcome::Unknown);
        let (mut cause, mut actor) = life.ending().cloned().unwrap_or((Cause::OwnExit, Actor::Program));
        let killed = matches!(outcome, RootOutcome::Signaled { signal: Signal::KILL, .. });
        if cause == Cause::ExternalSignal && killed && hold.was_out_of_memory() {
            (cause, actor) = (Cause::Limit, Actor::Kernel);
        }
        let used =
            self.time_of(StepKind::Ask).map(|ask| self.time_of(StepKind::Kill).unwrap_or(ended.at) - ask);
        let grace = self.hurried.unwrap_or(life.grace());
        // None had it whole where the kill was wanted before.
        let had = if life.kill_reason() == Some(KillReason::GraceOver) { grace } else { Duration::ZERO };
        let (members, members_omitted) = hold.close_roll(&survivors, had);
        let mut usage = quell_sys::rusage_children();
        usage.peak_tree_memory = hold.peak_memory();
        let mut receipt = Receipt {
            schema: SCHEMA.into(),
            job: JobBrief {
                id: spec.id,
                name: spec.request.name.clone(),
                tags: spec.request.tags.clone(),
                command: spec.request.words(),
                cwd: spec.request.cwd.as_ref().map(|cwd| cwd.display().to_string()).unwrap_or_default(),
                timeout: spec.request.timeout.map(|timeout| timeout.as_secs_f64()),
            },
            boot_id: spec.boot_id.clone(),
            started: self.started.clone(),
            ended,
            held: hold.describe(),
            cause,
            actor,
            root: RootReport { id: hold.shown_root(), outcome },
            left_at_root_exit: std::mem::take(&mut self.left),
            restart_limit_reached: false,
            members,
            members_omitted,
            steps: std::mem::take(&mut self.steps),
            survivors,
            verdict,
            grace: Grace { asked: grace.as_secs_f64(), used },
            kill: life.kill_reason(),
            ask: life.ask_scope(),
            usage,
            output: None,
            run: 1,
            warnings: std::mem::take(&mut self.warnings),
        };
        // They may all have ended of the request, just before the kill came.
        if !receipt.killed() && receipt.members_omitted == 0 {
            receipt.kill = None;
        }
        receipt
    }
}

/// A place for the receipt, opened before the job began.
#[derive(Debug)]
pub struct Outlet {
    /// What the user called it.
    pub name: String,
    /// Where it goes.
    pub file: File,
    /// Whether we opened it, for the receipt and nothing else. What the caller opened is only written to.
    pub is_ours: bool,
    /// Where it is, if it was not there before.
    pub made: Option<PathBuf>,
    /// Where it is, if it is a plain file that had a name when it was opened.
    pub named: Option<PathBuf>,
}

impl Outlet {
    /// Writes the receipt. What a keeper may have begun to write before it was killed is replaced. A reader that does
    /// not read is given up after a while: the end of a job can't wait for it.
    pub fn write(&mut self, receipt: &Receipt) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(receipt)?;
        bytes.push(b'\n');
        // A file never makes its writer wait for a reader.
        let found = self.file.metadata()?;
        if found.is_file() {
            if let Some(path) = self.named.as_ref().filter(|_| found.nlink() == 0) {
                // The command has removed it, or put another one in its place.
                self.file = quell_sys::open_to_write(path)?;
            }
            if self.is_ours {
                self.file.set_len(0)?;
                self.file.rewind()?;
            }
            return self.file.write_all(&bytes);
        }
        // A pipe that is ready takes this much without blocking. The descriptor is the caller's too, so it is not made
        // non-blocking.
        for chunk in bytes.chunks(PIPE_CHUNK) {
            let patience = Some(Instant::now() + READER_PATIENCE);
            if !quell_sys::poll_until(&[Polled::Write(self.file.as_fd())], patience)?[0] {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "its reader does not read"));
            }
            self.file.write_all(chunk)?;
        }
        Ok(())
    }
}
