//! A PID namespace whose init is quell's: when init dies, the kernel kills every process in it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use quell_core::{RootOutcome, Signal};
use rustix::pipe::{PipeFlags, pipe_with};

use super::launch::{
    Arrays, ChildRules, Program, Stage, become_program, clone3, errno, exit, fail, give_up, wait_for_go,
};
use super::{PidFd, signals, wait};

/// A PID namespace whose root waits for its go.
#[derive(Debug)]
pub struct PidnsChild {
    /// Its init. SIGKILL to it ends the namespace; it becomes a zombie when every process in it is gone.
    pub init: PidFd,
    /// A byte written here lets init's one child, the root, become the program.
    pub go: OwnedFd,
    /// As in [`super::Launched`].
    pub status: OwnedFd,
    /// Says when the root is stopped, and how it ended. See [`read_report`].
    pub report: OwnedFd,
}

/// Makes the namespace, its init, and the root below that, which waits.
///
/// A user namespace is added where this user needs one for it; files keep their owner, as the one uid and gid are
/// mapped to themselves. Before: this process has one thread. After: the root waits, or `status` says why there is none; if
/// this process dies before or after the go, init dies with it (PDEATHSIG, and a pipe for the time before that is set).
pub fn launch_pidns(program: &Program, rules: &ChildRules) -> io::Result<PidnsChild> {
    let (go_read, go) = pipe_with(PipeFlags::CLOEXEC)?;
    let (status, status_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (report, report_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (mapped_read, mapped_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (born, born_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let arrays = Arrays::new(program);
    let plain = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    let (side, mapped) = match clone3(plain, None) {
        Ok(side) => (side, false),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            (clone3(plain | libc::CLONE_NEWUSER, None)?, true)
        }
        Err(error) => return Err(error),
    };
    let Some(init) = side else {
        drop((go, status, report, mapped_write, born));
        let to_root =
            ToRoot { program, arrays: &arrays, rules, go: &go_read, status: status_write.as_raw_fd() };
        init_main(&to_root, &mapped_read, born_write, report_write.as_raw_fd());
    };
    if mapped && let Err(error) = map_to_self(init.pid()) {
        // Not mapped, init exits; nothing has run.
        drop(mapped_write);
        let _ = wait::wait_exit(init.pid());
        let _ = wait::reap(init.pid());
        return Err(error);
    }
    drop(born_write);
    let _ = rustix::io::write(&mapped_write, b"m");
    // The root is there, or init is gone, and has said why.
    wait_for_go(&born);
    Ok(PidnsChild { init, go, status, report })
}

/// What init hands on to the root.
struct ToRoot<'a> {
    program: &'a Program,
    arrays: &'a Arrays,
    rules: &'a ChildRules,
    go: &'a OwnedFd,
    status: RawFd,
}

/// Maps the caller's user and group to themselves in the user namespace of `pid`.
pub(crate) fn map_to_self(pid: u32) -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{uid} {uid} 1")),
        ("gid_map", format!("{gid} {gid} 1")),
    ] {
        let path = format!("/proc/{pid}/{file}");
        std::fs::write(&path, text)
            .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
    }
    Ok(())
}

fn init_main(to_root: &ToRoot<'_>, mapped: &OwnedFd, born: OwnedFd, report: RawFd) -> ! {
    let status = to_root.status;
    // SAFETY: prctl with these arguments only sets a number in the process.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) } == -1 {
        fail(status, Stage::Fork, errno());
    }
    if !wait_for_go(mapped) {
        exit(0);
    }
    if let Err(errno) = mount_proc() {
        fail(status, Stage::Proc, errno);
    }
    // SAFETY: this process is a fork of one with a single thread.
    let root = match unsafe { libc::fork() } {
        -1 => fail(status, Stage::Fork, errno()),
        0 => {
            if !wait_for_go(to_root.go) {
                give_up();
            }
            if to_root.rules.own_session {
                let _ = rustix::process::setsid();
            }
            become_program(to_root.program, to_root.arrays, to_root.rules, status)
        }
        root => root,
    };
    // The exec shows as the end of this pipe; init must not hold it open.
    // SAFETY: nothing in this process uses it any more.
    unsafe { libc::close(status) };
    let _ = rustix::io::write(&born, b"b");
    super::set_name("quell-init");
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    signals::reset_for_exec(&[]);
    keep_only(report);
    reap_all(root, report)
}

/// Mounts a /proc that shows this namespace, invisible outside of it.
fn mount_proc() -> Result<(), i32> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: every pointer is to a constant C string or null where the kernel allows null.
    unsafe {
        if libc::mount(
            c"none".as_ptr(),
            c"/".as_ptr(),
            std::ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            std::ptr::null(),
        ) == -1
            || libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), flags, std::ptr::null())
                == -1
        {
            return Err(errno());
        }
    }
    Ok(())
}

/// Closes everything but one descriptor: init must not hold another process's pipe open.
fn keep_only(keep: RawFd) {
    let ranges = [(0, keep as u32 - 1), (keep as u32 + 1, u32::MAX)];
    for (first, last) in ranges {
        // SAFETY: nothing in this process uses those descriptors any more.
        let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0;
        if !done {
            for fd in (0..1024).filter(|&fd| fd != keep) {
                // SAFETY: as above.
                unsafe { libc::close(fd) };
            }
        }
    }
}

/// How many stops of the root are reported. The reader may not be reading, and init must not block on the pipe.
const STOPS: usize = 1000;

/// What init does: reap every child that ends, report the root, and exit when no process is left.
fn reap_all(root: i32, report: RawFd) -> ! {
    // SAFETY: eight bytes from a valid place; into a pipe with room they are written as one.
    let tell = |words: [i32; 2]| unsafe { libc::write(report, words.as_ptr().cast(), 8) };
    let (mut ended, mut stops) = (None, 0);
    loop {
        // Once the root has ended, what is dead already is reaped before the report, which says whether a process is left.
        let options = libc::__WALL | libc::WUNTRACED | if ended.is_some() { libc::WNOHANG } else { 0 };
        let mut wait_status = 0;
        // SAFETY: the status is written to a valid place.
        let pid = unsafe { libc::waitpid(-1, &mut wait_status, options) };
        let alone = pid == -1 && errno() == libc::ECHILD;
        if pid > 0 && libc::WIFSTOPPED(wait_status) {
            if pid == root && stops < STOPS {
                stops += 1;
                tell([wait_status, 0]);
            }
        } else if pid == root {
            ended = Some(wait_status);
        } else if let Some(status) = ended.filter(|_| pid == 0 || alone) {
            tell([status, i32::from(!alone)]);
            ended = None;
        }
        if alone {
            exit(0);
        }
    }
}

/// What init reports of the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// It was stopped by job control.
    Stopped,
    /// It has ended.
    Ended {
        /// How.
        outcome: RootOutcome,
        /// Whether another process was alive in the namespace then. If not, init exits with its report.
        others: bool,
    },
}

/// Init's next report; `None` if it died before it could make one.
pub fn read_report(report: &OwnedFd) -> Option<Report> {
    let mut bytes = [0u8; 8];
    if !matches!(rustix::io::retry_on_intr(|| rustix::io::read(report, &mut bytes)), Ok(8)) {
        return None;
    }
    let [status, others] =
        [0, 4].map(|at| i32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap_or_default()));
    if libc::WIFSTOPPED(status) {
        return Some(Report::Stopped);
    }
    let outcome = match Signal::new(libc::WTERMSIG(status)) {
        Some(signal) if libc::WIFSIGNALED(status) => {
            RootOutcome::Signaled { signal, core: libc::WCOREDUMP(status) }
        }
        Some(_) | None => RootOutcome::Exited { code: libc::WEXITSTATUS(status) },
    };
    Some(Report::Ended { outcome, others: others != 0 })
}
