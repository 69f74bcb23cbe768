//! The only place that reaps. `peek` leaves the zombie, so that its PID can't be reused; `reap` collects it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use quell_core::{RootOutcome, Signal};

use super::PidFd;

/// A child that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Its pid.
    pub pid: u32,
    /// How it ended.
    pub outcome: RootOutcome,
}

fn waitid(kind: libc::idtype_t, id: u32, options: i32) -> io::Result<Option<libc::siginfo_t>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: the buffer is a siginfo_t of zeroes; the kernel fills it or leaves it so.
        let (result, filled) =
            unsafe { (libc::waitid(kind, id, info.as_mut_ptr(), options), info.assume_init()) };
        if result == -1 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        // SAFETY: si_pid is in the part of the union that a wait fills, zero where no child was found.
        return Ok((unsafe { filled.si_pid() } != 0).then_some(filled));
    }
}

fn exit_of(info: &libc::siginfo_t) -> Exit {
    // SAFETY: waitid filled the fields of a child's change of state.
    let (pid, status) = unsafe { (info.si_pid() as u32, info.si_status()) };
    let outcome = match info.si_code {
        libc::CLD_EXITED => RootOutcome::Exited { code: status },
        code => match Signal::new(status) {
            Some(signal) => RootOutcome::Signaled { signal, core: code == libc::CLD_DUMPED },
            None => RootOutcome::Unknown,
        },
    };
    Exit { pid, outcome }
}

/// Whether the child `pid` has ended. It is not reaped: its pid, group and session stay taken.
pub fn peek(pid: u32) -> io::Result<Option<Exit>> {
    Ok(waitid(libc::P_PID, pid, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)?.as_ref().map(exit_of))
}

/// Whether this process has any child at all, dead or alive. The kernel's own word, without /proc.
pub fn has_child() -> io::Result<bool> {
    match waitid(libc::P_ALL, 0, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Collects the child `pid` if it has ended. Its PID can be reused afterwards.
pub fn reap(pid: u32) -> io::Result<Option<Exit>> {
    Ok(waitid(libc::P_PID, pid, libc::WEXITED | libc::WNOHANG)?.as_ref().map(exit_of))
}

/// Collects the child that `pinned` holds if it has ended. An error (ECHILD) if that process is not a child of ours.
pub fn reap_pinned(pinned: &PidFd) -> io::Result<Option<Exit>> {
    // A descriptor is never negative.
    let fd = pinned.as_fd().as_raw_fd().cast_unsigned();
    Ok(waitid(libc::P_PIDFD, fd, libc::WEXITED | libc::WNOHANG)?.as_ref().map(exit_of))
}

/// Waits until the child `pid` has ended; it is not reaped.
pub fn wait_exit(pid: u32) -> io::Result<()> {
    waitid(libc::P_PID, pid, libc::WEXITED | libc::WNOWAIT).map(drop)
}

/// Consumes the report that the child `pid` was stopped by a job-control signal, if there is one.
pub fn take_stop(pid: u32) -> bool {
    matches!(waitid(libc::P_PID, pid, libc::WSTOPPED | libc::WNOHANG), Ok(Some(_)))
}
