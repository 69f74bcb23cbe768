//! Processes that may be the job's although nothing proves it. While there is one, the job is not proven to be gone.
//!
//! A process can give up everything that ties it to its job: its environment, its session, its cgroup. Two facts stay.
//! It is not older than the job. And once its parent is dead, its parent is a process that adopts orphans: the init of
//! its PID namespace, or a subreaper above the job, which is older than the job.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use quell_core::{JobId, ProcId, SessionKind};
use quell_sys::{PidFd, Polled, Stat};

use super::cgroup_fs::v2_path;
use super::keeper_cgroup::cgroups_of;

/// The variables that shells set for what they start.
const SHELLS: [&[u8]; 4] = [b"PWD=", b"OLDPWD=", b"SHLVL=", b"_="];
/// How long all processes of the host are read at the end of a recovery, until none can have been missed.
const LAST_LOOK: Duration = Duration::from_secs(2);
/// How often the processes in namespaces of others are read again because one of them had exited meanwhile.
const FEW_PASSES: usize = 16;
/// How long a process that exits is waited for, before it is looked at again.
const EXIT: Duration = Duration::from_millis(10);
/// No host starts more processes in a second. It says how soon PIDs can be used again.
const STARTS_PER_SECOND: u64 = 10_000;
/// How many PIDs are given out, at most, while all processes are listed.
const NEWER: u32 = 64;
/// How many processes are named.
const NAMED: usize = 5;
/// How much earlier than its id a job can have begun, in seconds: the wall clock is not the kernel's clock.
const SLACK: u64 = 1;
/// How long after that, in seconds, its first root is born at the latest.
const BIRTH: u64 = 3;

/// The earliest start time that a process of job `id` can have; 0 if the id is older than this boot. A job can rewrite its
/// record, but not its id.
///
/// An id of this boot has the kernel's clock in it, which cannot be set. Of another one only the wall clock is known; 0 if
/// that can't be right.
pub fn earliest_start(id: JobId) -> u64 {
    let of_this_boot = super::birth::boot_bits().and_then(|boot| id.ticks_since(boot));
    if let Some(ticks) = of_this_boot.filter(|ticks| *ticks <= quell_sys::ticks_since_boot()) {
        return ticks;
    }
    let Some(age) = quell_sys::unix_ms().checked_sub(id.unix_ms()) else { return 0 };
    let per_second = quell_sys::ticks_per_second();
    let age = (age / 1000 + SLACK).saturating_mul(per_second);
    quell_sys::ticks_since_boot().saturating_sub(age)
}

/// When job `id` started: as its first root did, if the id agrees; else at the earliest that the id allows.
pub(super) fn start_of(id: JobId, root: Option<ProcId>) -> u64 {
    let by_id = earliest_start(id);
    let latest = by_id + BIRTH * quell_sys::ticks_per_second();
    root.map(|root| root.start).filter(|start| by_id == 0 || (by_id..latest).contains(start)).unwrap_or(by_id)
}

/// What is known of every process of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    /// None of them started earlier.
    pub born: u64,
    /// Its root was born before this, and those above it before the root.
    pub begun: u64,
    /// Whether the root made a session of its own.
    pub session: SessionKind,
}

impl Doubt {
    /// What is known of job `id`, whose root is said to be this one. That may be forged, so it is the id that counts where
    /// it can tell.
    pub fn of(id: JobId, root: Option<ProcId>, session: SessionKind) -> Self {
        let (by_id, start) = (earliest_start(id), root.map(|root| root.start));
        if by_id == 0 {
            return Self { born: start.unwrap_or(0), begun: start.unwrap_or(u64::MAX), session };
        }
        // A root that is older than the id is forged, or the clock was set back: then the id is too young.
        let born = start.map_or(by_id, |start| start.min(by_id));
        Self { born, begun: by_id + BIRTH * quell_sys::ticks_per_second(), session }
    }

    /// Looks at all processes of this host after the job's keepers were lost. Why the job may have processes; none if it
    /// can have none.
    pub fn after_loss(&self) -> Option<String> {
        if !quell_sys::in_first_time_namespace() {
            // The kernel shifts the start times that it shows here.
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
            // One that has exited since may have left a child.
            let (alive, gone): (Vec<&Stat>, Vec<&Stat>) = found.iter().partition(|stat| lives(stat));
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

    /// Whether a living process of the host may be an orphan of the job. The keeper of another job is one like any other: the
    /// lost job may have started it, and any process can look like a keeper.
    fn may_be_ours(&self, stat: &Stat, host: &Snapshot) -> bool {
        // A parent that has died since has left it to a process that adopts orphans.
        let parent = host.all.get(&stat.ppid).filter(|parent| !parent.is_dead());
        let adopts = |parent: &Stat| parent.start < self.begun || quell_sys::inner_pid(parent.pid) == Some(1);
        self.fits(stat, parent)
            && parent.is_none_or(adopts)
            // This command ends by itself. What it was called from may be the job's.
            && stat.pid != quell_sys::pid()
            // Another user's process is a limit of this containment that is known and told.
            && is_of_this_user(stat.pid)
    }

    /// Looks for orphans of the job in PID namespaces that are not the keeper's: a process that enters one leaves its
    /// orphans to the init there, and not to the keeper. Why there may be some. Called at each end of a job, so it must
    /// cost next to nothing where no process was started after the `root`.
    ///
    /// `homes` are the cgroups of the job's starter and keeper.
    pub fn in_other_namespaces(&self, root: ProcId, homes: &[String]) -> Option<String> {
        let newest = quell_sys::newest_pid()?;
        if newest == root.pid {
            return None;
        }
        let age = quell_sys::seconds_since(root.start) as u64 + 1;
        let may_wrap = |max: u64| age.saturating_mul(STARTS_PER_SECOND) >= max;
        // The smallest limit that the kernel has by default; asked for only if it can matter.
        let wrapped = may_wrap(32 * 1024) && quell_sys::pid_max().is_none_or(may_wrap);
        // PIDs are given out in turn. Some may have been since the newest was asked for.
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
            let found: Vec<&Stat> = stats.iter().filter(|stat| self.is_foreign_orphan(stat, homes)).collect();
            // What is read of a process that exits meanwhile does not fit together: then all are looked at again.
            if found.iter().all(|stat| lives(stat)) {
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
    fn is_foreign_orphan(&self, stat: &Stat, homes: &[String]) -> bool {
        let parent = quell_sys::stat(stat.ppid).ok();
        let own = quell_sys::pid();
        // A process whose first thread has exited is asked by another one.
        let thread = quell_sys::living_thread(stat.pid, stat);
        let settled = || Some((Settled::of(thread)?, Settled::of(stat.ppid)?, Settled::of(own)?));
        self.fits(stat, parent.as_ref())
            && quell_sys::inner_pid(stat.ppid) == Some(1)
            // One that is on its way out is in no namespace; and the kernel lets nothing outlive an init.
            && settled().is_some_and(|(own, init, ours)| !own.is_native(&init, &ours, homes))
            && !super::remains::keeps_a_job(stat)
    }

    /// Whether an orphan of the job can look like this.
    fn fits(&self, stat: &Stat, parent: Option<&Stat>) -> bool {
        // A process whose parent is outside of our PID namespace was not adopted by it.
        let inside = stat.ppid != 0 && !stat.is_kernel_thread();
        stat.start >= self.born && inside && !stat.is_dead() && !self.is_in_older_session(stat, parent)
    }

    /// Whether it is in a session that the job has not made. A process can leave its session for a new one, and for no
    /// other.
    fn is_in_older_session(&self, stat: &Stat, parent: Option<&Stat>) -> bool {
        let older = || quell_sys::stat(stat.sid).is_ok_and(|leader| leader.start < self.born);
        self.session == SessionKind::Own && (parent.is_some_and(|parent| parent.sid == stat.sid) || older())
    }
}

/// A tree that quell did not start, as it was before its first signal: its orphans do not fall to quell.
#[derive(Debug)]
pub struct ForeignTree {
    doubt: Doubt,
    /// The group of its root.
    group: u32,
    /// One of them adopts its orphans.
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
            doubt: Doubt { born: now, begun: now, session: SessionKind::Own },
            group: quell_sys::stat(root).map_or(0, |stat| stat.pgid),
            above: ancestors.map(|stat| stat.id()).collect(),
            users: quell_sys::users_of(root).ok(),
            environment: quell_sys::environment(root).unwrap_or_default(),
        }
    }

    /// Looks for processes that members have started since, and that were orphaned before they were seen. Why there may be some;
    /// `members` are the processes that were seen, and none of them is alive.
    pub fn orphans(&self, members: &[ProcId]) -> Option<String> {
        let stats =
            quell_sys::pids().unwrap_or_default().into_iter().filter_map(|pid| quell_sys::stat(pid).ok());
        let found: Vec<Stat> =
            stats.filter(|stat| self.may_have_started(stat, members) && lives(stat)).collect();
        (!found.is_empty()).then(|| {
            let (count, names) = (counted(found.len()), named(&found.iter().collect::<Vec<_>>()));
            format!("{count} that started meanwhile can't be told from its orphans: {names}")
        })
    }

    fn may_have_started(&self, stat: &Stat, members: &[ProcId]) -> bool {
        if stat.start < self.doubt.born {
            return false;
        }
        let Ok(parent) = quell_sys::stat(stat.ppid) else { return false };
        let in_their_group = || {
            let is_theirs = stat.pgid == self.group || members.iter().any(|member| member.pid == stat.pgid);
            is_theirs && stat.pgid != parent.pgid && !stat.is_dead()
        };
        self.above.contains(&parent.id())
            && quell_sys::users_of(stat.pid).ok() == self.users
            && (in_their_group() || self.doubt.fits(stat, Some(&parent)) && self.has_environment(stat.pid))
            && !super::remains::keeps_a_job(stat)
    }

    /// Whether the process has the variables of the tree's root, but for those that shells set. So it is if they can't be read.
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
        // It may not be looked at: it is another user's, or keeps others from it. Its numbers can be read.
        Err(error) => {
            !quell_sys::is_gone(&error) && is_of_this_user(pid) && quell_sys::inner_pid(pid).is_some()
        }
    }
}

/// Whether this very process has neither exited since it was read, nor is about to. If it is, this waits for that a moment.
fn lives(stat: &Stat) -> bool {
    let now = quell_sys::stat(stat.pid).ok().filter(|now| now.start == stat.start && !now.is_dead());
    let leaves = now.as_ref().is_some_and(|now| now.is_exiting() && now.state != b'Z');
    if leaves && let Ok(pidfd) = PidFd::open(stat.pid) {
        let _ = quell_sys::poll_until(&[Polled::Read(pidfd.as_fd())], Some(Instant::now() + EXIT));
    }
    now.is_some() && !leaves
}

/// Where a process is settled besides its PID namespace.
struct Settled {
    cgroups: String,
    /// None where it may not be asked.
    mounts: Option<u64>,
}

impl Settled {
    /// None if it is gone, or has nothing left to do but that.
    fn of(pid: u32) -> Option<Self> {
        let mounts = match quell_sys::mount_namespace(pid) {
            Ok(mounts) => Some(mounts),
            Err(error) if quell_sys::is_gone(&error) => return None,
            Err(_) => None,
        };
        Some(Self { cgroups: cgroups_of(pid), mounts })
    }

    /// Whether a process in the PID namespace of `init` is as that one's own processes are, and not as one that came from
    /// a job of ours: it is in init's cgroup or below, and in init's own mount namespace, or at least in no mount namespace
    /// of ours where that cgroup is not the job's.
    fn is_native(&self, init: &Self, ours: &Self, homes: &[String]) -> bool {
        let below = |own: &str, top: &str| {
            own.strip_prefix(top.trim_end_matches('/'))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let v2 = |settled: &Self| v2_path(&settled.cgroups).map(str::to_owned);
        let inside = v2(self).zip(v2(init)).is_some_and(|(own, top)| below(&own, &top));
        let own_mounts = self.mounts.is_some() && self.mounts == init.mounts && init.mounts != ours.mounts;
        let apart = !homes.contains(&init.cgroups) && self.mounts != ours.mounts;
        inside && (own_mounts || apart)
    }
}

/// All processes of the host, as they were read one after another.
///
/// It is complete if a process can't have been born unseen. Between two looks at the number that was given out last, all
/// that is listed is read. If the number is the same and each process that was new in the listing was alive, then none was
/// born meanwhile, and none had been forking while the listing passed it: its parent would have been read alive, or have
/// been found dead.
#[derive(Default)]
struct Snapshot {
    all: BTreeMap<u32, Stat>,
    newest: u32,
    passes: usize,
}

impl Snapshot {
    /// Reads what is not known yet until it is complete. Why it can't be, after `deadline` at the latest.
    fn read(&mut self, deadline: Instant) -> Result<(), String> {
        loop {
            let newest = newest_pid()?;
            if newest < self.newest {
                // Numbers that are known may be other processes' by now.
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

    /// Has the next look read what is there instead of a process that has exited.
    fn forget(&mut self, pid: u32) {
        self.all.remove(&pid);
    }
}

fn newest_pid() -> Result<u32, String> {
    quell_sys::newest_pid().ok_or_else(|| "/proc/loadavg can't be read".into())
}

/// Whether `pid` runs as a user that this user's jobs run as; to become another one is a known limit.
pub(super) fn is_of_this_user(pid: u32) -> bool {
    let uid = quell_sys::uid();
    uid == 0 || quell_sys::users_of(pid).is_ok_and(|users| users.contains(&uid))
}

fn counted(count: usize) -> String {
    if count == 1 { "1 process".into() } else { format!("{count} processes") }
}

/// The first few of these, for a message.
pub(super) fn named(found: &[&Stat]) -> String {
    let mut names: Vec<String> =
        found.iter().take(NAMED).map(|stat| format!("{} ({})", stat.pid, stat.comm)).collect();
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
        let doubt = Doubt { born: 100, begun: 100, session: SessionKind::Own };
        // No process has these numbers, so the leader of a session can't be asked.
        let parent = stat(5_000_000, 1, 5_000_000, 50);
        assert!(!doubt.fits(&stat(5_000_001, 5_000_000, 5_000_000, 150), Some(&parent)));
        assert!(doubt.fits(&stat(5_000_001, 5_000_000, 5_000_001, 150), Some(&parent)));
        assert!(!doubt.fits(&stat(5_000_001, 5_000_000, 5_000_001, 99), Some(&parent)), "older than the job");
        let shared = Doubt { session: SessionKind::Shared, ..doubt };
        assert!(shared.fits(&stat(5_000_001, 5_000_000, 5_000_000, 150), Some(&parent)));
    }

    #[test]
    fn a_containers_own_process_is_told_from_one_that_entered_it() {
        let at = |cgroups: &str, mounts| Settled { cgroups: format!("0::{cgroups}"), mounts: Some(mounts) };
        let (ours, homes) = (at("/session", 1), ["0::/session".to_owned()]);
        let native = |own: Settled, init: Settled| own.is_native(&init, &ours, &homes);
        assert!(native(at("/box", 2), at("/box", 2)) && native(at("/box/a", 3), at("/box", 2)));
        assert!(!native(at("/session", 2), at("/box", 2)), "in the job's cgroup");
        assert!(!native(at("/boxes", 2), at("/box", 2)), "in a third cgroup");
        assert!(!native(at("/box", 1), at("/box", 2)), "in the container's cgroup, with the job's mounts");
        // A sandbox in the same cgroup as the job.
        assert!(native(at("/session", 2), at("/session", 2)));
        assert!(!native(at("/session", 1), at("/session", 2)), "with the job's mounts");
        assert!(!native(at("/session", 1), at("/session", 1)), "a sandbox without mounts of its own");
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_process_too_old_for_its_job() {
        let (now, id) = (quell_sys::ticks_since_boot(), JobId::new(quell_sys::unix_ms(), 1));
        let root = |start| Some(ProcId { pid: 1, start });
        let older = now.saturating_sub(5 * quell_sys::ticks_per_second()).max(1);
        assert_eq!(Doubt::of(id, root(older), SessionKind::Own).born, older);
        assert!(Doubt::of(id, root(u64::MAX), SessionKind::Own).born <= now, "later than the job");
    }

    #[test]
    fn the_id_of_a_job_says_when_it_can_have_begun() {
        let now = quell_sys::ticks_since_boot();
        let started = earliest_start(JobId::new(quell_sys::unix_ms(), 1));
        assert!(started <= now && now - started <= 3 * quell_sys::ticks_per_second());
        assert_eq!(earliest_start(JobId::new(1000, 1)), 0, "before this boot");
        assert_eq!(earliest_start(JobId::new(quell_sys::unix_ms() + 60_000, 1)), 0, "in the future");
    }
}
