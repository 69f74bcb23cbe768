//! The birth of a root: made as a stub that waits, held and on record, before it becomes the program.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use quell_core::Signal;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::{PidFd, signals};

/// What is to be executed, ready for execve.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file.
    pub path: CString,
    /// The arguments, the first by convention the name.
    pub argv: Vec<CString>,
    /// The environment, `K=V` each.
    pub envp: Vec<CString>,
    /// Where to start.
    pub cwd: CString,
}

/// The attributes of the new process, other than its program.
#[derive(Clone, Debug)]
pub struct ChildRules {
    /// Whether it gets a session and group of its own.
    pub own_session: bool,
    /// What it finds as its standard descriptors; those of this process if not given.
    pub stdio: Option<ChildStdio>,
    /// Which standard descriptors it is to find closed.
    pub closed: [bool; 3],
    /// Which signals it is to find ignored; all others are at their default, and none is blocked.
    pub keep_ignored: Vec<Signal>,
    /// The soft limit of open files that it is to find.
    pub open_files: Option<u64>,
    /// RLIMIT_NPROC, where that serves as the limit of processes.
    pub procs: Option<u64>,
    /// A descriptor of this process that the stub closes before it waits for its go. Another process waits until the last
    /// holder has closed it, and a stub that was stopped would hold it forever.
    pub not_held: Option<RawFd>,
}

/// The standard descriptors of a new process.
#[derive(Clone, Copy, Debug)]
pub struct ChildStdio {
    /// Which descriptors of this process they are copies of; none of them a standard one.
    pub descriptors: [RawFd; 3],
    /// Whether the first is a terminal that is to control the new session.
    pub terminal: bool,
}

/// Everything that [`launch`] needs.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The program.
    pub program: &'a Program,
    /// The rest.
    pub rules: &'a ChildRules,
    /// The cgroup in which it is to be born.
    pub cgroup: Option<BorrowedFd<'a>>,
}

/// A stub that waits for its go. If this is dropped (or its holder dies) the stub exits without a trace.
#[derive(Debug)]
pub struct Launched {
    /// The stub, which becomes the root.
    pub child: PidFd,
    /// A byte written here lets it become the program.
    pub go: OwnedFd,
    /// Closed by a successful exec; otherwise says what failed. See [`read_status`].
    pub status: OwnedFd,
    /// Whether it was born in the cgroup that was asked for. If not, it must be moved before the go.
    pub in_cgroup: bool,
}

/// Where a start failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Changing into the working directory.
    Cwd,
    /// Setting a limit.
    Limit,
    /// Mounting the PID namespace's own /proc.
    Proc,
    /// Making the root inside the PID namespace.
    Fork,
    /// Setting up the standard descriptors.
    Stdio,
    /// Executing the program.
    Exec,
}

/// A start that failed in the new process.
#[derive(Debug, thiserror::Error)]
#[error("{}", match .stage {
    Stage::Cwd => format!("can't change into the working directory: {error}"),
    Stage::Limit => format!("can't set a limit: {error}"),
    Stage::Proc => format!("can't mount /proc for the PID namespace: {error}"),
    Stage::Fork => format!("can't make a process: {error}"),
    Stage::Stdio => format!("can't set up the standard streams: {error}"),
    Stage::Exec => format!("can't execute the program: {error}"),
})]
pub struct LaunchError {
    /// Where.
    pub stage: Stage,
    /// Why.
    pub error: io::Error,
}

/// Makes the stub.
///
/// Before: this process has one thread. After: the stub exists as our unreaped child, in its own session if that was
/// asked for and (see `in_cgroup`) in its cgroup; no instruction of the program has run.
pub fn launch(launch: &Launch<'_>) -> io::Result<Launched> {
    let (go_read, go) = pipe_with(PipeFlags::CLOEXEC)?;
    let (status, status_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let arrays = Arrays::new(launch.program);
    let (side, in_cgroup) = match launch.cgroup {
        None => (clone3(0, None)?, false),
        // Where the kernel or a filter refuses, the stub is moved while it waits.
        Some(cgroup) => match clone3(0, Some(cgroup)) {
            Ok(side) => (side, true),
            Err(_) => (clone3(0, None)?, false),
        },
    };
    match side {
        Some(child) => Ok(Launched { child, go, status, in_cgroup }),
        None => {
            drop(go);
            if let Some(fd) = launch.rules.not_held {
                // SAFETY: nothing in this process uses it.
                unsafe { libc::close(fd) };
            }
            if launch.rules.own_session {
                let _ = rustix::process::setsid();
            }
            if !wait_for_go(&go_read) {
                give_up();
            }
            become_program(launch.program, &arrays, launch.rules, status_write.as_raw_fd())
        }
    }
}

/// What the stub said: `None` while it has not said anything (only with a non-blocking read; here it blocks),
/// `Ok` once the program was executed, else what failed.
pub fn read_status(status: &OwnedFd) -> Result<(), LaunchError> {
    let mut bytes = [0u8; 8];
    match rustix::io::retry_on_intr(|| rustix::io::read(status, &mut bytes)) {
        Ok(8) => {
            let [stage, errno] =
                [0, 4].map(|at| i32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap_or_default()));
            let stage = STAGES.get(stage as usize).copied().unwrap_or(Stage::Exec);
            Err(LaunchError { stage, error: io::Error::from_raw_os_error(errno) })
        }
        Ok(_) => Ok(()),
        Err(error) => Err(LaunchError { stage: Stage::Exec, error: error.into() }),
    }
}

const STAGES: [Stage; 6] = [Stage::Cwd, Stage::Limit, Stage::Proc, Stage::Fork, Stage::Stdio, Stage::Exec];

/// The pointer arrays of execve, made before the fork. They borrow the program's strings.
pub(crate) struct Arrays {
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    /// For a script without `#!`, as execvp does it: the shell, the file, the arguments.
    shell_argv: Vec<*const libc::c_char>,
}

const SHELL: &CStr = c"/bin/sh";

impl Arrays {
    pub(crate) fn new(program: &Program) -> Self {
        let pointers = |strings: &[CString]| {
            strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
        };
        let argv = pointers(&program.argv);
        let mut shell_argv = vec![SHELL.as_ptr(), program.path.as_ptr()];
        shell_argv.extend_from_slice(argv.get(1..).unwrap_or(&[std::ptr::null()]));
        Self { argv, envp: pointers(&program.envp), shell_argv }
    }
}

/// Waits for the go; false if the keeper is gone, so that the go will never come.
pub(crate) fn wait_for_go(go: &OwnedFd) -> bool {
    let mut byte = [0u8; 1];
    matches!(rustix::io::retry_on_intr(|| rustix::io::read(go, &mut byte)), Ok(1))
}

/// Ends a forked process without running anything that belongs to its parent.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: _exit does nothing but end the process.
    unsafe { libc::_exit(code) }
}

/// Ends a stub that never became the program. It does not exit: a process that takes over would take the exit code for the
/// program's own.
pub(crate) fn give_up() -> ! {
    // SAFETY: the signal goes to this process alone, which has nothing to lose.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    exit(1)
}

/// Tells the keeper what failed, and exits.
pub(crate) fn fail(status: RawFd, stage: Stage, errno: i32) -> ! {
    let stage = STAGES.iter().position(|&known| known == stage).unwrap_or(STAGES.len() - 1) as i32;
    let mut bytes = [0u8; 8];
    bytes[..4].copy_from_slice(&stage.to_ne_bytes());
    bytes[4..].copy_from_slice(&errno.to_ne_bytes());
    // SAFETY: the buffer has the length given. Eight bytes into an empty pipe are written as one.
    unsafe { libc::write(status, bytes.as_ptr().cast(), bytes.len()) };
    exit(125)
}

pub(crate) fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn set_limit(resource: Resource, value: u64, hard: bool) -> Result<(), i32> {
    let mut limit = getrlimit(resource);
    let value = limit.maximum.map_or(value, |maximum| value.min(maximum));
    limit.current = Some(value);
    if hard {
        limit.maximum = limit.current;
    }
    setrlimit(resource, limit).map_err(|error| error.raw_os_error())
}

/// The last steps of a stub: nothing of quell is left in the process but its environment's marker.
pub(crate) fn become_program(program: &Program, arrays: &Arrays, rules: &ChildRules, status: RawFd) -> ! {
    signals::reset_for_exec(&rules.keep_ignored);
    super::process::clear_keeper_mark();
    if let Some(stdio) = &rules.stdio {
        for (fd, from) in (0..).zip(stdio.descriptors) {
            // SAFETY: nothing in this process uses its old standard descriptors any more.
            if unsafe { libc::dup2(from, fd) } == -1 {
                fail(status, Stage::Stdio, errno());
            }
        }
        // SAFETY: the ioctl takes a number; this process leads a session without a terminal.
        if stdio.terminal && unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } == -1 {
            fail(status, Stage::Stdio, errno());
        }
    }
    for fd in 0..3 {
        if rules.closed[fd as usize] {
            // SAFETY: the standard library put /dev/null there; nothing in this process uses it any more.
            unsafe { libc::close(fd) };
        }
    }
    if let Some(files) = rules.open_files
        && let Err(errno) = set_limit(Resource::Nofile, files, false)
    {
        fail(status, Stage::Limit, errno);
    }
    if let Some(procs) = rules.procs
        && let Err(errno) = set_limit(Resource::Nproc, procs, true)
    {
        fail(status, Stage::Limit, errno);
    }
    // SAFETY: every pointer is to a C string that `program` keeps alive, every array ends with a null.
    unsafe {
        if libc::chdir(program.cwd.as_ptr()) == -1 {
            fail(status, Stage::Cwd, errno());
        }
        libc::execve(program.path.as_ptr(), arrays.argv.as_ptr(), arrays.envp.as_ptr());
        let mut error = errno();
        if error == libc::ENOEXEC {
            libc::execve(SHELL.as_ptr(), arrays.shell_argv.as_ptr(), arrays.envp.as_ptr());
            error = libc::ENOEXEC;
        }
        fail(status, Stage::Exec, error)
    }
}

/// A new process, as fork(2) makes it, with a pidfd, and optionally born in a cgroup or in new namespaces. `None` in
/// the new process.
pub(crate) fn clone3(flags: i32, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<PidFd>> {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let mut pidfd: RawFd = -1;
    // SAFETY: all fields of clone_args may be zero.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags as u64 | libc::CLONE_PIDFD as u64;
    args.pidfd = &raw mut pidfd as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM this is a fork. Callers have one thread, so no lock of another is copied in a locked
    // state, and the new process goes on with a copy of this stack.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    match result {
        0 => Ok(None),
        -1 => {
            let error = io::Error::last_os_error();
            let filtered = matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM));
            if filtered && flags == 0 && cgroup.is_none() { plain_fork() } else { Err(error) }
        }
        // SAFETY: the kernel put a new descriptor there, which is ours.
        pid => Ok(Some(PidFd::from_parts(unsafe { OwnedFd::from_raw_fd(pidfd) }, pid as u32))),
    }
}

/// For kernels and seccomp filters without clone3. The pid can't be reused before we reap it, so the pidfd opened
/// afterwards is the child's.
pub(crate) fn plain_fork() -> io::Result<Option<PidFd>> {
    // SAFETY: as for clone3: the caller has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => PidFd::open(pid as u32).map(Some).inspect_err(|_| {
            // A child that can't be held must not go on as if it were. It is unreaped, so the number is its own.
            // SAFETY: neither call touches memory of ours.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, std::ptr::null_mut(), 0);
            }
        }),
    }
}
