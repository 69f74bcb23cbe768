//! What each key does.

use std::time::Instant;

use quell::Signal;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::Closed;
use crate::app::{App, ScreenEffect, Work};
use crate::page::Page;
use crate::stops::{Question, StopWanted};

/// The keys of the table, for `?`.
pub(crate) const FLEET_KEYS: [(&str, &str); 10] = [
    ("j k, arrows", "next, previous job"),
    ("g G, PgUp PgDn", "first, last; a page up, down"),
    ("Enter", "open the job"),
    ("/", "filter by name, command, label, state"),
    ("Space", "mark, for a stop of several"),
    ("x", "stop; again while it stops: kill now?"),
    ("Esc", "clear filter, then marks"),
    ("?", "these keys"),
    ("q", "leave; jobs are not touched"),
    ("Ctrl-Z", "suspend"),
];

/// The keys of a job, for `?`.
pub(crate) const PAGE_KEYS: [(&str, &str); 7] = [
    ("j k, arrows", "scroll the log"),
    ("g G, PgUp PgDn", "first, last line; a page up, down"),
    ("f", "follow the log, or not"),
    ("x", "stop; again while it stops: kill now?"),
    ("Esc", "back to the table"),
    ("?", "these keys"),
    ("q", "leave; jobs are not touched"),
];

impl App {
    pub(crate) fn on_key(&mut self, key: KeyEvent, at: Instant) -> Vec<ScreenEffect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => vec![ScreenEffect::Leave(Closed::ByUser)],
                KeyCode::Char('z') => vec![ScreenEffect::Suspend],
                _ => Vec::new(),
            };
        }
        if self.question.is_some() {
            return self.on_answer(key.code);
        }
        if self.is_filtering {
            self.on_filter(key.code);
            return Vec::new();
        }
        if self.is_help {
            self.is_help = false;
            return Vec::new();
        }
        match key.code {
            KeyCode::Char('q') => return vec![ScreenEffect::Leave(Closed::ByUser)],
            KeyCode::Char('?') => self.is_help = true,
            KeyCode::Char('x') => self.ask_for_stop(at),
            code if self.page.is_some() => return self.on_page_key(code),
            code => return self.on_fleet_key(code),
        }
        Vec::new()
    }

    fn on_fleet_key(&mut self, code: KeyCode) -> Vec<ScreenEffect> {
        let page = isize::try_from(self.room.max(1)).unwrap_or(isize::MAX);
        match code {
            KeyCode::Char('j') | KeyCode::Down => self.select(1),
            KeyCode::Char('k') | KeyCode::Up => self.select(-1),
            KeyCode::Char('g') | KeyCode::Home => self.select(isize::MIN),
            KeyCode::Char('G') | KeyCode::End => self.select(isize::MAX),
            KeyCode::PageDown => self.select(page),
            KeyCode::PageUp => self.select(-page),
            KeyCode::Char('/') => self.is_filtering = true,
            KeyCode::Char(' ') => {
                if let Some(id) = self.selected
                    && !self.marked.remove(&id)
                {
                    self.marked.insert(id);
                }
                self.select(1);
            }
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc => self.marked.clear(),
            KeyCode::Enter | KeyCode::Char('l') => {
                if let Some(id) = self.selected {
                    self.page = Some(Page::new(id));
                    return vec![ScreenEffect::Work(Work::OpenPage(id))];
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn on_page_key(&mut self, code: KeyCode) -> Vec<ScreenEffect> {
        let Some(page) = &mut self.page else { return Vec::new() };
        let all = isize::try_from(self.room.max(1)).unwrap_or(isize::MAX);
        match code {
            KeyCode::Char('j') | KeyCode::Down => page.scroll(1),
            KeyCode::Char('k') | KeyCode::Up => page.scroll(-1),
            KeyCode::PageDown => page.scroll(all),
            KeyCode::PageUp => page.scroll(-all),
            KeyCode::Char('g') | KeyCode::Home => page.scroll(isize::MIN),
            KeyCode::Char('G') | KeyCode::End => page.scroll(isize::MAX),
            KeyCode::Char('f') => page.is_following = !page.is_following,
            KeyCode::Esc | KeyCode::Backspace => {
                self.page = None;
                return vec![ScreenEffect::Work(Work::ClosePage)];
            }
            _ => {}
        }
        Vec::new()
    }

    fn on_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_filtering = false,
            KeyCode::Esc => {
                self.is_filtering = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
        // A job that the filter hides is not selected: a stop would be about what is not shown.
        if !self.visible().any(|row| Some(row.view.id) == self.selected) {
            let first = self.visible().next().map(|row| row.view.id);
            self.selected = first;
        }
    }

    /// Opens the question. Its targets stay as they are now, whatever happens to the table.
    fn ask_for_stop(&mut self, _at: Instant) {
        let targets = self.targets();
        if targets.is_empty() {
            self.stops.notes.push("nothing to stop: it has ended".into());
            return;
        }
        let rows = targets.iter().filter_map(|id| self.row(*id));
        let named = rows.map(|row| {
            let processes = row.vitals.as_ref().and_then(|vitals| vitals.processes);
            let is_stopping =
                row.view.state == quell::JobState::Stopping || self.stops.is_under_way(row.view.id);
            (row.view.id, row.name(), processes, is_stopping)
        });
        self.question = Some(Question::new(named));
    }

    fn on_answer(&mut self, code: KeyCode) -> Vec<ScreenEffect> {
        let Some(question) = &self.question else { return Vec::new() };
        let is_yes = match code {
            KeyCode::Char('y' | 'Y') => true,
            KeyCode::Enter => question.default_is_yes(),
            KeyCode::Esc | KeyCode::Char('n' | 'N' | 'q') => false,
            // Any other key answers nothing.
            _ => return Vec::new(),
        };
        let Some(question) = self.question.take().filter(|_| is_yes) else { return Vec::new() };
        self.marked.clear();
        let wanted = if question.is_kill { StopWanted::Kill } else { StopWanted::Stop };
        self.stops.begin(&question);
        question.targets.iter().map(|id| ScreenEffect::Work(Work::Stop(*id, wanted))).collect()
    }
}

/// The signals that end the screen or suspend it.
pub(crate) const SIGNALS: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::TSTP];
