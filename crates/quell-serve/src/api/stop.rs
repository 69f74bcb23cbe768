//! Stopping a job: heard at once, ended when its keeper has proven it.

use std::time::Duration;

use quell::binary::responses::{StopAnswer, StoppedJob};
use quell::{Error, Job, JobId, StopOptions, Stopped, Timestamp, Verdict};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::answer::{HttpFailure, success};
use crate::call::{HttpCall, LONGEST_REASON, Reply};
use crate::pools;

/// The longest grace, in seconds.
const LONGEST_GRACE: f64 = 86_400.0 * 7.0;

/// How jobs are stopped.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StopBody {
    /// Seconds between the request to end and the kill; the job's own if not given.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 604_800.0)))]
    pub grace: Option<f64>,
    /// Kill at once, without asking first.
    #[serde(default)]
    pub kill: bool,
    /// Why, for the receipt and the audit log.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub reason: Option<String>,
}

impl StopBody {
    pub fn options(&self) -> Result<StopOptions, HttpFailure> {
        let mut options = if self.kill { StopOptions::kill() } else { StopOptions::default() };
        if let Some(grace) = self.grace {
            if !(0.0..=LONGEST_GRACE).contains(&grace) {
                return Err(HttpFailure::bad_value(format!(
                    "grace must be from 0 to {LONGEST_GRACE} seconds"
                )));
            }
            options = options.grace(Duration::from_secs_f64(grace));
        }
        if let Some(reason) = &self.reason {
            if reason.chars().count() > LONGEST_REASON || reason.contains('\0') {
                let why = format!("reason must have at most {LONGEST_REASON} characters, and no NUL");
                return Err(HttpFailure::bad_value(why));
            }
            options = options.reason(reason.clone());
        }
        Ok(options)
    }
}

/// A stop that was heard and has not ended yet.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeardAnswer {
    /// The job.
    pub id: JobId,
    /// The server's clock when its keeper had heard it.
    pub heard: Timestamp,
}

/// Why a job is not proven dead, with what is known of its end.
pub fn not_proven(id: JobId, error: Error, receipt: Option<quell::Receipt>) -> HttpFailure {
    let failure = HttpFailure::from(error).with("id", id);
    match receipt {
        Some(receipt) => failure.with("receipt", receipt),
        None => failure,
    }
}

/// The answer about a stop that has ended. One that left something alive, or could not be counted, is a failure.
pub fn ended(job: &Job, stopped: quell::Result<Stopped>) -> Result<StoppedJob, HttpFailure> {
    match stopped {
        Ok(stopped) => {
            let (already_ended, receipt) = (stopped.already_ended(), stopped.into_receipt());
            if receipt.verdict == Verdict::Gone {
                return Ok(StoppedJob { id: job.id(), already_ended, receipt });
            }
            let error = Error::NotProvenDead(format!("{} has ended, but is not proven gone", job.id()));
            Err(not_proven(job.id(), error, Some(receipt)))
        }
        Err(error @ Error::NotProvenDead(_)) => Err(not_proven(job.id(), error, job.receipt().ok())),
        Err(error) => Err(error.into()),
    }
}

/// The result of a stop that has ended.
type Ended = Result<StoppedJob, HttpFailure>;

pub async fn stop(call: HttpCall) -> Reply {
    let body: StopBody = call.json()?;
    let (options, kind) = (body.options()?, call.route.kind);
    let wait = call.query.wait("wait").unwrap_or_default();
    let (asks, followed) = (call.state.pools.asks.clone(), call.state.pools.followed.clone());
    let place = pools::place(&asks).await?;
    let (tell_heard, heard) = oneshot::channel();
    let (tell_ended, mut end) = oneshot::channel::<Ended>();
    pools::spawn(move || {
        let target = call.part("job").to_owned();
        let asked = call.access(&target, body.reason.clone()).and_then(|access| {
            let job = access.quell.job(&target)?;
            Ok((job.ask_to_stop(&options)?, job))
        });
        match asked {
            Err(error @ Error::NotProvenDead(_)) => {
                let job = call.access(&target, None).and_then(|access| access.quell.job(&target)).ok();
                let failure = match job {
                    Some(job) => not_proven(job.id(), error, job.receipt().ok()),
                    None => error.into(),
                };
                drop(tell_heard.send(Err(failure)));
            }
            Err(error) => drop(tell_heard.send(Err(error.into()))),
            Ok((pending, job)) => {
                // What follows may take as long as the grace, and must not keep the next stop from being heard.
                let _looks_after = followed.try_acquire_owned();
                if _looks_after.is_ok() {
                    drop(place);
                }
                let _ = tell_heard.send(Ok((job.id(), pending.is_over())));
                let _ = tell_ended.send(ended(&job, pending.wait()));
            }
        }
    })?;
    let lost = || HttpFailure::internal("the stop ended without a result");
    let (id, is_over) = heard.await.map_err(|_| lost())??;
    let at = quell::binary::now();
    // A job that had ended is reported as such, without a wait.
    let wait = if is_over { Duration::from_secs(5) } else { wait };
    match tokio::time::timeout(wait, &mut end).await {
        Ok(ended) => {
            let answer = StopAnswer { jobs: vec![ended.map_err(|_| lost())??], failed: Vec::new() };
            Ok(success(200, kind, &answer))
        }
        Err(_) => Ok(success(202, kind, &HeardAnswer { id, heard: at })),
    }
}
