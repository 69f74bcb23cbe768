//! Jobs on disk. Everything that is known of a job is in its directory, and only the process that holds its lock writes there.
//!
//! ```text
//! $QUELL_HOME/
//!   live/<id>     the job's lock: held by its keeper (and standby) for as long as one of them lives
//!   done/<id>     the same file, moved here when the job has ended, until a reader has put it into the index
//!   names/<name>  a link to the job that has the name, or had it last
//!   jobs/<id>/    spec.json launch.private.json state.jsonl receipt.json events.jsonl control.sock, and the output
//! ```
//!
//! Live jobs are found without reading the finished ones.
//!
//! ```text
//! home.rs      Home: the directory, its lists of jobs       names.rs     names of jobs
//! job.rs       JobDir: create, restore, read, remove        state.rs     the present state
//! events.rs    the history                                  end.rs       JobEnd: the one order in which an end is written
//! liveness.rs  Lock, Liveness: is a keeper alive?           keepers.rs   which processes those are
//! control_socket.rs                                         watch.rs     wait for changes (shared_watch.rs: of many jobs)
//! log/         the captured output: write, read, query      files.rs     private files, replaced atomically
//! ```
//!
//! The states of a job on disk: lock in `live/` and held (supervised) → lock in `live/` and free (lost: the next command
//! finishes it), or state `ended` → lock in `done/` (ended) → in the index.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod control_socket;
mod end;
mod events;
mod files;
mod home;
mod job;
mod keepers;
mod liveness;
mod log;
mod names;
mod shared_watch;
mod state;
#[cfg(test)]
mod testing;
mod watch;

pub use end::{DiskFull, EndStep, JobEnd, SyncWhen};
pub use home::Home;
pub use job::{JobDir, now};
pub use keepers::{Keeper, KeeperRole, RESTORE_FILES_SIGNAL, check_room};
pub use liveness::{Liveness, Lock};
pub use log::{
    CaptureWriter, Cursor, Cut, Entry, InvalidCursor, Line, LineOrCut, Lines, LogEnd, LogPage, LogQuery,
    LogReader, MATCHED, MAX_LINE, MIN_CAP, Matches, Omitted, Piece, Stream, Streams, Taken, WriteFailure,
    last_segment, line_matches,
};
pub use names::{NameError, is_name};
pub use shared_watch::{Change, Changes, Interest, SharedWatch, WatchId};
pub use watch::Watch;
