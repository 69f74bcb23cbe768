//! The processes that own jobs: the front, the keeper, the standby and the helper.
//!
//! [`run`] runs a job in the foreground: it checks everything that can fail, forks the keeper, and waits until the tree is
//! proven gone. If the front dies, the keeper stops the tree; if the keeper dies, the front does. `keeper_main` does the same
//! for a job in the background, below a standby.
#![forbid(unsafe_code)]

pub mod control_protocol;
mod error;

#[cfg(target_os = "linux")]
#[path = "linux/mod.rs"]
mod platform;
#[cfg(not(target_os = "linux"))]
#[path = "unsupported.rs"]
mod platform;

pub use control_protocol::{StartMessage, StartReply};
pub use error::{DESCRIPTOR, ExecRemedy, StartError};
#[cfg(all(target_os = "linux", feature = "fuzzing"))]
#[doc(hidden)]
pub use platform::fuzzing;
#[cfg(target_os = "linux")]
pub use platform::{HookNotice, is_below_a_helper, keeper_main, notify_hooks};
pub use platform::{check, find_program, run};
use quell_core::{JobId, Member, ProcId, Receipt, RootOutcome};

/// How a job in the foreground came back to its caller.
#[derive(Clone, Debug)]
pub enum Returned {
    /// It has ended.
    Finished(Box<Finished>),
    /// Its root has exited, and processes of it go on as a live job.
    Left(Box<Left>),
}

/// A job whose root has exited, and whose other processes go on: its keeper lives until the last one has exited.
#[derive(Clone, Debug)]
pub struct Left {
    /// Its id.
    pub id: JobId,
    /// The root, if it can be seen from here.
    pub root: Option<ProcId>,
    /// How the root ended.
    pub outcome: RootOutcome,
    /// How many processes are left, as far as they were seen.
    pub count: usize,
    /// The first few of them.
    pub members: Vec<Member>,
    /// Whether the terminal sent its interrupt to this process and to the program alike.
    pub interrupted: bool,
}

/// The result of a job in the foreground.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What happened.
    pub receipt: Receipt,
    /// Whether descendants were alive when the root had exited by itself.
    pub leaked: bool,
    /// Whether a receipt that was asked for could not be written; the receipt's warnings say why.
    pub unwritten: bool,
    /// Whether the terminal sent its interrupt to this process and to the program alike.
    pub interrupted: bool,
}
