//! Files that may be a trap: a link to another place, a fifo that never opens, a file of another user, a file that fills the
//! memory. And sockets on which nothing accepts connections.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, RawDir};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// The flags with which an open never blocks, not even on a fifo, and never makes a terminal the controlling one.
pub const OPEN_NONBLOCK: i32 = libc::O_NONBLOCK | libc::O_NOCTTY;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// To read it.
    Read,
    /// To read and write it where it is.
    Change,
    /// To write at its end, and to read it.
    Extend,
    /// The same; it is made, for this user alone, if it is not there.
    Append,
}

/// Whether a file with the metadata `found` may be trusted: it belongs to this user, or to root, which could become this user
/// anyway. Root trusts its own files only, never what an ordinary user can write.
pub fn is_trusted(found: &Metadata) -> bool {
    [super::uid(), 0].contains(&found.uid())
}

/// Opens one of quell's own files: a regular one, of this user's or root's, at this very place. Never waits, whatever is
/// there, and follows no link in the last part of `path`. What is checked is what is opened, not its name.
pub fn open_private(path: &Path, to: OpenMode) -> io::Result<File> {
    open_private_found(path, to).map(|(file, _)| file)
}

/// The same, with the metadata that was checked.
pub fn open_private_found(path: &Path, to: OpenMode) -> io::Result<(File, Metadata)> {
    let flags = match to {
        OpenMode::Read => OFlags::RDONLY,
        OpenMode::Change => OFlags::RDWR,
        OpenMode::Extend => OFlags::RDWR | OFlags::APPEND,
        OpenMode::Append => OFlags::RDWR | OFlags::APPEND | OFlags::CREATE,
    };
    // A path that is not a regular file counts as a damaged file, so that callers which can do without it go on.
    let no_file = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why);
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open(path, flags).map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => no_file("it is a link, which quell never makes there"),
        // A fifo without a reader, or a socket; or a directory.
        Some(libc::ENXIO | libc::EISDIR) => no_file("it is not a regular file"),
        _ => error,
    })?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(no_file("it is not a regular file"));
    }
    if !is_trusted(&found) {
        let why = format!("it belongs to another user (uid {})", found.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok((file, found))
}

/// All of one of quell's own files, if that is at most `most` bytes.
pub fn read_private(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(4096);
    open_private(path, OpenMode::Read)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it is larger than {most} bytes, which no such file of quell's is");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(bytes)
}

/// Opens a file, closed on exec; one that is made is for this user alone. Not by the C library: musl's `open` is two system
/// calls.
fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(rustix::io::retry_on_intr(|| rustix::fs::open(path, flags | OFlags::CLOEXEC, mode))?.into())
}

/// Opens a directory, and not a link to one.
pub fn open_dir(path: &Path) -> io::Result<File> {
    open(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::DIRECTORY)
}

/// Makes a file for this user alone, to read and write it. Fails if there is anything at `path`.
pub fn create_private(path: &Path) -> io::Result<File> {
    open(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
}

/// The names in the directory at `path`.
pub fn names_in(path: &Path) -> io::Result<Vec<OsString>> {
    names_of(open(path, OFlags::RDONLY | OFlags::DIRECTORY)?)
}

/// The names in a directory that was just opened. Not by the C library: musl's takes memory from a heap of its own, which
/// costs more system calls than the reading.
pub fn names_of(dir: impl AsFd) -> io::Result<Vec<OsString>> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if ![&b"."[..], b".."].contains(&name) {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

/// Opens one of the kernel's own files.
pub(super) fn open_kernels(path: &Path) -> io::Result<File> {
    open(path, OFlags::RDONLY)
}

/// Reads a whole file whose size is not known beforehand, such as those in /proc, in one read where possible.
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::with_capacity(8192);
    // Without the limit a file is asked for its size, which is 0 here, and then read in pieces that begin with 32 bytes.
    open_kernels(path)?.take(u64::MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Connects to the socket at `path` within `patience`: without a limit, a socket with a full queue would block forever. The
/// listening process must run as this user or as root.
pub fn connect_within(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The kernel heeds it for connecting too.
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    connect(&socket, &SocketAddrUnix::new(path)?).map_err(|error| match error {
        rustix::io::Errno::AGAIN => {
            io::Error::new(io::ErrorKind::TimedOut, "the listening process does not accept connections")
        }
        other => other.into(),
    })?;
    set_socket_timeout(&socket, Timeout::Send, None)?;
    let stream = UnixStream::from(socket);
    let (_, uid) = super::peer(&stream)?;
    if ![super::uid(), 0].contains(&uid) {
        let why = format!("the listening process belongs to another user (uid {uid})");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(stream)
}

/// Why this program has more rights than its caller, if it has. Then the caller's environment, files and arguments would
/// control rights that the caller does not have.
pub fn raised_rights() -> Option<&'static str> {
    // SAFETY: reads a word that the kernel gave to this process at its exec.
    let at_exec = |word| unsafe { libc::getauxval(word) };
    if at_exec(libc::AT_UID) != at_exec(libc::AT_EUID) {
        return Some("set-user-id");
    }
    if at_exec(libc::AT_GID) != at_exec(libc::AT_EGID) {
        return Some("set-group-id");
    }
    let secure = at_exec(libc::AT_SECURE) != 0;
    // A security module may ask for the same care without any more rights.
    (secure && at_exec(libc::AT_UID) != 0 && has_capabilities()).then_some("file capabilities")
}

fn has_capabilities() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.is_none_or(|mask| mask.trim().bytes().any(|digit| digit != b'0'))
}

/// Whether a file could not be opened because this process, or the host, has too many open: that says nothing of the file.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Whether a path leads through more symbolic links, or a script through more interpreters, than the kernel follows.
pub fn is_link_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ELOOP)
}

/// Fails if this process can't open `count` more descriptors at once. Without them what can't be opened would be taken for
/// what is not there.
pub fn check_room(count: usize) -> io::Result<()> {
    let opened: io::Result<Vec<File>> = (0..count).map(|_| File::open("/")).collect();
    opened.map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_trap_is_refused_and_never_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, b"whole").unwrap();
        let trap = dir.path().join("trap");
        let lay: [&dyn Fn(); 4] = [
            &|| std::os::unix::fs::symlink(&file, &trap).unwrap(),
            &|| std::os::unix::fs::symlink("/dev/zero", &trap).unwrap(),
            &|| std::fs::create_dir(&trap).unwrap(),
            &|| assert!(std::process::Command::new("mkfifo").arg(&trap).status().unwrap().success()),
        ];
        for (number, lay) in lay.iter().enumerate() {
            lay();
            for to in [OpenMode::Read, OpenMode::Change, OpenMode::Append] {
                assert!(open_private(&trap, to).is_err(), "trap {number}, {to:?}");
            }
            std::fs::remove_file(&trap).or_else(|_| std::fs::remove_dir(&trap)).unwrap();
        }
        assert_eq!(read_private(&file, 5).unwrap(), b"whole");
        assert_eq!(read_private(&file, 4).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_socket_whose_queue_is_full_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let patience = Duration::from_millis(50);
        let mut held = Vec::new();
        let began = Instant::now();
        let error = loop {
            match connect_within(&path, patience) {
                Ok(stream) => held.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}
