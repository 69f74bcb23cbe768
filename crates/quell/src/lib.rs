//! Start anything, stop everything: the library that `quell` itself is built on.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

pub mod config;
mod error;

pub use config::{Config, Loaded};
pub use error::Error;
pub use quell_core as core;
pub use quell_store::{Home, JobDir};

/// What most calls give.
pub type Result<T> = std::result::Result<T, Error>;
