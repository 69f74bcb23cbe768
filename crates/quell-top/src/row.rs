//! One job as a line of the table.

use std::time::Duration;

use quell::binary::printable;
use quell::{Attention, AttentionFacts, JobState, JobView, StateWords, Timestamp, Vitals};

use crate::sgr;

/// A job with everything that its line shows.
#[derive(Clone, Debug)]
pub struct JobRow {
    /// The job.
    pub view: JobView,
    /// The beginning of its id, as `quell list` shows it.
    pub short_id: String,
    /// What it uses, if it lives.
    pub vitals: Option<Vitals>,
    /// What its view does not say.
    pub facts: AttentionFacts,
    /// Whether it needs attention, and why.
    pub attention: Option<Attention>,
}

impl JobRow {
    /// Its name, or the beginning of its id.
    pub fn name(&self) -> String {
        self.view.name.as_deref().map_or_else(|| self.short_id.clone(), printable)
    }

    /// The state of its root in words, with what is left of the grace of a stop.
    pub fn state(&self, now: Timestamp) -> String {
        let words = StateWords::of(&self.view).words;
        match self.facts.stop {
            Some(stop) if self.view.state == JobState::Stopping && stop.killing => format!("{words}: KILL"),
            Some(stop) if self.view.state == JobState::Stopping => {
                let left = stop.deadline.unix_ms().saturating_sub(now.unix_ms()).max(0);
                format!("{words} {} s", (left + 999) / 1000)
            }
            _ => words,
        }
    }

    /// The number of its living processes; a dash if that is not known, and 0 only if it was proven.
    pub fn processes(&self) -> String {
        match (&self.vitals, self.view.state) {
            (Some(Vitals { processes: Some(count), .. }), _) => count.to_string(),
            (_, JobState::Ended) if self.view.verdict == Some(quell::Verdict::Gone) => "0".into(),
            _ => "-".into(),
        }
    }

    /// The cores that it uses, in percent of one.
    pub fn cpu(&self) -> String {
        let cpu = self.vitals.as_ref().and_then(|vitals| vitals.cpu);
        cpu.map_or_else(|| "-".into(), |cores| format!("{:.0}%", cores * 100.0))
    }

    /// Its memory.
    pub fn memory(&self) -> String {
        self.vitals.as_ref().and_then(|vitals| vitals.memory).map_or_else(|| "-".into(), bytes)
    }

    /// How long it has run, or how long ago it ended.
    pub fn age(&self, now: Timestamp) -> String {
        let from = self.view.ended.or(self.view.started).unwrap_or(self.view.created);
        let age =
            short(Duration::from_millis(now.unix_ms().saturating_sub(from.unix_ms()).max(0).unsigned_abs()));
        if self.view.state == JobState::Ended { format!("-{age}") } else { age }
    }

    /// The age of its last output.
    pub fn output_age(&self) -> String {
        let age = self.vitals.as_ref().and_then(|vitals| vitals.output_age);
        age.map_or_else(|| "-".into(), |age| short(Duration::from_secs_f64(age.max(0.0))))
    }

    /// Why it needs attention; else the last line of its output; else its command.
    pub fn note(&self) -> String {
        if let Some(attention) = &self.attention {
            return printable(&attention.reason);
        }
        let line = self.vitals.as_ref().and_then(|vitals| vitals.last_line.as_deref());
        line.map(sgr::plain).filter(|line| !line.trim().is_empty()).unwrap_or_else(|| self.command())
    }

    /// Its command in one line.
    pub fn command(&self) -> String {
        printable(&self.view.command.join(" "))
    }

    /// Whether a stop can do anything about it.
    pub fn is_over(&self) -> bool {
        self.view.state == JobState::Ended && !self.view.is_not_proven_dead()
    }

    /// Whether the text is in its name, its command, its labels, its session or its state, or begins its id.
    pub fn matches(&self, filter: &str) -> bool {
        let filter = filter.to_lowercase();
        let tags = self.view.tags.iter().map(|(key, value)| format!("{key}={value}"));
        let words = [self.name(), self.command(), StateWords::of(&self.view).words].into_iter();
        let is_in = |word: String| word.to_lowercase().contains(&filter);
        words.chain(tags).chain(self.view.session.clone()).any(is_in)
            || self.view.id.to_string().to_lowercase().starts_with(&filter)
    }
}

/// A size in at most four digits and a unit.
pub(crate) fn bytes(size: u64) -> String {
    let (mut size, mut units) = (size as f64, ["B", "K", "M", "G", "T"].iter());
    let mut unit = units.next().copied().unwrap_or_default();
    while size >= 1000.0
        && let Some(larger) = units.next()
    {
        (size, unit) = (size / 1024.0, larger);
    }
    if size < 10.0 && unit != "B" { format!("{size:.1}{unit}") } else { format!("{size:.0}{unit}") }
}

/// A span of time in at most four characters.
pub(crate) fn short(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..100 => format!("{seconds}s"),
        seconds @ 100..6000 => format!("{}m", seconds / 60),
        seconds @ 6000..360_000 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}
