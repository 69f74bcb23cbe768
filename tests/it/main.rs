//! quell's integration tests: one binary, run against a real `quell` on a real Linux.
#![cfg(target_os = "linux")]

mod bad_input;
mod config;
mod crash;
mod crowd;
mod damage;
mod escapes;
mod events;
mod exit_codes;
mod options;
mod owners;
mod races;
mod regressions;
mod regressions_io;
mod restarts;
mod schema;
mod scope;
mod start;
mod stdio;
mod strangers;
mod tty;
