//! The evidence of one run, gathered as it happens, and the receipt made from it.

use std::time::{Duration, Instant};

use quell_contain::Containment;
use quell_core::{
    Actor, Cause, Grace, JobBrief, JobSpec, KillReason, Lifecycle, Moment, ProcId, Receipt, RootOutcome,
    RootReport, SCHEMA, SentSignal, Signal, Step, StepKind, Verdict,
};
use quell_store::now;

/// How many steps a receipt lists. A kill that takes its whole time has hundreds of equal rounds.
const STEPS: usize = 64;

/// What has happened so far.
#[derive(Debug)]
pub struct Evidence {
    /// The zero point of the clock that moments are relative to.
    start: Instant,
    started: Moment,
    steps: Vec<Step>,
    /// The grace that was given in the end, if a second request shortened it.
    hurried: Option<Duration>,
    /// The members that were alive when the root had exited.
    pub left: Vec<ProcId>,
    /// Problems in quell itself.
    pub warnings: Vec<String>,
}

impl Evidence {
    /// The clock starts now.
    pub fn new() -> Self {
        let (start, started) = (Instant::now(), Moment { at: 0.0, wall: now() });
        Self { start, started, steps: Vec::new(), hurried: None, left: Vec::new(), warnings: Vec::new() }
    }

    pub fn now(&self) -> Moment {
        Moment { at: self.start.elapsed().as_micros() as f64 / 1e6, wall: now() }
    }

    /// Adds a step that is taken now.
    pub fn step(&mut self, step: StepKind, note: String, signals: Vec<SentSignal>) {
        self.add(Step { moment: self.now(), step, note, signals });
    }

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

    /// Adds a request to exit that a lost keeper had reported, in parts.
    pub fn recall(&mut self, asked: Step) {
        let same = |step: &&mut Step| step.step == asked.step && step.moment == asked.moment;
        match self.steps.iter_mut().find(same) {
            Some(step) => step.signals.extend(asked.signals),
            None => {
                self.add(asked);
                // The exit of the root was noted when it was reported, which may be after the request.
                self.steps.sort_by(|one, other| one.moment.at.total_cmp(&other.moment.at));
            }
        }
    }

    /// The grace ends after `left`, sooner than planned.
    pub fn hurry(&mut self, left: Duration) {
        let asked = self.time_of(StepKind::Ask).unwrap_or(self.now().at);
        let since = Duration::try_from_secs_f64(self.now().at - asked).unwrap_or_default();
        self.hurried = Some(since + left);
    }

    /// How many processes were asked in the last step.
    pub fn asked(&self) -> usize {
        self.steps.last().map_or(0, |step| step.signals.len())
    }

    /// Whether any process was asked or killed.
    pub fn acted(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.step, StepKind::Ask | StepKind::Kill))
    }

    fn time_of(&self, kind: StepKind) -> Option<f64> {
        self.steps.iter().find(|step| step.step == kind).map(|step| step.moment.at)
    }

    pub fn receipt(
        &mut self,
        spec: &JobSpec,
        life: &Lifecycle,
        containment: &Containment,
        verdict: Verdict,
        survivors: Vec<ProcId>,
    ) -> Receipt {
        let ended = self.now();
        let outcome = life.root().cloned().unwrap_or(RootOutcome::Unknown);
        let (mut cause, mut actor) = life.ending().cloned().unwrap_or((Cause::OwnExit, Actor::Program));
        let killed = matches!(outcome, RootOutcome::Signaled { signal: Signal::KILL, .. });
        if cause == Cause::ExternalSignal && killed && containment.was_out_of_memory() {
            (cause, actor) = (Cause::Limit, Actor::Kernel);
        }
        let over = self.time_of(StepKind::Kill).unwrap_or(ended.at);
        let used = self.time_of(StepKind::Ask).map(|ask| Grace::between(ask, over));
        let grace = self.hurried.unwrap_or(life.grace());
        // A kill that was requested before the end of the grace has cut it short for all.
        let had = if life.kill_reason() == Some(KillReason::GraceOver) { grace } else { Duration::ZERO };
        let (members, members_omitted) = containment.members_with_fates(&survivors, had);
        let mut usage = quell_sys::rusage_children();
        usage.peak_tree_memory = containment.peak_memory();
        let mut receipt = Receipt {
            schema: SCHEMA.into(),
            job: JobBrief::new(spec.id, &spec.request),
            boot_id: spec.boot_id.clone(),
            started: self.started.clone(),
            ended,
            held: containment.describe(),
            cause,
            actor,
            root: RootReport { id: containment.shown_root(), outcome },
            left_at_root_exit: std::mem::take(&mut self.left),
            restart_limit_reached: false,
            ended_waiting: false,
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
        // All of them may have exited after the request, just before the kill.
        if !receipt.killed() && receipt.members_omitted == 0 {
            receipt.kill = None;
        }
        receipt
    }
}
