//! What the record of a lost job says about its past, for its receipt: the request to exit, the members that are gone, and the
//! run before the wait for the next one.

use std::collections::BTreeSet;
use std::time::Duration;

use quell_core::{
    AskScope, EventKind, Fate, Grace, JobEvent, Member, Moment, ProcId, Receipt, RecordedTree, RootOutcome,
    SentSignal, Signal, SignalResult, Step, StepKind, Timestamp, describe_request,
};
use quell_store::JobDir;

use super::case::LostJob;

/// The step of a receipt for the loss of a job that waited for its next run.
const LOST: &str = "the keeper and the standby were killed";
/// The command of a member that had exited before it could be read.
const UNKNOWN_COMMAND: &str = "[unknown]";

/// Adds the stop that was under way: the request for it, the signals, and the grace.
pub(super) fn add_request(receipt: &mut Receipt, lost: &LostJob, job: &JobDir) {
    let (Some(record), Some(tree)) = (lost.record.as_deref(), lost.tree()) else { return };
    // A history that can't be read says nothing.
    let events = job.events().unwrap_or_default();
    let is_of_run = |event: &&JobEvent| event.run == record.run;
    let moment_of = |time: Timestamp| moment(&record.since, time);
    let (mut past, mut root_exited, mut grace) = (Vec::new(), false, None);
    for event in events.iter().filter(is_of_run) {
        let moment = moment_of(event.time);
        match &event.what {
            EventKind::RootExited { .. } => root_exited = true,
            EventKind::StopAsked { cause, actor } => {
                let note = describe_request(*cause, actor);
                past.push(Step { moment, step: StepKind::StopAsked, note, signals: Vec::new() });
            }
            EventKind::Asked { signal, grace: given, members, to } => {
                grace.get_or_insert((moment.at, *given, *to));
                let mut asked = members_asked(tree, *to, root_exited);
                asked.truncate(*members);
                let note = "by the keeper".to_owned();
                let signals = asked.into_iter().map(|id| sent(*signal, id)).collect();
                past.push(Step { moment, step: StepKind::Ask, note, signals });
            }
            _ => {}
        }
    }
    let Some((began, given, to)) = grace else { return };
    past.append(&mut receipt.steps);
    receipt.steps = past;
    let ended = receipt.time_of(StepKind::Kill).unwrap_or(receipt.ended.at);
    let given: Duration = given;
    receipt.grace.asked = given.as_secs_f64();
    // A command may find the lost job long after the grace.
    receipt.grace.used = Some(Grace::between(began, ended).clamp(0.0, receipt.grace.asked));
    receipt.ask = to;
}

/// How the root ended, if the history says so: its state may not have been written since.
pub(super) fn outcome(lost: &LostJob, job: &JobDir) -> Option<RootOutcome> {
    let run = lost.record.as_ref()?.run;
    let of_event = |event: JobEvent| match event.what {
        EventKind::RootExited { outcome } if event.run == run => Some(outcome),
        _ => None,
    };
    job.events().ok()?.into_iter().rev().find_map(of_event)
}

/// The members on record that a request went to. A PID namespace has its init on record as the root, which is not asked.
fn members_asked(tree: &RecordedTree, to: AskScope, root_exited: bool) -> Vec<ProcId> {
    let root = Some(tree.root).filter(|_| !tree.containment.has_init() && !root_exited);
    let others = tree.members.iter().copied().filter(|_| to == AskScope::Tree || root.is_none());
    root.into_iter().chain(others).collect()
}

fn sent(signal: Signal, to: ProcId) -> SentSignal {
    SentSignal { signal, to, result: SignalResult::Sent }
}

/// A time of the history on the clock of the run, which the record has read at `since`.
fn moment(since: &Moment, wall: Timestamp) -> Moment {
    let later = (wall.unix_ms() - since.wall.unix_ms()) as f64 / 1000.0;
    Moment { at: (since.at + later).max(0.0), wall }
}

/// Adds the members on record that had exited before a command could see them. How they ended is not known.
pub(super) fn add_gone(receipt: &mut Receipt, lost: &LostJob, job: &JobDir) {
    let Some(tree) = lost.tree() else { return };
    let root = Some(tree.root).filter(|_| !tree.containment.has_init());
    // An earlier attempt, which left survivors, has seen more.
    let earlier = job.receipt().ok().filter(|earlier| earlier.run == receipt.run);
    let mut known: BTreeSet<ProcId> = receipt.members.iter().map(|member| member.id).collect();
    for id in root.into_iter().chain(tree.members.iter().copied()).filter(|id| known.insert(*id)) {
        let seen = earlier.iter().flat_map(|earlier| &earlier.members).find(|member| member.id == id);
        let fate = seen.map(|member| member.fate).filter(|fate| *fate != Fate::Alive).unwrap_or(Fate::Ended);
        let member = seen.cloned().unwrap_or_else(|| gone(id, root == Some(id), receipt));
        receipt.members.push(Member { fate, ..member });
    }
}

/// A member of which only the identity is known.
fn gone(id: ProcId, is_root: bool, receipt: &Receipt) -> Member {
    let command = if is_root { receipt.job.command.join(" ") } else { UNKNOWN_COMMAND.to_owned() };
    let uid = quell_sys::uid();
    Member { id, ppid: 0, pgid: 0, sid: 0, uid, user: None, command, fate: Fate::Ended }
}

/// The receipt of the last run as the account of a job that waited for its next run. None if the job did not wait, or if its
/// last run is not on record.
pub(super) fn last_run(found: &Receipt, job: &JobDir) -> Option<Receipt> {
    let last = job.receipt().ok().filter(|last| found.ended_waiting && last.run == found.run)?;
    let mut receipt = if last.ended_waiting {
        // Its keeper had written the end already.
        last
    } else {
        last.ended_between_runs(found.cause, found.actor.clone(), found.ended.clone(), LOST.into())
    };
    receipt.verdict = found.verdict.clone();
    receipt.warnings.extend(found.warnings.iter().cloned());
    Some(receipt)
}
