//! One file per verb. `quell run` is in `run/`, `quell stop` in `stop/`, `quell test` in `test_*.rs`.

pub mod config_show;
pub mod events;
pub mod list;
pub mod logs;
pub mod rm_gc;
pub mod send_signal_restart;
pub mod setup;
pub mod start;
pub mod stats;
pub mod status;
pub mod top;
pub mod tree;
pub mod wait;
