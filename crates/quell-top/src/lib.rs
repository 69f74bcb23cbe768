//! `quell top`: all jobs of a user, live in a terminal.
//!
//! ```text
//! input, signals ─┐                             ┌─ draw    what is on the screen, from `App` alone
//! watch (inotify) ┼─ ScreenMessage ─▶ App ──────┤
//! vitals, page    │             (no I/O)        └─ ScreenEffect ─▶ Workers: threads for stops, pages, vitals
//! stops ──────────┘
//! ```
//!
//! The thread of the screen never waits for a keeper: everything that can block has a thread of its own. Without a message nothing
//! runs, and at most ten frames a second are drawn. Output of jobs reaches the terminal through `sgr` only.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod app;
mod draw;
mod keys;
mod page;
mod row;
mod screen;
mod sgr;
mod stops;
#[cfg(test)]
mod tests;
mod work;

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use quell::{AttentionRules, Quell, Signal};

pub use row::JobRow;

use app::{App, ScreenEffect};
use screen::Screen;
use work::Workers;

/// The shortest time between two frames.
const FRAME: Duration = Duration::from_millis(100);

/// Why `run` has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The user has left it.
    ByUser,
    /// This signal has arrived.
    BySignal(Signal),
}

/// Whether the screen can be shown: standard input and output are a terminal that can do more than print lines.
pub fn has_screen() -> bool {
    let is_dumb = std::env::var("TERM").map_or(true, |term| term.is_empty() || term == "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb
}

/// The rows as they are now, for a table. The rates of the CPU are over this call, which takes a quarter of a second if a job lives.
pub fn rows(quell: &Quell, rules: &AttentionRules) -> quell::Result<Vec<JobRow>> {
    work::rows_once(quell, rules)
}

/// Shows the screen until the user leaves it or a signal arrives. The terminal is as before when it returns, and also if it panics.
///
/// Before: this process has one thread. After: its threads may still finish stops that the user has asked for; the keepers do so
/// without them too.
pub fn run(quell: &Quell, rules: AttentionRules) -> io::Result<Closed> {
    let (send, messages) = mpsc::channel();
    let mut workers = Workers::start(quell, rules, send)?;
    let mut screen = Screen::enter()?;
    let mut app = App::new();
    let (mut is_changed, mut drawn) = (true, None::<Instant>);
    loop {
        let left = drawn.map_or(Duration::ZERO, |drawn| FRAME.saturating_sub(drawn.elapsed()));
        if is_changed && left.is_zero() {
            screen.draw(&mut app)?;
            (is_changed, drawn) = (false, Some(Instant::now()));
        }
        let message = match is_changed {
            true => messages.recv_timeout(left),
            false => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let effects = match message {
            Ok(message) => app.update(message, Instant::now()),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => vec![ScreenEffect::Leave(Closed::ByUser)],
        };
        is_changed = true;
        for effect in effects {
            match effect {
                ScreenEffect::Leave(left) => {
                    drop(screen);
                    return Ok(left);
                }
                ScreenEffect::Suspend => screen.suspend()?,
                ScreenEffect::Work(work) => workers.carry_out(work),
            }
        }
    }
}
