//! The host: clocks, chance, users, limits and waiting.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use quell_core::Usage;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

use super::launch::{clone3, exit, wait_for_go};
use super::{pidns, wait};

/// What to wait for on a descriptor.
#[derive(Clone, Copy, Debug)]
pub enum Polled<'a> {
    /// Data, or the end of it.
    Read(BorrowedFd<'a>),
    /// Room for a page.
    Write(BorrowedFd<'a>),
    /// Priority data: a change in a file such as cgroup.events.
    Priority(BorrowedFd<'a>),
    /// The other end of a pipe or a socket writes no more. Data that can be read does not count.
    HangUp(BorrowedFd<'a>),
}

/// Waits until one of `fds` is ready or `deadline` has passed; says which are ready.
pub fn poll_until(fds: &[Polled<'_>], deadline: Option<Instant>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| match fd {
            Polled::Read(fd) => PollFd::from_borrowed_fd(*fd, PollFlags::IN),
            Polled::Write(fd) => PollFd::from_borrowed_fd(*fd, PollFlags::OUT),
            Polled::Priority(fd) => PollFd::from_borrowed_fd(*fd, PollFlags::PRI),
            Polled::HangUp(fd) => PollFd::from_borrowed_fd(*fd, PollFlags::RDHUP),
        })
        .collect();
    let timeout = deadline.map(|deadline| {
        let left = deadline.saturating_duration_since(Instant::now());
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
    });
    let _dropped = super::memory::drop_code_pages();
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
}

/// 128 random bits from the kernel.
pub fn random_u128() -> io::Result<u128> {
    let mut bytes = [0u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u128::from_ne_bytes(bytes))
}

/// The wall clock in milliseconds since 1970.
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// How many clock ticks /proc counts in a second.
pub fn ticks_per_second() -> u64 {
    // SAFETY: asks the C library for a number. rustix would ask the kernel.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.try_into().unwrap_or(100)
}

/// The space that an ordinary user may still fill in the file system of `dir`, in bytes.
pub fn free_space(dir: &std::path::Path) -> std::io::Result<u64> {
    let found = rustix::fs::statvfs(dir)?;
    Ok(found.f_bavail * found.f_frsize)
}

/// The size of a page of memory.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// What the collected children have used of the CPU, in clock ticks.
pub fn collected_ticks() -> u64 {
    let usage = rusage_children();
    ((usage.cpu_user + usage.cpu_system) * ticks_per_second() as f64) as u64
}

/// How long this boot has lasted, in the clock ticks of [`Stat::start`](super::Stat::start).
pub fn ticks_since_boot() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the struct. The C library has the kernel's code for it at hand; rustix would ask where it is.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    let per_second = ticks_per_second();
    let shown = now.tv_sec as u64 * per_second + now.tv_nsec as u64 * per_second / 1_000_000_000;
    shown.saturating_add_signed(-super::procfs::time_shift())
}

/// How many seconds ago something started, by its start time as /proc gives it.
pub fn seconds_since(start: u64) -> f64 {
    ticks_since_boot().saturating_sub(start) as f64 / ticks_per_second() as f64
}

/// The id of this boot; empty where /proc doesn't tell.
pub fn boot_id() -> String {
    static BOOT: OnceLock<String> = OnceLock::new();
    match BOOT.get() {
        Some(known) => known.clone(),
        // What could not be read is tried again.
        None => super::procfs::boot_id().map_or_else(String::new, |id| BOOT.get_or_init(|| id).clone()),
    }
}

/// The kernel's release, such as `6.18.1`.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The name of this host.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn passwd_field(uid: u32, field: usize) -> Option<String> {
    let passwd = super::read_text("/etc/passwd".as_ref()).ok()?;
    let line = passwd.lines().find(|line| line.split(':').nth(2).is_some_and(|id| id.parse() == Ok(uid)))?;
    line.split(':').nth(field).map(str::to_owned)
}

/// The name of a user, as /etc/passwd has it.
pub fn user_name(uid: u32) -> Option<String> {
    passwd_field(uid, 0)
}

/// Whether /etc/passwd has a user of this name.
pub fn is_user(name: &str) -> bool {
    let passwd = super::read_text("/etc/passwd".as_ref()).unwrap_or_default();
    passwd.lines().any(|line| line.split(':').next() == Some(name))
}

/// This user's home, as /etc/passwd has it.
pub fn own_home() -> Option<PathBuf> {
    passwd_field(super::uid(), 5).filter(|home| home.starts_with('/')).map(PathBuf::from)
}

/// The soft limit of open files before it was raised.
static SOFT_OPEN_FILES: OnceLock<Option<u64>> = OnceLock::new();

/// Gives a child the soft limit of open files that this process had before [`raise_open_files`], if that was called.
pub fn restore_open_files(child: u32) {
    let (Some(Some(soft)), Some(pid)) =
        (SOFT_OPEN_FILES.get(), i32::try_from(child).ok().and_then(Pid::from_raw))
    else {
        return;
    };
    let maximum = getrlimit(Resource::Nofile).maximum;
    // A child that has exited needs none.
    let _ = prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(*soft), maximum });
}

/// Raises this process's soft limit of open files to its hard one, once. Returns the soft limit from before, if that is another
/// one, also in a child that was forked after it: the program should get that one.
pub fn raise_open_files() -> Option<u64> {
    *SOFT_OPEN_FILES.get_or_init(|| {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let raise = || setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
        current.filter(|_| current != maximum && raise())
    })
}

/// Fails if this process may not have `count` files open, even with its limit raised.
pub fn check_open_files(count: u64) -> io::Result<()> {
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if most < count => Err(io::Error::other(format!(
            "it needs {count} open files, and the limit is {most} (`ulimit -n`)"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// How many files this process may have open.
pub fn open_files_allowed() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// What all collected children and their collected children have used.
pub fn rusage_children() -> Usage {
    let mut raw = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills the struct, which is valid as zeroes too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, raw.as_mut_ptr());
        raw.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Usage {
        cpu_user: seconds(usage.ru_utime),
        cpu_system: seconds(usage.ru_stime),
        peak_process_memory: usage.ru_maxrss as u64 * 1024,
        peak_tree_memory: None,
    }
}

/// Whether user and PID namespaces can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserNamespaces {
    /// This user needs none for a PID namespace.
    NotNeeded,
    /// They can be had.
    Yes,
}

/// Tries to make a PID namespace the way [`super::launch_pidns`] does, in a process that does nothing but wait.
pub fn user_namespaces() -> io::Result<UserNamespaces> {
    let plain = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    match try_namespace(plain) {
        Ok(_) => Ok(UserNamespaces::NotNeeded),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            try_namespace(plain | libc::CLONE_NEWUSER).map(|()| UserNamespaces::Yes)
        }
        Err(error) => Err(error),
    }
}

fn try_namespace(flags: i32) -> io::Result<()> {
    let (wait_here, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let Some(child) = clone3(flags, None)? else {
        drop(go);
        let _ = wait_for_go(&wait_here);
        exit(0)
    };
    let mapped = if flags & libc::CLONE_NEWUSER == 0 { Ok(()) } else { pidns::map_to_self(child.pid()) };
    drop(go);
    wait::wait_exit(child.pid())?;
    wait::reap(child.pid())?;
    mapped
}
