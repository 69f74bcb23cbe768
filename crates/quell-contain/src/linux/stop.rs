//! How a tree is emptied: ask, brake, kill, sweep, audit; and how it is counted.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use quell_core::{Count, HeldBy, ProcId, SentSignal, Signal, SignalResult};
use quell_sys::Sent;
use quell_sys::fault::{Point, point};

use super::audit;
use super::cgroup::Cgroup;
use super::hold::{Hold, Place};
use super::roll::{Roll, identity};
use super::walk::{Below, Proven, Seen, walk};

/// How often the brake goes over the tree in one round before the kill comes anyway.
const BRAKE_PASSES: usize = 8;
/// How often the sweep goes over the tree in one round before it waits for an event.
const SWEEP_PASSES: usize = 64;
/// How often the children are listed anew in one count, because somebody had died meanwhile.
const REAP_PASSES: usize = 64;
/// The name of a keeper, by which a nested job's is known. Whoever else bears it is only asked less politely.
pub const KEEPER_NAME: &str = "quell-keeper";

/// What one round of the kill did.
#[derive(Debug, Default)]
pub struct Round {
    /// The signals that it sent.
    pub signals: Vec<SentSignal>,
    /// What else it did, in words.
    pub note: String,
}

impl Hold {
    /// Whether a child of ours is no part of the job. A keeper's children all are. A front may have been executed by a
    /// program that had children; theirs and their orphans are told from the job's by the marker.
    fn is_foreign(&self, pid: u32) -> bool {
        !self.strays.is_empty()
            && self.root.is_none_or(|root| root.pid != pid)
            && !quell_sys::environ_contains(pid, &self.marker)
    }

    /// How many living children may be the job's, or orphans of what our caller had started: they bear no mark, and came
    /// when the job was there already.
    fn doubtful(&self) -> usize {
        if self.strays.is_empty() {
            return 0;
        }
        let since = self.root.map_or(0, |root| root.start);
        let children = quell_sys::own_children().unwrap_or_default();
        let doubtful = |pid: &u32| {
            let late = quell_sys::stat(*pid)
                .is_ok_and(|stat| stat.start >= since && !self.strays.contains(&identity(&stat)));
            self.is_foreign(*pid) && late && quell_sys::PidFd::open(*pid).is_ok_and(|pidfd| pidfd.is_alive())
        };
        children.iter().filter(|pid| doubtful(pid)).count()
    }

    /// Collects dead children, all but the root, and counts the living ones. Adopted orphans would be zombies for as long
    /// as the job lives.
    ///
    /// A child that dies behind the listing leaves its own children to us, so a count is settled only by a listing after
    /// which nobody had to be collected: then all that is ours was on it.
    pub fn reap_orphans(&self) -> io::Result<usize> {
        for _ in 0..REAP_PASSES {
            // Asked before the listing: the orphans of a root that was dead by then are on it.
            let root_lives = match self.root {
                // A root whose leader thread has exited shows as a corpse while its other threads live.
                Some(root) => quell_sys::peek(root.pid)?.is_none(),
                None => false,
            };
            let mut living = usize::from(root_lives);
            let mut collected = false;
            for pid in quell_sys::own_children()? {
                if self.root.is_some_and(|root| root.pid == pid) || self.is_foreign(pid) {
                    continue;
                }
                match quell_sys::reap(pid)? {
                    Some(_) => collected = true,
                    None => living += 1,
                }
            }
            if !collected {
                return Ok(living);
            }
        }
        // They die and are born faster than they can be listed: somebody is alive.
        Ok(1)
    }

    /// Counts. Zero means: nobody in the tree is alive, proven by the kernel's own books.
    pub fn count(&self) -> Count {
        let living = match self.reap_orphans() {
            Ok(living) => living,
            Err(error) => return Count::Unknown(format!("the children can't be listed: {error}")),
        };
        if self.kind() == HeldBy::Pidns && self.root_gone && living > 0 {
            let mut members = 0;
            self.walk(|_| {
                members += 1;
                Below::Visit
            });
            // A walk can miss those who fork and die; only init's own end proves that nobody is left.
            return Count::Alive(members.max(1));
        }
        // Read in any case: news that are not read are news for ever.
        let populated = self.cgroup().map(Cgroup::populated);
        let doubtful = self.doubtful();
        if living == 0 && doubtful > 0 {
            return Count::Unknown(format!("{doubtful} children of the caller's may be the job's"));
        }
        match populated {
            Some(Ok(true)) => Count::Alive(living.max(1)),
            Some(Err(error)) => Count::Unknown(format!("cgroup.events can't be read: {error}")),
            Some(Ok(false)) | None => Count::Alive(living),
        }
    }

    /// Walks over the members; a PID namespace's init is quell's and no member.
    pub(super) fn walk(&self, mut visit: impl FnMut(&Seen) -> Below) {
        let init = self.root.filter(|_| self.kind() == HeldBy::Pidns);
        walk(
            |pid| !self.is_foreign(pid),
            |seen| if init == Some(identity(&seen.stat)) { Below::Visit } else { visit(seen) },
        );
    }

    /// Everyone alive now, noted on the roll.
    pub fn look(&mut self) -> Vec<ProcId> {
        let mut roll = std::mem::take(&mut self.roll);
        let mut living = Vec::new();
        self.walk(|seen| {
            roll.see(&seen.stat);
            living.push(identity(&seen.stat));
            Below::Visit
        });
        self.roll = roll;
        living
    }

    /// Asks the whole set to end: `signal`, then CONT, as a stopped process hears nothing before it goes on.
    ///
    /// A nested job's keeper and what is below it are left to that job's own front, which is asked like everyone: its
    /// keeper passes the request on once, politely, and nobody hears it twice.
    ///
    /// The set is taken down before the first signal, as whoever obeys leaves children to be looked for elsewhere. The
    /// root's own group hears it as one, which no fork can slip through; everyone else is pinned again and asked.
    pub fn ask(&mut self, signal: Signal) -> Round {
        let mut round = Round::default();
        let began = quell_sys::ticks_since_boot();
        let mut roll = std::mem::take(&mut self.roll);
        let mut asked = BTreeSet::new();
        let group = self.root.filter(|_| self.group).map(|root| root.pid);
        for pass in 0..2 {
            let mut set = Vec::new();
            self.walk(|seen| {
                roll.see(&seen.stat);
                if seen.stat.comm == KEEPER_NAME {
                    return Below::Skip;
                }
                // The second pass is for those that were forked behind the first one's back. Whoever started later than
                // the asking began may be the work of somebody's own handler, and is left to finish it.
                let missed = seen.stat.start < began && group != Some(seen.stat.pgid);
                if !asked.contains(&identity(&seen.stat)) && (pass == 0 || missed) {
                    set.push((Proven::of(seen), group == Some(seen.stat.pgid)));
                }
                Below::Visit
            });
            // Who of the group is alive now hears it in the next instant.
            let alive: Vec<bool> = set.iter().map(|(member, _)| member.pin_again().is_some()).collect();
            let heard =
                pass == 0 && group.is_some_and(|group| quell_sys::signal_group(group, signal).is_ok());
            if heard {
                point(Point::GroupAsked);
            }
            for ((member, in_group), alive) in set.iter().zip(alive) {
                let sent = match (alive, heard && *in_group) {
                    (false, _) => Sent::Gone,
                    (true, true) => Sent::Yes,
                    (true, false) => member.pin_again().map_or(Sent::Gone, |pidfd| pidfd.signal(signal)),
                };
                asked.insert(member.id);
                roll.asked(member.id);
                round.push(signal, member.id, sent);
            }
            if signal != Signal::KILL && signal != Signal::CONT {
                for (member, _) in &set {
                    member.pin_again().map(|pidfd| pidfd.signal(Signal::CONT));
                }
            }
        }
        self.roll = roll;
        point(Point::AllAsked);
        round
    }

    /// One round of the kill: brake, strike, sweep. Repeated by the caller, at each event, until the count is zero.
    pub fn kill_round(&mut self) -> Round {
        let mut round = Round::default();
        let mut roll = std::mem::take(&mut self.roll);
        self.brake(&mut roll);
        point(Point::Braked);
        if self.group
            && let Some(root) = self.root
            && quell_sys::signal_group(root.pid, Signal::KILL).is_ok()
        {
            round.note = format!("KILL to the group {}", root.pid);
            point(Point::GroupKilled);
        }
        match (&self.place, self.root) {
            (Place::Pidns { .. }, Some(init)) => {
                // Our unreaped child: the number is its own.
                let result =
                    quell_sys::PidFd::open(init.pid).map_or(Sent::Gone, |pidfd| pidfd.signal(Signal::KILL));
                round.push(Signal::KILL, init, result);
                round.note = "KILL to the namespace's init".into();
                point(Point::InitKilled);
            }
            (Place::Pidns { .. } | Place::Reaper | Place::Cgroup(_) | Place::Scope { .. }, _) => {}
        }
        if let Some(cgroup) = self.cgroup() {
            match cgroup.kill() {
                Ok(()) => round.note = "cgroup.kill".into(),
                Err(error) => round.note = format!("cgroup.kill failed: {error}"),
            }
            point(Point::CgroupKilled);
        }
        self.sweep(&mut roll, &mut round);
        self.roll = roll;
        point(Point::KillRoundDone);
        round
    }

    /// Shows to `act` each member that is not in `known` yet; all of them are about to be killed.
    fn each_new(&self, known: &mut BTreeSet<ProcId>, roll: &mut Roll, mut act: impl FnMut(&Seen)) {
        self.walk(|seen| {
            let id = identity(&seen.stat);
            if known.insert(id) {
                roll.see(&seen.stat);
                roll.killed(id);
                act(seen);
            }
            Below::Visit
        });
    }

    /// Keeps the tree from growing while it is killed. Without a cgroup: everyone is stopped, over and over, until a
    /// pass finds nobody new. A tree that refills itself does so when its members die, not when they stand still.
    fn brake(&self, roll: &mut Roll) {
        if let Some(cgroup) = self.cgroup() {
            cgroup.brake();
        }
        let mut stopped = BTreeSet::new();
        for _ in 0..BRAKE_PASSES {
            let before = stopped.len();
            self.each_new(&mut stopped, roll, |seen| {
                if self.kind() == HeldBy::Reaper {
                    seen.pidfd.signal(Signal::STOP);
                }
            });
            if stopped.len() == before || self.kind() != HeldBy::Reaper {
                break;
            }
        }
    }

    /// Kills whoever is below us, and reaps: the orphans of those who died are our children by then, and no one else
    /// can reap them. A tight loop, as a chain of processes that fork and die has to be outrun.
    fn sweep(&self, roll: &mut Roll, round: &mut Round) {
        let mut struck = BTreeSet::new();
        for pass in 0..SWEEP_PASSES {
            let before = struck.len();
            self.each_new(&mut struck, roll, |seen| {
                let result = seen.pidfd.signal(Signal::KILL);
                round.push(Signal::KILL, identity(&seen.stat), result);
            });
            point(Point::Swept);
            if self.reap_orphans().is_ok_and(|living| living == 0) || (pass > 0 && struck.len() == before) {
                break;
            }
        }
    }

    /// The search for marked processes outside the tree, each killed and waited for; who is still alive afterwards.
    pub fn audit(&mut self, patience: Duration) -> (Round, Vec<ProcId>) {
        let born = self.root.map_or(u64::MAX, |root| root.start);
        audit::audit(&self.marker, born, &mut self.roll, patience)
    }

    /// Collects the root, whose numbers may be reused from here on, and proves that no child of any kind is left.
    pub fn collect_root(&mut self) -> Result<(), String> {
        self.group = false;
        if let Some(root) = self.root {
            let _ = quell_sys::reap(root.pid);
        }
        // Whoever is left was there before the job, or is counted as doubtful.
        if !self.strays.is_empty() {
            return Ok(());
        }
        match quell_sys::has_child() {
            Ok(false) => Ok(()),
            Ok(true) => Err("a child is left after the root was collected".into()),
            Err(error) => Err(format!("the children can't be counted: {error}")),
        }
    }
}

impl Round {
    /// How many signals one step of a receipt lists.
    const LISTED: usize = 4096;

    pub(super) fn push(&mut self, signal: Signal, to: ProcId, sent: Sent) {
        let result = match sent {
            Sent::Yes => SignalResult::Sent,
            Sent::Gone => SignalResult::Gone,
            Sent::Refused => SignalResult::Refused,
        };
        if self.signals.len() < Self::LISTED {
            self.signals.push(SentSignal { signal, to, result });
        }
    }
}
