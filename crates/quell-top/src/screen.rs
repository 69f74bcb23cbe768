//! The terminal: entered, left, and left also when this process panics.

use std::io::{self, Stdout, stdout};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{DisableFocusChange, EnableFocusChange};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use crate::app::App;
use crate::draw;

/// The terminal while the screen is shown. Dropping it restores the terminal.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    pub fn enter() -> io::Result<Self> {
        let before = std::panic::take_hook();
        // With `panic = "abort"` the hook is the last that runs.
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            before(panic);
        }));
        show()?;
        match Terminal::new(CrosstermBackend::new(stdout())) {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                leave();
                Err(error)
            }
        }
    }

    pub fn draw(&mut self, app: &mut App) -> io::Result<()> {
        self.terminal.draw(|frame| draw::draw(frame, app)).map(drop)
    }

    /// Gives the terminal back to the shell and stops this process, until it is continued.
    pub fn suspend(&mut self) -> io::Result<()> {
        leave();
        quell::binary::stop_self();
        show()?;
        // Not `clear`, which asks the terminal for its cursor: the answer would come to the thread that reads keys.
        self.terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// The mouse stays with the terminal, so that text can be selected.
fn show() -> io::Result<()> {
    enable_raw_mode()?;
    let shown = execute!(stdout(), EnterAlternateScreen, EnableFocusChange);
    if shown.is_err() {
        leave();
    }
    shown
}

/// Ignores errors: a terminal that is gone needs nothing.
fn leave() {
    let _ = execute!(stdout(), DisableFocusChange, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}
