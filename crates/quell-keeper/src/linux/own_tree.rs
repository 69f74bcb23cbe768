//! The keeper's own tree, as the stop engine uses it: each step is carried out here, and becomes evidence, record and history.

use std::time::{Duration, Instant};

use quell_contain::{Pace, StopEngine, Tree};
use quell_core::{AskScope, Count, EventKind, RootOutcome, Signal, Step, StepKind, Until};

use super::engine::{REST, Supervisor};

/// How often a kill is repeated if no event asks for it: before Linux 6.14 a cgroup kill could miss a fork, and no event
/// reports that. Usually the exits of dying processes end the wait first.
const KILL_AGAIN: Duration = Duration::from_millis(50);

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
            self.run.evidence.left.clone_from(&left);
            let members = left.len();
            self.note_members(left, None);
            if self.job.rules.until == Until::Root {
                self.record_event(EventKind::Leaked { members });
            }
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
