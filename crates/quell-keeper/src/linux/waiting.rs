//! A job between two runs of its program: it has no process, and waits to be started again. Whatever is wanted of it then is
//! heard and told as while it runs.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use quell_core::{
    Actor, Cause, EventKind, JobEvent, Moment, Receipt, RecordedState, StateRecord, Step, StepKind,
};
use quell_store::{DiskFull, EndStep, JobEnd, SyncWhen, now};
use quell_sys::fault::{FaultPoint, fault_point};
use quell_sys::{Polled, Sources};

use super::desk::{ClientRequest, KeeperSource};
use super::finish::DISK_PATIENCE;
use super::service::client;
use super::supervise::{Kit, SupervisedJob, who_asked};
use super::wire::{Note, Order};
use crate::control::{Answer, Call};

/// Waits before the program is started again; false if the job is to end instead, which is on record then. `last` is what
/// the run before came to.
pub fn pause(job: &SupervisedJob, kit: &mut Kit, run: u32, delay: Duration, last: &Receipt) -> bool {
    Pause { job, kit, run, last, began: Instant::now() }.wait(delay)
}

struct Pause<'a> {
    job: &'a SupervisedJob,
    kit: &'a mut Kit,
    run: u32,
    last: &'a Receipt,
    began: Instant,
}

impl Pause<'_> {
    fn wait(mut self, delay: Duration) -> bool {
        let until = self.began + delay;
        loop {
            let Some(desk) = &self.kit.desk else { return false };
            // Asked for when the last run had just ended.
            if let Some((cause, actor)) = desk.ending.clone() {
                self.end(cause, actor);
                return false;
            }
            let mut sources = Sources::default();
            sources.add(KeeperSource::Signals, Polled::Read(self.kit.signals.as_fd()));
            let front = self.kit.front.as_ref().map(|front| Polled::Read(front.as_fd()));
            sources.add_any(KeeperSource::Front, front);
            desk.add_sources(&mut sources);
            let wake = desk.deadline().map_or(until, |due| due.min(until));
            let ready = sources.wait(Some(wake)).unwrap_or_default();
            self.kit.hear_signals(self.job);
            let mut stop = self.hear_front();
            let wishes = match &mut self.kit.desk {
                Some(desk) => desk.handle(&ready),
                None => Vec::new(),
            };
            for wish in wishes {
                let reason = self.grant(wish);
                stop = stop.or(reason);
            }
            if let Some((cause, actor)) = stop {
                self.end(cause, actor);
                return false;
            }
            if Instant::now() >= until {
                fault_point(FaultPoint::WaitOver);
                return true;
            }
        }
    }

    /// Does what the standby says; a reason to end the job, if it is one.
    fn hear_front(&mut self) -> Option<(Cause, Actor)> {
        let front = self.kit.front.as_mut()?;
        let arrived = front.hear::<Order>();
        let mut stop = None;
        for order in arrived.messages {
            let _ = front.mention(&Note::Heard);
            stop = stop.or(match order {
                Order::Stop(actor) => Some((Cause::User, actor)),
                Order::OwnerGone => Some((Cause::OwnerGone, Actor::Quell)),
                Order::Pass(_) => None,
            });
        }
        if arrived.closed {
            (self.kit.front, self.kit.crew.standby) = (None, None);
            self.happen(EventKind::StandbyLost);
        }
        if matches!(stop, Some((Cause::OwnerGone, _))) {
            self.happen(EventKind::OwnerGone { kept: false });
        }
        stop
    }

    /// Does what is wanted at the desk; a reason to end the job, if it is one.
    fn grant(&mut self, wish: ClientRequest) -> Option<(Cause, Actor)> {
        let desk = self.kit.desk.as_mut()?;
        match wish {
            ClientRequest::OwnerGone => {
                let kept = desk.is_kept();
                self.happen(EventKind::OwnerGone { kept });
                (!kept).then_some((Cause::OwnerGone, Actor::Quell))
            }
            ClientRequest::TimeToLiveOver => {
                self.happen(EventKind::TimedOut);
                Some((Cause::Timeout, Actor::Quell))
            }
            ClientRequest::Call { key, pid, uid, call } => {
                let answer = match call {
                    Call::Stop { reason, .. } => {
                        desk.answer(key, &Answer::Heard);
                        return Some((Cause::User, client(pid, uid, reason, &self.kit.crew.mask)));
                    }
                    Call::Look => Answer::Seen(Vec::new()),
                    Call::Vitals => Answer::Vitals { cpu: 0, output: desk.taps.bytes() },
                    Call::Signal { .. } | Call::Send { .. } => Answer::Refused {
                        code: "wrong_state".into(),
                        why: "it waits to be started again".into(),
                    },
                };
                desk.answer(key, &answer);
                None
            }
        }
    }

    /// Writes the history, and tells the hooks.
    fn happen(&mut self, what: EventKind) {
        let (spec, run) = (&self.job.spec, self.run);
        let event = JobEvent::new(spec, now(), run, what);
        // A record that was removed on purpose needs no history; and the end does not depend on it.
        if let Some(store) = self.job.store.as_ref().filter(|store| store.exists()) {
            let _ = store.log_event(&event);
        }
        if let Some(desk) = &mut self.kit.desk {
            desk.tell(&event);
        }
    }

    /// Ends the job: all that is left to do is to say so. How its last run went stays as it was; why there is no other one,
    /// and since when, is news.
    fn end(mut self, cause: Cause, actor: Actor) {
        let Some(store) = &self.job.store else { return };
        fault_point(FaultPoint::WaitEnding);
        self.happen(EventKind::StopAsked { cause, actor: actor.clone() });
        let at = self.last.ended.at + self.began.elapsed().as_secs_f64();
        let ended = Moment { at, wall: now() };
        let mut receipt = Receipt { cause, actor: actor.clone(), ended, ..self.last.clone() };
        let (moment, note) = (receipt.ended.clone(), who_asked(cause, &actor));
        receipt.steps.push(Step { moment, step: StepKind::StopAsked, note, signals: Vec::new() });
        // What is on disk may be older than the last run, if the disk was full then.
        let published = self.kit.published.clone().map_or_else(|| store.record(), Ok);
        let event = JobEvent::new(&self.job.spec, now(), self.run, EventKind::ended(&receipt));
        let Kit { front, desk, lock, .. } = &mut *self.kit;
        let kept = published.and_then(|record| {
            let tree = record.state.tree().cloned();
            let (run, since) = (self.run, receipt.ended.clone());
            let record =
                StateRecord { run, since, state: RecordedState::after(&receipt, tree, None), ..record };
            let end = JobEnd {
                job: store,
                lock: lock.as_ref(),
                receipt: &receipt,
                record: &record,
                events: &[event],
                sync: if front.is_some() { SyncWhen::AfterMark } else { SyncWhen::BeforeMark },
                disk_full: DiskFull::UseReserve(DISK_PATIENCE),
            };
            end.write(|step| match (step, desk.as_mut()) {
                (EndStep::Logged(event), Some(desk)) => desk.tell(event),
                (EndStep::Told, Some(desk)) => desk.dismiss(),
                (EndStep::Logged(_) | EndStep::Told, None) => {}
            })
        });
        if let Err(error) = kept {
            receipt.warnings.push(error.to_string());
        }
        if let Some(front) = front {
            let receipt = Box::new(receipt);
            let _ = front.say(&Note::Done { receipt, leaked: false, failed: None, unwritten: false });
        }
    }
}
