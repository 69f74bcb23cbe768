//! The containment of one tree: how its root is started and what is known of it. `backend/` has what holds the tree, `stop.rs`
//! how it is stopped.

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
use super::keeper_cgroup::starter_cgroups;
use super::member_log::{MemberLog, short_command};
use super::member_set::MemberSet;
use super::walk::Below;

/// A tree and what holds it. The root exists after [`Containment::spawn`].
#[derive(Debug)]
pub struct Containment {
    pub(super) id: JobId,
    pub(super) backend: Backend,
    pub(super) session: SessionKind,
    pub(super) marker: String,
    /// The cgroups of the job's starter and keeper: a marked process there is a member.
    pub(super) starter_cgroups: Vec<String>,
    /// Our direct child: the root, or the init of its PID namespace.
    pub(super) root: Option<ProcId>,
    /// What the keeper before this one reported of the tree.
    reported: KeeperReport,
    /// In a PID namespace: the root below that init.
    pub(super) inner: Option<ProcId>,
    /// The root certainly leads a process group of its own and is not reaped, so its PID may be used as a group id.
    pub(super) group: bool,
    pub(super) root_gone: bool,
    /// Another process has killed the init of the PID namespace.
    pub(super) init_was_killed: bool,
    pub(super) preexisting_children: Vec<ProcId>,
    pub(super) member_log: MemberLog,
    /// The members that the kill has found so far.
    pub(super) member_set: MemberSet,
    /// How many kill rounds there were.
    pub(super) kill_rounds: u32,
    /// No specific containment was requested, so that falling back to the reaper is allowed.
    may_fall_back: bool,
    fallback_note: Option<String>,
}

/// Why a root could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The containment turned out to be unavailable.
    #[error("{0}")]
    Containment(String),
    #[error("can't make a process: {0}")]
    Process(io::Error),
}

/// What a keeper reported of its tree before it was lost.
#[derive(Clone, Debug, Default)]
pub struct KeeperReport {
    /// What holds it.
    pub held: Option<ContainmentKind>,
    /// The keeper's direct child.
    pub root: Option<ProcId>,
    /// In a PID namespace: the root below that child.
    pub inner: Option<ProcId>,
    pub cgroup: Option<PathBuf>,
    /// The directory below which the cgroup was to be made.
    pub base: Option<PathBuf>,
}

/// A stub that waits until it may execute the program.
#[derive(Debug)]
pub struct Birth {
    /// A byte written here makes the stub execute the program. If it is closed, the stub exits.
    pub go: OwnedFd,
    /// Closed by a successful exec. Otherwise the stub writes here what failed.
    pub status: OwnedFd,
}

impl Containment {
    /// Chooses the containment for job `id`: exactly the one that was requested, or for `auto` the strongest one that does not
    /// change what the program sees. A cgroup is made here, below `base` or below this process's own cgroup. Nothing else
    /// exists yet.
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

    pub fn kind(&self) -> ContainmentKind {
        self.backend.kind()
    }

    pub(super) fn cgroup(&self) -> Option<&Cgroup> {
        self.backend.cgroup()
    }

    /// The directory of the cgroup that holds the tree, if any.
    pub fn cgroup_path(&self) -> Option<&Path> {
        self.cgroup().map(Cgroup::path)
    }

    /// The containment and what can defeat it, for the receipt.
    pub fn describe(&self) -> ContainmentInfo {
        ContainmentInfo {
            containment: self.kind(),
            session: self.session,
            cgroup: self.cgroup_path().map(|path| path.display().to_string()),
            defeated_by: backend::defeated_by(self.kind()),
        }
    }

    /// The cgroups of the job's starter and keeper, for the record.
    pub fn starter_cgroups(&self) -> &[String] {
        &self.starter_cgroups
    }

    /// The identity of the root, or of the init of its PID namespace.
    pub fn root(&self) -> Option<ProcId> {
        self.root
    }

    /// What held the job, for the record. It includes a root that an earlier keeper has reaped and a cgroup that it has
    /// removed: a recovery needs to know what to look for.
    pub fn recorded(&self) -> KeeperReport {
        let cgroup = self.cgroup_path().map(ToOwned::to_owned);
        KeeperReport {
            held: self.reported.held.or(Some(self.kind())),
            root: self.root.or(self.reported.root),
            inner: self.inner,
            cgroup: cgroup.or_else(|| self.reported.cgroup.clone()),
            base: None,
        }
    }

    /// Makes the stub inside the containment. It is our unreaped child and waits until it may execute the program. On an error,
    /// no process is left.
    pub fn spawn(&mut self, program: &Program, rules: &ChildRules) -> Result<Birth, SpawnError> {
        let Spawned { pid, birth, held } = self.backend.spawn(self.id, program, rules)?;
        if let Err(why) = held {
            if !self.may_fall_back {
                discard_stub(birth, pid);
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
                discard_stub(birth, pid);
                return Err(SpawnError::Process(error));
            }
        };
        self.root = Some(stat.id());
        // The init of a PID namespace is quell's own. The root is its only child, unless it has failed.
        if self.backend.has_init() {
            let below = quell_sys::children(pid, 1).unwrap_or_default();
            let inner = below.first().and_then(|&pid| quell_sys::stat(pid).ok());
            self.inner = inner.as_ref().map(quell_sys::Stat::id);
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
            id: stat.id(),
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

    /// Whether another process has killed the init of the PID namespace. Known once the root is collected.
    pub fn init_was_killed(&self) -> bool {
        self.init_was_killed
    }

    /// Whether another keeper made the tree, and was lost.
    pub(super) fn is_taken_over(&self) -> bool {
        self.reported.held.is_some()
    }

    /// Why `auto` fell back to the reaper, on the first call after that.
    pub fn take_fallback_note(&mut self) -> Option<String> {
        self.fallback_note.take()
    }

    /// The root itself, for the receipt. Known after a takeover too, also if the lost keeper has reaped it.
    pub fn shown_root(&self) -> Option<ProcId> {
        if self.backend.has_init() { self.inner } else { self.root.or(self.reported.root) }
    }

    /// The root as a member of the job.
    pub fn root_member(&self) -> Option<Member> {
        self.member_log.of(&[self.shown_root()?]).pop()
    }

    /// Notes that the program was executed. From here on the root is certainly not in our process group.
    pub fn executed(&mut self) {
        self.group = self.session == SessionKind::Own && !self.backend.has_init();
    }

    /// Whether the root is known to have executed the program. It may be dead by now. In a PID namespace this is unknown once
    /// init has reaped the root.
    pub fn has_executed(&self) -> bool {
        let stat = self.shown_root().and_then(|root| Some((root, quell_sys::stat(root.pid).ok()?)));
        stat.is_some_and(|(root, stat)| stat.id() == root && stat.has_executed())
    }

    /// Takes over the tree of a lost keeper. `reported` is what that keeper reported of it. Children that this process had
    /// before it started the job are not part of the tree.
    pub fn take_over(
        id: JobId,
        session: SessionKind,
        marker: &str,
        reported: KeeperReport,
        preexisting_children: Vec<ProcId>,
    ) -> Self {
        let backend = Backend::reopen(id, &reported);
        let mut containment = Self { preexisting_children, ..Self::with(id, backend, session, marker) };
        // Only the PID of an unreaped child of ours can't be reused.
        containment.inner = reported.inner;
        containment.root = reported.root.filter(|root| {
            quell_sys::own_children().unwrap_or_default().contains(&root.pid)
                && quell_sys::stat(root.pid).is_ok_and(|stat| stat.id() == *root)
        });
        containment.group = session == SessionKind::Own
            && !containment.backend.has_init()
            && containment
                .root
                .is_some_and(|root| quell_sys::stat(root.pid).is_ok_and(|stat| stat.pgid == root.pid));
        containment.reported = reported;
        containment
    }

    /// Notes the members that a lost keeper reported. Some of them may be gone by now.
    pub fn restore_members(&mut self, members: Vec<Member>, asked: &[SentSignal]) {
        // The namespace ended with its keeper, and the kernel does not report how the processes in it died.
        let killed_by_namespace = self.backend.has_init();
        for member in members {
            if killed_by_namespace {
                self.member_log.killed_by_namespace(member.id);
            }
            if Some(member.id) == self.shown_root() {
                self.member_log.add(member);
            } else {
                self.member_log.restore(member);
            }
        }
        asked.iter().for_each(|sent| self.member_log.asked(sent.to, sent.signal));
    }

    /// Notes how the root ended, as a lost keeper reported it.
    pub fn restore_root_exit(&mut self, outcome: RootOutcome) {
        if let Some(root) = self.shown_root() {
            self.member_log.ended(root, outcome);
        }
    }

    /// What is known of these members. If one was not seen yet, all living members are looked at now.
    pub fn members_of(&mut self, ids: &[ProcId]) -> Vec<Member> {
        let known = self.member_log.of(ids);
        if known.len() == ids.len() {
            return known;
        }
        self.note_living();
        self.member_log.of(ids)
    }

    /// A containment without a tree, for a job whose containment could not be acquired.
    pub fn empty(id: JobId, marker: &str) -> Self {
        Self::with(id, Backend::reaper(), SessionKind::Own, marker)
    }

    fn with(id: JobId, backend: Backend, session: SessionKind, marker: &str) -> Self {
        Self {
            id,
            backend,
            session,
            marker: marker.to_owned(),
            starter_cgroups: starter_cgroups(),
            root: None,
            reported: KeeperReport::default(),
            inner: None,
            group: false,
            root_gone: false,
            init_was_killed: false,
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

    /// How the root ended, on the first call after that. The root stays unreaped, so that its PID can't be reused.
    pub fn root_exit(&mut self) -> Option<RootOutcome> {
        let child = self.root.filter(|_| !self.root_gone)?;
        let RootExit::Ended(outcome) = self.backend.root_exit(child) else { return None };
        self.root_gone = true;
        let root = self.shown_root();
        if let (Some(root), Some(outcome)) = (root, &outcome) {
            self.member_log.ended(root, outcome.clone());
        }
        // If the init of a PID namespace was killed, it took the root with it. A pinned root tells how it died, if the kernel
        // supports that.
        let pinned = || self.member_log.end_of(root?);
        let killed = RootOutcome::Signaled { signal: Signal::KILL, core: false };
        Some(outcome.or_else(pinned).unwrap_or(killed))
    }

    /// Whether job control has stopped the root since the last call.
    pub fn root_stopped(&mut self) -> bool {
        self.backend.take_root_stop(self.root)
    }

    /// Sends a signal to the root. Returns whether it was delivered.
    pub fn forward_signal(&self, signal: Signal) -> bool {
        let Some(child) = self.root.filter(|_| !self.root_gone) else { return false };
        if !self.backend.has_init() {
            // An unreaped child of ours: its PID can't be reused.
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

    /// Sends a signal to every member. Returns how many got it.
    pub fn signal_all(&mut self, signal: Signal) -> usize {
        let mut member_log = std::mem::take(&mut self.member_log);
        let mut reached = 0;
        member_log.drop_exited_pins();
        self.walk(|seen| {
            // Before the signal: nothing can be read of a process that has died from it.
            member_log.note(&seen.stat);
            member_log.keep_pin(seen.stat.id(), &seen.pidfd);
            reached += usize::from(seen.pidfd.signal(signal) == quell_sys::Sent::Yes);
            Below::Visit
        });
        self.member_log = member_log;
        reached
    }

    /// Calls `show` for every living member.
    pub fn each_member(&self, mut show: impl FnMut(&quell_sys::Stat)) {
        self.walk(|seen| {
            show(&seen.stat);
            Below::Visit
        });
    }

    pub fn living(&self) -> Vec<ProcId> {
        let mut living = Vec::new();
        self.each_member(|stat| living.push(stat.id()));
        living
    }

    /// The CPU time of the tree so far, in clock ticks. Of exited members it includes only those that were reaped.
    pub fn cpu_ticks(&self) -> u64 {
        let mut ticks = 0;
        self.each_member(|stat| ticks += stat.cpu);
        ticks
    }

    /// Whether the kernel has killed a member at the memory limit.
    pub fn was_out_of_memory(&self) -> bool {
        self.cgroup().is_some_and(Cgroup::was_out_of_memory)
    }

    /// The tree's peak memory, if it is known.
    pub fn peak_memory(&self) -> Option<u64> {
        self.cgroup().and_then(Cgroup::peak_memory)
    }

    /// Every member that was seen, with its fate, and how many more there were. Members that were asked to exit had this grace.
    pub fn members_with_fates(&self, survivors: &[ProcId], grace: Duration) -> (Vec<Member>, u64) {
        self.member_log.with_fates(survivors, grace)
    }

    /// Removes what was made for the job, such as its cgroup. Fails while a process is in it.
    pub fn release(&self) -> io::Result<()> {
        self.backend.release()
    }
}

/// Makes a stub exit, which has executed nothing, and reaps it.
fn discard_stub(birth: Birth, pid: u32) {
    drop(birth);
    let _ = quell_sys::wait_exit(pid);
    let _ = quell_sys::reap(pid);
}
