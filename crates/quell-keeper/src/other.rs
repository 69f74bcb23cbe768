//! The platforms on which quell can't run jobs yet.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::{Finished, RunError, RunRequest};

/// Says that jobs can't be run here yet.
pub fn run(_request: RunRequest) -> Result<Finished, RunError> {
    let why = quell_sys::supported().err().map(|error| error.to_string()).unwrap_or_default();
    Err(RunError::Unsupported(why))
}

/// See [`run`].
pub fn check(request: &RunRequest) -> Result<(), RunError> {
    run(request.clone()).map(drop)
}

/// See [`run`].
pub fn find_program(name: &OsStr, _path: Option<&OsStr>, _cwd: &Path) -> Result<PathBuf, RunError> {
    Err(RunError::NotFound(name.to_string_lossy().into_owned()))
}
