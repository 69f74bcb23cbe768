//! The keeper, which owns one job, and the front, which the user called.
//!
//! [`run`] is all that a caller needs: it prepares everything that can fail, forks the keeper, and waits beside it
//! until the tree is proven gone. If the front dies, the keeper stops the tree; if the keeper dies, the front does.
#![forbid(unsafe_code)]

pub mod control;
mod request;

#[cfg(target_os = "linux")]
#[path = "linux/mod.rs"]
mod platform;
#[cfg(not(target_os = "linux"))]
#[path = "other.rs"]
mod platform;

#[cfg(all(target_os = "linux", feature = "fuzzing"))]
#[doc(hidden)]
pub use platform::fuzzing;
#[cfg(target_os = "linux")]
pub use platform::{News, is_below_a_helper, is_run_by_a_helper, stand_by, tell_hooks};
pub use platform::{check, find_program, run};
pub use request::{DESCRIPTOR, ExecRemedy, Finished, RunError, StartMessage, StartReply};
