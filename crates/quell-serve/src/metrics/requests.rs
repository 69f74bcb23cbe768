//! What the server itself does.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use quell::binary::{page_size, stat, ticks_per_second};

use super::exposition::{Exposition, MetricKind, series};
use crate::route::{Route, Verbs};
use crate::state::State;

/// The bounds of the durations, in seconds. A wait can last 50 s.
const BOUNDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];

/// The requests that were answered. A stream counts when it begins.
#[derive(Debug, Default)]
pub struct Requests(Mutex<BTreeMap<&'static str, Answered>>);

/// The requests of one route.
#[derive(Debug, Default)]
struct Answered {
    by_code: BTreeMap<(&'static str, u16), u64>,
    durations: [u64; BOUNDS.len() + 1],
    sum: f64,
}

impl Requests {
    /// Counts a request.
    pub fn note(&self, route: &Route, code: u16, took: Duration) {
        let method = match route.method {
            Verbs::Get => "GET",
            Verbs::Post => "POST",
            Verbs::Delete => "DELETE",
        };
        let mut requests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = requests.entry(route.path).or_default();
        *answered.by_code.entry((method, code)).or_default() += 1;
        let seconds = took.as_secs_f64();
        answered.durations[BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len())] += 1;
        answered.sum += seconds;
    }
}

/// Writes what the server has done, and what it uses.
pub fn write(text: &mut Exposition, state: &State) {
    let requests = state.counts.requests.0.lock().unwrap_or_else(PoisonError::into_inner);
    text.family("quell_serve_requests_total", MetricKind::Counter, "Requests by route, method and status.");
    for (route, answered) in &*requests {
        for ((method, code), count) in &answered.by_code {
            let labels = [("route", *route), ("method", *method), ("code", &code.to_string())];
            text.count(&series("quell_serve_requests_total", &labels), *count);
        }
    }
    let name = "quell_serve_request_duration_seconds";
    text.family(name, MetricKind::Histogram, "How long answers took, by route.");
    for (route, answered) in &*requests {
        text.histogram(name, &[("route", route)], BOUNDS, &answered.durations, answered.sum);
    }
    drop(requests);
    let mut one = |name: &str, kind, help: &str, value: f64| {
        text.family(name, kind, help);
        text.value(name, value);
    };
    let of = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed) as f64;
    one("quell_serve_streams", MetricKind::Gauge, "Open streams.", state.streams() as f64);
    one(
        "quell_serve_resets_total",
        MetricKind::Counter,
        "Streams whose client had missed events.",
        of(&state.counts.resets),
    );
    let denied = of(&state.counts.denied);
    one("quell_serve_auth_failures_total", MetricKind::Counter, "Wrong or missing tokens.", denied);
    one(
        "process_start_time_seconds",
        MetricKind::Gauge,
        "When the server was started.",
        state.started.unix_ms() as f64 / 1000.0,
    );
    if let Ok(own) = stat(std::process::id()) {
        let cpu = own.cpu as f64 / ticks_per_second() as f64;
        one("process_cpu_seconds_total", MetricKind::Counter, "CPU time of the server.", cpu);
        let resident = (own.resident * page_size()) as f64;
        one("process_resident_memory_bytes", MetricKind::Gauge, "Resident memory of the server.", resident);
    }
    if let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") {
        one(
            "process_open_fds",
            MetricKind::Gauge,
            "Open descriptors of the server.",
            descriptors.count() as f64,
        );
    }
}
