//! How a process tree is contained and stopped.
//!
//! [`Containment::acquire`] chooses what holds the tree, [`Containment::spawn`] makes the root inside it, and
//! [`Containment::ask`], [`Containment::kill_round`] and [`Containment::count`] are the steps of a stop. [`StopEngine`] calls
//! them in the order that the lifecycle decides, and [`Containment::prove`] proves the end. `linux/mod.rs` has a map of the files.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
#[path = "linux/mod.rs"]
mod platform;
#[cfg(not(target_os = "linux"))]
#[path = "other.rs"]
mod platform;

mod report;

pub use platform::*;
pub use report::{Ability, Doctor};
