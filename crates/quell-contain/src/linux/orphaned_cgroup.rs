//! Cgroups with processes whose job has no keeper. If the job's record was deleted too, the cgroup is all that is left of it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use quell_core::{JobId, ProcId};
use quell_sys::Stat;
use rustix::fs::XattrFlags;

use super::cgroup_fs::{Cgroup, own_dir};
use super::recorded_cgroup::named_for_jobs;

/// The attribute of a job's cgroup that names the job's home.
const HOME: &str = "user.quell.home";
/// The longest path of a home.
const PATH: usize = 4096;

/// A populated cgroup of a job that has no keeper.
#[derive(Clone, Debug)]
pub struct OrphanedCgroup {
    pub id: JobId,
    /// The home of the job, as its keeper noted it. None if the kernel does not support such attributes.
    pub home: Option<PathBuf>,
}

/// Notes on `cgroup` to which home its job belongs.
pub fn note_home(cgroup: &Path, home: &Path) -> io::Result<()> {
    let home = home.as_os_str().as_bytes();
    rustix::fs::setxattr(cgroup, HOME, home, XattrFlags::empty()).map_err(io::Error::from)
}

/// This user's populated cgroups that are named for a job without a keeper, in any home.
pub fn orphaned_cgroups() -> Vec<OrphanedCgroup> {
    let uid = quell_sys::uid();
    let is_own = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.uid() == uid);
    let mut found: Vec<(JobId, PathBuf)> = named_for_jobs();
    found.retain(|(id, path)| is_own(path) && is_lost(*id, path));
    found.into_iter().map(|(id, path)| OrphanedCgroup { id, home: home_of(&path) }).collect()
}

fn home_of(cgroup: &Path) -> Option<PathBuf> {
    let mut value = [0; PATH];
    let length = rustix::fs::getxattr(cgroup, HOME, &mut value).ok()?;
    Some(OsStr::from_bytes(value.get(..length)?).into())
}

/// Whether processes are in the cgroup and none of them has a keeper. A keeper adopts the orphans of its job, so a living
/// keeper is an ancestor of each member. This also finds a keeper whose files can't be seen.
fn is_lost(id: JobId, path: &Path) -> bool {
    if own_dir().is_ok_and(|own| own.starts_with(path)) {
        return false;
    }
    let Ok(cgroup) = Cgroup::open(path) else { return false };
    let members = cgroup.members();
    // Members in other PID namespaces are listed as 0.
    let listed = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    let all_seen = !members.is_empty() && listed.lines().all(|pid| pid != "0");
    all_seen && members.iter().all(|pid| has_no_quell_above(*pid)) && !is_held_open(id, path)
}

/// Whether every ancestor of `pid` can be seen and none is a quell. From inside a PID namespace, ancestors outside of it can't
/// be seen.
fn has_no_quell_above(pid: u32) -> bool {
    let mut pid = pid;
    loop {
        let Ok(stat) = quell_sys::stat(pid) else { return false };
        if is_quell(&stat) {
            return false;
        }
        if stat.ppid == 0 {
            return pid == 1;
        }
        pid = stat.ppid;
    }
}

/// Whether the process is a keeper or a standby: it executes the same file as this process and has the lock of a job open. The
/// name alone proves nothing, as any job can run a program with that name.
pub(super) fn keeps_a_job(stat: &Stat) -> bool {
    quell_sys::same_executable_file(stat.pid, quell_sys::pid())
        && quell_sys::open_files(stat.pid).any(|(_, path)| job_of_lock(&path).is_some())
}

/// The job whose lock is at this path of an open file. The lock of an ended job is in `done` until its keepers exit.
fn job_of_lock(path: &Path) -> Option<JobId> {
    let name = path.file_name()?.to_str()?;
    let id = name.strip_suffix(" (deleted)").unwrap_or(name).parse().ok()?;
    let dir = path.parent()?;
    (dir.ends_with("live") || dir.ends_with("done")).then_some(id)
}

/// The PID of the living keeper of job `id`, and the home that it uses. The keeper is the parent of the root and has a lock of
/// the job open, in any home: a copy of a home names the same processes as the original.
pub fn living_keeper(id: JobId, root: ProcId) -> Option<(u32, PathBuf)> {
    let root = quell_sys::stat(root.pid).ok().filter(|stat| stat.id() == root)?;
    let keeper = Some(root.ppid).filter(|pid| quell_sys::is_quell(*pid))?;
    let lock = quell_sys::open_files(keeper).find(|(_, path)| job_of_lock(path) == Some(id))?.1;
    Some((keeper, lock.parent()?.parent()?.to_owned()))
}

fn is_quell(stat: &Stat) -> bool {
    stat.comm.starts_with("quell") || quell_sys::is_quell(stat.pid)
}

/// Whether a keeper of this user has the cgroup or a lock of the job open, or may have. Other quell commands open the cgroup
/// for a moment while they search: they must not hide the job from each other.
fn is_held_open(id: JobId, path: &Path) -> bool {
    let lock = id.to_string();
    let is_lock = |file: &Path| {
        let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        name.strip_suffix(" (deleted)").unwrap_or(&name) == lock
    };
    let may_hold = |stat: &Stat| match fs::read_dir(format!("/proc/{}/fd", stat.pid)) {
        Ok(entries) => entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()).any(|file| {
            // Keepers, standbys and their forks have names that start with "quell-".
            is_lock(&file) || (file.starts_with(path) && stat.comm.starts_with("quell-"))
        }),
        Err(error) => !quell_sys::is_gone(&error) && super::possible_members::is_of_this_user(stat.pid),
    };
    // An exited process has no open files, but may not have been reaped yet.
    let is_living_quell = |stat: &Stat| !matches!(stat.state, b'Z' | b'X') && is_quell(stat);
    let pids = quell_sys::pids().unwrap_or_default().into_iter().filter(|pid| *pid != quell_sys::pid());
    pids.filter_map(|pid| quell_sys::stat(pid).ok()).filter(is_living_quell).any(|stat| may_hold(&stat))
}
