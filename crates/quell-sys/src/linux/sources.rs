//! What a loop waits for: descriptors that are asked for by a token, and not by their place in a list.

use std::io;
use std::time::Instant;

use super::{Polled, poll_until};

/// The descriptors of one wait. One token may stand for several of them.
#[derive(Debug)]
pub struct Sources<'a, T> {
    polled: Vec<Polled<'a>>,
    tokens: Vec<T>,
}

impl<T> Default for Sources<'_, T> {
    fn default() -> Self {
        Self { polled: Vec::new(), tokens: Vec::new() }
    }
}

impl<'a, T: Copy + PartialEq> Sources<'a, T> {
    /// One more.
    pub fn add(&mut self, token: T, what: Polled<'a>) {
        self.polled.push(what);
        self.tokens.push(token);
    }

    /// One more, if there is one.
    pub fn add_any(&mut self, token: T, what: Option<Polled<'a>>) {
        if let Some(what) = what {
            self.add(token, what);
        }
    }

    /// Whether there is nothing to wait for but the time.
    pub fn is_empty(&self) -> bool {
        self.polled.is_empty()
    }

    /// Waits until one of them is ready or `until` has passed. Fails only for want of memory.
    pub fn wait(self, until: Option<Instant>) -> io::Result<Ready<T>> {
        let ready = poll_until(&self.polled, until)?;
        let tokens = self.tokens.into_iter().zip(ready).filter(|(_, ready)| *ready);
        Ok(Ready { tokens: tokens.map(|(token, _)| token).collect() })
    }

    /// The same; for want of memory everything is looked at, as if it were ready.
    pub fn wait_or_all(self, until: Option<Instant>) -> Ready<T> {
        let all = Ready { tokens: self.tokens.clone() };
        self.wait(until).unwrap_or(all)
    }
}

/// What was ready. It is asked in the order that the caller chooses: the order settles ties.
#[derive(Clone, Debug)]
pub struct Ready<T> {
    tokens: Vec<T>,
}

impl<T> Default for Ready<T> {
    fn default() -> Self {
        Self { tokens: Vec::new() }
    }
}

impl<T: Copy + PartialEq> Ready<T> {
    /// Whether one of the descriptors with this token was ready.
    pub fn has(&self, token: T) -> bool {
        self.tokens.contains(&token)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_is_ready_is_known_by_its_token() {
        let ((quiet, _quiet), (loud, mut says)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        says.write_all(b"x").unwrap();
        let mut sources = Sources::default();
        sources.add('q', Polled::Read(quiet.as_fd()));
        sources.add_any('n', None);
        sources.add('b', Polled::Read(quiet.as_fd()));
        sources.add('b', Polled::Read(loud.as_fd()));
        let ready = sources.wait(Some(Instant::now())).unwrap();
        assert_eq!(['q', 'n', 'b'].map(|token| ready.has(token)), [false, false, true]);
    }
}
