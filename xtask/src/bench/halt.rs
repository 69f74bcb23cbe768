//! How a run is broken off without leaving anything behind.
//!
//! The one that is called starts itself once more as the worker, in a group of its own, and hears the signals. The worker
//! blocks none, as the programs that it measures would inherit that, and learns of the end by the end of its input: also
//! when the first one was killed.

use std::io::stdin;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use quell_core::Signal;
use quell_sys::{PidFd, Polled, SignalFd, poll_until};

/// Says to this program that it is the worker.
const WORKER: &str = "QUELL_BENCH_WORKER";

/// Whether this is the worker.
pub fn is_worker() -> bool {
    std::env::var_os(WORKER).is_some()
}

/// Whether the worker is to end.
pub fn asked() -> bool {
    poll_until(&[Polled::Read(stdin().as_fd())], Some(Instant::now())).is_ok_and(|ready| ready[0])
}

/// Starts the worker with the same words and waits for its end; a signal asks it to end.
pub fn lead() -> Result<ExitCode, String> {
    let failed = |why: std::io::Error| format!("worker: {why}");
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).env(WORKER, "1").stdin(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    let mut line = child.stdin.take();
    let signals = SignalFd::new(&[Signal::INT, Signal::TERM, Signal::HUP]).map_err(failed)?;
    let pin = PidFd::open(child.id()).map_err(failed)?;
    while pin.is_alive() {
        poll_until(&[Polled::Read(signals.as_fd()), Polled::Read(pin.as_fd())], None).map_err(failed)?;
        if signals.next().is_some() && line.take().is_some() {
            eprintln!("ending what was started");
        }
    }
    let status = child.wait().map_err(failed)?;
    Ok(status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)))
}
