//! Jobs of which nothing is left on disk and which no process keeps: the cgroup that is named for one, and the processes
//! in it, are all that tells of it.

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

/// The attribute of a job's cgroup that names the home of the job.
const HOME: &str = "user.quell.home";
/// How long the path of a home can be.
const PATH: usize = 4096;

/// A cgroup of a job that no process keeps, with processes in it.
#[derive(Clone, Debug)]
pub struct OrphanedCgroup {
    /// The job.
    pub id: JobId,
    /// The home that its keeper has named; none where the kernel can't note that.
    pub home: Option<PathBuf>,
}

/// Notes of which home the job is that `cgroup` was made for.
pub fn note_home(cgroup: &Path, home: &Path) -> io::Result<()> {
    let home = home.as_os_str().as_bytes();
    rustix::fs::setxattr(cgroup, HOME, home, XattrFlags::empty()).map_err(io::Error::from)
}

/// This user's cgroups that are named for a job and populated, and whose job has no keeper, in any home.
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

/// Whether processes are in the cgroup, and none of them has a keeper. Keepers adopt the orphans of their jobs, so a
/// living keeper is above each of them, also one whose files can't be seen. This process is not among them.
fn is_lost(id: JobId, path: &Path) -> bool {
    if own_dir().is_ok_and(|own| own.starts_with(path)) {
        return false;
    }
    let Ok(cgroup) = Cgroup::open(path) else { return false };
    let members = cgroup.members();
    // Those in other PID namespaces are listed as 0.
    let listed = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    let all_seen = !members.is_empty() && listed.lines().all(|pid| pid != "0");
    all_seen && members.iter().all(|pid| has_no_quell_above(*pid)) && !is_held_open(id, path)
}

/// Whether every process above `pid` can be seen and is not quell. What is above a process in another PID namespace can't
/// be seen from inside of it.
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

/// Whether it is a keeper or a standby: it executes the same file as this process, and has the lock of a job open. Another program
/// of that name could be a process of any job.
pub(super) fn keeps_a_job(stat: &Stat) -> bool {
    quell_sys::same_executable_file(stat.pid, quell_sys::pid())
        && quell_sys::open_files(stat.pid).any(|(_, path)| job_of_lock(&path).is_some())
}

/// The job whose lock a process has open at this path. The lock of a job that has ended is in `done` until its keepers exit.
fn job_of_lock(path: &Path) -> Option<JobId> {
    let name = path.file_name()?.to_str()?;
    let id = name.strip_suffix(" (deleted)").unwrap_or(name).parse().ok()?;
    let dir = path.parent()?;
    (dir.ends_with("live") || dir.ends_with("done")).then_some(id)
}

/// The keeper of job `id`, if it lives: the parent of its root, and a quell that has a lock of the job open, in whatever
/// home; and that home. A copy of a home names the same processes as the home itself.
pub fn living_keeper(id: JobId, root: ProcId) -> Option<(u32, PathBuf)> {
    let root = quell_sys::stat(root.pid).ok().filter(|stat| stat.id() == root)?;
    let keeper = Some(root.ppid).filter(|pid| quell_sys::is_quell(*pid))?;
    let lock = quell_sys::open_files(keeper).find(|(_, path)| job_of_lock(path) == Some(id))?.1;
    Some((keeper, lock.parent()?.parent()?.to_owned()))
}

fn is_quell(stat: &Stat) -> bool {
    stat.comm.starts_with("quell") || quell_sys::is_quell(stat.pid)
}

/// Whether a keeper of this user has the cgroup or a lock of the job open, or may have. Any other quell that looks at cgroups, of any
/// home, has this one open for a moment: such a look must not hide the job from another one.
fn is_held_open(id: JobId, path: &Path) -> bool {
    let lock = id.to_string();
    let is_lock = |file: &Path| {
        let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        name.strip_suffix(" (deleted)").unwrap_or(&name) == lock
    };
    let may_hold = |stat: &Stat| match fs::read_dir(format!("/proc/{}/fd", stat.pid)) {
        Ok(entries) => entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()).any(|file| {
            // Keepers, standbys and what they fork have names of their own.
            is_lock(&file) || (file.starts_with(path) && stat.comm.starts_with("quell-"))
        }),
        Err(error) => !quell_sys::is_gone(&error) && super::possible_members::is_of_this_user(stat.pid),
    };
    // One that has exited has nothing open, and its parent may not have collected it yet.
    let is_living_quell = |stat: &Stat| !matches!(stat.state, b'Z' | b'X') && is_quell(stat);
    let pids = quell_sys::pids().unwrap_or_default().into_iter().filter(|pid| *pid != quell_sys::pid());
    pids.filter_map(|pid| quell_sys::stat(pid).ok()).filter(is_living_quell).any(|stat| may_hold(&stat))
}
