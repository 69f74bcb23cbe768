//! The processes that are signalled, each pinned.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use quell_contain::ForeignTree;
use quell_core::{ProcId, RootOutcome, Signal};
use quell_store::Home;
use quell_sys::{PidFd, Polled, Sent, Sources};
use serde::Serialize;

use super::facts;
use crate::{Decision, Error, Guard, ProcessFacts, Result, decide_kill};

/// More processes than any tree that is killed by hand.
const LARGEST: usize = 20_000;

/// Descriptors that are not used as pins: files of /proc, the log.
const RESERVED_FILES: usize = 16;

/// A process that was to be signalled.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KillTarget {
    /// The process.
    pub id: ProcId,
    /// Its name.
    pub name: String,
    /// Whether it is alive.
    pub alive: bool,
    /// Why it did not get the last signal, if the policy refused it by then: its name or its user has changed, or the policy
    /// does not allow KILL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spared: Option<Decision>,
}

/// A pinned process.
pub(super) struct Process {
    pub pidfd: PidFd,
    pub id: ProcId,
    pub facts: ProcessFacts,
    sent: bool,
    spared: Option<Decision>,
}

impl Process {
    /// Pins the process that has this PID and gathers facts about it. None if it has exited meanwhile.
    fn pin(home: &Home, pid: u32) -> io::Result<Option<Self>> {
        let pinned = PidFd::pin(pid, |stat| Some((stat.id(), facts::gather(home, &stat))))?;
        Ok(pinned.map(|(pidfd, (id, facts))| Self { pidfd, id, facts, sent: false, spared: None }))
    }

    /// The facts now: the process may have executed another program or changed its user. None if it has exited.
    fn look_again(&mut self, home: &Home) -> Option<&ProcessFacts> {
        let stat = quell_sys::stat(self.id.pid).ok()?;
        let facts = facts::gather(home, &stat);
        if !self.pidfd.is_alive() {
            return None;
        }
        self.facts = facts;
        Some(&self.facts)
    }

    /// Whether it is alive and the policy allows the signal.
    fn is_signallable(&self) -> bool {
        self.spared.is_none() && self.pidfd.is_alive()
    }

    pub fn name(&self) -> &str {
        self.facts.names.first().map_or("", String::as_str)
    }
}

/// The process that was named, and with `--tree` its descendants.
pub(super) struct PinnedSet<'g> {
    guard: &'g Guard,
    /// The first is the one that was named.
    all: Vec<Process>,
    /// With `--tree`: the tree before its processes were listed.
    tree: Option<ForeignTree>,
    /// Why there may be descendants that were not seen.
    unseen: Option<String>,
    search_took: Duration,
}

impl<'g> PinnedSet<'g> {
    pub fn pin(guard: &'g Guard, pid: u32, tree: bool) -> Result<Self> {
        if !quell_sys::proc_is_ours() {
            // The process that is pinned and the one that is read about would not be the same.
            let error = io::Error::other("it shows another PID namespace than the one that quell is in");
            return Err(Error::io("/proc")(error));
        }
        if tree {
            // Each process needs a descriptor.
            quell_sys::raise_open_files();
        }
        let gone = || Error::NoSuchProcess(pid);
        let root = match Process::pin(guard.home(), pid) {
            Ok(root) => root.ok_or_else(gone)?,
            Err(error) if has_exited(&error) => return Err(gone()),
            Err(error) => return Err(Error::io(format!("/proc/{pid}"))(error)),
        };
        let tree = tree.then(|| ForeignTree::of(pid));
        // What was read there is about the pinned process only if that is still alive.
        if !root.pidfd.is_alive() {
            return Err(gone());
        }
        let mut set = Self { guard, all: vec![root], tree, unseen: None, search_took: Duration::ZERO };
        set.grow();
        Ok(set)
    }

    /// With `--tree`, adds the descendants that are new. The policy is asked about them by [`PinnedSet::signal`].
    pub fn grow(&mut self) {
        if self.tree.is_none() {
            return;
        }
        let begun = Instant::now();
        if let Err(why) = self.add_descendants() {
            self.unseen.get_or_insert(why);
        }
        self.search_took = begun.elapsed();
    }

    /// Why there may be descendants that were not seen. It stays: a process that was missed once may have lost its parent
    /// since.
    pub fn unseen(&self) -> Option<&str> {
        self.unseen.as_deref()
    }

    fn add_descendants(&mut self) -> std::result::Result<(), String> {
        let allowed = usize::try_from(quell_sys::open_files_allowed()).unwrap_or(usize::MAX);
        let room = allowed.saturating_sub(RESERVED_FILES).min(LARGEST);
        let unreadable = |pid: u32| move |error| format!("can't look at process {pid}: {error}");
        let mut at = 0;
        while at < self.all.len() {
            let parent = &self.all[at];
            let children = children(parent.id.pid).map_err(unreadable(parent.id.pid))?;
            // If the parent has exited, these may be the children of another process with its PID.
            let children = if parent.pidfd.is_alive() { children } else { Vec::new() };
            let parent = parent.id.pid;
            for pid in children {
                if self.all.iter().any(|known| known.id.pid == pid && known.pidfd.is_alive()) {
                    continue;
                }
                if self.all.len() >= room {
                    return Err(format!(
                        "there are more processes than the {room} that can be pinned at once"
                    ));
                }
                let child = match Process::pin(self.guard.home(), pid) {
                    Err(error) if has_exited(&error) => None,
                    other => other.map_err(unreadable(pid))?,
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

    /// The process that was named.
    pub fn root(&self) -> &Process {
        &self.all[0]
    }

    pub fn is_tree(&self) -> bool {
        self.tree.is_some()
    }

    /// Why processes may be left that were orphaned before they were seen. None of the set is alive.
    pub fn why_orphans(&self) -> Option<String> {
        let members: Vec<ProcId> = self.all.iter().map(|process| process.id).collect();
        self.tree.as_ref()?.orphans(&members)
    }

    /// How long the last search for descendants took.
    pub fn search_took(&self) -> Duration {
        self.search_took
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

    /// Whether all are known to have died of `signal`: the kernel says so of a process that its parent has reaped.
    pub fn died_of(&self, signal: Signal) -> bool {
        let died = |process: &Process| matches!(process.pidfd.exit(), Some(RootOutcome::Signaled { signal: of, .. }) if of == signal);
        self.all.iter().all(died)
    }

    /// How many are alive and not spared by the policy.
    pub fn signallable(&self) -> usize {
        self.all.iter().filter(|process| process.is_signallable()).count()
    }

    /// Signals each process that the policy still allows, and returns whether any got it. The policy is asked again for each:
    /// a process may have changed during the grace.
    pub fn signal(&mut self, signal: Signal) -> bool {
        let mut any = false;
        for process in self.all.iter_mut().filter(|process| process.pidfd.is_alive()) {
            let Some(facts) = process.look_again(self.guard.home()) else { continue };
            let decision = decide_kill(&self.guard.policy().kill, facts, signal);
            process.spared = (!decision.allowed).then_some(decision);
            if process.spared.is_none() && process.pidfd.signal(signal) == Sent::Yes {
                process.sent = true;
                any = true;
            }
        }
        any
    }

    /// Continues the processes that got the signal: a stopped process does not handle it before.
    pub fn wake(&self) {
        for process in self.all.iter().filter(|process| process.sent && process.is_signallable()) {
            process.pidfd.signal(Signal::CONT);
        }
    }

    /// Waits until a process exits, or until `until`.
    pub fn wait(&self, until: Option<Instant>) {
        let mut sources = Sources::default();
        for process in self.all.iter().filter(|process| process.is_signallable()) {
            sources.add((), Polled::Read(process.pidfd.as_fd()));
        }
        // Without a source, the last process has exited since it was counted.
        if !sources.is_empty() {
            let _ = sources.wait(until);
        }
    }
}

/// Whether a PID could not be pinned because it is not the PID of a process: ENOENT, ESRCH, or EINVAL for a thread.
fn has_exited(error: &io::Error) -> bool {
    quell_sys::is_gone(error) || error.kind() == io::ErrorKind::InvalidInput
}

/// The children of a process that may have exited.
fn children(pid: u32) -> io::Result<Vec<u32>> {
    // The number of threads is read each time: a thread that was started since may have children too.
    let all = quell_sys::stat(pid).and_then(|stat| quell_sys::children(pid, stat.threads.max(1)));
    match all {
        Err(error) if quell_sys::is_gone(&error) => Ok(Vec::new()),
        other => other,
    }
}
