//! One job on disk. The directory and its files are the user's alone; the state is replaced as a whole, so that a reader
//! sees the old one or the new one and never a part.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use quell_core::{JobEvent, JobId, JobSpec, ProcId, Receipt, StateRecord, Timestamp};
use quell_sys::fault::{FaultPoint, fault_point};
use quell_sys::{OpenMode, PidFd};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::home::{Home, gone_is_fine, is_absent};
use crate::keepers::{check_room, is_keeper};

/// How large the history of events may get before its older half is given up; a job that is restarted for ever has one
/// without end.
const EVENTS_CAP: u64 = 4 * 1024 * 1024;

/// How much room is put aside for the end: a receipt and a state of the usual size, and what the file system needs for them.
const RESERVE: usize = 32 * 1024;

/// What a keeper writes into the lock before the program of its job runs.
pub(crate) const BEGUN: &[u8] = b"begun\n";
/// How long after its id was made the lock of a job is made.
const BIRTH: Duration = Duration::from_secs(3);

/// What stands in the lock of a job whose stop is being finished, before the identity of the process that does it.
const FINISHING: &str = "finishing";

/// The states of a job, one a line.
const STATES: &str = "state.jsonl";
/// How large that may get before it is begun anew: a job that is restarted again and again has many.
const STATES_CAP: u64 = 64 * 1024;

/// How large a file of the record may be: more than any command line and environment that the kernel takes.
const RECORD_CAP: u64 = 64 * 1024 * 1024;

/// The lock that says that a process keeps this job. Held as long as the file is open in any process.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
    /// The job's directory, locked as well: the lock file can be moved away, and then the record could say anything.
    dir: Option<File>,
}

impl Lock {
    /// Whether the file is still where every process looks for it.
    fn is_in_place(&self) -> bool {
        let ino = |found: io::Result<fs::Metadata>| found.ok().map(|found| found.ino());
        ino(self.path.symlink_metadata()) == ino(self.file.metadata())
    }

    /// Locks the job's directory too. Where that can't be done, the lock file has to do.
    fn hold_dir(&mut self, dir: &Path) {
        let found = dir.symlink_metadata().map(|found| found.ino()).ok();
        let is_same = |held: &File| held.metadata().is_ok_and(|held| Some(held.ino()) == found);
        if !self.dir.as_ref().is_some_and(is_same) {
            self.dir = open_dir(dir).ok().filter(|dir| dir.try_lock().is_ok());
        }
    }

    /// Lets go of it, for every process that shares it: the job has ended. From here on a record that says so is true.
    pub fn release(&self) {
        for file in self.dir.iter().chain([&self.file]) {
            let _ = file.unlock();
        }
    }

    /// Notes that the program is about to run. Called by the keeper, before it does.
    pub fn begun(&self) -> io::Result<()> {
        (&self.file).write_all(BEGUN)
    }

    /// Whether it says that the program has run.
    pub fn says_begun(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.len() > 0)
    }

    /// Whether the lock of job `id` is as it was made: nothing was written to it, and it was not changed later. The time of
    /// the last change is the kernel's: a process that empties the file can't set it back.
    pub fn is_as_made(&self, id: JobId) -> bool {
        self.file.metadata().is_ok_and(|found| {
            let changed = found.ctime() as u64 * 1000 + found.ctime_nsec() as u64 / 1_000_000;
            found.len() == 0 && changed <= id.unix_ms().saturating_add(BIRTH.as_millis() as u64)
        })
    }

    /// Says that the holder does not keep the job but finishes its stop, so that whoever finds it locked knows that it is
    /// about to be over.
    pub fn finishing(&self) -> io::Result<()> {
        let own = quell_sys::stat(quell_sys::pid())?;
        let mut file = quell_sys::open_private(&self.path, OpenMode::Change)?;
        file.set_len(0)?;
        file.write_all(format!("{FINISHING} {} {}\n", own.pid, own.start).as_bytes())
    }

    /// The process that has written this into a lock.
    pub(crate) fn finisher_in(text: &[u8]) -> Option<ProcId> {
        let text = std::str::from_utf8(text).ok()?.strip_prefix(FINISHING)?;
        let (pid, start) = text.trim().split_once(' ')?;
        Some(ProcId { pid: pid.parse().ok()?, start: start.parse().ok()? })
    }
}

/// Whether somebody keeps a job.
#[derive(Debug)]
pub enum Liveness {
    /// A keeper or its standby lives.
    Supervised,
    /// Another process finishes its stop.
    Finishing,
    /// It was kept, has not ended, and nobody keeps it. The lock is ours now.
    Orphaned(Lock),
    /// It has ended, or was never there.
    Ended,
}

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

    /// Which job.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whose it is.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Puts the job on record: its lock, its directory, its specification. Nothing is left if that fails.
    ///
    /// The lock is made first: whatever a keeper that is killed here leaves lying about, the next sweep finds.
    pub fn create(&self, spec: &JobSpec, launch: Option<&JobSpec>) -> io::Result<Lock> {
        let mut lock = self.make_lock()?;
        let made = DirBuilder::new().mode(0o700).create(&self.dir).and_then(|()| {
            fault_point(FaultPoint::DirMade);
            lock.hold_dir(&self.dir);
            if let Some(launch) = launch {
                write_new(&self.dir.join("launch.private.json"), &line_of(launch)?)?;
                fault_point(FaultPoint::LaunchWritten);
            }
            // As a whole: whoever finds it can read it, and knows that the lock was taken before.
            self.replace("spec.json", &line_of(spec)?, FaultPoint::SpecWritten)
        });
        fault_point(FaultPoint::Recorded);
        match made {
            Ok(()) => Ok(lock),
            Err(error) => {
                // By name: a process without a free descriptor can't list the directory.
                for name in ["launch.private.json", "spec.new", "spec.json"] {
                    let _ = fs::remove_file(self.dir.join(name));
                }
                let _ = fs::remove_dir(&self.dir);
                let _ = self.remove();
                Err(error)
            }
        }
    }

    fn make_lock(&self) -> io::Result<Lock> {
        self.home.make()?;
        self.home.make_sub("jobs")?;
        self.home.make_sub("live")?;
        // Now: at the end there may be no inode for it.
        self.home.make_sub("done")?;
        // Locked before it can be found: nobody may take a job for lost that is about to be made.
        let hidden = self.home.sub("live").join(format!(".{}", self.id));
        let file = private_file().create_new(true).open(&hidden)?;
        let locked = file.try_lock().map_err(io::Error::from);
        fault_point(FaultPoint::LockMade);
        if let Err(error) = locked.and_then(|()| fs::rename(&hidden, self.live_path())) {
            let _ = fs::remove_file(&hidden);
            return Err(error);
        }
        fault_point(FaultPoint::LockShown);
        Ok(Lock { file, path: self.live_path(), dir: None })
    }

    /// Makes again what was deleted of a job that the caller keeps: its lock, its directory, its specification, its state. The
    /// state is also put right where another process has rewritten it.
    pub fn restore(
        &self,
        lock: &mut Option<Lock>,
        spec: &JobSpec,
        record: Option<&StateRecord>,
    ) -> io::Result<()> {
        if let Some(lost) = lock.as_mut().filter(|lock| !lock.is_in_place()) {
            let new = self.make_lock()?;
            // The standby has the old one too, and it keeps nothing any more.
            lost.release();
            *lost = new;
            // What the old one said is not known any more.
            lost.begun()?;
        }
        self.make_dir()?;
        if let Some(lock) = lock {
            lock.hold_dir(&self.dir);
        }
        if self.spec().is_err() {
            self.replace("spec.json", &line_of(spec)?, FaultPoint::SpecWritten)?;
        }
        let Some(record) = record else { return Ok(()) };
        let line = line_of(record)?;
        // What another process has written is not the state.
        let same = self.bytes(STATES).is_ok_and(|bytes| last_line(&bytes) == line.trim_ascii_end());
        if same { Ok(()) } else { self.append_state(record) }
    }

    /// Makes a lock and a directory for a job of which neither is left, as one that ran and that no process keeps.
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

    /// Whether there is a record at all. A link to a directory is none: whoever made it, it was not quell.
    pub fn exists(&self) -> bool {
        self.dir.symlink_metadata().is_ok_and(|found| found.is_dir() && quell_sys::is_trusted(&found))
    }

    /// Its lock while it has not ended.
    pub fn live_path(&self) -> PathBuf {
        self.home.sub("live").join(self.id.to_string())
    }

    fn done_path(&self) -> PathBuf {
        self.home.sub("done").join(self.id.to_string())
    }

    /// Whether somebody keeps it. If nobody does, and it has not ended, the caller is the one who may finish it.
    pub fn liveness(&self) -> io::Result<Liveness> {
        self.liveness_by(None)
    }

    /// The same for a caller that has just read the record.
    pub fn liveness_by(&self, record: Option<&StateRecord>) -> io::Result<Liveness> {
        let path = self.live_path();
        // Not for writing: who waits for a keeper to close it must not wake up for every look.
        match quell_sys::open_private(&path, OpenMode::Read) {
            Ok(file) => self.try_lock(file, record),
            Err(error) if is_absent(&error) => self.without_lock(),
            Err(error) => Err(at(&path)(error)),
        }
    }

    /// A job without a lock is over, or its lock was deleted. Then its keepers, which still have it open, make another one;
    /// and where they are gone, this process does, so that the job is found and finished like any other.
    fn without_lock(&self) -> io::Result<Liveness> {
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
        if record.is_none() || self.has_ended() {
            return Ok(Liveness::Ended);
        }
        self.home.make_sub("live")?;
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(self.live_path()) {
            Ok(file) => {
                (&file).write_all(BEGUN)?;
                self.try_lock(file, None)
            }
            // Another process was quicker.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.liveness(),
            Err(error) => Err(at(&self.live_path())(error)),
        }
    }

    /// Whether its record says so.
    pub(crate) fn has_ended(&self) -> bool {
        self.record().is_ok_and(|record| record.state.is_ended())
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

    /// What it means that this process has locked `file`.
    pub(crate) fn locked(&self, file: File) -> io::Result<Liveness> {
        match self.live_path().symlink_metadata() {
            Ok(found) if found.ino() == file.metadata()?.ino() => {
                check_room()?;
                Ok(Liveness::Orphaned(Lock { file, path: self.live_path(), dir: None }))
            }
            // Another process has replaced it meanwhile.
            Ok(_) => self.liveness(),
            // It has ended meanwhile.
            Err(_) => Ok(Liveness::Ended),
        }
    }

    /// Publishes a state. It becomes the last line of a file, of which readers take the last whole line: a file of its own for
    /// each state would cost the making of one and the removal of another.
    pub fn append_state(&self, record: &StateRecord) -> io::Result<()> {
        let line = line_of(record)?;
        if !self.append_state_line(&line)? {
            self.replace(STATES, &line, FaultPoint::StateWritten)?;
        }
        fault_point(FaultPoint::StatePublished);
        Ok(())
    }

    /// Appends a state; false if that has to be the first line of a new file.
    fn append_state_line(&self, line: &[u8]) -> io::Result<bool> {
        let file = match quell_sys::open_private(&self.dir.join(STATES), OpenMode::Extend) {
            Ok(file) => file,
            // None yet; or what is there is none of ours, and is replaced.
            Err(_) => return Ok(false),
        };
        let found = file.metadata()?;
        let (length, mut last) = (found.len(), [0]);
        let goes_on = found.nlink() == 1
            && length + line.len() as u64 <= STATES_CAP
            && length > 0
            && file.read_at(&mut last, length - 1)? == 1
            && last == *b"\n";
        if !goes_on {
            return Ok(false);
        }
        match (&file).write(line) {
            Ok(count) if count == line.len() => Ok(true),
            // Half a line would spoil the next one. A disk that is full has no room for a new file either.
            Ok(_) => file.set_len(length).and(Err(io::ErrorKind::StorageFull.into())),
            Err(error) => file.set_len(length).and(Err(error)),
        }
    }

    /// Writes the receipt beside the state.
    pub fn write_receipt(&self, receipt: &Receipt) -> io::Result<()> {
        self.replace("receipt.json", &line_of(receipt)?, FaultPoint::ReceiptWritten)?;
        fault_point(FaultPoint::ReceiptKept);
        Ok(())
    }

    /// Puts room aside for the words of the end, so that a disk that fills up meanwhile does not take them.
    pub fn reserve_space(&self) -> io::Result<()> {
        private_file().create_new(true).open(self.dir.join("reserve"))?.write_all(&[0; RESERVE])
    }

    /// Gives that room back.
    pub fn release_reserve(&self) -> io::Result<()> {
        gone_is_fine(fs::remove_file(self.dir.join("reserve")))
    }

    fn replace(&self, name: &str, bytes: &[u8], written: FaultPoint) -> io::Result<()> {
        let old = self.dir.join(name);
        let new = old.with_extension("new");
        let replaced = write_new(&new, bytes).and_then(|()| {
            fault_point(written);
            let rename = |flags| renameat_with(CWD, &new, CWD, &old, flags);
            // A rename over a file has ext4 write the new one to the disk at once, which is nothing to wait for: see
            // `harden`.
            if rename(RenameFlags::NOREPLACE).is_ok() {
                Ok(())
            } else if rename(RenameFlags::EXCHANGE).is_ok() {
                // What stays is in nobody's way.
                let _ = fs::remove_file(&new);
                Ok(())
            } else {
                // A file system that knows neither.
                fs::rename(&new, &old)
            }
        });
        if replaced.is_err() {
            let _ = fs::remove_file(&new);
        }
        replaced
    }

    /// Waits until everything of it is on the disk: from then on a power cut can't take its end back. It takes its time,
    /// and is for those whom nobody waits for.
    pub fn sync_all(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.dir)?.flatten() {
            // What is no file of quell's own has nothing to be kept; of an empty one that is its name, which the directory has.
            let file = quell_sys::open_private(&entry.path(), OpenMode::Read).ok();
            if let Some(file) = file.filter(|file| file.metadata().map_or(true, |found| found.len() > 0)) {
                file.sync_all()?;
            }
        }
        File::open(&self.dir)?.sync_all()
    }

    /// Says that the job has ended: from here on it is one of the finished ones. Called by whoever holds its lock.
    pub fn mark_ended(&self) -> io::Result<()> {
        gone_is_fine(fs::remove_file(self.dir.join("control.sock")))?;
        self.release_reserve()?;
        fault_point(FaultPoint::SocketRemoved);
        let is_missing = |moved: &io::Result<()>| moved.as_ref().is_err_and(is_absent);
        let mut moved = fs::rename(self.live_path(), self.done_path());
        if is_missing(&moved) {
            self.home.make_sub("done")?;
            moved = fs::rename(self.live_path(), self.done_path());
        }
        if is_missing(&moved) {
            // Settled before; or somebody has deleted the lock, and then the note is still to be made.
            moved = private_file().open(self.done_path()).map(drop);
        }
        moved?;
        fault_point(FaultPoint::Settled);
        Ok(())
    }

    /// Removes the record. Called by whoever holds its lock, or after its end.
    pub fn remove(&self) -> io::Result<()> {
        // The directory goes first: a lock without one is swept away, one without a lock would never be found.
        gone_is_fine(fs::remove_dir_all(&self.dir))?;
        fault_point(FaultPoint::RecordRemoved);
        gone_is_fine(fs::remove_file(self.done_path()))?;
        gone_is_fine(fs::remove_file(self.live_path()))
    }

    /// What was asked for.
    pub fn spec(&self) -> io::Result<JobSpec> {
        self.read("spec.json")
    }

    /// The same, and unmasked: what is needed to start it again. Only a background job has it.
    pub fn launch(&self) -> io::Result<JobSpec> {
        self.read("launch.private.json")
    }

    /// How it is.
    pub fn record(&self) -> io::Result<StateRecord> {
        let bytes = self.bytes(STATES)?;
        self.parse(STATES, last_line(&bytes))
    }

    /// What happened.
    pub fn receipt(&self) -> io::Result<Receipt> {
        self.read("receipt.json")
    }

    fn read<T: DeserializeOwned>(&self, name: &'static str) -> io::Result<T> {
        self.parse(name, &self.bytes(name)?)
    }

    fn bytes(&self, name: &'static str) -> io::Result<Vec<u8>> {
        quell_sys::read_private(&self.place(name)?.path(), RECORD_CAP).map_err(at(&self.dir.join(name)))
    }

    fn parse<T: DeserializeOwned>(&self, name: &str, bytes: &[u8]) -> io::Result<T> {
        serde_json::from_slice(bytes).map_err(|error| {
            let path = self.dir.join(name);
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
        })
    }

    /// Adds to the history.
    pub fn log_event(&self, event: &JobEvent) -> io::Result<()> {
        let path = self.dir.join("events.jsonl");
        let mut bytes = serde_json::to_vec(event)?;
        bytes.push(b'\n');
        let mut file = quell_sys::open_private(&path, OpenMode::Append).map_err(at(&path))?;
        if file.metadata()?.len() > EVENTS_CAP {
            fs::rename(&path, self.dir.join("events.old.jsonl"))?;
            file = quell_sys::open_private(&path, OpenMode::Append).map_err(at(&path))?;
        }
        // One write, so that two writers don't mix.
        file.write_all(&bytes)?;
        fault_point(FaultPoint::EventLogged);
        Ok(())
    }

    /// The history, oldest first. A line that was cut off by a crash is left out.
    pub fn events(&self) -> io::Result<Vec<JobEvent>> {
        let mut events = Vec::new();
        for name in ["events.old.jsonl", "events.jsonl"] {
            let path = self.dir.join(name);
            match quell_sys::read_private(&path, 2 * EVENTS_CAP) {
                Ok(bytes) => events.extend(
                    bytes
                        .split(|&byte| byte == b'\n')
                        .filter_map(|line| serde_json::from_slice::<JobEvent>(line).ok()),
                ),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(at(&path)(error)),
            }
        }
        Ok(events)
    }

    /// Opens the control socket.
    pub fn listen(&self) -> io::Result<UnixListener> {
        let path = self.dir.join("control.sock");
        gone_is_fine(fs::remove_file(&path))?;
        let place = self.place("control.sock")?;
        let listener = UnixListener::bind(place.path())?;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        Ok(listener)
    }

    /// The inode of what is where the control socket should be.
    pub fn socket(&self) -> Option<u64> {
        fs::symlink_metadata(self.dir.join("control.sock")).ok().map(|metadata| metadata.ino())
    }

    /// Calls the keeper, for `patience` at most. Who listens there is this user or root.
    pub fn connect(&self, patience: Duration) -> io::Result<UnixStream> {
        quell_sys::connect_within(&self.place("control.sock")?.path(), patience)
    }

    /// A name in the job's own directory, which is opened first: a link that takes its place leads nowhere.
    fn place(&self, name: &'static str) -> io::Result<InDir> {
        let dir = open_dir(&self.dir)?;
        let found = dir.metadata()?;
        if !quell_sys::is_trusted(&found) {
            let why = format!("it belongs to another user (uid {})", found.uid());
            return Err(at(&self.dir)(io::Error::new(io::ErrorKind::PermissionDenied, why)));
        }
        Ok(InDir { dir, name })
    }
}

/// A name in a directory that is open.
struct InDir {
    dir: File,
    name: &'static str,
}

impl InDir {
    /// Good as long as this lives; and short enough for a socket (108 bytes), however long the name of quell's home is.
    fn path(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        PathBuf::from(format!("/proc/self/fd/{}/{}", self.dir.as_fd().as_raw_fd(), self.name))
    }
}

/// Opens a directory; a link that takes its place leads nowhere.
pub(crate) fn open_dir(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::DIRECTORY;
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}

/// The same error, with the path that it is about.
fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |error| match error.kind() {
        // Known by its kind or number; whoever asked knows the path.
        io::ErrorKind::NotFound => error,
        _ if quell_sys::is_out_of_descriptors(&error) => error,
        kind => io::Error::new(kind, format!("{path}: {error}")),
    }
}

/// The wall clock.
pub fn now() -> Timestamp {
    Timestamp::from_unix_ms(i64::try_from(quell_sys::unix_ms()).unwrap_or(i64::MAX))
}

pub(crate) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
}

fn line_of(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The last line that is whole, or everything if none is.
fn last_line(bytes: &[u8]) -> &[u8] {
    match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => bytes[..end].rsplit(|byte| *byte == b'\n').next().unwrap_or_default(),
        None => bytes,
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let create = || private_file().create_new(true).open(path);
    let mut file = match create() {
        // Whatever bears the name is what a crash left, or a trap; there is one writer.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            gone_is_fine(fs::remove_file(path))?;
            create()?
        }
        other => other?,
    };
    file.write_all(bytes)
}
