//! Linux.

mod aide;
mod background;
mod caller;
mod desk;
mod evidence;
mod finish;
mod flood;
mod front;
mod input;
mod prepare;
mod ready;
mod service;
mod spec;
mod supervise;
mod takeover;
mod taps;
mod waiting;
mod wire;

pub use aide::{News, is_below_an_aide, is_run_by_an_aide, tell_hooks};
pub use background::stand_by;
pub use front::run;
pub use prepare::{check, find_program};

/// What the fuzzer calls; no part of the interface.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    pub use super::wire::{Line, Note, Order};
}
