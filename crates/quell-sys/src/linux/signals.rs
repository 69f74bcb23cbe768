//! Signals as events: blocked, and read from a descriptor.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use quell_core::Signal;

/// A descriptor from which blocked signals are read.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

/// One signal that arrived.
#[derive(Clone, Copy, Debug)]
pub struct SignalInfo {
    /// Which.
    pub signal: Signal,
    /// Whether the kernel sent it of its own accord, as a terminal does for its keys and at its hang-up.
    pub from_kernel: bool,
    /// The sender's pid, where a process sent it.
    pub pid: u32,
    /// The sender's user.
    pub uid: u32,
    /// What it carries; 0 where the sender gave nothing.
    pub value: i32,
}

fn set_of(signals: &[Signal]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set; the numbers are valid, as `Signal` holds no others.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal.number());
        }
        set.assume_init()
    }
}

impl SignalFd {
    /// Blocks `signals` and opens a descriptor for them (close-on-exec, non-blocking). From here on none is lost.
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        let set = set_of(signals);
        // SAFETY: both calls read an initialised set; the descriptor returned is new and ours.
        unsafe {
            if libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) == -1 {
                return Err(io::Error::last_os_error());
            }
            match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(Self(OwnedFd::from_raw_fd(fd))),
            }
        }
    }

    /// The next signal that has arrived, if any.
    pub fn next(&self) -> Option<SignalInfo> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer is as large as said; the kernel fills it wholly or not at all.
        let info = unsafe {
            if libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), size) != size as isize {
                return None;
            }
            info.assume_init()
        };
        Some(SignalInfo {
            signal: Signal::new(info.ssi_signo as i32)?,
            from_kernel: info.ssi_code == libc::SI_KERNEL,
            pid: info.ssi_pid,
            uid: info.ssi_uid,
            value: info.ssi_int,
        })
    }
}

/// Lets `signals` reach this thread again, as they are set to. Those that are pending and were not read arrive
/// at once.
pub fn unblock(signals: &[Signal]) {
    let set = set_of(signals);
    // SAFETY: the set is initialised; nothing is written to.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) };
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn disposition(signal: Signal) -> libc::sighandler_t {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only fills the old one.
    unsafe {
        libc::sigaction(signal.number(), std::ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction
    }
}

/// Which of `signals` this process was started with as ignored (`nohup`, a background job of a script). Only right
/// before quell changes them itself.
pub fn ignored_at_start(signals: &[Signal]) -> Vec<Signal> {
    signals.iter().copied().filter(|&signal| disposition(signal) == libc::SIG_IGN).collect()
}

/// Lets this process ignore `signal` from now on.
pub fn ignore(signal: Signal) {
    // SAFETY: SIG_IGN is a valid disposition and no handler that quell relies on is replaced.
    unsafe { libc::signal(signal.number(), libc::SIG_IGN) };
}

/// Puts `signal` back to its default.
pub fn restore_default(signal: Signal) {
    // SAFETY: SIG_DFL is a valid disposition and no handler that quell relies on is replaced.
    unsafe { libc::signal(signal.number(), libc::SIG_DFL) };
}

/// Puts every signal but `keep_ignored` back to its default and unblocks all of them. For a new process before exec.
pub(crate) fn reset_for_exec(keep_ignored: &[Signal]) {
    // These two can't be changed.
    for number in (1..=64).filter(|number| ![libc::SIGKILL, libc::SIGSTOP].contains(number)) {
        let keep = keep_ignored.iter().any(|signal| signal.number() == number);
        // SAFETY: SIG_DFL and SIG_IGN are valid dispositions; the two signals that the C library keeps for itself refuse,
        // which is right.
        unsafe { libc::signal(number, if keep { libc::SIG_IGN } else { libc::SIG_DFL }) };
    }
    unblock_all();
}

pub(crate) fn unblock_all() {
    let none = set_of(&[]);
    // SAFETY: the set is initialised.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()) };
}
