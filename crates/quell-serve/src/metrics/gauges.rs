//! What is so now.

use quell::binary::{now, stat};
use quell::{JobState, JobView, Listing, ProcId, Quell, VitalsSampler};

use super::exposition::{Exposition, MetricKind, series};

/// The states of a job that has not ended.
const LIVE: [JobState; 7] = [
    JobState::Created,
    JobState::Starting,
    JobState::Running,
    JobState::Ready,
    JobState::Stopping,
    JobState::Waiting,
    JobState::Lost,
];

/// Writes them. `listing` has the jobs that have not ended, and how many have.
pub fn write(text: &mut Exposition, quell: &Quell, listing: &Listing, vitals: &mut VitalsSampler) {
    gauge(text, "quell_build_info", "The version of the server; always 1.");
    text.count(&series("quell_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1);

    gauge(text, "quell_jobs", "Jobs that have not ended, by state.");
    for state in LIVE {
        let count = listing.jobs.iter().filter(|job| job.state == state).count();
        text.count(&series("quell_jobs", &[("state", state.as_str())]), count as u64);
    }
    // A policy can forbid to list jobs; then this can't be told.
    if let Ok(sampled) = vitals.sample(&listing.jobs) {
        gauge(text, "quell_processes", "Living processes of all jobs.");
        text.count("quell_processes", sampled.values().filter_map(|vitals| vitals.processes).sum());
    }
    gauge(
        text,
        "quell_survivors",
        "Processes that a receipt names as not proven dead, and that are still alive.",
    );
    let survivors = listing.jobs.iter().flat_map(|job| &job.survivors).filter(|id| is_alive(id)).count();
    text.count("quell_survivors", survivors as u64);

    gauge(
        text,
        "quell_stopping_oldest_seconds",
        "How long the stop that began first is going on; 0 without one.",
    );
    text.value("quell_stopping_oldest_seconds", oldest_stop(&listing.jobs));

    gauge(text, "quell_store_jobs", "Jobs on record, live and ended.");
    text.count("quell_store_jobs", listing.jobs.len() as u64 + listing.more);
    if let Ok(free) = quell::binary::free_space(quell.home_dir()) {
        gauge(text, "quell_store_free_bytes", "Free space where the records are.");
        text.count("quell_store_free_bytes", free);
    }
}

fn gauge(text: &mut Exposition, name: &str, help: &str) {
    text.family(name, MetricKind::Gauge, help);
}

/// Whether the process with this very start time runs.
fn is_alive(id: &ProcId) -> bool {
    stat(id.pid).is_ok_and(|found| found.start == id.start && !matches!(found.state, b'Z' | b'X'))
}

fn oldest_stop(jobs: &[JobView]) -> f64 {
    let since =
        jobs.iter().filter(|job| job.state == JobState::Stopping).map(|job| job.since.unix_ms()).min();
    since.map_or(0.0, |since| (now().unix_ms() - since).max(0) as f64 / 1000.0)
}
