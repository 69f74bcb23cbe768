//! The cgroup of all keepers of background jobs. They leave the caller's cgroup, so that what happens to it does not reach
//! them: a session that ends, a service that is stopped, the kill of another job. It also keeps marker searches in the caller's
//! cgroup fast, because the keepers of thousands of other jobs are not in it.
//!
//! One cgroup serves all keepers of a host or a user, and stays when it is empty. Keepers start inside it, because moving a
//! process delays every fork on the host for a few milliseconds.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use quell_core::JobId;
use quell_sys::Forked;

use super::backend::BUS_PATIENCE;
use super::cgroup_fs::{Cgroup, dir_and_mount_of, processes_in, usual_dir_and_mount};
use super::systemd::{self, ScopeRequest};

/// The name of the cgroup.
const NAME: &str = "quell-keepers";
/// How often it is made again because another process has removed it meanwhile.
const TRIES: usize = 3;

/// The cgroups in which this process, or the one that it was forked from, was before it moved to the cgroup of keepers.
static ORIGIN: OnceLock<Origin> = OnceLock::new();

/// The cgroups of a process.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// The directory of its cgroup v2 and the mount point, if they are visible.
    place: Option<(PathBuf, PathBuf)>,
    /// The same as text, in the form of [`cgroups_of`].
    cgroups: String,
}

/// Where keepers are.
#[derive(Clone, Debug)]
pub enum KeeperCgroup {
    /// In the cgroup of keepers below `base`.
    Shared {
        /// The directory that has both this cgroup and the job's.
        base: PathBuf,
    },
    /// In a scope of the systemd user manager, which removes it.
    Scope,
}

impl KeeperCgroup {
    /// Forks. The new process is in the cgroup of keepers, as high in the hierarchy as this user may make one. If that fails,
    /// it is in the cgroup of this process.
    pub fn fork() -> io::Result<(Forked, Option<Self>)> {
        for base in ORIGIN.get_or_init(Origin::of_this_process).above() {
            if let Some(forked) = Self::fork_below(&base) {
                return Ok((forked, Some(Self::Shared { base })));
            }
        }
        Ok((quell_sys::fork()?, None))
    }

    fn fork_below(base: &Path) -> Option<Forked> {
        let path = base.join(NAME);
        for _ in 0..TRIES {
            let made = match fs::create_dir(&path) {
                Ok(()) => true,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                Err(_) => return None,
            };
            let Ok(dir) = File::open(&path) else { continue };
            match quell_sys::fork_into(dir.as_fd()) {
                Ok(forked) => return Some(forked),
                Err(_) if made => drop(fs::remove_dir(&path)),
                Err(_) => {}
            }
        }
        None
    }

    /// Moves this process into a scope of the systemd user manager. None if that fails, or if its cgroup is the top of the
    /// hierarchy: the end of another cgroup does not affect that one.
    pub fn enter_scope(id: JobId) -> Option<Self> {
        if origin().place.is_none_or(|(own, top)| own == top) {
            return None;
        }
        let unit = format!("{}-keeper.scope", Cgroup::name(id));
        let request = ScopeRequest {
            unit: &unit,
            description: "the keeper of a job of quell",
            pid: quell_sys::pid(),
            memory_max: None,
            tasks_max: None,
            cpu_cores: None,
        };
        systemd::start(&request, BUS_PATIENCE).ok().map(|_| Self::Scope)
    }

    /// The directory below which the job's cgroup is made. None: below the keeper's own.
    pub fn base(&self) -> Option<&Path> {
        match self {
            Self::Shared { base } => Some(base),
            Self::Scope => None,
        }
    }
}

impl Origin {
    fn of_this_process() -> Self {
        let me = quell_sys::pid();
        // If this process is not listed there, the path is that of another cgroup.
        let is_ours =
            |(own, _): &(PathBuf, PathBuf)| processes_in(own).is_some_and(|pids| pids.contains(&me));
        let place = usual_dir_and_mount().filter(is_ours);
        let place = place.or_else(|| dir_and_mount_of("self").ok().filter(is_ours));
        Self { place, cgroups: cgroups_of(me) }
    }

    /// The directory of its cgroup v2, if it is visible.
    pub fn dir(&self) -> Option<&Path> {
        self.place.as_ref().map(|(own, _)| own.as_path())
    }

    /// The cgroups above it, highest first, or the cgroup itself if it is the highest.
    fn above(&self) -> Vec<PathBuf> {
        let Some((own, top)) = &self.place else { return Vec::new() };
        let skipped = usize::from(own != top);
        let above = own.ancestors().skip(skipped).take_while(|dir| dir.starts_with(top));
        let mut above: Vec<PathBuf> = above.map(Path::to_owned).collect();
        above.reverse();
        above
    }
}

/// The cgroups in which this process was before it moved, or is.
pub(super) fn origin() -> Origin {
    ORIGIN.get().cloned().unwrap_or_else(Origin::of_this_process)
}

/// The directory of the cgroup v2 of this process, if it has left that of the job's starter.
pub(super) fn moved_to() -> Option<PathBuf> {
    let starter = ORIGIN.get()?.dir()?;
    let (own, _) = usual_dir_and_mount().or_else(|| dir_and_mount_of("self").ok())?;
    (own != starter).then_some(own)
}

/// The cgroups that service managers assign: the cgroup v2 of the process, and systemd's own hierarchy on hybrid hosts.
pub(super) fn cgroups_of(pid: u32) -> String {
    let text = quell_sys::cgroups(pid);
    let placed = |line: &&str| line.starts_with("0::") || line.contains(":name=systemd:");
    text.lines().filter(placed).collect::<Vec<_>>().join("\n")
}

/// The cgroups in which a marked process belongs to the job of this keeper: its own, and the one that it left.
pub(super) fn starter_cgroups() -> Vec<String> {
    let here = cgroups_of(quell_sys::pid());
    let from = ORIGIN.get().map(|origin| origin.cgroups.clone()).filter(|from| *from != here);
    from.into_iter().chain([here]).collect()
}

/// The same for a job whose record does not have them: where jobs that are started from here have their processes.
pub(super) fn usual_starter_cgroups() -> Vec<String> {
    let Origin { place, cgroups } = origin();
    let top = place.map(|(_, top)| top).unwrap_or_default();
    let with_path = |keeper_cgroup: PathBuf| {
        let below = keeper_cgroup.strip_prefix(&top).ok()?.display().to_string();
        let line =
            |line: &str| if line.starts_with("0::") { format!("0::/{below}") } else { line.to_owned() };
        Some(cgroups.lines().map(line).collect::<Vec<_>>().join("\n"))
    };
    keeper_cgroups().into_iter().filter_map(with_path).chain([cgroups.clone()]).collect()
}

/// The cgroups of keepers that this process would use. The hooks of their jobs run below them.
pub(super) fn keeper_cgroups() -> Vec<PathBuf> {
    origin().above().into_iter().map(|base| base.join(NAME)).collect()
}

/// Removes those without processes.
pub fn remove_empty_keeper_cgroups() {
    for keeper_cgroup in keeper_cgroups() {
        // Fails while a process is in it.
        let _ = fs::remove_dir(keeper_cgroup);
    }
}
