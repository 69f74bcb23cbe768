//! Where the receipt of a foreground job is written to: files and descriptors that the user has named.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quell_core::{Receipt, ReceiptTarget};
use quell_sys::Polled;

use crate::StartError;
use crate::error::DESCRIPTOR;

/// How long the writer waits for the reader of a full pipe, each time that it is full.
pub const READER_PATIENCE: Duration = Duration::from_secs(2);
/// PIPE_BUF.
const PIPE_CHUNK: usize = 4096;

/// Opened before the job begins.
#[derive(Debug)]
pub struct ReceiptSink {
    /// As the user wrote it.
    pub name: String,
    file: File,
    /// Whether the file was opened for the receipt alone. A file that the caller opened is only appended to.
    is_ours: bool,
    /// The path, if the file did not exist before.
    pub made: Option<PathBuf>,
    /// The path, if it is a plain file that had a name when it was opened.
    named: Option<PathBuf>,
}

impl ReceiptSink {
    /// Opens all of them. The caller's descriptors go first: a number that is not open now would soon belong to a file that
    /// quell opens.
    pub fn open_all(targets: &[ReceiptTarget], inherited: &mut Vec<i32>) -> Result<Vec<Self>, StartError> {
        let mut sinks = Vec::new();
        let bad = |target: &str, error: io::Error| StartError::Receipt {
            target: target.to_owned(),
            error: error.to_string(),
        };
        for target in targets {
            if let ReceiptTarget::Fd(fd) = target {
                let name = format!("{DESCRIPTOR}{fd}");
                if *fd > 2 && !inherited.contains(fd) {
                    return Err(bad(&name, io::Error::other("it is not open")));
                }
                let file = quell_sys::take_descriptor(*fd).map_err(|error| bad(&name, error))?;
                if !quell_sys::is_writable(&file).map_err(|error| bad(&name, error))? {
                    return Err(bad(&name, io::Error::other("it is open for reading only")));
                }
                inherited.retain(|other| other != fd);
                sinks.push(Self { name, file: File::from(file), is_ours: false, made: None, named: None });
            }
        }
        for target in targets {
            if let ReceiptTarget::File(path) = target {
                let name = path.display().to_string();
                sinks.push(Self::open(path).map_err(|error| bad(&name, error))?);
            }
        }
        Ok(sinks)
    }

    /// Opens a file for the receipt. Its content is replaced when the receipt is written, not before, and never if the program
    /// itself writes to the file.
    fn open(path: &Path) -> io::Result<Self> {
        let name = path.display().to_string();
        let is_new = !path.exists();
        let file = quell_sys::open_to_write(path)?;
        let found = file.metadata()?;
        let same = |other: BorrowedFd<'_>| {
            let other = other.try_clone_to_owned().map(File::from).ok()?;
            let of = other.metadata().ok()?;
            ((of.dev(), of.ino()) == (found.dev(), found.ino())).then_some(other)
        };
        // Through the program's own descriptor, so that the receipt follows its output.
        match same(io::stdout().as_fd()).or_else(|| same(io::stderr().as_fd())) {
            Some(file) => Ok(Self { name, file, is_ours: false, made: None, named: None }),
            None => {
                let made = is_new.then(|| path.to_owned());
                // The keeper has other descriptors below /dev/fd.
                let has_name = found.is_file() && found.nlink() > 0;
                let named = if has_name { Some(std::path::absolute(path)?) } else { None };
                Ok(Self { name, file, is_ours: true, made, named })
            }
        }
    }

    /// Writes the receipt, and replaces what a killed keeper may have written. Gives up after a while if a reader does not
    /// read: the end of a job can't wait for it.
    pub fn write(&mut self, receipt: &Receipt) -> io::Result<()> {
        let bytes = quell_core::json_line(receipt)?;
        // Writing to a file never waits for a reader.
        let found = self.file.metadata()?;
        if found.is_file() {
            if let Some(path) = self.named.as_ref().filter(|_| found.nlink() == 0) {
                // The command has removed or replaced it.
                self.file = quell_sys::open_to_write(path)?;
            }
            if self.is_ours {
                self.file.set_len(0)?;
                self.file.rewind()?;
            }
            return self.file.write_all(&bytes);
        }
        // A pipe that is ready takes this much without blocking. The caller has the same descriptor, so it is not made
        // non-blocking.
        for chunk in bytes.chunks(PIPE_CHUNK) {
            let patience = Some(Instant::now() + READER_PATIENCE);
            if !quell_sys::poll_until(&[Polled::Write(self.file.as_fd())], patience)?[0] {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "its reader does not read"));
            }
            self.file.write_all(chunk)?;
        }
        Ok(())
    }
}
