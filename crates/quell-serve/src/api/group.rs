//! Stopping many jobs: all are asked at once, and each is answered with a line of its own as it ends.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::Response;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use quell::binary::{json, responses::StoppedJob};
use quell::{Error, ErrorBody, Filter, Job, StopOptions};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::stop::{StopBody, ended};
use crate::answer::HttpFailure;
use crate::call::{HttpCall, Reply};
use crate::pools;
use crate::stream::LineBody;

/// Which jobs are stopped, and how. Exactly one of `jobs`, `tag`, `session` and `all` is given.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GroupStopBody {
    /// These: ids, beginnings of ids, or names.
    #[serde(default)]
    pub jobs: Option<Vec<String>>,
    /// The live ones with this label, `KEY` or `KEY=VALUE`.
    #[serde(default)]
    pub tag: Option<String>,
    /// The live ones of this session.
    #[serde(default)]
    pub session: Option<String>,
    /// All live ones.
    #[serde(default)]
    pub all: bool,
    /// How many jobs the caller expects. If there are more or fewer, nothing is stopped.
    pub expect: usize,
    /// Seconds between the request to end and the kill; each job's own if not given.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 604_800.0)))]
    pub grace: Option<f64>,
    /// Kill at once, without asking first.
    #[serde(default)]
    pub kill: bool,
    /// Why, for the receipts and the audit log.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub reason: Option<String>,
}

/// A line of the answer.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum GroupStopLine {
    /// A job that has ended.
    Stopped(Box<StoppedJob>),
    /// Why another one has not, or is not proven gone.
    Failed {
        /// The job.
        id: quell::JobId,
        /// The error.
        error: Box<ErrorBody>,
    },
}

impl GroupStopBody {
    fn how(&self) -> StopBody {
        StopBody { grace: self.grace, kill: self.kill, reason: self.reason.clone() }
    }

    /// The selected jobs, as the audit log names them.
    fn target(&self) -> String {
        let words = self.jobs.iter().flatten().cloned();
        let tag = self.tag.iter().map(|tag| format!("--tag {tag}"));
        let session = self.session.iter().map(|session| format!("--session {session}"));
        let all = self.all.then(|| "--all".to_owned());
        words.chain(tag).chain(session).chain(all).collect::<Vec<_>>().join(" ")
    }

    fn select(&self, quell: &quell::Quell) -> Result<Vec<Job>, HttpFailure> {
        let mut jobs = match (&self.jobs, &self.tag, &self.session) {
            (Some(names), _, _) => names.iter().map(|name| quell.job(name)).collect::<Result<_, Error>>()?,
            (None, None, None) => quell.live()?,
            (None, tag, session) => {
                let tags = tag.iter().map(|tag| tag.parse()).collect::<Result<_, quell::InvalidTag>>();
                let tags = tags.map_err(|error| HttpFailure::bad_value(error.to_string()))?;
                let filter = Filter { tags, session: session.clone(), limit: Some(0), ..Filter::default() };
                quell.list(&filter)?.jobs.iter().map(|view| quell.job_with(view.id)).collect::<Vec<_>>()
            }
        };
        // The same job may be named twice.
        jobs.sort_by_key(Job::id);
        jobs.dedup_by_key(|job| job.id());
        Ok(jobs)
    }
}

pub async fn stop(call: HttpCall) -> Reply {
    let body: GroupStopBody = call.json()?;
    let given = [body.jobs.is_some(), body.tag.is_some(), body.session.is_some(), body.all];
    if given.iter().filter(|given| **given).count() != 1 {
        return Err(HttpFailure::bad_value("give exactly one of jobs, tag, session and all"));
    }
    let options = body.how().options()?;
    let (asks, followed) = (call.state.pools.asks.clone(), call.state.pools.followed.clone());
    let jobs = pools::run(&asks, move || {
        let access = call.access(&body.target(), body.reason.clone())?;
        let jobs = body.select(&access.quell)?;
        if jobs.len() != body.expect {
            let why = format!(
                "the number of selected jobs is {}, and {} was expected: nothing was stopped",
                jobs.len(),
                body.expect
            );
            let ids: Vec<_> = jobs.iter().map(Job::id).collect();
            let hint = "look at the list again, and confirm the new number";
            return Err(HttpFailure::new(409, "count_differs", why, hint).with("ids", ids));
        }
        Ok::<_, HttpFailure>(jobs)
    })
    .await??;
    let (sender, lines) = mpsc::channel(jobs.len().max(1));
    tokio::spawn(async move {
        for job in jobs {
            // All are asked before the first one has ended, as far as there are threads.
            let (sender, options, followed) = (sender.clone(), options.clone(), followed.clone());
            match pools::place(&asks).await {
                Ok(place) => stop_one(job, options, place, followed, sender),
                Err(failure) => drop(sender.try_send(line(&failed(&job, failure)))),
            }
        }
    });
    let mut response = Response::new(Body::new(LineBody(lines)));
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

fn stop_one(
    job: Job,
    options: StopOptions,
    place: tokio::sync::OwnedSemaphorePermit,
    followed: Arc<tokio::sync::Semaphore>,
    sender: mpsc::Sender<Bytes>,
) {
    let (id, sent) = (job.clone(), sender.clone());
    let begun = pools::spawn(move || {
        let stopped = job.ask_to_stop(&options).and_then(|pending| {
            let looks_after = followed.try_acquire_owned();
            let kept = looks_after.is_err().then_some(place);
            let stopped = pending.wait();
            drop(kept);
            stopped
        });
        let result = match ended(&job, stopped) {
            Ok(stopped) => GroupStopLine::Stopped(Box::new(stopped)),
            Err(failure) => failed(&job, failure),
        };
        // The channel has room for all of them.
        let _ = sent.try_send(line(&result));
    });
    if let Err(failure) = begun {
        let _ = sender.try_send(line(&failed(&id, failure)));
    }
}

fn failed(job: &Job, failure: HttpFailure) -> GroupStopLine {
    GroupStopLine::Failed { id: job.id(), error: Box::new(failure.into_body()) }
}

fn line(line: &GroupStopLine) -> Bytes {
    Bytes::from(json(line) + "\n")
}
