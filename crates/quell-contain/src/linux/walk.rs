//! Processes that are pinned and proven before they are used, and the walk over descendants. `member_set.rs` has the walk
//! itself.

use std::io;
use std::rc::Rc;

use quell_core::ProcId;
use quell_sys::{PidFd, Stat};

use super::member_set::MemberSet;

/// A living process. The descriptor pins it, so a signal can't reach another process.
pub struct Pinned {
    /// Its stat line, read while it was pinned.
    pub stat: Stat,
    pub pidfd: Rc<PidFd>,
}

/// Whether a walk continues below a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    Visit,
    Skip,
}

/// Calls `visit` for the descendants of processes that the caller has proven. This process need not be their ancestor: then
/// orphans are not found, and have to be found in another way. Fails if some of them can't be listed.
pub fn walk_below(
    from: impl IntoIterator<Item = ProcessRef>,
    visit: impl FnMut(&Pinned) -> Below,
) -> io::Result<()> {
    MemberSet::default().walk_below(from, visit)
}

/// A process that was proven, and can be pinned again.
#[derive(Debug)]
pub struct ProcessRef {
    pub id: ProcId,
    inode: u64,
    pub(super) threads: u32,
}

impl ProcessRef {
    pub fn of(seen: &Pinned) -> Self {
        Self { id: seen.stat.id(), inode: seen.pidfd.inode(), threads: seen.stat.threads }
    }

    /// Pins the same process again, if it is alive. Its inode is unique within a boot; the start time decides on kernels where
    /// all inodes are the same.
    pub fn pin_again(&self) -> Option<PidFd> {
        PidFd::of(self.id).filter(|pidfd| pidfd.inode() == self.inode)
    }
}

/// Pins `pid`, reads its stat line and checks it with `ours`. None if it has died by then.
pub fn pin(pid: u32, ours: impl FnOnce(&Stat) -> bool) -> Option<Pinned> {
    let pinned = PidFd::pin(pid, |stat| ours(&stat).then_some(stat));
    pinned.ok().flatten().map(|(pidfd, stat)| Pinned { stat, pidfd: Rc::new(pidfd) })
}

/// Pins a living child of ours that /proc does not show (`hidepid`). Its PID can't be reused before it is reaped here.
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
    fn a_process_that_is_not_proven_is_not_pinned() {
        let sleeper = Sleeper::new();
        assert!(pin(sleeper.pid(), |_| true).is_some());
        assert!(pin(sleeper.pid(), |_| false).is_none());
    }

    #[test]
    fn a_process_that_died_after_it_was_read_is_not_pinned() {
        let mut sleeper = Sleeper::new();
        let pid = sleeper.pid();
        // It dies after it was read: another process could have its PID by then.
        let seen = pin(pid, |_| {
            sleeper.0.kill().unwrap();
            quell_sys::wait_exit(pid).unwrap();
            true
        });
        assert!(seen.is_none());
    }

    #[test]
    fn another_process_with_the_same_pid_is_not_pinned_again() {
        let (sleeper, other) = (Sleeper::new(), Sleeper::new());
        let seen = |sleeper: &Sleeper| pin(sleeper.pid(), |_| true).unwrap();
        let proven = ProcessRef::of(&seen(&sleeper));
        assert_eq!(proven.pin_again().map(|pidfd| pidfd.pid()), Some(sleeper.pid()));
        // The same PID with another start time; and the same PID with another inode.
        let older = ProcessRef { id: ProcId { start: 1, ..proven.id }, ..ProcessRef::of(&seen(&sleeper)) };
        assert!(older.pin_again().is_none());
        if quell_sys::pidfd_inode().is_some() {
            let stranger = ProcessRef { inode: ProcessRef::of(&seen(&other)).inode, ..proven };
            assert!(stranger.pin_again().is_none());
        }
    }

    #[test]
    fn a_walk_visits_the_children_of_a_proven_process() {
        let sleeper = Sleeper::new();
        let this = ProcessRef::of(&pin(quell_sys::pid(), |_| true).unwrap());
        let mut visited = Vec::new();
        walk_below([this], |seen| {
            visited.push(seen.stat.pid);
            Below::Visit
        })
        .unwrap();
        assert!(visited.contains(&sleeper.pid()));
    }
}
