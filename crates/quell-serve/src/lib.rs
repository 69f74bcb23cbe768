//! temporary
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]
pub mod metrics;
