//! The search for the members of a job that nobody keeps any more, by a process that is no ancestor of them.
//!
//! What makes a living process a member, each checked behind a pin:
//! - it is the recorded root: PID and start time, and what quell made of it: the leader of a session of its own that is
//!   not older than the job, the init of a PID namespace, or in a shared session at least the marker or the cgroup. A
//!   record can be rewritten by any process of the user, a session can't;
//! - it is in the job's cgroup;
//! - it carries the job's marker, in a cgroup of the job's starter or keeper (`marker_search.rs`);
//! - its keeper has put it on record as a member: pid and start time. It is not older than the job and runs as this
//!   user, so that a forged record leads nobody to another user's process;
//! - its parent is a member;
//! - it is in the session that the root made, while a member that was proven otherwise is in it too. The number of a
//!   session can't be another's as long as somebody is in it.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quell_core::{ContainmentKind, JobId, ProcId, SessionKind};
use quell_sys::Stat;

use super::cgroup_fs::{Cgroup, cgroup2_mount, dir_of, v2_path};
use super::keeper_cgroup::usual_starter_cgroups;
use super::marker_search::{self, MarkerRule};
use super::possible_members::PossibleMembers;
use super::walk::{Below, Pinned, ProcessRef, pin, walk_below};

/// A chase ends when no process was born for this long and in this many looks.
const QUIET: Duration = Duration::from_millis(3);
const QUIET_LOOKS: usize = 200;
/// A chase also ends when this many processes were born, none of them the job's, for so long that a chain would have run.
const STRANGERS: u32 = 64;
/// How many of the latest pids one look of a chase reads.
const LATEST: u32 = 1024;
/// How many of them may be of forks that are under way.
const UNDER_WAY: u32 = 64;

/// What the record says of a job whose keeper and standby are gone.
#[derive(Clone, Copy, Debug)]
pub struct OrphanedJob<'a> {
    /// Which job.
    pub id: JobId,
    /// What held it, as far as that was written down.
    pub held: Option<ContainmentKind>,
    /// Its root, or the init of its PID namespace. None: no instruction of the program has run, or nobody knows.
    pub root: Option<ProcId>,
    /// Its cgroup. Used only if it is named as one of quell's.
    pub cgroup: Option<&'a Path>,
    /// Whose session the root was in.
    pub session: SessionKind,
    /// The job's marker; empty where it is not known. Then no process is found by it.
    pub marker: &'a str,
    /// The cgroups in which a process that carries the marker is the job's; empty where they are not known.
    pub starter_cgroups: &'a [String],
    /// Members that its keeper has seen.
    pub members: &'a [ProcId],
    /// Who was named as a survivor. A record can be rewritten, so nobody is signalled for being named there; but while one
    /// of them lives, the job is not gone.
    pub survivors: &'a [ProcId],
}

impl OrphanedJob<'_> {
    /// Whether its recorded root is the init of a PID namespace.
    pub(super) fn has_init(&self) -> bool {
        self.held.is_some_and(ContainmentKind::has_init)
    }

    /// What held it. If that was not written down, a cgroup that was found says so.
    pub fn kind(&self, found: Option<&Path>) -> ContainmentKind {
        let presumed = if found.is_some() { ContainmentKind::Cgroup } else { ContainmentKind::Reaper };
        self.held.unwrap_or(presumed)
    }

    /// What is known of every process of the job.
    pub(super) fn possible_members(&self) -> PossibleMembers {
        PossibleMembers::of(self.id, self.root, self.session)
    }
}

/// How a member is got hold of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldVia {
    /// It is in the job's cgroup.
    Cgroup,
    /// It is the init of the job's PID namespace.
    Init,
    /// It is below that, and goes with it.
    Namespace,
    /// Nothing holds it.
    Nothing,
}

/// The variable that names a job to its own processes.
pub const JOB_VARIABLE: &str = "QUELL_JOB";

/// The search for one job's members.
pub(super) struct Discovery<'a> {
    job: &'a OrphanedJob<'a>,
    cgroups: &'a [Cgroup],
    hierarchy: Option<Hierarchy>,
    /// What the job's processes have in their environment.
    marker_rule: MarkerRule<'a>,
}

impl<'a> Discovery<'a> {
    pub(super) fn new(job: &'a OrphanedJob<'a>, cgroups: &'a [Cgroup]) -> Self {
        let starter_cgroups = if job.starter_cgroups.is_empty() {
            usual_starter_cgroups()
        } else {
            job.starter_cgroups.to_vec()
        };
        let marker_rule = MarkerRule {
            marker: job.marker,
            not_before: job.possible_members().not_before,
            starter_cgroups: starter_cgroups.into(),
        };
        Self { job, cgroups, hierarchy: Hierarchy::find(), marker_rule }
    }

    /// Shows every living member once. Like each walk it races with forks: only a pass that shows nobody new says anything.
    /// What carries the marker in a cgroup that is not the job's is left alone, and returned. After an error there may be
    /// members that were not shown.
    pub(super) fn pass(&self, mut show: impl FnMut(&Pinned, HeldVia)) -> io::Result<Vec<ProcId>> {
        let mut pass =
            Pass { discovery: self, known: BTreeSet::new(), seeds: Vec::new(), anchors: Vec::new() };
        if let Some(root) = self.job.root
            && let Some(seen) = pin(root.pid, |stat| self.is_root(stat))
        {
            let init = self.job.has_init();
            let via = if init { HeldVia::Init } else { self.via(root.pid) };
            pass.add(&seen, via, &mut show);
            if init {
                pass.descend(|_| HeldVia::Namespace, &mut show)?;
            }
        }
        for id in self.job.members {
            if let Some(seen) = pin(id.pid, |stat| stat.id() == *id && self.is_own_member(stat)) {
                pass.add(&seen, self.via(id.pid), &mut show);
            }
        }
        for pid in self.cgroups.iter().flat_map(Cgroup::members) {
            if let Some(seen) = pin(pid, |_| self.via(pid) == HeldVia::Cgroup) {
                pass.add(&seen, HeldVia::Cgroup, &mut show);
            }
        }
        let mut elsewhere = Vec::new();
        for pid in quell_sys::pids()? {
            // The cheapest question first: most processes are older than the job.
            let may_be = |stat: Stat| !stat.is_dead() && self.marker_rule.matches(&stat);
            if !quell_sys::stat(pid).is_ok_and(may_be) {
                continue;
            }
            // Asked again behind the pin.
            let Some(seen) = pin(pid, |stat| self.marker_rule.matches(stat)) else { continue };
            if self.is_at_home(pid) {
                pass.add(&seen, self.via(pid), &mut show);
            } else {
                elsewhere.push(seen.stat.id());
            }
        }
        pass.descend(|pid| self.via(pid), &mut show)?;
        pass.add_session(&mut show)?;
        pass.descend(|pid| self.via(pid), &mut show)?;
        // What is below a member is the job's, wherever it is.
        elsewhere.retain(|id| !pass.known.contains(id));
        Ok(elsewhere)
    }

    /// This process and those above it, as far as they are of the job: quell was called from within it. No other process is
    /// read, unless one of these may be in the root's session.
    pub(super) fn members_above_us(&self) -> io::Result<Vec<Stat>> {
        let (mut found, mut above_is_member) = (Vec::new(), false);
        let above = lineage();
        // What is below a member is one.
        for stat in above.iter().rev() {
            above_is_member |= self.is_member_by_itself(stat);
            if above_is_member {
                found.push(stat.clone());
            }
        }
        let in_session = |stat: &Stat| self.own_session().is_some_and(|root| root.pid == stat.sid);
        if found.is_empty() && above.iter().any(in_session) {
            let own: BTreeSet<ProcId> = above.iter().map(Stat::id).collect();
            self.pass(|seen, _| found.extend(own.contains(&seen.stat.id()).then(|| seen.stat.clone())))?;
        }
        Ok(found)
    }

    /// Whether it is a member by what is known of it alone, without a look at others.
    fn is_member_by_itself(&self, stat: &Stat) -> bool {
        let recorded = || self.job.members.contains(&stat.id()) && self.is_own_member(stat);
        self.is_root(stat)
            || recorded()
            || self.via(stat.pid) == HeldVia::Cgroup
            || (self.marker_rule.matches(stat) && self.marker_rule.is_in_starter_cgroup(stat.pid))
    }

    /// The root, if it made a session.
    fn own_session(&self) -> Option<ProcId> {
        let own = self.job.session == SessionKind::Own && !self.job.has_init();
        self.job.root.filter(|_| own)
    }

    /// Looks for a chain of processes that fork and exit, each gone before a pass reads it: reads every pid that was given out
    /// since the last look, until no process is born any more, or for as long as `cold` only processes that are not the
    /// job's. The living end of a chain is always among the pids since the last look, also while it waits for a processor.
    /// Returns whether there was a trace of a chain and the deadline came before it was lost.
    pub(super) fn chase_forks(
        &self,
        cold: Duration,
        deadline: Instant,
        mut show: impl FnMut(&Pinned),
    ) -> bool {
        // The chain must not get more of the processors than what chases it.
        let _priority = quell_sys::raise_priority();
        let (mut last, mut looks, mut strangers, mut traced) = (None, 0, 0, false);
        let (mut last_birth, mut last_trace) = (Instant::now(), Instant::now());
        // Pids that were given out and had no process yet, or none any more.
        let mut empty = Vec::new();
        // No event tells of a fork by another process's child; the loop is as tight as it can be, and short.
        while Instant::now() < deadline {
            let Some(newest) = quell_sys::newest_pid() else { return false };
            if last == Some(newest) {
                looks += 1;
                if looks <= QUIET_LOOKS || last_birth.elapsed() <= QUIET {
                    continue;
                }
                // A fork that was under way is done by now.
                let late = std::mem::take(&mut empty).into_iter().map(|pid| self.read_fork(pid, &mut show));
                if late.filter(|read| *read == Read::Marked).count() == 0 {
                    return false;
                }
                (looks, last_trace, traced) = (0, Instant::now(), true);
                continue;
            }
            let oldest = newest.saturating_sub(LATEST);
            // After a wrap-around of the pids the last one is above the newest.
            let known = last.filter(|last| (oldest..newest).contains(last));
            let since = known.unwrap_or(oldest);
            (last, looks, last_birth) = (Some(newest), 0, Instant::now());
            // The newest first: it has the most time left before it exits.
            for pid in (since + 1..=newest).rev() {
                match self.read_fork(pid, &mut show) {
                    Read::Marked => (strangers, last_trace, traced) = (0, Instant::now(), true),
                    Read::Stranger => strangers += 1,
                    Read::Empty => {
                        strangers += 1;
                        if newest - pid < UNDER_WAY && empty.len() < UNDER_WAY as usize {
                            empty.push(pid);
                        }
                    }
                }
            }
            if strangers > STRANGERS && last_trace.elapsed() > cold {
                return false;
            }
        }
        traced
    }

    /// Reads a process that a chase has met.
    fn read_fork(&self, pid: u32, show: &mut impl FnMut(&Pinned)) -> Read {
        match quell_sys::stat(pid) {
            Err(_) => return Read::Empty,
            // Most of what a chain leaves.
            Ok(stat) if stat.is_dead() => return Read::Stranger,
            Ok(_) => {}
        }
        let mut marked = false;
        let seen = pin(pid, |stat| {
            marked = self.marker_rule.matches(stat) && self.is_at_home(pid);
            marked
        });
        if let Some(seen) = seen {
            show(&seen);
        }
        if marked { Read::Marked } else { Read::Stranger }
    }

    fn via(&self, pid: u32) -> HeldVia {
        let Some(hierarchy) = self.hierarchy.as_ref().filter(|_| !self.cgroups.is_empty()) else {
            return HeldVia::Nothing;
        };
        let held = |dir: PathBuf| self.cgroups.iter().any(|cgroup| dir.starts_with(cgroup.path()));
        // In a threaded cgroup there may be a thread of it that is not the first.
        let threads = || marker_search::threads(pid).filter_map(|thread| hierarchy.dir(thread));
        let is_inside = hierarchy.dir(pid).is_some_and(held) || threads().any(held);
        if is_inside { HeldVia::Cgroup } else { HeldVia::Nothing }
    }

    /// Whether it is the recorded root. The identity is what the record says, and anyone can be named there; the rest is
    /// what the program can't undo.
    fn is_root(&self, stat: &Stat) -> bool {
        if self.job.root != Some(stat.id()) || stat.pid == 1 {
            return false;
        }
        if self.job.has_init() {
            return quell_sys::inner_pid(stat.pid) == Some(1);
        }
        let leads = self.job.session == SessionKind::Own && stat.sid == stat.pid && self.is_young(stat);
        leads
            || self.via(stat.pid) == HeldVia::Cgroup
            || marker_search::has_marker(stat.pid, self.marker_rule.marker)
    }

    /// Whether a process that the record names as a member may be signalled for that.
    fn is_own_member(&self, stat: &Stat) -> bool {
        let uid = quell_sys::uid();
        let users = quell_sys::users_of(stat.pid);
        self.is_young(stat) && users.is_ok_and(|users| users.iter().all(|user| *user == uid))
    }

    /// Whether it is not older than the job: than its root, if the record and the id agree on when that started.
    fn is_young(&self, stat: &Stat) -> bool {
        stat.start >= super::possible_members::start_of(self.job.id, self.job.root)
    }

    fn is_at_home(&self, pid: u32) -> bool {
        self.via(pid) == HeldVia::Cgroup || self.marker_rule.is_in_starter_cgroup(pid)
    }
}

/// What a chase finds at a pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    /// A process of the job.
    Marked,
    /// Another process, or a dead one, which has no environment.
    Stranger,
    /// No process, or none yet.
    Empty,
}

struct Pass<'s, 'a> {
    discovery: &'s Discovery<'a>,
    known: BTreeSet<ProcId>,
    /// Who was met, and has not been looked below yet.
    seeds: Vec<ProcessRef>,
    /// Who is in a session of the root's number.
    anchors: Vec<ProcessRef>,
}

impl Pass<'_, '_> {
    fn add(&mut self, seen: &Pinned, via: HeldVia, show: &mut impl FnMut(&Pinned, HeldVia)) -> Below {
        if !self.known.insert(seen.stat.id()) {
            return Below::Skip;
        }
        let root = self.discovery.job.root;
        if via != HeldVia::Init && root.is_some_and(|root| root.pid == seen.stat.sid) {
            self.anchors.push(ProcessRef::of(seen));
        }
        self.seeds.push(ProcessRef::of(seen));
        show(seen, via);
        Below::Visit
    }

    fn descend(
        &mut self,
        via: impl Fn(u32) -> HeldVia,
        show: &mut impl FnMut(&Pinned, HeldVia),
    ) -> io::Result<()> {
        let seeds = std::mem::take(&mut self.seeds);
        let walked = walk_below(seeds, |seen| self.add(seen, via(seen.stat.pid), show));
        // The walk has been below all of them.
        self.seeds.clear();
        walked
    }

    fn add_session(&mut self, show: &mut impl FnMut(&Pinned, HeldVia)) -> io::Result<()> {
        let Some(root) = self.discovery.own_session() else { return Ok(()) };
        // A number that a process bears is no longer that of an older session.
        if quell_sys::stat(root.pid).is_ok_and(|stat| stat.id() != root) {
            return Ok(());
        }
        let anchors = std::mem::take(&mut self.anchors);
        let Some(anchor) = anchors.iter().find_map(ProcessRef::pin_again) else { return Ok(()) };
        for pid in quell_sys::pids()? {
            let may_be = |stat: Stat| stat.sid == root.pid && !stat.is_dead();
            if quell_sys::stat(pid).is_ok_and(may_be)
                && let Some(seen) = pin(pid, |stat| stat.sid == root.pid && anchor.is_alive())
            {
                self.add(&seen, self.discovery.via(pid), show);
            }
        }
        Ok(())
    }
}

/// This process and those above it, which must never be signalled; the lowest first.
fn lineage() -> Vec<Stat> {
    let mut found = Vec::<Stat>::new();
    let mut pid = quell_sys::pid();
    while let Ok(stat) = quell_sys::stat(pid) {
        // A number that was reused on the way up could lead in a circle.
        if found.iter().any(|below| below.pid == stat.pid) {
            break;
        }
        pid = stat.ppid;
        found.push(stat);
        if pid == 0 {
            break;
        }
    }
    found
}

/// The identities of these.
pub(super) fn ourselves() -> BTreeSet<ProcId> {
    lineage().iter().map(Stat::id).collect()
}

/// Where the cgroup v2 hierarchy is.
struct Hierarchy {
    root: String,
    mount: String,
}

impl Hierarchy {
    fn find() -> Option<Self> {
        let (root, mount) = cgroup2_mount(&std::fs::read_to_string("/proc/self/mountinfo").ok()?)?;
        Some(Self { root, mount })
    }

    fn dir(&self, pid: u32) -> Option<PathBuf> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        dir_of(&self.root, &self.mount, v2_path(&text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_among_ourselves_and_so_is_our_parent() {
        let own = ourselves();
        let stat = quell_sys::stat(quell_sys::pid()).unwrap();
        assert!(own.contains(&stat.id()));
        assert!(own.iter().any(|id| id.pid == stat.ppid));
    }
}
