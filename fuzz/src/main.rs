//! One target under libFuzzer, chosen by `QUELL_FUZZ_TARGET`. `fuzz/run` builds it with coverage and starts it.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use quell_fuzz::targets::{ALL, Target};

fn target() -> &'static Target {
    static TARGET: OnceLock<&Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var("QUELL_FUZZ_TARGET").unwrap_or_default();
        let names: Vec<&str> = ALL.iter().map(|target| target.name).collect();
        let found = ALL.iter().find(|target| target.name == name);
        found.unwrap_or_else(|| panic!("QUELL_FUZZ_TARGET={name:?}: expected one of {names:?}"))
    })
}

fuzz_target!(|input: &[u8]| (target().run)(input));
