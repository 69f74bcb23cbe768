//! Platforms on which quell can't run jobs yet.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use quell_core::JobRequest;

use crate::{Returned, StartError};

/// Fails: jobs can't be run here yet.
pub fn run(_request: JobRequest, _home: Option<PathBuf>) -> Result<Returned, StartError> {
    let why = quell_sys::supported().err().map(|error| error.to_string()).unwrap_or_default();
    Err(StartError::Unsupported(why))
}

/// Fails as [`run`] does.
pub fn check(request: &JobRequest) -> Result<(), StartError> {
    run(request.clone(), None).map(drop)
}

/// Fails as [`run`] does.
pub fn find_program(name: &OsStr, _path: Option<&OsStr>, _cwd: &Path) -> Result<PathBuf, StartError> {
    Err(StartError::NotFound(name.to_string_lossy().into_owned()))
}
