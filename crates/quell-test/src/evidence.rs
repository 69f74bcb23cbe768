//! The evidence: one JSON document in a file that the caller names. It is written completely or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use quell_core::SCHEMA;
use serde::Serialize;

use quell::{Error, Result};

/// How many names for the temporary file are tried before giving up.
const MAX_TEMPORARY_NAMES: u32 = 100;

/// A path that evidence could be written to before the run.
#[derive(Clone, Debug)]
pub struct EvidenceFile {
    path: PathBuf,
}

impl EvidenceFile {
    /// Checks that a file can be created in that directory. An existing file is not changed.
    pub fn prepare(path: &Path) -> Result<Self> {
        let absolute = std::path::absolute(path).map_err(Error::io(path))?;
        let invalid = |why: &str| Error::io(path)(io::Error::new(io::ErrorKind::InvalidInput, why));
        if absolute.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(invalid("not a file name"));
        }
        match fs::symlink_metadata(&absolute) {
            // The rename would replace a link or a device.
            Ok(found) if !found.is_file() => return Err(invalid("not a regular file")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(path)(error)),
        }
        let file = Self { path: absolute };
        let (temporary, _) = file.temporary()?;
        fs::remove_file(&temporary).map_err(Error::io(&temporary))?;
        Ok(file)
    }

    /// Whether evidence may be written there: nothing exists, or an empty file, or earlier evidence.
    pub fn may_replace(path: &Path) -> bool {
        let mut head = Vec::new();
        let wanted = format!("{{\n  \"schema\": \"{SCHEMA}\",\n  \"status\": \"");
        let read = match fs::symlink_metadata(path) {
            // `prepare` refuses it.
            Ok(found) if !found.is_file() => return true,
            Ok(_) => File::open(path).and_then(|file| file.take(wanted.len() as u64).read_to_end(&mut head)),
            Err(_) => return true,
        };
        read.is_ok() && (head.is_empty() || head == wanted.as_bytes())
    }

    fn temporary(&self) -> Result<(PathBuf, File)> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Leaves room for the PID and the number, as file names have at most 255 bytes.
        let name: String = name.chars().take(60).collect();
        for number in 0..MAX_TEMPORARY_NAMES {
            let path = self.path.with_file_name(format!(".{name}.{}.{number}", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => return Ok((path, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io(&self.path)(error)),
            }
        }
        Err(Error::io(&self.path)(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "no free name for a temporary file",
        )))
    }

    /// Replaces the file with the document, and syncs it.
    pub fn write(&self, document: &impl Serialize) -> Result<()> {
        let mut bytes = serde_json::to_vec_pretty(document)
            .map_err(|error| Error::io(&self.path)(io::Error::other(error)))?;
        bytes.push(b'\n');
        let (temporary, mut file) = self.temporary()?;
        let written = file
            .write_all(&bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&temporary, &self.path));
        written.map_err(|error| {
            let _ = fs::remove_file(&temporary);
            Error::io(&self.path)(error)
        })
    }
}
