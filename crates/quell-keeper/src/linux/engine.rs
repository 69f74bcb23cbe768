//! The loop that owns a tree: events in, a step of the lifecycle, actions out. The keeper runs it from the start of the program
//! to the proof. The front or the standby runs it to finish the stop if the keeper is killed.
//!
//! One thread, one poll. [`Lifecycle`] decides what to do.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use quell_contain::{Birth, Containment, KEEPER_NAME, StopEngine, Tree};
use quell_core::{
    Actor, Cause, EventKind, JobState, Lifecycle, LifecycleEvent, Moment, OnOwnerExit, Phase, ProcId,
    SessionKind, Signal, StateRecord, StepKind, StopMode, StopRequest, Until,
};
use quell_store::{Lock, RESTORE_FILES_SIGNAL, Stream};
use quell_sys::fault::{self, FaultPoint, Role, fault_point};
use quell_sys::{Polled, SignalFd, Sources, Timers};

use super::channel::{FrontCommand, JsonChannel, KeeperEvent, RunResult};
use super::evidence::Evidence;
use super::helper::HelperLink;
use super::host::Host;
use super::job::{SupervisedJob, describe, signals};
use super::keeper_watch::STOP_SIGNALS;
use crate::StartError;

/// After a walk over all children or members, an exit starts the next walk only after this many times as long as the walk took:
/// dying processes need the CPUs too. A count of zero ends the wait at once.
pub const REST: u32 = 3;
/// How long a background job runs before unneeded memory is freed. For short jobs that is not worth it.
pub const TRIM_AFTER: Duration = Duration::from_secs(1);

/// What a keeper waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeeperSource {
    Signals,
    /// The front or the standby.
    Front,
    ExecStatus,
    Tree,
    Output(Stream),
    Input,
    Fifo,
    Owner,
    /// The standard input of a server.
    ServerInput,
    /// The client of a server.
    ServerClient,
    Helper,
    Listener,
    /// A client by its key, to be read or written.
    Client(u64),
}

/// What is due in a keeper, in addition to the deadline of the stop engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeeperTimer {
    TimeToLive,
    TrimMemory,
    NextRun,
    /// The time in which a server may exit by itself is over.
    ServerExit,
}

/// One run of the program.
pub struct Run {
    /// From 1 on.
    pub number: u32,
    pub engine: StopEngine,
    pub containment: Containment,
    pub evidence: Evidence,
    /// The stub, until the program is executed.
    pub birth: Option<Birth>,
    pub failed: Option<StartError>,
    /// When the job was found ready.
    pub ready: Option<Moment>,
    /// The state on record, and since when.
    pub since: Option<(JobState, Moment)>,
    /// The members on record.
    pub members: Vec<ProcId>,
    pub kill_reported: bool,
    /// Signals of `quell signal` that the root did not die of at once, and until when it may.
    pub handled_signals: Vec<(Signal, Instant)>,
    /// When children are reaped again, while many die.
    reap_from: Instant,
    /// Whether it has ended before, and this is the end of a job that waited for its next run.
    pub waited: bool,
    /// The delay before the next run, if there is one.
    pub restart_after: Option<Duration>,
    pub result: Option<RunResult>,
}

impl Run {
    pub fn new(number: u32, life: Lifecycle, containment: Containment, evidence: Evidence) -> Self {
        Self {
            number,
            engine: StopEngine::new(life),
            containment,
            evidence,
            birth: None,
            failed: None,
            ready: None,
            since: None,
            members: Vec::new(),
            kill_reported: false,
            handled_signals: Vec::new(),
            reap_from: Instant::now(),
            waited: false,
            restart_after: None,
            result: None,
        }
    }
}

/// A job under supervision, over all runs of its program.
pub struct Supervisor {
    pub job: SupervisedJob,
    /// The front or the standby, while it lives.
    pub front: Option<JsonChannel>,
    /// SIGCHLD, and the request of a client to restore deleted files.
    pub signals: SignalFd,
    pub lock: Option<Lock>,
    pub helper: HelperLink,
    pub host: Host,
    /// This process, if it is the keeper.
    pub keeper: Option<ProcId>,
    pub timers: Timers<KeeperTimer>,
    /// The state that was last put on record.
    pub recorded: Option<StateRecord>,
    /// Whether the front has left, or may, because the root has exited: what is left is kept here alone.
    pub left: bool,
    pub run: Run,
}

/// What each keeper does first. It ignores signals and gets its commands over the front's channel: if an outer job asks its
/// whole tree to stop, the front gets the same signal and decides.
pub fn become_keeper() -> std::io::Result<SignalFd> {
    quell_sys::set_name(KEEPER_NAME);
    fault::act_as(Role::Keeper);
    fault_point(FaultPoint::KeeperBegun);
    for signal in signals(&[&STOP_SIGNALS[..], &["USR1", "USR2", "TSTP", "TTIN", "TTOU"]].concat()) {
        quell_sys::ignore(signal);
    }
    let signals = SignalFd::new(&[Signal::CHLD, RESTORE_FILES_SIGNAL])?;
    quell_sys::set_subreaper()?;
    Ok(signals)
}

impl Supervisor {
    /// A supervisor without a front, a helper or anything else to serve.
    pub fn new(job: SupervisedJob, signals: SignalFd, run: Run) -> Self {
        Self {
            job,
            front: None,
            signals,
            lock: None,
            helper: HelperLink::default(),
            host: Host::default(),
            keeper: None,
            timers: Timers::default(),
            recorded: None,
            left: false,
            run,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.run.engine.life.state()
    }

    /// Runs until the run has ended, and tells the front.
    pub fn run_to_end(&mut self) -> RunResult {
        let result = loop {
            if let Some(result) = &self.run.result {
                break result.clone();
            }
            self.wait_and_handle();
        };
        if self.run.restart_after.is_none() {
            self.report_end(&result);
        } else if self.front.is_some() {
            self.report(&KeeperEvent::Waiting(result.receipt.root.outcome.clone()));
            fault_point(FaultPoint::RestTold);
        }
        result
    }

    /// One turn of the loop.
    pub(super) fn wait_and_handle(&mut self) {
        // The events of a cgroup matter only for a count. At other times they would wake the loop again and again.
        let counting = self.run.engine.is_counting();
        let tree = self.run.containment.polled();
        let tree = tree.filter(|polled| counting || matches!(polled, Polled::Read(_)));
        let status = self.run.birth.as_ref().map(|birth| Polled::Read(birth.status.as_fd()));
        let mut sources = Sources::default();
        sources.add(KeeperSource::Signals, Polled::Read(self.signals.as_fd()));
        let front = self.front.as_ref().map(|front| Polled::Read(front.as_fd()));
        sources.add_any(KeeperSource::Front, front);
        sources.add_any(KeeperSource::ExecStatus, status);
        sources.add_any(KeeperSource::Tree, tree);
        sources.add_any(KeeperSource::Helper, self.helper.polled());
        self.host.add_sources(&mut sources);
        let due = [self.run.engine.next_wake(self.pace()), self.timers.next(), self.host.deadline()];
        let ready = sources.wait_or_all(due.into_iter().flatten().min());

        let requests = self.host.receive(&ready);
        if ready.has(KeeperSource::Helper) {
            for found in self.helper.receive() {
                self.host.readiness.iter_mut().for_each(|readiness| readiness.found(found));
            }
        }
        // The order settles ties: an exit that has already happened counts before a deadline that has passed meanwhile.
        if ready.has(KeeperSource::ExecStatus) {
            self.read_exec_status();
        }
        self.take_signals();
        self.look_at_children();
        if counting && self.run.result.is_none() {
            StopEngine::count(self);
        }
        if ready.has(KeeperSource::Front) {
            self.receive_commands();
        }
        if self.host.take_owner_exit(&ready) {
            let background = self.job.request.as_background();
            self.owner_gone(background.is_some_and(|rules| rules.on_owner_exit == OnOwnerExit::Keep));
        }
        self.watch_client(&ready);
        for request in requests {
            self.handle_request(request);
        }
        self.check_readiness();
        self.handle_timers();
    }

    fn handle_timers(&mut self) {
        let now = Instant::now();
        if self.timers.take_due(KeeperTimer::TimeToLive, now) {
            self.record_event(EventKind::TimedOut);
            let mode = StopMode::Within(self.job.rules.plan.grace);
            self.ask_stop(Cause::Timeout, Actor::Quell, mode);
        }
        if self.timers.take_due(KeeperTimer::TrimMemory, now) {
            quell_sys::drop_code_pages_in_wait();
        }
        if self.timers.take_due(KeeperTimer::ServerExit, now) {
            self.stop_server();
        }
        if self.run.engine.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
            self.await_exec();
        }
        if self.run.engine.take_deadline() {
            if matches!(self.phase(), Phase::Starting | Phase::Running | Phase::Draining) {
                self.run.evidence.step(StepKind::StopAsked, "its time was up".into(), vec![]);
                self.record_event(EventKind::TimedOut);
            }
            self.step(LifecycleEvent::Deadline);
        }
    }

    /// Reads pending signals. SIGCHLD only wakes the loop. The other one comes from a client that does not find the job's
    /// files.
    fn take_signals(&mut self) {
        while let Some(info) = self.signals.next() {
            if info.signal == RESTORE_FILES_SIGNAL
                && let Some(store) = &self.job.store
            {
                // If this fails, the client asks again.
                let _ = store.restore(&mut self.lock, &self.job.spec, self.recorded.as_ref());
                self.host.control.restore(store);
            }
        }
    }

    fn look_at_children(&mut self) {
        self.notice_root_exit();
        let phase = self.phase();
        if phase == Phase::Running
            && self.job.session == SessionKind::Shared
            && self.run.containment.root_stopped()
        {
            self.report(&KeeperEvent::RootStopped);
        }
        let now = Instant::now();
        let due = match phase {
            Phase::Running | Phase::Draining => true,
            Phase::Asking | Phase::Killing => self.run.reap_from <= now,
            Phase::Created | Phase::Starting | Phase::Ended => false,
        };
        if due {
            let _ = self.run.containment.reap_orphans();
            self.run.reap_from = Instant::now() + REST * now.elapsed();
        }
    }

    pub(super) fn notice_root_exit(&mut self) {
        let Some(outcome) = self.run.containment.root_exit() else { return };
        fault_point(FaultPoint::RootExitSeen);
        self.forget_handled_signals();
        // The stub's last message is read first, so that a failed start does not look like a death by an external signal.
        self.read_exec_status_within(Duration::ZERO);
        if self.phase() == Phase::Ended {
            return;
        }
        self.read_last_output();
        self.report(&KeeperEvent::RootExited(outcome.clone()));
        // An earlier keeper, lost since, may have reported and recorded it.
        if self.run.engine.life.root().is_none() {
            self.run.evidence.step(StepKind::RootExited, describe(&outcome), vec![]);
            self.record_event(EventKind::RootExited { outcome: outcome.clone() });
        }
        self.host.close_input();
        self.forget_client();
        if self.job.rules.until == Until::Root {
            self.end_readiness();
        }
        self.step(LifecycleEvent::RootExited(outcome));
    }

    fn receive_commands(&mut self) {
        let Some(front) = &mut self.front else { return };
        let received = front.recv();
        for command in received.messages {
            self.report(&KeeperEvent::Acknowledged);
            tracing::debug!("command: {command}");
            match command {
                FrontCommand::Stop { actor, mode, ask, signal } => {
                    self.ask_stop_of(StopRequest { cause: Cause::User, actor, mode, ask, signal });
                }
                FrontCommand::OwnerGone => {
                    self.host.owner = None;
                    self.owner_gone(false);
                }
                FrontCommand::OuterJobStops => {
                    (self.host.owner, self.host.owner_named) = (None, None);
                    self.owner_gone(false);
                }
                FrontCommand::Forward(signal) => {
                    self.run.containment.forward_signal(signal);
                }
            }
        }
        if received.closed {
            self.front = None;
            self.front_gone();
        }
    }

    fn front_gone(&mut self) {
        tracing::debug!("the front or standby is gone");
        // A background job continues without its standby. If its program does not run yet, it is not started, because its
        // starter would not get an answer.
        let begun = !matches!(self.phase(), Phase::Created | Phase::Starting);
        if self.job.is_background() && begun {
            self.record_event(EventKind::StandbyLost);
            self.job.standby = None;
            return self.record_state();
        }
        // The caller has its answer, or was killed while it got it.
        if self.left {
            return;
        }
        // A client kills the front of its server if the server takes long to exit. The server keeps the time that it was given.
        if self.has_server_clock() {
            return;
        }
        let mode = StopMode::Within(self.job.rules.plan.brief_grace());
        self.ask_stop(Cause::FrontLost, Actor::Unknown, mode);
    }

    fn owner_gone(&mut self, kept: bool) {
        self.record_event(EventKind::OwnerGone { kept });
        if !kept {
            let mode = StopMode::Within(self.job.rules.plan.grace);
            let actor = match &self.host.owner_named {
                Some(owner) => Actor::Owner { pid: owner.id.pid, command: self.job.mask.apply(&owner.name) },
                None => Actor::Quell,
            };
            self.ask_stop(Cause::OwnerGone, actor, mode);
        }
    }
}
