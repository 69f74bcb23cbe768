//! The loop that owns a tree. The keeper runs it from the birth to the proof; the front runs it to finish the kill when
//! the keeper is gone.
//!
//! One thread, one poll, one deadline. Events go to [`Lifecycle`], which says what to do; nothing is decided here.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use quell_contain::{Birth, Containment, Pace, SpawnError, StopEngine, Tree};
use quell_core::{
    Actor, AskScope, Cause, Count, EventKind, JobRequest, JobSpec, JobState, LastKnown, Lifecycle,
    LifecycleEvent, LifecycleRules, Mask, Moment, Phase, ProcId, Receipt, RootOutcome, SCHEMA, SessionKind,
    Signal, StateRecord, Step, StepKind, StopMode, StopRequest, Until,
};
use quell_store::{Home, JobDir, Lock, now};
use quell_sys::fault::{FaultPoint, fault_point};
use quell_sys::{ChildRules, Polled, Program, SignalFd, Sources, Stage};

use super::background::{self, Crew};
use super::desk::{Desk, KeeperSource};
use super::evidence::{Evidence, Outlet};
use super::front::Plan;
use super::prepare;
use super::takeover::{Claim, claim};
use super::wire::{JsonChannel, Note, Order, StartFailure};
use crate::StartReply;

/// How often a kill is repeated when no event asks for it: a cgroup kill could miss a fork before Linux 6.14, and no
/// event tells of that. The wait for those that are dying is ended by their exits, not by this.
const KILL_AGAIN: Duration = Duration::from_millis(50);
/// How many times as long as it took to go over all children or members is waited before that is done again for another
/// death: those who are dying need the processors too. A count of zero ends the wait at once.
const REST: u32 = 3;
/// How long a stop waits for an exec that is under way: a program that runs is asked politely. An exec can hang, on a file
/// system that does not answer.
const EXEC_PATIENCE: Duration = Duration::from_millis(100);
/// After how long a background job is one that may last: only then is it worth while to need less memory.
pub const LASTING: Duration = Duration::from_secs(1);
/// How long the audit waits for those it has killed.
pub const AUDIT_PATIENCE: Duration = Duration::from_secs(2);

/// What both the front and its keeper know of the job.
#[derive(Debug)]
pub struct SupervisedJob {
    /// What was asked for.
    pub spec: JobSpec,
    /// What governs its life.
    pub rules: LifecycleRules,
    /// Whose session the root is in.
    pub session: SessionKind,
    /// Its record, unless none is wanted.
    pub store: Option<JobDir>,
    /// Where its receipt goes.
    pub outlets: Vec<Outlet>,
}

impl SupervisedJob {
    /// The job that `request` asks for. What `mask` has of it is in no record that may be shown.
    pub fn new(request: &JobRequest, plan: &Plan, outlets: Vec<Outlet>, mask: &Mask) -> Self {
        let cwd = mask.apply(&plan.program.cwd.to_string_lossy());
        let spec = JobSpec {
            schema: SCHEMA.into(),
            id: plan.id,
            marker: plan.marker.clone(),
            boot_id: quell_sys::boot_id(),
            pid_namespace: quell_sys::own_pid_namespace(),
            created: now(),
            request: JobRequest { cwd: Some(cwd.into()), ..request.masked(mask) },
        };
        let store = plan.home.as_ref().map(|home| Home::at(home).job(plan.id));
        Self { spec, rules: request.rules(), session: plan.session, store, outlets }
    }
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

/// What a keeper has for all runs of its program.
pub struct Kit {
    /// The front or the standby, while it lives.
    pub front: Option<JsonChannel>,
    /// SIGCHLD.
    pub signals: SignalFd,
    /// Where it meets the world, if the job is in the background.
    pub desk: Option<Box<Desk>>,
    /// What says that the job is kept.
    pub lock: Option<Lock>,
    /// Who keeps it.
    pub crew: Crew,
    /// Who is to be told that a background job runs.
    pub starter: Option<UnixStream>,
    /// The state that was last put on record.
    pub published: Option<StateRecord>,
    /// The process that runs the hooks of a job in the foreground.
    pub helper: Option<JsonChannel>,
}

/// One run of a job under supervision.
pub struct Supervisor {
    pub(super) job: SupervisedJob,
    pub(super) engine: StopEngine,
    pub(super) hold: Containment,
    pub(super) evidence: Evidence,
    pub(super) kit: Kit,
    pub(super) run: u32,
    birth: Option<Birth>,
    pub(super) failed: Option<StartFailure>,
    pub(super) unwritten: bool,
    pub(super) end: Option<Receipt>,
    /// When it was found ready.
    pub(super) ready: Option<Moment>,
    /// The state that is on record, and since when.
    pub(super) since: Option<(JobState, Moment)>,
    /// The members that are on record.
    pub(super) members: Vec<ProcId>,
    /// After which wait the program is started again.
    pub(super) again: Option<Duration>,
    kill_told: bool,
    /// When memory that is not needed for waiting is given back.
    slim_at: Option<Instant>,
    /// From when on the dead are collected again, while many die.
    collect_from: Instant,
}

impl Supervisor {
    /// The keeper's: nothing runs yet.
    pub fn new(job: SupervisedJob, hold: Containment, evidence: Evidence, kit: Kit, run: u32) -> Self {
        let life = Lifecycle::new(job.rules);
        Self::with(job, life, hold, evidence, kit, run)
    }

    fn with(
        job: SupervisedJob,
        life: Lifecycle,
        hold: Containment,
        evidence: Evidence,
        kit: Kit,
        run: u32,
    ) -> Self {
        Self {
            job,
            engine: StopEngine::new(life),
            hold,
            evidence,
            kit,
            run,
            birth: None,
            failed: None,
            unwritten: false,
            end: None,
            ready: None,
            since: None,
            members: Vec::new(),
            again: None,
            kill_told: false,
            slim_at: None,
            collect_from: Instant::now(),
        }
    }

    /// The front's or the standby's, after its keeper was lost: what is left is killed, counted and put on record.
    /// `known` is what the keeper had said of the job.
    pub fn finish(
        job: SupervisedJob,
        hold: Containment,
        evidence: Evidence,
        kit: Kit,
        known: LastKnown,
        run: u32,
    ) -> End {
        let (life, actions) = Lifecycle::orphaned(job.rules, known);
        let mut this = Self::with(job, life, hold, evidence, kit, run);
        if let Some(store) = &this.job.store
            && this.kit.lock.is_none()
        {
            match claim(store) {
                Claim::Ours(lock) => this.kit.lock = lock,
                Claim::AnothersOrOver => this.job.store = None,
            }
        }
        let record = this.job.store.as_ref().and_then(|store| store.record().ok());
        this.ready =
            record.filter(|record| record.run == run).and_then(|record| record.state.ready().cloned());
        this.happen(EventKind::Lost { finished_by: "its standby".into() });
        StopEngine::carry_out(&mut this, actions);
        this.run()
    }

    /// The desk of a background job.
    pub fn desk(&mut self) -> Option<&mut Desk> {
        self.kit.desk.as_deref_mut()
    }

    /// Who waits for the word that a background job runs.
    pub fn starter(&self) -> Option<&UnixStream> {
        self.kit.starter.as_ref()
    }

    /// Gives birth to the root, puts it on record, lets it go, and then detaches from the caller's terminal and pipes.
    /// On failure nothing has run.
    pub fn start(&mut self, program: &Program, rules: &ChildRules) {
        self.expect_readiness();
        if let Err(failure) = self.try_start(program, rules) {
            self.fail_start(failure);
        }
        let _ = quell_sys::redirect_to_null(true, true, true);
        // A mount must not be kept busy by a keeper.
        let _ = std::env::set_current_dir("/");
    }

    /// Ends a run that can't begin.
    pub fn fail_start(&mut self, failure: StartFailure) {
        let reason = failure.text().to_owned();
        self.failed = Some(failure);
        self.birth = None;
        self.step(LifecycleEvent::StartFailed(reason));
    }

    fn try_start(&mut self, program: &Program, rules: &ChildRules) -> Result<(), StartFailure> {
        let birth = self.hold.spawn(program, rules);
        let birth = birth.map_err(|error| match error {
            SpawnError::Containment(why) => StartFailure::Containment(why),
            SpawnError::Process(error) => StartFailure::Other(error.to_string()),
        })?;
        fault_point(FaultPoint::StubBorn);
        self.evidence.warnings.extend(self.hold.take_fallback_note());
        if let Some(root) = self.hold.root() {
            let cgroup = self.hold.cgroup_path().map(|path| path.to_owned());
            let inner = self.hold.recorded().inner;
            self.say(&Note::Born { held: self.hold.kind(), root, inner, cgroup });
        }
        fault_point(FaultPoint::BirthTold);
        self.birth = Some(birth);
        let warnings = self.evidence.warnings.len();
        self.step(LifecycleEvent::Spawned);
        // No record, no start: what is not on disk would be nobody's if we died.
        if self.evidence.warnings.len() > warnings
            && let Some(warning) = self.evidence.warnings.pop()
        {
            return Err(StartFailure::Record(warning));
        }
        self.note_begun();
        fault_point(FaultPoint::IdentityRecorded);
        self.evidence.step(StepKind::Born, String::new(), vec![]);
        // Out of the caller's group before the program can signal it. A keeper that has left it already stays where it is.
        if self.run == 1 {
            quell_sys::leave_session().map_err(|error| StartFailure::Other(error.to_string()))?;
        }
        fault_point(FaultPoint::SessionLeft);
        if let Some(birth) = &self.birth {
            let mut go =
                File::from(birth.go.try_clone().map_err(|error| StartFailure::Other(error.to_string()))?);
            go.write_all(b"g").map_err(|error| StartFailure::Other(error.to_string()))?;
            fault_point(FaultPoint::GoGiven);
        }
        Ok(())
    }

    /// Notes outside of the job's directory that its program runs, and of which home its cgroup is: the directory may be
    /// deleted. A job without these notes is still found by its record.
    fn note_begun(&self) {
        if let Some(lock) = self.kit.lock.as_ref().filter(|_| self.run == 1) {
            let _ = lock.begun();
        }
        if let (Some(store), Some(cgroup)) = (&self.job.store, self.hold.cgroup_path()) {
            let _ = quell_contain::note_home(cgroup, store.home().dir());
        }
    }

    /// Runs until the run has ended.
    pub fn run(self) -> End {
        self.run_background().0
    }

    /// The same, and gives back what the next run of the program needs, and after which wait it is to begin.
    pub fn run_background(mut self) -> (End, Option<Duration>, SupervisedJob, Kit) {
        while self.end.is_none() {
            self.wait_and_handle();
        }
        let Some(receipt) = self.end else { unreachable!("the loop ends with a receipt") };
        let end = End {
            receipt,
            leaked: self.engine.life.leaked(),
            failed: self.failed,
            unwritten: self.unwritten,
        };
        if self.again.is_some() {
            if let Some(front) = &mut self.kit.front {
                let _ = front.mention(&Note::Resting(end.receipt.root.outcome.clone()));
                fault_point(FaultPoint::RestTold);
            }
            return (end, self.again, self.job, self.kit);
        }
        if let Some(front) = &mut self.kit.front {
            let note = Note::Done {
                receipt: Box::new(end.receipt.clone()),
                leaked: end.leaked,
                failed: end.failed.clone(),
                unwritten: end.unwritten,
            };
            // A front that is gone does not want to know.
            let _ = front.say(&note);
            fault_point(FaultPoint::EndTold);
        }
        (end, None, self.job, self.kit)
    }

    fn wait_and_handle(&mut self) {
        let status = self.birth.as_ref().map(|birth| birth.status.as_fd());
        // The cgroup's news matter only for a count, and would be read again and again before one is wanted.
        let counting = self.engine.is_counting();
        let news = self.hold.polled().filter(|polled| counting || matches!(polled, Polled::Read(_)));
        let mut sources = Sources::default();
        sources.add(KeeperSource::Signals, Polled::Read(self.kit.signals.as_fd()));
        let front = self.kit.front.as_ref().map(|front| Polled::Read(front.as_fd()));
        sources.add_any(KeeperSource::Front, front);
        sources.add_any(KeeperSource::ExecStatus, status.map(Polled::Read));
        sources.add_any(KeeperSource::Tree, news);
        let mut wake = self.engine.next_wake(self.pace());
        if let Some(desk) = &self.kit.desk {
            desk.add_sources(&mut sources);
            wake = wake.into_iter().chain(desk.deadline()).min();
        }
        wake = wake.into_iter().chain(self.slim_at).min();
        let ready = sources.wait_or_all(wake);
        let wishes = self.desk().map(|desk| desk.handle(&ready)).unwrap_or_default();

        // The order settles ties: an exit that is there already goes before a deadline that has passed meanwhile.
        if ready.has(KeeperSource::ExecStatus) {
            self.read_status();
        }
        self.kit.hear_signals(&self.job);
        self.look_at_children();
        if counting && self.end.is_none() {
            StopEngine::count(self);
        }
        if ready.has(KeeperSource::Front) {
            self.hear_front();
        }
        self.grant(wishes);
        if self.slim_at.is_some_and(|due| due <= Instant::now()) {
            self.slim_at = None;
            quell_sys::drop_code_pages();
        }
        if self.engine.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
            self.await_exec();
        }
        if self.engine.take_deadline() {
            if matches!(self.engine.life.state(), Phase::Starting | Phase::Running | Phase::Draining) {
                self.evidence.step(StepKind::StopAsked, "its time was up".into(), vec![]);
                self.happen(EventKind::TimedOut);
            }
            self.step(LifecycleEvent::Deadline);
        }
    }

    fn read_status(&mut self) {
        let Some(birth) = self.birth.take() else { return };
        match quell_sys::read_status(&birth.status) {
            // The stub's death closes the pipe as an exec does: what was killed before it ran has not begun.
            Ok(()) if self.engine.life.state() != Phase::Starting && !self.hold.has_executed() => {}
            Ok(()) => {
                self.hold.executed();
                fault_point(FaultPoint::ExecSeen);
                self.evidence.step(StepKind::Running, String::new(), vec![]);
                self.step(LifecycleEvent::Executed);
                fault_point(FaultPoint::RunningPublished);
                self.say(&Note::Running);
                fault_point(FaultPoint::RunningTold);
                // Before the caller hears of it: who kills us right after that still finds it told.
                self.happen(EventKind::Started { root: self.hold.shown_root() });
                if let Some(mut starter) = self.kit.starter.take() {
                    background::reply(&mut starter, &StartReply::Started { id: self.job.spec.id });
                    fault_point(FaultPoint::StarterTold);
                }
                self.look_for_readiness();
                self.slim_at = self.kit.desk.as_ref().map(|_| Instant::now() + LASTING);
            }
            Err(error) => {
                let text = error.error.to_string();
                let failure = match error.stage {
                    // The program itself was found before.
                    Stage::Exec if error.error.kind() == io::ErrorKind::NotFound => {
                        StartFailure::Interpreter(text)
                    }
                    Stage::Exec => StartFailure::Exec(text, prepare::remedy(&error.error)),
                    Stage::Cwd => StartFailure::Cwd(text),
                    Stage::Proc => StartFailure::Containment(error.to_string()),
                    Stage::Limit | Stage::Fork | Stage::Stdio => StartFailure::Other(error.to_string()),
                };
                self.evidence.step(StepKind::StartFailed, error.to_string(), vec![]);
                self.step(LifecycleEvent::StartFailed(failure.text().to_owned()));
                self.failed = Some(failure);
            }
        }
    }

    fn read_status_within(&mut self, patience: Duration) {
        let until = Some(Instant::now() + patience);
        let status = self.birth.as_ref().map(|birth| Polled::Read(birth.status.as_fd()));
        if status.is_some_and(|status| quell_sys::poll_until(&[status], until).is_ok_and(|ready| ready[0])) {
            self.read_status();
        }
    }

    /// Waits a little for an exec that is under way.
    fn await_exec(&mut self) {
        if self.engine.life.state() == Phase::Starting {
            self.read_status_within(EXEC_PATIENCE);
        }
    }

    fn look_at_children(&mut self) {
        self.notice_root_exit();
        let running = self.engine.life.state() == Phase::Running;
        if running && self.job.session == SessionKind::Shared && self.hold.root_stopped() {
            self.say(&Note::RootStopped);
        }
        let now = Instant::now();
        let due = match self.engine.life.state() {
            Phase::Running | Phase::Draining => true,
            Phase::Asking | Phase::Killing => self.collect_from <= now,
            Phase::Created | Phase::Starting | Phase::Ended => false,
        };
        if due {
            let _ = self.hold.reap_orphans();
            self.collect_from = Instant::now() + REST * now.elapsed();
        }
    }

    fn notice_root_exit(&mut self) {
        if let Some(outcome) = self.hold.root_exit() {
            fault_point(FaultPoint::RootExitSeen);
            // What the stub had to say before it died goes first: a start that failed is no death from outside.
            self.read_status_within(Duration::ZERO);
            if self.engine.life.state() == Phase::Ended {
                return;
            }
            self.read_last_signs();
            self.evidence.step(StepKind::RootExited, describe(&outcome), vec![]);
            self.say(&Note::RootExited(outcome.clone()));
            self.happen(EventKind::RootExited { outcome: outcome.clone() });
            if let Some(desk) = self.desk() {
                desk.close_input();
            }
            if self.job.rules.until == Until::Root {
                self.look_no_more();
            }
            self.step(LifecycleEvent::RootExited(outcome));
        }
    }

    fn hear_front(&mut self) {
        let Some(front) = &mut self.kit.front else { return };
        let arrived = front.hear();
        for order in arrived.messages {
            self.say(&Note::Heard);
            tracing::debug!("order {order}");
            match order {
                Order::Stop(actor) => self.ask_stop(Cause::User, actor, StopMode::Ask),
                Order::OwnerGone => {
                    self.happen(EventKind::OwnerGone { kept: false });
                    if let Some(desk) = self.desk() {
                        desk.forget_owner();
                    }
                    let mode = StopMode::Within(self.job.rules.plan.grace);
                    self.ask_stop(Cause::OwnerGone, Actor::Quell, mode);
                }
                Order::Pass(signal) => {
                    self.hold.forward_signal(signal);
                }
            }
        }
        if arrived.closed {
            tracing::debug!("the front or standby is gone");
            self.kit.front = None;
            // A background job lives for its own sake: it goes on, with one to watch over it less. One that has not begun
            // is not begun: whoever wanted it would not be told.
            let begun = !matches!(self.engine.life.state(), Phase::Created | Phase::Starting);
            if self.kit.desk.is_some() && begun {
                self.happen(EventKind::StandbyLost);
                self.kit.crew.standby = None;
                return self.publish();
            }
            self.ask_stop(
                Cause::FrontLost,
                Actor::Unknown,
                StopMode::Within(self.job.rules.plan.brief_grace()),
            );
        }
    }

    pub(super) fn ask_stop(&mut self, cause: Cause, actor: Actor, mode: StopMode) {
        self.ask_stop_of(cause, actor, mode, None);
    }

    /// The same, with another word on which processes are asked first than the job's own.
    pub(super) fn ask_stop_of(&mut self, cause: Cause, actor: Actor, mode: StopMode, ask: Option<AskScope>) {
        self.await_exec();
        if let Some(desk) = self.desk() {
            desk.ending.get_or_insert((cause, actor.clone()));
        }
        if self.engine.life.state() != Phase::Ended {
            self.evidence.step(StepKind::StopAsked, who_asked(cause, &actor), vec![]);
            self.happen(EventKind::StopAsked { cause, actor: actor.clone() });
            fault_point(FaultPoint::StopNoted);
        }
        self.step(LifecycleEvent::StopAsked(StopRequest { cause, actor, mode, ask }));
    }

    fn step(&mut self, event: LifecycleEvent) {
        StopEngine::handle(self, event);
    }

    pub(super) fn say(&mut self, note: &Note) {
        if let Some(front) = &mut self.kit.front {
            // If the front is gone, its silence is heard in the loop. If it is stopped and its line is full, it will
            // find out the rest by itself; the tree can't wait for it.
            let _ = front.mention(note);
        }
    }

    pub(super) fn warn(&mut self, text: String) {
        self.evidence.warnings.push(text);
    }
}

impl Tree for Supervisor {
    fn pace(&self) -> Pace {
        Pace { again: KILL_AGAIN, look: None, rest_factor: REST, longest_rest: KILL_AGAIN }
    }

    fn engine(&mut self) -> &mut StopEngine {
        &mut self.engine
    }

    fn count(&mut self) -> Count {
        self.hold.count()
    }

    fn ask(&mut self, signal: Signal, to: AskScope) {
        let (began, again) = (self.evidence.now(), self.evidence.acted());
        let round = self.hold.ask(signal, to);
        let note = match to {
            AskScope::Tree => "each followed by CONT",
            AskScope::Root => "to the root alone, followed by CONT",
        };
        let living = round.signals.iter().map(|sent| sent.to).collect();
        let (note, signals) = (note.to_owned(), round.signals);
        let step = Step { moment: began, step: StepKind::Ask, note, signals };
        self.note_members(living, Some(&step));
        self.evidence.add(step);
        let members = self.evidence.asked();
        let left = self.engine.deadline().map(|due| due.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Duration::from_millis(left.as_millis() as u64));
        let grace = left.filter(|_| again).unwrap_or(self.engine.life.grace());
        self.happen(EventKind::Asked { signal, grace, members, to });
    }

    fn kill_round(&mut self) -> bool {
        let began = self.evidence.now();
        let round = self.hold.kill_round();
        self.evidence.step_at(began, StepKind::Kill, round.note, round.signals);
        round.settled
    }

    fn finish(&mut self) {
        self.finish_up();
    }

    fn look_at_root(&mut self) {
        self.notice_root_exit();
    }

    fn state_changed(&mut self) {
        self.publish();
    }

    fn hurried(&mut self, by: Duration) {
        self.evidence.hurry(by);
    }

    fn outlived(&mut self) {
        if self.evidence.left.is_empty() {
            self.evidence.left = self.hold.look();
            self.note_members(self.evidence.left.clone(), None);
            if self.job.rules.until == Until::Root {
                self.happen(EventKind::Leaked { members: self.evidence.left.len() });
            }
        }
    }

    fn killing(&mut self) {
        let life = &self.engine.life;
        let ran = !matches!(life.root(), Some(RootOutcome::NotStarted { .. }));
        // One who takes over may find that nobody is left to be killed.
        if self.is_told() && ran && !self.kill_told && self.hold.count() != Count::Alive(0) {
            self.kill_told = true;
            let life = &self.engine.life;
            let (reason, cause) = (life.kill_reason(), life.ending().map(|(cause, _)| *cause));
            self.happen(EventKind::Killed { reason, cause });
        }
    }
}

/// Who wants a job stopped, for its receipt.
pub fn who_asked(cause: Cause, actor: &Actor) -> String {
    match actor {
        Actor::Sender { signal, pid, .. } => format!("{signal} from pid {pid}"),
        Actor::Client { pid, .. } => format!("asked by pid {pid}"),
        Actor::Kernel => "the terminal hung up".into(),
        Actor::Program | Actor::Quell | Actor::Unknown => format!("{cause:?}"),
    }
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
