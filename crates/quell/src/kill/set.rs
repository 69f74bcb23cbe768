//! The processes that are meant, each pinned.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use quell_core::guard::ProcessFacts;
use quell_core::{ProcId, Signal};
use quell_sys::{PidFd, Polled, Sent};
use serde::Serialize;

use super::facts;
use crate::{Error, Result};

/// More than any tree that somebody ends by hand.
const LARGEST: usize = 20_000;

/// One that was signalled.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Member {
    /// Who.
    pub id: ProcId,
    /// What it was called.
    pub name: String,
    /// Whether it is alive.
    pub alive: bool,
}

/// One of them.
pub(super) struct Process {
    pub pidfd: PidFd,
    pub id: ProcId,
    pub facts: ProcessFacts,
    threads: u32,
    sent: bool,
}

impl Process {
    /// Pins whoever has this number, and looks at it. None if it has ended meanwhile.
    fn pin(pid: u32) -> io::Result<Option<Self>> {
        let pidfd = PidFd::open(pid)?;
        let Ok(stat) = quell_sys::stat(pid) else { return Ok(None) };
        let facts = facts::gather(&stat);
        // As long as it lives its number is its own: so all of that was about this very one.
        let alive = pidfd.is_alive();
        let id = ProcId { pid, start: stat.start };
        Ok(alive.then_some(Self { pidfd, id, facts, threads: stat.threads, sent: false }))
    }

    pub fn name(&self) -> &str {
        self.facts.names.first().map_or("", String::as_str)
    }
}

/// All of them; the first is the one that was named.
pub(super) struct Set {
    all: Vec<Process>,
}

impl Set {
    pub fn pin(pid: u32, tree: bool) -> Result<Self> {
        let gone = || Error::NoSuchProcess(pid);
        let root = match Process::pin(pid) {
            Ok(root) => root.ok_or_else(gone)?,
            // ESRCH, or the number of a thread that leads no process.
            Err(error) if matches!(error.raw_os_error(), Some(3 | 22 | 2)) => return Err(gone()),
            Err(error) => return Err(Error::io(format!("/proc/{pid}"))(error)),
        };
        let mut set = Self { all: vec![root] };
        if tree {
            set.grow(|_| true);
        }
        Ok(set)
    }

    /// Takes in whoever is below them by now and may be.
    pub fn grow(&mut self, may: impl Fn(&ProcessFacts) -> bool) {
        let mut at = 0;
        while at < self.all.len() && self.all.len() < LARGEST {
            let parent = &self.all[at];
            let children = quell_sys::children(parent.id.pid, parent.threads.max(1)).unwrap_or_default();
            // A number read from one that has ended may be that of a stranger's child.
            let children = if parent.pidfd.is_alive() { children } else { Vec::new() };
            let parent = parent.id.pid;
            for pid in children {
                if self.all.iter().any(|known| known.id.pid == pid && known.pidfd.is_alive()) {
                    continue;
                }
                let child = Process::pin(pid).ok().flatten();
                let is_child = |_: &Process| quell_sys::stat(pid).is_ok_and(|stat| stat.ppid == parent);
                if let Some(child) = child.filter(is_child).filter(|child| may(&child.facts)) {
                    self.all.push(child);
                }
            }
            at += 1;
        }
    }

    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.all.iter()
    }

    pub fn root(&self) -> ProcId {
        self.all[0].id
    }

    pub fn name(&self) -> String {
        self.all[0].name().to_owned()
    }

    pub fn members(&self) -> Vec<Member> {
        let of = |process: &Process| Member {
            id: process.id,
            name: process.name().to_owned(),
            alive: process.pidfd.is_alive(),
        };
        self.all.iter().map(of).collect()
    }

    pub fn alive(&self) -> usize {
        self.all.iter().filter(|process| process.pidfd.is_alive()).count()
    }

    pub fn was_sent(&self) -> bool {
        self.all.iter().any(|process| process.sent)
    }

    pub fn signal(&mut self, signal: Signal) {
        for process in self.all.iter_mut().filter(|process| process.pidfd.is_alive()) {
            process.sent |= process.pidfd.signal(signal) == Sent::Yes;
        }
    }

    /// Waits until one of the living ends; false if `deadline` came first.
    pub fn wait(&self, deadline: Option<Instant>) -> bool {
        let living: Vec<&Process> = self.all.iter().filter(|process| process.pidfd.is_alive()).collect();
        let polled: Vec<Polled<'_>> =
            living.iter().map(|process| Polled::Read(process.pidfd.as_fd())).collect();
        living.is_empty() || quell_sys::poll_until(&polled, deadline).is_ok_and(|ready| ready.contains(&true))
    }
}
