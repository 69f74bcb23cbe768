//! quell's integration tests: one binary, run against a real `quell` on a real Linux.
#![cfg(target_os = "linux")]

mod cli;
mod guard;
mod jobs;
mod library;
mod mcp;
mod recovery;
mod regressions;
mod run;
mod security;
mod serve;
mod snapshots;
mod stop;
mod test_refused;
mod test_scope;
mod test_verb;
mod verbs;
mod wrap;
