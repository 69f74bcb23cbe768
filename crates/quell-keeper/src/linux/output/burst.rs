//! Bursts of output.
//!
//! A program that writes as fast as it can and a keeper that reads at once slow each other down: each write wakes the keeper,
//! which takes a few kilobytes, and holds the pipe while it copies them. So in a burst the pipe gets more room, and after a small
//! read there is a short pause in which more can gather. The bytes are moved to a second pipe, the relay, which needs no copy:
//! the program writes on while they are copied to the disk. All this happens in a burst only: other output is taken as soon as
//! it is written, and the total size of a user's pipes is limited.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// This much in this time (50 MB/s) is a burst.
const MUCH: usize = 512 * 1024;
const WINDOW: Duration = Duration::from_millis(10);
/// What a pipe should hold in a burst, with its relay: as much as one pipe may hold for users other than root.
pub const WIDE: usize = 1024 * 1024;
/// What a pipe holds by default.
const NARROW: usize = 64 * 1024;
/// How long more output can gather: a wide pipe has room for ten times as much as arrives meanwhile.
pub const PAUSE: Duration = Duration::from_micros(100);

/// A relay. It is small as long as there is no burst: the limit on a user's pipes counts their size, used or not.
pub fn relay() -> io::Result<(OwnedFd, OwnedFd)> {
    let relay = quell_sys::pipe()?;
    quell_sys::resize(&relay.0, 1)?;
    Ok(relay)
}

/// How fast a stream is.
#[derive(Debug, Default)]
pub struct BurstDetector {
    /// When the window began in which `taken` bytes arrived, in nanoseconds.
    began: u64,
    taken: usize,
    /// Whether there was a burst in the last window.
    on: bool,
    /// What the pipe holds, with its relay, once they were widened.
    holds: Option<usize>,
    /// Whether there is a relay that is large enough.
    relayed: bool,
}

impl BurstDetector {
    /// A burst that never ends.
    #[cfg(test)]
    pub fn lasting() -> Self {
        Self { began: u64::MAX, on: true, ..Self::default() }
    }

    /// Notes that so many bytes arrived at `now`, which never goes back. In the first burst `pipe` and its relay are widened.
    /// Returns whether this is a burst, and the bytes are so few that it is better to wait for more.
    pub fn should_batch(
        &mut self,
        pipe: impl AsFd,
        relay: Option<impl AsFd>,
        bytes: usize,
        now: u64,
    ) -> bool {
        self.note(bytes, now);
        if !self.on {
            return false;
        }
        let holds = match self.holds {
            Some(holds) => holds,
            None => self.widen(pipe, relay),
        };
        bytes < holds / 4
    }

    /// Whether output goes through the relay.
    pub fn is_relayed(&self) -> bool {
        self.on && self.relayed
    }

    fn widen(&mut self, pipe: impl AsFd, relay: Option<impl AsFd>) -> usize {
        let half = WIDE / 2;
        self.relayed =
            relay.is_some_and(|relay| quell_sys::resize(relay, half).is_ok_and(|holds| holds >= half));
        let (wanted, beside) = if self.relayed { (half, half) } else { (WIDE, 0) };
        let holds = beside + quell_sys::resize(pipe, wanted).unwrap_or(NARROW);
        self.holds = Some(holds);
        holds
    }

    fn note(&mut self, bytes: usize, now: u64) {
        let (lasted, window) = (now.saturating_sub(self.began), WINDOW.as_nanos() as u64);
        if lasted >= window {
            self.on = self.taken >= MUCH && lasted < 2 * window;
            (self.began, self.taken) = (now, 0);
        }
        self.taken = self.taken.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn only_a_burst_widens_the_pipe_and_asks_for_a_pause() {
        let (read, _write) = quell_sys::pipe().unwrap();
        let relay = relay().unwrap();
        let mut burst = BurstDetector::default();
        let mut should_batch = |bytes, now| {
            let few = burst.should_batch(&read, Some(&relay.0), bytes, now);
            (few, burst.is_relayed(), burst.holds)
        };
        for second in 1..100 {
            assert_eq!(should_batch(100_000, second * 1000 * MS), (false, false, None), "100 kB/s is none");
        }
        let start = 200_000 * MS;
        let few: Vec<_> = (0..400).map(|at| should_batch(8192, start + at * MS / 10)).collect();
        assert!(!few[0].0 && few[399].0 && few[399].2.is_some(), "80 MB/s is one");
        assert!(!should_batch(WIDE, start + 40 * MS).0, "there was enough");
        let (few, relayed, _) = should_batch(10, start + 90 * MS);
        assert!(!few && !relayed, "it is over");
    }

    #[test]
    fn a_pipe_and_its_relay_have_the_room_that_one_alone_has() {
        let holds = |relay: Option<&OwnedFd>| {
            let (pipe, _write) = quell_sys::pipe().unwrap();
            BurstDetector::default().widen(&pipe, relay)
        };
        // A user with many pipes can reach the limit.
        let alone = holds(None);
        assert!(alone < WIDE || holds(Some(&relay().unwrap().0)) == WIDE);
    }
}
