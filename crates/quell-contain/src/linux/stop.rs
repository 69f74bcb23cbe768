//! How a tree is emptied: ask, brake, kill, sweep, audit; and how it is counted.

use std::io;
use std::time::Duration;

use quell_core::{AskScope, Count, ProcId, SentSignal, Signal, SignalResult};
use quell_sys::fault::{FaultPoint, fault_point};
use quell_sys::{Sent, Stat};

use super::backend::Brake;
use super::cgroup_fs::Cgroup;
use super::containment::Containment;
use super::marker_search::{self, MarkerRule};
use super::member_log::MemberLog;
use super::member_set::MemberSet;
use super::possible_members::{PossibleMembers, named};
use super::walk::{Below, Pinned, pin};

/// How often the set of those to be asked is taken down, because somebody had died meanwhile.
const ASK_PASSES: usize = 2;
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
pub struct SignalRound {
    /// The signals that it sent.
    pub signals: Vec<SentSignal>,
    /// What else it did, in words.
    pub note: String,
    /// Whether its last look found nobody new: all that is to be done is to wait for those who die.
    pub settled: bool,
}

impl Containment {
    /// Whether a child of ours is no part of the job. A keeper's children all are. A front may have been executed by a
    /// program that had children; theirs and their orphans are told from the job's by the marker.
    fn is_foreign(&self, pid: u32) -> bool {
        !self.preexisting_children.is_empty()
            && self.root.is_none_or(|root| root.pid != pid)
            && !marker_search::has_marker(pid, &self.marker)
    }

    /// The living children that may be the job's, or orphans of what our caller had started: they don't carry the marker,
    /// and started after the job. They are named and not signalled.
    pub fn ambiguous_children(&self) -> Vec<ProcId> {
        if self.preexisting_children.is_empty() {
            return Vec::new();
        }
        let since = self.recorded().root.map_or(0, |root| root.start);
        let me = quell_sys::pid();
        let late = |stat: &Stat| {
            stat.ppid == me && stat.start >= since && !self.preexisting_children.contains(&stat.id())
        };
        let children = quell_sys::own_children().unwrap_or_default().into_iter();
        let ambiguous_children =
            children.filter(|pid| self.is_foreign(*pid)).filter_map(|pid| pin(pid, late));
        ambiguous_children.map(|seen| seen.stat.id()).collect()
    }

    /// Why the job may have processes that no count of our descendants shows; none if it can't have any.
    pub fn why_unproven(&self) -> Option<String> {
        // A process in a PID namespace can't enter one that is outside of it.
        let root = self.recorded().root.filter(|_| !self.backend.has_init())?;
        PossibleMembers { not_before: root.start, root_before: root.start, session: self.session }
            .in_other_namespaces(root, &self.starter_cgroups)
    }

    /// Collects dead children, all but the root, and counts the living ones. Adopted orphans would be zombies for as long
    /// as the job lives.
    ///
    /// A child that dies behind the listing leaves its own children to us, so a count is settled only by a listing after
    /// which nobody had to be collected: then all that is ours was on it.
    pub fn reap_orphans(&mut self) -> io::Result<usize> {
        let mut member_log = std::mem::take(&mut self.member_log);
        let living = self.reap_for(&mut member_log);
        self.member_log = member_log;
        living
    }

    fn reap_for(&self, member_log: &mut MemberLog) -> io::Result<usize> {
        // Corpses that were there before this listing: the orphans that they left are on it.
        let mut corpses = Vec::new();
        for _ in 0..REAP_PASSES {
            // Asked before the listing: the orphans of a root that was dead by then are on it.
            let root_lives = match self.root {
                // A root whose leader thread has exited shows as a corpse while its other threads live.
                Some(root) => quell_sys::peek(root.pid)?.is_none() && !self.is_held_corpse(root.pid),
                None => false,
            };
            let mut living = usize::from(root_lives);
            let mut collected = false;
            for pid in quell_sys::own_children()? {
                if self.root.is_some_and(|root| root.pid == pid) || self.is_foreign(pid) {
                    continue;
                }
                if member_log.reap(pid)? {
                    collected = true;
                } else if !self.is_held_corpse(pid) {
                    living += 1;
                } else if !corpses.contains(&pid) {
                    corpses.push(pid);
                    collected = true;
                }
            }
            // With somebody alive it is none, however many there are.
            if !collected || living > 0 {
                return Ok(living);
            }
        }
        // They die and are born faster than they can be listed: somebody is alive.
        Ok(1)
    }

    /// Whether a child is dead and can't be collected: its tracer, such as a debugger, has to do that first. Asked only once
    /// it has outlived a round of the kill.
    fn is_held_corpse(&self, pid: u32) -> bool {
        self.kill_rounds > 1 && quell_sys::stat(pid).is_ok_and(|stat| stat.is_dead())
    }

    /// Whether a look that costs the same for any tree finds life in it: at its cgroup, its root and the first of our
    /// children. The dead among those are collected.
    fn is_obviously_alive(&mut self) -> bool {
        if self.cgroup().is_some_and(|cgroup| cgroup.populated().is_ok_and(|populated| populated)) {
            return true;
        }
        // Among the caller's own children the job's have to be told from the others.
        if !self.preexisting_children.is_empty() {
            return false;
        }
        let root = self.root.map(|root| root.pid);
        if root.is_some_and(|root| matches!(quell_sys::peek(root), Ok(None)) && !self.is_held_corpse(root)) {
            return true;
        }
        let first = quell_sys::first_own_children().unwrap_or_default();
        first.into_iter().any(|pid| {
            Some(pid) != root && matches!(self.member_log.reap(pid), Ok(false)) && !self.is_held_corpse(pid)
        })
    }

    /// Counts. Zero means: nobody in the tree is alive, proven by the kernel's own books. Otherwise it is at least so many.
    pub fn count(&mut self) -> Count {
        // Counted again at every death: the death of each of many must not cost a look at all the others.
        if self.is_obviously_alive() {
            return Count::Alive(1);
        }
        let living = match self.reap_orphans() {
            Ok(living) => living,
            Err(error) => return Count::Unknown(format!("the children can't be listed: {error}")),
        };
        // Read in any case: news that are not read are news for ever.
        let populated = self.cgroup().map(Cgroup::populated);
        let ambiguous = self.ambiguous_children();
        if living == 0 && !ambiguous.is_empty() {
            let stats: Vec<Stat> = ambiguous.iter().filter_map(|id| quell_sys::stat(id.pid).ok()).collect();
            let names = named(&stats.iter().collect::<Vec<_>>());
            return Count::Unknown(format!(
                "{} of the caller's children may be the job's: {names}",
                ambiguous.len()
            ));
        }
        match populated {
            Some(Ok(true)) => Count::Alive(living.max(1)),
            Some(Err(error)) => Count::Unknown(format!("cgroup.events can't be read: {error}")),
            Some(Ok(false)) | None => Count::Alive(living),
        }
    }

    /// Walks over the members; a PID namespace's init is quell's and no member.
    pub(super) fn walk(&self, visit: impl FnMut(&Pinned) -> Below) {
        self.walk_on(&mut MemberSet::default(), visit);
    }

    /// The same over those that are not in `member_set` yet.
    fn walk_on(&self, member_set: &mut MemberSet, mut visit: impl FnMut(&Pinned) -> Below) {
        let init = self.init();
        member_set.walk(
            |pid| !self.is_foreign(pid),
            |seen| if init == Some(seen.stat.id()) { Below::Visit } else { visit(seen) },
        );
    }

    fn init(&self) -> Option<ProcId> {
        self.root.filter(|_| self.backend.has_init())
    }

    /// Every member that is alive now. All are noted in the log of members.
    pub fn note_living(&mut self) -> Vec<ProcId> {
        let mut member_log = std::mem::take(&mut self.member_log);
        let mut living = Vec::new();
        self.walk(|seen| {
            member_log.note(&seen.stat);
            living.push(seen.stat.id());
            Below::Visit
        });
        self.member_log = member_log;
        living
    }

    /// Asks the whole set to end, or the root alone: `signal`, then CONT, as a stopped process hears nothing before it goes on.
    ///
    /// A nested job's keeper and what is below it are left to that job's own front, which is asked like everyone: its
    /// keeper passes the request on once, politely, and nobody hears it twice.
    ///
    /// The set is taken down before the first signal, as whoever obeys leaves children to be looked for elsewhere. The
    /// root's own group hears it as one, which no fork can slip through; everyone else through its pin. Whoever is born
    /// later than that may be the work of somebody's own handler, and is left to finish it.
    pub fn ask(&mut self, signal: Signal, to: AskScope) -> SignalRound {
        let mut round = SignalRound::default();
        let mut member_log = std::mem::take(&mut self.member_log);
        let whole = to == AskScope::Tree;
        let group = self.root.filter(|_| self.group && whole).map(|root| root.pid);
        let (mut member_set, mut set) = (MemberSet::default(), Vec::new());
        for _ in 0..ASK_PASSES {
            self.walk_on(&mut member_set, |seen| {
                member_log.note(&seen.stat);
                if seen.stat.comm == KEEPER_NAME {
                    return Below::Skip;
                }
                let id = seen.stat.id();
                member_log.keep_pin(id, &seen.pidfd);
                if whole || Some(id) == self.shown_root() {
                    set.push((id, group == Some(seen.stat.pgid)));
                }
                Below::Visit
            });
            // Whoever dies meanwhile leaves its children to us behind the walk's back.
            if !member_set.has_lost() {
                break;
            }
            member_set.list_again();
        }
        // Who of the group was alive just now hears it in the next instant.
        let heard = group.filter(|group| quell_sys::signal_group(*group, signal).is_ok());
        if heard.is_some() {
            fault_point(FaultPoint::GroupAsked);
        }
        let is_heard = |in_group: bool| in_group && heard.is_some();
        for (id, in_group) in &set {
            let sent = match (member_set.knows(id.pid), is_heard(*in_group)) {
                (false, _) => Sent::Gone,
                (true, true) => Sent::Yes,
                (true, false) => member_set.signal(id.pid, signal),
            };
            member_log.asked(*id, signal);
            round.push(signal, *id, sent);
        }
        if signal != Signal::KILL && signal != Signal::CONT {
            heard.map(|group| quell_sys::signal_group(group, Signal::CONT));
            for (id, _) in set.iter().filter(|(_, in_group)| !is_heard(*in_group)) {
                member_set.signal(id.pid, Signal::CONT);
            }
        }
        self.member_log = member_log;
        fault_point(FaultPoint::AllAsked);
        round
    }

    /// One round of the kill: brake, strike, sweep. Repeated by the caller, at each event, until the count is zero.
    pub fn kill_round(&mut self) -> SignalRound {
        let mut round = SignalRound::default();
        self.kill_rounds += 1;
        let mut member_log = std::mem::take(&mut self.member_log);
        let mut member_set = std::mem::take(&mut self.member_set);
        self.brake(&mut member_log, &mut member_set);
        fault_point(FaultPoint::Braked);
        if self.group
            && let Some(root) = self.root
            && quell_sys::signal_group(root.pid, Signal::KILL).is_ok()
        {
            round.note = format!("KILL to the group {}", root.pid);
            fault_point(FaultPoint::GroupKilled);
        }
        self.backend.kill(self.root, &mut round);
        if let Some(cgroup) = self.cgroup().filter(|_| self.kill_rounds > 1) {
            kill_members(cgroup, &member_set, &mut member_log, &mut round);
        }
        self.sweep(&mut member_log, &mut member_set, &mut round);
        (self.member_log, self.member_set) = (member_log, member_set);
        fault_point(FaultPoint::KillRoundDone);
        round
    }

    /// Shows to `act` each member that is not in the set yet; all of them are about to be killed. How many there were.
    fn each_new(
        &self,
        member_set: &mut MemberSet,
        member_log: &mut MemberLog,
        mut act: impl FnMut(&Pinned),
    ) -> usize {
        let mut new = 0;
        self.walk_on(member_set, |seen| {
            new += 1;
            member_log.note(&seen.stat);
            member_log.killed(seen.stat.id(), &seen.pidfd);
            act(seen);
            Below::Visit
        });
        new
    }

    /// Keeps the tree from growing while it is killed. Without a cgroup: everyone is stopped, over and over, until a
    /// pass finds nobody new. A tree that refills itself does so when its members die, not when they stand still.
    fn brake(&self, member_log: &mut MemberLog, member_set: &mut MemberSet) {
        let brake = self.backend.brake();
        for _ in 0..BRAKE_PASSES {
            member_set.list_again();
            let new = self.each_new(member_set, member_log, |seen| {
                if brake == Brake::StopMembers {
                    seen.pidfd.signal(Signal::STOP);
                }
            });
            if new == 0 || brake == Brake::Held {
                break;
            }
        }
    }

    /// Kills whoever is below us, and reaps: the orphans of those who died are our children by then, and no one else
    /// can reap them. A tight loop, as a chain of processes that fork and die has to be outrun.
    ///
    /// Who has got a KILL makes no more children, so it is looked below each of them once after that. What it had made
    /// until then and left behind is our child: each pass looks at all of those.
    fn sweep(&self, member_log: &mut MemberLog, member_set: &mut MemberSet, round: &mut SignalRound) {
        member_set.drop_exited();
        member_set.list_again();
        for id in member_set.not_killed().into_iter().filter(|id| Some(*id) != self.init()) {
            let result = member_set.signal(id.pid, Signal::KILL);
            round.push(Signal::KILL, id, result);
            if result == Sent::Yes {
                member_set.mark_killed(id.pid);
            }
        }
        for _ in 0..SWEEP_PASSES {
            let mut killed = Vec::new();
            let new = self.each_new(member_set, member_log, |seen| {
                let result = seen.pidfd.signal(Signal::KILL);
                round.push(Signal::KILL, seen.stat.id(), result);
                killed.extend((result == Sent::Yes).then_some(seen.stat.pid));
            });
            killed.into_iter().for_each(|pid| member_set.mark_killed(pid));
            fault_point(FaultPoint::Swept);
            round.settled = new == 0;
            if self.reap_for(member_log).is_ok_and(|living| living == 0) || new == 0 {
                break;
            }
        }
    }

    /// The search for marked processes outside the tree, each killed and waited for; who is still alive afterwards, or why
    /// the processes could not be listed.
    pub fn kill_marked_outside(&mut self, patience: Duration) -> (SignalRound, io::Result<Vec<ProcId>>) {
        let not_before = self.recorded().root.map_or(u64::MAX, |root| root.start);
        let marker_rule = MarkerRule {
            marker: &self.marker,
            not_before,
            starter_cgroups: self.starter_cgroups.as_slice().into(),
        };
        marker_search::kill_marked(&marker_rule, &mut self.member_log, patience)
    }

    /// Collects the root, whose numbers may be reused from here on, and proves that no child of any kind is left.
    pub fn collect_root(&mut self) -> Result<(), String> {
        self.group = false;
        self.member_set = MemberSet::default();
        if let Some(root) = self.root {
            let _ = quell_sys::reap(root.pid);
        }
        // What is left was there before the job, or is counted as ambiguous.
        if !self.preexisting_children.is_empty() {
            return Ok(());
        }
        match quell_sys::has_child() {
            Ok(false) => Ok(()),
            Ok(true) if self.has_only_corpses() => Ok(()),
            Ok(true) => Err("a child is left after the root was collected".into()),
            Err(error) => Err(format!("the children can't be counted: {error}")),
        }
    }
}

/// Kills the processes in the cgroup one by one that no walk has found: its own kill passes over a process whose first thread
/// has exited, and one that the init of another PID namespace has adopted is not below us.
fn kill_members(cgroup: &Cgroup, known: &MemberSet, member_log: &mut MemberLog, round: &mut SignalRound) {
    let unknown = cgroup.members().into_iter().filter(|pid| !known.knows(*pid));
    let pinned: Vec<Pinned> = unknown.filter_map(|pid| pin(pid, |_| true)).collect();
    // Listed again behind the pins: what is alive then was in the cgroup.
    let members = if pinned.is_empty() { Vec::new() } else { cgroup.members() };
    for seen in pinned.iter().filter(|seen| members.contains(&seen.stat.pid) && seen.pidfd.is_alive()) {
        member_log.note(&seen.stat);
        member_log.killed(seen.stat.id(), &seen.pidfd);
        round.push(Signal::KILL, seen.stat.id(), seen.pidfd.signal(Signal::KILL));
    }
}

impl Containment {
    /// Whether each child is dead, and held by its tracer.
    fn has_only_corpses(&self) -> bool {
        quell_sys::own_children().is_ok_and(|children| children.iter().all(|pid| self.is_held_corpse(*pid)))
    }
}

impl SignalRound {
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
