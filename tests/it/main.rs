//! quell's integration tests: one binary, run against a real `quell` on a real Linux.
#![cfg(target_os = "linux")]

mod bad_input;
mod config;
mod escapes;
mod events;
mod exit_codes;
mod hooks;
mod input;
mod library;
mod options;
mod output;
mod peers;
mod races;
mod ready;
mod regressions;
mod regressions_io;
mod schema;
mod scope;
mod secrets;
mod start;
mod stdio;
mod strangers;
mod tty;
