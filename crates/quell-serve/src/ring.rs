//! The last events, numbered without gaps, so that a client that comes back gets what it has missed or hears that it can't.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use quell::JobId;

/// How many events are kept.
const MOST: usize = 10_000;
/// How many bytes of them.
const MOST_BYTES: usize = 4 << 20;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// The whole row of a job, after a change.
    Job,
    /// An event of a job.
    Event,
    /// All jobs of a session have ended.
    Session,
}

impl ItemKind {
    /// The word for it in a stream.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Event => "event",
            Self::Session => "session.stopped",
        }
    }
}

/// An event.
#[derive(Clone, Debug)]
pub struct Item {
    pub kind: ItemKind,
    /// The job; none for a session.
    pub job: Option<JobId>,
    /// Its JSON. None for a row that a later one has replaced.
    pub text: Option<Arc<str>>,
}

/// The last events.
#[derive(Debug, Default)]
pub struct Ring {
    items: VecDeque<Item>,
    /// How many came before the first of `items`.
    before: u64,
    bytes: usize,
    /// Where the last row of each job is.
    rows: HashMap<JobId, u64>,
}

impl Ring {
    /// The number of the last event; 0 if there was none.
    pub fn last(&self) -> u64 {
        self.before + self.items.len() as u64
    }

    /// Adds an event and returns its number. A row replaces the one before it.
    pub fn push(&mut self, kind: ItemKind, job: Option<JobId>, text: String) -> u64 {
        let number = self.last() + 1;
        if let (ItemKind::Job, Some(id)) = (kind, job)
            && let Some(old) = self.rows.insert(id, number)
            && let Some(item) = self.at(old).and_then(|at| self.items.get_mut(at))
        {
            self.bytes -= item.text.take().map_or(0, |text| text.len());
        }
        self.bytes += text.len();
        self.items.push_back(Item { kind, job, text: Some(text.into()) });
        while self.items.len() > MOST || self.bytes > MOST_BYTES && self.items.len() > 1 {
            self.drop_first();
        }
        number
    }

    fn drop_first(&mut self) {
        let Some(item) = self.items.pop_front() else { return };
        self.before += 1;
        self.bytes -= item.text.map_or(0, |text| text.len());
        if let (ItemKind::Job, Some(id)) = (item.kind, item.job)
            && self.rows.get(&id) == Some(&self.before)
        {
            self.rows.remove(&id);
        }
    }

    fn at(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.before + 1)?).ok()
    }

    /// The events after `number`, at most `most`, each with its number; and the number to go on from. None if some of them are gone,
    /// or `number` has not come yet.
    pub fn after(&self, number: u64, most: usize) -> Option<(Vec<(u64, Item)>, u64)> {
        if number < self.before || number > self.last() {
            return None;
        }
        let first = self.at(number + 1)?;
        let items: Vec<_> = (number + 1..).zip(self.items.iter().skip(first).take(most).cloned()).collect();
        let next = number + items.len() as u64;
        Some((items.into_iter().filter(|(_, item)| item.text.is_some()).collect(), next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(ring: &Ring, after: u64) -> Option<Vec<String>> {
        let text = |(number, item): (u64, Item)| format!("{number}:{}", item.text.unwrap());
        Some(ring.after(after, 100)?.0.into_iter().map(text).collect())
    }

    #[test]
    fn a_reader_gets_what_came_after_its_number_and_only_the_last_row_of_a_job() {
        let (mut ring, id) = (Ring::default(), JobId::new(1, 1));
        assert_eq!(texts(&ring, 0), Some(vec![]));
        assert_eq!(ring.push(ItemKind::Job, Some(id), "a".into()), 1);
        assert_eq!(ring.push(ItemKind::Event, Some(id), "b".into()), 2);
        assert_eq!(ring.push(ItemKind::Job, Some(id), "c".into()), 3);
        assert_eq!(texts(&ring, 0).unwrap(), ["2:b", "3:c"]);
        assert_eq!(texts(&ring, 2).unwrap(), ["3:c"]);
        assert_eq!(ring.after(0, 2).unwrap().1, 2, "goes on after what was looked at");
        assert_eq!(texts(&ring, 4), None, "it has not come yet");
    }

    #[test]
    fn what_is_gone_is_told_and_its_bytes_are_free() {
        let mut ring = Ring::default();
        for number in 0..=MOST {
            ring.push(ItemKind::Event, None, format!("{number}"));
        }
        assert_eq!(texts(&ring, 0), None);
        assert_eq!(ring.after(1, 1).unwrap().1, 2);
        ring.push(ItemKind::Event, None, "x".repeat(MOST_BYTES + 1));
        assert_eq!((ring.items.len(), ring.after(0, 1).is_none()), (1, true));
        for _ in 0..10 {
            let id = JobId::new(1, 1);
            ring.push(ItemKind::Job, Some(id), "x".repeat(MOST_BYTES / 2));
        }
        let held: usize =
            ring.items.iter().filter_map(|item| item.text.as_ref()).map(|text| text.len()).sum();
        assert_eq!(ring.bytes, held);
        assert!(held <= MOST_BYTES);
    }
}
