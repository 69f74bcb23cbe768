//! What a front or a standby does when its keeper was killed: it finishes the stop, and puts the end on record.

use std::time::{Duration, Instant};

use quell_contain::Containment;
use quell_core::{Actor, Cause, JobEvent, Member, Receipt, RootOutcome, Step, StepKind, Verdict};
use quell_store::{JobDir, JobEnd, Liveness, Lock};
use quell_sys::fault::{FaultPoint, fault_point};

use super::background::{Backstage, Crew};
use super::desk::Desk;
use super::evidence::{Evidence, Outlet};
use super::front::Front;
use super::helper;
use super::supervise::{Kit, SupervisedJob, Supervisor};
use super::taps::Taps;
use crate::{Finished, RunError};

/// How long one who takes over waits for whoever holds the job's lock: a look takes microseconds, and one who finishes
/// the job has said so by then.
const LOCK_PATIENCE: Duration = Duration::from_millis(200);

/// What a receipt says if the keeper was killed while it killed the members.
const NOT_COUNTED: &str =
    "the keeper was killed during the kill: processes that it had killed before may not be counted here";

impl Front {
    /// The keeper is gone without a word. Its children are ours now, as we are the next subreaper above it.
    pub(super) fn take_over(
        mut self,
        outlets: Vec<Outlet>,
        mut evidence: Evidence,
    ) -> Result<Finished, RunError> {
        fault_point(FaultPoint::KeeperMissed);
        let lost = self.collect_keeper();
        fault_point(FaultPoint::KeeperCollected);
        let plan = &self.plan;
        let mask = self.request.masked_values();
        let mut job = SupervisedJob::new(&self.request, plan, outlets, &mask);
        // It may have died before there was a record; none is made for what never ran.
        job.store = job.store.filter(JobDir::exists);
        if let Some(receipt) = job.store.as_ref().and_then(|store| ended_already(store, None, |_| {})) {
            let unwritten =
                job.outlets.iter_mut().filter_map(|outlet| outlet.write(&receipt).err()).count() > 0;
            let (leaked, interrupted) = (self.known.leaked, self.interrupted);
            return Ok(Finished { receipt, leaked, unwritten, interrupted });
        }
        let mut hold = Containment::take_over(
            plan.id,
            plan.session,
            &plan.marker,
            self.told,
            plan.preexisting_children.clone(),
        );
        recall(&mut hold, &mut evidence, std::mem::take(&mut self.members), lost);
        evidence.warnings.extend(self.killing.then(|| NOT_COUNTED.into()));
        fault_point(FaultPoint::HoldTaken);
        let kit = Kit {
            front: None,
            signals: self.signals,
            desk: None,
            lock: None,
            crew: Crew { mask, ..Crew::default() },
            starter: None,
            published: None,
            helper: self.helper,
        };
        let end = Supervisor::finish(job, hold, evidence, kit, self.known, 1);
        fault_point(FaultPoint::TakenOver);
        let (receipt, leaked, unwritten) = (end.receipt, end.leaked, end.unwritten);
        Ok(Finished { receipt, leaked, unwritten, interrupted: self.interrupted })
    }

    /// The same for a background job: what it had written is taken from the pipes, and its end goes on record.
    pub(super) fn take_over_background(
        mut self,
        job: SupervisedJob,
        mut backstage: Backstage,
        evidence: Evidence,
    ) -> Result<(), RunError> {
        fault_point(FaultPoint::KeeperMissed);
        let lost = self.collect_keeper();
        fault_point(FaultPoint::KeeperCollected);
        let plan = &self.plan;
        let (Some(background), Some(store)) = (self.request.as_background(), &job.store) else {
            return Ok(());
        };
        let tell = |event: &JobEvent| {
            if let Some(helper) = &mut backstage.helper {
                helper::tell(helper, &self.request.hooks, event);
            }
        };
        if ended_already(store, Some(&backstage.lock), tell).is_some() {
            return Ok(());
        }
        let run = self.births.max(1);
        let mut hold = Containment::take_over(plan.id, plan.session, &plan.marker, self.told, Vec::new());
        let mut evidence = self.run_evidence.unwrap_or(evidence);
        recall(&mut hold, &mut evidence, std::mem::take(&mut self.members), lost);
        evidence.warnings.extend(self.killing.then(|| NOT_COUNTED.into()));
        fault_point(FaultPoint::HoldTaken);
        let taps = Taps::open(store.dir(), backstage.ends, background.max_log, true);
        let desk = taps.ok().map(|taps| {
            let mut desk =
                Desk::new(background.clone(), self.request.hooks.clone(), taps, None, None, backstage.helper);
            // Without a keeper there is no other run, whatever has ended this one.
            desk.ending = Some(self.known.ending.clone().unwrap_or((Cause::KeeperLost, Actor::Unknown)));
            Box::new(desk)
        });
        let crew = Crew {
            standby: backstage.standby,
            keeper_cgroup: backstage.keeper_cgroup,
            mask: backstage.mask,
            keeper: None,
        };
        let kit = Kit {
            front: None,
            signals: self.signals,
            desk,
            lock: Some(backstage.lock),
            crew,
            starter: None,
            published: None,
            helper: None,
        };
        let end = Supervisor::finish(job, hold, evidence, kit, self.known, run);
        fault_point(FaultPoint::TakenOver);
        // A starter that still waits has nothing to wait for.
        match (self.starter, end.receipt.verdict) {
            (Some(_), Verdict::Gone) => Err(RunError::Start("its keeper was killed while it began".into())),
            (Some(_) | None, _) => Ok(()),
        }
    }
}

/// Takes down what the keeper had said before it was `lost`: the members, some of which may be gone by now, and how they were
/// asked to end.
fn recall(
    hold: &mut Containment,
    evidence: &mut Evidence,
    told: Vec<(Vec<Member>, Option<Step>)>,
    lost: Option<RootOutcome>,
) {
    for (members, asked) in told {
        hold.recall(members, asked.as_ref().map_or(&[], |step| &step.signals));
        asked.into_iter().for_each(|step| evidence.recall(step));
    }
    let how = match lost {
        Some(RootOutcome::Signaled { signal, .. }) => format!("was killed by {signal}"),
        Some(RootOutcome::Exited { code }) => format!("exited with code {code}"),
        Some(RootOutcome::NotStarted { .. } | RootOutcome::Unknown) | None => "was killed".into(),
    };
    evidence.step(StepKind::StopAsked, format!("the keeper {how}"), vec![]);
}

/// The receipt of a job whose keeper had put its end on record before it was killed. That was proven and may have been
/// read: what can be missing behind it is done here.
fn ended_already(store: &JobDir, lock: Option<&Lock>, tell: impl FnMut(&JobEvent)) -> Option<Receipt> {
    // What fails here is done by the next command that looks.
    JobEnd::resume(store, lock, tell).unwrap_or_else(|_| store.receipt().ok())
}

/// Whether one who takes over may write the record.
pub(super) enum Claim {
    /// Yes; with the lock, unless somebody holds it who writes nothing.
    Ours(Option<Lock>),
    /// No: a client is finishing the job, or it is over.
    AnothersOrOver,
}

/// Takes the lock of a job whose keeper is gone. A client that looks at the job at this moment has it for an instant; one
/// that found it lost before we came keeps it, and writes the end. Two who write at once would undo each other's work.
pub(super) fn claim(store: &JobDir) -> Claim {
    let began = Instant::now();
    loop {
        match store.liveness() {
            Ok(Liveness::Orphaned(lock)) => return Claim::Ours(Some(lock)),
            Ok(Liveness::Ended) => return Claim::AnothersOrOver,
            Ok(Liveness::Supervised) if began.elapsed() < LOCK_PATIENCE => {
                // A lock has no event with a deadline.
                std::thread::sleep(Duration::from_millis(2));
            }
            Ok(Liveness::Finishing) => return Claim::AnothersOrOver,
            // A stub that hangs in its exec has it still.
            Ok(Liveness::Supervised) | Err(_) => return Claim::Ours(None),
        }
    }
}
