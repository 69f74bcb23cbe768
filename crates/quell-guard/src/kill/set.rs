//! The processes that are meant, each pinned.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use crate::{Decision, ProcessFacts, decide_kill};
use quell_core::{ProcId, Signal};
use quell_store::Home;
use quell_sys::{PidFd, Polled, Sent};
use serde::Serialize;

use super::facts;
use crate::Guard;
use crate::{Error, Result};

/// More than any tree that somebody ends by hand.
const LARGEST: usize = 20_000;

/// Descriptors that are left for all the rest: files of /proc, the log.
const FOR_OURSELVES: usize = 16;

/// One that was signalled.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KillTarget {
    /// Who.
    pub id: ProcId,
    /// What it was called.
    pub name: String,
    /// Whether it is alive.
    pub alive: bool,
    /// Why it did not get the last signal, if the policy stood against it by then: it has another name or another user than
    /// before, or the policy has no KILL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spared: Option<Decision>,
}

/// One of them.
pub(super) struct Process {
    pub pidfd: PidFd,
    pub id: ProcId,
    pub facts: ProcessFacts,
    sent: bool,
    spared: Option<Decision>,
}

impl Process {
    /// Pins whoever has this number, and looks at it. None if it has ended meanwhile.
    fn pin(home: &Home, pid: u32) -> io::Result<Option<Self>> {
        let pidfd = PidFd::open(pid)?;
        let stat = match quell_sys::stat(pid) {
            Err(error) if quell_sys::is_gone(&error) => return Ok(None),
            other => other?,
        };
        let facts = facts::gather(home, &stat);
        // As long as it lives its number is its own: so all of that was about this very one.
        let alive = pidfd.is_alive();
        let id = ProcId { pid, start: stat.start };
        Ok(alive.then_some(Self { pidfd, id, facts, sent: false, spared: None }))
    }

    /// What is known of it now: a process may execute another program, or become another user's. None if it has ended.
    fn look_again(&mut self, home: &Home) -> Option<&ProcessFacts> {
        let stat = quell_sys::stat(self.id.pid).ok()?;
        let facts = facts::gather(home, &stat);
        if !self.pidfd.is_alive() {
            return None;
        }
        self.facts = facts;
        Some(&self.facts)
    }

    /// Whether it lives, and is to end.
    fn is_owed(&self) -> bool {
        self.spared.is_none() && self.pidfd.is_alive()
    }

    pub fn name(&self) -> &str {
        self.facts.names.first().map_or("", String::as_str)
    }
}

/// All of them; the first is the one that was named.
pub(super) struct Set {
    home: Home,
    name: String,
    all: Vec<Process>,
    /// Why there may be others below them that nobody has looked at.
    unseen: Option<String>,
}

impl Set {
    pub fn pin(home: &Home, pid: u32, tree: bool) -> Result<Self> {
        if !quell_sys::proc_is_ours() {
            // What is pinned and what is read would be two processes.
            let error = io::Error::other("it shows another PID namespace than the one that quell is in");
            return Err(Error::io("/proc")(error));
        }
        if tree {
            // Each of them is held by a descriptor.
            quell_sys::raise_open_files();
        }
        let gone = || Error::NoSuchProcess(pid);
        let root = match Process::pin(home, pid) {
            Ok(root) => root.ok_or_else(gone)?,
            // ESRCH, or the number of a thread that leads no process.
            Err(error) if matches!(error.raw_os_error(), Some(3 | 22 | 2)) => return Err(gone()),
            Err(error) => return Err(Error::io(format!("/proc/{pid}"))(error)),
        };
        let mut set =
            Self { home: home.clone(), name: root.name().to_owned(), all: vec![root], unseen: None };
        if tree {
            set.grow();
        }
        Ok(set)
    }

    /// Takes in whoever is below them by now. None of them has been decided about: [`Set::signal`] does that.
    pub fn grow(&mut self) {
        if let Err(why) = self.take_in() {
            self.unseen.get_or_insert(why);
        }
    }

    /// Why there may be others below them, if it could not be looked at all of them. What was missed once may have been left
    /// by its parent since, so this stays.
    pub fn unseen(&self) -> Option<&str> {
        self.unseen.as_deref()
    }

    fn take_in(&mut self) -> std::result::Result<(), String> {
        let allowed = usize::try_from(quell_sys::open_files_allowed()).unwrap_or(usize::MAX);
        let room = allowed.saturating_sub(FOR_OURSELVES).min(LARGEST);
        let mut at = 0;
        while at < self.all.len() {
            let parent = &self.all[at];
            let children = children(parent.id.pid).map_err(|error| said(parent.id.pid, &error))?;
            // A number read from one that has ended may be that of a stranger's child.
            let children = if parent.pidfd.is_alive() { children } else { Vec::new() };
            let parent = parent.id.pid;
            for pid in children {
                if self.all.iter().any(|known| known.id.pid == pid && known.pidfd.is_alive()) {
                    continue;
                }
                if self.all.len() >= room {
                    return Err(format!("there are more processes than the {room} that can be held at once"));
                }
                let child = match Process::pin(&self.home, pid) {
                    // As above: it has ended, and the number may be that of a thread by now.
                    Err(error) if quell_sys::is_gone(&error) || error.raw_os_error() == Some(22) => None,
                    other => other.map_err(|error| said(pid, &error))?,
                };
                let is_child = |_: &Process| quell_sys::stat(pid).is_ok_and(|stat| stat.ppid == parent);
                self.all.extend(child.filter(is_child));
            }
            at += 1;
        }
        Ok(())
    }

    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.all.iter()
    }

    pub fn root(&self) -> ProcId {
        self.all[0].id
    }

    pub fn name(&self) -> String {
        self.name.clone()
    }

    pub fn members(&self) -> Vec<KillTarget> {
        let of = |process: &Process| KillTarget {
            id: process.id,
            name: process.name().to_owned(),
            alive: process.pidfd.is_alive(),
            spared: process.spared.clone().filter(|_| process.pidfd.is_alive()),
        };
        self.all.iter().map(of).collect()
    }

    pub fn alive(&self) -> usize {
        self.all.iter().filter(|process| process.pidfd.is_alive()).count()
    }

    pub fn was_sent(&self) -> bool {
        self.all.iter().any(|process| process.sent)
    }

    /// How many live and are to end.
    pub fn owed(&self) -> usize {
        self.all.iter().filter(|process| process.is_owed()).count()
    }

    /// Signals those whom the policy still gives; whether anybody got it. What was decided was decided about how they were
    /// then: each is looked at again, for the time between is as long as a grace.
    pub fn signal(&mut self, signal: Signal, gate: &Guard) -> bool {
        let mut any = false;
        for process in self.all.iter_mut().filter(|process| process.pidfd.is_alive()) {
            let Some(facts) = process.look_again(&self.home) else { continue };
            let decision = decide_kill(&gate.policy().kill, facts, signal);
            process.spared = (!decision.allowed).then_some(decision);
            if process.spared.is_none() && process.pidfd.signal(signal) == Sent::Yes {
                process.sent = true;
                any = true;
            }
        }
        any
    }

    /// Lets those go on who stand still, or they would not hear what they were asked. Part of the asking, and for nobody else.
    pub fn wake(&mut self) {
        for process in self.all.iter().filter(|process| process.sent && process.is_owed()) {
            process.pidfd.signal(Signal::CONT);
        }
    }

    /// Waits until one of the living ends; false if `deadline` came first.
    pub fn wait(&self, deadline: Option<Instant>) -> bool {
        let living: Vec<&Process> = self.all.iter().filter(|process| process.is_owed()).collect();
        let polled: Vec<Polled<'_>> =
            living.iter().map(|process| Polled::Read(process.pidfd.as_fd())).collect();
        living.is_empty() || quell_sys::poll_until(&polled, deadline).is_ok_and(|ready| ready.contains(&true))
    }
}

/// The children of one that may have ended.
fn children(pid: u32) -> io::Result<Vec<u32>> {
    // Its threads are counted each time: one that had a single thread may have more by now, with children of their own.
    let all = quell_sys::stat(pid).and_then(|stat| quell_sys::children(pid, stat.threads.max(1)));
    match all {
        Err(error) if quell_sys::is_gone(&error) => Ok(Vec::new()),
        other => other,
    }
}

fn said(pid: u32, error: &io::Error) -> String {
    format!("{pid} could not be looked at: {error}")
}
