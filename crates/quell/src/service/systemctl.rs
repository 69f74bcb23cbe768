//! systemctl as a child: an argument vector, a bounded time, a bounded output.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quell_sys::{PidFd, Polled};

use crate::{Error, Result};

/// How much of each stream is kept.
const KEPT: usize = 64 * 1024;

/// What systemctl finds its manager by; nothing else of the caller's environment reaches it, for variables such as
/// SYSTEMD_OFFLINE or SYSTEMD_PAGER change what it does.
const PASSED_ON: [&str; 7] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "HOME",
    "LOGNAME",
    "PATH",
    "USER",
    "XDG_RUNTIME_DIR",
];

/// The program, and whose manager it is to speak to.
pub(super) struct Systemctl {
    program: PathBuf,
    /// Whether it is the user's own manager.
    pub user: bool,
}

/// What it said, and how it ended.
pub(super) struct Said {
    /// Its exit code; none if it was not done in time, or died of a signal.
    pub code: Option<i32>,
    pub timed_out: bool,
    pub stdout: Kept,
    pub stderr: Kept,
}

/// The beginning of a stream.
#[derive(Default)]
pub(super) struct Kept {
    bytes: Vec<u8>,
    /// How many bytes came after it.
    pub cut: u64,
}

impl Kept {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

impl Systemctl {
    /// The one on the PATH. A place that depends on the directory that we are in is not looked at.
    pub(super) fn find(user: bool) -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = std::env::split_paths(&path)
            .filter(|dir| dir.is_absolute())
            .map(|dir| dir.join("systemctl"))
            .find(|file| file.is_file() && quell_sys::may_execute(file));
        match program {
            Some(program) => Ok(Self { program, user }),
            None => Err(Error::NoSystemd { message: "there is no systemctl on the PATH".into(), user }),
        }
    }

    /// Runs it to its end, or until the time is over; then it is ended, but not what systemd does for it.
    pub(super) fn run(&self, words: &[&str], units: &[&str], patience: Duration) -> Result<Said> {
        // A time so long that no clock can show its end is as good as a year.
        let now = Instant::now();
        let deadline = now.checked_add(patience).unwrap_or(now + Duration::from_secs(365 * 24 * 3600));
        let failed = |error: io::Error| Error::Systemctl(format!("{}: {error}", self.program.display()));
        let mut child = self.command(words, units).spawn().map_err(failed)?;
        let listened = listen(&mut child, deadline);
        if !matches!(listened, Ok(Listened { ended: true, .. })) {
            // Our own child, not waited for yet: the number is its own.
            let _ = child.kill();
        }
        let status = child.wait().map_err(failed)?;
        let Listened { ended, stdout, stderr } = listened.map_err(failed)?;
        Ok(Said { code: status.code().filter(|_| ended), timed_out: !ended, stdout, stderr })
    }

    fn command(&self, words: &[&str], units: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(if self.user { "--user" } else { "--system" });
        command.args(["--no-ask-password", "--no-pager", "--full"]).args(words).arg("--").args(units);
        command.env_clear();
        command.envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.envs([
            ("LC_ALL", "C"),
            ("SYSTEMD_COLORS", "0"),
            ("SYSTEMD_URLIFY", "0"),
            ("SYSTEMD_PAGER", ""),
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

struct Listened {
    ended: bool,
    stdout: Kept,
    stderr: Kept,
}

/// Keeps what the child says until it has ended. What somebody else may still hold of its pipes is not waited for.
fn listen(child: &mut Child, deadline: Instant) -> io::Result<Listened> {
    let process = PidFd::open(child.id())?;
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let mut listened = Listened { ended: false, stdout: Kept::default(), stderr: Kept::default() };
    for fd in [out.as_ref().map(AsFd::as_fd), err.as_ref().map(AsFd::as_fd)].into_iter().flatten() {
        quell_sys::set_nonblocking(fd)?;
    }
    loop {
        let open = [out.as_ref().map(AsFd::as_fd), err.as_ref().map(AsFd::as_fd)];
        let fds: Vec<Polled<'_>> = open
            .into_iter()
            .flatten()
            .chain([process.as_fd()])
            .map(|fd: BorrowedFd<'_>| Polled::Read(fd))
            .collect();
        quell_sys::poll_until(&fds, Some(deadline))?;
        // Looked at before the pipes are read: what was said before the end is in them by now.
        listened.ended = !process.is_alive();
        let over = Instant::now() >= deadline;
        drain(&mut out, &mut listened.stdout)?;
        drain(&mut err, &mut listened.stderr)?;
        if listened.ended || over {
            return Ok(listened);
        }
    }
}

/// Takes what is there. At the end the pipe is let go of.
fn drain(pipe: &mut Option<impl Read>, kept: &mut Kept) -> io::Result<()> {
    let mut chunk = [0; 8192];
    // As much as a pipe holds, so that one who never stops talking doesn't keep us from looking at the clock.
    for _ in 0..16 {
        let Some(open) = pipe else { return Ok(()) };
        match open.read(&mut chunk) {
            Ok(0) => *pipe = None,
            Ok(count) => {
                let room = KEPT.saturating_sub(kept.bytes.len()).min(count);
                kept.bytes.extend_from_slice(&chunk[..room]);
                kept.cut += (count - room) as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
