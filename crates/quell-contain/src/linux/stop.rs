//! How a tree is stopped: ask, brake, kill, sweep; and how it is counted.

use std::io;

use quell_core::{AskScope, Count, ProcId, SentSignal, Signal, SignalResult};
use quell_sys::fault::{FaultPoint, fault_point};
use quell_sys::{Sent, Stat};

use super::backend::Brake;
use super::cgroup_fs::Cgroup;
use super::containment::Containment;
use super::marker_search;
use super::member_log::MemberLog;
use super::member_set::MemberSet;
use super::possible_members::named;
use super::walk::{Below, Pinned, pin};

/// How often the set of members to ask is collected, because one of them has died meanwhile.
const ASK_PASSES: usize = 2;
/// How many passes the brake makes in one round, at most, before the kill.
const BRAKE_PASSES: usize = 8;
/// How many passes the sweep makes in one round, at most, before it waits for an event.
const SWEEP_PASSES: usize = 64;
/// How often the children are listed in one count, because one of them has died meanwhile.
const REAP_PASSES: usize = 64;
/// The process name of a keeper, which identifies the keeper of a nested job. Another process with this name is only not asked
/// before it is killed.
pub const KEEPER_NAME: &str = "quell-keeper";

/// What one round of asking or killing did.
#[derive(Debug, Default)]
pub struct SignalRound {
    pub signals: Vec<SentSignal>,
    /// What else it did, as text.
    pub note: String,
    /// Whether its last pass found no new member: then only exits have to be waited for.
    pub settled: bool,
}

impl Containment {
    /// Whether a child of ours is not part of the job. All children of a keeper are. But a program can have executed the front
    /// after it made children: these and their orphans don't carry the marker.
    fn is_foreign(&self, pid: u32) -> bool {
        !self.preexisting_children.is_empty()
            && self.root.is_none_or(|root| root.pid != pid)
            && !marker_search::has_marker(pid, &self.marker)
    }

    /// Living children that may be members or orphans of what our caller started: they started after the job and don't carry
    /// the marker. They are named and not signalled.
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

    /// Reaps dead children, except the root, and counts the living. Otherwise adopted orphans would be zombies until the job
    /// ends.
    ///
    /// A child that dies after it was listed leaves its own children to us. So the count is zero only if nothing had to be
    /// reaped after a listing: then the listing was complete.
    pub fn reap_orphans(&mut self) -> io::Result<usize> {
        let mut member_log = std::mem::take(&mut self.member_log);
        let living = self.reap_for(&mut member_log);
        self.member_log = member_log;
        living
    }

    fn reap_for(&self, member_log: &mut MemberLog) -> io::Result<usize> {
        // Children that were dead before this listing: the orphans that they left are on it.
        let mut corpses = Vec::new();
        for _ in 0..REAP_PASSES {
            // Checked before the listing: if the root was dead by then, its orphans are on the listing.
            let root_lives = match self.root {
                // A root whose leader thread has exited looks dead while its other threads live.
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
            // With a living child the exact number does not matter.
            if !collected || living > 0 {
                return Ok(living);
            }
        }
        // Children start and die faster than they can be listed, so at least one is alive.
        Ok(1)
    }

    /// Whether a child is dead and can't be reaped, because its tracer (a debugger) has to reap it first. Checked only after it
    /// has survived a kill round.
    pub(super) fn is_held_corpse(&self, pid: u32) -> bool {
        self.kill_rounds > 1 && quell_sys::stat(pid).is_ok_and(|stat| stat.is_dead())
    }

    /// Whether a check of constant cost finds a living process: in the cgroup, the root, or the first of our children. Reaps
    /// the dead ones among those.
    fn is_obviously_alive(&mut self) -> bool {
        if self.cgroup().is_some_and(|cgroup| cgroup.populated().is_ok_and(|populated| populated)) {
            return true;
        }
        // The caller's own children can't be told from members without reading each of them.
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

    /// Counts. Zero means that no process of the tree is alive, and the kernel proves it. Any other number is a lower bound.
    pub fn count(&mut self) -> Count {
        // This runs at every exit, so with many members each exit must not cost a look at all others.
        if self.is_obviously_alive() {
            return Count::Alive(1);
        }
        let living = match self.reap_orphans() {
            Ok(living) => living,
            Err(error) => return Count::Unknown(format!("the children can't be listed: {error}")),
        };
        // Always read: an event that is not read is reported for ever.
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

    /// Walks over the members. The init of a PID namespace is quell's own and not a member.
    pub(super) fn walk(&self, visit: impl FnMut(&Pinned) -> Below) {
        self.walk_on(&mut MemberSet::default(), visit);
    }

    /// The same, except members that are already in `member_set`.
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

    /// Every living member. All are noted in the log of members.
    pub fn note_living(&mut self) -> Vec<ProcId> {
        let mut member_log = std::mem::take(&mut self.member_log);
        let mut living = Vec::new();
        member_log.drop_exited_pins();
        self.walk(|seen| {
            member_log.note(&seen.stat);
            member_log.keep_pin(seen.stat.id(), &seen.pidfd);
            living.push(seen.stat.id());
            Below::Visit
        });
        self.member_log = member_log;
        living
    }

    /// Asks all members to exit, or only the root: `signal`, then CONT, because a stopped process handles no signal before it
    /// continues.
    ///
    /// The keeper of a nested job and the processes below it are not asked. The front or standby of that job is, and its keeper asks
    /// them once. A keeper that has neither ignores the request, so the processes below it are asked here.
    ///
    /// The members are collected before the first signal, because a process that exits leaves its children to be looked for
    /// elsewhere. The root's process group is signalled as a whole, which no fork can escape. Other members are signalled
    /// through their pins. A process that starts later may have been started by a signal handler, and may finish its work.
    pub fn ask(&mut self, signal: Signal, to: AskScope) -> SignalRound {
        let mut round = SignalRound::default();
        let mut member_log = std::mem::take(&mut self.member_log);
        member_log.drop_exited_pins();
        let whole = to == AskScope::Tree;
        let group = self.root.filter(|_| self.group && whole).map(|root| root.pid);
        let (mut member_set, mut set) = (MemberSet::default(), Vec::new());
        for _ in 0..ASK_PASSES {
            self.walk_on(&mut member_set, |seen| {
                member_log.note(&seen.stat);
                if seen.stat.comm == KEEPER_NAME && has_supervisor(&seen.stat) {
                    return Below::Skip;
                }
                let id = seen.stat.id();
                member_log.keep_pin(id, &seen.pidfd);
                if whole || Some(id) == self.shown_root() {
                    set.push((id, group == Some(seen.stat.pgid)));
                }
                Below::Visit
            });
            // A process that dies meanwhile leaves its children to us, and the walk may have missed them.
            if !member_set.has_lost() {
                break;
            }
            member_set.list_again();
        }
        // Members of the group that were alive just now get the signal with the group.
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

    /// One kill round: brake, kill, sweep. The caller repeats it at each event until the count is zero.
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
            round.add_note(&format!("KILL to the group {}", root.pid));
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

    /// Calls `act` for each member that is not in the set yet, and notes that it is killed. Returns how many there were.
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

    /// Keeps the tree from growing while it is killed. Without a cgroup every member is stopped, in repeated passes, until a
    /// pass finds no new one. A tree that restarts its members does so when they die, not when they are stopped.
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

    /// Kills all descendants and reaps: by then the orphans of dead members are our children, and only we can reap them. The
    /// loop does not wait, because it has to outrun a chain of processes that fork and exit.
    ///
    /// A process that got a KILL makes no more children, so its children are listed once after that. Children that it left
    /// behind before are ours, and each pass lists those.
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
}

/// Whether the parent of a nested keeper is the front or standby that forked it. An orphaned keeper is a child of this process, or of a
/// program in between.
fn has_supervisor(keeper: &Stat) -> bool {
    keeper.ppid != quell_sys::pid() && quell_sys::is_quell(keeper.ppid)
}

/// Kills the processes in the cgroup that no walk has found, one by one. cgroup.kill skips a process whose leader thread has
/// exited, and a process that the init of another PID namespace has adopted is not our descendant.
fn kill_members(cgroup: &Cgroup, known: &MemberSet, member_log: &mut MemberLog, round: &mut SignalRound) {
    let unknown = cgroup.members().into_iter().filter(|pid| !known.knows(*pid));
    let pinned: Vec<Pinned> = unknown.filter_map(|pid| pin(pid, |_| true)).collect();
    // Listed again now that they are pinned: a PID that is listed and alive is in the cgroup.
    let members = if pinned.is_empty() { Vec::new() } else { cgroup.members() };
    for seen in pinned.iter().filter(|seen| members.contains(&seen.stat.pid) && seen.pidfd.is_alive()) {
        member_log.note(&seen.stat);
        member_log.killed(seen.stat.id(), &seen.pidfd);
        round.push(Signal::KILL, seen.stat.id(), seen.pidfd.signal(Signal::KILL));
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

    /// Adds what was done, once.
    pub(super) fn add_note(&mut self, done: &str) {
        if self.note.split(", ").any(|known| known == done) {
            return;
        }
        if !self.note.is_empty() {
            self.note.push_str(", ");
        }
        self.note.push_str(done);
    }

    /// Kills all members of a cgroup.
    pub(super) fn kill_cgroup(&mut self, cgroup: &Cgroup) {
        match cgroup.kill() {
            Ok(()) => self.add_note("cgroup.kill"),
            Err(error) => self.add_note(&format!("cgroup.kill failed: {error}")),
        }
        fault_point(FaultPoint::CgroupKilled);
    }
}

#[cfg(test)]
mod tests {
    use super::SignalRound;

    #[test]
    fn a_round_notes_all_that_it_did_each_once() {
        let mut round = SignalRound::default();
        for done in ["KILL to the group 7", "cgroup.kill", "cgroup.kill"] {
            round.add_note(done);
        }
        assert_eq!(round.note, "KILL to the group 7, cgroup.kill");
    }
}
