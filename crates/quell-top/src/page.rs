//! The page of one job: facts, tree, output, and the receipt after the end.

use quell::binary::printable;
use quell::{JobId, LiveMember, Receipt};
use ratatui::text::Line;

use crate::sgr;

/// How many lines of output are kept. Older ones are on disk.
pub(crate) const LINES: usize = 2000;

/// What a worker says about the job of the page.
#[derive(Debug)]
pub(crate) enum PageMessage {
    /// More output: each text is a line.
    Output(Vec<String>),
    /// Why there is no output to show.
    NoOutput(String),
    /// Its living processes.
    Members(Vec<LiveMember>),
    /// Its end.
    Receipt(Box<Receipt>),
}

/// The page of a job.
#[derive(Debug)]
pub(crate) struct Page {
    pub id: JobId,
    pub output: Vec<Line<'static>>,
    pub no_output: Option<String>,
    pub members: Vec<LiveMember>,
    pub receipt: Option<Box<Receipt>>,
    /// Whether the end of the output stays in view.
    pub is_following: bool,
    /// The first line in view, if the end is not followed.
    pub top: usize,
    /// How many lines are in view: set when it is drawn.
    pub room: usize,
}

impl Page {
    pub fn new(id: JobId) -> Self {
        Self {
            id,
            output: Vec::new(),
            no_output: None,
            members: Vec::new(),
            receipt: None,
            is_following: true,
            top: 0,
            room: 1,
        }
    }

    pub fn update(&mut self, message: PageMessage) {
        match message {
            PageMessage::Output(lines) => {
                self.output.extend(lines.iter().map(|text| sgr::line(text)));
                let over = self.output.len().saturating_sub(LINES);
                self.output.drain(..over);
                self.top = self.top.saturating_sub(over);
            }
            PageMessage::NoOutput(why) => self.no_output = Some(printable(&why)),
            PageMessage::Members(members) => self.members = members,
            PageMessage::Receipt(receipt) => {
                self.members.clear();
                self.receipt = Some(receipt);
            }
        }
    }

    fn last_top(&self) -> usize {
        self.output.len().saturating_sub(self.room)
    }

    /// The first line in view.
    pub fn first(&self) -> usize {
        if self.is_following { self.last_top() } else { self.top.min(self.last_top()) }
    }

    /// Scrolls by this many lines. Scrolling up ends the following, and to scroll to the end begins it.
    pub fn scroll(&mut self, by: isize) {
        self.top = self.first().saturating_add_signed(by).min(self.last_top());
        self.is_following = by > 0 && self.top == self.last_top();
    }
}
