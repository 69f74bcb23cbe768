//! Runs systemctl with an argument vector, a time limit and an output limit.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quell_sys::{PidFd, Polled};

use crate::{Error, Result};

/// How many bytes of each stream are kept.
const KEPT: usize = 64 * 1024;

/// The system's own. The caller's PATH could name any program.
const PROGRAMS: [&str; 2] = ["/usr/bin/systemctl", "/bin/systemctl"];

/// The variables that systemctl needs to find its manager. It gets no others: variables such as SYSTEMD_OFFLINE or
/// SYSTEMD_PAGER change what it does.
const PASSED_ON: [&str; 5] = [BUS, "HOME", "LOGNAME", "USER", "XDG_RUNTIME_DIR"];

/// The address of the user's bus.
const BUS: &str = "DBUS_SESSION_BUS_ADDRESS";

/// Whether a variable may be passed on. The address of a bus can name a program to execute (`unixexec:`), so only sockets are
/// allowed.
fn is_harmless(name: &str, value: &OsStr) -> bool {
    let is_socket = |address: &str| address.starts_with("unix:");
    name != BUS || value.to_str().is_some_and(|value| value.split(';').all(is_socket))
}

/// The program, and which manager it asks.
pub(super) struct Systemctl {
    program: &'static Path,
    /// Whether to ask the user's own manager.
    pub user: bool,
}

/// The output and the exit code.
#[derive(Default)]
pub(super) struct SystemctlOutput {
    /// None if the time was up first, or a signal killed it.
    pub code: Option<i32>,
    pub timed_out: bool,
    pub stdout: Captured,
    pub stderr: Captured,
}

/// The first bytes of a stream.
#[derive(Default)]
pub(super) struct Captured {
    bytes: Vec<u8>,
    /// How many more bytes there were.
    pub cut: u64,
}

impl Captured {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

impl Systemctl {
    pub(super) fn find(user: bool) -> Result<Self> {
        let program =
            PROGRAMS.map(Path::new).into_iter().find(|file| file.is_file() && quell_sys::may_execute(file));
        match program {
            Some(program) => Ok(Self { program, user }),
            None => {
                let message = format!("neither {} nor {} exists", PROGRAMS[0], PROGRAMS[1]);
                Err(Error::NoSystemd { message, user })
            }
        }
    }

    /// Runs it until it exits or the time is up. Then it is killed, but systemd goes on.
    pub(super) fn run(&self, words: &[&str], units: &[&str], patience: Duration) -> Result<SystemctlOutput> {
        // A time that is too long for the clock becomes a year.
        let now = Instant::now();
        let deadline = now.checked_add(patience).unwrap_or(now + Duration::from_secs(365 * 24 * 3600));
        let failed = |error: io::Error| Error::Systemctl(format!("{}: {error}", self.program.display()));
        let mut child = self.command(words, units).spawn().map_err(failed)?;
        let output = listen(&mut child, deadline);
        if !matches!(output, Ok(SystemctlOutput { timed_out: false, .. })) {
            // Our own child, not reaped yet: it still has this PID.
            let _ = child.kill();
        }
        let status = child.wait().map_err(failed)?;
        let output = output.map_err(failed)?;
        Ok(SystemctlOutput { code: status.code().filter(|_| !output.timed_out), ..output })
    }

    fn command(&self, words: &[&str], units: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.arg(if self.user { "--user" } else { "--system" });
        command.args(["--no-ask-password", "--no-pager", "--full"]).args(words).arg("--").args(units);
        command.env_clear();
        let given = PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.envs(given.filter(|(name, value)| is_harmless(name, value)));
        command.envs([
            ("PATH", "/usr/bin:/bin"),
            ("LC_ALL", "C"),
            ("SYSTEMD_COLORS", "0"),
            ("SYSTEMD_URLIFY", "0"),
            ("SYSTEMD_PAGER", ""),
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Reads the output until the child exits. The exit code is not known yet. Another process that still has its pipes open is not waited for.
fn listen(child: &mut Child, deadline: Instant) -> io::Result<SystemctlOutput> {
    let process = PidFd::open(child.id())?;
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let mut output = SystemctlOutput::default();
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
        // Checked before the pipes are read: then they have all of the output.
        output.timed_out = process.is_alive();
        let over = Instant::now() >= deadline;
        drain(&mut out, &mut output.stdout)?;
        drain(&mut err, &mut output.stderr)?;
        if !output.timed_out || over {
            return Ok(output);
        }
    }
}

/// Reads what is there. At its end the pipe is dropped.
fn drain(pipe: &mut Option<impl Read>, kept: &mut Captured) -> io::Result<()> {
    let mut chunk = [0; 8192];
    // As much as a pipe holds: endless output must not keep us from checking the time.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_bus_names_no_program() {
        for (address, harmless) in [
            ("unix:path=/run/user/1000/bus", true),
            ("unix:abstract=/tmp/x,guid=1;unix:path=/run/bus", true),
            ("unixexec:path=/tmp/x", false),
            ("unix:path=/run/bus;unixexec:path=/tmp/x", false),
            ("autolaunch:", false),
            ("", false),
        ] {
            assert_eq!(is_harmless(BUS, OsStr::new(address)), harmless, "{address}");
        }
        assert!(is_harmless("HOME", OsStr::new("/home/u")));
    }
}
