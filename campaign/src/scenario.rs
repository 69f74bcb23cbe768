//! One scenario: a world, some clients, a nemesis, and in the end the checker. All of it comes from one seed.

use std::{sync::atomic::AtomicBool, thread};

use quell_tests::host::Setting;

use crate::{
    checker,
    client::Client,
    figures::Figures,
    nemesis::Nemesis,
    seed::Chance,
    world::{Trouble, World},
};

/// Runs it; what was broken.
pub fn play(seed: u64, figures: &Figures, points: &[String]) -> Vec<String> {
    let mut chance = Chance::new(seed);
    let settings = Setting::all();
    let setting = settings[chance.below(settings.len())];
    let kinds = [
        (4, Trouble::Signals),
        (2, Trouble::Files),
        (2, Trouble::Disk),
        (3, Trouble::Hostile),
        (3, Trouble::Host),
    ];
    let trouble = chance.weighed(&kinds);
    let mut world = World::new(setting, trouble, &mut chance);
    let (clients, calls) = (2 + chance.below(3), 6 + chance.below(14));
    let enough = AtomicBool::new(false);
    thread::scope(|scope| {
        let world = &world;
        let raging = scope.spawn(|| Nemesis::new(world, figures, chance.part(1000)).rage(&enough));
        let working: Vec<_> = (0..clients)
            .map(|number| {
                let chance = chance.part(number as u64);
                scope.spawn(move || {
                    Client { world, figures, chance, points, struck: false, gcs: 0 }.work(calls)
                })
            })
            .collect();
        for client in working {
            if client.join().is_err() {
                world.violation("harness", "a client of the campaign panicked");
            }
        }
        enough.store(true, std::sync::atomic::Ordering::Relaxed);
        if raging.join().is_err() {
            world.violation("harness", "the nemesis panicked");
        }
    });
    checker::check(&mut world);
    figures.scenarios.add(1);
    let described = |violation: String| format!("{setting}, {trouble:?}: {violation}");
    world.violations().into_iter().map(described).collect()
}
