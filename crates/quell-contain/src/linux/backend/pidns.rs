//! Held by a PID namespace. quell's own init is above the root, and when it dies, the kernel kills every process in the
//! namespace.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use quell_core::{Limits, ProcId, RootOutcome, Signal};
use quell_sys::fault::{FaultPoint, fault_point};
use quell_sys::{ChildRules, PidFd, Polled, Program, Report, Sent};

use super::super::Unavailable;
use super::super::containment::Birth;
use super::super::stop::SignalRound;
use super::{RootExit, SpawnError, Spawned};

pub(super) const DEFEATED_BY: &[&str] = &[];

/// A PID namespace, which exists once the root is spawned.
#[derive(Debug)]
pub struct Pidns {
    /// The limit on processes, including init.
    procs: Option<u64>,
    /// The pipe on which init reports the root's end. None once the report was read.
    report: Option<OwnedFd>,
    /// The root's outcome, once init is alone in the namespace and about to exit.
    leaving: Option<RootOutcome>,
    /// Whether init has reported that the root was stopped.
    root_stopped: bool,
}

impl Pidns {
    /// RLIMIT_NPROC counts only the tree, because a user namespace has its own count. Root is exempt from that limit, and needs
    /// no user namespace.
    pub fn acquire(limits: &Limits) -> Result<Self, Unavailable> {
        if limits.memory.is_some() || limits.cpu.is_some() {
            return Err(Unavailable::limit("a PID namespace holds no memory or CPU limit; a cgroup does"));
        }
        if limits.procs.is_some() && quell_sys::uid() == 0 {
            return Err(Unavailable::limit(
                "root's processes are not counted in a PID namespace; a cgroup counts them",
            ));
        }
        // Init counts too.
        Ok(Self { procs: limits.procs.map(|procs| procs + 1), ..Self::reopen() })
    }

    /// The namespace of a lost keeper. Its init died with the keeper, so there is no report.
    pub fn reopen() -> Self {
        Self { procs: None, report: None, leaving: None, root_stopped: false }
    }

    pub fn spawn(&mut self, program: &Program, rules: &ChildRules) -> Result<Spawned, SpawnError> {
        let rules = ChildRules { procs: self.procs, ..rules.clone() };
        let child = quell_sys::launch_pidns(program, &rules)
            .map_err(|error| SpawnError::Containment(format!("can't make a PID namespace: {error}")))?;
        self.report = Some(child.report);
        let birth = Birth { go: child.go, status: child.status };
        Ok(Spawned { pid: child.init.pid(), birth, held: Ok(()) })
    }

    pub fn source(&self) -> Option<Polled<'_>> {
        self.report.as_ref().map(|report| Polled::Read(report.as_fd()))
    }

    pub fn root_exit(&mut self, init: ProcId) -> RootExit {
        if let Some(pipe) = &self.report {
            let now = Some(Instant::now());
            if !quell_sys::poll_until(&[Polled::Read(pipe.as_fd())], now).is_ok_and(|ready| ready[0]) {
                return RootExit::NotYet;
            }
            let reported = quell_sys::read_report(pipe);
            if reported == Some(Report::Stopped) {
                self.root_stopped = true;
                return RootExit::NotYet;
            }
            self.report = None;
            match reported {
                Some(Report::Ended { outcome, others: true }) => return RootExit::Ended(Some(outcome)),
                // Alone, init exits right after its report. Its exit is the proof, and raises SIGCHLD.
                Some(Report::Ended { outcome, others: false }) => self.leaving = Some(outcome),
                Some(Report::Stopped) | None => {}
            }
        }
        match quell_sys::peek(init.pid) {
            Ok(Some(_)) => RootExit::Ended(self.leaving.take()),
            Ok(None) | Err(_) => RootExit::NotYet,
        }
    }

    pub fn take_root_stop(&mut self) -> bool {
        std::mem::take(&mut self.root_stopped)
    }

    pub fn kill(&self, init: Option<ProcId>, round: &mut SignalRound) {
        let Some(init) = init else { return };
        // Our unreaped child: its PID can't be reused.
        let sent = PidFd::open(init.pid).map_or(Sent::Gone, |pidfd| pidfd.signal(Signal::KILL));
        round.push(Signal::KILL, init, sent);
        round.add_note("KILL to the namespace's init");
        fault_point(FaultPoint::InitKilled);
    }
}
