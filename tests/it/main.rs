//! quell's integration tests: one binary, run against a real `quell` on a real Linux.
#![cfg(target_os = "linux")]

mod answers;
mod bad_input;
mod config;
mod escapes;
mod events;
mod exit_codes;
mod list;
mod options;
mod paper;
mod races;
mod regressions;
mod regressions_io;
mod schema;
mod scope;
mod start;
mod status;
mod stdio;
mod strangers;
mod tidy;
mod tree;
mod tty;
