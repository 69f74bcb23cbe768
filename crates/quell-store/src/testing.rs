//! Shared by the tests.

use tempfile::TempDir;

/// A temporary directory.
pub fn scratch() -> TempDir {
    TempDir::new().unwrap()
}
