//! The entry point: where jobs are on disk, and the program that keeps them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use quell_core::{AskedThrough, JobId};
use quell_guard::{Permit, Verb, decide_verb};
use quell_store::Home;

use crate::list::{self, Filter, Listing};
use crate::resolve;
use crate::start::Around;
use crate::stats::{self, Stats, StatsFilter};
use crate::{AccessRequest, Config, Error, GcReport, GcRules, Job, Result, SweepReport, admit, gc, sweep};

/// The jobs of one home directory, and the `quell` program that keeps them. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Quell {
    pub(crate) home: Home,
    pub(crate) program: PathBuf,
    /// Given by the caller: calls that it covers don't ask the guard again.
    pub(crate) permit: Option<Arc<Permit>>,
    /// The test run that was started through this handle.
    pub(crate) started: Option<JobId>,
    /// The interface through which another program uses this handle, for the audit log.
    pub(crate) through: Option<AskedThrough>,
    /// What jobs take over from this process.
    pub(crate) around: Around,
}

/// Whether something is done, or only reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DryRun {
    /// It is done.
    #[default]
    No,
    /// Nothing is changed. The report says what would be done.
    Yes,
}

impl DryRun {
    pub(crate) fn is_dry(self) -> bool {
        self == Self::Yes
    }
}

impl From<bool> for DryRun {
    fn from(dry: bool) -> Self {
        if dry { Self::Yes } else { Self::No }
    }
}

impl Quell {
    /// Opens the user's jobs: in `$QUELL_HOME`, or below the state directory. The program is `$QUELL_BIN`, or `quell` on the PATH.
    pub fn open() -> Result<Self> {
        Ok(Self::with_program(Home::find().ok_or(Error::NoHome)?, find_program()?))
    }

    /// Opens the jobs in another home directory. It is made when the first job is started.
    pub fn open_at(home: impl Into<PathBuf>) -> Result<Self> {
        Ok(Self::with_program(Home::at(home), find_program()?))
    }

    pub(crate) fn with_program(home: Home, program: impl Into<PathBuf>) -> Self {
        let program = program.into();
        OWN_PROGRAM.get_or_init(|| program.clone());
        Self { home, program, permit: None, started: None, through: None, around: Around::Caller }
    }

    /// The directory that holds the records of all jobs.
    pub fn home_dir(&self) -> &Path {
        self.home.dir()
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The job with this id, beginning of an id, or name.
    pub fn job(&self, text: &str) -> Result<Job> {
        Ok(self.job_with(resolve::resolve(&self.home, text)?))
    }

    /// The job with this id. The calls on it fail if it does not exist.
    pub fn job_with(&self, id: JobId) -> Job {
        Job::new(self.clone(), id)
    }

    /// Every job that has not ended, also those whose record is damaged or deleted.
    pub fn live(&self) -> Result<Vec<Job>> {
        resolve::restore(&self.home);
        resolve::record_remains(&self.home, None);
        let ids = self.home.unended().map_err(Error::io(self.home.dir().join("live")))?;
        Ok(ids.into_iter().map(|id| self.job_with(id)).collect())
    }

    /// The jobs that match `filter`: the live ones, then the finished ones, newest first.
    pub fn list(&self, filter: &Filter) -> Result<Listing> {
        self.permit(Verb::List, "")?;
        list::list(&self.home, filter)
    }

    /// Sums over the finished jobs that match `filter`.
    pub fn stats(&self, filter: &StatsFilter) -> Result<Stats> {
        self.permit(Verb::Stats, "")?;
        stats::stats_of(&self.home, filter)
    }

    /// Removes finished jobs that `rules` don't keep, oldest first.
    pub fn gc(&self, rules: &GcRules, dry_run: DryRun) -> Result<GcReport> {
        self.permit(Verb::Gc, "")?;
        gc::collect(&self.home, rules, dry_run, None)
    }

    /// Finishes the stop of every lost job, and removes what quell has left behind.
    pub fn sweep(&self, dry_run: DryRun) -> Result<SweepReport> {
        self.permit(Verb::Sweep, "")?;
        sweep::sweep(&self.home, dry_run)
    }

    /// Asks the guard, unless the permit that this handle was given covers it. None for a test run that stops what it has started:
    /// its result is recorded as that of the test run.
    pub(crate) fn permit(&self, verb: Verb, target: &str) -> Result<Option<Arc<Permit>>> {
        self.permit_because(verb, target, None)
    }

    /// Whether the policy allows a verb that reads. Nothing is logged: it is asked often, and no caller has asked for the verb itself.
    pub(crate) fn may_read(&self, verb: Verb) -> bool {
        let policy =
            || Config::load_here().map_or_else(|_| Config::refusals_here(), |loaded| loaded.config.guard);
        self.permit.as_ref().map_or_else(|| decide_verb(&policy(), verb).allowed, |given| given.covers(verb))
    }

    /// The same with a reason.
    pub(crate) fn permit_because(
        &self,
        verb: Verb,
        target: &str,
        reason: Option<String>,
    ) -> Result<Option<Arc<Permit>>> {
        if let Some(given) = &self.permit {
            if given.covers(verb) {
                return Ok(Some(given.clone()));
            }
            if verb == Verb::Stop && self.started.is_some_and(|job| job.to_string() == target) {
                return Ok(None);
            }
        }
        let request = AccessRequest {
            verb,
            target: target.to_owned(),
            reason,
            job: None,
            through: self.through.clone(),
        };
        let (permit, _) = admit::permit(Config::load_here(), Some(&self.home), request)?;
        Ok(Some(Arc::new(permit)))
    }
}

/// The program of the first [`Quell`] of this process. The `quell` command sets its own path here, so that no environment variable
/// can put another program in its place.
static OWN_PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// The `quell` program that this process uses.
pub(crate) fn own_program() -> Option<PathBuf> {
    OWN_PROGRAM.get().cloned().or_else(|| find_program().ok())
}

fn find_program() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("QUELL_BIN").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|dir| dir.join("quell")).find(|file| quell_sys::may_execute(file));
    found.ok_or_else(|| Error::NoProgram("it is not on the PATH".into()))
}
