//! The keeper's own tree, as the stop engine uses it: a request to stop begins here, each step is carried out here, and becomes
//! evidence, record and history.

use std::time::{Duration, Instant};

use quell_contain::{Pace, StopEngine, Tree};
use quell_core::{
    Actor, AskScope, Cause, Count, EventKind, LifecycleEvent, Phase, ProcId, RootOutcome, Signal, Step,
    StepKind, StopMode, StopRequest, Until, describe_request,
};
use quell_sys::fault::{FaultPoint, fault_point};

use super::engine::{REST, Supervisor};

/// How often a kill is repeated if no event asks for it: before Linux 6.14 a cgroup kill could miss a fork, and no event
/// reports that. Usually the exits of dying processes end the wait first.
const KILL_AGAIN: Duration = Duration::from_millis(50);

impl Supervisor {
    /// Requests the end of the job: the processes are asked as in the job's plan.
    pub(super) fn ask_stop(&mut self, cause: Cause, actor: Actor, mode: StopMode) {
        self.ask_stop_of(StopRequest { cause, actor, mode, ask: None, signal: None });
    }

    /// Requests the end of the job.
    pub(super) fn ask_stop_of(&mut self, request: StopRequest) {
        let (cause, actor) = (request.cause, request.actor.clone());
        self.await_exec();
        if self.phase() != Phase::Ended {
            self.run.evidence.step(StepKind::StopAsked, describe_request(cause, &actor), vec![]);
            // A time limit has an event of its own.
            if cause != Cause::Timeout {
                self.record_event(EventKind::StopAsked { cause, actor });
            }
            fault_point(FaultPoint::StopNoted);
        }
        self.stop_with(request);
    }

    pub(super) fn stop_with(&mut self, request: StopRequest) {
        self.host.backoff.ending.get_or_insert((request.cause, request.actor.clone()));
        self.step(LifecycleEvent::StopAsked(request));
    }

    pub(super) fn step(&mut self, event: LifecycleEvent) {
        StopEngine::handle(self, event);
        if matches!(self.phase(), Phase::Asking | Phase::Killing) {
            self.end_readiness();
        }
    }

    /// Puts processes on record that have outlived the root.
    fn note_left(&mut self, left: Vec<ProcId>) {
        let known = &mut self.run.evidence.left;
        known.extend(left.iter().filter(|id| !known.contains(id)).copied().collect::<Vec<_>>());
        self.note_members(left, None);
    }

    /// What has outlived the root was waited for, and is to be stopped now: from here on it is a leak.
    pub(super) fn note_leftovers(&mut self) {
        let left = self.run.containment.note_living();
        let members = left.len();
        if members > 0 {
            self.note_left(left);
            self.run.engine.life.leftovers_unwanted();
            self.record_event(EventKind::Leaked { members });
        }
    }
}

impl Tree for Supervisor {
    fn pace(&self) -> Pace {
        Pace { again: KILL_AGAIN, look: None, rest_factor: REST, longest_rest: KILL_AGAIN }
    }

    fn engine(&mut self) -> &mut StopEngine {
        &mut self.run.engine
    }

    fn count(&mut self) -> Count {
        self.run.containment.count()
    }

    fn ask(&mut self, signal: Signal, to: AskScope) {
        let (moment, again) = (self.run.evidence.now(), self.run.evidence.acted());
        let signals = self.run.containment.ask(signal, to).signals;
        let note = match to {
            AskScope::Tree => "each followed by CONT",
            AskScope::Root => "to the root alone, followed by CONT",
        };
        let living = signals.iter().map(|sent| sent.to).collect();
        let step = Step { moment, step: StepKind::Ask, note: note.to_owned(), signals };
        self.note_members(living, Some(&step));
        self.run.evidence.add(step);
        let members = self.run.evidence.asked();
        let left = self.run.engine.deadline().map(|due| due.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Duration::from_millis(left.as_millis() as u64));
        let grace = left.filter(|_| again).unwrap_or(self.run.engine.life.grace());
        self.record_event(EventKind::Asked { signal, grace, members, to });
    }

    fn kill_round(&mut self) -> bool {
        let moment = self.run.evidence.now();
        let round = self.run.containment.kill_round();
        let (note, signals) = (round.note, round.signals);
        self.run.evidence.add(Step { moment, step: StepKind::Kill, note, signals });
        round.settled
    }

    fn finish(&mut self) {
        self.conclude();
    }

    fn look_at_root(&mut self) {
        self.notice_root_exit();
    }

    fn state_changed(&mut self) {
        self.record_state();
    }

    fn hurried(&mut self, by: Duration) {
        self.run.evidence.hurry(by);
    }

    fn outlived(&mut self) {
        if self.run.evidence.left.is_empty() {
            let left = self.run.containment.note_living();
            self.note_left(left);
            if self.job.rules.until == Until::Root {
                let members = self.run.evidence.left.len();
                self.record_event(EventKind::Leaked { members });
            }
        }
        if self.job.keeps_left() {
            self.release_front();
        }
    }

    fn killing(&mut self) {
        let life = &self.run.engine.life;
        let ran = !matches!(life.root(), Some(RootOutcome::NotStarted { .. }));
        // A process that takes over may find no member left to kill.
        if self.has_events()
            && ran
            && !self.run.kill_reported
            && self.run.containment.count() != Count::Alive(0)
        {
            self.run.kill_reported = true;
            let life = &self.run.engine.life;
            let (reason, cause) = (life.kill_reason(), life.ending().map(|(cause, _)| *cause));
            self.record_event(EventKind::Killed { reason, cause });
        }
    }
}
