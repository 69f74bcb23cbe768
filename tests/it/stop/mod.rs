//! A stop: what it leaves (nothing), which processes it signals, what it reports, races and many stops at once.

pub mod account;
pub mod bystanders;
pub mod concurrency;
pub mod escapes;
pub mod mechanisms;
pub mod obstructed;
pub mod pid_reuse;
pub mod races;
pub mod systemd_scope;
