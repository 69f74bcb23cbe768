//! How a process tree is contained and stopped.
//!
//! [`Containment::acquire`] finds what the host allows, [`Containment::spawn`] makes the root inside it, and [`Containment::ask`],
//! [`Containment::kill_round`] and [`Containment::count`] are the steps of a stop. The four containments are in `linux/backend/`, one file each,
//! with the same functions. On platforms that quell is not built for yet the same names say so.
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
