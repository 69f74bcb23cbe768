//! Linux.

mod background;
mod backoff;
mod caller;
mod channel;
mod conclude;
mod control_server;
mod engine;
mod evidence;
mod foreground;
mod helper;
mod hooks;
mod host;
mod http_probe;
mod input;
mod job;
mod keeper_watch;
mod launch;
mod output;
mod own_tree;
mod owner;
mod preflight;
mod readiness;
mod receipt_sink;
mod record;
mod requests;
mod standby;
mod stop_signals;
mod takeover;

pub use background::keeper_main;
pub use foreground::run;
pub use helper::is_below_a_helper;
pub use hooks::{HookNotice, notify_hooks};
pub use preflight::{check, find_program};

/// What the fuzzer calls; not part of the interface.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    pub use super::channel::{FrontCommand, JsonChannel, KeeperEvent};
}
