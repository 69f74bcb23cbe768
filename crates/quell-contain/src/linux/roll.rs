//! The roll: every process that was seen in the tree, and what was done to it.

use std::collections::{BTreeMap, BTreeSet};

use quell_core::{Fate, Member, ProcId};
use quell_sys::Stat;

/// How many members are remembered by name; a tree that forks for ever must not fill the keeper's memory.
const CAPACITY: usize = 4096;
/// How much of a command line is kept.
const COMMAND_LENGTH: usize = 200;

/// Who was seen, who was asked, who had to be killed.
#[derive(Debug, Default)]
pub struct Roll {
    members: BTreeMap<ProcId, Member>,
    /// What each called itself when its command was read; not of the root, which is known by what was asked for.
    comms: BTreeMap<ProcId, String>,
    order: Vec<ProcId>,
    omitted: u64,
    asked: BTreeSet<ProcId>,
    killed: BTreeSet<ProcId>,
}

/// The identity in a stat line.
pub fn identity(stat: &Stat) -> ProcId {
    ProcId { pid: stat.pid, start: stat.start }
}

/// Cuts a command line to what is kept of it.
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

impl Roll {
    /// Notes a process that is proven to be of the tree.
    pub fn see(&mut self, stat: &Stat) {
        let id = identity(stat);
        if let Some(member) = self.members.get_mut(&id) {
            // As it stands now: it may have gone to another session, lost its parent or become another program.
            (member.ppid, member.pgid, member.sid) = (stat.ppid, stat.pgid, stat.sid);
            if let Some(comm) = self.comms.get_mut(&id).filter(|comm| **comm != stat.comm) {
                comm.clone_from(&stat.comm);
                member.uid = quell_sys::uid_of(stat.pid).unwrap_or(member.uid);
                member.command = short_command(&quell_sys::cmdline(stat.pid), &stat.comm);
            }
            return;
        }
        if self.order.len() >= CAPACITY {
            // Nothing of it would be kept, so nothing is read.
            self.omitted += 1;
            return;
        }
        let member = Member {
            id,
            ppid: stat.ppid,
            pgid: stat.pgid,
            sid: stat.sid,
            uid: quell_sys::uid_of(stat.pid).unwrap_or_default(),
            user: None,
            command: short_command(&quell_sys::cmdline(stat.pid), &stat.comm),
            fate: Fate::Exited,
        };
        self.add(member);
        self.comms.insert(id, stat.comm.clone());
    }

    /// Notes a member whose particulars are known.
    pub fn add(&mut self, member: Member) {
        if self.order.len() >= CAPACITY {
            self.omitted += 1;
            return;
        }
        self.order.push(member.id);
        self.members.insert(member.id, member);
    }

    /// Notes that `id` was asked to end.
    pub fn asked(&mut self, id: ProcId) {
        if self.asked.len() < CAPACITY {
            self.asked.insert(id);
        }
    }

    /// Notes that `id` was alive when the kill came.
    pub fn killed(&mut self, id: ProcId) {
        if self.killed.len() < CAPACITY {
            self.killed.insert(id);
        }
    }

    /// Everyone seen, in the order of being seen, with their fates; and how many more there were.
    pub fn close(&self, survivors: &[ProcId]) -> (Vec<Member>, u64) {
        let mut names = BTreeMap::new();
        let members = self.order.iter().filter_map(|id| self.members.get(id)).map(|member| {
            let user = names.entry(member.uid).or_insert_with(|| quell_sys::user_name(member.uid)).clone();
            let (asked, killed) = (self.asked.contains(&member.id), self.killed.contains(&member.id));
            let fate = match (survivors.contains(&member.id), asked, killed) {
                (true, _, _) => Fate::Alive,
                (false, true, true) => Fate::IgnoredAsk,
                (false, false, true) => Fate::Killed,
                (false, true, false) => Fate::ExitedOnAsk,
                (false, false, false) => Fate::Exited,
            };
            Member { user, fate, ..member.clone() }
        });
        (members.collect(), self.omitted)
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
    fn a_fork_bomb_does_not_fill_the_roll() {
        let mut roll = Roll::default();
        for pid in 0..10_000 {
            let id = ProcId { pid, start: 1 };
            let (command, user) = (String::new(), None);
            roll.add(Member { id, ppid: 1, pgid: 1, sid: 1, uid: 0, user, command, fate: Fate::Exited });
        }
        let (members, omitted) = roll.close(&[]);
        assert_eq!((members.len(), omitted), (CAPACITY, 10_000 - CAPACITY as u64));
    }
}
