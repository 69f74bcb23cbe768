//! `/metrics`: what Prometheus reads.
//!
//! Nothing is counted as it happens: each scrape looks at what has ended since the last one. So an idle server does nothing, no event
//! can be missed, and jobs that end while no server runs are counted by the next one. The totals are in a file of their own, because
//! `gc` removes the records of jobs, and a counter must not fall.

mod exposition;
mod families;
mod gauges;
mod requests;
mod totals;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use quell::binary::{Home, QuellInternals, json, now};
use quell::{Filter, JobId, JobView, Listing, Quell, Result, Timestamp, VitalsSampler};
use quell_guard::{AuditLine, Kind, audit_log};

use crate::files;
use crate::state::State;

use exposition::Exposition;
pub use exposition::Format;
pub use requests::Requests;
use totals::{CountedEnd, Totals};

/// Refusals because there was nothing to act on: nothing was forbidden.
const NOT_FOUND: [&str; 2] = ["no_such_process", "no_such_service"];

/// The counts of one home. At most one process has them: the server.
#[derive(Debug)]
pub struct Metrics {
    path: PathBuf,
    home: Home,
    counted: Mutex<Counted>,
}

#[derive(Debug)]
struct Counted {
    totals: Totals,
    vitals: VitalsSampler,
}

impl Metrics {
    /// Goes on with the counts in the file, or begins with none if there are none that can be used: a counter that begins again is
    /// understood, one that is wrong is not.
    pub fn open(quell: &Quell, path: PathBuf) -> Result<Self> {
        let saved = files::read(&path).ok().flatten().and_then(|text| serde_json::from_str(&text).ok());
        let totals = match saved.filter(Totals::is_usable) {
            Some(totals) => totals,
            None => Totals::new(now(), ids(&live(quell)?.jobs)),
        };
        let counted = Mutex::new(Counted { totals, vitals: VitalsSampler::new(quell) });
        Ok(Self { path, home: quell.home().clone(), counted })
    }

    /// The whole text. Counts first what has happened since the last time, and saves the counts. Blocks.
    pub fn text(&self, quell: &Quell, state: &State, format: Format) -> Result<String> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let Counted { totals, vitals } = &mut *counted;
        let before = totals.clone();
        let listing = live(quell)?;
        catch_up(totals, quell, &listing.jobs)?;
        add_audit(totals, &self.home)?;
        if *totals != before {
            // Counts that can't be saved are right until the server exits. The next one begins where the file ends.
            let _ = files::write(&self.path, &json(&*totals));
        }
        let mut text = Exposition::new(format);
        gauges::write(&mut text, quell, &listing, vitals);
        totals.write(&mut text);
        requests::write(&mut text, state);
        drop(counted);
        Ok(text.finish())
    }
}

/// The jobs that have not ended, and how many have.
fn live(quell: &Quell) -> Result<Listing> {
    quell.list(&Filter { limit: Some(0), ..Filter::default() })
}

fn ids(jobs: &[JobView]) -> BTreeSet<JobId> {
    jobs.iter().map(|job| job.id).collect()
}

/// Counts the starts and ends since the last time.
fn catch_up(totals: &mut Totals, quell: &Quell, live: &[JobView]) -> Result<()> {
    let since = system_time(totals.since());
    let ended = quell.list(&Filter { all: true, since: Some(since), ..Filter::default() })?;
    let live_ids = ids(live);
    let is_ended = |view: &&JobView| view.ended.is_some() && !live_ids.contains(&view.id);
    for view in ended.jobs.iter().filter(is_ended) {
        if totals.lacks_end(view.id, view.ended.unwrap_or(view.since)) {
            totals.add_end(&ended_job(quell, view.clone()));
        }
    }
    // What was live and is not: its end may be before that time if the clock was set back.
    for id in totals.gone(&live_ids) {
        match quell.job_with(id).view() {
            Ok(view) if view.ended.is_some() => totals.add_end(&ended_job(quell, view)),
            Ok(_) => {}
            Err(_) => totals.forget(id),
        }
    }
    live.iter().for_each(|view| totals.add_live(view));
    Ok(())
}

/// A job that is removed meanwhile has no receipt or history any more; its end is counted all the same.
fn ended_job(quell: &Quell, view: JobView) -> CountedEnd {
    let job = quell.job_with(view.id);
    CountedEnd { receipt: job.receipt().ok(), events: job.events().unwrap_or_default(), view }
}

/// Counts the refusals and the failed starts since the last time.
fn add_audit(totals: &mut Totals, home: &Home) -> Result<()> {
    let since = totals.audited();
    for line in audit_log(home)?.iter().filter(|line| line.at > since) {
        match line.kind {
            Kind::Decision => {
                let code = line.decision.code.to_string();
                if !line.decision.allowed && !NOT_FOUND.contains(&code.as_str()) {
                    totals.add_refusal(line.at, &line.verb, &code);
                }
            }
            Kind::Act => {
                if let Some(code) = failed_start(line) {
                    totals.add_failed_start(line.at, code);
                }
            }
        }
    }
    Ok(())
}

/// The code of the error, if the line says that a start failed.
fn failed_start(line: &AuditLine) -> Option<&str> {
    let result = line.result.as_ref()?;
    let failed = result.get("started")? == false;
    if failed { result.get("error")?.as_str() } else { None }
}

fn system_time(time: Timestamp) -> SystemTime {
    let ms = u64::try_from(time.unix_ms()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
}
