//! A job on disk. The directory and its files are the user's alone; the state is replaced as a whole, so that a reader
//! sees the old one or the new one and never a part.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use quell_core::{JobId, JobSpec, Receipt, Record};
use serde::Serialize;

/// The record of one job.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// Makes the job's directory with its specification in it; nothing is left if that fails.
    pub fn create(&self, spec: &JobSpec) -> io::Result<()> {
        if let Some(jobs) = self.dir.parent() {
            private_dirs(jobs)?;
        }
        DirBuilder::new().mode(0o700).create(&self.dir)?;
        write_new(&self.dir.join("spec.json"), spec).inspect_err(|_| self.remove())
    }

    /// The record of job `id` below `home`, wherever it is in its life.
    pub fn at(home: &Path, id: JobId) -> Self {
        Self { dir: home.join("jobs").join(id.to_string()) }
    }

    /// Whether there is a record at all.
    pub fn exists(&self) -> bool {
        self.dir.is_dir()
    }

    /// Takes the lock that says: this job's keeper lives. It is held as long as the file is open.
    pub fn lock(&self) -> io::Result<File> {
        let file = private_file().open(self.dir.join("lock"))?;
        file.try_lock().map_err(io::Error::from)?;
        Ok(file)
    }

    /// Replaces the state. Not synced: after a power cut there is nothing left of a foreground run to own.
    pub fn publish(&self, record: &Record) -> io::Result<()> {
        let (new, state) = (self.dir.join("state.new"), self.dir.join("state.json"));
        let replaced = write_new(&new, record).and_then(|()| fs::rename(&new, &state));
        if replaced.is_err() {
            let _ = fs::remove_file(&new);
        }
        replaced
    }

    /// Writes the receipt beside the state.
    pub fn keep(&self, receipt: &Receipt) -> io::Result<()> {
        write_new(&self.dir.join("receipt.json"), receipt)
    }

    /// Removes the record.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
}

fn write_new(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(value)?;
    bytes.push(b'\n');
    private_file().open(path)?.write_all(&bytes)
}

/// Makes `path` and what is missing above it, for this user alone; refuses a directory of somebody else's.
fn private_dirs(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    }
    let owner = fs::metadata(path)?.uid();
    if owner != quell_sys::uid() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("it belongs to another user (uid {owner})"),
        ));
    }
    Ok(())
}
