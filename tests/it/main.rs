//! quell's integration tests: one binary, run against a real `quell` on a real Linux.
#![cfg(target_os = "linux")]

mod bad_input;
mod config;
mod escapes;
mod events;
mod exit_codes;
mod options;
mod races;
mod regressions;
mod regressions_io;
mod schema;
mod scope;
mod start;
mod stdio;
mod strangers;
mod tty;
