//! The walk over our descendants: who is in the tree right now, each pinned and proven before it is shown. The way it goes
//! is in `member_set.rs`.

use std::io;
use std::rc::Rc;

use quell_core::ProcId;
use quell_sys::{PidFd, Stat};

use super::member_set::MemberSet;

/// A living descendant. The descriptor pins it, so what is sent there can reach nobody else.
pub struct Pinned {
    /// What /proc said of it while it was pinned.
    pub stat: Stat,
    /// The pin.
    pub pidfd: Rc<PidFd>,
}

/// Whether the walk goes on below a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    /// Yes.
    Visit,
    /// No: what is below it is somebody else's business for now.
    Skip,
}

/// Shows what is below processes that the caller has proven, of which this one need be no ancestor: an orphan is nobody's
/// child then, and has to be found in another way. An error says that some of them can't be listed.
pub fn walk_below(
    from: impl IntoIterator<Item = ProcessRef>,
    visit: impl FnMut(&Pinned) -> Below,
) -> io::Result<()> {
    MemberSet::default().walk_below(from, visit)
}

/// A member that was proven, to be found again.
#[derive(Debug)]
pub struct ProcessRef {
    /// Who it is.
    pub id: ProcId,
    inode: u64,
    pub(super) threads: u32,
}

impl ProcessRef {
    /// What is needed to find it again.
    pub fn of(seen: &Pinned) -> Self {
        Self { id: seen.stat.id(), inode: seen.pidfd.inode(), threads: seen.stat.threads }
    }

    /// The same process, pinned again, if it is alive: by its inode, which no other has in this boot, and by its start
    /// time, which has to do where inodes are all alike.
    pub fn pin_again(&self) -> Option<PidFd> {
        PidFd::of(self.id).filter(|pidfd| pidfd.inode() == self.inode)
    }
}

/// Pins `pid`, reads its stat line and checks it with `ours`; nothing if it is dead by then.
pub fn pin(pid: u32, ours: impl FnOnce(&Stat) -> bool) -> Option<Pinned> {
    let pinned = PidFd::pin(pid, |stat| ours(&stat).then_some(stat));
    pinned.ok().flatten().map(|(pidfd, stat)| Pinned { stat, pidfd: Rc::new(pidfd) })
}

/// Pins a living child of ours that /proc does not show (`hidepid`). Its number is its own until it is reaped here.
pub fn pin_hidden_child(pid: u32) -> Option<Pinned> {
    let pidfd = PidFd::open(pid).ok()?;
    let hidden = quell_sys::stat(pid).is_err() && matches!(quell_sys::peek(pid), Ok(None));
    (hidden && pidfd.is_alive())
        .then(|| Pinned { stat: Stat::hidden(pid, quell_sys::pid()), pidfd: Rc::new(pidfd) })
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    struct Sleeper(Child);

    impl Sleeper {
        fn new() -> Self {
            Self(Command::new("sleep").arg("60").spawn().unwrap())
        }

        fn pid(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill().and_then(|()| self.0.wait());
        }
    }

    #[test]
    fn who_is_not_proven_is_not_shown() {
        let sleeper = Sleeper::new();
        assert!(pin(sleeper.pid(), |_| true).is_some());
        assert!(pin(sleeper.pid(), |_| false).is_none());
    }

    #[test]
    fn who_was_dead_behind_the_reads_is_not_shown() {
        let mut sleeper = Sleeper::new();
        let pid = sleeper.pid();
        // Dies after /proc has told of it: what was read may then be of another one who has got the number since.
        let seen = pin(pid, |_| {
            sleeper.0.kill().unwrap();
            quell_sys::wait_exit(pid).unwrap();
            true
        });
        assert!(seen.is_none());
    }

    #[test]
    fn who_has_got_the_number_since_is_not_found_again() {
        let (sleeper, other) = (Sleeper::new(), Sleeper::new());
        let seen = |sleeper: &Sleeper| pin(sleeper.pid(), |_| true).unwrap();
        let proven = ProcessRef::of(&seen(&sleeper));
        assert_eq!(proven.pin_again().map(|pidfd| pidfd.pid()), Some(sleeper.pid()));
        // The same number, another time of birth; and the same number, another process.
        let older = ProcessRef { id: ProcId { start: 1, ..proven.id }, ..ProcessRef::of(&seen(&sleeper)) };
        assert!(older.pin_again().is_none());
        if quell_sys::pidfd_inode().is_some() {
            let stranger = ProcessRef { inode: ProcessRef::of(&seen(&other)).inode, ..proven };
            assert!(stranger.pin_again().is_none());
        }
    }
}
