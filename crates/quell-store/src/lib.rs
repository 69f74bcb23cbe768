//! Jobs on disk. The truth about a job is in its directory; whoever holds its lock is the only one who writes there.
//!
//! ```text
//! $QUELL_HOME/
//!   live/<id>     the job's lock: held by its keeper (and standby) for as long as one of them lives
//!   done/<id>     the same file, moved here when the job has ended, until a reader has put it into the index
//!   names/<name>  a link to the job that bears the name, or bore it last
//!   jobs/<id>/    spec.json launch.private.json state.jsonl receipt.json events.jsonl control.sock, and the output
//! ```
//!
//! Live jobs are found without a look at the finished ones, however many those are.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod end;
mod home;
mod job;
mod keepers;
mod log;
#[cfg(test)]
mod testing;
mod watch;

pub use end::{DiskFull, EndStep, JobEnd, SyncWhen, log_once, once};
pub use home::{Home, NameError, is_name};
pub use job::{JobDir, Liveness, Lock, now};
pub use keepers::{KNOCK, Keeper, Role, check_room};
pub use log::{
    CaptureWriter, Cursor, Cut, Entry, InvalidCursor, Line, LineOrCut, Lines, LogEnd, LogPage, LogQuery,
    LogReader, MATCHED, MAX_LINE, MIN_CAP, Matches, Omitted, Piece, Stream, Streams, Taken, WriteFailure,
    line_matches,
};
pub use watch::Watch;
