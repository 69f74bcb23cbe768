//! quell's integration tests: one binary, run against a real `quell` on a real Linux.
#![cfg(target_os = "linux")]

mod answers;
mod bad_input;
mod config;
mod crash;
mod crowd;
mod damage;
mod escapes;
mod events;
mod exit_codes;
mod history;
mod list;
mod logs;
mod options;
mod owners;
mod paper;
mod races;
mod recover;
mod recover_records;
mod regressions;
mod regressions_io;
mod restarts;
mod schema;
mod scope;
mod send;
mod start;
mod status;
mod stdio;
mod strangers;
mod tidy;
mod tree;
mod tty;
mod wait;
