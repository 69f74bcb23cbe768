//! Which processes keep a job. A job can write to its record and lock its lock file, because they belong to the same user. It
//! can't change what the kernel reports: the names of processes and the files that they have open.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quell_core::{JobId, ProcId, Signal};
use quell_sys::{PidFd, Polled, Sent, Stat};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::files::{is_absent, is_own_file};
use crate::home::Home;
use crate::job::JobDir;
use crate::liveness::{BEGUN, Liveness, Lock};

/// The process names of a job's keepers, in the 15 bytes that the kernel keeps. A child has its keeper's name until it executes
/// the program.
const NAMES: [&str; 2] = ["quell-keeper", "quell-standby"];

/// How long a process may hold the lock of a lost job without noting that it finishes the job. Looking at a job takes
/// microseconds, but the machine may be busy.
const SAYING: Duration = Duration::from_secs(1);
/// How often the lock is tried meanwhile: a lock has no event with a deadline.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The signal that asks a keeper to check its files and to restore those that were deleted. Processes ignore it by default.
pub const RESTORE_FILES_SIGNAL: Signal = Signal::URG;
/// How long a keeper may take to do that, and how often to look whether it has: there is no event for it.
const RESTORING: Duration = Duration::from_secs(3);
/// How long it may take if only the state is missing: a job that is being started has no state yet.
const BEGINNING: Duration = Duration::from_millis(200);
/// How often the files are checked while keepers restore them. A watch would need the files that are missing.
const RESTORED_LOOK: Duration = Duration::from_millis(5);
/// How long after its end is on record a job may keep its lock, before its keeper is asked whether the record is true.
const ENDING: Duration = Duration::from_millis(50);

/// How many descriptors are needed to look at a job's keepers and to stop a lost job, with a margin.
const ROOM: usize = 24;

/// Fails if this process has too few descriptors left to decide that a job is lost: a keeper that can't be read is not gone.
pub fn check_room() -> io::Result<()> {
    quell_sys::check_room(ROOM)
}

/// A process that keeps a job, pinned.
#[derive(Debug)]
pub struct Keeper {
    pub id: ProcId,
    /// What it does for the job.
    pub role: KeeperRole,
    pidfd: PidFd,
}

/// What a process does for the job that it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeeperRole {
    /// It is the parent of the program.
    Keeper,
    /// It is the parent of the keeper, and takes over from it.
    Standby,
}

impl Keeper {
    /// Pins the process that has this PID now, if `is_it` holds for it.
    fn pin(pid: u32, is_it: impl Fn(&Stat) -> bool) -> Option<Self> {
        quell_sys::stat(pid).ok().filter(&is_it)?;
        let (pidfd, stat) = PidFd::pin(pid, |stat| is_it(&stat).then_some(stat)).ok()??;
        let role = if stat.comm == NAMES[0] { KeeperRole::Keeper } else { KeeperRole::Standby };
        Some(Self { id: stat.id(), role, pidfd })
    }

    pub fn signal(&self, signal: Signal) -> Sent {
        self.pidfd.signal(signal)
    }

    /// This process, without its role.
    pub fn into_pidfd(self) -> PidFd {
        self.pidfd
    }

    /// The state of the process: `T` if it was stopped, `t` if a tracer has stopped it.
    pub fn state(&self) -> Option<u8> {
        let stat = quell_sys::stat(self.id.pid).ok()?;
        (stat.start == self.id.start && self.pidfd.is_alive()).then_some(stat.state)
    }

    /// Waits until it has exited; false if `until` comes first.
    pub fn wait_gone(&self, until: Instant) -> bool {
        let polled = [Polled::Read(self.pidfd.as_fd())];
        quell_sys::poll_until(&polled, Some(until)).is_ok_and(|ready| ready[0])
    }
}

/// Which process holds the lock of a job.
enum Holder {
    /// A keeper, or a process in another PID namespace, which can't be seen from here.
    Keeper,
    /// A process that finishes its stop.
    Finisher,
    /// Another process: any process of this user can lock the file.
    Stranger,
}

impl JobDir {
    /// The processes that keep the job, whatever the record says: processes with a keeper's name that have the job's lock open,
    /// even a deleted one, and the front of a foreground job ([`is_front_of`]).
    pub fn keepers(&self) -> Vec<Keeper> {
        let mut found: Vec<Keeper> = Vec::new();
        for pid in quell_sys::pids().unwrap_or_default() {
            found.extend(Keeper::pin(pid, |stat| is_named(stat) && self.is_open_in(pid)));
        }
        let standby = self.record().ok().and_then(|record| record.standby);
        if let Some(front) = standby.filter(|front| found.iter().all(|keeper| keeper.id != *front)) {
            let parent = |keeper: &Keeper| {
                let keeper = quell_sys::stat(keeper.id.pid).ok()?;
                Keeper::pin(keeper.ppid, |stat| {
                    // In a PID namespace of its own, the keeper has recorded another PID than it has here.
                    let is_number =
                        || stat.pid == front.pid || quell_sys::inner_pid(stat.pid) == Some(front.pid);
                    stat.start == front.start && is_number() && is_front_of(stat, &keeper)
                })
            };
            let fronts: Vec<Keeper> = found.iter().filter_map(parent).collect();
            found.extend(fronts);
        }
        found
    }

    /// Whether `process` keeps the job, whatever the record says: it has the job's lock open, or it is the front of `keeper`, which
    /// has. A rewritten record can't turn a foreign process into a keeper.
    pub fn is_kept_by(&self, process: ProcId, keeper: Option<ProcId>) -> bool {
        let is = |id: ProcId| quell_sys::stat(id.pid).ok().filter(|stat| stat.start == id.start);
        let holds = |id: ProcId| is(id).is_some() && self.is_open_in(id.pid);
        let has_front = |keeper: ProcId| {
            let pair = is(keeper).zip(is(process));
            pair.is_some_and(|(stat, front)| is_front_of(&front, &stat)) && holds(keeper)
        };
        holds(process) || keeper.is_some_and(has_front)
    }

    /// Whether `pid` has the job's lock open, even a deleted one.
    fn is_open_in(&self, pid: u32) -> bool {
        self.times_open_in(pid) > 0
    }

    fn times_open_in(&self, pid: u32) -> usize {
        let place = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
        let is_lock = |(descriptor, path): &(PathBuf, PathBuf)| {
            let Some((dir, id)) = lock_in(path) else { return false };
            // A process may see the same directory by another path.
            let same = || self.home().may_have_locks_in(dir);
            id == self.id()
                && (same() || place(descriptor).is_some_and(|it| Some(it) == place(&self.live_path())))
        };
        quell_sys::open_files(pid).filter(is_lock).count()
    }

    /// Makes the job's keepers restore its deleted and damaged files, and waits for that. False if it has no keepers, or ends
    /// meanwhile.
    pub fn have_restored(&self) -> bool {
        let (mut keepers, began) = (self.keepers(), Instant::now());
        let is_missing = || {
            let patience = match self.record() {
                _ if !self.has_lock() || self.spec().is_err() => RESTORING,
                Ok(_) => return false,
                Err(error) if error.kind() == io::ErrorKind::NotFound && !self.has_begun() => BEGINNING,
                Err(_) => RESTORING,
            };
            began.elapsed() < patience
        };
        while !keepers.is_empty() && is_missing() {
            // The lock of a job that has ended is not made again.
            if !self.has_lock() && self.has_ended() && !self.is_dir_held() {
                return false;
            }
            keepers.retain(|keeper| keeper.signal(RESTORE_FILES_SIGNAL) != Sent::Gone);
            std::thread::sleep(RESTORED_LOOK);
        }
        !keepers.is_empty()
    }

    /// Whether its lock notes that the program is about to run. By then its state is on record.
    fn has_begun(&self) -> bool {
        self.live_path().symlink_metadata().is_ok_and(|found| found.len() > 0)
    }

    /// Whether a keeper has locked the job's directory. It releases that lock after it has recorded the end. So the job has not
    /// ended, whatever the record says and wherever the lock file is.
    pub fn is_dir_held(&self) -> bool {
        let held = |dir: File| matches!(dir.try_lock_shared(), Err(fs::TryLockError::WouldBlock));
        quell_sys::open_dir(self.dir()).is_ok_and(held)
    }

    /// Waits while the record of a job with a keeper says that it has ended. Either it is just ending, or the record was
    /// rewritten: then its keepers are asked to correct it. Returns whether it has ended.
    pub fn wait_for_true_end(&self) -> bool {
        let (began, mut keepers) = (Instant::now(), None);
        while self.has_ended() {
            if !self.has_lock() {
                return true;
            }
            if began.elapsed() >= RESTORING {
                return false;
            }
            // A keeper that is ending its job needs a moment.
            if began.elapsed() >= ENDING {
                for keeper in keepers.get_or_insert_with(|| self.keepers()) {
                    keeper.signal(RESTORE_FILES_SIGNAL);
                }
            }
            std::thread::sleep(RESTORED_LOOK);
        }
        false
    }

    /// The liveness of a job whose lock another process holds. If that process is not a keeper, the lock file is replaced.
    pub(crate) fn held(&self, file: File) -> io::Result<Liveness> {
        let began = Instant::now();
        loop {
            match self.holder(&file) {
                Holder::Keeper => return Ok(Liveness::Supervised),
                Holder::Finisher => return Ok(Liveness::Finishing),
                Holder::Stranger if began.elapsed() >= SAYING => {
                    check_room()?;
                    return self.replace_lock(&file.metadata()?);
                }
                Holder::Stranger => std::thread::sleep(LOOK_AGAIN),
            }
            match file.try_lock() {
                Ok(()) => return self.locked(file),
                Err(fs::TryLockError::WouldBlock) => {}
                Err(fs::TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    fn holder(&self, lock: &File) -> Holder {
        let own = quell_sys::pid();
        // A front that has taken over holds the lock under its own process name.
        let front = |id: ProcId| id.pid != own && living(id).is_some() && self.is_open_in(id.pid);
        let record = self.record().ok();
        let (keeper, standby) = record.map_or((None, None), |record| (record.keeper, record.standby));
        if keeper.is_some_and(is_keeper) || standby.is_some_and(|id| is_keeper(id) || front(id)) {
            return Holder::Keeper;
        }
        if self.finisher().is_some() {
            return Holder::Finisher;
        }
        // The file is open twice in this process: another thread has the lock.
        if self.times_open_in(own) > 1 || self.have_restored() {
            return Holder::Keeper;
        }
        // From inside a PID namespace a keeper outside of it can't be seen, and neither can its lock.
        let seen = || lock.metadata().is_ok_and(|found| quell_sys::is_locked_here(found.ino()));
        if quell_sys::in_first_pid_namespace() || seen() { Holder::Stranger } else { Holder::Keeper }
    }

    /// The process that has noted in the lock file that it finishes the job, if that is true: it is alive and has the lock
    /// open.
    fn finisher(&self) -> Option<ProcId> {
        let text = quell_sys::read_private(&self.live_path(), 64).ok()?;
        let id = Lock::finisher_in(&text)?;
        (living(id).is_some() && self.is_open_in(id.pid)).then_some(id)
    }

    /// Takes the lock of a job whose keepers are known to be gone, even if another process holds it: a new file replaces it,
    /// which is locked before other processes can find it.
    pub fn seize(&self) -> io::Result<Liveness> {
        match quell_sys::open_private(&self.live_path(), quell_sys::OpenMode::Read) {
            Ok(file) => match file.try_lock() {
                Ok(()) => self.locked(file),
                Err(fs::TryLockError::WouldBlock) => self.replace_lock(&file.metadata()?),
                Err(fs::TryLockError::Error(error)) => Err(error),
            },
            Err(error) if is_absent(&error) => self.liveness(),
            Err(error) => match self.live_path().symlink_metadata() {
                Ok(found) if !is_own_file(&found) && self.home().check().is_ok() => self.replace_lock(&found),
                Ok(_) | Err(_) => Err(error),
            },
        }
    }

    /// Puts a new lock, which this process holds, in the place of `old`.
    pub(crate) fn replace_lock(&self, old: &fs::Metadata) -> io::Result<Liveness> {
        let path = self.live_path();
        let new = path.with_file_name(format!(".{}.{}", self.id(), quell_sys::pid()));
        let file = match quell_sys::create_private(&new) {
            // Another thread of this process is doing it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(Liveness::Finishing),
            other => other?,
        };
        let exchange = || match renameat_with(CWD, &new, CWD, &path, RenameFlags::EXCHANGE) {
            // The file system does not support this. A directory is not replaced by a rename.
            Err(rustix::io::Errno::INVAL) => fs::rename(&new, &path)
                .or_else(|_| self.home().clear_place(&path).and_then(|()| fs::rename(&new, &path))),
            other => other.map_err(io::Error::from),
        };
        let taken = file.try_lock().map_err(io::Error::from).and_then(|()| {
            // The holder of the old one must not decide whether the program has run.
            (&file).write_all(BEGUN)?;
            exchange()?;
            // If another process was quicker, this was its lock, and is put back.
            let same = fs::symlink_metadata(&new).ok().is_none_or(|there| there.ino() == old.ino());
            if !same {
                exchange()?;
            }
            Ok(same)
        });
        self.home().remove_file(&new)?;
        match taken {
            Ok(true) => self.locked(file),
            Ok(false) => self.liveness(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.liveness(),
            Err(error) => Err(error),
        }
    }
}

impl Home {
    /// The jobs of this home that have keepers, whatever is left of their files. Looks at every process.
    pub fn kept(&self) -> Vec<JobId> {
        let id = |(_, path): (PathBuf, PathBuf)| {
            let (dir, id) = lock_in(&path)?;
            self.may_have_locks_in(dir).then_some(id)
        };
        let pids = quell_sys::pids().unwrap_or_default().into_iter();
        let keepers = pids.filter(|pid| quell_sys::stat(*pid).is_ok_and(|stat| is_named(&stat)));
        let found: BTreeSet<JobId> = keepers.flat_map(quell_sys::open_files).filter_map(id).collect();
        found.into_iter().collect()
    }

    /// Whether `dir`, the kernel's path, can have locks of its jobs. Any process of the user can have moved them.
    fn may_have_locks_in(&self, dir: &Path) -> bool {
        let is_below = |home: &Path| dir.starts_with(home) && dir != home.join("jobs");
        is_below(self.dir()) || fs::canonicalize(self.dir()).is_ok_and(|real| is_below(&real))
    }
}

/// The directory and the job of a lock, from the kernel's path of an open file.
fn lock_in(path: &Path) -> Option<(&Path, JobId)> {
    let name = path.file_name()?.to_str()?;
    Some((path.parent()?, name.strip_suffix(" (deleted)").unwrap_or(name).parse().ok()?))
}

/// Whether the process with this identity lives and has a keeper's name.
pub(crate) fn is_keeper(id: ProcId) -> bool {
    living(id).is_some_and(|stat| is_named(&stat))
}

/// Whether `front` is the front of a process that keeps a job. It is its parent and executes the same file, whichever build of
/// quell that is, because a keeper is forked and executes nothing. It blocks the signals that ask it for a stop, so that they can't
/// end a process that was taken for a front.
fn is_front_of(front: &Stat, keeper: &Stat) -> bool {
    keeper.ppid == front.pid
        && is_named(keeper)
        && quell_sys::same_executable_file(front.pid, keeper.pid)
        && quell_sys::blocks(front.pid, &[Signal::ASK_FRONT, Signal::TERM])
}

fn is_named(stat: &Stat) -> bool {
    NAMES.contains(&stat.comm.as_str())
}

/// The process with this identity, if it is alive.
fn living(id: ProcId) -> Option<Stat> {
    quell_sys::stat(id.pid).ok().filter(|stat| stat.start == id.start && !matches!(stat.state, b'Z' | b'X'))
}
