//! Start anything, stop everything: the library that `quell` itself is built on.
//!
//! A [`Job`] is one command and everything it starts. Its keeper is another process, so a job neither depends on the
//! program that started it nor on this library being called again; what is known of it is on disk, in quell's [`Home`].
//!
//! ```no_run
//! # fn main() -> quell::Result<()> {
//! use std::time::{Duration, Instant};
//! use quell::{Background, Conditions, JobRequest, Owner, Quell, Stop, wait};
//!
//! let quell = Quell::new()?;
//! let mut background = Background::default();
//! background.ready.rules.port = Some(3000);
//! background.owner = Some(Owner::Process { id: quell::owner_process(std::process::id())? });
//! let server = quell.start(&JobRequest::new(["npm", "run", "dev"], background))?;
//!
//! let ready = Conditions { ready: true, ..Conditions::default() };
//! wait(&[server.clone()], &ready, false, Some(Instant::now() + Duration::from_secs(30)))?;
//! // … talk to it …
//! let stopped = server.stop(&Stop::default())?;
//! println!("{:?}", stopped.receipt.verdict);
//! # Ok(())
//! # }
//! ```
//!
//! # From async code
//!
//! All calls block: they wait for other processes. Call them where blocking is allowed, such as
//! `tokio::task::spawn_blocking(move || job.stop(&Stop::default()))`. A [`Job`] is cheap to clone and can be sent to other
//! threads. Nothing here forks the calling process or changes its signals, whatever its size and number of threads.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg(target_os = "linux")]

mod admit;
mod auto_gc;
mod call;
pub mod config;
pub mod diagnostics;
mod error;
mod events;
mod gc;
mod index;
mod job;
mod list;
mod logs;
mod recover;
mod resolve;
pub mod responses;
mod restart;
pub mod roles;
#[cfg(feature = "schema")]
pub mod schema;
mod send;
mod short_ids;
mod start;
mod stats;
mod sweep;
mod tree;
mod view;
mod wait;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use quell_guard::{Effect, Permit, Verb};

pub use admit::{AccessRequest, permit, record_start, record_stop};
pub use config::{Config, Loaded};
pub use error::Error;
pub use events::{EventFeed, EventWatch, parse_since};
pub use gc::{GcReport, GcRules, Skipped};
pub use job::{Job, Stop, Stopped};
pub use list::{Filter, InvalidTag, Listing, Settled, TagFilter, list};
pub use logs::{LogCut, LogLine, LogWatch, LogsView, Unwritten};
pub use quell_core as core;
pub use quell_core::{
    Background, Environment, Foreground, JobRequest, JobState, MAX_LOG, Mode, Owner, Stdin, Timestamp,
};
pub use quell_guard as guard;
pub use quell_keeper::control_protocol::LiveMember;
pub use quell_keeper::{Finished, StartError};
pub use quell_store::{
    Cursor, Cut, Entry, Home, JobDir, Line, LineOrCut, Lines, LogEnd, LogPage, LogQuery, LogReader, Matches,
    Omitted, Piece, Stream, Streams, Watch, now,
};
pub use recover::Finish;
pub(crate) use recover::settle_lost;
pub use regex_lite::Regex;
pub use resolve::{SHORTEST_PREFIX, resolve};
pub use short_ids::short_ids;
pub use start::{KEEP_VERB, is_inside_a_job, owner_process, parent_of};
pub use stats::{Bucket, Exits, Period, Spread, Stats, StatsFilter, Sums, TagSums, stats, stats_of};
pub use sweep::{Leftover, LeftoverAction, SweepAction, SweepReport, SweptJob};
pub use tree::ProcessTree;
pub use view::JobView;
pub use wait::{Conditions, Met, Waited, wait};

/// What most calls give.
pub type Result<T> = std::result::Result<T, Error>;

/// Where jobs are, and the program that keeps them.
#[derive(Clone, Debug)]
pub struct Quell {
    home: Home,
    program: PathBuf,
    /// What was permitted before: calls that it covers don't ask again.
    permit: Option<Arc<Permit>>,
    /// The test run that was started through it.
    started: Option<core::JobId>,
}

impl Quell {
    /// The user's own: QUELL_HOME, or below the state directory. The program is QUELL_BIN, or `quell` on the PATH.
    pub fn new() -> Result<Self> {
        Ok(Self::with_program(Home::find().ok_or(Error::NoHome)?, find_program()?))
    }

    /// With another home.
    pub fn at(home: impl Into<PathBuf>) -> Result<Self> {
        Ok(Self::with_program(Home::at(home), find_program()?))
    }

    /// With a program that is known: this very one, if it is `quell` itself.
    pub fn with_program(home: Home, program: impl Into<PathBuf>) -> Self {
        let program = program.into();
        OWN_PROGRAM.get_or_init(|| program.clone());
        Self { home, program, permit: None, started: None }
    }

    /// With what was permitted before. Calls for that verb, and those that only look, don't ask the guard again; whoever holds the permit
    /// writes down what came of them. All other calls ask for themselves.
    pub fn permitted(self, permit: Permit) -> Self {
        Self { permit: Some(Arc::new(permit)), ..self }
    }

    /// Where its jobs are.
    pub fn home(&self) -> &Home {
        &self.home
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The job that `text` means: an id, the beginning of one, or a name.
    pub fn job(&self, text: &str) -> Result<Job> {
        Ok(self.job_with(resolve(&self.home, text)?))
    }

    /// The job with this id, which may not exist.
    pub fn job_with(&self, id: core::JobId) -> Job {
        Job::new(self.clone(), id)
    }

    /// Every job that has not ended: also one whose record can't be read or was deleted, and one that is just being made and
    /// may come to nothing.
    pub fn live(&self) -> Result<Vec<Job>> {
        resolve::restore(&self.home);
        resolve::record_remains(&self.home, None);
        let ids = self.home.unended().map_err(Error::io(self.home.dir().join("live")))?;
        Ok(ids.into_iter().map(|id| self.job_with(id)).collect())
    }

    /// The jobs that `filter` lets through: live ones, and finished ones, newest first.
    pub fn list(&self, filter: &Filter) -> Result<Listing> {
        self.permit(Verb::List, "")?;
        list(&self.home, filter)
    }

    /// Removes old jobs, or says which it would.
    pub fn gc(&self, rules: &GcRules, dry_run: bool) -> Result<GcReport> {
        self.permit(Verb::Gc, "")?;
        gc::gc(&self.home, rules, dry_run)
    }

    /// Finishes the stop of jobs whose keepers were lost, and puts away what quell has left; or says what it would do.
    pub fn sweep(&self, dry_run: bool) -> Result<SweepReport> {
        self.permit(Verb::Sweep, "")?;
        sweep::sweep(&self.home, dry_run)
    }

    /// Asks the guard. None if what was permitted before covers it: then the holder of that permit writes down what came of it.
    pub(crate) fn permit(&self, verb: Verb, target: &str) -> Result<Option<Permit>> {
        self.permit_because(verb, target, None)
    }

    /// The same with a reason.
    pub(crate) fn permit_because(
        &self,
        verb: Verb,
        target: &str,
        reason: Option<String>,
    ) -> Result<Option<Permit>> {
        // A test run stops what it has started.
        let own = verb == Verb::Stop && self.started.is_some_and(|job| job.to_string() == target);
        let covers = |given: &Permit| given.verb() == verb || verb.effect() == Effect::Read || own;
        if self.permit.as_deref().is_some_and(covers) {
            return Ok(None);
        }
        let config = Config::load_here().map(|loaded| loaded.config);
        let mask = config.as_ref().map(Config::mask).unwrap_or_default();
        let wish = AccessRequest { verb, target: target.to_owned(), reason, job: None, mask };
        admit::permit(config.map(|config| config.guard), Some(&self.home), wish).map(Some)
    }
}

/// Runs a job in the foreground and waits until it is proven gone, if the guard lets it pass. Before: this process has one
/// thread, and has opened nothing yet. After: no process of the job is alive, or the receipt names the survivors.
///
/// `home` is where its record is kept; none for no record.
pub fn run(mut request: JobRequest, home: Option<PathBuf>) -> Result<Finished> {
    let program = request.command.first().map(|word| word.to_string_lossy().into_owned());
    let config = Config::load_here().map(|loaded| loaded.config);
    let mut id = None;
    if let Mode::Foreground(foreground) = &mut request.mode {
        foreground.id = foreground.id.or_else(new_job_id).filter(|_| home.is_some());
        id = foreground.id;
    }
    let mask = config.as_ref().map(Config::mask).unwrap_or_default();
    let wish =
        AccessRequest { target: program.unwrap_or_default(), job: id, mask, ..AccessRequest::new(Verb::Run) };
    let _permit = permit(config.map(|config| config.guard), Home::find().as_ref(), wish)?;
    Ok(quell_keeper::run(request, home)?)
}

/// An id for a job that is to be run: so what is written down of it before it runs can name it. None if the kernel has no
/// random numbers to give.
pub fn new_job_id() -> Option<core::JobId> {
    quell_contain::new_job_id().ok()
}

/// The program of the first [`Quell`] of this process. The `quell` command names itself there, so that no variable can put
/// another program in its place.
static OWN_PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// The `quell` program: this very one, if it is.
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
