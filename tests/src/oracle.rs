//! The processes that are still alive. Every process of a test carries the test's token in its command line or in
//! its environment; `/proc` is read for it, and nothing that quell says is believed.

use std::{
    fs,
    io::Read,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// One process, by identity: a pid alone may be another process a moment later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The number that may be used again.
    pub pid: u32,
    /// Clock ticks from boot to its start (field 22 of `/proc/PID/stat`): tells two users of a pid apart.
    pub start: u64,
    /// The command line, arguments joined by spaces.
    pub command: String,
}

impl Process {
    /// The process that has this pid now.
    pub fn now(pid: u32) -> Option<Process> {
        let dir = format!("/proc/{pid}");
        Some(Process { pid, start: stat(Path::new(&dir))?.start, command: command_line(Path::new(&dir)) })
    }

    /// Sends a signal to this very process: it is pinned first, and then looked at once more.
    pub fn signal(&self, signal: &str) -> bool {
        let number = match signal {
            "HUP" => Signal::HUP,
            "INT" => Signal::INT,
            "QUIT" => Signal::QUIT,
            "ABRT" => Signal::ABORT,
            "SEGV" => Signal::SEGV,
            "KILL" => Signal::KILL,
            "USR1" => Signal::USR1,
            "USR2" => Signal::USR2,
            "PIPE" => Signal::PIPE,
            "TERM" => Signal::TERM,
            "CONT" => Signal::CONT,
            "STOP" => Signal::STOP,
            "TSTP" => Signal::TSTP,
            "WINCH" => Signal::WINCH,
            other => panic!("no test sends {other}"),
        };
        let pinned = Pid::from_raw(self.pid as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Process::now(self.pid).is_some_and(|now| now.start == self.start)
            && pinned.is_some_and(|pinned| pidfd_send_signal(pinned, number).is_ok())
    }

    /// Whether this very process still runs. A zombie does not, unless one of its threads does.
    pub fn is_alive(&self) -> bool {
        Process::now(self.pid).is_some_and(|now| now.start == self.start) && is_alive(self.pid)
    }

    /// The letter of its state: `S` sleeps, `T` is stopped, `Z` is a zombie.
    pub fn state(&self) -> Option<char> {
        self.stat().map(|stat| stat.state)
    }

    /// The CPU time it has used, in clock ticks: hundredths of a second.
    pub fn cpu_ticks(&self) -> Option<u64> {
        self.stat().map(|stat| stat.cpu)
    }

    fn stat(&self) -> Option<Stat> {
        stat(Path::new(&format!("/proc/{}", self.pid))).filter(|now| now.start == self.start)
    }

    /// Its parent now.
    pub fn parent(&self) -> Option<Process> {
        Process::now(self.stat()?.parent)
    }

    /// Its children now, those of all its threads.
    pub fn children(&self) -> Vec<Process> {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return Vec::new() };
        tasks
            .flatten()
            .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
            .flat_map(|pids| pids.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<u32>>())
            .filter_map(Process::now)
            .collect()
    }
}

/// Finds what carries one test's token, and ends what is left of it when dropped.
#[derive(Debug)]
pub struct Oracle {
    token: String,
    digits: String,
}

impl Default for Oracle {
    fn default() -> Self {
        Self::new()
    }
}

impl Oracle {
    /// A new token, not shared with any other test.
    pub fn new() -> Oracle {
        let mut bytes = [0; 8];
        fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes)).expect("/dev/urandom");
        let number = u64::from_ne_bytes(bytes);
        Oracle { token: format!("qt{number:016x}"), digits: format!("{number:020}") }
    }

    /// The token, for actors and for the names of files and directories.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// A number of seconds for `sleep` that carries the token: 50 and a bit.
    pub fn nap(&self) -> String {
        format!("50.{}", self.digits)
    }

    /// Everything alive that carries the token, quell's own processes included.
    pub fn survivors(&self) -> Vec<Process> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(|pid| self.claim(pid))
            .collect()
    }

    /// Waits until nothing carries the token, or gives what does when the time is up.
    pub fn survivors_after(&self, patience: Duration) -> Vec<Process> {
        let deadline = Instant::now() + patience;
        loop {
            let left = self.survivors();
            if left.is_empty() || Instant::now() >= deadline {
                return left;
            }
            // The kernel tells only a parent about a death, and these are not our children.
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills what is left, so that a failed test leaves nothing either. Some shapes refill while they
    /// are being killed: this gives up at last, for they end by themselves.
    pub fn end_survivors(&self) {
        for _ in 0..50 {
            let left = self.survivors();
            if left.is_empty() {
                return;
            }
            for process in left {
                process.signal("KILL");
            }
        }
    }

    /// The process if it is alive and carries the token. A leader that has exited has no command
    /// line any more, so each living thread is asked.
    fn claim(&self, pid: u32) -> Option<Process> {
        let start = stat(Path::new(&format!("/proc/{pid}")))?.start;
        living_threads(pid).into_iter().find_map(|thread| {
            let command = command_line(&thread);
            let environment = fs::read(thread.join("environ")).unwrap_or_default();
            (self.is_in(command.as_bytes()) || self.is_in(&environment)).then_some(Process {
                pid,
                start,
                command,
            })
        })
    }

    fn is_in(&self, text: &[u8]) -> bool {
        [&self.token, &self.digits].iter().any(|t| text.windows(t.len()).any(|w| w == t.as_bytes()))
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        self.end_survivors();
    }
}

/// Whether the pid has any thread that runs, sleeps or is stopped.
pub fn is_alive(pid: u32) -> bool {
    !living_threads(pid).is_empty()
}

fn living_threads(pid: u32) -> Vec<std::path::PathBuf> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks
        .flatten()
        .map(|task| task.path())
        .filter(|task| stat(task).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X')))
        .collect()
}

struct Stat {
    state: char,
    parent: u32,
    cpu: u64,
    start: u64,
}

fn stat(dir: &Path) -> Option<Stat> {
    let text = fs::read_to_string(dir.join("stat")).ok()?;
    // The name is in brackets and may itself hold brackets and spaces.
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: u32::try_from(number(1)?).ok()?,
        cpu: number(11)? + number(12)?,
        start: number(19)?,
    })
}

fn command_line(dir: &Path) -> String {
    let bytes = fs::read(dir.join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned()
}
