//! Linux.

mod background;
mod caller;
mod desk;
mod evidence;
mod finish;
mod flood;
mod front;
mod helper;
mod input;
mod prepare;
mod ready;
mod service;
mod supervise;
mod takeover;
mod taps;
mod waiting;
mod wire;

pub use background::stand_by;
pub use front::run;
pub use helper::{News, is_below_a_helper, tell_hooks};
pub use prepare::{check, find_program};

/// What the fuzzer calls; no part of the interface.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    pub use super::wire::{JsonChannel, Note, Order};
}
