//! The file of the counts.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::totals::Totals;

/// The counts in the file. None if it is missing or damaged: a counter that begins again is understood, one that is wrong is not.
pub fn read(path: &Path) -> Option<Totals> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Replaces the file in one step.
pub fn write(path: &Path, totals: &Totals) -> io::Result<()> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec(totals)?)?;
    fs::rename(&new, path)
}
