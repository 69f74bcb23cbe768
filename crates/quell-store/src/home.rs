//! quell's home: where all jobs are.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quell_core::JobId;
use quell_sys::OpenMode;
use quell_sys::fault::{FaultPoint, fault_point};

use crate::job::{JobDir, Liveness};

/// How long a claim to a name waits for another one to be settled, which takes microseconds.
const CLAIM_PATIENCE: Duration = Duration::from_secs(5);

/// After how long nobody can be about to lock a new job's lock any more.
const UNBORN_AGE: Duration = Duration::from_secs(60);

/// quell's home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    dir: PathBuf,
}

/// A name that can't be had.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// A live job bears it.
    #[error("the name `{name}` is that of the live job {by}")]
    Taken {
        /// The name.
        name: String,
        /// Who bears it.
        by: JobId,
    },
    /// It could not be written down.
    #[error("can't claim the name `{name}`: {error}")]
    Io {
        /// The name.
        name: String,
        /// Why.
        error: io::Error,
    },
}

impl Home {
    /// The home at `dir`, which need not exist yet. Seen from here: a keeper has another working directory.
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

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether it may be used: it is this user's own, or not there yet. Whatever is in it decides what is killed, removed
    /// and executed, so whoever can write there must be nobody else; root, too, leaves an ordinary user's home alone. An
    /// empty one that others can write, such as a new file system, is closed to them.
    pub fn check(&self) -> io::Result<()> {
        let refuse = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        let found = match fs::metadata(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.check_above(),
            other => other?,
        };
        // Also of a link: who makes one in a shared directory chooses what is used.
        let link = fs::symlink_metadata(&self.dir)?;
        if let Some(stranger) = [&link, &found].into_iter().find(|found| found.uid() != quell_sys::uid()) {
            // A link of root's, such as an administrator makes, leads where it should.
            if stranger.uid() != 0 || !stranger.is_symlink() {
                return refuse(format!("it belongs to another user (uid {})", stranger.uid()));
            }
        }
        if !found.is_dir() || found.mode() & 0o022 == 0 {
            return Ok(());
        }
        let open = format!("others can write there (mode {:o}): chmod go-w", found.mode() & 0o7777);
        let is_empty = || Ok::<bool, io::Error>(fs::read_dir(&self.dir)?.next().is_none());
        if !is_empty()? {
            return refuse(open);
        }
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o700))?;
        // Somebody may have been quicker.
        if is_empty()? { Ok(()) } else { refuse(open) }
    }

    /// Whether it may be made: not in another user's directory, who could put another one in its place. So root, called by
    /// `sudo -E`, leaves nothing of its own in a user's home.
    fn check_above(&self) -> io::Result<()> {
        let Some((dir, found)) =
            self.dir.ancestors().skip(1).find_map(|dir| Some((dir, fs::metadata(dir).ok()?)))
        else {
            return Ok(());
        };
        // In a directory such as /tmp nobody can touch what is another's.
        let shared = found.mode() & 0o1002 == 0o1002;
        if shared || quell_sys::is_trusted(&found) {
            return Ok(());
        }
        let (dir, uid) = (dir.display(), found.uid());
        let why = format!("can't be made, as {dir} belongs to another user (uid {uid})");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    /// Makes it if it is not there, and says whether it may be used.
    pub fn make(&self) -> io::Result<()> {
        self.check()?;
        private_dirs(&self.dir)
    }

    /// Makes one of the directories in it, if it is not there. What is in its place and is not a directory is moved aside.
    pub(crate) fn make_sub(&self, name: &str) -> io::Result<()> {
        let path = self.sub(name);
        match private_dirs(&path) {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory) => {}
            other => return other,
        }
        let aside = self.sub(&format!("{name}.moved"));
        let failed = |error: io::Error| {
            let why = format!("{} is not a directory and can't be moved aside: {error}", path.display());
            io::Error::new(error.kind(), why)
        };
        fs::rename(&path, aside).map_err(failed)?;
        private_dirs(&path)
    }

    /// One of the directories in it.
    pub(crate) fn sub(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Where the index of finished jobs is.
    pub fn index_path(&self) -> PathBuf {
        self.sub("index.db")
    }

    /// Job `id`, wherever it is in its life.
    pub fn job(&self, id: JobId) -> JobDir {
        JobDir::new(self.clone(), id)
    }

    /// The jobs that have not ended, oldest first; their keepers may be lost.
    pub fn live(&self) -> io::Result<Vec<JobId>> {
        ids_in(&self.sub("live"))
    }

    /// Those, and the ones that would be among them if their locks had not been deleted. A receipt alone is not an end: it may
    /// be that of an earlier run. What can't be read and has one has ended.
    pub fn unended(&self) -> io::Result<Vec<JobId>> {
        // In this order: a job has its lock before its directory.
        let mut all = self.all()?;
        let live = self.live()?;
        let has_ended = |job: JobDir| match job.record() {
            Ok(record) => record.state.is_ended(),
            Err(_) => job.dir().join("receipt.json").exists(),
        };
        all.retain(|id| live.binary_search(id).is_err() && !has_ended(self.job(*id)));
        Ok(live.into_iter().chain(all).collect())
    }

    /// How many directories of jobs there are, among them those that are just being removed.
    pub fn count(&self) -> io::Result<u64> {
        match fs::metadata(self.sub("jobs")) {
            // Each directory in it has a link to it; some file systems don't count them, or not so many.
            Ok(found) if found.nlink() >= 2 => Ok(found.nlink() - 2),
            Ok(_) => Ok(self.all()?.len() as u64),
            Err(error) if is_absent(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Removes the locks of jobs whose makers were killed before anything of them could be found; how many there were.
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
            // One that was made a moment ago may not be locked yet.
            let old = || entry.metadata()?.modified()?.elapsed().map_err(io::Error::other);
            if matches!(hidden, Some(Ok(_)))
                && old().is_ok_and(|age| age > UNBORN_AGE)
                && quell_sys::open_private(&entry.path(), OpenMode::Read)
                    .is_ok_and(|file| file.try_lock().is_ok())
            {
                gone_is_fine(fs::remove_file(entry.path()))?;
                cleared += 1;
            }
        }
        Ok(cleared)
    }

    /// Removes the links of those who were killed while they claimed a name; how many there were.
    pub fn remove_stale_name_links(&self) -> io::Result<usize> {
        let names = self.sub("names");
        let half = || -> io::Result<Vec<PathBuf>> {
            let entries = match fs::read_dir(&names) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                other => other?,
            };
            let is_half = |entry: &fs::DirEntry| {
                let name = entry.file_name();
                let id = name.to_str().and_then(|name| name.strip_prefix('.')).map(str::parse::<JobId>);
                matches!(id, Some(Ok(_)))
            };
            Ok(entries.flatten().filter(is_half).map(|entry| entry.path()).collect())
        };
        if half()?.is_empty() {
            return Ok(0);
        }
        // Whoever claims has the lock from before the link is made until it bears the name: none is in the making now.
        let _claims = lock_within(&names.join(".lock"), CLAIM_PATIENCE)?;
        let left = half()?;
        left.iter().try_for_each(|link| gone_is_fine(fs::remove_file(link)))?;
        Ok(left.len())
    }

    /// The jobs that have ended and are not in the index yet, oldest first.
    pub fn done(&self) -> io::Result<Vec<JobId>> {
        ids_in(&self.sub("done"))
    }

    /// All jobs on record, oldest first.
    pub fn all(&self) -> io::Result<Vec<JobId>> {
        ids_in(&self.sub("jobs"))
    }

    /// Says that a reader has put the ended job `id` into the index.
    pub fn indexed(&self, id: JobId) -> io::Result<()> {
        gone_is_fine(fs::remove_file(self.sub("done").join(id.to_string())))
    }

    /// The job that bears `name`, or bore it last. The name has been checked: it can't leave the directory.
    pub fn named(&self, name: &str) -> Option<JobId> {
        if !is_name(name) {
            return None;
        }
        fs::read_link(self.sub("names").join(name)).ok()?.to_str()?.parse().ok()
    }

    /// Gives `name` to `id`, unless a live job bears it, or one that was lost and is not finished: its processes may be alive.
    pub fn claim(&self, name: &str, id: JobId) -> Result<(), NameError> {
        let failed = |error| NameError::Io { name: name.to_owned(), error };
        if !is_name(name) {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        let names = self.sub("names");
        self.make_sub("names").map_err(failed)?;
        let _claims = lock_within(&names.join(".lock"), CLAIM_PATIENCE).map_err(failed)?;
        if let Some(by) = self.named(name).filter(|by| *by != id)
            && !matches!(self.job(by).liveness(), Ok(Liveness::Ended) | Err(_))
            // Its end is on record a little before its lock is gone.
            && !self.job(by).wait_for_true_end()
        {
            return Err(NameError::Taken { name: name.to_owned(), by });
        }
        let new = names.join(format!(".{id}"));
        let link = symlink(id.to_string(), &new).and_then(|()| {
            fault_point(FaultPoint::NameLinked);
            fs::rename(&new, names.join(name))
        });
        link.map_err(|error| {
            let _ = fs::remove_file(&new);
            failed(error)
        })
    }

    /// Takes `name` away from `id`, if that still bears it.
    pub fn release_name(&self, name: &str, id: JobId) {
        if let Ok(_claims) = lock_within(&self.sub("names").join(".lock"), CLAIM_PATIENCE)
            && self.named(name) == Some(id)
        {
            let _ = fs::remove_file(self.sub("names").join(name));
        }
    }
}

/// Whether `text` can be the name of a job: it is a plain file name, and no path.
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=64).contains(&text.len()) && text.chars().all(plain) && !text.starts_with(['.', '-'])
}

fn ids_in(dir: &Path) -> io::Result<Vec<JobId>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        other => other?,
    };
    let mut ids: Vec<JobId> = Vec::new();
    for entry in entries {
        // What quell did not write is none of its business.
        ids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<JobId>().ok()));
    }
    ids.sort_unstable();
    Ok(ids)
}

/// An exclusive lock on `path`, waited for a little.
fn lock_within(path: &Path, patience: Duration) -> io::Result<File> {
    let file = quell_sys::open_private(path, OpenMode::Append)?;
    let deadline = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < deadline => {
                // flock has no deadline and no event. The holder needs microseconds.
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(fs::TryLockError::WouldBlock) => {
                let why = format!("another quell has {} locked and does not go on", path.display());
                return Err(io::Error::new(io::ErrorKind::WouldBlock, why));
            }
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
    }
}

pub(crate) fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if is_absent(&error) => Ok(()),
        other => other,
    }
}

/// Whether there is no such file; also where another file is in the place of its directory.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Makes `path` and what is missing above it, for this user alone; refuses a directory of somebody else's.
pub(crate) fn private_dirs(path: &Path) -> io::Result<()> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(_) => {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            fs::metadata(path)?
        }
    };
    if !metadata.is_dir() {
        let why = format!("{} is not a directory", path.display());
        return Err(io::Error::new(io::ErrorKind::NotADirectory, why));
    }
    let owner = metadata.uid();
    if owner != quell_sys::uid() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("it belongs to another user (uid {owner})"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_path() {
        for text in ["", ".", "..", "a/b", "/etc", "-x", ".x", "a b", "a\0", "ä", &"x".repeat(65)] {
            assert!(!is_name(text), "{text}");
        }
        for text in ["web", "a.b-c_1", "0", "../x".trim_start_matches("../")] {
            assert!(is_name(text), "{text}");
        }
    }
}
