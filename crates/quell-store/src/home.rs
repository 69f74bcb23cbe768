//! quell's home: the directory of all jobs.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use quell_core::JobId;
use quell_sys::OpenMode;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, openat, renameat, renameat_with, unlinkat};
use rustix::io::Errno;

use crate::files::{at, foreign, gone_is_fine, is_absent, private_dirs};
use crate::job::JobDir;

/// The age after which a new lock is stale: the process that made it locks it long before that.
const STALE_AGE: Duration = Duration::from_secs(60);

/// quell's home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    dir: PathBuf,
}

impl Home {
    /// The home at `dir`, which need not exist yet. Made absolute: a keeper has another working directory.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        Self { dir: std::path::absolute(&dir).unwrap_or(dir) }
    }

    /// The home that the environment names: QUELL_HOME, else below the user's state directory.
    pub fn find() -> Option<Self> {
        let dir = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let state = || dir("XDG_STATE_HOME").filter(|path| path.is_absolute());
        let home = || dir("HOME").filter(|path| path.is_absolute()).or_else(quell_sys::own_home);
        let found = dir("QUELL_HOME")
            .or_else(|| state().map(|path| path.join("quell")))
            .or_else(|| home().map(|path| path.join(".local/state/quell")))?;
        std::path::absolute(found).ok().map(Self::at)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether it may be used: it belongs to this user, or does not exist yet. Its content decides what is killed, removed and
    /// executed, so only this user may be able to write there. For the same reason root does not use an ordinary user's home.
    /// An empty home that others can write to, such as a new file system, is closed to them.
    pub fn check(&self) -> io::Result<()> {
        self.find_checked().map(drop)
    }

    /// The same, with what is there.
    fn find_checked(&self) -> io::Result<Option<fs::Metadata>> {
        let is_new = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let mut found = match fs::symlink_metadata(&self.dir) {
            Err(error) if is_new(&error) => return self.check_above().map(|()| None),
            other => other?,
        };
        if found.is_symlink() {
            // The owner of a link in a shared directory chooses the home, so the link is checked too. An administrator may have
            // made it.
            if !quell_sys::is_trusted(&found) {
                return Err(foreign(found.uid()));
            }
            found = match fs::metadata(&self.dir) {
                Err(error) if is_new(&error) => return self.check_above().map(|()| None),
                other => other?,
            };
        }
        if found.uid() != quell_sys::uid() {
            return Err(foreign(found.uid()));
        }
        if !found.is_dir() {
            let why = "it is not a directory: set QUELL_HOME to one of your own";
            return Err(io::Error::new(io::ErrorKind::NotADirectory, why));
        }
        if found.mode() & 0o022 == 0 {
            return Ok(Some(found));
        }
        let is_empty = || Ok::<bool, io::Error>(fs::read_dir(&self.dir)?.next().is_none());
        if is_empty()? {
            fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o700))?;
            // Another user may have written there just before.
            if is_empty()? {
                return Ok(Some(found));
            }
        }
        let remedy = match found.mode() & 0o1002 {
            // A shared directory such as /tmp must not be closed to the others.
            0o1002 => "set QUELL_HOME to a directory of your own",
            _ => "chmod go-w",
        };
        let open = format!("others can write there (mode {:o}): {remedy}", found.mode() & 0o7777);
        Err(io::Error::new(io::ErrorKind::PermissionDenied, open))
    }

    /// Whether it may be made: not in a directory of another user, because that user could replace it. So root, called by `sudo
    /// -E`, makes nothing in a user's home.
    fn check_above(&self) -> io::Result<()> {
        let Some((dir, found)) =
            self.dir.ancestors().skip(1).find_map(|dir| Some((dir, fs::metadata(dir).ok()?)))
        else {
            return Ok(());
        };
        // In a sticky directory such as /tmp a user can't replace what belongs to another.
        let shared = found.mode() & 0o1002 == 0o1002;
        if shared || quell_sys::is_trusted(&found) {
            return Ok(());
        }
        let (dir, uid) = (dir.display(), found.uid());
        let why = format!("can't be made, as {dir} belongs to another user (uid {uid})");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    /// Makes it if it does not exist. Fails if it may not be used.
    pub fn make(&self) -> io::Result<()> {
        match self.find_checked()? {
            Some(found) if found.is_dir() => Ok(()),
            Some(_) | None => private_dirs(&self.dir),
        }
    }

    /// Makes one of the directories in it, if it does not exist. A file in its place is removed.
    pub(crate) fn make_sub(&self, name: &str) -> io::Result<()> {
        let path = self.sub(name);
        match private_dirs(&path) {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory) => {}
            other => return other,
        }
        self.clear_place(&path).map_err(|error| {
            let why = format!("{} is not a directory and can't be removed: {error}", path.display());
            io::Error::new(error.kind(), why)
        })?;
        private_dirs(&path)
    }

    /// Puts what is at `path` out of the way of one of quell's own files or directories. A directory with content is renamed to a name
    /// that ends with `.moved`, in the job's directory or else in the home. Anything else is removed. No link below the home is
    /// followed.
    pub(crate) fn clear_place(&self, path: &Path) -> io::Result<()> {
        self.check()?;
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let from = self.open_below(dir)?;
        let removed = match unlinkat(&from, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => unlinkat(&from, name, AtFlags::REMOVEDIR),
            other => other,
        };
        match removed {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            other => return gone_is_fine(other.map_err(io::Error::from)),
        }
        let is_in_job = dir.parent() == Some(&self.sub("jobs"));
        let to = self.open_below(if is_in_job { dir } else { self.dir() })?;
        let aside = format!("{}.{}.moved", name.to_string_lossy(), quell_sys::unix_ms());
        let moved = match renameat_with(&from, name, &to, &aside, RenameFlags::NOREPLACE) {
            // The file system does not support the flag.
            Err(Errno::INVAL) => renameat(&from, name, &to, &aside),
            other => other,
        };
        gone_is_fine(moved.map_err(io::Error::from))
    }

    /// Removes one of quell's own files, if it is there. A directory in its place is put aside.
    pub(crate) fn remove_file(&self, path: &Path) -> io::Result<()> {
        gone_is_fine(fs::remove_file(path)).or_else(|_| self.clear_place(path))
    }

    /// Opens a directory in the home, or the home itself, without following a link below it.
    fn open_below(&self, dir: &Path) -> io::Result<File> {
        let below = dir.strip_prefix(self.dir()).map_err(io::Error::other)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |above: File, name| Ok(File::from(openat(&above, name, flags, Mode::empty())?));
        let open: File = below
            .iter()
            .try_fold(File::open(self.dir())?, open)
            .map_err(|error: io::Error| at(dir)(error))?;
        let found = open.metadata()?;
        if quell_sys::is_trusted(&found) { Ok(open) } else { Err(at(dir)(foreign(found.uid()))) }
    }

    /// One of the directories in it.
    pub(crate) fn sub(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The path of the index of finished jobs.
    pub fn index_path(&self) -> PathBuf {
        self.sub("index.db")
    }

    /// Job `id`, which need not exist.
    pub fn job(&self, id: JobId) -> JobDir {
        JobDir::new(self.clone(), id)
    }

    /// The jobs that have not ended, oldest first. Lost ones are among them.
    pub fn live(&self) -> io::Result<Vec<JobId>> {
        ids_in(&self.sub("live"))
    }

    /// The same, and the jobs whose locks were deleted. A receipt does not prove an end, because it may be that of an earlier
    /// run. But a job with a receipt and without a readable state counts as ended.
    pub fn unended(&self) -> io::Result<Vec<JobId>> {
        // In this order, because the lock of a job is made before its directory.
        let mut all = self.all()?;
        let live = self.live()?;
        let has_ended = |job: JobDir| match job.record() {
            Ok(record) => record.state.is_ended(),
            Err(_) => job.dir().join("receipt.json").exists(),
        };
        all.retain(|id| live.binary_search(id).is_err() && !has_ended(self.job(*id)));
        Ok(live.into_iter().chain(all).collect())
    }

    /// The number of job directories, including those that are being removed.
    pub fn count(&self) -> io::Result<u64> {
        match fs::metadata(self.sub("jobs")) {
            // Each subdirectory counts as a link. Some file systems don't count these links, or only up to a limit.
            Ok(found) if found.nlink() >= 2 => Ok(found.nlink() - 2),
            Ok(_) => Ok(self.all()?.len() as u64),
            Err(error) if is_absent(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Removes the locks of processes that were killed before their jobs could be found. Returns their number.
    pub fn remove_stale_locks(&self) -> io::Result<usize> {
        let entries = match fs::read_dir(self.sub("live")) {
            Err(error) if is_absent(&error) => return Ok(0),
            other => other?,
        };
        let mut cleared = 0;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let hidden = name.to_str().and_then(|name| name.strip_prefix('.')?.split('.').next());
            let hidden = hidden.map(str::parse::<JobId>);
            // A new lock may not be locked yet.
            let old = || entry.metadata()?.modified()?.elapsed().map_err(io::Error::other);
            if matches!(hidden, Some(Ok(_)))
                && old().is_ok_and(|age| age > STALE_AGE)
                && quell_sys::open_private(&entry.path(), OpenMode::Read)
                    .is_ok_and(|file| file.try_lock().is_ok())
            {
                gone_is_fine(fs::remove_file(entry.path()))?;
                cleared += 1;
            }
        }
        Ok(cleared)
    }

    /// The jobs that have ended and are not in the index yet, oldest first.
    pub fn done(&self) -> io::Result<Vec<JobId>> {
        ids_in(&self.sub("done"))
    }

    /// All jobs on record, oldest first.
    pub fn all(&self) -> io::Result<Vec<JobId>> {
        ids_in(&self.sub("jobs"))
    }

    /// Notes that the ended job `id` is in the index now.
    pub fn indexed(&self, id: JobId) -> io::Result<()> {
        self.remove_file(&self.sub("done").join(id.to_string()))
    }
}

fn ids_in(dir: &Path) -> io::Result<Vec<JobId>> {
    let names = match quell_sys::names_in(dir) {
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        other => other?,
    };
    // Other names are not quell's.
    let ids = names.iter().filter_map(|name| name.to_str()?.parse::<JobId>().ok());
    let mut ids: Vec<JobId> = ids.collect();
    ids.sort_unstable();
    Ok(ids)
}
