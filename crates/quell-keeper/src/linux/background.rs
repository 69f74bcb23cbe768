//! A job in the background: its standby, which a caller executes, and the keeper below it.
//!
//! ```text
//!   caller ──socket──▶ standby ── keeper ── root ── …
//!                      (subreaper)   (subreaper)        the tree
//! ```
//!
//! The standby does for a keeper what the front does in the foreground: it watches, and finishes the stop if the keeper
//! is killed. It shares the keeper's lock, and the pipes with output that the keeper had not read yet.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use quell_contain::{Containment, KEEPER_NAME, KeeperCgroup, Unavailable};
use quell_core::{
    Background, ContainmentKind, JobRequest, JobSpec, Mask, OnOwnerExit, Owner, ProcId, SessionKind, Signal,
    Stdin,
};
use quell_store::{Home, KNOCK, Liveness, Lock, NameError};
use quell_sys::fault::{self, FaultPoint, Role, fault_point};
use quell_sys::{ChildRules, ChildStdio, FifoHold, Forked, PidFd, SignalFd};

use super::desk::Desk;
use super::evidence::{Clock, Evidence};
use super::front::{Front, Plan, STOPPERS, pin_owner, random, signals, system};
use super::helper::{self, Brief};
use super::input::Input;
use super::prepare;
use super::supervise::{Kit, SupervisedJob, Supervisor};
use super::taps::{Ends, Taps};
use super::waiting::pause;
use super::wire::{JsonChannel, Note, StartFailure};
use crate::{RunError, StartMessage, StartReply};

/// The name of a standby.
const STANDBY_NAME: &str = "quell-standby";

/// The exit code of a request that the guard refuses.
const REFUSED: u8 = 4;

/// The whole life of a standby. Its standard input is a socket on which the request comes as one line of JSON, and on
/// which the reply goes back; its standard output is what the job reads, if that was given.
///
/// Before: this process was executed for nothing else, and has one thread. `admit` decides whether the request may be
/// carried out, or gives the reply: any process can execute this one with a request of its own.
pub fn stand_by(
    admit: impl FnOnce(StartMessage, OwnedFd) -> Result<(StartMessage, OwnedFd), StartReply>,
) -> std::process::ExitCode {
    let inherited = quell_sys::inherited_descriptors();
    let taken = (quell_sys::take_descriptor(0), quell_sys::take_descriptor(1));
    // Nobody's pipe is held open by a background job.
    quell_sys::close_inherited(&inherited);
    let _ = quell_sys::redirect_to_null(true, true, true);
    let (Ok(socket), Ok(stdin)) = taken else { return std::process::ExitCode::FAILURE };
    // Read as a file: a request that comes from anything else than a socket has to pass the guard, too.
    let socket = std::fs::File::from(socket);
    let mut text = String::new();
    let read = BufReader::new(&socket).read_line(&mut text);
    let starter = UnixStream::from(OwnedFd::from(socket));
    let message = match read.map(|_| serde_json::from_str::<StartMessage>(&text)) {
        Ok(Ok(message)) => message,
        // Whoever called it by hand, or died while it spoke.
        Ok(Err(_)) | Err(_) => return std::process::ExitCode::FAILURE,
    };
    let (StartMessage { home, request }, stdin) = match admit(message, stdin) {
        Ok(admitted) => admitted,
        Err(answer) => {
            reply(&mut { starter }, &answer);
            return match answer {
                StartReply::Refused(_) => std::process::ExitCode::from(REFUSED),
                StartReply::Started { .. } | StartReply::Failed(_) => std::process::ExitCode::FAILURE,
            };
        }
    };
    let nested = request.as_background().is_some_and(|background| background.nested);
    let Ok((recorded, recording)) = quell_sys::pipe() else { return std::process::ExitCode::FAILURE };
    // The caller may live long and have other things to do than to collect us.
    let forked = if nested { quell_sys::fork().map(|forked| (forked, None)) } else { KeeperCgroup::fork() };
    let keeper_cgroup = match forked {
        Ok((Forked::Child, keeper_cgroup)) => keeper_cgroup,
        Ok((Forked::Parent(_), _)) => {
            // Until the standby has its lock, nothing tells it from an orphan of another job (see `doubt.rs`). So it has
            // a parent as long.
            drop((recording, starter, stdin));
            let _ = quell_sys::read(&recorded, &mut [0]);
            return std::process::ExitCode::SUCCESS;
        }
        Err(_) => return std::process::ExitCode::FAILURE,
    };
    drop(recorded);
    fault::act_as(Role::Standby);
    fault_point(FaultPoint::RequestRead);
    // Of the copies that a caller waits for the end of, the keeper has one of its own, and closes this one.
    let mut starter = Some(starter);
    match serve(home, request, keeper_cgroup, &mut starter, stdin, recording) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            if let Some(starter) = &mut starter {
                reply(starter, &StartReply::Failed(error));
            }
            std::process::ExitCode::FAILURE
        }
    }
}

/// Tells the caller; one that is gone does not want to know.
pub fn reply(starter: &mut UnixStream, reply: &StartReply) {
    if let Ok(mut bytes) = serde_json::to_vec(reply) {
        bytes.push(b'\n');
        let _ = starter.write_all(&bytes);
    }
}

/// What both processes need of a background job.
pub struct Backstage {
    pub ends: Ends,
    pub owner: Option<PidFd>,
    pub helper: Option<JsonChannel>,
    pub lock: Lock,
    pub keeper_cgroup: Option<KeeperCgroup>,
    pub stdin: OwnedFd,
    pub standby: Option<ProcId>,
    pub mask: Mask,
}

fn serve(
    home: PathBuf,
    request: JobRequest,
    keeper_cgroup: Option<KeeperCgroup>,
    starter: &mut Option<UnixStream>,
    stdin: OwnedFd,
    recording: OwnedFd,
) -> Result<(), RunError> {
    let Some(background) = request.as_background().cloned() else {
        return Err(RunError::Start("no background job was asked for".into()));
    };
    if !quell_sys::proc_is_ours() {
        return Err(RunError::Proc(
            "/proc shows another PID namespace than the one this process is in".into(),
        ));
    }
    let _ = quell_sys::leave_session();
    quell_sys::set_name(STANDBY_NAME);
    if !background.nested {
        quell_sys::mark_as_keeper();
    }
    quell_sys::restore_default(Signal::CHLD);
    signals(&["XFSZ", "PIPE"]).into_iter().for_each(quell_sys::ignore);
    let id = quell_contain::new_job_id().map_err(system("get random bytes"))?;
    fault::work_for(&id);
    let marker = format!("{:032x}", random()?);
    let program = prepare::program(&request, id, &marker)?;
    let _ = std::env::set_current_dir("/");
    let plan = Plan {
        id,
        marker,
        program,
        session: SessionKind::Own,
        keep_ignored: Vec::new(),
        preexisting_children: Vec::new(),
        front: None,
        inherited: Vec::new(),
        home: Some(home.clone()),
    };
    let owner = open_owner(&home, &background)?;
    let mask = request.masked_values();
    let job = SupervisedJob::new(&request, &plan, Vec::new(), &mask);
    let Some(store) = job.store.clone() else {
        return Err(RunError::Start("a background job needs a record".into()));
    };
    let ends = Ends::open(background.pty).map_err(system("make the pipes for its output"))?;
    fault_point(FaultPoint::PipesMade);
    let lock = record(&home, &request, &job)?;
    drop(recording);
    let name = request.name.clone();
    if let Some(name) = &name {
        store.home().claim(name, id).map_err(|error| {
            let _ = store.remove();
            match error {
                NameError::Taken { name, by } => RunError::NameTaken { name, by },
                NameError::Io { error, .. } => record_error(&home, &error),
            }
        })?;
        fault_point(FaultPoint::NameClaimed);
    }
    let failed = |error| {
        let _ = store.remove();
        if let Some(name) = &name {
            store.home().release_name(name, id);
        }
        error
    };
    let keeper_cgroup =
        keeper_cgroup.or_else(|| if background.nested { None } else { KeeperCgroup::enter_scope(id) });
    let helper = helper::start(&Brief {
        job: Some(&store),
        command: job.spec.request.words(),
        cwd: request.cwd.as_deref(),
        environment: &request.env.set,
        hooks: &request.hooks,
        ready: &background.ready,
    });
    let helper = helper.map_err(|error| failed(system("start a helper")(error)))?;
    fault_point(FaultPoint::HelperStarted);
    let standby = quell_contain::identify(quell_sys::pid());
    let backstage = Backstage { ends, owner, helper, lock, keeper_cgroup, stdin, standby, mask };
    split(request, plan, job, backstage, starter).map_err(failed)
}

/// Forks the keeper; this process watches it from then on.
fn split(
    request: JobRequest,
    plan: Plan,
    job: SupervisedJob,
    backstage: Backstage,
    starter: &mut Option<UnixStream>,
) -> Result<(), RunError> {
    let copy = starter.as_ref().and_then(|starter| starter.try_clone().ok());
    let watched = signals(&[&STOPPERS[..], &["CHLD"]].concat());
    let signal_fd = SignalFd::new(&watched).map_err(system("watch signals"))?;
    quell_sys::set_subreaper().map_err(system("become a subreaper"))?;
    let (line, keeper_line) = JsonChannel::pair().map_err(system("make a socket pair"))?;
    let evidence = Evidence::new(Clock::start());
    match quell_sys::fork().map_err(system("fork"))? {
        Forked::Child => {
            drop((line, signal_fd, starter.take()));
            keep(&request, &plan, job, backstage, evidence, keeper_line, copy)
        }
        Forked::Parent(keeper) => {
            drop(keeper_line);
            fault_point(FaultPoint::KeeperForked);
            let front = Front::new(request, plan, keeper, line, signal_fd);
            front.stand_by(copy, job, backstage, evidence)
        }
    }
}

fn record_error(home: &Path, error: &io::Error) -> RunError {
    let (path, error_text) = (home.to_owned(), error.to_string());
    if quell_sys::is_out_of_descriptors(error) {
        return RunError::System {
            what: format!("write the job's record in {}", path.display()),
            error: error_text,
        };
    }
    RunError::Record { path, error: error_text }
}

/// Puts the job on record, with what is needed to start it again.
fn record(home: &Path, request: &JobRequest, job: &SupervisedJob) -> Result<Lock, RunError> {
    let failed = |error: io::Error| record_error(home, &error);
    let store = job.store.as_ref().ok_or_else(|| failed(io::Error::other("there is no home")))?;
    let launch = JobSpec { request: request.clone(), ..job.spec.clone() };
    let lock = store.create(&job.spec, Some(&launch)).map_err(failed)?;
    if let Err(error) = store.reserve_space() {
        let _ = store.remove();
        return Err(failed(error));
    }
    Ok(lock)
}

/// The owner, pinned and checked.
fn open_owner(home: &Path, background: &Background) -> Result<Option<PidFd>, RunError> {
    let (owner, what) = match background.owner {
        None => return Ok(None),
        Some(Owner::Process { id }) => (Some(id), format!("process {}", id.pid)),
        Some(Owner::Job { job }) => {
            let outer = Home::at(home).job(job);
            let record = outer.record().ok();
            let tree = record.as_ref().and_then(|record| record.state.tree());
            let held = tree.map(|tree| tree.containment);
            let keeper = record.and_then(|record| record.keeper);
            let unseen = keeper.is_some_and(|keeper| !quell_contain::is_alive(keeper));
            if held.is_some_and(ContainmentKind::has_init)
                && unseen
                && matches!(outer.liveness(), Ok(Liveness::Supervised))
            {
                // We are in its PID namespace, where its keeper has no number. Nothing in there outlives it.
                return Ok(None);
            }
            (keeper, format!("job {job}"))
        }
    };
    let pinned = owner.and_then(|owner| pin_owner(owner).ok());
    match (pinned, background.on_owner_exit) {
        (None, OnOwnerExit::Stop) => Err(RunError::OwnerGone(what)),
        (pinned, OnOwnerExit::Stop | OnOwnerExit::Keep) => Ok(pinned),
    }
}

/// The keeper's whole life.
fn keep(
    request: &JobRequest,
    plan: &Plan,
    job: SupervisedJob,
    backstage: Backstage,
    evidence: Evidence,
    mut front: JsonChannel,
    starter: Option<UnixStream>,
) -> ! {
    quell_sys::set_name(KEEPER_NAME);
    fault::act_as(Role::Keeper);
    fault_point(FaultPoint::KeeperBegun);
    for signal in signals(&[&STOPPERS[..], &["USR1", "USR2", "TSTP", "TTIN", "TTOU"]].concat()) {
        quell_sys::ignore(signal);
    }
    match prepare_keeper(request, &job, backstage) {
        Ok((desk, signals, lock, crew, stdin)) => {
            let kit = Kit {
                front: Some(front),
                signals,
                desk: Some(Box::new(desk)),
                lock: Some(lock),
                crew,
                starter,
                published: None,
                helper: None,
            };
            Keeper { request, plan, stdin, run: 0 }.live(job, kit, evidence);
        }
        Err(failure) => {
            let _ = front.say(&Note::Failed(failure));
        }
    }
    std::process::exit(0)
}

/// Who keeps the job, for its record.
#[derive(Clone, Debug, Default)]
pub struct Crew {
    pub keeper: Option<ProcId>,
    pub standby: Option<ProcId>,
    pub keeper_cgroup: Option<KeeperCgroup>,
    pub mask: Mask,
}

type Prepared = (Desk, SignalFd, Lock, Crew, OwnedFd);

fn prepare_keeper(
    request: &JobRequest,
    job: &SupervisedJob,
    backstage: Backstage,
) -> Result<Prepared, StartFailure> {
    let other = |error: io::Error| StartFailure::Other(error.to_string());
    let (Some(background), Some(store)) = (request.as_background(), &job.store) else {
        return Err(StartFailure::Other("no background job was asked for".into()));
    };
    let watch = SignalFd::new(&[Signal::CHLD, KNOCK]).map_err(other)?;
    quell_sys::set_subreaper().map_err(other)?;
    let record = StartFailure::record;
    let taps = Taps::open(store.dir(), backstage.ends, background.max_log, false).map_err(record)?;
    fault_point(FaultPoint::TapsOpened);
    let listener = store.listen().map_err(record)?;
    fault_point(FaultPoint::Listening);
    listener.set_nonblocking(true).map_err(record)?;
    let mut desk = Desk::new(
        background.clone(),
        request.hooks.clone(),
        taps,
        Some(listener),
        backstage.owner,
        backstage.helper,
    );
    desk.socket = store.socket();
    let crew = Crew {
        keeper: quell_contain::identify(quell_sys::pid()),
        standby: backstage.standby,
        keeper_cgroup: backstage.keeper_cgroup,
        mask: backstage.mask,
    };
    Ok((desk, watch, backstage.lock, crew, backstage.stdin))
}

/// The keeper over all runs of its program.
struct Keeper<'a> {
    request: &'a JobRequest,
    plan: &'a Plan,
    /// What the caller gave the program to read.
    stdin: OwnedFd,
    run: u32,
}

impl Keeper<'_> {
    fn live(mut self, mut job: SupervisedJob, mut kit: Kit, mut evidence: Evidence) {
        loop {
            self.run += 1;
            let (hold, refused) = match self.acquire(&kit) {
                Ok(hold) => (hold, None),
                Err(failure) => (Containment::nothing(self.plan.id, &self.plan.marker), Some(failure)),
            };
            fault_point(FaultPoint::PlaceAcquired);
            let mut supervisor = Supervisor::new(job, hold, evidence, kit, self.run);
            let stdio = match refused {
                Some(failure) => Err(failure),
                None => self.open_stdio(&mut supervisor),
            };
            match stdio {
                // What the program reads stays open until the program has it.
                Ok((stdio, _read)) => {
                    let rules = rules(stdio, supervisor.starter());
                    supervisor.start(&self.plan.program, &rules);
                }
                Err(failure) => supervisor.fail_start(failure),
            }
            let (end, again);
            (end, again, job, kit) = supervisor.run_background();
            let go_on = again.is_some_and(|delay| pause(&job, &mut kit, self.run, delay, &end.receipt));
            if !go_on {
                return;
            }
            evidence = Evidence::new(Clock::start());
        }
    }

    fn acquire(&self, kit: &Kit) -> Result<Containment, StartFailure> {
        let base = kit.crew.keeper_cgroup.as_ref().and_then(KeeperCgroup::base);
        let (contain, limits) = (self.request.contain, &self.request.limits);
        Containment::acquire(self.plan.id, base, contain, limits, self.plan.session, &self.plan.marker)
            .map_err(|error| match error {
                Unavailable::Containment { .. } => StartFailure::Containment(error.to_string()),
                Unavailable::Limit { .. } => StartFailure::Limit(error.to_string()),
            })
    }

    /// The standard streams of the next run. What the program reads is open as long as the second part lives.
    fn open_stdio(&self, supervisor: &mut Supervisor) -> Result<(ChildStdio, OwnedFd), StartFailure> {
        let other = |error: io::Error| StartFailure::Other(format!("its standard input: {error}"));
        let (Some(background), Some(desk)) = (self.request.as_background(), supervisor.desk()) else {
            return Err(StartFailure::Other("no background job was asked for".into()));
        };
        let output = desk.taps.ends.for_program();
        if let Some(master) = desk.taps.ends.terminal() {
            desk.input = Input::open(master.try_clone().map_err(other)?, true).map_err(other)?;
            let stdio = ChildStdio { descriptors: [output[0]; 3], terminal: true };
            return Ok((stdio, quell_sys::null().map_err(other)?));
        }
        let read = match &background.stdin {
            Stdin::Pipe => {
                let (read, write) = quell_sys::pipe().map_err(other)?;
                desk.input = Input::open(write, false).map_err(other)?;
                read
            }
            Stdin::File(file) => {
                let read = if self.run > 1 { quell_sys::open_to_read(file) } else { self.stdin.try_clone() };
                let read = read.map_err(other)?;
                desk.fifo = FifoHold::open(&read).map_err(other)?;
                read
            }
            Stdin::Null | Stdin::Inherited => self.stdin.try_clone().map_err(other)?,
        };
        let stdio = ChildStdio { descriptors: [read.as_raw_fd(), output[0], output[1]], terminal: false };
        Ok((stdio, read))
    }
}

impl Kit {
    /// Takes in what signals have come. They say no more than that there is something to look at; but a knock says that a
    /// client has missed some of the job's files.
    pub fn hear_signals(&mut self, job: &SupervisedJob) {
        while let Some(info) = self.signals.next() {
            if info.signal == KNOCK
                && let Some(store) = &job.store
            {
                // What fails now is asked for again.
                let _ = store.restore(&mut self.lock, &job.spec, self.published.as_ref());
                if let Some(desk) = &mut self.desk {
                    desk.open_again(store);
                }
            }
        }
    }
}

fn rules(stdio: ChildStdio, starter: Option<&UnixStream>) -> ChildRules {
    ChildRules {
        own_session: true,
        stdio: Some(stdio),
        closed: [false; 3],
        keep_ignored: Vec::new(),
        open_files: quell_sys::raise_open_files(),
        procs: None,
        not_held: starter.map(AsRawFd::as_raw_fd),
    }
}
