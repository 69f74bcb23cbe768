//! What live jobs use now and which jobs need attention: read once for all streams, and only while one of them asks for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quell::binary::now;
use quell::{
    Attention, AttentionRules, Filter, JobId, JobView, Quell, Result, StopProgress, Vitals, VitalsSampler,
    attention,
};
use serde::Serialize;

use crate::pools::{self, Pools};

/// How many jobs that have ended are looked at: some of them need attention for a while.
const ENDED: usize = 100;

/// What changes about a job without an event.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobVitals {
    #[serde(flatten)]
    vitals: Vitals,
    /// Why it needs attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    attention: Option<Attention>,
    /// The stop that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop: Option<StopProgress>,
}

impl JobVitals {
    /// Whether a client that has `before` knows this too. It counts on the seconds since the last output itself.
    fn is_known_from(&self, before: &Self) -> bool {
        let of = |it: &Self| {
            let Vitals { cpu, memory, processes, last_line, .. } = it.vitals.clone();
            (cpu, memory, processes, last_line, it.attention.clone(), it.stop)
        };
        let has_written = match (before.vitals.output_age, self.vitals.output_age) {
            (Some(before), Some(now)) => now < before,
            (before, now) => before != now,
        };
        !has_written && of(self) == of(before)
    }
}

/// The live jobs, and those that need attention.
pub type Snapshot = BTreeMap<JobId, JobVitals>;

/// What is sent to a client that has `before`. A job that is no longer listed has no vitals and needs no attention.
pub fn changes(before: &Snapshot, now: &Snapshot) -> Snapshot {
    let is_news = |(id, vitals): &(&JobId, &JobVitals)| {
        before.get(id).is_none_or(|before| !vitals.is_known_from(before))
    };
    let gone = before.keys().filter(|id| !now.contains_key(id)).map(|id| (*id, JobVitals::default()));
    now.iter().filter(is_news).map(|(id, vitals)| (*id, vitals.clone())).chain(gone).collect()
}

/// The last snapshot, for all streams.
#[derive(Debug)]
pub struct SharedVitals {
    sampler: Arc<Mutex<VitalsSampler>>,
    last: tokio::sync::Mutex<Option<(Instant, Arc<Snapshot>)>>,
}

impl SharedVitals {
    pub fn new(quell: &Quell) -> Self {
        Self { sampler: Arc::new(Mutex::new(VitalsSampler::new(quell))), last: tokio::sync::Mutex::default() }
    }

    /// A snapshot that is not older than `age`. One caller reads it, and the others wait for that.
    pub async fn recent(
        &self,
        pools: &Pools,
        quell: &Quell,
        rules: AttentionRules,
        age: Duration,
    ) -> Arc<Snapshot> {
        let mut last = self.last.lock().await;
        let is_old = last.as_ref().is_none_or(|(at, _)| at.elapsed() >= age);
        if is_old {
            let (sampler, quell) = (self.sampler.clone(), quell.clone());
            let read =
                move || read(&quell, &rules, &mut sampler.lock().unwrap_or_else(PoisonError::into_inner));
            // What can't be read now stays as it was: the next round tries again.
            if let Ok(Ok(snapshot)) = pools::run(&pools.reads, read).await {
                *last = Some((Instant::now(), Arc::new(snapshot)));
            }
        }
        last.as_ref().map(|(_, snapshot)| snapshot.clone()).unwrap_or_default()
    }
}

fn read(quell: &Quell, rules: &AttentionRules, sampler: &mut VitalsSampler) -> Result<Snapshot> {
    let jobs = quell.list(&Filter { limit: Some(ENDED), ..Filter::default() })?.jobs;
    let mut sampled = sampler.sample(&jobs)?;
    let now = now();
    let of = |view: &JobView| {
        let vitals = sampled.remove(&view.id);
        // Facts that can't be read are missing: the job may have been removed.
        let facts = quell.attention_facts(view, rules).unwrap_or_default();
        let attention = attention(view, vitals.as_ref(), &facts, rules, now);
        let is_shown = vitals.is_some() || attention.is_some();
        is_shown
            .then(|| (view.id, JobVitals { vitals: vitals.unwrap_or_default(), attention, stop: facts.stop }))
    };
    Ok(jobs.iter().filter_map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(cpu: f64, output_age: f64) -> JobVitals {
        let vitals = Vitals { cpu: Some(cpu), output_age: Some(output_age), ..Vitals::default() };
        JobVitals { vitals, ..JobVitals::default() }
    }

    #[test]
    fn only_news_is_sent() {
        let id = |number: u8| format!("01M9A00000000000000000000{number}").parse::<JobId>().unwrap();
        let before = Snapshot::from([(id(1), job(0.0, 5.0)), (id(2), job(0.5, 5.0)), (id(3), job(0.0, 5.0))]);
        let now = Snapshot::from([
            // Two seconds later, and nothing else: the client counts them itself.
            (id(1), job(0.0, 7.0)),
            (id(2), job(0.6, 7.0)),
            (id(4), job(0.0, 0.0)),
        ]);
        let sent: Vec<JobId> = changes(&before, &now).into_keys().collect();
        assert_eq!(sent, [id(2), id(3), id(4)]);
        assert_eq!(
            changes(&now, &Snapshot::from([(id(1), job(0.0, 0.1))]))[&id(1)].vitals.output_age,
            Some(0.1)
        );
        assert!(changes(&now, &now).is_empty());
    }
}
