//! The guard: may this be done?
//!
//! A [`Policy`] says what is allowed. What touches the host (a process that quell didn't start, a service) is refused unless
//! the policy allows it; what touches quell's own jobs is allowed unless the policy refuses it. Every answer is a
//! [`Decision`]: a code for programs, the rule that decided, a reason and a hint for people.
//!
//! Decisions are pure: facts in, a decision out. [`Guard`] asks them, writes the audit log and gives a [`Permit`]; [`kill`] and [`service`] do what
//! touches the host, behind it.
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
pub use kill_rules::{Kin, ProcessFacts, ProcessOwner, decide_kill, read_pid};
pub use policy::{KillPolicy, Policy, ServicePolicy, TestPolicy, matches};
pub use quell_core::{BUILT_IN, Decision};
pub use service_rules::{ServiceName, ServiceVerb, UnitFacts, decide_service, decide_unit, read_service};
pub use verb::{Effect, Verb};

/// Where people are led to.
pub const GUIDE: &str = "docs/guard.md says how a policy is written";

/// Which file what allows is written into.
const WHERE: &str = "in /etc/quell/guard.toml if there is one, else in your config.toml";
