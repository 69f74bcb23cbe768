//! quell's integration tests: one binary, run against a real `quell` on a real Linux.
#![cfg(target_os = "linux")]

mod bad_input;
mod escapes;
mod events;
mod exit_codes;
mod options;
mod races;
mod recover;
mod recover_records;
mod regressions;
mod regressions_io;
mod schema;
mod scope;
mod stdio;
mod strangers;
mod tty;
