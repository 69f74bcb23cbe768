//! How a process tree is held and stopped: one file per containment, one enum over them.
//!
//! [`acquire`] finds what the host allows, [`Hold::spawn`] gives birth to the root inside it, [`Hold::ask`],
//! [`Hold::kill_round`] and [`Hold::count`] are the rungs of a stop. On platforms that quell is not built for yet the
//! same names say so.
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
