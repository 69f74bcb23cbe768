//! What is due at which time, each by a key.

use std::time::{Duration, Instant};

/// A few timers, one for each key at most.
#[derive(Clone, Debug)]
pub struct Timers<K> {
    armed: Vec<(K, Instant)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { armed: Vec::new() }
    }
}

impl<K: Copy + Eq> Timers<K> {
    /// Arms one, also if it was armed for another time.
    pub fn arm(&mut self, key: K, after: Duration) {
        self.disarm(key);
        self.armed.push((key, Instant::now() + after));
    }

    /// Arms one, unless it is armed for an earlier time.
    pub fn bring_forward(&mut self, key: K, after: Duration) {
        let due = Instant::now() + after;
        if self.due(key).is_none_or(|before| due < before) {
            self.disarm(key);
            self.armed.push((key, due));
        }
    }

    /// Takes one back.
    pub fn disarm(&mut self, key: K) {
        self.armed.retain(|(armed, _)| *armed != key);
    }

    /// When it is due, if it is armed.
    pub fn due(&self, key: K) -> Option<Instant> {
        self.armed.iter().find(|(armed, _)| *armed == key).map(|(_, due)| *due)
    }

    /// When the first of all is due.
    pub fn next(&self) -> Option<Instant> {
        self.armed.iter().map(|(_, due)| *due).min()
    }

    /// Whether it is due by `now`. Then it is not armed any more.
    pub fn take_due(&mut self, key: K, now: Instant) -> bool {
        let is_due = self.due(key).is_some_and(|due| due <= now);
        if is_due {
            self.disarm(key);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_due_once_and_the_first_of_all_is_the_next() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        let (near, far) = (Duration::from_secs(60), Duration::from_secs(120));
        timers.arm('a', far);
        timers.arm('b', near);
        assert_eq!(timers.next(), timers.due('b'));
        timers.bring_forward('a', Duration::ZERO);
        timers.bring_forward('b', far);
        assert!(timers.due('b').is_some_and(|due| due < now + far), "put off");
        assert!(timers.take_due('a', Instant::now()) && !timers.take_due('a', Instant::now()));
        assert!(!timers.take_due('b', Instant::now()));
        timers.disarm('b');
        assert_eq!(timers.next(), None);
    }
}
