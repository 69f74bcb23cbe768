//! The proof that nothing of a job is left, once its tree is stopped.

use std::io;
use std::time::Duration;

use quell_core::{ProcId, RootOutcome, Verdict};
use quell_sys::fault::{FaultPoint, fault_point};

use super::containment::Containment;
use super::keeper_cgroup;
use super::marker_search::{self, MarkerRule};
use super::member_set::MemberSet;
use super::possible_members::PossibleMembers;
use super::stop::SignalRound;

/// How long the search for marked processes waits for those that it has killed.
pub const MARKER_SEARCH_PATIENCE: Duration = Duration::from_secs(2);

/// What was proven about the end of a tree.
#[derive(Debug)]
pub struct Proof {
    pub verdict: Verdict,
    pub survivors: Vec<ProcId>,
}

impl Containment {
    /// Proves the end of the tree, of which the lifecycle has reached `verdict`. The verdict can only become weaker here. A tree
    /// that was signalled is searched for members outside of it: they are killed, and `searched` is called with what that did.
    ///
    /// After: the root is reaped, and its PID can be reused.
    pub fn prove(
        &mut self,
        verdict: Verdict,
        was_signalled: bool,
        searched: impl FnOnce(SignalRound),
    ) -> Proof {
        let mut survivors = if verdict == Verdict::Gone { vec![] } else { self.note_living() };
        survivors.extend(self.ambiguous_children());
        // The init of a PID namespace waits for members that a tracer has not collected, which are dead.
        if survivors.is_empty() && verdict != Verdict::Gone && self.backend.has_init() {
            survivors.extend(self.root.filter(|init| super::is_alive(*init)));
        }
        let mut unlisted = None;
        if was_signalled {
            let (round, left) = self.kill_marked();
            searched(round);
            fault_point(FaultPoint::MarkedKilled);
            match left {
                Ok(left) => {
                    let new: Vec<_> = left.into_iter().filter(|id| !survivors.contains(id)).collect();
                    survivors.extend(new);
                }
                Err(error) => unlisted = Some(format!("the processes of this host can't be listed: {error}")),
            }
        }
        let verdict = match (verdict, self.collect_root()) {
            (Verdict::Gone, Err(why)) => Verdict::Unproven { why },
            (Verdict::Gone, Ok(())) if !survivors.is_empty() => Verdict::Survivors { count: survivors.len() },
            (Verdict::Gone, Ok(())) => {
                let why = unlisted.or_else(|| self.why_unproven());
                why.map_or(Verdict::Gone, |why| Verdict::Unproven { why })
            }
            (Verdict::Survivors { .. }, _) => Verdict::Survivors { count: survivors.len().max(1) },
            (unproven @ Verdict::Unproven { .. }, _) => unproven,
        };
        fault_point(FaultPoint::RootCollected);
        Proof { verdict, survivors }
    }

    /// Kills marked processes outside the tree and waits for them. Returns those that are still alive, or an error if the
    /// processes can't be listed.
    fn kill_marked(&mut self) -> (SignalRound, io::Result<Vec<ProcId>>) {
        let not_before = self.recorded().root.map_or(u64::MAX, |root| root.start);
        let marker_rule = MarkerRule {
            marker: &self.marker,
            not_before,
            starter_cgroups: self.starter_cgroups.as_slice().into(),
        };
        // Without a cgroup of its own, a job has its processes in that of its keeper.
        let keeper_dir = if self.backend.cgroup().is_none() { keeper_cgroup::moved_to() } else { None };
        marker_search::kill_marked(&marker_rule, keeper_dir, &mut self.member_log, MARKER_SEARCH_PATIENCE)
    }

    /// Reaps the root, whose PID can be reused from here on, and proves that no child is left. Notes whether another process
    /// has killed the init of a PID namespace: then the root died with it.
    fn collect_root(&mut self) -> Result<(), String> {
        self.group = false;
        self.member_set = MemberSet::default();
        if let Some(root) = self.root {
            let exit = quell_sys::reap(root.pid).ok().flatten();
            let is_killed = exit.is_some_and(|exit| matches!(exit.outcome, RootOutcome::Signaled { .. }));
            // The init of a lost keeper died with it.
            let is_by_quell = self.kill_rounds > 0 || self.is_taken_over();
            self.init_was_killed = is_killed && self.backend.has_init() && !is_by_quell;
        }
        if let Some(root) = self.shown_root().filter(|_| self.init_was_killed) {
            self.member_log.killed_by_namespace(root);
        }
        // What is left was there before the job, or is counted as ambiguous.
        if !self.preexisting_children.is_empty() {
            return Ok(());
        }
        let are_all_held =
            || quell_sys::own_children().is_ok_and(|pids| pids.iter().all(|pid| self.is_held_corpse(*pid)));
        match quell_sys::has_child() {
            Ok(false) => Ok(()),
            Ok(true) if are_all_held() => Ok(()),
            Ok(true) => Err("a child is left after the root was collected".into()),
            Err(error) => Err(format!("the children can't be counted: {error}")),
        }
    }

    /// Why the job may have living processes that are not our descendants, or None if it can't have any.
    fn why_unproven(&self) -> Option<String> {
        // A process in a PID namespace can't enter a namespace outside of it.
        let root = self.recorded().root.filter(|_| !self.backend.has_init())?;
        PossibleMembers { not_before: root.start, root_before: root.start, session: self.session }
            .in_other_namespaces(root, &self.marker, &self.starter_cgroups)
    }
}

/// The note of the last step of a stop.
pub fn describe_verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Gone => "0 left".into(),
        Verdict::Survivors { count } => format!("{count} left"),
        Verdict::Unproven { why } => why.clone(),
    }
}
