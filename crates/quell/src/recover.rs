//! Jobs whose keeper and standby were killed: whoever meets one finishes its stop, from its record alone.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use quell_contain::{OrphanedJob, Recovered};
use quell_core::{
    Actor, AskScope, Cause, ContainmentInfo, EventKind, Grace, JobBrief, JobEvent, JobId, JobSpec,
    KillReason, Mask, Member, Moment, ProcId, Receipt, RecordedState, RecordedTree, RootOutcome, RootReport,
    SCHEMA, SessionKind, StateRecord, Step, StepKind, StopPlan, Usage, Verdict,
};
use quell_guard::{Guard, Permit, Verb};
use quell_keeper::{HookNotice, StartError};
use quell_store::{DiskFull, EndStep, JobDir, JobEnd, Liveness, Lock, SyncWhen, now};
use quell_sys::fault::{self, FaultPoint, fault_point};
use serde_json::json;

use crate::{Config, Error, Result};

/// How much longer than its own verification a stop that another quell is finishing is waited for.
const OTHERS_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether that one is done: a lock has no event with a deadline.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How long a child that never got its go may take to exit after its keeper. Nothing tells who isn't its parent.
const STUB_EXIT: Duration = Duration::from_secs(1);

/// How long a command that only looks waits for the end of survivors that are on record.
const READING: Duration = Duration::from_millis(500);

/// The verb by which the process is executed that tells hooks.
const TELL_VERB: &str = "__tell";

/// What became of a job that nobody seemed to keep.
#[derive(Clone, Debug)]
pub enum Finish {
    /// It is kept after all: its standby is about to take over.
    Kept,
    /// Nothing of it had run. Its record is removed.
    Removed,
    /// It had come to its end; only the last stroke was missing.
    Settled,
    /// It was stopped, or ended with its host. With survivors it is not over, and can be tried again.
    Stopped(Box<Receipt>),
}

/// A file of the record.
enum File<T> {
    Read(T),
    Missing,
    Bad,
}

impl<T> File<T> {
    fn of(read: io::Result<T>) -> io::Result<Self> {
        match read {
            Ok(value) => Ok(Self::Read(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Missing),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Self::Bad),
            Err(error) => Err(error),
        }
    }

    fn get(self) -> Option<T> {
        match self {
            Self::Read(value) => Some(value),
            Self::Missing | Self::Bad => None,
        }
    }
}

/// What the record of a job that nobody keeps says is to be done.
pub(crate) enum Case {
    /// See [`Finish::Kept`].
    Kept,
    /// No instruction of the program has run.
    Unmade(Option<Box<JobSpec>>),
    /// It has ended already.
    Over,
    /// It is of another boot: no process of it can be alive.
    Rebooted(Lost),
    /// It may be alive.
    Lost(Lost),
}

/// What is known of a lost job.
pub(crate) struct Lost {
    pub(crate) spec: Option<Box<JobSpec>>,
    pub(crate) record: Option<Box<StateRecord>>,
    /// Its marker, from whichever file of the record is whole.
    marker: String,
    /// Whether its PIDs are of this boot and of this PID namespace for certain.
    pids_count: bool,
    /// Whether it ran in a PID namespace whose processes can't be seen from here.
    elsewhere: bool,
}

impl Case {
    /// In a few words, for diagnostics.
    fn name(&self) -> &'static str {
        match self {
            Self::Kept => "it has a keeper",
            Self::Unmade(_) => "nothing of it has run",
            Self::Over => "it has ended already",
            Self::Rebooted(_) => "it is of another boot",
            Self::Lost(_) => "its keepers are gone",
        }
    }

    /// Reads the record, which the job can delete and rewrite, and looks at what it can't. The caller holds the lock.
    pub(crate) fn of(job: &JobDir, lock: &Lock, keepers: Keepers) -> Result<Self> {
        let failed = |error| Error::Io { path: job.dir().to_owned(), error };
        let spec = File::of(job.spec()).map_err(failed)?.get().map(Box::new);
        let record = match File::of(job.record()).map_err(failed)? {
            File::Read(record) => Some(Box::new(record)),
            // The stub gets its go only when its identity is on record.
            File::Missing if is_unmade(job, lock, spec.as_deref()) => return Ok(Self::Unmade(spec)),
            File::Missing | File::Bad => None,
        };
        let boot = quell_sys::boot_id();
        let rebooted = spec.as_ref().is_some_and(|spec| spec.boot_id != boot);
        let may_be_kept = keepers == Keepers::Unknown && !rebooted;
        if may_be_kept && record.as_ref().is_some_and(|record| has_keeper(job, record)) {
            return Ok(Self::Kept);
        }
        // A standby that took over before there was a root had no tree to put on record, and no root got its go.
        let unmade = |record: &StateRecord| {
            record.run == 1 && matches!(record.state, RecordedState::Stopping { tree: None, .. })
        };
        if record.as_ref().is_some_and(|record| unmade(record)) && is_unmade(job, lock, spec.as_deref()) {
            return Ok(Self::Unmade(spec));
        }
        let is_over = record.as_ref().is_some_and(|record| record.state.is_ended());
        let lost = Lost::new(job, spec, record);
        let root = lost.left(job).root.filter(|_| keepers == Keepers::Unknown);
        if let Some((keeper, home)) = root.and_then(|root| quell_contain::living_keeper(job.id(), root)) {
            return Err(Error::KeptElsewhere { id: job.id(), keeper, home });
        }
        // The record is the job's to rewrite. When it was made and what the kernel shows of it are not.
        let rebooted = rebooted
            && quell_contain::earliest_start(job.id()) == 0
            && quell_contain::look_for(&lost.left(job)).is_ok_and(|members| members.is_empty());
        // A keeper that was killed in its last moment has written that it ended, or the job itself has.
        let can_live = || lost.elsewhere || quell_contain::may_live(&lost.left(job)).is_some();
        if is_over && (rebooted || !can_live()) {
            return Ok(Self::Over);
        }
        Ok(if rebooted { Self::Rebooted(lost) } else { Self::Lost(lost) })
    }
}

/// The marker of a job by the files of its record, any of which may be damaged. Where they differ, it is the one that two of
/// them have, or that a living process carries.
fn choose_marker(job: &JobDir, of_spec: Option<String>, of_record: Option<String>) -> String {
    let is_whole =
        |marker: &String| marker.len() == 32 && marker.bytes().all(|byte| byte.is_ascii_hexdigit());
    match (of_spec.filter(is_whole), of_record.filter(is_whole)) {
        (Some(one), Some(other)) if one == other => one,
        (spec, record) => {
            let launch = job.launch().ok().map(|launch| launch.marker).filter(is_whole);
            let found: Vec<String> = spec.into_iter().chain(record).chain(launch).collect();
            let is_twice = |marker: &&String| found.iter().filter(|other| other == marker).count() > 1;
            let is_carried = |marker: &&String| {
                let members = || quell_contain::look_for(&only_marked(job, marker));
                found.len() > 1 && members().is_ok_and(|members| !members.is_empty())
            };
            let chosen = found.iter().find(is_twice).or_else(|| found.iter().find(is_carried));
            chosen.or_else(|| found.first()).cloned().unwrap_or_default()
        }
    }
}

impl Lost {
    pub(crate) fn new(job: &JobDir, spec: Option<Box<JobSpec>>, record: Option<Box<StateRecord>>) -> Self {
        let of_spec = spec.as_ref().map(|spec| spec.marker.clone());
        let of_record = record.as_ref().map(|record| record.marker.clone());
        let marker = choose_marker(job, of_spec, of_record);
        let namespace = quell_sys::own_pid_namespace();
        let same_boot = |spec: &JobSpec| spec.boot_id == quell_sys::boot_id();
        let pids_count =
            spec.as_ref().is_some_and(|spec| same_boot(spec) && [0, namespace].contains(&spec.pid_namespace));
        // All processes are seen from the first namespace.
        let elsewhere = !quell_sys::in_first_pid_namespace()
            && spec.as_ref().is_some_and(|spec| ![0, namespace].contains(&spec.pid_namespace));
        Self { spec, record, marker, pids_count, elsewhere }
    }

    /// Where to look for its processes. Where its PIDs may be of another boot or PID namespace, none of them is used.
    pub(crate) fn left(&self, job: &JobDir) -> OrphanedJob<'_> {
        let (record, tree) = (self.record.as_deref(), self.tree());
        let numbers = tree.filter(|_| self.pids_count);
        let survivors = record.filter(|_| self.pids_count).and_then(|record| record.state.survivors());
        OrphanedJob {
            id: job.id(),
            held: tree.map(|tree| tree.containment),
            root: numbers.map(|tree| tree.root),
            cgroup: tree.and_then(|tree| tree.cgroup.as_deref()),
            session: tree.map_or(SessionKind::Shared, |tree| tree.session),
            marker: &self.marker,
            homes: record.map_or(&[], |record| &record.home_cgroups),
            members: numbers.map_or(&[], |tree| &tree.members),
            survivors: survivors.unwrap_or_default(),
        }
    }

    fn tree(&self) -> Option<&RecordedTree> {
        self.record.as_deref().and_then(|record| record.state.tree())
    }

    fn plan(&self) -> StopPlan {
        self.spec.as_ref().map_or_else(StopPlan::default, |spec| spec.request.stop)
    }

    /// How long the job has lasted.
    fn age(&self) -> f64 {
        let since_birth = self.tree().map(|tree| quell_sys::seconds_since(tree.root.start));
        since_birth.unwrap_or(0.0).max(self.last_word())
    }

    /// When it was last heard of.
    fn last_word(&self) -> f64 {
        self.record.as_ref().map_or(0.0, |record| record.since.at)
    }
}

/// Finishes the stop of a lost job, whose lock the caller has got from [`JobDir::liveness`].
///
/// After: the job is over, on disk too; or it has survivors, its receipt and state name them, and it stays among the live
/// ones to be tried again. Its cause is that of the stop that was under way, else `keeper_lost`, or `host_reboot`. If this
/// process is killed meanwhile, the next one begins again.
///
/// The policy must allow `sweep`, and the audit log gets a line, if processes of it may be alive.
pub(crate) fn finish_lost(job: &JobDir, lock: Lock) -> Result<Finish> {
    finish(job, lock, Keepers::Unknown, Finisher::Sweep)
}

/// What has a lost job finished, and so what the policy must allow for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finisher {
    /// A stop, which was admitted and writes its own line; or a test run, which ends what it has started.
    Stop,
    /// A sweep.
    Sweep,
    /// Any other command, which has met the job: also one that may only look.
    Reader,
}

impl Finisher {
    /// Whether today's policy lets processes of a lost job be killed; the gate that writes down what came of it, if it does.
    fn permit(self, job: &JobDir) -> Result<Option<Permit>> {
        let verb = match self {
            Self::Stop => return Ok(None),
            Self::Sweep => Verb::Sweep,
            Self::Reader => Verb::Stop,
        };
        let (policy, mask) = match Config::from_files_here() {
            Ok(config) => (config.guard.clone(), config.mask()),
            Err(_) => (Config::refusals_here(), Mask::default()),
        };
        let decision = match Guard::new(job.home(), policy).masking(mask).permit_recovery(verb) {
            Ok(permit) => return Ok(Some(permit)),
            Err(decision) => decision,
        };
        Err(Error::NotProvenDead(format!(
            "{} is lost: its keepers were killed, and its processes may be alive. `quell sweep` would stop them, but this command may \
             not: {} ({})",
            job.id(),
            decision.reason,
            decision.hint
        )))
    }
}

fn finish(job: &JobDir, lock: Lock, keepers: Keepers, finisher: Finisher) -> Result<Finish> {
    let failed = |error| Error::Io { path: job.dir().to_owned(), error };
    fault::work_for(&job.id());
    let case = Case::of(job, &lock, keepers)?;
    tracing::debug!("recovery: {}", case.name());
    let permit = if matches!(case, Case::Lost(_)) { finisher.permit(job)? } else { None };
    // What was never made is removed at once, and its lock stays as it was made until then.
    if !matches!(case, Case::Kept | Case::Unmade(_)) {
        fault_point(FaultPoint::LostLocked);
        // A courtesy to others who wait; without it they think that it is kept.
        let _ = lock.finishing();
        fault_point(FaultPoint::FinishingSaid);
    }
    let (lost, done) = match case {
        Case::Kept => return Ok(Finish::Kept),
        Case::Over => {
            let mut news = Vec::new();
            JobEnd::resume(job, Some(&lock), |event| news.push(event.clone())).map_err(failed)?;
            tell_hooks(job, job.spec().ok().as_ref(), news);
            return Ok(Finish::Settled);
        }
        Case::Unmade(spec) => {
            let (left, plan) = (unmade(job, spec.as_deref()), StopPlan::default());
            quell_contain::recover(&left, &plan, &|| Moment { at: 0.0, wall: now() });
            fault_point(FaultPoint::UnmadeEmptied);
            JobEnd::discard(job, None).map_err(failed)?;
            return Ok(Finish::Removed);
        }
        Case::Rebooted(lost) => {
            let done = ended_with_host(&lost, job);
            (lost, done)
        }
        Case::Lost(lost) => {
            if !quell_sys::proc_is_ours() {
                let why = "/proc shows another PID namespace than the one this process is in, so no pid can be trusted";
                return Err(StartError::Proc(why.into()).into());
            }
            let (age, began) = (lost.age(), Instant::now());
            let now = || Moment { at: age + began.elapsed().as_secs_f64(), wall: now() };
            let mut plan = lost.plan();
            // Those that survived a whole stop seldom die now: a command that only looks does not wait for them.
            if finisher == Finisher::Reader && !lost.left(job).survivors.is_empty() {
                plan.verify = plan.verify.min(READING);
            }
            let recovered = quell_contain::recover(&lost.left(job), &plan, &now);
            fault_point(FaultPoint::LostKilled);
            if lost.elsewhere {
                // It is left to a command that can see its processes.
                return Err(Error::NotProvenDead(format!(
                    "{} ran in another PID namespace, whose processes can't be seen from here",
                    job.id()
                )));
            }
            (lost, Done::of(recovered, now()))
        }
    };
    let mut receipt = done.receipt(&lost, job);
    receipt.steps.iter().for_each(|step| tracing::debug!("{step}"));
    mask_members(&mut receipt, &lost, job);
    if let Some(permit) = permit {
        let result = json!({ "verdict": receipt.verdict, "cause": receipt.cause });
        let id = job.id().to_string();
        // What is done is done, also if the log can't be written.
        let _ = permit.record(&id, &result, Some(id.clone()));
    }
    // Nothing is new: what was told of them when they were first met says more.
    let known = lost.record.as_deref().and_then(|record| record.state.survivors());
    if !receipt.survivors.is_empty() && known == Some(&receipt.survivors[..]) {
        return Ok(Finish::Stopped(Box::new(receipt)));
    }
    put_on_record(job, &lock, &lost, &receipt).map_err(|error| {
        let proven = match receipt.verdict {
            Verdict::Gone => true,
            Verdict::Unproven { .. } => false,
            Verdict::Survivors { .. } => return failed(error),
        };
        Error::EndNotRecorded { id: job.id(), proven, path: job.dir().to_owned(), error }
    })?;
    fault_point(FaultPoint::LostSettled);
    // Until here: whoever waits for the lock finds a job that is over.
    drop(lock);
    Ok(Finish::Stopped(Box::new(receipt)))
}

/// Command lines are read anew here, so what is to be masked in them has to be masked again.
fn mask_members(receipt: &mut Receipt, lost: &Lost, job: &JobDir) {
    let Some(spec) = lost.spec.as_deref() else { return };
    let mask = mask_of(job, spec);
    for member in &mut receipt.members {
        member.command = match &mask {
            Ok(mask) => mask.apply_to_cut(&member.command),
            // What the values are is not known: then nothing of it is shown.
            Err(_) => "***".into(),
        };
    }
}

/// What is masked of a job; an error if the values are not known.
pub(crate) fn mask_of(job: &JobDir, spec: &JobSpec) -> io::Result<Mask> {
    if spec.request.mask.is_empty() {
        return Ok(Mask::default());
    }
    Ok(job.launch()?.request.masked_values())
}

/// How a job stands, once it is certain that it is not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A process keeps it.
    Kept,
    /// It was over before.
    Over,
    /// It was lost, and its stop was finished now, here or by another quell.
    Finished,
}

/// What is done about a lost job whose survivors are on record already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survivors {
    /// They are killed again.
    KillAgain,
    /// They are reported: a keeper has just tried all that there is to try.
    Report,
}

/// What is known of the processes that keep a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keepers {
    /// Whether there are any is to be found out.
    Unknown,
    /// Each of them has got a SIGKILL and executes nothing more, though a tracer or a frozen cgroup may keep it from its
    /// exit.
    Killed,
}

/// Makes sure that `job` is not lost, which any command may do before it looks at it: at once where it is kept or over;
/// where it is lost, its stop is finished first, here or by another quell that has begun with it. Whether it was lost.
///
/// An error says that it is not proven dead, and can be tried again; also where the policy does not allow `stop`.
pub(crate) fn settle_lost(job: &JobDir) -> Result<bool> {
    let standing = settle(job, Survivors::KillAgain, Keepers::Unknown, Finisher::Reader)?;
    Ok(standing == Standing::Finished)
}

/// The same, and how it stands.
pub(crate) fn settle(
    job: &JobDir,
    survivors: Survivors,
    keepers: Keepers,
    finisher: Finisher,
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
            // It can't go on, or only says that it finishes the job. What it has done so far can be done again.
            liveness = job.seize().map_err(failed)?;
        }
        if keepers == Keepers::Killed && matches!(liveness, Liveness::Supervised) {
            liveness = job.seize().map_err(failed)?;
        }
        let lock = match liveness {
            Liveness::Ended if deadline.is_some() => return Ok(Standing::Finished),
            Liveness::Ended => return Ok(Standing::Over),
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
        return match finish(job, lock, keepers, finisher)? {
            Finish::Kept => Ok(Standing::Kept),
            Finish::Removed | Finish::Settled => Ok(Standing::Finished),
            Finish::Stopped(receipt) => match receipt.verdict {
                Verdict::Survivors { .. } => Err(not_proven_dead(job.id(), &receipt.survivors)),
                Verdict::Gone | Verdict::Unproven { .. } => Ok(Standing::Finished),
            },
        };
    }
}

/// How many survivors an error names.
const NAMED: usize = 5;

/// The error for a job with survivors, which it names: there may be no receipt to name them.
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

/// Whether one of the processes that should keep the job is alive and does. One that keeps a background job has its lock
/// open; a front gets hold of it only when it takes over, so its identity has to do.
fn has_keeper(job: &JobDir, record: &StateRecord) -> bool {
    let in_front = || job.spec().is_ok_and(|spec| spec.request.is_foreground());
    let keeps = |id: ProcId| quell_contain::is_alive(id) && job.is_kept_by(id, None);
    let fronts = |id: ProcId| quell_contain::is_alive(id) && quell_sys::is_quell(id.pid) && in_front();
    record.keeper.is_some_and(keeps) || record.standby.is_some_and(|id| keeps(id) || fronts(id))
}

/// Whether no instruction of the program has run, although the record says so: its lock is as it was made, and the kernel
/// shows no process of it. A stub that never got its go exits by itself, when its keeper does.
fn is_unmade(job: &JobDir, lock: &Lock, spec: Option<&JobSpec>) -> bool {
    let until = Instant::now() + STUB_EXIT;
    while lock.is_as_made(job.id()) {
        if quell_contain::look_for(&unmade(job, spec)).is_ok_and(|members| members.is_empty()) {
            return true;
        }
        if Instant::now() >= until {
            break;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    false
}

/// What may be left of a job that has run nothing: its cgroup.
fn unmade<'a>(job: &JobDir, spec: Option<&'a JobSpec>) -> OrphanedJob<'a> {
    only_marked(job, spec.map_or("", |spec| &spec.marker))
}

/// A job of which nothing is known but its marker.
fn only_marked<'a>(job: &JobDir, marker: &'a str) -> OrphanedJob<'a> {
    OrphanedJob {
        id: job.id(),
        held: None,
        root: None,
        cgroup: None,
        session: SessionKind::Shared,
        marker,
        homes: &[],
        members: &[],
        survivors: &[],
    }
}

/// What a job came to in the end.
struct Done {
    ended: Moment,
    cause: Cause,
    recovered: Recovered,
}

impl Done {
    fn of(recovered: Recovered, ended: Moment) -> Self {
        Self { ended, cause: Cause::KeeperLost, recovered }
    }

    fn receipt(self, lost: &Lost, job: &JobDir) -> Receipt {
        let (spec, record) = (lost.spec.as_deref(), lost.record.as_deref());
        let Recovered { held, root, outcome, steps, members, members_omitted, survivors, verdict, .. } =
            self.recovered;
        let state = record.map(|record| &record.state);
        // A stop that was under way keeps its reason. Between two runs, the reason on record is why the last run has ended,
        // and not why there is no other one.
        let of_job = state.filter(|state| !matches!(state, RecordedState::Waiting { .. }));
        let ending = of_job.and_then(RecordedState::ending);
        let cause = ending.map_or(self.cause, |ending| ending.cause);
        let actor = ending.map_or(Actor::Unknown, |ending| ending.actor.clone());
        let outcome = state.and_then(RecordedState::outcome).cloned().or(outcome);
        let mut warnings = self.recovered.warnings;
        if spec.is_none() {
            warnings.push("spec.json can't be read: what was run is not known".into());
        }
        if record.is_none() {
            warnings.push("state.jsonl can't be read: how it was held is not known".into());
        }
        Receipt {
            schema: SCHEMA.into(),
            job: JobBrief {
                id: job.id(),
                name: spec.and_then(|spec| spec.request.name.clone()),
                tags: spec.map(|spec| spec.request.tags.clone()).unwrap_or_default(),
                command: spec.map(|spec| spec.request.words()).unwrap_or_default(),
                cwd: spec
                    .and_then(|spec| spec.request.cwd.as_ref())
                    .map(|cwd| cwd.display().to_string())
                    .unwrap_or_default(),
                timeout: spec.and_then(|spec| spec.request.timeout).map(|timeout| timeout.as_secs_f64()),
            },
            boot_id: spec.map(|spec| spec.boot_id.clone()).unwrap_or_default(),
            started: Moment { at: 0.0, wall: spec.map_or(self.ended.wall, |spec| spec.created) },
            ended: self.ended,
            held,
            cause,
            actor,
            root: RootReport { id: root, outcome: outcome.unwrap_or(RootOutcome::Unknown) },
            restart_limit_reached: false,
            left_at_root_exit: Vec::new(),
            members,
            members_omitted,
            steps,
            survivors,
            verdict,
            grace: Grace { asked: 0.0, used: None },
            ask: AskScope::default(),
            kill: Some(KillReason::KeeperLost).filter(|_| self.cause == Cause::KeeperLost),
            usage: Usage { peak_tree_memory: self.recovered.peak_memory, ..Usage::default() },
            output: None,
            run: record.map_or(1, |record| record.run),
            warnings,
        }
    }
}

fn ended_with_host(lost: &Lost, job: &JobDir) -> Done {
    let left = lost.left(job);
    let ended = Moment { at: lost.last_word(), wall: now() };
    let note = "its host was restarted: none of its processes can be alive".into();
    let step = Step { moment: ended.clone(), step: StepKind::Verify, note, signals: Vec::new() };
    let containment = left.kind(None);
    let cgroup = left.cgroup.map(Path::display).map(|path| path.to_string());
    let recovered = Recovered {
        held: ContainmentInfo { containment, session: left.session, cgroup, defeated_by: Vec::new() },
        root: left.root.filter(|_| !containment.has_init()),
        outcome: None,
        steps: vec![step],
        members: Vec::<Member>::new(),
        members_omitted: 0,
        survivors: Vec::new(),
        verdict: Verdict::Gone,
        peak_memory: None,
        warnings: Vec::new(),
    };
    Done { ended, cause: Cause::HostReboot, recovered }
}

/// Puts the end of a lost job on record. With survivors it is not over.
fn put_on_record(job: &JobDir, lock: &Lock, lost: &Lost, receipt: &Receipt) -> io::Result<()> {
    let survived = matches!(receipt.verdict, Verdict::Survivors { .. });
    let old = lost.record.as_deref();
    let ready = old.and_then(|old| old.state.ready()).cloned();
    let record = StateRecord {
        schema: SCHEMA.into(),
        id: job.id(),
        run: receipt.run,
        since: receipt.ended.clone(),
        keeper: None,
        standby: None,
        marker: lost.marker.clone(),
        home_cgroups: old.map(|old| old.home_cgroups.clone()).unwrap_or_default(),
        state: RecordedState::after(receipt, lost.tree().cloned(), ready),
    };
    job.make_dir()?;
    // It was put aside for this.
    job.release_reserve()?;
    if lost.spec.is_none() {
        let started = receipt.started.wall;
        let spec = JobSpec::unknown(job.id(), lost.marker.clone(), quell_sys::boot_id(), started);
        job.restore(&mut None, &spec, None)?;
    }
    let finished_by = format!("quell, pid {}", quell_sys::pid());
    let mut news = Vec::new();
    news.extend(job.log_once(receipt, EventKind::Lost { finished_by })?);
    fault_point(FaultPoint::LossLogged);
    if receipt.counts().killed > 0 {
        let killed = EventKind::Killed { reason: receipt.kill, cause: Some(receipt.cause) };
        news.extend(job.log_once(receipt, killed)?);
    }
    let ended = if survived { None } else { job.once(receipt, EventKind::ended(receipt))? };
    let (sync, disk_full) = (SyncWhen::BeforeMark, DiskFull::Fail);
    let events = ended.as_slice();
    let end = JobEnd { job, lock: Some(lock), receipt, record: &record, events, sync, disk_full };
    let written = end.write(|step| match step {
        EndStep::Logged(event) => news.push(event.clone()),
        EndStep::Told => {}
    });
    tell_hooks(job, lost.spec.as_deref(), news);
    written
}

/// Has the hooks of a lost job told, by another process that goes on by itself. Where that can't be, the history has it.
fn tell_hooks(job: &JobDir, spec: Option<&JobSpec>, events: Vec<JobEvent>) {
    let hooks = spec.map_or(&[][..], |spec| &spec.request.hooks);
    let wanted = |event: &JobEvent| {
        event.what.hook_event().is_some_and(|at| hooks.iter().any(|hook| hook.on.contains(&at)))
    };
    if !events.iter().any(wanted) {
        return;
    }
    let Some(program) = crate::own_program() else { return };
    let notice = HookNotice { home: job.home().dir().to_owned(), job: job.id(), events };
    let mut bytes = serde_json::to_vec(&notice).unwrap_or_default();
    bytes.push(b'\n');
    let mut command = Command::new(program);
    command.arg0("quell").arg(TELL_VERB).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Ok(mut child) = command.spawn() {
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(&bytes));
        let _ = child.wait();
    }
}
