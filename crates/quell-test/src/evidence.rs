//! The evidence: one JSON document in a file of the caller's. It is written completely or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use quell_core::SCHEMA;
use serde::Serialize;

use quell::{Error, Result};

/// How many names are tried for the temporary file.
const NAMES: u32 = 100;

/// A file that evidence can be written to, as far as that can be known before the run.
#[derive(Clone, Debug)]
pub struct EvidenceFile {
    path: PathBuf,
}

impl EvidenceFile {
    /// Tries whether the file can be written, without touching an existing one.
    pub fn at(path: &Path) -> Result<Self> {
        let absolute = std::path::absolute(path).map_err(Error::io(path))?;
        let unfit = |why: &str| Error::io(path)(io::Error::new(io::ErrorKind::InvalidInput, why));
        if absolute.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(unfit("it is not the name of a file"));
        }
        match fs::symlink_metadata(&absolute) {
            // The rename would replace a link or a device.
            Ok(found) if !found.is_file() => return Err(unfit("it is not a plain file")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(path)(error)),
        }
        let file = Self { path: absolute };
        let (temporary, _) = file.temporary()?;
        fs::remove_file(&temporary).map_err(Error::io(&temporary))?;
        Ok(file)
    }

    /// Whether evidence may replace what is there: nothing, an empty file, or earlier evidence.
    pub fn may_replace(path: &Path) -> bool {
        let mut begun = Vec::new();
        let wanted = format!("{{\n  \"schema\": \"{SCHEMA}\",\n  \"status\": \"");
        let read = match fs::symlink_metadata(path) {
            // `at` refuses it.
            Ok(found) if !found.is_file() => return true,
            Ok(_) => File::open(path).and_then(|file| file.take(wanted.len() as u64).read_to_end(&mut begun)),
            Err(_) => return true,
        };
        read.is_ok() && (begun.is_empty() || begun == wanted.as_bytes())
    }

    fn temporary(&self) -> Result<(PathBuf, File)> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A longer name would have no room for what is put around it.
        let name: String = name.chars().take(60).collect();
        for number in 0..NAMES {
            let path = self.path.with_file_name(format!(".{name}.{}.{number}", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => return Ok((path, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io(&self.path)(error)),
            }
        }
        Err(Error::io(&self.path)(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "no temporary name is free beside it",
        )))
    }

    /// Writes the document.
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
