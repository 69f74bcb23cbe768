//! Output that comes in floods.
//!
//! A program that writes as fast as it can and a keeper that takes what comes at once keep each other from working: each
//! write wakes the keeper, which takes those few kilobytes, and holds the pipe while it does so. So a pipe that is flooded
//! gets more room, and after little was taken from it there is a short pause in which more can gather. Only in a flood:
//! what a program says now and then is taken when it is said, and pipes that hold much are a user's limited good.

use std::os::fd::AsFd;
use std::time::Duration;

/// This much in this time (50 MB/s) is a flood.
const MUCH: usize = 512 * 1024;
const WINDOW: Duration = Duration::from_millis(10);
/// What a flooded pipe is to hold: as much as one may that is not root's.
pub const WIDE: usize = 1024 * 1024;
/// What a pipe holds if it may not hold more.
const NARROW: usize = 64 * 1024;
/// How long more may gather: in a wide pipe there is room for ten times as much as comes meanwhile.
pub const PAUSE: Duration = Duration::from_micros(100);

/// How fast a stream comes.
#[derive(Debug, Default)]
pub struct Flood {
    /// When the window began in which `taken` came, in nanoseconds.
    began: u64,
    taken: usize,
    /// Whether it was a flood in the last window.
    on: bool,
    /// What the pipe holds, once somebody has tried to widen it.
    holds: Option<usize>,
}

impl Flood {
    /// Notes that so many bytes came at `now`, which never goes back. Widens `pipe` the first time that they are a flood.
    /// Says whether it is one, and there are too few of them to go on at once.
    pub fn is_scant(&mut self, pipe: impl AsFd, bytes: usize, now: u64) -> bool {
        self.note(bytes, now);
        if !self.on {
            return false;
        }
        let holds = *self.holds.get_or_insert_with(|| quell_sys::widen(pipe, WIDE).unwrap_or(NARROW));
        bytes < holds / 4
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
    fn only_a_flood_widens_the_pipe_and_asks_for_a_pause() {
        let (read, _write) = quell_sys::pipe().unwrap();
        let mut flood = Flood::default();
        for second in 1..100 {
            assert!(!flood.is_scant(&read, 100_000, second * 1000 * MS), "100 kB/s is none");
        }
        assert_eq!(flood.holds, None);
        let start = 200_000 * MS;
        let scant: Vec<bool> = (0..400).map(|at| flood.is_scant(&read, 8192, start + at * MS / 10)).collect();
        assert!(!scant[0] && scant[399], "80 MB/s is one");
        assert!(flood.holds.is_some());
        assert!(!flood.is_scant(&read, WIDE, start + 40 * MS), "there was enough");
        assert!(!flood.is_scant(&read, 10, start + 90 * MS), "it is over");
    }
}
