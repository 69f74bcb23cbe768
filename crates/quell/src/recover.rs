//! Jobs whose keeper and understudy were killed: whoever meets one finishes its stop, from its record alone.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use quell_contain::{Left, Recovered};
use quell_core::{
    Actor, Cause, Grace, Happening, Held, HeldBy, JobBrief, JobEvent, JobSpec, Member, Moment, Receipt,
    Record, RootOutcome, RootReport, SCHEMA, SessionKind, Step, StepKind, StopPlan, Usage, Verdict,
};
use quell_keeper::{Mask, News, RunError};
use quell_store::{JobDir, Liveness, Lock, wall};
use quell_sys::fault::{Point, point};

use crate::{Error, Result};

/// How much longer than its own verification a stop that another quell is finishing is waited for.
const OTHERS_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether that one is done: a lock has no event with a deadline.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The verb by which the process is executed that tells hooks.
const TELL_VERB: &str = "__tell";
/// How long one who finishes a job may take to say so.
const SAYING: Duration = Duration::from_millis(200);

/// What became of a job that nobody seemed to keep.
#[derive(Clone, Debug)]
pub enum Finish {
    /// It is kept after all: its understudy is about to take over.
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
    pub(crate) record: Option<Box<Record>>,
}

impl Case {
    /// Reads the record. The caller holds the lock.
    pub(crate) fn of(job: &JobDir) -> Result<Self> {
        let failed = |error| Error::Io { path: job.dir().to_owned(), error };
        if !job.exists() {
            return Ok(Self::Unmade(None));
        }
        let spec = File::of(job.spec()).map_err(failed)?.get().map(Box::new);
        let record = match File::of(job.record()).map_err(failed)? {
            File::Read(record) => Some(Box::new(record)),
            // The stub gets its go only when its identity is on record.
            File::Missing => return Ok(Self::Unmade(spec)),
            File::Bad => None,
        };
        let rebooted = spec.as_ref().is_some_and(|spec| spec.boot_id != quell_sys::boot_id());
        if record.as_ref().is_some_and(|record| !rebooted && has_keeper(record)) {
            return Ok(Self::Kept);
        }
        // One who took over before anybody was born had nobody to put on record, and nobody got a go. Of a run that is over the
        // record names no root either.
        let unmade = |record: &Record| {
            let over = ["ended", "waiting"].contains(&record.state.as_str());
            record.root.is_none() && record.run == 1 && !over
        };
        if record.as_ref().is_some_and(|record| unmade(record)) {
            return Ok(Self::Unmade(spec));
        }
        let over = |record: &Record| {
            record.state == "ended" && !matches!(record.verdict, Some(Verdict::Survivors { .. }))
        };
        if record.as_ref().is_some_and(|record| over(record)) {
            return Ok(Self::Over);
        }
        let lost = Lost { spec, record };
        Ok(if rebooted { Self::Rebooted(lost) } else { Self::Lost(lost) })
    }
}

impl Lost {
    /// Where to look for its processes. Without the boot that its numbers are of, none of them may be trusted.
    pub(crate) fn left(&self, job: &JobDir) -> Left<'_> {
        let (spec, record) = (self.spec.as_deref(), self.record.as_deref());
        Left {
            id: job.id(),
            held: record.and_then(|record| record.held),
            root: record.filter(|_| spec.is_some()).and_then(|record| record.root),
            cgroup: record.and_then(|record| record.cgroup.as_deref()),
            session: record.map_or(SessionKind::Shared, |record| record.session),
            marker: spec.map_or("", |spec| &spec.marker),
            survivors: record.map_or(&[], |record| &record.survivors),
        }
    }

    fn plan(&self) -> StopPlan {
        self.spec.as_ref().map_or_else(StopPlan::default, |spec| spec.plan)
    }

    /// How long the job has lasted.
    fn age(&self) -> f64 {
        let record = self.record.as_deref();
        let since_birth =
            record.and_then(|record| record.root).map(|root| quell_sys::seconds_since(root.start));
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
pub fn finish_lost(job: &JobDir, lock: Lock) -> Result<Finish> {
    let failed = |error| Error::Io { path: job.dir().to_owned(), error };
    let case = Case::of(job)?;
    if !matches!(case, Case::Kept) {
        point(Point::LostLocked);
        // A courtesy to others who wait; without it they think that it is kept.
        let _ = lock.finishing();
        point(Point::FinishingSaid);
    }
    let (lost, done) = match case {
        Case::Kept => return Ok(Finish::Kept),
        Case::Over => {
            job.settle().map_err(failed)?;
            return Ok(Finish::Settled);
        }
        Case::Unmade(spec) => {
            remove_unmade(job, spec.as_deref());
            point(Point::UnmadeEmptied);
            job.remove().map_err(failed)?;
            return Ok(Finish::Removed);
        }
        Case::Rebooted(lost) => {
            let done = ended_with_host(&lost, job);
            (lost, done)
        }
        Case::Lost(lost) => {
            if !quell_sys::proc_is_ours() {
                let why = "/proc shows another PID namespace than the one this process is in, so no pid can be trusted";
                return Err(RunError::Proc(why.into()).into());
            }
            let (age, began) = (lost.age(), Instant::now());
            let now = || Moment { at: age + began.elapsed().as_secs_f64(), wall: wall() };
            let mut recovered = quell_contain::recover(&lost.left(job), &lost.plan(), &now);
            // Its keeper had proven that nobody was left of the last run, and no other one begins without being on record.
            point(Point::LostKilled);
            let waited = lost.record.as_ref().is_some_and(|record| record.state == "waiting");
            if waited && matches!(recovered.verdict, Verdict::Unproven { .. }) {
                recovered.verdict = Verdict::Gone;
            }
            (lost, Done::of(recovered, now()))
        }
    };
    let mut receipt = done.receipt(&lost, job);
    mask_members(&mut receipt, &lost, job);
    // Nothing is new: what was told of them when they were first met says more.
    let told = lost.record.as_deref().is_some_and(|record| {
        matches!(record.verdict, Some(Verdict::Survivors { .. })) && record.survivors == receipt.survivors
    });
    if told && !receipt.survivors.is_empty() {
        return Ok(Finish::Stopped(Box::new(receipt)));
    }
    put_on_record(job, &lost, &receipt).map_err(failed)?;
    point(Point::LostSettled);
    // Until here: whoever waits for the lock finds a job that is over.
    drop(lock);
    Ok(Finish::Stopped(Box::new(receipt)))
}

/// Command lines are read anew here, so what is to be masked in them has to be masked again.
fn mask_members(receipt: &mut Receipt, lost: &Lost, job: &JobDir) {
    let names = lost.spec.as_deref().and_then(|spec| spec.background.as_ref()).map(|rules| &rules.mask);
    let Some(names) = names.filter(|names| !names.is_empty()) else { return };
    let mask = job.launch().map(|launch| Mask::new(names, &launch.environment));
    for member in &mut receipt.members {
        member.command = match &mask {
            Ok(mask) => mask.apply_to_cut(&member.command),
            // What the values are is not known: then nothing of it is shown.
            Err(_) => "***".into(),
        };
    }
}

/// Makes sure that `job` is not lost, which any command may do before it looks at it: at once where it is kept or over;
/// where it is lost, its stop is finished first, here or by another quell that has begun with it. Whether it was lost.
///
/// An error says that it is not proven dead, and can be tried again.
pub fn settle_lost(job: &JobDir) -> Result<bool> {
    let failed = |error| Error::Io { path: job.dir().to_owned(), error };
    let mut deadline = None;
    loop {
        match job.liveness().map_err(failed)? {
            Liveness::Over => return Ok(deadline.is_some()),
            Liveness::Kept if is_kept(job) => return Ok(false),
            Liveness::Kept => {
                let patience = || job.spec().map_or(StopPlan::default().verify, |spec| spec.plan.verify);
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + patience() + OTHERS_PATIENCE);
                if Instant::now() >= deadline {
                    let id = job.id();
                    return Err(Error::TimedOut(format!(
                        "another quell has not finished the stop of {id} yet"
                    )));
                }
                std::thread::sleep(LOOK_AGAIN);
            }
            Liveness::Lost(lock) => {
                return match finish_lost(job, lock)? {
                    Finish::Kept => Ok(false),
                    Finish::Removed | Finish::Settled => Ok(true),
                    Finish::Stopped(receipt) => match receipt.verdict {
                        Verdict::Survivors { count } => Err(Error::NotProvenDead(format!(
                            "the keeper of {} was lost, and {count} of its processes can't be ended",
                            job.id()
                        ))),
                        Verdict::Gone | Verdict::Unproven { .. } => Ok(true),
                    },
                };
            }
        }
    }
}

/// Whether one of those who should keep the job is alive.
fn has_keeper(record: &Record) -> bool {
    record.keeper.into_iter().chain(record.understudy).any(quell_contain::is_alive)
}

/// Whether a job that somebody has locked is kept by that one, and not about to be finished.
pub(crate) fn is_kept(job: &JobDir) -> bool {
    let deadline = Instant::now() + SAYING;
    loop {
        if job.is_being_finished() {
            return false;
        }
        let nobody = job.record().is_ok_and(|record| {
            (record.keeper.is_some() || record.understudy.is_some()) && !has_keeper(&record)
        });
        // Its keepers are not to be seen: they are in another PID namespace, where they have other numbers; or whoever
        // finishes it has not said so yet.
        if !nobody || Instant::now() >= deadline {
            return true;
        }
        std::thread::sleep(LOOK_AGAIN);
        if !matches!(job.liveness(), Ok(Liveness::Kept)) {
            return false;
        }
    }
}

/// A stub that never got its go exits by itself, when its keeper does; what may be left is its cgroup.
fn remove_unmade(job: &JobDir, spec: Option<&JobSpec>) {
    if spec.is_some_and(|spec| spec.boot_id != quell_sys::boot_id()) {
        return;
    }
    let left = Left {
        id: job.id(),
        held: None,
        root: None,
        cgroup: None,
        session: SessionKind::Shared,
        marker: spec.map_or("", |spec| &spec.marker),
        survivors: &[],
    };
    let plan = spec.map_or_else(StopPlan::default, |spec| spec.plan);
    quell_contain::recover(&left, &plan, &|| Moment { at: 0.0, wall: wall() });
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
        // A stop that was under way keeps its reason. That of a job which waits to be started again is the reason why its last
        // run has ended, and not why there is no other one.
        let stopping = record.filter(|record| record.state != "waiting");
        let cause = stopping.and_then(|record| record.cause).unwrap_or(self.cause);
        let actor = stopping.and_then(|record| record.actor.clone()).unwrap_or(Actor::Unknown);
        let outcome = record.and_then(|record| record.outcome.clone()).or(outcome);
        let mut troubles = self.recovered.troubles;
        if spec.is_none() {
            troubles.push("spec.json can't be read: what was run is not known".into());
        }
        if record.is_none() {
            troubles.push("state.jsonl can't be read: how it was held is not known".into());
        }
        Receipt {
            schema: SCHEMA.into(),
            job: JobBrief {
                id: job.id(),
                name: spec.and_then(|spec| spec.name.clone()),
                tags: spec.map(|spec| spec.tags.clone()).unwrap_or_default(),
                command: spec.map(|spec| spec.command.clone()).unwrap_or_default(),
                cwd: spec.map(|spec| spec.cwd.display().to_string()).unwrap_or_default(),
                timeout: spec.and_then(|spec| spec.timeout).map(|timeout| timeout.as_secs_f64()),
            },
            boot_id: spec.map(|spec| spec.boot_id.clone()).unwrap_or_default(),
            started: Moment {
                at: 0.0,
                wall: spec.map_or_else(|| self.ended.wall.clone(), |spec| spec.created.clone()),
            },
            ended: self.ended,
            held,
            cause,
            actor,
            root: RootReport { id: root, outcome: outcome.unwrap_or(RootOutcome::Unknown) },
            left_at_root_exit: Vec::new(),
            members,
            members_omitted,
            steps,
            survivors,
            verdict,
            grace: Grace { asked: 0.0, used: None },
            usage: Usage { peak_tree_memory: self.recovered.peak_memory, ..Usage::default() },
            output: None,
            run: record.map_or(1, |record| record.run),
            troubles,
        }
    }
}

fn ended_with_host(lost: &Lost, job: &JobDir) -> Done {
    let left = lost.left(job);
    let ended = Moment { at: lost.last_word(), wall: wall() };
    let note = "its host was restarted: none of its processes can be alive".into();
    let step = Step { moment: ended.clone(), step: StepKind::Verify, note, signals: Vec::new() };
    let containment = left.held.unwrap_or(HeldBy::Reaper);
    let cgroup = left.cgroup.map(Path::display).map(|path| path.to_string());
    let recovered = Recovered {
        held: Held { containment, session: left.session, cgroup, defeated_by: Vec::new() },
        root: left.root.filter(|_| containment != HeldBy::Pidns),
        outcome: None,
        steps: vec![step],
        members: Vec::<Member>::new(),
        members_omitted: 0,
        survivors: Vec::new(),
        verdict: Verdict::Gone,
        peak_memory: None,
        troubles: Vec::new(),
    };
    Done { ended, cause: Cause::HostReboot, recovered }
}

/// The receipt, the history and the state; then the job is over, unless somebody has survived.
fn put_on_record(job: &JobDir, lost: &Lost, receipt: &Receipt) -> io::Result<()> {
    let survived = matches!(receipt.verdict, Verdict::Survivors { .. });
    let old = lost.record.as_deref();
    let record = Record {
        schema: SCHEMA.into(),
        id: job.id(),
        state: if survived { "stopping" } else { "ended" }.into(),
        since: receipt.ended.clone(),
        held: old.and_then(|old| old.held),
        cgroup: old.and_then(|old| old.cgroup.clone()),
        root: old.and_then(|old| old.root),
        keeper: None,
        understudy: None,
        run: receipt.run,
        ready: old.and_then(|old| old.ready.clone()),
        session: receipt.held.session,
        outcome: match &receipt.root.outcome {
            RootOutcome::Unknown if survived => None,
            outcome => Some(outcome.clone()),
        },
        cause: Some(receipt.cause),
        actor: Some(receipt.actor.clone()),
        verdict: Some(receipt.verdict.clone()),
        survivors: receipt.survivors.clone(),
    };
    job.keep(receipt)?;
    let finished_by = format!("quell, pid {}", quell_sys::pid());
    let mut news = Vec::new();
    news.extend(log_once(job, receipt, Happening::Lost { finished_by })?);
    point(Point::LossLogged);
    if !survived {
        let ended = Happening::Ended {
            outcome: receipt.root.outcome.clone(),
            cause: receipt.cause,
            actor: receipt.actor.clone(),
            verdict: receipt.verdict.clone(),
        };
        news.extend(log_once(job, receipt, ended)?);
    }
    job.publish(&record)?;
    if !survived {
        job.settle()?;
    }
    // It is over all the same if this fails.
    let _ = job.harden();
    tell_hooks(job, lost.spec.as_deref(), news);
    Ok(())
}

/// Adds to the history what one before us, who was killed here, may have added already; the event, if it is new.
fn log_once(job: &JobDir, receipt: &Receipt, what: Happening) -> io::Result<Option<JobEvent>> {
    let same = |old: &JobEvent| {
        old.run == receipt.run && std::mem::discriminant(&old.what) == std::mem::discriminant(&what)
    };
    // The end of a run that was to be followed by another one is not the job's.
    let of_now = |old: &&JobEvent| !matches!(old.what, Happening::Restarting { .. });
    if job.events()?.iter().rev().take_while(of_now).any(same) {
        return Ok(None);
    }
    let (time, name) = (wall(), receipt.job.name.clone());
    let event = JobEvent { time, job: job.id(), name, run: receipt.run, what };
    job.log_event(&event)?;
    Ok(Some(event))
}

/// Has the hooks of a lost job told, by another process that goes on by itself. Where that can't be, the history has it.
fn tell_hooks(job: &JobDir, spec: Option<&JobSpec>, events: Vec<JobEvent>) {
    let hooks =
        spec.and_then(|spec| spec.background.as_ref()).map_or(&[][..], |background| &background.hooks);
    let wanted = |event: &JobEvent| {
        event.what.hook_event().is_some_and(|at| hooks.iter().any(|hook| hook.on.contains(&at)))
    };
    if !events.iter().any(wanted) {
        return;
    }
    let Some(program) = crate::own_program() else { return };
    let news = News { home: job.home().dir().to_owned(), job: job.id(), events };
    let mut bytes = serde_json::to_vec(&news).unwrap_or_default();
    bytes.push(b'\n');
    let mut command = Command::new(program);
    command.arg0("quell").arg(TELL_VERB).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Ok(mut child) = command.spawn() {
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(&bytes));
        let _ = child.wait();
    }
}
