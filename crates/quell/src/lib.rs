//! Start anything, stop everything: the library that the `quell` command is built on.
//!
//! A [`Job`] is one command and everything that it starts. Another process keeps it, so a job does not depend on the program that
//! started it. What is known of a job is on disk, in quell's home directory.
//!
//! ```no_run
//! # fn main() -> quell::Result<()> {
//! use std::time::Duration;
//! use quell::Quell;
//!
//! let quell = Quell::open()?;
//! let job = quell.command("npm").args(["run", "dev"]).ready_port(3000).owned_by_this_process().start()?;
//! job.wait_ready(Duration::from_secs(30))?;
//! for line in job.follow()? {
//!     println!("{}", line?.text);
//! }
//! let stopped = job.stop()?; // returns when every process is proven gone
//! println!("{:?}", stopped.receipt().verdict);
//! # Ok(())
//! # }
//! ```
//!
//! The `quell` program has to be on the PATH, or in `$QUELL_BIN`: it is what keeps the jobs. The guard's policy applies to the
//! library as it does to the command line.
//!
//! # From async code
//!
//! All calls block, as they wait for other processes. The feature `tokio` adds `wait_async`, `wait_ready_async` and `stop_async`;
//! other calls can be made in `tokio::task::spawn_blocking`. A [`Job`] is cheap to clone and can be sent to other threads. No call
//! forks the calling process or changes its signals, whatever its size and number of threads.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(feature = "binary")]
#[doc(hidden)]
pub mod binary;
pub mod units;

// Other platforms have only what the command line needs to report that they are not supported.
cfg_if::cfg_if! {
    if #[cfg(target_os = "linux")] {
        mod admit;
        mod attention;
        mod auto_gc;
        #[cfg(feature = "tokio")]
        mod async_job;
        mod builder;
        #[cfg(feature = "binary")]
        mod client;
        #[cfg_attr(not(feature = "binary"), allow(dead_code, unused_imports, reason = "read by the quell program"))]
        mod config;
        #[cfg(feature = "binary")]
        mod diagnostics;
        mod error;
        mod events;
        mod gc;
        mod index;
        mod interrupt;
        mod job;
        mod keeper_client;
        mod list;
        mod logs;
        mod quell;
        mod recover;
        mod resolve;
        #[cfg(feature = "binary")]
        mod responses;
        mod restart;
        #[cfg(feature = "binary")]
        mod roles;
        #[cfg(feature = "schema")]
        pub mod schema;
        mod send;
        #[cfg(feature = "binary")]
        mod short_ids;
        mod start;
        mod state_words;
        mod stats;
        mod stop;
        mod sweep;
        mod tree;
        mod view;
        mod vitals;
        mod wait;

        pub use attention::{Attention, AttentionFacts, AttentionKind, AttentionRules, StopProgress, attention, order as attention_order};
        pub use builder::CommandBuilder;
        pub use error::Error;
        pub use list::{Filter, InvalidTag, Listing, RecoveredList, TagFilter};
        pub use gc::{GcReport, GcRules, Skipped};
        pub use events::{EventFeed, EventWatch, parse_since};
        pub use interrupt::Interrupt;
        pub use job::{Job, Removal, SignalTo};
        pub use logs::{Follow, LogCut, LogLine, LogRequest, LogsView, Unwritten};
        pub use quell::{DryRun, Quell};
        pub use quell_keeper::control_protocol::LiveMember;
        pub use quell_store::{Cursor, InvalidCursor, Omitted, Stream};
        pub use send::SendEof;
        pub use start::{owner_process, parent_of};
        pub use state_words::{StateLook, StateWords};
        pub use stats::{Bucket, Exits, Period, Spread, Stats, StatsFilter, Sums, TagSums};
        pub use stop::{PendingStop, StopOptions, Stopped};
        pub use sweep::{Leftover, LeftoverAction, SweepAction, SweepReport, SweptJob};
        pub use tree::ProcessTree;
        pub use view::JobView;
        pub use vitals::{Vitals, VitalsSampler};
        pub use wait::{Condition, WaitFor, WaitMode, Waited, wait};

        use admit::{AccessRequest, record_start, record_stop};
        use config::Config;
        use quell::own_program;
        use recover::recover_if_orphaned;

        /// What most calls return.
        pub type Result<T> = std::result::Result<T, Error>;
    }
}

pub use quell_core::{
    Actor, AskScope, Background, Cause, Contain, ContainmentInfo, ContainmentKind, Counts, Decision,
    Environment, ErrorBody, EventKind, Fate, Foreground, Grace, Hook, HookAction, HookEvent, InvalidId,
    InvalidSignal, InvalidState, JobBrief, JobEvent, JobId, JobRequest, JobState, KillReason, Leak, Limits,
    Member, Mode, ModeKind, Moment, OnOwnerExit, Output, Owner, ProcId, ReadyCheck, ReadyRules, Receipt,
    RestartPolicy, RestartRules, RootOutcome, RootReport, SentSignal, SessionKind, Signal, SignalResult,
    Stdin, Step, StepKind, StopPlan, StreamTotals, Timestamp, Until, Usage, Verdict,
};
pub use quell_keeper::StartError;
