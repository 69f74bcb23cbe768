//! Output that comes in floods.
//!
//! A program that writes as fast as it can and a keeper that takes what comes at once keep each other from working: each
//! write wakes the keeper, which takes those few kilobytes, and holds the pipe while it copies them. So a pipe that is
//! flooded gets more room, and after little was taken from it there is a short pause in which more can gather. And what is
//! in it is moved to a second pipe, the relay, which takes no copy: the program writes on while that is copied to the disk.
//! Only in a flood: what a program says now and then is taken when it is said, and pipes that hold much are a user's limited
//! good.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// This much in this time (50 MB/s) is a flood.
const MUCH: usize = 512 * 1024;
const WINDOW: Duration = Duration::from_millis(10);
/// What a flooded pipe is to hold, with its relay: as much as one pipe may that is not root's.
pub const WIDE: usize = 1024 * 1024;
/// What a pipe holds if it may not hold more.
const NARROW: usize = 64 * 1024;
/// How long more may gather: in a wide pipe there is room for ten times as much as comes meanwhile.
pub const PAUSE: Duration = Duration::from_micros(100);

/// A relay, which is small as long as there is no flood: what a user's pipes may hold is counted, used or not.
pub fn relay() -> io::Result<(OwnedFd, OwnedFd)> {
    let relay = quell_sys::pipe()?;
    quell_sys::resize(&relay.0, 1)?;
    Ok(relay)
}

/// How fast a stream comes.
#[derive(Debug, Default)]
pub struct Flood {
    /// When the window began in which `taken` came, in nanoseconds.
    began: u64,
    taken: usize,
    /// Whether it was a flood in the last window.
    on: bool,
    /// What the pipe holds, with its relay, once somebody has tried to widen them.
    holds: Option<usize>,
    /// Whether there is a relay that holds enough.
    relayed: bool,
}

impl Flood {
    /// One that never ends.
    #[cfg(test)]
    pub fn lasting() -> Self {
        Self { began: u64::MAX, on: true, ..Self::default() }
    }

    /// Notes that so many bytes came at `now`, which never goes back. Widens `pipe` and its relay the first time that they
    /// are a flood. Says whether it is one, and there are too few of them to go on at once.
    pub fn is_scant(&mut self, pipe: impl AsFd, relay: Option<impl AsFd>, bytes: usize, now: u64) -> bool {
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

    /// Whether what comes goes through the relay.
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
    fn only_a_flood_widens_the_pipe_and_asks_for_a_pause() {
        let (read, _write) = quell_sys::pipe().unwrap();
        let relay = relay().unwrap();
        let mut flood = Flood::default();
        let mut is_scant = |bytes, now| {
            let scant = flood.is_scant(&read, Some(&relay.0), bytes, now);
            (scant, flood.is_relayed(), flood.holds)
        };
        for second in 1..100 {
            assert_eq!(is_scant(100_000, second * 1000 * MS), (false, false, None), "100 kB/s is none");
        }
        let start = 200_000 * MS;
        let scant: Vec<_> = (0..400).map(|at| is_scant(8192, start + at * MS / 10)).collect();
        assert!(!scant[0].0 && scant[399].0 && scant[399].2.is_some(), "80 MB/s is one");
        assert!(!is_scant(WIDE, start + 40 * MS).0, "there was enough");
        let (scant, relayed, _) = is_scant(10, start + 90 * MS);
        assert!(!scant && !relayed, "it is over");
    }

    #[test]
    fn a_pipe_and_its_relay_have_the_room_that_one_alone_has() {
        let holds = |relay: Option<&OwnedFd>| {
            let (pipe, _write) = quell_sys::pipe().unwrap();
            Flood::default().widen(&pipe, relay)
        };
        // A user with many pipes may not have any that are larger.
        let alone = holds(None);
        assert!(alone < WIDE || holds(Some(&relay().unwrap().0)) == WIDE);
    }
}
