//! Processes held by descriptor: the only way to signal one that is not our own child.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use quell_core::{ProcId, RootOutcome, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Stat;

/// A process, pinned: whatever happens to its number, this means the same process.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
    pid: u32,
}

/// What became of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It was delivered.
    Yes,
    /// The process is gone.
    Gone,
    /// The kernel refused it.
    Refused,
}

impl PidFd {
    /// Pins the process that has the PID `pid` now, whichever it is: for a child that is not reaped, or behind [`PidFd::pin`].
    pub fn open(pid: u32) -> io::Result<Self> {
        let number = Pid::from_raw(pid as i32).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { fd: pidfd_open(number, PidfdFlags::empty())?, pid })
    }

    /// Pins the process that has the PID `pid` now and reads about it. `read` returns nothing for a process that is not the
    /// one that is meant. What it returns is kept only if the process is still alive afterwards: then it had this PID all the
    /// while, and everything that was read is about this process.
    pub fn pin<T>(pid: u32, read: impl FnOnce(Stat) -> Option<T>) -> io::Result<Option<(Self, T)>> {
        let pidfd = Self::open(pid)?;
        let stat = match super::stat(pid) {
            Err(error) if super::is_gone(&error) => return Ok(None),
            other => other?,
        };
        let found = read(stat);
        Ok(found.filter(|_| pidfd.is_alive()).map(|found| (pidfd, found)))
    }

    /// Pins the process `id`, if it is alive.
    pub fn of(id: ProcId) -> Option<Self> {
        let pinned = Self::pin(id.pid, |stat| (stat.id() == id).then_some(()));
        pinned.ok().flatten().map(|(pidfd, ())| pidfd)
    }

    pub(crate) fn from_parts(fd: OwnedFd, pid: u32) -> Self {
        Self { fd, pid }
    }

    /// The number of its inode: unique for a boot where pidfds have a file system of their own (Linux 6.9), else the
    /// same for all.
    pub fn inode(&self) -> u64 {
        rustix::fs::fstat(&self.fd).map_or(0, |stat| stat.st_ino)
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether any thread of it lives. A zombie that waits to be reaped is not alive.
    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut fds, Some(&zero)), Ok(0))
    }

    /// What would become of a signal; none is sent.
    pub fn would_take_signals(&self) -> Sent {
        self.send(0)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Sent {
        self.send(signal.number())
    }

    /// Sends it a signal that carries a value. A real-time signal is refused if its user has too many pending.
    pub fn signal_with(&self, signal: Signal, value: i32) -> Sent {
        sent(send(self.fd.as_fd(), signal.number(), Some(value), 0))
    }

    /// How it ended, once its parent has reaped it; nothing before that, or where the kernel does not say (Linux 6.15 does).
    pub fn exit(&self) -> Option<RootOutcome> {
        let info = info(self).filter(|info| info[0] & PIDFD_INFO_EXIT != 0)?;
        let half = if cfg!(target_endian = "little") { info[7] >> 32 } else { info[7] & 0xFFFF_FFFF };
        let status = half as i32;
        Some(match Signal::new(libc::WTERMSIG(status)) {
            Some(signal) => RootOutcome::Signaled { signal, core: libc::WCOREDUMP(status) },
            None => RootOutcome::Exited { code: libc::WEXITSTATUS(status) },
        })
    }

    fn send(&self, number: i32) -> Sent {
        sent(send(self.fd.as_fd(), number, None, 0))
    }
}

fn sent(result: io::Result<()>) -> Sent {
    match result {
        Ok(()) => Sent::Yes,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Sent::Gone,
        Err(_) => Sent::Refused,
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The beginning of `siginfo_t` as `sigqueue` fills it; libc's own has no fields that could be written.
#[repr(C)]
struct QueuedInfo {
    signal: i32,
    errno: i32,
    code: i32,
    /// The union behind it begins where a pointer may stand.
    _align: [usize; 0],
    pid: i32,
    uid: u32,
    value: i32,
}

/// rustix's call has no flags argument, so this is the system call itself.
fn send(fd: BorrowedFd<'_>, signal: i32, value: Option<i32>, flags: u32) -> io::Result<()> {
    // SAFETY: all zeros are a valid siginfo, which is a plain struct of the kernel's.
    let mut info = unsafe { std::mem::zeroed::<libc::siginfo_t>() };
    let queued = value.map(|value| {
        let (pid, uid) = (std::process::id() as i32, rustix::process::getuid().as_raw());
        let queued = QueuedInfo { signal, errno: 0, code: libc::SI_QUEUE, _align: [], pid, uid, value };
        // SAFETY: a siginfo is larger than its beginning, and at least as strictly aligned.
        unsafe { std::ptr::from_mut(&mut info).cast::<QueuedInfo>().write(queued) };
        std::ptr::from_ref(&info)
    });
    // SAFETY: a null siginfo is allowed and means what kill(2) would say; the kernel checks the rest.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            fd.as_raw_fd(),
            signal,
            queued.unwrap_or(std::ptr::null()),
            flags,
        )
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether a group can be signalled through its leader's descriptor (Linux 6.9).
pub fn pidfd_signals_groups() -> bool {
    const PIDFD_SIGNAL_PROCESS_GROUP: u32 = 4;
    let Ok(own) = PidFd::open(std::process::id()) else { return false };
    // Signal 0 asks without sending. We may lead no group (ESRCH); only EINVAL says that the flag is unknown.
    match send(own.as_fd(), 0, None, PIDFD_SIGNAL_PROCESS_GROUP) {
        Ok(()) => true,
        Err(error) => error.raw_os_error() != Some(libc::EINVAL),
    }
}

/// The pidfs inode of this process (Linux 6.9): unique for a boot. Before, all pidfds shared one inode.
pub fn pidfd_inode() -> Option<u64> {
    const PIDFS_MAGIC: i64 = 0x5049_4446;
    let own = PidFd::open(std::process::id()).ok()?;
    let on_pidfs = rustix::fs::fstatfs(&own).ok()?.f_type as i64 == PIDFS_MAGIC;
    on_pidfs.then(|| rustix::fs::fstat(&own).map(|stat| stat.st_ino).ok())?
}

/// PIDFD_GET_INFO: `_IOWR(0xFF, 11, struct pidfd_info)`; the struct has 64 bytes in Linux 6.13.
const PIDFD_GET_INFO: libc::c_ulong = (3 << 30) | (64 << 16) | (0xFF << 8) | 11;
/// The bit of the mask that asks for the exit code, and says in the answer that it is there.
const PIDFD_INFO_EXIT: u64 = 1 << 3;

/// `struct pidfd_info` as eight words: the first is the mask, the upper half of the last the exit code.
fn info(pidfd: &PidFd) -> Option<[u64; 8]> {
    let mut info = [0u64; 8];
    info[0] = PIDFD_INFO_EXIT;
    // SAFETY: the buffer is as large as the request's number says.
    let result = unsafe { libc::ioctl(pidfd.fd.as_raw_fd(), PIDFD_GET_INFO as _, info.as_mut_ptr()) };
    (result == 0).then_some(info)
}

/// Whether the kernel tells the exit code through a pidfd (PIDFD_GET_INFO, Linux 6.13; the code itself 6.15).
pub fn pidfd_has_exit_info() -> bool {
    PidFd::open(std::process::id()).is_ok_and(|own| info(&own).is_some())
}
