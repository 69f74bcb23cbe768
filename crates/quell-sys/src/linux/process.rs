//! This process: its name, session, children and end.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

use quell_core::Signal;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};

use super::launch::{clone3, exit, plain_fork};
use super::wait::{reap, wait_exit};
use super::{PidFd, signals};

/// The two sides of a fork.
#[derive(Debug)]
pub enum Forked {
    /// In the new process.
    Child,
    /// In the old one, with a hold on the new.
    Parent(PidFd),
}

/// Makes a copy of this process.
///
/// Before: this process has one thread (checked; several are an error, as the copy could hang on a lock that a
/// thread held). After: both sides go on here.
pub fn fork() -> io::Result<Forked> {
    check_threads()?;
    // The C library's own fork: musl remembers the thread's number, to which its abort() sends a signal. A copy that it does
    // not know of would send that signal to the process that has the number of the original by then.
    match plain_fork()? {
        None => Ok(Forked::Child),
        Some(child) => Ok(Forked::Parent(child)),
    }
}

/// The same into a cgroup, where the new process is from its first instruction on. It is not a child of
/// this process: the process between the two is, and has ended. If that was killed, there may be no new process.
pub fn fork_into(cgroup: BorrowedFd<'_>) -> io::Result<Forked> {
    check_threads()?;
    let Some(between) = clone3(0, Some(cgroup))? else {
        // Made by the kernel, and unknown to the C library: it makes one that it knows, and is gone.
        match plain_fork() {
            Ok(None) => return Ok(Forked::Child),
            Ok(Some(_)) => exit(0),
            Err(_) => exit(1),
        }
    };
    // However it ended: one that was killed may have made the new process before, and a second one must not be made.
    let _ = wait_exit(between.pid()).and_then(|()| reap(between.pid()));
    Ok(Forked::Parent(between))
}

fn check_threads() -> io::Result<()> {
    let threads = rustix::fs::stat("/proc/self/task").map(|stat| stat.st_nlink);
    // A directory's link count is two plus its subdirectories.
    if threads.is_ok_and(|links| links > 3) {
        return Err(io::Error::other("a process with several threads can't fork safely"));
    }
    Ok(())
}

/// A soft limit that the kernel has ignored since Linux 2.4, set to a number that other programs do not choose, marks a keeper.
/// Reading it of thousands of processes takes as long as opening files of a few.
const KEEPS: (Resource, u64) = (Resource::Locks, 0x7175_656c);

/// Lets others know that this process keeps a job and has none of a job's own environment.
pub fn mark_as_keeper() {
    let (resource, mark) = KEEPS;
    let _ = setrlimit(resource, Rlimit { current: Some(mark), ..getrlimit(resource) });
}

/// How large the stack may become, in bytes; none without a limit.
pub fn stack_limit() -> Option<u64> {
    getrlimit(Resource::Stack).current
}

/// Takes that back, for a program that is to be executed here.
pub(crate) fn clear_keeper_mark() {
    let (resource, mark) = KEEPS;
    let limit = getrlimit(resource);
    if limit.current == Some(mark) {
        let _ = setrlimit(resource, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Whether `pid` says that it keeps a job, or is a thread of the kernel. Both have no environment of a job.
pub fn is_keeper_or_kernel_thread(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: prlimit writes the struct that it is given, the others take a number.
    unsafe {
        let told = libc::prlimit(pid, libc::RLIMIT_LOCKS, std::ptr::null(), &raw mut limit) == 0;
        // The kernel's own are in no session and no group.
        (told && limit.rlim_cur == KEEPS.1) || (libc::getsid(pid) == 0 && libc::getpgid(pid) == 0)
    }
}

/// This process's pid.
pub fn pid() -> u32 {
    std::process::id()
}

/// The process that this one is a child of; 0 if it is not in this PID namespace.
pub fn parent() -> u32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get() as u32)
}

static USER: OnceLock<u32> = OnceLock::new();

/// Remembers this process's real user, so that the kernel is not asked for it at each file. For a program that never changes
/// its user: another one may, and its threads use this library.
pub fn remember_user() {
    USER.get_or_init(|| rustix::process::getuid().as_raw());
}

/// This process's real user.
pub fn uid() -> u32 {
    USER.get().copied().unwrap_or_else(|| rustix::process::getuid().as_raw())
}

/// The nice value that gets the most of a processor.
const HIGHEST_PRIORITY: i32 = -20;

/// A higher priority of this thread than it had; it gets the old one back when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct RaisedPriority {
    before: Option<i32>,
}

/// Gives this thread the highest priority that its user may give, which may be none but its own.
pub fn raise_priority() -> RaisedPriority {
    let before = rustix::process::getpriority_process(None).ok();
    let raise = |_: &i32| rustix::process::setpriority_process(None, HIGHEST_PRIORITY).is_ok();
    RaisedPriority { before: before.filter(raise) }
}

impl Drop for RaisedPriority {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = rustix::process::setpriority_process(None, before);
        }
    }
}

/// This process's process group.
pub fn pgid() -> u32 {
    rustix::process::getpgrp().as_raw_nonzero().get() as u32
}

/// Names this process for /proc/PID/comm; at most 15 bytes show.
pub fn set_name(name: &str) {
    if let Ok(name) = CString::new(name) {
        let _ = rustix::thread::set_name(&name);
    }
}

/// From now on orphaned descendants become this process's children.
pub fn set_subreaper() -> io::Result<()> {
    // The argument's value is not used by the kernel beyond being non-zero.
    Ok(rustix::process::set_child_subreaper(Some(Pid::INIT))?)
}

/// Leaves the caller's session and group: no terminal and no group signal reaches this process any more.
pub fn leave_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Replaces standard descriptors by /dev/null, so that no reader of a pipe waits for this process to close it.
pub fn redirect_to_null(stdin: bool, stdout: bool, stderr: bool) -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    if stdin {
        rustix::stdio::dup2_stdin(&null)?;
    }
    if stdout {
        rustix::stdio::dup2_stdout(&null)?;
    }
    if stderr {
        rustix::stdio::dup2_stderr(&null)?;
    }
    Ok(())
}

/// Puts another file in the place of standard input.
pub fn replace_stdin(file: impl std::os::fd::AsFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdin(file)?)
}

/// The descriptors from 3 on that the caller has passed to this process. Only right before anything was opened here.
pub fn inherited_descriptors() -> Vec<i32> {
    let names = super::names_in("/proc/self/fd".as_ref()).unwrap_or_default();
    let mut found: Vec<i32> = names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect();
    // One of them was the listing's own; it is closed by now.
    found.retain(|&fd| fd > 2 && is_open(fd));
    found
}

fn is_open(fd: i32) -> bool {
    // SAFETY: F_GETFD only reads the descriptor table.
    unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
}

/// Closes what the caller had passed on, in a process that is not meant to use it.
///
/// Before: `descriptors` is what [`inherited_descriptors`] said, less what was taken with [`take_descriptor`].
pub fn close_inherited(descriptors: &[i32]) {
    for &fd in descriptors {
        // SAFETY: the number was open before anything of ours, so nothing here owns it.
        unsafe { libc::close(fd) };
    }
}

/// Closes all descriptors from 3 on but `kept`, in a process that has just been forked and uses nothing of what its
/// parent had open.
///
/// Before: nothing in this process uses, or drops, an owner of the other descriptors any more.
pub fn keep_open_only(kept: BorrowedFd<'_>) {
    let mut others = inherited_descriptors();
    others.retain(|&fd| fd != kept.as_raw_fd());
    close_inherited(&others);
}

/// Stops this process until another process continues it.
pub fn stop_self() {
    // SAFETY: raising a signal at oneself has no memory effects.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Whether `pid` is stopped by job control now. Only good for a child that can't have been reaped.
pub fn is_stopped(pid: u32) -> bool {
    super::stat(pid).is_ok_and(|stat| stat.state == b'T')
}

/// Ends this process by `signal`, as if nothing had ever handled it. Comes back only if the signal doesn't kill.
pub fn exit_by_signal(signal: Signal) {
    // SAFETY: SIG_DFL is a valid disposition; setrlimit reads a whole struct.
    unsafe {
        libc::signal(signal.number(), libc::SIG_DFL);
        // The program may have dumped its core; a core of quell's own would be of no use.
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        signals::unblock_all();
        libc::raise(signal.number());
    }
}

/// Sends `signal` to the process group `pgid`.
///
/// Before: the caller holds the group's leader as an unreaped child that has made the group (so the number can't be
/// another group's), and is not a member itself.
pub fn signal_group(pgid: u32, signal: Signal) -> io::Result<()> {
    debug_assert!(pgid > 1);
    // SAFETY: kill has no memory effects.
    if unsafe { libc::kill(-(pgid as i32), signal.number()) } == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Whether this user may execute `file`.
pub fn may_execute(file: &std::path::Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD};
    rustix::fs::accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// Takes over a descriptor that the caller of quell has opened for it, and keeps it from quell's own children. The
/// standard ones are copied, as they are in use.
///
/// Before: `fd` is a standard one or one of [`inherited_descriptors`]: nothing that was opened here.
pub fn take_descriptor(fd: i32) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::{BorrowedFd, FromRawFd};
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the descriptor is only used for this call, which fails if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let copy = rustix::io::fcntl_dupfd_cloexec(borrowed, 3)?;
    if fd > 2 {
        // SAFETY: it was open before anything of ours, so nothing here owns it; its copy takes its place.
        drop(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) });
    }
    Ok(copy)
}

/// Whether the descriptor was opened for writing.
pub fn is_writable(fd: &impl std::os::fd::AsFd) -> io::Result<bool> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(flags.intersects(rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::RDWR))
}
