//! Start anything, stop everything: the library that `quell` itself is built on.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

pub mod config;
mod error;
mod find;
mod gc;
mod index;
mod recover;
mod stats;
mod sweep;
mod view;

pub use config::{Config, Loaded};
pub use error::Error;
pub use find::{BadTag, Filter, Listing, TagFilter, list, resolve};
pub use gc::{GcReport, GcRules, Skipped, gc, remove};
pub use quell_core as core;
pub use quell_store::{Home, JobDir};
pub use recover::{Finish, finish_lost, settle_lost};
pub use stats::{Exits, Spread, Stats, stats};
pub use sweep::{Leftover, LeftoverAction, SweepAction, SweepReport, SweptJob, sweep};
pub use view::{JobState, JobView};

/// What most calls give.
pub type Result<T> = std::result::Result<T, Error>;
