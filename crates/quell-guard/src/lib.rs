//! The guard: what may be done, and a log of what was decided and done.
//!
//! A [`Policy`] says what is allowed. What touches the host (a process that quell didn't start, a service) is refused unless
//! the policy allows it. What touches quell's own jobs is allowed unless the policy refuses it. Each answer is a
//! [`Decision`]: a code for programs, the rule that decided, a reason and a hint for people.
//!
//! The functions that decide are pure: facts in, a decision out. [`Guard`] calls them, writes the audit log and returns a
//! [`Permit`]; [`kill`] and [`service`] act on the host.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod audit_log;
mod decide;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
mod guard;
#[cfg(target_os = "linux")]
pub mod kill;
mod kill_rules;
mod policy;
#[cfg(target_os = "linux")]
pub mod service;
mod service_rules;
mod verb;

#[cfg(target_os = "linux")]
pub use audit_log::{Asker, AuditLine, Kind};
pub use decide::{decide_verb, read_verb};
#[cfg(target_os = "linux")]
pub use error::{Error, Result};
#[cfg(target_os = "linux")]
pub use guard::{Guard, Permit, audit_log};
pub use kill_rules::{ProcessFacts, ProcessOwner, Relation, decide_kill, read_pid};
pub use policy::{KillPolicy, Policy, ServicePolicy, TestPolicy, matches};
pub use quell_core::{BUILT_IN, Decision, DecisionCode};
pub use service_rules::{ServiceName, ServiceVerb, UnitFacts, decide_service, decide_unit, read_service};
pub use verb::{Effect, Verb};

/// The end of a hint: where policies are documented.
pub const GUIDE: &str = "docs/guard.md says how a policy is written";

/// The file that a hint says to edit.
const WHERE: &str = "in /etc/quell/guard.toml if there is one, else in your config.toml";
