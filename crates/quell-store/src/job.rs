//! One job on disk: its directory, and the files in it that are written as a whole. All are private to this user.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use quell_core::{JobId, JobSpec, Receipt, StateRecord, Timestamp};
use quell_sys::OpenMode;
use quell_sys::fault::{FaultPoint, fault_point};
use serde::de::DeserializeOwned;

use crate::files::{InDir, at, gone_is_fine, is_absent, is_own_file, line_of, replace, write_new};
use crate::home::Home;
use crate::liveness::Lock;

const SPEC: &str = "spec.json";
/// The unmasked specification, which `restart` needs.
const LAUNCH: &str = "launch.private.json";
const RECEIPT: &str = "receipt.json";
const REPORT: &str = "report.xml";

/// Space that is kept for the end of the job, which must be written even if the disk is full.
const RESERVE: &str = "reserve";
/// Enough for a receipt and a state of the usual size, and what the file system needs for them.
const RESERVE_SIZE: usize = 32 * 1024;

/// The largest size of a file of the record: more than any command line and environment that the kernel accepts.
const RECORD_CAP: u64 = 64 * 1024 * 1024;

/// One job on disk.
#[derive(Clone, Debug)]
pub struct JobDir {
    home: Home,
    id: JobId,
    dir: PathBuf,
}

impl JobDir {
    pub(crate) fn new(home: Home, id: JobId) -> Self {
        let dir = home.sub("jobs").join(id.to_string());
        Self { home, id, dir }
    }

    pub fn id(&self) -> JobId {
        self.id
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The report that a test run is told to write.
    pub fn report(&self) -> PathBuf {
        self.dir.join(REPORT)
    }

    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Records the job: its lock, its directory, its specification. On an error, nothing of it is left.
    ///
    /// The lock is made first, so that the next sweep finds whatever a keeper leaves behind that is killed here.
    pub fn create(&self, spec: &JobSpec, launch: Option<&JobSpec>) -> io::Result<Lock> {
        let mut lock = self.make_lock()?;
        let made = DirBuilder::new().mode(0o700).create(&self.dir).and_then(|()| {
            fault_point(FaultPoint::DirMade);
            lock.hold_dir(&self.dir);
            if let Some(launch) = launch {
                write_new(&self.home, &self.dir.join(LAUNCH), &line_of(launch)?)?;
                fault_point(FaultPoint::LaunchWritten);
            }
            // The directory appears with its specification in it: a process that finds it can read it, and knows that the lock
            // was taken before.
            self.write_spec(spec)
        });
        fault_point(FaultPoint::Recorded);
        match made {
            Ok(()) => Ok(lock),
            Err(error) => {
                // By name, because a process without a free descriptor can't list the directory.
                for name in [LAUNCH, "spec.new", SPEC] {
                    let _ = fs::remove_file(self.dir.join(name));
                }
                let _ = fs::remove_dir(&self.dir);
                let _ = self.remove();
                Err(error)
            }
        }
    }

    /// Restores what was deleted of a job that the caller keeps: its lock, its directory, its specification, its state.
    /// Corrects a state that another process has rewritten.
    pub fn restore(
        &self,
        lock: &mut Option<Lock>,
        spec: &JobSpec,
        record: Option<&StateRecord>,
    ) -> io::Result<()> {
        if let Some(deleted) = lock.as_mut().filter(|lock| !lock.is_in_place()) {
            let new = self.make_lock()?;
            // The standby shares the deleted one.
            deleted.release();
            *deleted = new;
            // The notes in the deleted one are lost.
            deleted.begun()?;
        }
        self.make_dir()?;
        if let Some(lock) = lock {
            lock.hold_dir(&self.dir);
        }
        self.correct_spec(spec)?;
        record.map_or(Ok(()), |record| self.restore_state(record))
    }

    /// Makes a lock and a directory for a job that has lost both, as for a job that ran and was lost.
    pub fn make_lost(&self) -> io::Result<()> {
        self.make_lock()?.begun()?;
        self.make_dir()
    }

    /// Makes its directory, if it is missing. What is in its place is put aside.
    pub fn make_dir(&self) -> io::Result<()> {
        if self.exists() {
            return Ok(());
        }
        self.home.make_sub("jobs")?;
        let make = || DirBuilder::new().mode(0o700).create(&self.dir);
        match make() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.home.clear_place(&self.dir)?;
                make()
            }
            other => other,
        }
    }

    /// Whether it has a directory. A link does not count, as quell makes none.
    pub fn exists(&self) -> bool {
        self.dir.symlink_metadata().is_ok_and(|found| found.is_dir() && quell_sys::is_trusted(&found))
    }

    /// Whether it has a lock that a process can try, as every job has that has not ended.
    pub fn has_lock(&self) -> bool {
        self.live_path().symlink_metadata().is_ok_and(|found| is_own_file(&found))
    }

    /// The path of its lock while it has not ended.
    pub fn live_path(&self) -> PathBuf {
        self.home.sub("live").join(self.id.to_string())
    }

    fn done_path(&self) -> PathBuf {
        self.home.sub("done").join(self.id.to_string())
    }

    /// Reserves space for the end, so that it can be written even if the disk is full by then.
    pub fn reserve_space(&self) -> io::Result<()> {
        quell_sys::create_private(&self.dir.join(RESERVE))?.write_all(&[0; RESERVE_SIZE])
    }

    /// Frees that space.
    pub fn release_reserve(&self) -> io::Result<()> {
        self.home.remove_file(&self.dir.join(RESERVE))
    }

    /// Syncs all of its files to the disk, so that a power cut can't undo its end. This can take long.
    pub fn sync_all(&self) -> io::Result<()> {
        let dir = quell_sys::open_dir(&self.dir)?;
        for name in quell_sys::names_of(&dir)? {
            // Files of other programs are not synced. An empty file consists of its name, which is in the directory.
            match quell_sys::open_private_found(&self.dir.join(name), OpenMode::Read) {
                Ok((file, found)) if found.len() > 0 => file.sync_all()?,
                Ok(_) | Err(_) => {}
            }
        }
        dir.sync_all()
    }

    /// Removes what a job has only while it lives: its control socket and its reserve.
    pub(crate) fn remove_live_files(&self) -> io::Result<()> {
        self.remove_socket()?;
        self.release_reserve()
    }

    /// Makes it one of the finished jobs. The caller holds its lock.
    pub fn mark_ended(&self) -> io::Result<()> {
        fault_point(FaultPoint::SocketRemoved);
        let is_missing = |moved: &io::Result<()>| moved.as_ref().is_err_and(is_absent);
        let mut moved = fs::rename(self.live_path(), self.done_path());
        if is_missing(&moved) {
            self.home.make_sub("done")?;
            moved = fs::rename(self.live_path(), self.done_path());
        }
        // Something else is in the place of the file.
        if moved.as_ref().is_err_and(|error| !is_absent(error)) {
            self.home.clear_place(&self.done_path())?;
            moved = fs::rename(self.live_path(), self.done_path());
        }
        if is_missing(&moved) {
            // It was marked before. Or its lock was deleted, and the file in `done` has to be made.
            moved = quell_sys::open_private(&self.done_path(), OpenMode::Append).map(drop);
        }
        moved?;
        fault_point(FaultPoint::Settled);
        Ok(())
    }

    /// Removes the record. The caller holds its lock, or it has ended.
    pub fn remove(&self) -> io::Result<()> {
        // The directory first: a sweep finds a lock without a directory, but not a directory without a lock.
        gone_is_fine(fs::remove_dir_all(&self.dir))?;
        fault_point(FaultPoint::RecordRemoved);
        self.home.remove_file(&self.done_path())?;
        self.home.remove_file(&self.live_path())
    }

    /// The specification, as it may be shown. That of another job counts as damaged.
    pub fn spec(&self) -> io::Result<JobSpec> {
        let spec = self.recorded_spec()?;
        if spec.id == self.id {
            return Ok(spec);
        }
        let why = format!("{}: it is that of job {}", self.dir.join(SPEC).display(), spec.id);
        Err(io::Error::new(io::ErrorKind::InvalidData, why))
    }

    /// The same, whatever id it has: the job may have changed that alone.
    pub fn recorded_spec(&self) -> io::Result<JobSpec> {
        self.read(SPEC)
    }

    /// Replaces a specification that another process has changed.
    pub fn correct_spec(&self, spec: &JobSpec) -> io::Result<()> {
        let same = self.recorded_spec().is_ok_and(|recorded| recorded == *spec);
        if same { Ok(()) } else { self.write_spec(spec) }
    }

    fn write_spec(&self, spec: &JobSpec) -> io::Result<()> {
        replace(&self.home, &self.dir.join(SPEC), &line_of(spec)?, FaultPoint::SpecWritten)
    }

    /// The unmasked specification: what is needed to start it again. A background job has it, and a run with masks.
    pub fn launch(&self) -> io::Result<JobSpec> {
        self.read(LAUNCH)
    }

    /// The receipt of the last run that has one.
    pub fn receipt(&self) -> io::Result<Receipt> {
        self.read(RECEIPT)
    }

    /// Replaces the receipt.
    pub fn write_receipt(&self, receipt: &Receipt) -> io::Result<()> {
        replace(&self.home, &self.dir.join(RECEIPT), &line_of(receipt)?, FaultPoint::ReceiptWritten)?;
        fault_point(FaultPoint::ReceiptKept);
        Ok(())
    }

    fn read<T: DeserializeOwned>(&self, name: &'static str) -> io::Result<T> {
        self.parse(name, &self.bytes(name)?)
    }

    pub(crate) fn bytes(&self, name: &'static str) -> io::Result<Vec<u8>> {
        // A job whose directory was replaced has no files.
        let place = InDir::new(&self.dir, name).map_err(|error| {
            let is_of_dir = !quell_sys::is_out_of_descriptors(&error) && self.home.check().is_ok();
            if is_of_dir && !self.exists() { io::ErrorKind::NotFound.into() } else { error }
        })?;
        quell_sys::read_private(&place.path(), RECORD_CAP).map_err(|error| {
            let path = self.dir.join(name);
            // Something else in the place of a file counts as a missing file.
            match path.symlink_metadata() {
                Ok(found) if !is_own_file(&found) && self.home.check().is_ok() => {
                    io::ErrorKind::NotFound.into()
                }
                Ok(_) | Err(_) => at(&path)(error),
            }
        })
    }

    pub(crate) fn parse<T: DeserializeOwned>(&self, name: &str, bytes: &[u8]) -> io::Result<T> {
        serde_json::from_slice(bytes).map_err(|error| {
            let path = self.dir.join(name);
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
        })
    }
}

/// The wall clock.
pub fn now() -> Timestamp {
    Timestamp::from_unix_ms(i64::try_from(quell_sys::unix_ms()).unwrap_or(i64::MAX))
}
