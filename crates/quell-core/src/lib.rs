//! The words of quell, without any I/O: what a job is, how it lives and ends, how a stop is planned and what a
//! receipt says. Everything that talks to a kernel is in other crates and is told here what to do.
//!
//! The key types: [`JobId`], [`JobRequest`], [`Lifecycle`] (the lifecycle as a total state × event table), [`StopPlan`],
//! [`Receipt`]. [`account`] turns a receipt into the few lines that a person reads.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod account;
mod decision;
mod envelope;
mod environment;
mod event;
mod hook;
mod id;
mod lifecycle;
mod mask;
pub mod paths;
mod plan;
mod receipt;
mod record;
mod request;
#[cfg(feature = "schema")]
pub mod schema;
mod signal;
mod state;
mod text;
mod time;
mod units;

pub use decision::{BUILT_IN, Decision};
pub use envelope::{ErrorBody, failure, json, success};
pub use environment::{
    Environment, InvalidAssignment, InvalidEnvironment, parse_assignment, parse_environment,
};
pub use event::{EventKind, JobEvent};
pub use hook::{Hook, HookAction, HookEvent};
pub use id::{InvalidId, JobId};
pub use lifecycle::{
    Action, Count, LastKnown, Lifecycle, LifecycleEvent, LifecycleRules, Phase, StopMode, StopRequest,
};
pub use mask::Mask;
pub use plan::{AskScope, StopPlan};
pub use receipt::{
    Actor, Cause, ContainmentInfo, Counts, Fate, Grace, JobBrief, KillReason, Member, Output, ProcId,
    Receipt, RootOutcome, RootReport, SentSignal, SignalResult, Step, StepKind, StreamTotals, Usage, Verdict,
};
pub use record::{ContainmentKind, JobSpec, SessionKind};
pub use request::{
    Background, Contain, Foreground, JobRequest, Leak, Limits, MAX_LOG, Mode, ModeKind, OnOwnerExit, Owner,
    ReadyCheck, ReadyRules, ReceiptTarget, RestartPolicy, RestartRules, Stdin, StdoutUse, TestTerms, Until,
};
pub use signal::{InvalidSignal, Signal};
pub use state::{
    Ending, FinalVerdict, InvalidState, JobState, RecordedState, RecordedTree, RunEnd, StateRecord,
};
pub use text::{is_unsafe, printable, printable_lines, push_escape};
pub use time::{InvalidTimestamp, Moment, Timestamp};
pub use units::{
    InvalidCores, InvalidDuration, InvalidSize, format_duration, parse_cores, parse_duration, parse_size,
    seconds,
};

/// The name and version of quell's JSON, in every object that it prints or writes.
pub const SCHEMA: &str = "quell/1";
