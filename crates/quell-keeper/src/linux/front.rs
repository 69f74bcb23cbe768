//! The front: the process that the user called. It prepares, forks the keeper, passes requests on, and finishes the
//! stop itself if the keeper is killed.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quell_contain::{Containment, KEEPER_NAME, KeeperReport, Unavailable};
use quell_core::{
    Actor, Cause, Environment, Foreground, JobId, JobRequest, JobSpec, JobState, LastKnown, Mask, Member,
    Owner, ProcId, ReadyCheck, RootOutcome, SessionKind, Signal, StdoutUse, Step, Verdict,
};
use quell_store::{Home, JobDir, KNOCK, Lock};
use quell_sys::fault::{self, FaultPoint, Role, fault_point};
use quell_sys::{ChildRules, Forked, PidFd, Polled, Program, SignalFd, SignalInfo, Sources, Timers};

use super::background::{Backstage, Crew};
use super::caller::caller_of;
use super::evidence::{Clock, Evidence, Outlet, READER_PATIENCE};
use super::helper::{self, Brief};
use super::prepare::{self, open_outlets};
use super::supervise::{AUDIT_PATIENCE, Kit, LASTING, SupervisedJob, Supervisor};
use super::wire::{JsonChannel, Note, Order, StartFailure};
use crate::{Finished, RunError};

/// The signals by which a front is asked to stop its job.
pub const STOPPERS: [&str; 4] = ["INT", "TERM", "HUP", "QUIT"];
/// The signals that a front passes to the root.
const PASSED: [&str; 3] = ["USR1", "USR2", "CONT"];

pub fn signals(names: &[&str]) -> Vec<Signal> {
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

/// How long a keeper may stay silent when it should speak, before it is woken; and then before it is given up.
const SILENCE: Duration = Duration::from_secs(3);

/// Stop signals that come this close together are one request: a terminal that hangs up is told of by the kernel and by the
/// shell, `timeout` signals its child and then its group, a service manager sends TERM and HUP.
const TOGETHER: Duration = Duration::from_millis(100);

/// What a birth may take on top of that: two talks with the user's systemd.
const BIRTH: Duration = Duration::from_secs(10);

/// Everything that is settled before the keeper is forked, and known to both sides.
pub struct Plan {
    pub id: JobId,
    pub marker: String,
    pub program: Program,
    pub session: SessionKind,
    pub keep_ignored: Vec<Signal>,
    /// Children that this process had before: no part of the job.
    pub preexisting_children: Vec<ProcId>,
    /// The front itself.
    pub front: Option<ProcId>,
    /// Descriptors that the caller had passed on, for the program and nobody else.
    pub inherited: Vec<i32>,
    /// quell's home, below which the record is kept; none for no record.
    pub home: Option<PathBuf>,
}

/// Runs a job in the foreground and waits until it is proven gone.
///
/// Before: this process has one thread, and has opened nothing yet. After: no process of the job is alive, or the
/// receipt names the survivors. With an error, nothing has run and nothing is left behind.
pub fn run(request: JobRequest, home: Option<PathBuf>) -> Result<Finished, RunError> {
    fault::act_as(Role::Front);
    let mut inherited = quell_sys::inherited_descriptors();
    if !quell_sys::proc_is_ours() {
        let why =
            "/proc shows another PID namespace than the one this process is in, so no pid can be trusted";
        return Err(RunError::Proc(why.into()));
    }
    let Some(foreground) = request.as_foreground().cloned() else {
        return Err(RunError::Start("no foreground job was asked for".into()));
    };
    let outlets = open_outlets(&foreground.receipts, &mut inherited)?;
    let made: Vec<PathBuf> = outlets.iter().filter_map(|outlet| outlet.made.clone()).collect();
    let finished = run_with(request, &foreground, home, inherited, outlets);
    if finished.is_err() {
        // What never ran leaves nothing, but for a receipt that says why.
        let is_empty = |path: &PathBuf| path.metadata().is_ok_and(|found| found.len() == 0);
        made.iter().filter(|path| is_empty(path)).for_each(|path| drop(std::fs::remove_file(path)));
    }
    finished
}

fn run_with(
    request: JobRequest,
    foreground: &Foreground,
    home: Option<PathBuf>,
    inherited: Vec<i32>,
    outlets: Vec<Outlet>,
) -> Result<Finished, RunError> {
    let owner = foreground.owner.map(pin_owner).transpose()?;
    let mask = request.masked_values();
    if request.name.as_ref().is_some_and(|name| mask.hides(name)) {
        return Err(RunError::MaskedName);
    }
    if let Some(path) = &foreground.stdin {
        let bad = |error: std::io::Error| RunError::Stdin { path: path.clone(), error: error.to_string() };
        File::open(path).and_then(|file| quell_sys::replace_stdin(&file)).map_err(bad)?;
    }
    let id = match foreground.id {
        Some(id) => id,
        None => quell_contain::new_job_id().map_err(system("get random bytes"))?,
    };
    fault::work_for(&id);
    let marker = format!("{:032x}", random()?);
    let program = prepare::program(&request, id, &marker)?;
    // A caller that ignores the death of its children would make ours vanish unseen.
    quell_sys::restore_default(Signal::CHLD);
    // Before the children of this process are listed, and before it is a subreaper: the helper is not part of the job.
    let helper = start_helper(&request, home.as_deref(), id)?;
    let plan = Plan {
        id,
        program,
        session: if quell_sys::has_terminal() { SessionKind::Shared } else { SessionKind::Own },
        // Whatever the caller ignores on purpose (nohup, a background job of a script) stays ignored, here and there.
        keep_ignored: quell_sys::ignored_at_start(&signals(&["INT", "HUP", "QUIT"])),
        preexisting_children: quell_contain::preexisting_children(),
        front: if home.is_some() { quell_contain::identify(quell_sys::pid()) } else { None },
        marker,
        inherited,
        home,
    };
    let watched: Vec<Signal> = signals(&[&STOPPERS[..], &PASSED[..], &["CHLD"]].concat())
        .into_iter()
        .filter(|signal| !plan.keep_ignored.contains(signal))
        .collect();
    // A file that may not grow any more is an error to be told, not a reason to die.
    signals(&["XFSZ"]).into_iter().for_each(quell_sys::ignore);
    let signal_fd = SignalFd::new(&watched).map_err(system("watch signals"))?;
    quell_sys::set_subreaper().map_err(system("become a subreaper"))?;
    let (line, keeper_line) = JsonChannel::pair().map_err(system("make a socket pair"))?;
    let evidence = Evidence::new(Clock::start());

    match quell_sys::fork().map_err(system("fork"))? {
        Forked::Child => {
            drop((line, signal_fd));
            keep(&request, &plan, outlets, evidence, keeper_line, helper, mask)
        }
        Forked::Parent(keeper) => {
            drop(keeper_line);
            fault_point(FaultPoint::KeeperForked);
            // What the program closes must be closed; only what quell says something on stays open here.
            let _ = quell_sys::redirect_to_null(true, foreground.stdout == StdoutUse::Release, false);
            quell_sys::close_inherited(&plan.inherited);
            let front = Front::new(request, plan, keeper, line, signal_fd);
            Front { owner, helper, ..front }.wait(outlets, evidence)
        }
    }
}

/// The process that runs the hooks of a job in the foreground, if there are any.
fn start_helper(
    request: &JobRequest,
    home: Option<&Path>,
    id: JobId,
) -> Result<Option<JsonChannel>, RunError> {
    let job = home.map(|home| Home::at(home).job(id));
    let brief = Brief {
        job: job.as_ref(),
        command: request.words(),
        cwd: None,
        environment: &[],
        hooks: &request.hooks,
        ready: &ReadyCheck::default(),
    };
    helper::start(&brief).map_err(system("start a helper"))
}

/// The keeper's whole life. It makes everything that has to be put away again, so that a front that is killed leaves
/// nothing lying about.
fn keep(
    request: &JobRequest,
    plan: &Plan,
    outlets: Vec<Outlet>,
    evidence: Evidence,
    mut front: JsonChannel,
    helper: Option<JsonChannel>,
    mask: Mask,
) -> ! {
    quell_sys::set_name(KEEPER_NAME);
    fault::act_as(Role::Keeper);
    fault_point(FaultPoint::KeeperBegun);
    // The keeper is spoken to over its line. What is sent to it by signal, such as an outer job's request to its whole
    // tree, is meant for the front, which has got it too.
    for signal in signals(&[&STOPPERS[..], &["USR1", "USR2", "TSTP", "TTIN", "TTOU"]].concat()) {
        quell_sys::ignore(signal);
    }
    match prepare_keeper(request, plan, outlets, &mask) {
        Ok((job, hold, watch, lock)) => {
            let rules = ChildRules {
                own_session: plan.session == SessionKind::Own,
                stdio: None,
                closed: quell_sys::closed_at_start(),
                keep_ignored: plan.keep_ignored.clone(),
                open_files: quell_sys::raise_open_files(),
                procs: None,
                not_held: None,
            };
            let crew = Crew {
                keeper: quell_contain::identify(quell_sys::pid()),
                standby: plan.front,
                mask,
                ..Crew::default()
            };
            let kit = Kit {
                front: Some(front),
                signals: watch,
                desk: None,
                lock,
                crew,
                starter: None,
                published: None,
                helper,
            };
            let mut supervisor = Supervisor::new(job, hold, evidence, kit, 1);
            supervisor.start(&plan.program, &rules);
            quell_sys::close_inherited(&plan.inherited);
            supervisor.run();
        }
        Err(failure) => {
            // A front that is gone does not want to know.
            let _ = front.say(&Note::Failed(failure));
        }
    }
    std::process::exit(0)
}

fn prepare_keeper(
    request: &JobRequest,
    plan: &Plan,
    outlets: Vec<Outlet>,
    mask: &Mask,
) -> Result<(SupervisedJob, Containment, SignalFd, Option<Lock>), StartFailure> {
    let other = |error: std::io::Error| StartFailure::Other(error.to_string());
    let watch = SignalFd::new(&[Signal::CHLD, KNOCK]).map_err(other)?;
    quell_sys::set_subreaper().map_err(other)?;
    let job = SupervisedJob::new(request, plan, outlets, mask);
    // On record first: a cgroup that is left by one who is killed here is found by the next sweep.
    // The values are for the command that shows the job or finishes it.
    let launch = (!request.mask.is_empty()).then(|| masked_variables(request, &job));
    let lock = job.store.as_ref().map(|store| store.create(&job.spec, launch.as_ref())).transpose();
    let lock = lock.map_err(StartFailure::record)?;
    let hold =
        Containment::acquire(plan.id, None, request.contain, &request.limits, plan.session, &plan.marker);
    let hold = hold.map_err(|error| {
        let _ = job.store.as_ref().map(JobDir::remove);
        match error {
            Unavailable::Containment { .. } => StartFailure::Containment(error.to_string()),
            Unavailable::Limit { .. } => StartFailure::Limit(error.to_string()),
        }
    })?;
    fault_point(FaultPoint::PlaceAcquired);
    Ok((job, hold, watch, lock))
}

/// What a record of a job in the foreground has of its environment: what is masked elsewhere.
fn masked_variables(request: &JobRequest, job: &SupervisedJob) -> JobSpec {
    let is_masked = |(key, _): &(OsString, OsString)| request.mask.iter().any(|name| key == name.as_str());
    let set = request.env.variables().into_iter().filter(is_masked).collect();
    let env = Environment { clear: true, set };
    JobSpec { request: JobRequest { env, ..request.clone() }, ..job.spec.clone() }
}

/// What a front or a standby waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchSource {
    Channel,
    Signals,
    Keeper,
    Root,
    Starter,
    Owner,
}

/// What is due in a front or a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchTimer {
    /// The keeper must have said anything at all: it was asked something, or the root has ended.
    Answer,
    /// The present part of the job's life must be over, and the keeper have said so.
    Phase,
    /// The keeper is continued, if it is still stopped.
    ResumeKeeper,
    /// Memory that is not needed for waiting is given back.
    TrimMemory,
}

pub struct Front {
    pub(super) request: JobRequest,
    pub(super) plan: Plan,
    keeper: PidFd,
    line: JsonChannel,
    pub(super) signals: SignalFd,
    pub(super) told: KeeperReport,
    /// The root (or its init), watched as well as can be from here, until it ends.
    root: Option<PidFd>,
    /// What the keeper has said of the job.
    pub(super) known: LastKnown,
    stopping: bool,
    pub(super) interrupted: bool,
    /// When the first stop signal came.
    asked: Option<Instant>,
    timers: Timers<WatchTimer>,
    woken: bool,
    /// How many runs the keeper has told of.
    pub(super) births: u32,
    /// The members that the keeper has told of in this run, and how they were asked to end.
    pub(super) members: Vec<(Vec<Member>, Option<Step>)>,
    /// The clocks of a run that is not the first.
    pub(super) run_evidence: Option<Evidence>,
    /// Who started a background job, until it runs.
    pub(super) starter: Option<UnixStream>,
    /// Whom a foreground job lives for, besides us.
    owner: Option<PidFd>,
    /// The process that runs the hooks of a job in the foreground.
    pub(super) helper: Option<JsonChannel>,
}

/// The owner, pinned, if it is the one that is meant and lives.
pub fn pin_owner(owner: ProcId) -> Result<PidFd, RunError> {
    PidFd::of(owner).ok_or_else(|| RunError::OwnerGone(format!("process {}", owner.pid)))
}

impl Front {
    pub fn new(request: JobRequest, plan: Plan, keeper: PidFd, line: JsonChannel, signals: SignalFd) -> Self {
        let mut front = Self {
            request,
            plan,
            keeper,
            line,
            signals,
            told: KeeperReport::default(),
            root: None,
            known: LastKnown::default(),
            stopping: false,
            interrupted: false,
            asked: None,
            timers: Timers::default(),
            woken: false,
            births: 0,
            members: Vec::new(),
            run_evidence: None,
            starter: None,
            owner: None,
            helper: None,
        };
        front.expect_phase_within_timeout();
        front
    }

    fn wait(mut self, outlets: Vec<Outlet>, evidence: Evidence) -> Result<Finished, RunError> {
        match self.watch() {
            Some(end) => end,
            None => self.take_over(outlets, evidence),
        }
    }

    /// A standby's life: it waits beside its keeper until the job has ended, and tells the starter that it runs.
    pub fn stand_by(
        mut self,
        starter: Option<UnixStream>,
        job: SupervisedJob,
        backstage: Backstage,
        evidence: Evidence,
    ) -> Result<(), RunError> {
        self.starter = starter;
        self.told.base = backstage
            .keeper_cgroup
            .as_ref()
            .and_then(|keeper_cgroup| keeper_cgroup.base().map(ToOwned::to_owned));
        match self.watch() {
            Some(Ok(Finished { receipt, .. })) => match (&self.starter, receipt.root.outcome) {
                (Some(_), RootOutcome::NotStarted { .. }) if receipt.cause == Cause::OwnerGone => {
                    Err(RunError::OwnerGone("it ended while the job was started".into()))
                }
                (Some(_), RootOutcome::NotStarted { reason }) => Err(RunError::Stopped(reason)),
                (Some(_) | None, _) => Ok(()),
            },
            Some(Err(error)) => Err(error),
            None => self.take_over_background(job, backstage, evidence),
        }
    }

    /// Waits until the keeper has said its last word, or is gone without one.
    fn watch(&mut self) -> Option<Result<Finished, RunError>> {
        loop {
            // Somebody waits for the program to run, and there is no other word that would be missed.
            if self.starter.is_some() && self.timers.due(WatchTimer::Answer).is_none() {
                self.expect_answer();
            }
            let mut sources = Sources::default();
            sources.add(WatchSource::Channel, Polled::Read(self.line.as_fd()));
            sources.add(WatchSource::Signals, Polled::Read(self.signals.as_fd()));
            sources.add(WatchSource::Keeper, Polled::Read(self.keeper.as_fd()));
            sources.add_any(WatchSource::Root, self.root.as_ref().map(|root| Polled::Read(root.as_fd())));
            let starter = self.starter.as_ref().map(|starter| Polled::Read(starter.as_fd()));
            sources.add_any(WatchSource::Starter, starter);
            sources.add_any(WatchSource::Owner, self.owner.as_ref().map(|owner| Polled::Read(owner.as_fd())));
            // Without memory for that the keeper goes on meanwhile, and so do we.
            let Ok(ready) = sources.wait(self.timers.next()) else { continue };
            if ready.has(WatchSource::Signals) {
                while let Some(signal) = self.signals.next() {
                    self.on_signal(signal);
                }
                // A child's stop is told as its end is.
                if !self.is_asleep() {
                    self.timers.disarm(WatchTimer::ResumeKeeper);
                } else {
                    self.timers.bring_forward(WatchTimer::ResumeKeeper, SILENCE);
                }
            }
            let keeper_gone = ready.has(WatchSource::Keeper);
            if ready.has(WatchSource::Channel) || keeper_gone {
                let arrived = self.line.hear();
                for note in arrived.messages {
                    if let Some(end) = self.on_note(note) {
                        fault_point(FaultPoint::EndHeard);
                        self.collect_keeper();
                        return Some(end);
                    }
                }
            }
            if keeper_gone {
                return None;
            }
            // Whoever wanted the job is gone before it was told of it: nobody would ever know of it.
            if ready.has(WatchSource::Starter) && self.starter.take().is_some() {
                let _ = self.line.mention(&Order::Stop(Actor::Unknown));
                self.expect_answer();
            }
            if ready.has(WatchSource::Owner) && self.owner.take().is_some() {
                let _ = self.line.mention(&Order::OwnerGone);
                self.expect_answer();
            }
            if ready.has(WatchSource::Root) {
                self.root = None;
                // The keeper sees this too, and will say so, if it has not yet.
                if self.known.root.is_none() {
                    self.expect_answer();
                }
            }
            let now = Instant::now();
            // Its output would stand still, and of its end nobody would hear.
            if self.timers.take_due(WatchTimer::ResumeKeeper, now) && self.is_asleep() {
                tracing::debug!("the keeper is stopped: sent CONT to pid {}", self.keeper.pid());
                self.keeper.signal(Signal::CONT);
            }
            if self.timers.take_due(WatchTimer::TrimMemory, now) {
                quell_sys::drop_code_pages();
            }
            let overdue =
                [WatchTimer::Answer, WatchTimer::Phase].map(|timer| self.timers.take_due(timer, now));
            if overdue.contains(&true) {
                self.rouse_keeper();
            }
        }
    }

    fn is_asleep(&self) -> bool {
        quell_sys::is_stopped(self.keeper.pid())
    }

    /// How long the keeper may be silent when it should speak. Until the root is born it may have to wait for a bus.
    fn patience(&self) -> Duration {
        if self.told.root.is_some() { SILENCE } else { SILENCE + BIRTH }
    }

    fn expect_phase_within_timeout(&mut self) {
        match self.request.timeout {
            Some(timeout) => self.timers.arm(WatchTimer::Phase, timeout + self.patience()),
            None => self.timers.disarm(WatchTimer::Phase),
        }
    }

    fn expect_answer(&mut self) {
        self.timers.bring_forward(WatchTimer::Answer, self.patience());
    }

    /// The keeper should have spoken. Somebody may have stopped it: it is continued, and if that doesn't help, killed, and
    /// its work done from here.
    fn rouse_keeper(&mut self) {
        // An exec takes as long as it takes: a keeper that waits for one is not given up.
        if self.starter.is_some() && !quell_sys::is_stopped(self.keeper.pid()) {
            self.timers.disarm(WatchTimer::Phase);
            self.timers.arm(WatchTimer::Answer, SILENCE);
            return;
        }
        let signal = if self.woken { Signal::KILL } else { Signal::CONT };
        tracing::debug!("the keeper does not answer: sent {signal} to pid {}", self.keeper.pid());
        self.keeper.signal(signal);
        self.woken = true;
        self.timers.disarm(WatchTimer::Phase);
        self.timers.arm(WatchTimer::Answer, SILENCE);
    }

    fn on_signal(&mut self, info: SignalInfo) {
        let name = info.signal.to_string();
        tracing::debug!("received {name} from pid {}", info.pid);
        if PASSED.contains(&name.as_str()) {
            let _ = self.line.mention(&Order::Pass(info.signal));
        } else if STOPPERS.contains(&name.as_str()) {
            if info.from_kernel && info.signal != Signal::HUP && self.root_hears_the_terminal() {
                self.interrupted |= info.signal == Signal::INT;
                return;
            }
            let together = self.asked.is_some_and(|first| first.elapsed() < TOGETHER);
            // A hang-up asks nobody to hurry.
            if together || (self.asked.is_some() && info.signal == Signal::HUP) {
                return;
            }
            self.asked.get_or_insert_with(Instant::now);
            if !info.from_kernel && self.outer_job_stops(info.pid) {
                let _ = self.line.mention(&Order::OwnerGone);
                return self.expect_answer();
            }
            let actor = if info.from_kernel {
                Actor::Kernel
            } else {
                let (pid, command) = caller_of(info.pid, &self.request.masked_values());
                Actor::Sender { signal: info.signal, pid, uid: info.uid, command }
            };
            let _ = self.line.mention(&Order::Stop(actor));
            self.expect_answer();
        }
    }

    /// Whether `sender` is the keeper of the job that this one lives for, and is stopping that one: it asks its whole tree,
    /// and we are in it.
    fn outer_job_stops(&self, sender: u32) -> bool {
        let owner = self.request.as_background().and_then(|background| background.owner);
        let (Some(Owner::Job { job }), Some(home)) = (owner, &self.plan.home) else {
            return false;
        };
        let is_keeper = |keeper: ProcId| keeper.pid == sender;
        Home::at(home).job(job).record().is_ok_and(|outer| {
            // Who is outside of our PID namespace has no number here.
            let sent_by_it = sender == 0 || outer.keeper.is_some_and(is_keeper);
            sent_by_it && outer.state.job_state() == JobState::Stopping
        })
    }

    /// Whether a key of the terminal has reached the program as well as us; then what it means is the program's to say.
    /// Once the root has ended, has left our group or is being stopped, there is nobody but us to hear it.
    fn root_hears_the_terminal(&self) -> bool {
        let in_our_group = match (self.told.held, self.told.root) {
            // A namespace's root can't be seen from here by its number; nor can it leave our group without a new session.
            (Some(held), _) if held.has_init() => true,
            // One that is gone, and of whose end we have not heard yet, may have died of just this key.
            (_, Some(root)) => quell_sys::stat(root.pid).map_or(true, |stat| stat.pgid == quell_sys::pgid()),
            (_, None) => true,
        };
        self.plan.session == SessionKind::Shared
            && self.known.root.is_none()
            && !self.stopping
            && in_our_group
    }

    fn on_note(&mut self, note: Note) -> Option<Result<Finished, RunError>> {
        // It lives.
        self.woken = false;
        self.timers.disarm(WatchTimer::Answer);
        match note {
            Note::Born { held, root, inner, cgroup } => {
                self.births += 1;
                if self.births > 1 {
                    self.run_evidence = Some(Evidence::new(Clock::start()));
                }
                let (held, base) = (Some(held), self.told.base.take());
                self.told = KeeperReport { held, root: Some(root), inner, cgroup, base };
                self.begin_run();
                self.root = PidFd::open(root.pid).ok();
                fault_point(FaultPoint::BirthHeard);
                None
            }
            Note::Heard => None,
            Note::Running => {
                // The keeper has told it.
                self.starter = None;
                if self.request.as_background().is_some() {
                    self.timers.arm(WatchTimer::TrimMemory, LASTING);
                }
                None
            }
            Note::Resting(outcome) => {
                self.begin_run();
                self.timers.disarm(WatchTimer::Phase);
                // As long as there is no other run, the job has ended as this one has.
                self.known.root = Some(outcome);
                None
            }
            Note::Members { members, asked } => {
                self.members.push((members, asked));
                None
            }
            Note::Stopping { killing, grace, ending, leaked, ask } => {
                self.stopping = true;
                self.known.stop = Some((grace, ask));
                self.known.ending = ending;
                self.known.leaked = leaked;
                // After the grace comes the kill, after the kill the proof, the audit and the receipt; each says so.
                let plan = self.request.stop;
                let phase = if killing { plan.verify + AUDIT_PATIENCE + READER_PATIENCE } else { grace };
                self.timers.arm(WatchTimer::Phase, phase + SILENCE);
                None
            }
            Note::RootStopped => {
                // The shell that waits for us should see its job stopped. If the root goes on already (the shell has
                // continued the whole group), the news is old.
                let root = self.told.inner.or(self.told.root);
                if root.is_some_and(|root| quell_sys::is_stopped(root.pid)) {
                    quell_sys::stop_self();
                }
                None
            }
            Note::RootExited(outcome) => {
                self.known.root = Some(outcome);
                None
            }
            Note::Failed(failure) => Some(Err(self.error_of(failure))),
            Note::Done { receipt, leaked, failed, unwritten } => Some(match failed {
                // A failed start whose stub can't be proven gone is more than a failed start.
                Some(failure) if receipt.verdict == Verdict::Gone => Err(self.error_of(failure)),
                Some(_) | None => {
                    Ok(Finished { receipt: *receipt, leaked, unwritten, interrupted: self.interrupted })
                }
            }),
        }
    }

    /// What was known of an earlier run is of no use any more.
    fn begin_run(&mut self) {
        (self.known, self.root, self.stopping) = (LastKnown::default(), None, false);
        self.members.clear();
        self.expect_phase_within_timeout();
    }

    fn error_of(&self, failure: StartFailure) -> RunError {
        let program =
            || self.request.command.first().map_or_else(String::new, |word| word.to_string_lossy().into());
        match failure {
            StartFailure::Exec(why, remedy) => RunError::NotExecutable { program: program(), why, remedy },
            StartFailure::Interpreter(why) => RunError::NoInterpreter { program: program(), why },
            StartFailure::Cwd(why) => {
                RunError::Cwd { path: self.request.cwd.clone().unwrap_or_else(|| ".".into()), error: why }
            }
            StartFailure::Containment(why) => RunError::Containment(why),
            StartFailure::Limit(why) => RunError::Limit(why),
            StartFailure::Record(why) => {
                RunError::Record { path: self.plan.home.clone().unwrap_or_default(), error: why }
            }
            StartFailure::Other(why) => RunError::Start(why),
        }
    }

    /// Collects the keeper; how it ended, if that is known.
    pub(super) fn collect_keeper(&self) -> Option<RootOutcome> {
        // The keeper has said its last word and has nothing to do but exit. If somebody stops it on the way, it is ended.
        let patience = Some(Instant::now() + SILENCE);
        let gone = quell_sys::poll_until(&[Polled::Read(self.keeper.as_fd())], patience);
        if !gone.is_ok_and(|gone| gone[0]) {
            self.keeper.signal(Signal::KILL);
        }
        let _ = quell_sys::wait_exit(self.keeper.pid());
        Some(quell_sys::reap(self.keeper.pid()).ok()??.outcome)
    }
}

pub fn random() -> Result<u128, RunError> {
    quell_sys::random_u128().map_err(system("get random bytes"))
}

pub fn system(what: &str) -> impl FnOnce(std::io::Error) -> RunError {
    move |error| RunError::System { what: what.to_owned(), error: error.to_string() }
}
