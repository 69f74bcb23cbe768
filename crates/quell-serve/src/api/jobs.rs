//! Lists of jobs, and what is known of one.

use quell::binary::JobInternals;
use quell::binary::responses::TreeAnswer;
use quell::{Filter, JobEvent, Listing, Receipt};
use serde::Serialize;

use crate::answer::HttpFailure;
use crate::call::{HttpCall, Reply};

/// How many finished jobs a list has by default.
const SHOWN: u64 = 50;

/// A list of jobs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobsAnswer {
    /// The list.
    #[serde(flatten)]
    pub listing: Listing,
    /// What `before` is for the next page; absent for the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<quell::JobId>,
}

pub async fn list(call: HttpCall) -> Reply {
    call.with_access(|call, access| {
        let query = &call.query;
        let limit = query.count("limit").unwrap_or(SHOWN) as usize;
        let filter = Filter {
            states: query.states("state"),
            tags: query.tags("tag"),
            session: query.text("session").map(str::to_owned),
            name: query.text("name").map(str::to_owned),
            since: query.since("since"),
            limit: Some(limit),
            before: query.job("before"),
            ..Filter::default()
        };
        let listing = access.quell.list(&filter)?;
        let last = listing.jobs.last().filter(|view| view.ended.is_some() && listing.more > 0);
        let next = last.map(|view| view.id);
        Ok(JobsAnswer { listing, next })
    })
    .await
}

pub async fn status(call: HttpCall) -> Reply {
    call.with_access(|call, access| Ok(call.job(access)?.status()?)).await
}

pub async fn tree(call: HttpCall) -> Reply {
    call.with_access(|call, access| {
        let job = call.job(access)?;
        let answer: TreeAnswer = quell::binary::tree_answer(&job.tree()?, job.id());
        Ok(answer)
    })
    .await
}

pub async fn receipt(call: HttpCall) -> Reply {
    call.with_access(|call, access| {
        let job = call.job(access)?;
        if !job.has_ended_now()? {
            let why = format!("{} has not ended, so it has no receipt yet", job.id());
            return Err(HttpFailure::new(409, "wrong_state", why, "wait for its end: GET /v1/wait"));
        }
        let receipt: Receipt = job.receipt()?;
        Ok(receipt)
    })
    .await
}

pub async fn events(call: HttpCall) -> Reply {
    call.with_access(|call, access| {
        let events: Vec<JobEvent> = call.job(access)?.events()?;
        Ok(events)
    })
    .await
}
