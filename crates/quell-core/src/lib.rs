//! quell's types and rules, without any I/O: what a job is, how it lives and ends, how a stop is planned and what a
//! receipt says. What talks to the kernel is in other crates.
//!
//! The key types: [`JobId`], [`JobRequest`], [`Lifecycle`] (the lifecycle as a total state × event table), [`StopPlan`],
//! [`Receipt`]. [`account`] turns a receipt into the few lines that a person reads.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod account;
mod asked_through;
mod containment;
mod decision;
mod ending;
mod envelope;
mod environment;
mod event;
mod hook;
mod id;
mod lifecycle;
mod limits;
mod mask;
mod member;
mod owner;
pub mod paths;
mod process_id;
mod readiness;
mod receipt;
mod request;
mod restart_rules;
#[cfg(feature = "schema")]
pub mod schema;
mod signal;
mod spec;
mod state;
mod step;
mod stop_plan;
mod text;
mod time;
mod units;

pub use asked_through::AskedThrough;
pub use containment::{Contain, ContainmentInfo, ContainmentKind, SessionKind};
pub use decision::{BUILT_IN, Decision, DecisionCode};
pub use ending::{Actor, Cause, Ending, FinalVerdict, KillReason, RootOutcome, Verdict, describe_request};
pub use envelope::{ErrorBody, failure, json, json_line, success};
pub use environment::{
    Environment, InvalidAssignment, InvalidEnvironment, parse_assignment, parse_environment,
};
pub use event::{EventKind, JobEvent};
pub use hook::{Hook, HookAction, HookEvent};
pub use id::{InvalidId, JobId};
pub use lifecycle::{
    Action, Count, LastKnown, Lifecycle, LifecycleEvent, LifecycleRules, Phase, StopMode, StopRequest,
};
pub use limits::Limits;
pub use mask::Mask;
pub use member::{Counts, Fate, Member};
pub use owner::{OnOwnerExit, Owner};
pub use process_id::ProcId;
pub use readiness::{ReadyCheck, ReadyRules};
pub use receipt::{Grace, JobBrief, Output, Receipt, RootReport, StreamTotals, Usage};
pub use request::{
    Background, ClientProcess, Foreground, JobRequest, Leak, MAX_LOG, Mode, ModeKind, ReceiptTarget,
    ReportWords, ServerRules, Stdin, StdoutUse, TestTerms, Until,
};
pub use restart_rules::{RestartPolicy, RestartRules};
pub use signal::{InvalidSignal, Signal};
pub use spec::JobSpec;
pub use state::{InvalidState, JobState, RecordedState, RecordedTree, RunEnd, StateRecord};
pub use step::{SentSignal, SignalResult, Step, StepKind};
pub use stop_plan::{AskScope, StopPlan};
pub use text::{columns_of_char, grouped, is_unsafe, printable, printable_lines, push_escape, width};
pub use time::{InvalidTimestamp, Moment, Timestamp};
pub use units::{
    InvalidCores, InvalidDuration, InvalidSize, format_duration, parse_cores, parse_duration, parse_size,
    seconds,
};

/// The name and version of quell's JSON, in every object that it prints or writes.
pub const SCHEMA: &str = "quell/1";
