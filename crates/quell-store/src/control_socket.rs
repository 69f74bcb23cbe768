//! The socket on which a keeper serves its clients.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use crate::files::InDir;
use crate::job::JobDir;

const SOCKET: &str = "control.sock";

impl JobDir {
    /// Opens the control socket, and replaces what is at its path.
    pub fn listen(&self) -> io::Result<UnixListener> {
        self.remove_socket()?;
        let listener = UnixListener::bind(InDir::new(self.dir(), SOCKET)?.path())?;
        fs::set_permissions(self.dir().join(SOCKET), fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    }

    /// The inode of what is at the path of the control socket.
    pub fn socket(&self) -> Option<u64> {
        fs::symlink_metadata(self.dir().join(SOCKET)).ok().map(|found| found.ino())
    }

    /// Connects to the keeper within `patience`. Checks that the listener is a process of this user or of root.
    pub fn connect(&self, patience: Duration) -> io::Result<UnixStream> {
        quell_sys::connect_within(&InDir::new(self.dir(), SOCKET)?.path(), patience)
    }

    pub(crate) fn remove_socket(&self) -> io::Result<()> {
        self.home().remove_file(&self.dir().join(SOCKET))
    }
}
