//! Lost jobs: their keeper and standby were killed. The next command that finds one finishes its stop from the record.

mod case;
mod history;
mod hooks_of_lost_jobs;
mod record;

use std::io;
use std::time::{Duration, Instant};

use quell_core::{EventKind, JobId, Moment, ProcId, Receipt, RecordedState, StopPlan, Verdict};
use quell_guard::{Guard, Permit, Verb, decide_verb};
use quell_keeper::StartError;
use quell_store::{JobDir, JobEnd, Liveness, Lock, now};
use quell_sys::fault::{self, FaultPoint, fault_point};
use serde_json::json;

use crate::{Config, Error, Result};
use case::without_root;
pub(crate) use case::{LostJob, RecoveryCase};
use hooks_of_lost_jobs::notify_hooks;
use record::{LostEnd, put_on_record};
pub(crate) use record::{mask_of, masked_text};

/// How much longer than the verification of the stop to wait for another quell that is finishing it.
const OTHERS_PATIENCE: Duration = Duration::from_secs(5);
/// How often to check whether it is done: a lock has no event with a deadline.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How long survivors that are on record are waited for by a command that only reads, or once more in one stop.
const BRIEFLY: Duration = Duration::from_millis(500);
/// How many survivors an error names.
const NAMED: usize = 5;

/// The result of recovering a job that seemed to have no keeper.
#[derive(Clone, Debug)]
pub(crate) enum Recovery {
    /// It has a keeper after all: its standby is about to take over.
    Kept,
    /// Its program never ran. Its record is removed.
    Removed,
    /// It had ended. Only the last steps of the end were missing.
    Completed,
    /// It was stopped, or ended with its host. With survivors it has not ended, and can be tried again.
    Stopped(Box<Receipt>),
}

/// The standing of a job that is not lost, or not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has a keeper.
    Kept,
    /// It had ended before.
    Ended,
    /// It was lost, and its stop was finished now, here or by another quell.
    Recovered,
}

/// What is done about a lost job whose survivors are on record already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survivors {
    /// They are killed again.
    KillAgain,
    /// They are killed again, and waited for only briefly: a standby has just waited for them.
    LookBriefly,
    /// They are reported: a keeper has just tried everything.
    Report,
}

/// What is known of the processes that keep a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keepers {
    /// Nothing: they are looked for.
    Unknown,
    /// Each of them has got a SIGKILL and executes nothing more, though a tracer or a frozen cgroup may delay its exit.
    Killed,
}

/// The command that recovers a lost job. It determines what the policy must allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveredBy {
    /// A stop, which was permitted and writes its own audit line; or a test run, which ends what it has started.
    Stop,
    /// A sweep.
    Sweep,
    /// Any other command, also one that only reads.
    Reader,
}

impl RecoveredBy {
    /// A permit to kill the processes of a lost job; none if the command has one of its own.
    fn permit(self, job: &JobDir) -> Result<Option<Permit>> {
        let verb = match self {
            Self::Stop => return Ok(None),
            Self::Sweep => Verb::Sweep,
            Self::Reader => Verb::Stop,
        };
        let guard = match Config::from_files_here() {
            Ok(config) => Guard::new(job.home(), config.guard.clone()).masking(config.mask()),
            Err(error) => Guard::new(job.home(), Config::refusals_here()).without_policy(error.to_string()),
        };
        if let Ok(permit) = guard.permit_recovery(verb) {
            return Ok(Some(permit));
        }
        let [refused, sweep] = [verb, Verb::Sweep].map(|verb| decide_verb(guard.policy(), verb));
        let why = format!("{} ({})", refused.reason, refused.rule);
        let way = if sweep.allowed {
            format!("`quell sweep` would stop them, but this command may not: {why}")
        } else {
            format!(
                "neither `quell stop` nor `quell sweep` may stop them: {why}; {} ({})",
                sweep.reason, sweep.rule
            )
        };
        let id = job.id();
        Err(Error::NotProvenDead(format!(
            "{id} is lost: its keepers were killed, and its processes may be alive; {way}"
        )))
    }
}

/// If `job` is lost, finishes its stop, or waits for another quell that does. Returns whether it was lost. For a job that has a
/// keeper or has ended this only reads its lock, so any command may call it first.
///
/// An error means that the job is not proven dead, and that a later call may succeed; also if the policy refuses `stop`.
pub(crate) fn recover_if_orphaned(job: &JobDir) -> Result<bool> {
    Ok(recover(job, RecoveredBy::Reader)? == Standing::Recovered)
}

/// The same for a command that may be allowed more. Returns the standing of the job.
pub(crate) fn recover(job: &JobDir, by: RecoveredBy) -> Result<Standing> {
    recover_with(job, by, Survivors::KillAgain, Keepers::Unknown)
}

/// The same with what is known of the job's survivors and keepers.
pub(crate) fn recover_with(
    job: &JobDir,
    by: RecoveredBy,
    survivors: Survivors,
    keepers: Keepers,
) -> Result<Standing> {
    let failed = |error| Error::Io { path: job.dir().to_owned(), error };
    let mut deadline = None;
    loop {
        let mut liveness = job.liveness().map_err(failed)?;
        if matches!(liveness, Liveness::Finishing) {
            let patience = || job.spec().map_or(StopPlan::default().verify, |spec| spec.request.stop.verify);
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + patience() + OTHERS_PATIENCE);
            if Instant::now() < deadline {
                std::thread::sleep(LOOK_AGAIN);
                continue;
            }
            // That quell hangs, or only claims to finish the job. What it has done so far can be repeated.
            liveness = job.seize().map_err(failed)?;
        }
        if keepers == Keepers::Killed && matches!(liveness, Liveness::Supervised) {
            liveness = job.seize().map_err(failed)?;
        }
        let lock = match liveness {
            Liveness::Ended if deadline.is_some() => return Ok(Standing::Recovered),
            Liveness::Ended => return Ok(Standing::Ended),
            Liveness::Supervised => return Ok(Standing::Kept),
            Liveness::Finishing => continue,
            Liveness::Orphaned(lock) => lock,
        };
        if survivors == Survivors::Report
            && let Ok(record) = job.record()
            && let Some(survivors) = record.state.survivors()
        {
            return Err(not_proven_dead(job.id(), survivors));
        }
        return match recover_locked(job, lock, by, survivors, keepers)? {
            Recovery::Kept => Ok(Standing::Kept),
            Recovery::Completed => Ok(Standing::Ended),
            Recovery::Removed => Ok(Standing::Recovered),
            Recovery::Stopped(receipt) => match receipt.verdict {
                Verdict::Survivors { .. } => Err(not_proven_dead(job.id(), &receipt.survivors)),
                Verdict::Gone | Verdict::Unproven { .. } => Ok(Standing::Recovered),
            },
        };
    }
}

/// Finishes the stop of a lost job, whose lock the caller has got from [`JobDir::liveness`].
///
/// Afterwards the job has ended, on disk too; or it has survivors, which its receipt and state name, and stays among the live
/// ones to be tried again. Its cause is that of the stop that was under way, else `keeper_lost`, or `host_reboot`. If this
/// process is killed meanwhile, the next one starts over.
///
/// If processes of it may be alive, the policy must allow what `by` needs, and the audit log gets a line.
pub(crate) fn recover_locked(
    job: &JobDir,
    lock: Lock,
    by: RecoveredBy,
    survivors: Survivors,
    keepers: Keepers,
) -> Result<Recovery> {
    let failed = |error| Error::Io { path: job.dir().to_owned(), error };
    fault::work_for(&job.id());
    let case = RecoveryCase::of(job, &lock, keepers)?;
    tracing::debug!("recovery: {}", case.as_str());
    let permit = if matches!(case, RecoveryCase::Lost(_)) { by.permit(job)? } else { None };
    // A job that never ran is removed at once, and its lock stays as it was made until then.
    if !matches!(case, RecoveryCase::Kept | RecoveryCase::NeverRan(_)) {
        fault_point(FaultPoint::LostLocked);
        // Otherwise processes that wait for the job would take this one for its keeper.
        let _ = lock.finishing();
        fault_point(FaultPoint::FinishingSaid);
    }
    let not_recorded = |verdict: &Verdict, error| {
        let proven = match verdict {
            Verdict::Gone => true,
            Verdict::Unproven { .. } => false,
            Verdict::Survivors { .. } => return failed(error),
        };
        Error::EndNotRecorded { id: job.id(), proven, path: job.dir().to_owned(), error }
    };
    let (lost, end) = match case {
        RecoveryCase::Kept => return Ok(Recovery::Kept),
        RecoveryCase::Ended(lost) => {
            complete(job, &lock, &lost).map_err(|error| {
                let verdict = lost.state().and_then(RecordedState::verdict);
                not_recorded(&verdict.unwrap_or(Verdict::Gone), error)
            })?;
            return Ok(Recovery::Completed);
        }
        RecoveryCase::NeverRan(spec) => {
            let (left, plan) = (without_root(job, spec.as_deref()), StopPlan::default());
            quell_contain::recover(&left, &plan, &|| Moment { at: 0.0, wall: now() });
            fault_point(FaultPoint::UnmadeEmptied);
            JobEnd::discard(job, None).map_err(failed)?;
            return Ok(Recovery::Removed);
        }
        RecoveryCase::Rebooted(lost) => {
            let end = LostEnd::with_host(&lost, job);
            (lost, end)
        }
        RecoveryCase::Lost(lost) => {
            let end = stop(job, &lost, by, survivors)?;
            (lost, end)
        }
    };
    let receipt = end.receipt(&lost, job);
    receipt.steps.iter().for_each(|step| tracing::debug!("{step}"));
    if let Some(permit) = permit {
        let result = json!({ "verdict": receipt.verdict, "cause": receipt.cause });
        let id = job.id().to_string();
        // The stop can't be undone if the log can't be written.
        let _ = permit.record(&id, &result, Some(id.clone()));
    }
    // If nothing has changed, the record of the first attempt says more.
    let known = lost.state().and_then(|state| state.survivors());
    if !receipt.survivors.is_empty() && known == Some(&receipt.survivors[..]) {
        return Ok(Recovery::Stopped(Box::new(receipt)));
    }
    let loss = EventKind::Lost { finished_by: format!("quell, pid {}", quell_sys::pid()) };
    put_on_record(job, &lock, &lost, &receipt, Some(loss))
        .map_err(|error| not_recorded(&receipt.verdict, error))?;
    fault_point(FaultPoint::LostSettled);
    // Held until here: a process that waits for the lock finds a job that has ended.
    drop(lock);
    Ok(Recovery::Stopped(Box::new(receipt)))
}

/// Completes the end of a job that has ended. If its keeper could not write the receipt, it is made from the state and the
/// history.
fn complete(job: &JobDir, lock: &Lock, lost: &LostJob) -> io::Result<()> {
    let mut logged = Vec::new();
    if JobEnd::resume(job, Some(lock), |event| logged.push(event.clone()))?.is_some() {
        notify_hooks(job, lost.spec.as_deref(), logged);
        return Ok(());
    }
    let receipt = LostEnd::on_record(lost, job).receipt(lost, job);
    put_on_record(job, lock, lost, &receipt, None)
}

/// Kills what is left of a lost job, and counts.
fn stop(job: &JobDir, lost: &LostJob, by: RecoveredBy, survivors: Survivors) -> Result<LostEnd> {
    if !quell_sys::proc_is_ours() {
        let why =
            "/proc shows another PID namespace than the one this process is in, so no pid can be trusted";
        return Err(StartError::Proc(why.into()).into());
    }
    let (age, began) = (lost.age(), Instant::now());
    let now = || Moment { at: age + began.elapsed().as_secs_f64(), wall: now() };
    let (orphaned, mut plan) = (lost.orphaned(job), lost.plan());
    // Processes that survived a whole stop seldom die now: only another stop waits for them.
    let briefly = by == RecoveredBy::Reader || survivors == Survivors::LookBriefly;
    if briefly && !orphaned.survivors.is_empty() {
        plan.verify = plan.verify.min(BRIEFLY);
    }
    let recovered = quell_contain::recover(&orphaned, &plan, &now);
    fault_point(FaultPoint::LostKilled);
    if lost.elsewhere {
        // A command that can see its processes has to finish it.
        return Err(Error::NotProvenDead(format!(
            "{} ran in another PID namespace, whose processes can't be seen from here",
            job.id()
        )));
    }
    Ok(LostEnd { ended: now(), cause: quell_core::Cause::KeeperLost, recovered })
}

/// The error for a job with survivors. It names them, because there may be no receipt that does.
pub(crate) fn not_proven_dead(id: JobId, survivors: &[ProcId]) -> Error {
    let mut named: Vec<String> = survivors.iter().take(NAMED).map(|id| id.pid.to_string()).collect();
    if survivors.len() > NAMED {
        named.push(format!("{} more", survivors.len() - NAMED));
    }
    Error::NotProvenDead(match survivors.len() {
        0 => format!("processes of {id} are still alive and can't be named"),
        1 => format!("1 process of {id} is still alive after SIGKILL: pid {}", named.join(", ")),
        count => {
            format!("{count} processes of {id} are still alive after SIGKILL: pids {}", named.join(", "))
        }
    })
}
