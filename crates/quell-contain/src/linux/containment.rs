//! The containment of one tree, whatever holds it: how the root is born in it, and what is known of it. What holds it is in
//! `backend/`; how it is emptied is in `stop.rs`.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quell_core::{
    Contain, ContainmentInfo, ContainmentKind, Fate, JobId, Limits, Member, ProcId, RootOutcome, SentSignal,
    SessionKind, Signal,
};
use quell_sys::{ChildRules, Disposition, Polled, Program};

use super::Unavailable;
use super::backend::{self, Backend, RootExit, Spawned};
use super::cgroup_fs::Cgroup;
use super::keeper_cgroup::home_cgroups;
use super::member_log::{MemberLog, identity, short_command};
use super::member_set::MemberSet;
use super::walk::Below;

/// A tree, or the place for one.
#[derive(Debug)]
pub struct Containment {
    pub(super) id: JobId,
    pub(super) backend: Backend,
    pub(super) session: SessionKind,
    pub(super) marker: String,
    /// The cgroups in which a process that carries the marker is the job's.
    pub(super) homes: Vec<String>,
    /// Our direct child: the root, or the init of its PID namespace.
    pub(super) root: Option<ProcId>,
    /// What the keeper before us has said of it.
    told: KeeperReport,
    /// The root below that init.
    pub(super) inner: Option<ProcId>,
    /// The root leads a group of its own for certain, and is not reaped: its pid may be used as a group's number.
    pub(super) group: bool,
    pub(super) root_gone: bool,
    pub(super) preexisting_children: Vec<ProcId>,
    pub(super) member_log: MemberLog,
    /// Whom the kill has found so far.
    pub(super) member_set: MemberSet,
    /// How many rounds of the kill there were.
    pub(super) kill_rounds: u32,
    /// No specific containment was requested, so that falling back to the reaper is allowed.
    may_fall_back: bool,
    fallback_note: Option<String>,
}

/// A root could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// What should hold it could not be had after all.
    #[error("{0}")]
    Containment(String),
    /// The system made no process.
    #[error("can't make a process: {0}")]
    Process(io::Error),
}

/// What a keeper had told of its tree before it was lost.
#[derive(Clone, Debug, Default)]
pub struct KeeperReport {
    /// What holds it.
    pub held: Option<ContainmentKind>,
    /// Its direct child.
    pub root: Option<ProcId>,
    /// The root below that, in a PID namespace.
    pub inner: Option<ProcId>,
    /// Its cgroup.
    pub cgroup: Option<PathBuf>,
    /// Below which its cgroup was to be made.
    pub base: Option<PathBuf>,
}

/// A root that waits for its go.
#[derive(Debug)]
pub struct Birth {
    /// A byte written here lets it become the program; if it is closed, the stub exits.
    pub go: OwnedFd,
    /// Closed by a successful exec, else says what failed.
    pub status: OwnedFd,
}

impl Containment {
    /// Finds a place for the tree of job `id`: exactly the containment that was asked for, or for `auto` the strongest
    /// that doesn't change what the program sees. Makes its cgroup, if it is one; nothing else exists yet.
    ///
    /// A cgroup is made below `base`, or else below this process's own.
    pub fn acquire(
        id: JobId,
        base: Option<&Path>,
        contain: Contain,
        limits: &Limits,
        session: SessionKind,
        marker: &str,
    ) -> Result<Self, Unavailable> {
        let backend = backend::acquire(id, base, contain, limits)?;
        let may_fall_back = contain == Contain::Auto && limits.is_empty();
        Ok(Self { may_fall_back, ..Self::with(id, backend, session, marker) })
    }

    /// What holds it.
    pub fn kind(&self) -> ContainmentKind {
        self.backend.kind()
    }

    pub(super) fn cgroup(&self) -> Option<&Cgroup> {
        self.backend.cgroup()
    }

    /// The cgroup's directory, where one holds the tree.
    pub fn cgroup_path(&self) -> Option<&Path> {
        self.cgroup().map(Cgroup::path)
    }

    /// The holder and its limits, for the receipt.
    pub fn describe(&self) -> ContainmentInfo {
        ContainmentInfo {
            containment: self.kind(),
            session: self.session,
            cgroup: self.cgroup_path().map(|path| path.display().to_string()),
            defeated_by: backend::defeated_by(self.kind()),
        }
    }

    /// The cgroups in which a process that carries the job's marker is the job's, for the record.
    pub fn homes(&self) -> &[String] {
        &self.homes
    }

    /// The root's identity (of a PID namespace: its init's).
    pub fn root(&self) -> Option<ProcId> {
        self.root
    }

    /// What held the job, for the record: also a root that the keeper before us has collected already, and a cgroup that it
    /// has removed. A command that finds the job without a keeper needs to know what to look for.
    pub fn recorded(&self) -> KeeperReport {
        let cgroup = self.cgroup_path().map(ToOwned::to_owned);
        KeeperReport {
            held: self.told.held.or(Some(self.kind())),
            root: self.root.or(self.told.root),
            inner: self.inner,
            cgroup: cgroup.or_else(|| self.told.cgroup.clone()),
            base: None,
        }
    }

    /// Makes the root, which waits for its go as our unreaped child, inside the containment. With an error no process is
    /// left.
    pub fn spawn(&mut self, program: &Program, rules: &ChildRules) -> Result<Birth, SpawnError> {
        let Spawned { pid, birth, held } = self.backend.spawn(self.id, program, rules)?;
        if let Err(why) = held {
            if !self.may_fall_back {
                put_away(birth, pid);
                return Err(SpawnError::Containment(why));
            }
            let _ = self.release();
            self.backend = Backend::reaper();
            self.fallback_note =
                Some(format!("held by the reaper only, as the cgroup could not be used: {why}"));
        }
        let mut stat = match quell_sys::stat(pid) {
            Ok(stat) => stat,
            Err(error) => {
                put_away(birth, pid);
                return Err(SpawnError::Process(error));
            }
        };
        self.root = Some(identity(&stat));
        // A PID namespace's init is quell's own; the root is its one child, unless it has failed.
        if self.backend.has_init() {
            let below = quell_sys::children(pid, 1).unwrap_or_default();
            let inner = below.first().and_then(|&pid| quell_sys::stat(pid).ok());
            self.inner = inner.as_ref().map(identity);
            match inner {
                Some(inner) => stat = inner,
                None => return Ok(birth),
            }
        }
        let pid = stat.pid;
        let words: Vec<String> =
            program.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let own = self.session == SessionKind::Own;
        self.member_log.add(Member {
            id: identity(&stat),
            ppid: stat.ppid,
            pgid: if own { pid } else { stat.pgid },
            sid: if own { pid } else { stat.sid },
            uid: quell_sys::uid(),
            user: None,
            command: short_command(&words, &stat.comm),
            fate: Fate::Exited,
        });
        Ok(birth)
    }

    /// What `auto` could not use when the root was made, the first time this is asked.
    pub fn take_fallback_note(&mut self) -> Option<String> {
        self.fallback_note.take()
    }

    /// The root itself, for the receipt.
    pub fn shown_root(&self) -> Option<ProcId> {
        if self.backend.has_init() { self.inner } else { self.root }
    }

    /// The program was executed: the root has left our group for certain.
    pub fn executed(&mut self) {
        self.group = self.session == SessionKind::Own && !self.backend.has_init();
    }

    /// Whether the root is known to have become the program, also if it is dead by now. That of a PID namespace is not, once
    /// its init has reaped it.
    pub fn has_executed(&self) -> bool {
        let stat = self.shown_root().and_then(|root| Some((root, quell_sys::stat(root.pid).ok()?)));
        stat.is_some_and(|(root, stat)| identity(&stat) == root && stat.has_executed())
    }

    /// Takes over the tree of a keeper that is gone. `held`, `root` and `cgroup` are what the keeper had told of it, if
    /// it had come that far. Children that this process had before it started the job are not part of it.
    pub fn take_over(
        id: JobId,
        session: SessionKind,
        marker: &str,
        told: KeeperReport,
        preexisting_children: Vec<ProcId>,
    ) -> Self {
        let backend = Backend::reopen(id, &told);
        let mut hold = Self { preexisting_children, ..Self::with(id, backend, session, marker) };
        // Only an unreaped child of ours pins its number.
        hold.inner = told.inner;
        hold.root = told.root.filter(|root| {
            quell_sys::own_children().unwrap_or_default().contains(&root.pid)
                && quell_sys::stat(root.pid).is_ok_and(|stat| identity(&stat) == *root)
        });
        hold.group = session == SessionKind::Own
            && !hold.backend.has_init()
            && hold
                .root
                .is_some_and(|root| quell_sys::stat(root.pid).is_ok_and(|stat| stat.pgid == root.pid));
        hold.told = told;
        hold
    }

    /// Notes what a lost keeper had said of members: some of them may be gone by now.
    pub fn recall(&mut self, members: Vec<Member>, asked: &[SentSignal]) {
        // The end of its keeper ends a namespace, and the kernel says of no process in it what it died of.
        let doomed = self.backend.has_init();
        for member in members {
            if doomed {
                self.member_log.doomed(member.id);
            }
            self.member_log.add(member);
        }
        asked.iter().for_each(|sent| self.member_log.asked(sent.to, sent.signal));
    }

    /// What is known of those members. Those that were not looked at yet are looked at now.
    pub fn members_of(&mut self, ids: &[ProcId]) -> Vec<Member> {
        let known = self.member_log.of(ids);
        if known.len() == ids.len() {
            return known;
        }
        self.look();
        self.member_log.of(ids)
    }

    /// A hold on nothing, for a job that could not be held as was asked.
    pub fn nothing(id: JobId, marker: &str) -> Self {
        Self::with(id, Backend::reaper(), SessionKind::Own, marker)
    }

    fn with(id: JobId, backend: Backend, session: SessionKind, marker: &str) -> Self {
        Self {
            id,
            backend,
            session,
            marker: marker.to_owned(),
            homes: home_cgroups(),
            root: None,
            told: KeeperReport::default(),
            inner: None,
            group: false,
            root_gone: false,
            preexisting_children: Vec::new(),
            kill_rounds: 0,
            member_log: MemberLog::default(),
            member_set: MemberSet::default(),
            may_fall_back: false,
            fallback_note: None,
        }
    }

    /// What the keeper must poll in addition to SIGCHLD.
    pub fn polled(&self) -> Option<Polled<'_>> {
        self.backend.source()
    }

    /// How the root ended, the first time that is asked after it has. It stays unreaped, so that its numbers can't be
    /// given to anyone else.
    pub fn root_exit(&mut self) -> Option<RootOutcome> {
        let child = self.root.filter(|_| !self.root_gone)?;
        let RootExit::Ended(outcome) = self.backend.root_exit(child) else { return None };
        self.root_gone = true;
        let root = self.shown_root();
        if let (Some(root), Some(outcome)) = (root, &outcome) {
            self.member_log.ended(root, outcome.clone());
        }
        // A PID namespace whose init was killed takes the root with it. What the root itself died of is known where the
        // kernel tells that of a pinned process.
        let pinned = || self.member_log.end_of(root?);
        let killed = RootOutcome::Signaled { signal: Signal::KILL, core: false };
        Some(outcome.or_else(pinned).unwrap_or(killed))
    }

    /// Whether the root was stopped by job control since this was last asked.
    pub fn root_stopped(&mut self) -> bool {
        self.backend.take_root_stop(self.root)
    }

    /// Passes a signal on to the root; whether it was there to hear it.
    pub fn forward_signal(&self, signal: Signal) -> bool {
        let Some(child) = self.root.filter(|_| !self.root_gone) else { return false };
        if !self.backend.has_init() {
            // An unreaped child of ours: the number is its own.
            return quell_sys::PidFd::open(child.pid)
                .is_ok_and(|pidfd| pidfd.signal(signal) == quell_sys::Sent::Yes);
        }
        // The root is the first child of the init of its PID namespace.
        let mut heard = None;
        self.walk(|seen| {
            heard.get_or_insert_with(|| seen.pidfd.signal(signal) == quell_sys::Sent::Yes);
            Below::Skip
        });
        heard.unwrap_or(false)
    }

    /// What `signal` would do to the root now; none if that can't be seen.
    pub fn root_disposition(&self, signal: Signal) -> Option<Disposition> {
        quell_sys::disposition(self.shown_root()?.pid, signal).ok()
    }

    /// Sends a signal to everyone in the tree; how many it reached.
    pub fn pass_to_all(&mut self, signal: Signal) -> usize {
        let mut member_log = std::mem::take(&mut self.member_log);
        let mut reached = 0;
        self.walk(|seen| {
            // Before the signal: of one that dies of it nothing can be read any more.
            member_log.see(&seen.stat);
            reached += usize::from(seen.pidfd.signal(signal) == quell_sys::Sent::Yes);
            Below::Visit
        });
        self.member_log = member_log;
        reached
    }

    /// Shows every living member, as /proc has it now.
    pub fn each_member(&self, mut show: impl FnMut(&quell_sys::Stat)) {
        self.walk(|seen| {
            show(&seen.stat);
            Below::Visit
        });
    }

    /// Every living member.
    pub fn living(&self) -> Vec<ProcId> {
        let mut living = Vec::new();
        self.each_member(|stat| living.push(identity(stat)));
        living
    }

    /// What the tree has used of the CPU so far, in clock ticks; of members that have exited, only what was collected.
    pub fn cpu_ticks(&self) -> u64 {
        let mut ticks = 0;
        self.each_member(|stat| ticks += stat.cpu);
        ticks
    }

    /// Whether a limit of memory ended a member.
    pub fn was_out_of_memory(&self) -> bool {
        self.cgroup().is_some_and(Cgroup::was_out_of_memory)
    }

    /// The tree's peak of memory, where it is known.
    pub fn peak_memory(&self) -> Option<u64> {
        self.cgroup().and_then(Cgroup::peak_memory)
    }

    /// Everyone who was seen, with their fates, and how many more there were. Those who were asked had this grace.
    pub fn close_roll(&self, survivors: &[ProcId], grace: Duration) -> (Vec<Member>, u64) {
        self.member_log.close(survivors, grace)
    }

    /// Gives back what was made for the job, such as its cgroup. Fails while a process is in it.
    pub fn release(&self) -> io::Result<()> {
        self.backend.release()
    }
}

/// Without its go a stub exits; it has run nothing.
fn put_away(birth: Birth, pid: u32) {
    drop(birth);
    let _ = quell_sys::wait_exit(pid);
    let _ = quell_sys::reap(pid);
}
