//! /proc, read as text. A number read here is a hint until a pidfd pins the process behind it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use quell_core::{ProcId, Signal};

use super::files::open_kernels;

/// The fields of /proc/PID/stat that quell uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The pid.
    pub pid: u32,
    /// The short name.
    pub comm: String,
    /// The state letter of the leader thread; `Z` also where other threads live on.
    pub state: u8,
    /// The parent.
    pub ppid: u32,
    /// The process group.
    pub pgid: u32,
    /// The session.
    pub sid: u32,
    /// Whether it has a controlling terminal.
    pub has_terminal: bool,
    /// The kernel's flags.
    pub flags: u32,
    /// How many threads.
    pub threads: u32,
    /// When it started, in clock ticks since boot, as the host counts them: the same in every time namespace.
    pub start: u64,
    /// What it and its collected children have used of the CPU, in clock ticks.
    pub cpu: u64,
    /// Its resident set, in pages.
    pub resident: u64,
}

impl Stat {
    /// Reads one line of /proc/PID/stat. The name may hold anything, spaces and parentheses too.
    pub fn parse(text: &str) -> Option<Self> {
        let (pid, rest) = text.split_once(" (")?;
        let (comm, rest) = rest.rsplit_once(") ")?;
        // The state, and then numbers: the first of them is the parent.
        let mut fields = rest.split(' ');
        let state = *fields.next()?.as_bytes().first()?;
        let mut small = |skip: usize| fields.nth(skip)?.parse::<u32>().ok();
        let (ppid, pgid, sid) = (small(0)?, small(0)?, small(0)?);
        // Terminal and foreground group are signed numbers.
        let has_terminal = fields.next()? != "0";
        let mut next = |skip: usize| fields.nth(skip)?.parse::<u64>().ok();
        let flags = next(1)?.try_into().ok()?;
        let mut cpu: u64 = next(4)?;
        for _ in 0..3 {
            // What its children have used is a signed number to the kernel.
            cpu = cpu.saturating_add(next(0).unwrap_or(0));
        }
        let threads = next(2)?.try_into().ok()?;
        let start = next(1)?;
        let resident = next(1).unwrap_or(0);
        let (pid, comm) = (pid.parse().ok()?, comm.to_owned());
        Some(Self { pid, comm, state, ppid, pgid, sid, has_terminal, flags, threads, start, cpu, resident })
    }
}

impl Stat {
    /// What is known of a child of `ppid` that /proc does not show.
    pub fn hidden(pid: u32, ppid: u32) -> Self {
        let comm = "(hidden)".to_owned();
        Self {
            pid,
            comm,
            state: b'?',
            ppid,
            pgid: 0,
            sid: 0,
            has_terminal: false,
            flags: 0,
            threads: 1,
            start: 0,
            cpu: 0,
            resident: 0,
        }
    }

    /// The identity of the process.
    pub fn id(&self) -> ProcId {
        ProcId { pid: self.pid, start: self.start }
    }

    /// Whether the process has exited: its leader shows as a zombie, and no other thread is left.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }

    /// Whether it is on its way out (PF_EXITING): what /proc says of it is no longer complete.
    pub fn is_exiting(&self) -> bool {
        self.flags & 0x0000_0004 != 0
    }

    /// Whether it is a thread of the kernel (PF_KTHREAD).
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & 0x0020_0000 != 0
    }

    /// Whether it has executed a program since it was forked (not PF_FORKNOEXEC). A zombie still says so.
    pub fn has_executed(&self) -> bool {
        self.flags & 0x0000_0040 == 0
    }
}

fn read(path: &str, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(1024);
    open_kernels(Path::new(path))?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What one read gives of a file of /proc that the kernel makes in one piece.
fn read_piece<'b>(path: &str, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
    let mut file = open_kernels(Path::new(path))?;
    let length = loop {
        match file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    Ok(&buffer[..length])
}

/// The stat line of `pid`.
pub fn stat(pid: u32) -> io::Result<Stat> {
    let path = format!("/proc/{pid}/stat");
    let mut buffer = [0; 4096];
    let bytes = read_piece(&path, &mut buffer)?;
    let mut stat = Stat::parse(&String::from_utf8_lossy(bytes))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{path} can't be understood")))?;
    if stat.pid != pid {
        // Another process's directory is mounted there.
        let what = format!("{path} shows process {}", stat.pid);
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    stat.start = stat.start.saturating_add_signed(-time_shift());
    Ok(stat)
}

/// Whether /proc shows the PID namespace that this process lives in. Anywhere else its numbers mean other processes.
pub fn proc_is_ours() -> bool {
    fs::read_link("/proc/self").is_ok_and(|link| link.to_str() == Some(&std::process::id().to_string()))
}

/// The list of this process's children. This process has one thread, so one file names them all.
const OWN_CHILDREN: &str = "/proc/thread-self/children";

/// The children of this process, living and dead.
pub fn own_children() -> io::Result<Vec<u32>> {
    match read(OWN_CHILDREN, u64::MAX) {
        Ok(bytes) => Ok(numbers(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => children(std::process::id(), 1),
        Err(error) => Err(error),
    }
}

/// The first children of this process, living and dead: some, if there are any.
pub fn first_own_children() -> io::Result<Vec<u32>> {
    let mut buffer = [0; 512];
    match read_piece(OWN_CHILDREN, &mut buffer) {
        Ok(bytes) => {
            // Each number has a space behind it; the last one may be cut.
            let end = bytes.iter().rposition(|byte| *byte == b' ').unwrap_or(0);
            Ok(numbers(&bytes[..end]))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => own_children(),
        Err(error) => Err(error),
    }
}

/// The children of `pid`, which has so many threads: each thread has its own.
pub fn children(pid: u32, threads: u32) -> io::Result<Vec<u32>> {
    if threads <= 1 {
        return match read(&format!("/proc/{pid}/task/{pid}/children"), u64::MAX) {
            Ok(bytes) => Ok(numbers(&bytes)),
            // A kernel without CONFIG_PROC_CHILDREN: read the parent of every process.
            Err(error) if error.kind() == io::ErrorKind::NotFound && stat(pid).is_ok() => {
                children_by_scan(pid)
            }
            Err(error) => Err(error),
        };
    }
    let mut all = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = match entry {
            Ok(entry) => entry.file_name(),
            // The process has ended since, and its children have another parent.
            Err(error) if is_gone(&error) => break,
            Err(error) => return Err(error),
        };
        let Some(tid) = name.to_str() else { continue };
        match read(&format!("/proc/{pid}/task/{tid}/children"), u64::MAX) {
            Ok(bytes) => all.extend(numbers(&bytes)),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Whether it failed because the process or thread has ended: what /proc and the kernel say then.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// The numbers in a text.
pub fn numbers(bytes: &[u8]) -> Vec<u32> {
    String::from_utf8_lossy(bytes).split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn children_by_scan(parent: u32) -> io::Result<Vec<u32>> {
    Ok(pids()?.into_iter().filter(|&pid| stat(pid).is_ok_and(|stat| stat.ppid == parent)).collect())
}

/// The inodes of the TCP sockets that listen on `port`, in this network namespace.
pub fn listeners(port: u16, reached_by: Option<IpAddr>) -> Vec<u64> {
    let mut found = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        let all = text.lines().skip(1).filter_map(|line| listener(line, port));
        found.extend(all.filter_map(|(local, inode)| Some((distance(local, reached_by)?, inode))));
    }
    let nearest = found.iter().map(|(distance, _)| *distance).min();
    found.into_iter().filter(|(distance, _)| Some(*distance) == nearest).map(|(_, inode)| inode).collect()
}

/// How far a listener's address is from the one that is connected to; none if it is not reached by it. The kernel takes the
/// nearest listener.
fn distance(local: IpAddr, reached_by: Option<IpAddr>) -> Option<u8> {
    let Some(to) = reached_by.map(|to| to.to_canonical()) else { return Some(0) };
    match local {
        local if local.to_canonical() == to => Some(0),
        local if local.is_unspecified() && local.is_ipv4() == to.is_ipv4() => Some(1),
        local if local.is_unspecified() && local.is_ipv6() => Some(2),
        _ => None,
    }
}

/// The address and the inode of a line of /proc/net/tcp, if it is a socket that listens on `port`.
pub fn listener(line: &str, port: u16) -> Option<(IpAddr, u64)> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (address, local) = fields.get(1)?.rsplit_once(':')?;
    let here = u16::from_str_radix(local, 16).ok()? == port && *fields.get(3)? == LISTEN;
    let inode = fields.get(9)?.parse().ok()?;
    // In words of 32 bits, each as this machine reads the bytes of the network.
    let word = |at: usize| u32::from_str_radix(address.get(8 * at..8 * at + 8)?, 16).ok();
    let address = match address.len() {
        8 => IpAddr::from(word(0)?.to_ne_bytes()),
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(at)?.to_ne_bytes());
            }
            IpAddr::from(bytes)
        }
        _ => return None,
    };
    here.then_some((address, inode))
}

/// Whether `pid` has one of the sockets with these inodes open. False where its descriptors may not be read.
pub fn holds_socket(pid: u32, inodes: &[u64]) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    entries.flatten().any(|entry| {
        fs::read_link(entry.path()).is_ok_and(|link| {
            let inode = link.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']'));
            inode.and_then(|text| text.parse().ok()).is_some_and(|inode| inodes.contains(&inode))
        })
    })
}

/// What `pid` has open: the name of the descriptor in /proc, and the path of the file, with ` (deleted)` behind one that
/// was removed. Nothing where that may not be read.
pub fn open_files(pid: u32) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.path(), fs::read_link(entry.path()).ok()?)))
}

/// Whether a process of this PID namespace, or of one below it, has locked a file with this inode by flock(2).
pub fn is_locked_here(ino: u64) -> bool {
    let text = fs::read_to_string("/proc/locks").unwrap_or_default();
    // `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`. The device is left out: some file systems show another one.
    let end = format!(":{ino}");
    text.lines().any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        words.next() == Some("FLOCK") && words.nth(3).is_some_and(|place| place.ends_with(&end))
    })
}

/// The number that `pid` has in the innermost PID namespace that it is in, if that is not ours.
pub fn inner_pid(pid: u32) -> Option<u32> {
    let bytes = read(&format!("/proc/{pid}/status"), 16 * 1024).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let numbers = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().skip(1).last()?.parse().ok()
}

/// Whether `pid` has one thread, and that blocks these signals: none of them can end it.
pub fn blocks(pid: u32, signals: &[Signal]) -> bool {
    let Ok(bytes) = read(&format!("/proc/{pid}/status"), 16 * 1024) else { return false };
    let text = String::from_utf8_lossy(&bytes);
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let blocked = field("SigBlk:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    field("Threads:") == Some("1") && signals.iter().all(|signal| blocked >> (signal.number() - 1) & 1 == 1)
}

/// Every pid in /proc. A listing that breaks off is an error: what it has not shown may be there.
pub fn pids() -> io::Result<Vec<u32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        pids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(pids)
}

/// How many threads there are on the host, at least as many as processes.
pub fn threads_on_host() -> Option<usize> {
    let mut buffer = [0; 256];
    let text = read_piece("/proc/loadavg", &mut buffer).ok()?;
    let text = std::str::from_utf8(text).ok()?;
    text.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

/// The pid that was given out last.
pub fn newest_pid() -> Option<u32> {
    let mut buffer = [0; 256];
    let bytes = read_piece("/proc/loadavg", &mut buffer).ok()?;
    numbers(bytes.rsplit(|&byte| byte == b' ').next()?).pop()
}

/// More than the kernel lets a program have (3/4 of 8 MiB).
const LONGEST_CMDLINE: u64 = 8 << 20;

/// The command line of `pid`, its arguments apart; empty for a kernel thread or a zombie.
pub fn cmdline(pid: u32) -> Vec<String> {
    let mut buffer = [0; 4096];
    let bytes = read_piece(&format!("/proc/{pid}/cmdline"), &mut buffer).unwrap_or_default();
    words(bytes)
}

/// The same, however long it is.
pub fn whole_cmdline(pid: u32) -> Vec<String> {
    words(&read(&format!("/proc/{pid}/cmdline"), LONGEST_CMDLINE).unwrap_or_default())
}

/// The words of a command line. A program that has written a title over its arguments has padded it.
fn words(bytes: &[u8]) -> Vec<String> {
    let end = bytes.iter().rposition(|byte| !matches!(byte, 0 | b' ')).map_or(0, |at| at + 1);
    let text = &bytes[..end];
    if text.is_empty() {
        return Vec::new();
    }
    text.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The user of `pid`, as the owner of its directory says it.
pub fn uid_of(pid: u32) -> io::Result<u32> {
    Ok(fs::metadata(format!("/proc/{pid}"))?.uid())
}

/// The users by whose rights `pid` acts or can act again: effective, real, saved, and that of its files. The owner of its
/// directory may be root though none of them is.
pub fn users_of(pid: u32) -> io::Result<[u32; 4]> {
    let bytes = read(&format!("/proc/{pid}/status"), 16 * 1024)?;
    let text = String::from_utf8_lossy(&bytes);
    let uids = text.lines().find_map(|line| line.strip_prefix("Uid:"));
    match uids.map(|uids| numbers(uids.as_bytes())).as_deref() {
        Some(&[real, effective, saved, files]) => Ok([effective, real, saved, files]),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it has no user")),
    }
}

/// What a signal does to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// What the kernel does by default; for most signals, the process dies at once.
    Default,
    /// Nothing.
    Ignored,
    /// A handler runs, or the signal waits because it is blocked.
    Handled,
}

/// What `signal` would do to `pid` now.
pub fn disposition(pid: u32, signal: Signal) -> io::Result<Disposition> {
    let bytes = read(&format!("/proc/{pid}/status"), 16 * 1024)?;
    let text = String::from_utf8_lossy(&bytes);
    let has = |set: &str| {
        let digits = text.lines().find_map(|line| line.strip_prefix(set)).unwrap_or_default();
        u64::from_str_radix(digits.trim(), 16).unwrap_or(0) >> (signal.number() - 1) & 1 == 1
    };
    Ok(match () {
        () if has("SigIgn:") => Disposition::Ignored,
        () if has("SigCgt:") || has("SigBlk:") => Disposition::Handled,
        () => Disposition::Default,
    })
}

/// Whether `pid` ignores TERM. False if that can't be read.
pub fn ignores_term(pid: u32) -> bool {
    disposition(pid, Signal::TERM).is_ok_and(|found| found == Disposition::Ignored)
}

/// A thread of `pid` by which the process can be looked at: its leader, or another one if the leader has ended.
pub fn living_thread(pid: u32, leader: &Stat) -> u32 {
    if leader.state != b'Z' {
        return pid;
    }
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut threads = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    threads.find(|tid| stat(*tid).is_ok_and(|stat| !matches!(stat.state, b'Z' | b'X'))).unwrap_or(pid)
}

/// Whether two files that are executed, by this and by that process, have the same bytes in them.
pub fn same_executable(one: u32, other: u32) -> bool {
    let open = |pid: u32| File::open(format!("/proc/{pid}/exe"));
    let same = || -> io::Result<bool> {
        let (mut one, mut other) = (open(one)?, open(other)?);
        let length = one.metadata()?.len();
        if length != other.metadata()?.len() {
            return Ok(false);
        }
        let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        let mut rest = length;
        while rest > 0 {
            let part = usize::try_from(rest).unwrap_or(usize::MAX).min(left.len());
            one.read_exact(&mut left[..part])?;
            other.read_exact(&mut right[..part])?;
            if left[..part] != right[..part] {
                return Ok(false);
            }
            rest -= part as u64;
        }
        Ok(length > 0)
    };
    same().unwrap_or(false)
}

/// The path of the file that `pid` executes. None where it may not be read.
pub fn executed(pid: u32) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Whether two processes execute the very same file. Not if that can't be read of one of them.
pub fn same_executable_file(one: u32, other: u32) -> bool {
    let file = |pid: u32| fs::metadata(format!("/proc/{pid}/exe")).map(|found| (found.dev(), found.ino()));
    matches!((file(one), file(other)), (Ok(one), Ok(other)) if one == other)
}

/// Whether `pid` executes quell: the same file as this process, or one that is called so, as an older one that was
/// replaced meanwhile is.
pub fn is_quell(pid: u32) -> bool {
    let named = |path: PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"quell"));
    same_executable_file(pid, super::pid()) || executed(pid).is_some_and(named)
}

/// The text of /proc/PID/cgroup.
pub fn cgroups(pid: u32) -> String {
    let path = format!("/proc/{pid}/cgroup");
    let mut buffer = [0; 4096];
    match read_piece(&path, &mut buffer).unwrap_or_default() {
        piece if piece.len() < 4096 => String::from_utf8_lossy(piece).into_owned(),
        _ => String::from_utf8_lossy(&read(&path, 64 * 1024).unwrap_or_default()).into_owned(),
    }
}

/// The environment of `pid` as it was at its exec; each variable ends with a zero byte.
pub fn environment(pid: u32) -> io::Result<Vec<u8>> {
    read(&format!("/proc/{pid}/environ"), 4 << 20)
}

/// The value of a variable in the environment of `pid`, as it was at its exec. None where it may not be read.
pub fn variable_of(pid: u32, name: &str) -> Option<String> {
    let bytes = environment(pid).ok()?;
    let of = |entry: &[u8]| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    bytes.split(|byte| *byte == 0).find_map(of)
}

/// Whether this process is in the first PID namespace of the machine, and not in a container's.
pub fn in_first_pid_namespace() -> bool {
    // PROC_PID_INIT_INO: the kernel gives the first one this number.
    own_pid_namespace() == 0xEFFF_FFFC
}

/// Whether this process is in the first time namespace, that of the host: in others start times are shifted. So it is where
/// the kernel has none.
pub fn in_first_time_namespace() -> bool {
    // PROC_TIME_INIT_INO.
    fs::metadata("/proc/self/ns/time").map_or(true, |found| found.ino() == 0xEFFF_FFFA)
}

/// How many clock ticks later, at most, this time namespace shows a start time than the host does. 0 where that can't be
/// told.
pub(super) fn time_shift() -> i64 {
    static SHIFT: OnceLock<i64> = OnceLock::new();
    let shift = || {
        // The file tells of the namespace that children are born in.
        let namespace = |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).map(|found| found.ino());
        let is_own = namespace("time").ok()? == namespace("time_for_children").ok()?;
        let text = fs::read_to_string("/proc/self/timens_offsets").ok().filter(|_| is_own)?;
        boot_shift(&text, super::ticks_per_second())
    };
    *SHIFT.get_or_init(|| if in_first_time_namespace() { 0 } else { shift().unwrap_or(0) })
}

/// The shift of the clock since boot in the text of /proc/PID/timens_offsets, rounded up to whole ticks: a start time that
/// is corrected by it is the host's, or one tick earlier, and never later.
fn boot_shift(text: &str, per_second: u64) -> Option<i64> {
    let mut words = text.lines().find_map(|line| line.strip_prefix("boottime"))?.split_ascii_whitespace();
    let mut number = || words.next()?.parse::<i64>().ok();
    let (seconds, nanos, per_second) = (number()?, number()?, i64::try_from(per_second).ok()?);
    let in_ticks = seconds.checked_mul(per_second)?;
    let fraction = nanos.checked_mul(per_second)?;
    in_ticks.checked_add(fraction.checked_add(999_999_999)?.div_euclid(1_000_000_000))
}

/// Whether /proc does not show all processes of this user: with `hidepid`, those that can't be traced are left out.
pub fn proc_hides_processes() -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let hides = |line: &str| {
        let of_proc = line.split(' ').nth(4) == Some("/proc");
        let options = line.rsplit(' ').next().unwrap_or_default();
        let shown = |option: &str| matches!(option, "hidepid=0" | "hidepid=off");
        of_proc && options.split(',').any(|option| option.starts_with("hidepid=") && !shown(option))
    };
    mounts.lines().any(hides)
}

/// The paths at or below the directories of processes in /proc where something else is mounted.
fn mounts_over_processes() -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let point = |line: &str| line.split(' ').nth(4).map(str::to_owned);
    let of_process = |path: &String| {
        path.strip_prefix("/proc/").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    mounts.lines().filter_map(point).filter(of_process).collect()
}

/// A path at or below the directory of a process in /proc where something else is mounted.
pub fn mount_over_process() -> Option<String> {
    mounts_over_processes().into_iter().next()
}

/// Whether something else is mounted over the directory of `pid` in /proc, or below it.
pub fn is_mounted_over(pid: u32) -> bool {
    let own = std::path::PathBuf::from(format!("/proc/{pid}"));
    mounts_over_processes().iter().any(|path| std::path::Path::new(path).starts_with(&own))
}

/// The PID namespace that this process is in, by the inode that it has in this boot; 0 if that can't be read.
pub fn own_pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

/// Whether the variable `name` in the environment of `pid`, as it was at its exec, lists `item`: one of its parts between
/// colons is exactly that. None where there is no environment, or it may not be read.
pub fn variable_lists(pid: u32, name: &str, item: &str) -> Option<bool> {
    let bytes = environment(pid).ok()?;
    (!bytes.is_empty()).then(|| lists(&bytes, name, item))
}

fn lists(environment: &[u8], name: &str, item: &str) -> bool {
    let is_item = |entry: &[u8]| {
        let value = entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
        value.is_some_and(|value| value.split(|byte| *byte == b':').any(|part| part == item.as_bytes()))
    };
    !item.is_empty() && environment.split(|byte| *byte == 0).any(is_item)
}

/// The PID namespace that `pid` is in, as a number that no other namespace has while it lives.
pub fn pid_namespace(pid: u32) -> io::Result<u64> {
    Ok(fs::metadata(format!("/proc/{pid}/ns/pid"))?.ino())
}

/// The mount namespace that `pid` is in, likewise.
pub fn mount_namespace(pid: u32) -> io::Result<u64> {
    Ok(fs::metadata(format!("/proc/{pid}/ns/mnt"))?.ino())
}

/// The id of this boot.
pub(super) fn boot_id() -> Option<String> {
    let mut buffer = [0; 64];
    let text = read_piece("/proc/sys/kernel/random/boot_id", &mut buffer).ok()?;
    Some(std::str::from_utf8(text).ok()?.trim().to_owned())
}

/// The number after the highest PID of this host.
pub fn pid_max() -> Option<u64> {
    let mut buffer = [0; 32];
    let text = read_piece("/proc/sys/kernel/pid_max", &mut buffer).ok()?;
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_has_no_padding() {
        for (given, shown) in [
            (&b"sleep\x0050\0"[..], vec!["sleep", "50"]),
            (b"nginx: master process\0\0\0\0\0", vec!["nginx: master process"]),
            (b"postgres: idle        ", vec!["postgres: idle"]),
            (b"a\0\0b\0", vec!["a", "", "b"]),
            (b" \0 ", vec![]),
            (b"", vec![]),
        ] {
            assert_eq!(words(given), shown);
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_listener_is_found_by_the_address_that_reaches_it() {
        let line = |address: &str| {
            listener(&format!("0: {address}:1F90 00000000:0000 0A 0:0 00:0 0 0 0 77 1"), 8080)
        };
        let [loopback, any, any6, mapped, loopback6] = [
            ("0100007F", "127.0.0.1"),
            ("00000000", "0.0.0.0"),
            (&"0".repeat(32), "::"),
            ("0000000000000000FFFF00000100007F", "::ffff:127.0.0.1"),
            ("00000000000000000000000001000000", "::1"),
        ]
        .map(|(text, address)| {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(line(text), Some((address, 77)), "{text}");
            address
        });
        assert_eq!((line("0100"), line("")), (None, None));
        for (local, near) in
            [(loopback, Some(0)), (mapped, Some(0)), (any, Some(1)), (any6, Some(2)), (loopback6, None)]
        {
            assert_eq!(distance(local, Some(loopback)), near, "{local}");
            assert_eq!(distance(local, None), Some(0));
        }
        for (local, near) in [(loopback6, Some(0)), (any6, Some(1)), (any, None), (loopback, None)] {
            assert_eq!(distance(local, Some(loopback6)), near, "{local}");
        }
    }

    const LINE: &str =
        "42 (a) b (c) S 7 42 41 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 3 0 98765 1000 2 18446744073709551615";

    #[test]
    fn a_name_with_parentheses_is_read() {
        let stat = Stat::parse(LINE).unwrap();
        assert_eq!((stat.comm.as_str(), stat.ppid, stat.pgid, stat.sid), ("a) b (c", 7, 42, 41));
        assert_eq!((stat.state, stat.threads, stat.start), (b'S', 3, 98765));
    }

    #[test]
    fn the_shift_of_a_time_namespace_is_read() {
        let shift = |boot: &str| boot_shift(&format!("monotonic 5 0\nboottime  {boot}\n"), 100);
        assert_eq!((shift("1000  0"), shift("-7         500000000")), (Some(100_000), Some(-650)));
        assert_eq!(
            (shift("1 1"), shift("-20 5000000"), shift("-1 999999999")),
            (Some(101), Some(-1999), Some(0))
        );
        assert_eq!((shift("1"), boot_shift("", 100)), (None, None));
    }

    #[test]
    fn a_torn_line_is_nobody() {
        for end in 0..60 {
            let _ = Stat::parse(&LINE[..end]);
        }
        assert!(Stat::parse("42 (a) S 7").is_none());
        assert!(Stat::parse("").is_none());
    }

    #[test]
    fn a_variable_lists_exact_items_only() {
        let environment = b"A=1\0MARK=outer:inner\0NOTE=see MARK=third\0MARKS=fourth\0";
        assert!(lists(environment, "MARK", "outer") && lists(environment, "MARK", "inner"));
        for item in ["", "out", "outer:inner", "third", "fourth"] {
            assert!(!lists(environment, "MARK", item), "{item}");
        }
    }

    #[test]
    fn we_are_our_own_evidence() {
        let own = stat(std::process::id()).unwrap();
        assert_eq!(own.pid, std::process::id());
        assert!(own.start > 0);
    }
}
