//! `quell run`: options, exit codes, standard streams, terminals.

pub mod agent_shell;
pub mod exit_codes;
pub mod job_control;
pub mod leak_keep;
pub mod options;
pub mod stdio;
pub mod waits_for_events;
