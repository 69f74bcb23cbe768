//! A job in the background, from the request to the running keeper.
//!
//! ```text
//!   caller ──socket──▶ standby ── keeper ── root ── …
//!                      (subreaper)   (subreaper)        the tree
//! ```

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use quell_contain::{Containment, KeeperCgroup};
use quell_core::{Background, JobRequest, JobSpec, Lifecycle, Owner, SessionKind, Signal, Stdin};
use quell_store::{JobDir, Lock, NameError};
use quell_sys::fault::{self, FaultPoint, Role, fault_point};
use quell_sys::{ChildRules, ChildStdio, Forked, PidFd, SignalFd};

use super::backoff::Backoff;
use super::channel::{JsonChannel, KeeperEvent};
use super::control_server::ControlServer;
use super::engine::{KeeperTimer, Run, Supervisor, become_keeper};
use super::evidence::Evidence;
use super::foreground::check_proc;
use super::helper::{self, HelperBrief, HelperLink};
use super::host::Host;
use super::input::ProgramInput;
use super::job::{SupervisedJob, signals, system};
use super::keeper_watch::{STOP_SIGNALS, fork_keeper};
use super::output::{OutputCapture, OutputPipes};
use super::owner::{named, open_owner};
use super::standby;
use crate::{StartError, StartMessage, StartReply};

const STANDBY_NAME: &str = "quell-standby";

/// With fewer descriptors a keeper can't serve its clients and stop a tree at the same time.
const DESCRIPTORS: u64 = 48;

/// The exit code of a request that the guard refuses.
const REFUSED: u8 = 4;

/// What both sides of the fork need.
pub struct BackgroundSetup {
    pub rules: Background,
    pub pipes: OutputPipes,
    pub owner: Option<PidFd>,
    pub helper: HelperLink,
    pub lock: Lock,
    pub keeper_cgroup: Option<KeeperCgroup>,
    pub stdin: OwnedFd,
}

/// The main function of the process that becomes the standby. Its standard input is a socket: the request comes as one line of
/// JSON, and the reply goes back. Its standard output is what the job reads, if that was given.
///
/// Before: this process was executed for nothing else, and has one thread. `admit` decides whether the request may be
/// carried out, or gives the reply: any process can execute this one with a request of its own. An error means that there is no
/// request to be read.
pub fn keeper_main(
    admit: impl FnOnce(StartMessage, OwnedFd) -> Result<(StartMessage, OwnedFd), StartReply>,
) -> io::Result<ExitCode> {
    let inherited = quell_sys::inherited_descriptors();
    let taken = (quell_sys::take_descriptor(0), quell_sys::take_descriptor(1));
    // A background job must not keep the caller's pipes open.
    quell_sys::close_inherited(&inherited);
    let (socket, stdin) = (taken.0?, taken.1?);
    // Read as a file: a request that does not come from a socket has to pass the guard too.
    let socket = std::fs::File::from(socket);
    let mut text = String::new();
    BufReader::new(&socket).read_line(&mut text)?;
    let starter = UnixStream::from(OwnedFd::from(socket));
    // This fails if it was called by hand, or if its caller died while it sent the request.
    let message: StartMessage = serde_json::from_str(&text)?;
    // Not before: an error so far is printed.
    let _ = quell_sys::redirect_to_null(true, true, true);
    Ok(become_standby(admit(message, stdin), starter))
}

/// Becomes the standby of the job that was admitted, or replies why it was not.
fn become_standby(admitted: Result<(StartMessage, OwnedFd), StartReply>, starter: UnixStream) -> ExitCode {
    let (StartMessage { home, request, .. }, stdin) = match admitted {
        Ok(admitted) => admitted,
        Err(answer) => {
            reply(&mut { starter }, &answer);
            return match answer {
                StartReply::Refused(_) => ExitCode::from(REFUSED),
                StartReply::Started { .. } | StartReply::Failed(_) => ExitCode::FAILURE,
            };
        }
    };
    let nested = request.as_background().is_some_and(|background| background.nested);
    let fork = || if nested { quell_sys::fork().map(|forked| (forked, None)) } else { KeeperCgroup::fork() };
    // The caller may live long and may not reap its children, so this process exits soon. But until the standby has its lock,
    // it looks like an orphan of another job (`possible_members.rs` of quell-contain). So this process adopts it, and waits for
    // the lock.
    let forked =
        quell_sys::set_subreaper().and_then(|()| quell_sys::pipe()).and_then(|pipe| Ok((pipe, fork()?)));
    let (recording, keeper_cgroup) = match forked {
        Ok(((_, recording), (Forked::Child, keeper_cgroup))) => (recording, keeper_cgroup),
        Ok(((recorded, recording), (Forked::Parent(_), _))) => {
            drop((recording, starter, stdin));
            let _ = quell_sys::read(&recorded, &mut [0]);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            reply(&mut { starter }, &StartReply::Failed(system("fork the keeper")(error)));
            return ExitCode::FAILURE;
        }
    };
    fault::act_as(Role::Standby);
    fault_point(FaultPoint::RequestRead);
    let mut starter = Some(starter);
    match run(home, request, keeper_cgroup, stdin, recording, &mut starter) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(starter) = &mut starter {
                reply(starter, &StartReply::Failed(error));
            }
            ExitCode::FAILURE
        }
    }
}

/// Answers the caller. If it is gone, no answer is needed.
pub fn reply(starter: &mut UnixStream, reply: &StartReply) {
    if let Ok(mut bytes) = serde_json::to_vec(reply) {
        bytes.push(b'\n');
        let _ = starter.write_all(&bytes);
    }
}

/// Prepares the job, forks its keeper, and watches it until the job has ended.
fn run(
    home: PathBuf,
    request: JobRequest,
    keeper_cgroup: Option<KeeperCgroup>,
    stdin: OwnedFd,
    recording: OwnedFd,
    starter: &mut Option<UnixStream>,
) -> Result<(), StartError> {
    let Some(rules) = request.as_background().cloned() else {
        return Err(StartError::Start("no background job was asked for".into()));
    };
    check_proc()?;
    quell_sys::check_open_files(DESCRIPTORS).map_err(system("keep a job"))?;
    let _ = quell_sys::leave_session();
    quell_sys::set_name(STANDBY_NAME);
    if !rules.nested {
        quell_sys::mark_as_keeper();
    }
    quell_sys::restore_default(Signal::CHLD);
    signals(&["XFSZ", "PIPE"]).into_iter().for_each(quell_sys::ignore);
    let job = SupervisedJob::new(request, None, Some(home.clone()), SessionKind::Own)?;
    let _ = std::env::set_current_dir("/");
    let owner = open_owner(&home, &rules)?;
    let Some(store) = job.store.clone() else {
        return Err(StartError::Start("a background job needs a record".into()));
    };
    let pipes = OutputPipes::open(rules.pty).map_err(system("make the pipes for its output"))?;
    fault_point(FaultPoint::PipesMade);
    let lock = create_record(&home, &store, &job)?;
    drop(recording);
    let name = job.request.name.clone();
    if let Some(name) = &name {
        claim_name(&store, name)?;
    }
    let remove = |error: StartError| {
        let _ = store.remove();
        name.iter().for_each(|name| store.home().release_name(name, store.id()));
        error
    };
    let keeper_cgroup =
        keeper_cgroup.or_else(|| if rules.nested { None } else { KeeperCgroup::enter_scope(job.spec.id) });
    let helper = helper::start(&HelperBrief {
        job: Some(&store),
        command: job.spec.request.words(),
        mask: &job.mask,
        cwd: job.request.cwd.as_deref(),
        environment: &job.request.env.set,
        hooks: &job.request.hooks,
        ready: &rules.ready,
    });
    let helper = helper.map_err(|error| remove(system("start a helper")(error)))?;
    fault_point(FaultPoint::HelperStarted);
    let setup = BackgroundSetup { rules, pipes, owner, helper, lock, keeper_cgroup, stdin };
    let watched = signals(&[&STOP_SIGNALS[..], &["CHLD"]].concat());
    let forked = fork_keeper(job, &watched, setup, |job, setup, front, evidence| {
        keep(job, setup, front, evidence, starter.take());
    });
    forked.and_then(|(watch, setup)| standby::watch_keeper(watch, setup, starter)).map_err(remove)
}

/// Gives the job its name. If it can't have it, its record is removed.
pub fn claim_name(store: &JobDir, name: &str) -> Result<(), StartError> {
    store.home().claim(name, store.id()).map_err(|error| {
        let _ = store.remove();
        match error {
            NameError::Taken { name, by } => StartError::NameTaken { name, by },
            NameError::Io { error, .. } => record_error(store.home().dir(), &error),
        }
    })?;
    fault_point(FaultPoint::NameClaimed);
    Ok(())
}

fn record_error(home: &Path, error: &io::Error) -> StartError {
    let (path, error_text) = (home.to_owned(), error.to_string());
    if quell_sys::is_out_of_descriptors(error) {
        return StartError::System {
            what: format!("write the job's record in {}", path.display()),
            error: error_text,
        };
    }
    StartError::Record { path, error: error_text }
}

/// Puts the job on record, with everything that is needed to start it again.
fn create_record(home: &Path, store: &JobDir, job: &SupervisedJob) -> Result<Lock, StartError> {
    let failed = |error: io::Error| record_error(home, &error);
    let launch = JobSpec { request: job.request.clone(), ..job.spec.clone() };
    let lock = store.create(&job.spec, Some(&launch)).map_err(failed)?;
    if let Err(error) = store.reserve_space() {
        let _ = store.remove();
        return Err(failed(error));
    }
    Ok(lock)
}

/// The keeper's main function.
fn keep(
    job: SupervisedJob,
    setup: BackgroundSetup,
    mut front: JsonChannel,
    evidence: Evidence,
    starter: Option<UnixStream>,
) {
    let BackgroundSetup { rules, pipes, owner, helper, lock, keeper_cgroup, stdin } = setup;
    let (signals, host) = match prepare_keeper(&job, &rules, pipes) {
        Ok((signals, host)) => {
            let owner_named = match rules.owner {
                Some(Owner::Process { id }) if owner.is_some() => Some(named(id)),
                _ => None,
            };
            (signals, Host { owner, owner_named, starter, ..host })
        }
        Err(failure) => {
            let _ = front.send(&KeeperEvent::Failed(failure));
            return;
        }
    };
    let base = keeper_cgroup.as_ref().and_then(KeeperCgroup::base);
    let (run, mut failure) = new_run(&job, 1, base, evidence);
    let mut supervisor = Supervisor {
        front: Some(front),
        lock: Some(lock),
        helper,
        host,
        keeper: quell_contain::identify(quell_sys::pid()),
        ..Supervisor::new(job, signals, run)
    };
    rules.ttl.into_iter().for_each(|ttl| supervisor.timers.arm(KeeperTimer::TimeToLive, ttl));
    loop {
        match failure.map_or_else(|| open_stdio(&mut supervisor, &rules, &stdin), Err) {
            // The input stays open here until the program has it.
            Ok((stdio, _input)) => {
                let rules = ChildRules {
                    own_session: true,
                    stdio: Some(stdio),
                    closed: [false; 3],
                    keep_ignored: Vec::new(),
                    open_files: quell_sys::raise_open_files(),
                    procs: None,
                    not_held: supervisor.host.starter.as_ref().map(AsRawFd::as_raw_fd),
                };
                supervisor.start(&rules);
            }
            Err(failure) => supervisor.fail_start(failure),
        }
        supervisor.run_to_end();
        if !supervisor.wait_to_restart() {
            return;
        }
        let number = supervisor.run.number + 1;
        (supervisor.run, failure) = new_run(&supervisor.job, number, base, Evidence::new());
    }
}

fn prepare_keeper(
    job: &SupervisedJob,
    rules: &Background,
    pipes: OutputPipes,
) -> Result<(SignalFd, Host), StartError> {
    let signals = become_keeper().map_err(StartError::other)?;
    let Some(store) = &job.store else {
        return Err(StartError::Start("a background job needs a record".into()));
    };
    let output = OutputCapture::open(store.dir(), pipes, rules.max_log, false)
        .map_err(|error| job.unrecorded(error))?;
    fault_point(FaultPoint::OutputOpened);
    let control = ControlServer::open(store).map_err(|error| job.unrecorded(error))?;
    fault_point(FaultPoint::Listening);
    let backoff = Backoff::new(rules.restart);
    Ok((signals, Host { control, output: Some(output), backoff, ..Host::default() }))
}

/// The next run. If it can't begin, the second value says why.
fn new_run(
    job: &SupervisedJob,
    number: u32,
    base: Option<&Path>,
    evidence: Evidence,
) -> (Run, Option<StartError>) {
    let (containment, failure) = match job.acquire(base) {
        Ok(containment) => (containment, None),
        Err(failure) => (Containment::empty(job.spec.id, &job.spec.marker), Some(failure)),
    };
    fault_point(FaultPoint::PlaceAcquired);
    (Run::new(number, Lifecycle::new(job.rules), containment, evidence), failure)
}

/// The standard streams of the next run. The program's input stays open as long as the second value.
fn open_stdio(
    supervisor: &mut Supervisor,
    rules: &Background,
    stdin: &OwnedFd,
) -> Result<(ChildStdio, OwnedFd), StartError> {
    let other = |error: io::Error| StartError::Start(format!("its standard input: {error}"));
    let host = &mut supervisor.host;
    let Some(pipes) = host.output.as_ref().map(|output| &output.pipes) else {
        return Err(StartError::Start("it has no output".into()));
    };
    let output = pipes.for_program();
    if let Some(master) = pipes.terminal() {
        host.input = ProgramInput::open(quell_sys::duplicate(master).map_err(other)?, true).map_err(other)?;
        let stdio = ChildStdio { descriptors: [output[0]; 3], terminal: true };
        return Ok((stdio, quell_sys::null().map_err(other)?));
    }
    let input = match &rules.stdin {
        Stdin::Pipe => {
            let (read, write) = quell_sys::pipe().map_err(other)?;
            host.input = ProgramInput::open(write, false).map_err(other)?;
            read
        }
        Stdin::File(file) => {
            let first = supervisor.run.number == 1;
            let read = if first { quell_sys::duplicate(stdin) } else { quell_sys::open_to_read(file) };
            let read = read.map_err(other)?;
            host.input = ProgramInput::from_file(&read).map_err(other)?;
            read
        }
        Stdin::Null | Stdin::Inherited => quell_sys::duplicate(stdin).map_err(other)?,
    };
    let stdio = ChildStdio { descriptors: [input.as_raw_fd(), output[0], output[1]], terminal: false };
    Ok((stdio, input))
}
