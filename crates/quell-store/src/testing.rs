//! What the tests share.

use tempfile::TempDir;

/// A directory of its own, removed in the end.
pub fn scratch() -> TempDir {
    TempDir::new().unwrap()
}
