//! The front: the process that the user called. It prepares, forks the keeper, passes requests on, and finishes the
//! stop itself if the keeper is killed.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::path::PathBuf;

use quell_contain::{Hold, KEEPER_NAME, Unavailable};
use quell_core::{
    Actor, JobId, JobSpec, LifeRules, ProcId, RootOutcome, SCHEMA, SessionKind, Signal, Verdict,
};
use quell_sys::{ChildRules, Forked, PidFd, Polled, Program, SignalFd, SignalInfo};

use super::evidence::{Clock, Evidence, Outlet, wall};
use super::prepare;
use super::store::Store;
use super::supervise::{End, Job, Supervisor};
use super::wire::{Line, Note, Order, StartFailure};
use crate::{Finished, ReceiptTarget, RunError, RunRequest};

/// The signals by which a front is asked to stop its job.
const STOPPERS: [&str; 4] = ["INT", "TERM", "HUP", "QUIT"];
/// The signals that a front passes to the root.
const PASSED: [&str; 3] = ["USR1", "USR2", "CONT"];

fn signals(names: &[&str]) -> Vec<Signal> {
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

/// Runs a job in the foreground and waits until it is proven gone.
///
/// Before: this process has one thread. After: no process of the job is alive, or the receipt names the survivors.
/// With an error, nothing has run and nothing is left behind.
pub fn run(request: RunRequest) -> Result<Finished, RunError> {
    let id = JobId::new(quell_sys::unix_ms(), random()?);
    let marker = format!("{:032x}", random()?);
    let program = prepare::program(&request, id, &marker)?;
    // Whatever the caller ignores on purpose (nohup, a background job of a script) stays ignored, here and there.
    let keep_ignored = quell_sys::ignored_at_start(&signals(&["INT", "HUP", "QUIT"]));
    let strays = quell_contain::strays();
    let session = if quell_sys::has_terminal() { SessionKind::Shared } else { SessionKind::Own };
    let outlets = request.receipts.iter().map(open_outlet).collect::<Result<Vec<_>, _>>()?;

    let watched: Vec<Signal> = signals(&[&STOPPERS[..], &PASSED[..], &["CHLD"]].concat())
        .into_iter()
        .filter(|signal| !keep_ignored.contains(signal))
        .collect();
    // A caller that ignores the death of its children would make ours vanish unseen.
    quell_sys::restore_default(Signal::CHLD);
    let signal_fd = SignalFd::new(&watched).map_err(system("watch signals"))?;
    quell_sys::set_subreaper().map_err(system("become a subreaper"))?;
    let (line, keeper_line) = Line::pair().map_err(system("make a socket pair"))?;

    let hold =
        Hold::acquire(id, request.contain, &request.limits, session, &marker).map_err(
            |error| match error {
                Unavailable::Containment { .. } => RunError::Containment(error.to_string()),
                Unavailable::Limit { .. } => RunError::Limit(error.to_string()),
            },
        )?;
    let clock = Clock::start();
    let evidence = Evidence::new(clock);
    let spec = spec_of(&request, id, &program, marker);
    let store = match &request.home {
        None => None,
        Some(home) => match Store::create(home, &spec) {
            Ok(store) => Some(store),
            Err(error) => {
                let _ = hold.release();
                return Err(error);
            }
        },
    };
    let rules = LifeRules { plan: request.plan, until: request.until, timeout: request.timeout };
    let job = Job { spec, rules, session, store, outlets };

    match quell_sys::fork() {
        Ok(Forked::Child) => {
            drop(line);
            let child = ChildRules {
                own_session: session == SessionKind::Own,
                closed: quell_sys::closed_at_start(),
                keep_ignored,
                open_files: quell_sys::raise_open_files(),
                procs: None,
            };
            keep(job, hold, evidence, keeper_line, &program, &child)
        }
        Ok(Forked::Parent(keeper)) => {
            drop(keeper_line);
            let front = Front {
                keeper,
                line,
                signals: signal_fd,
                root: None,
                cgroup: None,
                outcome: None,
                interrupted: false,
            };
            front.wait(job, hold, evidence, strays)
        }
        Err(error) => {
            if let Some(store) = &job.store {
                store.remove();
            }
            let _ = hold.release();
            Err(RunError::System { what: "fork", error })
        }
    }
}

/// The keeper's whole life.
fn keep(job: Job, hold: Hold, evidence: Evidence, front: Line, program: &Program, rules: &ChildRules) -> ! {
    quell_sys::set_name(KEEPER_NAME);
    // The keeper is spoken to over its line. What is sent to it by signal, such as an outer job's request to its whole
    // tree, is meant for the front, which has got it too.
    for signal in signals(&[&STOPPERS[..], &["USR1", "USR2", "TSTP", "TTIN", "TTOU"]].concat()) {
        quell_sys::ignore(signal);
    }
    let watch = SignalFd::new(&signals(&["CHLD"]));
    match watch.and_then(|watch| quell_sys::set_subreaper().map(|()| watch)) {
        Ok(watch) => {
            let mut supervisor = Supervisor::new(job, hold, evidence, watch, front);
            supervisor.start(program, rules);
            supervisor.run();
            std::process::exit(0)
        }
        // Nothing runs yet; the front sees the line close and puts everything away.
        Err(_) => std::process::exit(125),
    }
}

struct Front {
    keeper: PidFd,
    line: Line,
    signals: SignalFd,
    root: Option<ProcId>,
    cgroup: Option<PathBuf>,
    outcome: Option<RootOutcome>,
    interrupted: bool,
}

impl Front {
    fn wait(
        mut self,
        job: Job,
        hold: Hold,
        evidence: Evidence,
        strays: Vec<ProcId>,
    ) -> Result<Finished, RunError> {
        loop {
            let fds = [
                Polled::Read(self.line.as_fd()),
                Polled::Read(self.signals.as_fd()),
                Polled::Read(self.keeper.as_fd()),
            ];
            // poll fails only for want of memory; the keeper goes on meanwhile, and so do we.
            let Ok(ready) = quell_sys::poll_until(&fds, None) else { continue };
            if ready[1] {
                while let Some(signal) = self.signals.next() {
                    self.on_signal(signal, job.session);
                }
            }
            if ready[0] || ready[2] {
                let arrived = self.line.hear();
                for note in arrived.messages {
                    if let Some(end) = self.on_note(note, &job) {
                        self.collect_keeper();
                        return end;
                    }
                }
                if ready[2] {
                    return self.take_over(job, hold, evidence, strays);
                }
            }
        }
    }

    fn on_signal(&mut self, info: SignalInfo, session: SessionKind) {
        let name = info.signal.to_string();
        if PASSED.contains(&name.as_str()) {
            let _ = self.line.mention(&Order::Pass(info.signal));
        } else if STOPPERS.contains(&name.as_str()) {
            // The terminal's keys have reached the program as well, and what they mean is the program's to say. A
            // hang-up leaves nobody to say anything.
            if info.from_kernel && session == SessionKind::Shared && info.signal != Signal::HUP {
                self.interrupted |= info.signal == Signal::INT;
                return;
            }
            let actor = if info.from_kernel {
                Actor::Kernel
            } else {
                Actor::Sender { signal: info.signal, pid: info.pid, uid: info.uid }
            };
            let _ = self.line.mention(&Order::Stop(actor));
        }
    }

    fn on_note(&mut self, note: Note, job: &Job) -> Option<Result<Finished, RunError>> {
        match note {
            Note::Born { root, cgroup } => {
                self.root = Some(root);
                self.cgroup = cgroup;
                None
            }
            Note::RootStopped => {
                // The shell that waits for us should see its job stopped. If the root goes on already (the shell has
                // continued the whole group), the news is old.
                if self.root.is_some_and(|root| quell_sys::is_stopped(root.pid)) {
                    quell_sys::stop_self();
                }
                None
            }
            Note::RootExited(outcome) => {
                self.outcome = Some(outcome);
                None
            }
            Note::Done { receipt, leaked, failed, unwritten } => {
                let end = End { receipt: *receipt, leaked, failed, unwritten };
                Some(self.finish(end, job))
            }
        }
    }

    fn finish(&self, end: End, job: &Job) -> Result<Finished, RunError> {
        let program = || job.spec.command.first().cloned().unwrap_or_default();
        match end.failed {
            // A failed start whose stub can't be proven gone is more than a failed start.
            Some(failure) if end.receipt.verdict == Verdict::Gone => Err(match failure {
                StartFailure::Exec(why) => RunError::NotExecutable { program: program(), why },
                StartFailure::Cwd(why) => {
                    RunError::Cwd { path: job.spec.cwd.clone(), error: std::io::Error::other(why) }
                }
                StartFailure::Containment(why) => RunError::Containment(why),
                StartFailure::Record(why) => {
                    RunError::Record { path: job.spec.cwd.clone(), error: std::io::Error::other(why) }
                }
                StartFailure::Other(why) => RunError::Start(why),
            }),
            Some(_) | None => Ok(Finished {
                receipt: end.receipt,
                leaked: end.leaked,
                unwritten: end.unwritten,
                interrupted: self.interrupted,
            }),
        }
    }

    fn collect_keeper(&self) {
        // The keeper has said its last word and is exiting; this wait is over at once.
        let _ = quell_sys::wait_exit(self.keeper.pid());
        let _ = quell_sys::reap(self.keeper.pid());
    }

    /// The keeper is gone without a word. Its children are ours now, as we are the next subreaper above it.
    fn take_over(
        self,
        job: Job,
        mut hold: Hold,
        evidence: Evidence,
        strays: Vec<ProcId>,
    ) -> Result<Finished, RunError> {
        self.collect_keeper();
        hold.take_over(self.root, self.cgroup, strays);
        let end = Supervisor::finish(job, hold, evidence, self.signals, self.outcome);
        let (receipt, unwritten) = (end.receipt, end.unwritten);
        Ok(Finished { receipt, leaked: false, unwritten, interrupted: self.interrupted })
    }
}

fn random() -> Result<u128, RunError> {
    quell_sys::random_u128().map_err(system("get random bytes"))
}

fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> RunError {
    move |error| RunError::System { what, error }
}

fn open_outlet(target: &ReceiptTarget) -> Result<Outlet, RunError> {
    let (name, file) = match target {
        ReceiptTarget::File(path) => {
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(path);
            (path.display().to_string(), file)
        }
        ReceiptTarget::Fd(fd) => {
            (format!("descriptor {fd}"), quell_sys::take_descriptor(*fd).map(File::from))
        }
    };
    match file {
        Ok(file) => Ok(Outlet { name, file }),
        Err(error) => Err(RunError::Receipt { target: name, error }),
    }
}

fn spec_of(request: &RunRequest, id: JobId, program: &Program, marker: String) -> JobSpec {
    JobSpec {
        schema: SCHEMA.into(),
        id,
        name: request.name.clone(),
        tags: request.tags.clone(),
        command: request.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        cwd: PathBuf::from(program.cwd.to_string_lossy().into_owned()),
        contain: request.contain,
        until: request.until,
        leak: request.leak,
        plan: request.plan,
        timeout: request.timeout,
        limits: request.limits,
        marker,
        boot_id: quell_sys::boot_id(),
        created: wall(),
    }
}
