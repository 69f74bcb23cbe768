//! The files of the server, in `serve/` of quell's home: for this user alone.
//!
//! ```text
//! serve/lock         held while a server runs
//! serve/state.json   its process, address and socket
//! serve/api.sock     the socket
//! serve/token        the token with all rights
//! serve/tokens.toml  the others
//! serve/open.html    sends a browser to the login address; removed after a minute
//! serve/counters.json  the counts of `/metrics`
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use quell::binary::{Home, OpenMode, create_private, open_private, read_private, uid};
use quell::{Error, Result};
use serde::{Deserialize, Serialize};

/// The largest file that is read.
const LARGEST: u64 = 16 << 20;

/// A server that runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Serving {
    /// Its PID.
    pub pid: u32,
    /// Where a browser finds it; absent if it listens on its socket only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its socket.
    pub socket: PathBuf,
    /// Its version.
    pub version: String,
    /// An address that logs a browser in, once and within a minute: with `--url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
}

/// The directory, checked.
#[derive(Clone, Debug)]
pub struct Files(PathBuf);

impl Files {
    /// Opens the directory, and makes it if it does not exist. It must be a directory of this user that no other user can open,
    /// as its files decide what may control the jobs.
    pub fn open(home: &Home) -> Result<Self> {
        home.make().map_err(Error::io(home.dir()))?;
        let dir = home.dir().join("serve");
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(Error::io(&dir))?,
        }
        check(&dir).map_err(Error::io(&dir))?;
        Ok(Self(dir))
    }

    pub fn socket(&self) -> PathBuf {
        self.0.join("api.sock")
    }

    pub fn token(&self) -> PathBuf {
        self.0.join("token")
    }

    pub fn tokens(&self) -> PathBuf {
        self.0.join("tokens.toml")
    }

    pub fn redirect(&self) -> PathBuf {
        self.0.join("open.html")
    }

    pub fn counters(&self) -> PathBuf {
        self.0.join("counters.json")
    }

    pub fn state(&self) -> PathBuf {
        self.0.join("state.json")
    }

    /// Takes the lock of the server that runs. None if another process has it.
    pub fn lock(&self) -> Result<Option<File>> {
        let path = self.0.join("lock");
        let file = open_private(&path, OpenMode::Append).map_err(Error::io(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(Error::io(path)(error)),
        }
    }

    /// The server that runs, by what it has written; none if none does.
    pub fn serving(&self) -> Result<Option<Serving>> {
        if self.lock()?.is_some() {
            return Ok(None);
        }
        let text = read(&self.state())?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }
}

fn check(dir: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(dir)?;
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if !found.is_dir() {
        return refuse("it is not a directory".into());
    }
    if found.uid() != uid() {
        return refuse(format!("it belongs to another user (uid {})", found.uid()));
    }
    if found.mode() & 0o077 != 0 {
        return refuse(format!("others can open it (mode {:o}): chmod 700", found.mode() & 0o7777));
    }
    Ok(())
}

/// The text of one of the files; none if it does not exist.
pub fn read(path: &Path) -> Result<Option<String>> {
    match read_private(path, LARGEST) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path)(error)),
    }
}

/// Writes one of the files, for this user alone. Another process sees the old text or the new one.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension(format!("new.{}", std::process::id()));
    let _ = fs::remove_file(&new);
    let written = create_private(&new).and_then(|mut file| file.write_all(text.as_bytes()));
    written.and_then(|()| fs::rename(&new, path)).map_err(|error| {
        let _ = fs::remove_file(&new);
        Error::io(path)(error)
    })
}
