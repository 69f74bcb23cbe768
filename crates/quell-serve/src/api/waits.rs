//! Long polls: waiting for jobs, and for events. A wait holds no thread: it looks when the hub says that something has changed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quell::binary::responses::WaitAnswer;
use quell::binary::{Interest, JobInternals, LogQuery};
use quell::{Condition, Cursor, Error, Job, JobEvent, JobId, WaitFor, Waited};
use serde::Serialize;
use serde_json::Value;

use crate::answer::{HttpFailure, success};
use crate::call::{HttpCall, Reply};
use crate::hub::Bell;
use crate::pools;
use crate::query::event_id;
use crate::ring::ItemKind;
use crate::state;

/// How many jobs can be waited for at once.
const MOST: usize = 100;
/// How often a job is looked at that may have stalled. No event reports that nothing happens.
const SAMPLE: Duration = Duration::from_millis(200);
/// The fewest milliseconds between two readings of output.
const COLLECT: Duration = Duration::from_millis(50);
/// How many events an answer has by default.
const EVENTS: u64 = 1000;

/// What is waited for, and how far each job's output and work have been looked at.
struct Wait {
    jobs: Vec<Job>,
    ready: bool,
    log: Option<String>,
    stall: Option<Duration>,
    any: bool,
    /// Where the output goes on that was not looked at, for each job.
    since: Vec<Cursor>,
    /// What each job had done, and since when it has done no more.
    quiet: Vec<Option<((u64, u64), Instant)>>,
    met: Vec<Option<Waited>>,
}

impl Wait {
    /// Looks at each job once. Blocks.
    fn look(&mut self) -> Result<(), Error> {
        for at in 0..self.jobs.len() {
            if self.met[at].is_some() {
                continue;
            }
            let job = self.jobs[at].clone();
            let mut wanted = WaitFor::end();
            if self.ready {
                wanted = wanted.ready();
            }
            // Before looking: what comes after it is looked at the next time.
            let mut next = self.since[at];
            if let Some(pattern) = &self.log {
                wanted = wanted.log(pattern)?.since(self.since[at]);
                let end =
                    LogQuery { since: Some(next), tail: Some(0), whole_lines: true, ..LogQuery::default() };
                next = job.log_page(&end)?.end.cursor;
            }
            let mut waited = job.wait(&wanted, Some(Duration::ZERO))?;
            self.since[at] = next;
            if waited.met == Condition::Nothing && self.has_stalled(at) {
                waited.met = Condition::Stall;
            }
            if waited.met != Condition::Nothing {
                self.met[at] = Some(waited);
            }
        }
        Ok(())
    }

    fn has_stalled(&mut self, at: usize) -> bool {
        let Some(stall) = self.stall else { return false };
        // A job that ends right now has none. The next look sees the end.
        let Ok(now) = self.jobs[at].vitals() else { return false };
        match self.quiet[at] {
            Some((before, since)) if before == now => since.elapsed() >= stall,
            _ => {
                self.quiet[at] = Some((now, Instant::now()));
                false
            }
        }
    }

    fn is_over(&self) -> bool {
        let met = self.met.iter().flatten().count();
        if self.any { met > 0 } else { met == self.jobs.len() }
    }

    fn answer(self) -> Result<WaitAnswer, Error> {
        let nothing = |job: &Job| {
            job.wait(&WaitFor::end(), Some(Duration::ZERO))
                .map(|waited| Waited { met: Condition::Nothing, ..waited })
        };
        let jobs = self.jobs.iter().zip(self.met).map(|(job, met)| met.map_or_else(|| nothing(job), Ok));
        Ok(WaitAnswer { jobs: jobs.collect::<Result<_, Error>>()? })
    }
}

pub async fn wait(call: HttpCall) -> Reply {
    let (state, kind) = (call.state.clone(), call.route.kind);
    let deadline = tokio::time::Instant::now() + call.query.wait("for").unwrap_or_default();
    let bell = Arc::new(Bell::default());
    let (rung, shared) = (bell.clone(), state.clone());
    let (mut wait, _subscriptions) = pools::run(&state.pools.reads, move || {
        let query = &call.query;
        let access = call.access(&query.texts("job").join(" "), None)?;
        let mut jobs =
            query.texts("job").iter().map(|name| access.quell.job(name)).collect::<Result<Vec<_>, _>>()?;
        jobs.sort_by_key(Job::id);
        jobs.dedup_by_key(|job| job.id());
        if jobs.is_empty() || jobs.len() > MOST {
            return Err(HttpFailure::bad_value(format!("give 1 to {MOST} jobs")));
        }
        let log = query.text("log").map(str::to_owned);
        log.as_deref().map(quell::binary::regex).transpose()?;
        let mut wanted = WaitFor::end();
        if query.flag("ready") {
            wanted = wanted.ready();
        }
        jobs.iter().try_for_each(|job| job.check_can_meet(&wanted))?;
        if log.is_some() {
            jobs.iter().try_for_each(JobInternals::check_has_logs)?;
        }
        let interest = if log.is_some() { Interest::Output } else { Interest::Records };
        let subscriptions: Vec<_> =
            jobs.iter().map(|job| shared.hub.subscribe(job, interest, &rung)).collect();
        let (since, stall) = (query.cursor("since").unwrap_or_default(), query.wait("stall"));
        let wait = Wait {
            since: vec![since; jobs.len()],
            quiet: vec![None; jobs.len()],
            met: jobs.iter().map(|_| None).collect(),
            ready: query.flag("ready"),
            any: query.flag("any"),
            jobs,
            log,
            stall,
        };
        Ok((wait, subscriptions))
    })
    .await??;
    let mut ending = state.ending.subscribe();
    loop {
        wait = pools::run(&state.pools.reads, move || wait.look().map(|()| wait)).await??;
        let sample = wait.stall.map_or(deadline, |_| deadline.min(tokio::time::Instant::now() + SAMPLE));
        if wait.is_over() || tokio::time::Instant::now() >= deadline {
            break;
        }
        tokio::select! {
            _ = bell.rung() => tokio::time::sleep(COLLECT).await,
            () = tokio::time::sleep_until(sample) => {}
            () = state::end(&mut ending) => break,
        }
    }
    let answer = pools::run(&state.pools.reads, move || wait.answer()).await??;
    Ok(success(200, kind, &answer))
}

/// Events, and where the next request goes on.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventsAnswer {
    /// The events: those after `after`, or else the history of the selected jobs, by time.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<JobEvent>"))]
    pub events: Vec<Value>,
    /// What `after` is for the next request.
    pub next: String,
    /// Whether events between `after` and these are lost: then the list has to be read again.
    pub reset: bool,
}

pub async fn events(call: HttpCall) -> Reply {
    let (state, kind) = (call.state.clone(), call.route.kind);
    let limit = call.query.count("limit").unwrap_or(EVENTS) as usize;
    let Some(after) = call.query.text("after").map(str::to_owned) else {
        let (epoch, last) = (state.epoch, *state.hub.last().borrow());
        let events = pools::run(&state.pools.reads, move || history(&call, limit)).await??;
        let answer = EventsAnswer { events, next: format!("{epoch}.{last}"), reset: false };
        return Ok(success(200, kind, &answer));
    };
    let deadline = tokio::time::Instant::now() + call.query.wait("for").unwrap_or_default();
    let wanted = pools::run(&state.pools.reads, move || {
        let access = call.access("", None)?;
        let jobs = call
            .query
            .texts("job")
            .iter()
            .map(|name| Ok(access.quell.job(name)?.id()))
            .collect::<Result<Vec<JobId>, Error>>()?;
        Ok::<_, Error>((jobs, call.query.texts("kind")))
    });
    let (jobs, kinds) = wanted.await??;
    let known =
        event_id(&after).filter(|(epoch, _)| *epoch == state.epoch.to_string()).map(|(_, number)| number);
    let mut last = state.hub.last();
    let mut ending = state.ending.subscribe();
    let (mut next, mut reset) = match known {
        Some(number) => (number, false),
        None => (*last.borrow(), true),
    };
    let mut events = Vec::new();
    loop {
        let Some((items, later)) = state.hub.after(next, limit) else {
            (next, reset) = (*last.borrow(), true);
            break;
        };
        next = later;
        for (_, item) in items {
            let is_of_job = jobs.is_empty() || item.job.is_some_and(|id| jobs.contains(&id));
            if item.kind == ItemKind::Event && is_of_job {
                events.extend(item.text.and_then(|text| parsed(&text, &kinds)));
            }
        }
        if !events.is_empty() || reset || tokio::time::Instant::now() >= deadline {
            break;
        }
        tokio::select! {
            _ = last.changed() => {}
            () = tokio::time::sleep_until(deadline) => {}
            () = state::end(&mut ending) => break,
        }
    }
    let answer = EventsAnswer { events, next: format!("{}.{next}", state.epoch), reset };
    Ok(success(200, kind, &answer))
}

/// The event in a text, if it is of one of these kinds, or of any if none is named.
fn parsed(text: &str, kinds: &[String]) -> Option<Value> {
    let event: Value = serde_json::from_str(text).ok()?;
    let is_wanted = kinds.is_empty() || kinds.iter().any(|kind| event["event"] == kind.as_str());
    is_wanted.then_some(event)
}

/// The last events of the selected jobs, by time.
fn history(call: &HttpCall, limit: usize) -> Result<Vec<Value>, HttpFailure> {
    let (query, access) = (&call.query, call.access("", None)?);
    let named = query.texts("job");
    let jobs: Vec<Job> = if named.is_empty() {
        let filter = quell::Filter { tags: query.tags("tag"), limit: Some(50), ..quell::Filter::default() };
        access.quell.list(&filter)?.jobs.iter().map(|view| access.quell.job_with(view.id)).collect()
    } else {
        named.iter().map(|name| access.quell.job(name)).collect::<Result<_, Error>>()?
    };
    let (since, kinds) = (query.time("since"), query.texts("kind"));
    let mut events: Vec<(JobId, JobEvent)> = Vec::new();
    for job in &jobs {
        events.extend(job.events()?.into_iter().map(|event| (job.id(), event)));
    }
    events.retain(|(_, event)| since.is_none_or(|since| event.time >= since));
    // There is no order among jobs: by time, then by job; the events of one job stay in their order.
    events.sort_by_key(|(id, event)| (event.time, *id));
    let wanted = events.iter().filter_map(|(_, event)| parsed(&quell::binary::json(event), &kinds));
    let mut all: Vec<Value> = wanted.collect();
    all.drain(..all.len().saturating_sub(limit));
    Ok(all)
}
