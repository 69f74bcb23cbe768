//! Processes that may be members although nothing proves it. While there is one, the verdict is `unproven`.
//!
//! A process can give up everything that ties it to its job: its environment, its session, its cgroup. Two facts remain. It is
//! not older than the job. And once its parent has died, its new parent is a process that adopts orphans: the init of its PID
//! namespace, or a subreaper above the job, which is older than the job.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use quell_core::{JobId, ProcId, SessionKind};
use quell_sys::{PidFd, Polled, Stat};

use super::cgroup_fs::v2_path;
use super::job_id::{earliest_start, latest_root_start};
use super::keeper_cgroup::cgroups_of;
use super::marker_search::has_marker;

/// The variables that shells set for what they start.
const SHELLS: [&[u8]; 4] = [b"PWD=", b"OLDPWD=", b"SHLVL=", b"_="];
/// How long a recovery reads the processes of the host, at most, until none can have been missed.
const LAST_LOOK: Duration = Duration::from_secs(2);
/// How often the processes in other PID namespaces are read again because one of them has exited meanwhile.
const FEW_PASSES: usize = 16;
/// How long an exiting process is waited for before it is read again.
const EXIT: Duration = Duration::from_millis(10);
/// No host starts more processes per second. Tells how soon PIDs can be reused.
const STARTS_PER_SECOND: u64 = 10_000;
/// How many PIDs are given out, at most, while the processes are listed.
const NEWER: u32 = 64;
/// How many processes a message names.
const NAMED: usize = 5;
/// How long the name of a process can be.
const LONGEST_NAME: usize = 15;

/// The facts that hold for every process of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct PossibleMembers {
    /// No process of the job has an earlier start time.
    pub not_before: u64,
    /// The root started before this time, and its ancestors before the root.
    pub root_before: u64,
    /// Whether the root has a session of its own.
    pub session: SessionKind,
}

impl PossibleMembers {
    /// The facts for job `id` with this recorded root. The record can be forged, so the id decides where it can.
    pub fn of(id: JobId, root: Option<ProcId>, session: SessionKind) -> Self {
        let (by_id, start) = (earliest_start(id), root.map(|root| root.start));
        if by_id == 0 {
            return Self { not_before: start.unwrap_or(0), root_before: start.unwrap_or(u64::MAX), session };
        }
        // A root that is older than the id is forged, or the clock was set back and the time in the id is too late.
        let not_before = start.map_or(by_id, |start| start.min(by_id));
        Self { not_before, root_before: latest_root_start(by_id), session }
    }

    /// Looks at all processes of the host after the job's keepers were lost. Returns why the job may have living processes, or
    /// None if it can't have any.
    pub fn after_loss(&self) -> Option<String> {
        if !quell_sys::in_first_time_namespace() {
            // The kernel shifts the start times that it shows in a time namespace.
            return Some("its keepers were lost, and this command runs in a time namespace".into());
        }
        if quell_sys::uid() != 0 && quell_sys::proc_hides_processes() {
            return Some("its keepers were lost, and /proc hides processes here (hidepid)".into());
        }
        if let Some(path) = quell_sys::mount_over_process() {
            return Some(format!("its keepers were lost, and {path} is hidden below a mount"));
        }
        let mut host = Snapshot::default();
        let deadline = Instant::now() + LAST_LOOK;
        loop {
            if let Err(why) = host.read(deadline) {
                return Some(format!("its keepers were lost, and {why}"));
            }
            let found: Vec<Stat> =
                host.living().filter(|stat| self.may_be_ours(stat, &host)).cloned().collect();
            if found.is_empty() {
                return None;
            }
            // A process that has exited meanwhile can have left a child.
            let (alive, gone): (Vec<&Stat>, Vec<&Stat>) = found.iter().partition(|stat| is_still_alive(stat));
            if !alive.is_empty() {
                return Some(format!(
                    "its keepers were lost, and {} that started after it can't be told from its own: {}",
                    counted(alive.len()),
                    named(&alive)
                ));
            }
            gone.iter().for_each(|stat| host.forget(stat.pid));
        }
    }

    /// Whether a living process of the host may be an orphan of the job. The keeper of another job is not exempt: the lost job
    /// can have started it, and any process can look like a keeper.
    fn may_be_ours(&self, stat: &Stat, host: &Snapshot) -> bool {
        // If the parent has died meanwhile, a process that adopts orphans is the new parent.
        let parent = host.all.get(&stat.ppid).filter(|parent| !parent.is_dead());
        let adopts =
            |parent: &Stat| parent.start < self.root_before || quell_sys::inner_pid(parent.pid) == Some(1);
        self.fits(stat, parent)
            && parent.is_none_or(adopts)
            // This command exits by itself. Its ancestors may be members.
            && stat.pid != quell_sys::pid()
            // A process that became another user is a documented limit of the containment.
            && is_of_this_user(stat.pid)
    }

    /// Looks for orphans of the job in other PID namespaces than the keeper's. A process that enters one leaves its orphans to
    /// the init there and not to the keeper. Returns why there may be some. This runs at each end of a job, so it has to be
    /// cheap if no process was started after the `root`.
    ///
    /// `starter_cgroups` are the cgroups of the job's starter and keeper.
    pub fn in_other_namespaces(
        &self,
        root: ProcId,
        marker: &str,
        starter_cgroups: &[String],
    ) -> Option<String> {
        let newest = quell_sys::newest_pid()?;
        if newest == root.pid {
            return None;
        }
        let age = quell_sys::seconds_since(root.start) as u64 + 1;
        let may_wrap = |max: u64| age.saturating_mul(STARTS_PER_SECOND) >= max;
        // The kernel's smallest default limit. The actual limit is read only if it can matter.
        let wrapped = may_wrap(32 * 1024) && quell_sys::pid_max().is_none_or(may_wrap);
        // PIDs are given out in ascending order. Some can have been given out since the newest was read.
        let last = newest.saturating_add(NEWER);
        let in_turn = |pid: u32| match newest >= root.pid {
            true => pid > root.pid && pid <= last,
            false => pid > root.pid || pid <= last,
        };
        let me = quell_sys::pid();
        let here = quell_sys::pid_namespace(me).ok()?;
        for _ in 0..FEW_PASSES {
            let mut pids = match quell_sys::pids() {
                Ok(pids) => pids,
                Err(error) => return Some(format!("the processes of this host can't be listed: {error}")),
            };
            pids.retain(|pid| *pid != me && (wrapped || in_turn(*pid)));
            let foreign: Vec<u32> = pids.iter().copied().filter(|pid| is_foreign(*pid, here)).collect();
            let stats: Vec<Stat> = foreign.into_iter().filter_map(|pid| quell_sys::stat(pid).ok()).collect();
            let found: Vec<&Stat> =
                stats.iter().filter(|stat| self.is_foreign_orphan(stat, marker, starter_cgroups)).collect();
            // The facts of a process that exits meanwhile can contradict each other: then all are read again.
            if found.iter().all(|stat| is_still_alive(stat)) {
                return (!found.is_empty()).then(|| {
                    format!(
                        "{} in another PID namespace started after the job and can't be told from its orphans: {}",
                        counted(found.len()),
                        named(&found)
                    )
                });
            }
        }
        Some("processes in other PID namespaces start and exit faster than they can be looked at".into())
    }

    /// Whether a process in another PID namespace can be an orphan of the job there.
    fn is_foreign_orphan(&self, stat: &Stat, marker: &str, starter_cgroups: &[String]) -> bool {
        let parent = quell_sys::stat(stat.ppid).ok();
        let own = quell_sys::pid();
        // If the leader thread has exited, another thread is read.
        let thread = quell_sys::living_thread(stat.pid, stat);
        let placements = || Some((Placement::of(thread)?, Placement::of(stat.ppid)?, Placement::of(own)?));
        self.fits(stat, parent.as_ref())
            && quell_sys::inner_pid(stat.ppid) == Some(1)
            // An exiting process is in no namespace any more, and no process outlives the init of its namespace.
            && placements().is_some_and(|(own, init, ours)| {
                has_marker(stat.pid, marker) || !own.is_native(&init, &ours, starter_cgroups)
            })
            && !super::orphaned_cgroup::keeps_a_job(stat)
    }

    /// Whether these facts fit an orphan of the job.
    fn fits(&self, stat: &Stat, parent: Option<&Stat>) -> bool {
        // If the parent is outside of our PID namespace, the process was not adopted inside of it.
        let inside = stat.ppid != 0 && !stat.is_kernel_thread();
        stat.start >= self.not_before && inside && !stat.is_dead() && !self.is_in_older_session(stat, parent)
    }

    /// Whether it is in a session that the job did not make. A process can leave its session only for a new one.
    fn is_in_older_session(&self, stat: &Stat, parent: Option<&Stat>) -> bool {
        let older = || quell_sys::stat(stat.sid).is_ok_and(|leader| leader.start < self.not_before);
        self.session == SessionKind::Own && (parent.is_some_and(|parent| parent.sid == stat.sid) || older())
    }
}

/// A tree that quell did not start, as it was before the first signal. Quell does not adopt its orphans.
#[derive(Debug)]
pub struct ForeignTree {
    facts: PossibleMembers,
    /// The group of its root.
    group: u32,
    /// The ancestors of its root. One of them adopts the tree's orphans.
    above: Vec<ProcId>,
    users: Option<[u32; 4]>,
    environment: Vec<u8>,
}

impl ForeignTree {
    /// The tree below the process with this PID, which the caller has pinned.
    pub fn of(root: u32) -> Self {
        let now = quell_sys::ticks_since_boot();
        let above = |pid: u32| quell_sys::stat(pid).and_then(|stat| quell_sys::stat(stat.ppid)).ok();
        let ancestors = std::iter::successors(above(root), |stat| above(stat.pid));
        Self {
            facts: PossibleMembers { not_before: now, root_before: now, session: SessionKind::Own },
            group: quell_sys::stat(root).map_or(0, |stat| stat.pgid),
            above: ancestors.map(|stat| stat.id()).collect(),
            users: quell_sys::users_of(root).ok(),
            environment: quell_sys::environment(root).unwrap_or_default(),
        }
    }

    /// Looks for processes that members have started since, and that were orphaned before they were seen. Returns why there may
    /// be some. `members` are the processes that were seen, and none of them is alive.
    pub fn orphans(&self, members: &[ProcId]) -> Option<String> {
        let pids = match quell_sys::pids() {
            Ok(pids) => pids,
            Err(error) => return Some(format!("the processes of this host can't be listed: {error}")),
        };
        let stats = pids.into_iter().filter_map(|pid| quell_sys::stat(pid).ok());
        let found: Vec<Stat> =
            stats.filter(|stat| self.may_have_started(stat, members) && is_still_alive(stat)).collect();
        (!found.is_empty()).then(|| {
            let (count, names) = (counted(found.len()), named(&found.iter().collect::<Vec<_>>()));
            format!("{count} started meanwhile and may have been left by the tree: {names}")
        })
    }

    fn may_have_started(&self, stat: &Stat, members: &[ProcId]) -> bool {
        if stat.start < self.facts.not_before {
            return false;
        }
        let parent = quell_sys::stat(stat.ppid).or_else(|_| {
            // It exited meanwhile, and another process has adopted this one.
            quell_sys::stat(quell_sys::stat(stat.pid)?.ppid)
        });
        let Ok(parent) = parent else { return false };
        let in_their_group = || {
            let is_theirs = stat.pgid == self.group || members.iter().any(|member| member.pid == stat.pgid);
            is_theirs && stat.pgid != parent.pgid && !stat.is_dead()
        };
        self.above.contains(&parent.id())
            && quell_sys::users_of(stat.pid).ok() == self.users
            && (in_their_group() || self.facts.fits(stat, Some(&parent)) && self.has_environment(stat.pid))
            && !super::orphaned_cgroup::keeps_a_job(stat)
    }

    /// Whether the process has the variables of the tree's root, except those that shells set. True if they can't be read.
    fn has_environment(&self, pid: u32) -> bool {
        let Ok(environment) = quell_sys::environment(pid) else { return true };
        let variables = |bytes: &[u8]| -> Vec<Vec<u8>> {
            let all = bytes.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
            let is_shells = |entry: &[u8]| SHELLS.iter().any(|name| entry.starts_with(name));
            all.filter(|entry| !is_shells(entry)).map(<[u8]>::to_vec).collect()
        };
        let own = variables(&environment);
        variables(&self.environment).iter().all(|variable| own.contains(variable))
    }
}

/// Whether `pid` is in another PID namespace than `here`.
fn is_foreign(pid: u32, here: u64) -> bool {
    match quell_sys::pid_namespace(pid) {
        Ok(namespace) => namespace != here,
        // The link can't be read: it belongs to another user, or is protected. Its PIDs can be read.
        Err(error) => {
            !quell_sys::is_gone(&error) && is_of_this_user(pid) && quell_sys::inner_pid(pid).is_some()
        }
    }
}

/// Whether the same process is alive and not exiting. Waits a moment for one that is exiting.
fn is_still_alive(stat: &Stat) -> bool {
    let now = quell_sys::stat(stat.pid).ok().filter(|now| now.start == stat.start && !now.is_dead());
    let leaves = now.as_ref().is_some_and(|now| now.is_exiting() && now.state != b'Z');
    if leaves && let Ok(pidfd) = PidFd::open(stat.pid) {
        let _ = quell_sys::poll_until(&[Polled::Read(pidfd.as_fd())], Some(Instant::now() + EXIT));
    }
    now.is_some() && !leaves
}

/// The cgroups and the mount namespace of a process.
struct Placement {
    cgroups: String,
    /// None if it may not be read.
    mounts: Option<u64>,
}

impl Placement {
    /// None if the process is gone or exiting.
    fn of(pid: u32) -> Option<Self> {
        let mounts = match quell_sys::mount_namespace(pid) {
            Ok(mounts) => Some(mounts),
            Err(error) if quell_sys::is_gone(&error) => return None,
            Err(_) => None,
        };
        Some(Self { cgroups: cgroups_of(pid), mounts })
    }

    /// Whether a process in the PID namespace of `init` was started there, and did not come from a job of ours. It is in the
    /// cgroup of init, or below it if our own processes are not below it too. It is also in init's own mount namespace, or at
    /// least not in ours, if init's cgroup is not one of the job's.
    fn is_native(&self, init: &Self, ours: &Self, starter_cgroups: &[String]) -> bool {
        let below = |own: &str, top: &str| {
            own.strip_prefix(top.trim_end_matches('/'))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let v2 = |placement: &Self| v2_path(&placement.cgroups).map(str::to_owned);
        let inside = v2(self).zip(v2(init)).is_some_and(|(own, top)| {
            let mut starters = starter_cgroups.iter().chain([&ours.cgroups]).filter_map(|text| v2_path(text));
            own == top || below(&own, &top) && !starters.any(|starter| below(starter, &top))
        });
        let own_mounts = self.mounts.is_some() && self.mounts == init.mounts && init.mounts != ours.mounts;
        let apart = !starter_cgroups.contains(&init.cgroups) && self.mounts != ours.mounts;
        inside && (own_mounts || apart)
    }
}

/// All processes of the host, read one after another.
///
/// It is complete if no process can have started unseen. Each pass reads the newest PID, then all listed processes, then the
/// newest PID again. If that has not changed and every newly listed process was alive, no process has started meanwhile. No
/// process can have forked behind the listing either: its parent would be in the snapshot, or would have been found dead.
#[derive(Default)]
struct Snapshot {
    all: BTreeMap<u32, Stat>,
    newest: u32,
    passes: usize,
}

impl Snapshot {
    /// Reads processes that are not known yet, until the snapshot is complete. Fails at `deadline`.
    fn read(&mut self, deadline: Instant) -> Result<(), String> {
        loop {
            let newest = newest_pid()?;
            if newest < self.newest {
                // Known PIDs may have been reused.
                *self = Self::default();
            }
            self.newest = newest;
            let mut is_settled = self.passes > 0;
            for pid in quell_sys::pids().map_err(|error| format!("/proc can't be listed: {error}"))? {
                if self.all.contains_key(&pid) {
                    continue;
                }
                if Instant::now() >= deadline {
                    return Err("processes start and exit faster than they can be looked at".into());
                }
                match quell_sys::stat(pid) {
                    Ok(stat) => {
                        is_settled &= !stat.is_dead();
                        self.all.insert(pid, stat);
                    }
                    Err(error) if quell_sys::is_gone(&error) => is_settled = false,
                    Err(error) => return Err(format!("process {pid} can't be read: {error}")),
                }
            }
            self.passes += 1;
            if is_settled && newest_pid()? == newest {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err("processes start and exit faster than they can be looked at".into());
            }
        }
    }

    fn living(&self) -> impl Iterator<Item = &Stat> {
        self.all.values().filter(|stat| !stat.is_dead())
    }

    /// Makes the next pass read this PID again.
    fn forget(&mut self, pid: u32) {
        self.all.remove(&pid);
    }
}

fn newest_pid() -> Result<u32, String> {
    quell_sys::newest_pid().ok_or_else(|| "/proc/loadavg can't be read".into())
}

/// Whether `pid` runs as this user, or any user if this is root. That a process can become another user is a documented limit.
pub(super) fn is_of_this_user(pid: u32) -> bool {
    let uid = quell_sys::uid();
    uid == 0 || quell_sys::users_of(pid).is_ok_and(|users| users.contains(&uid))
}

fn counted(count: usize) -> String {
    if count == 1 { "1 process".into() } else { format!("{count} processes") }
}

/// The PIDs and names of the first few, for a message. The kernel cuts names, which can cut a value that is masked.
pub(super) fn named(found: &[&Stat]) -> String {
    let name = |stat: &&Stat| {
        let cut = if stat.comm.len() >= LONGEST_NAME { "…" } else { "" };
        format!("{} ({}{cut})", stat.pid, stat.comm)
    };
    let mut names: Vec<String> = found.iter().take(NAMED).map(name).collect();
    if found.len() > NAMED {
        names.push("…".into());
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: u32, ppid: u32, sid: u32, start: u64) -> Stat {
        let line = format!("{pid} (x) S {ppid} {pid} {sid} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0 0");
        Stat::parse(&line).unwrap()
    }

    #[test]
    fn a_process_in_the_session_of_an_older_parent_is_not_an_orphan_of_the_job() {
        let doubt = PossibleMembers { not_before: 100, root_before: 100, session: SessionKind::Own };
        // No process has these PIDs, so no session leader can be read.
        let parent = stat(5_000_000, 1, 5_000_000, 50);
        assert!(!doubt.fits(&stat(5_000_001, 5_000_000, 5_000_000, 150), Some(&parent)));
        assert!(doubt.fits(&stat(5_000_001, 5_000_000, 5_000_001, 150), Some(&parent)));
        assert!(!doubt.fits(&stat(5_000_001, 5_000_000, 5_000_001, 99), Some(&parent)), "older than the job");
        let shared = PossibleMembers { session: SessionKind::Shared, ..doubt };
        assert!(shared.fits(&stat(5_000_001, 5_000_000, 5_000_000, 150), Some(&parent)));
    }

    #[test]
    fn a_containers_own_process_is_told_from_one_that_entered_it() {
        let at = |cgroups: &str, mounts| Placement { cgroups: format!("0::{cgroups}"), mounts: Some(mounts) };
        let (ours, starter_cgroups) = (at("/session", 1), ["0::/session".to_owned()]);
        let native = |own: Placement, init: Placement| own.is_native(&init, &ours, &starter_cgroups);
        assert!(native(at("/box", 2), at("/box", 2)) && native(at("/box/a", 3), at("/box", 2)));
        assert!(!native(at("/session", 2), at("/box", 2)), "in the job's cgroup");
        assert!(!native(at("/boxes", 2), at("/box", 2)), "in a third cgroup");
        assert!(!native(at("/box", 1), at("/box", 2)), "in the container's cgroup, with the job's mounts");
        // A sandbox in the same cgroup as the job.
        assert!(native(at("/session", 2), at("/session", 2)));
        assert!(!native(at("/session", 1), at("/session", 2)), "with the job's mounts");
        assert!(!native(at("/session", 1), at("/session", 1)), "a sandbox without mounts of its own");
        // A sandbox above the job's cgroup.
        assert!(native(at("/", 2), at("/", 2)));
        assert!(!native(at("/session", 2), at("/", 2)), "in the job's cgroup");
        assert!(!native(at("/other", 2), at("/", 2)), "in a third cgroup");
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_process_too_old_for_its_job() {
        let (now, id) = (quell_sys::ticks_since_boot(), JobId::new(quell_sys::unix_ms(), 1));
        let root = |start| Some(ProcId { pid: 1, start });
        let older = now.saturating_sub(5 * quell_sys::ticks_per_second()).max(1);
        assert_eq!(PossibleMembers::of(id, root(older), SessionKind::Own).not_before, older);
        assert!(
            PossibleMembers::of(id, root(u64::MAX), SessionKind::Own).not_before <= now,
            "later than the job"
        );
    }
}
