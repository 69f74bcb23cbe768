//! What a live tree uses now, by the kernel's books. No keeper is asked, so none wakes up.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use quell_core::{JobId, ProcId, RecordedTree};
use rustix::fs::{Mode, OFlags};

use super::cgroup_fs::{CGROUP2_MAGIC, list_members};
use super::recorded_cgroup::is_named_for;

/// What a tree uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TreeUsage {
    /// Seconds of CPU so far. Of a tree without a cgroup: of the living processes and of the children that they have collected, so
    /// it can shrink.
    pub cpu: f64,
    /// Bytes of memory. Without a memory controller the sum of the resident sets, in which shared pages count once per process.
    pub memory: u64,
    /// The number of living processes. The init of a PID namespace does not count.
    pub processes: u64,
}

/// What the cgroup at `path` uses. None if it is not a cgroup of the job `id`, or is gone: the path comes from a record, which a job
/// can rewrite.
pub fn cgroup_usage(id: JobId, path: &Path) -> Option<TreeUsage> {
    if !is_named_for(path, id) {
        return None;
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let dir = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    // From here on every file is one of the kernel's: nothing else can be made in this file system.
    if rustix::fs::fstatfs(&dir).ok()?.f_type as u64 != CGROUP2_MAGIC {
        return None;
    }
    let cpu = field(&read(&dir, "cpu.stat")?, "usage_usec")? as f64 / 1e6;
    let pids = match read(&dir, "cgroup.procs") {
        // A directory without others in it has two links.
        Some(text) if rustix::fs::fstat(&dir).is_ok_and(|found| found.st_nlink <= 2) => {
            text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect()
        }
        // There are cgroups below it, or it is threaded.
        Some(_) | None => {
            let mut pids = Vec::new();
            list_members(path, &mut pids);
            pids
        }
    };
    let controlled = read(&dir, "memory.current").and_then(|text| text.trim().parse().ok());
    let resident =
        || pids.iter().filter_map(|pid| quell_sys::stat(*pid).ok()).map(|stat| stat.resident).sum();
    let memory = controlled.unwrap_or_else(|| resident_bytes(resident()));
    Some(TreeUsage { cpu, memory, processes: pids.len() as u64 })
}

/// What the processes of a tree without a cgroup use: the members on record, the children of its keeper, which gets every orphan
/// of the tree, and all their descendants.
pub fn walked_usage(keeper: Option<ProcId>, tree: &RecordedTree) -> TreeUsage {
    let is_keeper = |id: &ProcId| quell_sys::stat(id.pid).is_ok_and(|stat| stat.id() == *id);
    let kept = keeper.filter(is_keeper).and_then(|id| quell_sys::children(id.pid, 1).ok());
    // A PID on record counts only with its start time. A child of the keeper needs no proof.
    let recorded = [tree.root].into_iter().chain(tree.members.iter().copied());
    let mut open: Vec<(u32, Option<u64>)> = recorded.map(|id| (id.pid, Some(id.start))).collect();
    open.extend(kept.into_iter().flatten().map(|pid| (pid, None)));
    let (mut seen, mut usage, mut ticks, mut pages) = (BTreeSet::new(), TreeUsage::default(), 0, 0);
    while let Some((pid, start)) = open.pop() {
        let Ok(stat) = quell_sys::stat(pid) else { continue };
        if start.is_some_and(|start| start != stat.start) || !seen.insert(pid) {
            continue;
        }
        let below = quell_sys::children(pid, stat.threads).unwrap_or_default();
        open.extend(below.into_iter().map(|child| (child, None)));
        ticks += stat.cpu;
        let is_init = tree.containment.has_init() && stat.id() == tree.root;
        if !stat.is_dead() && !is_init {
            usage.processes += 1;
            pages += stat.resident;
        }
    }
    let cpu = ticks as f64 / quell_sys::ticks_per_second() as f64;
    TreeUsage { cpu, memory: resident_bytes(pages), ..usage }
}

fn resident_bytes(pages: u64) -> u64 {
    pages.saturating_mul(quell_sys::page_size())
}

/// The text of a file of the cgroup. None if it does not exist: a controller that is not enabled has no files.
fn read(dir: &OwnedFd, name: &str) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(dir.as_fd(), name, flags, Mode::empty()).ok()?;
    let mut text = Vec::with_capacity(4096);
    loop {
        text.reserve(4096);
        match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut text)) {
            Ok(0) => return String::from_utf8(text).ok(),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// The number behind `name` in lines of names and numbers.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use quell_core::{ContainmentKind, SessionKind};

    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "usage_usec_total 1\nusage_usec 1234567\nuser_usec 5\n";
        assert_eq!((field(text, "usage_usec"), field(text, "usage")), (Some(1_234_567), None));
    }

    #[test]
    fn a_directory_that_is_not_a_cgroup_of_the_job_is_not_read() {
        let (id, dir) = (JobId::new(1, 1), tempfile::tempdir().unwrap());
        let forged = dir.path().join(format!("quell-{id}"));
        std::fs::create_dir(&forged).unwrap();
        std::fs::write(forged.join("cpu.stat"), "usage_usec 1\n").unwrap();
        assert_eq!(cgroup_usage(id, &forged), None, "another file system");
        assert_eq!(cgroup_usage(id, Path::new("/sys/fs/cgroup")), None, "another name");
    }

    #[test]
    fn a_walk_counts_descendants_and_not_a_reused_pid() {
        let mut child =
            Command::new("sh").args(["-c", "sleep 50 & echo; wait"]).stdout(Stdio::piped()).spawn().unwrap();
        // It has forked when it says so.
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let root = quell_sys::stat(child.id()).unwrap().id();
        let tree = |root| RecordedTree {
            containment: ContainmentKind::Reaper,
            session: SessionKind::Own,
            root,
            inner: None,
            cgroup: None,
            members: vec![root],
        };
        let (found, reused) = (
            walked_usage(None, &tree(root)),
            walked_usage(None, &tree(ProcId { start: root.start + 1, ..root })),
        );
        let sleep = quell_sys::children(root.pid, 1).unwrap()[0];
        let _ = quell_sys::PidFd::open(sleep).unwrap().signal(quell_core::Signal::KILL);
        child.wait().unwrap();
        assert_eq!((found.processes, reused), (2, TreeUsage::default()));
        assert!(found.memory > 100_000, "{found:?}");
    }
}
