//! Stops that the user asks for: the question before, and what came of them.

use std::collections::BTreeSet;

use quell::JobId;
use quell::binary::printable;

/// How many notes are kept; the last one is shown.
const NOTES: usize = 100;
/// How many names a question has.
const NAMED: usize = 3;

/// How a job is to be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopWanted {
    /// It is asked, and killed after its own grace.
    Stop,
    /// It is killed at once.
    Kill,
}

/// What a worker says about a stop.
#[derive(Debug)]
pub(crate) enum StopMessage {
    /// It is over: the first line of the account.
    Ended(String),
    /// It failed: the job is not proven dead, or the guard has refused.
    Failed(String),
}

/// The question before a stop. What it is about does not change while it is open.
#[derive(Debug, PartialEq)]
pub(crate) struct Question {
    pub targets: Vec<JobId>,
    pub text: String,
    /// Whether they are killed at once: they are being stopped already.
    pub is_kill: bool,
}

impl Question {
    /// About these jobs: id, name, number of processes, and whether each is being stopped.
    pub fn new(jobs: impl Iterator<Item = (JobId, String, Option<u64>, bool)>) -> Self {
        let jobs: Vec<_> = jobs.collect();
        let is_kill = jobs.iter().all(|(_, _, _, is_stopping)| *is_stopping);
        let processes: u64 = jobs.iter().filter_map(|(_, _, processes, _)| *processes).sum();
        let what = match jobs.as_slice() {
            [(_, name, _, _)] => name.clone(),
            several => {
                let names: Vec<&str> =
                    several.iter().take(NAMED).map(|(_, name, _, _)| name.as_str()).collect();
                let more = several.len().saturating_sub(NAMED);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("{} jobs: {}{more}", several.len(), names.join(", "))
            }
        };
        let count = format!("{processes} process{}", if processes == 1 { "" } else { "es" });
        let text = match is_kill {
            true => format!("Kill {what} now ({count})?"),
            false => format!("Stop {what} ({count})?"),
        };
        Self { targets: jobs.into_iter().map(|(id, ..)| id).collect(), text, is_kill }
    }

    /// A polite stop of one job is the only thing that Enter alone confirms.
    pub fn default_is_yes(&self) -> bool {
        self.targets.len() == 1 && !self.is_kill
    }
}

/// The stops that were asked for here.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    under_way: BTreeSet<JobId>,
    /// What came of them, in words.
    pub notes: Vec<String>,
}

impl Stops {
    pub fn is_under_way(&self, id: JobId) -> bool {
        self.under_way.contains(&id)
    }

    pub fn begin(&mut self, question: &Question) {
        self.under_way.extend(&question.targets);
        let what = if question.is_kill { "killing" } else { "asked to stop" };
        let count = question.targets.len();
        self.note(format!("{what}: {count} job{}", if count == 1 { "" } else { "s" }));
    }

    pub fn update(&mut self, id: JobId, name: &str, message: StopMessage) {
        self.under_way.remove(&id);
        self.note(match message {
            StopMessage::Ended(headline) => format!("{name}: {}", printable(&headline)),
            StopMessage::Failed(error) => format!("{name}: {}", printable(&error)),
        });
    }

    fn note(&mut self, note: String) {
        self.notes.push(note);
        let over = self.notes.len().saturating_sub(NOTES);
        self.notes.drain(..over);
    }
}
