//! A job in the foreground: the front, which the user called, and its keeper.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;

use quell_contain::Containment;
use quell_core::{
    Environment, Foreground, JobRequest, JobSpec, Lifecycle, ProcId, ReadyCheck, RootOutcome, SessionKind,
    Signal, StdoutUse,
};
use quell_store::{JobEnd, Lock, NameError};
use quell_sys::fault::{self, FaultPoint, Role, fault_point};
use quell_sys::{ChildRules, PidFd, SignalFd, TerminalModes};

use super::background::claim_name;
use super::channel::{JsonChannel, KeeperEvent};
use super::engine::{Run, Supervisor, become_keeper};
use super::evidence::Evidence;
use super::helper::{self, HelperBrief, HelperLink};
use super::host::Host;
use super::job::{SupervisedJob, signals, system};
use super::keeper_watch::{KeeperOutcome, STOP_SIGNALS, fork_keeper};
use super::left;
use super::owner::{named, pin_owner};
use super::receipt_sink::ReceiptSink;
use super::server::ServerWatch;
use super::stop_signals::FORWARDED;
use super::takeover::TakeoverResources;
use crate::{Returned, StartError};

/// What both sides of the fork need.
struct ForegroundSetup {
    helper: HelperLink,
    /// Signals that the caller ignores on purpose (nohup, a background job of a script). They stay ignored in front and program.
    keep_ignored: Vec<Signal>,
    /// Children that this process had before: not part of the job.
    preexisting_children: Vec<ProcId>,
    /// Descriptors that the caller has passed on. Only the program gets them.
    inherited: Vec<i32>,
    /// The process that the job lives for in addition to the caller.
    owner: Option<PidFd>,
}

/// With fewer descriptors a keeper can't stop a tree.
const DESCRIPTORS: u64 = 20;

/// Runs a job in the foreground and waits until it is proven gone, or until its root has exited if what it leaves is kept.
///
/// Before: this process has one thread, and has opened nothing yet. After: no process of the job is alive, or the
/// receipt names the survivors, or a keeper goes on with what the root left. With an error, nothing has run and nothing is left behind.
pub fn run(request: JobRequest, home: Option<PathBuf>) -> Result<Returned, StartError> {
    fault::act_as(Role::Front);
    let mut inherited = quell_sys::inherited_descriptors();
    check_proc()?;
    quell_sys::check_open_files(DESCRIPTORS).map_err(system("keep a job"))?;
    let Some(foreground) = request.as_foreground().cloned() else {
        return Err(StartError::Start("no foreground job was asked for".into()));
    };
    if request.keeps_left() && home.is_none() {
        return Err(StartError::Start("what it leaves behind can't be kept without a record".into()));
    }
    let sinks = ReceiptSink::open_all(&foreground.receipts, &mut inherited)?;
    let made: Vec<PathBuf> = sinks.iter().filter_map(|sink| sink.made.clone()).collect();
    let finished = run_with(request, &foreground, home, inherited, sinks);
    if finished.is_err() {
        // A job that never ran leaves no file, except for a receipt that says why.
        let is_empty = |path: &PathBuf| path.metadata().is_ok_and(|found| found.len() == 0);
        made.iter().filter(|path| is_empty(path)).for_each(|path| drop(std::fs::remove_file(path)));
    }
    finished
}

/// Fails if /proc shows the PIDs of another namespace.
pub fn check_proc() -> Result<(), StartError> {
    if quell_sys::proc_is_ours() {
        return Ok(());
    }
    let why = "/proc shows another PID namespace than the one this process is in, so no pid can be trusted";
    Err(StartError::Proc(why.into()))
}

fn run_with(
    request: JobRequest,
    foreground: &Foreground,
    home: Option<PathBuf>,
    inherited: Vec<i32>,
    receipts: Vec<ReceiptSink>,
) -> Result<Returned, StartError> {
    let owner = foreground.owner.map(pin_owner).transpose()?;
    let mask = request.masked_values();
    if [&request.name, &request.session].into_iter().flatten().any(|name| mask.hides(name)) {
        return Err(StartError::MaskedName);
    }
    if let Some(path) = &foreground.stdin {
        let bad = |error: std::io::Error| StartError::Stdin { path: path.clone(), error: error.to_string() };
        File::open(path).and_then(|file| quell_sys::replace_stdin(&file)).map_err(bad)?;
    }
    // The keys of a terminal are for the client of a server, and never for the server.
    let terminal = if foreground.server.is_none() { TerminalModes::now() } else { None };
    let session = if terminal.is_some() { SessionKind::Shared } else { SessionKind::Own };
    let mut job = SupervisedJob::new(request, foreground.id, home, session)?;
    job.receipts = receipts;
    // If the caller ignores SIGCHLD, our children would be reaped by the kernel, unseen.
    quell_sys::restore_default(Signal::CHLD);
    // Before the children of this process are listed, and before it is a subreaper: the helper is not part of the job.
    let helper = start_helper(&job)?;
    // After the helper: hooks get the caller's own limit, like the program.
    quell_sys::raise_open_files();
    let setup = ForegroundSetup {
        helper,
        keep_ignored: quell_sys::ignored_at_start(&signals(&["INT", "HUP", "QUIT"])),
        preexisting_children: quell_contain::preexisting_children(),
        inherited,
        owner,
    };
    let mut watched = signals(&[&STOP_SIGNALS[..], &FORWARDED[..], &["CHLD"]].concat());
    watched.retain(|signal| !setup.keep_ignored.contains(signal));
    watched.push(Signal::ASK_FRONT);
    if job.server().is_some() {
        // Ctrl-Z stops the client. This process goes on, so that it can pass on what the client does next.
        signals(&["TSTP", "TTIN", "TTOU"]).into_iter().for_each(quell_sys::ignore);
    }
    // At a file size limit a write should fail, and not kill this process.
    signals(&["XFSZ"]).into_iter().for_each(quell_sys::ignore);
    let (mut watch, mut setup) = fork_keeper(job, &watched, setup, keep)?;
    // EOF on the caller's pipes must depend on the program alone. quell keeps only what it writes to itself.
    let _ = quell_sys::redirect_to_null(true, foreground.stdout == StdoutUse::Release, false);
    quell_sys::close_inherited(&setup.inherited);
    // Where this process may exit before the job has ended, the keeper watches the owner.
    watch.owner = setup.owner.take().filter(|_| !watch.job.keeps_left());
    let finished = match watch.run() {
        KeeperOutcome::Done(finished) => finished,
        KeeperOutcome::Left(left) => return Ok(Returned::Left(left)),
        KeeperOutcome::Failed(error) => return Err(error),
        KeeperOutcome::Lost => {
            let ForegroundSetup { helper, preexisting_children, .. } = setup;
            let resources = TakeoverResources { helper, preexisting_children, lock: None, output: None };
            Box::new(watch.take_over(resources))
        }
    };
    // A shell does so too after a program that a signal has ended. It can't see that of a program below quell.
    if let (Some(terminal), RootOutcome::Signaled { .. }) = (terminal, &finished.receipt.root.outcome) {
        terminal.restore();
    }
    Ok(Returned::Finished(finished))
}

/// Starts the process that runs the hooks of a foreground job, if there are any.
fn start_helper(job: &SupervisedJob) -> Result<HelperLink, StartError> {
    let brief = HelperBrief {
        job: job.store.as_ref(),
        command: job.spec.request.words(),
        mask: &job.mask,
        cwd: None,
        environment: &[],
        hooks: &job.request.hooks,
        ready: &ReadyCheck::default(),
    };
    helper::start(&brief).map_err(system("start a helper"))
}

/// The keeper's main function. The keeper makes everything that has to be removed again, so that nothing is left behind if the
/// front is killed.
fn keep(job: SupervisedJob, setup: ForegroundSetup, mut front: JsonChannel, evidence: Evidence) {
    let Prepared { signals, lock, containment, host } = match prepare_keeper(&job, setup.owner) {
        Ok(prepared) => prepared,
        Err(failure) => {
            // An error means that the front is gone.
            let _ = front.send(&KeeperEvent::Failed(failure));
            return;
        }
    };
    let rules = ChildRules {
        own_session: job.session == SessionKind::Own,
        stdio: None,
        closed: quell_sys::closed_at_start(),
        keep_ignored: setup.keep_ignored,
        open_files: quell_sys::raise_open_files(),
        procs: None,
        not_held: None,
    };
    let run = Run::new(1, Lifecycle::new(job.rules), containment, evidence);
    let mut supervisor = Supervisor {
        front: Some(front),
        lock,
        helper: setup.helper,
        host,
        keeper: quell_contain::identify(quell_sys::pid()),
        ..Supervisor::new(job, signals, run)
    };
    supervisor.start(&rules);
    supervisor.host.server.iter_mut().for_each(ServerWatch::watch_stdin);
    // The terminal and the pipes are the program's alone.
    let _ = quell_sys::redirect_to_null(true, true, true);
    // A keeper must not keep a mount busy.
    let _ = std::env::set_current_dir("/");
    quell_sys::close_inherited(&setup.inherited);
    supervisor.run_to_end();
}

/// What a keeper makes before it starts the program.
struct Prepared {
    signals: SignalFd,
    lock: Option<Lock>,
    containment: Containment,
    host: Host,
}

fn prepare_keeper(job: &SupervisedJob, owner: Option<PidFd>) -> Result<Prepared, StartError> {
    let signals = become_keeper().map_err(StartError::other)?;
    let server = job.server().map(ServerWatch::open).transpose()?;
    // The record comes before the cgroup: if this process is killed, the next sweep finds the cgroup by the record. The record
    // includes the masked values, for the command that shows or finishes the job.
    let launch = (!job.request.mask.is_empty()).then(|| masked_variables(job));
    let lock = job.store.as_ref().map(|store| store.create(&job.spec, launch.as_ref())).transpose();
    let lock = lock.map_err(|error| job.unrecorded(error))?;
    if let (Some(store), Some(name)) = (&job.store, &job.request.name) {
        // A client starts the same server once for each of its sessions: the first one of them has the name.
        let is_taken = || matches!(store.home().claim(name, store.id()), Err(NameError::Taken { .. }));
        if server.is_none() || !is_taken() {
            claim_name(store, name)?;
        }
    }
    let discard = || job.store.as_ref().map(|store| JobEnd::discard(store, job.request.name.as_deref()));
    let control = left::open_control(job).inspect_err(|_| drop(discard()))?;
    let containment = job.acquire(None).inspect_err(|_| drop(discard()))?;
    fault_point(FaultPoint::PlaceAcquired);
    let recorded = job.request.as_foreground().and_then(|foreground| foreground.owner);
    let owner_named = recorded.filter(|_| owner.is_some()).map(named);
    // Otherwise the front watches it.
    let owner = owner.filter(|_| job.keeps_left());
    let host = Host { control, owner, owner_named, server, ..Host::default() };
    Ok(Prepared { signals, lock, containment, host })
}

/// The specification with the variables that are masked elsewhere, and no others.
fn masked_variables(job: &SupervisedJob) -> JobSpec {
    let request = &job.request;
    let is_masked = |(key, _): &(OsString, OsString)| request.mask.iter().any(|name| key == name.as_str());
    let set = request.env.variables().into_iter().filter(is_masked).collect();
    let env = Environment { clear: true, set };
    JobSpec { request: JobRequest { env, ..request.clone() }, ..job.spec.clone() }
}
