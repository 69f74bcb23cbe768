//! The hold on one tree, whatever holds it: how it is found, how the root is born in it, what is known of it. How it is
//! emptied is in `stop.rs`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use quell_core::{
    Contain, ContainmentInfo, ContainmentKind, Fate, JobId, Limits, Member, ProcId, RootOutcome, SentSignal,
    SessionKind, Signal,
};
use quell_sys::{ChildRules, Launch, Polled, Program, Report};

use super::cgroup::{Cgroup, CgroupError, dir_of_process, own_dir};
use super::keeper_cgroup::home_cgroups;
use super::member_log::{MemberLog, identity, short_command};
use super::member_set::MemberSet;
use super::walk::Below;
use super::{Unavailable, scope};

/// How long the user's systemd may take to answer.
pub(super) const BUS_PATIENCE: Duration = Duration::from_secs(5);

/// What holds the tree.
#[derive(Debug)]
pub(super) enum Place {
    Reaper,
    Cgroup(Cgroup),
    /// The scope exists once there is a process to put into it.
    Scope {
        limits: Limits,
        cgroup: Option<Cgroup>,
    },
    Pidns {
        procs: Option<u64>,
        /// Where init reports the root's end, until it was read.
        report: Option<OwnedFd>,
        /// How the root ended, while init, alone by then, is on its way out.
        leaving: Option<RootOutcome>,
    },
}

/// A tree, or the place for one.
#[derive(Debug)]
pub struct Hold {
    pub(super) id: JobId,
    pub(super) place: Place,
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
    /// Whether init has reported that it was stopped.
    inner_stopped: bool,
    /// The root leads a group of its own for certain, and is not reaped: its pid may be used as a group's number.
    pub(super) group: bool,
    pub(super) root_gone: bool,
    pub(super) preexisting_children: Vec<ProcId>,
    pub(super) member_log: MemberLog,
    /// Whom the kill has found so far.
    pub(super) member_set: MemberSet,
    /// How many rounds of the kill there were.
    pub(super) kill_rounds: u32,
    /// Nothing stronger than the reaper was asked for in so many words.
    pub(super) may_concede: bool,
    pub(super) fallback_note: Option<String>,
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

impl Hold {
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
        let place = match contain {
            Contain::Cgroup => Self::find_cgroup(id, base, limits)?,
            Contain::Pidns => {
                Place::Pidns { procs: super::pidns_limits(limits)?, report: None, leaving: None }
            }
            Contain::Reaper if limits.is_empty() => Place::Reaper,
            Contain::Reaper => {
                return Err(Unavailable::limit(
                    "reaper holds no limit: rlimits count a process or a user, not a tree",
                ));
            }
            Contain::Auto => match Self::find_cgroup(id, base, limits) {
                Ok(place) => place,
                Err(_) if limits.is_empty() => Place::Reaper,
                // No containment was asked for, but a limit, which only a cgroup holds.
                Err(Unavailable::Containment { why, .. }) => return Err(Unavailable::limit(&why)),
                Err(error @ Unavailable::Limit { .. }) => return Err(error),
            },
        };
        let may_concede = contain == Contain::Auto && limits.is_empty();
        Ok(Self { may_concede, ..Self::with(id, place, session, marker) })
    }

    fn find_cgroup(id: JobId, base: Option<&Path>, limits: &Limits) -> Result<Place, Unavailable> {
        let own = match Cgroup::create(id, base, limits) {
            Ok(cgroup) => return Ok(Place::Cgroup(cgroup)),
            Err(error) => error,
        };
        let bus = match scope::probe(BUS_PATIENCE) {
            Ok(()) => return Ok(Place::Scope { limits: *limits, cgroup: None }),
            Err(error) => error,
        };
        let why = format!("{own}; and no systemd user manager answers: {bus}");
        Err(match own {
            CgroupError::NoController { .. } => Unavailable::limit(&why),
            CgroupError::NotMounted
            | CgroupError::Outside(_)
            | CgroupError::Path { .. }
            | CgroupError::NoKill => Unavailable::new("cgroup", why),
        })
    }

    /// Which kind it is.
    pub fn kind(&self) -> ContainmentKind {
        match self.place {
            Place::Reaper => ContainmentKind::Reaper,
            Place::Cgroup(_) => ContainmentKind::Cgroup,
            Place::Scope { .. } => ContainmentKind::Scope,
            Place::Pidns { .. } => ContainmentKind::Pidns,
        }
    }

    pub(super) fn cgroup(&self) -> Option<&Cgroup> {
        match &self.place {
            Place::Cgroup(cgroup) => Some(cgroup),
            Place::Scope { cgroup, .. } => cgroup.as_ref(),
            Place::Reaper | Place::Pidns { .. } => None,
        }
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
            defeated_by: super::defeated_by(self.kind()),
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
    /// has removed. Whoever finds the job without anybody has to know what to look for.
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

    /// Gives birth to the root, which waits for its go as our unreaped child, inside the containment. With an error
    /// nobody is left.
    pub fn spawn(&mut self, program: &Program, rules: &ChildRules) -> Result<Birth, SpawnError> {
        let (pid, birth) = match self.place {
            Place::Pidns { .. } => self.spawn_pidns(program, rules)?,
            Place::Reaper | Place::Cgroup(_) | Place::Scope { .. } => self.spawn_here(program, rules)?,
        };
        let mut stat = match quell_sys::stat(pid) {
            Ok(stat) => stat,
            Err(error) => {
                put_away(birth, pid);
                return Err(SpawnError::Process(error));
            }
        };
        self.root = Some(identity(&stat));
        // A PID namespace's init is quell's own; the root is its one child, unless it has failed.
        if self.kind() == ContainmentKind::Pidns {
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

    fn spawn_pidns(&mut self, program: &Program, rules: &ChildRules) -> Result<(u32, Birth), SpawnError> {
        let Place::Pidns { procs, report, .. } = &mut self.place else {
            unreachable!("the caller has looked")
        };
        let rules = ChildRules { procs: *procs, ..rules.clone() };
        let child = quell_sys::launch_pidns(program, &rules);
        let child =
            child.map_err(|error| SpawnError::Containment(format!("can't make a PID namespace: {error}")))?;
        *report = Some(child.report);
        Ok((child.init.pid(), Birth { go: child.go, status: child.status }))
    }

    fn spawn_here(&mut self, program: &Program, rules: &ChildRules) -> Result<(u32, Birth), SpawnError> {
        let dir = match &self.place {
            Place::Cgroup(cgroup) => Some(cgroup.dir()),
            Place::Reaper | Place::Scope { .. } | Place::Pidns { .. } => None,
        };
        let child =
            quell_sys::launch(&Launch { program, rules, cgroup: dir }).map_err(SpawnError::Process)?;
        let pid = child.child.pid();
        let moved = match &mut self.place {
            Place::Cgroup(cgroup) if !child.in_cgroup => cgroup.adopt(pid).map_err(|error| error.to_string()),
            Place::Scope { limits, cgroup } => {
                start_scope(self.id, pid, limits).map(|made| *cgroup = Some(made))
            }
            Place::Cgroup(_) | Place::Reaper | Place::Pidns { .. } => Ok(()),
        };
        if let Err(why) = moved {
            if !self.may_concede {
                put_away(Birth { go: child.go, status: child.status }, pid);
                return Err(SpawnError::Containment(why));
            }
            let _ = self.release();
            self.place = Place::Reaper;
            self.fallback_note =
                Some(format!("held by the reaper only, as the cgroup could not be used: {why}"));
        }
        Ok((pid, Birth { go: child.go, status: child.status }))
    }

    /// What `auto` had to give up when it came to the birth, the first time this is asked.
    pub fn take_concession(&mut self) -> Option<String> {
        self.fallback_note.take()
    }

    /// The root itself, for the receipt.
    pub fn shown_root(&self) -> Option<ProcId> {
        if self.kind() == ContainmentKind::Pidns { self.inner } else { self.root }
    }

    /// The program was executed: the root has left our group for certain.
    pub fn executed(&mut self) {
        self.group = self.session == SessionKind::Own && self.kind() != ContainmentKind::Pidns;
    }

    /// Whether the root is known to have become the program, also if it is dead by now. That of a PID namespace is not, once
    /// its init has reaped it.
    pub fn has_executed(&self) -> bool {
        let stat = self.shown_root().and_then(|root| Some((root, quell_sys::stat(root.pid).ok()?)));
        stat.is_some_and(|(root, stat)| identity(&stat) == root && stat.has_executed())
    }

    /// Takes over the tree of a keeper that is gone. `held`, `root` and `cgroup` are what the keeper had told of it, if
    /// it had come that far. Children that this process had before it ever started the job are no part of it.
    pub fn take_over(
        id: JobId,
        session: SessionKind,
        marker: &str,
        told: KeeperReport,
        preexisting_children: Vec<ProcId>,
    ) -> Self {
        let remembered = told.clone();
        // A cgroup of which the keeper could not tell any more has a name that is known.
        let base = told.base.or_else(|| own_dir().ok());
        let path = told.cgroup.or_else(|| Some(base?.join(Cgroup::name(id))));
        let cgroup = path.and_then(|path| Cgroup::open(&path).ok());
        let place = match (told.held, cgroup) {
            (Some(ContainmentKind::Pidns), _) => Place::Pidns { procs: None, report: None, leaving: None },
            (Some(ContainmentKind::Scope), cgroup) => Place::Scope { limits: Limits::default(), cgroup },
            (Some(ContainmentKind::Cgroup | ContainmentKind::Reaper) | None, Some(cgroup)) => {
                Place::Cgroup(cgroup)
            }
            (Some(ContainmentKind::Cgroup | ContainmentKind::Reaper) | None, None) => Place::Reaper,
        };
        let mut hold = Self { preexisting_children, ..Self::with(id, place, session, marker) };
        // Only an unreaped child of ours pins its number.
        hold.told = remembered;
        hold.inner = told.inner;
        hold.root = told.root.filter(|root| {
            quell_sys::own_children().unwrap_or_default().contains(&root.pid)
                && quell_sys::stat(root.pid).is_ok_and(|stat| identity(&stat) == *root)
        });
        hold.group = session == SessionKind::Own
            && hold.kind() != ContainmentKind::Pidns
            && hold
                .root
                .is_some_and(|root| quell_sys::stat(root.pid).is_ok_and(|stat| stat.pgid == root.pid));
        hold
    }

    /// Notes what a lost keeper had said of members: some of them may be gone by now.
    pub fn recall(&mut self, members: Vec<Member>, asked: &[SentSignal]) {
        // The end of its keeper ends a namespace, and the kernel says of no process in it what it died of.
        let doomed = self.kind() == ContainmentKind::Pidns;
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
        Self::with(id, Place::Reaper, SessionKind::Own, marker)
    }

    fn with(id: JobId, place: Place, session: SessionKind, marker: &str) -> Self {
        Self {
            id,
            place,
            session,
            marker: marker.to_owned(),
            homes: home_cgroups(),
            root: None,
            told: KeeperReport::default(),
            inner: None,
            inner_stopped: false,
            group: false,
            root_gone: false,
            preexisting_children: Vec::new(),
            kill_rounds: 0,
            member_log: MemberLog::default(),
            member_set: MemberSet::default(),
            may_concede: false,
            fallback_note: None,
        }
    }

    /// What the keeper must poll besides SIGCHLD.
    pub fn polled(&self) -> Option<Polled<'_>> {
        match &self.place {
            Place::Pidns { report, .. } => report.as_ref().map(|report| Polled::Read(report.as_fd())),
            Place::Reaper | Place::Cgroup(_) | Place::Scope { .. } => {
                self.cgroup().and_then(Cgroup::events).map(Polled::Priority)
            }
        }
    }

    /// How the root ended, the first time that is asked after it has. It stays unreaped, so that its numbers can't be
    /// given to anyone else.
    pub fn root_exit(&mut self) -> Option<RootOutcome> {
        let outcome = self.new_root_exit()?;
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

    /// That the root has ended, with its outcome unless a namespace's init was killed before it could report that.
    fn new_root_exit(&mut self) -> Option<Option<RootOutcome>> {
        let root = self.root.filter(|_| !self.root_gone)?;
        let outcome = match &mut self.place {
            Place::Pidns { report, leaving, .. } => {
                if let Some(fd) = report.as_ref() {
                    let now = Some(std::time::Instant::now());
                    if !quell_sys::poll_until(&[Polled::Read(fd.as_fd())], now).is_ok_and(|ready| ready[0]) {
                        return None;
                    }
                    let said = quell_sys::read_report(fd);
                    if said == Some(Report::Stopped) {
                        self.inner_stopped = true;
                        return None;
                    }
                    *report = None;
                    match said {
                        Some(Report::Ended { outcome, others: true }) => {
                            self.root_gone = true;
                            return Some(Some(outcome));
                        }
                        // Alone, init exits with its report. Its end is the proof, and comes as a SIGCHLD.
                        Some(Report::Ended { outcome, others: false }) => *leaving = Some(outcome),
                        Some(Report::Stopped) | None => {}
                    }
                }
                quell_sys::peek(root.pid).ok()??;
                // Nothing was reported to us where a keeper was taken over from: init went with it.
                leaving.take()
            }
            Place::Reaper | Place::Cgroup(_) | Place::Scope { .. } => {
                Some(quell_sys::peek(root.pid).ok()??.outcome)
            }
        };
        self.root_gone = true;
        Some(outcome)
    }

    /// Whether the root was stopped by job control since this was last asked.
    pub fn root_stopped(&mut self) -> bool {
        if self.kind() == ContainmentKind::Pidns {
            return std::mem::take(&mut self.inner_stopped);
        }
        self.root.is_some_and(|root| quell_sys::take_stop(root.pid))
    }

    /// Passes a signal on to the root; whether it was there to hear it.
    pub fn forward_signal(&self, signal: Signal) -> bool {
        let mut heard = false;
        match (self.kind(), self.root.filter(|_| !self.root_gone)) {
            // The root of a PID namespace is init's first child.
            (ContainmentKind::Pidns, Some(_)) => {
                let mut first = true;
                self.walk(|seen| {
                    if std::mem::take(&mut first) {
                        heard = seen.pidfd.signal(signal) == quell_sys::Sent::Yes;
                    }
                    Below::Skip
                });
            }
            (ContainmentKind::Reaper | ContainmentKind::Cgroup | ContainmentKind::Scope, Some(root)) => {
                // An unreaped child of ours: the number is its own.
                if let Ok(pidfd) = quell_sys::PidFd::open(root.pid) {
                    heard = pidfd.signal(signal) == quell_sys::Sent::Yes;
                }
            }
            (_, None) => {}
        }
        heard
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

    /// What the tree has used of the CPU so far, in clock ticks; of those who are gone only what was collected.
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

    /// Gives the place back: removes the cgroup. Fails while somebody is in it.
    pub fn release(&self) -> io::Result<()> {
        // A scope's directory is systemd's to remove, when it sees it empty.
        match &self.place {
            Place::Cgroup(cgroup) => cgroup.remove(),
            Place::Reaper | Place::Scope { .. } | Place::Pidns { .. } => Ok(()),
        }
    }
}

/// Without its go a stub exits; it has run nothing.
fn put_away(birth: Birth, pid: u32) {
    drop(birth);
    let _ = quell_sys::wait_exit(pid);
    let _ = quell_sys::reap(pid);
}

fn start_scope(id: JobId, pid: u32, limits: &Limits) -> Result<Cgroup, String> {
    let unit = format!("quell-{id}.scope");
    let request = scope::ScopeRequest {
        unit: &unit,
        description: "a job of quell",
        pid,
        memory_max: limits.memory,
        tasks_max: limits.procs,
        cpu_cores: limits.cpu,
    };
    scope::start(&request, BUS_PATIENCE).map_err(|error| error.to_string())?;
    let dir = dir_of_process(&pid.to_string()).map_err(|error| error.to_string())?;
    // The manager takes the wish for a limit whether or not it has the controller to hold it.
    for (wanted, file) in [
        (limits.memory.is_some(), "memory.max"),
        (limits.procs.is_some(), "pids.max"),
        (limits.cpu.is_some(), "cpu.max"),
    ] {
        let set = std::fs::read_to_string(dir.join(file)).is_ok_and(|text| !text.starts_with("max"));
        if wanted && !set {
            return Err(format!(
                "the systemd user manager can't hold this limit: no {file} in {}",
                dir.display()
            ));
        }
    }
    Cgroup::open(&dir).map_err(|error| error.to_string())
}
