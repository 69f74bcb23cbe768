//! The loop that owns a tree. The keeper runs it from the birth to the proof; the front runs it to finish the kill when
//! the keeper is gone.
//!
//! One thread, one poll, one deadline. Events go to [`Life`], which says what to do; nothing is decided here.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use quell_contain::{Birth, Hold, SpawnError};
use quell_core::{
    Action, Actor, Cause, Count, Event, JobSpec, Known, Life, LifeRules, Manner, ProcId, Receipt, Record,
    Request, RootOutcome, SCHEMA, SessionKind, State, StepKind, Verdict,
};
use quell_store::{JobDir, Liveness, Lock};
use quell_sys::{ChildRules, Polled, Program, SignalFd, Stage};

use super::evidence::{Evidence, Outlet};
use super::wire::{Line, Note, Order, StartFailure};

/// How often a kill is repeated when no event asks for it: a cgroup kill could miss a fork before Linux 6.14, and no
/// event tells of that. The wait for those that are dying is ended by their exits, not by this.
const KILL_AGAIN: Duration = Duration::from_millis(50);
/// How long the audit waits for those it has killed.
pub const AUDIT_PATIENCE: Duration = Duration::from_secs(2);

/// What both the front and its keeper know of the job.
#[derive(Debug)]
pub struct Job {
    /// What was asked for.
    pub spec: JobSpec,
    /// What governs its life.
    pub rules: LifeRules,
    /// Whose session the root is in.
    pub session: SessionKind,
    /// Who would finish the stop if the one who runs this were lost.
    pub understudy: Option<ProcId>,
    /// Its record, unless none is wanted.
    pub store: Option<JobDir>,
    /// Where its receipt goes.
    pub outlets: Vec<Outlet>,
}

/// What a supervised job came to.
#[derive(Debug)]
pub struct End {
    /// What happened.
    pub receipt: Receipt,
    /// Whether descendants had outlived the root.
    pub leaked: bool,
    /// Why it did not start, if it did not.
    pub failed: Option<StartFailure>,
    /// Whether a receipt that was asked for could not be written.
    pub unwritten: bool,
}

/// One job under supervision.
pub struct Supervisor {
    job: Job,
    life: Life,
    hold: Hold,
    evidence: Evidence,
    signals: SignalFd,
    /// The front, while it lives.
    front: Option<Line>,
    birth: Option<Birth>,
    failed: Option<StartFailure>,
    unwritten: bool,
    deadline: Option<Instant>,
    end: Option<Receipt>,
    _lock: Option<Lock>,
}

impl Supervisor {
    /// The keeper's: nothing runs yet.
    pub fn new(
        job: Job,
        hold: Hold,
        evidence: Evidence,
        signals: SignalFd,
        lock: Option<Lock>,
        front: Line,
    ) -> Self {
        let life = Life::new(job.rules);
        Self { front: Some(front), _lock: lock, ..Self::with(job, life, hold, evidence, signals) }
    }

    fn with(job: Job, life: Life, hold: Hold, evidence: Evidence, signals: SignalFd) -> Self {
        Self {
            job,
            life,
            hold,
            evidence,
            signals,
            front: None,
            birth: None,
            failed: None,
            unwritten: false,
            deadline: None,
            end: None,
            _lock: None,
        }
    }

    /// The front's, after its keeper was lost: what is left is killed, counted and put on record. `known` is what the
    /// keeper had said of the job.
    pub fn finish(job: Job, hold: Hold, evidence: Evidence, signals: SignalFd, known: Known) -> End {
        let (life, actions) = Life::orphaned(job.rules, known);
        let mut this = Self::with(job, life, hold, evidence, signals);
        this._lock = this.job.store.as_ref().and_then(|store| match store.liveness() {
            Ok(Liveness::Lost(lock)) => Some(lock),
            Ok(Liveness::Kept | Liveness::Over) | Err(_) => None,
        });
        this.evidence.step(StepKind::StopAsked, "the keeper was killed".into(), vec![]);
        this.carry_out(actions);
        this.run()
    }

    /// Gives birth to the root, puts it on record, lets it go, and then detaches from the caller's terminal and pipes.
    /// On failure nothing has run.
    pub fn start(&mut self, program: &Program, rules: &ChildRules) {
        if let Err(failure) = self.try_start(program, rules) {
            let reason = failure.text().to_owned();
            self.failed = Some(failure);
            self.birth = None;
            self.step(Event::StartFailed(reason));
        }
        let _ = quell_sys::let_go_of(true, true, true);
        // A mount must not be kept busy by a keeper.
        let _ = std::env::set_current_dir("/");
    }

    fn try_start(&mut self, program: &Program, rules: &ChildRules) -> Result<(), StartFailure> {
        let birth = self.hold.spawn(program, rules);
        let birth = birth.map_err(|error| match error {
            SpawnError::Containment(why) => StartFailure::Containment(why),
            SpawnError::Process(error) => StartFailure::Other(error.to_string()),
        })?;
        self.evidence.troubles.extend(self.hold.take_concession());
        if let Some(root) = self.hold.root() {
            let cgroup = self.hold.cgroup_path().map(|path| path.to_owned());
            self.say(&Note::Born { held: self.hold.kind(), root, cgroup });
        }
        self.birth = Some(birth);
        let troubles = self.evidence.troubles.len();
        self.step(Event::Spawned);
        // No record, no start: what is not on disk would be nobody's if we died.
        if self.evidence.troubles.len() > troubles
            && let Some(trouble) = self.evidence.troubles.pop()
        {
            return Err(StartFailure::Record(trouble));
        }
        self.evidence.step(StepKind::Born, String::new(), vec![]);
        // Out of the caller's group before the program can signal it.
        quell_sys::leave_session().map_err(|error| StartFailure::Other(error.to_string()))?;
        if let Some(birth) = &self.birth {
            let mut go =
                File::from(birth.go.try_clone().map_err(|error| StartFailure::Other(error.to_string()))?);
            go.write_all(b"g").map_err(|error| StartFailure::Other(error.to_string()))?;
        }
        Ok(())
    }

    /// Runs until the job has ended.
    pub fn run(mut self) -> End {
        while self.end.is_none() {
            self.wait_and_handle();
        }
        let Some(receipt) = self.end else { unreachable!("the loop ends with a receipt") };
        let end = End { receipt, leaked: self.life.leaked(), failed: self.failed, unwritten: self.unwritten };
        if let Some(front) = &mut self.front {
            let note = Note::Done {
                receipt: Box::new(end.receipt.clone()),
                leaked: end.leaked,
                failed: end.failed.clone(),
                unwritten: end.unwritten,
            };
            // A front that is gone does not want to know.
            let _ = front.say(&note);
        }
        end
    }

    fn wait_and_handle(&mut self) {
        let killing = self.life.state() == State::Killing;
        let status = self.birth.as_ref().map(|birth| birth.status.as_fd());
        // The cgroup's news matter only for a count, and would be read again and again before one is wanted.
        let counting = matches!(self.life.state(), State::Draining | State::Asking | State::Killing);
        let news = self.hold.polled().filter(|polled| counting || matches!(polled, Polled::Read(_)));
        let mut fds = vec![Polled::Read(self.signals.as_fd())];
        let front_at = self.front.as_ref().map(|front| push(&mut fds, Polled::Read(front.as_fd())));
        let status_at = status.map(|status| push(&mut fds, Polled::Read(status)));
        if let Some(news) = news {
            push(&mut fds, news);
        }
        let wake = if killing {
            let again = Instant::now() + KILL_AGAIN;
            Some(self.deadline.map_or(again, |deadline| deadline.min(again)))
        } else {
            self.deadline
        };
        // poll fails only for want of memory. Then everything is looked at, as if it were ready.
        let ready = quell_sys::poll_until(&fds, wake).unwrap_or_else(|_| vec![true; fds.len()]);
        let is_ready = |at: Option<usize>| at.is_some_and(|at| ready[at]);
        let (front_ready, status_ready) = (is_ready(front_at), is_ready(status_at));

        // The order settles ties: an exit that is there already goes before a deadline that has passed meanwhile.
        if status_ready {
            self.read_status();
        }
        while self.signals.next().is_some() {}
        self.look_at_children();
        if counting && self.end.is_none() {
            self.count();
        }
        if front_ready {
            self.hear_front();
        }
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            self.deadline = None;
            if matches!(self.life.state(), State::Starting | State::Running | State::Draining) {
                self.evidence.step(StepKind::StopAsked, "its time was up".into(), vec![]);
            }
            self.step(Event::Deadline);
        }
    }

    fn read_status(&mut self) {
        let Some(birth) = self.birth.take() else { return };
        match quell_sys::read_status(&birth.status) {
            Ok(()) => {
                self.hold.executed();
                self.evidence.step(StepKind::Running, String::new(), vec![]);
                self.step(Event::Executed);
            }
            Err(error) => {
                let text = error.error.to_string();
                let failure = match error.stage {
                    Stage::Exec => StartFailure::Exec(text),
                    Stage::Cwd => StartFailure::Cwd(text),
                    Stage::Proc => StartFailure::Containment(error.to_string()),
                    Stage::Limit | Stage::Fork => StartFailure::Other(error.to_string()),
                };
                self.evidence.step(StepKind::StartFailed, error.to_string(), vec![]);
                self.step(Event::StartFailed(failure.text().to_owned()));
                self.failed = Some(failure);
            }
        }
    }

    fn look_at_children(&mut self) {
        self.notice_root_exit();
        if self.life.state() == State::Running {
            if self.job.session == SessionKind::Shared && self.hold.root_stopped() {
                self.say(&Note::RootStopped);
            }
            let _ = self.hold.reap_orphans();
        }
    }

    fn notice_root_exit(&mut self) {
        if let Some(outcome) = self.hold.root_exit() {
            self.evidence.step(StepKind::RootExited, describe(&outcome), vec![]);
            self.say(&Note::RootExited(outcome.clone()));
            self.step(Event::RootExited(outcome));
        }
    }

    /// Counts, and reports what was counted. The root may have died since it was last looked at; its end goes first.
    fn count(&mut self) {
        let count = self.hold.count();
        self.notice_root_exit();
        if self.end.is_none() {
            if self.life.state() == State::Draining
                && count != Count::Alive(0)
                && self.evidence.left.is_empty()
            {
                self.evidence.left = self.hold.look();
            }
            self.step(Event::Counted(count));
        }
    }

    fn hear_front(&mut self) {
        let Some(front) = &mut self.front else { return };
        let arrived = front.hear();
        // An exec that is done already makes it a program, to be asked politely.
        let now = Some(Instant::now());
        let status = self.birth.as_ref().map(|birth| Polled::Read(birth.status.as_fd()));
        if status.is_some_and(|status| quell_sys::poll_until(&[status], now).is_ok_and(|ready| ready[0])) {
            self.read_status();
        }
        for order in arrived.messages {
            self.say(&Note::Heard);
            match order {
                Order::Stop(actor) => self.ask_stop(Cause::User, actor, Manner::Ask),
                Order::Pass(signal) => self.hold.pass(signal),
            }
        }
        if arrived.closed {
            self.front = None;
            self.ask_stop(
                Cause::FrontLost,
                Actor::Unknown,
                Manner::Within(self.job.rules.plan.brief_grace()),
            );
        }
    }

    fn ask_stop(&mut self, cause: Cause, actor: Actor, manner: Manner) {
        if self.life.state() != State::Ended {
            let note = match &actor {
                Actor::Sender { signal, pid, .. } => format!("{signal} from pid {pid}"),
                Actor::Client { pid, .. } => format!("asked by pid {pid}"),
                Actor::Program | Actor::Quell | Actor::Kernel | Actor::Unknown => format!("{cause:?}"),
            };
            self.evidence.step(StepKind::StopAsked, note, vec![]);
        }
        self.step(Event::StopAsked(Request { cause, actor, manner }));
    }

    fn step(&mut self, event: Event) {
        let actions = self.life.step(event);
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Publish => self.publish(),
                Action::Arm(duration) => self.deadline = Some(Instant::now() + duration),
                Action::Shorten(duration) => {
                    let sooner = Instant::now() + duration;
                    self.deadline = self.deadline.map(|deadline| deadline.min(sooner));
                }
                Action::Disarm => self.deadline = None,
                Action::Count => self.count(),
                Action::Ask(signal) => {
                    let began = self.evidence.now();
                    let round = self.hold.ask(signal);
                    self.evidence.step_at(
                        began,
                        StepKind::Ask,
                        "each followed by CONT".into(),
                        round.signals,
                    );
                }
                Action::Kill => {
                    let began = self.evidence.now();
                    let round = self.hold.kill_round();
                    self.evidence.step_at(began, StepKind::Kill, round.note, round.signals);
                    // Who is not gone yet is waited for, not killed again at once.
                    if self.hold.count() == Count::Alive(0) {
                        self.count();
                    }
                }
                Action::Finish => self.finish_up(),
            }
        }
    }

    fn publish(&mut self) {
        if matches!(self.life.state(), State::Asking | State::Killing) {
            self.say(&Note::Stopping {
                killing: self.life.state() == State::Killing,
                ending: self.life.ending().cloned(),
                leaked: self.life.leaked(),
            });
        }
        let Some(store) = &self.job.store else { return };
        let record = self.record(None, vec![]);
        if let Err(error) = store.publish(&record, false) {
            self.trouble(format!("the record could not be written: {error}"));
        }
    }

    fn record(&self, verdict: Option<Verdict>, survivors: Vec<quell_core::ProcId>) -> Record {
        let (cause, actor) = self.life.ending().cloned().unzip();
        Record {
            schema: SCHEMA.into(),
            id: self.job.spec.id,
            state: self.life.state().word().into(),
            since: self.evidence.now(),
            held: Some(self.hold.kind()),
            cgroup: self.hold.cgroup_path().map(|path| path.to_owned()),
            root: self.hold.root(),
            keeper: quell_contain::identify(quell_sys::pid()),
            understudy: self.job.understudy,
            run: 1,
            ready: None,
            session: self.job.session,
            outcome: self.life.root().cloned(),
            cause,
            actor,
            verdict,
            survivors,
        }
    }

    /// The end: audit, proof, the root collected, the receipt written wherever it was wanted.
    fn finish_up(&mut self) {
        let mut verdict = self.life.verdict().cloned().unwrap_or(Verdict::Gone);
        let mut survivors = if verdict == Verdict::Gone { vec![] } else { self.hold.look() };
        if self.evidence.acted() {
            let (round, left) = self.hold.audit(AUDIT_PATIENCE);
            let found = round.signals.len();
            self.evidence.step(
                StepKind::Audit,
                format!("{found} marked processes outside the tree"),
                round.signals,
            );
            survivors.extend(left.into_iter().filter(|id| !survivors.contains(id)).collect::<Vec<_>>());
        }
        match (&verdict, self.hold.collect_root()) {
            (Verdict::Gone, Err(why)) => verdict = Verdict::Unproven { why },
            (Verdict::Gone, Ok(())) if !survivors.is_empty() => {
                verdict = Verdict::Survivors { count: survivors.len() }
            }
            (Verdict::Survivors { .. }, _) => verdict = Verdict::Survivors { count: survivors.len().max(1) },
            (Verdict::Gone | Verdict::Unproven { .. }, _) => {}
        }
        self.evidence.step(StepKind::Verify, describe_verdict(&verdict), vec![]);
        let mut receipt =
            self.evidence.receipt(&self.job.spec, &self.life, &self.hold, verdict.clone(), survivors.clone());
        if verdict == Verdict::Gone
            && let Err(error) = self.hold.release()
        {
            receipt.troubles.push(format!("the cgroup could not be removed: {error}"));
        }
        self.write_record(&mut receipt, survivors);
        for outlet in &mut self.job.outlets {
            if let Err(error) = outlet.write(&receipt) {
                self.unwritten = true;
                receipt
                    .troubles
                    .push(format!("the receipt could not be written to {}: {error}", outlet.name));
            }
        }
        self.end = Some(receipt);
    }

    /// The record of the end. A job that never ran leaves none; and none is better than one that says "running".
    fn write_record(&mut self, receipt: &mut Receipt, survivors: Vec<quell_core::ProcId>) {
        let Some(store) = &self.job.store else { return };
        if matches!(receipt.root.outcome, RootOutcome::NotStarted { .. }) && survivors.is_empty() {
            if let Err(error) = store.remove() {
                receipt.troubles.push(format!("the record could not be removed: {error}"));
            }
            return;
        }
        let mut record = self.record(Some(receipt.verdict.clone()), survivors);
        record.cause = Some(receipt.cause);
        record.actor = Some(receipt.actor.clone());
        let kept = store
            .keep(receipt, false)
            .and_then(|()| store.publish(&record, false))
            .and_then(|()| store.settle());
        if let Err(error) = kept {
            let _ = store.remove();
            receipt.troubles.push(format!("the record could not be written, and was removed: {error}"));
        }
    }

    fn say(&mut self, note: &Note) {
        if let Some(front) = &mut self.front {
            // If the front is gone, its silence is heard in the loop. If it is stopped and its line is full, it will
            // find out the rest by itself; the tree can't wait for it.
            let _ = front.mention(note);
        }
    }

    fn trouble(&mut self, text: String) {
        self.evidence.troubles.push(text);
    }
}

fn push<'a>(fds: &mut Vec<Polled<'a>>, fd: Polled<'a>) -> usize {
    fds.push(fd);
    fds.len() - 1
}

fn describe(outcome: &RootOutcome) -> String {
    match outcome {
        RootOutcome::Exited { code } => format!("exit code {code}"),
        RootOutcome::Signaled { signal, core: true } => format!("died of {signal}, core dumped"),
        RootOutcome::Signaled { signal, core: false } => format!("died of {signal}"),
        RootOutcome::NotStarted { reason } => reason.clone(),
        RootOutcome::Unknown => "unknown".into(),
    }
}

fn describe_verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Gone => "0 left".into(),
        Verdict::Survivors { count } => format!("{count} left"),
        Verdict::Unproven { why } => why.clone(),
    }
}

impl StartFailure {
    /// In words.
    pub fn text(&self) -> &str {
        match self {
            Self::Exec(text)
            | Self::Cwd(text)
            | Self::Containment(text)
            | Self::Limit(text)
            | Self::Record(text)
            | Self::Other(text) => text,
        }
    }
}
