//! The state of the screen, and how messages change it. It does no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use quell::{JobId, JobState, Signal, Timestamp, Vitals, attention, attention_order};
use ratatui::crossterm::event::Event;

use crate::Closed;
use crate::page::{Page, PageMessage};
use crate::row::JobRow;
use crate::stops::{Question, StopMessage, StopWanted, Stops};

/// How long the order of the rows stays after a key: rows that move under the selection are stopped by mistake.
pub(crate) const HOLD: Duration = Duration::from_secs(3);

/// What the screen is told.
#[derive(Debug)]
pub(crate) enum ScreenMessage {
    /// Keys, the size of the terminal, its focus.
    Input(Event),
    /// The terminal can't be read any more.
    NoInput,
    /// A signal has arrived.
    Signal(Signal),
    /// The jobs as they are now, and the limits of what needs attention.
    Jobs(Vec<JobRow>, quell::AttentionRules),
    /// What live jobs use.
    Vitals(BTreeMap<JobId, Vitals>),
    /// Something could not be read.
    Problem(String),
    /// About the page of a job.
    Page(JobId, PageMessage),
    /// About a stop.
    Stop(JobId, StopMessage),
}

/// What is to be done outside.
#[derive(Debug, PartialEq)]
pub(crate) enum ScreenEffect {
    Leave(Closed),
    Suspend,
    Work(Work),
}

/// What the workers do.
#[derive(Debug, PartialEq)]
pub(crate) enum Work {
    Stop(JobId, StopWanted),
    OpenPage(JobId),
    ClosePage,
    Focus(bool),
}

/// The state of the screen.
pub(crate) struct App {
    /// All jobs, in the order in which they are shown.
    pub rows: Vec<JobRow>,
    pub selected: Option<JobId>,
    pub marked: BTreeSet<JobId>,
    pub filter: String,
    /// Whether the filter is being typed.
    pub is_filtering: bool,
    pub page: Option<Page>,
    pub question: Option<Question>,
    pub stops: Stops,
    pub is_help: bool,
    pub problem: Option<String>,
    /// Whether the jobs have been read.
    pub is_read: bool,
    pub now: Timestamp,
    /// How many rows fit on the screen: set when it is drawn.
    pub room: usize,
    rules: quell::AttentionRules,
    touched: Option<Instant>,
}

impl App {
    pub fn new() -> Self {
        Self {
            rows: Vec::new(),
            selected: None,
            marked: BTreeSet::new(),
            filter: String::new(),
            is_filtering: false,
            page: None,
            question: None,
            stops: Stops::default(),
            is_help: false,
            problem: None,
            is_read: false,
            now: quell::binary::now(),
            room: 10,
            rules: quell::AttentionRules::default(),
            touched: None,
        }
    }

    /// Takes a message. Returns what is to be done.
    pub fn update(&mut self, message: ScreenMessage, at: Instant) -> Vec<ScreenEffect> {
        self.now = quell::binary::now();
        match message {
            ScreenMessage::Input(Event::Key(key)) => {
                self.touched = Some(at);
                return self.on_key(key, at);
            }
            ScreenMessage::Input(Event::FocusGained) => return vec![ScreenEffect::Work(Work::Focus(true))],
            ScreenMessage::Input(Event::FocusLost) => return vec![ScreenEffect::Work(Work::Focus(false))],
            // A new size: the next frame has it.
            ScreenMessage::Input(_) => {}
            ScreenMessage::NoInput => return vec![ScreenEffect::Leave(Closed::BySignal(Signal::HUP))],
            ScreenMessage::Signal(Signal::TSTP) => return vec![ScreenEffect::Suspend],
            ScreenMessage::Signal(signal) => return vec![ScreenEffect::Leave(Closed::BySignal(signal))],
            ScreenMessage::Jobs(rows, rules) => {
                self.rules = rules;
                self.set_rows(rows, at);
            }
            ScreenMessage::Vitals(vitals) => {
                for row in &mut self.rows {
                    row.vitals = vitals.get(&row.view.id).cloned();
                }
                self.update_attention();
                self.sort(at);
            }
            ScreenMessage::Problem(problem) => self.problem = Some(problem),
            ScreenMessage::Page(id, message) => {
                if let Some(page) = self.page.as_mut().filter(|page| page.id == id) {
                    page.update(message);
                }
            }
            ScreenMessage::Stop(id, message) => {
                let name = self.row(id).map_or_else(|| id.to_string(), JobRow::name);
                self.stops.update(id, &name, message);
            }
        }
        Vec::new()
    }

    fn set_rows(&mut self, mut rows: Vec<JobRow>, at: Instant) {
        let shown: Vec<JobId> = self.visible().map(|row| row.view.id).collect();
        for row in &mut rows {
            row.vitals = self.row(row.view.id).and_then(|old| old.vitals.clone()).filter(|_| !row.is_over());
        }
        // In the old order; new ones at the end.
        let place = |id| self.rows.iter().position(|old| old.view.id == id).unwrap_or(usize::MAX);
        rows.sort_by_key(|row| place(row.view.id));
        (self.rows, self.is_read, self.problem) = (rows, true, None);
        self.update_attention();
        self.sort(at);
        let exists: BTreeSet<JobId> = self.rows.iter().map(|row| row.view.id).collect();
        self.marked.retain(|id| exists.contains(id));
        if self.selected.is_none_or(|id| !exists.contains(&id)) {
            // The row that has come to its place.
            let old = self.selected.and_then(|id| shown.iter().position(|shown| *shown == id)).unwrap_or(0);
            let now: Vec<JobId> = self.visible().map(|row| row.view.id).collect();
            self.selected = now.get(old).or(now.last()).copied();
        }
    }

    /// Decides again what needs attention.
    fn update_attention(&mut self) {
        for row in &mut self.rows {
            row.attention = attention(&row.view, row.vitals.as_ref(), &row.facts, &self.rules, self.now);
        }
    }

    /// Sorts the rows, unless the user has just pressed a key, is asked something, or has marked some.
    fn sort(&mut self, at: Instant) {
        if !self.is_held(at) {
            self.rows.sort_by_cached_key(|row| attention_order(&row.view, row.attention.as_ref()));
        }
    }

    fn is_held(&self, at: Instant) -> bool {
        let is_touched = self.touched.is_some_and(|touched| at.saturating_duration_since(touched) < HOLD);
        is_touched || self.question.is_some() || !self.marked.is_empty()
    }

    pub fn row(&self, id: JobId) -> Option<&JobRow> {
        self.rows.iter().find(|row| row.view.id == id)
    }

    /// The rows that the filter leaves.
    pub fn visible(&self) -> impl Iterator<Item = &JobRow> {
        self.rows.iter().filter(|row| row.matches(&self.filter))
    }

    /// Jobs that have not ended, their processes, and jobs that need attention.
    pub fn counts(&self) -> (usize, u64, usize) {
        let live = self.rows.iter().filter(|row| row.view.state != JobState::Ended);
        let processes = self.rows.iter().filter_map(|row| row.vitals.as_ref()?.processes).sum();
        (live.count(), processes, self.rows.iter().filter(|row| row.attention.is_some()).count())
    }

    /// Moves the selection by this many rows.
    pub fn select(&mut self, by: isize) {
        let ids: Vec<JobId> = self.visible().map(|row| row.view.id).collect();
        let at = self.selected.and_then(|id| ids.iter().position(|other| *other == id)).unwrap_or(0);
        let to = at.saturating_add_signed(by).min(ids.len().saturating_sub(1));
        self.selected = ids.get(to).copied();
    }

    /// The jobs that a stop is about: the open page, else the marked ones, else the selected one. None that is over.
    pub fn targets(&self) -> Vec<JobId> {
        let ids: Vec<JobId> = match &self.page {
            Some(page) => vec![page.id],
            None if !self.marked.is_empty() => {
                self.rows.iter().map(|row| row.view.id).filter(|id| self.marked.contains(id)).collect()
            }
            None => self.selected.into_iter().collect(),
        };
        ids.into_iter().filter(|id| self.row(*id).is_some_and(|row| !row.is_over())).collect()
    }
}
