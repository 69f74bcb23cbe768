//! Linux.
//!
//! ```text
//! foreground.rs      run: the front and its keeper          background.rs   keeper_main: from the request to the keeper
//! keeper_watch.rs    KeeperWatch: what front and standby do while the keeper runs
//!   standby.rs, stop_signals.rs (what signals mean), takeover.rs (the keeper was killed)
//! left.rs            what the root leaves behind goes on, and the front returns
//! engine.rs          Supervisor: the keeper's loop, over all runs; Run: one run of the program
//!   launch.rs        the start of a run                     own_tree.rs     the tree, as the stop engine uses it
//!   record.rs        state, members, history on disk        evidence.rs     what has happened, and the receipt
//!   conclude.rs      proof and end of a run                 backoff.rs      restarts
//! host.rs            Host: what the keeper serves in addition to its tree
//!   control_server.rs, requests.rs, caller.rs (clients), output/, input.rs, readiness.rs, owner.rs,
//!   server.rs (a server that its client talks to over stdin and stdout)
//! helper.rs          the process for hooks.rs and http_probe.rs
//! channel.rs         JSON lines between these processes: FrontCommand, KeeperEvent
//! job.rs, preflight.rs, receipt_sink.rs    what is prepared before the fork
//! ```
//!
//! One run: `launch` → running → (stop request, or the root exits) → `StopEngine` → `conclude` → next run or end. The keeper and its
//! front or standby watch each other: if one is killed, the other finishes the stop.

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
mod left;
mod output;
mod own_tree;
mod owner;
mod preflight;
mod readiness;
mod receipt_sink;
mod record;
mod requests;
mod server;
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
