//! The search for the members of a job that has no keeper, by a process that is not their ancestor.
//!
//! A living process is a member if one of these holds. Each is checked while the process is pinned:
//! - it is the recorded root: PID and start time match, and so does what quell made of it. That is the leader of its own
//!   session that is not older than the job, or the init of a PID namespace, or in a shared session at least the marker or the
//!   cgroup. Any process of the user can rewrite a record, but not a session;
//! - it is in the job's cgroup;
//! - it carries the job's marker, in a cgroup of the job's starter or keeper (`marker_search.rs`);
//! - its keeper has recorded it as a member, by PID and start time, it is not older than the job, and it runs as this user. So
//!   a forged record can't name another user's process;
//! - its parent is a member;
//! - it is in the session that the root made, together with a member that was proven in another way. A session id is not reused
//!   while a process is in the session.

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

/// A chase ends after this time and this many looks without a new process.
const QUIET: Duration = Duration::from_millis(3);
const QUIET_LOOKS: usize = 200;
/// A chase also ends when so many new processes were not the job's, if a chain would have shown itself in that time.
const STRANGERS: u32 = 64;
/// How many of the newest PIDs one look of a chase reads.
const LATEST: u32 = 1024;
/// How many of those can belong to forks that are under way.
const UNDER_WAY: u32 = 64;

/// What the record says of a job whose keeper and standby are gone.
#[derive(Clone, Copy, Debug)]
pub struct OrphanedJob<'a> {
    pub id: JobId,
    /// What held it, if that is on record.
    pub held: Option<ContainmentKind>,
    /// Its root, or the init of its PID namespace. None if the program has not run, or if the root is not on record.
    pub root: Option<ProcId>,
    /// Its cgroup. Used only if its name is that of the job's cgroup.
    pub cgroup: Option<&'a Path>,
    /// Whether the root had a session of its own.
    pub session: SessionKind,
    /// The job's marker. Empty if it is not known: then no process is found by it.
    pub marker: &'a str,
    /// The cgroups of the job's starter and keeper. Empty if they are not known.
    pub starter_cgroups: &'a [String],
    /// Members that its keeper has recorded.
    pub members: &'a [ProcId],
    /// Processes that were recorded as survivors. A record can be rewritten, so they are not signalled for that. But while one
    /// of them lives, the job is not gone.
    pub survivors: &'a [ProcId],
}

impl OrphanedJob<'_> {
    /// Whether the recorded root is the init of a PID namespace.
    pub(super) fn has_init(&self) -> bool {
        self.held.is_some_and(ContainmentKind::has_init)
    }

    /// What held it. If that is not on record, it was a cgroup if one was found.
    pub fn kind(&self, found: Option<&Path>) -> ContainmentKind {
        let presumed = if found.is_some() { ContainmentKind::Cgroup } else { ContainmentKind::Reaper };
        self.held.unwrap_or(presumed)
    }

    /// The facts that hold for every process of the job.
    pub(super) fn possible_members(&self) -> PossibleMembers {
        PossibleMembers::of(self.id, self.root, self.session)
    }
}

/// What holds a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldVia {
    /// The job's cgroup.
    Cgroup,
    /// It is the init of the job's PID namespace.
    Init,
    /// It is below that init, and dies with it.
    Namespace,
    Nothing,
}

/// The variable that tells a process the id of its job.
pub const JOB_VARIABLE: &str = "QUELL_JOB";

/// The search for one job's members.
pub(super) struct Discovery<'a> {
    job: &'a OrphanedJob<'a>,
    cgroups: &'a [Cgroup],
    hierarchy: Option<Hierarchy>,
    /// How members outside the tree are recognized.
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

    /// Calls `show` once for every living member. Like each walk it races with forks: only a pass without a new member is
    /// complete. Returns the processes that carry the marker in another cgroup, which are left alone. After an error, some
    /// members may not have been shown.
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
            // The cheapest check first: most processes are older than the job.
            let may_be = |stat: Stat| !stat.is_dead() && self.marker_rule.matches(&stat);
            if !quell_sys::stat(pid).is_ok_and(may_be) {
                continue;
            }
            // Checked again while it is pinned.
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
        // A descendant of a member is a member, in any cgroup.
        elsewhere.retain(|id| !pass.known.contains(id));
        Ok(elsewhere)
    }

    /// This process and its ancestors, if they are members: then quell was called from within the job. Other processes are read
    /// only if one of these may be in the root's session.
    pub(super) fn members_above_us(&self) -> io::Result<Vec<Stat>> {
        let (mut found, mut above_is_member) = (Vec::new(), false);
        let above = lineage();
        // A descendant of a member is a member.
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

    /// Whether the process is a member by its own facts, without its parent and its session.
    fn is_member_by_itself(&self, stat: &Stat) -> bool {
        let recorded = || self.job.members.contains(&stat.id()) && self.is_own_member(stat);
        self.is_root(stat)
            || recorded()
            || self.via(stat.pid) == HeldVia::Cgroup
            || (self.marker_rule.matches(stat) && self.marker_rule.is_in_starter_cgroup(stat.pid))
    }

    /// The root, if it made a session of its own.
    fn own_session(&self) -> Option<ProcId> {
        let own = self.job.session == SessionKind::Own && !self.job.has_init();
        self.job.root.filter(|_| own)
    }

    /// Chases a chain of processes that fork and exit, each gone before a pass reads it. Reads every PID that was given out
    /// since the last look. Ends when no more processes are made, or when all new ones during `cold` were not the job's. The
    /// living end of a chain is always among the new PIDs, even while it waits for a CPU. Returns true if a chain was seen and
    /// was still there at the deadline.
    pub(super) fn chase_forks(
        &self,
        cold: Duration,
        deadline: Instant,
        mut show: impl FnMut(&Pinned),
    ) -> bool {
        // The chain must not get more CPU time than the process that chases it.
        let _priority = quell_sys::raise_priority();
        let (mut last, mut looks, mut strangers, mut traced) = (None, 0, 0, false);
        let (mut last_birth, mut last_trace) = (Instant::now(), Instant::now());
        // PIDs that were given out and had no process yet, or no process any more.
        let mut empty = Vec::new();
        // No event reports the forks of other processes' children, so this loop polls without a pause. It is short.
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
            // After the PIDs have wrapped around, the last one is above the newest.
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

    /// Reads a process that a chase has found.
    fn read_fork(&self, pid: u32, show: &mut impl FnMut(&Pinned)) -> Read {
        match quell_sys::stat(pid) {
            Err(_) => return Read::Empty,
            // Most of what a chain leaves behind.
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
        // In a threaded cgroup, a thread other than the leader can be the one inside.
        let threads = || marker_search::threads(pid).filter_map(|thread| hierarchy.dir(thread));
        let is_inside = hierarchy.dir(pid).is_some_and(held) || threads().any(held);
        if is_inside { HeldVia::Cgroup } else { HeldVia::Nothing }
    }

    /// Whether it is the recorded root. The recorded identity can be forged, so this also checks what the program can't undo.
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

    /// Whether a process that is recorded as a member may be signalled for that.
    fn is_own_member(&self, stat: &Stat) -> bool {
        let uid = quell_sys::uid();
        let users = quell_sys::users_of(stat.pid);
        self.is_young(stat) && users.is_ok_and(|users| users.iter().all(|user| *user == uid))
    }

    /// Whether it is not older than the job: than the root, if the record and the id agree on the root's start.
    fn is_young(&self, stat: &Stat) -> bool {
        stat.start >= super::job_id::start_of(self.job.id, self.job.root)
    }

    fn is_at_home(&self, pid: u32) -> bool {
        self.via(pid) == HeldVia::Cgroup || self.marker_rule.is_in_starter_cgroup(pid)
    }
}

/// What a chase finds at a PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    /// A member.
    Marked,
    /// Another process, or a dead one, whose environment can't be read.
    Stranger,
    /// No process, or not yet.
    Empty,
}

struct Pass<'s, 'a> {
    discovery: &'s Discovery<'a>,
    known: BTreeSet<ProcId>,
    /// Members whose children were not listed yet.
    seeds: Vec<ProcessRef>,
    /// Members in a session with the root's PID as its id.
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
        // The walk has listed the children of all of them.
        self.seeds.clear();
        walked
    }

    fn add_session(&mut self, show: &mut impl FnMut(&Pinned, HeldVia)) -> io::Result<()> {
        let Some(root) = self.discovery.own_session() else { return Ok(()) };
        // If another process has the root's PID, the session id is not the root's either.
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

/// This process and its ancestors, lowest first. They must never be signalled.
fn lineage() -> Vec<Stat> {
    let mut found = Vec::<Stat>::new();
    let mut pid = quell_sys::pid();
    while let Ok(stat) = quell_sys::stat(pid) {
        // A PID that was reused meanwhile could lead in a circle.
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

/// The identities of this process and its ancestors.
pub(super) fn own_lineage() -> BTreeSet<ProcId> {
    lineage().iter().map(Stat::id).collect()
}

/// Where the cgroup v2 hierarchy is mounted.
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
    fn the_own_identities_include_this_process_and_its_parent() {
        let own = own_lineage();
        let stat = quell_sys::stat(quell_sys::pid()).unwrap();
        assert!(own.contains(&stat.id()));
        assert!(own.iter().any(|id| id.pid == stat.ppid));
    }
}
