//! `$QUELL_HOME/setup.json`: what setup has written, so that it can be checked and undone.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use quell_core::{SCHEMA, Timestamp};
use quell_store::Home;
use quell_sys::OpenMode;
use serde::{Deserialize, Serialize};

use crate::change::CorrectedPath;
use crate::edit::KeyPath;
use crate::{Agent, ConfigScope, Error};

/// No list is larger.
const LARGEST: u64 = 4 << 20;

/// All files that setup has changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    schema: String,
    pub files: Vec<SetupRecord>,
}

/// What setup has done to one file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SetupRecord {
    pub agent: Agent,
    pub scope: ConfigScope,
    /// Where the file really is.
    pub file: PathBuf,
    pub at: Timestamp,
    /// The path of quell that was written.
    pub quell: String,
    pub wrap: bool,
    /// Whether setup added quell's entry. Else the user did, earlier.
    pub own: bool,
    /// Whether setup made the table for it.
    pub table: bool,
    /// The servers that setup wrapped.
    pub servers: Vec<KeyPath>,
    /// The servers, set up by the user, in which setup corrected the path of quell.
    #[serde(default)]
    pub corrected: Vec<CorrectedPath>,
    /// The file without what setup wrote. None if there was no file.
    pub backup: Option<PathBuf>,
    /// Directories that setup made, the outermost first.
    pub made: Vec<PathBuf>,
}

impl Manifest {
    pub fn path(home: &Home) -> PathBuf {
        home.dir().join("setup.json")
    }

    /// The list in `home`, empty if there is none.
    pub fn read(home: &Home) -> Result<Self, Error> {
        let path = Self::path(home);
        let bytes = match quell_sys::read_private(&path, LARGEST) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self { schema: SCHEMA.into(), files: Vec::new() });
            }
            other => other.map_err(Error::io("read", &path))?,
        };
        serde_json::from_slice(&bytes).map_err(|error| Error::Manifest { path, why: error.to_string() })
    }

    /// Waits until no other quell changes the list. The lock is held until the result is dropped.
    pub fn lock(home: &Home) -> Result<File, Error> {
        let path = home.dir().join("setup.lock");
        home.make().map_err(Error::io("make", home.dir()))?;
        let file = quell_sys::open_private(&path, OpenMode::Append).map_err(Error::io("open", &path))?;
        file.lock().map_err(Error::io("lock", &path))?;
        Ok(file)
    }

    /// Replaces the list, atomically. Before: this process holds the lock.
    pub fn write(&self, home: &Home) -> Result<(), Error> {
        let path = Self::path(home);
        let new = path.with_extension("new");
        let failed = || Error::io("write", &path);
        // What a crash has left: the lock is ours.
        let _ = fs::remove_file(&new);
        let bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        let mut file = quell_sys::create_private(&new).map_err(failed())?;
        let written = file.write_all(&bytes).and_then(|()| file.sync_all());
        let written = written.and_then(|()| fs::rename(&new, &path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written.map_err(failed())
    }

    pub fn find(&self, agent: Agent, file: &Path) -> Option<&SetupRecord> {
        self.files.iter().find(|record| record.agent == agent && record.file == file)
    }

    /// Replaces the record of a file, or removes it.
    pub fn set(&mut self, agent: Agent, file: &Path, record: Option<SetupRecord>) {
        self.files.retain(|old| old.agent != agent || old.file != file);
        self.files.extend(record);
    }
}
