//! Linux.

mod background;
mod backoff;
mod caller;
mod channel;
mod conclude;
mod control_server;
mod engine;
mod evidence;
mod helper;
mod input;
mod keeper_watch;
mod output;
mod preflight;
mod readiness;
mod requests;
mod takeover;

pub use background::stand_by;
pub use helper::{News, is_below_a_helper, is_run_by_a_helper, tell_hooks};
pub use keeper_watch::run;
pub use preflight::{check, find_program};

/// What the fuzzer calls; no part of the interface.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    pub use super::channel::{JsonChannel, Note, Order};
}
