//! Pipes, terminals and sockets as a keeper uses them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::fs::{Mode, OFlags};
use rustix::net::{RecvFlags, SendFlags};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

/// A pipe, both ends closed on exec: what is read from, and what is written to.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

/// A terminal of 80 by 24: the master, which has what is written to it, and the slave, which is a program's. Both are
/// closed on exec, and the slave controls no session yet.
pub fn terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let name = rustix::pty::ptsname(&master, Vec::new())?;
    let slave = rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&master, size)?;
    Ok((master, slave))
}

/// How many columns the terminal at `fd` has; none if it is no terminal or does not know.
pub fn columns(fd: impl AsFd) -> Option<usize> {
    rustix::termios::tcgetwinsize(fd).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// /dev/null, for reading and writing.
pub fn null() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// A copy of `fd`, closed on exec. Not by the C library: musl's is two system calls.
pub fn duplicate(fd: impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?)
}

/// Opens `path` for reading without blocking. A fifo without a writer reads as ended at once, unless it is held
/// ([`super::FifoHold`]).
pub fn open_to_read(path: &std::path::Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    // Only the opening was not to wait.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Opens `path` for writing, and makes it if it is not there; what it holds stays. Never blocks: a fifo without a reader
/// is an error.
pub fn open_to_write(path: &std::path::Path) -> io::Result<std::fs::File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o666)).map_err(|error| match error {
        rustix::io::Errno::NXIO => io::Error::other("no process reads from it"),
        error => error.into(),
    })?;
    // Only the opening was not to wait.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file.into())
}

/// Makes reads and writes on `fd` return at once, here and wherever else the same pipe end is open.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, true)?)
}

/// Sends as much of `bytes` as there is room for, without blocking.
pub fn send_at_once(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(rustix::io::retry_on_intr(|| rustix::net::send(&socket, bytes, flags))?)
}

/// Adds what has arrived to `bytes`, at most as much as they have room for, without blocking. 0 means that no more
/// will ever come.
pub fn receive_at_once(socket: impl AsFd, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let receive = || rustix::net::recv(&socket, spare_capacity(bytes), RecvFlags::DONTWAIT);
    Ok(rustix::io::retry_on_intr(receive)?.0)
}

/// Reads what there is, at most as much as `buffer` holds. 0 means: no more will ever come.
pub fn read(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    match rustix::io::retry_on_intr(|| rustix::io::read(&fd, &mut *buffer)) {
        // A terminal whose last user has gone.
        Err(rustix::io::Errno::IO) => Ok(0),
        other => Ok(other?),
    }
}

/// Moves what there is in a pipe to where `file` stands, or to another pipe, at most `most` bytes. What is moved is there,
/// and what is not is in the pipe: a process that is killed here has lost nothing.
pub fn splice(pipe: impl AsFd, file: impl AsFd, most: usize) -> io::Result<usize> {
    let flags = SpliceFlags::NONBLOCK;
    Ok(rustix::io::retry_on_intr(|| rustix::pipe::splice(&pipe, None, &file, None, most, flags))?)
}

/// Makes a pipe hold `bytes`, or as many as its user may have it hold; says how many that are.
pub fn resize(pipe: impl AsFd, bytes: usize) -> io::Result<usize> {
    rustix::pipe::fcntl_setpipe_size(&pipe, bytes)
        .or_else(|_| rustix::pipe::fcntl_getpipe_size(&pipe))
        .map_err(io::Error::from)
}

/// How many bytes there are in a pipe.
pub fn unread_bytes(pipe: impl AsFd) -> io::Result<usize> {
    let bytes = rustix::io::ioctl_fionread(pipe)?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Writes what there is room for.
pub fn write(fd: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| rustix::io::write(&fd, bytes))?)
}

/// The process and user at the other end of a Unix socket, as the kernel noted them when it connected. The pid is 0 if that
/// process has none in our PID namespace; rustix's call can't say so.
pub fn peer(socket: impl AsFd) -> io::Result<(u32, u32)> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to live values, and the length is that of the first.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok((peer.pid as u32, peer.uid)) } else { Err(io::Error::last_os_error()) }
}
