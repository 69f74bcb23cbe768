//! What a person sees on a terminal while a command takes long: one line on stderr, painted over each second, gone at the
//! end. Nothing of it reaches a pipe or a program.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A shorter wait shows no line.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Shared {
    over: bool,
    /// Whether the line is on the terminal.
    shown: bool,
}

impl Shared {
    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

/// A line that lasts as long as this value.
pub struct Progress(Option<Arc<(Mutex<Shared>, Condvar)>>);

impl Progress {
    /// Shows `line`, which is given the time that has passed, if stderr is a terminal and `wanted`.
    pub fn show(wanted: bool, line: impl Fn(Duration) -> String + Send + 'static) -> Self {
        let is_smart = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        if !wanted || !is_smart || !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let shared: Arc<(Mutex<Shared>, Condvar)> = Arc::default();
        let (theirs, began) = (shared.clone(), Instant::now());
        let paint = move || {
            let (state, bell) = &*theirs;
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            while !state.over {
                let waited = bell.wait_timeout(state, PATIENCE);
                let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                state = next;
                if timeout.timed_out() && !state.over {
                    let columns = crate::render::columns_of(&std::io::stderr()).unwrap_or(80);
                    let text =
                        crate::render::cut(&quell::binary::printable(&line(began.elapsed())), columns - 1);
                    let _ = std::io::stderr().write_all(format!("\r\x1b[K{text}").as_bytes());
                    state.shown = true;
                }
            }
        };
        // If no thread can be started, no line is shown.
        Self(quell::binary::thread().spawn(paint).ok().map(|_| shared))
    }

    /// Does something that writes to the terminal, without the line in its way.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        let Some(shared) = &self.0 else { return write() };
        let mut state = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.clear();
        write()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            let mut state = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.over = true;
            state.clear();
            shared.1.notify_all();
        }
    }
}
