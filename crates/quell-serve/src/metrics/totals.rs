//! What has happened since quell first served metrics for this home. It outlives `gc` and the server.

use std::collections::{BTreeMap, BTreeSet};

use quell::{
    EventKind, JobEvent, JobId, JobView, KillReason, Receipt, RootOutcome, StepKind, Stream, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::exposition::{Exposition, series};
use super::families as f;

/// Ends are looked for this long before the last one that is counted: several jobs end at the same time, and are not on record in
/// the order of their ends.
const OVERLAP_MS: i64 = 600_000;

/// The counts, and what is included in them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    /// The version of this object.
    version: u32,
    /// Each counter, by its name and labels.
    counters: BTreeMap<String, u64>,
    /// Each histogram, by its name and labels.
    histograms: BTreeMap<String, Histogram>,
    /// The latest end that is counted, in milliseconds since 1970.
    until: i64,
    /// The jobs that ended shortly before, which are counted.
    recent: BTreeMap<JobId, i64>,
    /// The live jobs whose start is counted.
    live: BTreeSet<JobId>,
    /// The time of the last line of the audit log that is counted.
    audited: Timestamp,
}

/// How often values were at most so large.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Histogram {
    /// For each bound of its family, and last for all other values.
    counts: Vec<u64>,
    sum: f64,
}

/// A job that has ended, with what is known of it.
#[derive(Debug)]
pub struct CountedEnd {
    /// The job.
    pub view: JobView,
    /// Its receipt, if it can be read.
    pub receipt: Option<Receipt>,
    /// Its history.
    pub events: Vec<JobEvent>,
}

impl Totals {
    /// The version of the file.
    const VERSION: u32 = 1;

    /// Nothing is counted yet. What happened before `now` never is.
    pub fn new(now: Timestamp, live: BTreeSet<JobId>) -> Self {
        Self {
            version: Self::VERSION,
            counters: BTreeMap::new(),
            histograms: BTreeMap::new(),
            until: now.unix_ms(),
            recent: BTreeMap::new(),
            live,
            audited: now,
        }
    }

    /// Whether this quell can go on with it.
    pub fn is_usable(&self) -> bool {
        self.version == Self::VERSION
            && self.histograms.iter().all(|(key, histogram)| {
                histogram.counts.len() == f::bounds(key.split('{').next().unwrap_or_default()).len() + 1
            })
    }

    /// The time from which on ended jobs have to be looked at.
    pub fn since(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.until - OVERLAP_MS)
    }

    /// The time of the last line of the audit log that is counted.
    pub fn audited(&self) -> Timestamp {
        self.audited
    }

    /// Whether the end of a job that ended at `ended` is not counted yet.
    pub fn lacks_end(&self, id: JobId, ended: Timestamp) -> bool {
        self.live.contains(&id)
            || (ended.unix_ms() >= self.until - OVERLAP_MS && !self.recent.contains_key(&id))
    }

    /// The jobs that were live at the last look and are not any more.
    pub fn gone(&self, live: &BTreeSet<JobId>) -> Vec<JobId> {
        self.live.difference(live).copied().collect()
    }

    /// Forgets a job that was live and was removed: its end can't be counted.
    pub fn forget(&mut self, id: JobId) {
        self.live.remove(&id);
    }

    /// Counts the start of a live job, once.
    pub fn add_live(&mut self, view: &JobView) {
        // Until it is started it is not known what holds it.
        if view.held.is_some() && self.live.insert(view.id) {
            self.add_start(view);
        }
    }

    fn add_start(&mut self, view: &JobView) {
        let held = view.held.map_or("none", |held| held.as_str());
        self.count(f::STARTS, &[("mode", &serde_word(&view.mode)), ("held", held)], 1);
    }

    /// Counts the end of a job, once.
    pub fn add_end(&mut self, job: &CountedEnd) {
        let view = &job.view;
        let ended = view.ended.unwrap_or(view.since);
        if !self.lacks_end(view.id, ended) {
            return;
        }
        if !self.live.remove(&view.id) {
            self.add_start(view);
        }
        let ms = ended.unix_ms();
        self.recent.insert(view.id, ms);
        self.until = self.until.max(ms);
        let oldest = self.until - OVERLAP_MS;
        self.recent.retain(|_, ended| *ended >= oldest);

        let cause = view.cause.map_or_else(|| "unknown".into(), |cause| serde_word(&cause));
        let outcome = outcome_word(view.outcome.as_ref());
        let verdict = view.verdict.as_ref().map_or_else(|| "unproven".into(), |verdict| kind(&verdict));
        let labels = [("cause", cause.as_str()), ("outcome", outcome), ("verdict", verdict.as_str())];
        self.count(f::ENDS, &labels, 1);
        self.count(f::TIMEOUTS, &[], u64::from(cause == "timeout"));
        self.count(f::OWNERS_GONE, &[], u64::from(cause == "owner_gone"));
        self.count(f::RESTARTS, &[], u64::from(view.run.saturating_sub(1)));
        if let Some(receipt) = &job.receipt {
            self.add_receipt(receipt, &cause, outcome);
        }
        self.add_events(job);
    }

    fn add_receipt(&mut self, receipt: &Receipt, cause: &str, outcome: &str) {
        self.observe(f::DURATION, &[("outcome", outcome)], receipt.ended.at - receipt.started.at);
        let steps = [StepKind::StopAsked, StepKind::Ask, StepKind::Kill];
        let stop = steps.iter().filter_map(|step| receipt.time_of(*step)).reduce(f64::min);
        if let Some(stop) = stop {
            self.count(f::STOPS, &[("cause", cause)], 1);
            let escalated = if receipt.escalated() { "yes" } else { "no" };
            self.observe(f::STOP_DURATION, &[("escalated", escalated)], receipt.ended.at - stop);
        }
        if receipt.killed() {
            // Older receipts have no reason.
            let reason = receipt.kill.unwrap_or(KillReason::GraceOver);
            self.count(f::ESCALATIONS, &[("reason", reason_word(reason))], 1);
        }
        if receipt.time_of(StepKind::Ask).is_some() && receipt.grace.asked > 0.0 {
            self.observe(f::GRACE_GIVEN, &[], receipt.grace.asked);
            // A kill that was wanted cuts the grace short.
            if let Some(used) = receipt.grace.used.filter(|_| receipt.kill != Some(KillReason::Wanted)) {
                self.observe(f::GRACE_USED, &[], (used / receipt.grace.asked).min(1.0));
            }
        }
        for member in &receipt.members {
            self.count(f::MEMBERS, &[("fate", &serde_word(&member.fate))], 1);
        }
        let outlived = receipt.outlived() as u64;
        self.count(f::LEAKS, &[], u64::from(outlived > 0));
        self.count(f::LEAKED_PROCESSES, &[], outlived);
        for (stream, totals) in receipt
            .output
            .iter()
            .flat_map(|output| [(Stream::Stdout, output.stdout), (Stream::Stderr, output.stderr)])
        {
            let stream = serde_word(&stream);
            self.count(f::OUTPUT, &[("stream", &stream)], totals.bytes);
            self.count(f::OUTPUT_CUT, &[("stream", &stream)], totals.cut_bytes);
        }
    }

    fn add_events(&mut self, job: &CountedEnd) {
        let last = job.receipt.as_ref().map_or(u32::MAX, |receipt| receipt.run);
        for event in &job.events {
            match &event.what {
                EventKind::Ready { after } => self.observe(f::READY, &[], *after),
                EventKind::Lost { .. } => self.count(f::KEEPERS_LOST, &[], 1),
                EventKind::StandbyLost => self.count(f::STANDBYS_LOST, &[], 1),
                EventKind::HookFailed { at, .. } => {
                    self.count(f::HOOK_FAILURES, &[("at", &serde_word(at))], 1)
                }
                // The receipt tells it of the last run.
                EventKind::Killed { reason, .. } if event.run < last => {
                    let reason = reason.unwrap_or(KillReason::GraceOver);
                    self.count(f::ESCALATIONS, &[("reason", reason_word(reason))], 1);
                }
                _ => {}
            }
        }
    }

    /// Counts a refusal of the guard.
    pub fn add_refusal(&mut self, at: Timestamp, verb: &str, code: &str) {
        self.audited = self.audited.max(at);
        self.count(f::REFUSALS, &[("verb", verb), ("code", code)], 1);
    }

    /// Counts a start that failed.
    pub fn add_failed_start(&mut self, at: Timestamp, code: &str) {
        self.audited = self.audited.max(at);
        self.count(f::START_FAILURES, &[("code", code)], 1);
    }

    fn count(&mut self, name: &str, labels: &[(&str, &str)], by: u64) {
        if by > 0 {
            *self.counters.entry(series(name, labels)).or_default() += by;
        }
    }

    fn observe(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let bounds = f::bounds(name);
        let histogram = self.histograms.entry(series(name, labels)).or_default();
        histogram.counts.resize(bounds.len() + 1, 0);
        let value = value.max(0.0);
        let place = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        histogram.counts[place] += 1;
        histogram.sum += value;
    }

    /// Writes all families, each with its series.
    pub fn write(&self, text: &mut Exposition) {
        for family in f::FAMILIES {
            text.family(family.name, family.kind(), family.help);
            if family.bounds.is_empty() {
                let mut counters = of_family(&self.counters, family.name);
                for labels in family.initial {
                    counters.entry(series(family.name, labels)).or_insert(&0);
                }
                counters.iter().for_each(|(series, value)| text.count(series, **value));
            } else {
                let none = Histogram { counts: vec![0; family.bounds.len() + 1], sum: 0.0 };
                let mut histograms = of_family(&self.histograms, family.name);
                for labels in family.initial {
                    histograms.entry(series(family.name, labels)).or_insert(&none);
                }
                for (series, Histogram { counts, sum }) in histograms {
                    let labels = labels_of(&series);
                    text.histogram(family.name, &labels, family.bounds, counts, *sum);
                }
            }
        }
    }
}

/// The series of one family.
fn of_family<'a, T>(all: &'a BTreeMap<String, T>, name: &str) -> BTreeMap<String, &'a T> {
    let of_family = all.iter().filter(|(series, _)| series.split('{').next() == Some(name));
    of_family.map(|(series, value)| (series.clone(), value)).collect()
}

/// The labels in a series of a histogram, whose values are words of quell's own.
fn labels_of(series: &str) -> Vec<(&str, &str)> {
    let inside = series.split_once('{').map_or("", |(_, labels)| labels.trim_end_matches('}'));
    inside
        .split(',')
        .filter_map(|label| label.split_once("=\""))
        .map(|(key, value)| (key, value.trim_end_matches('"')))
        .collect()
}

/// The word that serde writes for a variant without fields.
fn serde_word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The word that serde writes for a variant with fields.
fn kind(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.get("kind").and_then(|kind| kind.as_str()).unwrap_or_default().to_owned()
}

fn outcome_word(outcome: Option<&RootOutcome>) -> &'static str {
    match outcome {
        Some(RootOutcome::Exited { code: 0 }) => "ok",
        Some(RootOutcome::Exited { .. }) => "failed",
        Some(RootOutcome::Signaled { .. }) => "signaled",
        Some(RootOutcome::NotStarted { .. }) => "not_started",
        _ => "unknown",
    }
}

const fn reason_word(reason: KillReason) -> &'static str {
    match reason {
        KillReason::GraceOver => "grace_over",
        KillReason::Wanted => "now",
        KillReason::KeeperLost => "recovery",
    }
}

#[cfg(test)]
mod tests;
