//! A job as lists and `status` show it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quell_core::{
    Actor, Cause, ContainmentKind, JobId, JobSpec, JobState, Limits, ModeKind, Output, Owner, ProcId,
    Receipt, RecordedState, RecordedTree, RestartPolicy, RootOutcome, StateRecord, Stdin, Timestamp, Verdict,
};
use quell_store::{JobDir, Liveness};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// One job as it is shown. What is not known is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Whether its caller waits for it.
    pub mode: ModeKind,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// Its state.
    pub state: JobState,
    /// When it came into this state, by the wall clock.
    pub since: Timestamp,
    /// When it was put on record.
    pub created: Timestamp,
    /// When its program was started, in the present or last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// When it was found ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Timestamp>,
    /// When it had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// What holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<ContainmentKind>,
    /// Its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<ProcId>,
    /// The process that keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<ProcId>,
    /// The process that takes over if the keeper is killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<ProcId>,
    /// What it lives for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Which run of the program this is, from 1 on.
    pub run: u32,
    /// Whether it was not started again because the limit of restarts was reached.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart_limit_reached: bool,
    /// When it is started again; absent for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartPolicy>,
    /// The job that it replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarted_from: Option<JobId>,
    /// What it may use.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// How long a run may last, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// What it reads, for a background job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Stdin>,
    /// Whether its standard streams are a terminal of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pty: bool,
    /// How the root ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RootOutcome>,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// What caused the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// What was proven about its processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// How many processes outlived the command and were stopped; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlived: Option<u64>,
    /// The processes that are not proven dead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub survivors: Vec<ProcId>,
    /// The size of its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    /// The size of its directory in bytes, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_on_disk: Option<u64>,
}

impl JobView {
    /// The job by its files alone. A job without a state is `created`. None is `lost`, because that depends on the lock: see
    /// [`JobView::look`].
    pub(crate) fn read(job: &JobDir) -> Result<Self> {
        Ok(Records::read(job)?.view())
    }

    /// The job by its files and its lock: a job that has not ended and has no keeper is `lost`. So is a job whose state says that
    /// it ended while its lock still exists: a job can rewrite its state.
    ///
    /// The lock is taken for an instant if it is free, but not before the job's specification exists: the process that puts a job
    /// on record takes the lock first, and must not find it taken.
    pub(crate) fn look(job: &JobDir) -> Result<Self> {
        let records = match Records::read(job) {
            // Its keeper, if it has one, makes files again that were deleted or damaged.
            Err(Error::Io { error, .. }) if is_damage(&error) && job.have_restored() => Records::read(job)?,
            other => other?,
        };
        let view = records.view();
        if view.state == JobState::Ended && !job.has_lock() && !job.is_dir_held() {
            return Ok(view);
        }
        let liveness = match job.liveness_by(records.record.as_ref()) {
            // The lock can't be tried, so only the files count.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                return Ok(view);
            }
            other => other.map_err(Error::io(job.dir()))?,
        };
        match liveness {
            // Its keeper may have restored a state that was deleted.
            Liveness::Supervised if view.state == JobState::Created => Self::read(job),
            // A job whose keeper holds its lock has not ended, whatever its record says.
            Liveness::Supervised if view.state == JobState::Ended => {
                let ended = job.wait_for_true_end();
                let view = Self::read(job)?;
                let stopping = !ended && view.state == JobState::Ended;
                Ok(if stopping { Self { state: JobState::Stopping, ..view } } else { view })
            }
            Liveness::Supervised | Liveness::Finishing => Ok(view),
            Liveness::Orphaned(_) => Ok(Self { state: JobState::Lost, ..Self::read(job)? }),
            // It may have ended since it was read.
            Liveness::Ended => Ok(Self::read(job)?.without_keeper()),
        }
    }

    /// Whether its command has exited and returned to its caller, and processes that it left go on as this job.
    pub fn is_left_behind(&self) -> bool {
        let is_live = matches!(self.state, JobState::Running | JobState::Stopping);
        // A caller that waits for all of them is the standby.
        is_live && self.mode == ModeKind::Run && self.outcome.is_some() && self.standby.is_none()
    }

    /// Whether processes of it may be alive without a keeper: its end was not proven, in this boot.
    pub fn is_not_proven_dead(&self) -> bool {
        if !matches!(self.verdict, Some(Verdict::Survivors { .. } | Verdict::Unproven { .. })) {
            return false;
        }
        let uptime = quell_sys::ticks_since_boot() * 1000 / quell_sys::ticks_per_second();
        let booted = quell_store::now().before(Duration::from_millis(uptime));
        self.ended.is_none_or(|ended| ended >= booted)
    }

    /// The same job if it has no keeper.
    pub(crate) fn without_keeper(self) -> Self {
        let state = if self.state == JobState::Ended { JobState::Ended } else { JobState::Lost };
        Self { state, ..self }
    }
}

/// What is on record about a job.
pub(crate) struct Records {
    pub spec: JobSpec,
    pub record: Option<StateRecord>,
    /// The receipt of the last run, if the job has ended.
    pub receipt: Option<Receipt>,
}

impl Records {
    pub(crate) fn read(job: &JobDir) -> Result<Self> {
        let at = |name: &str| job.dir().join(name);
        let spec = match job.spec() {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !job.exists() => {
                return Err(Error::NoSuchJob(job.id().to_string()));
            }
            // It was deleted before the end; the receipt says most of it again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let receipt =
                    job.receipt().ok().filter(|receipt| job.has_ended() && receipt.job.id == job.id());
                receipt.as_ref().map(JobSpec::of_receipt).ok_or(error)
            }
            other => other,
        }
        .map_err(about(&at("spec.json")))?;
        let record = absent(job.record()).map_err(about(&at("state.jsonl")))?;
        // Before the end the receipt is that of an earlier run.
        let ended = record.as_ref().is_some_and(|record| record.state.is_ended());
        let receipt = if ended { absent(job.receipt()).map_err(about(&at("receipt.json")))? } else { None };
        Ok(Self { spec, record, receipt })
    }

    pub fn have_ended(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.state.is_ended())
    }

    pub fn view(&self) -> JobView {
        let Self { spec, record, receipt } = self;
        let (record, receipt) = (record.as_ref(), receipt.as_ref());
        let state = record.map(|record| &record.state);
        let tree = state.and_then(RecordedState::tree);
        let ending = state.and_then(RecordedState::ending);
        let request = &spec.request;
        let background = request.as_background();
        JobView {
            id: spec.id,
            name: request.name.clone(),
            tags: request.tags.clone(),
            session: request.session.clone(),
            mode: request.mode_kind(),
            command: request.words(),
            cwd: request.cwd.clone().unwrap_or_default(),
            state: state.map_or(JobState::Created, RecordedState::job_state),
            since: record.map_or(spec.created, |record| record.since.wall),
            created: spec.created,
            started: match receipt {
                Some(receipt) => Some(receipt.started.wall),
                None => record.filter(|record| has_run(&record.state)).map(|record| record.since.start()),
            },
            ready: state.and_then(RecordedState::ready).map(|moment| moment.wall),
            ended: record.filter(|record| record.state.is_ended()).map(|record| record.since.wall),
            held: tree.map(|tree| tree.containment),
            root: tree.and_then(RecordedTree::shown_root),
            keeper: record.and_then(|record| record.keeper),
            standby: record.and_then(|record| record.standby),
            owner: request.owner(),
            run: record.map_or(1, |record| record.run),
            restart_limit_reached: receipt.is_some_and(|receipt| receipt.restart_limit_reached),
            restart: background
                .map(|background| background.restart.policy)
                .filter(|policy| *policy != RestartPolicy::No),
            restarted_from: background.and_then(|background| background.restarted_from),
            limits: request.limits,
            timeout: request.timeout.map(|timeout| timeout.as_secs_f64()),
            stdin: background.map(|background| background.stdin.clone()),
            pty: background.is_some_and(|background| background.pty),
            outcome: state.and_then(RecordedState::outcome).cloned(),
            cause: ending.map(|ending| ending.cause),
            actor: ending.map(|ending| ending.actor.clone()),
            verdict: state.and_then(RecordedState::verdict),
            outlived: receipt.map(|receipt| receipt.outlived() as u64).filter(|count| *count > 0),
            survivors: state.and_then(RecordedState::survivors).map(<[_]>::to_vec).unwrap_or_default(),
            output: receipt.and_then(|receipt| receipt.output),
            size_on_disk: None,
        }
    }
}

/// Whether the program has run in the run that the state is about.
fn has_run(state: &RecordedState) -> bool {
    !matches!(state, RecordedState::Starting { .. } | RecordedState::Waiting { .. })
}

/// Whether a file of the record is missing or damaged.
fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::InvalidData | io::ErrorKind::PermissionDenied
    )
}

fn absent<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// An error about `path`, which is not named twice if the error's text begins with it.
pub(crate) fn about(path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |error| {
        let text = error.to_string();
        let error = match text.strip_prefix(&format!("{}: ", path.display())) {
            Some(rest) => io::Error::new(error.kind(), rest),
            None => error,
        };
        Error::Io { path, error }
    }
}

#[cfg(test)]
impl JobView {
    /// A job that runs.
    pub(crate) fn sample() -> Self {
        let (now, request) = (Timestamp::default(), quell_core::JobRequest::background(["true"]));
        Self {
            id: JobId::new(1, 1),
            name: None,
            tags: BTreeMap::new(),
            session: None,
            mode: request.mode_kind(),
            command: request.words(),
            cwd: PathBuf::new(),
            state: JobState::Running,
            since: now,
            created: now,
            started: None,
            ready: None,
            ended: None,
            held: None,
            root: None,
            keeper: None,
            standby: None,
            owner: None,
            run: 1,
            restart_limit_reached: false,
            restart: None,
            restarted_from: None,
            limits: Limits::default(),
            timeout: None,
            stdin: None,
            pty: false,
            outcome: None,
            cause: None,
            actor: None,
            verdict: None,
            outlived: None,
            survivors: Vec::new(),
            output: None,
            size_on_disk: None,
        }
    }
}
