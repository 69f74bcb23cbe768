//! Platforms on which quell can't run jobs yet.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use quell_core::JobRequest;

use crate::{Finished, RunError};

/// Fails: jobs can't be run here yet.
pub fn run(_request: JobRequest, _home: Option<PathBuf>) -> Result<Finished, RunError> {
    let why = quell_sys::supported().err().map(|error| error.to_string()).unwrap_or_default();
    Err(RunError::Unsupported(why))
}

/// Fails as [`run`] does.
pub fn check(request: &JobRequest) -> Result<(), RunError> {
    run(request.clone(), None).map(drop)
}

/// Fails as [`run`] does.
pub fn find_program(name: &OsStr, _path: Option<&OsStr>, _cwd: &Path) -> Result<PathBuf, RunError> {
    Err(RunError::NotFound(name.to_string_lossy().into_owned()))
}
