//! Whether a process keeps a job. The keeper and its standby share the lock `live/ID`, and hold it as long as one of them
//! lives. `keepers.rs` finds out which processes those are.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quell_core::{JobId, ProcId, StateRecord};
use quell_sys::fault::{FaultPoint, fault_point};
use quell_sys::{OpenMode, PidFd};

use crate::files::{at, is_absent, is_own_file};
use crate::job::JobDir;
use crate::keepers::{check_room, is_keeper};

/// What a keeper writes into the lock before the program of its job runs.
pub(crate) const BEGUN: &[u8] = b"begun\n";
/// What the lock says while another process finishes the stop, followed by the identity of that process.
const FINISHING: &str = "finishing";
/// How long after its id the lock of a job is made, at most.
const BIRTH: Duration = Duration::from_secs(3);

/// The lock of a job. Held as long as the file is open in any process.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
    /// The job's directory, locked as well, because the lock file can be moved away.
    dir: Option<File>,
}

impl Lock {
    /// Whether the file is still where every process looks for it, and can be opened there.
    pub(crate) fn is_in_place(&self) -> bool {
        let found = self.path.symlink_metadata().ok().filter(is_own_file);
        found.map(|found| found.ino()) == self.file.metadata().ok().map(|own| own.ino())
    }

    /// Locks the job's directory too, where that is possible.
    pub(crate) fn hold_dir(&mut self, dir: &Path) {
        let ino = |found: io::Result<fs::Metadata>| found.map(|found| found.ino()).ok();
        let is_same = |held: &File| ino(held.metadata()) == ino(dir.symlink_metadata());
        if !self.dir.as_ref().is_some_and(is_same) {
            self.dir = quell_sys::open_dir(dir).ok().filter(|dir| dir.try_lock().is_ok());
        }
    }

    /// Releases it for every process that shares it: the job has ended. From here on a record that says so is true.
    pub fn release(&self) {
        for file in self.dir.iter().chain([&self.file]) {
            let _ = file.unlock();
        }
    }

    /// Notes that the program is about to run. The keeper calls this before it releases the stub.
    pub fn begun(&self) -> io::Result<()> {
        (&self.file).write_all(BEGUN)
    }

    /// Whether it notes that the program has run.
    pub fn says_begun(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.len() > 0)
    }

    /// Whether the lock of job `id` is unchanged since it was made: it is empty, and was not changed later. A process can empty
    /// the file, but can't set back the time of the last change that the kernel keeps.
    pub fn is_as_made(&self, id: JobId) -> bool {
        self.file.metadata().is_ok_and(|found| {
            let changed = found.ctime() as u64 * 1000 + found.ctime_nsec() as u64 / 1_000_000;
            found.len() == 0 && changed <= id.unix_ms().saturating_add(BIRTH.as_millis() as u64)
        })
    }

    /// Notes that the holder does not keep the job but finishes its stop, so that other processes wait for that.
    pub fn finishing(&self) -> io::Result<()> {
        let own = quell_sys::stat(quell_sys::pid())?;
        let mut file = quell_sys::open_private(&self.path, OpenMode::Change)?;
        file.set_len(0)?;
        file.write_all(format!("{FINISHING} {} {}\n", own.pid, own.start).as_bytes())
    }

    /// The process that has noted this in a lock with content `text`.
    pub(crate) fn finisher_in(text: &[u8]) -> Option<ProcId> {
        let text = std::str::from_utf8(text).ok()?.strip_prefix(FINISHING)?;
        let (pid, start) = text.trim().split_once(' ')?;
        Some(ProcId { pid: pid.parse().ok()?, start: start.parse().ok()? })
    }
}

/// Whether a process keeps a job.
#[derive(Debug)]
pub enum Liveness {
    /// A keeper or its standby lives.
    Supervised,
    /// Another process finishes its stop.
    Finishing,
    /// It has not ended, and its keepers are gone. The caller has its lock now.
    Orphaned(Lock),
    /// It has ended, or never existed.
    Ended,
}

impl JobDir {
    /// Whether a process keeps it. If none does and it has not ended, the caller may finish it.
    pub fn liveness(&self) -> io::Result<Liveness> {
        self.liveness_by(None)
    }

    /// The same for a caller that has just read the record.
    pub fn liveness_by(&self, record: Option<&StateRecord>) -> io::Result<Liveness> {
        let path = self.live_path();
        // For reading: closing a file that was opened for writing would wake the processes that watch the lock.
        match quell_sys::open_private(&path, OpenMode::Read) {
            Ok(file) => self.try_lock(file, record),
            Err(error) if is_absent(&error) => self.without_lock(None),
            Err(error) => match path.symlink_metadata() {
                // Nothing is made in the home of another user.
                Ok(found) if !is_own_file(&found) && self.home().check().is_ok() => {
                    self.without_lock(Some(&found))
                }
                // It was replaced meanwhile.
                Err(gone) if is_absent(&gone) => self.without_lock(None),
                Ok(_) | Err(_) => Err(at(&path)(error)),
            },
        }
    }

    /// A job without a lock has ended, or its lock was deleted. In the second case its keepers, which still have it open, make
    /// another one. If they are gone, this process does, so that the job is found and finished like any other. `instead` is what is
    /// in the place of the lock: then only a record that says so proves the end.
    fn without_lock(&self, instead: Option<&fs::Metadata>) -> io::Result<Liveness> {
        let record = match self.record() {
            Ok(record) if record.state.is_ended() => {
                let kept = self.is_dir_held() && self.have_restored();
                return Ok(if kept { Liveness::Supervised } else { Liveness::Ended });
            }
            Ok(record) => Some(record),
            Err(_) => {
                check_room()?;
                None
            }
        };
        let alive = |record: &StateRecord| {
            record.keeper.into_iter().chain(record.standby).any(|id| PidFd::of(id).is_some())
        };
        let this_boot = || self.spec().is_ok_and(|spec| spec.boot_id == quell_sys::boot_id());
        if record.as_ref().is_none_or(|record| alive(record) && this_boot()) && self.have_restored() {
            return Ok(Liveness::Supervised);
        }
        if self.has_ended() || record.is_none() && instead.is_none() {
            return Ok(Liveness::Ended);
        }
        if let Some(instead) = instead {
            check_room()?;
            return self.replace_lock(instead);
        }
        self.home().make_sub("live")?;
        match quell_sys::create_private(&self.live_path()) {
            Ok(file) => {
                (&file).write_all(BEGUN)?;
                self.try_lock(file, None)
            }
            // Another process was quicker.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.liveness(),
            Err(error) => Err(at(&self.live_path())(error)),
        }
    }

    fn try_lock(&self, file: File, record: Option<&StateRecord>) -> io::Result<Liveness> {
        match file.try_lock() {
            Ok(()) => self.locked(file),
            Err(fs::TryLockError::WouldBlock)
                if record.is_some_and(|record| record.keeper.is_some_and(is_keeper)) =>
            {
                Ok(Liveness::Supervised)
            }
            Err(fs::TryLockError::WouldBlock) => self.held(file),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// The liveness of the job, now that this process has locked `file`.
    pub(crate) fn locked(&self, file: File) -> io::Result<Liveness> {
        match self.live_path().symlink_metadata() {
            Ok(found) if found.ino() == file.metadata()?.ino() => {
                check_room()?;
                Ok(Liveness::Orphaned(Lock { file, path: self.live_path(), dir: None }))
            }
            // Another process has replaced it meanwhile.
            Ok(_) => self.liveness(),
            // The job has ended meanwhile.
            Err(_) => Ok(Liveness::Ended),
        }
    }

    /// Makes the lock. It is locked before other processes can find it: otherwise they would take the job for a lost one.
    pub(crate) fn make_lock(&self) -> io::Result<Lock> {
        self.home().make()?;
        // `done` is made now: at the end there may be no inode for it.
        for sub in ["jobs", "live", "done"] {
            self.home().make_sub(sub)?;
        }
        let hidden = self.home().sub("live").join(format!(".{}", self.id()));
        let file = match quell_sys::create_private(&hidden) {
            // A crash has left it, or the job made it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.home().remove_file(&hidden)?;
                quell_sys::create_private(&hidden)?
            }
            other => other?,
        };
        let locked = file.try_lock().map_err(io::Error::from);
        fault_point(FaultPoint::LockMade);
        let show = || fs::rename(&hidden, self.live_path());
        // A directory is not replaced by a rename.
        let show = || show().or_else(|_| self.home().clear_place(&self.live_path()).and_then(|()| show()));
        if let Err(error) = locked.and_then(|()| show()) {
            let _ = fs::remove_file(&hidden);
            return Err(error);
        }
        fault_point(FaultPoint::LockShown);
        Ok(Lock { file, path: self.live_path(), dir: None })
    }
}
