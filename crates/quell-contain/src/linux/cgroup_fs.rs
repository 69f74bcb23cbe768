//! The cgroup v2 file system. The kernel knows every member of a cgroup, and kills them all with one write.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use quell_core::{JobId, Limits};
use quell_sys::fault::{FaultPoint, fault_point};

/// The file system's magic number (`CGROUP2_SUPER_MAGIC`).
pub const CGROUP2_MAGIC: u64 = 0x6367_7270;
const ENODEV: i32 = 19;
const EOPNOTSUPP: i32 = 95;

/// Why a cgroup can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("no cgroup v2 hierarchy is mounted")]
    NotMounted,
    /// This process's own cgroup is not visible.
    #[error("this process's own cgroup is outside the mounted hierarchy ({0})")]
    Outside(String),
    #[error("{path}: {error}", path = .path.display())]
    Path { path: PathBuf, error: io::Error },
    #[error("the kernel has no cgroup.kill (Linux 5.14)")]
    NoKill,
    /// A limit needs a controller that is not available.
    #[error("the {controller} controller is not available in {path}: {why}", path = .path.display())]
    NoController { controller: &'static str, path: PathBuf, why: String },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> CgroupError {
    let path = path.to_owned();
    move |error| CgroupError::Path { path, error }
}

/// A cgroup that holds one job.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    dir: File,
    kill: File,
    events: File,
    /// It was removed. Then poll would report an event on it for ever.
    removed: Cell<bool>,
}

/// The directory of this process's own cgroup v2, wherever the hierarchy is mounted (also in hybrid set-ups).
pub fn own_dir() -> Result<PathBuf, CgroupError> {
    dir_of_process("self")
}

/// The same and the mount point, if the hierarchy is mounted at a usual path. This avoids reading the list of all mounts, which
/// takes longer than everything else here. The directory may not exist, if only a part of the hierarchy is mounted.
pub fn usual_dir_and_mount() -> Option<(PathBuf, PathBuf)> {
    let is_cgroup =
        |path: &&str| rustix::fs::statfs(*path).is_ok_and(|found| found.f_type as u64 == CGROUP2_MAGIC);
    let mount = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter().find(is_cgroup)?;
    let text = quell_sys::read_text(Path::new("/proc/self/cgroup")).ok()?;
    Some((dir_of("/", mount, v2_path(&text)?)?, mount.into()))
}

/// The directory of the cgroup v2 of the process `pid` (a number, or `self`).
pub fn dir_of_process(pid: &str) -> Result<PathBuf, CgroupError> {
    dir_and_mount_of(pid).map(|(dir, _)| dir)
}

/// The same, and the mount point.
pub fn dir_and_mount_of(pid: &str) -> Result<(PathBuf, PathBuf), CgroupError> {
    let mounts = Path::new("/proc/self/mountinfo");
    let (root, mount) =
        cgroup2_mount(&quell_sys::read_text(mounts).map_err(at(mounts))?).ok_or(CgroupError::NotMounted)?;
    let membership = PathBuf::from(format!("/proc/{pid}/cgroup"));
    let text = quell_sys::read_text(&membership).map_err(at(&membership))?;
    let own = v2_path(&text).ok_or(CgroupError::NotMounted)?;
    let dir = dir_of(&root, &mount, own).ok_or_else(|| CgroupError::Outside(own.to_owned()))?;
    Ok((dir, mount.into()))
}

/// The directory of the cgroup `own` in a hierarchy whose `root` is mounted at `mount`.
pub fn dir_of(root: &str, mount: &str, own: &str) -> Option<PathBuf> {
    let below = if root == "/" { own } else { own.strip_prefix(root)? };
    // `/ab` is not below `/a`. A cgroup outside of our cgroup namespace is shown with `..`.
    if !below.is_empty() && !below.starts_with('/') || below.split('/').any(|part| part == "..") {
        return None;
    }
    Some(Path::new(mount).join(below.trim_start_matches('/')))
}

/// Root and mount point of the first cgroup2 line of a mountinfo text.
pub fn cgroup2_mount(mountinfo: &str) -> Option<(String, String)> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        if after.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = before.split(' ').skip(3);
        let (root, mount) = (unescape(fields.next()?), unescape(fields.next()?));
        (root.starts_with('/') && mount.starts_with('/')).then_some((root, mount))
    })
}

/// mountinfo writes space, tab, newline and backslash as octal.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

/// The v2 line of a /proc/PID/cgroup text.
pub fn v2_path(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

impl Cgroup {
    /// Makes a cgroup for `id` with `limits`, below `base` or below this process's own cgroup. On an error, nothing is left
    /// behind.
    pub fn create(id: JobId, base: Option<&Path>, limits: &Limits) -> Result<Self, CgroupError> {
        let mut own = match base {
            Some(base) => base.to_owned(),
            None => usual_dir_and_mount().map_or_else(own_dir, |(dir, _)| Ok(dir))?,
        };
        let mut path = own.join(Self::name(id));
        if let Err(error) = fs::create_dir(&path) {
            if base.is_some() || error.kind() != io::ErrorKind::NotFound {
                return Err(at(&path)(error));
            }
            // This process's own cgroup is not at the usual path.
            own = own_dir()?;
            path = own.join(Self::name(id));
            fs::create_dir(&path).map_err(at(&path))?;
        }
        fault_point(FaultPoint::CgroupMade);
        let made = Self::prepare(&own, &path, limits);
        if made.is_err() {
            let _ = fs::remove_dir(&path);
        }
        made
    }

    /// The name of a job's cgroup.
    pub fn name(id: JobId) -> String {
        format!("quell-{id}")
    }

    fn prepare(own: &Path, path: &Path, limits: &Limits) -> Result<Self, CgroupError> {
        // Moving a process also needs write access to the nearest common ancestor, which is our own cgroup.
        for procs in [own.join("cgroup.procs"), path.join("cgroup.procs")] {
            OpenOptions::new().write(true).open(&procs).map_err(at(&procs))?;
        }
        let cgroup = Self::open_made(path)?;
        set_limits(own, path, limits)?;
        Ok(cgroup)
    }

    /// Opens an existing cgroup. Files with these names can be made in any directory, so this checks that it is a cgroup.
    pub fn open(path: &Path) -> Result<Self, CgroupError> {
        check_is_cgroup(path).map_err(at(path))?;
        Self::open_made(path)
    }

    fn open_made(path: &Path) -> Result<Self, CgroupError> {
        let kill = path.join("cgroup.kill");
        let kill = OpenOptions::new().write(true).open(&kill).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => CgroupError::NoKill,
            _ => CgroupError::Path { path: kill, error },
        })?;
        let events = path.join("cgroup.events");
        Ok(Self {
            dir: File::open(path).map_err(at(path))?,
            kill,
            events: File::open(&events).map_err(at(&events))?,
            path: path.to_owned(),
            removed: Cell::new(false),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its directory as a descriptor, so that a process can be started in it.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// A descriptor that poll reports (POLLPRI) when the cgroup becomes empty or populated. None once it is removed.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        (!self.removed.get()).then(|| self.events.as_fd())
    }

    /// Moves a process into it. The caller must hold the process as an unreaped child.
    pub fn adopt(&self, pid: u32) -> Result<(), CgroupError> {
        let procs = self.path.join("cgroup.procs");
        fs::write(&procs, pid.to_string()).map_err(at(&procs))
    }

    /// Prevents new processes: `pids.max` is 0 if the controller is available, else the cgroup is frozen. Frozen processes
    /// still die from a kill.
    pub fn brake(&self) {
        if fs::write(self.path.join("pids.max"), "0").is_err() {
            let _ = fs::write(self.path.join("cgroup.freeze"), "1");
        }
    }

    /// Kills all members, including those of all cgroups below. Fails for a threaded cgroup.
    pub fn kill(&self) -> io::Result<()> {
        io::Write::write_all(&mut &self.kill, b"1")
    }

    /// Whether a living process is in it or below it. A removed cgroup is empty.
    pub fn populated(&self) -> io::Result<bool> {
        // The file is short. One read of the whole file resets the POLLPRI event.
        let mut text = [0; 128];
        match self.events.read_at(&mut text, 0) {
            Ok(length) => Ok(!text[..length].split(|&byte| byte == b'\n').any(|line| line == b"populated 0")),
            // It was removed, so no process is in it.
            Err(error) if error.raw_os_error() == Some(ENODEV) => {
                self.removed.set(true);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// The PIDs of the members, including those of all cgroups below. Each PID is a hint until it is pinned.
    pub fn members(&self) -> Vec<u32> {
        let mut found = Vec::new();
        list_members(&self.path, &mut found);
        found
    }

    /// Whether the kernel has killed a member at the memory limit.
    pub fn was_out_of_memory(&self) -> bool {
        let text = fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        text.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count != "0"))
    }

    /// The tree's peak memory, if the controller is available.
    pub fn peak_memory(&self) -> Option<u64> {
        fs::read_to_string(self.path.join("memory.peak")).ok()?.trim().parse().ok()
    }

    /// Removes it and the cgroups below. Fails while a living process is in one of them.
    pub fn remove(&self) -> io::Result<()> {
        remove_below(&self.path)
    }
}

/// The PIDs of the processes in the cgroup at `path` itself, not in those below. The kernel lists a process outside of our PID
/// namespace as 0: it is left out.
pub fn processes_in(path: &Path) -> Option<Vec<u32>> {
    let read = |name: &str| quell_sys::read_text(&path.join(name));
    let listed = |text: String| -> Vec<u32> { text.lines().filter_map(|line| line.parse().ok()).collect() };
    let mut pids = match read("cgroup.procs") {
        Ok(text) => listed(text),
        // A threaded cgroup lists only threads. A job can make its own cgroup threaded.
        Err(error) if error.raw_os_error() == Some(EOPNOTSUPP) => {
            listed(read("cgroup.threads").ok()?).into_iter().filter_map(process_of).collect()
        }
        Err(_) => return None,
    };
    pids.retain(|pid| *pid != 0);
    pids.dedup();
    Some(pids)
}

/// The process that `thread` belongs to.
fn process_of(thread: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// Adds the PIDs of the members of the cgroup at `path`, including those of all cgroups below.
pub fn list_members(path: &Path, found: &mut Vec<u32>) {
    found.extend(processes_in(path).unwrap_or_default());
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list_members(&entry.path(), found);
        }
    }
}

/// Whether `path` is a directory of the cgroup v2 file system, reached without links and `..`. Recorded paths can be forged.
fn check_is_cgroup(path: &Path) -> io::Result<()> {
    let magic = rustix::fs::statfs(path)?.f_type as u64;
    let plain = fs::canonicalize(path)? == path && path.is_dir();
    if magic == CGROUP2_MAGIC && plain { Ok(()) } else { Err(io::Error::other("it is not a cgroup")) }
}

/// Removes a cgroup and those below it. A nested job whose keeper was killed leaves its cgroup behind.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match check_is_cgroup(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => remove_below(path),
    }
}

fn remove_below(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(()) => Ok(()),
        Err(_) => {
            for entry in fs::read_dir(path)?.flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    remove_below(&entry.path())?;
                }
            }
            fs::remove_dir(path)
        }
    }
}

/// Sets the limits, and enables the controllers that they need for the children of `own`. A controller that turns out to be
/// unusable is disabled again, because it would break the cgroup for every later job.
fn set_limits(own: &Path, path: &Path, limits: &Limits) -> Result<(), CgroupError> {
    let period = 100_000.0;
    let wanted = [
        ("memory", "memory.max", limits.memory.map(|bytes| bytes.to_string())),
        ("pids", "pids.max", limits.procs.map(|procs| procs.to_string())),
        (
            "cpu",
            "cpu.max",
            limits.cpu.map(|cores| format!("{} {period}", (cores * period).max(1000.0) as u64)),
        ),
    ];
    for (controller, file, value) in wanted {
        let Some(value) = value else { continue };
        let file = path.join(file);
        if !file.exists() {
            switch_on(own, path, controller)?;
        }
        fs::write(&file, value).map_err(at(&file))?;
    }
    if limits.memory.is_some() {
        // Swap would only delay the limit, and a tree that has lost one process is of no use. Some kernels lack these files;
        // the limit works without them.
        let _ = fs::write(path.join("memory.swap.max"), "0");
        let _ = fs::write(path.join("memory.oom.group"), "1");
    }
    Ok(())
}

/// Enables a controller for the children of `own`. If `own` has processes of its own, the kernel refuses, or (for controllers
/// that support threads) makes children that no process can join.
fn switch_on(own: &Path, path: &Path, controller: &'static str) -> Result<(), CgroupError> {
    let switch = own.join("cgroup.subtree_control");
    let refused = |why| CgroupError::NoController { controller, path: own.to_owned(), why };
    fs::write(&switch, format!("+{controller}"))
        .map_err(|error| refused(why_no_controller(own, controller, &error)))?;
    if fs::read_to_string(path.join("cgroup.type")).is_ok_and(|kind| kind.trim() == "domain") {
        return Ok(());
    }
    let _ = fs::write(&switch, format!("-{controller}"));
    Err(refused("this cgroup has processes of its own".into()))
}

fn why_no_controller(own: &Path, controller: &str, error: &io::Error) -> String {
    let here = fs::read_to_string(own.join("cgroup.controllers")).unwrap_or_default();
    if here.split_whitespace().any(|name| name == controller) {
        return error.to_string();
    }
    let v1 = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let bound = v1.lines().any(|line| {
        line.split(':').nth(1).is_some_and(|names| names.split(',').any(|name| name == controller))
    });
    if bound {
        "it is bound to cgroup v1 on this host".into()
    } else {
        "it is not delegated to this cgroup".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "22 20 0:19 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
        23 22 0:20 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
        24 22 0:21 / /sys/fs/cgroup/unified rw,relatime shared:3 - cgroup2 cgroup2 rw\n";

    #[test]
    fn a_hybrid_mount_is_found() {
        assert_eq!(cgroup2_mount(HYBRID), Some(("/".into(), "/sys/fs/cgroup/unified".into())));
        assert_eq!(cgroup2_mount("1 2 0:3 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids"), None);
    }

    #[test]
    fn a_container_sees_its_own_part() {
        assert_eq!(dir_of("/docker/abc", "/sys/fs/cgroup", "/docker/abc/x"), Some("/sys/fs/cgroup/x".into()));
        assert_eq!(dir_of("/docker/abc", "/sys/fs/cgroup", "/other"), None);
        assert_eq!(dir_of("/", "/sys/fs/cgroup", "/../escaped"), None);
        assert_eq!(dir_of("/", "/sys/fs/cgroup", "/"), Some("/sys/fs/cgroup/".into()));
    }

    #[test]
    fn the_v2_line_is_found_among_v1_lines() {
        assert_eq!(v2_path("4:memory:/a\n0::/user.slice\n"), Some("/user.slice"));
        assert_eq!(v2_path("4:memory:/a\n"), None);
    }

    #[test]
    fn escapes_in_mount_points_are_undone() {
        assert_eq!(unescape("/a\\040b\\134c"), "/a b\\c");
    }
}
