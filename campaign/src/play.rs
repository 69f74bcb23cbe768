//! One scenario: a scenario, some clients, a nemesis, and in the end the checker. All of it comes from one seed.

use std::{sync::atomic::AtomicBool, thread};

use quell_tests::host::Setting;

use crate::{
    checker,
    client::Client,
    metrics::Metrics,
    nemesis::Nemesis,
    rng::Rng,
    scenario::{FaultClass, Scenario},
};

/// Runs it; what was broken.
pub fn play(seed: u64, metrics: &Metrics, points: &[String]) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let settings = Setting::all();
    let setting = settings[rng.below(settings.len())];
    let kinds = [
        (4, FaultClass::Signals),
        (2, FaultClass::Files),
        (2, FaultClass::Disk),
        (3, FaultClass::Hostile),
        (3, FaultClass::Host),
    ];
    let fault_class = rng.weighed(&kinds);
    let mut scenario = Scenario::new(setting, fault_class, &mut rng);
    let (clients, calls) = (2 + rng.below(3), 6 + rng.below(14));
    let enough = AtomicBool::new(false);
    thread::scope(|scope| {
        let scenario = &scenario;
        let raging = scope.spawn(|| Nemesis::new(scenario, metrics, rng.part(1000)).rage(&enough));
        let working: Vec<_> = (0..clients)
            .map(|number| {
                let rng = rng.part(number as u64);
                scope.spawn(move || {
                    Client { scenario, metrics, rng, points, dies_at_point: false, gcs: 0 }.work(calls)
                })
            })
            .collect();
        for client in working {
            if client.join().is_err() {
                scenario.violation("harness", "a client of the campaign panicked");
            }
        }
        enough.store(true, std::sync::atomic::Ordering::Relaxed);
        if raging.join().is_err() {
            scenario.violation("harness", "the nemesis panicked");
        }
    });
    checker::check(&mut scenario);
    metrics.scenarios.add(1);
    let described = |violation: String| format!("{setting}, {fault_class:?}: {violation}");
    scenario.violations().into_iter().map(described).collect()
}
