//! What all calls of a server share, and the jobs whose ids the client has still to learn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quell::{Job, JobId, JobState, StopOptions};

use super::has_ended;
use crate::McpOptions;
use crate::lease::Lease;

/// What all calls share.
pub struct Shared {
    pub options: McpOptions,
    pub lease: Lease,
    /// The results of test runs that ended after their call had been answered.
    tested: Mutex<HashMap<JobId, String>>,
    /// The jobs that are stopped if the client never learns their ids, by the call that started them.
    reports: Mutex<HashMap<String, Report>>,
    /// Each call that is starting such a job holds a clone.
    starting: Arc<()>,
}

/// A job whose id its call is to tell.
struct Report {
    job: Job,
    /// Whether the answer was handed over. The client may still drop it, because it has cancelled the call.
    is_answered: bool,
}

impl Shared {
    pub fn new(options: McpOptions, lease: Lease) -> Self {
        Self { options, lease, tested: Mutex::default(), reports: Mutex::default(), starting: Arc::new(()) }
    }

    pub(super) fn tested(&self) -> MutexGuard<'_, HashMap<JobId, String>> {
        self.tested.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reports(&self) -> MutexGuard<'_, HashMap<String, Report>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a job that nothing knows of still runs, and was not asked to end.
    pub fn has_unreported(&self) -> bool {
        let goes_on = |job: &Job| match job.view() {
            Ok(view) => !matches!(view.state, JobState::Stopping | JobState::Ended),
            Err(_) => false,
        };
        // Before the reports: a job that is started has its report first.
        let is_starting = Arc::strong_count(&self.starting) > 1;
        is_starting || self.reports().values().any(|report| !report.is_answered && goes_on(&report.job))
    }

    /// Stops the job of a call whose answer does not reach the client, so that no job runs whose id nothing has learned. Returns
    /// at once.
    pub fn stop_unheard(self: &Arc<Self>, call: &str) {
        let Some(job) = self.reports().get_mut(call).map(|report| {
            report.is_answered = false;
            report.job.clone()
        }) else {
            return;
        };
        let (shared, call) = (self.clone(), call.to_owned());
        let stop = move || {
            stop_cancelled(&job);
            shared.reports().remove(&call);
        };
        // Without a thread the job goes on until its client exits.
        let _ = std::thread::Builder::new().name("mcp-stop".into()).spawn(stop);
    }

    /// Begins the start of a job. Until the result is dropped, a server that is about to exit waits for it.
    pub(super) fn begin_start(&self) -> Arc<()> {
        self.starting.clone()
    }

    /// Says that `call` has started `job`, and is to tell its id.
    pub(super) fn is_to_report(&self, call: &str, job: &Job) {
        let mut reports = self.reports();
        let goes_on = |job: &Job| job.view().is_ok_and(|view| !has_ended(&view));
        reports.retain(|_, report| !report.is_answered || goes_on(&report.job));
        reports.insert(call.to_owned(), Report { job: job.clone(), is_answered: false });
    }

    /// Says that `call` has its answer, with the id of its job.
    pub(super) fn is_reported(&self, call: &str) {
        if let Some(report) = self.reports().get_mut(call) {
            report.is_answered = true;
        }
    }
}

/// Stops a job whose call was cancelled.
pub(super) fn stop_cancelled(job: &Job) {
    let _ = job.stop_with(&StopOptions::default().reason("the call was cancelled"));
}
