//! The log of members: every process that was seen in the tree, what was sent to it, and its fate.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use quell_core::{Fate, Member, ProcId, RootOutcome, Signal};
use quell_sys::{PidFd, Sent, Stat};

/// How many members are remembered. A tree that forks for ever must not fill the keeper's memory.
const CAPACITY: usize = 4096;
/// How much of a command line is kept.
const COMMAND_LENGTH: usize = 200;

/// The members that were seen, asked and killed.
#[derive(Debug, Default)]
pub struct MemberLog {
    members: BTreeMap<ProcId, Member>,
    /// The process name at the time when each command line was read; empty while none could be read. Not of the root, whose
    /// command line is that of the request.
    comms: BTreeMap<ProcId, String>,
    order: Vec<ProcId>,
    omitted: u64,
    /// The members that were asked to exit, and the signal.
    asked: BTreeMap<ProcId, Signal>,
    killed: BTreeSet<ProcId>,
    /// Pins of members that were alive when they were last seen, by PID, until their exit status is known.
    pins: BTreeMap<u32, (ProcId, Rc<PidFd>)>,
    room: Option<usize>,
    ends: BTreeMap<ProcId, RootOutcome>,
    /// Members that the kernel has killed with their PID namespace, unless they exited before.
    killed_by_namespace: BTreeSet<ProcId>,
}

/// Cuts a command line to the length that is kept.
pub fn short_command(words: &[String], comm: &str) -> String {
    if words.is_empty() {
        return format!("[{comm}]");
    }
    let mut text = words.join(" ");
    if text.len() > COMMAND_LENGTH {
        let end = (0..=COMMAND_LENGTH).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

impl MemberLog {
    /// Notes a process that is proven to be a member.
    pub fn note(&mut self, stat: &Stat) {
        let id = stat.id();
        if let Some(member) = self.members.get_mut(&id) {
            // Update what can change: its session, its parent, its program.
            (member.ppid, member.pgid, member.sid) = (stat.ppid, stat.pgid, stat.sid);
            if let Some(comm) = self.comms.get_mut(&id).filter(|comm| **comm != stat.comm) {
                member.uid = quell_sys::uid_of(stat.pid).unwrap_or(member.uid);
                // A process that is exiting or in the middle of an exec has no command line. The next look reads it again.
                let words = quell_sys::cmdline(stat.pid);
                if !words.is_empty() {
                    comm.clone_from(&stat.comm);
                    member.command = short_command(&words, &stat.comm);
                }
            }
            return;
        }
        if self.order.len() >= CAPACITY {
            // Nothing of it would be kept, so nothing is read.
            self.omitted += 1;
            return;
        }
        let words = quell_sys::cmdline(stat.pid);
        let member = Member {
            id,
            ppid: stat.ppid,
            pgid: stat.pgid,
            sid: stat.sid,
            uid: quell_sys::uid_of(stat.pid).unwrap_or_default(),
            user: None,
            command: short_command(&words, &stat.comm),
            fate: Fate::Exited,
        };
        self.add(member);
        self.comms.insert(id, if words.is_empty() { String::new() } else { stat.comm.clone() });
    }

    /// Notes a member whose details are known.
    pub fn add(&mut self, member: Member) {
        if self.members.contains_key(&member.id) {
            return;
        }
        if self.order.len() >= CAPACITY {
            self.omitted += 1;
            return;
        }
        self.order.push(member.id);
        self.members.insert(member.id, member);
    }

    /// Notes a member that a lost keeper reported. Its command is read again when it is seen, because the report may have come
    /// before its exec.
    pub fn restore(&mut self, member: Member) {
        self.comms.entry(member.id).or_default();
        self.add(member);
    }

    /// The details of those of `ids` that were seen.
    pub fn of(&self, ids: &[ProcId]) -> Vec<Member> {
        ids.iter().filter_map(|id| self.members.get(id)).cloned().collect()
    }

    /// Notes that the kernel kills `id` together with its PID namespace.
    pub fn killed_by_namespace(&mut self, id: ProcId) {
        self.killed_by_namespace.insert(id);
    }

    /// Notes that `id` was asked to exit with `signal`.
    pub fn asked(&mut self, id: ProcId, signal: Signal) {
        if self.asked.len() < CAPACITY {
            self.asked.insert(id, signal);
        }
    }

    /// Notes that `id` was alive when the kill began.
    pub fn killed(&mut self, id: ProcId, pin: &Rc<PidFd>) {
        if self.killed.len() < CAPACITY && self.killed.insert(id) {
            self.keep_pin(id, pin);
        }
    }

    /// Keeps the pin of `id`: after the exit it tells the exit status.
    pub fn keep_pin(&mut self, id: ProcId, pin: &Rc<PidFd>) {
        // The walks keep pins too, and the keeper needs descriptors of its own.
        let room = *self.room.get_or_insert_with(|| {
            usize::try_from(quell_sys::open_files_allowed() / 4).unwrap_or(CAPACITY).min(CAPACITY)
        });
        if self.pins.len() < room
            && self.pins.get(&id.pid).is_none_or(|(pinned, _)| *pinned != id)
            && let Some((older, pin)) = self.pins.insert(id.pid, (id, pin.clone()))
            && let Some(outcome) = pin.exit()
        {
            self.ends.insert(older, outcome);
        }
    }

    /// Notes the exit statuses of members that were reaped, and closes their pins.
    pub fn drop_exited_pins(&mut self) {
        let ends = &mut self.ends;
        self.pins.retain(|_, (id, pin)| match pin.exit() {
            Some(outcome) => {
                ends.insert(*id, outcome);
                false
            }
            // A process that is not reaped takes signals, also if it is dead.
            None => pin.would_take_signals() != Sent::Gone,
        });
    }

    /// Notes how `id` ended.
    pub fn ended(&mut self, id: ProcId, outcome: RootOutcome) {
        self.ends.insert(id, outcome);
    }

    /// Reaps our child `pid` if it has exited. Returns whether it had. The exit status of a member is noted.
    pub fn reap(&mut self, pid: u32) -> io::Result<bool> {
        let Some((id, pin)) = self.pins.get(&pid) else { return self.reap_unpinned(pid) };
        match quell_sys::reap_pinned(pin) {
            Ok(Some(exit)) => {
                self.ends.insert(*id, exit.outcome);
                self.pins.remove(&pid);
                Ok(true)
            }
            Ok(None) => Ok(false),
            // Another process has this PID by now.
            Err(_) => self.reap_unpinned(pid),
        }
    }

    fn reap_unpinned(&mut self, pid: u32) -> io::Result<bool> {
        let mut same_pid = self.members.range(ProcId { pid, start: 0 }..=ProcId { pid, start: u64::MAX });
        let is_dead = || matches!(quell_sys::peek(pid), Ok(Some(_)));
        // A zombie keeps its PID until it is reaped, so this is its own stat line.
        let zombie = (same_pid.next().is_some() && is_dead()).then(|| quell_sys::stat(pid).ok()).flatten();
        let exit = quell_sys::reap(pid)?;
        if let (Some(zombie), Some(exit)) = (zombie, &exit) {
            self.ends.insert(zombie.id(), exit.outcome.clone());
        }
        Ok(exit.is_some())
    }

    /// Every member in the order in which it was seen, with its fate, and how many more there were. Members that were asked had
    /// this `grace` before the kill, or none if it is zero.
    pub fn with_fates(&self, survivors: &[ProcId], grace: Duration) -> (Vec<Member>, u64) {
        let mut names = BTreeMap::new();
        let members = self.order.iter().filter_map(|id| self.members.get(id)).map(|member| {
            let user = names.entry(member.uid).or_insert_with(|| quell_sys::user_name(member.uid)).clone();
            let fate = if survivors.contains(&member.id) { Fate::Alive } else { self.fate(member.id, grace) };
            Member { user, fate, ..member.clone() }
        });
        (members.collect(), self.omitted)
    }

    /// How a member ended. The exit status decides, not the signals that were sent.
    fn fate(&self, id: ProcId, grace: Duration) -> Fate {
        let (asked, end) = (self.asked.get(&id).copied(), self.end_of(id));
        let killed = self.killed.contains(&id) || self.killed_by_namespace.contains(&id);
        match (asked, end) {
            (Some(_), Some(RootOutcome::Signaled { signal: Signal::KILL, .. }))
                if killed && !grace.is_zero() =>
            {
                Fate::KilledAfterGrace
            }
            (_, Some(RootOutcome::Signaled { signal: Signal::KILL, .. })) => Fate::Killed,
            (Some(_), Some(RootOutcome::Exited { .. })) => Fate::ExitedOnAsk,
            (Some(asked), Some(RootOutcome::Signaled { signal, .. })) if signal == asked => Fate::ExitedOnAsk,
            (Some(_), _) => Fate::Ended,
            // Only the kill is known to have been sent.
            (None, None) if killed => Fate::Killed,
            (None, None) => Fate::Ended,
            (None, Some(_)) => Fate::Exited,
        }
    }

    /// How `id` ended, if that is known.
    pub fn end_of(&self, id: ProcId) -> Option<RootOutcome> {
        let known = self.ends.get(&id).filter(|outcome| **outcome != RootOutcome::Unknown);
        let pinned = || self.pins.get(&id.pid).filter(|(pinned, _)| *pinned == id);
        known.cloned().or_else(|| pinned()?.1.exit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_is_cut_between_characters() {
        let words = vec!["ä".repeat(300)];
        let short = short_command(&words, "x");
        assert!(short.len() <= COMMAND_LENGTH + 3 && short.ends_with('…'));
    }

    #[test]
    fn a_fork_bomb_does_not_fill_the_member_log() {
        let mut member_log = MemberLog::default();
        for pid in 0..10_000 {
            let id = ProcId { pid, start: 1 };
            let (command, user) = (String::new(), None);
            member_log.add(Member {
                id,
                ppid: 1,
                pgid: 1,
                sid: 1,
                uid: 0,
                user,
                command,
                fate: Fate::Exited,
            });
        }
        let (members, omitted) = member_log.with_fates(&[], Duration::ZERO);
        assert_eq!((members.len(), omitted), (CAPACITY, 10_000 - CAPACITY as u64));
    }

    #[test]
    fn the_fate_follows_what_a_process_died_of() {
        let (id, grace) = (ProcId { pid: 1, start: 1 }, Duration::from_secs(5));
        let pin = Rc::new(PidFd::open(quell_sys::pid()).unwrap());
        let by = |signal| Some(RootOutcome::Signaled { signal, core: false });
        let code = Some(RootOutcome::Exited { code: 0 });
        let cases = [
            (true, false, code.clone(), grace, Fate::ExitedOnAsk),
            (true, false, by(Signal::TERM), grace, Fate::ExitedOnAsk),
            (true, false, by(Signal::HUP), grace, Fate::Ended),
            (true, false, by(Signal::KILL), grace, Fate::Killed),
            (true, false, None, grace, Fate::Ended),
            (true, true, by(Signal::HUP), grace, Fate::Ended),
            (true, true, by(Signal::TERM), grace, Fate::ExitedOnAsk),
            (true, true, by(Signal::TERM), Duration::ZERO, Fate::ExitedOnAsk),
            (true, true, code.clone(), grace, Fate::ExitedOnAsk),
            (true, true, by(Signal::KILL), grace, Fate::KilledAfterGrace),
            (true, true, by(Signal::KILL), Duration::ZERO, Fate::Killed),
            (true, true, None, grace, Fate::Ended),
            (true, true, Some(RootOutcome::Unknown), grace, Fate::Ended),
            (false, true, by(Signal::KILL), grace, Fate::Killed),
            (false, true, code.clone(), grace, Fate::Exited),
            (false, true, None, grace, Fate::Killed),
            (false, false, None, grace, Fate::Ended),
            (false, false, code, grace, Fate::Exited),
            (false, false, by(Signal::KILL), grace, Fate::Killed),
        ];
        for (asked, killed, outcome, grace, fate) in cases {
            let mut member_log = MemberLog::default();
            if asked {
                member_log.asked(id, Signal::TERM);
            }
            if killed {
                member_log.killed(id, &pin);
            }
            let what = format!("asked {asked}, killed {killed}, {outcome:?}, {grace:?}");
            outcome.into_iter().for_each(|outcome| member_log.ended(id, outcome));
            assert_eq!(member_log.fate(id, grace), fate, "{what}");
        }
    }
}
