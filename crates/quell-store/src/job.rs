//! One job on disk: its directory and the files in it that are written as a whole. All of them are for this user alone.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use quell_core::{JobId, JobSpec, Receipt, StateRecord, Timestamp};
use quell_sys::OpenMode;
use quell_sys::fault::{FaultPoint, fault_point};
use serde::de::DeserializeOwned;

use crate::files::{InDir, at, gone_is_fine, is_absent, line_of, private_file, replace, write_new};
use crate::home::Home;
use crate::liveness::Lock;

const SPEC: &str = "spec.json";
/// The unmasked specification, which `restart` needs.
const LAUNCH: &str = "launch.private.json";
const RECEIPT: &str = "receipt.json";
const REPORT: &str = "report.xml";

/// Space kept for the end of the job, which must be written also to a full disk.
const RESERVE: &str = "reserve";
/// Enough for a receipt and a state of the usual size, and what the file system needs for them.
const RESERVE_SIZE: usize = 32 * 1024;

/// The size that a file of the record may have: more than any command line and environment that the kernel takes.
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

    /// The job's id.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The report that a test run is told to write.
    pub fn report(&self) -> PathBuf {
        self.dir.join(REPORT)
    }

    /// The home that it is in.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Puts the job on record: its lock, its directory, its specification. If that fails, nothing of it is left.
    ///
    /// The lock is made first: whatever a keeper that is killed here leaves behind, the next sweep finds it.
    pub fn create(&self, spec: &JobSpec, launch: Option<&JobSpec>) -> io::Result<Lock> {
        let mut lock = self.make_lock()?;
        let made = DirBuilder::new().mode(0o700).create(&self.dir).and_then(|()| {
            fault_point(FaultPoint::DirMade);
            lock.hold_dir(&self.dir);
            if let Some(launch) = launch {
                write_new(&self.dir.join(LAUNCH), &line_of(launch)?)?;
                fault_point(FaultPoint::LaunchWritten);
            }
            // As a whole: a process that finds it can read it, and knows that the lock was taken before.
            self.write_spec(spec)
        });
        fault_point(FaultPoint::Recorded);
        match made {
            Ok(()) => Ok(lock),
            Err(error) => {
                // By name: a process without a free descriptor can't list the directory.
                for name in [LAUNCH, "spec.new", SPEC] {
                    let _ = fs::remove_file(self.dir.join(name));
                }
                let _ = fs::remove_dir(&self.dir);
                let _ = self.remove();
                Err(error)
            }
        }
    }

    /// Makes again what was deleted of a job that the caller keeps: its lock, its directory, its specification, its state. A
    /// state that another process has rewritten is corrected.
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
            // What was noted in the deleted one is not known any more.
            deleted.begun()?;
        }
        self.make_dir()?;
        if let Some(lock) = lock {
            lock.hold_dir(&self.dir);
        }
        if self.spec().is_err() {
            self.write_spec(spec)?;
        }
        record.map_or(Ok(()), |record| self.restore_state(record))
    }

    /// Makes a lock and a directory for a job of which neither is left, as for one that ran and was lost.
    pub fn make_lost(&self) -> io::Result<()> {
        self.make_lock()?.begun()?;
        self.make_dir()
    }

    /// Makes its directory, if it is missing.
    pub fn make_dir(&self) -> io::Result<()> {
        if self.exists() {
            return Ok(());
        }
        self.home.make_sub("jobs")?;
        DirBuilder::new().mode(0o700).create(&self.dir)
    }

    /// Whether it has a directory. A link to one does not count: quell makes none.
    pub fn exists(&self) -> bool {
        self.dir.symlink_metadata().is_ok_and(|found| found.is_dir() && quell_sys::is_trusted(&found))
    }

    /// The path of its lock while it has not ended.
    pub fn live_path(&self) -> PathBuf {
        self.home.sub("live").join(self.id.to_string())
    }

    fn done_path(&self) -> PathBuf {
        self.home.sub("done").join(self.id.to_string())
    }

    /// Reserves space for the end, so that it can be written also if the disk is full by then.
    pub fn reserve_space(&self) -> io::Result<()> {
        private_file().create_new(true).open(self.dir.join(RESERVE))?.write_all(&[0; RESERVE_SIZE])
    }

    /// Gives that space back.
    pub fn release_reserve(&self) -> io::Result<()> {
        gone_is_fine(fs::remove_file(self.dir.join(RESERVE)))
    }

    /// Writes all of its files to the disk: after that a power cut can't undo its end. This can take long.
    pub fn sync_all(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.dir)?.flatten() {
            // Not what other programs have put there. Of an empty file the directory has all there is: the name.
            let file = quell_sys::open_private(&entry.path(), OpenMode::Read).ok();
            if let Some(file) = file.filter(|file| file.metadata().map_or(true, |found| found.len() > 0)) {
                file.sync_all()?;
            }
        }
        File::open(&self.dir)?.sync_all()
    }

    /// Makes it one of the finished jobs. The caller holds its lock.
    pub fn mark_ended(&self) -> io::Result<()> {
        self.remove_socket()?;
        self.release_reserve()?;
        fault_point(FaultPoint::SocketRemoved);
        let is_missing = |moved: &io::Result<()>| moved.as_ref().is_err_and(is_absent);
        let mut moved = fs::rename(self.live_path(), self.done_path());
        if is_missing(&moved) {
            self.home.make_sub("done")?;
            moved = fs::rename(self.live_path(), self.done_path());
        }
        if is_missing(&moved) {
            // It was marked before; or its lock was deleted, and the file in `done` is still to be made.
            moved = private_file().open(self.done_path()).map(drop);
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
        gone_is_fine(fs::remove_file(self.done_path()))?;
        gone_is_fine(fs::remove_file(self.live_path()))
    }

    /// The specification, as it may be shown.
    pub fn spec(&self) -> io::Result<JobSpec> {
        self.read(SPEC)
    }

    fn write_spec(&self, spec: &JobSpec) -> io::Result<()> {
        replace(&self.dir.join(SPEC), &line_of(spec)?, FaultPoint::SpecWritten)
    }

    /// The unmasked specification: what is needed to start it again. Only a background job has it.
    pub fn launch(&self) -> io::Result<JobSpec> {
        self.read(LAUNCH)
    }

    /// The receipt of the last run that has one.
    pub fn receipt(&self) -> io::Result<Receipt> {
        self.read(RECEIPT)
    }

    /// Replaces the receipt.
    pub fn write_receipt(&self, receipt: &Receipt) -> io::Result<()> {
        replace(&self.dir.join(RECEIPT), &line_of(receipt)?, FaultPoint::ReceiptWritten)?;
        fault_point(FaultPoint::ReceiptKept);
        Ok(())
    }

    fn read<T: DeserializeOwned>(&self, name: &'static str) -> io::Result<T> {
        self.parse(name, &self.bytes(name)?)
    }

    pub(crate) fn bytes(&self, name: &'static str) -> io::Result<Vec<u8>> {
        let place = InDir::new(&self.dir, name)?;
        quell_sys::read_private(&place.path(), RECORD_CAP).map_err(at(&self.dir.join(name)))
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
