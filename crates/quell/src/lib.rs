//! Start anything, stop everything: the library that `quell` itself is built on.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod error;
mod recover;
mod sweep;

pub use error::Error;
pub use quell_core as core;
pub use quell_store::{Home, JobDir};
pub use recover::{Finish, finish_lost, settle_lost};
pub use sweep::{Leftover, LeftoverAction, SweepAction, SweepReport, SweptJob, sweep};

/// What most calls give.
pub type Result<T> = std::result::Result<T, Error>;
