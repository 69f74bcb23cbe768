//! What a front or a standby does if its keeper was killed: it finishes the stop, and records the end.

use std::time::{Duration, Instant};

use quell_contain::{Containment, StopEngine};
use quell_core::{
    Actor, Cause, EventKind, JobEvent, Lifecycle, Member, ProcId, Receipt, RootOutcome, Step, StepKind,
};
use quell_store::{JobDir, JobEnd, Liveness, Lock};
use quell_sys::fault::{FaultPoint, fault_point};

use super::engine::{Run, Supervisor};
use super::evidence::Evidence;
use super::helper::HelperLink;
use super::host::Host;
use super::keeper_watch::KeeperWatch;
use super::output::{OutputCapture, OutputPipes};
use crate::Finished;

/// How long to wait for another process that holds the job's lock. A command that only looks at the job holds it for
/// microseconds, and one that finishes the job has noted that by then.
const LOCK_PATIENCE: Duration = Duration::from_millis(200);

/// The warning in a receipt if the keeper was killed during the kill.
const NOT_COUNTED: &str =
    "the keeper was killed during the kill: processes that it had killed before may not be counted here";

/// What the front or the standby has kept for the takeover.
pub struct TakeoverResources {
    pub helper: HelperLink,
    /// The standby shares the keeper's lock; a front takes it.
    pub lock: Option<Lock>,
    /// Children that this process had before: not part of the job.
    pub preexisting_children: Vec<ProcId>,
    /// The pipes with output that the keeper has not read.
    pub output: Option<OutputPipes>,
}

impl KeeperWatch {
    /// Finishes the job. The children of the keeper are ours now, because this process is the next subreaper above it.
    pub fn take_over(mut self, resources: TakeoverResources) -> Finished {
        fault_point(FaultPoint::KeeperMissed);
        let lost = self.collect_keeper();
        fault_point(FaultPoint::KeeperCollected);
        let TakeoverResources { mut helper, mut lock, preexisting_children, output } = resources;
        let (mut job, interrupted) = (self.job, self.interrupted);
        // The keeper may have died before there was a record. No record is made for a job that never ran.
        job.store = job.store.filter(JobDir::exists);
        let resume = |store| ended_already(store, lock.as_ref(), |event| helper.notify(event));
        if let Some(receipt) = job.store.as_ref().and_then(resume) {
            let unwritten = job.receipts.iter_mut().filter_map(|sink| sink.write(&receipt).err()).count() > 0;
            return Finished { receipt, leaked: self.known.leaked, unwritten, interrupted };
        }
        if self.known.leaked {
            self.evidence.left = outlived(&self.members, self.report.inner.or(self.report.root));
        }
        let (id, marker) = (job.spec.id, &job.spec.marker);
        let mut containment =
            Containment::take_over(id, job.session, marker, self.report, preexisting_children);
        recall(&mut containment, &mut self.evidence, self.members, lost);
        self.known.root.iter().for_each(|outcome| containment.restore_root_exit(outcome.clone()));
        self.evidence.warnings.extend(self.killing.then(|| NOT_COUNTED.into()));
        fault_point(FaultPoint::TreeTaken);
        let max_log = job.request.as_background().map_or(0, |background| background.max_log);
        let output = output.zip(job.store.as_ref());
        let output =
            output.and_then(|(pipes, store)| OutputCapture::open(store.dir(), pipes, max_log, true).ok());
        // Without a keeper there is no other run.
        let ending = self.known.ending.clone().unwrap_or((Cause::KeeperLost, Actor::Unknown));
        let mut host = Host { output, ..Host::default() };
        host.backoff.ending = Some(ending);
        if let Some(store) = job.store.as_ref().filter(|_| lock.is_none()) {
            match claim(store) {
                Claim::Ours(claimed) => lock = claimed,
                Claim::AnothersOrOver => job.store = None,
            }
        }
        let (life, actions) = Lifecycle::orphaned(job.rules, self.known);
        let mut run = Run::new(self.runs.max(1), life, containment, self.evidence);
        let record = job.store.as_ref().and_then(|store| store.record().ok());
        run.ready =
            record.filter(|record| record.run == run.number).and_then(|record| record.state.ready().cloned());
        let mut supervisor = Supervisor { lock, helper, host, ..Supervisor::new(job, self.signals, run) };
        supervisor.record_event(EventKind::Lost { finished_by: "its standby".into() });
        StopEngine::carry_out(&mut supervisor, actions);
        let result = supervisor.run_to_end();
        fault_point(FaultPoint::TakenOver);
        let (receipt, leaked, unwritten) = (result.receipt, result.leaked, result.unwritten);
        Finished { receipt, leaked, unwritten, interrupted }
    }
}

/// The members that had outlived the root: the keeper reported them when it asked them to exit, or just before.
fn outlived(reported: &[(Vec<Member>, Option<Step>)], root: Option<ProcId>) -> Vec<ProcId> {
    let was_asked = reported.iter().any(|(_, asked)| asked.is_some());
    let reports = reported.iter().filter(|(_, asked)| asked.is_some() == was_asked);
    let mut left: Vec<ProcId> = reports.flat_map(|(members, _)| members).map(|member| member.id).collect();
    left.sort_unstable();
    left.dedup();
    left.retain(|id| Some(*id) != root);
    left
}

/// Adds what the keeper had reported before it was lost: the members, some of which may have exited by now, and how they were
/// asked to exit.
fn recall(
    containment: &mut Containment,
    evidence: &mut Evidence,
    reported: Vec<(Vec<Member>, Option<Step>)>,
    lost: Option<RootOutcome>,
) {
    for (members, asked) in reported {
        containment.restore_members(members, asked.as_ref().map_or(&[], |step| &step.signals));
        asked.into_iter().for_each(|step| evidence.recall(step));
    }
    let how = match lost {
        Some(RootOutcome::Signaled { signal, .. }) => format!("was killed by {signal}"),
        Some(RootOutcome::Exited { code }) => format!("exited with code {code}"),
        Some(RootOutcome::NotStarted { .. } | RootOutcome::Unknown) | None => "was killed".into(),
    };
    evidence.step(StepKind::StopAsked, format!("the keeper {how}"), vec![]);
}

/// The receipt of a job whose keeper had recorded its end before it was killed. That end was proven, and clients may have read
/// it. Completes the steps after it that are missing.
fn ended_already(store: &JobDir, lock: Option<&Lock>, logged: impl FnMut(&JobEvent)) -> Option<Receipt> {
    // If something fails here, the next command that looks at the job does it.
    JobEnd::resume(store, lock, logged).unwrap_or_else(|_| store.receipt().ok())
}

/// Whether a process that takes over may write the record.
enum Claim {
    /// It may. The lock is None if a process holds it that writes nothing.
    Ours(Option<Lock>),
    /// A client is finishing the job, or it is over.
    AnothersOrOver,
}

/// Takes the lock of a job whose keeper is gone. A client that only looks at the job holds it for an instant. A client that has
/// found the job lost before keeps it and writes the end: two writers would undo each other's work.
fn claim(store: &JobDir) -> Claim {
    let began = Instant::now();
    loop {
        match store.liveness() {
            Ok(Liveness::Orphaned(lock)) => return Claim::Ours(Some(lock)),
            Ok(Liveness::Ended) => return Claim::AnothersOrOver,
            Ok(Liveness::Supervised) if began.elapsed() < LOCK_PATIENCE => {
                // No event reports that a lock is free.
                std::thread::sleep(Duration::from_millis(2));
            }
            Ok(Liveness::Finishing) => return Claim::AnothersOrOver,
            // A stub that hangs in its exec still holds it.
            Ok(Liveness::Supervised) | Err(_) => return Claim::Ours(None),
        }
    }
}
